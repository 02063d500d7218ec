"""The connections of a listener whose clients have yet to send CONNECT, oldest first.

Invariant: an entry keeps its place from the accept on, whatever handshakes follow.
"""

from collections.abc import Callable
from typing import Final

from mqttlite.net.link import LinkPort


class HalfOpen:
    """At most `limit` of them, if its owner makes room before it adds one."""

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        self._entries: Final[dict[LinkPort, tuple[float, Callable[[], object]]]] = {}

    @property
    def is_full(self) -> bool:
        """Whether one must go before another comes."""
        return len(self._entries) >= self.limit

    def add(self, link: LinkPort, close: Callable[[], object], now: float) -> None:
        """Note the connection of a link, and how it is closed; one that is noted already keeps its place."""
        self._entries.setdefault(link, (now, close))

    def discard(self, link: LinkPort) -> None:
        """The connection is gone, or its client has sent CONNECT. Harmless when it is not here."""
        self._entries.pop(link, None)

    def close_oldest(self, opened_by: float) -> bool:
        """Close the oldest connection, if there is one that was opened at `opened_by` or before."""
        for link, (opened_at, close) in self._entries.items():
            if opened_at > opened_by:
                return False
            del self._entries[link]
            close()
            return True
        return False
