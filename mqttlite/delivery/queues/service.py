"""All queues of a broker: made, changed, deleted; who consumes from them; and what other interfaces do with them.

Everything runs on the event loop and awaits nothing: a caller lets the loop driver run after it, and waits for the
commit before it tells anybody. Invariant: a queue is in the store before its first message.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from mqttlite.core.attempts import AttemptTracer
from mqttlite.core.authorizer import RECEIVE
from mqttlite.core.broker import Broker
from mqttlite.core.changes import QUEUE_MARK, Change, Due, EndSession, Enqueue, Retain, SaveQueue, Stored
from mqttlite.core.message import Message
from mqttlite.core.message_filter import FilterCompiler, StoredFilter
from mqttlite.core.session import Session
from mqttlite.core.sink import Sink
from mqttlite.core.subscription import Subscription
from mqttlite.delivery.push.target import PushTarget, new_secret
from mqttlite.delivery.queues.dead_letters import DeadLetters
from mqttlite.delivery.queues.deliveries import Deliveries, Entry
from mqttlite.delivery.queues.feed import Feed
from mqttlite.delivery.queues.forwarding import Forwarding
from mqttlite.delivery.queues.idle import IdleEnd
from mqttlite.delivery.queues.limits import MAX_INVALID, MAX_NACK_DELAY_S, MAX_PULLED
from mqttlite.delivery.queues.options import (
    MAX_DEADLINE_S,
    SHORTEST_DEADLINE_S,
    DeliveryOptions,
    QueueOptions,
)
from mqttlite.delivery.queues.outcomes import NACKED
from mqttlite.delivery.queues.queue import Consumer, Queue
from mqttlite.delivery.queues.queue_filter import QueueFilter
from mqttlite.delivery.queues.requested import difference, made_of, requested
from mqttlite.delivery.queues.retention import BLOCK_MARK, SEEK_MARK
from mqttlite.delivery.queues.seeking import Position
from mqttlite.delivery.queues.snapshots import SNAPSHOT_MARK, SnapshotRefused, Snapshots
from mqttlite.delivery.queues.workplace import Workplace
from mqttlite.topics.names import matches
from mqttlite.topics.namespaces import ParsedTopic, mounted_filter, parse_filter

_QUEUE: Final = f"{QUEUE_MARK}$queue/"
_DEAD_LETTERS: Final = f"{QUEUE_MARK}$dlq/"


class QueueRecordError(ValueError):
    """What the store keeps of a queue cannot be used; the text says of which, and what to do."""


_KEEP_WORK: Final = 50
"""What it costs to keep a dead letter, in the unit of `Effects.work`."""


class NoSuchQueue(LookupError):
    """There is no queue of that name."""


class QueueExists(ValueError):
    """There is a queue of that name."""


class SeekUnderWay(ValueError):
    """A queue is sought to one time after the other."""


class TooManyQueues(ValueError):
    """`delivery.max_queues` is reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """A message that a pull leased."""

    ack_id: str
    message: Message
    attempt: int
    deadline_s: float
    ordering_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """What can be seen of a queue now; the counts are since the broker started."""

    name: str
    filters: tuple[str, ...]
    paused: bool
    origin: str
    depth: int
    waiting: int
    leased: int
    scheduled: int
    size_bytes: int
    oldest_age_s: float
    consumers: int
    dead_letters: int
    retained: int
    snapshots: int
    published: int
    refused: int
    filtered: int
    returned: int
    attempts: int
    redeliveries: int
    ends: dict[str, int]
    failures: dict[str, int]
    dead_letters_total: int
    dead_letter_causes: dict[str, int]


class _Saved(msgspec.Struct, frozen=True):
    """The definition of a queue in the store."""

    options: QueueOptions
    origin: str
    paused: bool = False
    mount_point: str = ""
    push_stopped: str = ""


class _Kept:
    """A queue with what belongs to it."""

    def __init__(
        self, options: QueueOptions, origin: str, mount_point: str, queue: Queue, dead_letters: DeadLetters
    ) -> None:
        self.options = options
        self.origin = origin
        """Who made it: `config`, `admin` or `subscriber`."""
        self.mount_point = mount_point
        """Below which the topics in its filter are: that of the subscriber who made it."""
        self.queue = queue
        self.dead_letters = dead_letters
        self.push_stopped = ""
        """Why its messages are not pushed any more; empty while they are."""
        self.idle: IdleEnd | None = None


