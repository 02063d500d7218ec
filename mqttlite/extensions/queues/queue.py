"""A queue: takes the messages of its topics, and delivers each one until a consumer acknowledges it.

Its messages are in `Contents`, its attempts in `Leases`, its consumers in `ConsumerRing`; this module decides on
deliveries. Invariant: changes are recorded before a publisher is acknowledged or a consumer gets a message.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final, final

from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.effects import Effects
from mqttlite.core.jobs import Job, Jobs, has_budget
from mqttlite.core.log_changes import LOG_MARK, SaveRecord
from mqttlite.core.memory import ENTRY_BYTES as BACKLOG_ENTRY_BYTES
from mqttlite.core.message import Delivery, Message, PublishBatch, RawProperties
from mqttlite.core.reasons import FILTER_MISMATCH, QUEUE_FULL
from mqttlite.core.route.outlook import EXCLUDED, FILTERED, PlannedReceiver, planned_sink
from mqttlite.core.route.tally import ALONE, QUEUED, Tally
from mqttlite.core.session.queue_pages import QueuePages
from mqttlite.core.session.session import Session
from mqttlite.core.source import Source
from mqttlite.extensions.dedup import DedupWindow, digest_in
from mqttlite.extensions.queues.ack_ids import AckIds
from mqttlite.extensions.queues.backlog_pages import BacklogPages
from mqttlite.extensions.queues.consumers import Consumer, ConsumerRing
from mqttlite.extensions.queues.contents import Contents
from mqttlite.extensions.queues.context import EXPLICIT, DeadLetterBox, Policy, QueueContext
from mqttlite.extensions.queues.deferred_pages import DeferredPages
from mqttlite.extensions.queues.entry import Deliveries, Entry
from mqttlite.extensions.queues.leases import Leases
from mqttlite.extensions.queues.limits import DUE_PER_STEP, ENTRY_BYTES, PULLERS_STAY_S
from mqttlite.extensions.queues.options import SHORTEST_DEADLINE_S
from mqttlite.extensions.queues.outcomes import DEADLINE, NEVER_ACKNOWLEDGED, PAYLOAD_INVALID, PURGED, TOO_LARGE
from mqttlite.extensions.queues.pace import Pace
from mqttlite.extensions.queues.properties import with_delivery_properties
from mqttlite.extensions.queues.queue_filter import QueueFilter
from mqttlite.extensions.queues.seeking import Position, Seeking
from mqttlite.extensions.queues.time_search import TimeSearch
from mqttlite.log.deliveries import LEASED
from mqttlite.wire.constants import V5

DEDUP_MARK: Final = f"{LOG_MARK}$queue-dedup/"
"""Begins the names of the records of ids; the queue and a number follow."""

_IS_KNOWN: Final = "it was taken before: its dedup-id is known"
"""What `explain` says of a message."""

_WORK: Final = 8
"""The work of delivering a message."""

_ACCEPT_WORK: Final = 25
"""What it takes to enqueue a message, with its change and its deadline, beside handing it over: microseconds."""


@final
class Queue(Job):
    """A `Sink`. `may_receive` says whether a consumer may get the messages of a topic; None: all may."""

    __slots__ = (
        "_context",
        "_deadlines",
        "_deferred_pages",
        "_deliveries",
        "_effects",
        "_has_consumers",
        "_is_job",
        "_jobs",
        "_key",
        "_may_receive",
        "_pace",
        "_pages",
        "_pages_of_store",
        "_pulled_until",
        "_ring",
        "_timer",
        "contents",
        "counts",
        "filter",
        "ids",
        "is_leaving",
        "is_over",
        "leases",
        "on_ready",
        "paused",
        "seeking",
    )

    def __init__(
        self,
        name: str,
        policy: Policy,
        context: QueueContext,
        deliveries: Deliveries,
        dead_letters: DeadLetterBox,
        on_lost_snapshot: Callable[[str], None],
        ack_ids: AckIds,
        may_receive: Callable[[Session, bytes], bool] | None = None,
    ) -> None:
        self.contents: Final = Contents(name, policy, context, deliveries, dead_letters)
        self._key: Final = self.contents.key
        self.counts: Final = self.contents.counts
        self.seeking: Final = Seeking(self.contents, context, on_lost_snapshot)
        self._deliveries: Final = deliveries
        self._may_receive: Final = may_receive
        self.leases: Final = Leases(self.contents, deliveries, context, ack_ids, self.wake)
        self._context: Final[QueueContext] = context
        self._effects: Final[Effects] = context.effects
        self._jobs: Final[Jobs] = context.jobs
        self._deadlines: Final[Deadlines] = context.deadlines
        self._pages_of_store: Final[QueuePages] = context.pages
        self._pages: Final = BacklogPages(self.contents, context, self._deliver_some)
        self._deferred_pages: Final = DeferredPages(self.contents, context, self._on_brought_back)
        self.contents.keep_open = self.seeking.keep_open
        self._ring: Final = ConsumerRing(self._deliver_some)
        self._has_consumers = False
        """Whether there may be one in the ring. Where a thousand queues take a message, a look at each ring counts."""
        self._timer: _Timer | None = None
        self._pulled_until = 0.0
        """Until then, clients that pulled count as consumers."""
        self._is_job = False
        self.filter: QueueFilter | None = None
        """Selects the messages to take; None: all."""
        self._pace: Pace | None = Pace(policy.max_rate, self._effects.now) if policy.max_rate else None
        self.ids: DedupWindow | None = None
        """The ids of messages with a `dedup-id`; None: there was none."""
        self.is_over: bool = False
        self.paused: bool = False
        self.is_leaving: bool = False
        """Whether its messages move to another node, and are for nobody here."""
        self.on_ready: Callable[[], None] | None = None
        """Called when there may be messages to `pull`, for a consumer inside the broker. It must not call the queue."""

    # ------------------------------------------------------------------ figures

    @property
    def leased(self) -> int:
        """The number of messages held by consumers."""
        return self._deliveries.leased

    @property
    def scheduled(self) -> int:
        """The number of messages that wait for their next attempt."""
        return self._deliveries.scheduled

    # ------------------------------------------------------------------ messages come in

    def prepare(self, messages: int) -> bool:
        """Implements `Sink`."""
        return True

    def has_room(self, message: Message, qos: int) -> bool:
        return True  # a full queue refuses messages itself

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        """Implements `Sink`."""
        waits = "it is paused" if self.paused else f"consumers that take messages: {len(self._ring)}"
        if self.filter is not None:
            passes = self.filter.would_pass(message, knows_payload)
            if passes is False:
                return [planned_sink(self.contents.shown, EXCLUDED, FILTER_MISMATCH, self.filter.expression)]
            waits = FILTERED if passes is None else waits
        if self.ids is not None and self.ids.has(digest_in(message)):
            return [planned_sink(self.contents.shown, QUEUED, "", _IS_KNOWN)]
        return [self.contents.outlook(message, waits)]

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        """Implements `Sink`: enqueue the message, and deliver it at once if a consumer has room."""
        if self.filter is None or self.filter.passes(message, tally):
            self._accept(message, tally, ALONE)

    def _accept(self, message: Message, tally: Tally, at: int) -> None:
        contents = self.contents
        self._effects.work += _ACCEPT_WORK
        digest = digest_in(message)
        if digest and self.ids is not None and self.ids.has(digest):
            self._accept_again(message, tally)
            return
        size = BACKLOG_ENTRY_BYTES + message.memory_bytes
        if contents.retention.count:
            self.seeking.make_way(size)
        if not contents.make_room(size):
            self.counts.refused += 1
            tally.drop(QUEUE_FULL)
            tally.refuse(at)
            tracer = self._effects.tracer
            if tracer is not None:
                detail = contents.why_full(size)
                tracer.on_dropped(message.trace, contents.shown, message.topic, QUEUE_FULL, 1, detail)
            return
        tally.queued += 1
        if digest:
            self.window().add(digest)
        contents.put(message)
        if contents.policy.retain_acked:
            self.seeking.on_put(message.number)
        if self._has_consumers and not self.paused:
            self._deliver_some()
            return
        if self._timer is None:
            self._arm()
        if self.on_ready is not None:
            self.on_ready()

    def _accept_again(self, message: Message, tally: Tally) -> None:
        """A message that was taken before: its publisher is told so when that is on disk."""
        self.counts.duplicates += 1
        tally.queued += 1
        tally.is_durable = True
        tracer = self._effects.tracer
        if message.trace and tracer is not None:
            tracer.on_queued(message.trace, self.contents.shown, _IS_KNOWN, max(1, self.contents.depth), 0)

    def window(self) -> DedupWindow:
        """The ids of the messages that it took. It has one from the first message with an id on."""
        if self.ids is None:
            self.ids = DedupWindow(f"{DEDUP_MARK}{self.contents.name}/", self._effects)
        return self.ids

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        """Implements `Sink`."""
        places = range(batch.count) if self.filter is None else self.filter.passing(batch, tally)
        for at in places:
            self._accept(batch.delivery(at, 0).message, tally, at)

    def takes_batches(self, topic: bytes, raw: RawProperties) -> bool:
        """Implements `Sink`: a filter keeps some messages out, whose publisher is told so."""
        return self.filter is None

    def count_refused(self, messages: int) -> None:
        """Messages did not come here because of their topic's policy."""
        self.counts.refused += messages

    def keep_invalid(self, message: Message, reason: str) -> bool:
        """Keep a message with an invalid payload as a dead letter. False if the queue keeps none, or filters it out."""
        if not self.contents.policy.dead_letter or (self.filter is not None and not self.filter.matches(message)):
            return False
        self.contents.reject(message, PAYLOAD_INVALID, reason)
        return True

    def put_back(self, message: Message) -> bool:
        """Enqueue a replayed dead letter. False if there is no room for it."""
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
        self._ring.join(consumer)
        self._has_consumers = True
        self.wake()  # later, so that SUBACK precedes the first message

    def leave(self, consumer: Consumer) -> None:
        """A session no longer consumes. It may still acknowledge its messages."""
        self._ring.leave(consumer)

    def wake(self) -> None:
        """There may be new deliveries: try in this iteration or the next."""
        if not self._is_job and not self.is_over:
            self._is_job = True
            self._jobs.queue(self)

    def step(self) -> bool:
        """Implements `Job`."""
        self._is_job = False
        self._end_leases()
        self._deliver_some()
        return True

    # ------------------------------------------------------------------ delivery

    def _deliver_some(self) -> None:
        """Deliver while there are messages, consumers with room, and budget. Continue the rest as a job."""
        effects = self._effects
        while not self.paused and not self.is_over:
            consumer = self._ring.next(self.contents.policy.ack == EXPLICIT)
            if consumer is None:
                break
            if not has_budget(effects):
                self.wake()
                break
            entry = self._next_entry()
            if entry is None:
                if self.contents.gave_way:
                    self.wake()
                break
            effects.work += _WORK
            if self._may_receive is not None and not self._may_receive(consumer.session, entry.message.topic):
                self.leave(consumer)
                self.contents.record_taken(entry)
                self._deliveries.push(entry)
                continue
            self._deliver(consumer, entry)
            self._ring.turn()
        if 0.0 < self._pulled_until <= effects.now:
            self._pulled_until = 0.0
        self._has_consumers = len(self._ring) > 0
        if self._has_consumers or self._deliveries.leased or self._pulled_until or self.on_ready is not None:
            self._pages.want()
        else:
            self._pages.forget()
        self._see_to_deferred()
        self._arm()
        if self.on_ready is not None:
            self.on_ready()

    def _see_to_deferred(self) -> None:
        """Record newly deferred messages, and read those that can come back."""
        self.contents.deferred.flush()
        if self.contents.wanted:
            self._deferred_pages.want()

    def _on_brought_back(self) -> None:
        self.seeking.let_go()
        self._deliver_some()

    def _next_entry(self) -> Entry | None:
        """The next message to deliver; None if there is none in memory, or the rate does not allow it."""
        self.contents.gave_way = False
        pace = self._pace
        if pace is None:
            return self.contents.next_entry()
        if not self.contents.depth or not pace.is_open(self._effects.now):
            return None
        entry = self.contents.next_entry()
        if entry is not None:
            pace.spend()
        return entry

    def _deliver(self, consumer: Consumer, entry: Entry) -> None:
        session = consumer.session
        outbox = session.outbox
        assert outbox is not None
        policy = self.contents.policy
        lease = self.leases.begin(entry, session.client_id, policy.ack_deadline_s, outbox)
        consumer.delivered += 1
        subscription = consumer.subscription
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        message = entry.message
        if outbox.version == V5:
            ack_id = self.leases.ack_id_of(entry, entry.attempts)
            message = with_delivery_properties(message, ack_id, entry.attempts, policy.ack == EXPLICIT)
        self._effects.pending_bytes += message.size() + ENTRY_BYTES // 4
        if subscription.qos == 0:
            if not session.deliver_qos0(Delivery(message, 0, False, identifiers)):
                self.leases.acknowledge(entry, NEVER_ACKNOWLEDGED, entry.attempts)
            else:
                self.leases.fail(entry, entry.attempts, TOO_LARGE)
        elif not lease.lend(session, Delivery(message, 1, False, identifiers, lease), policy.ack == EXPLICIT):
            self.leases.fail(entry, entry.attempts, TOO_LARGE)

    # ------------------------------------------------------------------ pull, for those who are no session

    def pull(
        self, consumer: str, most: int, lease_s: float | None = None, *, outlives_broker: bool = True
    ) -> list[Entry]:
        """Lease up to `most` messages; none if it is paused or leaves. Send them only after the changes are committed.

        Without `outlives_broker`, a restart of the broker ends the leases.
        """
        if self.paused or self.is_leaving:
            most = 0
        return self._pull(consumer, most, lease_s, outlives_broker)

    def pull_for_node(self) -> Entry | None:
        """Lease the next message for the node to which they move."""
        found = self._pull("node", 1, SHORTEST_DEADLINE_S, False)
        return found[0] if found else None

    def _pull(self, consumer: str, most: int, lease_s: float | None, outlives_broker: bool) -> list[Entry]:
        seconds = self.contents.policy.ack_deadline_s if lease_s is None else lease_s
        found: list[Entry] = []
        while len(found) < most:
            entry = self._next_entry()
            if entry is None:
                break
            self.leases.begin(entry, consumer, seconds, None)
            if outlives_broker:
                self.leases.record(entry)
            found.append(entry)
        self._pulled_until = self._effects.now + PULLERS_STAY_S
        self._pages.want()
        self._see_to_deferred()
        self._arm()
        return found

    # ------------------------------------------------------------------ time

    def on_time(self) -> None:
        """Handle due messages."""
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
                self.leases.miss(entry)
            elif entry.attempts >= contents.policy.max_attempts:  # its last lease was before a restart
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
        if self._pulled_until and (at is None or self._pulled_until < at):
            at = self._pulled_until
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

    def change(self, policy: Policy) -> None:
        """Apply other options."""
        before, self.contents.policy = self.contents.policy, policy
        if policy.max_rate != before.max_rate:
            self._pace = Pace(policy.max_rate, self._effects.now) if policy.max_rate else None
        self.seeking.refresh()
        self.wake()

    def pause(self, paused: bool) -> None:
        """Pause or resume deliveries."""
        self.paused = paused
        self.wake()

    def entries(self, most: int) -> list[Entry]:
        """The first `most` messages under way."""
        return list(islice(self._deliveries.entries.values(), most))

    def purge(self, data: bytes) -> int:
        """Drop all messages, including those held by consumers. Return how many. `data` is the queue's definition."""
        purged = self.contents.depth
        self.contents.clear()
        self._effects.record(SaveRecord(self._key, data))
        self.seeking.after_purge()
        self.counts.ends[PURGED] += purged
        return purged

    def search(self, number: int, found: Callable[[int], None]) -> None:
        """Find the first sequence from which on messages have at least this number. `found` gets it, perhaps later."""
        TimeSearch(self.contents, self._pages_of_store, number, found).begin()

    def seek(self, to: Position) -> None:
        """Move to a position."""
        self.seeking.seek(to)
        self.wake()

    def end(self) -> None:
        """Delete the queue and its messages."""
        self.is_over = self._pages.is_over = self._deferred_pages.is_over = True
        self.contents.clear()
        self._ring.clear()
        if self.ids is not None:
            self.ids.delete()
        if self._timer is not None:
            self._deadlines.cancel(self._timer)
            self._timer = None

    # ------------------------------------------------------------------ a restart

    def restore_sent(self, sequence: int, message: Message, mark: int, due_at: float) -> None:
        """Restore a message that was under way. Call it in the order of sequences."""
        self.contents.restore_sent(sequence, message, mark, due_at)
        self._arm()


@final
class _Timer(Deadline):
    """Due when the next lease ends, or the next attempt is due."""

    __slots__ = ("_queue",)

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self._queue: Final = queue

    def on_due(self) -> None:
        self._queue.on_time()
