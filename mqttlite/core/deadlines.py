"""One heap of deadlines: keep-alive, CONNECT, session expiry and will delays.

A `Deadline` knows what to do when it is due. A deadline that moves later stays where it is in the heap: it comes due at
its old time, and `on_due` arms it again. Invariant: cancelled deadlines are at most half of the heap, or `SLACK`.
"""

import heapq
from typing import Final, final

SLACK: Final = 1_024
"""Cancelled deadlines that may stay in the heap before a sweep is worth its cost."""


class Deadline:
    """A time, and what to do then. Each owner has a subclass of its own."""

    __slots__ = ("at", "cancelled")

    def __init__(self) -> None:
        self.at: float = 0.0
        self.cancelled: bool = False

    def on_due(self) -> None:
        """Act. The deadline is out of the heap by now; it may be armed again."""
        raise NotImplementedError


@final
class Deadlines:
    """The deadlines that are armed, in the order in which they come due."""

    __slots__ = ("_cancelled", "_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Deadline]] = []
        self._order = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap)

    def arm(self, deadline: Deadline, at: float) -> None:
        """Let a deadline come due at that time. It is new, or was popped."""
        deadline.at = at
        self._order += 1
        heapq.heappush(self._heap, (at, self._order, deadline))

    def cancel(self, deadline: Deadline) -> None:
        """Disarm a deadline that is in the heap. To cancel it twice is harmless."""
        if deadline.cancelled:
            return
        deadline.cancelled = True
        self._cancelled += 1
        if self._cancelled > SLACK and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if not entry[2].cancelled]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def pop(self, now: float) -> Deadline | None:
        """Take out the earliest deadline that is due; None if none is."""
        while self._heap and self._heap[0][0] <= now:
            deadline = heapq.heappop(self._heap)[2]
            if not deadline.cancelled:
                return deadline
            self._cancelled -= 1
        return None

    def next_at(self) -> float | None:
        """When the next deadline is due. May be early: a cancelled deadline counts until it is swept."""
        return self._heap[0][0] if self._heap else None
