"""Several workers in one process and on one loop, for tests that speak to them over sockets as to one broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

from mqttlite.cli.workers import reserved
from mqttlite.cluster.membership import memberships
from mqttlite.config import Config
from mqttlite.server import Broker


@asynccontextmanager
async def crew(
    config: Config, count: int = 2, *, apart: bool = False, **options: object
) -> AsyncIterator[list[Broker]]:
    """Workers that share the ports of a config; `options` are those of `Broker`.

    `apart`: where the config lets the system choose a port, each has its own, so that a test chooses the worker.
    """
    with nullcontext(config) if apart else reserved(config) as config:
        brokers = [
            Broker(config, membership=membership, **options)  # type: ignore[arg-type]
            for membership in memberships(count)
        ]
        try:
            async with asyncio.TaskGroup() as group:
                for broker in brokers:
                    group.create_task(broker.start())
            yield brokers
        finally:
            await asyncio.gather(*[broker.stop() for broker in brokers])
