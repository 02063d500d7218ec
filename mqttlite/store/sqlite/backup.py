"""Backs up a data directory (the database and the files `beside` it) to one file, and restores it.

A backup is one read transaction on a separate connection, in another process than the broker: it contains every commit
made before it began, and the broker continues meanwhile. Until it ends, the broker's journal cannot shrink. Invariant:
a copy gets its final name only when it is complete and on disk, and no existing file is overwritten.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from mqttlite.files.atomic_file import save
from mqttlite.store.sqlite import beside, files
from mqttlite.store.sqlite.mark import SUFFIX

BUSY_MS: Final = 10_000
"""How long to wait while a broker opens the database or recovers its journal."""

INTERRUPT_STEPS: Final = 100_000
"""SQLite steps, about a millisecond, between checks for signals, so that Ctrl-C ends a long copy."""


class Contents(NamedTuple):
    """The content of a backup."""

    sessions: int
    queued: int
    retained: int
    delayed: int
    size_bytes: int
    files: tuple[str, ...] = ()
    """The names of the files beside the database."""
    logs: Mapping[str, tuple[int, int]] = MappingProxyType({})
    """The number of records of features, and of the messages in their logs, also of those that are kept. By the first
    level of their names."""


def back_up(directory: Path, path: Path, *, with_files: bool = True) -> Contents:
    """Copy the database of a data directory, and the files beside it, to a new file. Raises `StoreError`."""
    database = directory / files.DATABASE
    if not database.is_file():
        raise files.StoreError(f"{directory} has no database: name the broker's data directory with --data-dir")
    if os.path.lexists(path):
        raise files.StoreError(f"{path} exists already: name another file")

    def add_files(connection: sqlite3.Connection) -> tuple[str, ...]:
        return beside.copy(directory, connection) if with_files else ()

    return _copy(database, path, add_files)


def restore(path: Path, directory: Path) -> Contents:
    """Restore a backup into a data directory without a database. Raises `StoreError`."""
    if not path.is_file():
        raise files.StoreError(f"{path}: there is no such file")
    files.make_directory(directory)
    lock = files.Lock(directory, "stop that broker first")
    try:
        for suffix in ("", "-wal", "-journal"):  # a leftover journal would be applied to the new database
            present = directory / (files.DATABASE + suffix)
            if os.path.lexists(present):
                raise files.StoreError(
                    f"{present} exists already, and is not overwritten: restore into another folder, or move "
                    f"{files.DATABASE} and {files.DATABASE}-wal to another folder first"
                )
        files.remove(directory / (files.DATABASE + ".new"))  # only the holder of the lock creates it
        (directory / (files.DATABASE + SUFFIX)).unlink(missing_ok=True)  # it is of a database that was moved away
        with _opened(path) as connection:
            beside.check(connection, directory)

        def put_files(connection: sqlite3.Connection) -> tuple[str, ...]:
            return beside.restore(connection, directory, save)

        return _copy(path, directory / files.DATABASE, put_files)
    finally:
        lock.release()


def _copy(source: Path, target: Path, do_files: Callable[[sqlite3.Connection], tuple[str, ...]]) -> Contents:
    """Copy the current state of a database to a new file. `do_files` moves the files beside the database into the copy,
    or out of it."""
    unfinished = target.with_name(target.name + ".new")
    try:
        os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # messages are private
    except FileExistsError:
        raise files.StoreError(
            f"{unfinished} exists already: another backup is being written, or one was cut off; remove it, or name "
            "another file"
        ) from None
    except OSError as error:
        raise files.StoreError(f"{unfinished} cannot be written: {error.strerror or error}") from None
    try:
        with _opened(source) as connection:
            try:
                if connection.execute("PRAGMA auto_vacuum").fetchone() == (0,):  # an earlier version made it
                    connection.execute(files.SHRINKABLE)
                connection.execute("VACUUM INTO ?", (str(unfinished),))
            except sqlite3.Error as error:
                raise files.StoreError(f"{source} cannot be copied to {unfinished}: {error}") from None
        with _opened(unfinished, "rw") as connection:
            names = do_files(connection)
        with _opened(unfinished) as connection:
            contents = _contents(connection, unfinished)._replace(files=names)
        files.put_in_place(unfinished, target)
    except OSError as error:
        files.remove(unfinished)
        if isinstance(error, files.StoreError):
            raise
        raise files.StoreError(f"{target} cannot be written: {error.strerror or error}") from None
    except BaseException:
        files.remove(unfinished)
        raise
    return contents


@contextlib.contextmanager
def _opened(path: Path, mode: str = "ro") -> Iterator[sqlite3.Connection]:
    """Open one of our databases, read-only unless `mode` is `rw`. Raises `StoreError`."""
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None)
    except sqlite3.Error as error:
        raise files.StoreError(f"{path} cannot be opened: {error}") from None
    try:
        connection.set_progress_handler(lambda: 0, INTERRUPT_STEPS)
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        try:
            files.check(connection, path, "name a file that 'mqttlite backup' made")
        except sqlite3.Error as error:
            raise files.StoreError(f"{path} cannot be read: {error}") from None
        yield connection
    finally:
        connection.close()


def _contents(connection: sqlite3.Connection, path: Path) -> Contents:
    """Check a complete copy, and count its content."""
    try:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise files.StoreError(f"{path} is not whole: {verdict}")
        sessions, queued, retained, delayed = connection.execute(
            "SELECT (SELECT count(*) FROM sessions), "
            "(SELECT ifnull(sum(count), 0) FROM queue WHERE session IN (SELECT id FROM sessions)), "
            "(SELECT count(*) FROM retained), (SELECT count(*) FROM delayed)"
        ).fetchone()
        has_records = connection.execute(
            "SELECT 1 FROM sqlite_master WHERE name = 'queues'"
        ).fetchone()  # version 1: no
        found = connection.execute(_LOGS).fetchall() if has_records else []
    except sqlite3.Error as error:
        raise files.StoreError(f"{path} cannot be read: {error}") from None
    return Contents(
        sessions,
        queued,
        retained,
        delayed,
        path.stat().st_size,
        (),
        {level: (records, messages) for level, records, messages in found},
    )


_LOGS: Final = (
    "SELECT substr(name, 1, instr(name, '/') - 1), count(*), sum((SELECT ifnull(sum(count), 0) FROM queue WHERE "
    "session = id)) FROM queues GROUP BY 1"
)
