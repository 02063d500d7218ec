"""MQTT over WebSocket: converts between WebSocket frames on a socket and MQTT bytes on its link.

`upgrade` checks the HTTP request. The link is unaware of WebSocket: a `WebSocket` is the protocol of the socket, and a
`FrameTransport` the transport of the link. Frames and packets have different boundaries [MQTT-6.0.0-2]: payloads are
passed on as they arrive, so a long frame costs no memory here, and the core enforces packet sizes. To clients, each
packet is its own frame, because some clients read only the first packet of a frame. Invariants: after our Close frame
nothing is written, and only the client's Close frame is read; decoding counts as work of the loop iteration, and frames
beyond the budget wait in the `FrameQueue`.
"""

import asyncio
import logging
import weakref
from collections.abc import Callable
from typing import Any, Final, cast

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage
from wsproto.frame_protocol import CloseReason as Code

from mqttlite.core.reasons import CloseReason
from mqttlite.net.frame_queue import PART_FRAMES, FrameQueue
from mqttlite.net.link import DISCARD_S, LINGER_S, Link, format_address
from mqttlite.net.upgrade import HEAD_BYTES, Refused, WebSocketOptions, upgrade
from mqttlite.wire.framer import packet_size

MAX_LATE_FRAMES: Final = 1_024
"""How many frames may arrive after our Close frame before we no longer look for the client's. What a client sent before
it read ours is usually some messages."""

MAX_EARLY_FRAMES: Final = 1_024
"""How many frames may arrive before CONNECT. Clients send CONNECT in one frame; one frame per byte still fits. A client
that sends only empty frames is closed after a few milliseconds of work."""

_SHORT_HEADERS: Final = tuple(bytes((0x82, length)) for length in range(126))
"""The headers of unmasked binary frames that are shorter than 126 bytes (RFC 6455 §5.2)."""

_CODES: Final = {
    CloseReason.CLIENT_DISCONNECTED: Code.NORMAL_CLOSURE,
    CloseReason.CLIENT_DISCONNECTED_WITH_WILL: Code.NORMAL_CLOSURE,
    CloseReason.SERVER_SHUTDOWN: Code.GOING_AWAY,
    CloseReason.MALFORMED_PACKET: Code.PROTOCOL_ERROR,
    CloseReason.PROTOCOL_ERROR: Code.PROTOCOL_ERROR,
    CloseReason.PACKET_TOO_LARGE: Code.MESSAGE_TOO_BIG,
}
"""The WebSocket close code for each reason, the only information that an MQTT 3.1.1 page gets; 1008 for others."""

_log = logging.getLogger("mqttlite.net")


