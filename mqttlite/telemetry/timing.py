"""Measures the lag of the event loop and the duration of commits, because every client waits for both.

Invariant: each costs a few microseconds for what it measures, and needs constant memory.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from mqttlite.core.changes import Change
from mqttlite.core.limits import OVERLOAD_INTERVAL_S
from mqttlite.core.message import Delivery
from mqttlite.core.ports import Store, UnderWay
from mqttlite.core.question import Entries
from mqttlite.telemetry.histograms import Histogram

LAG_INTERVAL_S: Final = OVERLOAD_INTERVAL_S
"""How often the lag of a loop that works is measured: often enough to find every stall that a person would notice."""

IDLE_LAG_INTERVAL_S: Final = 0.25
"""The same for an idle loop, where a stall of half a second is found: ten timers a second took a third of the processor
time of a broker with some hundred connections and a dozen messages a second."""

HANGING_S: Final = 0.75
"""A commit that takes longer counts as failing, because a hanging disk raises nothing. The alarm is then raised within
a second."""

RECENT_S: Final = 60.0
RECENT: Final = round(RECENT_S / LAG_INTERVAL_S)
"""How long measurements are kept one by one, and how many at the most."""


class LoopLag:
    """From `start` to `stop`; all is kept in microseconds. `on_measured` hears each measurement in seconds, and returns
    whether the loop is idle."""

    def __init__(
        self, on_measured: Callable[[float], bool] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._on_measured: Final = on_measured
        self._clock: Final = clock
        self.histogram: Final = Histogram()
        self._recent: Final[deque[tuple[float, int]]] = deque(maxlen=RECENT)
        """When each was measured, and the lag."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def start(self, interval_s: float = LAG_INTERVAL_S) -> None:
        """Measure after `interval_s`, and then again and again."""
        self._due = self._clock() + interval_s
        self._timer = asyncio.get_running_loop().call_later(interval_s, self._measure)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def recent(self) -> dict[str, float]:
        """The percentiles of the last minute, in seconds."""
        since = self._clock() - RECENT_S
        lags = sorted(lag for at, lag in self._recent if at >= since)
        if not lags:
            return {"p50": 0.0, "p99": 0.0, "max": 0.0}
        return {
            "p50": lags[len(lags) // 2] / 1e6,
            "p99": lags[len(lags) * 99 // 100] / 1e6,
            "max": lags[-1] / 1e6,
        }

    def note(self, lag_s: float) -> None:
        """Keep a measurement."""
        lag = max(0, round(lag_s * 1e6))
        self.histogram.note(lag)
        self._recent.append((self._clock(), lag))

    def _measure(self) -> None:
        lag_s = max(0.0, self._clock() - self._due)
        self.note(lag_s)
        is_idle = self._on_measured is not None and self._on_measured(lag_s)
        self.start(IDLE_LAG_INTERVAL_S if is_idle else LAG_INTERVAL_S)


class TimedStore:
    """A store, and how long each of its commits took; empty commits are not counted.

    `on_failing` hears when commits begin to fail or one hangs (true, and the error) and when one succeeds again
    (false).
    """

    def __init__(self, store: Store, on_failing: Callable[[bool, str], None]) -> None:
        self._store: Final = store
        self._on_failing: Final = on_failing
        self.histogram: Final = Histogram()
        self.failures: int = 0
        self.failing: bool = False
        """Whether the latest commit failed or hangs; the loop driver tries it again."""
        self._began = 0.0
        """When the commit under way began."""
        self._is_under_way = False
        self._watch: asyncio.TimerHandle | None = None
        """Looks whether a commit hangs. It stays when the commit is done, for the next one."""

    def commit(self, changes: list[Change]) -> UnderWay | None:
        self._began = time.perf_counter()
        try:
            under_way = self._store.commit(changes)
        except Exception as error:
            self._on_failure(error)
            raise
        if under_way is not None:
            self._is_under_way = True
            under_way.add_done_callback(self._on_end)
            if self._watch is None:
                self._watch = asyncio.get_running_loop().call_later(HANGING_S, self._look)
        elif changes:
            self._on_success()
        return under_way

    @property
    def pages(self) -> bool:
        return self._store.pages

    def load(self) -> Iterator[list[Change]]:
        return self._store.load()

    def page(self, client_id: str, first: int, count: int) -> Awaitable[list[Delivery | None]]:
        return self._store.page(client_id, first, count)

    def entries(self, key: str, first: int, end: int, count: int) -> Awaitable[Entries]:
        return self._store.entries(key, first, end, count)

    def _on_end(self, under_way: UnderWay) -> None:
        self._is_under_way = False
        if under_way.cancelled():
            return
        error = under_way.exception()
        if error is None:
            self._on_success()
        else:
            self._on_failure(error)

    def _look(self) -> None:
        """Raise the alarm if the commit under way hangs."""
        self._watch = None
        if not self._is_under_way:
            return
        left_s = self._began + HANGING_S - time.perf_counter()
        if left_s > 0:  # it was set for an earlier commit
            self._watch = asyncio.get_running_loop().call_later(left_s, self._look)
        else:
            self._begin_alarm(f"a commit takes over {HANGING_S} s")

    def _on_success(self) -> None:
        if self.failing:
            self.failing = False
            self._on_failing(False, "")
        self.histogram.note(round((time.perf_counter() - self._began) * 1e6))

    def _on_failure(self, error: BaseException) -> None:
        self.failures += 1
        self._begin_alarm(str(error))

    def _begin_alarm(self, detail: str) -> None:
        if not self.failing:
            self.failing = True
            self._on_failing(True, detail)
