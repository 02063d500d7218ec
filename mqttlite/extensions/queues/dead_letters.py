"""The dead letters of one queue: messages that it gave up, with their cause, until an operator replays or drops them.

Each new one is published to `$dlq/<queue>` as an ordinary message, and kept here and in the store. Invariant: one
commit stores the dead letter and removes the message from the queue.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from mqttlite.core.effects import Effects
from mqttlite.core.log_changes import LOG_MARK, Append, Finish, RemoveRecord, SaveRecord
from mqttlite.core.memory import ENTRY_BYTES
from mqttlite.core.message import Delivery, Message
from mqttlite.core.outbound.told_properties import MESSAGE_ID, PUBLISH_TIME, time_text
from mqttlite.extensions.dedup import DEDUP_ID
from mqttlite.extensions.queues.entry import Entry
from mqttlite.extensions.queues.limits import MAX_DEAD_LETTER_BYTES, MAX_DEAD_LETTERS, MAX_DETAIL
from mqttlite.extensions.queues.marks import mark_of
from mqttlite.filters import Fields
from mqttlite.wire.properties import Properties

QUEUE: Final = "dead-letter-queue"
CAUSE: Final = "dead-letter-cause"
DETAIL: Final = "dead-letter-detail"
TOPIC: Final = "original-topic"
ATTEMPTS: Final = "delivery-attempts"
FIRST: Final = "first-delivery-time"
LAST: Final = "last-delivery-time"

_ADDED: Final = (QUEUE, CAUSE, DETAIL, TOPIC, ATTEMPTS, FIRST, LAST, MESSAGE_ID, PUBLISH_TIME)
"""The user properties of a dead letter after those of its message, in order."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter. Its times are None if the message was never delivered."""

    number: int
    message: Message
    """As it was published to `$dlq/<queue>`."""

    def value(self, name: str) -> str:
        """One of the added properties; empty if absent."""
        for key, value in reversed(self.message.properties.user_properties):
            if key == name:
                return value
        return ""

    def as_published(self) -> Fields:
        """The input for a filter: the original topic, and all properties."""
        return Fields(self.value(TOPIC).encode(), self.message.payload, 1, False, self.message.properties)

    def original(self) -> Message:
        """The original message."""
        properties = self.message.properties
        kept = properties.user_properties
        while kept and kept[-1][0] in _ADDED:
            kept = kept[:-1]
        message = Message(self.value(TOPIC).encode(), self.message.payload, 1, False, _with_user(properties, kept))
        message.number = int(self.value(MESSAGE_ID))
        return message


class DeadLetters:
    """`publish` publishes one of the broker's own messages, `forward` does so later; `wall_ahead_us` is that of
    `Effects.numbers`."""

    def __init__(
        self,
        queue: str,
        effects: Effects,
        publish: Callable[[Message], object],
        forward: Callable[[Message], object],
        wall_ahead_us: int,
    ) -> None:
        self._queue: Final = queue
        self._topic: Final = f"$dlq/{queue}".encode()
        self.key: Final = f"{LOG_MARK}$dlq/{queue}"
        """Its name in the store."""
        self._effects: Final = effects
        self._publish: Final = publish
        self._forward: Final = forward
        self.forward_to: str = ""
        """A topic to which they are published in addition; empty: none."""
        self._wall_ahead_us: Final = wall_ahead_us
        self._letters: Final[dict[int, Message]] = {}
        self._latest = 0
        self._bytes = 0
        self._is_saved = False
        self.total: int = 0
        """New dead letters since the broker started."""
        self.causes: Final[dict[str, int]] = {}
        """The same by cause."""
        self.dropped: int = 0
        """How many were dropped because there were too many."""

    def __len__(self) -> int:
        return len(self._letters)

    def put(self, entry: Entry, cause: str, detail: str = "") -> None:
        """Implements `DeadLetterBox`."""
        source = entry.message
        added = [(QUEUE, self._queue), (CAUSE, cause), (TOPIC, source.topic.decode()), (ATTEMPTS, str(entry.attempts))]
        if detail:
            added.append((DETAIL, detail[:MAX_DETAIL]))
        if entry.last_at:
            added += [(FIRST, self._time(entry.first_at)), (LAST, self._time(entry.last_at))]
        added += [(MESSAGE_ID, str(source.number)), (PUBLISH_TIME, time_text(source.number))]
        properties = _with_user(source.properties, [*source.properties.user_properties, *added])
        message = Message(self._topic, source.payload, 1, False, properties)
        self._effects.identify(message)
        self._make_room(message)
        self._latest += 1
        self.total += 1
        self.causes[cause] = self.causes.get(cause, 0) + 1
        if not self._is_saved:
            self._is_saved = True
            self._effects.record(SaveRecord(self.key, b""))
        self._add(self._latest, message)
        kept = Append(self.key, self._latest, Delivery(message, 1, False), mark_of(self._latest, 0))
        self._effects.record(kept)
        self._effects.charge_change(message)
        self._publish(message)
        if self.forward_to and (QUEUE, self._queue) not in source.properties.user_properties:  # else forwarded before
            kept_properties = [each for each in properties.user_properties if each[0] != DEDUP_ID]
            forwarded = _with_user(properties, kept_properties)  # after a replay it may come a second time
            copy = Message(self.forward_to.encode(), source.payload, 1, False, forwarded)
            self._effects.identify(copy)
            self._forward(copy)

    def letters(self, first: int = 0, most: int = MAX_DEAD_LETTERS) -> Iterator[DeadLetter]:
        """Up to `most` dead letters from number `first` on."""
        numbers = (number for number in list(self._letters) if number >= first)
        return (DeadLetter(number, self._letters[number]) for number in islice(numbers, most))

    def get(self, number: int) -> DeadLetter | None:
        """One of them."""
        message = self._letters.get(number)
        return None if message is None else DeadLetter(number, message)

    def remove(self, number: int) -> None:
        """Remove a dead letter that is replayed or dropped."""
        self._bytes -= self._effects.memory.let_go(self._letters.pop(number), ENTRY_BYTES)
        self._effects.record(Finish(self.key, number))

    def end(self) -> None:
        """The queue is deleted."""
        for message in self._letters.values():
            self._effects.memory.let_go(message, ENTRY_BYTES)
        self._letters.clear()
        self._bytes = 0
        if self._is_saved:
            self._effects.record(RemoveRecord(self.key))

    def restore(self, number: int, message: Message) -> None:
        """Restore a dead letter from the store."""
        self._add(number, message)
        self._latest = max(self._latest, number)

    def restore_saved(self) -> None:
        """The store has a place for them."""
        self._is_saved = True

    def _add(self, number: int, message: Message) -> None:
        self._letters[number] = message
        self._bytes += self._effects.memory.hold(message, ENTRY_BYTES)

    def _make_room(self, message: Message) -> None:
        while self._letters and (
            len(self._letters) >= MAX_DEAD_LETTERS
            or self._bytes + message.memory_bytes + ENTRY_BYTES > MAX_DEAD_LETTER_BYTES
        ):
            self.dropped += 1
            self.remove(next(iter(self._letters)))

    def _time(self, at: float) -> str:
        return time_text(self._wall_ahead_us + int(at * 1_000_000))


def _with_user(properties: Properties, user_properties: list[tuple[str, str]]) -> Properties:
    """The properties without expiry and with other user properties."""
    return Properties(
        payload_format_indicator=properties.payload_format_indicator,
        content_type=properties.content_type,
        response_topic=properties.response_topic,
        correlation_data=properties.correlation_data,
        user_properties=user_properties,
    )
