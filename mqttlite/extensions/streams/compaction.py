"""Compacts partitions of last-value streams: of each key, only the newest message stays beyond retention.

A *pass* reads the messages that no pass has seen, to learn which keys have newer ones, and then all messages from the
first one on, and leaves out what is superseded, page by page. Invariants: a step is one commit, and the store is right
before and after it; the newest message of a key goes only after all older ones; one page is read at a time.
"""

from bisect import bisect_right
from hashlib import blake2b
from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.log_changes import Compact
from mqttlite.core.memory import ENTRY_BYTES
from mqttlite.core.message import Message
from mqttlite.core.question import Entries, LoadEntries
from mqttlite.core.session.queue_pages import QueuePages
from mqttlite.extensions.streams.limits import COMPACTED_AT_ONCE, KEY_MEMORY_BYTES, MAX_KEYS_OF_PASS
from mqttlite.extensions.streams.partition import Partition
from mqttlite.extensions.streams.stream import Stream

_WORK: Final = 4
"""The work of looking at a message: microseconds."""

_DIGEST_BYTES: Final = 16


@final
class Compactor:
    """An `EntryReader`. `pages` reads the store."""

    def __init__(self, effects: Effects, pages: QueuePages) -> None:
        self._effects: Final = effects
        self._pages: Final = pages
        self._waiting: Final[dict[Partition, Stream]] = {}
        self._pass: _Pass | None = None
        self._is_asking = False

    def look(self, stream: Stream, partition: Partition) -> None:
        """Compact a partition if it is due."""
        if stream.compacts_to(partition) and (self._pass is None or self._pass.partition is not partition):
            self._waiting[partition] = stream
            self._go_on()

    def forget(self, stream: Stream) -> None:
        """The stream is deleted."""
        for each in stream.partitions:
            self._waiting.pop(each, None)
        if self._pass is not None and self._pass.stream is stream:
            self._pass.end()
            self._pass = None

    def _go_on(self) -> None:
        if not self._is_asking:
            self._is_asking = True
            self._pages.want_entries(self)

    def next_entries(self) -> LoadEntries | None:
        """Implements `EntryReader`."""
        while self._pass is None and self._waiting:
            partition, stream = next(iter(self._waiting.items()))
            del self._waiting[partition]
            end = stream.compacts_to(partition)
            if end:
                self._pass = _Pass(stream, partition, end, self._effects)
        if self._pass is None:
            self._is_asking = False
            return None
        return self._pass.question()

    def take_entries(self, entries: Entries) -> None:
        """Implements `EntryReader`."""
        self._is_asking = False
        latest = self._pass
        if latest is not None and latest.is_asked and latest.take(entries):
            latest.end()
            self._pass = None
            self.look(latest.stream, latest.partition)
        if self._pass is not None or self._waiting:
            self._go_on()


@final
class _Pass:
    """One pass over the messages of a partition before `end`."""

    def __init__(self, stream: Stream, partition: Partition, end: int, effects: Effects) -> None:
        self.stream: Final = stream
        self.partition: Final = partition
        self._end = end
        self._effects: Final = effects
        self._newest: Final[dict[bytes, int]] = {}
        """The offset of the newest message of each key, by its digest, from `partition.clean` on."""
        self._at = max(partition.clean, partition.first)
        """The offset to go on from."""
        self._learns = self._at < end
        if not self._learns:
            self._at = partition.first
        self.is_asked: bool = False
        """Whether the answer to come is for it."""
        self._first = 0
        """The offset of the first message that stays."""
        self._count = 0
        self._sizes: Final[dict[int, tuple[int, int]]] = {}
        """The size of all and of what stays, by the first offset of the segment."""
        self._tombstone_us = 0
        """When the oldest tombstone that stays was published."""

    def question(self) -> LoadEntries:
        """What it reads next."""
        self.is_asked = True
        return LoadEntries(self.partition.key, self._at, self._end, COMPACTED_AT_ONCE)

    def end(self) -> None:
        """It is over."""
        self._effects.memory.used -= KEY_MEMORY_BYTES * len(self._newest)
        self._newest.clear()

    def take(self, entries: Entries) -> bool:
        """Look at the messages. Return whether the pass is over."""
        self.is_asked = False
        self._effects.work += _WORK * len(entries.found)
        if self._learns:
            self._at = self._learn(entries)
            if self._at >= self._end:
                self._learns, self._at = False, self.partition.first
            return False
        self._clean(entries)
        self._at = entries.following
        if self._at >= self._end:
            first = self._first if self._count else self._end
            self.stream.on_compacted(self.partition, first, self._end, self._count, self._sizes, self._tombstone_us)
            return True
        return False

    def _learn(self, entries: Entries) -> int:
        """Remember where the newest messages are. Return the offset to go on from."""
        newest, memory = self._newest, self._effects.memory
        for offset, delivery in entries.found:
            key = self.stream.key_of(delivery.message)
            if key is None:
                continue
            digest = _digest(key)
            if digest not in newest:
                if len(newest) >= MAX_KEYS_OF_PASS:
                    self._end = offset
                    return offset
                memory.used += KEY_MEMORY_BYTES
            newest[digest] = offset
        return entries.following

    def _clean(self, entries: Entries) -> None:
        """Leave out what is superseded, in one commit."""
        kept: list[int] = []
        firsts = self.partition.segments.firsts
        for offset, delivery in entries.found:
            message = delivery.message
            first = firsts[max(0, bisect_right(firsts, offset) - 1)]
            size = ENTRY_BYTES + message.memory_bytes
            every, left = self._sizes.get(first, (0, 0))
            if not self._stays(offset, message):
                if not message.payload and self._is_newest(offset, message):
                    self.partition.forgettings += 1
                self._sizes[first] = every + size, left
                continue
            kept.append(offset)
            self._sizes[first] = every + size, left + size
            if not message.payload and offset + 1 < self.partition.end:
                self._tombstone_us = min(self._tombstone_us or message.number, message.number)
        if kept and not self._count:
            self._first = kept[0]
        self._count += len(kept)
        if len(kept) < len(entries.found):
            end = min(entries.following, self._end)
            self._effects.record(Compact(self.partition.key, self._at, end, tuple(kept)))

    def _stays(self, offset: int, message: Message) -> bool:
        if offset + 1 == self.partition.end:  # it says which offset is the next one
            return True
        if not self._is_newest(offset, message):
            return False
        if not message.payload:
            return not self.stream.may_forget(message)
        return not message.expired(self._effects.now)

    def _is_newest(self, offset: int, message: Message) -> bool:
        """Whether a message is the newest one of its key, as far as the pass knows."""
        key = self.stream.key_of(message)
        return key is not None and self._newest.get(_digest(key), offset) <= offset


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()
