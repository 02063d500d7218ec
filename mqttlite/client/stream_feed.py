"""The subscription of a program to a stream: what came on it, and its end.

Invariant: what came and was not given to the program when the connection was lost is not given to it any more, for the
broker sends it again.
"""

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, final

from mqttlite.client.errors import AnswerTimeout, ClientClosed, MqttError
from mqttlite.client.message import Payload, PublishOutcome
from mqttlite.client.receipts import Receipt
from mqttlite.client.session import Session
from mqttlite.client.stream_message import MemberOfGroup, StreamMessage
from mqttlite.client.topics import check_filter
from mqttlite.wire.packets import Publish
from mqttlite.wire.properties import Properties

_log: Final = logging.getLogger("mqttlite.client")


class Subscriber(Protocol):
    """The part of `Client` that a stream uses."""

    @property
    def connack_properties(self) -> Properties: ...
    async def subscribe(
        self, topic: str, qos: int = 0, *, where: str | None = None, properties: Properties | None = None
    ) -> tuple[int, ...]: ...
    async def publish(
        self,
        topic: str,
        payload: Payload = b"",
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> PublishOutcome: ...


@final
class StreamFeed:
    """A `Reader` of the session. `waiting` is bounded by the client's `receive_maximum`, for none of them is
    acknowledged."""

    def __init__(
        self,
        client: Subscriber,
        session: Session,
        stream: str,
        topic_filter: str,
        where: str | None,
        user_properties: list[tuple[str, str]],
        on_lost: Callable[[], None],
        member: MemberOfGroup | None,
    ) -> None:
        check_filter(topic_filter)
        self.topic_filter: Final = topic_filter
        self._client: Final = client
        self._session: Final = session
        self._stream: Final = stream
        self._where: Final = where
        self._user_properties: Final = user_properties
        self._on_lost: Final = weakref.WeakMethod(on_lost)  # a reading that nobody has any more ends
        self._member: Final = member
        self.waiting: Final[deque[StreamMessage]] = deque()
        self._arrived: Final = asyncio.Event()
        self._opening: asyncio.Future[None] | None = None
        """The subscription; None: it was not tried, or failed."""
        self._has_asked = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_over: bool = False
        """Whether the program gets no more messages."""
        self._has_left = False
        self._error: MqttError | None = None

    async def open(self) -> None:
        """Subscribe, unless that is done. Raises as `Client.subscribe` does, and `ValueError` if the client has this
        subscription. Who is cancelled here leaves it to who comes next."""
        if self._opening is None:
            self._loop = asyncio.get_running_loop()
            self._opening = asyncio.ensure_future(self._subscribe())
        try:
            await asyncio.shield(self._opening)
        except BaseException:
            if self._opening.done():
                self._opening = None  # it failed, and may be tried again
            raise

    async def next(self) -> StreamMessage:
        """The next message; the first one subscribes. Raises `StopAsyncIteration` at the end."""
        await self.open()
        while self.is_over or not self.waiting:
            if self._error is not None:
                raise self._error
            if self.is_over:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return self.waiting.popleft()

    def end(self, error: MqttError | None = None) -> None:
        """The program gets no more messages; iteration raises the error."""
        if not self.is_over:
            self.is_over = True
            self._error = error
            self._arrived.set()

    def leave(self) -> None:
        """Unsubscribe, and make room in the window: behind UNSUBSCRIBE acknowledgements move no position."""
        self.end()
        if self._has_left:
            return
        self._has_left = True
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
        if self._has_asked:
            self._unsubscribe()
        for each in self.waiting:
            each.ack()
        self.waiting.clear()

    def abandon(self) -> None:
        """As `leave`, in any thread: nobody can take messages any more. It does nothing when the event loop is over."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.leave)

    def begin_again_at(self, position: str) -> None:
        """Where to begin if the server loses the session."""
        topic_filter = self.topic_filter.encode()
        self._session.subscribe_again_with(topic_filter, "stream-offset", position)

    # ------------------------------------------------------------------ as `Reader`

    def on_message(self, packet: Publish, receipt: Receipt) -> None:
        """As `Reader`."""
        message = StreamMessage(packet, receipt, self._stream, self._member)
        if self._has_left:  # it was on its way
            message.ack()
            return
        self.waiting.append(message)
        self._arrived.set()

    def on_former(self, packet: Publish, receipt: Receipt) -> None:
        """As `Reader`. The broker has begun anew, and sends it again if it is to come: this acknowledgement moves no
        position, and makes room in the window."""
        receipt.settle()

    def on_connection_lost(self) -> None:
        """As `Reader`."""
        on_lost = self._on_lost()
        if on_lost is not None:
            on_lost()
        self.waiting.clear()

    def on_end(self, error: MqttError) -> None:
        """As `Reader`."""
        self.end(None if isinstance(error, ClientClosed) else error)

    # ------------------------------------------------------------------ inside

    async def _subscribe(self) -> None:
        if self.is_over:
            return
        if self._client.connack_properties.subscription_identifier_available == 0:
            raise MqttError("The server has no subscription identifiers, by which messages of a stream are told.")
        if self._session.is_subscribed(self.topic_filter.encode()):
            raise ValueError(f"the client reads {self.topic_filter} already: stop that first, or use another client")
        identifier = self._session.read_with(self, self.topic_filter.encode())
        self._has_asked = True
        properties = Properties(subscription_identifiers=[identifier], user_properties=self._user_properties)
        try:
            await self._client.subscribe(self.topic_filter, 1, where=self._where, properties=properties)
        except AnswerTimeout:
            self._unsubscribe()  # it may have been granted
            raise

    def _unsubscribe(self) -> None:
        try:
            self._session.leave(self)
        except MqttError as error:  # all packet identifiers are in use
            _log.warning("%s was not unsubscribed: %s", self.topic_filter, error)
