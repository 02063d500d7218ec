"""The attempts to deliver the messages of a queue: each is a lease, which a consumer has until a deadline.

Here is what begins one and what becomes of it; when leases end by time is the queue's. Invariant: each attempt is
counted once, and of each the first outcome holds, but for an acknowledgement that comes late.
"""

from collections.abc import Callable
from typing import Final, final

from mqttlite.core.changes import Sent
from mqttlite.core.effects import AwaitsCommit, Effects
from mqttlite.core.message import Delivery
from mqttlite.core.outbox import Outbox
from mqttlite.core.session import Session
from mqttlite.delivery.queues.contents import Contents
from mqttlite.delivery.queues.context import QueueContext
from mqttlite.delivery.queues.deliveries import DONE, LEASED, SCHEDULED, Deliveries, Entry
from mqttlite.delivery.queues.marks import ack_id_of, is_of, mark_of, parse_ack_id
from mqttlite.delivery.queues.outcomes import ACKNOWLEDGED, DISCONNECTED, NACKED

_BEYOND_S: Final = 0.001
"""So that a message which is due when it expires has expired, however its times were rounded."""


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
            if not self.entry.refused >> self.attempt & 1:  # most clients send PUBACK by themselves, also after `$nack`
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
    """Of one queue. `wake` has the queue deliver what can be, and look when the next lease ends."""

    __slots__ = (
        "_contents",
        "_context",
        "_deliveries",
        "_effects",
        "_key",
        "_retry_max_s",
        "_retry_min_s",
        "wake",
    )

    def __init__(
        self,
        contents: Contents,
        deliveries: Deliveries,
        context: QueueContext,
        retry_min_s: float,
        retry_max_s: float,
        wake: Callable[[], None],
    ) -> None:
        self._contents: Final = contents
        self._key: Final = contents.key
        self._deliveries: Final = deliveries
        self._context: Final[QueueContext] = context
        self._effects: Final[Effects] = context.effects
        self._retry_min_s = retry_min_s
        self._retry_max_s = retry_max_s
        self.wake: Final = wake

    def back_off(self, retry_min_s: float, retry_max_s: float) -> None:
        """Other back-offs hold from the next failure on."""
        self._retry_min_s = retry_min_s
        self._retry_max_s = retry_max_s

    def begin(self, entry: Entry, consumer: str, seconds: float, outbox: Outbox | None) -> Lease:
        """A consumer gets a message, for so long."""
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
        """The consumer gets the message only now, and its deadline counts from here."""
        self._deliveries.start(entry, attempt, now)

    def ack_id_of(self, entry: Entry) -> str:
        """By which consumers name the latest attempt of a message."""
        return ack_id_of(entry, entry.attempts, self._contents.retention.epoch)

    def lent(self, packet_id: int, session: Session) -> str:
        """The `ack-id` of what a session has by that packet identifier; empty for what is none of this queue."""
        sent = session.window.inflight.find(packet_id)
        origin = None if sent is None or sent.delivery is None else sent.delivery.origin
        if not isinstance(origin, Lease) or origin.leases is not self:
            return ""
        entry = origin.entry
        if self._deliveries.entries.get(entry.sequence) is not entry:  # a seek had it begin anew
            return ""
        return ack_id_of(entry, origin.attempt, self._contents.retention.epoch)

    def find(self, ack_id: str) -> tuple[Entry, int] | None:
        """The message and the attempt that an `ack-id` names; None for one that is not under way."""
        parsed = parse_ack_id(ack_id)
        if parsed is None:
            return None
        sequence, attempt, check = parsed
        entry = self._deliveries.entries.get(sequence)
        if entry is None or not 1 <= attempt <= entry.attempts:
            return None
        if not is_of(entry.message, self._contents.retention.epoch, check):
            return None
        return entry, attempt

    def acknowledge(self, entry: Entry, outcome: str = ACKNOWLEDGED) -> bool:
        """A consumer is done with a message, maybe late; False: it has come to its end already."""
        if entry.state == DONE:
            return False
        if self._context.attempts is not None and entry.state == LEASED:
            self._contents.tell_attempt(entry, outcome, False)
        self._contents.end(entry, ACKNOWLEDGED)
        return True

    def on_refused(self, entry: Entry, detail: str) -> None:
        """Tell the tracer that the consumer that has a message refused it."""
        tracer = self._effects.tracer
        message = entry.message
        if tracer is not None and message.trace:
            tracer.on_dropped(message.trace, entry.consumer, message.topic, NACKED, 1, detail)

    def fail(self, entry: Entry, attempt: int, cause: str, delay_s: float | None = None, detail: str = "") -> bool:
        """An attempt failed: there is another after `delay_s`, or else the back-off; False: it was over already."""
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
            delay = max(0.0, min(delay, expires_at + _BEYOND_S - now))  # it ends then, and not when it would be due
        self._deliveries.retry(entry, now, delay)
        if entry.state == SCHEDULED:
            self._contents.record_due(entry)
        elif entry.due_is_stored:
            self._contents.record_taken(entry)
        return True

    def extend(self, entry: Entry, attempt: int, seconds: float) -> bool:
        """The lease of an attempt ends `seconds` from now; False: the attempt is over."""
        if entry.state != LEASED or entry.attempts != attempt:
            return False
        self._deliveries.extend(entry, self._effects.now, seconds)
        self._contents.record_due(entry)
        self.wake()
        return True
