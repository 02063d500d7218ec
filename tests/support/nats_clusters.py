"""Clusters of tests on NATS servers. Apart from `nats_servers`, because this needs nats-py."""

import asyncio
from dataclasses import replace
from itertools import count
from typing import Final

import msgspec

from mqttlite.engine.nats.connection import NatsConnection, connect
from mqttlite.engine.nats.engine import NatsEngine
from mqttlite.engine.nats.servers import NatsLogin, NatsOptions
from mqttlite.engine.port import EngineUnavailable
from tests.support.nats_servers import NatsServers

NUMBERS: Final = count(1)
MAX_FILE_BYTES: Final = 256 * 1024 * 1024
OPEN_S: Final = 60.0


class _Names(msgspec.Struct):
    streams: list[str] | None = None


def options_of(servers: NatsServers) -> NatsOptions:
    """The options of a cluster that nobody has used."""
    return NatsOptions(
        servers.urls,
        f"test-{next(NUMBERS)}",
        max_file_bytes=MAX_FILE_BYTES,
        monitoring=tuple(f"http://127.0.0.1:{port}" for port in servers.monitoring),
    )


async def open_engine(options: NatsOptions, first: int = 0) -> NatsEngine:
    """Open it as soon as the servers have found each other; connect to server `first` if it is there."""
    urls = options.servers[first:] + options.servers[:first]
    async with asyncio.timeout(OPEN_S):
        while True:
            try:
                return await NatsEngine.open(replace(options, servers=urls))
            except EngineUnavailable:
                await asyncio.sleep(0.2)


async def delete_key(options: NatsOptions, key: str, revision: int) -> None:
    """Delete a key as NATS's own tools do, if it has this revision."""
    connection = await connect(options, NatsLogin())
    headers = {"KV-Operation": "DEL", "Nats-Expected-Last-Subject-Sequence": str(revision)}
    await connection.store(f"$KV.{options.cluster}.{key}", b"", headers)
    await connection.close()


async def forget_cluster(options: NatsOptions) -> None:
    """Delete the streams of a cluster."""
    connection = await connect(options, NatsLogin())
    for name in await _streams(connection, options.cluster):
        await connection.ask_api(f"STREAM.DELETE.{name}", {}, msgspec.Raw)
    await connection.close()


async def streams_of(options: NatsOptions) -> list[str]:
    """The names of the streams of a cluster."""
    connection = await connect(options, NatsLogin())
    try:
        return await _streams(connection, options.cluster)
    finally:
        await connection.close()


async def _streams(connection: NatsConnection, cluster: str) -> list[str]:
    names = (await connection.ask_api("STREAM.NAMES", {}, _Names)).streams or []
    return [each for each in names if each.startswith(f"{cluster}-log-") or each in (f"KV_{cluster}", f"OBJ_{cluster}")]
