"""How long to wait before the next attempt to connect. No clock and no dice here: both are arguments.

Invariant: every delay is at most `max_s`.
"""

from typing import Final, final

MIN_DELAY_S: Final = 0.5
"""The first delay: long enough for a broker to restart its listener, short enough to be missed by a person."""

MAX_DELAY_S: Final = 30.0
"""The longest delay: an hour of outage costs a server two attempts per client and minute."""


@final
class Backoff:
    """Delays that double from `min_s` to `max_s`, each between half and all of itself by chance.

    The chance keeps a thousand clients that lost one server from coming back in the same instant.
    """

    def __init__(self, min_s: float = MIN_DELAY_S, max_s: float = MAX_DELAY_S) -> None:
        if not 0 < min_s <= max_s:
            raise ValueError(f"reconnect delays from {min_s} to {max_s} s: they must be above zero and in order")
        self._min_s = min_s
        self._max_s = max_s
        self._delay_s = min_s

    def next_s(self, chance: float) -> float:
        """The delay before the next attempt; `chance` is a random number from 0 to 1."""
        delay_s = self._delay_s
        self._delay_s = min(delay_s * 2, self._max_s)
        return delay_s * (1 + chance) / 2

    def on_lost(self, lasted_s: float) -> None:
        """A connection was made and lasted that long: begin anew, unless it was too short to be called one."""
        if lasted_s >= self._delay_s:
            self._delay_s = self._min_s
