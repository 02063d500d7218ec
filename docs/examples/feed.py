"""The feed of an account with a million followers: a post is fanned out in parts, which four workers share.

The post becomes one message for each thousand followers. They are in the four partitions of a stream, and each worker
of the group has one of these: four times the workers, a quarter of the time. A worker that ends hands its partition on,
with the parts that it did not commit, and a part that is done twice changes nothing.

    mqttlite serve --config docs/examples/broker.toml
    python docs/examples/feed.py
"""

import asyncio
import sys
from array import array
from collections import Counter
from contextlib import AsyncExitStack

from mqttlite.client import Client, Group

FOLLOWERS = 1_000_000
PART = 1_000
WORKERS = 4
POST = 17

newest = array("Q", bytes(8 * FOLLOWERS))
"""Of each follower, the newest post in the feed; a database in earnest."""
parts: Counter[int] = Counter()
done_by: Counter[int] = Counter()
done = asyncio.Event()


async def work(number: int, group: Group) -> None:
    async for message in group:
        post, part = map(int, message.payload.split())
        for follower in range(part * PART, (part + 1) * PART):
            newest[follower] = max(newest[follower], post)
        message.commit()
        parts[part] += 1
        done_by[number] += 1
        if len(parts) == FOLLOWERS // PART:
            done.set()


async def main(port: int) -> None:
    async with AsyncExitStack() as open_ones:
        clients = [await open_ones.enter_async_context(Client("localhost", port)) for _ in range(WORKERS)]
        groups = [await open_ones.enter_async_context(each.group("fan-out", "feed")) for each in clients]
        workers = [asyncio.create_task(work(number, group)) for number, group in enumerate(groups)]
        async with Client("localhost", port) as author:
            feed = author.stream("feed")
            for first in range(0, FOLLOWERS // PART, 100):
                several = range(first, first + 100)
                await asyncio.gather(*(feed.append(f"{POST} {part}", key=str(part)) for part in several))
        async with asyncio.timeout(60):
            await done.wait()
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    print(f"{sum(each == POST for each in newest)} followers have the post, from {len(done_by)} workers")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1883))
