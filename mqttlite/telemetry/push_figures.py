"""The metrics and `$SYS` values of a queue's push."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

STATES: Final = ("pushing", "failing", "waiting", "stopped")
"""The states of a push."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushFigures:
    """One queue. Counts are since its target was set, or the broker started."""

    state: str
    open: int
    window: int
    requests: Mapping[str, int]
    """By the class of the status, or why there was no response."""


def push_sys_values(name: str, push: PushFigures | None) -> Iterator[tuple[str, str]]:
    """The names below `$SYS/broker`, and their values, of one queue."""
    if push is not None:
        yield f"queues/{name}/push/state", push.state
        yield f"queues/{name}/push/open", str(push.open)
        yield f"queues/{name}/push/window", str(push.window)
        for result, count in push.requests.items():
            if count:
                yield f"queues/{name}/push/requests/{result}", str(count)
