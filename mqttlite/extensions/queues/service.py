"""The queues of a broker: creates, changes and deletes them, connects consumers, and serves the other interfaces.

All methods run on the event loop and await nothing: a caller lets the loop driver run afterwards, and waits for the
commit before it reports success. Invariant: a queue is in the store before its first message.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from mqttlite.core.broker import Broker
from mqttlite.core.connect.attempts import AttemptTracer
from mqttlite.core.log_changes import LoadedOfLog, RemoveRecord, SaveRecord
from mqttlite.core.message import Message
from mqttlite.core.message_filter import FilterCompiler
from mqttlite.core.message_numbers import MICROSECONDS
from mqttlite.core.route.subscription import Subscription
from mqttlite.core.session.session import Session
from mqttlite.core.sink import Sink
from mqttlite.core.source import Source
from mqttlite.extensions.ephemeral_sink import EphemeralSink
from mqttlite.extensions.queues.ack_ids import new_key
from mqttlite.extensions.queues.builder import QueueBuilder
from mqttlite.extensions.queues.dead_letters import DeadLetters
from mqttlite.extensions.queues.entry import Entry
from mqttlite.extensions.queues.errors import NoSuchQueue, QueueExists, QueueStays, SeekUnderWay, TooManyQueues
from mqttlite.extensions.queues.feed import Feed
from mqttlite.extensions.queues.limits import MAX_INVALID, MAX_NACK_DELAY_S, MAX_PULLED
from mqttlite.extensions.queues.managed import SUBSCRIBER, ManagedQueue, QueueState
from mqttlite.extensions.queues.moving import departing
from mqttlite.extensions.queues.namespace import QUEUES
from mqttlite.extensions.queues.options import (
    MAX_DEADLINE_S,
    SHORTEST_DEADLINE_S,
    DeliveryOptions,
    QueueOptions,
)
from mqttlite.extensions.queues.push_target import PushTarget, new_secret
from mqttlite.extensions.queues.queue import Queue
from mqttlite.extensions.queues.records import Definition, QueueRecord, QueueRecords
from mqttlite.extensions.queues.requested import difference, made_of, requested
from mqttlite.extensions.queues.seeking import Position
from mqttlite.extensions.queues.snapshots import SnapshotRefused, Snapshots
from mqttlite.extensions.queues.subscribers import Subscribers, queue_of
from mqttlite.topics.names import matches
from mqttlite.topics.namespaces import ParsedTopic, Syntax

_PER_USER: Final = "delivery.max_queues_per_user"

MOVED_AT_ONCE: Final = 500
"""How many messages of a queue go to another node in one step."""

_KEEP_WORK: Final = 50
"""The work of keeping a dead letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """A message leased by a pull."""

    ack_id: str
    message: Message
    attempt: int
    deadline_s: float
    ordering_key: str


