"""The numbers that a topic had in a stream, as the points of a chart.

Invariant: it keeps no payload, and at most `MAX_CHARTED` numbers.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from math import isfinite
from typing import Final, NamedTuple

import msgspec

from mqttlite.core.message import Message
from mqttlite.extensions.streams.history import ReadEntries, first_since, read
from mqttlite.extensions.streams.limits import MAX_ANSWERED, MAX_CHARTED, MAX_POINTS
from mqttlite.extensions.streams.partition import Partition

MAX_FIELDS: Final = 20
"""How many fields of a payload are offered."""

MAX_PARTS: Final = 1_000
"""How many parts of a payload are looked at for fields: some tenths of a millisecond."""

MAX_FIELD_NAME: Final = 256
"""The longest name of a field that is offered: the API takes no longer one."""

MAX_DECODED_BYTES: Final = 65_536
"""A larger payload has no number here: to decode it would hold up the loop."""

MAX_CHARTED_BYTES: Final = 33_554_432
"""About the most bytes of messages that are read for one chart: some tenths of a second."""

LOOKED_AT_ONCE: Final = 16
"""The number of messages of the topic after which the loop has its turn: some milliseconds of the worst payloads."""


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


class _Looked:
    """What was found in the partitions so far."""

    def __init__(self, topic: bytes, field: str) -> None:
        self._topic = topic
        self.field = field
        self.messages = 0
        self.numbers: list[tuple[int, float]] = []
        self._latest = (-1, b"null")

    def look(self, message: Message) -> bool:
        """Return whether the loop should have its turn."""
        if message.topic != self._topic:
            return False
        self.messages += 1
        self._latest = max(self._latest, (message.number, message.payload))
        value = _decoded(message.payload)
        if not self.field and not self.numbers:
            self.field = next(iter(_fields_of(value, 1)), "")
        number = _number_in(value, self.field)
        if number is not None:
            self.numbers.append((message.number, number))
        return self.messages % LOOKED_AT_ONCE == 0

    @property
    def fields(self) -> list[str]:
        return _fields_of(_decoded(self._latest[1]))


async def history_of(
    partitions: Sequence[Partition], topic: bytes, field: str, since_us: int, until_us: int, entries: ReadEntries
) -> TopicHistory:
    """The numbers of a topic in partitions from a time on. Each partition has an equal share of `MAX_CHARTED` messages,
    its latest ones, and of `MAX_CHARTED_BYTES`. Without a field the payload is the number, or else the first of its
    fields that is one."""
    looked = _Looked(topic, field)
    times = [await _look(each, looked, since_us, until_us, len(partitions), entries) for each in partitions]
    since_us, until_us = min(since for since, _ in times), max(until for _, until in times)
    numbers = sorted(looked.numbers)
    points = _points(numbers, since_us, until_us)
    return TopicHistory(points, since_us, until_us, len(numbers), looked.messages, looked.field, looked.fields)


async def _look(
    partition: Partition, looked: _Looked, since_us: int, until_us: int, sharing: int, entries: ReadEntries
) -> tuple[int, int]:
    """Look at the messages of a partition. Return the time that was looked at."""
    first = await first_since(partition, since_us, entries)
    end, size = partition.end, 0
    offset = begins = max(first, end - max(1, MAX_CHARTED // sharing))
    while offset < end:
        page, following = await read(partition, offset, MAX_ANSWERED, entries)
        if page and offset == begins > first:
            since_us = page[0][1].number  # no earlier one is looked at
        offset = following
        for _, message in page:
            size += message.memory_bytes
            if looked.look(message):
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        if size >= MAX_CHARTED_BYTES // sharing and offset < end:
            return since_us, page[-1][1].number  # no later one is looked at
    return since_us, until_us


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
        count = point.values + 1
        mean = point.mean + (value / count - point.mean / count)  # a sum of large numbers would be infinite
        points[-1] = Point(point.at_us, mean, min(point.low, value), max(point.high, value), count)
    return points


def _decoded(payload: bytes) -> object:
    if len(payload) > MAX_DECODED_BYTES:
        return None
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _number_of(value: object) -> float | None:
    """A finite number; none for all else."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None


def _fields_of(value: object, most: int = MAX_FIELDS) -> list[str]:
    """The names of the numbers in an object, with those of objects in it, of its first `MAX_PARTS` parts."""
    found: list[str] = []
    open_parts: deque[tuple[str, object]] = deque([("", value)])
    seen = 1
    while open_parts and len(found) < most:
        name, part = open_parts.popleft()
        if isinstance(part, dict):
            for each, inner in islice(part.items(), MAX_PARTS - seen):
                seen += 1
                if len(name) + 1 + len(each) <= MAX_FIELD_NAME:
                    open_parts.append((f"{name}.{each}" if name else each, inner))
        elif name and _number_of(part) is not None:
            found.append(name)
    return found


def _number_in(value: object, field: str) -> float | None:
    """The number in a field, whose levels are separated by dots; without one the value itself."""
    for level in field.split(".") if field else ():
        if not isinstance(value, dict):
            return None
        value = value.get(level)
    return _number_of(value)
