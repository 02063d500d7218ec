"""The attempts to deliver messages of a queue: each is a lease that a consumer holds until a deadline.

This module begins and ends them; the queue checks their deadlines. Invariant: each attempt is counted once, and its
first outcome holds, except that a late acknowledgement still counts.
"""

from collections.abc import Callable
from typing import Final, final

from mqttlite.core.changes import Sent
from mqttlite.core.effects import AwaitsCommit, Effects
from mqttlite.core.message import Delivery
from mqttlite.core.outbox import Outbox
from mqttlite.core.session import Session
from mqttlite.delivery.queues.ack_ids import AckIds, place_of
from mqttlite.delivery.queues.contents import Contents
from mqttlite.delivery.queues.context import QueueContext
from mqttlite.delivery.queues.deliveries import DONE, LEASED, SCHEDULED, Deliveries, Entry
from mqttlite.delivery.queues.marks import mark_of
from mqttlite.delivery.queues.outcomes import ACKNOWLEDGED, DISCONNECTED, NACKED

_BEYOND_S: Final = 0.001
"""Added so that a message that is due at its expiry has expired in spite of rounding."""


@final
class Lease(AwaitsCommit):
    """An `Origin`: one attempt to deliver a message to a consumer."""

    __slots__ = ("attempt", "entry", "leases")

    def __init__(self, leases: "Leases", entry: Entry) -> None:
        self.leases: Final = leases
        self.entry: Final = entry
        self.attempt: Final = entry.attempts

    @property
    def name(self) -> bytes:
        return b""

    @property
    def keeps(self) -> bool:
        return True

    def on_committed(self, now: float) -> None:
        self.leases.on_sent(self.entry, self.attempt, now)

    def settled(self, delivery: Delivery, reason_code: int) -> None:
        if reason_code < 0x80:
            if not self.entry.refused >> self.attempt & 1:  # most clients send PUBACK automatically, even after `$nack`
                self.leases.acknowledge(self.entry)
        else:
            detail = f"reason code 0x{reason_code:02x}"
            self.leases.on_refused(self.entry, detail)
            self.leases.fail(self.entry, self.attempt, NACKED, None, detail)

    def returned(self, delivery: Delivery) -> bool:
        self.leases.fail(self.entry, self.attempt, DISCONNECTED, 0.0)
        self.leases.wake()
        return True


