"""A group whose members share all messages of a stream, whatever their partitions are.

Each message is leased to one member, as by a queue: if it is not acknowledged in time, or its member is gone, another
one gets it, and after `max_attempts` it is a dead letter. The messages stay in the log of the stream; the group has a
position in each partition, and what is under way. Invariants: a member gets a message when its attempt is on disk; what
is acknowledged is not delivered again, but by a seek or replay.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import ClassVar, Final, final

from mqttlite.core.connect.attempts import Attempt, AttemptTracer, GivenUp
from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.effects import AwaitsCommit, Effects
from mqttlite.core.jobs import Job, has_budget
from mqttlite.core.limits import JSON_BYTES_PER_WORK_UNIT, SENDING_BYTES
from mqttlite.core.memory import ENTRY_BYTES
from mqttlite.core.message import Delivery, Message
from mqttlite.core.message_filter import MessageFilter
from mqttlite.core.reasons import EXPIRED, NACKED
from mqttlite.core.route.subscription import Subscription
from mqttlite.core.session.session import Session
from mqttlite.extensions.streams.dead_places import DeadPlaces
from mqttlite.extensions.streams.entry import Entry
from mqttlite.extensions.streams.feed import Feed
from mqttlite.extensions.streams.limits import DUE_PER_STEP, MAX_UNDER_WAY, MAX_UNDER_WAY_BYTES
from mqttlite.extensions.streams.partition import Partition
from mqttlite.extensions.streams.right import ReadingRight
from mqttlite.extensions.streams.shared_options import SharedGroupSettings
from mqttlite.extensions.streams.shared_record import SavedShare, encode_share, place_of
from mqttlite.extensions.streams.stream import Stream
from mqttlite.log.cursor import Cursor
from mqttlite.log.deliveries import DONE, LEASED, SCHEDULED, Deliveries
from mqttlite.log.deliveries import Entry as UnderWay
from mqttlite.topics.names import matches

DEAD: Final = "dead"
"""The name of the record of the dead letters; the others have the numbers of their partitions."""

_ACKNOWLEDGED: Final = "acknowledged"
_NEVER_ACKNOWLEDGED: Final = "sent"
_DEADLINE: Final = "deadline"
_DISCONNECTED: Final = "disconnected"
_TOO_LARGE: Final = "too_large"
_NACKED: Final = "nacked"
_UNSENT: Final = "disconnected before it was sent"
"""How attempts end. The words are those of queues."""

_WORK: Final = 8
"""The work of delivering a message; of looking at one that is not delivered, a quarter."""

_BEYOND_S: Final = 0.001
"""Added so that a message that is due at its expiry has expired in spite of rounding."""


@final
class SharedMember:
    """A `Puller`: a subscription of a session to a stream in a shared group."""

    __slots__ = ("expression", "group", "in_ring", "is_over", "right", "session", "skipped", "stream", "subscription")

    def __init__(
        self, session: Session, subscription: Subscription, stream: Stream, group: "SharedGroup", expression: str
    ) -> None:
        self.session: Final = session
        self.subscription: Subscription = subscription
        self.stream: Final = stream
        self.group: Final = group
        self.expression: Final = expression
        self.right: Final = ReadingRight(session, stream.topic, stream.context.permissions)
        self.in_ring: bool = False
        self.is_over: bool = False
        self.skipped: int = 0
        """How many messages were removed before the group came to them, as far as this member was told."""

    @property
    def cursor(self) -> Cursor:
        """That of its group."""
        return self.group.cursor

    @property
    def since(self) -> int:
        """The lowest number of a message that it gets."""
        return self.group.since

    @property
    def tells_end(self) -> bool:
        """Members are not told of an end."""
        return False

    def on_room(self) -> None:
        """Implements `Puller`."""
        self.group.on_room(self)

    def on_gone(self) -> None:
        """Implements `Puller`: its messages go back to the group as they are returned."""
        self.group.on_gone(self)

    def wake(self) -> None:
        """It may be able to take messages."""
        self.group.on_room(self)

    def end(self) -> None:
        """The subscription or the stream ended. Its client may still acknowledge what it has."""
        self.is_over = True
        self.stream.readers -= 1
        self.session.pull_no_more(self)
        self.group.on_gone(self)


@final
class _Lease(AwaitsCommit):
    """An `Origin`: one attempt to deliver a message to a member."""

    __slots__ = ("_attempt", "_entry", "_group", "_number")
    name: ClassVar[bytes] = b""
    keeps: ClassVar[bool] = True

    def __init__(self, group: "SharedGroup", entry: UnderWay[Entry]) -> None:
        self._group: Final = group
        self._entry: Final = entry
        self._attempt: Final = entry.attempts
        self._number: Final = entry.lease

    def on_committed(self, now: float) -> None:
        self._group.on_committed(self._entry, self._number, self._attempt, now)

    def settled(self, delivery: Delivery, reason_code: int) -> None:
        if reason_code >= 0x80:
            self._group.fail(self._entry, self._attempt, _NACKED, f"reason code 0x{reason_code:02x}")
        else:
            self._group.acknowledge(self._entry)

    def returned(self, delivery: Delivery) -> bool:
        if not self._group.take_back(self._entry, self._number):
            self._group.fail(self._entry, self._attempt, _DISCONNECTED)
        return True


@final
class SharedGroup(Job):
    """`save_part` records a part of its state by name, and `save` all of it. `attempts` gets reports."""

    def __init__(
        self,
        name: str,
        stream: Stream,
        settings: SharedGroupSettings,
        cursor: Cursor,
        deadlines: Deadlines,
        save: Callable[["SharedGroup"], None],
        save_part: Callable[["SharedGroup", str, bytes], None],
    ) -> None:
        self.name: Final = name
        self.stream: Final = stream.name
        self.shown: Final = f"$share/{name}/{stream.shown}"
        self.settings: SharedGroupSettings = settings
        self.filters: tuple[str, str] = ("", "")
        """The topic filter and the message filter of all its members, once it has begun."""
        self.has_begun: bool = False
        """Whether it has positions: the first subscription says where it begins, or a seek."""
        self.message_filter: MessageFilter | None = None
        self.mount_point: str = ""
        """That of the first member: the message filter is about topics below it."""
        self.cursor: Final = cursor
        self.since: int = 0
        self.subscriptions: int = 0
        self.idle_since_us: int = 0
        self.attempts: AttemptTracer | None = None
        self._stream: Final = stream
        self._effects: Final[Effects] = stream.context.effects
        self._deadlines: Final = deadlines
        self._save: Final = save
        self._save_part: Final = save_part
        self._deliveries: Final[Deliveries[Entry]] = Deliveries(random.random)
        self._bytes = 0
        self._feed: Final = Feed(stream, cursor, self)
        self._feed.add(range(len(cursor.places)))
        self._ring: Final[deque[SharedMember]] = deque()
        """Members that may have room, in the order of their turns."""
        self._present: Final[set[SharedMember]] = set()
        """Members that had room since they connected: for them the group reads ahead."""
        self._changed: Final[set[int]] = set()
        """The partitions whose record is to be written."""
        self._retried: Final[list[dict[int, UnderWay[Entry]]]] = [{} for _ in cursor.places]
        """By partition and offset: what was sent more than once, or waits for its next attempt. Not what is replayed:
        after a restart it is only a dead letter."""
        self._sent_before: Final[list[int]] = [0] * len(cursor.places)
        """By partition: what was sent before the start of the broker, once if it is not in `_attempted`."""
        self._attempted: Final[list[dict[int, tuple[int, float]]]] = [{} for _ in cursor.places]
        """By partition and offset, in order: the attempts before the start of the broker, and when the next one is
        due."""
        self._replayed: Final[set[int]] = set()
        """The sequences of dead letters that are delivered again."""
        self.dead: Final = DeadPlaces()
        self._are_dead_changed = False
        self._timer: _Timer | None = None
        self._is_job = False
        self._untold = 0
        self.is_over: bool = False
        self.redeliveries: int = 0
        """Attempts after the first of their message."""
        self.acknowledged: int = 0

    @property
    def under_way(self) -> int:
        """How many messages members hold."""
        return self._deliveries.leased

    @property
    def scheduled(self) -> int:
        """How many messages wait for their next attempt."""
        return self._deliveries.scheduled

    # ------------------------------------------------------------------ members

    def begin(
        self,
        filters: tuple[str, str],
        message_filter: MessageFilter | None,
        mount_point: str,
        positions: Iterable[int],
        since: int,
    ) -> None:
        """The first member came."""
        self.filters, self.message_filter, self.mount_point = filters, message_filter, mount_point
        self.since = since
        self._go_to(dict(enumerate(positions)))

    def on_room(self, member: SharedMember) -> None:
        """A member may have room."""
        if not member.in_ring and not member.is_over:
            member.in_ring = True
            self._ring.append(member)
        if member.session.outbox is not None and not member.is_over:
            self._present.add(member)
        self.wake()

    def on_gone(self, member: SharedMember) -> None:
        """A member is not connected, or has ended."""
        self._present.discard(member)
        if not self._present:
            self._feed.forget_page()

    def _next_member(self) -> SharedMember | None:
        """The next member that can take a message."""
        ring = self._ring
        while ring:
            member = ring[0]
            if not member.is_over and member.session.can_borrow and member.right.is_given():
                return member
            ring.popleft()
            member.in_ring = False
        return None

    # ------------------------------------------------------------------ delivery

    def wake(self) -> None:
        """Implements `FeedOwner`."""
        if not self._is_job and not self.is_over:
            self._is_job = True
            self._stream.context.jobs.queue(self)

    def may_take(self) -> bool:
        """Implements `FeedOwner`."""
        return not self.is_over and len(self._present) > 0

    def lowest(self) -> int:
        """Implements `FeedOwner`."""
        return self.since

    def on_passed(self, partition: Partition, messages: int, is_missing: bool) -> None:
        """Implements `FeedOwner`."""
        self._untold += messages
        self._changed.add(partition.number)
        attempted, head = self._attempted[partition.number], self.cursor.places[partition.number].head
        passed: list[int] = []
        for offset in attempted:
            if offset >= head:
                break
            passed.append(offset)
        for offset in passed:
            del attempted[offset]

    def step(self) -> bool:
        """Implements `Job`."""
        self._is_job = False
        if not self.is_over:
            self._end_leases()
            self._deliver_some()
            self._record()
            self._arm()
        return True

    def _deliver_some(self) -> None:
        """Deliver while there are messages, members with room, and budget."""
        effects = self._effects
        while True:
            member = self._next_member()
            if member is None:
                return
            if not has_budget(effects):
                self.wake()
                return
            entry = self._next()
            if entry is None:
                return
            self._deliver(member, entry)
            if len(self._ring) > 1:
                self._ring.rotate(-1)

    def _next(self) -> UnderWay[Entry] | None:
        """The next message to deliver: one that failed before, or the next one of the log."""
        while has_budget(self._effects):
            entry = self._deliveries.pop()
            if entry is not None:
                message = entry.message.message
                if message.expired(self._effects.now) and not self._stream.is_tombstone(message):
                    self._end(entry, EXPIRED)
                    continue
                return entry
            if len(self._deliveries) >= MAX_UNDER_WAY or self._bytes >= MAX_UNDER_WAY_BYTES:
                return None
            found = self._feed.next()
            if found is None:
                return None
            entry = self._take(found)
            if entry is not None:
                return entry
        self.wake()
        return None

    def _take(self, found: Entry) -> UnderWay[Entry] | None:
        """Take the message at a head. None if it is not to be delivered now."""
        partition, offset = found.partition, found.offset
        place = self.cursor.places[partition]
        sequence = self._sequence(partition, offset)
        known = self._attempted[partition].pop(offset, None)
        self._changed.add(partition)
        if not self._wants(found.message):
            self._effects.work += _WORK // 4
            place.skip()
            return None
        place.send()
        if sequence in self._replayed:  # since a seek to before it: that delivery is this one
            self._replayed.discard(sequence)
            replayed = self._deliveries.entries[sequence]
            if replayed.attempts > 1 or replayed.state == SCHEDULED:
                self._note_retried(replayed)
            return None
        attempts, due_at = known or (1 if offset < self._sent_before[partition] else 0, 0.0)
        entry: UnderWay[Entry] = UnderWay(sequence, found, "", 0, attempts)
        if self._add(entry, due_at):
            if attempts < self.settings.max_attempts:
                return entry
            self._give_up(entry, _DEADLINE, "")  # its last lease was before the start
        return None

    def _add(self, entry: UnderWay[Entry], due_at: float) -> bool:
        self._bytes += self._effects.memory.hold(entry.message.message, ENTRY_BYTES)
        is_ready = self._deliveries.add(entry, self._effects.now, due_at)
        if entry.attempts > 1 or not is_ready:
            self._note_retried(entry)
        return is_ready

    def _note_retried(self, entry: UnderWay[Entry]) -> None:
        if entry.sequence not in self._replayed:
            self._retried[entry.message.partition][entry.message.offset] = entry

    def _sequence(self, partition: int, offset: int) -> int:
        return offset * len(self.cursor.places) + partition

    def _wants(self, message: Message) -> bool:
        """Whether a message is for this group."""
        topic_filter = self.filters[0]
        if message.number < self.since:
            return False
        if message.expired(self._effects.now) and not self._stream.is_tombstone(message):
            return False
        if topic_filter and not matches(topic_filter.encode(), message.topic):
            return False
        message_filter = self.message_filter
        if message_filter is None:
            return True
        if message_filter.reads_payload:
            self._effects.work += len(message.payload) // JSON_BYTES_PER_WORK_UNIT
        return message_filter.matches(message)

    def _deliver(self, member: SharedMember, entry: UnderWay[Entry]) -> None:
        session, effects, subscription = member.session, self._effects, member.subscription
        outbox = session.outbox
        assert outbox is not None, "it has room"
        effects.work += _WORK
        deadline_s = self.settings.ack_deadline_s
        is_new = self._deliveries.lease(entry, effects.now, deadline_s, session.client_id, effects.commit_number)
        place = entry.message
        if entry.attempts > 1:
            self._note_retried(entry)
        self._changed.add(place.partition)
        outbox.awaits_commit = True
        lease = _Lease(self, entry)
        if is_new:
            effects.awaiting.append(lease)
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        seen = place.seen_at_attempt(outbox.version, self._untold, entry.attempts)
        message = place.fitting(seen, outbox, identifiers, effects.now)
        member.skipped += self._untold
        self._untold = 0
        effects.pending_bytes += message.size() + SENDING_BYTES
        if subscription.qos == 0:
            if session.deliver_qos0(Delivery(message, 0, False, identifiers)):
                self.fail(entry, entry.attempts, _TOO_LARGE)
            else:
                self.acknowledge(entry, _NEVER_ACKNOWLEDGED)
        elif not session.lend(Delivery(message, 1, False, identifiers, lease)):
            self.fail(entry, entry.attempts, _TOO_LARGE)

    # ------------------------------------------------------------------ how attempts end

    def on_committed(self, entry: UnderWay[Entry], lease: int, attempt: int, now: float) -> None:
        """A lease is on disk. If its member is there and gets the message now, this is an attempt, and its deadline
        begins."""
        if self._deliveries.start(entry, lease, now):
            if attempt > 1:
                self.redeliveries += 1
        elif self._deliveries.was_taken_back(entry, lease):
            self._note_retried(entry)  # its record says otherwise that it was sent once
            self._changed.add(entry.message.partition)
            self.wake()

    def take_back(self, entry: UnderWay[Entry], lease: int) -> bool:
        """The member of a lease is gone. False if it could have got the message, or the lease is over: a lease that
        waits for its commit, however long that takes, is no attempt."""
        if entry.state != LEASED or entry.lease != lease or entry.is_sent:
            return False
        tracer = self._effects.tracer
        if entry.message.message.trace and tracer is not None:
            tracer.on_returned(entry.message.message.trace, entry.consumer, _UNSENT)
        self._deliveries.take_back(entry)
        self.wake()
        return True

    def acknowledge(self, entry: UnderWay[Entry], outcome: str = _ACKNOWLEDGED) -> None:
        """A member has finished a message, perhaps late; harmless if it has ended."""
        if entry.state == DONE:
            return
        if entry.state == LEASED:
            self._tell_attempt(entry, outcome, False, "")
        self.acknowledged += 1
        self._end(entry, "")

    def fail(self, entry: UnderWay[Entry], attempt: int, cause: str, detail: str = "") -> None:
        """An attempt failed, if it was not over: schedule the next one."""
        if entry.state != LEASED or entry.attempts != attempt:
            return
        self._tell_attempt(entry, cause, True, detail)
        if entry.attempts >= self.settings.max_attempts:
            self._give_up(entry, cause, detail)
            return
        now, settings = self._effects.now, self.settings
        delay = self._deliveries.backoff(entry.attempts, settings.min_delay_s, settings.max_delay_s)
        if cause == _DISCONNECTED:
            delay = 0.0
        expires_at = entry.message.message.expires_at
        if expires_at and delay:
            delay = max(0.0, min(delay, expires_at + _BEYOND_S - now))  # it ends at its expiry
        self._deliveries.retry(entry, now, delay)
        if entry.state == SCHEDULED:
            self._note_retried(entry)
            self._changed.add(entry.message.partition)
        self.wake()

    def _give_up(self, entry: UnderWay[Entry], cause: str, detail: str) -> None:
        """A message becomes a dead letter."""
        place, now = entry.message, self._effects.now
        self.dead.add(place.partition, place.offset, cause, detail, entry.attempts, self._stream.context.now_us)
        self._are_dead_changed = True
        if self.attempts is not None:
            letter = GivenUp(
                *(self.shown, place.message, cause, detail, entry.attempts, entry.consumer, ""),
                *(entry.first_at, entry.last_at, now),
            )
            self.attempts.on_given_up(letter)
        if entry.sequence in self._replayed:
            self._replayed.discard(entry.sequence)
        else:
            self._pass(entry)
        self._settle(entry, NACKED, f"it is a dead letter after {entry.attempts} deliveries ({cause})")

    def _end(self, entry: UnderWay[Entry], reason: str) -> None:
        """A message is done: it was acknowledged, or has expired."""
        place = entry.message
        is_replayed = entry.sequence in self._replayed
        if is_replayed:
            self._replayed.discard(entry.sequence)
        else:
            self._pass(entry)
        if is_replayed or not reason:  # also acknowledged after a seek to before it
            self._are_dead_changed |= self.dead.remove(place.partition, place.offset)
        self._settle(entry, reason, "")

    def _pass(self, entry: UnderWay[Entry]) -> None:
        place = entry.message
        self.cursor.places[place.partition].acknowledge(place.offset)
        self._changed.add(place.partition)

    def _settle(self, entry: UnderWay[Entry], reason: str, detail: str) -> None:
        self._forget(entry)
        message, tracer = entry.message.message, self._effects.tracer
        if tracer is not None:
            if reason:
                tracer.on_dropped(message.trace, self.shown, message.topic, reason, 1, detail)
            elif message.trace:
                tracer.on_acknowledged(message.trace, self.shown)
        self.wake()

    def _forget(self, entry: UnderWay[Entry]) -> None:
        place = entry.message
        self._deliveries.settle(entry)
        self._bytes -= self._effects.memory.let_go(place.message, ENTRY_BYTES)
        self._retried[place.partition].pop(place.offset, None)

    def _tell_attempt(self, entry: UnderWay[Entry], outcome: str, is_failure: bool, detail: str) -> None:
        """Report the end of an attempt."""
        message = entry.message.message
        if message.trace and is_failure and self._effects.tracer is not None:
            why = f"{outcome} ({detail})" if detail else outcome
            self._effects.tracer.on_returned(message.trace, entry.consumer, why)
        if self.attempts is None:
            return
        one_in = self.attempts.sample(is_failure)
        if one_in or message.trace:
            attempt = Attempt(
                *(self.shown, message, entry.consumer, "", entry.attempts, entry.last_at, self._effects.now),
                *(outcome, detail, 0),
            )
            self.attempts.on_attempt(attempt, one_in)

    # ------------------------------------------------------------------ time

    def _end_leases(self) -> None:
        for _ in range(DUE_PER_STEP):
            entry = self._deliveries.take_due(self._effects.now)
            if entry is None:
                return
            if entry.state == LEASED:
                self.fail(entry, entry.attempts, _DEADLINE)
            elif entry.attempts >= self.settings.max_attempts:  # its options changed, or the broker started
                self._give_up(entry, _DEADLINE, "")
            self._effects.work += _WORK
        self.wake()

    def on_time(self) -> None:
        """A lease ended, or an attempt is due."""
        self._timer = None
        self.wake()

    def _arm(self) -> None:
        at = self._deliveries.next_at()
        timer = self._timer
        if at is None or (timer is not None and timer.at <= at):
            return
        if timer is not None:
            self._deadlines.cancel(timer)
        self._timer = _Timer(self)
        self._deadlines.arm(self._timer, at)

    # ------------------------------------------------------------------ the store

    def _record(self) -> None:
        """Record what changed since the last step."""
        for partition in sorted(self._changed):
            data = encode_share(
                self.cursor.places[partition],
                self._sent_before[partition],
                self._retried[partition],
                self._attempted[partition],
                self._stream.context.wall_ahead_us,
            )
            self._save_part(self, str(partition), data)
        self._changed.clear()
        if self._are_dead_changed:
            self._are_dead_changed = False
            self._save_part(self, DEAD, self.dead.encode())

    def restore(self, partition: int, saved: SavedShare) -> None:
        """Take a record of the store: what was sent and not acknowledged is delivered again."""
        place = self.cursor.places[partition] = place_of(saved)
        self._sent_before[partition] = saved.head
        ahead_us = self._stream.context.wall_ahead_us
        for offset, attempts, due_us in sorted(saved.retried):
            if offset < place.position or (place.ahead is not None and offset in place.ahead):
                continue
            due_at = (due_us - ahead_us) / 1e6 if due_us else 0.0
            self._attempted[partition][offset] = (attempts, due_at)

    # ------------------------------------------------------------------ an operator

    def change(self, settings: SharedGroupSettings) -> None:
        """Apply other options, to the next attempts."""
        self.settings = settings
        self._save(self)

    def seek(self, positions: dict[int, int]) -> None:
        """Go on from other offsets, by partition; acknowledgements of what was sent before change nothing."""
        self._go_to(positions)

    def _go_to(self, positions: dict[int, int]) -> None:
        self.has_begun = True
        for entry in [each for each in self._deliveries.entries.values() if each.message.partition in positions]:
            self._replayed.discard(entry.sequence)
            self._forget(entry)
        count = len(self.cursor.places)
        self._feed.clear()
        for partition, position in positions.items():
            self.cursor.renew(partition, position)
            self._sent_before[partition] = 0
            self._attempted[partition].clear()
            self._changed.add(partition)
        self._feed.add(range(count))
        self._save(self)
        self._record()
        self.wake()

    @property
    def room(self) -> int:
        """How many dead letters can be replayed now."""
        return max(0, MAX_UNDER_WAY - len(self._deliveries))

    def replay(self, partition: int, offset: int, message: Message) -> bool:
        """Deliver a dead letter again, with attempts from 1 on. It is one until a member acknowledges it. False if it
        is none, or is delivered now."""
        sequence = self._sequence(partition, offset)
        if (partition, offset) not in self.dead or sequence in self._deliveries.entries:
            return False
        self._replayed.add(sequence)
        entry: UnderWay[Entry] = UnderWay(sequence, Entry(partition, offset, message))
        self._add(entry, 0.0)
        self._deliveries.push(entry)
        self.wake()
        return True

    def drop(self, partition: int, offset: int) -> bool:
        """Forget a dead letter; if it is delivered again now, that goes on. Return whether it was one."""
        was_there = self.dead.remove(partition, offset)
        self._are_dead_changed |= was_there
        self.wake()
        return was_there

    def end(self) -> None:
        """The group, or its stream, is deleted."""
        self.is_over = True
        for entry in list(self._deliveries.entries.values()):
            self._forget(entry)
        self._feed.clear()
        for member in self._ring:
            member.in_ring = False
        self._ring.clear()
        if self._timer is not None:
            self._deadlines.cancel(self._timer)


@final
class _Timer(Deadline):
    """Due when the next lease ends, or the next attempt is due."""

    __slots__ = ("_group",)

    def __init__(self, group: SharedGroup) -> None:
        super().__init__()
        self._group: Final = group

    def on_due(self) -> None:
        self._group.on_time()
