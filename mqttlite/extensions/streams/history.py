"""Reads the messages of a partition to show them, and finds the first one of a time.

Invariant: it reads what is committed, and moves no reader.
"""

from collections.abc import Awaitable, Callable

from mqttlite.core.message import Message
from mqttlite.core.question import Entries
from mqttlite.extensions.streams.limits import MAX_ANSWERED, MAX_ANSWERED_BYTES, MAX_SOUGHT
from mqttlite.extensions.streams.partition import Partition
from mqttlite.log.bisection import Bisection
from mqttlite.log.segments import UNKNOWN

ReadEntries = Callable[[str, int, int, int], Awaitable[Entries]]
"""Reads messages of the store, by the name of a log, the first offset, the one after the last, and the number."""


async def read(
    partition: Partition, first: int, most: int, entries: ReadEntries
) -> tuple[list[tuple[int, Message]], int]:
    """Up to `most` messages from an offset on, with their offsets, and the offset after the last one. Lost and removed
    messages are left out."""
    found: list[tuple[int, Message]] = []
    most = min(most, MAX_ANSWERED)
    offset = max(first, partition.first)
    size = 0
    while offset < partition.end and len(found) < most:
        answer = await entries(partition.key, offset, partition.end, most - len(found))
        for at, delivery in answer.found:
            found.append((at, delivery.message))
            size += delivery.message.memory_bytes
            if size >= MAX_ANSWERED_BYTES:
                return found, at + 1
        offset = answer.following
    return found, offset


async def has(partition: Partition, offset: int, entries: ReadEntries) -> bool:
    """Whether a partition still has a message. Where it is compacted, only the store knows."""
    if not partition.first <= offset < partition.clean:
        return partition.first <= offset < partition.end
    found, _ = await entries(partition.key, offset, offset + 1, 1)
    return bool(found)


async def first_since(partition: Partition, number: int, entries: ReadEntries) -> int:
    """The offset of the first message that was published at a time (microseconds of Unix time) or later; the end if
    there is none. Where messages are late, it looks at `MAX_SOUGHT` of them one by one; if none of these is the one,
    the answer is where it ended, which is before it."""
    around = partition.segments.around(number, partition.end)
    offset = max(around.low, partition.first)
    if around.late_us != UNKNOWN:
        offset = max(offset, await _search(partition, around.search(number), entries))
        if around.late_us == 0 and offset < around.high:
            return offset
    sought_to = min(offset + MAX_SOUGHT, partition.end)
    while offset < sought_to:
        answer = await entries(partition.key, offset, sought_to, MAX_ANSWERED)
        for at, delivery in answer.found:
            if delivery.message.number >= number:
                return at
        offset = answer.following
    return offset


async def _search(partition: Partition, search: Bisection, entries: ReadEntries) -> int:
    while not search.is_over:
        probe = await entries(partition.key, search.next_offset(), search.high, 1)
        if probe.found:
            offset, delivery = probe.found[0]
            search.found(offset, delivery.message.number)
        else:
            search.found_none()
    return search.low
