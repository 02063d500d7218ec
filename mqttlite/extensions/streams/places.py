"""Where positions of a stream are: the offsets that they mean, partition by partition.

Invariant: what is read is committed, and no reader moves.
"""

from mqttlite.extensions.streams.history import ReadEntries, first_since
from mqttlite.extensions.streams.position import Start, parse_position
from mqttlite.extensions.streams.service import Streams


async def offsets_at(streams: Streams, name: str, text: str, entries: ReadEntries) -> list[int]:
    """The offset of each partition that a position means: of a time, that of the first message that was published then
    or later. Raises `NoSuchStream`, and `ValueError` for what is no position of the stream."""
    position = parse_position(text)
    found: list[int] = []
    given = dict(position.offsets)
    partitions = streams.partitions(name)
    for number, partition in enumerate(partitions):
        if number in given:
            found.append(min(given.pop(number), partition.end))
        elif position.start is Start.TIME:
            found.append(await first_since(partition, position.time_us, entries))
        else:
            found.append(partition.first if position.start is Start.EARLIEST else partition.end)
    if given:
        raise ValueError(f"{name} has the partitions 0 to {len(partitions) - 1}")
    return found


def text_of(offsets: list[int]) -> str:
    """Offsets by partition, as positions are written: `0:17,1:22`."""
    return ",".join(f"{partition}:{offset}" for partition, offset in enumerate(offsets))
