"""A broker with a stream that is killed at random moments, while groups and readers come and go."""

import asyncio
import contextlib
import random
from pathlib import Path

import pytest

from mqttlite.wire.constants import PUBACK
from mqttlite.wire.packets import Ack, Publish, Suback, Subscribe, SubscriptionRequest
from tests.support.device import Device
from tests.support.killed import BROKEN, connected, free_port, publish, running
from tests.support.streams import places

CONFIG = """
[[listeners]]
port = {port}
[[streams]]
name = "jobs"
filters = ["work/#"]
partitions = 3
[[streams.groups]]
name = "work"
mode = "shared"
max_attempts = 100
"""
MESSAGES = 300
KILLS = 3

Seen = dict[tuple[int, int], str]
"""The payload at each partition and offset."""


async def read(port: int, name: str, seen: Seen, done: set[str], topic_filter: str) -> None:
    """A kept session that acknowledges all that it gets, in the order in which it comes."""
    while True:
        with contextlib.suppress(*BROKEN):
            device = await Device.dial(port)
            try:
                await device.connect(name, clean_start=False, expiry=1_000)
                device.send(Subscribe(device.packet_id(), (SubscriptionRequest(topic_filter.encode(), 1),)))
                latest: dict[int, int] = {}
                while True:
                    packet = await device.next()
                    if isinstance(packet, Suback):  # what the session goes on with may come before, and then again
                        latest.clear()
                        continue
                    assert isinstance(packet, Publish), packet
                    ((partition, offset),) = places([packet])
                    assert offset == latest.get(partition, offset - 1) + 1, "a message is missing, or out of order"
                    latest[partition] = offset
                    check(seen, packet)
                    device.send(Ack(PUBACK, packet.packet_id))
                    done.add(packet.payload.decode())
            finally:
                device.drop()
                await device.close()
        await asyncio.sleep(0.05)


async def share(port: int, group: str, name: str, rng: random.Random, seen: Seen, done: set[str]) -> None:
    """A member of a group that acknowledges most messages, and leaves from time to time."""
    while True:
        with contextlib.suppress(*BROKEN):
            async with connected(port, name) as device:
                await device.subscribe(f"$share/{group}/$stream/jobs@earliest", 1)
                while rng.random() < 0.98:
                    packet = await device.expect(Publish)
                    check(seen, packet)
                    if rng.random() < 0.95:
                        device.send(Ack(PUBACK, packet.packet_id))
                        done.add(packet.payload.decode())
                    else:
                        break
        await asyncio.sleep(0.02)


def check(seen: Seen, packet: Publish) -> None:
    ((partition, offset),) = places([packet])
    payload = packet.payload.decode()
    assert seen.setdefault((partition, offset), payload) == payload, "another message has this offset"


@pytest.mark.slow
async def test_each_message_that_was_acknowledged_is_read_whatever_kills_the_broker(tmp_path: Path) -> None:
    rng = random.Random(1)
    port, acknowledged, seen = free_port(), set[str](), Seen()
    config = CONFIG.format(port=port)
    alone, by_partition, shared = set[str](), set[str](), set[str]()
    readers = [
        asyncio.create_task(read(port, "alone", seen, alone, "$stream/jobs@earliest")),
        *(asyncio.create_task(share(port, "g", f"m{at}", random.Random(at), seen, by_partition)) for at in range(3)),
        *(asyncio.create_task(share(port, "work", f"w{at}", random.Random(at), seen, shared)) for at in range(3)),
    ]
    publisher = asyncio.create_task(publish(port, MESSAGES, acknowledged, 0.002))
    for _ in range(KILLS):
        async with running(tmp_path, config):
            await asyncio.sleep(1.0 + rng.random())
    async with running(tmp_path, config):
        await publisher
        async with asyncio.timeout(60):
            while not (acknowledged <= alone and acknowledged <= by_partition and acknowledged <= shared):
                await asyncio.wait(readers, timeout=0.05)
                assert not any(each.done() for each in readers), readers
        for each in readers:
            each.cancel()
        for failure in await asyncio.gather(*readers, return_exceptions=True):
            assert isinstance(failure, asyncio.CancelledError), failure
    assert len(acknowledged) == MESSAGES


TABLE = """
[[listeners]]
port = {port}
[[streams]]
name = "prices"
filters = ["price/#"]
partitions = 2
keep_s = 1
keep_bytes = 400_000
last_value = true
"""
KEYS = 20


async def put(port: int, values: dict[str, int]) -> None:
    """Publish values of keys in turn. `values` has the acknowledged ones."""
    number = 0
    while True:
        with contextlib.suppress(*BROKEN):
            async with connected(port, "publisher") as device:
                while True:
                    topic = f"price/{number % KEYS}"
                    await device.published(topic, b"%d" % number)
                    values[topic] = number
                    number += 1
        await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_the_last_value_of_each_key_is_there_whatever_kills_the_broker(tmp_path: Path) -> None:
    rng = random.Random(2)
    port, values = free_port(), dict[str, int]()
    config = TABLE.format(port=port)
    publisher = asyncio.create_task(put(port, values))
    for _ in range(KILLS):
        async with running(tmp_path, config), asyncio.timeout(60):
            begun = max(values.values(), default=0)
            while max(values.values(), default=0) < begun + 3 * KEYS:
                await asyncio.sleep(0.02)
            await asyncio.sleep(1.5 * rng.random())
    publisher.cancel()
    await asyncio.wait([publisher])
    assert len(values) == KEYS
    async with running(tmp_path, config), asyncio.timeout(60):
        while not await read_the_table(port, values):
            await asyncio.sleep(0.2)


async def read_the_table(port: int, values: dict[str, int]) -> bool:
    """Check the last value of each key. Return whether some messages were compacted."""
    found: dict[str, int] = {}
    offsets: dict[int, int] = {}
    is_compacted = False
    device = await dialed(port, "table")
    await device.subscribe("$stream/prices@earliest")
    while any(found.get(topic, -1) < value for topic, value in values.items()):
        packet = await device.expect(Publish)
        ((partition, offset),) = places([packet])
        assert offset > offsets.get(partition, -1), "offsets rise"
        is_compacted |= offset > offsets.get(partition, -1) + 1
        offsets[partition] = offset
        found[packet.topic.decode()] = int(packet.payload)
    await device.disconnect()
    assert all(found[topic] in (value, value + KEYS) for topic, value in values.items()), "the latest value comes last"
    return is_compacted


async def dialed(port: int, client_id: str) -> Device:
    while True:
        with contextlib.suppress(*BROKEN):
            device = await Device.dial(port)
            await device.connect(client_id)
            return device
        await asyncio.sleep(0.05)
