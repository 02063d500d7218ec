"""Many readers of a stream, in a process of their own (`python -m bench.log_readers`) that is less urgent than the
broker.

Invariant: it reads, over 3.1.1 at QoS 1, until its standard input ends; then it prints how many messages it had.
"""

import asyncio
import os
import random
import sys
from functools import partial
from typing import Final

from bench.counting import Reader

NICE: Final = 10
"""Readers of old messages are not to take the processor from the broker and from the reader at the head, whose time is
measured."""


def _same(reader: Reader) -> Reader:
    return reader


async def main(port: int, stream: str, partitions: int, end: int, readers: int, topic: str, size: int) -> None:
    """So many readers, each from a random offset below `end` in each partition on."""
    os.nice(NICE)
    total = 0

    def count(more: int) -> None:
        nonlocal total
        total += more

    loop, places = asyncio.get_running_loop(), random.Random(1)
    for number in range(readers):
        positions = ",".join(f"{each}:{places.randrange(end)}" for each in range(partitions))
        reader = Reader(f"old{number}", f"$stream/{stream}@{positions}".encode(), 1, topic.encode(), size, count)
        await loop.create_connection(partial(_same, reader), "127.0.0.1", port)
    print("reading", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    print(total, flush=True)


if __name__ == "__main__":
    _, _port, _stream, _partitions, _end, _readers, _topic, _size = sys.argv
    asyncio.run(main(int(_port), _stream, int(_partitions), int(_end), int(_readers), _topic, int(_size)))
