"""Messages that are published over HTTP: what MQTT receives, and what the answer says became of them."""

import base64
import json
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote

import httpx
import pytest
from cloudevents.v1.conversion import to_binary, to_structured
from cloudevents.v1.http import CloudEvent, from_http

from mqttlite.client import Client, Message
from mqttlite.config.quotas import QuotaOptions
from mqttlite.core.limits import Limits
from mqttlite.extensions.queues.options import QueueOptions
from mqttlite.gateway import publish_routes
from mqttlite.gateway.caller import Role
from mqttlite.security.topic_policies import TopicPolicyOptions
from mqttlite.telemetry.delivery_log import DeliveryLogOptions
from tests.support.gateway import GatewayUnderTest, nobody_without_credentials, running_gateway


class Subscriber:
    """A program's subscription, and the messages that it got."""

    def __init__(self, gateway: GatewayUnderTest, topic_filter: str, qos: int = 1) -> None:
        self._subscription = gateway.broker.subscribe(topic_filter, qos=qos)

    async def next(self) -> Message:
        async for message in self._subscription:
            return message
        raise AssertionError("the subscription ended")


async def topic(client: httpx.AsyncClient, name: str, **more: Any) -> str:
    answer = await client.post("/api/v1/topics", json={"name": name, **more})
    assert answer.status_code == 201, answer.text
    topic_id: str = answer.json()["topic_id"]
    return topic_id


@pytest.mark.parametrize(
    ("body", "payload", "qos"),
    [
        ({"payload": {"t": 21.5, "ok": [True, None]}}, b'{"t":21.5,"ok":[true,null]}', 0),
        ({"payload": "text", "qos": 1}, b'"text"', 1),
        ({"payload": "text", "encoding": "text", "qos": 2}, b"text", 1),
        ({"payload": base64.b64encode(b"\x00\xff").decode(), "encoding": "base64"}, b"\x00\xff", 0),
        ({}, b"", 0),
    ],
)
async def test_a_message_reaches_mqtt(
    gateway: GatewayUnderTest, body: dict[str, Any], payload: bytes, qos: int
) -> None:
    client = gateway.client()
    topic_id = await topic(client, "a/b")
    subscriber = Subscriber(gateway, "a/+")
    content = json.dumps(body, separators=(",", ":")).encode()
    answer = await client.post(f"/api/v1/topics/{topic_id}/publish", content=content)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found.pop("message_id").isdecimal()
    assert found == {"delivered_to": 1, "queued_for": 0, "dropped": False, "reason": None}
    message = await subscriber.next()
    assert (message.topic, message.payload, message.qos) == ("a/b", payload, qos)


async def test_properties_arrive_as_those_of_mqtt(gateway: GatewayUnderTest) -> None:
    client, subscriber = gateway.client(), Subscriber(gateway, "a")
    topic_id = await topic(client, "a")
    properties = {
        "content_type": "text/plain",
        "response_topic": "b",
        "correlation_data": "AAE=",
        "expiry_s": 60,
        "user_properties": {"k": "v"},
    }
    body = {"payload": 1, "properties": properties}
    assert (await client.post(f"/api/v1/topics/{topic_id}/publish", json=body)).status_code == 200
    got = (await subscriber.next()).properties
    assert (got.content_type, got.response_topic, got.correlation_data) == ("text/plain", "b", b"\x00\x01")
    assert (got.user_properties, got.message_expiry_interval) == ([("k", "v")], 60)


async def test_a_message_without_a_receiver_is_dropped_and_the_answer_says_so(gateway: GatewayUnderTest) -> None:
    answer = (await gateway.client().put("/topics/a", content=b"x")).json()
    assert answer == {**answer, "delivered_to": 0, "dropped": True, "reason": "no_subscribers"}


