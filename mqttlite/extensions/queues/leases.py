"""The attempts to deliver messages of a queue: each is a lease that a consumer holds until a deadline.

This module begins and ends them; the queue checks their deadlines. Invariant: each attempt is counted once, when its
consumer could get the message, and its first outcome holds, except that a late acknowledgement still counts.
"""

from collections.abc import Callable
from typing import ClassVar, Final, final

from mqttlite.core.connect.attempts import Attempt
from mqttlite.core.effects import AwaitsCommit, Effects
from mqttlite.core.log_changes import Take
from mqttlite.core.message import Delivery, Message
from mqttlite.core.outbound.outbox import Outbox
from mqttlite.core.session.session import Session
from mqttlite.extensions.queues.ack_ids import AckIds, place_of
from mqttlite.extensions.queues.contents import Contents
from mqttlite.extensions.queues.context import AT_ONCE, QueueContext
from mqttlite.extensions.queues.entry import Deliveries, Entry
from mqttlite.extensions.queues.marks import mark_of
from mqttlite.extensions.queues.outcomes import ACKNOWLEDGED, DEADLINE, DISCONNECTED, NACKED, TOO_LATE, UNSENT
from mqttlite.log.deliveries import DONE, LEASED, SCHEDULED

MAX_RECENT: Final = 100
"""How many acknowledged attempts of traced messages a queue remembers."""

_BEYOND_S: Final = 0.001
"""Added so that a message that is due at its expiry has expired in spite of rounding."""


