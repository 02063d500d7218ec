"""A broker whose disk fails or hangs: durable publishers wait, all others do not, and who watches is told.

Invariant: a message that was acknowledged is there after the next start.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.event_hub import STORE_FAILING, Listener
from mqttlite.extensions.queues.options import QueueOptions
from mqttlite.server import Broker
from mqttlite.wire.constants import PUBACK, V311
from mqttlite.wire.packets import Ack, Publish
from tests.faults.disk import EIO, FULL, Disk, Fault
from tests.integration.conftest import Rig
from tests.support.device import Device
from tests.support.inside import core_of, loop_driver_of

WITHIN_S = 60.0
STALL = 1_048_576
IN_SOCKETS = 24 * 1_048_576
"""What the kernel and asyncio may hold of what publishers sent."""


class Alarms(Listener):
    """When the store's alarm began and ended."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.ended = asyncio.Event()

    def on_alarm(self, alarm: str, active: bool, detail: str) -> None:
        if alarm == STORE_FAILING:
            (self.began if active else self.ended).set()


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with Rig() as rig:
        yield rig


def broker_on(disk: Disk) -> Broker:
    return Broker(Config(listeners=(ListenerOptions(port=0),), data_dir=str(disk.folder)))


async def watched(rig: Rig, disk: Disk) -> tuple[Broker, Alarms]:
    broker, alarms = broker_on(disk), Alarms()
    broker.event_listeners.append(alarms)
    return await rig.enter(broker), alarms


async def durable_client(rig: Rig, broker: Broker) -> None:
    """A durable session with a subscription, whose client is away."""
    device = await rig.device(broker.port, "absent", expiry=1_000)
    await device.subscribe("kept/#", 1)
    await device.disconnect()


async def kept(rig: Rig, disk: Disk) -> set[bytes]:
    """What the session gets after the next start."""
    broker = await rig.enter(broker_on(disk))
    device = await rig.dial(broker.port)
    await device.connect("absent", clean_start=False, expiry=1_000)
    payloads: set[bytes] = set()
    device.publish("kept/last", b"last", 1)
    while (message := await next_message(device)) != b"last":
        payloads.add(message)
    await broker.stop()
    return payloads


async def next_message(device: Device) -> bytes:
    while True:
        packet = await device.next()
        if not isinstance(packet, Ack):
            device.send(Ack(4, packet.packet_id))  # type: ignore[attr-defined]
            return bytes(packet.payload)  # type: ignore[attr-defined]


def failing(fault: Fault) -> Callable[[Disk], None]:
    def fail(disk: Disk) -> None:
        disk.fail(fault, 1, 1_000_000)

    return fail


@pytest.mark.long
@pytest.mark.parametrize("trouble", [failing(EIO), failing(FULL), Disk.hang], ids=["EIO", "ENOSPC", "hangs"])
async def test_while_the_disk_is_in_trouble_only_what_it_must_keep_waits(
    rig: Rig, disk: Disk, trouble: Callable[[Disk], None]
) -> None:
    broker, alarms = await watched(rig, disk)
    await durable_client(rig, broker)
    publisher = await rig.device(broker.port, "publisher", V311)
    listener = await rig.device(broker.port, "listener", V311)
    await listener.subscribe("passing", 0)
    assert await publisher.published("kept/1", b"before") == 0
    trouble(disk)
    try:
        packet_id = publisher.publish("kept/2", b"meanwhile", 1)
        async with asyncio.timeout(WITHIN_S):
            await alarms.began.wait()
        for number in range(20):
            listener.publish("passing", b"%d" % number)
            assert await listener.message() == ("passing", b"%d" % number)
        await listener.ping()
        assert publisher.waiting() == [], "no PUBACK before the commit"
        assert not alarms.ended.is_set()
    finally:
        disk.heal()
    async with asyncio.timeout(WITHIN_S):
        await alarms.ended.wait()
    assert (await publisher.expect(Ack)).packet_id == packet_id
    await broker.stop()
    assert await kept(rig, disk) == {b"before", b"meanwhile"}


