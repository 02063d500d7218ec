"""A connection whose home is another worker, and whose TLS or WebSocket ends here: bytes go on over a pair of sockets.

The home has the other end, and takes it for the client's socket. Whoever is slow slows down the other side; whoever
ends ends both. Invariant: what one side sent before it ended arrives at the other.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final, cast

from mqttlite.net.link import LINGER_S


class Relay:
    """Between the transport of a client and the socket `home`. `on_lost` is called once the client is gone."""

    def __init__(self, client: asyncio.Transport, home: socket.socket, on_lost: Callable[[], None]) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._on_lost: Final = on_lost
        self._client: Final = _Side(self)
        self._home: Final = _Side(self)
        self._client.other, self._home.other = self._home, self._client
        client.pause_reading()  # until the other end is there
        self._client.connection_made(client)
        client.set_protocol(self._client)
        self._connecting: Final = self._loop.create_task(self._connect(home))

    async def _connect(self, home: socket.socket) -> None:
        home.setblocking(False)
        await self._loop.create_unix_connection(lambda: self._home, sock=home)
        if self._client.transport is None:
            self._home.end()
        else:
            self._client.transport.resume_reading()

    def on_lost(self, side: "_Side") -> None:
        """One side is gone: the other gets what was sent, and ends."""
        if side is self._client:
            self._on_lost()
        side.other.end()

    def end_in_time(self, transport: asyncio.Transport) -> None:
        """Who does not take its last bytes is cut off."""
        self._loop.call_later(LINGER_S, transport.abort)


class _Side(asyncio.Protocol):
    """One end: what it receives the other sends. Without a transport it is not there yet, or no more."""

    def __init__(self, relay: Relay) -> None:
        self._relay: Final = relay
        self.other: _Side
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other.transport is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        self.transport = None
        self._relay.on_lost(self)

    def end(self) -> None:
        """Send what waits, and close."""
        if self.transport is not None:
            self._relay.end_in_time(self.transport)
            self.transport.close()
