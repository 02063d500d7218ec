"""One heap of deadlines: keep-alive, CONNECT, session expiry and will delays.

A `Deadline` acts in `on_due`. A deadline that moves to a later time stays in its place in the heap: it is due at its
old time, and `on_due` arms it again. Invariant: at most half of the heap, or `SLACK` entries, are cancelled deadlines.
"""

import heapq
from typing import Final, final

SLACK: Final = 1_024
"""How many cancelled deadlines may stay in the heap before a sweep pays off."""


class Deadline:
    """A time and an action. Each owner has its own subclass."""

    __slots__ = ("at", "cancelled")

    def __init__(self) -> None:
        self.at: float = 0.0
        self.cancelled: bool = False

    def on_due(self) -> None:
        """Act. The deadline is no longer in the heap and may be armed again."""
        raise NotImplementedError

    def follows_wall(self) -> bool:
        """Whether the time is one of the wall clock, so that it changes with it."""
        return False


@final
class Deadlines:
    """The armed deadlines, earliest first."""

    __slots__ = ("_cancelled", "_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Deadline]] = []
        self._order = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap)

    def arm(self, deadline: Deadline, at: float) -> None:
        """Arm a deadline that is not in the heap."""
        deadline.at = at
        self._order += 1
        heapq.heappush(self._heap, (at, self._order, deadline))

    def cancel(self, deadline: Deadline) -> None:
        """Disarm a deadline that is in the heap. Cancelling it twice is harmless."""
        if deadline.cancelled:
            return
        deadline.cancelled = True
        self._cancelled += 1
        if self._cancelled > SLACK and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if not entry[2].cancelled]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def pop(self, now: float) -> Deadline | None:
        """Remove and return the earliest deadline that is due; None if none is."""
        while self._heap and self._heap[0][0] <= now:
            deadline = heapq.heappop(self._heap)[2]
            if not deadline.cancelled:
                return deadline
            self._cancelled -= 1
        return None

    def follow_wall(self, stepped_s: float) -> None:
        """The wall clock stepped forward by `stepped_s` seconds; back, if that is negative."""
        heap: list[tuple[float, int, Deadline]] = []
        for at, order, deadline in self._heap:
            step = stepped_s if deadline.follows_wall() else 0.0
            deadline.at -= step
            heap.append((at - step, order, deadline))
        heapq.heapify(heap)
        self._heap = heap

    def next_at(self) -> float | None:
        """When the next deadline is due. May be too early: a cancelled deadline counts until it is swept."""
        return self._heap[0][0] if self._heap else None
