"""The visible state of streams, readers and groups, and how it is found. Nothing here changes them."""

from collections import Counter
from dataclasses import dataclass

from mqttlite.extensions.streams.group import Group
from mqttlite.extensions.streams.options import StreamOptions
from mqttlite.extensions.streams.reader import Reader
from mqttlite.extensions.streams.shared_group import SharedGroup, SharedMember
from mqttlite.extensions.streams.stream import Stream
from mqttlite.log.cursor import Cursor


@dataclass(slots=True)
class KeptStream:
    """A stream with its options."""

    options: StreamOptions
    origin: str
    stream: Stream
    readers: dict[tuple[str, bytes], Reader | SharedMember]
    """By client and filter."""
    groups: dict[str, Group | SharedGroup]
    per_client: Counter[str]
    """How many readers each client has."""
    made_us: int
    """When it was made, in microseconds of Unix time; 0: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """One partition: its messages have offsets from `first` to before `end`, in a last-value stream not all of
    them."""

    partition: int
    first: int
    end: int
    messages: int
    size_bytes: int
    oldest_us: int
    """When its first message was published, in microseconds of Unix time; 0: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderState:
    """A subscription that reads a stream. Members of a group have the positions of the group."""

    client_id: str
    subscription: str
    group: str
    connected: bool
    lag: int
    """How many messages it has not finished, in all partitions."""
    positions: list[int]
    """By partition: the offset of the first message that it has not finished."""
    skipped: int
    """How many messages were removed before it came to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """A group that reads a stream: its positions are kept, also without members."""

    name: str
    members: list[str]
    """The clients that are connected."""
    mode: str
    """`ordered`: a partition has one reader at a time. `shared`: each message goes to any member."""
    owners: list[str]
    """By partition: who reads it; empty for nobody, and always in a shared group."""
    positions: list[int]
    """By partition: the offset of the first message that is not finished."""
    lag: int
    """How many messages are not finished, in all partitions."""
    moves: int
    """How often a partition got another reader since the start."""
    under_way: int
    """How many messages members have and did not acknowledge."""
    oldest_us: int
    """When the oldest message that is not finished was published, at the earliest, in microseconds of Unix time; 0: all
    are finished."""
    retention_left: float
    """Which part of the time or room that the stream gives a message is left to that one: at 0 it is removed."""
    scheduled: int = 0
    """How many messages of a shared group wait for their next attempt."""
    redeliveries: int = 0
    """Attempts of a shared group after the first of their message, since the start."""
    dead_letters: int = 0
    """How many messages a shared group gave up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """The visible state of a stream. Counters start with the broker."""

    name: str
    filters: tuple[str, ...]
    origin: str
    keep_s: int
    keep_bytes: int
    last_value: bool
    messages: int
    size_bytes: int
    readers: int
    appended: int
    duplicates: int
    """Messages whose `dedup-id` it knew, so that they were not appended again."""
    refused: int
    removed: int
    partitions: list[PartitionState]


def state_of(kept: KeptStream) -> StreamState:
    """The state of a stream."""
    stream, options = kept.stream, kept.options
    return StreamState(
        name=options.name,
        filters=options.filters,
        origin=kept.origin,
        keep_s=options.keep_s,
        keep_bytes=options.keep_bytes,
        last_value=options.last_value,
        messages=stream.messages,
        size_bytes=stream.size_bytes,
        readers=len(kept.readers),
        appended=stream.appended,
        duplicates=stream.duplicates,
        refused=stream.refused,
        removed=stream.removed,
        partitions=[
            PartitionState(
                partition=each.number,
                first=each.first,
                end=each.end,
                messages=each.count,
                size_bytes=each.size_bytes,
                oldest_us=each.oldest_us,
            )
            for each in stream.partitions
        ],
    )


def readers_of(kept: KeptStream) -> list[ReaderState]:
    """Its subscriptions."""
    logs = logs_of(kept.stream)
    return [
        ReaderState(
            client_id=each.session.client_id,
            subscription=each.subscription.topic_filter.decode(),
            group="" if each.group is None else each.group.name,
            connected=each.session.outbox is not None,
            lag=each.cursor.lag(logs),
            positions=list(each.cursor.positions),
            skipped=each.skipped,
        )
        for each in kept.readers.values()
    ]


def cursors_of(kept: KeptStream) -> list[Cursor]:
    """Those of its readers without a group, and of its groups."""
    alone = [each.cursor for each in kept.readers.values() if each.group is None]
    return [*alone, *(group.cursor for group in kept.groups.values())]


def logs_of(stream: Stream) -> list[tuple[int, int]]:
    """The first offset and the end of each partition."""
    return [(each.first, each.end) for each in stream.partitions]


def lag_of(kept: KeptStream) -> int:
    """The most messages that a reader of it has not finished."""
    logs = logs_of(kept.stream)
    return max((each.lag(logs) for each in cursors_of(kept)), default=0)


def groups_of(kept: KeptStream) -> list[GroupState]:
    """Its groups."""
    members = shared_members_of(kept)
    return [state_of_group(kept, each, members.get(name, [])) for name, each in kept.groups.items()]


def shared_members_of(kept: KeptStream) -> dict[str, list[str]]:
    """The connected clients of its shared groups, by the names of these."""
    found: dict[str, list[str]] = {}
    for each in kept.readers.values():
        if isinstance(each.group, SharedGroup) and each.session.outbox is not None:
            found.setdefault(each.group.name, []).append(each.session.client_id)
    return found


def state_of_group(kept: KeptStream, group: Group | SharedGroup, members: list[str]) -> GroupState:
    """The state of a group of it. `members` are those of a shared one."""
    logs = logs_of(kept.stream)
    if isinstance(group, SharedGroup):
        return _state_of_shared(kept, group, logs, members)
    return _state_of(kept, group, logs)


def _state_of(kept: KeptStream, group: Group, logs: list[tuple[int, int]]) -> GroupState:
    oldest_us, retention_left = kept.stream.unfinished(group.cursor.positions)
    return GroupState(
        name=group.name,
        members=[_client_of(member) for member in group.members],
        mode="ordered",
        owners=[_client_of(owner) for owner in group.owners],
        positions=list(group.cursor.positions),
        lag=group.cursor.lag(logs),
        moves=group.moves,
        under_way=sum([each.unacknowledged for each in group.cursor.places]),
        oldest_us=oldest_us,
        retention_left=retention_left,
    )


def _state_of_shared(
    kept: KeptStream, group: SharedGroup, logs: list[tuple[int, int]], members: list[str]
) -> GroupState:
    oldest_us, retention_left = kept.stream.unfinished(group.cursor.positions)
    return GroupState(
        name=group.name,
        members=members,
        mode="shared",
        owners=[""] * len(logs),
        positions=list(group.cursor.positions),
        lag=group.cursor.lag(logs),
        moves=0,
        under_way=group.under_way,
        oldest_us=oldest_us,
        retention_left=retention_left,
        scheduled=group.scheduled,
        redeliveries=group.redeliveries,
        dead_letters=len(group.dead),
    )


def _client_of(member: object) -> str:
    return member.session.client_id if isinstance(member, Reader) else ""
