"""Requests of a client and their answers: one subscription takes the answers to all requests that are under way.

With 5.0 a request has a topic for its answer, and correlation data (§4.10). With 3.1.1 it can have neither: both sides
know the topic, and one request waits there at a time. Invariants: an answer goes to the request that asked for it or to
nobody; it never comes by `client.messages`.
"""

import asyncio
import itertools
import logging
import math
import secrets
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias, final

from mqttlite.client.errors import MqttError, NoResponder, RequestFailed
from mqttlite.client.inflight import Outgoing
from mqttlite.client.message import Message, Payload, PublishOutcome
from mqttlite.client.session import Session, ignore
from mqttlite.client.topics import check_name
from mqttlite.wire.constants import NEVER_EXPIRES, V5
from mqttlite.wire.properties import NONE, Properties
from mqttlite.wire.reason_codes import ReasonCode

ERROR: Final = "error"
"""The user property of an answer which says that the request failed, and why."""

REPLY_PREFIX: Final = "reply/"
"""Before the name of a topic that takes answers, where the server tells no other (Response Information)."""

MAX_IDLE_TOPICS: Final = 16
"""Topics for answers at which no request waits, and which stay subscribed for the next one."""

_Sent: TypeAlias = Outgoing[asyncio.Future[PublishOutcome]]

_log: Final = logging.getLogger("mqttlite.client")


class Publisher(Protocol):
    """The part of `Client` that requests and responders use."""

    @property
    def connack_properties(self) -> Properties: ...
    async def subscribe(self, topic: str, qos: int = 0) -> tuple[int, ...]: ...
    async def publish(
        self,
        topic: str,
        payload: Payload = b"",
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> PublishOutcome: ...


Place: TypeAlias = Callable[[str, Payload, int, Properties | None], Awaitable[_Sent]]
"""Takes a message of QoS 1 or 2 into the window."""


@final
class ReplyTopic:
    """A topic to which answers come, and the requests that wait there by their correlation data (3.1.1: b"")."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.waiting: Final[dict[bytes, asyncio.Future[Message]]] = {}
        self.subscribing: asyncio.Future[tuple[int, ...]] | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether a request waits here."""
        return bool(self.waiting)

    def put(self, message: Message) -> None:
        """An answer came: one that nobody waits for any more is dropped, as is an old one that is retained."""
        answer = self.waiting.get(message.properties.correlation_data or b"")
        if answer is None or message.retain:
            _log.debug("An answer at %s is dropped: no request waits for it", self.name)
        elif not answer.done():
            answer.set_result(message)

    def end(self, error: MqttError) -> None:
        """No answer will come any more."""
        for answer in self.waiting.values():
            if not answer.done():
                answer.set_exception(error)


@final
class Requests:
    """Those of one client."""

    def __init__(self, client: Publisher, session: Session, place: Place, version: int) -> None:
        self._client: Final = client
        self._session: Final = session
        self._place: Final = place
        self._version: Final = version
        self._own_part: Final = secrets.token_hex(8)
        """Before the number of each request: clients may share a topic for answers, and one that begins again may get
        late answers to the former one's requests. It is text, so that a responder in a shell can repeat it."""
        self._numbers: Final = itertools.count(1)
        self._topics: Final[dict[str, ReplyTopic]] = {}
        """In the order in which they were used last."""
        self._own_name = ""

    async def ask(
        self,
        topic: str,
        payload: Payload,
        qos: int,
        reply_to: str | None,
        properties: Properties | None,
        timeout_s: float | None,
    ) -> Message:
        """As `Client.request`, without a limit of time but for the request's expiry."""
        reply_topic = self._topic(reply_to)
        correlation = b""
        asked = properties
        if self._version == V5:
            correlation = f"{self._own_part}-{next(self._numbers)}".encode()
            asked = _with_answer(properties or NONE, reply_topic.name, correlation, timeout_s)
        elif reply_topic.waiting:
            raise ValueError(f"a request waits at {reply_topic.name!r}: with 3.1.1 there is one for each topic")
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        reply_topic.waiting[correlation] = answer
        sent: _Sent | None = None
        try:
            await self._subscribe(reply_topic)
            if qos:
                sent = await self._place(topic, payload, qos, asked)
                sent.waiter.add_done_callback(lambda done: _on_acknowledged(done, topic, answer))
            else:
                await self._client.publish(topic, payload, 0, properties=asked)
            message = await answer
        finally:
            del reply_topic.waiting[correlation]
            if sent is not None:
                sent.waiter.cancel()
                self._session.window.withdraw(sent)
            self._leave_idle()
        for name, value in message.properties.user_properties:
            if name == ERROR:
                raise RequestFailed(value)
        return message

    # ------------------------------------------------------------------ inside

    def _topic(self, name: str | None) -> ReplyTopic:
        """The topic for an answer. Raises `ValueError` where the program has to name one."""
        if name is None:
            if self._version != V5:
                raise ValueError("reply_to: a message of 3.1.1 cannot say where its answer goes, so name a topic here")
            name = self._own_name = self._own_name or self._new_name()
        found = self._topics.pop(name, None)
        if found is None:
            check_name(name)
            found = ReplyTopic(name)
            self._session.take(name, found)
        self._topics[name] = found
        return found

    def _new_name(self) -> str:
        told = self._client.connack_properties.response_information
        return f"{told.rstrip('/')}/{secrets.token_urlsafe(12)}" if told else REPLY_PREFIX + secrets.token_urlsafe(12)

    async def _subscribe(self, topic: ReplyTopic) -> None:
        """Subscribe once; who is cancelled here leaves it to who comes next."""
        asked = topic.subscribing
        if asked is None or (asked.done() and asked.exception() is not None):
            asked = topic.subscribing = asyncio.ensure_future(self._client.subscribe(topic.name, 1))
            asked.add_done_callback(ignore)
        if not asked.done():
            await asyncio.shield(asked)

    def _leave_idle(self) -> None:
        """Unsubscribe from the topic that was used longest ago, if too many are idle."""
        if len(self._topics) <= MAX_IDLE_TOPICS:
            return
        oldest = next((each for each in self._topics.values() if not each.waiting), None)
        if oldest is None:
            return
        del self._topics[oldest.name]
        self._session.take(oldest.name, None)
        try:
            self._session.unsubscribe((oldest.name.encode(),), NONE).add_done_callback(ignore)
        except MqttError as error:  # all packet identifiers are in use
            _log.warning("%s was not unsubscribed: %s", oldest.name, error)


def _with_answer(given: Properties, reply_to: str, correlation: bytes, timeout_s: float | None) -> Properties:
    """The properties of a request: a request that nobody waits for any more is not worth an answer."""
    if given.response_topic is not None or given.correlation_data is not None:
        raise ValueError("response_topic and correlation_data are the client's: reply_to names another topic")
    expiry_s = given.message_expiry_interval
    if expiry_s is None and timeout_s is not None:
        expiry_s = min(math.ceil(timeout_s), NEVER_EXPIRES)
    return Properties(
        payload_format_indicator=given.payload_format_indicator,
        content_type=given.content_type,
        user_properties=given.user_properties,
        message_expiry_interval=expiry_s,
        response_topic=reply_to,
        correlation_data=correlation,
    )


def _on_acknowledged(done: asyncio.Future[PublishOutcome], topic: str, answer: asyncio.Future[Message]) -> None:
    """The server has the request: who waits hears at once when nobody will answer."""
    if done.cancelled():
        return
    error = done.exception()
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    elif done.result().reason_code == ReasonCode.NO_MATCHING_SUBSCRIBERS:
        answer.set_exception(NoResponder(topic))
