"""Two brokers, a bridge between them, each in a process that is killed; and the link is cut, at any time."""

import asyncio
import contextlib
import random
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from mqttlite import Client
from tests.support.rounds import todays

pytestmark = pytest.mark.slow

WAYS = [(2, "5.0"), (1, "5.0"), (1, "3.1.1"), (2, "3.1.1")]
"""A run has each QoS with one version, and the next day with the other."""

AT_ONCE = 4
PAUSE_S = 0.01

ROUNDS = 6
"""Kills of each broker and cuts of the link, in turn."""

LATEST_S = 30.0
"""How long the last messages may take."""


class Process:
    """A broker that is killed and started again on its port."""

    def __init__(self, folder: Path, name: str, port: int, bridge: str = "", head: str = "") -> None:
        """`head` is the beginning of the configuration, above all sections."""
        self._port = port
        self._file = folder / f"{name}.toml"
        self._log = folder / f"{name}.log"
        self._file.write_text(
            f'{head}data_dir = "{folder / name}"\n[[listeners]]\nport = {port}\n'
            f"[limits]\nmax_queued_messages = 1_000_000\nmax_queued_bytes = 1_000_000_000\n{bridge}"
        )
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.support.slow_broker", str(self._file)),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        assert int(await self._process.stdout.readline()) == self._port

    async def kill(self) -> None:
        assert self._process is not None
        assert self._process.returncode is None, self._log.read_text()[-2_000:]
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()


class Link:
    """Leads from a port to another one, and can be cut at any byte."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            remote_reader, remote_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.close()
            return
        self._writers += [writer, remote_writer]
        back = asyncio.create_task(self._carry(remote_reader, writer))
        self._tasks.append(back)
        await self._carry(reader, remote_writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    def cut(self) -> None:
        for each in self._writers:
            each.transport.abort()
        self._writers.clear()


async def publish(client: Client, topic: str, qos: int, published: list[str], is_over: asyncio.Event) -> None:
    """Publish numbers until it is over; each counts when it is acknowledged. A third of the time some are under way:
    that there are more of them proves no more, and would take the processors from what starts again."""
    number = 0
    while not is_over.is_set():
        payloads = [str(each) for each in range(number, number + AT_ONCE)]
        number += AT_ONCE
        await asyncio.gather(*(client.publish(topic, each, qos=qos, timeout=120) for each in payloads))
        published += payloads
        await asyncio.sleep(PAUSE_S)


async def read(client: Client, found: list[str]) -> None:
    async for message in client.messages:
        found.append(message.payload.decode())


@pytest.mark.parametrize(("qos", "version"), todays(WAYS, 2))
async def test_nothing_is_lost_in_either_direction_and_nothing_repeated_at_qos_2(
    tmp_path: Path, qos: int, version: str, unused_tcp_port_factory: object
) -> None:
    assert callable(unused_tcp_port_factory)
    rng = random.Random(qos)
    here_port, there_port = unused_tcp_port_factory(), unused_tcp_port_factory()
    link = Link(there_port)
    server = await asyncio.start_server(link.join, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    bridge = (
        f'[[bridges]]\nname = "b"\naddresses = ["127.0.0.1:{port}"]\nversion = "{version}"\nmax_delay_s = 0.5\n'
        f'topics = [{{pattern = "out/#", qos = {qos}}}, {{pattern = "in/#", direction = "in", qos = {qos}}}]\n'
    )
    here, there = Process(tmp_path, "here", here_port, bridge), Process(tmp_path, "there", there_port)
    await here.start()
    await there.start()
    published: dict[str, list[str]] = {"out": [], "in": []}
    found: dict[str, list[str]] = {"out": [], "in": []}
    is_over = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(240):
        clients: dict[str, Client] = {}
        for name, broker_port in (
            ("to-in", here_port),
            ("from-out", here_port),
            ("to-out", there_port),
            ("from-in", there_port),
        ):
            clients[name] = await stack.enter_async_context(
                Client(
                    *("127.0.0.1", broker_port),
                    client_id=name,
                    clean_start=False,
                    session_expiry_interval=1_000,
                    min_reconnect_delay=0.1,
                    max_reconnect_delay=0.5,
                )
            )
        tasks = []
        for direction in ("out", "in"):
            await clients[f"to-{direction}"].subscribe(f"{direction}/#", qos=qos)
            tasks.append(asyncio.create_task(read(clients[f"to-{direction}"], found[direction])))
        await asyncio.sleep(1.0)
        publishers = [
            asyncio.create_task(publish(clients[f"from-{each}"], f"{each}/a", qos, published[each], is_over))
            for each in ("out", "in")
        ]
        for number in range(ROUNDS):
            await asyncio.sleep(rng.uniform(0.3, 1.5))
            if number % 3 == 2:
                link.cut()
                continue
            process = (here, there)[number % 3]
            await process.kill()
            await asyncio.sleep(rng.uniform(0.0, 0.5))
            await process.start()
        await asyncio.sleep(1.0)
        is_over.set()
        await asyncio.gather(*publishers)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LATEST_S):
                for direction in ("out", "in"):
                    while len(set(found[direction])) < len(published[direction]):
                        await asyncio.sleep(0.1)
        await asyncio.sleep(1.0)
        for each in tasks:
            each.cancel()
    await here.kill()
    await there.kill()
    server.close()
    for direction in ("out", "in"):
        assert len(published[direction]) > 100
        assert set(found[direction]) == set(published[direction])
        if qos == 2:
            assert [each for each, times in Counter(found[direction]).items() if times > 1] == []
        firsts = list(dict.fromkeys(found[direction]))
        assert firsts == sorted(firsts, key=int), "each comes first in order"
