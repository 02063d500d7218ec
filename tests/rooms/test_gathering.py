"""A broker with a thread of its own naps where many single messages make few writes, and nowhere else."""

import asyncio

import pytest

from mqttlite import server
from mqttlite.core.forwards import Interest, Outgoing, Release
from mqttlite.net.link import PASS_BYTES
from mqttlite.net.pauses import (
    GATHER_BYTES,
    GATHER_FROM,
    GATHER_FROM_AMONG_WORKERS,
    GATHER_S,
    GATHER_TO,
    MODERATE_BYTES,
    MODERATE_S,
)
from mqttlite.server import Broker
from tests.rooms.conftest import Rig
from tests.support.device import until

ALMOST_A_PASS = PASS_BYTES // (GATHER_FROM - 1) + 1
"""Of so many bytes each, all but one are written before the last has come."""


class Nobody:
    """Other workers, to whom nothing is said."""

    is_jammed = False

    def tell(self, interests: list[Interest]) -> asyncio.Future[None]:
        raise AssertionError(interests)

    def send(self, outgoing: list[Outgoing]) -> None:
        raise AssertionError(outgoing)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of which is not known whether a processor is idle."""
    monkeypatch.setattr(server, "idle_processor", lambda _workers: None)


async def naps_of(
    rig: Rig,
    senders: int,
    *,
    receivers: int = 1,
    qos: int = 0,
    size: int = 1,
    forwards: bool = False,
    among_workers: bool = False,
) -> list[float]:
    """The naps after a pass in which each sender's message came."""
    broker = Broker(port=0)
    broker.owns_thread = True
    await rig.enter(broker)
    readers = [await rig.device(broker.port, f"reader{number}") for number in range(receivers)]
    for reader in readers:
        await reader.subscribe("#")
    devices = [await rig.device(broker.port, f"sender{number}") for number in range(senders)]
    naps: list[float] = []
    pauses = broker._turns.pauses
    assert pauses is not None
    pauses.nap = naps.append
    pauses.clock = lambda: 0.0  # all passes come at once
    if among_workers:
        broker._turns.fabric = Nobody()
    if forwards:
        broker._turns.broker.turn.outgoing.append(Release(0, b"c"))
    for device in devices:
        device.publish("t", b"x" * size, qos)
    for reader in readers:
        for _ in devices:
            await reader.message()
    core = broker._turns.broker
    await until(lambda: sum(each.received_qos0 + each.received_qos1 for each in core.connections.values()) == senders)
    await asyncio.sleep(0.02)  # the pass is over
    return naps


@pytest.mark.parametrize("senders", [GATHER_FROM, GATHER_TO])
async def test_after_a_pass_of_many_messages_and_one_write(rig: Rig, senders: int) -> None:
    assert await naps_of(rig, senders) == [GATHER_S]


@pytest.mark.parametrize("senders", [GATHER_FROM - 1, GATHER_TO + 1])
async def test_not_after_few_nor_after_more_than_enough(rig: Rig, senders: int) -> None:
    assert await naps_of(rig, senders) == []


async def test_one_of_several_workers_naps_after_fewer(rig: Rig) -> None:
    assert await naps_of(rig, GATHER_FROM_AMONG_WORKERS, among_workers=True) == [GATHER_S]


async def test_and_after_no_fewer_than_that(rig: Rig) -> None:
    assert await naps_of(rig, GATHER_FROM_AMONG_WORKERS - 1, among_workers=True) == []


@pytest.mark.parametrize("is_idle", [False, True])
async def test_one_of_several_workers_has_passes_far_apart_while_no_processor_is_idle(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, is_idle: bool
) -> None:
    monkeypatch.setattr(server, "idle_processor", lambda _workers: lambda: is_idle)
    naps = await naps_of(rig, 1, size=MODERATE_BYTES, among_workers=True)
    assert naps == ([] if is_idle else [MODERATE_S])
    assert await naps_of(rig, 1, size=MODERATE_BYTES) == []


async def test_not_where_each_sender_gets_an_answer(rig: Rig) -> None:
    assert await naps_of(rig, GATHER_FROM, qos=1) == []


async def test_not_where_nobody_gets_anything(rig: Rig) -> None:
    assert await naps_of(rig, GATHER_FROM, receivers=0) == []


async def test_what_is_for_another_worker_is_a_write(rig: Rig) -> None:
    assert await naps_of(rig, GATHER_FROM, receivers=0, forwards=True) == [GATHER_S]


async def test_not_where_there_are_many_receivers(rig: Rig) -> None:
    assert await naps_of(rig, GATHER_FROM, receivers=GATHER_FROM // 4 + 1) == []


@pytest.mark.parametrize("size", [GATHER_BYTES // GATHER_FROM, ALMOST_A_PASS])
async def test_not_where_messages_are_large(rig: Rig, size: int) -> None:
    assert await naps_of(rig, GATHER_FROM, size=size) == []


async def test_not_on_a_loop_that_others_use(rig: Rig) -> None:
    broker = Broker(port=0)
    await rig.enter(broker)
    assert broker._turns.pauses is None