@pytest.mark.long
async def test_a_message_that_a_queue_has_no_room_for_is_dropped_and_the_answer_says_so(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, limits=Limits(max_queued_messages=1, max_inflight=1)) as gateway:
        client = gateway.client()
        gateway.broker.subscribe("a", qos=1, receive_maximum=1)
        answers = [(await client.put("/topics/a?qos=1", content=b"x")).json() for _ in range(3)]
        assert [(each["delivered_to"], each["queued_for"], each["reason"]) for each in answers] == [
            (1, 0, None),
            (0, 1, None),
            (0, 0, "queue_full"),
        ]
        assert answers[2]["dropped"]


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_delayed_message_has_the_id_that_the_answer_says(gateway: GatewayUnderTest, qos: int) -> None:
    answer = (await gateway.client().put(f"/topics/%24delayed/600/a?qos={qos}", content=b"1")).json()
    assert (answer["queued_for"], answer["dropped"]) == (1, False)
    (delayed,) = (await gateway.client(Role.VIEWER).get("/api/v1/delayed")).json()["items"]
    assert delayed["message_id"] == answer["message_id"]


async def test_numbers_of_messages_grow(gateway: GatewayUnderTest) -> None:
    client = gateway.client()
    gateway.broker.subscribe("a")
    numbers = [int((await client.put("/topics/a", content=b"x")).json()["message_id"]) for _ in range(3)]
    assert numbers == sorted(set(numbers))


async def test_a_body_is_published_and_the_retained_message_read_with_curl(gateway: GatewayUnderTest) -> None:
    client = gateway.client()
    assert (await client.get("/topics/home/lamp")).status_code == 404
    headers = {"Content-Type": "text/plain; charset=utf-8"}
    answer = await client.put("/topics/home/lamp?retain=true&qos=1", content=b"on", headers=headers)
    assert answer.status_code == 200
    found = await client.get("/topics/home/lamp")
    assert (found.content, found.headers["content-type"]) == (b"on", "text/plain; charset=utf-8")
    assert found.headers["x-message-id"] == answer.json()["message_id"]
    assert "sandbox" in found.headers["content-security-policy"]
    assert (await client.put("/topics/home/lamp?retain=1", content=b"")).status_code == 200
    assert (await client.get("/topics/home/lamp")).status_code == 404


@pytest.mark.parametrize("mode", ["binary", "structured"])
async def test_a_cloud_event_keeps_its_mode_and_comes_back_the_same(gateway: GatewayUnderTest, mode: str) -> None:
    attributes = {
        "datacontenttype": "application/json",
        "type": "com.example.röd",
        "source": "/räck?a=1%20",
        "subject": 'a "b" 100%',
        "comexample": "1",
    }
    event = CloudEvent(attributes, {"t": 21.5})
    headers, body = to_binary(event) if mode == "binary" else to_structured(event)
    client, subscriber = gateway.client(), Subscriber(gateway, "events")
    shown = {name: value.encode("utf-8") for name, value in _percent(headers).items()}
    answer = await client.post("/topics/events?retain=true", content=body, headers=shown)
    assert answer.status_code == 200, answer.text
    message = await subscriber.next()
    properties = dict(message.properties.user_properties)
    if mode == "binary":
        assert (properties["source"], properties["subject"]) == (attributes["source"], attributes["subject"])
        assert message.properties.content_type == "application/json"
    else:
        assert (properties, message.properties.content_type) == ({}, "application/cloudevents+json")
    back = await client.get("/topics/events")
    again = from_http({name: unquote(value) for name, value in back.headers.items()}, back.content)
    assert again.data == event.data
    assert {name: again[name] for name in attributes} == attributes


def _percent(headers: dict[str, str]) -> dict[str, str]:
    """As the HTTP binding writes attributes; the package leaves that to its users."""

    return {
        name: quote(value, safe=" /?=:+,;-." if not name.startswith("ce-") else "/?=:+,;-.")
        for name, value in headers.items()
    }


