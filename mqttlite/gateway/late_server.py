"""A listener of the HTTP application that is built at its first connection: the admin socket and the metrics port.

Invariant: the libraries of the application are imported in a thread at the first connection, so that neither the start
of a broker nor its clients wait for them; and at most `MAX_EARLY` connections wait for that.
"""

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

from mqttlite.net.endpoints import TcpEndpoint, UnixEndpoint

if TYPE_CHECKING:
    from mqttlite.gateway.http_server import HttpServer

MODULE: Final = "mqttlite.gateway.operator_servers"
"""It builds the servers."""

MAX_EARLY: Final = 32
"""Connections that wait for the server. One more closes the oldest."""


class LateServer:
    """`build` makes the server for the connections of `endpoint`, once `MODULE` and `modules` are imported."""

    def __init__(self, endpoint: TcpEndpoint | UnixEndpoint, build: "Callable[[], HttpServer]", *modules: str) -> None:
        self._endpoint: Final = endpoint
        self._modules: Final = (MODULE, *modules)
        self._build: Final = build
        self._early: Final[dict[_Early, asyncio.Task[None]]] = {}
        """The connections that wait for the server, and the tasks that give it to them."""
        self._server: HttpServer | None = None

    @property
    def port(self) -> int:
        """The requested port; after `start`, the real one."""
        return self._endpoint.port

    @property
    def addresses(self) -> list[str]:
        """Where it listens."""
        return self._endpoint.addresses

    async def start(self, name: str) -> None:
        """Listen. Raises `CannotListen`, which contains `name`."""
        await self._endpoint.listen(name, self._protocol)

    async def stop(self) -> None:
        """Stop to accept, and end requests under way. Harmless if it does not listen."""
        self._endpoint.close()
        tasks = [self._close_oldest() for _ in range(len(self._early))]
        if tasks:
            await asyncio.wait(tasks)
        if self._server is not None:
            await self._server.abort()

    def _protocol(self) -> asyncio.BaseProtocol:
        return _Early(self._on_early) if self._server is None else self._server.protocol()

    def _on_early(self, early: "_Early") -> None:
        if len(self._early) >= MAX_EARLY:
            self._close_oldest()
        self._early[early] = asyncio.get_running_loop().create_task(self._give_server(early))

    def _close_oldest(self) -> asyncio.Task[None]:
        early = next(iter(self._early))
        task = self._early.pop(early)
        task.cancel()
        early.transport.abort()
        return task

    async def _give_server(self, early: "_Early") -> None:
        try:
            for module in self._modules:
                await asyncio.to_thread(import_module, module)
            if self._server is None:
                self._server = self._build()
            early.become(self._server.protocol())
        except BaseException:
            early.transport.abort()
            raise
        finally:
            self._early.pop(early, None)


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
