"""The files of a data directory: its lock and its database. Creates, opens and quarantines the database.

A new database is created under a temporary name and renamed when it is complete. Invariant: while a broker holds the
lock, only its connection writes or checkpoints (SQLite before 3.51.3 can corrupt a database with two); backups only
read.
"""

import contextlib
import logging
import os
import shutil
import sqlite3
import stat
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

from mqttlite.store.sqlite.schema import ADDED, APPLICATION_ID, INDEXES, SCHEMA_VERSION, TABLES

DATABASE: Final = "mqttlite.db"
LOCK: Final = "mqttlite.lock"

JOURNAL_BYTES: Final = 64 * 1_048_576
"""A longer journal (WAL) is truncated to this when it restarts."""

BUSY_MS: Final = 1_000
"""How long the opening of a database waits for a backup that reads it."""

SHRINKABLE: Final = "PRAGMA auto_vacuum = INCREMENTAL"
"""Said before a database is made, or copied: it can be shrunk in parts."""

CACHE_KIB: Final = 16_384
"""Pages of the database that SQLite keeps in memory."""

SALVAGED: Final = ".salvaged"
"""The suffix of a salvaged database that replaces a damaged one."""

TAKEN: Final = "give this broker another with --data-dir, or --no-persistence"
"""The advice for a broker whose data directory is in use."""

FOREIGN: Final = "choose another folder with --data-dir"
"""The advice if the database is not ours."""

_NO_SHARED_MEMORY: Final = (
    sqlite3.SQLITE_IOERR_SHMOPEN,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_SHMMAP,
    sqlite3.SQLITE_CANTOPEN,
)

_DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


_log = logging.getLogger("mqttlite.store")


class StoreError(OSError):
    """A data directory is unusable; the text says what to do."""


class NoRoom(StoreError):
    """The disk has no room to open the database now."""


class DamagedPicture(StoreError):
    """The database is damaged, and there are other copies of it: it is not put together again."""


class NewerSchema(StoreError):
    """A newer version of mqttlite wrote the database."""


def cannot_open(path: Path, error: sqlite3.Error) -> StoreError:
    """An error of SQLite as one of the data directory."""
    kind = NoRoom if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL else StoreError
    return kind(f"{path} cannot be opened: {error}")


