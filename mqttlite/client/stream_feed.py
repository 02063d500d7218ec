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

from mqttlite.client.errors import ClientClosed, MqttError
from mqttlite.client.message import Payload, PublishOutcome
from mqttlite.client.opening import Opening, Subscriber
from mqttlite.client.receipts import Receipt
from mqttlite.client.session import Session
from mqttlite.client.stream_message import MemberOfGroup, StreamMessage
from mqttlite.wire.packets import Publish
from mqttlite.wire.properties import Properties

_log: Final = logging.getLogger("mqttlite.client")


class StreamClient(Subscriber, Protocol):
    """The part of `Client` that a stream uses."""

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
        client: StreamClient,
        session: Session,
        stream: str,
        topic_filter: str,
        where: str | None,
        user_properties: list[tuple[str, str]],
        on_lost: Callable[[], None],
        member: MemberOfGroup | None,
    ) -> None:
        self.topic_filter: Final = topic_filter
        self._session: Final = session
        self._stream: Final = stream
        self._on_lost: Final = weakref.WeakMethod(on_lost)  # a reading that nobody has any more ends
        self._member: Final = member
        self.waiting: Final[deque[StreamMessage]] = deque()
        self._arrived: Final = asyncio.Event()
        self._opening: Final = Opening(
            *(client, session, self, topic_filter, user_properties, self._gets_no_more), where=where
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_over: bool = False
        """Whether the program gets no more messages."""
        self._has_left = False
        self._error: MqttError | None = None

    async def open(self) -> None:
        """Subscribe, unless that is done. Raises as `Client.subscribe` does, and `ValueError` if the client has this
        subscription. Who is cancelled here leaves it to who comes next."""
        if not self._opening.has_begun:
            self._loop = asyncio.get_running_loop()
            if not self.is_over and self._session.is_subscribed(self.topic_filter.encode()):
                raise ValueError(f"the client reads {self.topic_filter} already: stop that, or use another client")
        await self._opening.open()

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
        self._opening.leave()
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

    def _gets_no_more(self) -> bool:
        return self.is_over
