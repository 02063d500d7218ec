"""Publishes dead letters to the `dead_letter_topic` of their queues.

It does so in a later job, not in the middle of another operation, because another queue may take them and in turn make
a dead letter. Invariant: a queue forwards a message once, so that cycles of dead letter topics end.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, final

from mqttlite.core.drops import Drops
from mqttlite.core.effects import Effects
from mqttlite.core.jobs import Job, Jobs, has_budget
from mqttlite.core.message import Message
from mqttlite.core.reasons import QUEUE_FULL
from mqttlite.extensions.queues.limits import MAX_FORWARDED


@final
class Forwarding(Job):
    """One for all queues of a broker."""

    __slots__ = ("_drops", "_effects", "_jobs", "_publish", "_waiting")

    def __init__(self, effects: Effects, jobs: Jobs, drops: Drops, publish: Callable[[Message], object]) -> None:
        self._effects: Final = effects
        self._jobs: Final = jobs
        self._drops: Final = drops
        self._publish: Final = publish
        self._waiting: Final[deque[Message]] = deque()

    def add(self, message: Message) -> None:
        """Publish a message soon. If too many wait, it is not published, but its queue keeps it."""
        if len(self._waiting) >= MAX_FORWARDED:
            self._drops.add(QUEUE_FULL, 1, message.topic)
            return
        self._waiting.append(message)
        if len(self._waiting) == 1:
            self._jobs.queue(self)

    def step(self) -> bool:
        """Implements `Job`."""
        while self._waiting and has_budget(self._effects):
            self._publish(self._waiting[0])
            self._waiting.popleft()  # before publishing, which may add more
        return not self._waiting
