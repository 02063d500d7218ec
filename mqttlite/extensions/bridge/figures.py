"""What one bridge counts since the broker started, and how many messages a second it carries.

No clock here: the time is an argument. Invariant: a rate is that of the time between the latest two looks.
"""

from collections import Counter
from typing import Final, final

INTERVAL_S: Final = 5.0
"""How often `look` is called: long enough for an average, short enough for a person who watches."""


@final
class Figures:
    """The counters and rates of one bridge."""

    def __init__(self) -> None:
        self.sent: int = 0
        """Messages sent to the other broker, repeated ones included."""
        self.received: int = 0
        """Messages from the other broker, repeated ones included."""
        self.filtered: int = 0
        """Messages of the other broker that passed no filter of their entries."""
        self.refused: Final[Counter[str]] = Counter()
        """Messages that were dropped, by reason."""
        self.sent_per_s: float = 0.0
        self.received_per_s: float = 0.0
        self._looked: tuple[float, int, int] | None = None
        """The time of the latest look, with the counters of then."""

    def look(self, now: float) -> None:
        """Bring the rates up to date."""
        if self._looked is not None and now > self._looked[0]:
            at, sent, received = self._looked
            self.sent_per_s = round((self.sent - sent) / (now - at), 1)
            self.received_per_s = round((self.received - received) / (now - at), 1)
        self._looked = (now, self.sent, self.received)
