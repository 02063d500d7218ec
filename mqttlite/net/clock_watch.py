"""Notices when the wall clock steps while the broker runs: it was set, or the machine was suspended.

The broker's seconds do not step. Invariant: the core learns of each step once, within `LOOK_S`.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

LOOK_S: Final = 2.0
"""How often the clocks are compared."""

STEP_S: Final = 1.0
"""Smaller differences are corrections, and collect until they are a step."""

_log = logging.getLogger("mqttlite")


class ClockWatch:
    """`on_step` gets the seconds by which the wall clock stepped, forward or (negative) back."""

    def __init__(
        self,
        on_step: Callable[[float], None],
        *,
        wall_clock: Callable[[], float] = time.time,
        steady_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_step: Final = on_step
        self._wall_clock: Final = wall_clock
        self._steady_clock: Final = steady_clock
        self._apart = wall_clock() - steady_clock()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin, on the running loop."""
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        stepped_s = self._wall_clock() - self._steady_clock() - self._apart
        if abs(stepped_s) > STEP_S:
            self._apart += stepped_s
            _log.warning("the wall clock stepped by %+.1f s: sessions, wills and delayed messages follow it", stepped_s)
            self._on_step(stepped_s)
        self.start()
