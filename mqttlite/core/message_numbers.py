"""Numbers messages. Publishers, operators, traces and stores refer to a message by its number.

A number is the Unix time in microseconds at which the broker accepted the message, or the next free one. So a number
tells the time, later messages have higher numbers, and a restarted broker does not repeat numbers. Invariant: each
number is given once.
"""

from typing import Final, final

MICROSECONDS: Final = 1_000_000


@final
class MessageNumbers:
    """The wall clock is `ahead_us` microseconds ahead of the broker's seconds."""

    __slots__ = ("ahead_us", "latest")

    def __init__(self, ahead_us: int = 0) -> None:
        self.ahead_us: Final = ahead_us
        self.latest: int = 0
        """The highest number given so far, including earlier runs."""

    def next(self, now: float) -> int:
        """A new number."""
        number = self.ahead_us + int(now * MICROSECONDS)
        if number <= self.latest:
            number = self.latest + 1
        self.latest = number
        return number
