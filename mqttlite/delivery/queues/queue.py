"""A queue: takes the messages of its topics, and delivers each until a consumer acknowledges it.

Its messages are in `Contents`; here is who gets them and when, and what follows. Invariant: what is told to a publisher
or sent to a consumer is in the changes before.
"""

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final, final

from mqttlite.core.authorizer import SUBSCRIBE
from mqttlite.core.changes import SaveQueue, Sent
from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.effects import Effects
from mqttlite.core.jobs import Job, Jobs, has_budget
from mqttlite.core.memory import ENTRY_BYTES as BACKLOG_ENTRY_BYTES
from mqttlite.core.message import Delivery, Message, PublishBatch
from mqttlite.core.outbox import Outbox
from mqttlite.core.outlook import EXCLUDED, FILTERED, PlannedReceiver, planned_sink
from mqttlite.core.permissions import Permissions
from mqttlite.core.queue_pages import QueuePages
from mqttlite.core.reasons import FILTER_MISMATCH, QUEUE_FULL
from mqttlite.core.session import Session
from mqttlite.core.source import Source
from mqttlite.core.subscription import Subscription
from mqttlite.core.tally import DROPPED, QUOTA_EXCEEDED, SENT, Tally
from mqttlite.delivery.queues.backlog_pages import BacklogPages
from mqttlite.delivery.queues.contents import Contents
from mqttlite.delivery.queues.deliveries import DONE, LEASED, SCHEDULED, Deliveries, Entry
from mqttlite.delivery.queues.limits import DUE_PER_STEP, ENTRY_BYTES
from mqttlite.delivery.queues.marks import ack_id_of, is_of, mark_of, parse_ack_id
from mqttlite.delivery.queues.outcomes import (
    ACKNOWLEDGED,
    DEADLINE,
    DISCONNECTED,
    NACKED,
    NEVER_ACKNOWLEDGED,
    PURGED,
    SCHEMA_INVALID,
    TOO_LARGE,
)
from mqttlite.delivery.queues.pace import Pace
from mqttlite.delivery.queues.properties import told
from mqttlite.delivery.queues.queue_filter import QueueFilter
from mqttlite.delivery.queues.seeking import Position, Seeking
from mqttlite.delivery.queues.time_search import TimeSearch
from mqttlite.delivery.queues.workplace import DeadLetterBox, Policy, Workplace
from mqttlite.wire.constants import V5

_BEYOND_S: Final = 0.001
"""So that a message which is due when it expires has expired, however its times were rounded."""

_WORK: Final = 8
"""What it costs to deliver a message, in the unit of `Effects.work`."""


@final
class Consumer:
    """A `Puller`: a session with its subscription to a queue, `asked` as the rules know it."""

    __slots__ = (
        "_asked",
        "_is_allowed",
        "_permissions",
        "_role",
        "_rules",
        "delivered",
        "in_ring",
        "queue",
        "session",
        "subscription",
    )

    def __init__(self, session: Session, subscription: Subscription, permissions: Permissions, asked: bytes) -> None:
        self.session: Final = session
        self._permissions: Final = permissions
        self._asked: Final = asked
        self._rules = 0
        self._role = 0
        self._is_allowed = True
        self.subscription: Subscription = subscription
        self.queue: Queue | None = None
        """None while there is none of that name."""
        self.in_ring: bool = False
        self.delivered: int = 0

    def on_room(self) -> None:
        queue = self.queue
        if queue is not None:
            queue.on_room(self)

    def may_consume(self) -> bool:
        """Whether the rules in force let it subscribe to the queue: asked once for each change of the rules, or of its
        role. A consumer that may not stays, and gets messages again when it may."""
        permissions, session = self._permissions, self.session
        if not permissions.restricts or session.is_trusted:
            return True
        role = permissions.role_of(session)
        if self._rules != permissions.rules or self._role != role:
            self._rules, self._role = permissions.rules, role
            self._is_allowed = permissions.may_subscribe(session, self._asked)
            if not self._is_allowed:
                permissions.deny(session, SUBSCRIBE, self._asked)
        return self._is_allowed


