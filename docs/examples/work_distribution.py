"""Work distribution: jobs go to whichever worker has room, and a job that fails comes again.

mqttlite serve --config docs/examples/broker.toml
python docs/examples/work_distribution.py
"""

import asyncio
import sys
from collections import Counter

from mqttlite.client import Client, QueueMessage

JOBS = 20
done: Counter[str] = Counter()
finished = asyncio.Event()


def resize(message: QueueMessage) -> None:
    """A handler that blocks, as most libraries do: it runs in a thread."""
    if message.payload == b"picture 7" and message.attempt == 1:
        raise RuntimeError("the disk was full for a moment")


async def worker(name: str, port: int) -> None:
    async with Client("localhost", port, receive_maximum=2) as client:  # two jobs at a time, the others go elsewhere
        queue = client.queue("jobs")

        async def handle(message: QueueMessage) -> None:
            await asyncio.to_thread(resize, message)
            done[name] += 1
            if done.total() == JOBS:
                finished.set()

        work = asyncio.create_task(queue.run(handle, concurrency=2))
        await finished.wait()
        queue.stop()
        await work


async def main(port: int) -> None:
    async with Client("localhost", port) as client:
        for number in range(JOBS):
            await client.publish("work/resize", f"picture {number}", qos=1)
    async with asyncio.timeout(30), asyncio.TaskGroup() as workers:
        for name in ("Ann", "Bob"):
            workers.create_task(worker(name, port))
    print(f"{done.total()} jobs done by {len(done)} workers")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1883))
