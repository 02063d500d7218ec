"""The pages of the dashboard on the ASGI application: who sees what, what is escaped, and what the buttons do."""

import asyncio
import contextlib
import html
import json
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from mqttlite import Client
from mqttlite.client.errors import MqttError, PublishRefused
from mqttlite.core.broker import Broker
from mqttlite.core.limits import Limits
from mqttlite.core.source import THE_PROGRAM
from mqttlite.extensions.bridge.options import BridgeOptions, BridgeTopic
from mqttlite.extensions.dashboard import history, live, topic_levels, topic_watch, words
from mqttlite.extensions.dashboard.history import History
from mqttlite.extensions.dashboard.pages import CSP
from mqttlite.extensions.push.options import PushOptions
from mqttlite.extensions.queues.options import QueueOptions, RetryOptions
from mqttlite.extensions.queues.push_target import PushTarget, new_secret
from mqttlite.extensions.streams.options import StreamOptions
from mqttlite.gateway.browser_sessions import COOKIE, IDLE_S, BrowserSessions
from mqttlite.gateway.caller import Role
from mqttlite.gateway.problems import Problem
from mqttlite.security.api_keys import FILE_NAME, load
from mqttlite.security.keys import keys_of
from mqttlite.security.password_file import set_user
from mqttlite.security.topic_policies import TopicPolicyOptions
from mqttlite.telemetry.delivery_log import DeliveryLogOptions
from tests.support.gateway import GatewayUnderTest, nobody_without_credentials, running_gateway

VIEWS = (
    *("/", "/ui/clients", "/ui/clients?by=queue", "/ui/topics", "/ui/topic?name=a", "/ui/access", "/ui/listeners"),
    *("/ui/queues", "/ui/streams", "/ui/bridges", "/ui/catalogue", "/ui/bans"),
)


@pytest.fixture(autouse=True)
def pages_look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "INTERVAL_S", 0.05)


HOSTILE = "<img src=x onerror=alert(1)>\"'&{{7*7}}"

OWN = {"Origin": "http://localhost:8080"}


def text_of(page: httpx.Response) -> str:
    """What a person reads of a page."""
    found = re.sub(r"<[^>]+>", " ", page.text)
    return " ".join(html.unescape(found).split())


async def log_in(client: httpx.AsyncClient, **fields: str) -> httpx.Response:
    return await client.post("/ui/login", data=fields, headers=OWN)


@pytest.mark.long
async def test_each_view_is_a_page_that_runs_nothing_but_its_own_scripts(gateway: GatewayUnderTest) -> None:
    for view in VIEWS:
        page = await gateway.client().get(view)
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8"), view
        assert page.headers["content-security-policy"] == CSP, view
        assert page.headers["cache-control"] == "no-store", view
        # With "no-referrer" browsers send forms with the origin "null".
        assert page.headers.get_list("referrer-policy") == ["same-origin"], view
        assert not re.search(r"\son\w+=|style=|<style|javascript:|https?://", page.text), view
        assert re.findall(r"<script(?! type=\"module\" src=\"/ui/assets/\w+\.js\"></script>)", page.text) == [], view
        for name in set(re.findall(r'"(/ui/assets/[^"]+)"', page.text)):
            assert (await gateway.client().get(name)).status_code == 200, (view, name)


@pytest.mark.long
async def test_pages_show_payloads_of_devices_as_text(tmp_path: Path) -> None:
    policies = (TopicPolicyOptions(prefix="p", owner=HOSTILE, description=HOSTILE),)
    streams = (StreamOptions(name="kept", filters=("#",), partitions=1),)
    fields = {"topic_policies": policies, "delivery_log": DeliveryLogOptions(), "streams": streams}
    async with running_gateway(tmp_path, **fields) as gateway:
        port = gateway.broker.port
        async with Client("127.0.0.1", port, client_id=HOSTILE) as device:
            await device.subscribe(f"$share/{HOSTILE.replace('/', '')}/$stream/kept")
            await device.subscribe(f"{HOSTILE.replace('#', '')}/x", qos=1)
            await device.publish(f"{HOSTILE}/x", HOSTILE, qos=1, retain=True)
            viewer = gateway.client(Role.ADMIN)
            name = quote(HOSTILE, safe="")
            for address in (
                "/",
                "/ui/clients",
                f"/ui/clients?contains={name}",
                "/ui/clients?by=bytes",
                f"/ui/client?id={name}",
                f"/ui/client?id={name}nobody",
                "/ui/topics",
                f"/ui/topics?below={name}",
                f"/ui/topic?name={name}%2Fx",
                f"/ui/topic?name={name}%2Fx&form=hex&user={name}",
                f"/ui/topic?name={name}%23",
                f"/ui/trace?filter={name}",
                f"/ui/trace?client={name}",
                f"/ui/access?user={name}&topic={name}",
                f"/ui/bans?value={name}",
                f"/ui/catalogue?contains={name}",
                f"/ui/schema?subject={name}",
                f"/ui/queue?name={name}",
                f"/ui/stream?name={name}",
                f"/ui/stream?name=kept&since={name}",
                "/ui/stream?name=kept",
                f"/ui/login?target={name}",
            ):
                page = await viewer.get(address)
                assert page.status_code in (200, 404, 422), address
                assert "<img src=x" not in page.text, address
                assert "49" not in re.findall(r"onerror=alert\(1\)&gt;[^<]*", page.text), address
            page = await viewer.get(f"/ui/topic?name={name}%2Fx")
            assert HOSTILE in text_of(page)
            page = await viewer.get(f"/ui/client?id={name}")
            assert HOSTILE in text_of(page)


async def test_a_stranger_gets_the_form_to_log_in_and_nothing_else(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "data", **nobody_without_credentials(tmp_path)) as gateway:
        client = gateway.client()
        page = await client.get("/ui/client?id=pump")
        assert (page.status_code, "Log in" in page.text, "pump" in text_of(page)) == (401, True, False)
        assert 'value="/ui/client?id=pump"' in page.text
        assert (await client.get("/ui/live?view=overview")).json()["code"] == "not_authenticated"


