"""`POST /api/v1/requests/{topic}`: publish a request with a Response Topic, and wait for what comes back (5.0 §4.10).

One session of the broker's takes the answers for all callers. Invariant: an answer goes to the caller whose request has
its Correlation Data, which nobody can guess, or to nobody.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, final

from mqttlite.gateway.bodies import Bodies, ClientGone, Receive, Scope, Send, query_of
from mqttlite.gateway.caller import LISTENER, Caller, Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.publish_routes import (
    DOTTED,
    FORM,
    answer_with,
    headers_of,
    named_in,
    number_of,
    parameter,
    payload_headers,
)
from mqttlite.gateway.publishing import Draft, Publishing, check_qos, checked
from mqttlite.gateway.routing import Route, Routes
from mqttlite.net.local_link import LocalClient
from mqttlite.net.local_session import LocalSession
from mqttlite.wire.packets import Publish, SubscriptionRequest
from mqttlite.wire.properties import Properties

PREFIX: Final = "/api/v1/requests/"

REPLY_PREFIX: Final = "reply/"
"""As that of `mqttlite.client`, so that one rule lets responders answer both."""

TIMEOUT_S: Final = 10
MAX_TIMEOUT_S: Final = 60
"""Proxies commonly give up after as long."""

MAX_WAITING: Final = 1_000
"""Requests of all callers that wait for an answer: each holds a connection, and some kilobytes."""

MAX_WAITING_OF_CALLER: Final = 100
"""Those of one caller, who leaves room for others."""

ERROR: Final = "error"
"""The user property of an answer which says that the responder failed, and why."""

WINDOW: Final = 1_000
"""Answers of QoS 1 on their way to the session, which acknowledges them at once."""

_TRANSPORT: Final = "requests"
"""Of the session, in telemetry, metrics and the log."""


@final
class Answers:
    """Takes the answers for one gateway."""

    def __init__(self, context: GatewayContext) -> None:
        self._context: Final = context
        self._waiting: Final[dict[bytes, asyncio.Future[Publish]]] = {}
        self._of_caller: Final[Counter[str]] = Counter()
        self._session: LocalSession | None = None
        self.topic: Final = REPLY_PREFIX + secrets.token_urlsafe(12)
        """To which the answers come, in the words of callers."""

    def expect(self, caller: Caller) -> tuple[bytes, asyncio.Future[Publish]]:
        """Correlation data for a request, and its answer. Call `forget` at the end. Raises `Problem`."""
        if len(self._waiting) >= MAX_WAITING:
            detail = f"{MAX_WAITING} requests wait for their answers"
            raise Problem(Code.BUSY, detail, headers={"Retry-After": "1"})
        if self._of_caller[caller.key] >= MAX_WAITING_OF_CALLER:
            detail = f"{MAX_WAITING_OF_CALLER} requests of this caller wait for their answers"
            raise Problem(Code.TOO_MANY_REQUESTS, detail, headers={"Retry-After": "1"})
        self._subscribe()
        self._of_caller[caller.key] += 1
        correlation = secrets.token_bytes(16)
        answer: asyncio.Future[Publish] = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = answer
        return correlation, answer

    def forget(self, caller: Caller, correlation: bytes) -> None:
        """A request is over."""
        del self._waiting[correlation]
        self._of_caller[caller.key] -= 1
        if not self._of_caller[caller.key]:
            del self._of_caller[caller.key]

    def _subscribe(self) -> None:
        """Have a session. It is made with the first request, and again should an operator end it."""
        if self._session is not None and not self._session.is_over:
            return
        context = self._context
        session = LocalSession(context.core, context.loop_driver, self._take, LISTENER, _TRANSPORT, address=_TRANSPORT)
        try:
            session.connect(LocalClient(is_trusted=True, mount_point=context.mount_point.prefix), WINDOW)
        except ConnectionRefusedError as error:
            raise Problem(Code.BUSY, f"the broker takes no answers: {error}") from None
        session.subscribe_at_once(SubscriptionRequest(self.topic.encode(), 1))
        self._session = session

    def _take(self) -> None:
        """Read what has come. Answers to ended requests are dropped."""
        session = self._session
        if session is None:
            return
        while (packet := session.receive()) is not None:
            if isinstance(packet, Publish):
                session.acknowledge(packet)
                answer = self._waiting.get(packet.properties.correlation_data or b"")
                if answer is not None and not answer.done():
                    answer.set_result(packet)
        if session.is_over:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(Problem(Code.BUSY, "the broker takes no answers any more: ask again"))


@final
class RequestRoutes:
    """The endpoint of one gateway."""

    def __init__(self, context: GatewayContext, bodies: Bodies) -> None:
        self._bodies: Final = bodies
        self._publishing: Final = Publishing(context)
        self._answers: Final = Answers(context)

    async def ask(self, caller: Caller, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /api/v1/requests/{topic}`: the body is the request's payload, and the answer's payload comes back."""
        name = named_in(scope, name)
        qos, timeout_s = _query(scope)
        body = await self._bodies.read(scope, receive)
        try:
            correlation, answer = self._answers.expect(caller)
        except Problem:
            self._bodies.release(body)
            raise
        try:
            try:
                await self._publish(
                    caller, name, body, qos, timeout_s, headers_of(scope).get("content-type"), correlation
                )
            finally:
                self._bodies.release(body)
            message = await _answered(answer, receive, timeout_s)
        finally:
            self._answers.forget(caller, correlation)
            answer.cancel()
        for key, value in message.properties.user_properties:
            if key == ERROR:
                raise Problem(Code.RESPONDER_FAILED, value[:1000])
        await answer_with(send, message.payload, payload_headers(message.properties.content_type))

    async def _publish(
        self,
        caller: Caller,
        name: str,
        body: bytes,
        qos: int,
        expiry_s: int,
        content_type: str | None,
        correlation: bytes,
    ) -> None:
        asked = Properties(
            content_type=None if content_type == FORM else content_type,
            message_expiry_interval=expiry_s,
            response_topic=self._answers.topic,
            correlation_data=correlation,
        )
        draft = Draft(self._publishing.topic_of(name), body, qos, False, checked(asked))
        outcome = await self._publishing.publish(caller, draft)
        if not outcome.reached:
            raise Problem(Code.NO_RESPONDER, f"no client is subscribed to {name[:200]!r}, so none answers")


