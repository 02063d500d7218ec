"""Decides which retained message of a topic is the newer one, where brokers that a bridge joins change the same topics.

A user property carries the time at which a message was first published, from broker to broker. Removals, and messages
that have expired, are remembered for a day as tombstones. Invariants: while it is on, each message that it has placed
has one such property, with a time that counts; and brokers that saw the same messages, in whatever order, retain the
same one of each topic.
"""

from typing import Final, final

from mqttlite.core.changes import RemoveRetained
from mqttlite.core.effects import Effects
from mqttlite.core.limits import MAX_CLOCK_AHEAD_S, MAX_TOMBSTONES, MAX_VAIN_TOMBSTONES, TOMBSTONE_S
from mqttlite.core.message import Message, RawProperties
from mqttlite.core.message_numbers import MICROSECONDS
from mqttlite.core.outbound.told_properties import USER_PROPERTY
from mqttlite.core.retained.tombstones import Tombstones
from mqttlite.wire.constants import PUBLISH
from mqttlite.wire.primitives import encode_utf8
from mqttlite.wire.properties import NONE, Properties, encode_properties

PUBLISHED: Final = "mqttlite-published"
"""The user property: the Unix time in microseconds at which a message was first published. In CONNECT and CONNACK it
says that the sender compares retained messages by it."""

_NAME: Final = encode_utf8(PUBLISHED)
_MAX_DIGITS: Final = 17
"""As many as the time has until the year 5138."""
_AHEAD_US: Final = int(MAX_CLOCK_AHEAD_S * MICROSECONDS)


@final
class PublishOrder:
    """`is_on`: the operator wants messages compared. No client can turn it on."""

    __slots__ = ("_effects", "_max_tombstones", "_max_vain", "_removals", "_vain", "is_on", "outdated")

    def __init__(
        self,
        effects: Effects,
        is_on: bool,
        max_tombstones: int = MAX_TOMBSTONES,
        max_vain: int = MAX_VAIN_TOMBSTONES,
    ) -> None:
        self._effects: Final = effects
        self._max_tombstones: Final = max_tombstones
        self._max_vain: Final = max_vain
        self._removals: Final = Tombstones(effects)
        self._vain: Final = Tombstones(effects)
        """Of removals by clients of this broker where nothing was retained: few, for anyone can send them."""
        self.is_on: Final = is_on
        self.outdated: int = 0
        """How many messages were not retained because their topic had a newer one."""

    @property
    def tombstones(self) -> int:
        return len(self._removals) + len(self._vain)

    @property
    def size_bytes(self) -> int:
        """The memory of the tombstones."""
        return self._removals.size_bytes + self._vain.size_bytes

    def placed(self, message: Message, kept: Message | None, comes_dated: bool) -> Message:
        """A message to be retained in place of `kept`: with its time, or without RETAIN if it is outdated.

        `comes_dated`: its sender compares messages, so that the time in its property counts.
        """
        effects = self._effects
        effects.identify(message)
        self._removals.drop_expired()
        self._vain.drop_expired()
        latest = self._tombstone(message.topic) if kept is None else kept
        at = published = _carried_us(message) if comes_dated else 0
        if not at:  # published here: it is newer than everything that this broker knows
            now_us = effects.numbers.next(effects.now)
            published = now_us if latest is None else max(now_us, published_us(latest) + 1)
            message = dated(message, published)
            if published > message.number + _AHEAD_US:  # it was delayed
                message.number = now_us
            return message
        if latest is None or (at, message.payload) >= (published_us(latest), latest.payload):
            return message
        self.outdated += 1
        return message.unretained()

    def tombstone(self, message: Message) -> Message:
        """A tombstone with the time of a message that removed its topic's, or that goes itself."""
        properties = Properties(
            message_expiry_interval=TOMBSTONE_S, user_properties=[(PUBLISHED, str(published_us(message)))]
        )
        raw = RawProperties(encode_properties(properties, PUBLISH), TOMBSTONE_S)
        tombstone = Message(message.topic, b"", 0, True, NONE, self._effects.now + TOMBSTONE_S, raw)
        tombstone.number = message.number
        return tombstone

    def bury(self, tombstone: Message, is_vain: bool) -> None:
        """Remember a removal of a topic that has no tombstone. `is_vain`: nothing was removed."""
        if is_vain:
            self._vain.add(tombstone)
            if len(self._vain) > self._max_vain:
                self._vain.drop_first()
        else:
            self._removals.add(tombstone)
        if self.tombstones > self._max_tombstones:
            self.drop_first()

    def exhume(self, topic: bytes) -> bool:
        """Forget the removal of a topic. Return whether one was remembered that removed something."""
        self._vain.discard(topic)
        return self._removals.discard(topic)

    def drop_first(self) -> None:
        """Forget the removal that is worth least. There is one."""
        (self._vain if len(self._vain) else self._removals).drop_first()

    def removals(self) -> list[Message]:
        """All tombstones."""
        return self._removals.all() + self._vain.all()

    def restore(self, tombstone: Message) -> None:
        """Restore a tombstone that a store kept, or remove it there if it is needed no more."""
        if self.is_on and not tombstone.expired(self._effects.now):
            self._removals.restore(tombstone)
        else:
            self._effects.changes.append(RemoveRetained(tombstone.topic))

    def restored(self) -> None:
        """Everything is restored."""
        self._removals.sort()

    def _tombstone(self, topic: bytes) -> Message | None:
        return self._removals.get(topic) or self._vain.get(topic)


def asks_for_order(properties: Properties) -> bool:
    """Whether CONNECT or CONNACK says that its sender compares retained messages."""
    return any(name == PUBLISHED for name, _value in properties.user_properties)


def dated(message: Message, at_us: int) -> Message:
    """The message with its time, in place of one that it has."""
    return message.with_user_properties(_property(at_us), PUBLISHED if _has_name(message) else "")


def published_us(message: Message) -> int:
    """When a numbered message was first published, as its property or its number says."""
    return _carried_us(message) or message.number


def is_dated(message: Message) -> bool:
    """Whether it has a property with its time."""
    return _carried_us(message) > 0


def _has_name(message: Message) -> bool:
    """Whether it may have the property; does not decode raw properties."""
    if message.raw is not None:
        return _NAME in message.raw.data
    return any(name == PUBLISHED for name, _value in message.properties.user_properties)


def _carried_us(message: Message) -> int:
    """The time in its property, if it has one that is not too far in the future; else 0."""
    if not _has_name(message):
        return 0
    for name, value in reversed(message.properties.user_properties):
        if name == PUBLISHED:
            at = int(value) if value.isascii() and value.isdecimal() and len(value) <= _MAX_DIGITS else 0
            return at if at <= message.number + _AHEAD_US else 0
    return 0


def _property(at_us: int) -> bytes:
    return USER_PROPERTY + _NAME + encode_utf8(str(at_us))