WRONG: list[tuple[str, dict[str, str], bytes, str]] = [
    ("/topics/a+", {}, b"", "invalid_topic"),
    ("/topics/", {}, b"", "invalid_topic"),
    ("/topics/%00", {}, b"", "invalid_topic"),
    ("/topics/$SYS/x", {}, b"", "not_authorized"),
    ("/topics/$queue/x", {}, b"", "invalid_topic"),
    ("/topics/a?qos=3", {}, b"", "invalid_value"),
    ("/topics/a?qos=x", {}, b"", "invalid_value"),
    ("/topics/a?retain=maybe", {}, b"", "invalid_value"),
    ("/topics/a?expiry_s=4294967296", {}, b"", "invalid_value"),
    ("/topics/a", {"ce-specversion": "1.0"}, b"", "invalid_value"),
    ("/topics/a", {"content-type": "application/cloudevents+json"}, b"[]", "invalid_value"),
    ("/topics/a", {"content-type": "application/cloudevents+json"}, b'{"id":1}', "invalid_value"),
    ("/topics/a", {"content-type": "application/cloudevents+json"}, b'{"id":' + b"[" * 5_000, "bad_request"),
    ("/topics/a", {"content-type": "application/cloudevents+json"}, b'{"id":"\xff"}', "bad_request"),
    ("/api/v1/topics/none/publish", {}, b"{}", "not_found"),
    ("/api/v1/topics/ID/publish", {}, b"{", "bad_request"),
    ("/api/v1/topics/ID/publish", {}, b"\xff", "bad_request"),
    ("/api/v1/topics/ID/publish", {}, b'{"qos":3}', "invalid_value"),
    ("/api/v1/topics/ID/publish", {}, b'{"payload":1,"encoding":"text"}', "invalid_value"),
    ("/api/v1/topics/ID/publish", {}, b'{"payload":"*","encoding":"base64"}', "invalid_value"),
    ("/api/v1/topics/ID/publish", {}, b'{"properties":{"correlation_data":"*"}}', "invalid_value"),
    ("/api/v1/topics/ID/publish", {}, b'{"properties":{"response_topic":"#"}}', "invalid_value"),
    ("/api/v1/topics/ID/publish", {}, b'{"properties":{"expiry_s":-1}}', "invalid_value"),
    ("/api/v1/topics/ID/publish", {}, b'{"properties":{"content_type":"\\u0000"}}', "invalid_value"),
    ("/api/v1/topics/ID/publish", {}, b'{"wrong":1}', "invalid_value"),
    ("/api/v1/publish/bulk", {}, b"{}", "invalid_value"),
    ("/api/v1/publish/bulk", {"content-type": "application/x-ndjson"}, b"{}\n[]", "invalid_value"),
    ("/api/v1/publish/bulk", {"content-type": "application/x-ndjson"}, b"{", "bad_request"),
]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("$queue/jobs/$ack", "/v1/projects/{project}/subscriptions/{subscription}:acknowledge"),
        ("$queue/jobs/$pause/ops/answers", "/api/v1/queues and /api/v1/dead-letters"),
        ("$queue/jobs", "over HTTP nothing is published to a queue"),
        ("$CONTROL/dynamic-security/v1", "POST /api/v1/dynamic-security/commands"),
    ],
)
async def test_properties_with_requests_of_their_own_are_refused_with_their_names(
    gateway: GatewayUnderTest, name: str, said: str
) -> None:
    client = gateway.client(Role.ADMIN)
    for answer in (await client.put(f"/topics/{name}"), await client.post(f"/topics/{name.replace('$', '%24')}")):
        assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
        assert answer.json()["code"] == "invalid_topic"
        assert said in answer.json()["detail"]
    done = (await client.post("/api/v1/publish/bulk", json=[{"topic": name}, {"topic": "a"}])).json()
    assert (done["published"], done["refused"], done["errors"][0]["code"]) == (1, 1, "invalid_topic")
    assert said in done["errors"][0]["detail"]


async def test_a_wrong_argument_is_reported_and_nothing_is_published(gateway: GatewayUnderTest) -> None:
    client = gateway.client()
    topic_id = await topic(client, "a")
    for path, headers, body, code in WRONG:
        answer = await client.post(path.replace("ID", topic_id), content=body, headers=headers)
        assert answer.json()["code"] == code, (path, body, answer.text)
        assert gateway.gateway.app.bodies.held_bytes == 0, (path, body)


