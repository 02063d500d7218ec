"""What happens at a worker in the very moment in which something else does."""

import zlib

import pytest

from mqttlite.config import Config
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Connack, Connect, Subscribe, SubscriptionRequest
from tests.rooms.test_workers import QUIET, TCP, House, Town, nothing_is_wrong
from tests.support.device import Device, until
from tests.support.stores import SlowStore

__all__ = ["nothing_is_wrong"]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("qos", [1, 2])
async def test_what_became_of_a_message_is_told_though_it_came_during_a_commit_and_the_next_takes_no_time(
    qos: int,
) -> None:
    store = SlowStore()
    store.patient = False
    async with Town(Config(listeners=TCP, sys=QUIET), store=store) as house:
        publisher = await house.to(0)
        durable = await house.to(1, clean_start=False, expiry=60)
        await durable.subscribe("kept", qos=qos)
        store.patient = True
        durable.send(Subscribe(9, (SubscriptionRequest(b"other", 0),)))
        await until(lambda: store.busy)
        publisher.publish("kept", b"x", qos)
        await until(lambda: bool(house.workers[1]._turns._untold_outcomes))
        store.hurry()
        answer = await publisher.expect(Ack)
        assert answer.reason_code == 0


async def test_clients_that_are_gone_when_they_would_move_take_nobody_along() -> None:
    async with Town(Config(listeners=TCP, sys=QUIET)) as house:
        gone = [await _stray_to(house, 1) for _ in range(3)]
        there = [await _stray_to(house, 1) for _ in range(3)]
        turns, core = house.workers[0]._turns, house.workers[0]._core
        for device, number, name in [*gone, *there]:
            link = turns.links[number]
            if (device, number, name) in gone:
                link.abort()
            core.feed(link.connection, encode(Connect(name), device.version), link._loop.time())
        assert core.turn.moved, "nobody has looked at them yet"
        for device, _number, _name in there:
            assert (await device.expect(Connack)).reason_code == 0
        assert set(turns.links) == set()


async def test_of_a_connection_that_moves_nothing_more_is_read() -> None:
    async with Town(Config(listeners=TCP, sys=QUIET)) as house:
        _device, number, name = await _stray_to(house, 1)
        turns, core = house.workers[0]._turns, house.workers[0]._core
        link = turns.links[number]
        core.feed(link.connection, encode(Connect(name), 5), link._loop.time())
        turns.wake()  # as whoever lets it move does
        assert link.gone, "before the loop looks at another socket"


async def _stray_to(house: House, home: int) -> tuple[Device, int, str]:
    """A device that came in at the worker that knows that it is at home elsewhere; its number there, and its name."""
    while True:
        device, at, name = await house.stray()
        while zlib.crc32(name.encode()) % 2 == home:
            name = house.name(home)
        if at != home:
            return device, max(house.workers[at]._turns.links), name
        await device.close()
        await until(lambda: not house.workers[home]._turns.links)
