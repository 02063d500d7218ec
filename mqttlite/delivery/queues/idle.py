"""Queues that end when nobody has consumed from them for a while (`idle_expiry_s`).

The time begins when the queue is made and when the broker starts, and with each use. Invariant: a queue with a consumer
does not end.
"""

from collections.abc import Callable
from typing import Final, final

from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.effects import Effects

LOOKS: Final = 10
"""How often in its time one looks whether a queue has a consumer. By so much later it may end, and never earlier."""


@final
class IdleEnd(Deadline):
    """Of one queue. `has_consumer` says whether there is one now, and `end` deletes the queue."""

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
        """Somebody consumes."""
        self._used_at = self._effects.now

    def stop(self) -> None:
        """The queue is deleted, or does not end any more."""
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
