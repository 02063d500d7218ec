"""What the store keeps of a shared group for each partition: its position, and what is under way behind it.

It is small, however much was sent: what was sent once and is not acknowledged is what is missing between `position` and
`head`. Invariant: a record that cannot be read makes the group deliver again, and loses no message.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from mqttlite.log.cursor import Place
from mqttlite.log.deliveries import SCHEDULED, Entry
from mqttlite.log.ranges import Ranges

M = TypeVar("M")


class SavedShare(msgspec.Struct, frozen=True, array_like=True):
    """Before `head` all was sent, at least once; `done` has ranges of what is acknowledged, and `retried` the attempts
    of what was sent more often or waits for its next attempt, with its time in microseconds of Unix time, or 0."""

    position: int
    head: int
    done: list[tuple[int, int]]
    retried: list[tuple[int, int, int]]


def encode_share(
    place: Place,
    sent_before: int,
    retried: Mapping[int, Entry[M]],
    attempted: Mapping[int, tuple[int, float]],
    wall_ahead_us: int,
) -> bytes:
    """The record of a partition. All before `sent_before` was sent before the start of the broker, and `attempted` has
    what is known of it, while it is not taken again: attempts, and when the next one is due. `retried` has entries;
    both are by offset."""
    head = max(place.head, sent_before)
    done = [] if place.ahead is None else place.ahead.within(place.position, head)
    again = [(at, each.attempts, each.due_at if each.state == SCHEDULED else 0.0) for at, each in retried.items()]
    again += [(at, attempts, due_at) for at, (attempts, due_at) in attempted.items()]
    timed = [(at, attempts, wall_ahead_us + int(due_at * 1e6) if due_at else 0) for at, attempts, due_at in again]
    return msgspec.json.encode(SavedShare(place.position, head, done, timed))


def decode_share(data: bytes) -> SavedShare | None:
    """What a record says; None if it cannot be read."""
    try:
        return msgspec.json.decode(data, type=SavedShare)
    except msgspec.DecodeError:
        return None


def place_of(saved: SavedShare) -> Place:
    """The place from which on all is sent again that is not acknowledged."""
    place = Place(saved.position)
    if saved.done:
        place.ahead = Ranges(saved.done)
    return place
