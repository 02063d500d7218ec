"""The data directory of a machine: its database, which is the picture of the log."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from mqttlite.core.changes import Change
from mqttlite.core.log_changes import LOG_MARK, SaveRecord
from mqttlite.core.message import Delivery
from mqttlite.core.question import Entries
from mqttlite.extensions.cluster.options import MARK_FILE
from mqttlite.files.atomic_file import save
from mqttlite.store.sqlite.backup import back_up, restore
from mqttlite.store.sqlite.files import DATABASE, DamagedPicture, put_aside, remove
from mqttlite.store.sqlite.store import SqliteStore

POSITION: Final = LOG_MARK + "cluster/position"
"""The record with the `Position` of a database."""

MARK: Final = b"The database here is that of a machine of a cluster.\n"

SNAPSHOT_FILE: Final = "cluster-snapshot"
"""A snapshot on its way to or from the engine."""


class DamagedError(OSError):
    """A database lacks what it should have: a snapshot, and the log behind it, have all of it."""


class Position(NamedTuple):
    """How far a database has a log."""

    sequence: int
    """Of the last record in it."""
    log_id: str
    """The name of the log (`keys.log_id`)."""

    def change(self) -> SaveRecord:
        """The change that notes it in the database."""
        return SaveRecord(POSITION, f"{self.sequence} {self.log_id}".encode())


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
        """Open the database, or make it. Raises `DamagedError`."""
        ...

    def put_aside(self) -> None:
        """Keep a damaged database under another name."""
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
        self._is_read = False
        """Whether the database was read as a whole since this machine started."""

    @property
    def is_marked(self) -> bool:
        return (self._directory / MARK_FILE).exists()

    def mark(self) -> None:
        if not self.is_marked:
            save(self._directory / MARK_FILE, MARK)

    def open(self) -> SqliteStore:
        """Raises `StoreError` for a directory that is unusable or in use.

        The first time it is read as a whole: what is damaged must not be found when this machine serves.
        """
        try:
            database = SqliteStore(self._directory, is_picture=True)
        except DamagedPicture as error:
            raise DamagedError(str(error)) from None
        if not self._is_read:
            try:
                for _ in database.load():
                    pass
            except DamagedPicture as error:
                database.close()
                raise DamagedError(str(error)) from None
            if database.lost:
                database.close()
                raise DamagedError(f"{database.lost} things in it cannot be read")
            self._is_read = True
        return database

    def put_aside(self) -> None:
        put_aside(self._directory / DATABASE)

    async def close(self, database: Database) -> None:
        await asyncio.to_thread(database.close)

    async def copy(self) -> None:
        for leftover in self._directory.glob(f"{SNAPSHOT_FILE}*"):  # of this one, or of a transfer to this machine
            leftover.unlink(missing_ok=True)
        await asyncio.to_thread(back_up, self._directory, self.snapshot_file, with_files=False)

    async def replace(self) -> None:
        remove(self._directory / DATABASE)
        await asyncio.to_thread(restore, self.snapshot_file, self._directory)
        self._is_read = False


def position_of(database: Database) -> Position | None:
    """How far a database has its log; None if it never had one. Raises `DamagedError`."""
    found = database.record(POSITION)
    if found is None:
        return None
    sequence, _, log_id = found.decode(errors="replace").partition(" ")
    if not sequence.isdecimal():
        raise DamagedError("its position in the log cannot be read")
    return Position(int(sequence), log_id)


def is_empty(database: Database) -> bool:
    """Whether a database has no state at all."""
    return not any(list(database.load()))
