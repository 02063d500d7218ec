"""The streams of a broker: makes, restores and deletes them, and shows them with their readers, which are in `readers`.

All methods run on the event loop and await nothing. Invariant: a stream is in the store before its first message.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import msgspec

from mqttlite.core.broker import Broker
from mqttlite.core.connect.attempts import AttemptTracer
from mqttlite.core.log_changes import Append, LoadedOfLog, RemoveRecord, SaveRecord, StoredLog
from mqttlite.core.message import Message
from mqttlite.core.message_filter import FilterCompiler
from mqttlite.core.route.subscription import Subscription
from mqttlite.core.session.session import Session
from mqttlite.core.sink import Sink
from mqttlite.core.source import Source
from mqttlite.extensions.ephemeral_sink import EphemeralSink
from mqttlite.extensions.streams.compaction import Compactor
from mqttlite.extensions.streams.context import StreamContext
from mqttlite.extensions.streams.errors import NoSuchStream, StreamExists, TooManyStreams, WrongMode
from mqttlite.extensions.streams.group import Group
from mqttlite.extensions.streams.limits import (
    MAX_ALL_PARTITIONS,
    MAX_STREAMS,
)
from mqttlite.extensions.streams.namespace import STREAMS, split_position
from mqttlite.extensions.streams.once import DEDUP
from mqttlite.extensions.streams.options import StreamOptions
from mqttlite.extensions.streams.partition import Partition
from mqttlite.extensions.streams.position import Position
from mqttlite.extensions.streams.readers import Readers, find_group, find_partition, find_shared, stream_of
from mqttlite.extensions.streams.records import (
    CURSOR,
    DEFINITION,
    LOG,
    PART,
    Definition,
    SavedSegments,
    decode_definition,
    decode_segments,
)
from mqttlite.extensions.streams.retention import Retention
from mqttlite.extensions.streams.shared_group import SharedGroup
from mqttlite.extensions.streams.shared_options import SharedGroupSettings
from mqttlite.extensions.streams.states import (
    GroupState,
    KeptStream,
    ReaderState,
    StreamState,
    groups_of,
    lag_of,
    readers_of,
    shared_members_of,
    state_of,
    state_of_group,
)
from mqttlite.extensions.streams.stream import AppendOutcome, Stream
from mqttlite.telemetry.recorder import GroupReading
from mqttlite.topics.namespaces import ParsedTopic, Syntax

_log = logging.getLogger("mqttlite.store")


class Streams:
    """Implements the core's port `Namespace`. `options` are the streams of the configuration, `clock` returns the
    broker's seconds, and `wall_ahead_us` is that of the core."""

    def __init__(
        self,
        core: Broker,
        options: Iterable[StreamOptions],
        clock: Callable[[], float],
        wall_ahead_us: int,
        filters: FilterCompiler,
    ) -> None:
        self._core: Final = core
        self._clock: Final = clock
        self._configured: Final = tuple(options)
        self._kept: Final[dict[str, KeptStream]] = {}
        self._compactor: Final = Compactor(core.effects, core.page_reads)
        self._context: Final = StreamContext(
            core.effects,
            core.jobs,
            core.page_reads,
            core.has_pages,
            core.permissions,
            wall_ahead_us,
            lambda source, acks: self._readers.acks.take(source, acks),
            self._look,
        )
        self._records: list[SaveRecord | Append | StoredLog] = []
        self._subscribed: list[tuple[Session, Subscription]] = []
        """Those of restored sessions, until their streams are there."""
        self._is_restored = False
        self._readers: Final = Readers(core, self._context, self._kept, filters)
        self._retention: Retention | None = None
        self.elsewhere: Callable[[str], str] = lambda name: ""
        """The node that has the stream of a name; empty if no other one has."""
        self.on_changed: Final[list[Callable[[str], None]]] = []
        """Each is called when a stream was made or deleted."""

    # ------------------------------------------------------------------ as `Namespace`

    @property
    def syntax(self) -> Syntax:
        """Implements `Namespace`."""
        return STREAMS

    def admit(
        self, session: Session, parsed: ParsedTopic, expression: str, properties: Sequence[tuple[str, str]]
    ) -> str:
        """Implements `Namespace`."""
        missing = self.missing(parsed)
        if missing:
            return missing
        group, parsed = (parsed.name.decode(), parsed.inner) if parsed.inner is not None else ("", parsed)
        kept = self._kept[split_position(parsed.name)[0].decode()]
        return self._readers.admit(kept, session, group, parsed, expression, properties)

    def missing(self, parsed: ParsedTopic) -> str:
        """Implements `Namespace`."""
        name = split_position((parsed.inner or parsed).name)[0].decode()
        return "" if name in self._kept else f"$stream/…: there is no stream {name[:128]!r}"

    def add(self, session: Session, subscription: Subscription) -> None:
        """Implements `Namespace`."""
        if self._is_restored:
            self._readers.add(self._kept[stream_of(subscription)], session, subscription)
        else:
            self._subscribed.append((session, subscription))

    def remove(self, subscription: Subscription) -> None:
        """Implements `Namespace`."""
        kept = self._kept.get(stream_of(subscription))
        if kept is not None:
            self._readers.remove(kept, subscription)

    def keep_invalid(self, sinks: Sequence[Sink], message: Message, reason: str) -> bool:
        """Implements `Namespace`: streams have no dead letters."""
        return False

    def refuse_ephemeral(self, sinks: list[Sink], policy: str) -> list[Sink]:
        """Implements `Namespace`."""
        effects = self._core.effects
        return [
            EphemeralSink(each.shown, policy, effects, each.count_refused) if isinstance(each, Stream) else each
            for each in sinks
        ]

    def restore(self, change: LoadedOfLog) -> None:
        """Implements `Namespace`: collect the change until all are there."""
        if isinstance(change, SaveRecord | Append | StoredLog) and change.key.startswith(
            (DEFINITION, LOG, CURSOR, PART, DEDUP)
        ):
            self._records.append(change)

    def restored(self) -> None:
        """Implements `Namespace`: make the stored streams, those of the configuration, and their readers."""
        records, self._records = self._records, []
        self._is_restored = True
        configured = {each.name: each for each in self._configured}
        logs = self._restore_streams(records, configured)
        segments: dict[str, SavedSegments] = {}
        now_us = self._context.now_us
        for change in records:
            log = logs.get(change.key)
            if log is not None:
                if isinstance(change, SaveRecord):  # it comes before the messages
                    segments[log.key] = decode_segments(change.data)
                elif isinstance(change, StoredLog):
                    log.restore(change.first, change.count, change.size_bytes, segments[log.key], now_us)
                else:
                    log.restore_message(change.delivery, change.offset)
            elif isinstance(change, SaveRecord) and change.key.startswith((CURSOR, PART)):
                self._readers.restore(change)
            elif isinstance(change, SaveRecord) and change.key.startswith(DEDUP):
                self._restore_ids(change)
        self._readers.pass_over()
        for key, saved_segments in segments.items():
            logs[key].restore_clean(saved_segments)
        for kept in self._kept.values():
            kept.stream.recount()
            kept.stream.trim()
            for each in kept.stream.partitions:
                if each.key not in segments:  # its record is lost, and without one the store takes no messages
                    self._save_segments(kept.stream, each.number)
        for options in configured.values():
            if options.name not in self._kept:
                self.create(options, "config")
        subscribed, self._subscribed = self._subscribed, []
        self._readers.restored(subscribed)
        for options in configured.values():
            self._set_groups(options)
        self._look_for_old()

    def _restore_ids(self, change: SaveRecord) -> None:
        name, _, number = change.key.removeprefix(DEDUP).rpartition("/")
        kept = self._kept.get(name)
        if kept is None:
            self._core.effects.record(RemoveRecord(change.key))
        else:
            kept.stream.window.restore(int(number), change.data)

    def _restore_streams(
        self, records: list[SaveRecord | Append | StoredLog], configured: dict[str, StreamOptions]
    ) -> dict[str, Partition]:
        """Make the stored streams. Return their partitions, by their names in the store."""
        logs: dict[str, Partition] = {}
        for change in records:
            if not isinstance(change, SaveRecord) or not change.key.startswith(DEFINITION):
                continue
            name = change.key.removeprefix(DEFINITION)
            saved = decode_definition(name, change.data)
            options, origin = saved.options, saved.origin
            if name in configured:  # the number of partitions is that of the messages
                options = msgspec.structs.replace(configured[name], partitions=options.partitions)
                origin = "config"
            kept = self._open(options, origin, saved.made_us)
            for each in kept.stream.partitions:
                logs[each.key] = each
            if (options, origin) != (saved.options, saved.origin):
                self._save_definition(kept)
        self._adopt(records, configured, logs)
        return logs

    def _adopt(
        self,
        records: list[SaveRecord | Append | StoredLog],
        configured: dict[str, StreamOptions],
        logs: dict[str, Partition],
    ) -> None:
        """Make the streams whose definitions the store has lost, as the configuration says, or to keep all."""
        lost: dict[str, int] = {}
        for change in records:
            if isinstance(change, SaveRecord) and change.key.startswith(LOG) and change.key not in logs:
                name, _, number = change.key.removeprefix(LOG).rpartition("/")
                lost[name] = max(lost.get(name, 0), int(number) + 1)
        for name, partitions in lost.items():
            _log.error("the options of the stream %s are lost: it is made anew, with its messages", name)
            kept_for_ever = StreamOptions(name=name, keep_s=0, keep_bytes=1 << 60)
            options = msgspec.structs.replace(configured.get(name, kept_for_ever), partitions=partitions)
            kept = self._open(options, "config" if name in configured else "admin", 0)
            for each in kept.stream.partitions:
                logs[each.key] = each
            self._save_definition(kept)

    def on_new_rules(self) -> None:
        """Other rules are in force: try deliveries again for readers that may now read."""
        self._readers.wake()

    def watch(self, attempts: AttemptTracer | None) -> None:
        """Report the attempts of shared groups from now on."""
        self._readers.watch(attempts)

    # ------------------------------------------------------------------ make and delete

    @property
    def names(self) -> list[str]:
        return list(self._kept)

    def create(self, options: StreamOptions, origin: str = "admin") -> None:
        """Make a stream. Raises `StreamExists` and `TooManyStreams`."""
        self._core.effects.now = self._clock()
        if options.name in self._kept:
            raise StreamExists(f"there is a stream {options.name} already")
        node = self.elsewhere(options.name)
        if node:
            raise StreamExists(f"there is a stream {options.name} already, at node {node}")
        if len(self._kept) >= MAX_STREAMS:
            raise TooManyStreams(f"there are {MAX_STREAMS} streams, which is the limit")
        partitions = sum(len(each.stream.partitions) for each in self._kept.values())
        if partitions + options.partitions > MAX_ALL_PARTITIONS:
            raise TooManyStreams(f"all streams together have {partitions} of {MAX_ALL_PARTITIONS} partitions")
        kept = self._open(options, origin, self._context.now_us)
        self._save_definition(kept)
        for each in kept.stream.partitions:
            self._save_segments(kept.stream, each.number)
        self._announce_change(options.name)
        if self._retention is not None:
            self._look_for_old()
            self._set_groups(options)

    def _look_for_old(self) -> None:
        """Begin to remove what is old, as often as the streams of now want."""
        core = self._core
        if self._retention is not None and self._retention.is_armed:
            core.deadlines.cancel(self._retention)
        self._retention = Retention(core.effects, core.deadlines, self.remove_old)
        self._retention.begin()

    def delete(self, name: str) -> None:
        """Delete a stream with its messages. Raises `NoSuchStream`."""
        kept = self._find(name)
        for each in (*kept.options.filters, f"$stream/{name}"):
            self._core.unbind(each.encode(), kept.stream)
        self._core.unname(f"$stream/{name}".encode(), kept.stream)
        for reader in list(kept.readers.values()):
            self._readers.end(kept, reader)
        for group in list(kept.groups):
            self._readers.delete_group(kept, group)
        self._compactor.forget(kept.stream)
        for partition in kept.stream.partitions:
            partition.delete()
        kept.stream.window.delete()
        self._core.effects.record(RemoveRecord(f"{DEFINITION}{name}"))
        del self._kept[name]
        self._announce_change(name)

    # ------------------------------------------------------------------ one of several nodes

    @property
    def first_level(self) -> bytes:
        """Of their topics."""
        return STREAMS.first_level

    def made(self) -> dict[str, tuple[int, bool]]:
        """When each stream was made, in microseconds of Unix time, and False: a reader gets all that is in it."""
        return {name: (kept.made_us, False) for name, kept in self._kept.items()}

    def filters(self, name: str) -> tuple[str, ...]:
        """What a stream is bound to. Raises `NoSuchStream`."""
        return self._find(name).options.filters

    def bound_to(self, topic: bytes) -> list[str]:
        """The streams that keep the messages of a topic."""
        return [name for name, kept in self._kept.items() if kept.stream.takes(topic)]

    def leave(self, name: str) -> bool:
        """Delete a stream that never had a message, for another node has one of its name; its readers may subscribe
        there. False if it had one: positions are about the messages of one stream, and cannot move. Raises
        `NoSuchStream`."""
        if any(each.end for each in self._find(name).stream.partitions):
            return False
        self.delete(name)
        return True

    def stay(self, name: str) -> None:
        """A stream leaves at once, or not at all."""

    def hand_out(self, name: str, may: Callable[[Message], bool], give: Callable[[Message], None]) -> bool:
        """One that leaves has no messages."""
        return True

    def _announce_change(self, name: str) -> None:
        for on_changed in self.on_changed:
            on_changed(name)

    def set_group(self, name: str, group: str, settings: SharedGroupSettings) -> None:
        """Make a shared group, or give it other options. Raises `NoSuchStream`, `TooManyStreams`, and `WrongMode` for a
        group whose partitions have one reader each."""
        self._readers.set_group(self._find(name), group, settings)

    def delete_group(self, name: str, group: str) -> None:
        """Delete a group with its positions. Its members get nothing more until they subscribe again.

        Raises `NoSuchStream`, also for a missing group.
        """
        self._readers.delete_group(self._find(name), group)

    def seek(self, name: str, group: str, position: Position) -> None:
        """Make a group go on from a position; offsets are about their partitions alone.

        Raises `NoSuchStream`, also for a missing group or partition, and `ValueError` for an offset behind the end.
        """
        self._readers.seek(self._find(name), group, position)

    def shared_group(self, name: str, group: str) -> SharedGroup:
        """A shared group, whose dead letters can be replayed and dropped. Raises `NoSuchStream`, also for a group of
        the other mode."""
        return find_shared(self._find(name), group)

    def _set_groups(self, options: StreamOptions) -> None:
        """Make the groups of the options, or give them these."""
        kept = self._kept[options.name]
        for each in options.groups:
            try:
                self._readers.set_group(kept, each.name, each.settings())
            except (TooManyStreams, WrongMode) as error:
                _log.error("the group %s of the stream %s is not as configured: %s", each.name, options.name, error)

    def remove_old(self) -> float:
        """Remove what is older than the streams keep. Return the shortest time that one keeps messages, in seconds; 0.0
        if all keep them for any time."""
        for kept in self._kept.values():
            kept.stream.remove_old()
        return min(filter(None, (_looks_after_s(each.options) for each in self._kept.values())), default=0.0)

    # ------------------------------------------------------------------ look

    def state(self, name: str) -> StreamState:
        """Raises `NoSuchStream`."""
        return state_of(self._find(name))

    def readers(self, name: str) -> list[ReaderState]:
        """Raises `NoSuchStream`."""
        return readers_of(self._find(name))

    def lag(self, name: str) -> int:
        """The most messages that a reader has not finished. Raises `NoSuchStream`."""
        return lag_of(self._find(name))

    def find(self, name: str) -> KeptStream | None:
        """A stream with its readers and groups, to look at; None if there is no such one."""
        self._core.effects.now = self._clock()
        return self._kept.get(name)

    def groups(self, name: str) -> list[GroupState]:
        """Raises `NoSuchStream`."""
        return groups_of(self._find(name))

    def group(self, name: str, group: str) -> GroupState:
        """Raises `NoSuchStream`, also for a group that it does not have."""
        kept = self._find(name)
        found = find_group(kept, group)
        return state_of_group(kept, found, shared_members_of(kept).get(group, []))

    def group_readings(self) -> list[Callable[[], GroupReading | None]]:
        """The groups of all streams, each with what reads it later."""
        return [
            partial(self._read_group, kept, group) for kept in self._kept.values() for group in kept.groups.values()
        ]

    def _read_group(self, kept: KeptStream, group: Group | SharedGroup) -> GroupReading | None:
        if kept.groups.get(group.name) is not group:
            return None
        state = state_of_group(kept, group, shared_members_of(kept).get(group.name, []))
        return GroupReading(
            stream=kept.options.name,
            group=state.name,
            mode=state.mode,
            members=len(state.members),
            lag=state.lag,
            appended=kept.stream.appended,
            under_way=state.under_way,
            scheduled=state.scheduled,
            redeliveries=state.redeliveries,
            moves=state.moves,
            dead_letters=state.dead_letters,
        )

    def serves(self, name: str, source: Source) -> bool:
        """Whether there is such a stream for a publisher: one below a mount point has those whose topics are all
        there."""
        kept = self._kept.get(name)
        return kept is not None and kept.options.is_below(source.identity.mount_point)

    def partitions(self, name: str) -> list[Partition]:
        """Raises `NoSuchStream`."""
        return self._find(name).stream.partitions

    def partition(self, name: str, number: int) -> Partition:
        """Raises `NoSuchStream`, also for a partition that it does not have."""
        return find_partition(self._find(name), number)

    def partition_of(self, name: str, topic: bytes) -> Partition:
        """Where the messages of a topic are that have no key of their own. Raises `NoSuchStream`."""
        return self._find(name).stream.partition_of(topic)

    @property
    def now_us(self) -> int:
        """The time of now, in microseconds of Unix time."""
        return int(self._clock() * 1e6) + self._context.wall_ahead_us

    def append(self, name: str, partition: int, message: Message) -> AppendOutcome:
        """Append a message of an archive: `Stream.append`. Raises `NoSuchStream`."""
        return self._find(name).stream.append(partition, message)

    # ------------------------------------------------------------------ inside

    def _find(self, name: str) -> KeptStream:
        self._core.effects.now = self._clock()
        kept = self._kept.get(name)
        if kept is None:
            raise NoSuchStream(f"there is no stream {name[:128]!r}")
        return kept

    def _open(self, options: StreamOptions, origin: str, made_us: int) -> KeptStream:
        """Make a stream, and bind it."""
        save = partial(self._save_segments_of, options.name)
        stream = Stream(options, self._context, save)
        kept = self._kept[options.name] = KeptStream(options, origin, stream, {}, {}, Counter(), made_us)
        for each in (*options.filters, f"$stream/{options.name}"):
            self._core.bind(each.encode(), stream, hears_others=True)
        self._core.name(f"$stream/{options.name}".encode(), stream)
        return kept

    def _save_definition(self, kept: KeptStream) -> None:
        data = msgspec.json.encode(Definition(kept.options, kept.origin, kept.made_us))
        self._core.effects.record(SaveRecord(f"{DEFINITION}{kept.options.name}", data))

    def _look(self, name: str, number: int) -> None:
        """Compact a partition if it is due."""
        stream = self._kept[name].stream
        self._compactor.look(stream, stream.partitions[number])

    def _save_segments_of(self, name: str, number: int) -> None:
        self._save_segments(self._kept[name].stream, number)

    def _save_segments(self, stream: Stream, number: int) -> None:
        partition = stream.partitions[number]
        saved = SavedSegments(
            *(partition.segments.rows(), partition.clean, partition.clean_count, partition.clean_bytes),
            *(partition.tombstone_us, partition.segments.lateness()),
        )
        data = msgspec.json.encode(saved)
        self._core.effects.record(SaveRecord(partition.key, data))


def _looks_after_s(options: StreamOptions) -> int:
    """The shortest time after which there may be something to remove; 0: any time."""
    if not options.last_value:
        return options.keep_s
    return min(options.keep_s or options.keep_tombstones_s, options.keep_tombstones_s) or options.keep_s
