"""Subscribe by Server-Sent Events: `GET /api/v1/topics/{id}/subscribe` and `GET /events?filter=…`.

A stream is a session of the core. With `client_id` and `session_expiry_s` it is durable: what was sent and may not have
arrived is not acknowledged to the core, and after a cut `Last-Event-ID` says where to go on. What is written once a
stream has begun lives in `event_stream`. Invariant: a stream begins when its filters are subscribed, and not before.
"""

from collections.abc import Sequence
from typing import Any, Final

from starlette.requests import HTTPConnection

from mqttlite.core.limits import MAX_CLIENT_ID_CHARACTERS
from mqttlite.gateway.bare import BareRoute
from mqttlite.gateway.bodies import Bodies, ClientGone, Receive, Scope, Send, query_of
from mqttlite.gateway.caller import Callers
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.event_stream import EventStream, EventStreams
from mqttlite.gateway.http_server import HttpProtocol
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.sessions import STREAM, HttpSession, filters_of
from mqttlite.gateway.waker import Waker
from mqttlite.wire.constants import NEVER_EXPIRES

_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


class SseRoutes:
    """The endpoints of one gateway."""

    def __init__(self, context: GatewayContext, callers: Callers) -> None:
        self._context: Final = context
        self._callers: Final = callers
        self._streams: Final = EventStreams(context)

    async def by_id(self, topic_id: str, scope: Scope, _: Receive, send: Send) -> None:
        """`GET /api/v1/topics/{topic_id}/subscribe`."""
        await self._open(scope, send, topic_id)

    async def by_filter(self, _: str, scope: Scope, __: Receive, send: Send) -> None:
        """`GET /events?filter=…`."""
        await self._open(scope, send, None)

    async def _open(self, scope: Scope, send: Send, topic_id: str | None) -> None:
        """Begin a stream, once its filters are subscribed. Raises `Problem`. The request ends then, and the stream goes
        on."""
        caller = await self._callers.find(HTTPConnection(scope), token_in_query=True)
        self._callers.charge(caller)
        query = query_of(scope)
        if topic_id is None:
            filters = filters_of(query.get("filter", []))
        else:
            filters = [self._context.mount_point.shown(self._context.topics.find(topic_id).name).encode()]
        client_id, expiry_s, qos = _options(query)
        last_event_id = _last_event_id(scope, query)
        connection: HttpProtocol = scope["state"]["connection"]
        opening = Waker()
        stream = EventStream(self._streams, opening)
        session = stream.session = HttpSession(self._context, caller, STREAM, stream.wake)
        missed = _dropped_while_away(self._context, client_id) if expiry_s else 0
        session.connect(client_id, expiry_s)
        self._context.sessions.add(session)
        try:
            first = stream.resume(last_event_id, missed)
            known = session.link.connection.session
            its = () if known is None else map(self._context.mount_point.filter_of, known.subscriptions)
            others = [each for each in its if each not in filters]
            await session.subscribed(filters, qos, opening, query.get("where", [""])[0])
            if others:
                session.unsubscribe(others)
            is_chunked = scope["http_version"] != "1.0"
            if not is_chunked and connection.answering is not None:
                connection.answering.chunked_encoding = False  # which uvicorn would use all the same
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            transport = connection.transport
            if transport is None or transport.is_closing():
                raise ClientGone
            is_paused = connection.hand_over(stream)
            stream.take_over(transport, connection.connections, first, is_paused, is_chunked)
        except BaseException:
            self._context.sessions.discard(session)
            session.end()
            raise


def routes(context: GatewayContext, callers: Callers, _bodies: Bodies) -> Sequence[BareRoute]:
    """The bare routes of this module."""
    made = SseRoutes(context, callers)
    subscribe = "/api/v1/topics/{topic_id}/subscribe"
    return (
        BareRoute("GET", "/api/v1/topics/", "/subscribe", made.by_id, subscribe, _BY_ID),
        BareRoute("GET", "/events", "", made.by_filter, "/events", _EVENTS),
    )


def _options(query: dict[str, list[str]]) -> tuple[str, int, int]:
    """The client identifier, the session expiry and the QoS of a query. Raises `Problem`."""
    client_id = query.get("client_id", [""])[0]
    if len(client_id) > MAX_CLIENT_ID_CHARACTERS or "\0" in client_id or not client_id.isprintable():
        raise Problem(Code.INVALID_VALUE, "client_id is too long, or has characters that cannot be shown")
    expiry = query.get("session_expiry_s", ["0"])[0]
    if not expiry.isdecimal() or len(expiry) > 10 or int(expiry) > NEVER_EXPIRES:
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
    _parameter("where", {"type": "string"}, "A filter on the content of messages, as of MQTT subscriptions"),
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
