"""The admin socket: a listener of the HTTP application on a Unix socket in the data directory, for the commands.

`socket_server` serves it. Invariant: the mode of the socket decides who may connect, and the libraries of the
application are imported at the first connection, in a thread, so that a start and the clients do not wait for them.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

from mqttlite.net.endpoints import AlreadyListening, CannotListen, UnixEndpoint

if TYPE_CHECKING:
    from mqttlite.gateway.http_server import HttpServer

SOCKET_NAME: Final = "admin.sock"

SOCKET_MODE: Final = 0o600
"""Only the user that runs the broker, and root."""

_log = logging.getLogger("mqttlite.admin")


class AdminSocket:
    """`directory` is the existing data directory. `build` makes the server, once its module is imported."""

    def __init__(self, directory: str, build: "Callable[[UnixEndpoint], HttpServer]") -> None:
        self._build: Final = build
        self._endpoint: Final = UnixEndpoint(os.path.join(directory, SOCKET_NAME), SOCKET_MODE)
        self._early: Final[dict[asyncio.Task[None], _Early]] = {}
        """The connections that wait for the server, by the task that gives it to them."""
        self._server: HttpServer | None = None

    async def start(self) -> None:
        """Listen, or log a warning if that is not possible. Raises `AlreadyListening` if another broker uses the
        directory."""
        try:
            await self._endpoint.listen("admin", self._protocol)
        except AlreadyListening as error:
            raise AlreadyListening(f"another broker has this data directory, choose another: {error}") from None
        except CannotListen as error:
            _log.warning(
                "the broker runs without admin socket, and 'mqttlite sessions', 'queue', 'dlq', 'retained', 'delayed' "
                "and 'schema' cannot reach it: %s; a data directory with a short path on a local disk can have one",
                error,
            )

    async def stop(self) -> None:
        """Stop to accept, end requests under way, and remove the socket. Harmless if it does not listen."""
        self._endpoint.close()
        early = dict(self._early)
        for task, connection in early.items():
            task.cancel()
            connection.transport.abort()
        if early:
            await asyncio.wait(early)
        if self._server is not None:
            await self._server.abort()

    def _protocol(self) -> asyncio.BaseProtocol:
        return _Early(self._give) if self._server is None else self._server.protocol()

    def _give(self, early: "_Early") -> None:
        task = asyncio.get_running_loop().create_task(self._give_to_server(early))
        self._early[task] = early
        task.add_done_callback(self._early.pop)

    async def _give_to_server(self, early: "_Early") -> None:
        try:
            await asyncio.to_thread(import_module, "mqttlite.gateway.socket_server")
            if self._server is None:
                self._server = self._build(self._endpoint)
            early.become(self._server.protocol())
        except BaseException:
            early.transport.abort()
            raise


class _Early(asyncio.Protocol):
    """A connection that waits for the server; at most one chunk is read."""

    transport: asyncio.Transport

    def __init__(self, on_open: "Callable[[_Early], None]") -> None:
        self._on_open: Final = on_open
        self._heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._on_open(self)

    def data_received(self, data: bytes) -> None:
        self._heard += data
        self.transport.pause_reading()

    def become(self, protocol: asyncio.Protocol) -> None:
        """Continue as another protocol."""
        if self.transport.is_closing():
            return
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        self.transport.resume_reading()
        if self._heard:
            protocol.data_received(self._heard)
