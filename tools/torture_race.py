"""Numbers at QoS 0, in bursts, from a publisher at one node to a subscriber at another.

Some may be missing when a fault was; none comes behind a higher one.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from tools.torture_packets import packet, text
from tools.torture_promises import BROKEN

BURST = 100
PAUSE_S = 0.02
AGAIN_S = 0.2
CHUNK_BYTES = 65_536


@dataclass
class Race:
    """A publisher and a subscriber."""

    name: str
    port: int
    """Of the publisher's node."""
    to: int
    """Of the subscriber's."""
    came: int = 0
    inversions: int = 0
    _number: int = 0
    _latest: int = -1

    async def run(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_again(self._publish))
            tasks.create_task(_again(self._read))

    @property
    def _head(self) -> bytes:
        topic = text(f"race/{self.name}")
        return bytes([0x30, len(topic) + 8]) + topic

    async def _publish(self) -> None:
        head = self._head
        async with _connected(self.port, f"racer-{self.name}") as (_, writer):
            while True:
                burst = range(self._number, self._number + BURST)
                self._number += BURST
                writer.write(b"".join(head + struct.pack(">Q", each) for each in burst))
                await writer.drain()
                await asyncio.sleep(PAUSE_S)

    async def _read(self) -> None:
        frame = struct.Struct(f">{len(self._head)}sQ")
        async with _connected(self.to, f"reader-{self.name}") as (reader, writer):
            writer.write(packet(0x82, b"\0\1" + text(f"race/{self.name}") + b"\0"))
            assert (await reader.readexactly(5))[0] == 0x90
            data = b""
            while more := await reader.read(CHUNK_BYTES):
                data += more
                end = len(data) // frame.size * frame.size
                self.take([number for _, number in frame.iter_unpack(data[:end])])
                data = data[end:]

    def take(self, numbers: list[int]) -> None:
        """Numbers have come."""
        for number in numbers:
            self.inversions += number <= self._latest
            self._latest = number
        self.came += len(numbers)


async def _again(work: Callable[[], Awaitable[None]]) -> None:
    while True:
        with contextlib.suppress(*BROKEN):
            await work()
        await asyncio.sleep(AGAIN_S)


@contextlib.asynccontextmanager
async def _connected(port: int, name: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(packet(0x10, text("MQTT") + b"\4\2\0\0" + text(name)))
        assert await reader.readexactly(4) == b"\x20\2\0\0"
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