class Queues:
    """Implements the core's port `Namespace`. `options` are the queues of the configuration, `clock` returns the
    broker's seconds, and `wall_ahead_us` is that of the core."""

    def __init__(
        self,
        core: Broker,
        options: Iterable[QueueOptions],
        delivery: DeliveryOptions,
        clock: Callable[[], float],
        wall_ahead_us: int,
        filters: FilterCompiler,
    ) -> None:
        self._core: Final = core
        self._clock: Final = clock
        self._wall_ahead_us: Final = wall_ahead_us
        self._configured: Final = tuple(options)
        self._delivery: Final = delivery
        self._kept: Final[dict[str, ManagedQueue]] = {}
        self._owned: Counter[str | None] = Counter()
        """How many queues the subscribers of each user made."""
        self._subscribers: Final = Subscribers(core.permissions)
        self._records = QueueRecords()
        self._sought: Final[set[str]] = set()
        """Queues whose seek to a time is under way."""
        self.snapshots: Final = Snapshots(
            core.effects, core.deadlines, wall_ahead_us, lambda name: self._find(name).queue
        )
        self._builder: Final = QueueBuilder(
            core,
            filters,
            wall_ahead_us,
            on_lost_snapshot=self.snapshots.on_lost,
            has_consumer=self._has_consumer,
            end=self.delete,
        )
        self.check_push: Callable[[PushTarget], None] = lambda target: None
        """Raises `ValueError` for a target that is not allowed."""
        self.elsewhere: Callable[[str], str] = lambda name: ""
        """The node that has the queue of a name; empty if no other one has."""
        self.departures: Final[set[str]] = set()
        """Queues that another node was asked to take over, while its answer is waited for."""
        self.on_changed: Final[list[Callable[[str], None]]] = []
        """Each is called when a queue was made, changed or deleted, or its push was stopped or begins again."""

    # ------------------------------------------------------------------ as `Namespace`

    @property
    def syntax(self) -> Syntax:
        """Implements `Namespace`."""
        return QUEUES

    def admit(
        self, session: Session, parsed: ParsedTopic, expression: str, properties: Sequence[tuple[str, str]]
    ) -> str:
        """Implements `Namespace`. A filter after the name creates a missing queue, if the options allow it."""
        try:
            return self._admit(session, parsed, requested(expression, properties))
        except (ValueError, TypeError) as error:
            return f"$queue/…: {error}"

    def _admit(self, session: Session, parsed: ParsedTopic, asked: dict[str, Any]) -> str:
        name = parsed.name.decode()
        kept = self._kept.get(name)
        mount_point = session.identity.mount_point
        wanted = self._core.namespaces.mounted_filter(mount_point, parsed.rest).decode() if parsed.rest else ""
        if kept is not None and not self.is_below(name, mount_point):
            return f"$queue/…: {name} has messages of topics that are not below the mount point"
        if kept is not None:
            if not wanted or wanted in kept.options.filters:
                other = difference(kept.options, asked)
                return f"$queue/…: {other}" if other else ""
            bound = ", ".join(kept.options.filters) or "nothing"
            return f"$queue/…: {name} is bound to {bound}; subscribe to $queue/{name}"
        missing = self.missing(parsed)
        if missing:
            return missing
        if not self._core.permissions.may_subscribe(session, wanted.encode()):
            return f"$queue/…: to make {name} takes the permission to subscribe to {wanted[:128]!r}"
        most = self._delivery.max_queues_per_user
        if self._owned[session.username] >= most:
            return f"$queue/…: the user's subscribers made {most} queues, which is the limit ({_PER_USER})"
        self.create(made_of(name, wanted, asked), SUBSCRIBER, mount_point, session.username)
        return ""

    def missing(self, parsed: ParsedTopic) -> str:
        """Implements `Namespace`."""
        name = parsed.name.decode()
        if name in self._kept or (self._delivery.create_by_subscribing and parsed.rest):
            return ""
        return f"$queue/…: there is no queue {name[:128]!r}"

    def add(self, session: Session, subscription: Subscription) -> None:
        """Implements `Namespace`."""
        name = queue_of(subscription)
        kept = self._kept.get(name)
        self._subscribers.add(session, subscription, name, None if kept is None else kept.queue)

    def remove(self, subscription: Subscription) -> None:
        """Implements `Namespace`."""
        self._subscribers.remove(subscription)

    def keep_invalid(self, sinks: Sequence[Sink], message: Message, reason: str) -> bool:
        """Implements `Namespace`, for up to `MAX_INVALID` queues."""
        kept = 0
        for sink in sinks:
            if isinstance(sink, Queue) and sink.keep_invalid(message, reason):
                self._core.effects.work += _KEEP_WORK
                kept += 1
                if kept == MAX_INVALID:
                    break
        return kept > 0

    def refuse_ephemeral(self, sinks: list[Sink], policy: str) -> list[Sink]:
        """Implements `Namespace`."""
        effects = self._core.effects
        return [
            EphemeralSink(each.contents.shown, policy, effects, each.count_refused) if isinstance(each, Queue) else each
            for each in sinks
        ]

    def restore(self, change: LoadedOfLog) -> None:
        """Implements `Namespace`: collect the change until the queue is complete."""
        self._records.add(change)

    def restored(self) -> None:
        """Implements `Namespace`: create the stored queues, and those of the configuration."""
        records, self._records = self._records, QueueRecords()
        configured = {each.name: each for each in self._configured}
        for record in records.queues():
            self._restore(record, configured.get(record.definition.options.name))
        for saved in records.snapshots():
            try:
                self.snapshots.restore(saved.data)
            except NoSuchQueue:  # its queue was lost
                self._core.effects.record(RemoveRecord(saved.key))
        for key in records.orphans():
            self._core.effects.record(RemoveRecord(key))
        for name, kept in self._kept.items():
            kept.queue.seeking.refresh()
            records.fill_dead_letters(name, kept.dead_letters)
        for options in configured.values():
            if options.name not in self._kept:
                self.create(options, "config")

    def _restore(self, record: QueueRecord, configured: QueueOptions | None) -> None:
        saved = record.definition
        wanted = msgspec.structs.replace(saved, ack_key=saved.ack_key or new_key())
        if configured is not None:
            push_stopped = saved.push_stopped if configured.push == saved.options.push else ""
            wanted = msgspec.structs.replace(
                wanted, options=configured, origin="config", owner=None, push_stopped=push_stopped
            )
        kept = self._made_of(wanted)
        record.fill(kept.queue, self._core.effects.numbers.latest)
        if configured is not None or not saved.ack_key:
            self._save(kept)
        self._open(kept)
        kept.queue.wake()

    def on_new_rules(self) -> None:
        """Other rules are in force: try deliveries again for consumers that may now consume."""
        for name in self._subscribers.queues:
            kept = self._kept.get(name)
            if kept is not None:
                self._subscribers.join(name, kept.queue)

    # ------------------------------------------------------------------ make and change

    def watch(self, attempts: AttemptTracer | None) -> None:
        """Set the tracer of attempts; None removes it."""
        self._builder.context.attempts = attempts

    @property
    def names(self) -> list[str]:
        return list(self._kept)

    def __contains__(self, name: str) -> bool:
        return name in self._kept

    def create(
        self, options: QueueOptions, origin: str = "admin", mount_point: bytes = b"", owner: str | None = None
    ) -> None:
        """Create a queue. Topics in its filter are relative to the mount point. A push target without a secret gets a
        new one. `owner` is the user of the subscriber that creates it.

        Raises `QueueExists`, `TooManyQueues`, and `ValueError` for a push target that is not allowed.
        """
        self._core.effects.now = self._clock()
        if options.name in self._kept:
            raise QueueExists(f"there is a queue {options.name} already")
        node = self.elsewhere(options.name)
        if node:
            raise QueueExists(f"there is a queue {options.name} already, at node {node}")
        now_us = self._wall_ahead_us + int(self._core.effects.now * MICROSECONDS)
        checked = self._with_checked_push(options, None)
        self._make(Definition(checked, origin, False, mount_point.decode(), "", new_key(), owner, now_us))
        self.announce_change(options.name)

    def _make(self, definition: Definition) -> None:
        """Create a queue. Raises `TooManyQueues`."""
        if len(self._kept) >= self._delivery.max_queues:
            raise TooManyQueues(f"there are {len(self._kept)} queues, which is the limit (delivery.max_queues)")
        kept = self._made_of(definition)
        self._save(kept)
        kept.queue.seeking.refresh()
        self._open(kept)

    def _made_of(self, definition: Definition) -> ManagedQueue:
        """A queue without bindings and messages."""
        kept = self._builder.make(
            *(definition.options, definition.origin, definition.mount_point, definition.ack_key),
            *(definition.owner, definition.made_us),
        )
        kept.queue.paused = definition.paused
        kept.push_stopped = definition.push_stopped
        return kept

    def change(self, options: QueueOptions) -> None:
        """Change the options of a queue. A push target without a secret keeps the existing one.

        Raises `NoSuchQueue`, and `ValueError` for a target that is not allowed.
        """
        kept = self._find(options.name)
        options = self._with_checked_push(options, kept.options.push)
        if options.push != kept.options.push:
            kept.push_stopped = ""
        for each in set(kept.options.filters) - set(options.filters):
            self._core.unbind(each.encode(), kept.queue)
        for each in set(options.filters) - set(kept.options.filters):
            self._core.bind(each.encode(), kept.queue, hears_others=True)
        kept.options = options
        kept.queue.change(options)
        self._builder.set_up(kept)
        self._save(kept)
        self.announce_change(options.name)

    def delete(self, name: str) -> None:
        """Delete a queue with its messages and dead letters. Raises `NoSuchQueue`."""
        kept = self._find(name)
        if not kept.is_leaving:
            self._unbind(kept)
        self.snapshots.forget_queue(name)
        kept.queue.end()
        kept.dead_letters.end()
        if kept.idle is not None:
            kept.idle.stop()
        del self._kept[name]
        if kept.origin == SUBSCRIBER:
            self._owned[kept.owner] -= 1
            self._owned = +self._owned
        self.announce_change(name)

    def pause(self, name: str, paused: bool) -> None:
        """Pause or resume a queue. Resuming also restarts a stopped push. Raises `NoSuchQueue`."""
        kept = self._find(name)
        kept.queue.pause(paused)
        if not paused:
            kept.push_stopped = ""
        self._save(kept)
        self.announce_change(name)

    def stop_push(self, name: str, why: str) -> None:
        """Stop the push of a queue until it is resumed or its target is changed. Raises `NoSuchQueue`."""
        kept = self._find(name)
        kept.push_stopped = why
        self._save(kept)
        self.announce_change(name)

    def push_stopped(self, name: str) -> str:
        """Why the push of a queue is stopped; empty if it is not. Raises `NoSuchQueue`."""
        return self._find(name).push_stopped

    def rotate_push_secret(self, name: str) -> str:
        """Give the push target of a queue a new secret. Requests are also signed with the previous one.

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
        """Drop all messages of a queue. Return how many. Raises `NoSuchQueue`."""
        kept = self._find(name)
        return kept.queue.purge(kept.definition())

    # ------------------------------------------------------------------ look

    def options(self, name: str) -> QueueOptions:
        """Raises `NoSuchQueue`."""
        return self._find(name).options

    def state(self, name: str) -> QueueState:
        """Raises `NoSuchQueue`."""
        kept = self._find(name)
        consumers = [each for each in self._subscribers.online(name) if each.ring is not None]
        return kept.state(len(consumers), self._core.effects.now)

    def is_below(self, name: str, mount_point: bytes) -> bool:
        """Whether all topics of a queue are below a mount point. Raises `NoSuchQueue`."""
        return all(each.encode().startswith(mount_point) for each in self._find(name).options.filters)

    def serves(self, name: str, source: Source) -> bool:
        """Whether there is such a queue for a publisher: one below a mount point has those that `is_below` finds."""
        return name in self._kept and self.is_below(name, source.identity.mount_point)

    def bound_to(self, topic: bytes) -> list[str]:
        """The names of the queues that take the messages of a topic."""
        return sorted(
            name
            for name, kept in self._kept.items()
            if any(matches(each.encode(), topic) for each in kept.options.filters)
        )

    def dead_letters(self, name: str) -> DeadLetters:
        """Raises `NoSuchQueue`."""
        return self._find(name).dead_letters

    def position(self, name: str) -> Position:
        """Which messages of a queue are unfinished. Raises `NoSuchQueue`."""
        return self._find(name).queue.seeking.position()

    def peek(self, name: str, most: int) -> list[Message]:
        """The first messages of a queue in memory. Raises `NoSuchQueue`."""
        return self._find(name).queue.contents.peek(most)

    # ------------------------------------------------------------------ consume

    def pull(self, name: str, most: int, lease_s: float | None = None, consumer: str = "") -> list[Pulled]:
        """Lease up to `most` messages, at most `MAX_PULLED`. Return them to clients only after the commit.

        Raises `NoSuchQueue`.
        """
        kept = self._use(name)
        if lease_s is not None:
            lease_s = _lease(lease_s)
        entries = kept.queue.pull(consumer, min(most, MAX_PULLED), lease_s)
        return [self._pulled(kept, entry) for entry in entries]

    def ack(self, name: str, ack_ids: Iterable[str]) -> list[bool]:
        """Acknowledge messages. Return for each whether it was unfinished. Raises `NoSuchQueue`."""
        queue = self._use(name).queue
        done: list[bool] = []
        for ack_id in ack_ids:
            found = queue.leases.find(ack_id)
            is_open = found is not None and queue.leases.acknowledge(found[0])
            if found is not None and is_open:
                queue.leases.remember(found[0], found[1], None)
            done.append(is_open)
        queue.wake()
        return done

    def nack(self, name: str, ack_ids: Iterable[str], delay_s: float | None = None) -> list[bool]:
        """Refuse attempts: their messages are delivered again after `delay_s` or the back-off. Return for each whether
        its message was unfinished.

        Raises `NoSuchQueue`.
        """
        queue = self._use(name).queue
        if delay_s is not None:
            delay_s = min(max(0.0, delay_s), MAX_NACK_DELAY_S)
        done = [queue.leases.refuse(ack_id, delay_s) for ack_id in ack_ids]
        queue.wake()
        return done

    def lent(self, name: str, packet_id: int, session: Session) -> str:
        """The `ack-id` of the message that a session got from a queue with a packet identifier; empty if there is none.

        Raises `NoSuchQueue`.
        """
        return self._find(name).queue.leases.lent(packet_id, session)

    def extend(self, name: str, ack_ids: Iterable[str], seconds: float) -> list[bool]:
        """Make leases end `seconds` from now. Return for each whether it existed. Raises `NoSuchQueue`."""
        queue = self._use(name).queue
        seconds = _lease(seconds)
        done: list[bool] = []
        for ack_id in ack_ids:
            found = queue.leases.find(ack_id)
            done.append(found is not None and queue.leases.extend(found[0], found[1], seconds))
        return done

    def feed(self, name: str, consumer: str, wake: Callable[[], None]) -> Feed:
        """A feed for a consumer inside the broker. `consumer` and `wake` are those of `Feed`.

        Raises `NoSuchQueue`.
        """
        return Feed(self._use(name).queue, self._core, consumer, self._clock, wake)

    # ------------------------------------------------------------------ seek

    def seek(self, name: str, number: int, done: Callable[[], None]) -> None:
        """Make a queue deliver the messages published from a time on (microseconds of Unix time), including
        acknowledged ones that are retained, and no older ones. `done` is called at the end, perhaps later; the caller
        must commit before it reports success.

        Raises `NoSuchQueue`, and `SeekUnderWay` during another seek.
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
        """Make a queue deliver the messages that were unfinished at the time of a snapshot, and all later ones.

        Raises `NoSuchQueue`, `NoSuchSnapshot` and `SnapshotRefused`.
        """
        queue = self._find(name).queue
        snapshot = self.snapshots.get(snapshot_name)
        if snapshot.queue != name:
            raise SnapshotRefused(f"the snapshot {snapshot_name} is of the queue {snapshot.queue}")
        queue.seek(snapshot.position())

    # ------------------------------------------------------------------ dead letters

    def replay(self, name: str, number: int) -> bool:
        """Put a dead letter back into its queue, with its `message-id`. False if the number is unknown or there is no
        room.

        Raises `NoSuchQueue`.
        """
        kept = self._find(name)
        found = kept.dead_letters.get(number)
        if found is None or not kept.queue.put_back(found.original()):
            return False
        kept.dead_letters.remove(number)
        return True

    def drop_dead_letter(self, name: str, number: int) -> bool:
        """Drop a dead letter. False if the number is unknown. Raises `NoSuchQueue`."""
        dead_letters = self._find(name).dead_letters
        if dead_letters.get(number) is None:
            return False
        dead_letters.remove(number)
        return True

    # ------------------------------------------------------------------ inside

    def _use(self, name: str) -> ManagedQueue:
        """Find a queue for a consumer, and note its use."""
        kept = self._find(name)
        if kept.idle is not None:
            kept.idle.use()
        return kept

    # ------------------------------------------------------------------ one of several nodes

    @property
    def first_level(self) -> bytes:
        """Of their topics."""
        return QUEUES.first_level

    def made(self) -> dict[str, tuple[int, bool]]:
        """The queues that are here to stay: when each was created, in microseconds of Unix time, and whether its
        consumers get only messages whose topics they may receive."""
        return {
            name: (kept.made_us, kept.origin == SUBSCRIBER) for name, kept in self._kept.items() if not kept.is_leaving
        }

    def filters(self, name: str) -> tuple[str, ...]:
        """What a queue is bound to. Raises `NoSuchQueue`."""
        return self._find(name).options.filters

    def departing(self, name: str) -> Definition:
        """The definition of a queue for the node to which it is to go. Raises `NoSuchQueue` and `QueueStays`."""
        if name in self.departures:
            raise QueueStays(f"the queue {name} cannot move: another request moves it just now")
        return departing(self._find(name))

    def arrive(self, definition: Definition) -> None:
        """Make a queue that another node gives up. Call `announce_change` when it is on disk, and not before: then that
        node sends its messages. Raises `QueueExists`, `TooManyQueues`, and `ValueError` for a push target that is not
        allowed."""
        self._core.effects.now = self._clock()
        name = definition.options.name
        if name in self._kept:
            raise QueueExists(f"there is a queue {name} already")
        if definition.options.push is not None:
            self.check_push(definition.options.push)
        self._make(definition)

    def leave(self, name: str) -> bool:
        """Begin to move a queue away: it takes no more messages, and its messages are for `hand_out`. Return True: a
        queue can always move. One with dead letters ends when they are replayed or dropped. Raises `NoSuchQueue`."""
        kept = self._find(name)
        if not kept.is_leaving:
            kept.queue.is_leaving = True
            self._unbind(kept)
            self.announce_change(name)
        return True

    def stay(self, name: str) -> None:
        """A queue that began to leave does not. Harmless for others."""
        kept = self._kept.get(name)
        if kept is not None and kept.is_leaving:
            kept.queue.is_leaving = False
            self._bind(kept)
            kept.queue.wake()
            self.announce_change(name)

    def hand_out(self, name: str, may: Callable[[Message], bool], give: Callable[[Message], None]) -> bool:
        """Hand out messages of a queue that leaves: `may` says whether there is room for one, and `give` takes it, and
        has it after the next commit. Return whether the queue is gone. Harmless for one that is."""
        if name not in self._kept:
            return True
        kept = self._find(name)
        for _ in range(MOVED_AT_ONCE):
            first = kept.queue.contents.peek(1)
            if first and not may(first[0]):
                break
            entry = kept.queue.pull_for_node()
            if entry is None:
                break
            give(entry.message)
            kept.queue.leases.acknowledge(entry)
        kept.queue.wake()
        if kept.queue.contents.depth or len(kept.dead_letters):
            return False
        self.delete(name)
        return True

    def announce_change(self, name: str) -> None:
        """Tell those who watch queues that one was made, changed or deleted."""
        for on_changed in self.on_changed:
            on_changed(name)

    def _has_consumer(self, kept: ManagedQueue) -> bool:
        is_consumed = kept.is_pushed or bool(self._subscribers.online(kept.options.name))
        return is_consumed or kept.is_leaving  # one that leaves ends when it is empty

    def _find(self, name: str) -> ManagedQueue:
        self._core.effects.now = self._clock()
        kept = self._kept.get(name)
        if kept is None:
            raise NoSuchQueue(f"there is no queue {name[:128]!r}")
        return kept

    def _with_checked_push(self, options: QueueOptions, before: PushTarget | None) -> QueueOptions:
        """The options with a checked push target, and its secret filled in. Raises `ValueError`."""
        target = options.push
        if target is None:
            return options
        if not target.secret:
            secret, previous = (before.secret, before.previous_secret) if before is not None else (new_secret(), "")
            target = msgspec.structs.replace(target, secret=secret, previous_secret=previous)
        self.check_push(target)
        return msgspec.structs.replace(options, push=target)

    def _open(self, kept: ManagedQueue) -> None:
        """Bind a queue and connect its consumers."""
        name = kept.options.name
        self._kept[name] = kept
        if kept.origin == SUBSCRIBER:
            self._owned[kept.owner] += 1
        self._bind(kept)

    def _bind(self, kept: ManagedQueue) -> None:
        """Take messages, and deliver them to sessions."""
        name = kept.options.name
        for each in kept.options.filters:
            self._core.bind(each.encode(), kept.queue, hears_others=True)
        self._core.name(f"$queue/{name}".encode(), kept.queue)
        self._subscribers.join(name, kept.queue)

    def _unbind(self, kept: ManagedQueue) -> None:
        """Take no more messages, and deliver none to sessions."""
        name = kept.options.name
        for each in kept.options.filters:
            self._core.unbind(each.encode(), kept.queue)
        self._core.unname(f"$queue/{name}".encode(), kept.queue)
        self._subscribers.leave(name, kept.queue)

    def _save(self, kept: ManagedQueue) -> None:
        self._core.effects.record(SaveRecord(kept.queue.contents.key, kept.definition()))

    def _pulled(self, kept: ManagedQueue, entry: Entry) -> Pulled:
        return Pulled(
            ack_id=kept.queue.leases.ack_id_of(entry, entry.attempts),
            message=entry.message,
            attempt=entry.attempts,
            deadline_s=entry.due_at - self._core.effects.now,
            ordering_key=entry.key,
        )


def _lease(seconds: float) -> float:
    return min(max(SHORTEST_DEADLINE_S, seconds), MAX_DEADLINE_S)
