"""Overload: how loaded the broker is, and what it does about it, in stages that begin and end in a declared order.

The load is a number: 0 is idle, 1 is all that is left. It comes from how late the event loop is and how much memory is
used, which others measure. Invariant: a stage begins only while the one before it is in force, and none of them touches
a QoS 1 or 2 message that was accepted.
"""

from typing import Final, final

from mqttlite.core.credits import Credits
from mqttlite.core.deadlines import Deadlines
from mqttlite.core.effects import Effects
from mqttlite.core.limits import (
    LATENESS_SMOOTHING,
    MOST_LATENESS,
    MOST_LOAD,
    OVERLOAD_SMOOTHING,
    OVERLOAD_STAGE_S,
    OverloadLimits,
)
from mqttlite.core.memory import MemoryAccount

CALM: Final = 0
SLOW_SENDERS: Final = 1
"""The clients that send most are read more slowly, as far as others have to wait for them."""
SHED_LOW_PRIORITY: Final = 2
"""Messages of low priority are dropped as well; of QoS 1 and 2 only those that a refusal (0x97) can be told."""
SHED_QOS0: Final = 3
"""QoS 0 messages are dropped as well."""
REFUSE_CONNECTS: Final = 4
"""New connections are refused as well (0x89)."""

BEGINS_AT: Final = (0.0, 0.5, 0.8, 0.9, 1.0)
"""The load from which on a stage begins; the first one also begins with the first client that is slowed, and lasts as
long as one is."""

ENDS_BELOW: Final = (0.0, 0.4, 0.7, 0.8, 0.9)
"""The load below which it ends: a little lower, so that none begins and ends ten times a second."""


EARLY: Final = 0.8
"""Clients are slowed less while the smoothed lag of the loop is below this part of `target_lag_s`."""


@final
class Overload:
    """One for each broker. `update` is called every `OVERLOAD_INTERVAL_S`."""

    __slots__ = (
        "_effects",
        "_lateness",
        "_limits",
        "_memory",
        "_stage_since",
        "connects_refused",
        "credits",
        "lag_load",
        "load",
        "memory_load",
        "stage",
    )

    def __init__(self, effects: Effects, deadlines: Deadlines, limits: OverloadLimits) -> None:
        self._effects: Final = effects
        self._limits: Final = limits
        self._memory: Final = effects.memory
        self._stage_since = 0.0
        self._lateness = 0.0
        """The lag that comes of what clients send, as a multiple of its target."""
        self.credits: Final = Credits(effects, deadlines)
        self.lag_load: float = 0.0
        self.memory_load: float = 0.0
        self.load: float = 0.0
        """The higher of these two."""
        self.stage: int = CALM
        self.connects_refused: int = 0

    def update(self, lag_s: float, iteration_s: float, now: float) -> None:
        """The loop came so late to a timer, and an iteration took so much of the processor's time, on average.

        Of the lag that is longer than an iteration, the rest comes of other programs that have the processor: it would
        not end if clients sent less.
        """
        limits = self._limits
        if not limits.enabled:
            return
        self.lag_load += OVERLOAD_SMOOTHING * (min(MOST_LOAD, lag_s / limits.max_lag_s) - self.lag_load)
        self.memory_load = load_of_memory(self._memory)
        self.load = max(self.lag_load, self.memory_load)
        own_lag = min(lag_s, iteration_s) / limits.target_lag_s
        self._lateness += LATENESS_SMOOTHING * (min(MOST_LATENESS, own_lag) - self._lateness)
        self._meter(self._lateness >= 1.0, self._lateness < EARLY)
        stage = self._next_stage(now)
        if self.stage != stage:
            self._enter(stage, now)

    def _meter(self, is_late: bool, is_early: bool) -> None:
        """Look at what each client costs while the loop is late, or while one is slowed."""
        effects, credits = self._effects, self.credits
        if effects.meters_senders:
            credits.adjust(is_late, is_early)
            if is_early and not credits.is_mixed and not credits.are_used:
                effects.meters_senders = False
                credits.end()
        elif is_late:
            effects.meters_senders = True

    def _next_stage(self, now: float) -> int:
        """The stage from now on: one more at most, and that after the others had time to help."""
        stage = self.stage
        if stage < REFUSE_CONNECTS and self.load >= BEGINS_AT[stage + 1]:
            return stage + 1 if stage == CALM or now - self._stage_since >= OVERLOAD_STAGE_S else stage
        if stage <= SLOW_SENDERS and self.credits.are_used:
            return SLOW_SENDERS
        return stage if self.load >= ENDS_BELOW[stage] else stage - 1

    def _enter(self, stage: int, now: float) -> None:
        effects = self._effects
        self.stage = stage
        self._stage_since = now
        effects.sheds_low_priority = stage >= SHED_LOW_PRIORITY
        effects.sheds_qos0 = stage >= SHED_QOS0
        effects.refuses_connects = stage >= REFUSE_CONNECTS


def load_of_memory(memory: MemoryAccount) -> float:
    """0.8 where the QoS 0 messages of the biggest hoarders begin to be dropped, and 1 where no holder has more room."""
    used, some, much = memory.used, memory.enough_below, memory.shed_above
    shed = BEGINS_AT[SHED_LOW_PRIORITY]
    if used <= some:
        return 0.0
    if used <= much:
        return shed * (used - some) / (much - some)
    return shed + (1.0 - shed) * (used - much) / (memory.shared - much)