def is_damage(error: BaseException) -> bool:
    """Whether an error of SQLite means that the file is damaged."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, sqlite3.DatabaseError) and code is not None and code & 0xFF in _DAMAGE


def make_directory(directory: Path) -> None:
    """Create a missing data directory, accessible only by its owner, and sync it. Raises `StoreError`."""
    try:
        missing = [each for each in (directory, *directory.parents) if not each.exists()]
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for each in missing:
            sync(each.parent)
        mode = stat.S_IMODE(directory.stat().st_mode)
    except OSError as error:
        raise StoreError(f"the data directory {directory} cannot be made: {error.strerror or error}") from None
    if mode & 0o007 and sys.platform != "win32":
        _log.warning(
            "the data directory %s is open to every user of this machine (mode %03o): chmod 700", directory, mode
        )


def protect(path: Path) -> None:
    """Let only the owner read the database and its journal. SQLite gives the journal the mode of the database."""
    for each in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            if each.stat().st_mode & 0o077:
                each.chmod(0o600)


class Lock:
    """The lock of a data directory. The system releases it when the process ends."""

    def __init__(self, directory: Path, remedy: str = TAKEN) -> None:
        """Raises `StoreError` if another process holds it; `remedy` is the advice for this case."""
        path = directory / LOCK
        try:
            self._file: Final[IO[str]] = open(path, "a+", encoding="ascii")  # noqa: SIM115 held until `release`
        except OSError as error:
            raise StoreError(f"{path} cannot be opened: {error.strerror or error}") from None
        try:
            _lock(self._file)
        except OSError:
            self._file.seek(0)
            owner = self._file.read().strip()
            self._file.close()
            raise StoreError(
                f"the data directory {directory} is in use{f' by process {owner}' if owner else ''}: {remedy}"
            ) from None
        with contextlib.suppress(OSError):  # a full disk: the lock holds without the number, too
            self._file.truncate(0)
            self._file.write(f"{os.getpid()}\n")
            self._file.flush()

    def release(self) -> None:
        """Let another broker use the directory."""
        self._file.close()


if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[str]) -> None:
        file.seek(1_000_000)  # beyond what is read: a locked byte cannot be
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(file: IO[str]) -> None:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def create(path: Path) -> None:
    """Make an empty database. What an earlier attempt left is made anew, the journal of a lost database kept aside."""
    unfinished = path.with_name(path.name + ".new")
    remove(unfinished)
    if path.with_name(path.name + "-wal").exists():
        _put_aside(path, datetime.now(UTC))
    unfinished.touch(0o600)
    connection = sqlite3.connect(unfinished, isolation_level=None)
    try:
        make_tables(connection)
    finally:
        connection.close()
    put_in_place(unfinished, path)


def make_tables(connection: sqlite3.Connection) -> None:
    """Make all tables in an empty database."""
    connection.execute(SHRINKABLE)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN")
    for sql in (*TABLES.values(), *INDEXES):
        connection.execute(sql)
    connection.execute("INSERT INTO commits VALUES (1, 0, 0)")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def put_in_place(finished: Path, path: Path) -> None:
    """Give a whole database its name, on disk."""
    sync(finished)
    finished.rename(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Have the system write a file or folder to the disk."""
    if sys.platform == "win32" and path.is_dir():
        return  # which cannot be opened there
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_again(path: Path) -> None:
    """Write what a file holds to the disk once more, if the file is there.

    After a failed sync the system may take pages for written that are not: they can be read, and no later sync writes
    them. A checkpoint must not rely on such a journal.
    """
    with contextlib.suppress(FileNotFoundError), open(path, "r+b", buffering=0) as file:
        while data := file.read(1_048_576):
            file.seek(-len(data), os.SEEK_CUR)
            file.write(data)  # if it writes less, the rest is read again
        os.fsync(file.fileno())


def copy(source: Path, target: Path, length: int) -> None:
    """Copy a file, which may be missing, and give the copy this length. Only its owner can read it."""
    target.touch(0o600)
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(source, target)
    os.truncate(target, length)


def overwrite(path: Path, places: Mapping[int, bytes]) -> None:
    """Write data at some places of a file."""
    with open(path, "r+b") as file:
        for at, data in sorted(places.items()):
            file.seek(at)
            file.write(data)


def connect(path: Path, *, is_synced: bool = True) -> sqlite3.Connection:
    """Open the database for writing. Raises `StoreError`, and `sqlite3.Error` for one that is damaged or missing.

    Unless `is_synced`, a power cut may undo the latest commits, back to the last checkpoint.

    On a full disk there is no room for the memory that its users share: then this is the only one (`is_alone`).
    """
    try:
        return _connect(path, "NORMAL", is_synced)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode not in _NO_SHARED_MEMORY:
            raise
        return _connect(path, "EXCLUSIVE", is_synced)


def is_alone(connection: sqlite3.Connection) -> bool:
    """Whether nobody else can open the database meanwhile."""
    (mode,) = connection.execute("PRAGMA locking_mode").fetchone()
    return bool(mode == "exclusive")


