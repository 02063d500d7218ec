"""Gives messages numbers by which they are known: to publishers, operators, traces and stores.

A number is the microsecond at which the broker took the message, counted from 1970 (Unix time), or the next one that is
free. So it says when that was, later messages have higher numbers, and no run of a broker repeats those of an earlier
one. Invariant: each number is given once.
"""

from typing import Final, final

MICROSECONDS: Final = 1_000_000


@final
class MessageNumbers:
    """`ahead_us` is what the wall clock is ahead of the broker's seconds, in microseconds."""

    __slots__ = ("ahead_us", "latest")

    def __init__(self, ahead_us: int = 0) -> None:
        self.ahead_us: Final = ahead_us
        self.latest: int = 0
        """The highest number that was given, in an earlier run too."""

    def next(self, now: float) -> int:
        """A new number."""
        number = self.ahead_us + int(now * MICROSECONDS)
        if number <= self.latest:
            number = self.latest + 1
        self.latest = number
        return number
