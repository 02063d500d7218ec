"""A process with a bridge to another broker is killed, between delivery and acknowledgement."""

import asyncio
import contextlib
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mqttlite.client.message import Message
from mqttlite.config import Config, ListenerOptions
from mqttlite.server import Broker
from mqttlite.wire.packets import Publish
from tests.support.device import Device, until
from tests.support.inside import core_of

pytestmark = pytest.mark.slow

MESSAGES = 300
KILLS = 3
LATER = 30
"""Messages that are published after those that the network holds: three commits."""


@contextlib.asynccontextmanager
async def bridging(
    folder: Path, out_port: int, in_port: int, qos: int, messages: int = MESSAGES
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The process with the bridges, which is killed at the end."""
    arguments = [str(each) for each in (folder, out_port, in_port, qos, messages)]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.support.bridge", *arguments)
    try:
        yield process
    finally:
        assert process.returncode is None, "only this test ends it"
        process.kill()
        await process.wait()


class Network:
    """Leads to a port, until it `holds`: then it keeps what comes, and loses it with the connection."""

    def __init__(self, port: int) -> None:
        self.holds = False
        self.held_bytes = 0
        self._port = port

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """The port that leads to the other."""
        async with await asyncio.start_server(self._join, "127.0.0.1", 0) as server:
            yield server.sockets[0].getsockname()[1]

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.holds, self.held_bytes = False, 0
        remote_reader, remote_writer = await asyncio.open_connection("127.0.0.1", self._port)

        async def back() -> None:
            while data := await remote_reader.read(65_536):
                writer.write(data)

        task = asyncio.create_task(back())
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                if self.holds:
                    self.held_bytes += len(data)
                else:
                    remote_writer.write(data)
        task.cancel()
        for each in (remote_writer, writer):
            each.close()


@contextlib.asynccontextmanager
async def other_broker() -> AsyncIterator[Broker]:
    async with Broker(Config(listeners=(ListenerOptions(port=0),))) as remote:
        yield remote


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_bridge_out_that_is_killed_loses_nothing_and_repeats_nothing_at_qos_2(tmp_path: Path, qos: int) -> None:
    rng = random.Random(31)
    taken: list[str] = []
    wanted = 0

    def take(message: Message) -> None:
        taken.append(message.payload.decode())
        network.holds = len(set(taken)) >= wanted

    def published() -> list[str]:
        return (tmp_path / "published").read_text().split()

    async with other_broker() as remote:
        network = Network(remote.port)
        remote.subscribe("work/#", take, qos=qos)
        async with network.listening() as port:
            for _ in range(KILLS):
                wanted = len(set(taken)) + rng.randint(10, 30)
                async with bridging(tmp_path, port, remote.port, qos), asyncio.timeout(60):
                    await until(lambda: network.held_bytes > 0)
                    # What the bridge has done with the held messages is on disk once that of later messages is.
                    later = min(MESSAGES, len(published()) + LATER)
                    await until(lambda later=later: len(published()) >= later)  # type: ignore[misc]
            wanted = 2 * MESSAGES
            async with bridging(tmp_path, port, remote.port, qos) as process, asyncio.timeout(60):
                await until(lambda: f"end/{process.pid}" in taken)
    assert len(published()) == MESSAGES
    times = Counter(taken)
    assert set(published()) <= set(times)
    repeated = [payload for payload, count in times.items() if count > 1]
    assert repeated == [] if qos == 2 else len(repeated) <= KILLS * 20


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_bridge_in_that_is_killed_loses_nothing_and_repeats_nothing_at_qos_2(tmp_path: Path, qos: int) -> None:
    rng = random.Random(31)
    async with other_broker() as remote:
        device = await Device.dial(remote.port)
        await device.connect("in", clean_start=False, expiry=1_000)
        await device.subscribe("cmd/#", qos)
        await device.disconnect()
        for number in range(MESSAGES):
            await remote.publish("cmd/a", b"%d" % number, qos=qos)
        session = core_of(remote).sessions.get("in")
        assert session is not None

        def left() -> int:
            return len(session.queue) + len(session.window.inflight) + len(session.window.resend)

        for _ in range(KILLS):
            wanted = left() - rng.randint(40, MESSAGES // (KILLS + 2))
            async with bridging(tmp_path, remote.port, remote.port, qos, 0), asyncio.timeout(60):
                await until(lambda wanted=wanted: left() <= wanted)  # type: ignore[misc]
            assert left() > 0, "each kill comes before the end"
        async with bridging(tmp_path, remote.port, remote.port, qos, 0), asyncio.timeout(60):
            await until(lambda: left() == 0)
            sink = await Device.dial(int((tmp_path / "port").read_text()))
            await sink.connect("sink", clean_start=False)
            times: Counter[bytes] = Counter()
            while len(times) < MESSAGES:
                times[(await sink.message())[1]] += 1
            await sink.ping()
            times.update(each.payload for each in sink.waiting() if isinstance(each, Publish))
            await sink.disconnect()
    assert set(times) == {b"%d" % number for number in range(MESSAGES)}
    repeated = [payload for payload, count in times.items() if count > 1]
    assert repeated == [] if qos == 2 else len(repeated) <= KILLS * 20
