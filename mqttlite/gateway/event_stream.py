"""One SSE stream: writes the messages of its session to a connection, driven by callbacks.

There may be very many idle streams, so a stream is one small object: after its response has begun, it takes over the
connection from the HTTP protocol (`HttpProtocol.hand_over`), and the request and its task end. Invariant: on a durable
session no event is lost or repeated; if messages are missing all the same, an event `gap` says so.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.events import Events, gap, kind_of
from mqttlite.gateway.http_server import UNREAD_S
from mqttlite.gateway.sessions import HttpSession
from mqttlite.gateway.waker import Waker
from mqttlite.wire.packets import Publish

try:
    import fcntl
    import termios
except ImportError:  # Windows cannot tell
    _TIOCOUTQ = 0
else:
    _TIOCOUTQ = termios.TIOCOUTQ

PING_S: Final = 30.0
"""How often a stream says that it is there: proxies close what is silent for a minute."""

PING_GROUPS: Final = 100
"""Groups of streams that say so in turn: all at once they would hold up others, and a timer for each is large."""

RETRY_MS: Final = 2_000
"""When a page comes back after a cut."""

UNCONFIRMED: Final = 200
"""Messages of a durable stream that may be unconfirmed before the oldest of them are taken as received. They take room
in the session's queue while the client is away."""

KEPT: Final = 100
"""How many of the latest are kept for `Last-Event-ID` then."""

CONFIRM_S: Final = 0.05
"""How long to wait for the client's kernel to acknowledge what was sent, before it is looked at again."""

CHUNK_BYTES: Final = 65_536
"""Events that are written together."""

_NONE_UNCONFIRMED: Final[deque[int]] = deque()
"""Nothing is ever added to it: it is for streams that are not durable."""


class EventIds(Protocol):
    """Names the events of one stream, in place of numbers that end with it."""

    def of(self, packet: Publish) -> str:
        """The id of the next event: with it in Last-Event-ID, a client goes on behind the event."""
        ...


