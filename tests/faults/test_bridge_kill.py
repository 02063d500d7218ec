"""A process with a bridge to another broker is killed, between delivery and acknowledgement as often as not."""

import asyncio
import contextlib
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mqttlite.client.message import Message
from mqttlite.server import Broker
from tests.support.device import until

pytestmark = pytest.mark.slow

MESSAGES = 300
KILLS = 3


@contextlib.asynccontextmanager
async def bridging(folder: Path, port: int, qos: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """The process with the bridge, which is killed at the end."""
    arguments = ("-m", "tests.support.bridge", str(folder), str(port), str(qos), str(MESSAGES))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments)
    try:
        yield process
    finally:
        assert process.returncode is None, "only this test ends it"
        process.kill()
        await process.wait()


async def until_taken(taken: list[str], wanted: int) -> None:
    async with asyncio.timeout(60):
        await until(lambda: len(set(taken)) >= wanted)


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_bridge_that_is_killed_loses_nothing_and_repeats_nothing_at_qos_2(tmp_path: Path, qos: int) -> None:
    taken: list[str] = []

    def take(message: Message) -> None:
        taken.append(message.payload.decode())

    rng = random.Random(31)
    async with Broker(port=0) as remote:
        remote.subscribe("work/#", take, qos=qos)
        for _ in range(KILLS):
            wanted = len(set(taken)) + rng.randint(10, MESSAGES // (KILLS + 1))
            async with bridging(tmp_path, remote.port, qos):
                await until_taken(taken, wanted)
        async with bridging(tmp_path, remote.port, qos) as process:
            async with asyncio.timeout(60):
                await until(lambda: f"end/{process.pid}" in taken)
    published = (tmp_path / "published").read_text().split()
    assert len(published) == MESSAGES
    times = Counter(taken)
    assert set(published) <= set(times)
    repeated = [payload for payload, count in times.items() if count > 1]
    assert repeated == [] if qos == 2 else len(repeated) <= KILLS * 20
