"""A broker with a thread of its own polls while few clients talk to each other, and nowhere else."""

import asyncio
import time
from collections.abc import Callable

import pytest

from mqttlite import server
from mqttlite.cluster.membership import memberships
from mqttlite.config import Config, ListenerOptions
from mqttlite.net.pauses import GATHER_BYTES
from mqttlite.net.polling import POLL_S, TALKERS
from mqttlite.server import Broker
from mqttlite.wire.constants import V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Publish
from tests.rooms.conftest import Rig
from tests.support.device import Device, until

PASSES = 8


class Exchange:
    """A broker with receivers and senders, and how often its poller looked at its clock: once for each pass that it
    heard of, and once in each pass of polling. Time passes only there."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.looks = 0

    async def begin(self, receivers: int = 1, senders: int = 1) -> None:
        broker = Broker(port=0)
        broker.owns_thread = True
        await self._rig.enter(broker)
        self.broker = broker
        self._core = broker._turns.broker
        self._readers = [await self._rig.device(broker.port, f"reader{number}") for number in range(receivers)]
        for reader in self._readers:
            await reader.subscribe("#")
        self.senders = [await self._rig.device(broker.port, f"sender{number}") for number in range(senders)]
        await asyncio.sleep(0.02)  # their passes are over
        begin = time.monotonic() + 1000

        def clock() -> float:
            self.looks += 1
            return begin + self.looks * POLL_S / PASSES

        pauses = broker._turns.pauses
        assert pauses is not None
        assert pauses.poller is not None
        pauses.poller.clock = clock

    async def pass_on(self, *senders: Device, payload: bytes = b"x", qos: int = 0) -> None:
        """A message of each at once, until it has arrived everywhere."""
        for sender in senders:
            sender.publish("t", payload, qos)
        for reader in self._readers:
            for _ in senders:
                await reader.message()

    async def end(self, messages: int) -> int:
        """How often it looked, when all was done that these messages led to."""
        await until(lambda: sum(each.received for each in self._core.connections.values()) == messages)
        await asyncio.sleep(0.02)  # the last passes are over
        return self.looks


@pytest.fixture
def exchange(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Exchange:
    """On a machine that always has a processor to spare."""
    monkeypatch.setattr(server, "idle_processor", lambda _workers: lambda: True)
    return Exchange(rig)


@pytest.mark.parametrize("qos", [0, 1])
async def test_while_a_client_speaks_again_and_again(exchange: Exchange, qos: int) -> None:
    await exchange.begin()
    await exchange.pass_on(*exchange.senders, qos=qos)
    assert await exchange.end(1) == 1
    for _ in range(4):
        await exchange.pass_on(*exchange.senders, qos=qos)
    assert await exchange.end(5) >= 5 + PASSES - 1


async def test_not_where_there_are_more_receivers(exchange: Exchange) -> None:
    await exchange.begin(receivers=TALKERS + 1)
    for _ in range(5):
        await exchange.pass_on(*exchange.senders)
    assert await exchange.end(5) == 0


async def test_but_with_so_many(exchange: Exchange) -> None:
    await exchange.begin(receivers=TALKERS)
    for _ in range(5):
        await exchange.pass_on(*exchange.senders)
    assert await exchange.end(5) > 5


async def test_not_where_more_speak_in_turn(exchange: Exchange) -> None:
    await exchange.begin(senders=TALKERS + 1)
    for sender in exchange.senders * 3:
        await exchange.pass_on(sender)
    assert await exchange.end(3 * (TALKERS + 1)) == 3 * (TALKERS + 1)


async def test_but_where_so_many_do(exchange: Exchange) -> None:
    await exchange.begin(senders=TALKERS)
    for sender in exchange.senders * 3:
        await exchange.pass_on(sender)
    assert await exchange.end(3 * TALKERS) > 3 * TALKERS


async def test_not_where_several_speak_at_once(exchange: Exchange) -> None:
    await exchange.begin(senders=2)
    for _ in range(5):
        await exchange.pass_on(*exchange.senders)
    assert await exchange.end(10) == 0


async def test_not_where_messages_are_large(exchange: Exchange) -> None:
    await exchange.begin()
    for _ in range(5):
        await exchange.pass_on(*exchange.senders, payload=b"x" * GATHER_BYTES)
    assert await exchange.end(5) == 0


async def test_not_for_what_no_client_said(exchange: Exchange, rig: Rig) -> None:
    await exchange.begin()
    await exchange.pass_on(*exchange.senders)
    for _ in range(5):
        await exchange.broker.publish("t", b"x")
        await rig.dial(exchange.broker.port)
        await asyncio.sleep(0.001)
    assert await exchange.end(1) == 1


async def test_not_for_the_pieces_of_one_message(exchange: Exchange) -> None:
    await exchange.begin()
    data = encode(Publish(b"t", bytes(1000)), V311)
    for at in range(0, len(data), 100):
        exchange.senders[0].send_bytes(data[at : at + 100])
        await asyncio.sleep(0.001)
    assert await exchange.end(1) == 1


async def test_not_on_a_loop_that_others_use(rig: Rig) -> None:
    broker = Broker(port=0)
    await rig.enter(broker)
    assert broker._turns.pauses is None


async def test_not_where_no_processor_is_ever_idle(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "idle_processor", lambda _workers: None)
    broker = Broker(port=0)
    broker.owns_thread = True
    await rig.enter(broker)
    pauses = broker._turns.pauses
    assert pauses is not None
    assert pauses.poller is None


async def test_whether_one_is_depends_on_how_many_workers_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def idle_processor(workers: int) -> Callable[[], bool] | None:
        asked.append(workers)
        return None

    monkeypatch.setattr(server, "idle_processor", idle_processor)
    config = Config(listeners=(ListenerOptions(port=0),))
    brokers = [Broker(config, membership=membership) for membership in memberships(3)]
    for broker in brokers:
        broker.owns_thread = True
    await asyncio.gather(*[broker.start() for broker in brokers])
    await asyncio.gather(*[broker.stop() for broker in brokers])
    assert asked == [3, 3, 3]
