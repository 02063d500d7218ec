"""The state of a queue's push, as operators see it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PushState:
    """The state of a queue's push. Counters start when the target is set or the broker starts."""

    url: str
    state: str
    """`pushing`, `failing`, `waiting` (the endpoint is left alone for `held_s`) or `stopped`."""
    why: str
    open: int
    window: int
    held_s: float
    secrets: int
    requests: dict[str, int]
