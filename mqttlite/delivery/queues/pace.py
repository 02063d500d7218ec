"""How fast a queue delivers: `max_rate` messages a second, in steps of some milliseconds.

Pure: time is a number. Invariant: in each stretch of time it allows what the rate gives, and a tenth of a second more.
"""

from typing import Final, final

BURST_S: Final = 0.1
"""What was not delivered may be made up for within this time."""

STEP_S: Final = 0.01
"""The queue looks again after this time, or when the next message is due."""


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
