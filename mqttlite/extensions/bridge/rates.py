"""How many messages a second a bridge carries. No clock here: the time is an argument.

Invariant: a rate is that of the time between the latest two looks, which are `INTERVAL_S` apart.
"""

from typing import Final, final

INTERVAL_S: Final = 5.0
"""How often the counters are looked at: long enough for an average, short enough for a person who watches."""


@final
class MessageRates:
    """Messages a second, to and from the other broker."""

    def __init__(self) -> None:
        self.sent_per_s: float = 0.0
        self.received_per_s: float = 0.0
        self._at: float | None = None
        self._sent = 0
        self._received = 0

    def look(self, now: float, sent: int, received: int) -> None:
        """Take the counters of now."""
        if self._at is not None and now > self._at:
            self.sent_per_s = round((sent - self._sent) / (now - self._at), 1)
            self.received_per_s = round((received - self._received) / (now - self._at), 1)
        self._at, self._sent, self._received = now, sent, received