@final
class Lease(AwaitsCommit):
    """An `Origin`: one attempt to deliver a message to a consumer."""

    __slots__ = ("_delivery", "_number", "_packet_id", "_session", "attempt", "entry", "leases")
    name: ClassVar[bytes] = b""
    keeps: ClassVar[bool] = True

    def __init__(self, leases: "Leases", entry: Entry) -> None:
        self.leases: Final = leases
        self.entry: Final = entry
        self.attempt: Final = entry.attempts
        self._number: Final = entry.lease
        self._session: Session | None = None
        self._packet_id = 0
        self._delivery: Delivery | None = None
        """Whose packet identifier the session keeps until this attempt is over; None: PUBACK frees it."""

    def lend(self, session: Session, delivery: Delivery, is_explicit: bool) -> bool:
        """Send the message to a session. With `is_explicit` PUBACK only says that it was received. False if the client
        cannot take the packet."""
        self._session = session
        self._packet_id = session.lend(delivery, is_explicit)
        if is_explicit and self._packet_id:
            self._delivery = delivery
            self.entry.holder = self
        return self._packet_id != 0

    def on_over(self) -> None:
        """Implements `Holder`."""
        assert self._session is not None, "a holder was lent"
        assert self._delivery is not None, "else it is no holder"
        self._session.forget_lent(self._packet_id, self._delivery)

    def on_committed(self, now: float) -> None:
        self.leases.on_committed(self.entry, self._number, self.attempt, now)

    def settled(self, delivery: Delivery, reason_code: int) -> None:
        if reason_code >= 0x80:
            detail = f"reason code 0x{reason_code:02x}"
            self.leases.fail(self.entry, self.attempt, NACKED, None, detail)
        elif self._delivery is None and not self.entry.refused >> self.attempt & 1:
            assert self._session is not None, "it was lent"
            if self.leases.acknowledge(self.entry, answered=self.attempt):
                self.leases.remember(self.entry, self.attempt, (self._session.client_id, self._packet_id))

    def returned(self, delivery: Delivery) -> bool:
        if not self.leases.take_back(self.entry, self._number):
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
        "_recent",
        "_recent_ids",
        "ack_ids",
        "wake",
    )

    def __init__(
        self,
        contents: Contents,
        deliveries: Deliveries,
        context: QueueContext,
        ack_ids: AckIds,
        wake: Callable[[], None],
    ) -> None:
        self._contents: Final = contents
        self._key: Final = contents.key
        self._deliveries: Final = deliveries
        self._context: Final[QueueContext] = context
        self._effects: Final[Effects] = context.effects
        self.ack_ids: Final[AckIds] = ack_ids
        self.wake: Final = wake
        self._recent: Final[dict[str, Attempt]] = {}
        """The latest acknowledged attempts of traced messages, by `ack-id`: the report of a late refusal needs them."""
        self._recent_ids: Final[dict[tuple[str, int], str]] = {}
        """The `ack-id` of some of them, by client and packet identifier."""

    def begin(self, entry: Entry, consumer: str, seconds: float, outbox: Outbox | None) -> Lease:
        """Lease a message to a consumer for `seconds`."""
        deadline_s = self._contents.policy.ack_deadline_s
        effects = self._effects
        is_new = self._deliveries.lease(
            entry, effects.now, seconds, consumer, effects.commit_number, seconds == deadline_s
        )
        entry.due_is_stored = False
        lease = Lease(self, entry)
        if is_new:
            effects.record(Take(self._key, entry.sequence, mark_of(entry.sequence, entry.attempts)))
            effects.awaiting.append(lease)
        if outbox is not None:
            outbox.awaits_commit = True
        return lease

    def on_committed(self, entry: Entry, lease: int, attempt: int, now: float) -> None:
        """A lease is on disk. If its consumer is there and gets the message now, this is an attempt, and its deadline
        begins."""
        if self._deliveries.start(entry, lease, now):
            counts = self._contents.counts
            counts.attempts += 1
            if attempt > 1:
                counts.redeliveries += 1
        elif self._deliveries.was_taken_back(entry, lease):
            self._contents.record_taken(entry)

    def take_back(self, entry: Entry, lease: int) -> bool:
        """The consumer of a lease is gone. False if it could have got the message, or the lease is over: a lease that
        waits for its commit, however long that takes, is no attempt."""
        if entry.state != LEASED or entry.lease != lease or entry.is_sent:
            return False
        tracer = self._effects.tracer
        if entry.message.trace and tracer is not None:
            tracer.on_returned(entry.message.trace, entry.consumer, UNSENT)
        self._deliveries.take_back(entry)
        return True

    def record(self, entry: Entry) -> None:
        """Record when the next attempt of a leased message is due, for a restarted broker."""
        self._contents.record_due(entry, 0.0 if self._is_at_once else self._backoff(entry))

    def ack_id_of(self, entry: Entry, attempt: int) -> str:
        """The `ack-id` of an attempt to deliver a message."""
        return self.ack_ids.of(entry, attempt, self._contents.retention.epoch)

    def lent(self, packet_id: int, session: Session) -> str:
        """The `ack-id` of the message that a session got with a packet identifier; empty if it is not from this
        queue."""
        delivery = session.lent(packet_id)
        if delivery is None:
            return self._recent_ids.get((session.client_id, packet_id), "")
        origin = delivery.origin
        if not isinstance(origin, Lease) or origin.leases is not self:
            return ""
        entry = origin.entry
        if self._deliveries.entries.get(entry.sequence) is not entry:  # a seek replaced the entry
            return ""
        return self.ack_id_of(entry, origin.attempt)

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

    def acknowledge(self, entry: Entry, outcome: str = ACKNOWLEDGED, answered: int = 0) -> bool:
        """A consumer has finished a message, perhaps late. False if the message has already ended. `answered` is the
        attempt that the session of the consumer reports itself, if there is one."""
        if entry.state == DONE:
            return False
        if entry.state == LEASED:
            self._contents.tell_attempt(entry, outcome, False, is_reported=answered == entry.attempts)
        self._contents.end(entry, ACKNOWLEDGED)
        return True

    def remember(self, entry: Entry, attempt: int, sent_as: tuple[str, int] | None) -> None:
        """Keep what the report of a late refusal needs, if the message is traced. `sent_as` is the client and packet
        identifier of the attempt."""
        message = entry.message
        if not message.trace:
            return
        ack_id = self.ack_id_of(entry, attempt)
        subject = Message(message.topic, b"")
        subject.number, subject.trace = message.number, message.trace
        self._recent[ack_id] = Attempt(
            self._contents.name,
            subject,
            entry.consumer,
            entry.key,
            attempt,
            entry.last_at,
            self._effects.now,
            TOO_LATE,
            "already acknowledged",
            0,
        )
        if len(self._recent) > MAX_RECENT:
            del self._recent[next(iter(self._recent))]
        if sent_as is not None:
            self._recent_ids[sent_as] = ack_id
            if len(self._recent_ids) > MAX_RECENT:
                del self._recent_ids[next(iter(self._recent_ids))]

    def refuse(self, ack_id: str, delay_s: float | None) -> bool:
        """A consumer refuses an attempt, perhaps after its deadline: a later PUBACK for it does not acknowledge the
        message. False if the message has ended."""
        found = self.find(ack_id)
        if found is not None:
            entry, attempt = found
            entry.refused |= 1 << attempt
            self.fail(entry, attempt, NACKED, delay_s)
            return True
        self._contents.counts.nacked_late += 1
        late = self._recent.get(ack_id)
        if late is not None and self._context.attempts is not None:
            self._context.attempts.on_attempt(late, 0)
        return False

    def miss(self, entry: Entry) -> None:
        """The consumer of a leased message missed its deadline."""
        self.fail(entry, entry.attempts, DEADLINE, 0.0 if self._is_at_once else None)

    @property
    def _is_at_once(self) -> bool:
        return self._contents.policy.retry.on_deadline == AT_ONCE

    def _backoff(self, entry: Entry) -> float:
        retry = self._contents.policy.retry
        return self._deliveries.backoff(entry.attempts, retry.min_s, retry.max_s)

    def fail(self, entry: Entry, attempt: int, cause: str, delay_s: float | None = None, detail: str = "") -> bool:
        """An attempt failed: schedule another after `delay_s` or the back-off. False if it was over already."""
        if entry.state != LEASED or entry.attempts != attempt:
            return False
        self._contents.counts.causes[cause] += 1
        self._contents.tell_attempt(entry, cause, True, detail)
        now = self._effects.now
        if entry.attempts >= self._contents.policy.max_attempts:
            self._contents.give_up(entry, cause, detail)
            return True
        delay = self._backoff(entry) if delay_s is None else delay_s
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
        self.record(entry)
        self.wake()
        return True
