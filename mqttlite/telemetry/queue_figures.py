"""The metrics and `$SYS` values of `$queue/<name>` queues."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from mqttlite.telemetry.push_figures import PushFigures, push_sys_values

MAX_REPORTED: Final = 1_000
"""Queues, the first by name, that metrics tell of: each is a dozen lines of a report."""

MAX_PUBLISHED: Final = 100
"""The same for `$SYS`, where the broker retains ten messages for each, and one for each cause of its dead letters."""

GROWTH_OVER_S: Final = 60.0
"""The time that the average of the growth covers."""

_SOON_S: Final = 1.0
"""Measurements within this time count as one, because bursts would look like growth and shrinkage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFigures:
    """One queue. Counts of what happened are since the start of the broker."""

    name: str
    depth: int
    """The number of unfinished messages."""
    leased: int
    scheduled: int
    growth_per_s: float
    """By how many messages a second it grows, or (negative) shrinks."""
    oldest_age_s: float
    consumers: int
    dead_letters: int
    published: int
    refused: int
    filtered: int
    retained: int
    snapshots: int
    returned: int
    """Ended messages that a seek brought back."""
    attempts: int
    redeliveries: int
    nacked_late: int
    ends: Mapping[str, int]
    failures: Mapping[str, int]
    dead_letters_total: int
    dead_letter_causes: Mapping[str, int]
    push: PushFigures | None = None
    """None for a queue that is not pushed."""

    @property
    def lag(self) -> int:
        """Messages that no consumer has: they wait for their first attempt, or the next."""
        return self.depth - self.leased


class Growth:
    """The growth rates of queues (new minus ended messages), as moving averages over `GROWTH_OVER_S`.

    It holds three numbers for each existing queue.
    """

    def __init__(self) -> None:
        self._known: Final[dict[str, tuple[float, int, float]]] = {}

    def note(self, name: str, depth: int, now: float) -> float:
        """Note that a queue has `depth` messages; returns by how many a second it grows."""
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
        """There are no other queues."""
        for name in [each for each in self._known if each not in names]:
            del self._known[name]


def sys_values(queues: Sequence[QueueFigures]) -> Iterator[tuple[str, str]]:
    """The names below `$SYS/broker`, and their values."""
    for each in islice(queues, MAX_PUBLISHED):
        yield f"queues/{each.name}/depth", str(each.depth)
        yield f"queues/{each.name}/leased", str(each.leased)
        yield f"queues/{each.name}/lag", str(each.lag)
        yield f"queues/{each.name}/growth", f"{round(each.growth_per_s, 2) + 0.0:.2f}"  # not -0.00
        yield f"queues/{each.name}/oldest_s", str(int(each.oldest_age_s))
        yield f"queues/{each.name}/consumers", str(each.consumers)
        yield f"queues/{each.name}/attempts", str(each.attempts)
        yield f"queues/{each.name}/redeliveries", str(each.redeliveries)
        yield f"queues/{each.name}/nacked_late", str(each.nacked_late)
        yield f"queues/{each.name}/dead_letters", str(each.dead_letters)
        yield from push_sys_values(each.name, each.push)
        for cause, count in each.dead_letter_causes.items():
            yield f"queues/{each.name}/dead_letters/{cause}", str(count)
