"""Subscribe and publish by WebSocket in JSON: `/ws/subscribe?topic_id=…&token=…`.

Each message of the client has a `type`, and an `id` of its choice that the answer repeats. The subscriptions are those
of one session of the core. Invariant: a wrong message gets an `error` and changes nothing; the connection goes on.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from mqttlite.gateway.bodies import Bodies, Receive, Scope, Send, query_of
from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.events import PRESENCE, Events, gap, kind_of
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.publishing import Draft, MessageBody, Publishing, draft_of
from mqttlite.gateway.routing import WEBSOCKET, Route, Routes
from mqttlite.gateway.sessions import SOCKET, HttpSession, filters_of, refusal, requests_of
from mqttlite.gateway.waker import Waker
from mqttlite.wire.packets import Publish, Suback, Unsuback
from mqttlite.wire.reason_codes import SUBACK_FAILURE

MAX_UNANSWERED: Final = 100
"""SUBSCRIBEs and UNSUBSCRIBEs of one connection that wait for their answers."""


class Request(MessageBody, frozen=True, forbid_unknown_fields=True):
    """A message of the client."""

    type: Literal["subscribe", "unsubscribe", "publish", "presence", "ping"] = "ping"
    id: str | int | None = None
    topic: str | None = None
    """For `publish` a topic's name, else a topic filter."""
    topic_id: str | None = None
    where: str = ""
    """For `subscribe`: a filter on the content of messages."""
    presence: bool = False
    """For `unsubscribe`: end what `presence` began, and not the subscription."""


class _OnlyId(msgspec.Struct, frozen=True):
    """The fields of a wrong message that its answer repeats."""

    id: str | int | None = None


_decode: Final = msgspec.json.Decoder(Request).decode
_decode_id: Final = msgspec.json.Decoder(_OnlyId).decode
_encode: Final = msgspec.json.Encoder().encode