@final
class Leases:
    """The leases of one queue. `wake` makes the queue deliver available messages and check the next deadline."""

    __slots__ = (
        "_contents",
        "_context",
        "_deliveries",
        "_effects",
        "_key",
        "_retry_max_s",
        "_retry_min_s",
        "ack_ids",
        "wake",
    )

    def __init__(
        self,
        contents: Contents,
        deliveries: Deliveries,
        context: QueueContext,
        retry_min_s: float,
        retry_max_s: float,
        ack_ids: AckIds,
        wake: Callable[[], None],
    ) -> None:
        self._contents: Final = contents
        self._key: Final = contents.key
        self._deliveries: Final = deliveries
        self._context: Final[QueueContext] = context
        self._effects: Final[Effects] = context.effects
        self._retry_min_s = retry_min_s
        self._retry_max_s = retry_max_s
        self.ack_ids: Final[AckIds] = ack_ids
        self.wake: Final = wake

    def back_off(self, retry_min_s: float, retry_max_s: float) -> None:
        """Change the back-off for later failures."""
        self._retry_min_s = retry_min_s
        self._retry_max_s = retry_max_s

    def begin(self, entry: Entry, consumer: str, seconds: float, outbox: Outbox | None) -> Lease:
        """Lease a message to a consumer for `seconds`."""
        contents = self._contents
        deadline_s = contents.policy.ack_deadline_s
        self._deliveries.lease(entry, self._effects.now, seconds, consumer, seconds == deadline_s)
        contents.counts.attempts += 1
        if entry.attempts > 1:
            contents.counts.redeliveries += 1
        entry.due_is_stored = False
        self._effects.record(Sent(self._key, entry.sequence, mark_of(entry.sequence, entry.attempts)), outbox)
        lease = Lease(self, entry)
        self._effects.awaiting.append(lease)
        return lease

    def on_sent(self, entry: Entry, attempt: int, now: float) -> None:
        """The consumer gets the message only now: restart its deadline."""
        self._deliveries.start(entry, attempt, now)

    def ack_id_of(self, entry: Entry) -> str:
        """The `ack-id` of the latest attempt of a message."""
        return self.ack_ids.of(entry, entry.attempts, self._contents.retention.epoch)

    def lent(self, packet_id: int, session: Session) -> str:
        """The `ack-id` of the message that a session got with a packet identifier; empty if it is not from this
        queue."""
        sent = session.window.inflight.find(packet_id)
        origin = None if sent is None or sent.delivery is None else sent.delivery.origin
        if not isinstance(origin, Lease) or origin.leases is not self:
            return ""
        entry = origin.entry
        if self._deliveries.entries.get(entry.sequence) is not entry:  # a seek replaced the entry
            return ""
        return self.ack_ids.of(entry, origin.attempt, self._contents.retention.epoch)

    def find(self, ack_id: str) -> tuple[Entry, int] | None:
        """The message and attempt of an `ack-id`; None if it is not under way."""
        place = place_of(ack_id)
        if place is None:
            return None
        sequence, attempt = place
        entry = self._deliveries.entries.get(sequence)
        if entry is None or not 1 <= attempt <= entry.attempts:
            return None
        if not self.ack_ids.is_of(ack_id, entry, attempt, self._contents.retention.epoch):
            return None
        return entry, attempt

    def acknowledge(self, entry: Entry, outcome: str = ACKNOWLEDGED) -> bool:
        """A consumer has finished a message, perhaps late. False if the message has already ended."""
        if entry.state == DONE:
            return False
        if self._context.attempts is not None and entry.state == LEASED:
            self._contents.tell_attempt(entry, outcome, False)
        self._contents.end(entry, ACKNOWLEDGED)
        return True

    def on_refused(self, entry: Entry, detail: str) -> None:
        """Report to the tracer that the consumer rejected the message."""
        tracer = self._effects.tracer
        message = entry.message
        if tracer is not None and message.trace:
            tracer.on_dropped(message.trace, entry.consumer, message.topic, NACKED, 1, detail)

    def fail(self, entry: Entry, attempt: int, cause: str, delay_s: float | None = None, detail: str = "") -> bool:
        """An attempt failed: schedule another after `delay_s` or the back-off. False if it was over already."""
        if entry.state != LEASED or entry.attempts != attempt:
            return False
        if cause == NACKED:
            entry.refused |= 1 << attempt
        self._contents.counts.causes[cause] += 1
        self._contents.tell_attempt(entry, cause, True, detail)
        now = self._effects.now
        if entry.attempts >= self._contents.policy.max_attempts:
            self._contents.give_up(entry, cause, detail)
            return True
        delay = self._deliveries.backoff(entry.attempts, self._retry_min_s, self._retry_max_s)
        if delay_s is not None:
            delay = delay_s
        expires_at = self._contents.expires_at(entry.message)
        if expires_at and delay > 0.0:
            delay = max(0.0, min(delay, expires_at + _BEYOND_S - now))  # it ends at its expiry
        self._deliveries.retry(entry, now, delay)
        if entry.state == SCHEDULED:
            self._contents.record_due(entry)
        elif entry.due_is_stored:
            self._contents.record_taken(entry)
        return True

    def extend(self, entry: Entry, attempt: int, seconds: float) -> bool:
        """Make the lease of an attempt end `seconds` from now. False if the attempt is over."""
        if entry.state != LEASED or entry.attempts != attempt:
            return False
        self._deliveries.extend(entry, self._effects.now, seconds)
        self._contents.record_due(entry)
        self.wake()
        return True
