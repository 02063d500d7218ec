"""The values of the figures of queues, and what `$SYS` says of them."""

import heapq
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from mqttlite.extensions.queues.managed import QueueState
from mqttlite.extensions.queues.service import Queues
from mqttlite.telemetry.figures import MAX_REPORTED, Values
from mqttlite.telemetry.growth import Growth, shown_growth

MAX_PUBLISHED: Final = 100
"""Queues, the first by name, that `$SYS` tells of: the broker retains ten messages for each, and one for each cause of
its dead letters."""


class QueueFigures:
    """Of the queues of one broker. `clock` returns the broker's seconds."""

    def __init__(self, queues: Queues, clock: Callable[[], float]) -> None:
        self._queues: Final = queues
        self._clock: Final = clock
        self._growth: Final = Growth()

    def values(self) -> Mapping[str, Values]:
        """Of the first queues by name; by the names in the manifest."""
        found: dict[str, list[tuple[Mapping[str, str], float]]] = {
            name: [] for name in (*_VALUES, *_COUNTS, "queue_growth_per_second")
        }
        for state, growth_per_s in self._states(MAX_REPORTED):
            label = {"queue": state.name}
            for name, of_state in _VALUES.items():
                found[name].append((label, of_state(state)))
            found["queue_growth_per_second"].append((label, growth_per_s))
            for name, counts_of in _COUNTS.items():
                found[name] += [({**label, **kind}, count) for kind, count in counts_of(state)]
        return found

    def sys_values(self) -> Iterator[tuple[str, str]]:
        """The names below `$SYS/broker`, and their values."""
        for state, growth_per_s in self._states(MAX_PUBLISHED):
            yield from sys_values(state, growth_per_s)

    def _states(self, most: int) -> Iterator[tuple[QueueState, float]]:
        """The first queues by name, and by how many messages a second each grows or (negative) shrinks."""
        now, names = self._clock(), self._queues.names
        self._growth.keep(set(names))
        for name in heapq.nsmallest(most, names):
            state = self._queues.state(name)
            yield state, self._growth.note(name, state.depth, now)


def sys_values(state: QueueState, growth_per_s: float) -> Iterator[tuple[str, str]]:
    """What `$SYS/broker` says of a queue."""
    below = f"queues/{state.name}"
    yield f"{below}/depth", str(state.depth)
    yield f"{below}/leased", str(state.leased)
    yield f"{below}/lag", str(state.depth - state.leased)
    yield f"{below}/growth", shown_growth(growth_per_s)
    yield f"{below}/oldest_s", str(int(state.oldest_age_s))
    yield f"{below}/consumers", str(state.consumers)
    yield f"{below}/attempts", str(state.attempts)
    yield f"{below}/redeliveries", str(state.redeliveries)
    yield f"{below}/nacked_late", str(state.nacked_late)
    yield f"{below}/dead_letters", str(state.dead_letters)
    for cause, count in state.dead_letter_causes.items():
        yield f"{below}/dead_letters/{cause}", str(count)


_VALUES: Final[Mapping[str, Callable[[QueueState], float]]] = {
    "queue_depth": lambda q: q.depth,
    "queue_leased": lambda q: q.leased,
    "queue_scheduled": lambda q: q.scheduled,
    "queue_lag": lambda q: q.depth - q.leased,
    "queue_oldest_seconds": lambda q: q.oldest_age_s,
    "queue_consumers": lambda q: q.consumers,
    "queue_dead_letters": lambda q: q.dead_letters,
    "queue_published": lambda q: q.published,
    "queue_duplicates": lambda q: q.duplicates,
    "queue_refused": lambda q: q.refused,
    "queue_filtered": lambda q: q.filtered,
    "queue_retained": lambda q: q.retained,
    "queue_snapshots": lambda q: q.snapshots,
    "queue_returned": lambda q: q.returned,
    "queue_attempts": lambda q: q.attempts,
    "queue_redeliveries": lambda q: q.redeliveries,
    "queue_nacked_late": lambda q: q.nacked_late,
}


def _by(label: str, counts: Mapping[str, int]) -> list[tuple[dict[str, str], int]]:
    """A count for each value of a label, in their order."""
    return [({label: each}, count) for each, count in sorted(counts.items())]


_COUNTS: Final[Mapping[str, Callable[[QueueState], list[tuple[dict[str, str], int]]]]] = {
    "dead_letters": lambda q: _by("cause", q.dead_letter_causes),
    "queue_ended": lambda q: _by("end", q.ends),
    "queue_failures": lambda q: _by("cause", q.failures),
}
"""By the label besides the queue."""
