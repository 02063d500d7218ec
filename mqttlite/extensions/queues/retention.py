"""Tracks which ended messages a queue retains, and which sequences it skips.

The store keeps all sequences of a queue from `floor` on. Those before the first waiting one are under way, or
*retained*: acknowledged, or skipped by a seek. A seek moves the first waiting one, so that retained messages wait
again, except those that are `gone`. Invariant: the state here and the change of the message are in the same commit.
"""

from typing import Final, final

import msgspec

from mqttlite.core.effects import Effects
from mqttlite.core.log_changes import LOG_MARK, KeepFrom, RemoveRecord, SaveRecord
from mqttlite.extensions.queues.limits import MAX_GONE, MAX_LATE, RETENTION_STEPS
from mqttlite.log.ranges import Ranges

SEEK_MARK: Final = f"{LOG_MARK}$seek/"
BLOCK_MARK: Final = f"{LOG_MARK}$sequences/"
"""The prefix of record names in the store: the seek state, and blocks of `gone` and `late`."""

_BLOCK_SHIFT: Final = 12
"""A block covers 4,096 sequences and takes some kilobytes. It is rewritten when they change."""


@final
class Retention:
    """`name` is that of the queue."""

    __slots__ = (
        "_blocks",
        "_effects",
        "_name",
        "_queue_key",
        "ahead",
        "count",
        "cutoff",
        "cutoff_end",
        "epoch",
        "floor",
        "gone",
        "late",
        "latest",
        "marks",
        "passes_end",
        "size_bytes",
        "skipped",
    )

    def __init__(self, name: str, queue_key: str, effects: Effects) -> None:
        self._name: Final = name
        self._queue_key: Final = queue_key
        self._effects: Final[Effects] = effects
        self._blocks: Final[set[int]] = set()
        """The blocks in the store."""
        self.floor: int = -1
        """The first sequence that the store keeps; -1: it keeps only unfinished messages."""
        self.count: int = 0
        """How many messages are retained."""
        self.size_bytes: int = 0
        """About how much memory they would take."""
        self.gone: Final = Ranges()
        """Sequences from the floor on that cannot come back: dead letters, expired and missing messages."""
        self.skipped: Final = Ranges()
        """Retained sequences that the latest seek skipped although it went back before them."""
        self.late: Final = Ranges()
        """Sequences of messages with a lower number than earlier ones, for example replayed dead letters."""
        self.latest: int = 0
        """The highest message number in the queue."""
        self.cutoff: int = 0
        self.cutoff_end: int = 0
        """Messages with a number below `cutoff` and a sequence below `cutoff_end` are skipped."""
        self.epoch: int = 0
        """How often a seek went back. An `ack-id` belongs to one epoch."""
        self.ahead: int = 0
        """How many of the waiting sequences are gone or skipped."""
        self.passes_end: int = 0
        """From this sequence on no waiting one is skipped."""
        self.marks: Final[list[tuple[int, int]]] = []
        """Samples of (sequence, number), which tell the age of earlier messages."""

    # ------------------------------------------------------------------ what comes and goes

    def on_late(self, sequence: int) -> bool:
        """A message arrived with a lower number than an earlier one. Return whether to `forget` others now."""
        is_first = sequence >> _BLOCK_SHIFT not in self._blocks
        self.late.add(sequence, sequence + 1)
        if len(self.late) > MAX_LATE:  # merging loses precision, which is safe
            self.late.add(self.late.first_of(0), self.late.first_of(MAX_LATE // 2))
        self._save_blocks(sequence, sequence + 1)
        return is_first

    def mark(self, sequence: int, number: int, retention_us: int) -> bool:
        """Take a sample for the age of messages, unless the last one is recent."""
        if self.marks and number - self.marks[-1][1] < retention_us // RETENTION_STEPS:
            return False
        self.marks.append((sequence, number))
        del self.marks[: -2 * RETENTION_STEPS]
        self.save()
        return True

    def older_than(self, number: int) -> int:
        """A sequence before which all messages have a lower number than this; -1 if none is known."""
        found = -1
        for sequence, at in self.marks:
            if at > number:
                break
            found = sequence
        return found

    def on_retained(self, sequence: int, size: int) -> None:
        """A message was acknowledged or skipped."""
        if 0 <= self.floor <= sequence:
            self.count += 1
            self.size_bytes += size

    def on_gone(self, sequence: int) -> None:
        """A message ended in another way."""
        if 0 <= self.floor <= sequence:
            self.add_gone(sequence, sequence + 1)

    def add_gone(self, first: int, end: int) -> None:
        """Mark these sequences as gone."""
        if first < end:
            self.gone.add(first, end)
            self._save_blocks(first, end)

    @property
    def has_too_many_gone(self) -> bool:
        return len(self.gone) > MAX_GONE

    # ------------------------------------------------------------------ what waits

    def is_hole(self, sequence: int) -> bool:
        """Whether there is no deliverable message with this sequence."""
        return sequence in self.gone or sequence in self.skipped

    def holes(self, first: int, end: int) -> int:
        """How many such sequences there are from `first` to before `end`."""
        return self.gone.count(first, end) + self.skipped.count(first, end)

    def skip(self, ranges: list[tuple[int, int]]) -> None:
        """Replace the skipped ranges."""
        self.skipped.clear()
        for first, end in ranges:
            at = first
            for gone_first, gone_end in self.gone.within(first, end):
                self.skipped.add(at, gone_first)
                at = gone_end
            self.skipped.add(at, end)

    def look_ahead(self, head: int, tail: int) -> None:
        """Update the counts for the waiting sequences from `head` to before `tail`."""
        self.ahead = self.holes(head, tail)
        self.passes_end = max(self.gone.end, self.skipped.end, self.cutoff_end)

    # ------------------------------------------------------------------ the floor

    def set_floor(self, floor: int, head: int, outstanding: int) -> None:
        """Keep messages from `floor` on. `outstanding` of those before `head` are under way."""
        self.floor = floor
        before = self.count
        if floor < 0:
            self.count = self.size_bytes = 0
            self.gone.clear()
        else:
            self.gone.cut(floor)
            self.skipped.cut(floor)
            self.recount(head, outstanding)
            if before:
                self.size_bytes = self.size_bytes * min(self.count, before) // before
            while self.marks and len(self.marks) > 1 and self.marks[1][0] <= floor:
                del self.marks[0]
        self._effects.record(KeepFrom(self._queue_key, floor))
        self.forget(head if floor < 0 else min(floor, head))

    def recount(self, head: int, outstanding: int) -> None:
        """Count the retained messages: all from the floor to the head, without those under way and gone."""
        self.count = (
            0 if self.floor < 0 else max(0, head - self.floor - self.gone.count(self.floor, head) - outstanding)
        )

    # ------------------------------------------------------------------ the store

    def save(self) -> None:
        """Record the state without the blocks."""
        saved = _Saved(
            self.epoch, self.cutoff, self.cutoff_end, self.skipped.within(0, self.skipped.end), list(self.marks)
        )
        self._effects.record(SaveRecord(f"{SEEK_MARK}{self._name}", msgspec.json.encode(saved)))

    def _save_blocks(self, first: int, end: int) -> None:
        for block in range(first >> _BLOCK_SHIFT, (end - 1 >> _BLOCK_SHIFT) + 1):
            low, high = block << _BLOCK_SHIFT, block + 1 << _BLOCK_SHIFT
            saved = _Block(self.gone.within(low, high), self.late.within(low, high))
            self._blocks.add(block)
            self._effects.record(SaveRecord(f"{BLOCK_MARK}{self._name}/{block}", msgspec.json.encode(saved)))

    def forget(self, low: int) -> None:
        """Drop the state of sequences before `low`, which have ended and are not kept."""
        self.late.cut(low)
        if self._blocks and min(self._blocks) < low >> _BLOCK_SHIFT:
            for block in [block for block in self._blocks if block < low >> _BLOCK_SHIFT]:
                self._blocks.remove(block)
                self._effects.record(RemoveRecord(f"{BLOCK_MARK}{self._name}/{block}"))

    def end(self) -> None:
        """The queue is purged or deleted: keep nothing."""
        for block in self._blocks:
            self._effects.record(RemoveRecord(f"{BLOCK_MARK}{self._name}/{block}"))
        self._blocks.clear()
        self._effects.record(RemoveRecord(f"{SEEK_MARK}{self._name}"))
        for each in (self.gone, self.skipped, self.late):
            each.clear()
        self.marks.clear()
        self.floor = -1
        self.count = self.size_bytes = self.cutoff = self.cutoff_end = self.ahead = self.passes_end = 0

    # ------------------------------------------------------------------ a restart

    def restore(self, data: bytes) -> None:
        """Restore the state from `save`."""
        saved = msgspec.json.decode(data, type=_Saved)
        self.epoch, self.cutoff, self.cutoff_end = saved.epoch, saved.cutoff, saved.cutoff_end
        for first, end in saved.skipped:
            self.skipped.add(first, end)
        self.marks.extend(saved.marks)

    def restore_floor(self, floor: int, size_bytes: int) -> None:
        """Restore the floor."""
        self.floor, self.size_bytes = floor, size_bytes
        self.gone.cut(floor)
        self.skipped.cut(floor)

    def restore_block(self, block: int, data: bytes) -> None:
        """Restore a block."""
        saved = msgspec.json.decode(data, type=_Block)
        self._blocks.add(block)
        for first, end in saved.gone:
            self.gone.add(first, end)
        for first, end in saved.late:
            self.late.add(first, end)


class _Saved(msgspec.Struct, frozen=True):
    epoch: int
    cutoff: int
    cutoff_end: int
    skipped: list[tuple[int, int]]
    marks: list[tuple[int, int]]


class _Block(msgspec.Struct, frozen=True):
    gone: list[tuple[int, int]]
    late: list[tuple[int, int]]