async def test_the_rules_of_mqtt_hold(tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text("user ann\ntopic write mine/#\ntopic read shown/#\n")
    options = {"acl_file": str(acl), **nobody_without_credentials(tmp_path)}
    async with running_gateway(tmp_path / "data", users=("ann", "bob"), **options) as gateway:
        ann, bob = gateway.user("ann"), gateway.user("bob")
        assert (await ann.put("/topics/mine/x?retain=true", content=b"1")).status_code == 200
        for answer in (
            await ann.put("/topics/shown/x", content=b"1"),
            await bob.put("/topics/mine/x", content=b"1"),
            await bob.get("/topics/mine/x"),
            await ann.get("/topics/mine/x"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (403, "not_authorized")
        assert "ACL file" in (await ann.put("/topics/shown/x", content=b"1")).json()["detail"]
        assert gateway.broker._assembly.core.permissions.denied["publish"] >= 2


async def test_the_policy_of_a_topic_holds(gateway: GatewayUnderTest) -> None:
    client = gateway.client()
    topic_id = await topic(gateway.client(Role.ADMIN), "a", max_payload_bytes=3)
    publish = f"/api/v1/topics/{topic_id}/publish"
    assert (await client.post(publish, content=b'{"payload":123}')).status_code == 200
    answer = await client.post(publish, content=b'{"payload":1234}')
    assert (answer.status_code, answer.json()["code"]) == (422, "policy_refuses")
    assert "allows 3" in answer.json()["detail"]


async def test_the_quotas_of_mqtt_hold(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, quotas=QuotaOptions(messages_per_s=2)) as gateway:
        client = gateway.client()
        statuses = [(await client.put("/topics/a", content=b"x")).status_code for _ in range(5)]
        assert statuses[:2] == [200, 200]
        assert statuses[-1] == 429


async def test_a_payload_has_the_limit_of_mqtt(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, limits=Limits(max_payload_bytes=3)) as gateway:
        client = gateway.client()
        assert (await client.put("/topics/a", content=b"123")).status_code == 200
        assert (await client.put("/topics/a", content=b"1234")).json()["code"] == "too_large"


@pytest.mark.parametrize("form", ["array", "lines"])
async def test_many_messages_at_once_have_an_outcome_each(gateway: GatewayUnderTest, form: str) -> None:
    client = gateway.client()
    subscriber = Subscriber(gateway, "a")
    messages: list[dict[str, Any]] = [
        {"topic_id": await topic(client, "a"), "payload": 0},
        {"topic": "a", "payload": 1, "qos": 1},
        {"topic": "nobody"},
        {"topic": "a+"},
        {"topic": "a", "topic_id": "b"},
    ]
    lines = [json.dumps(each) for each in messages]
    content = "\n".join(lines) if form == "lines" else f"[{','.join(lines)}]"
    headers = {"content-type": "application/x-ndjson" if form == "lines" else "application/json"}
    answer = (await client.post("/api/v1/publish/bulk", content=content, headers=headers)).json()
    errors = answer.pop("errors")
    assert answer == {
        "published": 3,
        "delivered_to": 2,
        "queued_for": 0,
        "dropped": 1,
        "reasons": {"no_subscribers": 1},
        "refused": 2,
    }
    assert [(each["index"], each["code"]) for each in errors] == [(3, "invalid_topic"), (4, "invalid_value")]
    assert [(await subscriber.next()).payload for _ in range(2)] == [b"0", b"1"]


@pytest.mark.parametrize(("count", "status"), [(3, 200), (4, 413)])
async def test_one_request_has_so_many_messages(
    gateway: GatewayUnderTest, monkeypatch: pytest.MonkeyPatch, count: int, status: int
) -> None:
    monkeypatch.setattr(publish_routes, "MAX_BULK_MESSAGES", 3)
    answer = await gateway.client().post("/api/v1/publish/bulk", json=[{"topic": "a"}] * count)
    assert answer.status_code == status


@pytest.mark.long
@pytest.mark.parametrize("on_overflow", ["reject", "block"])
async def test_where_the_policy_asks_a_message_reaches_all_receivers_or_none(
    tmp_path: Path, on_overflow: Literal["reject", "block"]
) -> None:
    policies = (TopicPolicyOptions(prefix="jobs", on_overflow=on_overflow),)
    async with running_gateway(tmp_path, topic_policies=policies, limits=Limits(max_queued_messages=1)) as gateway:
        port, client = gateway.broker.port, gateway.client(Role.ADMIN)
        async with Client("127.0.0.1", port, client_id="away", session_expiry_interval=60) as away:
            await away.subscribe("jobs/#", qos=1)
        subscriber = Subscriber(gateway, "jobs/#")
        assert (await client.put("/topics/jobs/1?qos=1", content=b"1")).json()["queued_for"] == 1
        answer = await client.put("/topics/jobs/1?qos=1", content=b"2")
        assert (answer.status_code, answer.json()["code"]) == (429, "quota_exceeded")
        assert "no room" in answer.json()["detail"]
        assert (await subscriber.next()).payload == b"1"
        found = gateway.broker.admin.client("away")
        assert found is not None
        assert found.drops == {}
        messages = [{"topic": "jobs/1", "qos": 1}, {"topic": "a"}]
        bulk = (await client.post("/api/v1/publish/bulk", json=messages)).json()
        assert (bulk["published"], bulk["refused"], bulk["errors"][0]["code"]) == (1, 1, "quota_exceeded")


@pytest.mark.long
async def test_an_overload_drops_the_same_messages_as_over_mqtt(tmp_path: Path) -> None:
    policies = (TopicPolicyOptions(prefix="low", priority="low"), TopicPolicyOptions(prefix="p", access="PRIVATE"))
    async with running_gateway(tmp_path, topic_policies=policies) as gateway:
        gateway.broker.subscribe("#")
        core, client = gateway.broker._core, gateway.client(Role.ADMIN)
        core.effects.sheds_low_priority = core.effects.sheds_qos0 = True
        for path, reason in (("a?qos=0", "overload_qos0"), ("low?qos=0", "overload_low_priority"), ("a?qos=1", None)):
            answer = (await client.put(f"/topics/{path}", content=b"1")).json()
            assert (answer["dropped"], answer["reason"]) == ("backpressure" if reason else False, reason), path
        refused = await client.put("/topics/low?qos=1", content=b"1")
        assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
        assert "has a low priority" in refused.json()["detail"]
        assert (await client.put("/topics/p?qos=0", content=b"1")).status_code == 403
        messages = [{"topic": "a"}, {"topic": "a", "qos": 1}, {"topic": "low", "qos": 1}, {"topic": "p"}]
        answer = (await client.post("/api/v1/publish/bulk", json=messages)).json()
        assert (answer["published"], answer["dropped"], answer["refused"]) == (2, 1, 2)
        assert answer["reasons"] == {"overload_qos0": 1}
        assert [each["code"] for each in answer["errors"]] == ["quota_exceeded", "not_authorized"]


@pytest.mark.long
async def test_a_message_that_finds_no_room_is_dropped_for_backpressure(tmp_path: Path) -> None:
    """Programs that see it publish more slowly; with `true` that would not help."""
    async with running_gateway(tmp_path, limits=Limits(max_queued_messages=1)) as gateway:
        client = gateway.client(Role.ADMIN)
        async with Client("127.0.0.1", gateway.broker.port, client_id="away", session_expiry_interval=60) as away:
            await away.subscribe("jobs", qos=1)
        found = [(await client.put("/topics/jobs?qos=1", content=b"x")).json() for _ in range(2)]
        assert [(each["dropped"], each["reason"]) for each in found] == [(False, None), ("backpressure", "queue_full")]
        away_only = (await client.put("/topics/jobs?qos=0", content=b"x")).json()
        assert (away_only["dropped"], away_only["reason"]) == (True, "qos0_offline")
        nobody = (await client.put("/topics/nobody", content=b"x")).json()
        assert (nobody["dropped"], nobody["reason"]) == (True, "no_subscribers")


@pytest.mark.long
async def test_a_message_id_is_the_same_text_wherever_it_is_told(tmp_path: Path) -> None:
    queues = (QueueOptions(name="jobs", filters=("jobs",)),)
    log = DeliveryLogOptions(topics=("jobs",))
    async with running_gateway(tmp_path, queues=queues, delivery_log=log) as gateway:
        client = gateway.client(Role.ADMIN)
        async with Client("127.0.0.1", gateway.broker.port, client_id="away", session_expiry_interval=60) as away:
            await away.subscribe("jobs", qos=1)
        told = (await client.put("/topics/jobs?qos=1&retain=true", content=b"x")).json()["message_id"]
        assert isinstance(told, str)
        for path, entries in (("clients/away/queue", "items"), ("queues/jobs/messages", "messages")):
            (found,) = (await client.get(f"/api/v1/{path}")).json()[entries]
            assert found["message_id"] == told, path
        retained = (await client.get("/api/v1/retained/message", params={"topic": "jobs"})).json()
        assert retained["message_id"] == told
        why = (await client.get("/api/v1/why", params={"target": told})).json()
        assert {each["message_id"] for each in why["entries"]} == {told}
        assert (await client.get("/topics/jobs")).headers["x-message-id"] == told
