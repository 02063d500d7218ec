"""Deletes queues that had no consumer for some time (`idle_expiry_s`).

The time starts at the creation of the queue, at the start of the broker, and with each use. Invariant: a queue with a
consumer is not deleted.
"""

from collections.abc import Callable
from typing import Final, final

from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.effects import Effects

LOOKS: Final = 10
"""How many checks for a consumer there are in that time. A queue may be deleted later by one interval, never
earlier."""


@final
class IdleEnd(Deadline):
    """The idle deadline of one queue. `has_consumer` says whether it has a consumer now, and `end` deletes it."""

    __slots__ = ("_deadlines", "_effects", "_end", "_has_consumer", "_is_armed", "_seconds", "_used_at")

    def __init__(
        self,
        effects: Effects,
        deadlines: Deadlines,
        seconds: float,
        has_consumer: Callable[[], bool],
        end: Callable[[], None],
    ) -> None:
        super().__init__()
        self._effects: Final = effects
        self._deadlines: Final = deadlines
        self._seconds: Final = seconds
        self._has_consumer: Final = has_consumer
        self._end: Final = end
        self._used_at = effects.now
        self._is_armed = False
        self._arm()

    def use(self) -> None:
        """Note that a consumer used the queue."""
        self._used_at = self._effects.now

    def stop(self) -> None:
        """Cancel the deadline: the queue is deleted, or no longer expires."""
        if self._is_armed:
            self._is_armed = False
            self._deadlines.cancel(self)

    def on_due(self) -> None:
        self._is_armed = False
        now = self._effects.now
        if self._has_consumer():
            self._used_at = now
        if now >= self._used_at + self._seconds + self._seconds / LOOKS:
            self._end()
        else:
            self._arm()

    def _arm(self) -> None:
        self._is_armed = True
        self._deadlines.arm(self, self._effects.now + self._seconds / LOOKS)
