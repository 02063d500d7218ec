"""Remembers removals of retained messages, so that an older message does not come back.

A *tombstone* is a retained message without payload, with the time of the removal in a user property: the store keeps it
in the table of retained messages. Invariant: the one that was made first is the first to go.
"""

from collections import OrderedDict
from typing import Final, final

from mqttlite.core.changes import RemoveRetained, SaveRetained
from mqttlite.core.effects import Effects
from mqttlite.core.limits import TOMBSTONES_SWEPT
from mqttlite.core.memory import RETAINED_BYTES
from mqttlite.core.message import Message


@final
class Tombstones:
    """The caller limits their number and bytes."""

    __slots__ = ("_by_topic", "_effects", "size_bytes")

    def __init__(self, effects: Effects) -> None:
        self._effects: Final = effects
        self._by_topic: Final[OrderedDict[bytes, Message]] = OrderedDict()
        self.size_bytes: int = 0

    def __len__(self) -> int:
        return len(self._by_topic)

    def get(self, topic: bytes) -> Message | None:
        """The tombstone of a topic, unless it has expired."""
        tombstone = self._by_topic.get(topic)
        return None if tombstone is None or tombstone.expired(self._effects.now) else tombstone

    def all(self) -> list[Message]:
        """All of them, the oldest first."""
        return list(self._by_topic.values())

    def add(self, tombstone: Message) -> None:
        """Remember a removal of a topic that has no tombstone."""
        self.restore(tombstone)
        self._effects.changes.append(SaveRetained(tombstone))

    def restore(self, tombstone: Message) -> None:
        """Remember a removal that the store has already."""
        self._by_topic[tombstone.topic] = tombstone
        self.size_bytes += self._effects.memory.hold(tombstone, entry_bytes(tombstone.topic))

    def discard(self, topic: bytes) -> bool:
        """Forget the removal of a topic. Return whether there was one."""
        tombstone = self._by_topic.pop(topic, None)
        if tombstone is None:
            return False
        self.size_bytes -= self._effects.memory.let_go(tombstone, entry_bytes(topic))
        self._effects.changes.append(RemoveRetained(topic))
        return True

    def drop_first(self) -> None:
        """Forget the oldest removal. There is one."""
        self.discard(next(iter(self._by_topic)))

    def drop_expired(self) -> None:
        """Forget some of the removals that have expired."""
        for _ in range(TOMBSTONES_SWEPT):
            if not self._by_topic or not next(iter(self._by_topic.values())).expired(self._effects.now):
                return
            self.drop_first()

    def sort(self) -> None:
        """Put restored ones in the order in which they expire."""
        in_order = sorted(self._by_topic.values(), key=_expiry)
        for tombstone in in_order:
            self._by_topic.move_to_end(tombstone.topic)


def entry_bytes(topic: bytes) -> int:
    """The memory of a tombstone's entry, with the topic in the store, and without the message."""
    return RETAINED_BYTES + len(topic)


def _expiry(tombstone: Message) -> float:
    return tombstone.expires_at