@final
class Lease:
    """An `Origin`: one attempt to deliver a message."""

    __slots__ = ("attempt", "entry", "queue")

    def __init__(self, queue: "Queue", entry: Entry) -> None:
        self.queue: Final = queue
        self.entry: Final = entry
        self.attempt: Final = entry.attempts

    @property
    def name(self) -> bytes:
        return b""

    @property
    def keeps(self) -> bool:
        return True

    def settled(self, delivery: Delivery, reason_code: int) -> None:
        if reason_code < 0x80:
            self.queue.acknowledge(self.entry)
        else:
            detail = f"reason code 0x{reason_code:02x}"
            self.queue.on_refused(self.entry, detail)
            self.queue.fail(self.entry, self.attempt, NACKED, None, detail)

    def returned(self, delivery: Delivery) -> bool:
        self.queue.fail(self.entry, self.attempt, DISCONNECTED, 0.0)
        self.queue.wake()
        return True


@final
class Queue(Job):
    """A `Sink`. `may_receive` says whether a consumer may get the messages of a topic; None: each may get all."""

    __slots__ = (
        "_deadlines",
        "_deliveries",
        "_effects",
        "_is_job",
        "_jobs",
        "_key",
        "_may_receive",
        "_pace",
        "_pages",
        "_pages_of_store",
        "_retry_max_s",
        "_retry_min_s",
        "_ring",
        "_timer",
        "_workplace",
        "contents",
        "counts",
        "filter",
        "is_over",
        "on_ready",
        "paused",
        "seeking",
    )

    def __init__(
        self,
        name: str,
        policy: Policy,
        retry_min_s: float,
        retry_max_s: float,
        workplace: Workplace,
        deliveries: Deliveries,
        dead_letters: DeadLetterBox,
        on_lost_snapshot: Callable[[str], None],
        may_receive: Callable[[Session, bytes], bool] | None = None,
    ) -> None:
        self.contents: Final = Contents(name, policy, workplace, deliveries, dead_letters)
        self._key: Final = self.contents.key
        self.counts: Final = self.contents.counts
        self.seeking: Final = Seeking(self.contents, workplace, on_lost_snapshot)
        self._deliveries: Final = deliveries
        self._may_receive: Final = may_receive
        self._retry_min_s = retry_min_s
        self._retry_max_s = retry_max_s
        self._workplace: Final[Workplace] = workplace
        self._effects: Final[Effects] = workplace.effects
        self._jobs: Final[Jobs] = workplace.jobs
        self._deadlines: Final[Deadlines] = workplace.deadlines
        self._pages_of_store: Final[QueuePages] = workplace.pages
        self._pages: Final = BacklogPages(self.contents, workplace, self._deliver_some)
        self._ring: Final[deque[Consumer]] = deque()
        """Consumers that may have room, in the order of their turns."""
        self._timer: _Timer | None = None
        self._is_job = False
        self.filter: QueueFilter | None = None
        """Which messages it takes; None: all."""
        self._pace: Pace | None = Pace(policy.max_rate, self._effects.now) if policy.max_rate else None
        self.is_over: bool = False
        self.paused: bool = False
        self.on_ready: Callable[[], None] | None = None
        """Called when there may be something to `pull`, for a consumer inside the broker. It may not call the queue."""

    # ------------------------------------------------------------------ figures

    @property
    def leased(self) -> int:
        """Messages that consumers have."""
        return self._deliveries.leased

    @property
    def scheduled(self) -> int:
        """Messages that wait for their next attempt."""
        return self._deliveries.scheduled

    # ------------------------------------------------------------------ messages come in

    def prepare(self, messages: int) -> bool:
        """As `Sink`."""
        return True

    def has_room(self, message: Message, qos: int) -> bool:
        return True  # a full queue refuses messages by itself

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        """As `Sink`."""
        waits = "it is paused" if self.paused else f"consumers that take messages: {len(self._ring)}"
        if self.filter is not None:
            passes = self.filter.would_pass(message, knows_payload)
            if passes is False:
                return [planned_sink(self.contents.shown, EXCLUDED, FILTER_MISMATCH, self.filter.expression)]
            waits = FILTERED if passes is None else waits
        return [self.contents.outlook(message, waits)]

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        """As `Sink`: the message waits, and is delivered at once where a consumer has room."""
        if self.filter is None or self.filter.passes(message, tally):
            self._accept(message, tally)

    def _accept(self, message: Message, tally: Tally) -> None:
        contents = self.contents
        size = BACKLOG_ENTRY_BYTES + message.memory_bytes
        if contents.retention.count:
            self.seeking.make_way(size)
        if not contents.make_room(size):
            self.counts.refused += 1
            tally.count(DROPPED, QUEUE_FULL)
            tally.code = QUOTA_EXCEEDED
            tracer = self._effects.tracer
            if tracer is not None:
                detail = contents.why_full()
                tracer.on_dropped(message.trace, contents.shown, message.topic, QUEUE_FULL, 1, detail)
            return
        tally.queued += 1
        contents.put(message)
        if contents.policy.retain_acked:
            self.seeking.on_put(message.number)
        if self._ring and not self.paused:
            self._deliver_some()
            return
        if self._timer is None:
            self._arm()
        if self.on_ready is not None:
            self.on_ready()

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        """As `Sink`."""
        places = range(batch.count) if self.filter is None else self.filter.passing(batch, tally)
        for at in places:
            self._accept(batch.delivery(at, 0).message, tally)

    def keep_invalid(self, message: Message, reason: str) -> bool:
        """Keep a message with a wrong payload as a dead letter; False: the queue has none, or does not want it."""
        if not self.contents.policy.dead_letter or (self.filter is not None and not self.filter.matches(message)):
            return False
        self.contents.reject(message, SCHEMA_INVALID, reason)
        return True

    def put_back(self, message: Message) -> bool:
        """Take a message that comes from the queue's dead letters; False: there is no room for it."""
        size = BACKLOG_ENTRY_BYTES + message.memory_bytes
        if self.contents.retention.count:
            self.seeking.make_way(size)
        if not self.contents.make_room(size):
            return False
        self.contents.put(message)
        self.wake()
        return True

    # ------------------------------------------------------------------ consumers

    def join(self, consumer: Consumer) -> None:
        """A session consumes from now on."""
        consumer.queue = self
        if not consumer.in_ring:
            consumer.in_ring = True
            self._ring.append(consumer)
        self.wake()  # later, so that SUBACK is before the first message

    def leave(self, consumer: Consumer) -> None:
        """It does so no longer; what it has, it may acknowledge."""
        consumer.queue = None
        if consumer.in_ring:
            self._ring.remove(consumer)
            consumer.in_ring = False

    def on_room(self, consumer: Consumer) -> None:
        """A consumer may take a message."""
        if not consumer.in_ring:
            consumer.in_ring = True
            self._ring.append(consumer)
        self._deliver_some()

    def wake(self) -> None:
        """Something can be delivered that could not before: see to it in this iteration or the next."""
        if not self._is_job and not self.is_over:
            self._is_job = True
            self._jobs.queue(self)

    def step(self) -> bool:
        """As `Job`."""
        self._is_job = False
        self._end_leases()
        self._deliver_some()
        return True

    # ------------------------------------------------------------------ delivery

    def _deliver_some(self) -> None:
        """Deliver while there are messages, consumers with room, and budget; what is left is a job."""
        effects = self._effects
        while not self.paused and not self.is_over:
            consumer = self._next_consumer()
            if consumer is None:
                break
            if not has_budget(effects):
                self.wake()
                break
            entry = self._next_entry()
            if entry is None:
                break
            effects.work += _WORK
            if self._may_receive is not None and not self._may_receive(consumer.session, entry.message.topic):
                self.leave(consumer)
                self.contents.record_taken(entry)
                self._deliveries.push(entry)
                continue
            self._deliver(consumer, entry)
            if len(self._ring) > 1:
                self._ring.rotate(-1)
        if self._ring or self._deliveries.leased or self.on_ready is not None:
            self._pages.want()
        else:
            self._pages.forget()
        self._arm()
        if self.on_ready is not None:
            self.on_ready()

    def _next_entry(self) -> Entry | None:
        """The next message to deliver; None where there is none here now, or it would be too fast."""
        pace = self._pace
        if pace is None:
            return self.contents.next_entry()
        if not self.contents.depth or not pace.is_open(self._effects.now):
            return None
        entry = self.contents.next_entry()
        if entry is not None:
            pace.spend()
        return entry

    def _next_consumer(self) -> Consumer | None:
        ring = self._ring
        while ring:
            consumer = ring[0]
            if consumer.session.can_borrow and consumer.may_consume():
                return consumer
            ring.popleft()
            consumer.in_ring = False
        return None

    def _deliver(self, consumer: Consumer, entry: Entry) -> None:
        session = consumer.session
        outbox = session.outbox
        assert outbox is not None
        self._lease(entry, session.client_id, self.contents.policy.ack_deadline_s, outbox)
        consumer.delivered += 1
        subscription = consumer.subscription
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        message = entry.message
        if outbox.version == V5:
            message = told(message, self.ack_id_of(entry), entry.attempts)
        self._effects.pending_bytes += message.size() + ENTRY_BYTES // 4
        if subscription.qos == 0:
            if session.deliver_qos0(Delivery(message, 0, False, identifiers)) == SENT:
                self.acknowledge(entry, NEVER_ACKNOWLEDGED)
            else:
                self.fail(entry, entry.attempts, TOO_LARGE)
        elif not session.lend(Delivery(message, 1, False, identifiers, Lease(self, entry))):
            self.fail(entry, entry.attempts, TOO_LARGE)

    def _lease(self, entry: Entry, consumer: str, seconds: float, outbox: Outbox | None) -> None:
        deadline_s = self.contents.policy.ack_deadline_s
        self._deliveries.lease(entry, self._effects.now, seconds, consumer, seconds == deadline_s)
        self.counts.attempts += 1
        if entry.attempts > 1:
            self.counts.redeliveries += 1
        entry.due_is_stored = False
        self._effects.record(Sent(self._key, entry.sequence, mark_of(entry.sequence, entry.attempts)), outbox)

    # ------------------------------------------------------------------ pull, for those who are no session

    def pull(
        self, consumer: str, most: int, lease_s: float | None = None, *, outlives_broker: bool = True
    ) -> list[Entry]:
        """Lease up to so many messages; by the time that the changes are committed they may be told.

        A lease that does not outlive the broker is over when the broker starts again.
        """
        seconds = self.contents.policy.ack_deadline_s if lease_s is None else lease_s
        found: list[Entry] = []
        while len(found) < most and not self.paused:
            entry = self._next_entry()
            if entry is None:
                break
            self._lease(entry, consumer, seconds, None)
            if outlives_broker:
                self.contents.record_due(entry)
            found.append(entry)
        self._pages.want()
        self._arm()
        return found

    def ack_id_of(self, entry: Entry) -> str:
        """By which consumers name the latest attempt of a message."""
        return ack_id_of(entry, self.contents.retention.epoch)

    def find(self, ack_id: str) -> tuple[Entry, int] | None:
        """The message and the attempt that an `ack-id` names; None for one that is not under way."""
        parsed = parse_ack_id(ack_id)
        if parsed is None:
            return None
        sequence, attempt, check = parsed
        entry = self._deliveries.entries.get(sequence)
        if entry is None or not 1 <= attempt <= entry.attempts:
            return None
        if not is_of(entry.message, self.contents.retention.epoch, check):
            return None
        return entry, attempt

    # ------------------------------------------------------------------ what becomes of an attempt

    def acknowledge(self, entry: Entry, outcome: str = ACKNOWLEDGED) -> bool:
        """A consumer is done with a message, maybe late; False: it has come to its end already."""
        if entry.state == DONE:
            return False
        if self._workplace.attempts is not None and entry.state == LEASED:
            self.contents.tell_attempt(entry, outcome, False)
        self.contents.end(entry, ACKNOWLEDGED)
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
        self.counts.causes[cause] += 1
        self.contents.tell_attempt(entry, cause, True, detail)
        now = self._effects.now
        if entry.attempts >= self.contents.policy.max_attempts:
            self.contents.give_up(entry, cause, detail)
            return True
        delay = self._deliveries.backoff(entry.attempts, self._retry_min_s, self._retry_max_s)
        if delay_s is not None:
            delay = delay_s
        expires_at = self.contents.expires_at(entry.message)
        if expires_at and delay > 0.0:
            delay = max(0.0, min(delay, expires_at + _BEYOND_S - now))  # it ends then, and not when it would be due
        self._deliveries.retry(entry, now, delay)
        if entry.state == SCHEDULED:
            self.contents.record_due(entry)
        elif entry.due_is_stored:
            self.contents.record_taken(entry)
        return True

    def extend(self, entry: Entry, attempt: int, seconds: float) -> bool:
        """The consumer of an attempt has so many seconds more from now on; False: the attempt is over."""
        if entry.state != LEASED or entry.attempts != attempt:
            return False
        self._deliveries.extend(entry, self._effects.now, seconds)
        self.contents.record_due(entry)
        self._arm()
        return True

    # ------------------------------------------------------------------ time

    def on_time(self) -> None:
        """Something is due."""
        self._timer = None
        if self._pace is not None:
            self._pace.is_waited_for = False
        self._end_leases()
        self._deliver_some()

    def _end_leases(self) -> None:
        now = self._effects.now
        contents = self.contents
        for _ in range(DUE_PER_STEP):
            entry = self._deliveries.take_due(now)
            if entry is None:
                if not contents.end_front():
                    if not contents.backlog.deliveries:
                        self._pages.want()
                    return
            elif entry.state == LEASED:
                self.fail(entry, entry.attempts, DEADLINE, 0.0)
            elif entry.attempts >= contents.policy.max_attempts:  # its last lease was before the broker started
                contents.give_up(entry, DEADLINE)
            self._effects.work += _WORK
        self.wake()

    def _arm(self) -> None:
        at = self._deliveries.next_at()
        if self.is_over:
            return
        front = self.contents.front_expires_at()
        if front and (at is None or front < at):
            at = front
        pace = self._pace
        if pace is not None and pace.is_waited_for:
            paced = pace.next_at()
            at = paced if at is None else min(at, paced)
        if at is None:
            return
        timer = self._timer
        if timer is not None:
            if timer.at <= at:
                return
            self._deadlines.cancel(timer)
        self._timer = _Timer(self)
        self._deadlines.arm(self._timer, at)

    # ------------------------------------------------------------------ an operator

    def change(self, policy: Policy, retry_min_s: float, retry_max_s: float) -> None:
        """Other options hold from now on."""
        before, self.contents.policy = self.contents.policy, policy
        self._retry_min_s = retry_min_s
        self._retry_max_s = retry_max_s
        if policy.max_rate != before.max_rate:
            self._pace = Pace(policy.max_rate, self._effects.now) if policy.max_rate else None
        self.seeking.refresh()
        self.wake()

    def pause(self, paused: bool) -> None:
        """Deliver nothing, or go on."""
        self.paused = paused
        self.wake()

    def entries(self, most: int) -> list[Entry]:
        """The first of those under way."""
        return list(islice(self._deliveries.entries.values(), most))

    def purge(self, data: bytes) -> int:
        """Drop all messages, also those that consumers have; how many. `data` is the queue's definition."""
        purged = self.contents.depth
        self.contents.clear()
        self._effects.record(SaveQueue(self._key, data))
        self.seeking.after_purge()
        self.counts.ends[PURGED] += purged
        return purged

    def search(self, number: int, found: Callable[[int], None]) -> None:
        """Find the first sequence from which on messages have at least that number: `found` is told it, maybe later."""
        TimeSearch(self.contents, self._pages_of_store, number, found).begin()

    def seek(self, to: Position) -> None:
        """Begin again at that position."""
        self.seeking.seek(to)
        self.wake()

    def end(self) -> None:
        """The queue is deleted, with all that is in it."""
        self.is_over = self._pages.is_over = True
        self.contents.clear()
        for consumer in list(self._ring):
            consumer.in_ring = False
        self._ring.clear()
        if self._timer is not None:
            self._deadlines.cancel(self._timer)
            self._timer = None

    # ------------------------------------------------------------------ a restart

    def restore_sent(self, sequence: int, message: Message, mark: int, due_at: float) -> None:
        """Put back a message that was under way; they come in the order of their sequences."""
        self.contents.restore_sent(sequence, message, mark, due_at)
        self._arm()


@final
class _Timer(Deadline):
    """When the next lease ends, or the next attempt is due."""

    __slots__ = ("_queue",)

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self._queue: Final = queue

    def on_due(self) -> None:
        self._queue.on_time()
