"""The streams of a broker: makes and deletes them, connects readers, and restores both.

All methods run on the event loop and await nothing. Invariant: a stream is in the store before its first message.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from mqttlite.core.broker import Broker
from mqttlite.core.log_changes import Append, LoadedOfLog, RemoveRecord, SaveRecord, StoredLog
from mqttlite.core.message import Message
from mqttlite.core.message_filter import FilterCompiler, MessageFilter, StoredFilter
from mqttlite.core.route.subscription import Subscription
from mqttlite.core.session.session import Session
from mqttlite.core.sink import Sink
from mqttlite.core.source import Source
from mqttlite.extensions.ephemeral_sink import EphemeralSink
from mqttlite.extensions.streams.compaction import Compactor
from mqttlite.extensions.streams.context import StreamContext
from mqttlite.extensions.streams.cursor_records import CursorRecords
from mqttlite.extensions.streams.entry import END
from mqttlite.extensions.streams.errors import NoSuchStream, StreamExists, TooManyStreams
from mqttlite.extensions.streams.group import Group
from mqttlite.extensions.streams.limits import (
    MAX_ALL_PARTITIONS,
    MAX_GROUPS,
    MAX_READERS,
    MAX_READERS_OF_CLIENT,
    MAX_STREAMS,
)
from mqttlite.extensions.streams.namespace import STREAMS, position_of, split_position
from mqttlite.extensions.streams.once import DEDUP
from mqttlite.extensions.streams.options import StreamOptions
from mqttlite.extensions.streams.partition import Partition
from mqttlite.extensions.streams.position import Position, Start, parse_position
from mqttlite.extensions.streams.reader import Reader
from mqttlite.extensions.streams.records import (
    CURSOR,
    DEFINITION,
    LOG,
    Definition,
    SavedCursor,
    SavedSegments,
    decode_cursor,
    decode_definition,
    decode_segments,
)
from mqttlite.extensions.streams.retention import Retention
from mqttlite.extensions.streams.states import (
    GroupState,
    KeptStream,
    ReaderState,
    StreamState,
    groups_of,
    lag_of,
    readers_of,
    state_of,
)
from mqttlite.extensions.streams.stream import AppendOutcome, Stream
from mqttlite.log.cursor import Cursor
from mqttlite.topics.namespaces import ParsedTopic, Syntax

_log = logging.getLogger("mqttlite.store")

POSITION_PROPERTY: Final = "stream-offset"
"""The user property of a SUBSCRIBE that says where to begin, as EMQX's clients write it."""

