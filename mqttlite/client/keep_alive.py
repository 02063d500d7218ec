"""When to send PINGREQ, and when to give a silent server up. A table of times; the timer lives in `connection`.

Invariant: a living server hears from us at least every `interval_s` [MQTT-3.1.2-20].
"""

from enum import Enum
from typing import Final, final


class Due(Enum):
    """The actions that can be due."""

    NOTHING = "nothing"
    PING = "ping"
    LOST = "lost"


@final
class KeepAlive:
    """One connection's times. `interval_s` of zero means: never ping."""

    def __init__(self, interval_s: float, response_timeout_s: float, now: float) -> None:
        self.interval_s: Final = interval_s
        self._response_timeout_s: Final = min(response_timeout_s, interval_s)
        self.sent_at = now
        self.received_at: float = now
        self._pinged_at: float | None = None

    def run(self, now: float, *, deaf: bool = False) -> tuple[Due, float]:
        """The due action, and when to ask again. `deaf`: the client does not read, so silence proves nothing."""
        if deaf:
            self.received_at = now
        if self._pinged_at is not None:
            if self.received_at >= self._pinged_at:
                self._pinged_at = None
            elif now >= self._pinged_at + self._response_timeout_s:
                return Due.LOST, now
            else:
                return Due.NOTHING, self._pinged_at + self._response_timeout_s
        # A sender that hears nothing pings, too: else QoS 0 into a dead connection would go unnoticed.
        ping_at = min(self.sent_at, self.received_at) + self.interval_s
        if now < ping_at:
            return Due.NOTHING, ping_at
        self._pinged_at = now
        return Due.PING, now + self._response_timeout_s
