"""A broker with a queue that is killed at random moments: what it took is delivered, and attempts count."""

import asyncio
import contextlib
import random
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mqttlite.wire.constants import PUBACK
from mqttlite.wire.packets import Ack, Publish
from tests.support.device import Device, Gone
from tests.support.queues import told

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
BROKEN = (OSError, Gone, TimeoutError)
MESSAGES = 400
KILLS = 4


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def running(folder: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    config = folder / "broker.toml"
    config.write_text(CONFIG.format(port=port))
    arguments = ("serve", "--config", str(config), "--data-dir", str(folder / "data"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mqttlite", *arguments), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()


@contextlib.asynccontextmanager
async def connected(port: int, client_id: str) -> AsyncIterator[Device]:
    """A connection, which is closed at the end. Raises what is in `BROKEN` where the broker is not there."""
    device = await Device.dial(port)
    try:
        await device.connect(client_id)
        yield device
    finally:
        device.drop()
        await device.close()


async def publish(port: int, acknowledged: set[str]) -> None:
    """Publish every message until it is acknowledged, whatever happens to the broker."""
    number = 0
    while number < MESSAGES:
        with contextlib.suppress(*BROKEN):
            async with connected(port, "publisher") as device:
                while number < MESSAGES:
                    await device.published("work/a", b"%d" % number)
                    acknowledged.add(str(number))
                    number += 1
        await asyncio.sleep(0.05)


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
@pytest.mark.parametrize("seed", [1, 2])
async def test_each_message_that_was_acknowledged_is_delivered_whatever_kills_the_broker(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    port, acknowledged, done = free_port(), set[str](), set[str]()
    attempts: dict[str, list[int]] = {}
    consumers = [
        asyncio.create_task(consume(port, f"c{number}", random.Random(rng.random()), attempts, done))
        for number in range(3)
    ]
    publisher = asyncio.create_task(publish(port, acknowledged))
    for _ in range(KILLS):
        async with running(tmp_path, port):
            await asyncio.sleep(1.0 + rng.random())
    async with running(tmp_path, port):
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
