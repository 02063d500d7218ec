"""Snapshots: a copy of a database in the engine, from which a machine starts that the log alone cannot help."""

import secrets
import time

from mqttlite.engine.port import Engine, RevisionConflict
from mqttlite.extensions.cluster import keys, status
from mqttlite.extensions.cluster.disk import Disk


async def make(engine: Engine, disk: Disk, position: int) -> None:
    """Copy the database, which has the log at least up to `position`, to the engine. Raises `OSError` and
    `EngineError`.

    The file has a name of its own, and the key names it last: who lost the log meanwhile replaces nothing.
    """
    before = await _latest(engine)
    name = f"snapshot-{position}-{secrets.token_hex(4)}"
    try:
        await disk.copy()
        await engine.put_file(name, disk.snapshot_file)
        value = status.encode(status.SnapshotStatus(file=name, position=position, at=time.time()))
        try:
            await engine.put(keys.SNAPSHOT, value, 0 if before is None else before[1])
        except RevisionConflict:
            await engine.delete_file(name)
            raise
        if before is not None:
            await engine.delete_file(before[0].file)
    finally:
        disk.snapshot_file.unlink(missing_ok=True)


async def position_of(engine: Engine) -> int:
    """How far the engine's snapshot has the log at least; 0 if there is none. Raises `EngineError`."""
    found = await _latest(engine)
    return 0 if found is None else found[0].position


async def fetch(engine: Engine, disk: Disk) -> None:
    """Put the engine's snapshot in the place of the database, which is older. Raises `OSError` and `EngineError`."""
    found = await _latest(engine)
    if found is None:
        raise FileNotFoundError("the engine has no snapshot")
    try:
        await engine.get_file(found[0].file, disk.snapshot_file)
        await disk.replace()
    finally:
        disk.snapshot_file.unlink(missing_ok=True)


async def _latest(engine: Engine) -> tuple[status.SnapshotStatus, int] | None:
    """The snapshot, and the revision of its key."""
    entry = await engine.get(keys.SNAPSHOT)
    found = None if entry is None else status.decode_snapshot(entry.value)
    return None if entry is None or found is None else (found, entry.revision)
