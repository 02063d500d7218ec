"""Limits the delivery rate of a queue to `max_rate`, in steps of some milliseconds.

Pure: time is a number. Invariant: in any interval it allows the rate times the interval, plus a tenth of a second's
worth.
"""

from typing import Final, final

BURST_S: Final = 0.1
"""How much unused time may be made up for."""

STEP_S: Final = 0.01
"""The queue checks again after this time, or when the next message is due."""


@final
class Pace:
    __slots__ = ("_allowed", "_at", "_burst", "_rate", "is_waited_for")

    def __init__(self, rate: float, now: float) -> None:
        self._rate: Final = rate
        self._burst: Final = max(1.0, rate * BURST_S)
        self._allowed = 1.0
        self._at = now
        self.is_waited_for: bool = False
        """Whether a delivery waits for it."""

    def is_open(self, now: float) -> bool:
        """Whether a message may be delivered now."""
        if now > self._at:
            self._allowed = min(self._burst, self._allowed + (now - self._at) * self._rate)
            self._at = now
        if self._allowed >= 1.0:
            return True
        self.is_waited_for = True
        return False

    def spend(self) -> None:
        """A message is delivered."""
        self._allowed -= 1.0

    def next_at(self) -> float:
        """When to look again."""
        return self._at + max(STEP_S, (1.0 - self._allowed) / self._rate)
