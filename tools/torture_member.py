"""A reader of a stream in a process of its own, which can be killed and stopped: `python -m tools.torture_member`.

It writes a line for each message before it acknowledges it, so that the lines of a killed one say all that it may have
finished. Lines on its standard input let it join and leave. Invariant: it knows nothing of the broker and of others.
"""

import asyncio
import contextlib
import random
import sys
import time
from typing import Final

from tools.torture_packets import packet
from tools.torture_queues import BROKEN, Link, delivered

WINDOW: Final = 50
"""How many messages it holds unacknowledged."""

PING_S: Final = 0.05
"""How often it asks how far behind it is."""

KEEP_ALIVE_S: Final = 3
"""The broker closes the connection of a stopped one after 1.5 times as long."""

SLOWEST_S: Final = 0.004
"""How long it works on what it has read, at most, before it acknowledges it."""


class Member:
    """`topic_filter` says what it reads; with `expiry_s` its session outlives the connection."""

    def __init__(self, name: str, port: int, topic_filter: str, expiry_s: int) -> None:
        self._name: Final = name
        self._port: Final = port
        self._filter: Final = topic_filter
        self._expiry_s: Final = expiry_s
        self._random: Final = random.Random(name)
        self._connections = 0
        self.has_joined = False
        self._link: Link | None = None

    async def run(self) -> None:
        """Be connected whenever it has joined."""
        while True:
            if self.has_joined:
                with contextlib.suppress(*BROKEN):
                    await self._read()
            await asyncio.sleep(0.02)

    def leave(self) -> None:
        """Send DISCONNECT."""
        self.has_joined = False
        if self._link is not None:
            self._link.writer.write(b"\xe0\0")

    async def _read(self) -> None:
        name, expiry_s = self._name, self._expiry_s
        async with Link.open(self._port, name, expiry_s, WINDOW, KEEP_ALIVE_S) as link:
            self._link = link
            await link.subscribe(self._filter)
            self._connections += 1
            pinging = asyncio.create_task(self._ping(link))
            try:
                while self.has_joined:
                    await self._take(link)
            finally:
                self._link = None
                pinging.cancel()

    async def _ping(self, link: Link) -> None:
        while True:
            link.ping()
            await asyncio.sleep(PING_S)

    async def _take(self, link: Link) -> None:
        first, body = await link.read()
        if first == 0xD0:
            link.sent_after = link.pings.popleft()
        elif first == 0x90 and body[-1] >= 0x80:
            raise OSError(f"SUBSCRIBE was refused: {body!r}")
        elif first >> 4 == 3:
            read_at = time.monotonic()
            packet_id, payload, told = delivered(body)
            place = told["stream-partition"], told["stream-offset"]
            say("got", self._connections, *place, payload.decode(), f"{link.sent_after:.6f}", f"{read_at:.6f}")
            if self._random.random() < 0.05:
                await asyncio.sleep(SLOWEST_S * self._random.random())
            link.writer.write(packet(0x40, packet_id))


def say(*words: object) -> None:
    """A line that is out before anything else happens."""
    print(*words, flush=True)


async def main(name: str, port: int, topic_filter: str, expiry_s: int) -> None:
    """Do what the lines of standard input say, until it ends."""
    member = Member(name, port, topic_filter, expiry_s)
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    running = asyncio.create_task(member.run())
    say("ready")
    async for line in lines:
        if line == b"join\n":
            member.has_joined = True
        elif line == b"leave\n":
            member.leave()
    running.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
