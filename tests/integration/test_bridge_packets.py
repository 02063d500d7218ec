"""A bridge beside a broker that does exactly what a test says: lost sessions, refusals, and old protocol levels."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from mqttlite.config.file import parse_config
from mqttlite.extensions.bridge import bridge as bridges
from mqttlite.extensions.bridge.bridge import Bridge
from mqttlite.extensions.bridge.path import PROPERTY
from mqttlite.server import Broker
from mqttlite.wire.constants import PUBACK, PUBCOMP, PUBREC, PUBREL, V5, V311
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import encode
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import Ack, Connack, Connect, Packet, Publish, Suback, Subscribe
from mqttlite.wire.properties import NONE, Properties
from tests.integration.test_bridges import Seen, bridge, bridges_of, is_connected
from tests.support.device import until
from tests.support.inside import core_of

pytestmark = [pytest.mark.asyncio(loop_factories=["asyncio"]), pytest.mark.slow]

P = TypeVar("P", bound=Packet)
PATIENCE_S = 20.0


class Script:
    """One connection of the bridge, as the other broker sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self._reader, self._writer, self._version = reader, writer, version
        self._framer = Framer(1 << 20)
        self._packets: list[Packet] = []

    async def expect(self, kind: type[P]) -> P:
        """The next packet, which is of that kind."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._packets:
                data = await self._reader.read(65_536)
                assert data, f"the bridge left; a {kind.__name__} was expected"
                self._packets += [decode(first, body, self._version) for first, body in self._framer.split(data)]
        packet = self._packets.pop(0)
        assert isinstance(packet, kind), packet
        return packet

    async def is_left(self) -> None:
        """The bridge closes the connection."""
        async with asyncio.timeout(PATIENCE_S):
            while await self._reader.read(65_536):
                pass

    def send(self, *packets: Packet) -> None:
        self._writer.write(b"".join(encode(each, self._version) for each in packets))

    async def accept(self, *, present: bool = False, code: int = 0, properties: Properties = NONE) -> Connect:
        """Answer CONNECT, and SUBSCRIBE if the bridge sends one, which it does first."""
        connect = await self.expect(Connect)
        self.send(Connack(present, code, properties))
        return connect

    async def grant(self) -> Subscribe:
        subscribe = await self.expect(Subscribe)
        self.send(Suback(subscribe.packet_id, bytes(each.qos for each in subscribe.requests)))
        return subscribe

    def close(self) -> None:
        self._writer.transport.abort()


class Remote:
    """A port on which a bridge finds the script of a test."""

    def __init__(self) -> None:
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._waiting: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def join(self, version: int = V5) -> Script:
        """The next connection."""
        async with asyncio.timeout(PATIENCE_S):
            return Script(*await self._waiting.get(), version)

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self._waiting.put_nowait((reader, writer))

    def close(self) -> None:
        for each in self._writers:
            each.transport.abort()


@asynccontextmanager
async def joined(
    queues: Sequence[dict[str, Any]] = (), limits: dict[str, int] | None = None, **options: Any
) -> AsyncIterator[tuple[Broker, Remote]]:
    """A broker with queues and a bridge to a script."""
    remote = Remote()
    async with await asyncio.start_server(remote.take, "127.0.0.1", 0) as server:
        remote.port = server.sockets[0].getsockname()[1]
        config = {
            "listeners": [{"port": 0}],
            "queues": list(queues),
            "limits": limits or {},
            "bridges": [bridge(remote.port, **options)],
        }
        async with Broker(parse_config(config)) as broker:
            yield broker, remote
        remote.close()
        await asyncio.sleep(0)


def gets(seen: Seen, *payloads: str) -> Callable[[], bool]:
    return lambda: seen.payloads == list(payloads)


@pytest.mark.parametrize("is_kept", [True, False])
async def test_an_identifier_is_a_repetition_only_if_the_other_broker_has_kept_the_session(is_kept: bool) -> None:
    async with joined() as (broker, remote):
        seen = Seen(broker)
        script = await remote.join()
        await script.accept()
        subscribe = await script.grant()
        assert [(each.no_local, each.retain_as_published) for each in subscribe.requests] == [(True, True)]
        script.send(Publish(b"a", b"1", 2, packet_id=7))
        assert await script.expect(Ack) == Ack(PUBREC, 7)
        script.close()
        script = await remote.join()
        await script.accept(present=is_kept)
        if not is_kept:
            await script.grant()
        script.send(Publish(b"a", b"1" if is_kept else b"2", 2, dup=is_kept, packet_id=7), Ack(PUBREL, 7))
        assert await script.expect(Ack) == Ack(PUBREC, 7)
        assert await script.expect(Ack) == Ack(PUBCOMP, 7)
        script.send(Publish(b"a", b"3", 1, packet_id=8))
        assert await script.expect(Ack) == Ack(PUBACK, 8)
        await until(gets(seen, "1", "3") if is_kept else gets(seen, "1", "2", "3"))


async def test_a_message_that_is_no_repetition_is_published_under_an_identifier_that_was_not_released() -> None:
    async with joined() as (broker, remote):
        seen = Seen(broker)
        script = await remote.join()
        await script.accept()
        await script.grant()
        for payload, dup in ((b"1", False), (b"1", True), (b"1", False), (b"2", False)):
            script.send(Publish(b"a", payload, 2, dup=dup, packet_id=7))
            assert await script.expect(Ack) == Ack(PUBREC, 7)
        script.send(Ack(PUBREL, 7))
        assert await script.expect(Ack) == Ack(PUBCOMP, 7)
        assert seen.payloads == ["1", "2"]


async def test_an_identifier_is_used_again_at_once_without_its_release() -> None:
    async with joined() as (broker, remote):
        seen = Seen(broker)
        script = await remote.join()
        await script.accept()
        await script.grant()
        script.send(Publish(b"a", b"1", 2, packet_id=7), Publish(b"a", b"2", 2, packet_id=7))
        await until(gets(seen, "1", "2"))


async def test_a_message_without_the_mark_of_a_repetition_is_one_if_its_content_is_the_same() -> None:
    async with joined() as (broker, remote):
        seen = Seen(broker)
        script = await remote.join()
        await script.accept()
        await script.grant()
        script.send(Publish(b"a", b"1", 2, packet_id=7))
        assert await script.expect(Ack) == Ack(PUBREC, 7)
        script.close()
        script = await remote.join()
        await script.accept(present=True)
        for payload in (b"1", b"1"):
            script.send(Publish(b"a", payload, 2, packet_id=7))
            assert await script.expect(Ack) == Ack(PUBREC, 7)
            script.send(Ack(PUBREL, 7))
            assert await script.expect(Ack) == Ack(PUBCOMP, 7)
        await until(gets(seen, "1", "1"))


async def test_more_messages_than_receive_maximum_are_taken_from_another_broker() -> None:
    async with joined(limits={"receive_maximum": 2}) as (broker, remote):
        seen = Seen(broker)
        script = await remote.join()
        await script.accept()
        await script.grant()
        for number in range(1, 5):
            script.send(Publish(b"a", b"%d" % number, 2, packet_id=number))
            assert await script.expect(Ack) == Ack(PUBREC, number)
        await until(gets(seen, "1", "2", "3", "4"))


async def test_identifiers_that_only_the_other_broker_knows_are_released_before_they_are_used() -> None:
    async with joined(topics=[{"pattern": "#", "qos": 2}]) as (broker, remote):
        script = await remote.join()
        await script.accept(present=True)
        await until(is_connected(broker))
        await broker.publish("a", "1", qos=2)
        assert await script.expect(Ack) == Ack(PUBREL, 1)
        script.close()  # before the answer
        script = await remote.join()
        await script.accept(present=True)
        assert await script.expect(Ack) == Ack(PUBREL, 1)
        script.send(Ack(PUBCOMP, 1))
        message = await script.expect(Publish)
        assert (message.packet_id, message.payload) == (1, b"1")
        script.close()
        script = await remote.join()
        await script.accept(present=True)
        message = await script.expect(Publish)  # released once, for it may be under way now
        assert (message.packet_id, message.dup) == (1, True)
        script.send(Ack(PUBREC, 1))
        assert await script.expect(Ack) == Ack(PUBREL, 1)
        script.send(Ack(PUBCOMP, 1))
        await until(lambda: bridges_of(broker).get("b").waiting == 0)


async def test_a_release_is_repeated_and_the_answer_to_a_flush_is_not_taken_for_its_own() -> None:
    async with joined(topics=[{"pattern": "#", "qos": 2}]) as (broker, remote):
        script = await remote.join()
        await script.accept(present=True)
        await until(is_connected(broker))
        await broker.publish("a", "1", qos=2)
        assert await script.expect(Ack) == Ack(PUBREL, 1)
        script.send(Ack(PUBCOMP, 1))
        await script.expect(Publish)
        script.send(Ack(PUBREC, 1))
        assert await script.expect(Ack) == Ack(PUBREL, 1)
        script.close()
        script = await remote.join()
        await script.accept(present=True)
        assert await script.expect(Ack) == Ack(PUBREL, 1)
        script.send(Ack(PUBCOMP, 1))
        await broker.publish("a", "2", qos=2)
        assert await script.expect(Ack) == Ack(PUBREL, 2)
        script.send(Ack(PUBCOMP, 2))
        assert (await script.expect(Publish)).packet_id == 2


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_broker_without_room_gets_the_message_again_later(qos: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridges, "RETRY_S", 0.1)
    async with joined(topics=[{"pattern": "#", "qos": qos}]) as (broker, remote):
        script = await remote.join()
        await script.accept()
        await until(is_connected(broker))
        await broker.publish("a", "1", qos=qos)
        message = await script.expect(Publish)
        answer = PUBACK if qos == 1 else PUBREC
        script.send(Ack(answer, message.packet_id, 0x97))
        await script.is_left()
        found = bridges_of(broker).get("b")
        await until(lambda: "no room for a message" in found.reason)
        script = await remote.join()
        await script.accept(present=True)
        again = await script.expect(Publish)
        assert (again.packet_id, again.dup, again.payload) == (message.packet_id, True, b"1")


async def test_a_bridge_that_connects_once_comes_back_for_a_message_without_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bridges, "RETRY_S", 0.1)
    async with joined(topics=[{"pattern": "#"}], start="once") as (broker, remote):
        script = await remote.join()
        await script.accept()
        await until(is_connected(broker))
        await broker.publish("a", "1", qos=1)
        script.send(Ack(PUBACK, (await script.expect(Publish)).packet_id, 0x97))
        await script.is_left()
        script = await remote.join()
        await script.accept(present=True)
        assert (await script.expect(Publish)).payload == b"1"
        script.close()
        await until(lambda: bridges_of(broker).get("b").state == "idle")


async def test_messages_that_another_broker_did_not_filter_are_filtered_here() -> None:
    async with joined(topics=[{"pattern": "#", "direction": "in", "filter": "payload > 30"}]) as (broker, remote):
        seen = Seen(broker)
        script = await remote.join()
        await script.accept()
        subscribe = await script.grant()
        assert subscribe.properties.user_properties == [("filter", "payload > 30")]
        script.send(Publish(b"a", b"30", 1, packet_id=1), Publish(b"a", b"31", 1, packet_id=2))
        assert [(await script.expect(Ack)).packet_id for _ in range(2)] == [1, 2]
        await until(gets(seen, "31"))
        found = bridges_of(broker).get("b").view()
        assert (found.received, found.filtered, found.dropped) == (2, 1, {})
        assert dict(bridges_of(broker).figures())["bridge_filtered"] == [({"bridge": "b"}, 1)]


async def test_a_subscription_that_this_broker_refuses_is_said() -> None:
    topics = [{"pattern": each, "filter": "payload > 30"} for each in ("a", "b")]
    async with joined(topics=topics, limits={"max_filtered_subscriptions": 1}) as (broker, remote):
        await (await remote.join()).accept()
        await until(lambda: "this broker refuses a subscription" in bridges_of(broker).get("b").reason)


async def test_a_refused_message_is_dropped_and_counted() -> None:
    async with joined(topics=[{"pattern": "#"}]) as (broker, remote):
        script = await remote.join()
        await script.accept()
        await until(is_connected(broker))
        await broker.publish("a", "1", qos=1)
        script.send(Ack(PUBACK, (await script.expect(Publish)).packet_id, 0x87))
        found = bridges_of(broker).get("b")
        await until(lambda: found.view().dropped == {"the other broker: not authorized (0x87)": 1})
        await until(lambda: found.waiting == 0)


async def test_a_broker_that_takes_no_qos_2_is_said() -> None:
    async with joined(topics=[{"pattern": "#", "qos": 2}]) as (broker, remote):
        script = await remote.join()
        await script.accept(properties=Properties(maximum_qos=1))
        await script.is_left()
        found = bridges_of(broker).get("b")
        await until(lambda: "takes at most QoS 1: lower the qos" in found.reason)


@pytest.mark.parametrize("refuses", [True, False])
async def test_before_5_0_a_bridge_says_that_it_is_one_and_does_without_where_that_is_refused(refuses: bool) -> None:
    async with joined(version="3.1.1") as (broker, remote):
        script = await remote.join(V311)
        assert (await script.accept(code=1 if refuses else 0)).is_bridge
        if refuses:
            await script.is_left()
            script = await remote.join(V311)
            assert not (await script.accept()).is_bridge
        await script.grant()
        await until(is_connected(broker))


async def test_a_message_that_was_here_before_ends_here() -> None:
    async with joined() as (broker, remote):
        seen = Seen(broker)
        script = await remote.join()
        await script.accept()
        await script.grant()
        await until(is_connected(broker))
        await broker.publish("a", "1", qos=1)
        message = await script.expect(Publish)
        script.send(Ack(PUBACK, message.packet_id))
        for qos in (0, 1, 2):
            script.send(Publish(b"a", b"loop", qos, packet_id=9 if qos else 0, properties=message.properties))
        assert await script.expect(Ack) == Ack(PUBACK, 9)
        assert await script.expect(Ack) == Ack(PUBREC, 9)
        script.send(Ack(PUBREL, 9))
        assert (await script.expect(Ack)).packet_type == PUBCOMP
        assert seen.payloads == ["1"]
        assert bridges_of(broker).get("b").view().dropped == {"it was here before": 3}


async def test_two_pauses_at_once_leave_one_task() -> None:
    async with joined() as (broker, _remote):
        found = bridges_of(broker).get("b")
        await asyncio.gather(found.pause(), found.resume(), found.pause(), found.resume())
        tasks = [each for each in asyncio.all_tasks() if "Bridge._run" in repr(each.get_coro())]
        assert len(tasks) == 1


async def test_an_attempt_that_fails_in_an_unforeseen_way_is_said_and_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    dial = Bridge._dial
    attempts = 0

    async def fail_once(self: Bridge) -> Any:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ValueError("wrong")
        return await dial(self)

    monkeypatch.setattr(Bridge, "_dial", fail_once)
    async with joined() as (broker, remote):
        found = bridges_of(broker).get("b")
        await until(lambda: found.reason == "An attempt failed with ValueError: wrong")
        script = await remote.join()
        await script.accept()
        await script.grant()
        await until(is_connected(broker))


async def test_a_forged_path_is_dropped_and_the_next_message_is_sent() -> None:
    async with joined() as (broker, remote):
        script = await remote.join()
        await script.accept()
        await script.grant()
        await until(is_connected(broker))
        await broker.publish("a", "1", qos=1, properties=Properties(user_properties=[(PROPERTY, "a" * 65_530)]))
        await broker.publish("a", "2", qos=1)
        assert (await script.expect(Publish)).payload == b"2"
        assert bridges_of(broker).get("b").view().dropped == {"its path is too long": 1}


async def test_refused_subscriptions_are_named_while_connected() -> None:
    async with joined() as (broker, remote):
        script = await remote.join()
        await script.accept()
        subscribe = await script.expect(Subscribe)
        script.send(Suback(subscribe.packet_id, b"\x87"))
        await until(is_connected(broker))
        reason = "The other broker refused the subscription to '#' (not authorized (0x87))."
        assert bridges_of(broker).get("b").view().reason == reason


async def test_others_go_on_while_a_message_has_no_room_and_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridges, "RETRY_S", 0.3)
    async with joined(topics=[{"pattern": "#"}]) as (broker, remote):
        script = await remote.join()
        await script.accept()
        await until(is_connected(broker))
        for payload in ("1", "2"):
            await broker.publish("a", payload, qos=1)
        refused, late = await script.expect(Publish), await script.expect(Publish)
        script.send(Ack(PUBACK, refused.packet_id, 0x97))
        await broker.publish("a", "3", qos=1)
        script.send(Ack(PUBACK, (await script.expect(Publish)).packet_id))
        await asyncio.sleep(0.5)
        script.send(Ack(PUBACK, late.packet_id))
        await script.is_left()
        script = await remote.join()
        await script.accept(present=True)
        assert (await script.expect(Publish)).payload == b"1"
        await broker.publish("a", "4", qos=1)
        assert (await script.expect(Publish)).payload == b"4"


async def test_messages_behind_a_release_keep_their_order() -> None:
    async with joined(topics=[{"pattern": "#", "qos": 2}]) as (broker, remote):
        script = await remote.join()
        await script.accept(present=True)
        await until(is_connected(broker))
        await broker.publish("a", "1", qos=2)
        await broker.publish("a", "2", qos=0)
        assert await script.expect(Ack) == Ack(PUBREL, 1)
        script.send(Ack(PUBCOMP, 1))
        assert [(await script.expect(Publish)).payload for _ in range(2)] == [b"1", b"2"]


async def test_others_come_in_while_a_message_has_no_room_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridges, "RETRY_S", 0.3)
    async with joined(queues=[{"name": "q", "filters": ["q/#"], "max_messages": 1}]) as (broker, remote):
        script = await remote.join()
        await script.accept()
        await script.grant()
        script.send(Publish(b"q/1", b"", 1, packet_id=1), Publish(b"q/2", b"", 1, packet_id=2))
        assert await script.expect(Ack) == Ack(PUBACK, 1)
        await asyncio.sleep(0.1)
        script.send(Publish(b"a", b"", 1, packet_id=3))
        assert await script.expect(Ack) == Ack(PUBACK, 3)
        await script.is_left()
        found = bridges_of(broker).get("b")
        await until(lambda: "this broker has no room" in found.reason)


async def test_a_restart_with_several_addresses_repeats_no_qos_2_message(tmp_path: Path, unused_tcp_port: int) -> None:
    remote = Remote()
    async with await asyncio.start_server(remote.take, "127.0.0.1", 0) as server:
        ports = (unused_tcp_port, server.sockets[0].getsockname()[1])
        config = parse_config({"listeners": [{"port": 0}], "data_dir": str(tmp_path), "bridges": [bridge(*ports)]})
        async with Broker(config) as broker:
            script = await remote.join()
            await script.accept()
            await script.grant()
            await until(is_connected(broker))
            script.send(Publish(b"a", b"1", 2, packet_id=7))
            assert await script.expect(Ack) == Ack(PUBREC, 7)
        async with Broker(config) as broker:
            seen = Seen(broker)
            script = await remote.join()
            await script.accept(present=True)
            await script.grant()
            script.send(Publish(b"a", b"1", 2, dup=True, packet_id=7), Publish(b"a", b"2", 1, packet_id=8))
            assert await script.expect(Ack) == Ack(PUBREC, 7)
            assert await script.expect(Ack) == Ack(PUBACK, 8)
            await until(gets(seen, "2"))
        remote.close()


async def test_before_5_0_a_message_that_is_too_large_here_is_acknowledged_and_dropped() -> None:
    async with joined(version="3.1.1") as (broker, remote):
        script = await remote.join(V311)
        await script.accept()
        await script.grant()
        limit = core_of(broker).limits.max_packet_bytes
        script.send(Publish(b"a", bytes(limit), 1, packet_id=1), Publish(b"a", b"2", 1, packet_id=2))
        assert await script.expect(Ack) == Ack(PUBACK, 1)
        assert await script.expect(Ack) == Ack(PUBACK, 2)
        assert bridges_of(broker).get("b").view().dropped == {"too large for this broker": 1}


async def test_the_largest_packet_leaves_room_for_a_longer_prefix_here() -> None:
    topics = [{"pattern": "#", "direction": "in", "local_prefix": "plant/"}]
    async with joined(topics=topics) as (broker, remote):
        script = await remote.join()
        limit = core_of(broker).limits.max_packet_bytes
        assert (await script.accept()).properties.maximum_packet_size == limit - 7
        await script.grant()
        payload = bytes(limit - 7 - 10)  # 1 + 3 of type and length, 2 + 1 of the topic, 2 of the identifier, 1
        script.send(Publish(b"a", payload, 1, packet_id=1))
        assert await script.expect(Ack) == Ack(PUBACK, 1)
