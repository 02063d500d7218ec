"""Connections between processes on loopback that can be slow or cut, as networks are.

A link that is cut keeps its connections and passes nothing on, as when a cable is pulled; what was sent arrives when it
heals. Invariant: bytes of one connection keep their order.
"""

import asyncio
import contextlib
from collections import deque

CHUNK_BYTES = 65_536
MAX_WAITING = 64
"""Chunks of one direction that may wait: then its sender waits, too, as for a full socket."""


class Link:
    """Passes connections to `port` on to the port `to`."""

    def __init__(self, port: int, to: int) -> None:
        self._port = port
        self._to = to
        self.delay_s = 0.0
        """Of each byte, in each direction."""
        self._heals = asyncio.Event()
        self._heals.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_cut(self) -> bool:
        return not self._heals.is_set()

    @is_cut.setter
    def is_cut(self, is_cut: bool) -> None:
        if is_cut:
            self._heals.clear()
        else:
            self._heals.set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", self._port)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._heals.wait()
        try:
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        for source, sink in ((reader, other_writer), (other_reader, writer)):
            task = asyncio.get_running_loop().create_task(self._pump(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read, and write each chunk when its time has come."""
        loop = asyncio.get_running_loop()
        waiting: deque[tuple[float, bytes]] = deque()
        arrived, left = asyncio.Event(), asyncio.Event()

        async def read() -> None:
            while True:
                data = b""
                with contextlib.suppress(OSError):
                    data = await reader.read(CHUNK_BYTES)
                waiting.append((loop.time() + self.delay_s, data))
                arrived.set()
                if not data:
                    return
                while len(waiting) >= MAX_WAITING:
                    left.clear()
                    await left.wait()

        reading = loop.create_task(read())
        try:
            while True:
                while not waiting:
                    arrived.clear()
                    await arrived.wait()
                due, data = waiting[0]
                await asyncio.sleep(max(0.0, due - loop.time()))
                await self._heals.wait()
                waiting.popleft()
                left.set()
                if not data:
                    return
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            reading.cancel()
            writer.transport.abort() if reader.exception() else writer.close()


class Links:
    """Links in groups: those of the machine m0 to the engine are the group `m0`, those between its server n1 and the
    others `n1`."""

    def __init__(self) -> None:
        self._links: list[tuple[frozenset[str], Link]] = []

    def add(self, groups: frozenset[str], port: int, to: int) -> None:
        self._links.append((groups, Link(port, to)))

    async def open(self) -> None:
        for _, link in self._links:
            await link.open()

    async def close(self) -> None:
        for _, link in self._links:
            await link.close()

    def cut(self, group: str) -> None:
        """Let the links of a group pass nothing on."""
        for groups, link in self._links:
            link.is_cut |= group in groups

    def slow(self, group: str, delay_s: float) -> None:
        """Let everything on the links of a group take so long."""
        for groups, link in self._links:
            if group in groups:
                link.delay_s = delay_s

    def heal(self) -> None:
        """Let all links pass everything on at once."""
        for _, link in self._links:
            link.is_cut = False
            link.delay_s = 0.0
