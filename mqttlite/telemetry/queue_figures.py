"""What metrics and `$SYS` say of the queues of `$queue/<name>`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from mqttlite.telemetry.push_figures import PushFigures, push_sys_values

MAX_REPORTED: Final = 1_000
"""Queues, the first by name, that metrics tell of: each is a dozen lines of a report."""

MAX_PUBLISHED: Final = 100
"""The same for `$SYS`, where the broker retains half a dozen messages for each, and a thousand in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFigures:
    """One queue. Counts of what happened are since the start of the broker."""

    name: str
    depth: int
    """Messages that have not come to their end."""
    leased: int
    scheduled: int
    oldest_age_s: float
    consumers: int
    dead_letters: int
    published: int
    refused: int
    filtered: int
    attempts: int
    ends: Mapping[str, int]
    failures: Mapping[str, int]
    dead_letters_total: int
    push: PushFigures | None = None
    """None for a queue that is not pushed."""


def sys_values(queues: Sequence[QueueFigures]) -> Iterator[tuple[str, str]]:
    """The names below `$SYS/broker`, and their values."""
    for each in islice(queues, MAX_PUBLISHED):
        yield f"queues/{each.name}/depth", str(each.depth)
        yield f"queues/{each.name}/leased", str(each.leased)
        yield f"queues/{each.name}/oldest_s", str(int(each.oldest_age_s))
        yield f"queues/{each.name}/consumers", str(each.consumers)
        yield f"queues/{each.name}/attempts", str(each.attempts)
        yield f"queues/{each.name}/dead_letters", str(each.dead_letters)
        yield from push_sys_values(each.name, each.push)
