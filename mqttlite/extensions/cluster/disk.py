"""The data directory of a machine: its database, which is the picture of the log."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from mqttlite.atomic_file import save
from mqttlite.core.changes import Change
from mqttlite.core.log_changes import LOG_MARK, SaveRecord
from mqttlite.core.message import Delivery
from mqttlite.core.question import Entries
from mqttlite.extensions.cluster.options import MARK_FILE
from mqttlite.store.sqlite.backup import back_up, restore
from mqttlite.store.sqlite.files import DATABASE, remove
from mqttlite.store.sqlite.store import SqliteStore

POSITION: Final = LOG_MARK + "cluster/position"
"""The record with the sequence in the log of the last record in the database, in decimal digits."""

MARK: Final = b"The database here is that of a machine of a cluster.\n"

SNAPSHOT_FILE: Final = "cluster-snapshot"
"""A snapshot on its way to or from the engine."""


class Database(Protocol):
    """An open database. See `SqliteStore`."""

    def commit(self, changes: list[Change]) -> "asyncio.Future[None]": ...

    def page(self, key: str, first: int, count: int) -> "asyncio.Future[list[Delivery | None]]": ...

    def entries(self, key: str, first: int, end: int, count: int) -> "asyncio.Future[Entries]": ...

    def load(self) -> Iterator[list[Change]]: ...

    def record(self, key: str) -> bytes | None: ...

    def checkpoint(self) -> "asyncio.Future[bool]": ...

    def close(self) -> None: ...


class Disk(Protocol):
    """Where a machine keeps what it has. Its methods raise `OSError`."""

    @property
    def name(self) -> str:
        """What an operator calls it."""
        ...

    @property
    def snapshot_file(self) -> Path:
        """Where a snapshot is kept on its way to or from the engine."""
        ...

    @property
    def is_marked(self) -> bool:
        """Whether it is known as that of a machine, so that nobody else wrote to it."""
        ...

    def mark(self) -> None:
        """Let it be known as that of a machine."""
        ...

    def open(self) -> Database:
        """Open the database, or make it."""
        ...

    async def close(self, database: Database) -> None:
        """Write what is still to be written, and close it."""
        ...

    async def copy(self) -> None:
        """Copy the state of the database to `snapshot_file` while it is open."""
        ...

    async def replace(self) -> None:
        """Put the database in `snapshot_file` in the place of the one that is there, which is not open."""
        ...


class DataDirectory:
    """Implements `Disk` with SQLite."""

    def __init__(self, directory: Path) -> None:
        self._directory: Final = directory
        self.name: Final = str(directory)
        self.snapshot_file: Final = directory / SNAPSHOT_FILE

    @property
    def is_marked(self) -> bool:
        return (self._directory / MARK_FILE).exists()

    def mark(self) -> None:
        if not self.is_marked:
            save(self._directory / MARK_FILE, MARK)

    def open(self) -> SqliteStore:
        """Raises `StoreError` for a directory that is unusable or in use."""
        return SqliteStore(self._directory, is_picture=True)

    async def close(self, database: Database) -> None:
        await asyncio.to_thread(database.close)

    async def copy(self) -> None:
        for leftover in (self.snapshot_file, self.snapshot_file.with_name(SNAPSHOT_FILE + ".new")):
            leftover.unlink(missing_ok=True)
        await asyncio.to_thread(back_up, self._directory, self.snapshot_file, with_files=False)

    async def replace(self) -> None:
        remove(self._directory / DATABASE)
        await asyncio.to_thread(restore, self.snapshot_file, self._directory)


def position_of(database: Database) -> int | None:
    """How far a database has the log; None if it never had a log."""
    found = database.record(POSITION)
    return None if found is None else int(found)


def position_change(sequence: int) -> SaveRecord:
    """The change that notes in a database how far it has the log."""
    return SaveRecord(POSITION, b"%d" % sequence)


def is_empty(database: Database) -> bool:
    """Whether a database has no state at all."""
    return not any(list(database.load()))
