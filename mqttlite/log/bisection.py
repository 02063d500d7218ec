"""The search for a place in a log by a number that rises with the offsets, such as a time.

It is told the numbers of the entries at which it asks to look, and does not care where they come from. Invariant: of
the examined entries, those before `low` have lower numbers, and those from `high` on have not.
"""

from typing import Final, final


@final
class Bisection:
    """Finds the first entry with at least `number`, between the offsets `low` and `high`. `high_number` is about that
    of one at `high` or behind it, 0 if it is not known; `low_number` about that of one at `low`, -1 if it is not."""

    __slots__ = ("_high_number", "_is_halved", "_low_number", "_middle", "high", "low", "number")

    def __init__(self, number: int, low: int, high: int, high_number: int = 0, low_number: int = -1) -> None:
        self.number: Final = number
        self.low: int = low
        """Where the entry is, once the search is over."""
        self.high: int = high
        self._low_number = low_number
        self._high_number = high_number
        self._is_halved = True
        self._middle = 0

    @property
    def is_over(self) -> bool:
        return self.low >= self.high

    def next_offset(self) -> int:
        """The offset from which on to look for an entry: alternately the middle, and where it is at a constant rate."""
        self._is_halved = not self._is_halved
        low, high = self.low, self.high
        if self._is_halved or self._low_number < 0 or self._high_number <= self._low_number:
            self._middle = (low + high) // 2
        else:
            part = (self.number - self._low_number) / (self._high_number - self._low_number)
            self._middle = min(max(low, low + int((high - low) * part)), high - 1)
        return self._middle

    def found(self, offset: int, number: int) -> None:
        """The first entry from there on is at `offset`."""
        if number >= self.number:
            self.found_none()  # there are no entries between
            self._high_number = number
        else:
            self.low = offset + 1
            self._low_number = number

    def found_none(self) -> None:
        """There is no entry from there on, before `high`."""
        self.high = self._middle
