"""Passes load measurements to the core, and reports the stages of overload to the log and the listeners.

`core/overload` decides on the stages. Invariant: each change of the stage is reported once, with the figures of that
moment.
"""

import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

from mqttlite.core.broker import Broker
from mqttlite.core.load.overload import CALM, SHED_LOW_PRIORITY
from mqttlite.event_hub import OVERLOAD_STAGES, OVERLOADED, EventHub, OverloadStage

_log = logging.getLogger("mqttlite")

IDLE_SHARE: Final = 0.05
"""A loop that uses less of a processor is idle. Other programs make it late, and shedding load would not help."""


class Loop(Protocol):
    """The loop driver: `wake` makes it carry out effects."""

    iterations: int

    def wake(self) -> None: ...


class OverloadWatch:
    """It runs in the thread of the loop. `processor_time` returns the processor seconds used by that thread."""

    def __init__(
        self,
        core: Broker,
        hub: EventHub,
        loop: Loop,
        clock: Callable[[], float],
        processor_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self._core: Final = core
        self._hub: Final = hub
        self._loop: Final = loop
        self._clock: Final = clock
        self._processor_time: Final = processor_time
        self._at = clock()
        self._used_s = processor_time()
        self._iterations = loop.iterations
        self._begun_at: Final = dict.fromkeys(OVERLOAD_STAGES, 0.0)
        """When each stage began."""

    def on_lag(self, lag_s: float) -> bool:
        """A timer of the event loop was late by `lag_s`. Return whether the loop is idle and nothing is shed."""
        overload = self._core.overload
        before = overload.stage
        now = self._clock()
        used_s, iterations = self._processor_time(), self._loop.iterations
        worked_s = used_s - self._used_s
        iteration_s = worked_s / max(1, iterations - self._iterations)
        is_idle = worked_s < IDLE_SHARE * (now - self._at)
        self._at, self._used_s, self._iterations = now, used_s, iterations
        self._core.weigh(0.0 if is_idle else lag_s, iteration_s, now)
        if overload.stage == before:
            return is_idle and overload.stage == CALM and not self._core.effects.meters_senders
        self._loop.wake()
        begins = overload.stage > before
        stage = max(overload.stage, before)
        if begins:
            self._begun_at[stage] = now
        memory = self._core.effects.memory
        detail = (
            f"load {overload.load:.2f} (event loop {overload.lag_load:.2f}, memory {overload.memory_load:.2f}: "
            f"{memory.used} of {memory.limit} bytes)"
        )
        _log.warning("overload, %s: %s%s", detail, OVERLOAD_STAGES[stage], "" if begins else " no longer")
        self._hub.on_overload(
            OverloadStage(stage, begins, overload.load, OVERLOAD_STAGES[stage], now - self._begun_at[stage])
        )
        if stage >= SHED_LOW_PRIORITY:
            is_shedding = overload.stage >= SHED_LOW_PRIORITY
            what = "; ".join(OVERLOAD_STAGES[number] for number in OVERLOAD_STAGES if number <= overload.stage)
            self._hub.on_alarm(OVERLOADED, is_shedding, f"{detail}: {what}" if is_shedding else detail)
        return False
