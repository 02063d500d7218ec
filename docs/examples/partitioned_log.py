"""A partitioned log: a stream with three partitions, messages of two keys, a group of two members that share the
partitions, and the offsets where the group goes on after a restart.

    mqttlite serve --config docs/examples/broker.toml
    python docs/examples/partitioned_log.py
"""

import asyncio
import sys
from collections import defaultdict

from mqttlite.client import Client, Group, StreamMessage

KEYS = ("ann", "bob")
STEPS = ("cart", "order", "payment")
by_key: defaultdict[str, list[StreamMessage]] = defaultdict(list)


async def consume(group: Group) -> None:
    async for message in group:
        by_key[message.key].append(message)
        message.commit()
        if sum(map(len, by_key.values())) == len(KEYS) * len(STEPS):
            return


async def main(port: int) -> None:
    async with Client("localhost", port, client_id="publisher") as client:
        log = client.stream("visits")
        for step in STEPS:
            for key in KEYS:
                await log.append(f"{key}: {step}", key=key)

    async with (
        Client("localhost", port) as first,
        Client("localhost", port) as second,
        first.group("emails", "visits") as ours,
        second.group("emails", "visits") as theirs,
    ):
        members = [asyncio.create_task(consume(each)) for each in (ours, theirs)]
        async with asyncio.timeout(30):
            await asyncio.wait(members, return_when=asyncio.FIRST_COMPLETED)
        for each in members:
            each.cancel()
        await asyncio.gather(*members, return_exceptions=True)

    for key in KEYS:
        partitions = {message.partition for message in by_key[key]}
        offsets = [message.offset for message in by_key[key]]
        print(f"{key} is in one partition: {len(partitions) == 1}; in order: {offsets == sorted(offsets)}")
        print(*[message.payload.decode() for message in by_key[key]], sep=", ")

    async with Client("localhost", port) as client, client.group("emails", "visits") as group:
        await client.stream("visits").append("ann: refund", key="ann")
        async with asyncio.timeout(30):
            message = await anext(group)
        behind = message.offset - by_key["ann"][-1].offset
        print(f"after the restart, {behind} offset on: {message.payload.decode()}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1883))