async def test_a_key_logs_a_browser_in_until_it_logs_out(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "data", **nobody_without_credentials(tmp_path)) as gateway:
        client = gateway.client()
        answer = await log_in(client, key=gateway.keys[Role.OPERATOR], target="/ui/topics")
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/topics")
        cookie = answer.headers["set-cookie"]
        assert all(each in cookie for each in ("HttpOnly", "SameSite=strict", "Path=/", COOKIE))
        assert gateway.keys[Role.OPERATOR] not in cookie
        page = await client.get("/")
        assert "key-operator operator" in text_of(page)
        assert (await client.post("/ui/logout", headers=OWN)).status_code == 303
        assert (await client.get("/")).status_code == 401
        client.cookies.set(COOKIE, cookie.partition("=")[2].partition(";")[0], domain="localhost.local")
        assert (await client.get("/")).status_code == 401


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "/\\evil.example", "/ui/\n"])
async def test_a_login_leads_to_a_page_of_the_dashboard(gateway: GatewayUnderTest, target: str) -> None:
    answer = await log_in(gateway.client(), key=gateway.keys[Role.VIEWER], target=target)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


@pytest.mark.parametrize(
    ("fields", "status", "sentence"),
    [
        ({"key": "mqk_wrong"}, 401, "wrong, revoked or expired"),
        ({"user": "ann", "password": "wrong"}, 401, "wrong, revoked or expired"),
        ({"key": " "}, 401, "wrong, revoked or expired"),
    ],
)
async def test_a_login_that_is_wrong_says_so(
    tmp_path: Path, fields: dict[str, str], status: int, sentence: str
) -> None:
    async with running_gateway(tmp_path / "data", **nobody_without_credentials(tmp_path)) as gateway:
        client = gateway.client()
        page = await log_in(client, **fields)
        assert (page.status_code, sentence in text_of(page), COOKIE in client.cookies) == (status, True, False)


async def test_a_user_without_a_role_is_told_the_role_it_needs(gateway: GatewayUnderTest) -> None:
    page = await log_in(gateway.client(), key=gateway.keys[Role.USER])
    assert (page.status_code, "the dashboard needs viewer, operator or admin" in text_of(page)) == (403, True)


async def test_pages_of_other_sites_use_no_session_of_a_browser(tmp_path: Path) -> None:
    http = {"allowed_origins": ("https://app.example",)}
    async with running_gateway(tmp_path, http=http) as gateway:
        client = gateway.client()
        await log_in(client, key=gateway.keys[Role.ADMIN])
        for origin in ({}, {"Origin": "https://app.example"}, {"Origin": "null"}):
            answer = await client.post("/ui/client/disconnect", data={"id": "x"}, headers=origin)
            assert answer.status_code == 403, origin
        assert (await client.post("/ui/client/disconnect", data={"id": "x"}, headers=OWN)).status_code == 303
        assert (await client.put("/topics/a", content=b"x")).json()["code"] == "cross_origin"


@pytest.mark.long
async def test_a_key_that_is_revoked_ends_its_session_and_its_streams_within_a_second(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "data", **nobody_without_credentials(tmp_path)) as gateway:
        client, admin = gateway.client(), gateway.client(Role.ADMIN)
        await log_in(client, key=gateway.keys[Role.VIEWER])
        stream = asyncio.create_task(client.get("/ui/live?view=overview"))
        await gateway.pages_are_told()
        key = next(each.id for each in load(gateway.data_dir / FILE_NAME) if each.role == "viewer")
        page = await admin.post("/ui/access/revoke", data={"id": key}, headers=OWN)
        assert (page.status_code, page.headers["location"]) == (303, "/ui/access?done=revoked")
        async with asyncio.timeout(60):
            told = (await stream).text
        assert "event: end" in told
        assert "wrong, revoked or expired" in told
        assert (await client.get("/")).status_code == 401
        assert key not in text_of(await admin.get("/ui/access"))
        assert (await admin.post("/ui/access/revoke", data={"id": key}, headers=OWN)).status_code == 404


def test_sessions_of_browsers_have_an_end_and_a_limit() -> None:
    now = 0.0
    sessions = BrowserSessions(lambda: now, is_secure=True, max_sessions=2)

    def begin() -> Response:
        response = Response()
        sessions.begin(HTTPConnection({"type": "http", "headers": []}), response, "Bearer x")
        return response

    assert "Secure" in begin().headers["set-cookie"]
    begin()
    begin()
    assert len(sessions) == 2
    now = IDLE_S
    begin()
    assert len(sessions) == 1


async def test_a_viewer_sees_no_buttons_and_an_operator_does(gateway: GatewayUnderTest) -> None:
    async with Client("127.0.0.1", gateway.broker.port, client_id="pump") as device:
        await device.publish("a", "1", retain=True, qos=1)
        for role, seen in ((Role.VIEWER, False), (Role.OPERATOR, True)):
            client = gateway.client(role)
            assert ("/ui/client/disconnect" in (await client.get("/ui/client?id=pump")).text) is seen
            assert ("/ui/topic/clear" in (await client.get("/ui/topic?name=a")).text) is seen
            page = (await client.get("/ui/access")).text
            assert "/ui/access/revoke" not in page
            assert "key-admin" not in page
    page = (await gateway.client(Role.ADMIN).get("/ui/access")).text
    assert "/ui/access/revoke" in page
    assert "key-admin" in page


