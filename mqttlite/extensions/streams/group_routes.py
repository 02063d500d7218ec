"""`/api/v1/streams/{name}/groups/{group}`: make shared groups, and list, replay and drop their dead letters.

Invariant: what an answer says is on disk.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from mqttlite.core.outbound.told_properties import time_text
from mqttlite.extensions.streams.dead_places import DeadPlace
from mqttlite.extensions.streams.errors import TooManyStreams, WrongMode
from mqttlite.extensions.streams.history import ReadEntries, has, read
from mqttlite.extensions.streams.position import parse_places
from mqttlite.extensions.streams.routes import finding
from mqttlite.extensions.streams.service import Streams
from mqttlite.extensions.streams.shared_group import SharedGroup
from mqttlite.extensions.streams.shared_options import SharedGroupSettings, check_group_name
from mqttlite.extensions.streams.states import GroupState
from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import OperatorContext
from mqttlite.gateway.elsewhere import Reach
from mqttlite.gateway.lists import Listed
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.routing import OPERATORS, Route, Routes

Places = Annotated[
    str, Meta(max_length=32_768, description="`<partition>:<offset>,…`: these dead letters. Empty: all of them.")
]

_LETTERS: Final = "/streams/{name}/groups/{group}/dead-letters"


class StreamDeadLetter(msgspec.Struct):
    """A message that a shared group gave up. The stream has it at this place for as long as it keeps messages."""

    partition: int
    offset: int
    cause: str
    detail: str
    attempts: int
    died_at: str
    is_kept: bool
    """Whether the stream still has the message."""


class LetterPlaces(msgspec.Struct, forbid_unknown_fields=True):
    """Some dead letters, or all."""

    places: Places = ""


class Replayed(msgspec.Struct):
    """What became of dead letters."""

    replayed: int
    gone: int
    """How many are forgotten, because the stream has removed their messages."""
    left: int
    """How many are not delivered again yet, because much is under way: ask again."""


class Dropped(msgspec.Struct):
    """How many dead letters are forgotten."""

    dropped: int


def routes(context: OperatorContext) -> Sequence[Route]:
    """The routes of this module."""
    streams = context.streams
    assert streams is not None, "the routes belong to them"
    entries, commit = context.read_entries, context.commit
    route = Routes("/api/v1", "streams", served_on=OPERATORS, reach=Reach.THING)

    def letters_of(name: str, group: str) -> tuple[SharedGroup, list[DeadPlace]]:
        with finding():
            found = streams.shared_group(name, group)
        return found, found.dead.all()

    @route.put("/streams/{name}/groups/{group}", Role.ADMIN, "Make a shared group, or change it")
    async def set_group(name: str, group: str, settings: SharedGroupSettings) -> GroupState:
        """Its first subscription says where it begins."""
        with finding():
            try:
                check_group_name(group)
                streams.set_group(name, group, settings)
            except (TooManyStreams, WrongMode) as error:
                raise Problem(Code.CONFLICT, str(error)) from None
            except ValueError as error:
                raise Problem(Code.INVALID_VALUE, str(error)) from None
        await commit()
        return streams.group(name, group)

    @route.get(_LETTERS, Role.VIEWER, "List the dead letters of a shared group")
    async def dead_letters(name: str, group: str) -> Listed[StreamDeadLetter]:
        """Where they are in the stream, and why members did not take them, the oldest first."""
        _, letters = letters_of(name, group)
        return Listed(items=[await _shown(streams, name, each, entries) for each in letters], cursor=None)

    @route.post(f"{_LETTERS}/replay", Role.ADMIN, "Deliver dead letters again")
    async def replay(name: str, group: str, chosen: LetterPlaces) -> Replayed:
        """With attempts from 1 on. Each stays a dead letter until a member acknowledges it."""
        found, letters = letters_of(name, group)
        chosen_letters = _chosen(letters, chosen.places)
        room = found.room
        counts = Replayed(replayed=0, gone=0, left=max(0, len(chosen_letters) - room))
        for each in chosen_letters[:room]:
            await _replay(streams, name, group, each, entries, counts)
        await commit()
        return counts

    @route.post(f"{_LETTERS}/drop", Role.ADMIN, "Forget dead letters")
    async def drop(name: str, group: str, chosen: LetterPlaces) -> Dropped:
        """Their messages stay in the stream."""
        found, letters = letters_of(name, group)
        dropped = sum([found.drop(each.partition, each.offset) for each in _chosen(letters, chosen.places)])
        await commit()
        return Dropped(dropped=dropped)

    return route.made


async def _replay(
    streams: Streams, name: str, group: str, letter: DeadPlace, entries: ReadEntries, counts: Replayed
) -> None:
    """Replay one, as far as there still are the stream, the group and the message after it was read."""
    with finding():
        messages, _ = await read(streams.partition(name, letter.partition), letter.offset, 1, entries)
        found = streams.shared_group(name, group)
    if not messages or messages[0][0] != letter.offset:
        counts.gone += found.drop(letter.partition, letter.offset)
    else:
        counts.replayed += found.replay(letter.partition, letter.offset, messages[0][1])


def _chosen(letters: list[DeadPlace], places: str) -> list[DeadPlace]:
    """Those of `places`; all if there are none. Raises `Problem`."""
    if not places:
        return letters
    try:
        wanted = set(parse_places(places))
    except ValueError as error:
        raise Problem(Code.INVALID_VALUE, f"places: {error}") from None
    return [each for each in letters if (each.partition, each.offset) in wanted]


async def _shown(streams: Streams, name: str, letter: DeadPlace, entries: ReadEntries) -> StreamDeadLetter:
    with finding():
        is_kept = await has(streams.partition(name, letter.partition), letter.offset, entries)
    return StreamDeadLetter(
        partition=letter.partition,
        offset=letter.offset,
        cause=letter.cause,
        detail=letter.detail,
        attempts=letter.attempts,
        died_at=time_text(letter.died_us),
        is_kept=is_kept,
    )
