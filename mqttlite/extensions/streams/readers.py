"""The subscriptions and groups that read the streams of a broker: makes, moves, ends and restores them.

What streams there are, and their logs, is in `service`. Invariant: a group has a record before its first message is
sent, and a reader of a kept session before the answer to its SUBSCRIBE.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mqttlite.core.broker import Broker
from mqttlite.core.connect.attempts import AttemptTracer
from mqttlite.core.log_changes import RemoveRecord, SaveRecord
from mqttlite.core.message_filter import FilterCompiler, MessageFilter, StoredFilter
from mqttlite.core.route.subscription import Subscription
from mqttlite.core.session.session import Session
from mqttlite.extensions.streams.acks import Acks
from mqttlite.extensions.streams.context import StreamContext
from mqttlite.extensions.streams.cursor_records import CursorRecords
from mqttlite.extensions.streams.entry import END
from mqttlite.extensions.streams.errors import NoSuchStream, TooManyStreams, WrongMode
from mqttlite.extensions.streams.group import Group
from mqttlite.extensions.streams.limits import MAX_GROUPS, MAX_READERS, MAX_READERS_OF_CLIENT
from mqttlite.extensions.streams.namespace import position_of, split_position
from mqttlite.extensions.streams.partition import Partition
from mqttlite.extensions.streams.position import Position, Start, parse_position
from mqttlite.extensions.streams.reader import Reader
from mqttlite.extensions.streams.records import PART, SavedCursor, decode_cursor
from mqttlite.extensions.streams.shared_group import DEAD, SharedGroup, SharedMember
from mqttlite.extensions.streams.shared_options import SharedGroupSettings
from mqttlite.extensions.streams.shared_record import SavedShare, decode_share
from mqttlite.extensions.streams.states import KeptStream
from mqttlite.extensions.streams.stream import Stream
from mqttlite.log.cursor import Cursor
from mqttlite.topics.namespaces import ParsedTopic

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


class Readers:
    """`streams` are all, by name."""

    def __init__(
        self, core: Broker, context: StreamContext, streams: Mapping[str, KeptStream], filters: FilterCompiler
    ) -> None:
        self._core: Final = core
        self._context: Final = context
        self._streams: Final = streams
        self._filters: Final = filters
        self._attempts: AttemptTracer | None = None
        self._asked: _Asked | None = None
        self._cursors: Final = CursorRecords(core.effects, core.deadlines, lambda: context.now_us, self._expire)
        self.acks: Final = Acks(core.permissions, streams, self._cursors.save_group, self._move)
        self._saved: dict[tuple[str, str], tuple[str, SavedCursor]] = {}
        self._saved_groups: list[tuple[str, SavedCursor]] = []
        self._saved_parts: dict[str, dict[str, bytes]] = {}
        """Until the streams are restored: the records of readers, of groups, and the parts of shared groups by the
        names of their records."""

    def watch(self, attempts: AttemptTracer | None) -> None:
        """Report attempts of shared groups from now on."""
        self._attempts = attempts
        for kept in self._streams.values():
            for each in kept.groups.values():
                if isinstance(each, SharedGroup):
                    each.attempts = attempts

    # ------------------------------------------------------------------ subscriptions

    def admit(
        self,
        kept: KeptStream,
        session: Session,
        group: str,
        parsed: ParsedTopic,
        expression: str,
        properties: Sequence[tuple[str, str]],
    ) -> str:
        """Whether a session may subscribe; else why not. `add` follows."""
        name = kept.options.name
        if not kept.options.is_below(session.identity.mount_point):
            return f"$stream/…: {name} has messages of topics that are not below the mount point"
        if len(kept.readers) >= MAX_READERS:
            return f"$stream/…: {name} has {MAX_READERS} readers, which is the limit"
        if kept.per_client[session.client_id] >= MAX_READERS_OF_CLIENT:
            return f"$stream/…: the client reads {name} {MAX_READERS_OF_CLIENT} times, which is the limit"
        if group and group not in kept.groups and len(kept.groups) >= MAX_GROUPS:
            return f"$stream/…: {name} has {MAX_GROUPS} groups, which is the limit"
        filters = (self._mounted(session, parsed.rest).decode(), expression)
        if _has_others(kept.groups.get(group), filters):
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

    def add(self, kept: KeptStream, session: Session, subscription: Subscription) -> None:
        """A session subscribes, or does so again."""
        asked, self._asked = self._asked, None
        assert asked is not None, "it was admitted"
        known = kept.readers.get((subscription.client_id, subscription.topic_filter))
        positions, since = _begin_at(kept.stream, asked.position)
        if known is not None and known.session is session:
            if known.expression == asked.expression and not asked.is_given:  # it goes on where it was
                known.subscription = subscription
                if asked.asks_for_end and isinstance(known, Reader):
                    known.tell_end()
                    self._cursors.save(known)
                known.wake()
                return
            if not asked.is_given:
                positions, since = list(known.cursor.positions), known.since
        if known is not None:
            self.end(kept, known)
        share = subscription.share_name.decode()
        group = kept.groups.get(share) if share else None
        filters = (self._topic_filter(session, subscription).decode(), asked.expression)
        if share and group is None:
            group = self._make_group(kept, share, filters, positions, since)
            self._cursors.save_group(group)
        if isinstance(group, SharedGroup) and not group.has_begun:
            mount_point = session.identity.mount_point
            compiled = self._compiled(asked.expression, mount_point)
            group.begin(filters, compiled, mount_point.decode(), positions, since)
        reader = self._make_reader(kept, session, subscription, positions, since, asked.expression)
        if asked.asks_for_end and isinstance(reader, Reader):
            reader.tell_end()
        self._cursors.save(reader)
        reader.wake()  # later, so that SUBACK precedes the first message

    def remove(self, kept: KeptStream, subscription: Subscription) -> None:
        """A subscription ended."""
        reader = kept.readers.get((subscription.client_id, subscription.topic_filter))
        if reader is not None and reader.subscription is subscription:
            self.end(kept, reader)

    def end(self, kept: KeptStream, reader: Reader | SharedMember) -> None:
        """A reader ends."""
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
            if not group.subscriptions and isinstance(group, Group):
                self._cursors.expire_later(group, self._context.now_us)
                self._cursors.save_group(group)

    def wake(self) -> None:
        """Try deliveries again."""
        for kept in self._streams.values():
            for reader in kept.readers.values():
                reader.wake()

    # ------------------------------------------------------------------ groups

    def set_group(self, kept: KeptStream, name: str, settings: SharedGroupSettings) -> None:
        """Make a shared group, or give it other options. Raises `TooManyStreams`, and `WrongMode` for a group whose
        partitions have one reader each."""
        group = kept.groups.get(name)
        if isinstance(group, SharedGroup):
            group.change(settings)
            return
        if group is not None:
            raise WrongMode(f"{name[:128]!r} is a group whose partitions have one reader each: delete it first")
        if len(kept.groups) >= MAX_GROUPS:
            raise TooManyStreams(f"{kept.options.name} has {MAX_GROUPS} groups, which is the limit")
        ends = [each.end for each in kept.stream.partitions]
        self._cursors.save_group(self._make_shared(kept, name, settings, ends))

    def delete_group(self, kept: KeptStream, name: str) -> None:
        """Delete a group with its positions. Raises `NoSuchStream`."""
        group = find_group(kept, name)
        for reader in [each for each in kept.readers.values() if each.group is group]:
            self.end(kept, reader)
        group.end()
        if isinstance(group, Group):
            self._cursors.keep(group)
        del kept.groups[name]
        self._cursors.remove(group)

    def seek(self, kept: KeptStream, name: str, position: Position) -> None:
        """Make a group go on from a position. Raises `NoSuchStream`, also for a missing partition, and `ValueError`."""
        group = find_group(kept, name)
        if position.offsets and position.start is Start.LATEST:
            for number, offset in position.offsets:
                end = find_partition(kept, number).end
                if offset > end:
                    raise ValueError(f"the partition {number} of {kept.options.name} ends at {end}")
            self._move(group, dict(position.offsets))
            return
        positions, since = _begin_at(kept.stream, position)
        group.since = since
        self._move(group, dict(enumerate(positions)))

    def _move(self, group: Group | SharedGroup, positions: dict[int, int]) -> None:
        """Make a group go on from offsets, by partition. It is in use: without subscriptions it expires later."""
        if isinstance(group, Group) and not group.subscriptions:
            self._cursors.keep(group)
            self._cursors.expire_later(group, self._context.now_us)
        group.seek(positions)

    def _expire(self, stream: str, name: str) -> None:
        self.delete_group(self._streams[stream], name)

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

    def _make_shared(
        self, kept: KeptStream, name: str, settings: SharedGroupSettings, positions: Sequence[int]
    ) -> SharedGroup:
        cursors = self._cursors
        group = SharedGroup(
            *(name, kept.stream, settings, Cursor(positions), self._core.deadlines),
            *(cursors.save_group, cursors.save_part),
        )
        group.attempts = self._attempts
        kept.groups[name] = group
        return group

    def _make_reader(
        self,
        kept: KeptStream,
        session: Session,
        subscription: Subscription,
        positions: Sequence[int],
        since: int,
        expression: str,
    ) -> Reader | SharedMember:
        group = kept.groups.get(subscription.share_name.decode()) if subscription.share_name else None
        reader: Reader | SharedMember
        if isinstance(group, SharedGroup):
            reader = SharedMember(session, subscription, kept.stream, group, expression)
        else:
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
            if isinstance(group, Group):
                self._cursors.keep(group)
        session.pull_with(reader)
        return reader

    def _topic_filter(self, session: Session, subscription: Subscription) -> bytes:
        """The filter behind the name of the stream; empty if there is none."""
        return self._mounted(session, self._core.namespaces.parse_filter(subscription.filter).rest)

    def _mounted(self, session: Session, rest: bytes) -> bytes:
        return session.identity.mount_point + rest if rest else b""

    def _compiled(self, expression: str, mount_point: bytes) -> MessageFilter | None:
        if not expression:
            return None
        compiled = self._filters.compile(expression, mount_point)
        return StoredFilter(expression) if isinstance(compiled, str) else compiled

    # ------------------------------------------------------------------ the start

    def restore(self, change: SaveRecord) -> None:
        """Collect a record."""
        if change.key.startswith(PART):
            record, _, part = change.key.removeprefix(PART).rpartition("/")
            self._saved_parts.setdefault(record, {})[part] = change.data
            return
        saved = decode_cursor(change.data)
        if saved is not None and saved.group:
            self._saved_groups.append((change.key, saved))
        elif saved is not None:
            self._saved[saved.client_id, saved.subscription] = (change.key, saved)
        self._cursors.restore_name(change.key)

    def pass_over(self) -> None:
        """No offset is given again that a reader has seen, also where the store has lost messages."""
        for record, saved in (*self._saved_groups, *self._saved.values()):
            kept = self._streams.get(saved.stream)
            if kept is None:
                continue
            for log, position in zip(kept.stream.partitions, saved.positions, strict=False):
                log.pass_over(position)
            for number, share in self._shares(record).items():
                if number < len(kept.stream.partitions):
                    kept.stream.partitions[number].pass_over(share.head)

    def restored(self, subscribed: Sequence[tuple[Session, Subscription]]) -> None:
        """The streams are there: make the groups, and the readers of the sessions that are kept."""
        groups, self._saved_groups = self._saved_groups, []
        for record, saved in groups:
            self._restore_group(record, saved)
        for record, parts in self._saved_parts.items():  # of groups that are gone
            for part in parts:
                self._core.effects.record(RemoveRecord(f"{PART}{record}/{part}"))
        self._saved_parts = {}
        cursors, self._saved = self._saved, {}
        for session, subscription in subscribed:
            kept = self._streams.get(stream_of(subscription))
            if kept is not None:
                found = cursors.pop((subscription.client_id, subscription.topic_filter.decode()), None)
                self._restore_reader(kept, session, subscription, found)
        for record, _ in cursors.values():
            self._core.effects.record(RemoveRecord(record))
        for kept in self._streams.values():
            for group in kept.groups.values():
                if not group.subscriptions and isinstance(group, Group):
                    self._cursors.expire_later(group, group.idle_since_us or self._context.now_us)

    def _shares(self, record: str) -> dict[int, SavedShare]:
        """What is recorded of the partitions of a shared group."""
        parts = self._saved_parts.get(record.rpartition("/")[2], {})
        found = {int(part): decode_share(data) for part, data in parts.items() if part != DEAD}
        return {number: each for number, each in found.items() if each is not None}

    def _restore_group(self, record: str, saved: SavedCursor) -> None:
        kept = self._streams.get(saved.stream)
        if kept is None:
            self._core.effects.record(RemoveRecord(record))
            return
        filters = (saved.subscription, saved.filter)
        positions = _within(saved.positions, kept.stream.partitions)
        if saved.shared is None:
            group = self._make_group(kept, saved.group, filters, positions, saved.since)
            group.idle_since_us = saved.idle_since_us
            self._cursors.restore(group, record)
            return
        shared = self._make_shared(kept, saved.group, saved.shared, positions)
        shared.filters, shared.since, shared.has_begun = filters, saved.since, saved.has_begun
        shared.mount_point = saved.mount_point
        shared.message_filter = self._compiled(saved.filter, saved.mount_point.encode())
        shares = self._shares(record)
        parts = self._saved_parts.pop(record.rpartition("/")[2], {})
        self._cursors.restore(shared, record, parts)
        for number, share in shares.items():
            shared.restore(number, share)
        if DEAD in parts:
            shared.dead.restore(parts[DEAD])

    def _restore_reader(
        self, kept: KeptStream, session: Session, subscription: Subscription, found: tuple[str, SavedCursor] | None
    ) -> None:
        record, saved = found if found is not None else ("", SavedCursor(stream=kept.options.name, positions=[]))
        positions = _within(saved.positions, kept.stream.partitions)
        share = subscription.share_name.decode()
        if share and share not in kept.groups:  # its record was lost
            filters = (self._topic_filter(session, subscription).decode(), saved.filter)
            self._cursors.save_group(self._make_group(kept, share, filters, positions, 0))
        reader = self._make_reader(kept, session, subscription, positions, saved.since, saved.filter)
        if saved.tells_end and isinstance(reader, Reader):
            reader.tell_end()
        if record:
            self._cursors.restore(reader, record)
        else:
            self._cursors.save(reader)


def find_group(kept: KeptStream, name: str) -> Group | SharedGroup:
    """Raises `NoSuchStream`."""
    group = kept.groups.get(name)
    if group is None:
        raise NoSuchStream(f"the stream {kept.options.name} has no group {name[:128]!r}")
    return group


def find_shared(kept: KeptStream, name: str) -> SharedGroup:
    """Raises `NoSuchStream`, also for a group of the other mode."""
    group = find_group(kept, name)
    if isinstance(group, Group):
        raise NoSuchStream(f"the group {name[:128]!r} is not shared, and has no dead letters")
    return group


def find_partition(kept: KeptStream, number: int) -> Partition:
    """Raises `NoSuchStream`."""
    partitions = kept.stream.partitions
    if not 0 <= number < len(partitions):
        raise NoSuchStream(
            f"the stream {kept.options.name} has the partitions 0 to {len(partitions) - 1}, not {number}"
        )
    return partitions[number]


def stream_of(subscription: Subscription) -> str:
    """The name of the stream of a subscription."""
    return split_position(subscription.filter.split(b"/", 2)[1])[0].decode()


def _has_others(group: Group | SharedGroup | None, filters: tuple[str, str]) -> bool:
    """Whether a group has other filters than these."""
    if group is None or (isinstance(group, SharedGroup) and not group.has_begun):
        return False
    return group.filters != filters


def _within(positions: Sequence[int], partitions: Sequence[Partition]) -> list[int]:
    """Recorded positions, by partition; the first message where a record was lost, so that no message is."""
    return [*positions, *(each.first for each in partitions[len(positions) :])]


def _begin_at(stream: Stream, position: Position) -> tuple[list[int], int]:
    """The offsets at which a reader begins, and the lowest number of a message that it gets."""
    partitions = stream.partitions
    match position.start:
        case Start.EARLIEST:
            begins = [each.first for each in partitions]
        case Start.TIME:
            begins = [each.segments.around(position.time_us, each.end).low for each in partitions]
        case Start.LATEST:
            begins = [each.end for each in partitions]
    for number, offset in position.offsets:
        begins[number] = min(offset, partitions[number].end)
    return begins, position.time_us
