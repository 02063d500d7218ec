"""Accepts connections whose first step is ours to await, one in each iteration of the event loop, from bound sockets.

What becomes of a connection lives in `listeners`. Invariant: what the broker has no time for waits in the kernel, whose
limit is `endpoints.BACKLOG`; the clients there try again by themselves.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

from mqttlite.net.handshake_turns import HandshakeTurns

RETRY_S: Final = 1.0
"""How long to wait after a failure to accept, such as no file left, before the next try."""

_log = logging.getLogger("mqttlite.net")


class Acceptor:
    """`on_accepted` gets each socket, which does not block, and whose it is; it raises nothing."""

    def __init__(self, turns: HandshakeTurns, on_accepted: Callable[[socket.socket, object], None]) -> None:
        self._turns: Final = turns
        self._on_accepted: Final = on_accepted
        self._tasks: Final[dict[asyncio.Task[None], socket.socket]] = {}

    def start(self, name: str, sockets: list[socket.socket]) -> None:
        """Accept from now on. `name` is the listener's, for the log."""
        loop = asyncio.get_running_loop()
        for listening in sockets:
            self._tasks[loop.create_task(self._accept(name, listening))] = listening

    def close(self) -> None:
        """Accept no more; harmless when it does not."""
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
            await asyncio.sleep(0)  # asyncio's loop would take all that wait at once
