"""Subscribe by Server-Sent Events: `GET /api/v1/topics/{id}/subscribe` and `GET /events?filter=…`.

A stream is a session of the core: one of its own, which ends with it, or with a ticket the named session that a POST
made (`named_sessions`). That one is durable: what was sent and may not have arrived is not acknowledged to the core,
and after a cut `Last-Event-ID` says where to go on. `event_stream` writes once a stream has begun.
Invariant: a stream begins when its filters are subscribed, and not before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from mqttlite.gateway.bodies import Bodies, ClientGone, Receive, Scope, Send, query_of
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.dotted_names import DESCRIPTION, PARAMETER, is_dotted, of_dotted
from mqttlite.gateway.event_stream import EventIds, EventStream, EventStreams
from mqttlite.gateway.http_server import HttpProtocol
from mqttlite.gateway.named_sessions import dropped_while_away, session_of, where_of
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import Route, Routes
from mqttlite.gateway.sessions import (
    RETAINED_ALWAYS,
    RETAINED_IF_NEW,
    RETAINED_NEVER,
    STREAM,
    HttpSession,
    filters_of,
    requests_of,
)
from mqttlite.gateway.waker import Waker
from mqttlite.topics.namespaces import Namespaces

_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


@dataclass(frozen=True, slots=True)
class Asked:
    """The session that a stream reads."""

    subscriptions: dict[tuple[int, str], list[bytes]]
    """Its topic filters, by QoS and filter on the content."""
    retained: int
    client_id: str = ""
    expiry_s: int = 0
    missed: int = 0
    """Messages that were dropped for it while no stream read it."""


class SseRoutes:
    """The endpoints of one gateway."""

    def __init__(self, context: GatewayContext) -> None:
        self._context: Final = context
        self._streams: Final = EventStreams(context)

    async def by_id(self, caller: Caller, topic_id: str, scope: Scope, _: Receive, send: Send) -> None:
        """`GET /api/v1/topics/{topic_id}/subscribe`."""
        name = self._context.mount_point.shown(self._context.topics.find(topic_id).name).encode()
        await self._open(caller, scope, send, topic_id, name)

    async def by_filter(self, caller: Caller, _: str, scope: Scope, __: Receive, send: Send) -> None:
        """`GET /events?filter=…`."""
        await self._open(caller, scope, send, None, b"")

    async def _open(self, caller: Caller, scope: Scope, send: Send, topic_id: str | None, name: bytes) -> None:
        """Begin a stream, which goes on when the request has ended. Raises `Problem`."""
        query = query_of(scope)
        came_with = last_event_id(scope, query)
        if "ticket" in query:
            asked = self._with_ticket(caller, query, RETAINED_NEVER if came_with else RETAINED_ALWAYS)
            if topic_id is not None and not any(name in each for each in asked.subscriptions.values()):
                raise Problem(Code.NOT_AUTHORIZED, "the ticket is of a session that does not subscribe to this topic")
        else:
            asked = _without_ticket(query, name, self._context.core.namespaces)
        await self.begin(caller, scope, send, asked, came_with)

    async def begin(
        self,
        caller: Caller,
        scope: Scope,
        send: Send,
        asked: Asked,
        came_with: str,
        ids: EventIds | None = None,
    ) -> None:
        """Begin a stream, once its filters are subscribed. `came_with` is a Last-Event-ID, of which the session decides
        what it means; `ids` gives the events others. Raises `Problem`."""
        opening = Waker()
        stream = EventStream(self._streams, opening, ids)
        session = stream.session = HttpSession(self._context, caller, STREAM, stream.wake)
        session.begin(asked.client_id, asked.expiry_s)
        self._context.sessions.add(session)
        try:
            first = stream.resume(came_with, asked.missed)
            for (qos, where), filters in asked.subscriptions.items():
                await session.subscribed(requests_of(filters, qos, asked.retained), where, opening)
            connection: HttpProtocol = scope["state"]["connection"]
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

    def _with_ticket(self, caller: Caller, query: dict[str, list[str]], retained: int) -> Asked:
        """The session of a ticket. Raises `Problem`."""
        context = self._context
        for name in ("filter", PARAMETER, "qos", "where"):
            if name in query:
                raise Problem(Code.INVALID_VALUE, f"{name} beside ticket: the POST that gives the ticket takes it")
        client_id = context.tickets.client_id_of(query["ticket"][0], caller.username)
        known = session_of(context, caller, client_id)
        if known is None or not known.subscriptions:
            raise Problem(Code.GONE, f"the session {client_id!r}, or its last subscription, has ended: POST again")
        subscriptions: dict[tuple[int, str], list[bytes]] = {}
        for topic_filter, each in known.subscriptions.items():
            shown = context.mount_point.filter_of(topic_filter)
            subscriptions.setdefault((each.qos, where_of(each)), []).append(shown)
        return Asked(subscriptions, retained, client_id, known.expiry_interval, dropped_while_away(known))


def _without_ticket(query: dict[str, list[str]], name: bytes, namespaces: Namespaces) -> Asked:
    """A session that ends with its stream. Raises `Problem`."""
    for parameter in ("client_id", "session_expiry_s"):
        if parameter in query:
            raise Problem(
                Code.INVALID_VALUE,
                f"{parameter}: a GET makes no session with a name; POST the same path with a body in JSON, and GET the "
                "url of its answer",
            )
    given = query.get("filter", [])
    if is_dotted(query):
        given = [of_dotted(each) for each in given]
    filters = [name] if name else filters_of(given, namespaces)
    return Asked({(qos_of(query), query.get("where", [""])[0]): filters}, RETAINED_IF_NEW)


def qos_of(query: dict[str, list[str]]) -> int:
    """The QoS that a request asks for. Raises `Problem`."""
    qos = query.get("qos", ["1"])[0]
    if qos not in ("0", "1"):
        raise Problem(Code.INVALID_VALUE, f"qos is {qos[:20]!r}: a stream has 0 or 1")
    return int(qos)


def routes(context: GatewayContext, _bodies: Bodies) -> Sequence[Route]:
    """The routes of this module."""
    made = SseRoutes(context)
    route = Routes(tag="subscribe", is_bare=True, takes_token=True)
    path, summary = "/api/v1/topics/{topic_id}/subscribe", "Subscribe to a topic by Server-Sent Events"
    route.get(path, Role.USER, summary, operation=_BY_ID)(made.by_id)
    summary = "Subscribe to topic filters by Server-Sent Events"
    route.get("/events", Role.USER, summary, operation=_EVENTS)(made.by_filter)
    return route.made


def last_event_id(scope: Scope, query: dict[str, list[str]], most: int = 100) -> str:
    """Where the client wants to go on, `most` characters of it: a header of EventSource, or a parameter of a page that
    was loaded again."""
    for name, value in scope["headers"]:
        if name == b"last-event-id":
            text: str = value.decode("latin-1")
            return text[:most]
    return query.get("last_event_id", [""])[0][:most]


def parameter(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    """A parameter of the query, for OpenAPI."""
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}


_STREAM_PARAMETERS: Final = [
    parameter("qos", {"type": "integer", "enum": [0, 1]}, "1 by default"),
    parameter("where", {"type": "string"}, "A filter on the content of messages, as of MQTT subscriptions"),
    parameter("ticket", {"type": "string"}, "That of a session with a name, in place of the others: POST gives it"),
    parameter("last_event_id", {"type": "string"}, "In place of the header Last-Event-ID"),
    parameter("token", {"type": "string"}, "An API key or token, for EventSource, which sends no header"),
]

ANSWER: Final[dict[str, Any]] = {
    "200": {"description": "Events", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}

_BY_ID: Final[dict[str, Any]] = {
    "parameters": _STREAM_PARAMETERS,
    "responses": ANSWER,
}

_EVENTS: Final[dict[str, Any]] = {
    "parameters": [
        {
            "name": "filter",
            "in": "query",
            "required": False,
            "schema": {"type": "array", "items": {"type": "string"}, "maxItems": 100},
            "description": "A topic filter of MQTT; repeatable, and required without a ticket",
        },
        parameter(PARAMETER, {"type": "boolean"}, DESCRIPTION),
        *_STREAM_PARAMETERS,
    ],
    "responses": ANSWER,
}
