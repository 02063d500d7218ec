"""How late the loop comes to what is due, and how long commits take: the two that everybody waits for.

Here are clocks; what is made of the figures is said elsewhere. Invariant: neither changes what it measures by more than
a few microseconds, and what they keep does not grow.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Iterator
from typing import Final

from mqttlite.core.changes import Change
from mqttlite.core.ports import Store
from mqttlite.telemetry.histograms import Histogram

LOOK_S: Final = 0.1
"""How often the loop's lag is looked at: ten timers a second are nothing, and a stall that anybody notices is met."""

RECENT: Final = 600
"""Looks that are remembered one by one: those of the last minute."""


class LoopLag:
    """From `start` to `stop`; all is kept in microseconds."""

    def __init__(self) -> None:
        self.histogram: Final = Histogram()
        self._recent: Final[deque[int]] = deque(maxlen=RECENT)
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def start(self) -> None:
        """Begin to look, on the running loop."""
        self._due = time.monotonic() + LOOK_S
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def recent(self) -> dict[str, float]:
        """Of the last minute: the median, what one in a hundred reached, and the most, in seconds."""
        looks = sorted(self._recent)
        if not looks:
            return {"p50": 0.0, "p99": 0.0, "max": 0.0}
        return {
            "p50": looks[len(looks) // 2] / 1e6,
            "p99": looks[len(looks) * 99 // 100] / 1e6,
            "max": looks[-1] / 1e6,
        }

    def _look(self) -> None:
        late = max(0, round((time.monotonic() - self._due) * 1e6))
        self.histogram.note(late)
        self._recent.append(late)
        self.start()


class TimedStore:
    """A store, and how long each of its commits took; those of nothing are not counted."""

    def __init__(self, store: Store) -> None:
        self._store: Final = store
        self.histogram: Final = Histogram()
        self.failures = 0
        self.failing = False
        """Whether the latest commit failed, and is yet to be tried again."""

    def commit(self, changes: list[Change]) -> Awaitable[None] | None:
        started = time.perf_counter()
        try:
            under_way = self._store.commit(changes)
        except Exception:
            self._on_failure()
            raise
        if under_way is not None:
            return self._see_through(under_way, started)
        if changes:
            self._on_success(started)
        return None

    def load(self) -> Iterator[list[Change]]:
        return self._store.load()

    async def _see_through(self, under_way: Awaitable[None], started: float) -> None:
        try:
            await under_way
        except Exception:
            self._on_failure()
            raise
        self._on_success(started)

    def _on_success(self, started: float) -> None:
        self.failing = False
        self.histogram.note(round((time.perf_counter() - started) * 1e6))

    def _on_failure(self) -> None:
        self.failing = True
        self.failures += 1
