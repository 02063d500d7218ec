"""MQTT over WebSocket, as a client: the protocol of the socket, and the transport of a `Connection`.

Each write becomes one masked binary frame; payloads are passed on as they arrive. Invariant: the connection is made
after the server has accepted the WebSocket with the subprotocol `mqtt`.
"""

import asyncio
from typing import Any, Final, cast, final

from wsproto import WSConnection
from wsproto.connection import ConnectionState, ConnectionType
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from mqttlite.client.errors import UpgradeRefused

SUBPROTOCOL: Final = "mqtt"
"""The name that a client offers and a server accepts [MQTT-6.0.0-3] [MQTT-6.0.0-4]."""

LINGER_S: Final = 2.0
"""How long the server may take to answer our Close frame."""


@final
class WebSocket(asyncio.Protocol, asyncio.Transport):
    """`opened` is done when `inner` has its connection, or has `UpgradeRefused` or the error that ended the socket."""

    def __init__(self, inner: asyncio.Protocol, host: str, path: str) -> None:
        asyncio.Transport.__init__(self)
        self._inner: Final = inner
        self._request: Final = Request(host=host, target=path, subprotocols=[SUBPROTOCOL])
        self._frames: Final = WSConnection(ConnectionType.CLIENT)
        self._loop: Final = asyncio.get_running_loop()
        self.opened: Final[asyncio.Future[None]] = self._loop.create_future()
        self._is_made = False
        """Whether `inner` has its connection."""
        self._socket: asyncio.Transport
        self._deadline: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------ the protocol of the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)  # uvloop's are not subclasses, but do the same
        self._socket.write(self._frames.send(self._request))

    def data_received(self, data: bytes) -> None:
        try:
            self._frames.receive_data(data)
            payloads = [payload for event in self._frames.events() if (payload := self._on_event(event))]
        except (RemoteProtocolError, LocalProtocolError) as error:
            self._fail(f"it does not speak WebSocket here ({error})")
            return
        if payloads:
            self._inner.data_received(b"".join(payloads))

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if not self.opened.done():
            self.opened.set_exception(exc or ConnectionError("the other side closed it"))
        elif self._is_made:
            self._inner.connection_lost(exc)

    def _on_event(self, event: Event) -> bytes | bytearray:
        """The payload of a part of a binary frame; empty for other events."""
        if isinstance(event, BytesMessage):
            return event.data
        if isinstance(event, AcceptConnection):
            self._on_accepted(event)
        elif isinstance(event, RejectConnection):
            self._fail(f"it answered HTTP {event.status_code}")
        elif isinstance(event, Ping):
            self._socket.write(self._frames.send(event.response()))
        elif isinstance(event, TextMessage):
            self._fail("it sent a text frame, and MQTT is binary [MQTT-6.0.0-1]")
        elif isinstance(event, CloseConnection):
            if self._frames.state is ConnectionState.REMOTE_CLOSING:
                self._socket.write(self._frames.send(event.response()))
            self._socket.close()
        return b""

    def _on_accepted(self, event: AcceptConnection) -> None:
        if event.subprotocol != SUBPROTOCOL:
            self._fail(f"it does not name the subprotocol {SUBPROTOCOL}")
        elif not self.opened.done():
            self.opened.set_result(None)
            self._is_made = True
            self._inner.connection_made(self)

    def _fail(self, why: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(UpgradeRefused(why))
        self._socket.abort()

    # ------------------------------------------------------------------ the transport of the connection

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._frames.state is ConnectionState.OPEN:
            self._socket.write(self._frames.send(BytesMessage(bytes(data))))

    def close(self) -> None:
        """Send a Close frame. The socket is closed when the server's arrives, or after `LINGER_S`."""
        if self._frames.state is ConnectionState.OPEN:
            self._socket.write(self._frames.send(CloseConnection(CloseReason.NORMAL_CLOSURE)))
            self._deadline = self._loop.call_later(LINGER_S, self._socket.abort)

    def abort(self) -> None:
        self._socket.abort()

    def is_closing(self) -> bool:
        return self._socket.is_closing() or self._frames.state is not ConnectionState.OPEN

    def pause_reading(self) -> None:
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._socket.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket.get_extra_info(name, default)
