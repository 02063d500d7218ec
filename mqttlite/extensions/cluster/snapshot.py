"""Snapshots: a copy of a database in the engine, from which a machine starts that the log alone cannot help."""

import time

from mqttlite.extensions.cluster import keys, status
from mqttlite.extensions.cluster.disk import Disk
from mqttlite.extensions.cluster.engine.port import Engine


async def make(engine: Engine, disk: Disk, position: int) -> None:
    """Copy the database, which has the log at least up to `position`, to the engine. Raises `OSError` and
    `EngineError`."""
    try:
        await disk.copy()
        await engine.put_file(keys.SNAPSHOT, disk.snapshot_file)
        entry = await engine.get(keys.SNAPSHOT)
        value = status.encode(status.SnapshotStatus(position=position, at=time.time()))
        await engine.put(keys.SNAPSHOT, value, 0 if entry is None else entry.revision)
    finally:
        disk.snapshot_file.unlink(missing_ok=True)


async def position_of(engine: Engine) -> int:
    """How far the engine's snapshot has the log at least; 0 if there is none. Raises `EngineError`."""
    entry = await engine.get(keys.SNAPSHOT)
    found = None if entry is None else status.decode_snapshot(entry.value)
    return 0 if found is None else found.position


async def fetch(engine: Engine, disk: Disk) -> None:
    """Put the engine's snapshot in the place of the database, which is older. Raises `OSError` and `EngineError`."""
    try:
        await engine.get_file(keys.SNAPSHOT, disk.snapshot_file)
        await disk.replace()
    finally:
        disk.snapshot_file.unlink(missing_ok=True)
