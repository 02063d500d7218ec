"""The connections of a listener whose clients have yet to send CONNECT, oldest first.

Invariant: an entry keeps its place from the accept on, through all handshakes.
"""

from collections.abc import Callable
from typing import Final

from mqttlite.net.link import LinkPort


class HalfOpen:
    """Holds at most `limit` connections, if its owner makes room before adding one."""

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        self._entries: Final[dict[LinkPort, tuple[float, Callable[[], object]]]] = {}

    @property
    def is_full(self) -> bool:
        """Whether a connection must be closed before another is added."""
        return len(self._entries) >= self.limit

    def add(self, link: LinkPort, close: Callable[[], object], now: float) -> None:
        """Add the connection of a link, and the function that closes it. One that is already here keeps its place."""
        self._entries.setdefault(link, (now, close))

    def discard(self, link: LinkPort) -> None:
        """Remove a connection that is gone or has sent CONNECT. Harmless if it is not here."""
        self._entries.pop(link, None)

    def close_oldest(self, opened_by: float) -> bool:
        """Close the oldest connection if it was opened at `opened_by` or before. Return whether it was."""
        for link, (opened_at, close) in self._entries.items():
            if opened_at > opened_by:
                return False
            del self._entries[link]
            close()
            return True
        return False
