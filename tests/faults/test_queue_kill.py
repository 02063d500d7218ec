"""A broker with a queue that is killed at random moments: what it took is delivered, and attempts count."""

import asyncio
import contextlib
import random
from pathlib import Path

import pytest

from mqttlite.wire.constants import PUBACK
from mqttlite.wire.packets import Ack, Publish
from tests.support.killed import BROKEN, connected, free_port, publish, running
from tests.support.queues import told
from tests.support.rounds import todays

CONFIG = """
[[listeners]]
port = {port}
[[queues]]
name = "jobs"
filters = ["work/#"]
ack_deadline_s = 0.5
allow_short_deadlines = true
max_attempts = 20
retry = {{ min_s = 0, max_s = 0.1 }}
"""
MESSAGES = 400
KILLS = 4


async def consume(port: int, name: str, rng: random.Random, attempts: dict[str, list[int]], done: set[str]) -> None:
    """Acknowledge most messages, refuse some, and forget some."""
    while True:
        with contextlib.suppress(*BROKEN):
            async with connected(port, name) as device:
                await device.subscribe("$queue/jobs", 1)
                while True:
                    packet = await device.expect(Publish)
                    what = rng.random()
                    attempts.setdefault(told(packet)["message-id"], []).append(int(told(packet)["delivery-attempt"]))
                    if what < 0.1:
                        device.send(Ack(PUBACK, packet.packet_id, 0x80))
                    elif what < 0.9:
                        device.send(Ack(PUBACK, packet.packet_id))
                        done.add(packet.payload.decode())
        await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("seed", todays(range(1, 5)))
async def test_each_message_that_was_acknowledged_is_delivered_whatever_kills_the_broker(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    port, acknowledged, done = free_port(), set[str](), set[str]()
    config = CONFIG.format(port=port)
    attempts: dict[str, list[int]] = {}
    consumers = [
        asyncio.create_task(consume(port, f"c{number}", random.Random(rng.random()), attempts, done))
        for number in range(3)
    ]
    publisher = asyncio.create_task(publish(port, MESSAGES, acknowledged))
    for _ in range(KILLS):
        async with running(tmp_path, config):
            await asyncio.sleep(1.0 + rng.random())
    async with running(tmp_path, config):
        await publisher
        async with asyncio.timeout(60):
            while len(done) < MESSAGES:
                await asyncio.sleep(0.05)
        for consumer in consumers:
            consumer.cancel()
        await asyncio.wait(consumers)
    assert done == {str(number) for number in range(MESSAGES)}
    for numbers in attempts.values():
        assert max(numbers) <= 20
        assert len(set(numbers)) == len(numbers), "each attempt has a number of its own"
