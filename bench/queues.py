"""How much a queue takes in and gives out over MQTT and HTTP, how late it redelivers, and what many queues cost.

`python -m bench queues` starts a broker for each case, with a store on disk, and is all its clients in one process that
only cuts bytes and counts. Invariant: each message is published and acknowledged once, and one that is missing is an
error.
"""

import asyncio
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import msgspec
import psutil

from mqttlite.wire.constants import V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Connect, Publish, Subscribe, SubscriptionRequest
from mqttlite.wire.properties import Properties

LIMIT_S: Final = 300.0
"""How long anything may take."""

TOPIC: Final = b"bench/a"
PAYLOAD_BYTES: Final = 64
WINDOW: Final = 1_000
"""Messages that a publisher has unacknowledged, and that a consumer takes at a time."""

PULLED: Final = 1_000
"""Messages of one pull."""

PULLERS: Final = 4
DEADLINE_S: Final = 10.0


class QueuesError(RuntimeError):
    """The broker did not do what is measured."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured, and with how much."""

    messages: int = 300_000
    consumers: int = 8
    telemetry: bool = False
    deadlines: int = 10_000
    """Messages whose deadlines end together."""
    beside: int = 20_000
    """Messages a second of other traffic beside some deadlines."""
    queues: int = 1_000
    filtered: int = 10_000
    """Queues with filters on one topic."""
    backlog: int = 10_000_000
    rate: int = 5_000
    """Messages a second at which the backlog is drained."""


# ---------------------------------------------------------------------- the broker


