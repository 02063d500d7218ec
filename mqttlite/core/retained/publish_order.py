"""Decides which retained message of a topic is the newer one, where brokers that a bridge joins change the same topics.

A user property carries the time at which a message was first published, from broker to broker. Removals are remembered
for a day as *tombstones*, so that an older message does not come back. Invariant: brokers that saw the same messages,
in whatever order, retain the same one of each topic.
"""

from typing import Final, final

from mqttlite.core.changes import RemoveRetained, SaveRetained
from mqttlite.core.effects import Effects
from mqttlite.core.limits import MAX_CLOCK_AHEAD_S, MAX_TOMBSTONES, TOMBSTONE_S
from mqttlite.core.log_changes import LOG_MARK, SaveRecord
from mqttlite.core.memory import RETAINED_BYTES
from mqttlite.core.message import Message, RawProperties
from mqttlite.core.message_numbers import MICROSECONDS
from mqttlite.core.outbound.told_properties import USER_PROPERTY
from mqttlite.wire.constants import PUBLISH
from mqttlite.wire.primitives import encode_utf8
from mqttlite.wire.properties import NONE, Properties, encode_properties

PUBLISHED: Final = "mqttlite-published"
"""The user property: the Unix time in microseconds at which a message was first published. In CONNECT and CONNACK it
says that the sender compares retained messages by it."""

ORDER_KEY: Final = LOG_MARK + "retained-order"
"""The record that says that messages are compared: a bridge has joined the broker to another one."""

_NAME: Final = encode_utf8(PUBLISHED)
_MAX_DIGITS: Final = 17
"""As many as the time has until the year 5138."""


@final
class PublishOrder:
    """Off until a bridge joins the broker to another one that compares, too; then on, also after a restart."""

    __slots__ = ("_effects", "_max_tombstones", "_tombstones", "is_on", "outdated")

    def __init__(self, effects: Effects, max_tombstones: int = MAX_TOMBSTONES) -> None:
        self._effects: Final = effects
        self._max_tombstones: Final = max_tombstones
        self._tombstones: dict[bytes, Message] = {}
        """Without payload, by topic, the one that expires first at the beginning."""
        self.is_on: bool = False
        self.outdated: int = 0
        """How many messages were not retained because their topic had a newer one."""

    @property
    def tombstones(self) -> int:
        return len(self._tombstones)

    def begin(self) -> None:
        """Compare from now on."""
        if not self.is_on:
            self.is_on = True
            self._effects.changes.append(SaveRecord(ORDER_KEY, b""))

    def placed(self, message: Message, kept: Message | None) -> Message:
        """A message to be retained in place of `kept`: with its time, or without RETAIN if it is outdated."""
        effects = self._effects
        effects.identify(message)
        latest = self._tombstones.get(message.topic) if kept is None else kept
        at = _carried_us(message)
        if not at:  # published here: it is newer than everything that this broker knows
            now_us = effects.numbers.next(effects.now)
            return dated(message, now_us if latest is None else max(now_us, published_us(latest) + 1))
        if latest is None or latest.expired(effects.now):
            return message
        if (at, message.payload) >= (published_us(latest), latest.payload):
            return message
        self.outdated += 1
        return message.unretained()

    def bury(self, message: Message) -> None:
        """The topic's message was removed by this one."""
        effects, topic = self._effects, message.topic
        self.exhume(topic)
        properties = Properties(
            message_expiry_interval=TOMBSTONE_S, user_properties=[(PUBLISHED, str(published_us(message)))]
        )
        raw = RawProperties(encode_properties(properties, PUBLISH), TOMBSTONE_S)
        tombstone = Message(topic, b"", 0, True, NONE, effects.now + TOMBSTONE_S, raw)
        tombstone.number = message.number
        self._add(tombstone)
        effects.changes.append(SaveRetained(tombstone))
        while True:
            first = next(iter(self._tombstones.values()))
            if len(self._tombstones) <= self._max_tombstones and not first.expired(effects.now):
                return
            self.exhume(first.topic)

    def exhume(self, topic: bytes) -> None:
        """Forget the removal of a topic, if there is one."""
        tombstone = self._tombstones.pop(topic, None)
        if tombstone is not None:
            self._effects.memory.let_go(tombstone, _entry_bytes(topic))
            self._effects.changes.append(RemoveRetained(topic))

    def restore(self, tombstone: Message) -> None:
        """Restore a tombstone that a store kept."""
        self._add(tombstone)

    def restored(self) -> None:
        """Everything is restored."""
        self._tombstones = dict(sorted(self._tombstones.items(), key=_expiry))

    def _add(self, tombstone: Message) -> None:
        self._tombstones[tombstone.topic] = tombstone
        self._effects.memory.hold(tombstone, _entry_bytes(tombstone.topic))


def asks_for_order(properties: Properties) -> bool:
    """Whether CONNECT or CONNACK says that its sender compares retained messages."""
    return any(name == PUBLISHED for name, _value in properties.user_properties)


def dated(message: Message, at_us: int) -> Message:
    """The message with its time."""
    return message.with_user_properties(_property(at_us))


def published_us(message: Message) -> int:
    """When a numbered message was first published, as its property or its number says."""
    return _carried_us(message) or message.number


def is_dated(message: Message) -> bool:
    """Whether it has a property with its time."""
    return _carried_us(message) > 0


def _carried_us(message: Message) -> int:
    """The time in its property, if it has one that is not too far in the future; else 0."""
    raw = message.raw
    if raw is not None and _NAME not in raw.data:
        return 0
    for name, value in reversed(message.properties.user_properties):
        if name == PUBLISHED:
            at = int(value) if value.isascii() and value.isdecimal() and len(value) <= _MAX_DIGITS else 0
            return at if at <= message.number + int(MAX_CLOCK_AHEAD_S * MICROSECONDS) else 0
    return 0


def _property(at_us: int) -> bytes:
    return USER_PROPERTY + _NAME + encode_utf8(str(at_us))


def _entry_bytes(topic: bytes) -> int:
    return RETAINED_BYTES + len(topic)


def _expiry(entry: tuple[bytes, Message]) -> float:
    return entry[1].expires_at