async def _answered(answer: asyncio.Future[Publish], receive: Receive, timeout_s: int) -> Publish:
    """The answer. Raises `Problem` if there is none in time, and `ClientGone` if the caller does not wait for it."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    leaving = asyncio.ensure_future(gone())
    try:
        both: set[asyncio.Future[Any]] = {answer, leaving}
        await asyncio.wait(both, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
    if answer.done():
        return answer.result()
    if leaving.done():
        raise ClientGone
    detail = f"no answer came within {timeout_s} s; timeout_s gives it more time, up to {MAX_TIMEOUT_S}"
    raise Problem(Code.NO_ANSWER, detail)


def routes(context: GatewayContext, bodies: Bodies) -> Sequence[Route]:
    """The routes of this module."""
    made = Routes(tag="publish", is_bare=True, is_counted=False, is_traffic=True)
    ask = RequestRoutes(context, bodies).ask
    made.post(PREFIX + "{topic:path}", Role.USER, "Publish a request and wait for its answer", operation=_ASK)(ask)
    return made.made


def _query(scope: Scope) -> tuple[int, int]:
    """QoS and time. Raises `Problem`."""
    query = {name: values[-1] for name, values in query_of(scope).items()}
    qos = number_of(query.get("qos", "1"), "qos")
    check_qos(qos)
    timeout_s = number_of(query.get("timeout_s", str(TIMEOUT_S)), "timeout_s")
    if not 1 <= timeout_s <= MAX_TIMEOUT_S:
        raise Problem(Code.INVALID_VALUE, f"timeout_s is {timeout_s}: it may be 1 to {MAX_TIMEOUT_S}")
    return qos, timeout_s


_ASK: Final[dict[str, Any]] = {
    "parameters": [
        parameter("topic", "path", {"type": "string"}, "The topic of the request; its slashes are part of the path"),
        DOTTED,
        parameter("qos", "query", {"type": "integer", "minimum": 0, "maximum": 2, "default": 1}),
        parameter(
            "timeout_s", "query", {"type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_S, "default": TIMEOUT_S}
        ),
    ],
    "requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
    "responses": {
        "200": {"description": "The payload of the answer, with its content type", "content": {"*/*": {"schema": {}}}}
    },
}