@dataclass
class Running:
    """A broker under test."""

    process: asyncio.subprocess.Process
    port: int
    http_port: int
    folder: Path

    def cpu_s(self) -> float:
        """Seconds of processor that it has used, on all its threads."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def memory_bytes(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)

    async def ask(self, method: str, path: str, body: object = None) -> dict[str, object]:
        """The admin socket."""
        reader, writer = await asyncio.open_unix_connection(self.folder / "data" / "admin.sock")
        sent = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(sent)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + sent)
        answer = await reader.read(-1)
        writer.close()
        if b" 200 " not in answer.split(b"\r\n")[0] + b" ":
            raise QueuesError(f"{method} {path}: {answer[-300:]!r}")
        decoded: dict[str, object] = json.loads(answer.partition(b"\r\n\r\n")[2])
        return decoded

    async def depth(self, name: str = "q") -> int:
        return int(str((await self.ask("GET", f"/queues/{name}"))["depth"]))

    async def end(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


async def start(source: Path, folder: Path, queues: str, *, telemetry: bool = False) -> Running:
    """A broker of that source tree with these queues, which keeps them in the folder."""
    port, http_port = _free_port(), _free_port()
    config = folder / "config.toml"
    told = f'[telemetry]\ndirectory = "{folder}/telemetry"\n' if telemetry else ""
    config.write_text(
        f'data_dir = "{folder}/data"\n[limits]\nmax_inflight = {WINDOW}\nmax_queued_bytes = 20_000_000_000\n'
        f"max_queued_messages = 20_000_000\n[[listeners]]\nport = {port}\n{told}"
        f'[http]\nport = {http_port}\nrequests_per_s = 0\nallow_anonymous = true\nanonymous_role = "admin"\n{queues}'
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "mqttlite", "serve", "--config", str(config)),
        env={**os.environ, "PYTHONPATH": str(source)},
        cwd=folder,
        stderr=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    for each in (port, http_port):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", each)
            except OSError:
                if process.returncode is not None:
                    raise QueuesError(f"the broker did not start with {config.read_text()}") from None
                await asyncio.sleep(0.02)
                continue
            writer.close()
            break
    return Running(process, port, http_port, folder)


def _queue(name: str = "q", more: str = "") -> str:
    return (
        f'[[queues]]\nname = "{name}"\nfilters = ["bench/#"]\nmax_messages = 100_000_000\n'
        f"max_bytes = 1_000_000_000_000\n{more}"
    )


def _free_port() -> int:
    with socket.socket() as kernel:
        kernel.bind(("127.0.0.1", 0))
        port: int = kernel.getsockname()[1]
        return port


# ---------------------------------------------------------------------- clients


class Publisher(asyncio.Protocol):
    """Publishes messages of one size at QoS 1, `window` at a time; `done` when all are acknowledged."""

    def __init__(self, name: str, count: int, topic: bytes = TOPIC, window: int = WINDOW) -> None:
        self._name: Final = name
        self._left = count
        self._under_way = 0
        self._next_id = 1
        self._window: Final = window
        self._head: Final = encode(Publish(topic, bytes(PAYLOAD_BYTES), qos=1, packet_id=1), V311)
        self._id_at: Final = self._head.index(topic) + len(topic)
        self._read = b""
        self._is_connected = False
        self.done: Final = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # not an instance of it, with uvloop
        self._transport.write(encode(Connect(self._name, V311, keep_alive=0), V311))

    def data_received(self, data: bytes) -> None:
        data = self._read + data
        if not self._is_connected:
            self._is_connected = True
            data = data[4:]  # CONNACK
        whole = len(data) // 4
        self._read = data[whole * 4 :]
        self._under_way -= whole
        self._send()
        if not self._left and not self._under_way and not self.done.done():
            self.done.set_result(None)

    def _send(self) -> None:
        count = min(self._left, self._window - self._under_way)
        if count < min(self._left, self._window // 4):
            return
        self._left -= count
        self._under_way += count
        size = len(self._head)
        frames = bytearray(self._head * count)
        ids = [1 + (self._next_id + at - 1) % 65_535 for at in range(count)]
        self._next_id = 1 + ids[-1] % 65_535 if ids else self._next_id
        frames[self._id_at :: size] = bytes([each >> 8 for each in ids])
        frames[self._id_at + 1 :: size] = bytes([each & 255 for each in ids])
        self._transport.write(bytes(frames))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(QueuesError("the publisher lost its connection"))


class Consumer(asyncio.Protocol):
    """Takes messages of one size from a queue, over 3.1.1, and acknowledges each; `on_count` is told how many came."""

    def __init__(self, name: str, queue: bytes, on_count: Callable[[int], None], topic: bytes = TOPIC) -> None:
        self._name: Final = name
        self._queue: Final = queue
        self._on_count: Final = on_count
        head = encode(Publish(topic, bytes(PAYLOAD_BYTES), qos=1, packet_id=1), V311)
        self._size: Final = len(head)
        self._id_at: Final = head.index(topic) + len(topic)
        self._read = b""
        self._skip = 4 + 5  # CONNACK, SUBACK

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # not an instance of it, with uvloop
        self._transport.write(
            encode(Connect(self._name, V311, keep_alive=0), V311)
            + encode(Subscribe(1, (SubscriptionRequest(self._queue, 1),)), V311)
        )

    def data_received(self, data: bytes) -> None:
        data = self._read + data
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            data = data[skipped:]
        count = len(data) // self._size
        self._read = data[count * self._size :]
        if count:
            acks = bytearray(b"\x40\x02\0\0" * count)
            end = count * self._size
            acks[2::4] = data[self._id_at : end : self._size]
            acks[3::4] = data[self._id_at + 1 : end : self._size]
            self._transport.write(bytes(acks))
            self._on_count(count)

    def close(self) -> None:
        self._transport.close()


class Silent(asyncio.Protocol):
    """A consumer over 5.0 that acknowledges nothing at first: it notes when each attempt came."""

    def __init__(self, name: str, queue: bytes, window: int) -> None:
        self._name: Final = name
        self._queue: Final = queue
        self._window: Final = window
        self._read = b""
        self.seen: Final[list[tuple[float, bytes]]] = []
        """When a chunk came, and the chunk: it is taken apart when nothing is measured any more."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # not an instance of it, with uvloop
        wanted = Properties(receive_maximum=self._window)
        self._transport.write(
            encode(Connect(self._name, V5, keep_alive=0, properties=wanted), V5)
            + encode(Subscribe(1, (SubscriptionRequest(self._queue, 1),)), V5)
        )

    def data_received(self, data: bytes) -> None:
        self.seen.append((time.monotonic(), data))

    def close(self) -> None:
        self._transport.close()


