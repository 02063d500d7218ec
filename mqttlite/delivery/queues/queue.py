"""A queue: takes the messages of its topics, and delivers each until a consumer acknowledges it.

What waits is its `backlog`, of which the store has the most part; what is under way is in `Deliveries`. Invariants:
a message is in one of the two until it is acknowledged, dead-lettered, expired or purged, once; what is told to a
publisher or sent to a consumer is in the changes before.
"""

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol, final

from mqttlite.core.changes import QUEUE_MARK, Due, EndSession, Enqueue, SaveQueue, Sent, Settled
from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.effects import Effects
from mqttlite.core.jobs import Job, Jobs, has_budget
from mqttlite.core.limits import KEPT_MESSAGES, PAGE_MESSAGES
from mqttlite.core.memory import ENTRY_BYTES as BACKLOG_ENTRY_BYTES
from mqttlite.core.message import Delivery, Message, PublishBatch
from mqttlite.core.outbox import Outbox
from mqttlite.core.question import LoadPage
from mqttlite.core.queue_pages import QueuePages
from mqttlite.core.reasons import EXPIRED, QUEUE_FULL
from mqttlite.core.session import Session
from mqttlite.core.session_queue import SessionQueue
from mqttlite.core.source import Source
from mqttlite.core.subscription import Subscription
from mqttlite.core.tally import DROPPED, QUOTA_EXCEEDED, Tally
from mqttlite.delivery.queues.deliveries import BLOCKED, DONE, LEASED, READY, SCHEDULED, Deliveries, Entry
from mqttlite.delivery.queues.limits import (
    DUE_PER_STEP,
    ENTRY_BYTES,
    MAX_OUTSTANDING,
    MAX_OUTSTANDING_BYTES,
    PRIORITY_WINDOW,
)
from mqttlite.delivery.queues.properties import ORDERING_KEY, priority_of, told, user_property
from mqttlite.wire.constants import V5

ACKNOWLEDGED: Final = "acknowledged"
DEAD_LETTERED: Final = "dead_lettered"
PURGED: Final = "purged"
ENDS: Final = (ACKNOWLEDGED, DEAD_LETTERED, EXPIRED, PURGED)
"""How messages of a queue end."""

NACKED: Final = "nacked"
DEADLINE: Final = "deadline"
DISCONNECTED: Final = "disconnected"
TOO_LARGE: Final = "too_large"
OVERFLOW: Final = "overflow"
CAUSES: Final = (NACKED, DEADLINE, DISCONNECTED, TOO_LARGE, OVERFLOW)
"""Why an attempt failed, or why there was none."""

DROP_NEWEST: Final = "drop_newest"
TO_DEAD_LETTERS: Final = "dead_letter"

_ATTEMPTS_SHIFT: Final = 40
"""In the store, the packet identifier of a queue's message: one more than its attempts, above its sequence. So those of
messages that follow one another with as many attempts do so too, and are written as one run."""

_SEQUENCES: Final = (1 << _ATTEMPTS_SHIFT) - 1
_CHECK: Final = 1_000_000
"""What an `ack-id` has of the message's number, for sequences may begin anew when a queue was deleted."""

_NO_CONSUMER: Final = "no consumer had room"
"""Why a message waits, as the delivery log says it."""

_WORK: Final = 8
"""What it costs to deliver a message, in the unit of `Effects.work`."""


def mark_of(sequence: int, attempts: int) -> int:
    """What the store keeps of a message that is under way."""
    return (attempts + 1) << _ATTEMPTS_SHIFT | (sequence & _SEQUENCES)


def attempts_of(mark: int) -> int:
    """The opposite."""
    return (mark >> _ATTEMPTS_SHIFT) - 1


def ack_id_of(entry: Entry) -> str:
    """By which consumers name the latest attempt of a message."""
    return f"{entry.sequence}-{entry.attempts}-{entry.message.number % _CHECK}"


