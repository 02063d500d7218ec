"""A broker with queues that is measured, and its clients: they cut bytes and count, and so take little of a processor.

What is measured with them is in `bench/queues.py`. Invariant: each message has one size, so that many are read at once.
"""

import asyncio
import json
import os
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from bench.counting import WINDOW, Client, NotMeasured
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Connect, Subscribe, SubscriptionRequest
from mqttlite.wire.properties import Properties

TOPIC: Final = b"bench/a"
PAYLOAD_BYTES: Final = 64

START_S: Final = 60.0
"""How long a broker may take until it listens."""


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

    def loop_cpu_s(self) -> float:
        """The same of the thread with the event loop."""
        fields = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_bytes(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)

    async def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """The admin socket."""
        reader, writer = await asyncio.open_unix_connection(self.folder / "data" / "admin.sock")
        sent = b"" if body is None else json.dumps(body).encode()
        head = f"{method} /api/v1{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(sent)}\r\nConnection: close\r\n"
        head += "Content-Type: application/json\r\n\r\n"
        writer.write(head.encode() + sent)
        answer = await reader.read(-1)
        writer.close()
        if not answer.startswith(b"HTTP/1.1 2"):
            raise NotMeasured(f"{method} {path}: {answer[-300:]!r}")
        decoded: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
        return decoded

    async def depth(self, name: str = "q") -> int:
        return int((await self.ask("GET", f"/queues/{name}"))["depth"])

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


async def start(source: Path, folder: Path, queues: str, *, telemetry: bool = False, window: int = WINDOW) -> Running:
    """A broker of that source tree with these queues, which keeps them in the folder."""
    port, http_port = _free_port(), _free_port()
    config = folder / "config.toml"
    told = f'[telemetry]\ndirectory = "{folder}/telemetry"\n' if telemetry else ""
    config.write_text(
        f'data_dir = "{folder}/data"\n[limits]\nmax_inflight = {window}\nmax_queued_bytes = 20_000_000_000\n'
        f"max_queued_messages = 20_000_000\n[[listeners]]\nport = {port}\n{told}"
        f'[http]\nport = {http_port}\nrequests_per_s = 0\nallow_anonymous = true\nanonymous_role = "admin"\n{queues}',
        encoding="utf-8",
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "mqttlite", "serve", "--config", str(config)),
        env={**os.environ, "PYTHONPATH": str(source)},
        cwd=folder,
        stderr=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    running = Running(process, port, http_port, folder)
    try:
        async with asyncio.timeout(START_S):
            for each in (port, http_port):
                while not await _listens(each):
                    if process.returncode is not None:
                        raise NotMeasured(f"the broker did not start with {config.read_text(encoding='utf-8')[:2000]}")
                    await asyncio.sleep(0.02)
    except BaseException:
        await running.kill()
        raise
    return running


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def _free_port() -> int:
    with socket.socket() as kernel:
        kernel.bind(("127.0.0.1", 0))
        port: int = kernel.getsockname()[1]
        return port


class Silent(Client):
    """A consumer over 5.0 that acknowledges nothing: it notes when what came."""

    def __init__(self, name: str, queues: tuple[bytes, ...], window: int = 65_535) -> None:
        wanted = Properties(receive_maximum=window)
        asked = tuple(SubscriptionRequest(each, 1) for each in queues)
        super().__init__(
            encode(Connect(name, V5, keep_alive=0, properties=wanted), V5) + encode(Subscribe(1, asked), V5)
        )
        self.seen: Final[list[tuple[float, bytes]]] = []
        """When a chunk came, and the chunk: it is taken apart when nothing is measured any more."""

    def data_received(self, data: bytes) -> None:
        self.seen.append((time.monotonic(), data))

    def deliveries(self) -> list[tuple[float, str, int]]:
        """When which message came in which attempt, by its message-id."""
        found: list[tuple[float, str, int]] = []
        data = b"".join(chunk for _, chunk in self.seen)
        ends = []
        total = 0
        for at, chunk in self.seen:
            total += len(chunk)
            ends.append((total, at))
        position = chunk_at = 0
        while position < len(data):
            first = data[position]
            length, body = _varint(data, position + 1)
            if body + length > len(data):
                break
            while ends[chunk_at][0] < body + length:
                chunk_at += 1
            if first >> 4 == 3:
                packet = data[body : body + length]
                found.append((ends[chunk_at][1], *_named(packet)))
            position = body + length
        return found


def _named(packet: bytes) -> tuple[str, int]:
    """The message-id and the attempt of a PUBLISH."""
    return _user_property(packet, b"message-id"), int(_user_property(packet, b"delivery-attempt"))


def _user_property(packet: bytes, name: bytes) -> str:
    at = packet.index(name) + len(name)
    size = int.from_bytes(packet[at : at + 2], "big")
    return packet[at + 2 : at + 2 + size].decode()


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        digit = data[at]
        at += 1
        value |= (digit & 127) << shift
        shift += 7
        if digit < 128:
            return value, at


class Http:
    """One connection of HTTP, which asks one thing at a time."""

    def __init__(self, port: int) -> None:
        self._port: Final = port

    async def open(self) -> "Http":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        return self

    async def ask(self, method: str, path: str, body: object) -> dict[str, Any]:
        sent = msgspec.json.encode(body)
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(sent)}\r\n\r\n"
        )
        self._writer.write(head.encode() + sent)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        at = answer.lower().index(b"content-length:") + len(b"content-length:")
        found = await self._reader.readexactly(int(answer[at:].split(b"\r\n", 1)[0]))
        if not answer.startswith(b"HTTP/1.1 2"):
            raise NotMeasured(f"{method} {path}: {found[:300]!r}")
        decoded: dict[str, Any] = msgspec.json.decode(found)
        return decoded

    def close(self) -> None:
        self._writer.close()
