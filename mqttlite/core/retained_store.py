"""The retained messages: kept by topic, replaced, removed, found by filter, and limited in number and bytes.

The broker's own messages below `$SYS` are kept apart: they take nobody's room, and do not go to the store.
Invariant: a message that was replaced or removed is `superseded`, so that a replay that still holds it skips it.
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
from mqttlite.core.retained_expiry import RetainedExpiry
from mqttlite.core.retained_replay import RetainedReplay
from mqttlite.topics.names import is_own
from mqttlite.topics.retained import RetainedMessages, Search


@final
class RetainedStore:
    __slots__ = ("_buckets", "_bytes", "_effects", "_expiry", "_limits", "_memory", "_messages", "_next_sweep", "_own")

    def __init__(self, effects: Effects, limits: Limits, expiry: RetainedExpiry | None = None) -> None:
        self._effects: Final = effects
        self._memory: Final = effects.memory
        self._limits: Final = limits
        self._expiry: Final = expiry
        """None: messages are kept as long as they say."""
        self._messages: Final[RetainedMessages[Message]] = RetainedMessages()
        self._own: Final[RetainedMessages[Message]] = RetainedMessages()
        self._bytes = 0
        self._buckets = 0
        self._next_sweep = 0.0

    def __len__(self) -> int:
        """Retained messages, without the broker's own."""
        return len(self._messages)

    @property
    def own(self) -> int:
        """Retained messages of the broker's own."""
        return len(self._own)

    @property
    def size_bytes(self) -> int:
        """The memory of the retained messages, without those of the broker itself."""
        return self._bytes

    def put(self, message: Message) -> bool:
        """Keep a message in the place of an earlier one; without payload, only remove that [MQTT-3.3.1-6].

        False: the limit is reached. The earlier message is gone then, too.
        """
        if message.trace:
            message = message.untraced()
        own = is_own(message.topic)
        size = 0 if own else _entry_bytes(message.topic)
        self._remove(message.topic, own, size)  # [MQTT-3.3.1-5] [3.1.1 MQTT-3.3.1-7]
        if not message.payload:
            return True  # [MQTT-3.3.1-7]
        if own:
            if len(self._own) >= MAX_OWN_RETAINED:
                return False
            self._own.put(message.topic, message)
            return True
        self._effects.identify(message)
        if self._expiry is not None:
            message = self._expiry.limited(message, self._effects.now)
        if not self._has_room(message, size):
            if self._effects.now >= self._next_sweep:
                self._next_sweep = self._effects.now + RETAINED_SWEEP_S
                self._remove_expired()
            if not self._has_room(message, size):
                return False
        self._add(message, size)
        self._effects.changes.append(SaveRetained(message))
        return True

    def would_keep(self, message: Message) -> bool:
        """Whether `put` would keep a message of a client, as far as that is known without making room."""
        return bool(message.payload) and self._has_room(message, _entry_bytes(message.topic))

    def remove(self, topic: bytes) -> None:
        """Remove the message of a topic, if there is one."""
        own = is_own(topic)
        self._remove(topic, own, 0 if own else _entry_bytes(topic))

    def restore(self, message: Message) -> None:
        """Put back a message that a store kept."""
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

        With `at_once` as many are looked at now as this loop iteration has room for; the session looks for the rest.
        """
        replay = RetainedReplay(self._kept(topic_filter).search(topic_filter), qos, identifiers, message_filter)
        search = replay.search
        if not at_once:
            return replay
        effects = self._effects
        while len(search) and effects.pending_bytes < ITERATION_BYTES and len(replay.deliveries) < RETAINED_LOOKED_AT:
            effects.pending_bytes += LOOKING_BYTES * min(len(search), replay.most)
            for message in search.take(replay.most):
                if message.expired(effects.now):
                    self.remove(message.topic)
                else:
                    effects.pending_bytes += replay.put(message)
        return replay

    def get(self, topic: bytes) -> Message | None:
        """The message of a topic, an expired one too."""
        return self._kept(topic).get(topic)

    def search(self, topic_filter: bytes) -> Search[Message]:
        """The messages that a filter matches, expired ones among them."""
        return self._kept(topic_filter).search(topic_filter)

    def _kept(self, topic: bytes) -> RetainedMessages[Message]:
        """Where the messages of a topic, or of a filter, are."""
        return self._own if is_own(topic) else self._messages

    def _add(self, message: Message, size: int) -> None:
        """Keep a message, whose entry takes that many bytes."""
        self._messages.put(message.topic, message)
        self._bytes += self._memory.hold(message, size)
        if self._messages.buckets != self._buckets:
            self._charge_buckets()

    def _remove(self, topic: bytes, own: bool, size: int) -> None:
        """Remove the message of a topic, if there is one, whose entry takes that many bytes."""
        removed = (self._own if own else self._messages).remove(topic)
        if removed is None:
            return
        removed.superseded = True
        if not own:
            self._bytes -= self._memory.let_go(removed, size)
            if self._messages.buckets != self._buckets:
                self._charge_buckets()
            self._effects.changes.append(RemoveRetained(topic))

    def _charge_buckets(self) -> None:
        size = (self._messages.buckets - self._buckets) * BUCKET_BYTES
        self._buckets = self._messages.buckets
        self._bytes += size
        self._memory.used += size

    def _has_room(self, message: Message, size: int) -> bool:
        limits = self._limits
        size += message.memory_bytes
        return (
            len(self._messages) < limits.max_retained_messages
            and self._bytes + size <= limits.max_retained_bytes
            and size <= self._memory.room_for(self._bytes)
        )

    def _remove_expired(self) -> None:
        for message in self._messages.values():
            if message.expired(self._effects.now):
                self.remove(message.topic)


def _entry_bytes(topic: bytes) -> int:
    """The memory of the entry of a message, without the message and the prefixes that entries share."""
    return RETAINED_BYTES + 2 * len(topic)
