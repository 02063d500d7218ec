"""Overload: measures the load of the broker and sheds load in stages that begin and end in a fixed order.

The load is a number: 0 is idle, 1 is full. It comes from the lag of the event loop and the memory used, which others
measure. Invariant: a stage begins only while the one before it is in force, and no stage drops an accepted QoS 1 or 2
message.
"""

from typing import Final, final

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
from mqttlite.core.load.credits import Credits
from mqttlite.core.memory import MemoryAccount

CALM: Final = 0
SLOW_SENDERS: Final = 1
"""The clients that send most are read more slowly, if other clients have to wait for them."""
SHED_LOW_PRIORITY: Final = 2
"""Low-priority messages are dropped as well. At QoS 1 and 2, only if the publisher can get a refusal (0x97)."""
SHED_QOS0: Final = 3
"""QoS 0 messages are dropped as well."""
REFUSE_CONNECTS: Final = 4
"""New connections are refused as well (0x89)."""

BEGINS_AT: Final = (0.0, 0.5, 0.8, 0.9, 1.0)
"""The load at which each stage begins. The first stage also begins with the first slowed client, and lasts while one is
slowed."""

ENDS_BELOW: Final = (0.0, 0.4, 0.7, 0.8, 0.9)
"""The load below which each stage ends: a little lower, so that stages do not flap."""


EARLY: Final = 0.8
"""Clients are slowed less while the smoothed lag of the loop is below this fraction of `target_lag_s`."""


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
        """The lag that clients cause, as a multiple of the target, smoothed."""
        self.credits: Final = Credits(effects, deadlines)
        self.lag_load: float = 0.0
        self.memory_load: float = 0.0
        self.load: float = 0.0
        """The higher of the two loads above."""
        self.stage: int = CALM
        self.connects_refused: int = 0

    def update(self, lag_s: float, iteration_s: float, now: float) -> None:
        """Update the load from how late the loop was for a timer, and the mean processor time of an iteration.

        Lag beyond the length of an iteration is caused by other programs on the processor. Slowing clients would not
        reduce it.
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
        """Measure each client's work while the loop is late, or while a client is slowed."""
        effects, credits = self._effects, self.credits
        if effects.meters_senders:
            credits.adjust(is_late, is_early)
            if is_early and not credits.is_mixed and not credits.are_used:
                effects.meters_senders = False
                credits.end()
        elif is_late:
            effects.meters_senders = True

    def _next_stage(self, now: float) -> int:
        """The next stage: at most one higher, and only after the current one had time to take effect."""
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
    """The load of memory: 0.8 when the largest outboxes begin to lose QoS 0 messages, 1 when no holder has more
    room."""
    used, some, much = memory.used, memory.enough_below, memory.shed_above
    shed = BEGINS_AT[SHED_LOW_PRIORITY]
    if used <= some:
        return 0.0
    if used <= much:
        return shed * (used - some) / (much - some)
    return shed + (1.0 - shed) * (used - much) / (memory.shared - much)
