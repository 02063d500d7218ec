"""What is to happen later: one heap for keep-alive, CONNECT deadlines, session expiry and will delays.

A deadline that moves is not looked for in the heap: it rings at its old time, and whoever it belongs to says when to
ring again. Invariant: cancelled deadlines are never more than half of the heap, or `SLACK`.
"""

import heapq
from typing import Final, final

SLACK: Final = 1_024
"""Cancelled deadlines that may lie in the heap before it is worth sweeping."""


@final
class Deadline:
    """A time, what kind of thing is due then, and whose it is (a connection's number or a client identifier)."""

    __slots__ = ("at", "cancelled", "client_id", "kind", "number")

    def __init__(self, at: float, kind: int, number: int, client_id: str) -> None:
        self.at = at
        self.kind: Final = kind
        self.number: Final = number
        self.client_id: Final = client_id
        self.cancelled = False


@final
class Deadlines:
    __slots__ = ("_cancelled", "_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Deadline]] = []
        self._order = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, at: float, kind: int, number: int = 0, client_id: str = "") -> Deadline:
        deadline = Deadline(at, kind, number, client_id)
        self.again(deadline, at)
        return deadline

    def again(self, deadline: Deadline, at: float) -> None:
        """Let a deadline that was popped ring once more."""
        deadline.at = at
        self._order += 1
        heapq.heappush(self._heap, (at, self._order, deadline))

    def cancel(self, deadline: Deadline) -> None:
        """A deadline that is still in the heap shall not ring; cancelling twice is harmless."""
        if deadline.cancelled:
            return
        deadline.cancelled = True
        self._cancelled += 1
        if self._cancelled > SLACK and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if not entry[2].cancelled]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def pop(self, now: float) -> Deadline | None:
        """The earliest deadline that is due, taken out."""
        while self._heap and self._heap[0][0] <= now:
            deadline = heapq.heappop(self._heap)[2]
            if not deadline.cancelled:
                return deadline
            self._cancelled -= 1
        return None

    def next_at(self) -> float | None:
        """When to come back. May be early: a cancelled deadline still counts until it is swept."""
        return self._heap[0][0] if self._heap else None