async def _publish(running: Running, count: int, publishers: int = 4) -> None:
    loop = asyncio.get_running_loop()
    clients = [
        (
            await loop.create_connection(
                lambda at=at: Publisher(f"p{at}", count // publishers), "127.0.0.1", running.port
            )
        )[1]
        for at in range(publishers)
    ]
    await asyncio.gather(*(client.done for client in clients))
    for client in clients:
        client._transport.close()


# ---------------------------------------------------------------------- cases


async def deliver(source: Path, plan: Plan, say: Callable[[str], None]) -> None:
    """Published, delivered and acknowledged at the same time; and from a backlog."""
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        running = await start(source, Path(name), _queue(), telemetry=plan.telemetry)
        try:
            for what, before in (("at the same time", 0), ("from a backlog", plan.messages)):
                count, last = 0, 0.0
                done = asyncio.Event()

                def on_count(more: int) -> None:
                    nonlocal count, last
                    count += more
                    if count >= plan.messages:
                        last = time.perf_counter()
                        done.set()

                if before:
                    await _publish(running, before)
                began, cpu = time.perf_counter(), running.cpu_s()
                consumers = [
                    (
                        await loop.create_connection(
                            lambda at=at: Consumer(f"c{at}", b"$queue/q", on_count), "127.0.0.1", running.port
                        )
                    )[1]
                    for at in range(plan.consumers)
                ]
                if not before:
                    await _publish(running, plan.messages)
                await done.wait()
                while await running.depth():
                    await asyncio.sleep(0.01)
                ended = time.perf_counter()
                used = running.cpu_s() - cpu
                for consumer in consumers:
                    consumer.close()
                say(
                    f"{plan.consumers} consumers, {what}: {plan.messages / (ended - began):,.0f} a second delivered and "
                    f"acknowledged; {used / plan.messages * 1e6:.1f} µs of processor for each"
                )
        finally:
            await running.end()


async def pull(source: Path, plan: Plan, say: Callable[[str], None]) -> None:
    """Pulled over HTTP in batches and acknowledged."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        running = await start(source, Path(name), "", telemetry=plan.telemetry)
        try:
            base = "/v1/projects/p"
            first = Http(running.http_port)
            await first.open()
            await first.ask("PUT", f"{base}/topics/bench", {})
            await first.ask("PUT", f"{base}/subscriptions/bench-s", {"topic": "projects/p/topics/bench", "ackDeadlineSeconds": 60})
            one = {"data": "eHh4" * 16}
            for _ in range(plan.messages // 1_000):
                await first.ask("POST", f"{base}/topics/bench:publish", {"messages": [one] * 1_000})
            left = plan.messages
            began, cpu = time.perf_counter(), running.cpu_s()

            async def consume() -> None:
                nonlocal left
                client = Http(running.http_port)
                await client.open()
                while left > 0:
                    asked = {"maxMessages": PULLED, "returnImmediately": True}
                    found = await client.ask("POST", f"{base}/subscriptions/bench-s:pull", asked)
                    ids = [each["ackId"] for each in found.get("receivedMessages", ())]
                    if ids:
                        left -= len(ids)
                        await client.ask("POST", f"{base}/subscriptions/bench-s:acknowledge", {"ackIds": ids})
                client.close()

            await asyncio.gather(*(consume() for _ in range(PULLERS)))
            ended = time.perf_counter()
            say(
                f"{PULLERS} pullers: {plan.messages / (ended - began):,.0f} a second pulled in batches of {PULLED} and "
                f"acknowledged; {(running.cpu_s() - cpu) / plan.messages * 1e6:.1f} µs of processor for each"
            )
        finally:
            await running.end()


class Http:
    """One connection of HTTP, which asks one thing at a time."""

    def __init__(self, port: int) -> None:
        self._port: Final = port

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)

    async def ask(self, method: str, path: str, body: object) -> dict[str, object]:
        sent = msgspec.json.encode(body)
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(sent)}\r\n\r\n"
        )
        self._writer.write(head.encode() + sent)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        at = answer.lower().index(b"content-length:") + 15
        found = await self._reader.readexactly(int(answer[at:].split(b"\r\n", 1)[0]))
        if not answer.startswith(b"HTTP/1.1 200"):
            raise QueuesError(f"{method} {path}: {found[:300]!r}")
        decoded: dict[str, object] = msgspec.json.decode(found)
        return decoded

    def close(self) -> None:
        self._writer.close()


async def measure(source: Path, plan: Plan, cases: tuple[str, ...], say: Callable[[str], None]) -> None:
    """Measure these cases. Raises `QueuesError`."""
    for name in cases:
        try:
            async with asyncio.timeout(LIMIT_S):
                await CASES[name](source, plan, say)
        except TimeoutError:
            raise QueuesError(f"{name} took more than {LIMIT_S:g} s") from None


CASES: Final[dict[str, Callable[[Path, Plan, Callable[[str], None]], Awaitable[None]]]] = {
    "deliver": deliver,
    "pull": pull,
}
