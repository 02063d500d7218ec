"""By how many messages a second a queue, or the lag of a group, grows.

Invariant: it does not depend on how often somebody asks.
"""

import math
from collections.abc import Collection
from typing import Final

GROWTH_OVER_S: Final = 60.0
"""The time that the average of the growth covers."""

_SOON_S: Final = 1.0
"""Measurements within this time count as one, because bursts would look like growth and shrinkage."""


class Growth:
    """The growth rates of what has names, as moving averages over `GROWTH_OVER_S`. It holds three numbers for each."""

    def __init__(self) -> None:
        self._known: Final[dict[str, tuple[float, int, float]]] = {}

    def note(self, name: str, depth: int, now: float) -> float:
        """Note that `depth` messages wait; returns by how many a second they grow or (negative) shrink."""
        known = self._known.get(name)
        if known is None:
            self._known[name] = (now, depth, 0.0)
            return 0.0
        at, before, growth = known
        elapsed_s = now - at
        if elapsed_s < _SOON_S:
            return growth
        rate = (depth - before) / elapsed_s
        growth = rate + math.exp(-elapsed_s / GROWTH_OVER_S) * (growth - rate)
        self._known[name] = (now, depth, growth)
        return growth

    def keep(self, names: Collection[str]) -> None:
        """There are no others."""
        for name in [each for each in self._known if each not in names]:
            del self._known[name]


def shown_growth(growth_per_s: float) -> str:
    """As `$SYS` has it."""
    return f"{round(growth_per_s, 2) + 0.0:.2f}"  # not -0.00