async def test_an_operator_disconnects_purges_and_ends(
    gateway: GatewayUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    port, operator = gateway.broker.port, gateway.client(Role.OPERATOR)
    away = Client("127.0.0.1", port, client_id="away", session_expiry_interval=60)
    async with away:
        await away.subscribe("a/#", qos=1)
    async with Client("127.0.0.1", port) as device:
        await device.publish("a/1", "1", qos=1)
    page = await operator.get("/ui/client?id=away")
    assert "Its queue: 1 messages" in text_of(page)
    assert "connection ended, client_disconnected" in text_of(page)
    with caplog.at_level("INFO", "mqttlite.audit"):
        answer = await operator.post("/ui/client/purge", data={"id": "away"}, headers=OWN)
    assert "of 'away' by key-operator" in caplog.text
    page = await operator.get(answer.headers["location"])
    assert "The queue was purged." in text_of(page)
    assert "purged 1 an administrator purged the receiver's queue" in text_of(page)
    answer = await operator.post("/ui/client/disconnect", data={"id": "away"}, headers=OWN)
    assert answer.headers["location"].endswith("done=offline")
    answer = await operator.post("/ui/client/end-session", data={"id": "away"}, headers=OWN)
    page = await operator.get(answer.headers["location"])
    assert "It has no session now" in text_of(page)
    assert (await operator.post("/ui/client/purge", data={"id": "away"}, headers=OWN)).status_code == 404


@pytest.mark.long
async def test_topics_are_walked_through_seen_changed_and_cleared(gateway: GatewayUnderTest) -> None:
    operator = gateway.client(Role.OPERATOR)
    async with Client("127.0.0.1", gateway.broker.port) as device:
        await device.publish("plant/1/state", '{"on":true}', retain=True, qos=1)
        await device.publish("plant/2", b"\xff\x00", retain=True, qos=1)
    assert "plant/ 2" in text_of(await operator.get("/ui/topics"))
    assert "2 of binary" not in text_of(await operator.get("/ui/topics?below=plant"))
    assert "2 B of binary data" in text_of(await operator.get("/ui/topics?below=plant"))
    assert '{ "on": true }' in text_of(await operator.get("/ui/topic?name=plant/1/state"))
    assert "000000 ff 00" in text_of(await operator.get("/ui/topic?name=plant/2"))
    fields = {"name": "plant/2", "payload": "21.5\r\n", "qos": "1"}
    answer = await operator.post("/ui/topic/retain", data=fields, headers=OWN)
    assert "The message is retained." in text_of(await operator.get(answer.headers["location"]))
    assert (await operator.get("/topics/plant/2")).content == b"21.5\n"
    await operator.post("/ui/topic/clear", data={"name": "plant/2"}, headers=OWN)
    assert "No message is retained on this topic." in text_of(await operator.get("/ui/topic?name=plant/2"))
    for wrong in ({"name": "plant/#"}, {"name": "a", "qos": "3"}, {"name": "a", "payload": ""}):
        answer = await operator.post("/ui/topic/retain", data={**fields, **wrong}, headers=OWN)
        assert answer.status_code in (400, 422), wrong


async def test_a_look_at_a_level_has_a_limit(gateway: GatewayUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Client("127.0.0.1", gateway.broker.port) as device:
        for number in range(3):
            await device.publish(f"t/{number}", "1", retain=True, qos=1)
    monkeypatch.setattr(topic_levels, "MAX_ROWS", 2)
    assert "there are more" in text_of(await gateway.client().get("/ui/topics?below=t"))
    monkeypatch.setattr(topic_levels, "MAX_ROWS", 3)
    assert "there are more" not in text_of(await gateway.client().get("/ui/topics?below=t"))
    monkeypatch.setattr(topic_levels, "SLICE", 1)
    monkeypatch.setattr(topic_levels, "MAX_LOOKED", 2)
    assert "2 of the topics here" in text_of(await gateway.client().get("/ui/topics?below=t"))


async def test_the_rules_decide_about_seeing_and_using_a_topic(tmp_path: Path) -> None:
    policies = (TopicPolicyOptions(prefix="plant", access="PRIVATE", owner="ann"),)
    async with running_gateway(tmp_path, topic_policies=policies) as gateway:
        operator = gateway.client(Role.OPERATOR)
        async with Client("127.0.0.1", gateway.broker.port) as device:
            await device.publish("office/1", "in the open", retain=True, qos=1)
        assert "in the open" in text_of(await operator.get("/ui/topics?below=office"))
        page = text_of(await operator.get("/ui/topic?name=plant/1"))
        assert "The rules do not let you receive the messages of this topic." in page
        assert "The policy plant holds: PRIVATE owner ann" in page
        assert re.search(r"ann may allowed .* may allowed", page)
        assert re.search(r"anonymous, and users without rules of their own may not denied by the topic policy", page)
        fields = {"name": "plant/1", "payload": "1", "qos": "0"}
        assert (await operator.post("/ui/topic/retain", data=fields, headers=OWN)).status_code == 403
        page = text_of(await operator.get("/ui/access?user=ann&topic=plant/1&action=receive"))
        assert "ann may receive." in page
        page = text_of(await operator.get("/ui/access?user=bob&topic=plant/%23&action=subscribe"))
        assert "bob may not subscribe." in page
        assert "no topic" in (await operator.get("/ui/topic?name=a%2F%23")).text


@pytest.mark.long
async def test_a_client_s_page_says_why_messages_were_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "INTERVAL_S", 0.0)
    monkeypatch.setattr(live, "SHARE", 1.0)
    limits = Limits(max_queued_messages=1)
    async with running_gateway(tmp_path, limits=limits, delivery_log=DeliveryLogOptions(topics=("a/#",))) as gateway:
        port = gateway.broker.port
        async with Client("127.0.0.1", port, client_id="away", session_expiry_interval=60) as away:
            await away.subscribe("a/#", qos=1)
        async with Client("127.0.0.1", port, client_id="pump") as pump:
            for _ in range(3):
                with contextlib.suppress(PublishRefused):
                    await pump.publish("a/1", "1", qos=1)
        viewer = gateway.client(Role.VIEWER)
        page = text_of(await viewer.get("/ui/client?id=away"))
        assert "Messages dropped for it: 2" in page
        assert "dropped for away: queue_full" in page
        assert "away" in text_of(await viewer.get("/ui/clients?by=drops"))
        assert "queue_full 2 the session's queue was full" in text_of(await viewer.get("/"))
    async with (
        running_gateway(tmp_path / "other") as gateway,
        Client("127.0.0.1", gateway.broker.port, client_id="pump"),
    ):
        assert "No delivery log is kept" in text_of(await gateway.client().get("/ui/client?id=pump"))


async def test_an_operator_bans_and_lifts(gateway: GatewayUnderTest) -> None:
    operator = gateway.client(Role.OPERATOR)
    fields = {"kind": "client", "value": "pump", "duration_s": "600", "reason": "too loud"}
    async with Client("127.0.0.1", gateway.broker.port, client_id="pump", reconnect=False) as pump:
        assert 'action="/ui/bans/add"' in (await operator.get("/ui/client?id=pump")).text
        answer = await operator.post("/ui/bans/add", data=fields, headers=OWN)
        with pytest.raises(MqttError):
            await pump.publish("a", "1", qos=1)
    page = await operator.get(answer.headers["location"])
    assert re.search(r"Kept out now: 1 .* pump client \S+ \S+ UTC \S+ \S+ UTC key-operator too loud", text_of(page))
    assert "pump" in text_of(await gateway.client(Role.VIEWER).get("/ui/bans"))
    (number,) = re.findall(r'name="id" value="(\d+)"', page.text)
    answer = await operator.post("/ui/bans/lift", data={"id": number}, headers=OWN)
    assert "Nobody is banned." in text_of(await operator.get(answer.headers["location"]))
    assert (await operator.post("/ui/bans/lift", data={"id": number}, headers=OWN)).status_code == 404
    for wrong, status in (
        ({"duration_s": "5"}, 422),
        ({"kind": "house"}, 422),
        ({"kind": "address", "value": "x"}, 422),
        ({"kind": "address", "value": "127.0.0.1"}, 409),
        ({"value": " "}, 422),
    ):
        assert (await operator.post("/ui/bans/add", data={**fields, **wrong}, headers=OWN)).status_code == status, wrong


@pytest.mark.long
async def test_a_stream_is_looked_at(tmp_path: Path) -> None:
    streams = tuple(StreamOptions(name=f"s{at:03}", filters=("a/#",), partitions=2) for at in range(102))
    async with running_gateway(tmp_path, streams=streams) as gateway:
        operator, viewer, broker = gateway.client(Role.OPERATOR), gateway.client(Role.VIEWER), gateway.broker
        async with Client("127.0.0.1", broker.port, client_id="worker") as device:
            await device.subscribe("$share/billing/$stream/s001@earliest", qos=1)
            for at in range(45):
                await broker.publish("a/<b>", f"m{at}", qos=1)
            await broker.commit()
            page = text_of(await viewer.get("/ui/streams"))
            assert "s001 45 " in page
            assert ("s099" in page, "s100" in page) == (True, False)
            page = text_of(await viewer.get("/ui/streams?after=s099"))
            assert ("s099 " in page, "s100" in page, "s101" in page) == (False, True, True)
            page = text_of(await viewer.get("/ui/stream?name=s001"))
            assert "billing" in page
            assert "worker" in page
            assert "m0" not in page, "payloads are for operators"
            (partition,) = [
                at for at in (0, 1) if "m0" in text_of(await operator.get(f"/ui/stream?name=s001&partition={at}"))
            ]
            address = f"/ui/stream?name=s001&partition={partition}"
            page = await operator.get(f"{address}&since=20")
            assert "20 " in text_of(page)
            assert ("a/<b> m20" in text_of(page), "m19" in text_of(page), "m40" in text_of(page)) == (
                True,
                False,
                False,
            )
            assert f"{address.replace('&', '&amp;')}&amp;since=40#messages" in page.text
            page = await operator.get(f"{address}&since=40")
            assert ("m44" in text_of(page), "Next messages" in page.text) == (True, False)
            assert "There is no message from there on." in text_of(await operator.get(f"{address}&since=latest"))
            for wrong, status in (("name=none", 404), ("name=s001&partition=2", 404), ("name=s001&since=noon", 422)):
                assert (await operator.get(f"/ui/stream?{wrong}")).status_code == status


@pytest.mark.long
async def test_the_history_of_a_topic_is_a_chart(tmp_path: Path) -> None:
    stream = StreamOptions(name="kept", filters=("room/#",), partitions=3)
    async with running_gateway(tmp_path, streams=(stream,)) as gateway:
        operator, viewer, broker = gateway.client(Role.OPERATOR), gateway.client(Role.VIEWER), gateway.broker
        for celsius in (20, 21, 19.5):
            await broker.publish("room/<1>", f'{{"celsius": {celsius}, "battery": {{"volt": 3}}}}'.encode(), qos=1)
        await broker.publish("room/2", b"99", qos=1)
        await broker.commit()
        topic = "name=kept&topic=room%2F%3C1%3E"
        page = await operator.get(f"/ui/stream/topic?{topic}")
        assert "celsius: from 19.5 to 21.0, 3 values of 3 messages" in text_of(page)
        assert page.text.count("<polyline points=") == 1
        assert "field=battery.volt" in page.text
        assert "battery.volt: from 3.0 to 3.0" in text_of(
            await operator.get(f"/ui/stream/topic?{topic}&field=battery.volt")
        )
        assert "There is no number in 3 messages" in text_of(await operator.get(f"/ui/stream/topic?{topic}&field=none"))
        assert "<polyline" not in (await operator.get("/ui/stream/topic?name=kept")).text
        assert (await viewer.get(f"/ui/stream/topic?{topic}")).status_code == 403, "payloads are for operators"
        for wrong, status in (("name=none&topic=a", 404), ("name=kept&topic=a&hours=7", 200)):
            assert (await operator.get(f"/ui/stream/topic?{wrong}")).status_code == status
        assert f"/ui/stream/topic?{topic}".replace("&", "&amp;") in (await operator.get("/ui/topic?name=room/<1>")).text
        api = "/api/v1/streams/kept/history?topic=room/2"
        found = (await operator.get(api)).json()
        assert [each["mean"] for each in found["points"]] == [99.0]
        counts = [(await operator.get(f"{api}&partition={at}")).json()["values"] for at in range(3)]
        assert sorted(counts) == [0, 0, 1], "one partition has it"
        assert (await operator.get(f"{api}&partition=3")).status_code == 404
        at = counts.index(1)
        assert f"topic=room%2F2&amp;partition={at}" in (await operator.get(f"/ui/stream?name=kept&partition={at}")).text
        assert "99.0" in (await operator.get(f"/ui/stream/topic?name=kept&topic=room/2&partition={at}")).text
        for since in ("latest", "0:1", "noon"):
            assert (await operator.get(f"{api}&since={since}")).status_code == 422


@pytest.mark.long
async def test_a_queue_is_looked_after(tmp_path: Path) -> None:
    retry = RetryOptions(min_s=0, max_s=0)
    queue = QueueOptions(name="jobs", filters=("work/#",), max_attempts=1, retry=retry)
    async with running_gateway(tmp_path, queues=(queue,)) as gateway:
        operator, viewer, broker = gateway.client(Role.OPERATOR), gateway.client(Role.VIEWER), gateway.broker
        for payload in (b"one", b"\xff", b"six"):
            await broker.publish("work/<a>", payload, qos=1)
        pulled = broker.queues.pull("jobs", 2)
        broker.queues.nack("jobs", [each.ack_id for each in pulled])
        await broker.commit()
        assert "jobs no consumer 1 " in text_of(await viewer.get("/ui/queues"))
        assert "Queues: jobs" in text_of(await viewer.get("/ui/topic?name=work/1"))
        assert (await viewer.get("/ui/queue?name=jobs/snapshots")).status_code == 404
        page = await viewer.get("/ui/queue?name=jobs")
        assert "1 work/<a> nacked the consumer refused it 1 " in text_of(page)
        assert ("/ui/queue/purge" in page.text, "six" in page.text) == (False, False)
        page = await operator.get("/ui/queue?name=jobs")
        assert ("/ui/queue/purge" in page.text, "six" in page.text) == (True, True)
        assert "one" in text_of(await operator.get("/ui/queue/dead-letter?name=jobs&number=1"))
        assert "as hex ff" in text_of(await operator.get("/ui/queue/dead-letter?name=jobs&number=2"))
        for action, fields, sentence in (
            ("pause", {}, "it takes messages and delivers none"),
            ("resume", {}, "The queue delivers again."),
            ("dead-letters/replay", {"number": "1"}, "It went back into the queue."),
            ("dead-letters/drop", {}, "No message was given up."),
            ("purge", {}, "No message is in it."),
        ):
            answer = await operator.post(f"/ui/queue/{action}", data={"name": "jobs", **fields}, headers=OWN)
            assert sentence in text_of(await operator.get(answer.headers["location"])), action
        missing = await operator.post("/ui/queue/pause", data={"name": "other"}, headers=OWN)
        assert (missing.status_code, "there is no queue" in text_of(missing)) == (404, True)
        for stream in ("/ui/queue/live?name=jobs", "/ui/queues/live?cursor="):
            told = asyncio.create_task(viewer.get(stream))
            await gateway.pages_are_told()
            gateway.gateway.app.stopping.set()
            assert '"depth":0' in (await told).text
            gateway.gateway.app.stopping.clear()


@pytest.mark.long
async def test_a_pushed_queue_shows_its_endpoint_and_is_sought(tmp_path: Path) -> None:
    target = PushTarget(url="http://127.0.0.1:9/in?key=secret", secret=new_secret())
    queue = QueueOptions(name="mail", filters=("mail/#",), push=target, retain_acked=True)
    local = PushOptions(allowed_hosts=("127.0.0.1",))
    async with running_gateway(tmp_path, queues=(queue,), push=local) as gateway:
        admin, viewer = gateway.client(Role.ADMIN), gateway.client(Role.VIEWER)
        await gateway.broker.publish("mail/a", b"x", qos=1)
        assert "mail running 1 " in text_of(await viewer.get("/ui/queues"))
        for client, shows in ((admin, True), (viewer, False)):
            page = await client.get("/ui/queue?name=mail")
            assert "Endpoint http://127.0.0.1:9/in" in text_of(page)
            assert ("key=secret" in page.text, "/ui/queue/snapshots/seek" in page.text) == (shows, shows)
        for action, fields, sentence in (
            ("create", {"snapshot": "before"}, "before 1 "),
            ("seek", {"time": "2100-01-01T00:00:00Z"}, "nothing older is delivered. running"),
            ("seek", {"snapshot": "before"}, "Messages 1"),
            ("delete", {"snapshot": "before"}, "It has no snapshot."),
        ):
            answer = await admin.post(f"/ui/queue/snapshots/{action}", data={"name": "mail", **fields}, headers=OWN)
            assert sentence in text_of(await admin.get(answer.headers["location"])), action
        wrong = await admin.post("/ui/queue/snapshots/seek", data={"name": "mail", "time": "noon"}, headers=OWN)
        assert "is no time" in text_of(wrong)


@pytest.mark.long
async def test_the_catalogue_describes_topics_and_shows_their_schema(tmp_path: Path) -> None:
    policies = (
        TopicPolicyOptions(prefix="rooms", owner="ann", description="Climate of rooms", schema="rooms"),
        TopicPolicyOptions(prefix="yard", schema="none"),
    )
    async with running_gateway(tmp_path, topic_policies=policies) as gateway:
        schema = {"schemaType": "JSON", "schema": '{"type": "object", "title": "Room"}'}
        made = await gateway.client(Role.ADMIN).post("/registry/subjects/rooms/versions", json=schema)
        assert made.status_code == 200
        viewer = gateway.client(Role.VIEWER)
        page = text_of(await viewer.get("/ui/catalogue"))
        assert "rooms/# Climate of rooms ann" in page
        assert "not registered none" in page
        assert "rooms JSON 1 1 BACKWARD" in page
        assert "yard" not in text_of(await viewer.get("/ui/catalogue?contains=CLIMATE"))
        assert '"title": "Room"' in text_of(await viewer.get("/ui/schema?subject=rooms&version=1"))
        assert (await viewer.get("/ui/schema?subject=rooms&version=2")).status_code == 404
        page = text_of(await viewer.get("/ui/topic?name=rooms/1"))
        assert "Climate of rooms" in page
        assert "schema rooms" in page


async def test_a_topic_names_its_subscribers(gateway: GatewayUnderTest) -> None:
    async with (
        Client("127.0.0.1", gateway.broker.port, client_id="pump") as pump,
        Client("127.0.0.1", gateway.broker.port, client_id="tap") as tap,
    ):
        await pump.subscribe("plant/+", qos=1)
        await tap.subscribe("$share/g/plant/#", qos=1)
        page = text_of(await gateway.client().get("/ui/topic?name=plant/1"))
        assert "Subscribers: 2 " in page
        assert re.search(r"pump – connected plant/\+ 1 [-0-9]+ [:0-9]+( UTC)? 0 0", page)
        assert re.search(r"tap – connected \$share/g/plant/# 1 ", page)
        assert "more receiver" not in page


async def test_an_admin_makes_a_key_that_is_shown_once(gateway: GatewayUnderTest) -> None:
    admin = gateway.client(Role.ADMIN)
    fields = {"role": "viewer", "user": "ann", "note": "wall", "lifetime_s": "86400"}
    page = await admin.post("/ui/access/keys", data=fields, headers=OWN)
    (key,) = re.findall(r">(mqk_[^<]+)<", page.text)
    assert (await gateway.client(key=key).get("/api/v1/me")).json()["username"] == "ann"
    page = await admin.get("/ui/access")
    assert re.search("wall .*viewer ann", text_of(page))
    assert key not in page.text
    assert "/ui/access/keys" not in (await gateway.client(Role.OPERATOR).get("/ui/access")).text
    for wrong in ({"role": "root"}, {"lifetime_s": "7"}, {"note": "x" * 201}):
        answer = await admin.post("/ui/access/keys", data={**fields, **wrong}, headers=OWN)
        assert answer.status_code == 422, wrong


async def test_an_overload_is_seen_with_its_stage(gateway: GatewayUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "INTERVAL_S", 0.0)
    monkeypatch.setattr(live, "SHARE", 1.0)
    assert "Overload none" in text_of(await gateway.client().get("/"))
    core = gateway.broker._core
    now = asyncio.get_running_loop().time()
    for looks in range(80):
        core.weigh(10.0, 10.0, now + looks * 0.1)
    assert core.overload.stage == 4
    page = text_of(await gateway.client().get("/"))
    assert "Overload, stage 4 of 4 : the clients that send most are read more slowly; messages of low priority" in page


async def test_lists_of_clients_have_pages(gateway: GatewayUnderTest) -> None:
    for number in range(51):
        gateway.broker._core.sessions.open(f"s{number:02}", True, 100)
    viewer = gateway.client()
    first = await viewer.get("/ui/clients?state=offline")
    (following,) = re.findall(r'rel="next" href="([^"]+)"', first.text)
    second = text_of(await viewer.get(html.unescape(following)))
    assert ("s50" in second, "s49" in second, "s50" in text_of(first)) == (True, False, False)


@pytest.mark.long
async def test_a_trace_tells_the_outcome_of_messages(gateway: GatewayUnderTest) -> None:
    operator = gateway.client(Role.OPERATOR)
    assert (await operator.get("/ui/trace/live")).status_code == 422
    assert (await operator.get("/ui/trace?filter=a%23")).status_code == 422
    for question, sentences in (("filter=a/%2B", 2), ("client=pump", 1)):
        stream = asyncio.create_task(operator.get(f"/ui/trace/live?{question}"))
        await gateway.pages_are_told()
        port = gateway.broker.port
        async with Client("127.0.0.1", port, client_id="pump") as pump, Client("127.0.0.1", port) as other:
            await other.publish("a/1", "1", qos=1)
            await pump.publish("a/2", "2", qos=1)
            await gateway.pages_are_told()
        gateway.gateway.app.stopping.set()
        found = [json.loads(line[6:]) for line in (await stream).text.splitlines() if line.startswith("data: ")]
        gateway.gateway.app.stopping.clear()
        assert len({each["message_id"] for part in found for each in part["entries"]}) == sentences, question


async def test_there_is_a_limit_for_streams(gateway: GatewayUnderTest) -> None:
    async def look() -> None: ...

    streams = live.Live(gateway.gateway.context, max_streams=0)
    with pytest.raises(Problem, match="0 pages are kept up to date"):
        streams.stream(Request({"type": "http"}), Role.VIEWER, look)


@pytest.mark.long
async def test_a_live_stream_has_the_values_of_the_page(gateway: GatewayUnderTest) -> None:
    client = gateway.client()
    stream = asyncio.create_task(client.get("/ui/live?view=overview"))
    await gateway.pages_are_told()
    gateway.gateway.app.stopping.set()
    data = re.findall(r"data: (.*)", (await stream).text)[-1]
    shown = re.findall(r'data-live="([^"]+)"', (await client.get("/")).text)
    for path in shown:
        found = json.loads(data)
        for name in path.split("."):
            found = found[name]
        assert found is None or isinstance(found, int | float), path
    assert len(shown) > 20


async def test_of_a_client_that_is_gone_a_stream_says_so(gateway: GatewayUnderTest) -> None:
    assert "event: end" in (await gateway.client().get("/ui/client/live?id=nobody")).text


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (words.number(None), "–"),
        (words.number(12_345), "12,345"),
        (words.number(3.44), "3.4"),
        (words.number(0.0), "0"),
        (words.size(1_023), "1023 B"),
        (words.size(1_536), "1.5 KiB"),
        (words.seconds(0.0032), "3.2 ms"),
        (words.seconds(41.2), "41 s"),
        (words.seconds(7_500), "2 h 5 min"),
        (words.seconds(273_600), "3 d 4 h"),
        (words.when(0.0), "1970-01-01 00:00:00 UTC"),
        (words.when("2026-11-24T12:48:48.996217Z"), "2026-11-24 12:48:48 UTC"),
        (words.percent(0.123), "12 %"),
        (words.percent(None), "–"),
        (words.preview(b"a\n b"), "a b"),
        (words.preview(b""), "(empty)"),
        (words.preview("é".encode() * 400), "é" * 80 + "…"),
        (words.preview(b"a\xff"), "2 B of binary data"),
        (words.preview(b"a\x00"), "2 B of binary data"),
        (words.preview(b"x" * 100), "x" * 80 + "…"),
        (words.as_json(b"[" * 100_000), None),
        (words.as_json(b"[" * 900 + b"1," * 7_000 + b"1" + b"]" * 900), None),
        (words.as_json(b'{"a":1}'), '{\n  "a": 1\n}'),
        (words.as_hex(b"ab\xff"), "000000  61 62 ff" + " " * 39 + "  ab."),
        (words.as_hex(bytes(5_000)).splitlines()[-1], "… 904 bytes more"),
    ],
)
def test_numbers_and_payloads_are_shown_shortly(said: str | None, expected: str | None) -> None:
    assert said == expected


