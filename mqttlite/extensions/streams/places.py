"""Where positions of a stream are: the offsets that they mean, partition by partition.

Invariant: what is read is committed, and no reader moves.
"""

import asyncio

from mqttlite.extensions.streams.history import ReadEntries, first_since
from mqttlite.extensions.streams.limits import SEARCHED_AT_ONCE
from mqttlite.extensions.streams.partition import Partition
from mqttlite.extensions.streams.position import Start, parse_position
from mqttlite.extensions.streams.service import Streams


async def offsets_at(streams: Streams, name: str, text: str, entries: ReadEntries) -> list[int]:
    """The offset of each partition that a position means: of a time, that of the first message that was published then
    or later. Raises `NoSuchStream`, and `ValueError` for what is no position of the stream."""
    position = parse_position(text)
    given = dict(position.offsets)
    partitions = streams.partitions(name)
    if any(number >= len(partitions) for number in given):
        raise ValueError(f"{name} has the partitions 0 to {len(partitions) - 1}")

    async def offset_in(partition: Partition) -> int:
        if partition.number in given:
            return min(given[partition.number], partition.end)
        if position.start is Start.TIME:
            return await first_since(partition, position.time_us, entries)
        return partition.first if position.start is Start.EARLIEST else partition.end

    found: list[int] = []
    for first in range(0, len(partitions), SEARCHED_AT_ONCE):
        part = partitions[first : first + SEARCHED_AT_ONCE]
        found += await asyncio.gather(*(offset_in(each) for each in part))
    return found


def text_of(offsets: list[int]) -> str:
    """Offsets by partition, as positions are written: `0:17,1:22`."""
    return ",".join(f"{partition}:{offset}" for partition, offset in enumerate(offsets))
