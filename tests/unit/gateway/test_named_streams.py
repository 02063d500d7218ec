"""Event streams of named sessions: a POST makes the session, a GET attaches with its ticket, and pages of other sites
do neither."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from mqttlite.gateway.caller import Role
from mqttlite.gateway.tickets import FILE_NAME, Tickets
from tests.support.device import Device
from tests.support.gateway import GatewayUnderTest, nobody_without_credentials, running_gateway

NAMED = {"filters": ["a"], "client_id": "page"}


@asynccontextmanager
async def device(gateway: GatewayUnderTest, client_id: str, **options: object) -> AsyncIterator[Device]:
    """A client of MQTT with a name."""
    found = await Device.dial(gateway.broker.port)
    try:
        await found.connect(client_id, **options)
        yield found
    finally:
        await found.close()


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def test_a_get_touches_no_session_with_a_name(gateway: GatewayUnderTest) -> None:
    client = gateway.client()
    made = (await client.post("/api/v1/topics", json={"name": "a"})).json()
    await client.post("/events", json={**NAMED, "client_id": "kept"})
    await gateway.broker.publish("a", b"1", qos=1)
    for path in ("/events?filter=b&", f"/api/v1/topics/{made['topic_id']}/subscribe?"):
        for query in ("client_id=kept", "client_id=kept&session_expiry_s=60", "session_expiry_s=60"):
            assert code_of(await client.get(path + query)) == (422, "invalid_value")
    found = gateway.broker.admin.client("kept")
    assert found is not None
    assert (found.topic_filters, found.entry.queued) == ({"a": 1}, 1)


REFUSED_HEADERS = (
    {"Origin": "http://evil.example"},
    {"Origin": "http://localhost:9999"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": "http://localhost:9999", "Sec-Fetch-Site": "same-origin"},
)

OWN_HEADERS: tuple[dict[str, str], ...] = (
    {},
    {"Origin": "http://localhost:8080"},
    {"Origin": "https://app.example", "Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "none"},
)


@pytest.mark.long
async def test_pages_of_other_sites_open_no_stream_and_make_no_session(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, http={"allowed_origins": ("https://app.example",)}) as gateway:
        client = gateway.client(Role.OPERATOR)
        streams = ("/events?filter=%23a", "/api/v1/topics/none/subscribe", "/ui/none/live")
        for headers in REFUSED_HEADERS:
            for path in streams:
                assert (await client.get(path, headers=headers)).status_code == 403, (path, headers)
            assert code_of(await client.post("/events", json=NAMED, headers=headers)) == (403, "cross_origin")
        for headers in OWN_HEADERS:
            for path, status in zip(streams, (422, 404, 404), strict=True):  # they pass this door, and fail at the next
                assert (await client.get(path, headers=headers)).status_code == status, (path, headers)
            assert (await client.post("/events", json=NAMED, headers=headers)).status_code in (200, 201)
        assert (await client.get("/api/v1/me", headers={"Sec-Fetch-Site": "cross-site"})).status_code == 200


@pytest.mark.long
async def test_a_ticket_is_for_the_user_that_got_it(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, users=("ann", "bob"), **nobody_without_credentials(tmp_path)) as gateway:
        ann, bob = gateway.user("ann"), gateway.user("bob")
        made = (await ann.post("/events", json=NAMED)).json()
        assert made["session_present"] is False
        name, _, mac = made["ticket"].partition(".")
        for client in (ann, bob):
            for ticket in ("", "x", name, f"{name}.", f"{name}.{mac[:-4]}AAAA", f"{name[:-1]}.{mac}", f"{name}.é"):
                assert code_of(await client.get("/events", params={"ticket": ticket})) == (403, "not_authorized")
        assert code_of(await bob.get(made["url"])) == (403, "not_authorized")
        assert code_of(await gateway.client().get(made["url"])) == (401, "not_authenticated")
        assert code_of(await bob.post("/events", json=NAMED)) == (403, "not_authorized")
        assert code_of(await ann.get(f"{made['url']}&filter=b")) == (422, "invalid_value")
        gateway.broker.admin.end_session("page")
        assert code_of(await ann.get(made["url"])) == (410, "gone")
        assert (await bob.post("/events", json=NAMED)).status_code == 201
        assert code_of(await ann.get(made["url"])) == (403, "not_authorized")


@pytest.mark.long
async def test_a_ticket_of_one_topic_is_none_of_another(gateway: GatewayUnderTest) -> None:
    client = gateway.client()
    one, other = [(await client.post("/api/v1/topics", json={"name": name})).json()["topic_id"] for name in "ab"]
    made = (await client.post(f"/api/v1/topics/{one}/subscribe", json={})).json()
    assert made["url"] == f"/api/v1/topics/{one}/subscribe?ticket={made['ticket']}"
    wrong = await client.get(f"/api/v1/topics/{other}/subscribe", params={"ticket": made["ticket"]})
    assert code_of(wrong) == (403, "not_authorized")
    found = gateway.broker.admin.client(made["client_id"])
    assert found is not None
    assert found.topic_filters == {"a": 1}


@pytest.mark.slow
async def test_a_stream_takes_over_from_no_client_of_mqtt(gateway: GatewayUnderTest) -> None:
    client = gateway.client()
    async with device(gateway, "sensor"):
        for name in ("sensor", "page"):
            answer = await client.post("/events", json={**NAMED, "client_id": name})
            assert answer.status_code == (409 if name == "sensor" else 201)
        async with device(gateway, "page", clean_start=False):  # the name, and the session, are the device's now
            assert code_of(await client.get(answer.json()["url"])) == (409, "conflict")
            assert code_of(await client.post("/events", json=NAMED)) == (409, "conflict")
        assert gateway.broker.admin.client("sensor") is not None


WRONG_SESSIONS = (
    (b"{", 400),
    (b"[" * 100_000, 422),
    (b"{}", 422),
    (b'{"filters": "a"}', 422),
    (b'{"filters": ["a"], "qos": 2}', 422),
    (b'{"filters": ["a"], "session_expiry_s": 0}', 422),
    (b'{"filters": ["a"], "session_expiry_s": 4294967296}', 422),
    (b'{"filters": ["a"], "client_id": "\\u0000"}', 422),
    (b'{"filters": ["a"], "client_id": "%b"}' % (b"x" * 70_000), 422),
    (b'{"filters": ["a"], "clean": true}', 422),
    (b'{"filters": ["#a"]}', 422),
    (b'{"filters": ["a"], "where": "payload >"}', 400),
    (b'{"filters": ["$SYS/#", "a"], "where": "payload >"}', 400),
)


async def test_a_session_that_is_wrongly_asked_for_is_not_made(gateway: GatewayUnderTest) -> None:
    for body, status in WRONG_SESSIONS:
        assert (await gateway.client().post("/events", content=body)).status_code == status, body[:80]
    topic_id = (await gateway.client().post("/api/v1/topics", json={"name": "a"})).json()["topic_id"]
    answer = await gateway.client().post(f"/api/v1/topics/{topic_id}/subscribe", json={"filters": ["b"]})
    assert code_of(answer) == (422, "invalid_value")
    assert (await gateway.broker.admin.clients()).entries == []


async def test_a_session_that_is_asked_for_again_goes_on(gateway: GatewayUnderTest) -> None:
    client = gateway.client()
    first = await client.post("/events", json=NAMED)
    await gateway.broker.publish("a", b"1", qos=1)
    again = await client.post("/events", json=NAMED)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == {**first.json(), "session_present": True}
    other = await client.post("/events", json={**NAMED, "filters": ["b", "c/#"], "session_expiry_s": 60})
    assert other.json() == {**first.json(), "session_present": True, "session_expiry_s": 60}
    assert (await client.post("/events", json={**NAMED, "filters": ["d", "#a"]})).status_code == 422
    refused = await client.post("/events", json={**NAMED, "filters": ["d"], "where": "payload >"})
    assert code_of(refused) == (400, "bad_request")
    found = gateway.broker.admin.client("page")
    assert found is not None
    assert (found.topic_filters, found.session_expiry_s) == ({"b": 1, "c/#": 1}, 3_600)
    assert found.entry.queued + found.entry.inflight == 1


async def test_tickets_are_of_one_key_which_outlives_the_broker(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    ticket = await Tickets(path).issue("page", "ann")
    assert path.stat().st_mode & 0o777 == 0o600
    assert Tickets(path).client_id_of(ticket, "ann") == "page"
    for user in (None, "bob", ""):
        with pytest.raises(Exception, match="ticket"):
            Tickets(path).client_id_of(ticket, user)
    strangers = (
        Tickets(None),
        Tickets(path, b"site7/"),
        Tickets(tmp_path / "none"),
    )
    for tickets in strangers:
        with pytest.raises(Exception, match="ticket"):
            tickets.client_id_of(ticket, "ann")
    for damaged in ("", "{}", '{"key": "00"}', '{"key": "xy"}', '{"key": "é"}', "[" * 100_000):
        path.write_text(damaged)
        tickets = Tickets(path)
        with pytest.raises(Exception, match="ticket"):
            tickets.client_id_of(ticket, "ann")
        assert tickets.client_id_of(await tickets.issue("page", None), None) == "page"
