"""A broker of a configuration file whose commits take a while, so that a kill comes before many of them.

Run as `python -m tests.support.slow_broker FILE`. It prints its port when it is ready.
"""

import asyncio
import sys

from mqttlite.config.file import load_config
from mqttlite.server import Broker
from tests.support.bridge import slow_down_the_disk


async def main(path: str) -> None:
    """Run until the kill."""
    slow_down_the_disk()
    async with Broker(load_config(path)) as broker:
        print(broker.port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