END_PROPERTY: Final = END
"""The user property of a SUBSCRIBE that asks for a message when the reader has what is in the stream now."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a SUBSCRIBE asks for, between `admit` and `add`."""

    position: Position
    is_given: bool
    """Whether the position is in the properties: then it also holds for a subscription that is there."""
    expression: str
    asks_for_end: bool


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
        self._filters: Final = filters
        self._kept: Final[dict[str, KeptStream]] = {}
        self._compactor: Final = Compactor(core.effects, core.page_reads)
        self._context: Final = StreamContext(
            core.effects,
            core.jobs,
            core.page_reads,
            core.has_pages,
            core.permissions,
            wall_ahead_us,
            self.take_acks,
            self._look,
        )
        self._asked: _Asked | None = None
        self._records: list[SaveRecord | Append | StoredLog] = []
        self._subscribed: list[tuple[Session, Subscription]] = []
        """Those of restored sessions, until their streams are there."""
        self._is_restored = False
        self._cursors: Final = CursorRecords(
            core.effects, core.deadlines, lambda: self._context.now_us, self.delete_group
        )
        self._retention: Retention | None = None

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
        name = split_position(parsed.name)[0].decode()
        kept = self._kept[name]
        if not _is_below(kept.options, session.identity.mount_point):
            return f"$stream/…: {name} has messages of topics that are not below the mount point"
        if len(kept.readers) >= MAX_READERS:
            return f"$stream/…: {name} has {MAX_READERS} readers, which is the limit"
        if kept.per_client[session.client_id] >= MAX_READERS_OF_CLIENT:
            return f"$stream/…: the client reads {name} {MAX_READERS_OF_CLIENT} times, which is the limit"
        if group and group not in kept.groups and len(kept.groups) >= MAX_GROUPS:
            return f"$stream/…: {name} has {MAX_GROUPS} groups, which is the limit"
        filters = (self._mounted(session, parsed.rest).decode(), expression)
        if group in kept.groups and kept.groups[group].filters != filters:
            return f"$share/…: the members of the group {group[:128]!r} have another filter, and all have the same"
        position, is_given, asks_for_end = position_of(parsed.name), False, False
        for key, value in properties:
            asks_for_end |= key == END_PROPERTY
            if key == POSITION_PROPERTY:
                try:
                    position = parse_position(value)
                except ValueError as error:
                    return f"{POSITION_PROPERTY}: {error}"
                is_given = True
        if any(partition >= len(kept.stream.partitions) for partition, _ in position.offsets):
            return f"$stream/…: {name} has the partitions 0 to {len(kept.stream.partitions) - 1}"
        self._asked = _Asked(position, is_given, expression, asks_for_end and not group)
        return ""

    def missing(self, parsed: ParsedTopic) -> str:
        """Implements `Namespace`."""
        name = split_position((parsed.inner or parsed).name)[0].decode()
        return "" if name in self._kept else f"$stream/…: there is no stream {name[:128]!r}"

    def add(self, session: Session, subscription: Subscription) -> None:
        """Implements `Namespace`."""
        if not self._is_restored:
            self._subscribed.append((session, subscription))
            return
        asked, self._asked = self._asked, None
        assert asked is not None, "it was admitted"
        kept = self._kept[_stream_of(subscription)]
        key = (subscription.client_id, subscription.topic_filter)
        known = kept.readers.get(key)
        positions, since = self._begin_at(kept.stream, asked.position)
        if known is not None and known.session is session:
            if known.expression == asked.expression and not asked.is_given:  # it goes on where it was
                known.subscription = subscription
                if asked.asks_for_end:
                    known.tell_end()
                    self._cursors.save(known)
                known.wake()
                return
            if not asked.is_given:
                positions, since = list(known.cursor.positions), known.since
        if known is not None:
            self._end(kept, known)
        share = subscription.share_name.decode()
        if share and share not in kept.groups:
            filters = (self._topic_filter(session, subscription).decode(), asked.expression)
            self._cursors.save_group(self._make_group(kept, share, filters, positions, since))
        reader = self._make_reader(kept, session, subscription, positions, since, asked.expression)
        if asked.asks_for_end:
            reader.tell_end()
        self._cursors.save(reader)
        reader.wake()  # later, so that SUBACK precedes the first message

    def remove(self, subscription: Subscription) -> None:
        """Implements `Namespace`."""
        kept = self._kept.get(_stream_of(subscription))
        if kept is None:
            return
        reader = kept.readers.get((subscription.client_id, subscription.topic_filter))
        if reader is not None and reader.subscription is subscription:
            self._end(kept, reader)

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
            (DEFINITION, LOG, CURSOR, DEDUP)
        ):
            self._records.append(change)

    def restored(self) -> None:
        """Implements `Namespace`: make the stored streams, those of the configuration, and their readers."""
        records, self._records = self._records, []
        self._is_restored = True
        configured = {each.name: each for each in self._configured}
        logs = self._restore_streams(records, configured)
        cursors: dict[tuple[str, str], tuple[str, SavedCursor]] = {}
        groups: list[tuple[str, SavedCursor]] = []
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
            elif isinstance(change, SaveRecord) and change.key.startswith(CURSOR):
                saved = decode_cursor(change.data)
                if saved is not None and saved.group:
                    groups.append((change.key, saved))
                elif saved is not None:
                    cursors[saved.client_id, saved.subscription] = (change.key, saved)
                self._cursors.restore_name(change.key)
            elif isinstance(change, SaveRecord) and change.key.startswith(DEDUP):
                self._restore_ids(change)
        for saved in (each for _, each in (*groups, *cursors.values())):
            self._pass_over(saved)
        for key, saved_segments in segments.items():
            logs[key].restore_clean(saved_segments)
        for kept in self._kept.values():
            kept.stream.recount()
            for each in kept.stream.partitions:
                if each.key not in segments:  # its record is lost, and without one the store takes no messages
                    self._save_segments(kept.stream, each.number)
        for options in configured.values():
            if options.name not in self._kept:
                self.create(options, "config")
        for record, saved in groups:
            self._restore_group(record, saved)
        self._restore_readers(cursors)
        for kept in self._kept.values():
            for group in kept.groups.values():
                if not group.subscriptions:
                    self._cursors.expire_later(group, group.idle_since_us or now_us)
        self._look_for_old()

    def _restore_ids(self, change: SaveRecord) -> None:
        name, _, number = change.key.removeprefix(DEDUP).rpartition("/")
        kept = self._kept.get(name)
        if kept is None:
            self._core.effects.record(RemoveRecord(change.key))
        else:
            kept.stream.window.restore(int(number), change.data)

    def _pass_over(self, saved: SavedCursor) -> None:
        """No offset is given again that a reader has seen, also where the store has lost messages."""
        kept = self._kept.get(saved.stream)
        if kept is not None:
            for log, position in zip(kept.stream.partitions, saved.positions, strict=False):
                log.pass_over(position)

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
            kept = self._open(options, origin)
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
            kept = self._open(options, "config" if name in configured else "admin")
            for each in kept.stream.partitions:
                logs[each.key] = each
            self._save_definition(kept)

    def _restore_readers(self, cursors: dict[tuple[str, str], tuple[str, SavedCursor]]) -> None:
        subscribed, self._subscribed = self._subscribed, []
        for session, subscription in subscribed:
            kept = self._kept.get(_stream_of(subscription))
            if kept is None:
                continue
            found = cursors.pop((subscription.client_id, subscription.topic_filter.decode()), None)
            record, saved = found if found is not None else ("", SavedCursor(stream=kept.options.name, positions=[]))
            positions = _within(saved.positions, kept.stream.partitions)
            share = subscription.share_name.decode()
            if share and share not in kept.groups:  # its record was lost
                filters = (self._topic_filter(session, subscription).decode(), saved.filter)
                self._cursors.save_group(self._make_group(kept, share, filters, positions, 0))
            reader = self._make_reader(kept, session, subscription, positions, saved.since, saved.filter)
            if saved.tells_end:
                reader.tell_end()
            if not record:
                self._cursors.save(reader)
                continue
            self._cursors.restore(reader, record)
        for record, _ in cursors.values():
            self._core.effects.record(RemoveRecord(record))

    def _restore_group(self, record: str, saved: SavedCursor) -> None:
        kept = self._kept.get(saved.stream)
        if kept is None:
            self._core.effects.record(RemoveRecord(record))
            return
        positions = _within(saved.positions, kept.stream.partitions)
        group = self._make_group(kept, saved.group, (saved.subscription, saved.filter), positions, saved.since)
        group.idle_since_us = saved.idle_since_us
        self._cursors.restore(group, record)

    def on_new_rules(self) -> None:
        """Other rules are in force: try deliveries again for readers that may now read."""
        for kept in self._kept.values():
            for reader in kept.readers.values():
                reader.wake()

    def take_acks(self, source: Source, acks: list[str]) -> str:
        """Finish messages for a member of groups. Each of `acks` is the topic filter of a subscription, a space, and
        the last finished offset of partitions (`0:17,1:22`). Return why not; then none is finished."""
        found: list[tuple[Group, Reader, tuple[tuple[int, int], ...]]] = []
        for each in acks:
            topic_filter, _, text = each.rpartition(" ")
            reader = self._reader_of(source, topic_filter)
            if reader is None or reader.group is None:
                return f"acks: {topic_filter[:128]!r} is no subscription of this client in a group"
            try:
                position = parse_position(text)
            except ValueError as error:
                return f"acks: {error}"
            if not position.offsets or position.start is not Start.LATEST:
                return f"acks: {text[:64]!r} has no offsets: it is <partition>:<offset>,…"
            for partition, offset in position.offsets:
                if reader.refuses(partition, offset):
                    return f"acks: {partition}:{offset} is finished, of another member now, or was not sent to this one"
            found.append((reader.group, reader, position.offsets))
        for group, reader, offsets in found:
            for partition, offset in offsets:
                reader.finish_to(partition, offset)
            self._cursors.save_group(group)
        return ""

    def _reader_of(self, source: Source, topic_filter: str) -> Reader | None:
        """The reader of a subscription of the client that publishes."""
        levels = topic_filter.split("/", 4)
        if len(levels) < 4:
            return None
        kept = self._kept.get(split_position(levels[3].encode())[0].decode())
        found = None if kept is None else kept.readers.get((source.client_id, topic_filter.encode()))
        return found if found is not None and found.session is source else None

    # ------------------------------------------------------------------ make and delete

    @property
    def names(self) -> list[str]:
        return list(self._kept)

    def create(self, options: StreamOptions, origin: str = "admin") -> None:
        """Make a stream. Raises `StreamExists` and `TooManyStreams`."""
        self._core.effects.now = self._clock()
        if options.name in self._kept:
            raise StreamExists(f"there is a stream {options.name} already")
        if len(self._kept) >= MAX_STREAMS:
            raise TooManyStreams(f"there are {MAX_STREAMS} streams, which is the limit")
        partitions = sum(len(each.stream.partitions) for each in self._kept.values())
        if partitions + options.partitions > MAX_ALL_PARTITIONS:
            raise TooManyStreams(f"all streams together have {partitions} of {MAX_ALL_PARTITIONS} partitions")
        kept = self._open(options, origin)
        self._save_definition(kept)
        for each in kept.stream.partitions:
            self._save_segments(kept.stream, each.number)
        if self._retention is not None:
            self._look_for_old()

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
        for reader in list(kept.readers.values()):
            self._end(kept, reader)
        for group in list(kept.groups):
            self.delete_group(name, group)
        self._compactor.forget(kept.stream)
        for partition in kept.stream.partitions:
            partition.delete()
        kept.stream.window.delete()
        self._core.effects.record(RemoveRecord(f"{DEFINITION}{name}"))
        del self._kept[name]

    def delete_group(self, name: str, group_name: str) -> None:
        """Delete a group with its positions. Its members get nothing more until they subscribe again.

        Raises `NoSuchStream`, also for a missing group.
        """
        kept = self._find(name)
        group = self._find_group(kept, group_name)
        for reader in [each for each in kept.readers.values() if each.group is group]:
            self._end(kept, reader)
        group.end()
        self._cursors.keep(group)
        del kept.groups[group_name]
        self._cursors.remove(group)

    def seek(self, name: str, group_name: str, position: Position) -> None:
        """Make a group go on from a position; offsets are about their partitions alone.

        Raises `NoSuchStream`, also for a missing group or partition, and `ValueError` for an offset behind the end.
        """
        kept = self._find(name)
        group = self._find_group(kept, group_name)
        if not group.subscriptions:
            self._cursors.keep(group)
            self._cursors.expire_later(group, self._context.now_us)
        if position.offsets and position.start is Start.LATEST:
            for number, offset in position.offsets:
                log = self.partition(name, number)
                if offset > log.end:
                    raise ValueError(f"the partition {number} of {name} ends at {log.end}")
            group.seek(dict(position.offsets))
            return
        positions, since = self._begin_at(kept.stream, position)
        group.since = since
        group.seek(dict(enumerate(positions)))

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

    def groups(self, name: str) -> list[GroupState]:
        """Raises `NoSuchStream`."""
        return groups_of(self._find(name))

    def serves(self, name: str, source: Source) -> bool:
        """Whether there is such a stream for a publisher: one below a mount point has those whose topics are all
        there."""
        kept = self._kept.get(name)
        return kept is not None and _is_below(kept.options, source.identity.mount_point)

    def partitions(self, name: str) -> list[Partition]:
        """Raises `NoSuchStream`."""
        return self._find(name).stream.partitions

    def partition(self, name: str, number: int) -> Partition:
        """Raises `NoSuchStream`, also for a partition that it does not have."""
        partitions = self._find(name).stream.partitions
        if not 0 <= number < len(partitions):
            raise NoSuchStream(f"the stream {name} has the partitions 0 to {len(partitions) - 1}, not {number}")
        return partitions[number]

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

    def _find_group(self, kept: KeptStream, name: str) -> Group:
        group = kept.groups.get(name)
        if group is None:
            raise NoSuchStream(f"the stream {kept.options.name} has no group {name[:128]!r}")
        return group

    def _open(self, options: StreamOptions, origin: str) -> KeptStream:
        """Make a stream, and bind it."""
        save = partial(self._save_segments_of, options.name)
        stream = Stream(options, self._context, save)
        kept = self._kept[options.name] = KeptStream(options, origin, stream, {}, {}, Counter())
        for each in (*options.filters, f"$stream/{options.name}"):
            self._core.bind(each.encode(), stream)
        return kept

    def _make_reader(
        self,
        kept: KeptStream,
        session: Session,
        subscription: Subscription,
        positions: Sequence[int],
        since: int,
        expression: str,
    ) -> Reader:
        group = kept.groups.get(subscription.share_name.decode()) if subscription.share_name else None
        reader = Reader(
            session,
            subscription,
            kept.stream,
            Cursor(positions) if group is None else group.cursor,
            self._topic_filter(session, subscription),
            self._compiled(expression, session.identity.mount_point),
            since,
            self._cursors.save,
            group,
        )
        kept.readers[subscription.client_id, subscription.topic_filter] = reader
        kept.per_client[subscription.client_id] += 1
        kept.stream.readers += 1
        if group is not None:
            group.subscriptions += 1
            self._cursors.keep(group)
        session.pull_with(reader)
        return reader

    def _topic_filter(self, session: Session, subscription: Subscription) -> bytes:
        """The filter behind the name of the stream; empty if there is none."""
        return self._mounted(session, self._core.namespaces.parse_filter(subscription.filter).rest)

    def _mounted(self, session: Session, rest: bytes) -> bytes:
        return session.identity.mount_point + rest if rest else b""

    def _make_group(
        self, kept: KeptStream, name: str, filters: tuple[str, str], positions: Sequence[int], since: int
    ) -> Group:
        core = self._core
        stream = kept.options.name
        group = Group(
            name, stream, filters, Cursor(positions), since, core.effects, core.deadlines, self._cursors.save_group
        )
        kept.groups[name] = group
        return group

    def _compiled(self, expression: str, mount_point: bytes) -> MessageFilter | None:
        if not expression:
            return None
        compiled = self._filters.compile(expression, mount_point)
        return StoredFilter(expression) if isinstance(compiled, str) else compiled

    def _begin_at(self, stream: Stream, position: Position) -> tuple[list[int], int]:
        """The offsets at which a reader begins, and the lowest number of a message that it gets."""
        partitions = stream.partitions
        match position.start:
            case Start.EARLIEST:
                begins = [each.first for each in partitions]
            case Start.TIME:
                begins = [each.segments.around(position.time_us, each.end)[0] for each in partitions]
            case Start.LATEST:
                begins = [each.end for each in partitions]
        for number, offset in position.offsets:
            begins[number] = min(offset, partitions[number].end)
        return begins, position.time_us

    def _end(self, kept: KeptStream, reader: Reader) -> None:
        reader.end()
        client_id = reader.subscription.client_id
        kept.per_client[client_id] -= 1
        if not kept.per_client[client_id]:
            del kept.per_client[client_id]
        del kept.readers[reader.subscription.client_id, reader.subscription.topic_filter]
        self._cursors.remove(reader)
        group = reader.group
        if group is not None:
            group.subscriptions -= 1
            if not group.subscriptions:
                self._cursors.expire_later(group, self._context.now_us)
                self._cursors.save_group(group)

    def _save_definition(self, kept: KeptStream) -> None:
        data = msgspec.json.encode(Definition(kept.options, kept.origin))
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
            partition.tombstone_us,
        )
        data = msgspec.json.encode(saved)
        self._core.effects.record(SaveRecord(partition.key, data))


def _stream_of(subscription: Subscription) -> str:
    """The name of the stream of a subscription."""
    return split_position(subscription.filter.split(b"/", 2)[1])[0].decode()


def _within(positions: Sequence[int], partitions: Sequence[Partition]) -> list[int]:
    """Recorded positions, by partition; the first message where a record was lost, so that no message is."""
    return [*positions, *(each.first for each in partitions[len(positions) :])]


def _is_below(options: StreamOptions, mount_point: bytes) -> bool:
    """Whether all topics of a stream are below a mount point."""
    return all(each.encode().startswith(mount_point) for each in options.filters)


def _looks_after_s(options: StreamOptions) -> int:
    """The shortest time after which there may be something to remove; 0: any time."""
    if not options.last_value:
        return options.keep_s
    return min(options.keep_s or options.keep_tombstones_s, options.keep_tombstones_s) or options.keep_s
