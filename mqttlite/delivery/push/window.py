"""How many requests to an endpoint may be open, and when it is to be left alone: decided by what became of the last.

Pure. As TCP does: twice as many with each round of successes at first, then one more with each, and half of them after
a failure. Invariant: at least one request may be open, and `most` are the limit.
"""

from collections.abc import Callable
from typing import Final

FIRST_HOLD_S: Final = 0.1
LONGEST_HOLD_S: Final = 60.0
"""How long an endpoint is left alone where one request at a time fails: doubled with each failure, as with Google."""

JITTER: Final = 0.1
"""The part of that which chance may add, so that queues with one endpoint do not ask it at the same moment."""


class Window:
    """`jitter` gives numbers from 0 to 1."""

    def __init__(self, most: int, jitter: Callable[[], float]) -> None:
        self._most: Final = float(most)
        self._jitter: Final = jitter
        self._size = 1.0
        self._threshold = float(most)
        """Up to this size it doubles."""
        self._failures = 0
        """Rounds that failed one after the other."""
        self.round: int = 0
        """Grows when the window shrinks. A request keeps the number with which it began."""
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
        """A request succeeded while `in_use` were open: a window that is not full does not grow."""
        self._failures = 0
        if in_use * 2 < self._size:
            return
        self._size += 1.0 if self._size < self._threshold else 1.0 / self._size
        self._size = min(self._size, self._most)

    def on_failure(self, began_in: int, now: float) -> None:
        """A request failed. Those that were open together count as one."""
        if began_in != self.round:
            return
        self.round += 1
        if self._size < 2.0:
            hold_s = min(FIRST_HOLD_S * 2.0 ** min(self._failures, 30), LONGEST_HOLD_S)
            self.hold(now + hold_s * (1.0 + JITTER * self._jitter()))
        self._failures += 1
        self._size = self._threshold = max(1.0, self._size / 2.0)

    def hold(self, until: float) -> None:
        """Leave the endpoint alone until then."""
        self.held_until = max(self.held_until, until)
