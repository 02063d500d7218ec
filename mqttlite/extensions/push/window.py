"""Flow control for an endpoint: how many requests may be open, and pauses after failures.

Pure. Works like TCP: the window doubles with each round of successes at first, then grows by one, and is halved after a
failure. Invariant: the window is between 1 and `most`.
"""

from collections.abc import Callable
from typing import Final

FIRST_HOLD_S: Final = 0.1
LONGEST_HOLD_S: Final = 60.0
"""The longest pause when even single requests fail. The pause doubles with each failure, as at Google."""

JITTER: Final = 0.1
"""The random part added to a pause, so that queues with the same endpoint do not retry at the same moment."""


class Window:
    """`jitter` returns random numbers from 0 to 1."""

    def __init__(self, most: int, jitter: Callable[[], float]) -> None:
        self._most: Final = float(most)
        self._jitter: Final = jitter
        self._size = 1.0
        self._threshold = float(most)
        """The window doubles up to this size."""
        self._failures = 0
        """Consecutive failed rounds."""
        self.round: int = 0
        """Incremented when the window shrinks. A request keeps the number with which it began."""
        self.held_until: float = 0.0

    @property
    def size(self) -> int:
        """How many requests may be open."""
        return int(self._size)

    @property
    def is_failing(self) -> bool:
        """Whether the latest requests failed."""
        return self._failures > 0

    def on_success(self, in_use: int) -> None:
        """A request succeeded while `in_use` were open. A window that is not full does not grow."""
        self._failures = 0
        if in_use * 2 < self._size:
            return
        self._size += 1.0 if self._size < self._threshold else 1.0 / self._size
        self._size = min(self._size, self._most)

    def on_failure(self, began_in: int, now: float) -> None:
        """A request failed. Failures of the same round count as one."""
        if began_in != self.round:
            return
        self.round += 1
        if self._size < 2.0:
            hold_s = min(FIRST_HOLD_S * 2.0 ** min(self._failures, 30), LONGEST_HOLD_S)
            self.hold(now + hold_s * (1.0 + JITTER * self._jitter()))
        self._failures += 1
        self._size = self._threshold = max(1.0, self._size / 2.0)

    def hold(self, until: float) -> None:
        """Send no requests until then."""
        self.held_until = max(self.held_until, until)
