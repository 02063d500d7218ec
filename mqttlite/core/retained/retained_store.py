"""Stores the retained messages by topic, finds them by filter, and limits their number and bytes.

The broker's own messages below `$SYS` are kept apart: they do not count in the limits, and do not go to the store.
Invariant: a replaced or removed message is `superseded`, so that a replay that still holds it skips it.
"""

from typing import Final, final

from mqttlite.core.changes import RemoveRetained, SaveRetained
from mqttlite.core.effects import Effects
from mqttlite.core.limits import (
    ITERATION_BYTES,
    LOOKING_BYTES,
    MAX_OWN_RETAINED,
    RETAINED_LOOKED_AT,
    RETAINED_SWEEP_S,
    Limits,
)
from mqttlite.core.memory import BUCKET_BYTES, RETAINED_BYTES
from mqttlite.core.message import Message
from mqttlite.core.message_filter import MessageFilter
from mqttlite.core.retained.expiry_caps import ExpiryCaps
from mqttlite.core.retained.publish_order import PublishOrder
from mqttlite.core.retained.retained_replay import RetainedReplay
from mqttlite.core.retained.tombstones import entry_bytes
from mqttlite.core.retained.writer import Writer
from mqttlite.topics.names import is_own
from mqttlite.topics.retained import RetainedMessages, Search


