"""Accepts connections from bound sockets, one in each iteration of the event loop, for listeners with a handshake.

`listeners` handles the accepted connections. Invariant: connections that the broker has no time for wait in the kernel,
up to `endpoints.BACKLOG`; beyond that, clients retry by themselves.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

from mqttlite.net.handshake_turns import HandshakeTurns

RETRY_S: Final = 1.0
"""How long to wait after a failed accept, for example because no file is left, before the next attempt."""

_log = logging.getLogger("mqttlite.net")


class Acceptor:
    """`on_accepted` gets each socket, which is non-blocking, and its peer name. It must not raise."""

    def __init__(self, turns: HandshakeTurns, on_accepted: Callable[[socket.socket, object], None]) -> None:
        self._turns: Final = turns
        self._on_accepted: Final = on_accepted
        self._tasks: Final[dict[asyncio.Task[None], socket.socket]] = {}

    def start(self, name: str, sockets: list[socket.socket]) -> None:
        """Start to accept. `name` is the listener's name, for the log."""
        loop = asyncio.get_running_loop()
        for listening in sockets:
            self._tasks[loop.create_task(self._accept(name, listening))] = listening

    def close(self) -> None:
        """Stop to accept. Harmless if it is not started."""
        for task, listening in self._tasks.items():
            task.cancel()
            task.add_done_callback(lambda _task, listening=listening: listening.close())  # type: ignore[misc]
        self._tasks.clear()

    async def _accept(self, name: str, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._turns.has_room()
            try:
                accepted, address = await loop.sock_accept(listening)
            except ConnectionError:
                continue  # the client is gone
            except OSError as error:
                _log.error("%s: no connection is accepted for %g s: %s", name, RETRY_S, error)
                await asyncio.sleep(RETRY_S)
                continue
            self._on_accepted(accepted, address)
            await asyncio.sleep(0)  # one per iteration: asyncio's loop would take all waiting ones at once