class EventStreams:
    """The streams of one gateway, and what lets them say that they are there."""

    def __init__(self, context: GatewayContext) -> None:
        self.context: Final = context
        self.events: Final = Events(context)
        self._groups: Final[list[set[EventStream]]] = [set() for _ in range(PING_GROUPS)]
        self._size = 0
        self._next = 0
        """The group that a new stream joins: they stay of one size."""
        self._turn = 0
        """The group that says next that it is there."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, stream: "EventStream") -> int:
        """A stream has begun; the number of its group."""
        self._size += 1
        self._next = (self._next + 1) % PING_GROUPS
        self._groups[self._next].add(stream)
        if self._timer is None:
            self._arm()
        return self._next

    def discard(self, stream: "EventStream", group: int) -> None:
        """It is over."""
        self._groups[group].remove(stream)
        self._size -= 1
        if not self._size and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PING_S / PING_GROUPS, self._on_time)

    def _on_time(self) -> None:
        self._turn = (self._turn + 1) % PING_GROUPS
        for stream in self._groups[self._turn]:
            stream.ping()
        self._arm()


class EventStream(asyncio.Protocol):
    """One response. `resume`, then `take_over`."""

    __slots__ = (
        "_connections",
        "_count",
        "_dropped",
        "_group",
        "_ids",
        "_is_chunked",
        "_is_paused",
        "_is_waking",
        "_opening",
        "_resume_after",
        "_streams",
        "_timer",
        "_unconfirmed",
        "_unread",
        "session",
        "transport",
    )

    def __init__(self, streams: EventStreams, opening: Waker, ids: EventIds | None = None) -> None:
        # `session` and `transport` are set once they are there.
        self.session: HttpSession
        self.transport: asyncio.Transport
        self._streams: Final = streams
        self._ids: Final = ids
        self._connections: set[Any] = set()
        """Those of the server, to which the stream belongs."""
        self._opening: Waker | None = opening
        """The future to resolve until the stream has begun."""
        self._group = -1
        self._unread: asyncio.TimerHandle | None = None
        """Ends a stream whose client takes nothing."""
        self._timer: asyncio.TimerHandle | None = None
        """Looks again at what is unconfirmed."""
        self._unconfirmed: deque[int] = _NONE_UNCONFIRMED
        """Packet identifiers of events that were written, the oldest first."""
        self._resume_after: int | None = None
        """The packet identifier of the last event that the client has; those before it and itself are left out."""
        self._dropped = 0
        self._count = 0
        self._is_chunked = True
        self._is_paused = False
        self._is_waking = False

    def resume(self, last_event_id: str, missed: int) -> bytes:
        """Find out where to go on; what the client has to be told first. `missed` messages were dropped meanwhile."""
        session = self.session
        self._dropped = session.dropped()
        if session.is_durable:
            self._unconfirmed = deque()
        gaps = b""
        if last_event_id:
            number, _, packet_id = last_event_id.partition("-")
            found = 0
            if session.session_present and packet_id.isdecimal() and len(packet_id) < 6:
                found = session.number_of(int(packet_id))
            if found and str(found) == number:
                self._resume_after = int(packet_id)
            else:
                gaps += _gap_event(gap("not_kept"))
        if missed:
            gaps += _gap_event(gap("dropped", missed))
        return gaps

    def take_over(
        self,
        transport: asyncio.Transport,
        connections: set[Any],
        first: bytes,
        is_paused: bool,
        is_chunked: bool,
    ) -> None:
        """The response has begun: write what comes `first`, and from now on what there is to read."""
        self.transport = transport
        self._connections = connections
        connections.add(self)
        self._group = self._streams.add(self)
        self._opening = None
        self._is_chunked = is_chunked
        self._write(b"retry: %d\n%s" % (RETRY_MS, first))  # an empty line here is an event to some libraries
        if is_paused:
            self.pause_writing()
        self.wake()

    def wake(self) -> None:
        """There is something to read, or the session is over."""
        if self._opening is not None:
            self._opening.set()
        elif not self._is_waking and not self._is_paused:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._on_readable)

    def ping(self) -> None:
        """Say that the stream is there, if it has nothing else to say."""
        if not self._is_waking and not self._is_paused:
            self._write(b": ping\n")

    def shutdown(self) -> None:
        """The server stops. The session ends with the broker's connections, and the stream with it."""

    def data_received(self, data: bytes) -> None:
        """Ignore bytes that a client sends after its request."""

    def pause_writing(self) -> None:
        self._is_paused = True
        self._unread = asyncio.get_running_loop().call_later(UNREAD_S, self._on_unread)

    def _on_unread(self) -> None:
        self._unread = None
        self._streams.context.counters.slow_readers_cut += 1
        self.transport.abort()

    def resume_writing(self) -> None:
        self._is_paused = False
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        self.wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._streams.discard(self, self._group)
        for timer in (self._unread, self._timer):
            if timer is not None:
                timer.cancel()
        self._is_paused = True  # nothing more is written
        session = self.session
        self._streams.context.sessions.discard(session)
        session.end()
        del self.session, self.transport  # which know the stream: no garbage collector looks for old circles

    def _on_readable(self) -> None:
        self._is_waking = False
        if self._is_paused or self.transport.is_closing():
            return
        try:
            self._write_events()
        except BaseException:
            self.transport.abort()
            raise

    def _write_events(self) -> None:
        session = self.session
        chunk, to_acknowledge, is_all = self._chunk()
        dropped = session.dropped()
        if dropped > self._dropped:
            chunk += _gap_event(gap("dropped", dropped - self._dropped))
            self._dropped = dropped
        if chunk:
            self._write(chunk)
            for packet in to_acknowledge:
                session.acknowledge(packet)
            self._confirm()
        if not is_all:
            self.wake()
        elif session.is_over:
            reason = msgspec.json.encode(session.close_detail)
            self._write(b'event: end\ndata: {"type":"end","reason":%s}\n\n' % reason)
            if self._is_chunked:
                self.transport.write(b"0\r\n\r\n")
            self.transport.close()

    def _write(self, text: bytes) -> None:
        self._streams.context.counters.sent_bytes += len(text)
        self.transport.write(b"%x\r\n%s\r\n" % (len(text), text) if self._is_chunked else text)

    def _chunk(self) -> tuple[bytes, Sequence[Publish], bool]:
        """Events to write together, the messages to acknowledge after that, and whether there are no more."""
        session, events = self.session, self._streams.events
        parts: list[bytes] = []
        to_acknowledge: list[Publish] = []
        size = 0
        while (packet := session.receive()) is not None:
            if not isinstance(packet, Publish):
                continue
            if session.is_durable and packet.qos:
                if self._is_known(packet.packet_id):
                    continue
                number = session.number_of(packet.packet_id)
                parts.append(b"id: %d-%d\n" % (number, packet.packet_id))
                self._unconfirmed.append(packet.packet_id)
            elif not session.is_durable:
                self._count += 1
                name = f"0-{self._count}" if self._ids is None else self._ids.of(packet)
                parts.append(b"id: %s\n" % name.encode())
                if packet.qos:
                    to_acknowledge.append(packet)
            event = events.of(packet)
            kind = kind_of(packet.topic)
            if kind != b"message":
                parts.append(b"event: %s\n" % kind)
            parts.append(b'data: {"type":"%s",%s\n\n' % (kind, event))
            size += len(event)
            if size > CHUNK_BYTES:
                return b"".join(parts), to_acknowledge, False
        return b"".join(parts), to_acknowledge, True

    def _is_known(self, packet_id: int) -> bool:
        """Whether the client has a message already, as its Last-Event-ID says. The last that it has stays
        unacknowledged: it marks the place for the next time."""
        if self._resume_after is None:
            return False
        if packet_id == self._resume_after:
            self._resume_after = None
            self._unconfirmed.append(packet_id)
        else:
            self.session.acknowledge_id(packet_id)
        return True

    def _confirm(self) -> None:
        """Take the oldest unconfirmed events as received, once the client's kernel has all that was written."""
        if len(self._unconfirmed) < UNCONFIRMED or self._timer is not None:
            return
        if not self._is_received():
            self._timer = asyncio.get_running_loop().call_later(CONFIRM_S, self._on_time)
            return
        while len(self._unconfirmed) > KEPT:
            self.session.acknowledge_id(self._unconfirmed.popleft())

    def _on_time(self) -> None:
        self._timer = None
        self._confirm()

    def _is_received(self) -> bool:
        return self.transport.get_write_buffer_size() == 0 and unacknowledged_bytes(self.transport) == 0


def unacknowledged_bytes(transport: Any) -> int:
    """Bytes that the kernel has taken and the other end has not acknowledged; 0 if the system does not say."""
    kernel = transport.get_extra_info("socket")
    if not _TIOCOUTQ or kernel is None or kernel.fileno() < 0:
        return 0
    try:
        (size,) = struct.unpack("i", fcntl.ioctl(kernel.fileno(), _TIOCOUTQ, b"\0\0\0\0"))
    except OSError:
        return 0
    return int(size)


def _gap_event(members: bytes) -> bytes:
    return b"event: gap\ndata: %s\n\n" % members