class Policy(Protocol):
    """What of its options a queue reads."""

    @property
    def ack_deadline_s(self) -> float: ...
    @property
    def max_attempts(self) -> int: ...
    @property
    def ordering(self) -> bool: ...
    @property
    def priority(self) -> bool: ...
    @property
    def max_messages(self) -> int: ...
    @property
    def max_bytes(self) -> int: ...
    @property
    def expiry_s(self) -> int: ...
    @property
    def dead_letter(self) -> bool: ...
    @property
    def on_overflow(self) -> str: ...


class DeadLetterBox(Protocol):
    """Takes what could not be delivered."""

    def put(self, entry: Entry, cause: str) -> None: ...


@final
class Workplace:
    """What all queues of a broker share."""

    __slots__ = ("deadlines", "effects", "jobs", "latest", "pages", "wall_ahead_us")

    def __init__(
        self, effects: Effects, jobs: Jobs, deadlines: Deadlines, pages: QueuePages | None, wall_ahead_us: int
    ) -> None:
        self.effects: Final = effects
        self.jobs: Final = jobs
        self.deadlines: Final = deadlines
        self.pages: Final = pages
        self.wall_ahead_us: Final = wall_ahead_us
        self.latest: Delivery | None = None
        """Of the latest message that a queue took: the next queue mostly takes the same, and shares it."""

    def delivery_of(self, message: Message) -> Delivery:
        latest = self.latest
        if latest is None or latest.message is not message:
            latest = self.latest = Delivery(message, 1, False)
        return latest


@final
class Counts:
    """Of one queue since the broker started."""

    __slots__ = ("attempts", "causes", "ends", "published", "refused")

    def __init__(self) -> None:
        self.published: int = 0
        self.refused: int = 0
        """Messages that it had no room for."""
        self.attempts: int = 0
        self.causes: Final[dict[str, int]] = dict.fromkeys(CAUSES, 0)
        self.ends: Final[dict[str, int]] = dict.fromkeys(ENDS, 0)


@final
class Consumer:
    """A `Puller`: a session with its subscription to a queue."""

    __slots__ = ("delivered", "in_ring", "queue", "session", "subscription")

    def __init__(self, session: Session, subscription: Subscription) -> None:
        self.session: Final = session
        self.subscription: Subscription = subscription
        self.queue: Queue | None = None
        """None while there is none of that name."""
        self.in_ring: bool = False
        self.delivered: int = 0

    def on_room(self) -> None:
        queue = self.queue
        if queue is not None:
            queue.on_room(self)


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
            self.queue.on_refused(self.entry, reason_code)
            self.queue.fail(self.entry, self.attempt, NACKED)

    def returned(self, delivery: Delivery) -> bool:
        self.queue.fail(self.entry, self.attempt, DISCONNECTED, 0.0)
        self.queue.wake()
        return True


