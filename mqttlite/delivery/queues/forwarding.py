"""Dead letters on their way to the topics that queues have for them.

They are published behind what is being done, not in the midst of it: a queue may take them, and make a dead letter of
another message. Invariant: a queue forwards a message once, so that queues that are bound to each other's dead letters
end.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, final

from mqttlite.core.drops import Drops
from mqttlite.core.effects import Effects
from mqttlite.core.jobs import Job, Jobs, has_budget
from mqttlite.core.message import Message
from mqttlite.core.reasons import QUEUE_FULL
from mqttlite.delivery.queues.limits import MAX_FORWARDED


@final
class Forwarding(Job):
    """Those of all queues of a broker."""

    __slots__ = ("_drops", "_effects", "_jobs", "_publish", "_waiting")

    def __init__(self, effects: Effects, jobs: Jobs, drops: Drops, publish: Callable[[Message], object]) -> None:
        self._effects: Final = effects
        self._jobs: Final = jobs
        self._drops: Final = drops
        self._publish: Final = publish
        self._waiting: Final[deque[Message]] = deque()

    def add(self, message: Message) -> None:
        """Publish a message soon. Too many at a time are dropped; their queues keep them."""
        if len(self._waiting) >= MAX_FORWARDED:
            self._drops.add(QUEUE_FULL, 1, message.topic)
            return
        self._waiting.append(message)
        if len(self._waiting) == 1:
            self._jobs.queue(self)

    def step(self) -> bool:
        """As `Job`."""
        while self._waiting and has_budget(self._effects):
            self._publish(self._waiting[0])
            self._waiting.popleft()  # now, so that what follows from it does not make another job
        return not self._waiting