@pytest.mark.long
async def test_a_broker_starts_on_a_full_disk_with_all_that_it_kept_and_an_alarm(rig: Rig, disk: Disk) -> None:
    broker, _ = await watched(rig, disk)
    await durable_client(rig, broker)
    publisher = await rig.device(broker.port, "publisher", V311)
    assert await publisher.published("kept/1", b"before") == 0
    await broker.stop()
    disk.passes = frozenset({"open", "read", "access", "size", "delete", "sync", "unlink", "rename"})
    disk.fail(FULL, 1, 1_000_000)
    try:
        broker, alarms = await watched(rig, disk)
        async with asyncio.timeout(WITHIN_S):
            await alarms.began.wait()
        publisher = await rig.device(broker.port, "publisher", V311)
        await publisher.subscribe("passing", 0)
        publisher.publish("passing", b"meanwhile")
        assert await publisher.message() == ("passing", b"meanwhile")
    finally:
        disk.heal()
    async with asyncio.timeout(WITHIN_S):
        await alarms.ended.wait()
    assert await publisher.published("kept/2", b"after") == 0
    await broker.stop()
    assert await kept(rig, disk) == {b"before", b"after"}


async def push(device: Device, number: int, sent: list[bytes]) -> None:
    """Publish as much as the broker takes; `sent` is what went out."""
    while True:
        payload = (b"%d %d " % (number, len(sent))).ljust(10_000, b".")
        device.publish(f"kept/{number}", payload, 1)
        sent.append(payload)
        await device.writer.drain()


async def collect(device: Device, sent: list[bytes], acknowledged: set[bytes]) -> None:
    while True:
        ack = await device.next()
        assert isinstance(ack, Ack)
        acknowledged.add(sent[ack.packet_id - 1])


@pytest.mark.slow
async def test_publishers_that_push_against_a_hanging_disk_are_held(rig: Rig, disk: Disk) -> None:
    broker, _ = await watched(rig, disk)
    loop_driver_of(broker).commits.stall_bytes = STALL
    await durable_client(rig, broker)
    devices = [await rig.device(broker.port, f"publisher-{number}", V311) for number in range(4)]
    sent: list[list[bytes]] = [[] for _ in devices]
    memory = core_of(broker).effects.memory
    before = memory.used
    disk.hang()
    tasks = [asyncio.create_task(push(device, number, sent[number])) for number, device in enumerate(devices)]
    try:
        count = -1
        while count != (count := sum(map(len, sent))):
            await asyncio.sleep(0.3)
        held = memory.used - before
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        disk.heal()
    assert all(task.cancelled() for task in tasks), "no connection was closed"
    assert count * 10_000 > STALL
    assert count * 10_000 < len(devices) * IN_SOCKETS
    assert held < 4 * STALL, "what is held in the broker is bounded"
    acknowledged: set[bytes] = set()
    readers = [asyncio.create_task(collect(device, sent[at], acknowledged)) for at, device in enumerate(devices)]
    async with asyncio.timeout(60):
        while len(acknowledged) < 100:
            await asyncio.sleep(0.01)
    disk.hang()
    await asyncio.sleep(0.05)
    for reader in readers:
        reader.cancel()
    await asyncio.wait(readers)
    disk.heal()
    await broker.stop()
    assert acknowledged <= await kept(rig, disk)


@pytest.mark.long
@pytest.mark.parametrize("fault", [EIO, FULL], ids=["EIO", "ENOSPC"])
async def test_a_queue_on_a_disk_that_is_full_goes_on_when_there_is_room_again(
    rig: Rig, disk: Disk, fault: Fault
) -> None:
    """Meanwhile its publishers wait, and consumers get nothing of which the attempt is not on disk."""
    options = QueueOptions(name="jobs", filters=("work",))
    config = Config(listeners=(ListenerOptions(port=0),), data_dir=str(disk.folder), queues=(options,))
    broker, alarms = Broker(config), Alarms()
    broker.event_listeners.append(alarms)
    await rig.enter(broker)
    publisher, consumer, other = [await rig.device(broker.port, name, V311) for name in ("p", "consumer", "other")]
    await consumer.subscribe("$queue/jobs", 1)
    assert await publisher.published("work", b"before") == 0
    first = await consumer.expect(Publish)
    disk.fail(fault, 1, 1_000_000)
    try:
        consumer.send(Ack(PUBACK, first.packet_id))
        packet_id = publisher.publish("work", b"meanwhile", 1)
        async with asyncio.timeout(WITHIN_S):
            await alarms.began.wait()
        await other.ping()
        assert (publisher.waiting(), consumer.waiting()) == ([], [])
    finally:
        disk.heal()
    assert (await publisher.expect(Ack)).packet_id == packet_id
    second = await consumer.expect(Publish)
    assert (second.payload, second.dup) == (b"meanwhile", False)
    await broker.stop()
    broker = await rig.enter(Broker(config))
    consumer = await rig.device(broker.port, "consumer")
    await consumer.subscribe("$queue/jobs", 1)
    again = await consumer.expect(Publish)
    assert (again.payload, dict(again.properties.user_properties)["delivery-attempt"]) == (b"meanwhile", "2")
