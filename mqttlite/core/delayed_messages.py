"""The messages that were published to `$delayed/<seconds>/<topic>` and are not due yet.

A message is for its topic, and its expiry interval counts from now on; for the router it is published when it is due,
as any other. Two kinds are durable, as they would be after that: those of QoS 1 and 2, for they were acknowledged, and
those with RETAIN. The others are lost when the broker stops, as are QoS 0 messages in an outbox.

Invariant: a durable message is in the store until all receivers have it. One commit holds its removal and what it adds
to the sessions of its receivers, but for a message with very many of them: their sessions get it in several commits,
the last of which holds the removal. If the broker is killed between those, the message is published once more.
"""

from bisect import bisect_left
from typing import Final, final

from mqttlite.core.changes import RemoveDelayed, SaveDelayed
from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.due_messages import DueMessages
from mqttlite.core.effects import Effects
from mqttlite.core.fan_out import FanOut
from mqttlite.core.limits import Limits
from mqttlite.core.memory import DELAYED_BYTES
from mqttlite.core.message import Message
from mqttlite.core.reasons import EXPIRED, PURGED
from mqttlite.core.router import Router
from mqttlite.core.routes import Routes
from mqttlite.core.session import Session
from mqttlite.core.source import CLIENT, Source

DELAYS_FULL: Final = "$delayed/…: the broker has no room for more delayed messages"
"""Told to the publisher of a message that is refused."""


@final
class DelayedMessages:
    """`sessions` are all sessions, by client identifier."""

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
        """In the order of the numbers, which is that in which the messages came."""
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
        number = self._latest + 1
        due_at = self._effects.now + delay_s
        self._add(number, message, source.client_id, due_at)
        if is_durable(message):
            self._effects.record(SaveDelayed(number, message, due_at, source.client_id))
        return True

    def restore(self, saved: SaveDelayed) -> None:
        """Put back a message that a store kept; one that was due meanwhile is published at the next `tick`."""
        self._add(saved.number, saved.message, saved.client_id, saved.due_at)

    def cancel(self, number: int) -> bool:
        """Drop a message; False where there is none of that number, or it is due."""
        delayed = self._by_number.get(number)
        if delayed is None or delayed.is_due:
            return False
        self._deadlines.cancel(delayed)
        self._drop(delayed, PURGED)
        return True

    def page(self, first: int, limit: int) -> "list[DelayedMessage]":
        """The messages with the lowest numbers from `first` on, `limit` at most.

        It copies all numbers: a millisecond for 100,000 messages.
        """
        numbers = list(self._by_number)
        start = bisect_left(numbers, first)
        return [self._by_number[number] for number in numbers[start : start + limit]]

    def on_due(self, delayed: "DelayedMessage") -> None:
        """The time of a message has come."""
        self._due_messages.publish(delayed)

    def publish(self, delayed: "DelayedMessage") -> FanOut | None:
        """Publish a message that is due; None where it has expired. No Local holds for its publisher's session."""
        message = delayed.message
        if message.expired(self._effects.now):
            self._drop(delayed, EXPIRED)
            return None
        client_id = delayed.client_id
        source: Source | None = self._sessions.get(client_id)
        if source is None:
            source = Source(CLIENT, client_id)
        return self._router.publish(message, self._routes.find(message.topic), source, is_allowed=True)

    def remove(self, delayed: "DelayedMessage") -> None:
        """A message is published, or dropped."""
        del self._by_number[delayed.number]
        self._bytes -= self._effects.memory.let_go(delayed.message, DELAYED_BYTES)
        if is_durable(delayed.message):
            self._effects.record(RemoveDelayed(delayed.number))

    def _add(self, number: int, message: Message, client_id: str, due_at: float) -> None:
        self._latest = number
        delayed = self._by_number[number] = DelayedMessage(self, number, message, client_id)
        self._bytes += self._effects.memory.hold(message, DELAYED_BYTES)
        self._deadlines.arm(delayed, due_at)

    def _drop(self, delayed: "DelayedMessage", reason: str) -> None:
        self._router.drops.add(reason, 1, delayed.message.topic)
        self.remove(delayed)


@final
class DelayedMessage(Deadline):
    """One of them; a `Due` message once its time has come. Messages with one time become due in their order."""

    __slots__ = ("_delayed_messages", "client_id", "is_due", "message", "number")

    def __init__(self, delayed_messages: DelayedMessages, number: int, message: Message, client_id: str) -> None:
        super().__init__()
        self._delayed_messages: Final = delayed_messages
        self.number: Final = number
        self.message: Final = message
        self.client_id: Final = client_id
        """Of its publisher; empty where that is no client."""
        self.is_due: bool = False

    def on_due(self) -> None:
        self.is_due = True
        self._delayed_messages.on_due(self)

    def publish(self) -> FanOut | None:
        return self._delayed_messages.publish(self)

    def on_published(self) -> None:
        self._delayed_messages.remove(self)


def is_durable(message: Message) -> bool:
    """Whether a delayed message is kept in the store."""
    return message.qos > 0 or message.retain
