"""`/api/v1/streams`: list, make, look at and delete streams, and read their messages.

Invariant: payloads are shown to operators only, whatever the rules say of their topics.
"""

import base64
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from mqttlite.core.message import Message
from mqttlite.core.outbound.told_properties import time_text
from mqttlite.extensions.streams.errors import NoSuchStream, StreamExists, TooManyStreams
from mqttlite.extensions.streams.history import ReadEntries, first_since, read
from mqttlite.extensions.streams.limits import MAX_ANSWERED
from mqttlite.extensions.streams.options import StreamOptions
from mqttlite.extensions.streams.partition import Partition
from mqttlite.extensions.streams.places import offsets_at, text_of
from mqttlite.extensions.streams.position import EARLIEST, Start, parse_position
from mqttlite.extensions.streams.states import GroupState, ReaderState, StreamState
from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.elsewhere import Reach
from mqttlite.gateway.lists import Listed
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import OPERATORS, Route, Routes
from mqttlite.gateway.topic_routes import Done

From = Annotated[
    str,
    Meta(
        max_length=64,
        description="An offset, `earliest`, `latest`, or the time at or after which the first message was published.",
    ),
]
To = Annotated[
    str,
    Meta(
        max_length=32_768, description="`earliest`, `latest`, a time, or `<partition>:<offset>,…` for some partitions."
    ),
]
Number = Annotated[int, Meta(ge=0, description="The partition to read.")]
Most = Annotated[int, Meta(ge=1, le=MAX_ANSWERED, description="How many messages to return at most.")]

_DIGITS_OF_OFFSETS: Final = 14
"""Longer numbers are microseconds of Unix time."""


class GroupSeek(msgspec.Struct, forbid_unknown_fields=True):
    """Where a group goes on."""

    to: To


class StreamPositions(msgspec.Struct):
    """An offset of each partition."""

    stream: str
    positions: str
    """`<partition>:<offset>,…`: where a reader may begin, and to where a group may be moved."""


class StreamMessage(msgspec.Struct):
    """A message of a stream."""

    partition: int
    offset: int
    message_id: str
    published_at: str
    topic: str
    payload: str
    payload_encoding: str
    """`utf-8` or `base64`."""
    user_properties: list[tuple[str, str]]


class StreamMessages(msgspec.Struct):
    """Messages of one partition, in order."""

    messages: list[StreamMessage]
    next: int
    """The offset to go on from."""
    end: int
    """The offset of the next message to come."""


