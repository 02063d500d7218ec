"""Log aggregation: devices publish what they have to say to plain topics; a queue keeps what is a problem, and an
aggregator takes it in batches, which it acknowledges when they are stored.

    mqttlite serve --config docs/examples/broker.toml
    python docs/examples/log_aggregation.py
"""

import asyncio
import json
import logging
import sys
from collections import Counter

from mqttlite.client import Client, Queue, QueueMessage

DEVICES = 5
LINES = 40
BATCH = 10
LEVELS = (logging.DEBUG, logging.INFO, logging.INFO, logging.ERROR)


async def device(name: str, port: int) -> None:
    async with Client("localhost", port, client_id=name) as client:
        lines = [json.dumps({"level": LEVELS[at % len(LEVELS)], "text": f"line {at}"}) for at in range(LINES)]
        outcomes = [await client.submit(f"logs/{name}", line, qos=1) for line in lines]
        await asyncio.gather(*outcomes)


async def batch(queue: Queue) -> list[QueueMessage]:
    """The next messages: as many as there are, `BATCH` at most."""
    messages = [await anext(queue)]
    while len(messages) < BATCH and len(queue):
        messages.append(await anext(queue))
    return messages


async def main(port: int) -> None:
    problems: Counter[str] = Counter()
    async with asyncio.TaskGroup() as devices:
        for number in range(DEVICES):
            devices.create_task(device(f"device-{number}", port))
    async with (
        asyncio.timeout(30),
        Client("localhost", port, receive_maximum=BATCH) as client,
        client.queue("problems") as queue,
    ):
        while problems.total() < DEVICES * LINES // len(LEVELS):
            messages = await batch(queue)
            problems.update(message.topic.removeprefix("logs/") for message in messages)  # here one would store them
            for message in messages:
                message.ack()
    for name, count in sorted(problems.items()):
        print(f"{name}: {count} problems in {LINES} lines")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1883))
