"""The loop's lag and the time of commits, and how both become Prometheus' buckets."""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.core.changes import Change, EndSession
from mqttlite.telemetry import timing
from mqttlite.telemetry.histograms import Histogram
from mqttlite.telemetry.metrics import BOUNDS_US, cumulative
from mqttlite.telemetry.timing import IDLE_LAG_INTERVAL_S, LAG_INTERVAL_S, RECENT, RECENT_S, LoopLag, TimedStore
from tests.support.stores import loaded

CHANGES: list[Change] = [EndSession("c")]


class FakeStore:
    """Commits at once, or later, or not."""

    def __init__(self, at_once: bool) -> None:
        self.at_once = at_once
        self.fails = False

    def commit(self, changes: list[Change]) -> asyncio.Future[None] | None:
        if not self.at_once:
            return asyncio.ensure_future(self._later())
        if self.fails:
            raise OSError("disk full")
        return None

    def load(self) -> Iterator[list[Change]]:
        yield CHANGES

    async def _later(self) -> None:
        await asyncio.sleep(0.002)
        if self.fails:
            raise OSError("disk full")


async def commit(store: TimedStore, changes: list[Change] = CHANGES) -> None:
    under_way = store.commit(changes)
    if under_way is not None:
        assert isinstance(under_way, asyncio.Future)
        await under_way
        await asyncio.sleep(0)  # until its callbacks have run


@pytest.mark.parametrize("at_once", [True, False])
async def test_commits_are_timed_and_failures_counted(at_once: bool) -> None:
    inner = FakeStore(at_once)
    heard: list[tuple[bool, str]] = []
    store = TimedStore(inner, lambda failing, error: heard.append((failing, error)))
    await commit(store)
    assert (store.histogram.messages, store.failures, store.failing) == (1, 0, False)
    assert at_once or store.histogram.max_us >= 1_000
    inner.fails = True
    for attempt in (1, 2):
        with pytest.raises(OSError, match="disk full"):
            await commit(store)
        assert (store.histogram.messages, store.failures, store.failing) == (1, attempt, True)
    inner.fails = False
    await commit(store)
    assert (store.histogram.messages, store.failures, store.failing) == (2, 2, False)
    assert heard == [(True, "disk full"), (False, "")]
    assert loaded(store) == CHANGES


async def test_a_commit_that_hangs_counts_as_failing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "HANGING_S", 0.001)
    heard: list[tuple[bool, str]] = []
    store = TimedStore(FakeStore(False), lambda failing, error: heard.append((failing, error)))
    await commit(store)
    assert heard == [(True, "a commit takes over 0.001 s"), (False, "")]
    assert (store.failures, store.failing) == (0, False)


async def test_a_commit_of_nothing_is_none() -> None:
    heard: list[tuple[bool, str]] = []
    store = TimedStore(FakeStore(True), lambda failing, error: heard.append((failing, error)))
    await commit(store, [])
    assert (store.histogram.messages, heard) == (0, [])


def test_before_the_first_look_there_is_no_lag() -> None:
    lag = LoopLag()
    assert lag.recent() == {"p50": 0.0, "p99": 0.0, "max": 0.0}
    lag.stop()


@pytest.mark.parametrize("count", [1, RECENT - 1, RECENT, RECENT + 1])
def test_the_measurements_of_the_last_minute_are_kept(count: int) -> None:
    now = [0.0]
    lag = LoopLag(clock=lambda: now[0])
    lag.note(100.0)
    now[0] = RECENT_S + 1.0
    for number in range(count):
        lag.note(number / 1e6)
    recent = lag.recent()
    assert recent["max"] == pytest.approx((count - 1) / 1e6)
    assert recent["p50"] == pytest.approx((count - min(count, RECENT) + min(count, RECENT) // 2) / 1e6)
    assert recent["p50"] <= recent["p99"] <= recent["max"]


@pytest.mark.parametrize("is_idle", [False, True])
async def test_the_lag_of_an_idle_loop_is_measured_less_often(is_idle: bool) -> None:
    measured = asyncio.Event()

    def on_measured(_lag_s: float) -> bool:
        measured.set()
        return is_idle

    lag = LoopLag(on_measured, clock=lambda: 0.0)
    lag.start(0.0)
    await measured.wait()
    await asyncio.sleep(0)
    lag.stop()
    assert lag._due == (IDLE_LAG_INTERVAL_S if is_idle else LAG_INTERVAL_S)


@given(st.lists(st.integers(0, 10**9), max_size=50))
def test_prometheus_buckets_count_values_below_their_bounds(durations: list[int]) -> None:
    histogram = Histogram()
    for microseconds in durations:
        histogram.note(microseconds)
    found = cumulative(histogram)
    assert found[-1] == (None, len(durations))
    assert found[:-1] == [(bound, sum(each < bound for each in durations)) for bound in BOUNDS_US]
