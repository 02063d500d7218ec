"""One partition of a stream: a log of messages with dense offsets.

The store has all of it. The newest messages are in memory, too, while the stream has readers; without a store on disk
all are. Invariant: a message keeps its offset, and offsets are given in order.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final, Protocol, final

from mqttlite.core.effects import Effects
from mqttlite.core.log_changes import LOG_MARK, Append, MoveHead, RemoveRecord
from mqttlite.core.memory import ENTRY_BYTES
from mqttlite.core.message import Delivery
from mqttlite.extensions.streams.entry import Entry
from mqttlite.extensions.streams.records import SavedSegments
from mqttlite.log.segments import Segments

_NO_ENTRIES: Final[deque[Entry]] = deque()
"""Never added to."""


class Follower(Protocol):
    """A reader that has all messages of a partition."""

    def on_more(self, partition: int) -> None:
        """There are new ones. It follows no longer."""
        ...


AHEAD_US: Final = 1_000_000
"""How far numbers may be ahead of the clock: those of messages that come together rise by one each. Others count for no
segment, so that retention does not wait for a clock that was ahead, and a search for a time takes them for messages of
when they came."""


@final
class Partition:
    __slots__ = (
        "_effects",
        "_family",
        "_latest",
        "clean",
        "clean_bytes",
        "clean_count",
        "end",
        "first",
        "followers",
        "forgettings",
        "key",
        "number",
        "resident_bytes",
        "segments",
        "size_bytes",
        "tail",
        "tail_bytes",
        "tombstone_us",
    )

    def __init__(self, stream: str, number: int, effects: Effects, segments: Segments, is_compacted: bool) -> None:
        self.number: Final = number
        self.key: Final = f"{LOG_MARK}$stream/{stream}/{number}"
        """Its name in changes."""
        self._family: Final = "" if is_compacted else f"$stream/{stream}"
        """Compaction frees messages of one partition, and their place should not wait for those of others."""
        self._effects: Final = effects
        self.segments: Final = segments
        self.first: int = 0
        """The offset of the first message; if there is none, of the next one."""
        self.end: int = 0
        """The offset of the next message."""
        self.size_bytes: int = 0
        """The size of all its messages, as they are counted in memory."""
        self.tail: deque[Entry] = _NO_ENTRIES
        """The newest messages in memory, up to the end."""
        self.tail_bytes: int = 0
        self.followers: Final[dict[Follower, None]] = {}
        self.clean: int = 0
        """The offset before which the messages are compacted, so that some offsets have none."""
        self.clean_count: int = 0
        """How many messages there are before it."""
        self.clean_bytes: int = 0
        """Their size."""
        self.tombstone_us: int = 0
        """When the oldest tombstone before it was published, in microseconds of Unix time; 0: there is none."""
        self.forgettings: int = 0
        """How many tombstones, the newest of their keys, were left out since the start."""
        self._latest = 0
        """The highest number of a message. Numbers rise but where messages were delayed or came from another node,
        which gave them theirs before."""
        self.resident_bytes: int = 0
        """The memory of the messages that only a store in memory has."""

    @property
    def count(self) -> int:
        """How many messages it has."""
        if self.clean <= self.first:
            return self.end - self.first
        return self.clean_count + self.end - self.clean

    @property
    def oldest_us(self) -> int:
        """When its first message was published, in microseconds of Unix time; 0: there is none."""
        return self.segments.oldest if self.end > self.first else 0

    def append(self, delivery: Delivery, keeps: bool, now_us: int) -> bool:
        """Append a message, and record that. `keeps`: it stays in memory. Return whether its record is to be written
        anew."""
        message, effects = delivery.message, self._effects
        effects.identify(message)
        offset = self.end
        self.end += 1
        size = ENTRY_BYTES + message.memory_bytes
        self.size_bytes += size
        effects.record(Append(self.key, offset, delivery, 0, self._family))
        effects.charge_change(message)
        if keeps:
            if self.tail is _NO_ENTRIES:
                self.tail = deque()
            self.tail.append(Entry(self.number, offset, message))
            self.tail_bytes += effects.memory.hold(message, ENTRY_BYTES)
        elif self.tail:
            self.forget(len(self.tail))
        late_us = 0
        if message.number <= now_us + AHEAD_US:  # else its clock is ahead
            late_us = self._note_number(message.number)
        return self.segments.add(offset, max(now_us, self._latest), size, late_us)

    def _note_number(self, number: int) -> int:
        """Count a message. Return by how much its number is lower than the highest one."""
        self._latest = max(self._latest, number)
        return self._latest - number

    def in_memory(self, offset: int) -> Entry | None:
        """The message at an offset, if it is in memory."""
        at = offset - (self.end - len(self.tail))
        return self.tail[at] if 0 <= at < len(self.tail) else None

    def forget(self, count: int) -> None:
        """The first `count` messages in memory leave it."""
        tail, memory = self.tail, self._effects.memory
        for _ in range(count):
            self.tail_bytes -= memory.let_go(tail.popleft().message, ENTRY_BYTES)

    def remove_segment(self) -> int:
        """Remove its first segment, or a part of a large one. Return how many messages that are."""
        size = self.segments.drop_first(self.end)
        following = self.segments.first
        first = self.end if following < 0 else following
        removed = first - self.first
        self.first = first
        self.size_bytes -= size
        self._effects.record(MoveHead(self.key, first))
        self.forget(max(0, first - (self.end - len(self.tail))))
        return removed

    def compact(self, first: int, end: int, count: int, sizes: Mapping[int, tuple[int, int]], in_memory: bool) -> None:
        """The messages before `end` are compacted: `first` is the first one of those that are left, `count` how many
        they are, and for `sizes` see `Segments.resize`. `in_memory`: the store has them in memory."""
        if first > self.first:
            self._effects.record(MoveHead(self.key, first))
            self.first = first
        self.clean, self.clean_count = end, count
        self.clean_bytes = sum([left for _, left in sizes.values()])
        self.size_bytes = self.segments.resize(first, end, self.end, sizes)
        if in_memory:
            self.forget(max(0, end - (self.end - len(self.tail))))
            self._reside(self.clean_bytes)

    def _reside(self, size_bytes: int) -> None:
        self._effects.memory.used += size_bytes - self.resident_bytes
        self.resident_bytes = size_bytes

    def delete(self) -> None:
        """Its stream is deleted."""
        self.forget(len(self.tail))
        self._reside(0)
        self._effects.record(RemoveRecord(self.key))

    def restore(self, first: int, count: int, size_bytes: int, saved: SavedSegments, now_us: int) -> None:
        """The store has `count` messages from `first` on, or fewer if it is compacted."""
        self.first = first
        self.end = first + count
        self._latest = now_us
        if count:
            self.size_bytes = self.segments.restore(
                *(saved.segments, first, size_bytes, now_us), has_gaps=saved.clean > 0, lateness=saved.lateness
            )

    def restore_clean(self, saved: SavedSegments) -> None:
        """All messages are there. How far they were compacted is in their record."""
        self.clean, self.clean_count = min(saved.clean, self.end), saved.clean_count
        self.clean_bytes, self.tombstone_us = saved.clean_bytes, saved.tombstone_us

    def pass_over(self, end: int) -> None:
        """A reader was at `end`: the store has lost the messages before, whose offsets are not given again."""
        if end > self.end:
            if self.first == self.end:
                self.first = end
            self.end = end

    def restore_message(self, delivery: Delivery, offset: int) -> None:
        """The next one of the messages of a store that keeps all in memory. Those before a gap are only there."""
        if self.end == self.first:
            self.first = self.end = offset
        if offset > self.end:
            self._reside(self.resident_bytes + self.tail_bytes)
            self.forget(len(self.tail))
        self.end = offset + 1
        if self.tail is _NO_ENTRIES:
            self.tail = deque()
        self.tail.append(Entry(self.number, offset, delivery.message))
        size = self._effects.memory.hold(delivery.message, ENTRY_BYTES)
        self.tail_bytes += size
        self.size_bytes += size
        late_us = self._note_number(delivery.message.number)
        self.segments.add(offset, self._latest, size, late_us)
