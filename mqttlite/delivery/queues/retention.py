"""What a queue keeps of messages that have come to their end, and which messages it passes over.

The messages of a queue are numbered by their sequences, and the store keeps all from `floor` on. Those before the first
that waits are under way, or *retained*: acknowledged, or passed over by a seek. A seek moves the first that waits, so
retained messages wait again. Some never do: they are `gone`. Invariant: what is said here of a sequence is in the
store in the same commit as what happened to the message.
"""

from typing import Final, final

import msgspec

from mqttlite.core.changes import QUEUE_MARK, EndSession, Retain, SaveQueue
from mqttlite.core.effects import Effects
from mqttlite.delivery.queues.limits import MAX_GONE, MAX_LATE, RETENTION_STEPS
from mqttlite.delivery.queues.ranges import Ranges

SEEK_MARK: Final = f"{QUEUE_MARK}$seek/"
BLOCK_MARK: Final = f"{QUEUE_MARK}$sequences/"
"""What the names of records in the store begin with: where a queue was sought to, and blocks of `gone` and `late`."""

_BLOCK_SHIFT: Final = 12
"""A block has what is said of 4,096 sequences: it is written again with each of them, and has some kilobytes."""


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
        """Those that are in the store."""
        self.floor: int = -1
        """The first sequence that the store keeps; -1: it keeps what has not ended."""
        self.count: int = 0
        """How many messages are retained."""
        self.size_bytes: int = 0
        """About what they would take in memory."""
        self.gone: Final = Ranges()
        """Sequences from the floor on that never wait again: dead letters, expired messages, and what is not there."""
        self.skipped: Final = Ranges()
        """Sequences that the latest seek passed over although it went back behind them: they are retained."""
        self.late: Final = Ranges()
        """Sequences of messages that have a lower number than others before them, as replayed dead letters do."""
        self.latest: int = 0
        """The highest number of a message that the queue took."""
        self.cutoff: int = 0
        self.cutoff_end: int = 0
        """Messages with a number below the first, and a sequence below the second, are passed over."""
        self.epoch: int = 0
        """How often the queue went back. An `ack-id` is of one epoch."""
        self.ahead: int = 0
        """How many of the sequences that wait are gone or skipped."""
        self.passes_end: int = 0
        """From here on none of those that wait is passed over."""
        self.marks: Final[list[tuple[int, int]]] = []
        """From time to time, the sequence and number of a message: they say how old the messages before it are."""

    # ------------------------------------------------------------------ what comes and goes

    def on_late(self, sequence: int) -> bool:
        """A message came that is older than another before it; whether to `forget` others now."""
        is_first = sequence >> _BLOCK_SHIFT not in self._blocks
        self.late.add(sequence, sequence + 1)
        if len(self.late) > MAX_LATE:  # less is known of those between, which is safe
            self.late.add(self.late.first_of(0), self.late.first_of(MAX_LATE // 2))
        self._save_blocks(sequence, sequence + 1)
        return is_first

    def mark(self, sequence: int, number: int, retention_us: int) -> bool:
        """Remember how old messages before this one are, if it was not just done."""
        if self.marks and number - self.marks[-1][1] < retention_us // RETENTION_STEPS:
            return False
        self.marks.append((sequence, number))
        del self.marks[: -2 * RETENTION_STEPS]
        self.save()
        return True

    def older_than(self, number: int) -> int:
        """A sequence before which all messages have a lower number; -1 where none is known."""
        found = -1
        for sequence, at in self.marks:
            if at > number:
                break
            found = sequence
        return found

    def on_retained(self, sequence: int, size: int) -> None:
        """A message was acknowledged, or passed over."""
        if 0 <= self.floor <= sequence:
            self.count += 1
            self.size_bytes += size

    def on_gone(self, sequence: int) -> None:
        """A message came to another end."""
        if 0 <= self.floor <= sequence:
            self.add_gone(sequence, sequence + 1)

    def add_gone(self, first: int, end: int) -> None:
        """These never wait again."""
        if first < end:
            self.gone.add(first, end)
            self._save_blocks(first, end)

    @property
    def has_too_many_gone(self) -> bool:
        return len(self.gone) > MAX_GONE

    # ------------------------------------------------------------------ what waits

    def is_hole(self, sequence: int) -> bool:
        """Whether there is no message of that sequence to deliver."""
        return sequence in self.gone or sequence in self.skipped

    def holes(self, first: int, end: int) -> int:
        """How many there are of those."""
        return self.gone.count(first, end) + self.skipped.count(first, end)

    def skip(self, ranges: list[tuple[int, int]]) -> None:
        """Have these be skipped, and no others."""
        self.skipped.clear()
        for first, end in ranges:
            at = first
            for gone_first, gone_end in self.gone.within(first, end):
                self.skipped.add(at, gone_first)
                at = gone_end
            self.skipped.add(at, end)

    def look_ahead(self, head: int, tail: int) -> None:
        """What waits is from the one to the other."""
        self.ahead = self.holes(head, tail)
        self.passes_end = max(self.gone.end, self.skipped.end, self.cutoff_end)

    # ------------------------------------------------------------------ the floor

    def set_floor(self, floor: int, head: int, outstanding: int) -> None:
        """Keep what is from `floor` on; `outstanding` of those before `head` are under way."""
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
        self._effects.record(Retain(self._queue_key, floor))
        self.forget(head if floor < 0 else min(floor, head))

    def recount(self, head: int, outstanding: int) -> None:
        """How many messages are retained: all from the floor to the head, but for those under way and gone."""
        self.count = (
            0 if self.floor < 0 else max(0, head - self.floor - self.gone.count(self.floor, head) - outstanding)
        )

    # ------------------------------------------------------------------ the store

    def save(self) -> None:
        """Have the store know all but what is in blocks."""
        saved = _Saved(
            self.epoch, self.cutoff, self.cutoff_end, self.skipped.within(0, self.skipped.end), list(self.marks)
        )
        self._effects.record(SaveQueue(f"{SEEK_MARK}{self._name}", msgspec.json.encode(saved)))

    def _save_blocks(self, first: int, end: int) -> None:
        for block in range(first >> _BLOCK_SHIFT, (end - 1 >> _BLOCK_SHIFT) + 1):
            low, high = block << _BLOCK_SHIFT, block + 1 << _BLOCK_SHIFT
            saved = _Block(self.gone.within(low, high), self.late.within(low, high))
            self._blocks.add(block)
            self._effects.record(SaveQueue(f"{BLOCK_MARK}{self._name}/{block}", msgspec.json.encode(saved)))

    def forget(self, low: int) -> None:
        """Sequences before that one have ended and are not kept."""
        self.late.cut(low)
        if self._blocks and min(self._blocks) < low >> _BLOCK_SHIFT:
            for block in [block for block in self._blocks if block < low >> _BLOCK_SHIFT]:
                self._blocks.remove(block)
                self._effects.record(EndSession(f"{BLOCK_MARK}{self._name}/{block}"))

    def end(self) -> None:
        """The queue is purged or deleted: nothing of it is kept."""
        for block in self._blocks:
            self._effects.record(EndSession(f"{BLOCK_MARK}{self._name}/{block}"))
        self._blocks.clear()
        self._effects.record(EndSession(f"{SEEK_MARK}{self._name}"))
        for each in (self.gone, self.skipped, self.late):
            each.clear()
        self.marks.clear()
        self.floor = -1
        self.count = self.size_bytes = self.cutoff = self.cutoff_end = self.ahead = self.passes_end = 0

    # ------------------------------------------------------------------ a restart

    def restore(self, data: bytes) -> None:
        """Put back what `save` had."""
        saved = msgspec.json.decode(data, type=_Saved)
        self.epoch, self.cutoff, self.cutoff_end = saved.epoch, saved.cutoff, saved.cutoff_end
        for first, end in saved.skipped:
            self.skipped.add(first, end)
        self.marks.extend(saved.marks)

    def restore_floor(self, floor: int, size_bytes: int) -> None:
        """Put back what the store keeps."""
        self.floor, self.size_bytes = floor, size_bytes
        self.gone.cut(floor)
        self.skipped.cut(floor)

    def restore_block(self, block: int, data: bytes) -> None:
        """Put back a block."""
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
