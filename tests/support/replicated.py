"""A replicated store, and a machine that follows its log into a database of its own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from itertools import cycle
from pathlib import Path
from typing import Final

from mqttlite.core.changes import Change
from mqttlite.core.message import Delivery
from mqttlite.core.question import Entries
from mqttlite.engine.memory import MemoryServers
from mqttlite.engine.port import Engine
from mqttlite.extensions.cluster.disk import DataDirectory, Position, position_of
from mqttlite.extensions.cluster.picture import Picture
from mqttlite.extensions.cluster.record import encode_begin
from mqttlite.extensions.cluster.replicated_store import ReplicatedStore
from mqttlite.extensions.cluster.standby import Standby

LOG: Final = "log"
START: Final = Position(0, "id")
LOG_BYTES: Final = 1 << 30


class Pair:
    """A `Store` that commits on one machine, and is read on the one that follows."""

    pages: Final = True

    def __init__(self, leader: ReplicatedStore, standby: Standby) -> None:
        self.leader: Final = leader
        self.standby: Final = standby
        self._following: Final = asyncio.get_running_loop().create_task(standby.follow())

    def commit(self, changes: list[Change]) -> "asyncio.Task[None]":
        return asyncio.get_running_loop().create_task(self._commit(changes))

    def load(self) -> Iterator[list[Change]]:
        return self.standby.picture.load()

    def page(self, key: str, first: int, count: int) -> "asyncio.Future[list[Delivery | None]]":
        return self.standby.picture.page(key, first, count)

    def entries(self, key: str, first: int, end: int, count: int) -> "asyncio.Future[Entries]":
        return self.standby.picture.entries(key, first, end, count)

    async def close(self) -> None:
        self._following.cancel()
        await asyncio.wait([self._following])
        await self.standby.picture.close()

    async def _commit(self, changes: list[Change]) -> None:
        await self.leader.commit(changes)
        await self.standby.picture.reached(self.leader.sequence)


async def begin(engine: Engine, node: str = "a") -> int:
    """Begin to write the log; return the sequence of the `Begin`."""
    last = (await engine.bounds(LOG)).last
    return await engine.append(LOG, last, encode_begin(last, node, False))


@contextlib.asynccontextmanager
async def replicated(directory: Path) -> AsyncIterator[Pair]:
    servers = MemoryServers()
    engine = servers.connect()
    await engine.ensure_log(LOG, LOG_BYTES)
    disks = DataDirectory(directory / "a"), DataDirectory(directory / "b")
    databases = [each.open() for each in disks]
    leader = ReplicatedStore(engine, LOG, Picture(databases[0], START), await begin(engine), lambda: None)
    pair = Pair(leader, Standby(servers.connect(), LOG, databases[1], START, "b", False, lambda _at, _node: None))
    try:
        yield pair
    finally:
        await pair.close()
        await leader.picture.close()
        for disk, database in zip(disks, databases, strict=True):
            await disk.close(database)


class Succession:
    """Two machines that serve in turn, each with a database of its own: the stores of their brokers."""

    def __init__(self, directory: Path) -> None:
        self._engine: Final = MemoryServers().connect()
        self._disks: Final = cycle(DataDirectory(directory / name) for name in "ab")

    @contextlib.asynccontextmanager
    async def next(self) -> AsyncIterator[ReplicatedStore]:
        """The store of the next machine, which has the log up to its own begin."""
        await self._engine.ensure_log(LOG, LOG_BYTES)
        disk = next(self._disks)
        begun = await begin(self._engine, disk.name)
        database = disk.open()
        position = position_of(database) or START
        standby = Standby(self._engine, LOG, database, position, disk.name, False, lambda _at, _node: None)
        following = asyncio.get_running_loop().create_task(standby.follow())
        await standby.picture.reached(begun)
        following.cancel()
        await asyncio.wait([following])
        await standby.picture.close()
        await disk.close(database)
        database = disk.open()
        picture = Picture(database, Position(begun, START.log_id))
        try:
            yield ReplicatedStore(self._engine, LOG, picture, begun, lambda: None)
        finally:
            await picture.close()
            await disk.close(database)
