"""The numbers that a topic had in a stream, as the points of a chart.

Invariant: it keeps no payload, and at most `MAX_CHARTED` numbers.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from mqttlite.extensions.streams.history import ReadEntries, first_since, read
from mqttlite.extensions.streams.limits import MAX_ANSWERED, MAX_CHARTED, MAX_POINTS
from mqttlite.extensions.streams.partition import Partition

MAX_FIELDS: Final = 20
"""How many fields of a payload are offered."""


class Point(NamedTuple):
    """The values of a part of the time. `at_us` is when the first of them was published."""

    at_us: int
    mean: float
    low: float
    high: float
    values: int


class TopicHistory(NamedTuple):
    """`since_us` and `until_us` are the time that was looked at."""

    points: list[Point]
    since_us: int
    until_us: int
    values: int
    """How many numbers there are."""
    messages: int
    """How many messages of the topic there are, with and without a number."""
    field: str
    """The field that they are of; empty: the payload itself."""
    fields: list[str]
    """The fields of the latest message that are numbers."""


async def history_of(
    partition: Partition, topic: bytes, field: str, since_us: int, until_us: int, entries: ReadEntries
) -> TopicHistory:
    """The numbers of a topic in its partition from a time on, of its latest `MAX_CHARTED` messages at most. Without a
    field the payload is the number, or else the first of its fields that is one."""
    first = await first_since(partition, since_us, entries)
    offset = begins = max(first, partition.end - MAX_CHARTED)
    end, messages, latest = partition.end, 0, b"null"
    numbers: list[tuple[int, float]] = []
    while offset < end:
        page, following = await read(partition, offset, MAX_ANSWERED, entries)
        if page and offset == begins > first:
            since_us = page[0][1].number  # no earlier one is looked at
        offset = following
        for _, message in page:
            if message.topic != topic:
                continue
            messages, latest = messages + 1, message.payload
            value = _decoded(latest)
            if not field and not numbers:
                field = next(iter(_fields_of(value)), "")
            number = _number_in(value, field)
            if number is not None:
                numbers.append((message.number, number))
    points = _points(numbers, since_us, until_us)
    return TopicHistory(points, since_us, until_us, len(numbers), messages, field, _fields_of(_decoded(latest)))


def _points(numbers: Iterable[tuple[int, float]], since_us: int, until_us: int) -> list[Point]:
    """At most `MAX_POINTS`, of equal parts of the time."""
    part_us = max(1, -(-(until_us - since_us) // MAX_POINTS))
    points: list[Point] = []
    latest = -1
    for at_us, value in numbers:
        part = min(max(0, at_us - since_us) // part_us, MAX_POINTS - 1)
        if part != latest:
            points.append(Point(at_us, value, value, value, 1))
            latest = part
            continue
        point = points[-1]
        mean = (point.mean * point.values + value) / (point.values + 1)
        points[-1] = Point(point.at_us, mean, min(point.low, value), max(point.high, value), point.values + 1)
    return points


def _decoded(payload: bytes) -> object:
    try:
        return msgspec.json.decode(payload)
    except msgspec.DecodeError:
        return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fields_of(value: object) -> list[str]:
    """The names of the numbers in an object, with those of objects in it."""
    found: list[str] = []
    open_parts: list[tuple[str, object]] = [("", value)]
    while open_parts and len(found) < MAX_FIELDS:
        name, part = open_parts.pop(0)
        if isinstance(part, dict):
            open_parts += [(f"{name}.{each}" if name else each, inner) for each, inner in part.items()]
        elif name and _is_number(part):
            found.append(name)
    return found


def _number_in(value: object, field: str) -> float | None:
    """The number in a field, whose levels are separated by dots; without one the value itself."""
    for level in field.split(".") if field else ():
        if not isinstance(value, dict):
            return None
        value = value.get(level)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
