"""The segments of a log: what retention removes at a time, and what finds a time.

Invariant: segments follow each other without gaps, and the last one is open.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, final

from mqttlite.log.bisection import Bisection

MAX_SEGMENTS: Final = 512
"""When a log has more, each two neighbours become one, except the open one."""

USUALLY_LATE_US: Final = 1_000_000
"""By how much an entry may be late as those of the segment before it were, without a record of that: clocks of machines
differ by less, and a search that looks at the entries of one more second is short."""

UNKNOWN: Final = -1
"""How late the entries of a segment are is not known."""

Row = tuple[int, int, int, int]
"""A segment in a record: its first offset, first and last number, and size."""


@final
class Segment:
    """The entries from offset `first` to before the next segment. `number` is the time when the first one was appended,
    in microseconds, or the highest number up to that one, if that is higher; `last` is at least that of the last
    one."""

    __slots__ = ("before_bytes", "first", "last", "late_us", "number", "size_bytes")

    def __init__(
        self, first: int, number: int, last: int, size_bytes: int, before_bytes: int = 0, late_us: int = UNKNOWN
    ) -> None:
        self.first: Final = first
        self.number: Final = number
        self.last: int = last
        self.size_bytes: int = size_bytes
        self.before_bytes: int = before_bytes
        """The size of those before it, from any beginning that all segments of a log share."""
        self.late_us: int = late_us
        """No entry has a number that is lower by more than that than the number of an earlier one of the log."""


def _first(segment: Segment) -> int:
    return segment.first


def _number(segment: Segment) -> int:
    return segment.number


class Stretch(NamedTuple):
    """The offsets from `low` to `high`, about the numbers of the entries there, and by how much one may have a lower
    number than an earlier one."""

    low: int
    high: int
    low_number: int
    high_number: int
    late_us: int = 0

    def search(self, number: int) -> Bisection:
        """For the first entry with at least `number`. It ends there, or at an earlier one: a probe that finds less than
        `number - late_us` has only lower numbers before it. `late_us` is known."""
        return Bisection(number - self.late_us, self.low, self.high, self.high_number, self.low_number)


@final
class Segments:
    """A new segment begins at `most_bytes`, or `most_us` microseconds (0: any) after the last one."""

    __slots__ = ("_most_bytes", "_most_us", "_segments")

    def __init__(self, most_bytes: int, most_us: int) -> None:
        self._most_bytes: Final = most_bytes
        self._most_us: Final = most_us
        self._segments: list[Segment] = []

    def __len__(self) -> int:
        return len(self._segments)

    def add(self, offset: int, number: int, size_bytes: int, late_us: int = 0) -> bool:
        """Count an entry that is appended; its own number is by `late_us` lower than `number`, the highest one. Return
        whether the record is to be written anew: the entry begins a segment, or is later than any before in it. Then
        twice that is expected, so that there are few records of it."""
        before_bytes = usual_us = 0
        if self._segments:
            last = self._segments[-1]
            is_old = self._most_us > 0 and number >= last.number + self._most_us
            if last.size_bytes < self._most_bytes and not is_old:
                last.size_bytes += size_bytes
                last.last = max(last.last, number)
                if last.late_us == UNKNOWN or late_us <= last.late_us:
                    return False
                last.late_us = 2 * late_us
                return True
            number = max(number, last.number)  # the clock may have been set back
            before_bytes = last.before_bytes + last.size_bytes
            usual_us = max(0, min(last.late_us, USUALLY_LATE_US))
        expected_us = usual_us if late_us <= usual_us else 2 * late_us
        self._segments.append(Segment(offset, number, number, size_bytes, before_bytes, expected_us))
        if len(self._segments) > MAX_SEGMENTS:
            self._merge()
        return True

    @property
    def first(self) -> int:
        """The offset at which the first segment begins; -1 if there is none."""
        return self._segments[0].first if self._segments else -1

    @property
    def oldest(self) -> int:
        """The number of the first entry; 0 if there is none."""
        return self._segments[0].number if self._segments else 0

    def drop_first(self, end: int) -> int:
        """Remove the first segment; of one that is larger than twice the size of a segment, only as much as one has, as
        if its entries were equally large. Return the size of what is removed. `end` is that of the log, which has
        entries."""
        segment = self._segments[0]
        following = self._segments[1].first if len(self._segments) > 1 else end
        count = following - segment.first
        if segment.size_bytes <= 2 * self._most_bytes or count < 2:
            del self._segments[0]
            return segment.size_bytes
        removed = max(1, count * self._most_bytes // segment.size_bytes)
        size = segment.size_bytes * removed // count
        self._segments[0] = Segment(
            *(segment.first + removed, segment.number, segment.last, segment.size_bytes - size),
            *(segment.before_bytes + size, segment.late_us),
        )
        return size

    def ends_before(self, number: int) -> bool:
        """Whether there is a first segment, and all its entries have lower numbers."""
        return bool(self._segments) and self._segments[0].last < number

    @property
    def latest(self) -> int:
        """The offset at which the open segment begins; 0 if there is none."""
        return self._segments[-1].first if self._segments else 0

    @property
    def firsts(self) -> list[int]:
        """The offsets at which the segments begin."""
        return [each.first for each in self._segments]

    def old_to(self, number: int, end: int) -> int:
        """The offset before which all entries have lower numbers, at the end of a segment. `end` is that of the
        log."""
        for each in self._segments:
            if each.last >= number:
                return each.first
        return end

    def size_between(self, first: int, end: int) -> int:
        """The size of the segments that begin from `first` to before `end`; of the one of `first`, all."""
        at, following = self._at(first), bisect_left(self._segments, end, key=_first)
        return self._size_from(at) - self._size_from(following) if at < following else 0

    def last_of(self, offset: int) -> int:
        """The last number of the segment of an entry."""
        return self._segments[self._at(offset)].last

    def number_of(self, offset: int) -> int:
        """The first number of the segment of an entry: the entry is no older."""
        return self._segments[self._at(offset)].number

    def size_since(self, number: int) -> int:
        """The size of the segments with an entry that may have this number or a higher one."""
        at = bisect_left(self._segments, number, key=_number)
        if at and self._segments[at - 1].last >= number:
            at -= 1
        return self._size_from(at)

    def _size_from(self, at: int) -> int:
        """The size of the segments from a place on."""
        if at >= len(self._segments):
            return 0
        latest = self._segments[-1]
        return latest.before_bytes + latest.size_bytes - self._segments[at].before_bytes

    def _sum_up(self) -> int:
        """The sizes are others. Return that of all segments."""
        total = 0
        for each in self._segments:
            each.before_bytes = total
            total += each.size_bytes
        return total

    def _at(self, offset: int) -> int:
        """The place of the segment of an entry."""
        return max(0, bisect_right(self._segments, offset, key=_first) - 1)

    def resize(self, first: int, end: int, log_end: int, sizes: Mapping[int, tuple[int, int]]) -> int:
        """Of the entries before `end`, those from `first` on are left, with gaps. `sizes` are those of all and of the
        rest, by the first offsets of the segments that they had. Return the size of all segments."""
        at = self._at(end)
        segment = self._segments[at]
        if segment.first < end < log_end:
            former = sum([every for offset, (every, _) in sizes.items() if offset >= segment.first])
            size_bytes = max(0, segment.size_bytes - former)
            rest = Segment(end, segment.number, segment.last, size_bytes, late_us=segment.late_us)
            self._segments.insert(at + 1, rest)
        while len(self._segments) > 1 and self._segments[1].first <= first:
            del self._segments[0]
        for each in self._segments:
            if each.first < end:
                each.size_bytes = 0
        for offset, (_, left) in sizes.items():
            self._segments[self._at(offset)].size_bytes += left
        return self._sum_up()

    def around(self, number: int, end: int) -> Stretch:
        """Where the first entry with at least this number is. `end` is that of the log. Several segments may begin with
        one number, because entries that come together have one time."""
        segments = self._segments
        at = bisect_left(segments, number, key=_number)
        if at == 0:
            first = segments[0].first if segments else end
            return Stretch(first, first, number, number)
        segment = segments[at - 1]
        if at < len(segments):
            following = segments[at]
            return Stretch(segment.first, following.first, segment.number, following.number, segment.late_us)
        return Stretch(segment.first, end, segment.number, segment.last, segment.late_us)

    def _merge(self) -> None:
        *closed, latest = self._segments
        merged: list[Segment] = []
        for at in range(0, len(closed) - 1, 2):
            one, two = closed[at], closed[at + 1]
            merged.append(
                Segment(
                    *(one.first, one.number, max(one.last, two.last), one.size_bytes + two.size_bytes),
                    *(one.before_bytes, _later(one.late_us, two.late_us)),
                )
            )
        if len(closed) % 2:
            merged.append(closed[-1])
        self._segments = [*merged, latest]

    # ------------------------------------------------------------------ the record

    def rows(self) -> list[Row]:
        """The segments as they are now."""
        return [(each.first, each.number, each.last, each.size_bytes) for each in self._segments]

    def lateness(self) -> list[int]:
        """How late the entries of each segment may be: `Segment.late_us`."""
        return [each.late_us for each in self._segments]

    def restore(
        self,
        rows: Sequence[Row],
        first: int,
        size_bytes: int,
        now: int,
        *,
        has_gaps: bool = False,
        lateness: Sequence[int] = (),
    ) -> int:
        """Restore the segments of a log with entries, which begins at `first` and has `size_bytes` now. Those before
        are gone; what was appended since the record is in the last one. Without rows all is as old as `now`. With gaps
        the size includes what is gone: then the last segment is taken to be full. Return the size of all."""
        known = lateness if len(lateness) == len(rows) else [UNKNOWN] * len(rows)
        kept = [Segment(*row, late_us=late_us) for row, late_us in zip(rows, known, strict=True)]
        while len(kept) > 1 and kept[1].first <= first:
            del kept[0]
        if not kept:
            kept.append(Segment(first, now, now, 0))
        if kept[0].first < first:  # a part of it is gone
            kept[0] = Segment(first, kept[0].number, kept[0].last, kept[0].size_bytes, late_us=kept[0].late_us)
        closed = sum([each.size_bytes for each in kept[:-1]])
        latest = kept[-1]
        if now < latest.number:  # the clock was set back: it is not known which numbers came since the record
            latest.late_us = UNKNOWN
        latest.last = max(latest.last, latest.number + self._most_us)  # else another one would have begun
        latest.size_bytes = max(0, size_bytes - closed)
        if has_gaps:
            latest.size_bytes = min(latest.size_bytes, self._most_bytes)
        self._segments = kept
        return self._sum_up()


def _later(one_us: int, two_us: int) -> int:
    return UNKNOWN if UNKNOWN in (one_us, two_us) else max(one_us, two_us)
