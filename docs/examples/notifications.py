"""Notifications: one event goes to several channels, each of which takes what concerns it, and sends it once.

mqttlite serve --config docs/examples/broker.toml
python docs/examples/notifications.py
"""

import asyncio
import json
import sys

from mqttlite.client import Client, IdempotentHandler, Properties, QueueMessage

EVENTS = [
    ("mail", {"to": "ann", "text": "your invoice", "urgent": False}),
    ("sms", {"to": "bob", "text": "the door is open", "urgent": True}),
    ("sms", {"to": "bob", "text": "the door is closed", "urgent": False}),  # the queue's filter leaves it out
    ("mail", {"to": "cleo", "text": "your parcel", "urgent": False}),
]
sent: list[str] = []


async def channel(client: Client, name: str, count: int) -> None:
    """Send the next notifications of a channel."""

    async def send(message: QueueMessage) -> None:
        event = json.loads(message.payload)
        sent.append(f"{name} to {event['to']}: {event['text']}")

    once = IdempotentHandler(send)  # with SqliteSeen("seen.db") also over a restart
    async with client.queue(name) as queue:
        while count:
            message = await anext(queue)
            if await once(message):
                count -= 1
            message.ack()


async def main(port: int) -> None:
    async with Client("localhost", port) as client:
        for kind, event in EVENTS:
            properties = Properties(content_type="application/json", user_properties=[("channel", kind)])
            await client.publish(f"notify/{event['to']}", json.dumps(event), qos=1, properties=properties)
        async with asyncio.timeout(30), asyncio.TaskGroup() as channels:
            channels.create_task(channel(client, "mail", 2))
            channels.create_task(channel(client, "sms", 1))
    print(*sorted(sent), sep="\n")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1883))