def _connect(path: Path, locking_mode: str, is_synced: bool) -> sqlite3.Connection:
    protect(path)
    write_again(path.with_name(path.name + "-wal"))
    uri = f"{path.absolute().as_uri()}?mode=rw"  # else SQLite makes an empty one where there is none
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, cached_statements=64)
    connection.text_factory = lenient
    try:
        connection.execute(f"PRAGMA locking_mode = {locking_mode}")
        check(connection, path)
        upgrade(connection)
        for pragma in (
            f"synchronous = {'FULL' if is_synced else 'NORMAL'}",
            "fullfsync = 1",
            "wal_autocheckpoint = 0",
            f"journal_size_limit = {JOURNAL_BYTES}",
            f"cache_size = -{CACHE_KIB}",
            "temp_store = MEMORY",
            f"busy_timeout = {BUSY_MS}",
        ):
            connection.execute(f"PRAGMA {pragma}")
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreError(f"{path}: its file system cannot have a journal (WAL); choose another with --data-dir")
        _checkpoint(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _checkpoint(connection: sqlite3.Connection) -> None:
    """Put the journal into the database, unless the disk is full: then it stays as it is."""
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
            raise


def upgrade(connection: sqlite3.Connection) -> None:
    """Add to a database of an older version what it lacks."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version >= SCHEMA_VERSION:
        return
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    known = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    for table in ADDED:
        if table not in known:
            connection.execute(TABLES[table])
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def lenient(text: bytes) -> str:
    """A text that may be damaged: then it does not match its checksum."""
    return text.decode(errors="replace")


def check(connection: sqlite3.Connection, path: Path, remedy: str = FOREIGN) -> None:
    """Raises `StoreError` for a database of another program or of a newer version, `DatabaseError` if tables are
    missing or others than they were."""
    try:
        _check(connection, path, remedy)
    except UnicodeDecodeError:  # SQLite's sentence names what is damaged, and that is no text
        raise _damaged("a table has a damaged definition") from None


def _damaged(sentence: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(sentence)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def _check(connection: sqlite3.Connection, path: Path, remedy: str) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (tables or application):
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'commits'").fetchone() or not version:
            raise StoreError(f"{path} is the database of another program: {remedy}")
        version = SCHEMA_VERSION  # ours, with a damaged mark
    found = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master")}
    if version > SCHEMA_VERSION:
        if version_of(connection):
            raise _damaged("its version number is damaged")
        raise NewerSchema(
            f"{path} was written by a newer version of mqttlite (schema {version}; this one knows {SCHEMA_VERSION}): "
            "run that version, or restore a backup of this one into another folder"
        )
    if not found.issuperset(_definitions(version)):
        raise _damaged("tables are missing")


def version_of(connection: sqlite3.Connection) -> int:
    """The version that has exactly the tables of a database; 0 if there is none."""
    found = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
    return next((each for each in range(SCHEMA_VERSION, 0, -1) if found == set(_definitions(each))), 0)


def _definitions(version: int) -> tuple[str, ...]:
    """The definitions of the tables and indexes of a version."""
    return (*(sql for table, sql in TABLES.items() if ADDED.get(table, 0) <= version), *INDEXES)


def remove(path: Path) -> None:
    """Remove a database and its journal, if they exist."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).unlink()


def replace(path: Path, finished: Path) -> Path:
    """Replace a damaged database with a salvaged one. Return where the damaged one is kept.

    The salvaged database first gets its own final name. From then on `finish_replacing` completes the replacement, even
    after a power failure. Before that, the damaged one stays in place.
    """
    put_in_place(finished, path.with_name(path.name + SALVAGED))
    aside = finish_replacing(path)
    assert aside is not None, "there is a salvaged database"
    return aside


def put_aside(path: Path) -> Path:
    """Keep a damaged database and its journal under another name, and return that."""
    return _put_aside(path, datetime.now(UTC))


def finish_replacing(path: Path) -> Path | None:
    """Complete an interrupted `replace`. Return where the damaged database is kept, or None if there was none."""
    salvaged = path.with_name(path.name + SALVAGED)
    try:
        made_at = datetime.fromtimestamp(salvaged.stat().st_mtime, UTC)  # the same in each attempt
    except FileNotFoundError:
        return None
    aside = _put_aside(path, made_at)
    salvaged.rename(path)
    sync(path.parent)
    return aside


def _put_aside(path: Path, at: datetime) -> Path:
    """Rename a database and its journal, if they exist, to keep them. Return the new path."""
    aside = path.with_name(f"{path.name}.damaged-{at.strftime('%Y%m%dT%H%M%S%f')}")
    for suffix in ("", "-wal"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    with contextlib.suppress(FileNotFoundError):
        path.with_name(path.name + "-shm").unlink()
    sync(path.parent)
    return aside
