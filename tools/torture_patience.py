"""How long to wait for something before it counts as never. Time in which this process stood still does not count: a
machine that is frozen makes no broker late.
"""

import time
from collections.abc import Callable
from typing import Final

LONGEST_STEP_S: Final = 1.0
"""The most that counts between two questions. A process that runs asks more often."""


class Patience:
    """Ask `is_over` again and again. `clock` is that of the machine."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds: Final = seconds
        self._clock: Final = clock
        self._left = seconds
        self._asked_at = clock()

    def renew(self) -> None:
        """Something has happened: wait as long once more."""
        self._left = self._seconds
        self._asked_at = self._clock()

    def is_over(self) -> bool:
        """Whether it has lasted so long since the beginning, or since it was renewed."""
        now = self._clock()
        self._left -= min(now - self._asked_at, LONGEST_STEP_S)
        self._asked_at = now
        return self._left <= 0