@final
class Queue(Job):
    """A `Sink`, and a `PageReader` of its backlog. `dead_letters` takes what is given up. `may_receive` says whether a
    consumer may get the messages of a topic; None: each may get all."""

    __slots__ = (
        "_deadlines",
        "_deliveries",
        "_effects",
        "_is_job",
        "_is_loading",
        "_jobs",
        "_key",
        "_lost_at",
        "_may_receive",
        "_memory",
        "_outstanding_bytes",
        "_pages",
        "_retry_max_s",
        "_retry_min_s",
        "_ring",
        "_timer",
        "_workplace",
        "backlog",
        "counts",
        "dead_letters",
        "is_over",
        "name",
        "paused",
        "policy",
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
        may_receive: Callable[[Session, bytes], bool] | None = None,
    ) -> None:
        self.name: Final = name
        self._may_receive: Final = may_receive
        self.policy: Policy = policy
        self._retry_min_s = retry_min_s
        self._retry_max_s = retry_max_s
        self._workplace: Final = workplace
        self._effects: Final = workplace.effects
        self._memory: Final = workplace.effects.memory
        self._jobs: Final = workplace.jobs
        self._deadlines: Final = workplace.deadlines
        self._pages: Final = workplace.pages
        self._deliveries: Final = deliveries
        self._key: Final = f"{QUEUE_MARK}$queue/{name}"
        """Its name in changes."""
        self.backlog: Final = SessionQueue(workplace.effects.memory)
        self.dead_letters: Final = dead_letters
        self._ring: Final[deque[Consumer]] = deque()
        """Consumers that may have room, in the order of their turns."""
        self._outstanding_bytes = 0
        self._timer: _Timer | None = None
        self._is_job = False
        self._is_loading = False
        self._lost_at = -1
        """The sequence of a message that the store has lost: it is passed over when those before it are taken."""
        self.is_over: bool = False
        self.paused: bool = False
        self.counts: Final = Counts()

    # ------------------------------------------------------------------ figures

    @property
    def depth(self) -> int:
        """Messages that have not come to their end."""
        return len(self.backlog) + len(self._deliveries)

    @property
    def size_bytes(self) -> int:
        """What they take in memory, or would where they are in the store."""
        return self.backlog.size_bytes + self.backlog.stored_bytes + self._outstanding_bytes

    @property
    def leased(self) -> int:
        """Messages that consumers have."""
        return self._deliveries.leased

    @property
    def scheduled(self) -> int:
        """Messages that wait for their next attempt."""
        return self._deliveries.scheduled

    @property
    def key(self) -> str:
        """Its name in the store."""
        return self._key

    def oldest_age_s(self, now: float) -> float:
        """How long ago the oldest message was published that is here; 0.0 where none is, or it is not known."""
        for entry in self._deliveries.entries.values():
            return self._age_s(entry.message, now)
        for delivery in self.backlog.deliveries:
            return self._age_s(delivery.message, now)
        return 0.0

    def _age_s(self, message: Message, now: float) -> float:
        return max(0.0, now - self._published_at(message))

    def _published_at(self, message: Message) -> float:
        return (message.number - self._workplace.wall_ahead_us) / 1e6

    # ------------------------------------------------------------------ messages come in

    def prepare(self, messages: int) -> bool:
        """As `Sink`."""
        return True

    def has_room(self, message: Message, qos: int) -> bool:
        return True  # a full queue refuses messages by itself

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        """As `Sink`: the message waits, and is delivered at once where a consumer has room."""
        size = BACKLOG_ENTRY_BYTES + message.memory_bytes
        if not self._make_room(size):
            self.counts.refused += 1
            tally.count(DROPPED, QUEUE_FULL)
            tally.code = QUOTA_EXCEEDED
            tracer = self._effects.tracer
            if tracer is not None:
                tracer.on_dropped(message.trace, self._shown, message.topic, QUEUE_FULL, 1, self._detail())
            return
        tally.queued += 1
        self._put(message, size)
        if self._ring and not self.paused:
            self._deliver_some()
        elif self._timer is None:
            self._arm()

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        """As `Sink`."""
        for at in range(batch.count):
            self.accept(batch.delivery(at, 0).message, source, tally)

    def put(self, message: Message) -> None:
        """Take a message that comes from the queue's dead letters; there is room."""
        self._put(message, BACKLOG_ENTRY_BYTES + message.memory_bytes)
        self.wake()

    def _put(self, message: Message, size: int) -> None:
        effects = self._effects
        effects.identify(message)
        self.counts.published += 1
        delivery = self._workplace.delivery_of(message)
        backlog = self.backlog
        if self._pages is not None and backlog.is_long:
            sequence = backlog.append_stored(size)
        else:
            sequence = backlog.append(delivery)
        effects.record(Enqueue(self._key, sequence, delivery))
        effects.charge_change(message)
        if message.trace and effects.tracer is not None:
            effects.tracer.on_queued(message.trace, self._shown, _NO_CONSUMER, self.depth, self.policy.max_messages)

    def _make_room(self, size: int) -> bool:
        """Whether a message of that size finds room, at the cost of the oldest where the policy says so."""
        policy = self.policy
        if self._fits(size):
            return True
        if policy.on_overflow == DROP_NEWEST or size > policy.max_bytes:
            return False
        while not self._fits(size):
            entry = self._take_first()
            if entry is None:
                return False
            self.counts.causes[OVERFLOW] += 1
            if policy.on_overflow == TO_DEAD_LETTERS:
                self._give_up(entry, OVERFLOW)
            else:
                self._end(entry, PURGED)
        return True

    def _fits(self, size: int) -> bool:
        policy = self.policy
        if self.depth >= policy.max_messages or self.size_bytes + size > policy.max_bytes:
            return False
        return size <= self._memory.room_for(self._held_bytes) or (self._pages is not None and self.backlog.is_long)

    @property
    def _held_bytes(self) -> int:
        return self.backlog.size_bytes + self._outstanding_bytes

    @property
    def _shown(self) -> str:
        """Its name where the delivery log has a client's."""
        return f"$queue/{self.name}"

    def _detail(self) -> str:
        policy = self.policy
        if self.depth >= policy.max_messages:
            return f"{self.depth}/{policy.max_messages}"
        return f"{self.size_bytes}/{policy.max_bytes} bytes"

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
                self._effects.record(Sent(self._key, entry.sequence, mark_of(entry.sequence, entry.attempts)))
                self._deliveries.push(entry)
                continue
            self._deliver(consumer, entry)
            if len(self._ring) > 1:
                self._ring.rotate(-1)
        self._page()
        self._arm()

    def _next_consumer(self) -> Consumer | None:
        ring = self._ring
        while ring:
            consumer = ring[0]
            if consumer.session.can_borrow:
                return consumer
            ring.popleft()
            consumer.in_ring = False
        return None

    def _deliver(self, consumer: Consumer, entry: Entry) -> None:
        session = consumer.session
        outbox = session.outbox
        assert outbox is not None
        self._lease(entry, session.client_id, self.policy.ack_deadline_s, outbox)
        consumer.delivered += 1
        subscription = consumer.subscription
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        message = entry.message
        if outbox.version == V5:
            message = told(message, ack_id_of(entry), entry.attempts)
        self._effects.pending_bytes += message.size() + ENTRY_BYTES // 4
        if subscription.qos == 0:
            session.deliver_qos0(Delivery(message, 0, False, identifiers))
            self.acknowledge(entry)
        elif not session.lend(Delivery(message, 1, False, identifiers, Lease(self, entry))):
            self.fail(entry, entry.attempts, TOO_LARGE)

    def _lease(self, entry: Entry, consumer: str, seconds: float, outbox: Outbox | None) -> None:
        deadline_s = self.policy.ack_deadline_s
        self._deliveries.lease(entry, self._effects.now, seconds, consumer, seconds == deadline_s)
        self.counts.attempts += 1
        self._effects.record(Sent(self._key, entry.sequence, mark_of(entry.sequence, entry.attempts)), outbox)

    # ------------------------------------------------------------------ pull, for those who are no session

    def pull(self, consumer: str, most: int, lease_s: float | None = None) -> list[Entry]:
        """Lease up to so many messages; by the time that the changes are committed they may be told."""
        seconds = self.policy.ack_deadline_s if lease_s is None else lease_s
        found: list[Entry] = []
        while len(found) < most and not self.paused:
            entry = self._next_entry()
            if entry is None:
                break
            self._lease(entry, consumer, seconds, None)
            self._effects.record(Due(self._key, entry.sequence, entry.due_at))
            found.append(entry)
        if self.backlog.stored:
            self._want_page()
        self._arm()
        return found

    def find(self, ack_id: str) -> tuple[Entry, int] | None:
        """The message and the attempt that an `ack-id` names; None for one that is not under way."""
        parts = ack_id.split("-", 2)
        if len(parts) != 3 or not all(part.isascii() and part.isdecimal() and len(part) <= 18 for part in parts):
            return None
        entry = self._deliveries.entries.get(int(parts[0]))
        if entry is None or not 1 <= int(parts[1]) <= entry.attempts or int(parts[2]) != entry.message.number % _CHECK:
            return None
        return entry, int(parts[1])

    # ------------------------------------------------------------------ what becomes of an attempt

    def acknowledge(self, entry: Entry) -> bool:
        """A consumer is done with a message, maybe late; False: it has come to its end already."""
        if entry.state == DONE:
            return False
        self._end(entry, ACKNOWLEDGED)
        return True

    def on_refused(self, entry: Entry, reason_code: int) -> None:
        """Tell the tracer that the consumer that has a message refused it."""
        tracer = self._effects.tracer
        message = entry.message
        if tracer is not None and message.trace:
            detail = f"reason code 0x{reason_code:02x}"
            tracer.on_dropped(message.trace, entry.consumer, message.topic, NACKED, 1, detail)

    def fail(self, entry: Entry, attempt: int, cause: str, delay_s: float | None = None) -> bool:
        """An attempt failed: there is another after `delay_s`, or else the back-off; False: it was over already."""
        if entry.state != LEASED or entry.attempts != attempt:
            return False
        self.counts.causes[cause] += 1
        now = self._effects.now
        if entry.attempts >= self.policy.max_attempts:
            self._give_up(entry, cause)
            return True
        delay = self._deliveries.backoff(entry.attempts, self._retry_min_s, self._retry_max_s)
        if delay_s is not None:
            delay = delay_s
        self._deliveries.retry(entry, now, delay)
        if entry.state == SCHEDULED:
            self._effects.record(Due(self._key, entry.sequence, entry.due_at))
        return True

    def extend(self, entry: Entry, attempt: int, seconds: float) -> bool:
        """The consumer of an attempt has so many seconds more from now on; False: the attempt is over."""
        if entry.state != LEASED or entry.attempts != attempt:
            return False
        self._deliveries.extend(entry, self._effects.now, seconds)
        self._effects.record(Due(self._key, entry.sequence, entry.due_at))
        self._arm()
        return True

    def _give_up(self, entry: Entry, cause: str) -> None:
        if self.policy.dead_letter:
            self.dead_letters.put(entry, cause)
            self._end(entry, DEAD_LETTERED, f"it is in $dlq/{self.name} after {entry.attempts} deliveries ({cause})")
        else:
            self._end(entry, PURGED, f"{entry.attempts} attempts ({cause})")

    def _end(self, entry: Entry, end: str, detail: str = "") -> None:
        """A message has come to its end."""
        self._deliveries.settle(entry)
        size = self._memory.let_go(entry.message, ENTRY_BYTES)
        self._outstanding_bytes -= size
        self.counts.ends[end] += 1
        self._effects.record(Settled(self._key, entry.sequence))
        tracer = self._effects.tracer
        if tracer is not None:
            message = entry.message
            if end != ACKNOWLEDGED:
                reason = NACKED if end == DEAD_LETTERED else end
                tracer.on_dropped(message.trace, self._shown, message.topic, reason, 1, detail)
            elif message.trace:
                tracer.on_acknowledged(message.trace, self._shown)

    # ------------------------------------------------------------------ the next message

    def _next_entry(self) -> Entry | None:
        """The next message to deliver, which is READY; None where there is none here now."""
        deliveries = self._deliveries
        is_prioritised = self.policy.priority
        while True:
            if is_prioritised:
                self._fill_priorities()
            entry = deliveries.pop()
            if entry is None and not is_prioritised:
                entry = self._take()
            if entry is None:
                return None
            if self._has_expired(entry.message):
                self._end(entry, EXPIRED)
            elif entry.attempts >= self.policy.max_attempts:  # its last attempt was under way when the broker ended
                self._give_up(entry, DISCONNECTED)
            elif entry.state == BLOCKED:
                self._effects.record(Sent(self._key, entry.sequence, mark_of(entry.sequence, 0)))
            else:
                return entry

    def _take(self) -> Entry | None:
        """Take the first message of the backlog; None where there is none here, or no room among those under way."""
        if len(self._deliveries) >= MAX_OUTSTANDING or self._outstanding_bytes >= MAX_OUTSTANDING_BYTES:
            return None
        return self._take_first()

    def _take_first(self) -> Entry | None:
        """The same for a message that is at its end: it needs no room among those under way."""
        backlog = self.backlog
        if not backlog.deliveries:
            return None
        sequence = backlog.first
        entry = self._entry(sequence, backlog.pop().message, 0)
        self._deliveries.add(entry, self._effects.now)
        return entry

    def _entry(self, sequence: int, message: Message, attempts: int) -> Entry:
        policy = self.policy
        key = user_property(ORDERING_KEY, message) if policy.ordering else ""
        priority = priority_of(message) if policy.priority else 0
        self._outstanding_bytes += self._memory.hold(message, ENTRY_BYTES)
        return Entry(sequence, message, key, priority, attempts)

    def _fill_priorities(self) -> None:
        """Have the first messages of the backlog among those of which the highest priority is chosen."""
        while len(self._deliveries) - self._deliveries.leased < PRIORITY_WINDOW:
            entry = self._take()
            if entry is None:
                return
            self._effects.record(Sent(self._key, entry.sequence, mark_of(entry.sequence, 0)))
            if entry.state == READY:
                self._deliveries.push(entry)

    def _has_expired(self, message: Message) -> bool:
        now = self._effects.now
        expiry_s = self.policy.expiry_s
        return message.expired(now) or (expiry_s > 0 and self._published_at(message) + expiry_s <= now)

    # ------------------------------------------------------------------ time

    def on_time(self) -> None:
        """Something is due."""
        self._timer = None
        self._end_leases()
        self._deliver_some()

    def _end_leases(self) -> None:
        now = self._effects.now
        for _ in range(DUE_PER_STEP):
            entry = self._deliveries.take_due(now)
            if entry is None:
                entry = self._expired_front()
                if entry is None:
                    return
                self._end(entry, EXPIRED)
            elif entry.state == LEASED:
                self.fail(entry, entry.attempts, DEADLINE, 0.0)
            elif entry.attempts >= self.policy.max_attempts:  # its last lease was before the broker started
                self._give_up(entry, DEADLINE)
            self._effects.work += _WORK
        self.wake()

    def _expired_front(self) -> Entry | None:
        """Take the first message of the backlog if it has expired."""
        deliveries = self.backlog.deliveries
        if not deliveries:
            if self.backlog.stored:
                self._want_page()
            return None
        return self._take_first() if self._has_expired(deliveries[0].message) else None

    def _front_expires_at(self) -> float:
        """When the first message of the backlog expires; 0.0 for never."""
        for delivery in self.backlog.deliveries:
            message, expiry_s = delivery.message, self.policy.expiry_s
            if not expiry_s:
                return message.expires_at
            at = self._published_at(message) + expiry_s
            return min(at, message.expires_at) if message.expires_at else at
        return 0.0

    def _arm(self) -> None:
        at = self._deliveries.next_at()
        if self.is_over:
            return
        front = self._front_expires_at()
        if front and (at is None or front < at):
            at = front
        if at is None:
            return
        timer = self._timer
        if timer is not None:
            if timer.at <= at:
                return
            self._deadlines.cancel(timer)
        self._timer = _Timer(self)
        self._deadlines.arm(self._timer, at)

    # ------------------------------------------------------------------ pages

    def _page(self) -> None:
        """Have the next messages here while there are consumers, and only the first ones while there are none."""
        if self._ring or self._deliveries.leased:
            if self.backlog.stored:
                self._want_page()
        elif self._pages is not None:
            self.backlog.forget_page()

    def _want_page(self) -> None:
        backlog = self.backlog
        if backlog.deliveries and backlog.first + len(backlog.deliveries) == self._lost_at:
            return
        if self._pages is not None and not self._is_loading and backlog.wants_page and not self.is_over:
            self._is_loading = True
            self._pages.want(self)

    def next_page(self) -> LoadPage | None:
        """As `PageReader`."""
        backlog = self.backlog
        if self.is_over or not backlog.wants_page:
            self._is_loading = False
            return None
        most = PAGE_MESSAGES if self._memory.used <= self._memory.half else KEPT_MESSAGES
        return LoadPage(self._key, backlog.first + len(backlog.deliveries), min(backlog.stored, most))

    def take_page(self, first: int, page: list[Delivery | None]) -> None:
        """As `PageReader`."""
        self._is_loading = False
        backlog = self.backlog
        for sequence, delivery in enumerate(page, first):
            if not backlog.stored or sequence != backlog.first + len(backlog.deliveries):
                continue
            if delivery is not None:
                backlog.take_page(delivery)
            elif not backlog.deliveries:
                self._effects.record(Settled(self._key, backlog.first))
                self.counts.ends[PURGED] += 1
                backlog.skip()
            else:
                self._lost_at = sequence  # the next page begins with it
                break
        self._deliver_some()

    # ------------------------------------------------------------------ an operator

    def change(self, policy: Policy, retry_min_s: float, retry_max_s: float) -> None:
        """Other options hold from now on."""
        self.policy = policy
        self._retry_min_s = retry_min_s
        self._retry_max_s = retry_max_s
        self.wake()

    def pause(self, paused: bool) -> None:
        """Deliver nothing, or go on."""
        self.paused = paused
        self.wake()

    def peek(self, most: int) -> list[Message]:
        """The first messages, those under way before those that wait in memory."""
        entries = list(islice(self._deliveries.entries.values(), most))
        found = [entry.message for entry in entries]
        return found + [each.message for each in islice(self.backlog.deliveries, most - len(found))]

    def entries(self, most: int) -> list[Entry]:
        """The first of those under way."""
        return list(islice(self._deliveries.entries.values(), most))

    def purge(self, data: bytes) -> int:
        """Drop all messages, also those that consumers have; how many. `data` is the queue's definition."""
        purged = self.depth
        self._let_all_go()
        self._effects.record(EndSession(self._key))
        self._effects.record(SaveQueue(self._key, data))
        self.counts.ends[PURGED] += purged
        return purged

    def end(self) -> None:
        """The queue is deleted, with all that is in it."""
        self.is_over = True
        self._let_all_go()
        for consumer in list(self._ring):
            consumer.in_ring = False
        self._ring.clear()
        if self._timer is not None:
            self._deadlines.cancel(self._timer)
            self._timer = None
        self._effects.record(EndSession(self._key))

    def _let_all_go(self) -> None:
        backlog = self.backlog
        while backlog.deliveries:
            backlog.pop()
        backlog.skip_stored()
        for entry in self._deliveries.entries.values():
            self._outstanding_bytes -= self._memory.let_go(entry.message, ENTRY_BYTES)
        self._deliveries.clear()

    # ------------------------------------------------------------------ a restart

    def restore_sent(self, sequence: int, message: Message, mark: int, due_at: float) -> None:
        """Put back a message that was under way; they come in the order of their sequences."""
        entry = self._entry(sequence, message, attempts_of(mark))
        if self._deliveries.add(entry, self._effects.now, due_at):
            self._deliveries.push(entry)
        self.backlog.restore_sent(sequence)
        self._arm()

    def restore_waiting(self, sequence: int, delivery: Delivery) -> None:
        """Put back a message that waits."""
        self.backlog.restore(sequence, delivery)


@final
class _Timer(Deadline):
    """When the next lease ends, or the next attempt is due."""

    __slots__ = ("_queue",)

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self._queue: Final = queue

    def on_due(self) -> None:
        self._queue.on_time()
