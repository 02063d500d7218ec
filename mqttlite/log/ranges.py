"""A set of mostly consecutive sequences, stored as ranges.

Invariant: the ranges are in order, and there is at least one number between two of them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final, final


@final
class Ranges:
    __slots__ = ("_ends", "_firsts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: Final[list[int]] = []
        self._ends: Final[list[int]] = []
        for first, end in ranges:
            self.add(first, end)

    def __len__(self) -> int:
        """How many ranges there are."""
        return len(self._firsts)

    @property
    def end(self) -> int:
        """The end of the last range; 0 if there is none."""
        return self._ends[-1] if self._ends else 0

    def add(self, first: int, end: int) -> None:
        """Add all numbers from `first` to before `end`."""
        if first >= end:
            return
        low = bisect_left(self._ends, first)
        high = bisect_right(self._firsts, end)
        if low < high:
            first = min(first, self._firsts[low])
            end = max(end, self._ends[high - 1])
        self._firsts[low:high] = [first]
        self._ends[low:high] = [end]

    def after(self, sequence: int) -> int:
        """The lowest number from `sequence` on that is not in the set."""
        at = bisect_right(self._firsts, sequence) - 1
        return self._ends[at] if at >= 0 and self._ends[at] > sequence else sequence

    def __contains__(self, sequence: int) -> bool:
        return self.after(sequence) != sequence

    def within(self, first: int, end: int) -> list[tuple[int, int]]:
        """The parts of the ranges from `first` to before `end`."""
        found: list[tuple[int, int]] = []
        for at in range(bisect_right(self._ends, first), bisect_left(self._firsts, end)):
            found.append((max(first, self._firsts[at]), min(end, self._ends[at])))
        return found

    def count(self, first: int, end: int) -> int:
        """How many numbers of the set are from `first` to before `end`."""
        total = 0
        for low, high in self.within(first, end):
            total += high - low
        return total

    def cut(self, first: int) -> None:
        """Remove all numbers before `first`."""
        at = bisect_right(self._ends, first)
        del self._firsts[:at]
        del self._ends[:at]
        if self._firsts and self._firsts[0] < first:
            self._firsts[0] = first

    def clear(self) -> None:
        self._firsts.clear()
        self._ends.clear()

    def first_of(self, at: int) -> int:
        """The beginning of the range with this index."""
        return self._firsts[at]
