"""Converts seconds of the broker's clock to UTC time.

Invariant: all times of one run come from one offset, so that their differences are real durations; it changes only when
the wall's clock jumped, and then once.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

JUMP_S: Final = 1.0
"""A clock that moved by more jumped. Less is left to the clocks' own corrections, and no event is worth it."""


class Wall:
    """`now` is what the broker's clock, in seconds, shows while this is made."""

    def __init__(
        self,
        now: float,
        *,
        wall_clock: Callable[[], float] = time.time,
        steady_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall_clock: Final = wall_clock
        self._steady_clock: Final = steady_clock
        # The broker's clock may show when a pass of the loop began, which is no measure of a jump.
        self._apart = wall_clock() - steady_clock()
        self.offset: timedelta = timedelta(seconds=wall_clock() - now)

    def at(self, now: float) -> datetime:
        """The UTC time of a second of the broker's clock."""
        return datetime.fromtimestamp(now, UTC) + self.offset

    @property
    def ahead_us(self) -> int:
        """Microseconds to add to those of the broker's clock for Unix time."""
        return self.offset // timedelta(microseconds=1)

    def check(self) -> float:
        """Follow the wall's clock if it jumped: by how many seconds, forward or (negative) back; else 0."""
        jumped_s = self._wall_clock() - self._steady_clock() - self._apart
        if abs(jumped_s) <= JUMP_S:
            return 0.0
        self._apart += jumped_s
        self.offset += timedelta(seconds=jumped_s)
        return jumped_s
