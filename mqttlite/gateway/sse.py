"""Subscribe by Server-Sent Events: `GET /api/v1/topics/{id}/subscribe` and `GET /events?filter=…`.

A stream is a session of the core. With `client_id` and `session_expiry_s` it is durable: what was sent and may not have
arrived is not acknowledged to the core, and after a cut `Last-Event-ID` says where to go on. Invariant: on a durable
session no event is left out and none comes twice; where messages are missing all the same, an event `gap` says so.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec
from starlette.requests import HTTPConnection

from mqttlite.core.limits import MAX_CLIENT_ID_CHARACTERS
from mqttlite.gateway.bare import BareRoute
from mqttlite.gateway.bodies import Bodies, Receive, Scope, Send
from mqttlite.gateway.caller import Callers
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.events import Events, gap, kind_of
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.sessions import STREAM, HttpSession, filters_of
from mqttlite.gateway.waker import Waker
from mqttlite.wire.constants import NEVER_EXPIRES
from mqttlite.wire.packets import Publish

try:
    import fcntl
    import termios
except ImportError:  # Windows has no such question
    _TIOCOUTQ = 0
else:
    _TIOCOUTQ = termios.TIOCOUTQ

PING_S: Final = 30.0
"""How often a stream says that it is there: proxies close what is silent for a minute."""

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

_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


class SseRoutes:
    """The endpoints of one gateway."""

    def __init__(self, context: GatewayContext, callers: Callers, events: Events) -> None:
        self._context: Final = context
        self._callers: Final = callers
        self._events: Final = events

    async def by_id(self, topic_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /api/v1/topics/{topic_id}/subscribe`."""
        await self._stream(scope, receive, send, topic_id)

    async def by_filter(self, _: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /events?filter=…`."""
        await self._stream(scope, receive, send, None)

    async def unsubscribe(self, topic_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`DELETE /api/v1/topics/{topic_id}/subscribe`."""
        caller = await self._callers.find(HTTPConnection(scope))
        self._callers.charge(caller)
        topic = self._context.topics.find(topic_id)
        client_id = _query(scope).get("client_id", [""])[0]
        if caller.username is None and not client_id:
            raise Problem(Code.INVALID_VALUE, "client_id is missing: without a user name it says whose subscription")
        core = self._context.core
        ended = self._context.sessions.end_topic(caller.key, topic_id, client_id)
        waiting = core.sessions.get(client_id) if client_id else None
        if (
            waiting is not None
            and waiting.outbox is None
            and waiting.username == caller.username
            and topic.name.encode() in waiting.subscriptions
        ):
            core.end_session(client_id, self._context.clock())
            ended += 1
        self._context.loop_driver.wake()
        body = b'{"success":%s}' % (b"true" if ended else b"false")
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _stream(self, scope: Scope, receive: Receive, send: Send, topic_id: str | None) -> None:
        """Serve a stream. What only its beginning needs is forgotten here: there may be very many streams."""
        stream = await self._opened(scope, receive, send, topic_id)
        try:
            await stream.run(topic_id)
        finally:
            self._context.sessions.discard(stream.session)
            stream.close()

    async def _opened(self, scope: Scope, receive: Receive, send: Send, topic_id: str | None) -> "_Stream":
        """A stream whose filters are subscribed. Raises `Problem`."""
        caller = await self._callers.find(HTTPConnection(scope), token_in_query=True)
        self._callers.charge(caller)
        query = _query(scope)
        if topic_id is None:
            filters = filters_of(query.get("filter", []))
        else:
            filters = [self._context.topics.find(topic_id).name.encode()]
        client_id, expiry_s, qos = _options(query)
        last_event_id = _last_event_id(scope, query)
        stream = _Stream(self._context, self._events, scope, receive, send)
        session = stream.session = HttpSession(self._context, caller, STREAM, stream.readable.set)
        if topic_id is not None:
            session.topic_ids[topic_id] = filters[0]
        missed = _dropped_while_away(self._context, client_id) if expiry_s else 0
        session.connect(client_id, expiry_s)
        self._context.sessions.add(session)
        try:
            stream.begin(last_event_id, missed)
            known = session.link.connection.session
            others = [] if known is None else [each for each in known.subscriptions if each not in filters]
            await session.subscribed(filters, qos, stream.readable)
            if others:
                session.unsubscribe(others)
        except BaseException:
            self._context.sessions.discard(session)
            stream.close()
            raise
        scope["headers"].clear()  # a browser's take a kilobyte
        return stream


_NONE_UNCONFIRMED: Final[deque[int]] = deque()
"""Nothing is ever added to it: it is for streams that are not durable."""


class _Stream:
    """One response."""

    __slots__ = (
        "_connection",
        "_context",
        "_count",
        "_dropped",
        "_events",
        "_gaps",
        "_gone",
        "_is_silent",
        "_receive",
        "_resume_after",
        "_send",
        "_timer",
        "_unconfirmed",
        "_watch",
        "readable",
        "session",
    )

    def __init__(self, context: GatewayContext, events: Events, scope: Scope, receive: Receive, send: Send) -> None:
        self.session: HttpSession
        self.readable: Final = Waker()
        self._context: Final = context
        self._events: Final = events
        self._receive: Final = receive
        self._send: Final = send
        self._connection: Final = scope["state"].get("connection")
        self._watch: asyncio.Task[None] | None = None
        self._gone = False
        self._timer: asyncio.TimerHandle | None = None
        self._unconfirmed: deque[int] = _NONE_UNCONFIRMED
        """Packet identifiers of events that were written, the oldest first."""
        self._resume_after: int | None = None
        """The packet identifier of the last event that the client has; those before it and itself are left out."""
        self._gaps: tuple[bytes, ...] = ()
        self._dropped = 0
        self._count = 0
        self._is_silent = False
        """Whether it is time to say that the stream is there."""

    def begin(self, last_event_id: str, missed: int) -> None:
        """Find out where to go on."""
        if self._connection is not None:
            self._connection.on_lost = self._on_gone
        else:
            self._watch = asyncio.get_running_loop().create_task(self._wait_for_end())
        session = self.session
        self._dropped = session.dropped()
        if session.is_durable:
            self._unconfirmed = deque()
        if last_event_id:
            number, _, packet_id = last_event_id.partition("-")
            found = 0
            if session.session_present and packet_id.isdecimal() and len(packet_id) < 6:
                found = session.number_of(int(packet_id))
            if found and str(found) == number:
                self._resume_after = int(packet_id)
            else:
                self._gaps += (gap("not_kept"),)
        if missed:
            self._gaps += (gap("dropped", missed),)

    async def run(self, topic_id: str | None) -> None:
        """Write events until either end closes."""
        head = b"" if topic_id is None else b'"topic_id":"%s",' % topic_id.encode()
        await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        first = b"retry: %d\n\n" % RETRY_MS + b"".join(b"event: gap\ndata: %s\n\n" % each for each in self._gaps)
        await self._send({"type": "http.response.body", "body": first, "more_body": True})
        self._arm(PING_S)
        session = self.session
        while not self._is_gone():
            self.readable.clear()
            chunk, to_acknowledge = self._chunk(head)
            dropped = session.dropped()
            if dropped > self._dropped:
                chunk += b"event: gap\ndata: %s\n\n" % gap("dropped", dropped - self._dropped)
                self._dropped = dropped
            if self._is_silent and not chunk:
                chunk = b": ping\n\n"
            self._is_silent = False
            if chunk:
                await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
                if self._is_gone():
                    return
                for packet in to_acknowledge:
                    session.acknowledge(packet)
                self._confirm()
                continue
            if session.is_over:
                end = b'event: end\ndata: {"type":"end","reason":%s}\n\n' % msgspec.json.encode(session.close_detail)
                await self._send({"type": "http.response.body", "body": end, "more_body": False})
                return
            await self.readable.wait()

    def close(self) -> None:
        """The response is over."""
        if self._connection is not None:
            self._connection.on_lost = None
        if self._watch is not None:
            self._watch.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self.session.end()

    def _chunk(self, head: bytes) -> tuple[bytes, Sequence[Publish]]:
        """Events to write together, and the messages to acknowledge after that."""
        session, events = self.session, self._events
        parts: list[bytes] = []
        to_acknowledge: list[Publish] = []
        size = 0
        now = self._context.wall(self._context.clock())
        for packet in session.read():
            if not isinstance(packet, Publish):
                continue
            number = 0
            if session.is_durable and packet.qos:
                if self._is_known(packet.packet_id):
                    continue
                number = session.number_of(packet.packet_id)
                parts.append(b"id: %d-%d\n" % (number, packet.packet_id))
                self._unconfirmed.append(packet.packet_id)
            elif not session.is_durable:
                self._count += 1
                parts.append(b"id: 0-%d\n" % self._count)
                if packet.qos:
                    to_acknowledge.append(packet)
            event = events.of(packet, number, now)
            kind = kind_of(packet.topic)
            if kind != b"message":
                parts.append(b"event: %s\n" % kind)
            parts.append(b'data: {"type":"%s",%s%s\n\n' % (kind, head, event))
            size += len(event)
            if size > CHUNK_BYTES:
                self.readable.set()
                break
        return b"".join(parts), to_acknowledge

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
        if len(self._unconfirmed) < UNCONFIRMED:
            return
        if not self._is_received():
            self._arm(CONFIRM_S)
            return
        while len(self._unconfirmed) > KEPT:
            self.session.acknowledge_id(self._unconfirmed.popleft())

    def _is_received(self) -> bool:
        if self._connection is None:
            return True
        transport = self._connection.transport
        return transport.get_write_buffer_size() == 0 and unacknowledged_bytes(transport) == 0

    def _arm(self, after_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(after_s, self._on_time)

    def _on_time(self) -> None:
        """Say that the stream is there; look again at what is unconfirmed."""
        self._timer = None
        if self._gone:
            return
        if len(self._unconfirmed) >= UNCONFIRMED:
            self._confirm()
            if self._timer is None:
                self._arm(PING_S)
            return
        self._arm(PING_S)
        self._is_silent = True
        self.readable.set()

    def _is_gone(self) -> bool:
        return self._gone

    def _on_gone(self) -> None:
        self._gone = True
        self.readable.set()

    async def _wait_for_end(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._on_gone()


def unacknowledged_bytes(transport: Any) -> int:
    """What the kernel has taken and the other end's kernel has not acknowledged; 0 where the system does not say."""
    kernel = transport.get_extra_info("socket")
    if not _TIOCOUTQ or kernel is None or kernel.fileno() < 0:
        return 0
    try:
        (size,) = struct.unpack("i", fcntl.ioctl(kernel.fileno(), _TIOCOUTQ, b"\0\0\0\0"))
    except OSError:
        return 0
    return int(size)


def routes(context: GatewayContext, callers: Callers, _bodies: Bodies) -> Sequence[BareRoute]:
    """The bare routes of this module."""
    made = SseRoutes(context, callers, Events())
    subscribe = "/api/v1/topics/{topic_id}/subscribe"
    return (
        BareRoute("GET", "/api/v1/topics/", "/subscribe", made.by_id, subscribe, _BY_ID),
        BareRoute("DELETE", "/api/v1/topics/", "/subscribe", made.unsubscribe, subscribe, _UNSUBSCRIBE),
        BareRoute("GET", "/events", "", made.by_filter, "/events", _EVENTS),
    )


def _query(scope: Scope) -> dict[str, list[str]]:
    try:
        return parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise Problem(Code.INVALID_VALUE, f"the query has more than {MAX_FIELDS} fields") from None


MAX_FIELDS: Final = 200
"""Of a query: as many filters as there may be, and what else there is."""


def _options(query: dict[str, list[str]]) -> tuple[str, int, int]:
    """The client identifier, the session expiry and the QoS of a query. Raises `Problem`."""
    client_id = query.get("client_id", [""])[0]
    if len(client_id) > MAX_CLIENT_ID_CHARACTERS or "\0" in client_id or not client_id.isprintable():
        raise Problem(Code.INVALID_VALUE, "client_id is too long, or has characters that cannot be shown")
    expiry = query.get("session_expiry_s", ["0"])[0]
    if not expiry.isdecimal() or int(expiry[:11]) > NEVER_EXPIRES:
        raise Problem(Code.INVALID_VALUE, f"session_expiry_s is {expiry[:20]!r}: it may be 0 to {NEVER_EXPIRES}")
    if int(expiry) and not client_id:
        raise Problem(Code.INVALID_VALUE, "client_id is missing: a session that outlives its stream has a name")
    qos = query.get("qos", ["1"])[0]
    if qos not in ("0", "1"):
        raise Problem(Code.INVALID_VALUE, f"qos is {qos[:20]!r}: a stream has 0 or 1")
    return client_id, int(expiry), int(qos)


def _last_event_id(scope: Scope, query: dict[str, list[str]]) -> str:
    """Where the client wants to go on: a header of EventSource, or a parameter of a page that was loaded again."""
    for name, value in scope["headers"]:
        if name == b"last-event-id":
            text: str = value.decode("latin-1")
            return text[:100]
    return query.get("last_event_id", [""])[0][:100]


def _dropped_while_away(context: GatewayContext, client_id: str) -> int:
    """Messages that were dropped for a session whose stream was cut off."""
    session = context.core.sessions.get(client_id)
    return 0 if session is None or session.outbox is not None else sum(session.drops.values())


def _parameter(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}


_TOPIC_ID: Final[dict[str, Any]] = {"name": "topic_id", "in": "path", "required": True, "schema": {"type": "string"}}

_STREAM_PARAMETERS: Final = [
    _parameter("qos", {"type": "integer", "enum": [0, 1]}, "1 by default"),
    _parameter("client_id", {"type": "string"}, "The name of a session that outlives the stream"),
    _parameter("session_expiry_s", {"type": "integer", "minimum": 0, "maximum": NEVER_EXPIRES}, "For how long"),
    _parameter("last_event_id", {"type": "string"}, "In place of the header Last-Event-ID"),
    _parameter("token", {"type": "string"}, "An API key or token, for EventSource, which sends no header"),
]

_ANSWER: Final = {"200": {"description": "Events", "content": {"text/event-stream": {"schema": {"type": "string"}}}}}

_BY_ID: Final[dict[str, Any]] = {
    "summary": "Subscribe to a topic by Server-Sent Events",
    "tags": ["subscribe"],
    "parameters": [_TOPIC_ID, *_STREAM_PARAMETERS],
    "responses": _ANSWER,
}

_EVENTS: Final[dict[str, Any]] = {
    "summary": "Subscribe to topic filters by Server-Sent Events",
    "tags": ["subscribe"],
    "parameters": [
        {
            "name": "filter",
            "in": "query",
            "required": True,
            "schema": {"type": "array", "items": {"type": "string"}, "maxItems": 100},
            "description": "A topic filter of MQTT; repeatable",
        },
        *_STREAM_PARAMETERS,
    ],
    "responses": _ANSWER,
}

_UNSUBSCRIBE: Final[dict[str, Any]] = {
    "summary": "End the caller's subscriptions to a topic",
    "tags": ["subscribe"],
    "parameters": [_TOPIC_ID, _parameter("client_id", {"type": "string"}, "Only of that client")],
    "responses": {
        "200": {
            "description": "Whether there were any",
            "content": {
                "application/json": {"schema": {"type": "object", "properties": {"success": {"type": "boolean"}}}}
            },
        }
    },
}