class Queues:
    """`Consumers` of the core. `options` are the queues of the configuration, `clock` gives the broker's seconds, and
    `wall_ahead_us` is as of the core."""

    def __init__(
        self,
        core: Broker,
        options: Iterable[QueueOptions],
        delivery: DeliveryOptions,
        clock: Callable[[], float],
        wall_ahead_us: int,
        filters: FilterCompiler,
    ) -> None:
        self._filters: Final = filters
        self._core: Final = core
        self._clock: Final = clock
        self._configured: Final = tuple(options)
        self._delivery: Final = delivery
        self._wall_ahead_us: Final = wall_ahead_us
        self._forwarding: Final = Forwarding(core.effects, core.jobs, core.router.drops, core.publish_own)
        self._workplace: Final = Workplace(
            *(core.effects, core.jobs, core.deadlines, core.page_reads, core.has_pages, wall_ahead_us)
        )
        self._kept: Final[dict[str, _Kept]] = {}
        self._consumers: Final[dict[str, dict[tuple[str, bytes], Consumer]]] = {}
        """By queue, also of queues that there are not: by client and filter."""
        self._restored: dict[str, list[Change]] = {}
        self._sought: Final[set[str]] = set()
        """Queues that are searched for a time now."""
        self.snapshots: Final = Snapshots(
            core.effects, core.deadlines, wall_ahead_us, lambda name: self._find(name).queue
        )
        self.check_push: Callable[[PushTarget], None] = lambda target: None
        """Raises `ValueError` for a target that is not allowed."""
        self.on_changed: Callable[[str], None] = lambda name: None
        """Called when a queue was made, changed or deleted, or its push was stopped or begins again."""

    # ------------------------------------------------------------------ as `Consumers`

    def admit(
        self, session: Session, parsed: ParsedTopic, expression: str, properties: Sequence[tuple[str, str]]
    ) -> str:
        """As `Consumers`. A filter behind the name makes the queue where there is none and the options allow it."""
        try:
            return self._admit(session, parsed, requested(expression, properties))
        except (ValueError, TypeError) as error:
            return f"$queue/…: {error}"

    def _admit(self, session: Session, parsed: ParsedTopic, asked: dict[str, Any]) -> str:
        name = parsed.name.decode()
        kept = self._kept.get(name)
        wanted = mounted_filter(session.mount_point, parsed.rest).decode() if parsed.rest else ""
        if kept is not None and session.mount_point:
            mount_point = session.mount_point.decode()
            if not all(each.startswith(mount_point) for each in kept.options.filters):
                return f"$queue/…: {name} has messages of topics that are not below the mount point"
        if kept is not None:
            if not wanted or wanted in kept.options.filters:
                other = difference(kept.options, asked)
                return f"$queue/…: {other}" if other else ""
            bound = ", ".join(kept.options.filters) or "nothing"
            return f"$queue/…: {name} is bound to {bound}; subscribe to $queue/{name}"
        if not self._delivery.create_by_subscribing or not wanted:
            return f"$queue/…: there is no queue {name[:128]!r}"
        if not self._core.permissions.may_subscribe(session, wanted.encode()):
            return f"$queue/…: to make {name} takes the permission to subscribe to {wanted[:128]!r}"
        self.create(made_of(name, wanted, asked), "subscriber", session.mount_point)
        return ""

    def add(self, session: Session, subscription: Subscription) -> None:
        """As `Consumers`."""
        name = parse_filter(subscription.topic_filter).name.decode()
        of_queue = self._consumers.setdefault(name, {})
        key = (subscription.client_id, subscription.topic_filter)
        known = of_queue.get(key)
        kept = self._kept.get(name)
        if known is not None and known.session is session:
            known.subscription = subscription
            if kept is not None and known.queue is None:
                kept.queue.join(known)
            return
        if known is not None:
            self._leave(known)
        consumer = of_queue[key] = Consumer(session, subscription, self._core.permissions, f"$queue/{name}".encode())
        session.pull_with(consumer)
        if kept is not None:
            kept.queue.join(consumer)

    def remove(self, subscription: Subscription) -> None:
        """As `Consumers`."""
        name = parse_filter(subscription.topic_filter).name.decode()
        of_queue = self._consumers.get(name, {})
        key = (subscription.client_id, subscription.topic_filter)
        consumer = of_queue.get(key)
        if consumer is None or consumer.subscription is not subscription:
            return  # a new session of the client has subscribed meanwhile
        del of_queue[key]
        if not of_queue:
            del self._consumers[name]
        self._leave(consumer)

    def keep_invalid(self, sinks: Sequence[Sink], message: Message, reason: str) -> bool:
        """As `Consumers`: `MAX_INVALID` queues do at most."""
        kept = 0
        for sink in sinks:
            if isinstance(sink, Queue) and sink.keep_invalid(message, reason):
                self._core.effects.work += _KEEP_WORK
                kept += 1
                if kept == MAX_INVALID:
                    break
        return kept > 0

    def restore(self, change: Change) -> None:
        """As `Consumers`: put it aside until all of a queue is here."""
        assert isinstance(change, SaveQueue | Enqueue | Stored | Due | Retain)
        self._restored.setdefault(change.client_id, []).append(change)

    def restored(self) -> None:
        """As `Consumers`: make the queues that the store kept, and those of the configuration."""
        restored, self._restored = self._restored, {}
        configured = {each.name: each for each in self._configured}
        sought: dict[str, list[SaveQueue]] = {}
        for changes in restored.values():
            saved = changes[0]
            assert isinstance(saved, SaveQueue), "a queue comes before what belongs to it"
            if saved.client_id.startswith((SEEK_MARK, BLOCK_MARK)):
                sought.setdefault(saved.client_id.split("/")[1], []).append(saved)
        for key, changes in restored.items():
            if key.startswith(_QUEUE):
                self._restore_queue(changes, sought.pop(key.removeprefix(_QUEUE), []), configured)
        for key, changes in restored.items():
            if key.startswith(SNAPSHOT_MARK):
                self._restore_snapshot(changes[0])
        for orphans in sought.values():  # their queue was lost
            for saved in orphans:
                self._core.effects.record(EndSession(saved.client_id))
        for each in self._kept.values():
            each.queue.seeking.refresh()
        for key, changes in restored.items():
            kept = self._kept.get(key.removeprefix(_DEAD_LETTERS)) if key.startswith(_DEAD_LETTERS) else None
            if kept is not None:
                kept.dead_letters.restore_saved()
                for change in changes:
                    if isinstance(change, Enqueue):
                        kept.dead_letters.restore(change.sequence, change.delivery.message)
        for options in configured.values():
            if options.name not in self._kept:
                self.create(options, "config")

    def on_new_rules(self) -> None:
        """Other rules are in force: consumers that may consume now, and could not before, are asked for room again."""
        for name, of_queue in self._consumers.items():
            kept = self._kept.get(name)
            if kept is not None:
                for consumer in of_queue.values():
                    kept.queue.join(consumer)

    # ------------------------------------------------------------------ make and change

    def watch(self, attempts: AttemptTracer | None) -> None:
        """Tell somebody what becomes of each delivery, or nobody."""
        self._workplace.attempts = attempts

    @property
    def names(self) -> list[str]:
        return list(self._kept)

    def create(self, options: QueueOptions, origin: str = "admin", mount_point: bytes = b"") -> None:
        """Make a queue, and read the topics in its filter as below the mount point. One with a push target without a
        secret gets one.

        Raises `QueueExists`, `TooManyQueues`, and `ValueError` for a push target that is not allowed.
        """
        self._core.effects.now = self._clock()
        if options.name in self._kept:
            raise QueueExists(f"there is a queue {options.name} already")
        if len(self._kept) >= self._delivery.max_queues:
            raise TooManyQueues(f"there are {len(self._kept)} queues, which is the limit (delivery.max_queues)")
        kept = self._make(self._with_checked_push(options, None), origin, mount_point.decode())
        self._save(kept)
        kept.queue.seeking.refresh()
        self._open(kept)
        self.on_changed(options.name)

    def change(self, options: QueueOptions) -> None:
        """Give a queue other options; a push target without a secret keeps the one that it has.

        Raises `NoSuchQueue`, and `ValueError` for a target that is not allowed.
        """
        kept = self._find(options.name)
        options = self._with_checked_push(options, kept.options.push)
        if options.push != kept.options.push:
            kept.push_stopped = ""
        for each in set(kept.options.filters) - set(options.filters):
            self._core.unbind(each.encode(), kept.queue)
        for each in set(options.filters) - set(kept.options.filters):
            self._core.bind(each.encode(), kept.queue)
        kept.options = options
        kept.queue.change(options, options.retry.min_s, options.retry.max_s)
        self._set_up(kept)
        self._save(kept)
        self.on_changed(options.name)

    def delete(self, name: str) -> None:
        """Delete a queue with its messages and dead letters. Raises `NoSuchQueue`."""
        kept = self._find(name)
        for each in kept.options.filters:
            self._core.unbind(each.encode(), kept.queue)
        for consumer in self._consumers.get(name, {}).values():
            kept.queue.leave(consumer)
        self.snapshots.forget_queue(name)
        kept.queue.end()
        kept.dead_letters.end()
        if kept.idle is not None:
            kept.idle.stop()
        del self._kept[name]
        self.on_changed(name)

    def pause(self, name: str, paused: bool) -> None:
        """Deliver nothing, or go on, also where the push was stopped. Raises `NoSuchQueue`."""
        kept = self._find(name)
        kept.queue.pause(paused)
        if not paused:
            kept.push_stopped = ""
        self._save(kept)
        self.on_changed(name)

    def stop_push(self, name: str, why: str) -> None:
        """Push nothing more of a queue until it is resumed or its target is changed. Raises `NoSuchQueue`."""
        kept = self._find(name)
        kept.push_stopped = why
        self._save(kept)
        self.on_changed(name)

    def push_stopped(self, name: str) -> str:
        """Why a queue is not pushed any more; empty while it is. Raises `NoSuchQueue`."""
        return self._find(name).push_stopped

    def rotate_push_secret(self, name: str) -> str:
        """Give the push target of a queue a new secret; requests are signed with the one before, too.

        Raises `NoSuchQueue`, and `ValueError` for a queue without target.
        """
        kept = self._find(name)
        target = kept.options.push
        if target is None:
            raise ValueError(f"the queue {name} has no push target")
        secret = new_secret()
        target = msgspec.structs.replace(target, secret=secret, previous_secret=target.secret)
        self.change(msgspec.structs.replace(kept.options, push=target))
        return secret

    def purge(self, name: str) -> int:
        """Drop all messages of a queue; how many. Raises `NoSuchQueue`."""
        kept = self._find(name)
        return kept.queue.purge(_definition(kept))

    # ------------------------------------------------------------------ look

    def options(self, name: str) -> QueueOptions:
        """Raises `NoSuchQueue`."""
        return self._find(name).options

    def state(self, name: str) -> QueueState:
        """Raises `NoSuchQueue`."""
        kept = self._find(name)
        queue, dead_letters = kept.queue, kept.dead_letters
        contents = queue.contents
        consumers = [
            each
            for each in self._consumers.get(name, {}).values()
            if each.session.outbox is not None and each.queue is not None
        ]
        return QueueState(
            name=name,
            filters=kept.options.filters,
            paused=queue.paused,
            origin=kept.origin,
            depth=contents.depth,
            waiting=contents.depth - queue.leased - queue.scheduled,
            leased=queue.leased,
            scheduled=queue.scheduled,
            size_bytes=contents.size_bytes,
            oldest_age_s=contents.oldest_age_s(self._core.effects.now),
            consumers=len(consumers),
            dead_letters=len(dead_letters),
            retained=contents.retention.count,
            snapshots=len(queue.seeking.holds),
            published=queue.counts.published,
            refused=queue.counts.refused,
            filtered=queue.counts.filtered,
            returned=queue.counts.returned,
            attempts=queue.counts.attempts,
            redeliveries=queue.counts.redeliveries,
            ends=dict(queue.counts.ends),
            failures=dict(queue.counts.causes),
            dead_letters_total=dead_letters.total,
            dead_letter_causes=dict(dead_letters.causes),
        )

    def bound_to(self, topic: bytes) -> list[str]:
        """The queues that take the messages of a topic, by name."""
        return sorted(
            name
            for name, kept in self._kept.items()
            if any(matches(each.encode(), topic) for each in kept.options.filters)
        )

    def dead_letters(self, name: str) -> DeadLetters:
        """Raises `NoSuchQueue`."""
        return self._find(name).dead_letters

    def peek(self, name: str, most: int) -> list[Message]:
        """The first messages of a queue that are in memory. Raises `NoSuchQueue`."""
        return self._find(name).queue.contents.peek(most)

    # ------------------------------------------------------------------ consume

    def pull(self, name: str, most: int, lease_s: float | None = None, consumer: str = "") -> list[Pulled]:
        """Lease up to `most` messages, `MAX_PULLED` at most. Tell them once the changes are committed.

        Raises `NoSuchQueue`.
        """
        kept = self._use(name)
        if lease_s is not None:
            lease_s = _lease(lease_s)
        entries = kept.queue.pull(consumer, min(most, MAX_PULLED), lease_s)
        return [self._pulled(kept, entry) for entry in entries]

    def ack(self, name: str, ack_ids: Iterable[str]) -> list[bool]:
        """Acknowledge messages; for each whether it was not at its end. Raises `NoSuchQueue`."""
        queue = self._use(name).queue
        done: list[bool] = []
        for ack_id in ack_ids:
            found = queue.find(ack_id)
            done.append(found is not None and queue.acknowledge(found[0]))
        queue.wake()
        return done

    def nack(self, name: str, ack_ids: Iterable[str], delay_s: float | None = None) -> list[bool]:
        """Have messages delivered again, after `delay_s` or the back-off; for each whether its lease was there.

        Raises `NoSuchQueue`.
        """
        queue = self._use(name).queue
        if delay_s is not None:
            delay_s = min(max(0.0, delay_s), MAX_NACK_DELAY_S)
        done: list[bool] = []
        for ack_id in ack_ids:
            found = queue.find(ack_id)
            done.append(found is not None and queue.fail(found[0], found[1], NACKED, delay_s))
        queue.wake()
        return done

    def extend(self, name: str, ack_ids: Iterable[str], seconds: float) -> list[bool]:
        """Have leases end so many seconds from now; for each whether it was there. Raises `NoSuchQueue`."""
        queue = self._use(name).queue
        seconds = _lease(seconds)
        done: list[bool] = []
        for ack_id in ack_ids:
            found = queue.find(ack_id)
            done.append(found is not None and queue.extend(found[0], found[1], seconds))
        return done

    def feed(self, name: str, consumer: str, wake: Callable[[], None]) -> Feed:
        """For a consumer inside the broker, of that name in the delivery log. `wake` is as of `Feed`.

        Raises `NoSuchQueue`.
        """
        return Feed(self._use(name).queue, self._core, consumer, self._clock, wake)

    # ------------------------------------------------------------------ seek

    def seek(self, name: str, number: int, done: Callable[[], None]) -> None:
        """Have a queue deliver what was published from a time on, in microseconds of Unix time, also what was
        acknowledged and is retained, and nothing older. `done` is called when it is so, maybe later: then commit before
        you tell it.

        Raises `NoSuchQueue`, and `SeekUnderWay` while there is another.
        """
        kept = self._find(name)
        if name in self._sought:
            raise SeekUnderWay(f"the queue {name} is sought to another time just now")
        self._sought.add(name)

        def found(first: int) -> None:
            self._sought.discard(name)
            if self._kept.get(name) is kept:
                kept.queue.seek(Position(first, number, kept.queue.contents.backlog.end, anew=False))
            done()

        kept.queue.search(number, found)

    def seek_snapshot(self, name: str, snapshot_name: str) -> None:
        """Have a queue deliver what had not ended when a snapshot was made of it, and what came since.

        Raises `NoSuchQueue`, `NoSuchSnapshot` and `SnapshotRefused`.
        """
        queue = self._find(name).queue
        snapshot = self.snapshots.get(snapshot_name)
        if snapshot.queue != name:
            raise SnapshotRefused(f"the snapshot {snapshot_name} is of the queue {snapshot.queue}")
        queue.seek(snapshot.position())

    # ------------------------------------------------------------------ dead letters

    def replay(self, name: str, number: int) -> bool:
        """Put a dead letter back into its queue, with its `message-id`; False: there is none of that number, or no
        room for it.

        Raises `NoSuchQueue`.
        """
        kept = self._find(name)
        found = kept.dead_letters.get(number)
        if found is None or not kept.queue.put_back(found.original()):
            return False
        kept.dead_letters.remove(number)
        return True

    def drop_dead_letter(self, name: str, number: int) -> bool:
        """Drop a dead letter; False: there is none of that number. Raises `NoSuchQueue`."""
        dead_letters = self._find(name).dead_letters
        if dead_letters.get(number) is None:
            return False
        dead_letters.remove(number)
        return True

    # ------------------------------------------------------------------ inside

    def _use(self, name: str) -> _Kept:
        """The same for a consumer."""
        kept = self._find(name)
        if kept.idle is not None:
            kept.idle.use()
        return kept

    def _has_consumer(self, kept: _Kept) -> bool:
        if kept.options.push is not None and not kept.push_stopped:
            return True
        of_queue = self._consumers.get(kept.options.name, {})
        return any(each.session.outbox is not None for each in of_queue.values())

    def _find(self, name: str) -> _Kept:
        self._core.effects.now = self._clock()
        kept = self._kept.get(name)
        if kept is None:
            raise NoSuchQueue(f"there is no queue {name[:128]!r}")
        return kept

    def _make(self, options: QueueOptions, origin: str, mount_point: str) -> _Kept:
        publish: Callable[[Message], object] = self._core.publish_own
        dead_letters = DeadLetters(options.name, self._core.effects, publish, self._forwarding.add, self._wall_ahead_us)
        retry = options.retry
        queue = Queue(
            *(options.name, options, retry.min_s, retry.max_s),
            *(self._workplace, Deliveries(random.random), dead_letters, self.snapshots.on_lost),
            self._may_receive if origin == "subscriber" else None,
        )
        kept = _Kept(options, origin, mount_point, queue, dead_letters)
        self._set_up(kept)
        return kept

    def _set_up(self, kept: _Kept) -> None:
        """Give a queue what is made of its options."""
        options = kept.options
        if kept.idle is not None:
            kept.idle.stop()
            kept.idle = None
        if options.idle_expiry_s:
            kept.idle = IdleEnd(
                *(self._core.effects, self._core.deadlines, options.idle_expiry_s),
                *(lambda: self._has_consumer(kept), lambda: self.delete(options.name)),
            )
        kept.dead_letters.forward_to = options.dead_letter_topic
        kept.queue.filter = None
        if options.filter:
            compiled = self._filters.compile(options.filter, kept.mount_point.encode())
            # One that an earlier version of the broker took, and this one does not, lets every message pass.
            message_filter = StoredFilter(options.filter) if isinstance(compiled, str) else compiled
            core = self._core
            kept.queue.filter = QueueFilter(message_filter, kept.queue.contents, core.router.drops, core.effects)

    def _with_checked_push(self, options: QueueOptions, before: PushTarget | None) -> QueueOptions:
        """The options with the secret of the push target, if they have one. Raises `ValueError`."""
        target = options.push
        if target is None:
            return options
        if not target.secret:
            secret, previous = (before.secret, before.previous_secret) if before is not None else (new_secret(), "")
            target = msgspec.structs.replace(target, secret=secret, previous_secret=previous)
        self.check_push(target)
        return msgspec.structs.replace(options, push=target)

    def _may_receive(self, session: Session, topic: bytes) -> bool:
        """Whether a client may get a message of a queue that no operator made; if not, it is counted and told."""
        permissions = self._core.permissions
        if permissions.may_receive(session, topic):
            return True
        permissions.deny(session, RECEIVE, topic)
        return False

    def _open(self, kept: _Kept) -> None:
        """Let messages come in and go out."""
        name = kept.options.name
        self._kept[name] = kept
        for each in kept.options.filters:
            self._core.bind(each.encode(), kept.queue)
        for consumer in list(self._consumers.get(name, {}).values()):
            kept.queue.join(consumer)

    def _save(self, kept: _Kept) -> None:
        self._core.effects.record(SaveQueue(kept.queue.contents.key, _definition(kept)))

    def _leave(self, consumer: Consumer) -> None:
        consumer.session.pull_no_more(consumer)
        if consumer.queue is not None:
            consumer.queue.leave(consumer)

    def _restore_snapshot(self, change: Change) -> None:
        assert isinstance(change, SaveQueue)
        try:
            self.snapshots.restore(change.data)
        except NoSuchQueue:  # its queue was lost
            self._core.effects.record(EndSession(change.client_id))

    def _restore_queue(
        self, changes: list[Change], sought: list[SaveQueue], configured: dict[str, QueueOptions]
    ) -> None:
        first = changes[0]
        assert isinstance(first, SaveQueue), "a queue comes before what belongs to it"
        saved = _decoded(first)
        options = configured.get(saved.options.name, saved.options)
        is_configured = saved.options.name in configured
        kept = self._make(options, "config" if is_configured else saved.origin, saved.mount_point)
        kept.queue.paused = saved.paused
        kept.push_stopped = saved.push_stopped if options.push == saved.options.push else ""
        due = {change.sequence: change.due_at for change in changes if isinstance(change, Due)}
        sent = [change for change in changes if isinstance(change, Enqueue) and change.packet_id]
        for change in sorted(sent, key=lambda change: change.sequence):
            message = change.delivery.message
            at = due.get(change.sequence, 0.0)
            kept.queue.restore_sent(change.sequence, message, change.packet_id, at)
        for each in changes:
            if isinstance(each, Stored):
                kept.queue.contents.backlog.restore_stored(each.first, each.count, each.size_bytes)
            elif isinstance(each, Enqueue) and not each.packet_id:
                kept.queue.contents.restore_waiting(each.sequence, each.delivery)
        self._restore_retention(kept.queue, sought, changes)
        if options is not saved.options:
            self._save(kept)
        self._open(kept)
        kept.queue.wake()

    def _restore_retention(self, queue: Queue, sought: list[SaveQueue], changes: list[Change]) -> None:
        retention, backlog = queue.contents.retention, queue.contents.backlog
        for each in sought:
            _, _, block = each.client_id.removeprefix(BLOCK_MARK).partition("/")
            if each.client_id.startswith(BLOCK_MARK):
                retention.restore_block(int(block), each.data)
            else:
                retention.restore(each.data)
        for change in changes:
            if isinstance(change, Retain):
                retention.restore_floor(change.first, change.size_bytes)
        retention.latest = self._core.effects.numbers.latest
        retention.look_ahead(backlog.first, backlog.end)
        queue.seeking.recount()

    def _pulled(self, kept: _Kept, entry: Entry) -> Pulled:
        return Pulled(
            ack_id=kept.queue.ack_id_of(entry),
            message=entry.message,
            attempt=entry.attempts,
            deadline_s=entry.due_at - self._core.effects.now,
            ordering_key=entry.key,
        )


def _definition(kept: _Kept) -> bytes:
    saved = _Saved(kept.options, kept.origin, kept.queue.paused, kept.mount_point, kept.push_stopped)
    return msgspec.json.encode(saved)


def _lease(seconds: float) -> float:
    return min(max(SHORTEST_DEADLINE_S, seconds), MAX_DEADLINE_S)


def _decoded(change: SaveQueue) -> _Saved:
    """Raises `QueueRecordError`: to begin without the queue would lose its messages."""
    try:
        return msgspec.json.decode(change.data, type=_Saved)
    except msgspec.DecodeError as error:
        raise QueueRecordError(
            f"the options of {change.client_id.removeprefix(QUEUE_MARK)} cannot be used: {error}. Run the version of "
            "mqttlite that wrote them and delete the queue or change its options there, or restore a backup into "
            "another folder; nothing was changed"
        ) from None