class WebSocket(asyncio.Protocol):
    """A listener creates one for each connection, with its link. `on_open` is called when the socket is connected.
    `on_ended` is called with True when the WebSocket is open, and with False when the socket is gone without it."""

    def __init__(
        self,
        link: Link,
        options: WebSocketOptions,
        timeout_s: float,
        queue: FrameQueue,
        on_open: "Callable[[WebSocket], None]",
        on_ended: "Callable[[WebSocket, bool], None]",
    ) -> None:
        self.made: bool = False
        self.gone: bool = False
        self.link: Final = link
        self._user: Link | asyncio.Protocol = link
        self._options: Final = options
        self._timeout_s: Final = timeout_s
        self._queue: Final = queue
        self._on_open: Final = on_open
        self._on_ended: Final = on_ended
        self._loop: Final = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._deadline: asyncio.TimerHandle
        self._head: Final = bytearray()
        self._frames: Connection | None = None
        self._deaf = False
        """Whether to discard all further input."""
        self._full = False
        self._early_frames = 0
        """How many frames arrived before CONNECT."""
        self._late_frames = 0
        """How many frames arrived after our Close."""
        self._is_deferred = False
        """Whether frames wait: for its turn in the frame queue, or until its link reads again."""
        self._is_queued = False
        """Whether it is in the frame queue."""
        self._deferred_bytes = 0
        """How many bytes arrived while it waits."""
        self._is_held = False
        """Whether the socket is not read because too many bytes arrived while it waits."""
        self._is_paused = False
        """Whether the link paused reading."""
        self._error: Exception | None = None
        """The error that ended the socket, after it is gone."""
        self._pong: bytes | None = None
        """The payload of the latest unanswered ping. Earlier ones need no separate answer."""
        self._failure: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made = True
        self._transport = cast(asyncio.Transport, transport)
        self._deadline = self._loop.call_later(self._timeout_s, self._expire)
        self._on_open(self)

    def data_received(self, data: bytes) -> None:
        if self._deaf or (self._frames is not None and self._frames.state is not ConnectionState.OPEN):
            self._discard()
        if self._deaf:
            return
        if self._frames is None:
            self._read_head(data)
        else:
            self._read_frames(self._frames, data)

    def pause_writing(self) -> None:
        self._full = True
        if self.link.made:
            self._user.pause_writing()

    def resume_writing(self) -> None:
        self._full = False
        self._answer_ping()
        if self.link.made:
            self._user.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self.gone = True
        self._error = error
        self._deadline.cancel()
        if not self._is_deferred:  # deferred: first decode what the client sent before it left
            self._lose()
        elif not self._is_queued:
            self._defer()

    def _lose(self) -> None:
        self._deaf = True
        self._frames = None
        if self.link.made:
            self._user.connection_lost(self._failure or self._error)
        else:
            self._on_ended(self, False)

    def abort(self) -> None:
        """Close at once; harmless when it is closed."""
        self._transport.abort()

    # ------------------------------------------------------------------ the request

    def _read_head(self, data: bytes) -> None:
        self._head.extend(data)
        end = self._head.find(b"\r\n\r\n") + 4
        is_http = self._head[:1].isalpha()
        if is_http and end < 4 and len(self._head) <= HEAD_BYTES:
            return
        try:
            if not is_http:
                raise Refused(400, "This port speaks MQTT over WebSocket, which begins with an HTTP request.")
            if not 4 <= end <= HEAD_BYTES:
                raise Refused(431, f"The request is longer than {HEAD_BYTES} bytes.")
            secure = self._transport.get_extra_info("ssl_object") is not None
            response = upgrade(bytes(self._head[:end]), self._options, secure=secure)
        except Refused as refused:
            self._deaf = True
            self._warn(f"{refused.status}: {refused}")
            self._transport.write(refused.response)
            self._part()
            return
        early = bytes(self._head[end:])
        self._head.clear()
        self._deadline.cancel()
        self._transport.write(response)
        self._frames = Connection(ConnectionType.SERVER)
        self._on_ended(self, True)
        self.link.connection_made(FrameTransport(self, self._transport))
        if early:
            self._read_frames(self._frames, early)

    def _expire(self) -> None:
        if self._head:
            self._warn(f"no whole request within {self._timeout_s:g} s")
        self.abort()

    def _warn(self, sentence: str) -> None:
        address = self.link.address or format_address(self._transport.get_extra_info("peername"))
        fields = {"peer": address, "listener": self.link.listener}
        _log.warning(
            "%s: WebSocket for %s refused with %s", self.link.listener, address, sentence, extra={"fields": fields}
        )

    # ------------------------------------------------------------------ frames in

    def _discard(self) -> None:
        """Read the next bytes later: they come after the end, and only a Close frame among them counts."""
        if not self._transport.is_closing():
            self._transport.pause_reading()
            self._loop.call_later(DISCARD_S, self.resume_reading)

    def _read_frames(self, frames: Connection, data: bytes) -> None:
        frames.receive_data(data)
        if not self._is_deferred:
            if self._queue.has_budget:
                self._decode(frames)
            else:
                self._defer()
            return
        self._deferred_bytes += len(data)
        if self._deferred_bytes > self._queue.most_waiting_bytes and not self._transport.is_closing():
            self._is_held = True
            self._transport.pause_reading()

    def _defer(self) -> None:
        self._is_deferred = self._is_queued = True
        self._queue.put(self._go_on)

    def _decode(self, frames: Connection) -> None:
        """Decode the next `PART_FRAMES` frames and pass on their payloads. The others wait for their turn."""
        payloads: list[bytes | bytearray] = []
        end: CloseConnection | None = None
        count = 0
        for event in frames.events():
            count += 1
            if isinstance(event, CloseConnection):
                end = event
                break
            if frames.state is ConnectionState.OPEN:
                if isinstance(event, BytesMessage):
                    payloads.append(event.data)
                elif isinstance(event, Ping):
                    self._pong = bytes(event.payload)
                elif isinstance(event, TextMessage):
                    end = CloseConnection(Code.UNSUPPORTED_DATA, "a text frame came, and MQTT is binary [MQTT-6.0.0-1]")
                    break
            if count == PART_FRAMES:
                self._defer()
                break
        payload = b"".join(payloads)
        self._queue.charge(self.link.connection, count, len(payload))
        if payload:
            self._user.data_received(payload)
        self._answer_ping()
        if self.link.awaits_connect:
            self._early_frames += count
            if self._early_frames > MAX_EARLY_FRAMES and end is None:
                end = CloseConnection(Code.POLICY_VIOLATION, f"more than {MAX_EARLY_FRAMES} frames came before CONNECT")
        if end is not None:
            self._end(frames, end)
        elif frames.state is not ConnectionState.OPEN:
            self._late_frames += count
            if self._late_frames > MAX_LATE_FRAMES:
                self._deaf = True
                self._part()

    def _go_on(self) -> None:
        """Decode the next part, unless the link paused reading. After the last one, report a socket that was lost
        meanwhile."""
        self._is_queued = False
        if self._is_paused and not self.gone and not self.is_closing():
            return
        self._is_deferred = False
        try:
            if not self._deaf and self._frames is not None:
                self._decode(self._frames)
        except Exception:  # like the loop does for an exception in a protocol
            _log.exception("%s: what it sent could not be looked at", self.link.address)
            self._deaf = True
            self.abort()
        if self._is_deferred:
            return
        self._deferred_bytes = 0
        if self._is_held:
            self._is_held = False
            if not self._is_paused:
                self.resume_reading()
        if self.gone:
            self._lose()

    def _answer_ping(self) -> None:
        if self._pong is not None and not self._full and not self.gone and self._frames is not None:
            pong, self._pong = self._pong, None
            if self._frames.state is ConnectionState.OPEN:
                self._transport.write(self._frames.send(Pong(pong)))

    # ------------------------------------------------------------------ the end

    def _end(self, frames: Connection, event: CloseConnection) -> None:
        """Handle the client's Close frame, or a protocol error."""
        if frames.state is ConnectionState.OPEN:
            self._failure = ConnectionError(event.reason)
            self.close(event.code, event.reason or "")
            if self.gone:
                self._deaf = True
            elif event.code is Code.UNSUPPORTED_DATA:
                self._read_frames(frames, b"")  # the client's Close may have arrived already
            else:  # the parser is out of sync and cannot find a Close frame any more
                self._deaf = True
                self._part()
            return
        self._deaf = True
        if frames.state is ConnectionState.REMOTE_CLOSING:
            if event.code not in (Code.NORMAL_CLOSURE, Code.NO_STATUS_RCVD):
                reason = f": {event.reason}" if event.reason else ""
                self._failure = ConnectionError(f"the client closed its WebSocket with {int(event.code)}{reason}")
            if not self.gone:
                self._transport.write(frames.send(event.response()))
        self._transport.close()

    def write(self, data: bytes) -> None:
        """Send complete packets, each in a binary frame, unless a Close frame was sent or received."""
        frames = self._frames
        if data and frames is not None and frames.state is ConnectionState.OPEN and not self.gone:
            is_cut = self._user is not self.link  # a relay passes on bytes that are cut at any place
            self._transport.write(_header(len(data)) + data if is_cut else in_frames(data))

    def close(self, code: int, reason: str) -> None:
        """Send a Close frame. The socket is closed when the client's arrives, or after `LINGER_S`."""
        frames = self._frames
        if frames is not None and frames.state is ConnectionState.OPEN and not self.gone:
            self._transport.write(frames.send(CloseConnection(code, reason)))
            self._deadline = self._loop.call_later(LINGER_S, self._transport.abort)

    def set_user(self, user: asyncio.Protocol) -> None:
        """Pass further input to another protocol instead of its link."""
        self._user = user

    def finish(self) -> None:
        """Close, because the core has ended the connection."""
        reason = self.link.connection.close_reason
        self.close(_CODES.get(reason, Code.POLICY_VIOLATION), str(reason))

    def pause_reading(self) -> None:
        """Stop reading until `resume_reading`."""
        self._is_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again, as soon as no waiting frames fill the buffer."""
        self._is_paused = False
        if self._is_deferred and not self._is_queued:
            self._defer()
        if not self._is_held and not self._transport.is_closing():
            self._transport.resume_reading()

    def is_closing(self) -> bool:
        return self._transport.is_closing() or self._frames is None or self._frames.state is not ConnectionState.OPEN

    def _part(self) -> None:
        """Close our sending side and let the client close. Closing a socket with unread bytes could lose our last
        frame."""
        self._deadline.cancel()
        if self.gone:
            return
        self._deadline = self._loop.call_later(LINGER_S, self._transport.abort)
        if self._transport.can_write_eof():
            try:
                self._transport.write_eof()
            except OSError:  # the client reset the connection, and the loop has not noticed yet
                self._transport.abort()
        else:
            self._transport.close()


def in_frames(packets: bytes) -> bytes:
    """Wrap each of the given complete packets in an unmasked binary frame."""
    end = len(packets)
    size = packet_size(packets, 0)
    if size == end:
        return _header(end) + packets
    pieces: list[bytes] = []
    at = 0
    while at < end:
        size = packet_size(packets, at)
        assert size, "only complete packets are written"
        pieces.append(_header(size))
        pieces.append(packets[at : at + size])
        at += size
    return b"".join(pieces)


def _header(length: int) -> bytes:
    if length < 126:
        return _SHORT_HEADERS[length]
    if length < 65_536:
        return b"\x82\x7e" + length.to_bytes(2, "big")
    return b"\x82\x7f" + length.to_bytes(8, "big")


class FrameTransport(asyncio.Transport):
    """The transport of a link over WebSocket: each packet that the link writes becomes one frame."""

    __slots__ = ("_socket", "_web")

    def __init__(self, web: WebSocket, socket: asyncio.Transport) -> None:
        super().__init__()
        # Weak, because the WebSocket refers to the link, and the link to this transport: a cycle would be collected
        # late. The socket keeps the WebSocket alive.
        self._web: Final[WebSocket] = weakref.proxy(web)
        self._socket: Final = socket

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._web.write(bytes(data))

    def can_write_eof(self) -> bool:
        return False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._web.set_user(cast(asyncio.Protocol, protocol))

    def close(self) -> None:
        self._web.finish()

    def is_closing(self) -> bool:
        return self._socket.is_closing() or self._web.is_closing()

    def abort(self) -> None:
        self._socket.abort()

    def pause_reading(self) -> None:
        self._web.pause_reading()

    def resume_reading(self) -> None:
        self._web.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket.get_extra_info(name, default)
