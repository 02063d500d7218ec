"""The messages of a queue: enqueues them, takes them out one by one, and ends them.

Waiting messages are in the `backlog`, most of it in the store; messages under way are in `deliveries`; messages of a
busy ordering key that are only in the store are `deferred`. `queue` decides on deliveries. Invariants: a message is in
exactly one of the three until it is acknowledged, dead-lettered, expired or purged, once; its changes are recorded
before anything is reported.
"""

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final, final

from mqttlite.core.connect.attempts import Attempt, GivenUp
from mqttlite.core.effects import Effects
from mqttlite.core.log_changes import LOG_MARK, Append, Finish, RemoveRecord, SaveDeadline, Take
from mqttlite.core.memory import ENTRY_BYTES as BACKLOG_ENTRY_BYTES
from mqttlite.core.memory import MemoryAccount
from mqttlite.core.message import Delivery, Message
from mqttlite.core.reasons import EXPIRED, QUEUE_FULL
from mqttlite.core.route.outlook import PlannedReceiver, planned_sink
from mqttlite.core.route.tally import DROPPED, QUEUED
from mqttlite.core.session.session_queue import SessionQueue
from mqttlite.extensions.queues.context import (
    DROP_NEWEST,
    ON_EXPIRY,
    TO_DEAD_LETTERS,
    DeadLetterBox,
    Policy,
    QueueContext,
)
from mqttlite.extensions.queues.deferred import Deferred
from mqttlite.extensions.queues.entry import Deliveries, Entry
from mqttlite.extensions.queues.limits import (
    DEFERRED_PER_STEP,
    ENTRY_BYTES,
    MAX_DEFERRED,
    MAX_OUTSTANDING,
    MAX_OUTSTANDING_BYTES,
    PRIORITY_WINDOW,
)
from mqttlite.extensions.queues.marks import attempts_of, mark_of
from mqttlite.extensions.queues.outcomes import (
    ACKNOWLEDGED,
    DEAD_LETTERED,
    DISCONNECTED,
    NACKED,
    OVERFLOW,
    PURGED,
    Counts,
)
from mqttlite.extensions.queues.properties import ORDERING_KEY, priority_of, user_property
from mqttlite.extensions.queues.release import Release
from mqttlite.extensions.queues.retention import Retention
from mqttlite.log.deliveries import BLOCKED, LEASED, READY
from mqttlite.log.deliveries import Entry as NewEntry

_NO_CONSUMER: Final = "no consumer had room"
"""Why a message waits, in the delivery log."""

_DEFER_WORK: Final = 3
"""The work of deferring a message."""


def _nothing() -> None:
    """The default of `keep_open`."""


