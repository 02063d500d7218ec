"""Releases many messages in parts, so that a purge or a seek does not block the event loop."""

from collections import deque
from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.jobs import Job
from mqttlite.core.memory import ENTRY_BYTES
from mqttlite.core.message import Delivery
from mqttlite.extensions.queues.limits import RELEASED_PER_STEP


@final
class Release(Job):
    """The messages stay in the memory account until they are released."""

    __slots__ = ("_deliveries", "_effects")

    def __init__(self, deliveries: deque[Delivery], effects: Effects) -> None:
        self._deliveries: Final = deliveries
        self._effects: Final[Effects] = effects

    def step(self) -> bool:
        """Implements `Job`."""
        deliveries, memory = self._deliveries, self._effects.memory
        count = min(len(deliveries), RELEASED_PER_STEP)
        for _ in range(count):
            memory.let_go(deliveries.popleft().message, ENTRY_BYTES)
        self._effects.work += count  # about a microsecond each
        return not deliveries
