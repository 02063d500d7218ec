"""Consuming a queue of an mqttlite broker: `async for message in client.queue("jobs")`, or a handler that is run.

What a message can say is in `queue_message`, how handlers run in `queue_handlers`. Invariants: what came and was not
given to the program when the connection was lost is not given to it any more, for the broker delivers it again; a
message that is given back is given back behind UNSUBSCRIBE, so that it does not come here again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Final, final

from mqttlite.client.errors import ClientClosed, MqttError
from mqttlite.client.inflight import Outgoing
from mqttlite.client.message import PublishOutcome
from mqttlite.client.opening import Opening, Subscriber
from mqttlite.client.queue_handlers import EXTEND_BY_S, MAX_EXTENSION_S, STOP_TIMEOUT_S, Handler, Handlers
from mqttlite.client.queue_message import EXTEND, NACK, QueueMessage
from mqttlite.client.receipts import Receipt
from mqttlite.client.session import Session
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import publish_parts
from mqttlite.wire.packets import Publish
from mqttlite.wire.properties import NONE
from mqttlite.wire.reason_codes import ReasonCode

MAX_LINES: Final = 1_000
"""Messages that one publish to the queue names: as many as the broker takes."""

_log: Final = logging.getLogger("mqttlite.client")


@final
class Queue:
    """A consumer, used once. It ends with the client, or when the connection is lost for good, which it raises."""

    def __init__(
        self, client: Subscriber, session: Session, name: str, topic_filter: str, options: Mapping[str, str]
    ) -> None:
        self.topic_filter: Final[str] = f"$queue/{name}/{topic_filter}" if topic_filter else f"$queue/{name}"
        """The topic filter to which it subscribes."""
        self.name: Final = name
        self._session: Final = session
        self._waiting: Final[deque[QueueMessage]] = deque()
        self._in_hand: Final[dict[QueueMessage, None]] = {}
        """Those that the program has and did not settle; each counts for the broker's window, which bounds them."""
        self._arrived: Final = asyncio.Event()
        self._ended: Final = asyncio.Event()
        self._opening: Final = Opening(
            *(client, session, self, self.topic_filter, list(options.items()), self._ended.is_set)
        )
        self._error: MqttError | None = None

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, {len(self._waiting)} messages wait, {len(self._in_hand)} in hand)"

    def __len__(self) -> int:
        """Messages that wait for the program."""
        return len(self._waiting)

    async def __aenter__(self) -> "Queue":
        """Subscribe. Raises as `Client.subscribe` does."""
        await self._opening.open()
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.stop()
        self.give_back(list(self._in_hand))

    def __aiter__(self) -> "Queue":
        return self

    async def __anext__(self) -> QueueMessage:
        """The next message; the first one subscribes. Raises as `Client.subscribe` does."""
        await self._opening.open()
        while not self._waiting:
            if self._error is not None:
                raise self._error
            if self._ended.is_set():
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        message = self._waiting.popleft()
        self._in_hand[message] = None
        return message

    async def run(
        self,
        handler: Handler,
        *,
        concurrency: int = 1,
        nack_delay: float | None = None,
        extend_by: float = EXTEND_BY_S,
        max_extension: float = MAX_EXTENSION_S,
        stop_timeout: float = STOP_TIMEOUT_S,
    ) -> None:
        """Have `handler` handle messages, `concurrency` at a time, until `stop` is called or the client ends.

        A coroutine function runs in the event loop, another in a thread. When it returns, the message is acknowledged;
        when it raises, that is logged, and the message refused with `nack_delay` as its `delay`; unless it did either
        itself. Meanwhile all messages that are here have their deadlines extended by `extend_by` seconds, three times
        in that time, for `max_extension` seconds at most; give less for a queue with deadlines of less than 4 seconds.

        After `stop`, handlers may go on for `stop_timeout` seconds; then they are cancelled (but for threads, which
        cannot be), and their messages are given back. To cancel `run` does so at once.
        """
        await self._opening.open()
        handlers = Handlers(self, handler, concurrency, nack_delay)
        await handlers.run(extend_by, max_extension, stop_timeout)

    def stop(self) -> None:
        """Take no more messages: give back those that wait, and let iteration and `run` end. Harmless when repeated."""
        if self._ended.is_set():
            return
        self._end(None)
        self._opening.leave()
        waiting = list(self._waiting)
        self._waiting.clear()
        self.give_back(waiting)

    # ------------------------------------------------------------------ for the messages, and who runs handlers

    async def ended(self) -> None:
        """Wait until no more messages are taken. Raises why the client ended, if it was not closed."""
        await self._ended.wait()
        if self._error is not None:
            raise self._error

    def tell(self, action: str, lines: list[str]) -> None:
        """Publish to the queue what PUBACK cannot say; it is sent again in a later connection if need be."""
        topic = f"$queue/{self.name}/{action}"
        head, tail = publish_parts(topic.encode(), "\n".join(lines).encode(), 1, False, NONE, V5)
        try:
            self._session.window.place(Outgoing(topic, head, tail, 1, False, _Ignored(), holds_room=False))
        except MqttError as error:
            _log.warning("The queue %s was not told %s: %s", self.name, action, error)

    def forget(self, message: QueueMessage) -> None:
        """A message is settled."""
        self._in_hand.pop(message, None)

    def give_back(self, messages: list[QueueMessage]) -> None:
        """Refuse messages so that others get them at once."""
        back = [each for each in messages if not (each.is_settled or each.is_lost)]
        for at in range(0, len(back), MAX_LINES):
            self.tell(NACK, [f"{each.ack_id} 0" for each in back[at : at + MAX_LINES]])
        for each in back:
            each.settle(ReasonCode.UNSPECIFIED_ERROR)

    def extend_all(self, seconds: float, arrived_after: float) -> None:
        """Extend the deadlines of the messages that are here, and not since before that time."""
        here = [each for each in (*self._in_hand, *self._waiting) if not each.is_lost]
        lines = [f"{each.ack_id} {seconds:.3f}" for each in here if each.arrived_at > arrived_after]
        for at in range(0, len(lines), MAX_LINES):
            self.tell(EXTEND, lines[at : at + MAX_LINES])

    # ------------------------------------------------------------------ as `Reader`

    def on_message(self, packet: Publish, receipt: Receipt) -> None:
        """As `Reader`."""
        message = QueueMessage(packet, receipt, self)
        if self._ended.is_set():  # it was on its way
            self.give_back([message])
            return
        self._waiting.append(message)
        self._arrived.set()

    def on_former(self, packet: Publish, receipt: Receipt) -> None:
        """As `Reader`. It is leased to this client, and does not come again before its deadline."""
        self.on_message(packet, receipt)

    def on_connection_lost(self) -> None:
        """As `Reader`."""
        self._waiting.clear()

    def on_end(self, error: MqttError) -> None:
        """As `Reader`."""
        self._end(None if isinstance(error, ClientClosed) else error)

    # ------------------------------------------------------------------ inside

    def _end(self, error: MqttError | None) -> None:
        if not self._ended.is_set():
            self._error = error
            self._ended.set()
            self._arrived.set()


@final
class _Ignored:
    """As `Waiter`: nobody waits for what the broker says, but refusals are logged."""

    def done(self) -> bool:
        return False

    def set_result(self, result: PublishOutcome, /) -> None:
        """It has heard."""

    def set_exception(self, error: MqttError, /) -> None:
        if not isinstance(error, ClientClosed):
            _log.warning("%s", error)