def routes(context: OperatorContext) -> Sequence[Route]:
    """The routes of this module."""
    streams = context.streams
    assert streams is not None, "the routes belong to them"
    entries, commit = context.read_entries, context.commit
    route = Routes("/api/v1", "streams", served_on=OPERATORS, reach=Reach.THING)

    @route.get("/streams", Role.VIEWER, "List streams", reach=Reach.LIST)
    async def list_streams() -> Listed[StreamState]:
        """What they keep, by partition."""
        return Listed(items=[streams.state(name) for name in sorted(streams.names)], cursor=None)

    @route.post("/streams", Role.ADMIN, "Make a stream", status=201, reach=Reach.HERE)
    async def create(options: StreamOptions) -> StreamState:
        """Of the messages that its filters match, from now on."""
        try:
            streams.create(options)
        except (StreamExists, TooManyStreams) as error:
            raise Problem(Code.CONFLICT, str(error)) from None
        await commit()
        return streams.state(options.name)

    @route.get("/streams/{name}", Role.VIEWER, "Show a stream")
    async def show(name: str) -> StreamState:
        """What it keeps, by partition."""
        with finding():
            return streams.state(name)

    @route.delete("/streams/{name}", Role.ADMIN, "Delete a stream")
    async def delete(name: str) -> Done:
        """With its messages and the positions of its readers."""
        with finding():
            streams.delete(name)
        await commit()
        return Done(success=True)

    @route.get("/streams/{name}/readers", Role.VIEWER, "List the readers of a stream")
    async def readers(name: str) -> Listed[ReaderState]:
        """The subscriptions that read it, with their positions and how far they are behind."""
        with finding():
            return Listed(items=streams.readers(name), cursor=None)

    @route.get("/streams/{name}/groups", Role.VIEWER, "List the groups of a stream")
    async def groups(name: str) -> Listed[GroupState]:
        """Their members, positions, and how far they are behind."""
        with finding():
            return Listed(items=streams.groups(name), cursor=None)

    @route.post("/streams/{name}/groups/{group}/seek", Role.ADMIN, "Make a group go on from another position")
    async def seek(name: str, group: str, target: GroupSeek) -> Done:
        """Messages are delivered again, or skipped. What its members have now is not acknowledged any more."""
        with finding():
            try:
                streams.seek(name, group, parse_position(target.to))
            except ValueError as error:
                raise Problem(Code.INVALID_VALUE, f"to: {error}") from None
        await commit()
        return Done(success=True)

    @route.delete("/streams/{name}/groups/{group}", Role.ADMIN, "Delete a group of a stream")
    async def delete_group(name: str, group: str) -> Done:
        """With its positions. Its members get nothing more until they subscribe again."""
        with finding():
            streams.delete_group(name, group)
        await commit()
        return Done(success=True)

    @route.get("/streams/{name}/snapshot", Role.VIEWER, "Mark where a stream is")
    async def snapshot(name: str) -> StreamPositions:
        """The position behind all messages that are there now: a reader or group that begins there, or is moved there,
        gets what comes later. It keeps no messages."""
        return await position_of_all(name, "latest")

    @route.get("/streams/{name}/offsets", Role.VIEWER, "Find the offsets of a time")
    async def offsets(name: str, at: To) -> StreamPositions:
        """Of each partition: the offset of the first message that was published then or later."""
        return await position_of_all(name, at)

    async def position_of_all(name: str, at: str) -> StreamPositions:
        with finding():
            try:
                found = await offsets_at(streams, name, at, entries)
            except ValueError as error:
                raise Problem(Code.INVALID_VALUE, f"at: {error}") from None
        await commit()
        return StreamPositions(stream=name, positions=text_of(found))

    @route.get("/streams/{name}/messages", Role.OPERATOR, "Read the messages of a stream")
    async def messages(name: str, partition: Number = 0, since: From = "earliest", limit: Most = 100) -> StreamMessages:
        """Of one partition, from an offset or a time on. It moves no reader."""
        with finding():
            log = streams.partition(name, partition)
        first = await first_offset(log, since, entries)
        found, following = await read(log, first, limit, entries)
        return StreamMessages(
            messages=[_shown(partition, offset, message) for offset, message in found], next=following, end=log.end
        )

    return route.made


async def first_offset(log: Partition, since: str, entries: ReadEntries) -> int:
    """Where to begin in a partition: an offset, `earliest`, `latest` or a time. Raises `Problem` for another text."""
    if since.isascii() and since.isdecimal() and len(since) < _DIGITS_OF_OFFSETS:
        return int(since)
    try:
        position = parse_position(since)
    except ValueError as error:
        raise Problem(Code.INVALID_VALUE, f"since: {error}") from None
    if position.offsets:
        raise Problem(Code.INVALID_VALUE, "since: the partition has a parameter of its own; give the offset")
    if position.start is Start.TIME:
        return await first_since(log, position.time_us, entries)
    return log.first if position == EARLIEST else log.end


@contextmanager
def finding() -> Generator[None, None, None]:
    """Answer that there is no stream, partition or group of that name."""
    try:
        yield
    except NoSuchStream as error:
        raise Problem(Code.NOT_FOUND, str(error)) from None


def _shown(partition: int, offset: int, message: Message) -> StreamMessage:
    try:
        payload, encoding = message.payload.decode(), "utf-8"
    except UnicodeDecodeError:
        payload, encoding = base64.b64encode(message.payload).decode(), "base64"
    return StreamMessage(
        partition=partition,
        offset=offset,
        message_id=str(message.number),
        published_at=time_text(message.number),
        topic=message.topic.decode(),
        payload=payload,
        payload_encoding=encoding,
        user_properties=list(message.properties.user_properties),
    )
