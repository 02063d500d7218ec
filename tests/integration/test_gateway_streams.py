"""Subscribers over HTTP on real sockets: SSE and WebSocket, cuts and what comes after them, slow readers."""

import asyncio
import gc
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect as connect_socket
from websockets.exceptions import ConnectionClosed, InvalidStatus

from mqttlite.core.limits import Limits
from mqttlite.gateway import event_stream
from mqttlite.gateway.caller import Role
from mqttlite.gateway.http_server import HttpProtocol
from mqttlite.security.api_keys import FILE_NAME, load, revoke
from tests.support.gateway import GatewayUnderTest, nobody_without_credentials, running_gateway

Event = dict[str, Any]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with running_gateway(tmp_path) as under_test:
        yield under_test


class Stream:
    """A connection of an EventSource: its events, each with `event` and `id` of its lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        self.reader, self.writer, self.head = reader, writer, head
        self._text = b""

    @property
    def status(self) -> int:
        return int(self.head.split(b" ")[1])

    async def next(self) -> Event:
        """The next event that is no comment."""
        while True:
            while b"\n\n" not in self._text:
                size = int(await asyncio.wait_for(self.reader.readline(), 60), 16)
                if not size:
                    raise EOFError
                self._text += (await self.reader.readexactly(size + 2))[:-2]
            block, _, self._text = self._text.partition(b"\n\n")
            fields = dict(line.split(b": ", 1) for line in block.splitlines() if not line.startswith(b":"))
            if b"data" in fields:
                event: Event = json.loads(fields[b"data"])
                return {
                    **event,
                    "event": fields.get(b"event", b"message").decode(),
                    "id": fields.get(b"id", b"").decode(),
                }

    def cut(self) -> None:
        self.writer.transport.abort()


async def open_stream(gateway: GatewayUnderTest, path: str, **headers: str) -> Stream:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.gateway.port)
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())
    return Stream(reader, writer, await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60))


@asynccontextmanager
async def stream(gateway: GatewayUnderTest, path: str, **headers: str) -> AsyncIterator[Stream]:
    found = await open_stream(gateway, path, **headers)
    try:
        yield found
    finally:
        found.cut()


async def gone(gateway: GatewayUnderTest, clients: int) -> None:
    """Wait until so few clients are connected."""
    async with asyncio.timeout(60):
        while gateway.broker._assembly.core.online > clients:
            await asyncio.sleep(0.01)


# ── SSE ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.long
async def test_a_stream_gets_what_its_filters_match_and_retained_messages_first(gateway: GatewayUnderTest) -> None:
    await gateway.broker.publish("a/x", b"old", retain=True)
    async with stream(gateway, "/events?filter=a/%2B&filter=b") as events:
        assert events.status == 200
        assert b"content-type: text/event-stream" in events.head
        first = await events.next()
        assert (first["topic"], first["payload"], first["encoding"], first["retain"]) == ("a/x", "old", "text", True)
        for topic, payload in (("a/y", b'{"t": 1,\n "u": []}'), ("b", b"\xff"), ("c", b"no"), ("b", b"")):
            await gateway.broker.publish(topic, payload, qos=1)
        found = [await events.next() for _ in range(3)]
        assert [(each["topic"], each["payload"], each["encoding"]) for each in found] == [
            ("a/y", {"t": 1, "u": []}, "json"),
            ("b", "/w==", "base64"),
            ("b", "", "text"),
        ]
        assert found[0]["qos"] == 1
    await gone(gateway, 0)


async def test_a_stream_with_a_filter_gets_messages_that_pass(gateway: GatewayUnderTest) -> None:
    await gateway.broker.publish("a/kept", b'{"n": 1}', retain=True)
    async with stream(gateway, "/events?filter=a/%23&where=payload.n%20%3E%205") as events:
        for number in (5, 6):
            await gateway.broker.publish("a", b'{"n": %d}' % number, qos=1)
        assert (await events.next())["payload"] == {"n": 6}
    async with stream(gateway, "/events?filter=a/%23&where=payload.n%20%3E%20x") as refused:
        assert refused.status == 400
        body = await asyncio.wait_for(refused.reader.readuntil(b"}"), 60)
        assert "no subscription to 'a/#': filter: position 13: found x" in json.loads(body)["detail"]
    await gone(gateway, 0)


async def test_events_come_for_a_dotted_filter(gateway: GatewayUnderTest) -> None:
    async with stream(gateway, "/events?filter=orders.*&dotted=true") as events:
        await gateway.broker.publish("orders/placed", b"x", qos=1)
        assert (await events.next())["topic"] == "orders/placed"
    await gone(gateway, 0)


async def test_a_subscriber_is_a_client_like_any_other(gateway: GatewayUnderTest) -> None:
    async with stream(gateway, await gateway.named_stream("a")) as _:
        found = gateway.broker.admin.client("page")
        assert found is not None
        assert (found.transport, found.entry.listener, found.topic_filters) == ("sse", "http", {"a": 1})
        assert found.entry.peer is not None
        assert found.entry.peer.startswith("127.0.0.1:")
        gateway.broker.admin.kick("page")
        await gone(gateway, 0)


async def test_a_topic_is_subscribed_by_its_id_and_the_subscription_ended(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, users=("ann", "bob")) as gateway:
        ann = gateway.user("ann")
        made = (await ann.post("/api/v1/topics", json={"name": "a"})).json()
        path = f"/api/v1/topics/{made['topic_id']}"
        token = gateway.users["ann"]
        async with stream(gateway, f"{path}/subscribe?token={token}") as events:
            assert (await ann.get(path)).json()["subscriber_count"] == 1
            (subscriber,) = (await ann.get(f"{path}/subscribers")).json()["subscribers"]
            assert subscriber["user_id"] == "ann"
            await ann.post(f"{path}/publish", json={"payload": 1})
            assert (await events.next())["topic_id"] == made["topic_id"]
            assert (await gateway.user("bob").delete(f"{path}/subscribe")).json() == {"success": False}
            assert (await ann.delete(f"{path}/subscribe")).json() == {"success": True}
            assert (await events.next())["event"] == "end"
            assert (await ann.get(path)).json()["subscriber_count"] == 0
        assert (await ann.delete(f"{path}/subscribe")).json() == {"success": False}


async def test_a_subscription_ends_and_its_kept_session_stays_with_its_messages(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, users=("ann",), http={"anonymous_role": "user"}) as gateway:
        admin, core = gateway.client(Role.ADMIN), gateway.broker._assembly.core
        made = (await admin.post("/api/v1/topics", json={"name": "a"})).json()
        path = f"/api/v1/topics/{made['topic_id']}/subscribe"
        for name in ("of-ann", "of-nobody"):
            key = gateway.users["ann"] if name == "of-ann" else None
            await gateway.named_stream("a", "b", key=key, client_id=name)
        await gone(gateway, 0)
        await gateway.broker.publish("a", b"kept", qos=1)

        def of(name: str) -> tuple[list[bytes], int]:
            session = core.sessions.get(name)
            assert session is not None
            return sorted(session.subscriptions), session.queued

        for who in (gateway.client(), gateway.client(Role.VIEWER), gateway.user("ann")):
            for name in ("of-nobody", "unknown"):
                refused = await who.delete(f"{path}?client_id={name}")
                assert (refused.status_code, refused.json()["code"]) == (403, "not_authorized")
        assert (await gateway.client().delete(f"{path}?client_id=of-ann")).status_code == 403
        assert of("of-nobody") == of("of-ann") == ([b"a", b"b"], 1)
        assert (await gateway.user("ann").delete(path)).json() == {"success": True}
        assert (await gateway.user("ann").delete(f"{path}?client_id=of-ann")).json() == {"success": False}
        assert of("of-ann") == ([b"b"], 1)
        operator = gateway.client(Role.OPERATOR)
        assert (await operator.delete(f"{path}?client_id=of-nobody")).json() == {"success": True}
        assert of("of-nobody") == ([b"b"], 1)
        assert (await gateway.client().delete(path)).json()["code"] == "invalid_value"


async def test_a_stream_goes_on_while_it_has_a_subscription_and_says_why_it_ends(gateway: GatewayUnderTest) -> None:
    client, paths = gateway.client(), []
    for name in ("a", "b"):
        made = (await client.post("/api/v1/topics", json={"name": name})).json()
        paths.append(f"/api/v1/topics/{made['topic_id']}/subscribe?client_id=page")
    async with stream(gateway, await gateway.named_stream("a", "b")) as events:
        assert (await client.delete(paths[0])).json() == {"success": True}
        for topic in ("a", "b"):
            await gateway.broker.publish(topic, topic.encode(), qos=1)
        assert (await events.next())["payload"] == "b"
        assert (await client.delete(paths[1])).json() == {"success": True}
        assert (await events.next()) == {
            "type": "end",
            "event": "end",
            "id": "",
            "reason": "its last subscription was ended",
        }
    await gone(gateway, 0)


async def test_a_websocket_of_the_caller_is_unsubscribed_and_stays_connected(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, users=("ann",)) as gateway:
        ann, core = gateway.user("ann"), gateway.broker._assembly.core
        made = (await ann.post("/api/v1/topics", json={"name": "a"})).json()
        token = gateway.users["ann"]
        async with connect_socket(f"ws://127.0.0.1:{gateway.gateway.port}/ws/subscribe?token={token}") as socket:
            await socket.send(json.dumps({"type": "subscribe", "topic": "a"}))
            await asyncio.wait_for(socket.recv(), 60)
            assert (await ann.delete(f"/api/v1/topics/{made['topic_id']}/subscribe")).json() == {"success": True}
            assert (core.online, core.subscriptions) == (1, 0)
    await gone(gateway, 0)


async def test_a_caller_without_permission_is_refused_before_the_stream_begins(tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text("user ann\ntopic read a/#\n")
    options = {"acl_file": str(acl), **nobody_without_credentials(tmp_path)}
    async with running_gateway(tmp_path / "data", users=("ann",), **options) as gateway:
        bearer = f"Bearer {gateway.users['ann']}"
        async with stream(gateway, "/events?filter=a/x", Authorization=bearer) as events:
            assert events.status == 200
        for path, status in (("b", 403), ("a/x&filter=b", 403), ("%23a", 422)):
            async with stream(gateway, f"/events?filter={path}", Authorization=bearer) as events:
                assert events.status == status
        async with stream(gateway, "/events?filter=a/x") as events:
            assert events.status == 401
        await gone(gateway, 0)


WRONG_QUERIES = (
    "",
    "filter=a&qos=2",
    "filter=a&session_expiry_s=60",
    "filter=a&client_id=a",
    "filter=a&ticket=",
)


async def test_a_wrong_query_is_refused(gateway: GatewayUnderTest) -> None:
    for query in WRONG_QUERIES:
        answer = await gateway.client().get(f"/events?{query}")
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_value"), query


async def test_without_a_session_a_cut_is_a_gap(gateway: GatewayUnderTest) -> None:
    async with stream(gateway, "/events?filter=a") as events:
        await gateway.broker.publish("a", b"1")
        last = (await events.next())["id"]
    async with stream(gateway, "/events?filter=a", Last_Event_ID=last) as events:
        assert (await events.next())["event"] == "gap"
        await gateway.broker.publish("a", b"2")
        assert (await events.next())["payload"] == 2


async def test_a_durable_stream_goes_on_after_its_last_event(gateway: GatewayUnderTest) -> None:
    path = await gateway.named_stream("a")
    async with stream(gateway, path) as events:
        for number in range(5):
            await gateway.broker.publish("a", str(number).encode(), qos=1)
        found = [await events.next() for _ in range(5)]
        assert [each["payload"] for each in found] == list(range(5))
    await gone(gateway, 0)
    await gateway.broker.publish("a", b"5", qos=1)
    for _ in range(2):  # the second time nothing came in between
        async with stream(gateway, path, Last_Event_ID=found[2]["id"]) as events:
            assert [(await events.next())["payload"] for _ in range(3)] == [3, 4, 5]
        await gone(gateway, 0)
    async with stream(gateway, path, Last_Event_ID=found[0]["id"]) as events:  # taken as received, and forgotten
        assert (await events.next())["event"] == "gap"


async def test_events_that_were_dropped_are_a_gap(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, limits=Limits(max_queued_messages=2)) as gateway:
        path = await gateway.named_stream("a")
        async with stream(gateway, path) as events:
            await gateway.broker.publish("a", b"0", qos=1)
            last = (await events.next())["id"]
        await gone(gateway, 0)
        for number in (1, 2, 3):
            await gateway.broker.publish("a", str(number).encode(), qos=1)
        async with stream(gateway, path, Last_Event_ID=last) as events:
            found = await events.next()
            assert (found["event"], found["reason"], found["dropped"]) == ("gap", "dropped", 2)
            assert (await events.next())["payload"] == 1


@pytest.mark.parametrize("cuts", [30, pytest.param(500, marks=pytest.mark.slow)])
async def test_however_often_it_is_cut_a_durable_stream_misses_nothing_and_repeats_nothing(
    tmp_path: Path, cuts: int
) -> None:
    async with running_gateway(tmp_path, http={"requests_per_s": 0}) as gateway:  # it comes back more often than pages
        await cut_often(gateway, cuts)


async def cut_often(gateway: GatewayUnderTest, cuts: int) -> None:
    """Cut a stream at random moments, go on with it, and compare what came with what was published."""
    path = await gateway.named_stream("a")
    dice = random.Random(cuts)
    seen: list[int] = []
    published = 0
    last: dict[str, str] = {}
    for _ in range(cuts):
        async with stream(gateway, path, **last) as events:
            assert events.status == 200
            for _ in range(dice.randrange(4)):
                await gateway.broker.publish("a", str(published).encode(), qos=1)
                published += 1
            for _ in range(dice.randrange(6)):
                if len(seen) == published:
                    break
                event = await events.next()
                assert event["event"] == "message"
                seen.append(event["payload"])
                last = {"Last_Event_ID": event["id"]}
        if dice.random() < 0.5:
            await gateway.broker.publish("a", str(published).encode(), qos=1)
            published += 1
    async with stream(gateway, path, **last) as events:
        while len(seen) < published:
            seen.append((await events.next())["payload"])
    assert seen == list(range(published))


@pytest.mark.long
async def test_a_durable_stream_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        path = await gateway.named_stream("a")
        async with stream(gateway, path) as events:
            for number in range(3):
                await gateway.broker.publish("a", str(number).encode(), qos=1)
            found = [await events.next() for _ in range(3)]
    async with running_gateway(tmp_path) as again, stream(again, path, Last_Event_ID=found[1]["id"]) as events:
        assert (await events.next())["payload"] == 2


@pytest.mark.long
async def test_a_long_stream_confirms_what_its_client_has(
    gateway: GatewayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "UNCONFIRMED", 20)
    monkeypatch.setattr(event_stream, "KEPT", 10)
    async with stream(gateway, await gateway.named_stream("a")) as events:
        for number in range(100):
            await gateway.broker.publish("a", str(number).encode(), qos=1)
            assert (await events.next())["payload"] == number
        async with asyncio.timeout(60):
            while gateway.broker.admin.client("page").entry.inflight > 20:  # type: ignore[union-attr]
                await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_a_frozen_reader_loses_messages_and_holds_up_no_other(tmp_path: Path) -> None:
    limits = Limits(max_outbox_bytes=65_536)
    async with (
        running_gateway(tmp_path, limits=limits) as gateway,
        stream(gateway, "/events?filter=a&qos=0") as frozen,
    ):
        (client_id,) = [each.client_id for each in (await gateway.broker.admin.clients()).entries]
        async with stream(gateway, "/events?filter=a&qos=0") as quick:
            payload = b"x" * 10_000
            for _ in range(3_000):
                await gateway.broker.publish("a", payload)
                assert len((await quick.next())["payload"]) == len(payload)
        found = gateway.broker.admin.client(client_id)
        assert found is not None
        assert sum(found.drops.values()) > 100
        assert found.outbox_bytes < 1_000_000
        events = [await frozen.next() for _ in range(100)]
        while events[-1]["event"] != "gap":
            events.append(await frozen.next())


async def test_a_silent_stream_says_that_it_is_there(
    gateway: GatewayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "PING_S", 0.05)
    async with stream(gateway, "/events?filter=a") as events:
        text = b""
        while text.count(b": ping\n") < 2:
            text += await asyncio.wait_for(events.reader.read(100), 60)


async def test_an_old_client_gets_a_stream_without_chunks(gateway: GatewayUnderTest) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.gateway.port)
    writer.write(b"GET /events?filter=a HTTP/1.0\r\nHost: localhost\r\n\r\n")
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    assert b"connection: close" in head
    assert b"chunked" not in head
    assert await asyncio.wait_for(reader.readuntil(b"\n"), 60) == b"retry: 2000\n"
    await gateway.broker.publish("a", b"1")
    assert (await asyncio.wait_for(reader.readuntil(b"\n\n"), 60)).startswith(b'id: 0-1\ndata: {"type":"message"')
    writer.close()


async def test_bytes_behind_a_request_are_discarded(gateway: GatewayUnderTest) -> None:
    async with stream(gateway, "/events?filter=a") as events:
        events.writer.write(b"GET /events?filter=a HTTP/1.1\r\nHost: localhost\r\n\r\n" * 10)
        await gateway.broker.publish("a", b"1")
        assert (await events.next())["payload"] == 1
        assert gateway.broker._assembly.core.online == 1
    await gone(gateway, 0)


async def test_a_request_behind_that_of_a_stream_does_not_end_it(gateway: GatewayUnderTest) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.gateway.port)
    for path in ("/topics/none", "/events?filter=a", "/topics/none"):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await asyncio.wait_for(reader.readuntil(b"retry: 2000"), 60)
    await gateway.broker.publish("a", b"7")
    assert b'"payload":7' in await asyncio.wait_for(reader.readuntil(b"}\n\n"), 60)
    writer.close()


async def test_equal_messages_of_different_moments_have_their_own_times(gateway: GatewayUnderTest) -> None:
    async with stream(gateway, "/events?filter=a&qos=0") as events:
        times = []
        for _ in range(2):
            await gateway.broker.publish("a", b"1")
            times.append((await events.next())["timestamp"])
            await asyncio.sleep(0.02)
    assert times[0] < times[1]


@pytest.mark.slow
async def test_ended_objects_leave_no_reference_cycles(gateway: GatewayUnderTest) -> None:
    def alive() -> list[object]:
        return [each for each in gc.get_objects() if type(each) in (event_stream.EventStream, HttpProtocol)]

    gc.collect()
    gc.disable()  # as `mqttlite serve` all but does: old circles would stay for good
    try:
        async with stream(gateway, "/events?filter=a"):
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.gateway.port)
            writer.write(b"GET /topics/none HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
            assert len(alive()) == 2
            writer.close()
        async with asyncio.timeout(60):
            while alive():
                await asyncio.sleep(0.01)
    finally:
        gc.enable()


@pytest.mark.long
async def test_a_revoked_key_ends_its_streams(tmp_path: Path, jump: Callable[[float], None]) -> None:
    async with running_gateway(tmp_path) as gateway:
        token = gateway.keys[Role.USER]
        async with stream(gateway, f"/events?filter=a&token={token}") as events:
            (key_id,) = [key.id for key in load(tmp_path / FILE_NAME) if key.role == "user"]
            revoke(tmp_path / FILE_NAME, key_id)
            found = await asyncio.wait_for(events.next(), 60)
            assert (found["event"], found["reason"]) == ("end", "the API key was revoked")


async def test_a_stop_ends_streams_with_an_event(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        events = await open_stream(gateway, "/events?filter=a")
        await gateway.broker.stop()
        assert (await events.next())["event"] == "end"
        events.cut()


# ── WebSocket ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.long
async def test_a_socket_subscribes_publishes_and_unsubscribes(gateway: GatewayUnderTest) -> None:
    made = (await gateway.client().post("/api/v1/topics", json={"name": "a"})).json()
    topic_id = made["topic_id"]
    url = f"ws://localhost:{gateway.gateway.port}/ws/subscribe?topic_id={topic_id}"
    async with connect_socket(url) as socket:

        async def next_() -> Event:
            found: Event = json.loads(await asyncio.wait_for(socket.recv(), 60))
            return found

        async def ask(**request: Any) -> Event:
            await socket.send(json.dumps(request))
            return await next_()

        assert await next_() == {"type": "subscribed", "id": None, "topic": "a", "qos": 1, "topic_id": topic_id}
        assert await ask(type="subscribe", id="s1", topic="b/#", qos=0) == {
            "type": "subscribed",
            "id": "s1",
            "topic": "b/#",
            "qos": 0,
        }
        await socket.send(json.dumps({"type": "publish", "id": 7, "topic": "b/x", "payload": {"t": 1}, "qos": 1}))
        both = {each["type"]: each for each in (await next_(), await next_())}
        assert (both["published"]["id"], both["published"]["delivered_to"]) == (7, 1)
        message = both["message"]
        assert (message["topic"], message["payload"], message["publisher_id"]) == ("b/x", {"t": 1}, "http")
        assert message["message_id"] == both["published"]["message_id"]
        await gateway.broker.publish("a", b"1", qos=1)
        assert (await next_())["payload"] == 1
        assert (await ask(type="unsubscribe", id="u", topic="b/#"))["existed"] is True
        assert (await ask(type="unsubscribe", id="u", topic="b/#"))["existed"] is False
        assert await ask(type="ping", id="p") == {"type": "pong", "id": "p"}
        assert (await ask(type="presence", id="q", topic="a"))["type"] == "subscribed"
        for kind in ("presence", "presence_events"):
            await gateway.broker.publish(f"$SYS/broker/{kind}/a", b"{}")
            found = await next_()
            assert (found["type"], found["topic"]) == ("presence", f"$SYS/broker/{kind}/a")
        assert await ask(type="unsubscribe", id="u", topic_id=topic_id, presence=True) == {
            "type": "unsubscribed",
            "id": "u",
            "topic": "a",
            "existed": True,
            "topic_id": topic_id,
        }
        await gateway.broker.publish("$SYS/broker/presence/a", b"{}")
        deleted = await gateway.client().delete(
            f"/api/v1/topics/{topic_id}/subscribe",
            params={"client_id": (await gateway.broker.admin.clients()).entries[0].client_id},
        )
        assert deleted.json() == {"success": True}
    await gone(gateway, 0)


WRONG_MESSAGES = [
    ("{", "bad_request", None),
    ("[]", "invalid_value", None),
    ('{"type":"dance"}', "invalid_value", None),
    ('{"type":"dance","id":"7"}', "invalid_value", "7"),
    ('{"type":"dance","id":[7]}', "invalid_value", None),
    ('{"type":"subscribe"}', "invalid_value", None),
    ('{"type":"subscribe","topic":"a","topic_id":"b"}', "invalid_value", None),
    ('{"type":"subscribe","topic":"a","qos":2}', "invalid_value", None),
    ('{"type":"subscribe","topic":"#a"}', "invalid_topic", None),
    ('{"type":"subscribe","topic":"a","where":"b"}', "bad_request", None),
    ('{"type":"subscribe","topic_id":"none"}', "not_found", None),
    (f'{{"type":"presence","topic":"{"a" * 65_530}"}}', "invalid_topic", None),
    ('{"type":"publish","topic":"a+"}', "invalid_topic", None),
    ('{"type":"publish"}', "invalid_value", None),
    ('{"type":"publish","topic":"$SYS/a","id":3}', "not_authorized", 3),
]


@pytest.mark.long
async def test_a_wrong_message_is_answered_and_the_socket_goes_on(gateway: GatewayUnderTest) -> None:
    for text, code, number in WRONG_MESSAGES:
        async with connect_socket(f"ws://localhost:{gateway.gateway.port}/ws/subscribe") as socket:
            await socket.send(text)
            answer = json.loads(await asyncio.wait_for(socket.recv(), 60))
            assert (answer["type"], answer["code"], answer["id"]) == ("error", code, number), text
            await socket.send('{"type":"ping"}')
            assert json.loads(await asyncio.wait_for(socket.recv(), 60))["type"] == "pong", text


@pytest.mark.long
async def test_a_socket_of_nobody_or_of_another_site_is_refused(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "data", **nobody_without_credentials(tmp_path)) as gateway:
        url = f"ws://localhost:{gateway.gateway.port}/ws/subscribe"
        token = gateway.keys[Role.USER]
        async with connect_socket(f"{url}?token={token}"):
            pass
        for path, origin, status in (
            (url, None, 401),
            (f"{url}?token=x", None, 401),
            (f"{url}?token={token}", "https://evil.example", 403),
            (f"{url}?token={token}&topic_id=none", None, 404),
            (f"ws://localhost:{gateway.gateway.port}/ws/nothing", None, 404),
        ):
            with pytest.raises(InvalidStatus) as refused:
                async with connect_socket(path, origin=origin):  # type: ignore[arg-type]
                    pass
            assert refused.value.response.status_code == status


async def test_a_stop_closes_sockets(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path) as gateway,
        connect_socket(f"ws://localhost:{gateway.gateway.port}/ws/subscribe") as socket,
    ):
        stopping = asyncio.create_task(gateway.broker.stop())
        with pytest.raises(ConnectionClosed):
            await asyncio.wait_for(socket.recv(), 60)
        await stopping


@pytest.mark.long
async def test_metrics_count_requests_and_events(gateway: GatewayUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "UNREAD_S", 0.05)
    assert gateway.broker.monitor is None
    reports = gateway.gateway.context.reports
    client = gateway.client(Role.ADMIN)
    await client.put("/topics/a", content=b"x")
    await client.get("/api/v1/none")
    url = f"ws://localhost:{gateway.gateway.port}/ws/subscribe"
    async with stream(gateway, "/events?filter=a&qos=0") as frozen, connect_socket(url):
        while True:
            await gateway.broker.publish("a", b"x" * 100_000)
            await asyncio.sleep(0.005)
            report = await reports.latest(0)
            assert report.http is not None
            if report.http.slow_readers_cut:
                break
        assert frozen.status == 200
    assert report.http.requests == {
        ("publish", 200): 1,
        ("api", 404): 1,
        ("subscribe", 200): 1,
        ("subscribe", 101): 1,
    }
    assert report.http.received_bytes > 100
    assert report.http.sent_bytes > 100_000
