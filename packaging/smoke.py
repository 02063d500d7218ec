"""Checks an installed mqttlite: `python smoke.py compiled` or `python smoke.py pure`, wherever the sources are not.

A client sends itself a message of each QoS through a broker. The exit code is 0 if all of them come back.
"""

import asyncio
import sys

from mqttlite import Broker, Client
from mqttlite.build import VERSION, is_compiled

LIMIT_S = 30.0


async def exchange() -> None:
    """Publish to ourselves. Raises `AssertionError` for a wrong message, and `TimeoutError` for a missing one."""
    async with asyncio.timeout(LIMIT_S), Broker(port=0) as broker, Client("127.0.0.1", broker.port) as client:
        await client.subscribe("smoke/#", qos=2)
        for qos in (0, 1, 2):
            await client.publish(f"smoke/{qos}", f"payload {qos}", qos=qos)
            message = await anext(client.messages)
            assert (message.topic, message.payload) == (f"smoke/{qos}", f"payload {qos}".encode()), message


def main() -> None:
    wanted = sys.argv[1]
    found = "compiled" if is_compiled() else "pure"
    if found != wanted:
        sys.exit(f"smoke.py: this mqttlite is the {found} build, not the {wanted} one")
    asyncio.run(exchange())
    print(f"mqttlite {VERSION}, the {found} build, delivers messages.")


if __name__ == "__main__":
    main()
