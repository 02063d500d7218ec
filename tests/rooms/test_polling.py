"""A broker with a thread of its own polls while few clients talk to each other, and nowhere else."""

import asyncio

import pytest

from mqttlite import server
from mqttlite.net.polling import POLL_S, TALKERS
from mqttlite.net.turns import GATHER_BYTES
from mqttlite.server import Broker
from tests.rooms.conftest import Rig
from tests.support.device import until

PASSES = 8


async def looks_of(rig: Rig, messages: int, *, receivers: int = 1, qos: int = 0, size: int = 1) -> int:
    """How often the poller looked at its clock in an exchange of so many messages, of which each came when the one
    before had arrived: once for each that it heard of, and once in each pass of polling. Time passes only there."""
    broker = Broker(port=0)
    broker.owns_thread = True
    await rig.enter(broker)
    readers = [await rig.device(broker.port, f"reader{number}") for number in range(receivers)]
    for reader in readers:
        await reader.subscribe("#")
    sender = await rig.device(broker.port, "sender")
    await asyncio.sleep(0.02)  # their passes are over
    looks = 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        return 1e6 + looks * POLL_S / PASSES

    poller = broker._turns.poller
    assert poller is not None
    poller.clock = clock
    for _ in range(messages):
        sender.publish("t", b"x" * size, qos)
        for reader in readers:
            await reader.message()
    core = broker._turns.broker
    await until(lambda: sum(each.received_qos0 + each.received_qos1 for each in core.connections.values()) == messages)
    await asyncio.sleep(0.02)  # the last passes are over
    return looks


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that always has a processor to spare."""
    monkeypatch.setattr(server, "idle_processor", lambda _workers: lambda: True)


@pytest.mark.parametrize("qos", [0, 1])
async def test_while_a_client_speaks_again_and_again(rig: Rig, qos: int) -> None:
    assert await looks_of(rig, 1, qos=qos) == 1
    assert await looks_of(rig, 5, qos=qos) > 5 + PASSES


async def test_not_where_there_are_more_receivers(rig: Rig) -> None:
    assert await looks_of(rig, 5, receivers=TALKERS) > 5
    assert await looks_of(rig, 5, receivers=TALKERS + 1) == 0


async def test_not_where_messages_are_large(rig: Rig) -> None:
    assert await looks_of(rig, 5, size=GATHER_BYTES - 1000) > 5
    assert await looks_of(rig, 5, size=GATHER_BYTES) == 0


async def test_not_on_a_loop_that_others_use(rig: Rig) -> None:
    broker = Broker(port=0)
    await rig.enter(broker)
    assert broker._turns.poller is None


async def test_not_where_no_processor_is_ever_idle(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "idle_processor", lambda _workers: None)
    broker = Broker(port=0)
    broker.owns_thread = True
    await rig.enter(broker)
    assert broker._turns.poller is None
