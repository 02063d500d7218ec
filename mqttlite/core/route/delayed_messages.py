"""Keeps messages that were published to `$delayed/<seconds>/<topic>` until they are due.

A kept message has the topic behind the prefix, and its expiry interval counts from its arrival. When it is due, the
router publishes it like any other. QoS 1 and 2 messages are durable, because they were acknowledged, and so are
retained ones. The others are lost when the broker stops, like QoS 0 messages in an outbox.

Invariant: a durable message is in the store until all receivers have it. One commit holds its removal and the changes
of its receivers' sessions. If there are too many receivers for one iteration, there are several commits, and the last
one holds the removal. A broker that is killed between them publishes the message again.
"""

from bisect import bisect_left
from typing import Final, final

from mqttlite.core.changes import RemoveDelayed, SaveDelayed
from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.effects import Effects
from mqttlite.core.identity import Identity
from mqttlite.core.limits import Limits
from mqttlite.core.memory import DELAYED_BYTES
from mqttlite.core.message import Message
from mqttlite.core.reasons import EXPIRED, PURGED
from mqttlite.core.route.due_messages import DueMessages
from mqttlite.core.route.fan_out import FanOut
from mqttlite.core.route.router import Router
from mqttlite.core.route.routes import Routes
from mqttlite.core.session.session import Session
from mqttlite.core.source import CLIENT, Source

DELAYS_FULL: Final = "$delayed/…: the broker has no room for more delayed messages"
"""The reason that a refused publisher gets."""

_ASKED_BEFORE: Final = Identity(is_trusted=True)
"""The identity of a publisher without a session: the rules were asked when its message came."""


@final
class DelayedMessages:
    """`sessions` are all sessions by client identifier."""

    __slots__ = (
        "_by_number",
        "_bytes",
        "_deadlines",
        "_due_messages",
        "_effects",
        "_latest",
        "_limits",
        "_router",
        "_routes",
        "_sessions",
    )

    def __init__(
        self,
        sessions: dict[str, Session],
        routes: Routes,
        router: Router,
        due_messages: DueMessages,
        deadlines: Deadlines,
        effects: Effects,
        limits: Limits,
    ) -> None:
        self._sessions: Final = sessions
        self._routes: Final = routes
        self._router: Final = router
        self._due_messages: Final = due_messages
        self._deadlines: Final = deadlines
        self._effects: Final = effects
        self._limits: Final = limits
        self._by_number: Final[dict[int, DelayedMessage]] = {}
        """Ordered by number, which is the order of arrival."""
        self._latest = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._by_number)

    @property
    def size_bytes(self) -> int:
        """The memory of the delayed messages."""
        return self._bytes

    def put(self, message: Message, delay_s: int, source: Source) -> bool:
        """Publish a message to its topic after `delay_s`; False if there is no room for it."""
        size = DELAYED_BYTES + message.memory_bytes
        if (
            len(self._by_number) >= self._limits.max_delayed_messages
            or self._bytes + size > self._limits.max_delayed_bytes
            or size > self._effects.memory.room_for(self._bytes)
        ):
            return False
        self._effects.identify(message)
        if message.retain and self._routes.permissions.restricts:
            message.writer = source.writer()
        number = self._latest + 1
        due_at = self._effects.now + delay_s
        self._add(number, message, source.client_id, due_at)
        if is_durable(message):
            self._effects.record(SaveDelayed(number, message, due_at, source.client_id))
        return True

    def restore(self, saved: SaveDelayed) -> None:
        """Restore a message that a store kept. If it is already due, the next `tick` publishes it."""
        self._add(saved.number, saved.message, saved.client_id, saved.due_at)

    def cancel(self, number: int) -> bool:
        """Drop a message. False if the number is unknown or the message is already due."""
        delayed = self._by_number.get(number)
        if delayed is None or delayed.is_due:
            return False
        self._deadlines.cancel(delayed)
        self._drop(delayed, PURGED)
        return True

    def page(self, first: int, limit: int) -> "list[DelayedMessage]":
        """Up to `limit` messages in the order of their numbers, from `first` on.

        It copies all numbers, which takes a millisecond for 100,000 messages.
        """
        numbers = list(self._by_number)
        start = bisect_left(numbers, first)
        return [self._by_number[number] for number in numbers[start : start + limit]]

    def on_due(self, delayed: "DelayedMessage") -> None:
        """A message is due."""
        self._due_messages.publish(delayed)

    def publish(self, delayed: "DelayedMessage") -> FanOut | None:
        """Publish a due message. None if it has expired. No Local applies to its publisher's session."""
        message = delayed.message
        if message.expired(self._effects.now):
            self._drop(delayed, EXPIRED)
            return None
        client_id = delayed.client_id
        source: Source | None = self._sessions.get(client_id)
        if source is None:
            source = Source(CLIENT, client_id, _ASKED_BEFORE)
        return self._router.publish(message, self._routes.find(message.topic), source, is_allowed=True)

    def remove(self, delayed: "DelayedMessage") -> None:
        """Remove a message that was published or dropped."""
        del self._by_number[delayed.number]
        message, memory = delayed.message, self._effects.memory
        self._bytes -= memory.let_go(message, DELAYED_BYTES)
        if message.writer is not None:
            memory.let_go(message.writer)
        if is_durable(message):
            self._effects.record(RemoveDelayed(delayed.number))

    def _add(self, number: int, message: Message, client_id: str, due_at: float) -> None:
        self._latest = number
        delayed = self._by_number[number] = DelayedMessage(self, number, message, client_id)
        self._bytes += self._effects.memory.hold(message, DELAYED_BYTES)
        if message.writer is not None:
            self._effects.memory.hold(message.writer)
        self._deadlines.arm(delayed, due_at)

    def _drop(self, delayed: "DelayedMessage", reason: str) -> None:
        self._router.drops.add(reason, 1, delayed.message.topic)
        self.remove(delayed)


@final
class DelayedMessage(Deadline):
    """One delayed message, which becomes a `Due` message. Messages with the same time become due in their order."""

    __slots__ = ("_delayed_messages", "client_id", "is_due", "message", "number")

    def __init__(self, delayed_messages: DelayedMessages, number: int, message: Message, client_id: str) -> None:
        super().__init__()
        self._delayed_messages: Final = delayed_messages
        self.number: Final = number
        self.message: Final = message
        self.client_id: Final = client_id
        """The client identifier of its publisher; empty if that is not a client."""
        self.is_due: bool = False

    def on_due(self) -> None:
        self.is_due = True
        self._delayed_messages.on_due(self)

    def follows_wall(self) -> bool:
        return True

    def publish(self) -> FanOut | None:
        return self._delayed_messages.publish(self)

    def on_published(self) -> None:
        self._delayed_messages.remove(self)


def is_durable(message: Message) -> bool:
    """Whether the store keeps a delayed message."""
    return message.qos > 0 or message.retain
