"""Order events: the events of one order are handled in their order, those of different orders at the same time; and an
event that cannot be handled becomes a dead letter, behind which its order goes on.

    mqttlite serve --config docs/examples/broker.toml
    python docs/examples/order_events.py
"""

import asyncio
import logging
import sys
from collections import defaultdict

from mqttlite.client import Client, Properties, QueueMessage

STEPS = ("created", "paid", "shipped")
ORDERS = ("1001", "1002", "1003")
POISON = ("1002", "paid")
handled: defaultdict[str, list[str]] = defaultdict(list)


async def handle(message: QueueMessage) -> None:
    order, step = message.ordering_key, message.payload.decode()
    if (order, step) == POISON:
        raise ValueError("an amount that is no number")
    await asyncio.sleep(0.01)
    handled[order].append(step)


async def main(port: int) -> None:
    async with Client("localhost", port) as client:
        await client.subscribe("$dlq/orders", qos=1)
        for step in STEPS:
            for order in ORDERS:
                key = Properties(user_properties=[("ordering-key", order)])
                await client.publish(f"orders/{order}", step, qos=1, properties=key)
        queue = client.queue("orders")
        work = asyncio.create_task(queue.run(handle, concurrency=10))
        async with asyncio.timeout(30):
            letter = await anext(client.messages)
            while sum(map(len, handled.values())) < len(STEPS) * len(ORDERS) - 1:
                await asyncio.sleep(0.01)
        queue.stop()
        await work
    for order in ORDERS:
        print(order, *handled[order])
    told = dict(letter.properties.user_properties)
    print(f"dead letter: {letter.payload.decode()} of {told['original-topic']}, {told['delivery-attempts']} attempts")


if __name__ == "__main__":
    logging.getLogger("mqttlite.client").setLevel(logging.CRITICAL)  # the traceback of what we know to fail
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1883))
