"""Reports that the whole process stood still: it or its machine was paused, memory was swapped, or a disk blocked it.

Clients notice it as silence, and the loop of a busy broker never is so late. Invariant: each standstill is one line in
the log and one event, and the alarm is active from the first one until `CALM_S` after the last.
"""

import logging
from collections.abc import Callable
from typing import Final

from mqttlite.event_hub import STOOD_STILL, EventHub

STANDSTILL_S: Final = 1.0
"""How late the event loop is at least. Work gives way after some milliseconds, so load alone does not do it."""

CALM_S: Final = 60.0
"""How long the alarm stays active: an operator who looks every minute sees it."""

_log = logging.getLogger("mqttlite")


class StandstillWatch:
    """`clock` shows the time of the event loop."""

    def __init__(self, hub: EventHub, clock: Callable[[], float]) -> None:
        self._hub: Final = hub
        self._clock: Final = clock
        self._active_until = 0.0

    def on_lag(self, lag_s: float) -> None:
        """A timer of the event loop was late by `lag_s`."""
        now = self._clock()
        if lag_s >= STANDSTILL_S:
            self._active_until = now + CALM_S
            detail = f"the broker stood still for {lag_s:.1f} s"
            _log.warning(
                "%s: the process was stopped, the machine was paused or swapped, or something blocked the event loop",
                detail,
            )
            self._hub.on_stood_still(lag_s)
            self._hub.on_alarm(STOOD_STILL, True, detail)
        elif self._active_until and now >= self._active_until:
            self._active_until = 0.0
            self._hub.on_alarm(STOOD_STILL, False, "")
