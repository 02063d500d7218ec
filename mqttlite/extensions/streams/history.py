"""Reads the messages of a partition to show them, and finds the first one of a time.

Invariant: it reads what is committed, and moves no reader.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from mqttlite.core.message import Delivery, Message
from mqttlite.extensions.streams.limits import MAX_ANSWERED, MAX_ANSWERED_BYTES
from mqttlite.extensions.streams.partition import Partition
from mqttlite.log.bisection import Bisection

ReadPage = Callable[[str, int, int], Awaitable[list[Delivery | None]]]
"""Reads messages of the store, by the name of a log, the first offset and the number."""

_PROBED: Final = 16
"""How many messages a probe of the search reads: one of them is not lost."""


async def read(partition: Partition, first: int, most: int, page: ReadPage) -> tuple[list[tuple[int, Message]], int]:
    """Up to `most` messages from an offset on, with their offsets, and the offset after the last one. Lost messages are
    left out."""
    found: list[tuple[int, Message]] = []
    offset = max(first, partition.first)
    size = 0
    while offset < partition.end and len(found) < min(most, MAX_ANSWERED) and size < MAX_ANSWERED_BYTES:
        deliveries = await page(partition.key, offset, min(most - len(found), partition.end - offset))
        for delivery in deliveries or [None]:
            if delivery is not None:
                found.append((offset, delivery.message))
                size += delivery.message.memory_bytes
            offset += 1
            if size >= MAX_ANSWERED_BYTES:
                break
    return found, offset


async def first_since(partition: Partition, number: int, page: ReadPage) -> int:
    """The offset of the first message that was published at a time (microseconds of Unix time) or later; the end if
    there is none."""
    search = Bisection(number, *partition.segments.around(number, partition.end))
    while not search.is_over:
        first = search.next_offset()
        probe = await page(partition.key, first, min(_PROBED, search.high - first))
        found = next(((at, each) for at, each in enumerate(probe, first) if each is not None), None)
        if found is None:
            search.found_none()
        else:
            search.found(found[0], found[1].message.number)
    return max(search.low, partition.first)
