"""Steps of the wall clock: each is told once, and small corrections are none."""

import asyncio

import pytest

from mqttlite.net import clock_watch
from mqttlite.net.clock_watch import ClockWatch


class Clocks:
    def __init__(self) -> None:
        self.wall, self.steady = 1_000.0, 7.0
        self.steps: list[float] = []

    def watch(self) -> ClockWatch:
        return ClockWatch(self.steps.append, wall_clock=lambda: self.wall, steady_clock=lambda: self.steady)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    monkeypatch.setattr(clock_watch, "LOOK_S", 0.0)
    return Clocks()


async def looks() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


async def test_a_step_is_told_once(clocks: Clocks, caplog: pytest.LogCaptureFixture) -> None:
    watch = clocks.watch()
    watch.start()
    clocks.wall += 3_600.0
    await looks()
    assert clocks.steps == [3_600.0]
    clocks.wall -= 60.0
    await looks()
    watch.stop()
    assert clocks.steps == [3_600.0, -60.0]
    assert "the wall clock stepped by +3600.0 s" in caplog.text


async def test_time_that_passes_and_small_corrections_are_no_steps(clocks: Clocks) -> None:
    watch = clocks.watch()
    watch.start()
    for _ in range(3):
        clocks.wall += 100.3
        clocks.steady += 100.0
        await looks()
    assert clocks.steps == []
    clocks.wall += 0.3
    await looks()
    watch.stop()
    assert [round(step, 1) for step in clocks.steps] == [1.2], "they collect"


def test_a_watch_that_was_not_started_may_be_stopped() -> None:
    Clocks().watch().stop()