async def told(gateway: GatewayUnderTest, address: str, device: Client, *topics: str) -> list[dict[str, Any]]:
    """What a stream tells a viewer while a device publishes to some topics."""
    stream = asyncio.create_task(gateway.client(Role.VIEWER).get(address))
    await gateway.pages_are_told()
    for topic in topics:
        with contextlib.suppress(PublishRefused):
            await device.publish(topic, f"on {topic}", qos=1)
    for _ in range(3):
        await device.publish(topics[0], "last")
    await gateway.pages_are_told()
    gateway.gateway.app.stopping.set()
    found = [json.loads(line[6:]) for line in (await stream).text.splitlines() if line.startswith("data: ")]
    gateway.gateway.app.stopping.clear()
    return found


@pytest.mark.long
async def test_a_tree_gets_messages_by_level_as_far_as_the_rules_go(tmp_path: Path) -> None:
    policies = (TopicPolicyOptions(prefix="t/secret", access="PUBLISH_ONLY", owner="ann"),)
    async with (
        running_gateway(tmp_path, topic_policies=policies) as gateway,
        Client("127.0.0.1", gateway.broker.port) as device,
    ):
        found = await told(gateway, "/ui/topics/live?view=tree&below=t", device, "t/1", "t", "t/2/x", "t/secret")
        levels: dict[str, dict[str, Any]] = {}
        for each in [each for part in found for each in part["levels"]]:
            known = levels.setdefault(each["name"], {"messages": 0})
            levels[each["name"]] = {**each, "messages": known["messages"] + each["messages"]}
        assert levels == {
            "1": {"name": "1", "messages": 4, "value": "last", "has_below": False},
            "2": {"name": "2", "messages": 1, "value": None, "has_below": True},
        }
        code = (await device.publish("t/1", "1", qos=1)).reason_code
        assert code == 0x10, "nobody subscribes, and who looks on is no subscriber"
        found = await told(gateway, "/ui/topic/live?name=t/1", device, "t/1", "t/2")
        assert sum(each["messages"] for each in found) == 4
        assert [each["value"] for each in found if each["value"]] == ["last"]
        found = await told(gateway, "/ui/topic/live?name=t/secret", device, "t/secret")
        assert all(not each["messages"] for each in found)
        assert b"t/#" not in {topic_filter for topic_filter, _ in gateway.broker._core._routes._bound}


