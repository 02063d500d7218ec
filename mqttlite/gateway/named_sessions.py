"""Sessions with a name for event streams: `POST /events` and `POST /api/v1/topics/{id}/subscribe` make one.

A page of another site can have a browser send a GET, so a GET touches no session with a name but by the ticket that the
POST gave (`tickets`). Invariant: nothing here ends, or takes over from, a client that is no event stream of such a
session.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final
from urllib.parse import quote

import msgspec

from mqttlite.core.limits import MAX_CLIENT_ID_CHARACTERS
from mqttlite.core.session.session import Session
from mqttlite.gateway.bodies import Bodies, Receive, Scope, Send
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.path_prefix import root_of
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import Route, Routes
from mqttlite.gateway.sessions import RETAINED_NEVER, STREAM, HttpSession, filters_of, requests_of
from mqttlite.gateway.waker import Waker
from mqttlite.wire.constants import NEVER_EXPIRES

DEFAULT_EXPIRY_S: Final = 3_600


class NewSession(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A session that is to be made, or to go on."""

    filters: list[str] = []
    """For `/events`: the topic filters, all there are."""
    client_id: str = ""
    """Empty: the broker chooses one."""
    session_expiry_s: Annotated[int, msgspec.Meta(ge=1, le=NEVER_EXPIRES)] = DEFAULT_EXPIRY_S
    qos: Annotated[int, msgspec.Meta(ge=0, le=1)] = 1
    where: str = ""
    """A filter on the content of messages."""


class MadeSession(msgspec.Struct, frozen=True):
    """A session that was made, or goes on."""

    client_id: str
    session_expiry_s: int
    session_present: bool
    """Return whether the session existed."""
    dropped: int
    """Messages that it lost while no stream read it."""
    ticket: str
    url: str
    """The path to GET, on this host."""


_decode: Final = msgspec.json.Decoder(NewSession).decode


class NamedSessionRoutes:
    """The endpoints of one gateway."""

    def __init__(self, context: GatewayContext, bodies: Bodies) -> None:
        self._context: Final = context
        self._bodies: Final = bodies

    async def by_id(self, caller: Caller, topic_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /api/v1/topics/{topic_id}/subscribe`."""
        name = self._context.mount_point.shown(self._context.topics.find(topic_id).name)
        asked = await self._read(scope, receive)
        if asked.filters:
            raise Problem(Code.INVALID_VALUE, "filters: the topic is that of the path; POST /events takes filters")
        await self._make(caller, asked, [name.encode()], scope, send)

    async def by_filter(self, caller: Caller, _: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /events`."""
        asked = await self._read(scope, receive)
        await self._make(caller, asked, filters_of(asked.filters, self._context.core.namespaces), scope, send)

    async def _read(self, scope: Scope, receive: Receive) -> NewSession:
        body = await self._bodies.read(scope, receive)
        try:
            asked = _decode(body)
        except msgspec.ValidationError as error:
            raise Problem(Code.INVALID_VALUE, str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Problem(Code.BAD_REQUEST, f"the body is no JSON: {error}") from None
        finally:
            self._bodies.release(body)
        client_id = asked.client_id
        if len(client_id) > MAX_CLIENT_ID_CHARACTERS or not client_id.isprintable():
            raise Problem(Code.INVALID_VALUE, "client_id is too long, or has characters that cannot be shown")
        return asked

    async def _make(self, caller: Caller, asked: NewSession, filters: list[bytes], scope: Scope, send: Send) -> None:
        """Make the session, or let it go on with these filters alone, and answer with its ticket. Raises `Problem`."""
        context = self._context
        known = session_of(context, caller, asked.client_id) if asked.client_id else None
        dropped = 0 if known is None else dropped_while_away(known)
        client_id = asked.client_id
        if known is None or not self._is_as_asked(known, asked, filters):
            client_id = await self._subscribe(caller, asked, filters)
        ticket = await context.tickets.issue(client_id, caller.username)
        url = f"{root_of(scope)}{quote(scope['path'])}?ticket={ticket}"
        made = MadeSession(client_id, asked.session_expiry_s, known is not None, dropped, ticket, url)
        body = msgspec.json.encode(made)
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": 201 if known is None else 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _is_as_asked(self, known: Session, asked: NewSession, filters: list[bytes]) -> bool:
        """Whether a session need not be touched: a stream that reads it goes on, and what was dropped stays known."""
        filter_of = self._context.mount_point.filter_of
        present = {filter_of(name): (each.qos, where_of(each)) for name, each in known.subscriptions.items()}
        return known.expiry_interval == asked.session_expiry_s and present == dict.fromkeys(
            filters, (asked.qos, asked.where)
        )

    async def _subscribe(self, caller: Caller, asked: NewSession, filters: list[bytes]) -> str:
        """Begin or change a session, and leave it waiting on disk; its client identifier."""
        context = self._context
        answered = Waker()
        session = HttpSession(context, caller, STREAM, answered.set)
        session.begin(asked.client_id, asked.session_expiry_s)
        former = [context.mount_point.filter_of(each) for each in session.filters]
        try:
            # retained messages are for the first stream
            await session.subscribed(requests_of(filters, asked.qos, RETAINED_NEVER), asked.where, answered)
        except Problem:  # the other filters may have been granted
            if not session.session_present:
                context.core.end_session(session.client_id, context.clock())
            elif granted := [each for each in filters if each not in former]:
                session.unsubscribe(granted)
            raise
        else:
            if others := [each for each in former if each not in filters]:
                session.unsubscribe(others)
        finally:
            session.end()
        await context.loop_driver.settled()
        return session.client_id


def session_of(context: GatewayContext, caller: Caller, client_id: str) -> Session | None:
    """The session of that name, which a stream of the caller may use; None where there is none. Raises `Problem`."""
    session = context.core.sessions.get(client_id)
    if session is None:
        return None
    if session.username != caller.username:
        raise Problem(Code.NOT_AUTHORIZED, f"the session {client_id!r} is another user's")
    if session.outbox is not None:
        link = context.loop_driver.links.get(session.outbox.number)
        if not session.durable or (link is not None and link.transport != STREAM):
            raise Problem(Code.CONFLICT, f"another client uses the name {client_id!r} now")
    return session


def dropped_while_away(session: Session) -> int:
    """Messages that were dropped for a session whose stream was cut off."""
    return 0 if session.outbox is not None else sum(session.drops.values())


def where_of(subscription: Any) -> str:
    """The filter on the content of a subscription's messages."""
    found = subscription.message_filter
    return "" if found is None else str(found.expression)


_WENT_ON: Final = {"responses": {"200": {"description": "The same of a session that went on"}}}


def routes(context: GatewayContext, bodies: Bodies) -> Sequence[Route]:
    """The routes of this module."""
    made = NamedSessionRoutes(context, bodies)
    route = Routes(tag="subscribe", is_bare=True, body=NewSession, answer=MadeSession, status=201, operation=_WENT_ON)
    path, summary = "/api/v1/topics/{topic_id}/subscribe", "Make a session that subscribes to a topic"
    route.post(path, Role.USER, f"{summary} and outlives its streams")(made.by_id)
    summary = "Make a session that subscribes to topic filters and outlives its streams"
    route.post("/events", Role.USER, summary)(made.by_filter)
    return route.made
