"""Starts TLS handshakes one after the other, so that a thousand of them do not delay connected clients.

The first step of a handshake, a signature and a key exchange, blocks the event loop for some tenths of a millisecond.
One starts in every second iteration, so that other links are served between two of them. Invariant: a client that has
sent nothing gets no turn and costs no handshake.
"""

import asyncio
import socket
from collections import deque
from contextlib import suppress
from typing import Final

MAX_WAITING: Final = 256
"""Handshakes that may wait for their turn, a tenth of a second of work. While this many wait, no connection is
accepted; further clients wait in the kernel, where they cost us no memory."""


class HandshakeTurns:
    """One for all listeners of a broker, because they share its event loop."""

    def __init__(self) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._waiting: Final[deque[asyncio.Future[None]]] = deque()
        self._room: Final = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        """How many handshakes wait, including cancelled ones."""
        return len(self._waiting)

    async def has_room(self) -> None:
        """Wait while `MAX_WAITING` handshakes wait."""
        await self._room.wait()

    async def turn(self) -> None:
        """Wait for the turn of one more handshake."""
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
            if not future.done():  # done: its task was cancelled
                future.set_result(None)
                break
        if len(self._waiting) < MAX_WAITING:
            self._room.set()
        if self._waiting:
            self._loop.call_soon(self._loop.call_soon, self._next)  # skip an iteration in between


async def readable(accepted: socket.socket) -> None:
    """Wait until the socket has bytes or the client is gone. Reads nothing."""
    loop = asyncio.get_running_loop()
    came: asyncio.Future[None] = loop.create_future()

    def on_readable() -> None:
        loop.remove_reader(accepted)
        if not came.done():
            came.set_result(None)

    try:
        loop.add_reader(accepted, on_readable)
    except NotImplementedError:  # a Windows event loop does not support it
        return
    try:
        await came
    finally:
        with suppress(OSError, ValueError):  # the socket is closed
            loop.remove_reader(accepted)