def test_a_watch_keeps_some_topics_and_the_beginning_of_a_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_watch, "MAX_TOPICS", 2)
    core = Broker(Limits())
    watch = topic_watch.TopicWatch(core, b"#")
    assert watch.take(THE_PROGRAM) == {}
    for topic in (b"a", b"b", b"c", b"a"):
        core.publish(topic, b"x" * 3_000, 0, False, 0.0)
    found = watch.take(THE_PROGRAM)
    assert {topic: each.messages for topic, each in found.items()} == {b"a": 2, b"b": 1}
    assert (len(found[b"a"].payload), found[b"a"].payload_bytes) == (topic_watch.KEPT_BYTES, 3_000)
    watch.end()
    watch.end()
    core.publish(b"a", b"", 0, False, 0.0)
    assert watch._seen == {}


@pytest.mark.long
async def test_the_form_names_the_command_that_makes_a_key_for_this_broker(tmp_path: Path) -> None:
    """With its paths for a browser on this machine, and without them for others."""
    async with running_gateway(tmp_path) as gateway:
        page = text_of(await gateway.client().get("/ui/login"))
        assert f"mqttlite token new --role viewer --data-dir {tmp_path}" in page
        (program,) = re.findall(r"(\S+) token new", page)
        assert shutil.which(program) is not None
        page = text_of(await gateway.client().get("/ui/login", headers={"X-Forwarded-For": "203.0.113.7"}))
        assert "mqttlite token new --role viewer" in page
        assert str(tmp_path) not in page
    file = tmp_path / "other keys.json"
    async with running_gateway(tmp_path, http={"api_key_file": str(file)}) as gateway:
        assert f"--file '{file}'" in text_of(await gateway.client().get("/ui/login"))