@final
class RetainedStore:
    __slots__ = (
        "_buckets",
        "_bytes",
        "_effects",
        "_expiry",
        "_limits",
        "_memory",
        "_messages",
        "_next_sweep",
        "_own",
        "order",
    )

    def __init__(
        self, effects: Effects, limits: Limits, expiry: ExpiryCaps | None = None, newest_retained: bool = False
    ) -> None:
        self._effects: Final = effects
        self._memory: Final = effects.memory
        self._limits: Final = limits
        self._expiry: Final = expiry
        """None: only the messages' own expiry applies."""
        self.order: Final = PublishOrder(effects, newest_retained)
        self._messages: Final[RetainedMessages[Message]] = RetainedMessages()
        self._own: Final[RetainedMessages[Message]] = RetainedMessages()
        self._bytes = 0
        self._buckets = 0
        self._next_sweep = 0.0

    def __len__(self) -> int:
        """The number of retained messages, without the broker's own."""
        return len(self._messages)

    @property
    def own(self) -> int:
        """The number of the broker's own retained messages."""
        return len(self._own)

    @property
    def size_bytes(self) -> int:
        """The memory of the retained messages and the tombstones, without the broker's own messages."""
        return self._bytes + self.order.size_bytes

    def put(self, message: Message, writer: Writer | None = None, comes_dated: bool = False) -> bool:
        """Keep a message in place of the topic's earlier one. An empty payload only removes that one [MQTT-3.3.1-6].
        `writer` wrote it, unless it has a writer already. `comes_dated` is that of `placed`.

        False: the limit is reached. The earlier message is removed in this case, too.
        """
        if message.trace:
            message = message.untraced()
        topic, effects = message.topic, self._effects
        own = is_own(topic)
        size = 0 if own else _entry_bytes(topic)
        had = self._remove(topic, own, size)  # [MQTT-3.3.1-5] [3.1.1 MQTT-3.3.1-7]
        if own:
            if not message.payload:
                return True
            if len(self._own) >= MAX_OWN_RETAINED:
                return False
            self._own.put(topic, message)
            return True
        is_compared = self.order.is_on
        if is_compared:
            had = self.order.exhume(topic) or had or comes_dated
        if not message.payload:
            self._bury(message, not had)
            return True  # [MQTT-3.3.1-7]
        effects.identify(message)
        if self._expiry is not None:
            message = self._expiry.limited(message, effects.now)
        if not self._has_room(message, size):
            if effects.now >= self._next_sweep:
                self._next_sweep = effects.now + RETAINED_SWEEP_S
                self._remove_expired()
            if not self._has_room(message, size):
                self._bury(message, not had)
                return False
        if is_compared:
            self._clear_tombstones(message, size)
        if message.writer is None:
            message.writer = writer
        self._add(message, size)
        effects.changes.append(SaveRetained(message))
        return True

    def placed(self, message: Message, comes_dated: bool = False) -> Message:
        """The message in the order of the topic's messages: without RETAIN if the topic has a newer one. Call it before
        `put`, where the order is on. `comes_dated`: the time in its user property counts."""
        if is_own(message.topic):
            return message
        return self.order.placed(message, self._messages.get(message.topic), comes_dated)

    def would_keep(self, message: Message) -> bool:
        """Whether `put` would keep a client's message without first removing expired ones."""
        return bool(message.payload) and self._has_room(message, _entry_bytes(message.topic))

    def restore(self, message: Message) -> None:
        """Restore a message that a store kept."""
        if not message.payload:
            self.order.restore(message)
            return
        self._add(message, _entry_bytes(message.topic))

    def replay(
        self,
        topic_filter: bytes,
        qos: int,
        identifiers: tuple[int, ...],
        at_once: bool,
        message_filter: MessageFilter | None = None,
    ) -> RetainedReplay:
        """Start a replay of the retained messages that a new filter matches [MQTT-3.3.1-9] [3.1.1 MQTT-3.3.1-6].

        With `at_once`, the search starts now, within the budget of this iteration; the session continues it.
        """
        search = self._kept(topic_filter).search(topic_filter)
        dates = self.order.is_on and not is_own(topic_filter)
        replay = RetainedReplay(search, qos, identifiers, message_filter, dates)
        if not at_once:
            return replay
        effects = self._effects
        while len(search) and effects.pending_bytes < ITERATION_BYTES and len(replay.deliveries) < RETAINED_LOOKED_AT:
            effects.pending_bytes += LOOKING_BYTES * min(len(search), replay.most)
            for message in search.take(replay.most):
                if message.expired(effects.now):
                    self._remove_one_expired(message)
                else:
                    effects.pending_bytes += replay.put(message)
        return replay

    def copies(self, identifier: int) -> RetainedReplay:
        """A replay of all messages and removals, for another broker."""
        replay = self.replay(b"#", 2, (identifier,), False)
        for removal in self.order.removals():
            replay.put(removal)
        return replay

    def get(self, topic: bytes) -> Message | None:
        """The message of a topic, even if it has expired."""
        return self._kept(topic).get(topic)

    def search(self, topic_filter: bytes) -> Search[Message]:
        """The messages that a filter matches, including expired ones."""
        return self._kept(topic_filter).search(topic_filter)

    def _kept(self, topic: bytes) -> RetainedMessages[Message]:
        """The table for a topic or filter: the broker's own messages, or all others."""
        return self._own if is_own(topic) else self._messages

    def _add(self, message: Message, size: int) -> None:
        """Add a message whose entry takes `size` bytes."""
        self._messages.put(message.topic, message)
        self._bytes += self._memory.hold(message, size)
        if message.writer is not None:
            self._memory.hold(message.writer)
        if self._messages.buckets != self._buckets:
            self._charge_buckets()

    def _remove(self, topic: bytes, own: bool, size: int) -> bool:
        """Remove the message of a topic. Its entry takes `size` bytes. Return whether there was one."""
        removed = (self._own if own else self._messages).remove(topic)
        if removed is None:
            return False
        removed.superseded = True
        if not own:
            self._bytes -= self._memory.let_go(removed, size)
            if removed.writer is not None:
                self._memory.let_go(removed.writer)
            if self._messages.buckets != self._buckets:
                self._charge_buckets()
            self._effects.changes.append(RemoveRetained(topic))
        return True

    def _bury(self, message: Message, is_vain: bool) -> None:
        """Remember that a message removed its topic's, or went itself, if there is room beside the messages."""
        if not self.order.is_on:
            return
        tombstone = self.order.tombstone(message)
        size = entry_bytes(message.topic)
        if self._has_room(tombstone, size):
            self._clear_tombstones(tombstone, size)
            self.order.bury(tombstone, is_vain)

    def _charge_buckets(self) -> None:
        size = (self._messages.buckets - self._buckets) * BUCKET_BYTES
        self._buckets = self._messages.buckets
        self._bytes += size
        self._memory.used += size

    def _has_room(self, message: Message, size: int) -> bool:
        """Whether there is room beside the messages, when all tombstones are gone."""
        return self._fits(size + message.memory_bytes, 0, 0, self.order.size_bytes if self.order.is_on else 0)

    def _clear_tombstones(self, message: Message, size: int) -> None:
        """Forget removals until there is room for a message."""
        order = self.order
        while order.tombstones and not self._fits(size + message.memory_bytes, order.tombstones, order.size_bytes, 0):
            order.drop_first()

    def _fits(self, size: int, tombstones: int, tombstone_bytes: int, spare_bytes: int) -> bool:
        """Whether there is room for `size` bytes beside the messages and so many of the tombstones. `spare_bytes` is
        the memory of the others."""
        limits = self._limits
        held = self._bytes + tombstone_bytes
        return (
            len(self._messages) + tombstones < limits.max_retained_messages
            and held + size <= limits.max_retained_bytes
            and size <= self._memory.room_for(held) + spare_bytes
        )

    def _remove_expired(self) -> None:
        for message in self._messages.values():
            if message.expired(self._effects.now):
                self._remove_one_expired(message)

    def _remove_one_expired(self, message: Message) -> None:
        """Remove a retained message that has expired. An older one must not come after it."""
        own = is_own(message.topic)
        self._remove(message.topic, own, 0 if own else _entry_bytes(message.topic))
        if not own:
            self._bury(message, False)


def _entry_bytes(topic: bytes) -> int:
    """The memory of an entry, without the message and the shared prefixes."""
    return RETAINED_BYTES + 2 * len(topic)
