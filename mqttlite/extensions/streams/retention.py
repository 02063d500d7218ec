"""Looks for old messages of streams from time to time."""

from collections.abc import Callable
from typing import Final, final

from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.effects import Effects
from mqttlite.extensions.streams.limits import LONGEST_WAIT_S, SEGMENTS

SHORTEST_WAIT_S: Final = 0.1


@final
class Retention(Deadline):
    """`remove_old` removes them, and returns the shortest time that a stream keeps messages: 0.0 if all keep them for
    any time."""

    __slots__ = ("_deadlines", "_effects", "_remove_old", "is_armed")

    def __init__(self, effects: Effects, deadlines: Deadlines, remove_old: Callable[[], float]) -> None:
        super().__init__()
        self._effects: Final = effects
        self._deadlines: Final = deadlines
        self._remove_old: Final = remove_old
        self.is_armed: bool = False

    def begin(self) -> None:
        """Look now, and again after a part of the shortest time, if there is one."""
        shortest_s = self._remove_old()
        self.is_armed = shortest_s > 0.0
        if self.is_armed:
            wait_s = min(LONGEST_WAIT_S, max(SHORTEST_WAIT_S, shortest_s / SEGMENTS))
            self._deadlines.arm(self, self._effects.now + wait_s)

    def on_due(self) -> None:
        self.begin()
