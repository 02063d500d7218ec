"""The traffic counters of the gateway, for the metrics.

Invariant: labels are of small fixed sets: groups of paths, and statuses.
"""

from collections import Counter
from typing import Final

GROUPS: Final = (
    ("/topics/", "publish"),
    ("/api/v1/publish/", "publish"),
    ("/events", "subscribe"),
    ("/ws/", "subscribe"),
    ("/api/", "api"),
    ("/registry/", "registry"),
    ("/v1/", "pubsub"),
)
"""The first beginning of a path that fits names its group; the others are `pages`."""

NO_REQUEST: Final = "none"
"""The group of what is answered before a path is known: no HTTP, too long, too late."""


class HttpCounters:
    """One for each gateway."""

    __slots__ = ("received_bytes", "requests", "sent_bytes", "slow_readers_cut")

    def __init__(self) -> None:
        self.requests: Final[Counter[tuple[str, int]]] = Counter()
        """Answers by group and status; 101 for a WebSocket that was opened."""
        self.received_bytes: int = 0
        """All that came."""
        self.sent_bytes: int = 0
        """Bodies of answers, events and messages."""
        self.slow_readers_cut: int = 0
        """Connections that ended because their clients took nothing."""


def group_of(path: str) -> str:
    """The group of a path."""
    for start, group in GROUPS:
        if path.startswith(start):
            if group != "api":
                return group
            return {"publish": "publish", "subscribe": "subscribe"}.get(path.rpartition("/")[2], "api")
    return "pages"
