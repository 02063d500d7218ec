"""`Standby` follows the log into the database of this machine, until this machine serves."""

from collections.abc import Callable
from typing import Final

from mqttlite.engine.port import Engine
from mqttlite.extensions.cluster.codec import decode
from mqttlite.extensions.cluster.disk import Database, Position
from mqttlite.extensions.cluster.picture import Picture
from mqttlite.extensions.cluster.record import Assembler, Begin
from mqttlite.store.sqlite.records import wall_offset


class SnapshotNeeded(Exception):
    """The log does not have what the database lacks."""


class ForeignDataError(Exception):
    """The database does not belong to this log, in a sentence."""


class Standby:
    """Of the machine `node`, whose `database` has the log up to `position`. `on_begin` is called with the sequence and
    machine of each `Begin`."""

    def __init__(
        self,
        engine: Engine,
        log: str,
        database: Database,
        position: Position,
        node: str,
        is_seed: bool,
        on_begin: Callable[[int, str], None],
    ) -> None:
        self._engine: Final = engine
        self._log_name: Final = log
        self._on_begin: Final = on_begin
        self.picture: Final = Picture(database, position)
        self._node: Final = node
        self.is_seed: Final = is_seed
        """Whether the database has something that the log never had."""

    async def follow(self) -> None:
        """Follow the log until it is cancelled. Raises `SnapshotNeeded`, `DamagedError`, `ForeignDataError`, and
        `CodecError` for a record that this version cannot read."""
        last = self.picture.position
        assembler = Assembler()
        records = self._engine.follow(self._log_name, last + 1)
        try:
            async for record in records:
                if record.sequence != last + 1:
                    raise SnapshotNeeded
                last = record.sequence
                found = assembler.add(last, record.blob)
                if isinstance(found, Begin):
                    if self.is_seed and found.node != self._node:
                        raise ForeignDataError("has data of a broker alone, and another machine has begun the cluster")
                    if found.is_seed and not self.is_seed:
                        raise SnapshotNeeded
                    self._on_begin(last, found.node)
                    self.picture.add([], last, 0)
                elif found is not None:
                    await self.picture.has_room()
                    self.picture.add(decode(found.data, wall_offset()), last, len(found.data))
        finally:
            await records.aclose()