@final
class Contents:
    """`dead_letters` takes messages that are given up."""

    __slots__ = (
        "_context",
        "_effects",
        "_hopeless",
        "_memory",
        "_outstanding_bytes",
        "backlog",
        "counts",
        "dead_letters",
        "deferred",
        "deliveries",
        "gave_way",
        "has_pages",
        "keep_open",
        "key",
        "name",
        "policy",
        "retention",
        "shown",
        "wanted",
    )

    def __init__(
        self, name: str, policy: Policy, context: QueueContext, deliveries: Deliveries, dead_letters: DeadLetterBox
    ) -> None:
        self.name: Final = name
        self.key: Final = f"{LOG_MARK}$queue/{name}"
        """Its name in changes."""
        self.shown: Final = f"$queue/{name}"
        """Its name in the delivery log, in place of a client."""
        self.policy: Policy = policy
        self._context: Final = context
        self._effects: Final[Effects] = context.effects
        self._memory: Final[MemoryAccount] = context.effects.memory
        self.has_pages: Final = context.has_pages
        self.deliveries: Final = deliveries
        self.backlog: Final = SessionQueue(context.effects.memory)
        self.dead_letters: Final = dead_letters
        self.retention: Final = Retention(name, self.key, context.effects)
        self._outstanding_bytes = 0
        self._hopeless: Final[deque[Entry]] = deque()
        """Messages whose last allowed attempt was under way when the broker stopped."""
        self.counts: Final = Counts()
        self.deferred: Final = Deferred(name, context.effects)
        self.wanted: Final[dict[str, None]] = {}
        """Ordering keys that have room for their deferred messages."""
        self.gave_way: bool = False
        """Whether `next_entry` stopped early after deferring many messages, and may find another one."""
        self.keep_open: Callable[[], None] = _nothing
        """Makes the store keep all messages from the first unfinished one on."""

    # ------------------------------------------------------------------ figures

    @property
    def depth(self) -> int:
        """The number of unfinished messages."""
        under_way = len(self.deliveries) if self._outstanding_bytes else 0  # of a thousand queues each look counts
        return len(self.backlog) - self.retention.ahead + under_way + self.deferred.count

    @property
    def size_bytes(self) -> int:
        """Their size in memory, including what stored ones would take."""
        return self.backlog.size_bytes + self.backlog.stored_bytes + self._outstanding_bytes + self.deferred.size_bytes

    @property
    def _held_bytes(self) -> int:
        return self.backlog.size_bytes + self._outstanding_bytes

    def oldest_age_s(self, now: float) -> float:
        """The age of the oldest message in memory; 0.0 if there is none or it is not known."""
        for entry in self.deliveries.entries.values():
            return self._age_s(entry.message, now)
        for delivery in self.backlog.deliveries:
            return self._age_s(delivery.message, now)
        return 0.0

    def _age_s(self, message: Message, now: float) -> float:
        return max(0.0, now - self._published_at(message))

    def _published_at(self, message: Message) -> float:
        return (message.number - self._context.wall_ahead_us) / 1e6

    def peek(self, most: int) -> list[Message]:
        """The first messages in memory: those under way, then the waiting ones."""
        entries = list(islice(self.deliveries.entries.values(), most))
        found = [entry.message for entry in entries]
        for sequence, delivery in enumerate(self.backlog.deliveries, self.backlog.first):
            if len(found) >= most:
                break
            if not self.retention.is_hole(sequence):
                found.append(delivery.message)
        return found

    # ------------------------------------------------------------------ messages come in

    def make_room(self, size: int) -> bool:
        """Whether there is room for a message of this size. Removes the oldest ones if the policy says so."""
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
                self.give_up(entry, OVERFLOW)
            else:
                self.end(entry, PURGED)
        return True

    def outlook(self, message: Message, waits: str) -> PlannedReceiver:
        """Predict what the queue would do with a message. `waits` is the detail if there is room."""
        policy = self.policy
        size = BACKLOG_ENTRY_BYTES + message.memory_bytes
        if self._fits(size):
            return planned_sink(self.shown, QUEUED, "", waits)
        if policy.on_overflow == DROP_NEWEST or size > policy.max_bytes:
            return planned_sink(self.shown, DROPPED, QUEUE_FULL, self.why_full(size))
        detail = f"it is full ({self.why_full(size)}), and its oldest message goes: {policy.on_overflow}"
        return planned_sink(self.shown, QUEUED, "", detail)

    def _fits(self, size: int) -> bool:
        policy = self.policy
        if self.depth >= policy.max_messages or self.size_bytes + size > policy.max_bytes:
            return False
        return size <= self._memory.room_for(self._held_bytes) or (self.has_pages and self.backlog.is_long)

    def why_full(self, size: int) -> str:
        """Which limit leaves no room for a message of this size, for the delivery log."""
        policy = self.policy
        if self.depth >= policy.max_messages:
            return f"{self.depth}/{policy.max_messages}"
        return f"{self.size_bytes}+{size}/{policy.max_bytes} bytes"

    def put(self, message: Message) -> None:
        """Append a message. There must be room."""
        effects = self._effects
        effects.identify(message)
        self.counts.published += 1
        delivery = self._context.delivery_of(message)
        backlog = self.backlog
        if backlog.stored or (self.has_pages and backlog.is_long):
            sequence = backlog.append_stored(BACKLOG_ENTRY_BYTES + message.memory_bytes)
        else:
            sequence = backlog.append(delivery)
        effects.record(Append(self.key, sequence, delivery))
        retention = self.retention
        if message.number > retention.latest:
            retention.latest = message.number
        elif retention.on_late(sequence):
            retention.forget(self.oldest)
        effects.charge_change(message)
        if message.trace and effects.tracer is not None:
            effects.tracer.on_queued(message.trace, self.shown, _NO_CONSUMER, self.depth, self.policy.max_messages)

    # ------------------------------------------------------------------ the next message

    def next_entry(self) -> Entry | None:
        """The next READY message to deliver; None if there is none in memory now."""
        deliveries = self.deliveries
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
                self.expire(entry)
            elif entry.attempts >= self.policy.max_attempts:  # the limit may have been lowered since its delivery
                self.give_up(entry, DISCONNECTED)
            elif entry.state == BLOCKED:
                self.record_taken(entry)
            else:
                return entry

    def record_taken(self, entry: Entry) -> None:
        """Record that a message is under way without a new attempt or due time."""
        entry.due_is_stored = False
        self._effects.record(Take(self.key, entry.sequence, mark_of(entry.sequence, entry.attempts)))

    def record_due(self, entry: Entry, delay_s: float = 0.0) -> None:
        """Record when the next attempt of a message is due: `delay_s` after its lease ends."""
        entry.due_is_stored = True
        self._effects.record(SaveDeadline(self.key, entry.sequence, entry.due_at + delay_s))

    def _take(self) -> Entry | None:
        """Take the first message of the backlog that need not be deferred. None if there is none in memory, or no room
        among those under way."""
        for _ in range(DEFERRED_PER_STEP):
            if len(self.deliveries) >= MAX_OUTSTANDING or self._outstanding_bytes >= MAX_OUTSTANDING_BYTES:
                return None
            if self.deferred.count and self._keeps_too_much:
                return None
            key = self._full_key()
            if not key:
                return self._take_first()
            if self.deferred.count >= MAX_DEFERRED:
                return None if key in self.deferred else self._take_first()
            self._defer(key)
        self.gave_way = True
        return None

    def _full_key(self) -> str:
        """The ordering key of the first message of the backlog if its lane is full; else empty."""
        if not self.policy.ordering or not self.has_pages:
            return ""  # without a paging store the message stays in memory anyway
        backlog = self.backlog
        if self.retention.passes_end > backlog.first:
            self._pass_holes()
        if not backlog.deliveries:
            return ""
        key = user_property(ORDERING_KEY, backlog.deliveries[0].message)
        if key and (key in self.deferred or (self.deliveries.in_lane(key) and self.room_for(key) <= 0)):
            return key
        return ""

    def room_for(self, key: str) -> int:
        """How many more messages with this key may be under way."""
        in_lane = self.deliveries.in_lane(key)
        if len(self.deliveries) < MAX_OUTSTANDING // 2 and self._outstanding_bytes < MAX_OUTSTANDING_BYTES // 2:
            return self._context.max_lane - in_lane
        return 1 - in_lane

    @property
    def _keeps_too_much(self) -> bool:
        """Whether the store keeps more for deferred messages than the queue may hold."""
        retention, policy = self.retention, self.policy
        return (
            retention.count >= policy.max_messages
            or retention.size_bytes >= policy.max_bytes
            or retention.has_too_many_gone
        )

    def _defer(self, key: str) -> None:
        """Defer the first message of the backlog: it then waits only in the store."""
        if self.retention.floor < 0:
            self.keep_open()
        sequence = self.backlog.first
        message = self.backlog.pop().message
        self.deferred.add(key, sequence, BACKLOG_ENTRY_BYTES + message.memory_bytes)
        self._effects.record(Finish(self.key, sequence))
        self._effects.work += _DEFER_WORK

    def bring_back(self, key: str, sequence: int, message: Message | None) -> bool:
        """The first deferred message of a key was read, or is lost. False if it is no longer deferred."""
        if not self.deferred.take(key, sequence):
            return False
        retention = self.retention
        if message is None:
            self.counts.ends[PURGED] += 1
            retention.on_gone(sequence)
            return True
        entry = self._entry(sequence, message, 0)
        is_ready = self.deliveries.add(entry, self._effects.now)
        self.record_taken(entry)
        if message.number < retention.cutoff and sequence < retention.cutoff_end:
            self.end(entry, PURGED, is_retained=True)
        elif is_ready:
            self.deliveries.push(entry)
        return True

    def want_deferred(self, key: str) -> None:
        """Request the deferred messages of a key, if half of its lane is empty."""
        if (
            key in self.deferred
            and self.deliveries.in_lane(key) <= self._context.max_lane // 2
            and self.room_for(key) > 0
        ):
            self.wanted[key] = None

    def _take_first(self) -> Entry | None:
        """Take the first message of the backlog to end it. It needs no room among those under way."""
        backlog = self.backlog
        if self.retention.passes_end > backlog.first:
            self._pass_holes()
        if not backlog.deliveries:
            return None
        sequence = backlog.first
        entry = self._entry(sequence, backlog.pop().message, 0)
        self.deliveries.add(entry, self._effects.now)
        return entry

    def _entry(self, sequence: int, message: Message, attempts: int) -> Entry:
        policy = self.policy
        key = user_property(ORDERING_KEY, message) if policy.ordering else ""
        priority = priority_of(message) if policy.priority else 0
        self._outstanding_bytes += self._memory.hold(message, ENTRY_BYTES)
        return NewEntry(sequence, message, key, priority, attempts)

    def _fill_priorities(self) -> None:
        """Move the first messages of the backlog into the set from which the highest priority is chosen."""
        while len(self.deliveries) - self.deliveries.leased < PRIORITY_WINDOW:
            entry = self._take()
            if entry is None:
                return
            self.record_taken(entry)
            if entry.state == READY:
                self.deliveries.push(entry)

    # ------------------------------------------------------------------ ends

    def tell_attempt(
        self, entry: Entry, outcome: str, is_failure: bool, detail: str = "", is_reported: bool = False
    ) -> None:
        """Report the end of an attempt of a LEASED message to the tracers. `is_reported` says that the session of the
        consumer reports its acknowledgement."""
        if entry.message.trace and self._effects.tracer is not None and not is_reported:
            why = f"{outcome} ({detail})" if detail else outcome
            self._effects.tracer.on_returned(entry.message.trace, entry.consumer, why)
        tracer = self._context.attempts
        if tracer is None:
            return
        one_in = tracer.sample(is_failure)
        if one_in or entry.message.trace:
            behind = self.deliveries.in_lane(entry.key) - 1 + self.deferred.count_of(entry.key) if entry.key else 0
            attempt = Attempt(
                self.name,
                entry.message,
                entry.consumer,
                entry.key,
                entry.attempts,
                entry.last_at,
                self._effects.now,
                outcome,
                detail,
                behind,
            )
            tracer.on_attempt(attempt, one_in)

    def reject(self, message: Message, cause: str, detail: str = "") -> None:
        """Make a message that the queue does not take a dead letter at once."""
        self._effects.identify(message)
        self._keep_dead(NewEntry(0, message), cause, detail)

    def give_up(self, entry: Entry, cause: str, detail: str = "") -> None:
        """Make an undeliverable message a dead letter, or drop it."""
        if self.policy.dead_letter:
            self._keep_dead(entry, cause, detail)
            self.end(entry, DEAD_LETTERED, f"it is in $dlq/{self.name} after {entry.attempts} deliveries ({cause})")
        else:
            self.end(entry, PURGED, f"{entry.attempts} attempts ({cause})")

    def _keep_dead(self, entry: Entry, cause: str, detail: str) -> None:
        """Store a dead letter, and report it."""
        tracer = self._context.attempts
        if tracer is not None:
            letter = GivenUp(
                self.name,
                entry.message,
                cause,
                detail,
                entry.attempts,
                entry.consumer,
                entry.key,
                entry.first_at,
                entry.last_at,
                self._effects.now,
            )
            tracer.on_given_up(letter)
        self.dead_letters.put(entry, cause, detail)

    def expire(self, entry: Entry) -> None:
        """End an expired message, or make it a dead letter."""
        if ON_EXPIRY in self.policy.dead_letter_on:
            self.give_up(entry, EXPIRED)
        else:
            self.end(entry, EXPIRED)

    def end(self, entry: Entry, end: str, detail: str = "", is_retained: bool = False) -> None:
        """End a message. A seek can bring back acknowledged messages and those with `is_retained`."""
        self.deliveries.settle(entry)
        self._outstanding_bytes -= self._memory.let_go(entry.message, ENTRY_BYTES)
        if self.deferred.count and entry.key:
            self.want_deferred(entry.key)
        self.counts.ends[end] += 1
        self._effects.record(Finish(self.key, entry.sequence))
        if self.retention.floor >= 0:
            if is_retained or end == ACKNOWLEDGED:
                self.retention.on_retained(entry.sequence, ENTRY_BYTES + entry.message.memory_bytes)
            else:
                self.retention.on_gone(entry.sequence)
        tracer = self._effects.tracer
        if tracer is not None:
            message = entry.message
            if end != ACKNOWLEDGED:
                reason = NACKED if end == DEAD_LETTERED else end
                tracer.on_dropped(message.trace, self.shown, message.topic, reason, 1, detail)
            elif message.trace:
                tracer.on_acknowledged(message.trace, self.shown)

    def _has_expired(self, message: Message) -> bool:
        at = self.expires_at(message)
        return 0.0 < at <= self._effects.now

    def end_front(self) -> bool:
        """End one waiting message that cannot be delivered any more. Works without consumers. False if the first ones
        in memory can be delivered."""
        while self._hopeless:
            entry = self._hopeless.popleft()
            if entry.state == READY:
                self.give_up(entry, DISCONNECTED)
                return True
        ready = self.deliveries.first_ready()
        if ready is not None and self._has_expired(ready.message):
            self.expire(ready)
            return True
        if self.retention.passes_end > self.backlog.first:
            self._pass_holes()
        for delivery in self.backlog.deliveries:
            if self._has_expired(delivery.message):
                entry_at_front = self._take_first()
                assert entry_at_front is not None, "it is here"
                self.expire(entry_at_front)
                return True
            break
        return False

    def front_expires_at(self) -> float:
        """When the first deliverable or waiting message expires; 0.0 for never."""
        at = 0.0
        ready = self.deliveries.first_ready()
        if ready is not None:
            at = self.expires_at(ready.message)
        for delivery in self.backlog.deliveries:
            other = self.expires_at(delivery.message)
            return min(at, other) if at and other else at or other
        return at

    def expires_at(self, message: Message) -> float:
        """When a message expires; 0.0 for never."""
        expiry_s = self.policy.expiry_s
        if not expiry_s:
            return message.expires_at
        at = self._published_at(message) + expiry_s
        return min(at, message.expires_at) if message.expires_at else at

    def skip_lost(self) -> None:
        """Skip the first sequence of the backlog, whose message is lost or does not exist."""
        backlog, retention = self.backlog, self.retention
        if retention.is_hole(backlog.first):
            retention.ahead -= 1
        else:
            self.counts.ends[PURGED] += 1
        retention.on_gone(backlog.first)
        self._effects.record(Finish(self.key, backlog.first))
        backlog.skip()

    @property
    def oldest(self) -> int:
        """The lowest kept sequence."""
        low = self.first_open
        return low if self.retention.floor < 0 else min(low, self.retention.floor)

    @property
    def first_open(self) -> int:
        """The lowest sequence of an unfinished message."""
        low = min(self.deliveries.entries, default=self.backlog.first)
        return min(low, self.deferred.first) if self.deferred.count else low

    def give_back(self, entry: Entry) -> None:
        """Remove a message from those under way. The caller puts it back to the backlog."""
        if entry.state == LEASED:
            self.tell_attempt(entry, PURGED, False)
        self.deliveries.settle(entry)
        self._outstanding_bytes -= self._memory.let_go(entry.message, ENTRY_BYTES)

    def clear(self) -> None:
        """Remove all messages, also from the store."""
        self.drop(self.backlog.jump(self.backlog.end, 0))
        for entry in self.deliveries.entries.values():
            if entry.state == LEASED:
                self.tell_attempt(entry, PURGED, False)
            self._outstanding_bytes -= self._memory.let_go(entry.message, ENTRY_BYTES)
        self.deliveries.clear()
        self.deferred.clear()
        self.wanted.clear()
        self.retention.end()
        self._effects.record(RemoveRecord(self.key))

    def drop(self, deliveries: deque[Delivery]) -> None:
        """Release messages; many are released in parts."""
        if deliveries:
            self._context.jobs.start(Release(deliveries, self._effects))

    def _pass_holes(self) -> None:
        """Remove skipped sequences from the front of the backlog."""
        backlog, retention = self.backlog, self.retention
        while backlog.deliveries and backlog.first < retention.passes_end:
            sequence = backlog.first
            message = backlog.deliveries[0].message
            if retention.is_hole(sequence):
                retention.ahead -= 1
                is_retained = sequence not in retention.gone
            elif message.number < retention.cutoff and sequence < retention.cutoff_end:
                self.counts.ends[PURGED] += 1
                is_retained = True
            else:
                return
            backlog.pop()
            self._effects.record(Finish(self.key, sequence))
            if is_retained:
                retention.on_retained(sequence, ENTRY_BYTES + message.memory_bytes)

    # ------------------------------------------------------------------ a restart

    def restore_sent(self, sequence: int, message: Message, mark: int, due_at: float) -> None:
        """Restore a message that was under way. Call it in the order of sequences."""
        entry = self._entry(sequence, message, attempts_of(mark))
        if self.deliveries.add(entry, self._effects.now, due_at):
            self.deliveries.push(entry)
            if entry.attempts >= self.policy.max_attempts:
                self._hopeless.append(entry)
        self.backlog.restore_sent(sequence)

    def restore_waiting(self, sequence: int, delivery: Delivery) -> None:
        """Restore a waiting message."""
        self.backlog.restore(sequence, delivery)