async def test_a_path_without_a_page_says_so_as_a_page(gateway: GatewayUnderTest) -> None:
    page = await gateway.client().get("/ui/nosuch", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert page.headers["content-security-policy"] == CSP
    assert "There is no page at /ui/nosuch" in text_of(page)
    assert 'href="/ui/clients"' in page.text
    hostile = await gateway.client().get(f"/ui/{quote(HOSTILE)}")
    assert HOSTILE not in hostile.text


async def test_the_overview_shows_queues_and_those_that_need_attention_as_alarms(tmp_path: Path) -> None:
    queues = tuple(QueueOptions(name=name, filters=(f"{name}/#",)) for name in ("alone", "quiet"))
    async with running_gateway(tmp_path, queues=queues) as gateway:
        viewer = gateway.client(Role.VIEWER)
        assert "No alarm is active." in text_of(await viewer.get("/"))
        await gateway.broker.publish("alone/1", b"x", qos=1)
        page = await viewer.get("/")
        assert "Messages wait in queues without a consumer. alone (1, the oldest" in text_of(page)
        rows = re.findall(r"<tr><th scope=\"row\"><a href=\"/ui/queue\?name=(\w+)\">.*?</tr>", page.text, re.DOTALL)
        assert rows == ["alone", "quiet"]
        await gateway.client(Role.OPERATOR).post("/ui/queue/pause", data={"name": "alone"}, headers=OWN)
        assert "No alarm is active." in text_of(await viewer.get("/"))


async def test_an_administrator_makes_changes_and_deletes_a_queue(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        admin = gateway.client(Role.ADMIN)
        fields = {"name": "jobs", "filters": "jobs/# more/+", "ack_deadline_s": "60", "max_attempts": ""}
        made = await admin.post("/ui/queues/make", data=fields, headers=OWN)
        assert (made.status_code, made.headers["location"]) == (303, "/ui/queue?name=jobs&done=queue-made")
        page = await admin.get("/ui/queue?name=jobs")
        (options,) = re.findall(r"<textarea name=\"options\".*?>(.*?)</textarea>", page.text, re.DOTALL)
        given = json.loads(html.unescape(options))
        assert (given["filters"], given["ack_deadline_s"]) == (["jobs/#", "more/+"], 60)
        given["ack_deadline_s"] = 90
        changed = {"name": "jobs", "options": json.dumps(given)}
        assert (await admin.post("/ui/queues/change", data=changed, headers=OWN)).status_code == 303
        found = (await admin.get("/api/v1/queues/jobs")).json()["options"]
        assert found == given
        wrong = await admin.post("/ui/queues/change", data={"name": "jobs", "options": "{"}, headers=OWN)
        assert (wrong.status_code, wrong.headers["content-type"]) == (400, "text/html; charset=utf-8")
        bad = await admin.post("/ui/queues/make", data={**fields, "max_attempts": "many"}, headers=OWN)
        assert (bad.status_code, "max_attempts is 'many'" in text_of(bad)) == (422, True)
        deleted = await admin.post("/ui/queues/delete", data={"name": "jobs"}, headers=OWN)
        assert deleted.headers["location"] == "/ui/queues?done=queue-deleted"
        assert (await admin.get("/ui/queue?name=jobs")).status_code == 404
        operator = gateway.client(Role.OPERATOR)
        assert (await operator.post("/ui/queues/make", data=fields, headers=OWN)).status_code == 403
        assert "Make a queue" not in text_of(await operator.get("/ui/queues"))


async def test_refused_logins_are_listed(tmp_path: Path) -> None:
    set_user(tmp_path / "users", "ann", keys_of("secret", b"0123456789abcdef", 4_096), create=True)
    async with running_gateway(tmp_path, password_file=str(tmp_path / "users")) as gateway:
        viewer = gateway.client(Role.VIEWER)
        assert "No connection was refused" in text_of(await viewer.get("/ui/bans"))
        with pytest.raises(MqttError):
            async with Client("127.0.0.1", gateway.broker.port, client_id=HOSTILE, username="ann", password="wrong"):
                pass
        page = await viewer.get("/ui/bans")
        assert HOSTILE not in page.text
        assert f"{HOSTILE} ann not_authorized" in text_of(page)


@pytest.mark.long
async def test_the_curves_of_the_overview_begin_before_the_page_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "EVERY_S", 0.02)
    async with running_gateway(tmp_path) as gateway:
        viewer = gateway.client(Role.VIEWER)

        async def past() -> list[str]:
            page = (await viewer.get("/")).text
            curves = re.findall(r'<svg data-spark="([\w.]+)" data-past="([^"]*)"', page)
            assert [name for name, _ in curves if name in (*history.FIGURES, history.DROPPED)], page
            return [points for name, points in curves if name == "clients.connected"]

        async with Client("127.0.0.1", gateway.broker.port, client_id="seen"):
            while "1.0" not in (await past())[0].split(","):
                await asyncio.sleep(0)
        assert "1.0" in (await past())[0], "also after it is gone"


def test_a_history_has_a_limit_and_counts_drops_between_samples() -> None:
    found = History()
    for number in range(history.POINTS + 5):
        sections: dict[str, Any] = {}
        for path in history.FIGURES:
            section, _, name = path.partition(".")
            sections.setdefault(section, {})[name] = number
        found.note({**sections, "drops": {"queue_full": 2 * number, "expired": number}})
    points = found.points()
    assert {len(each) for each in points.values()} == {history.POINTS}
    assert points["clients.connected"][-1] == history.POINTS + 4
    assert set(points[history.DROPPED]) == {3}


@pytest.mark.long
async def test_the_pages_of_bridges_add_pause_resume_and_remove(tmp_path: Path) -> None:
    bridge = BridgeOptions(name="kept", addresses=("127.0.0.1:1",), topics=(BridgeTopic(pattern="a/<b>"),))
    added = {"name": "added", "addresses": ["127.0.0.1:1"], "topics": [{"pattern": "#", "filter": "qos = 2"}]}
    async with running_gateway(tmp_path, bridges=(bridge,)) as gateway:
        admin, operator, viewer = (gateway.client(each) for each in (Role.ADMIN, Role.OPERATOR, Role.VIEWER))
        for options, status in ((json.dumps(added), 303), (json.dumps(added), 409), ("{}", 422), ("office", 400)):
            done = await admin.post("/ui/bridges/add", data={"options": options}, headers=OWN)
            assert done.status_code == status
        assert "Add it" in text_of(await admin.get("/ui/bridges"))
        page = text_of(await viewer.get("/ui/bridges"))
        assert "Add it" not in page
        assert ("kept away" in page, "added away" in page, "2 in all" in page) == (True, True, True)
        page = text_of(await viewer.get("/ui/bridge?name=kept"))
        assert ("a/<b>" in page, "Pause" in page) == (True, False)
        assert "qos = 2" in text_of(await viewer.get("/ui/bridge?name=added"))
        for action, state in (("pause", "paused since"), ("resume", "away since")):
            done = await operator.post(f"/ui/bridge/{action}", data={"name": "kept"}, headers=OWN)
            assert done.status_code == 303
            assert state in text_of(await operator.get(done.headers["location"]))
        for name, status in (("kept", 409), ("added", 303), ("added", 404)):
            done = await admin.post("/ui/bridges/remove", data={"name": name}, headers=OWN)
            assert done.status_code == status
        assert "1 in all" in text_of(await viewer.get("/ui/bridges"))
