"""The interface of a queue for a consumer inside the broker: it takes messages, and reports the outcome of each.

Its leases do not survive the broker, because the consumer does not either. Invariant: messages from `take` may be sent
only after the changes are committed.
"""

from collections.abc import Callable
from typing import Final

from mqttlite.core.broker import Broker
from mqttlite.extensions.queues.entry import Entry
from mqttlite.extensions.queues.outcomes import NACKED
from mqttlite.extensions.queues.queue import Queue
from mqttlite.log.deliveries import LEASED


class Feed:
    """`consumer` is its name in the delivery log. `clock` returns the broker's seconds, and `wake` makes the loop
    driver carry out effects."""

    def __init__(
        self, queue: Queue, core: Broker, consumer: str, clock: Callable[[], float], wake: Callable[[], None]
    ) -> None:
        self._queue: Final = queue
        self._core: Final = core
        self._consumer: Final = consumer
        self._clock: Final = clock
        self._wake: Final = wake

    def on_ready(self, call: Callable[[], None] | None) -> None:
        """Set a function to call when there may be messages to take. It must not use the feed. None removes it."""
        self._queue.on_ready = call

    @property
    def is_over(self) -> bool:
        """Whether the queue was deleted."""
        return self._queue.is_over

    def take(self, most: int, seconds: float) -> list[Entry]:
        """Lease up to `most` messages for `seconds`. Send them after the changes are committed."""
        self._core.effects.now = self._clock()
        return self._queue.pull(self._consumer, most, seconds, outlives_broker=False)

    def left_s(self, entry: Entry, attempt: int) -> float:
        """The remaining seconds of an attempt's lease; 0.0 if it is over."""
        if entry.state != LEASED or entry.attempts != attempt:
            return 0.0
        return max(0.0, entry.due_at - self._clock())

    def acknowledge(self, entry: Entry) -> None:
        """Acknowledge a message, for any of its attempts."""
        self._core.effects.now = self._clock()
        self._queue.leases.acknowledge(entry)
        self._go_on()

    def fail(self, entry: Entry, attempt: int, detail: str, cause: str = NACKED, delay_s: float | None = None) -> bool:
        """An attempt failed: the next one is due after `delay_s`, or after the queue's back-off. `detail` is for the
        delivery log. False if the attempt was over already."""
        self._core.effects.now = self._clock()
        failed = self._queue.leases.fail(entry, attempt, cause, delay_s, detail)
        self._go_on()
        return failed

    def _go_on(self) -> None:
        self._queue.wake()
        self._wake()
