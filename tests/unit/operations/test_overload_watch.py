"""What is told of an overload: a line of the log, an event and, while something is lost for it, an alarm."""

import logging

import pytest

from mqttlite.core.limits import OVERLOAD_INTERVAL_S, OverloadLimits
from mqttlite.event_hub import EventHub, Listener, OverloadStage
from mqttlite.operations.overload_watch import OverloadWatch
from tests.support.core_driver import World


class Loop:
    def __init__(self, world: World) -> None:
        self._world = world
        self.iterations = 0
        self.woken: list[float] = []

    def wake(self) -> None:
        self.woken.append(self._world.now)


class Recorder(Listener):
    def __init__(self) -> None:
        self.stages: list[OverloadStage] = []
        self.alarms: list[tuple[str, bool, str]] = []

    def on_overload(self, stage: OverloadStage) -> None:
        self.stages.append(stage)

    def on_alarm(self, alarm: str, active: bool, detail: str) -> None:
        self.alarms.append((alarm, active, detail))


def test_each_stage_is_told_when_it_begins_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    world, hub, recorder = World(overload_limits=OverloadLimits(max_lag_s=0.1)), EventHub(), Recorder()
    hub.register(recorder)
    loop = Loop(world)
    woken = loop.woken
    watch = OverloadWatch(world.broker, hub, loop, lambda: world.now, lambda: world.now)
    for lag_s in [1.0] * 20 + [0.0] * 30:
        world.advance(OVERLOAD_INTERVAL_S)
        watch.on_lag(lag_s)
    told = [(each.stage, each.begins) for each in recorder.stages]
    assert told == [(1, True), (2, True), (3, True), (4, True), (4, False), (3, False), (2, False), (1, False)]
    assert [each.duration_s for each in recorder.stages[:4]] == [0.0] * 4
    assert [each.duration_s for each in recorder.stages[4:]] == sorted(each.duration_s for each in recorder.stages[4:])
    assert recorder.stages[-1].duration_s == pytest.approx(woken[-1] - woken[0])
    assert [(alarm, active) for alarm, active, _detail in recorder.alarms] == [("overloaded", True)] * 5 + [
        ("overloaded", False)
    ]
    assert recorder.alarms[2][2].endswith(
        "more slowly; messages of low priority are dropped; QoS 0 messages are dropped; new connections are refused"
    )
    assert "are dropped" not in recorder.alarms[-1][2]
    assert len(caplog.messages) == len(woken) == 8
    assert caplog.messages[0].startswith("overload, load 0.7")
    assert caplog.messages[0].endswith("the clients that send most are read more slowly")
    assert caplog.messages[-1].endswith("the clients that send most are read more slowly no longer")


def test_input_is_read_while_iterations_take_long() -> None:
    world = World()
    loop = Loop(world)
    used_s = [0.0]
    watch = OverloadWatch(world.broker, EventHub(), loop, lambda: world.now, lambda: used_s[0])
    for iterations, is_metered in ((100, False), (10, True)):
        for _ in range(3):
            used_s[0] += 0.05
            loop.iterations += iterations
            world.advance(OVERLOAD_INTERVAL_S)
            watch.on_lag(0.03)
        assert world.broker.effects.meters_senders is is_metered


@pytest.mark.parametrize(("share", "stage"), [(0.04, 0), (0.06, 4)])
def test_a_loop_that_is_late_with_little_to_do_is_not_overloaded(share: float, stage: int) -> None:
    """Other programs have the processor: to drop messages and refuse connections would not make it less late."""
    world = World(overload_limits=OverloadLimits(max_lag_s=0.1))
    watch = OverloadWatch(world.broker, EventHub(), Loop(world), lambda: world.now, lambda: world.now * share)
    for _ in range(20):
        world.advance(OVERLOAD_INTERVAL_S)
        watch.on_lag(1.0)
    assert world.broker.overload.stage == stage


@pytest.mark.parametrize(
    ("share", "lags", "is_idle"),
    [
        pytest.param(0.04, 20 * [1.0], True, id="little to do"),
        pytest.param(0.06, 20 * [0.0], False, id="some work"),
        pytest.param(0.06, 20 * [1.0], False, id="overloaded"),
    ],
)
def test_a_loop_with_little_to_do_is_idle(share: float, lags: list[float], is_idle: bool) -> None:
    world = World(overload_limits=OverloadLimits(max_lag_s=0.1))
    watch = OverloadWatch(world.broker, EventHub(), Loop(world), lambda: world.now, lambda: world.now * share)
    for lag_s in lags:
        world.advance(OVERLOAD_INTERVAL_S)
        found = watch.on_lag(lag_s)
    assert found is is_idle


def test_a_loop_that_sheds_load_is_not_idle_however_little_it_does() -> None:
    world = World(overload_limits=OverloadLimits(max_lag_s=0.1))
    used_s = [0.0]
    watch = OverloadWatch(world.broker, EventHub(), Loop(world), lambda: world.now, lambda: used_s[0])
    for _ in range(20):
        used_s[0] += OVERLOAD_INTERVAL_S
        world.advance(OVERLOAD_INTERVAL_S)
        watch.on_lag(1.0)
    idle = []
    for _ in range(60):
        world.advance(OVERLOAD_INTERVAL_S)
        idle.append(watch.on_lag(0.0))
    assert idle == sorted(idle), "first it gives up shedding"
    assert (idle[0], idle[-1]) == (False, True)
    assert world.broker.overload.stage == 0
