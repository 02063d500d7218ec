"""Lets TLS handshakes begin one after the other, so that a thousand of them do not hold up clients that are connected.

The first step of a handshake, a signature and a key exchange, takes the event loop some tenths of a millisecond, and
cannot be interrupted. One begins in every second iteration, so that others are served between any two of them.
Invariant: a client that has sent nothing yet has no turn and costs no handshake.
"""

import asyncio
import socket
from collections import deque
from contextlib import suppress
from typing import Final

MAX_WAITING: Final = 256
"""Handshakes that wait for their turn, a tenth of a second of work; while there are as many, nobody is accepted, and
who comes waits in the kernel instead, where waiting costs no memory of ours."""


class HandshakeTurns:
    """Of all listeners of a broker together, because they share its event loop."""

    def __init__(self) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._waiting: Final[deque[asyncio.Future[None]]] = deque()
        self._room: Final = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        """Handshakes that wait, or were given up while they did."""
        return len(self._waiting)

    async def has_room(self) -> None:
        """Wait while `MAX_WAITING` handshakes wait."""
        await self._room.wait()

    async def turn(self) -> None:
        """Wait until the loop has time for the first step of one more handshake."""
        if not self._waiting:
            self._loop.call_soon(self._next)
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(future)
        if len(self._waiting) >= MAX_WAITING:
            self._room.clear()
        await future

    def _next(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():  # it is where its task was cancelled
                future.set_result(None)
                break
        if len(self._waiting) < MAX_WAITING:
            self._room.set()
        if self._waiting:
            self._loop.call_soon(self._loop.call_soon, self._next)  # an iteration without one comes between


async def readable(accepted: socket.socket) -> None:
    """Wait until something has come, or the client is gone. Nothing is read."""
    loop = asyncio.get_running_loop()
    came: asyncio.Future[None] = loop.create_future()

    def on_readable() -> None:
        loop.remove_reader(accepted)
        if not came.done():
            came.set_result(None)

    try:
        loop.add_reader(accepted, on_readable)
    except NotImplementedError:  # a loop of Windows, which cannot tell
        return
    try:
        await came
    finally:
        with suppress(OSError, ValueError):  # the socket is closed
            loop.remove_reader(accepted)
