"""A standstill of the process is told in the log and by an alarm, which ends when it is over for a minute."""

import pytest

from mqttlite.event_hub import EventHub, Listener
from mqttlite.operations.standstill import CALM_S, STANDSTILL_S, StandstillWatch


class Alarms(Listener):
    def __init__(self) -> None:
        self.seen: list[tuple[str, bool, str]] = []
        self.lasted: list[float] = []

    def on_stood_still(self, duration_s: float) -> None:
        self.lasted.append(duration_s)

    def on_alarm(self, alarm: str, active: bool, detail: str) -> None:
        self.seen.append((alarm, active, detail))


def test_a_standstill_is_a_line_in_the_log_an_event_and_an_alarm(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING")
    hub, alarms, now = EventHub(), Alarms(), [100.0]
    hub.register(alarms)
    watch = StandstillWatch(hub, lambda: now[0])
    watch.on_lag(STANDSTILL_S - 0.001)
    assert (alarms.seen, caplog.messages) == ([], [])
    watch.on_lag(20.0)
    assert alarms.lasted == [20.0]
    assert alarms.seen == [("stood_still", True, "the broker stood still for 20.0 s")]
    assert "the broker stood still for 20.0 s: the process was stopped" in caplog.text
    now[0] += CALM_S - 1
    watch.on_lag(STANDSTILL_S)
    now[0] += CALM_S - 1
    watch.on_lag(0.0)
    assert [active for _, active, _ in alarms.seen] == [True, True]
    now[0] += 1
    for _ in range(3):
        watch.on_lag(0.0)
    assert [active for _, active, _ in alarms.seen] == [True, True, False]