class SocketRoutes:
    """The endpoint of one gateway."""

    def __init__(self, context: GatewayContext) -> None:
        self._context: Final = context
        self._events: Final = Events(context)
        self._publishing: Final = Publishing(context)

    async def subscribe(self, caller: Caller, _: str, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection, from its handshake to its end."""
        topic_ids = query_of(scope).get("topic_id", [])
        for topic_id in topic_ids:
            self._context.topics.find(topic_id)
        if (await receive())["type"] != "websocket.connect":
            return
        waker = Waker()
        session = HttpSession(self._context, caller, SOCKET, waker.set)
        session.begin()
        self._context.sessions.add(session)
        connection = _Connection(self._context, self._events, self._publishing, caller, session, waker, send)
        writer: asyncio.Task[None] | None = None
        try:
            await send({"type": "websocket.accept"})
            writer = asyncio.get_running_loop().create_task(connection.write())
            for topic_id in topic_ids:
                await connection.on_request(Request(type="subscribe", topic_id=topic_id, qos=1))
            while not session.is_over:
                message = await receive()
                if message["type"] == "websocket.disconnect":
                    return
                text = message.get("text")
                await connection.on_text(text if text is not None else message["bytes"])
        finally:
            self._context.sessions.discard(session)
            session.end()
            if writer is not None:
                writer.cancel()
                await asyncio.wait([writer])


class _Connection:
    """One connection that is open."""

    def __init__(
        self,
        context: GatewayContext,
        events: Events,
        publishing: Publishing,
        caller: Caller,
        session: HttpSession,
        waker: Waker,
        send: Send,
    ) -> None:
        self._context: Final = context
        self._events: Final = events
        self._publishing: Final = publishing
        self._caller: Final = caller
        self._session: Final = session
        self._waker: Final = waker
        self._send: Final = send
        self._asked: Final[dict[int, tuple[Request, list[bytes]]]] = {}
        """The client's open requests, by packet identifier, and their topic filters."""
        self._dropped = 0

    async def on_text(self, text: str | bytes) -> None:
        """Handle a message of the client. Every mistake in it becomes an answer."""
        try:
            request = _decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            code = Code.INVALID_VALUE if isinstance(error, msgspec.ValidationError) else Code.BAD_REQUEST
            await self._say({"type": "error", "id": _id_of(text), "code": str(code), "detail": str(error)})
            return
        await self.on_request(request)

    async def on_request(self, request: Request) -> None:
        """The same, once it is read."""
        try:
            if request.type == "publish":
                await self._publish(request)
            elif request.type == "ping":
                await self._say({"type": "pong", "id": request.id})
            else:
                self._ask(request)
        except Problem as problem:
            await self._refuse(request, problem)

    async def write(self) -> None:
        """Write messages and answers until the session is over."""
        session = self._session
        while True:
            self._waker.clear()
            wrote = False
            while (packet := session.receive()) is not None:
                wrote = True
                if isinstance(packet, Publish):
                    kind, event = kind_of(packet.topic), self._events.of(packet)
                    await self._send_text(b'{"type":"%s",%s' % (kind, event))
                    session.acknowledge(packet)
                elif isinstance(packet, Suback | Unsuback):
                    await self._on_answer(packet)
            dropped = session.dropped()
            if dropped > self._dropped:
                await self._send_text(gap("dropped", dropped - self._dropped))
                self._dropped = dropped
            if session.is_over and not wrote:
                await self._send({"type": "websocket.close", "code": 1001, "reason": session.close_detail[:100]})
                return
            if not wrote:
                await self._waker.wait()

    async def _publish(self, request: Request) -> None:
        if (request.topic is None) == (request.topic_id is None):
            raise Problem(Code.INVALID_VALUE, "topic and topic_id: one of them names the topic")
        name = self._topic_of(request)
        draft: Draft = draft_of(name, request)
        outcome = await self._publishing.publish(self._caller, draft)
        await self._send_text(b'{"type":"published","id":%s,%s' % (_encode(request.id), outcome.json()[1:]))

    def _ask(self, request: Request) -> None:
        """Subscribe or unsubscribe; the answer comes from the core."""
        if (request.topic is None) == (request.topic_id is None):
            raise Problem(Code.INVALID_VALUE, "topic and topic_id: one of them names the topic filter")
        if len(self._asked) >= MAX_UNANSWERED:
            raise Problem(Code.TOO_MANY_REQUESTS, f"{MAX_UNANSWERED} requests wait for their answers")
        if request.qos not in (0, 1):
            raise Problem(Code.INVALID_VALUE, f"qos is {request.qos}: a subscription here has 0 or 1")
        mount_point, namespaces = self._context.mount_point, self._context.core.namespaces
        names = filters_of([self._filter_of(request)], namespaces)
        is_presence = request.type == "presence" or request.presence
        if is_presence:  # they may be too long now
            names = filters_of([(each + mount_point.prefix + names[0]).decode() for each in PRESENCE], namespaces)
        session = self._session
        if request.type == "unsubscribe":
            packet_id = session.unsubscribe(names)
        else:
            packet_id = session.subscribe(requests_of(names, request.qos), request.where or None)
        self._asked[packet_id] = (request, names)

    def _topic_of(self, request: Request) -> bytes:
        """The topic to which a request publishes."""
        if request.topic is not None:
            return self._publishing.topic_of(request.topic)
        assert request.topic_id is not None, "one of both is there"
        return self._context.topics.find(request.topic_id).name.encode()

    def _filter_of(self, request: Request) -> str:
        """The topic filter of a request, as callers name it."""
        if request.topic is not None:
            return request.topic
        assert request.topic_id is not None, "one of both is there"
        return self._context.mount_point.shown(self._context.topics.find(request.topic_id).name)

    async def _on_answer(self, packet: Suback | Unsuback) -> None:
        found = self._asked.pop(packet.packet_id, None)
        if found is None:
            return
        request, names = found
        code, name = max(zip(packet.reason_codes, names, strict=True))  # of two, what went wrong
        if isinstance(packet, Suback) and code >= SUBACK_FAILURE:
            if len(names) > 1:
                self._session.unsubscribe(names)
            await self._refuse(request, refusal(code, name, packet.properties.reason_string))
            return
        answer: dict[str, Any] = {"type": "subscribed", "id": request.id, "topic": self._filter_of(request)}
        answer |= {"qos": code} if isinstance(packet, Suback) else {"type": "unsubscribed", "existed": code == 0}
        if request.topic_id is not None:
            answer["topic_id"] = request.topic_id
        await self._say(answer)

    async def _refuse(self, request: Request, problem: Problem) -> None:
        await self._say({"type": "error", "id": request.id, "code": str(problem.code), "detail": problem.detail})

    async def _say(self, answer: dict[str, Any]) -> None:
        await self._send_text(_encode(answer))

    async def _send_text(self, text: bytes) -> None:
        await self._send({"type": "websocket.send", "text": text.decode()})


def routes(context: GatewayContext, _bodies: Bodies) -> Sequence[Route]:
    """The route of this module."""
    route = Routes(is_bare=True, takes_token=True)
    route.add(WEBSOCKET, "/ws/subscribe", Role.USER)(SocketRoutes(context).subscribe)
    return route.made


def _id_of(text: str | bytes) -> str | int | None:
    """The id of a message that is wrong elsewhere; None where even that cannot be read."""
    try:
        return _decode_id(text).id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
