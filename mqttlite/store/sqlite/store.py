"""`SqliteStore`: keeps persistent state in one SQLite database, durable before it is acknowledged.

One thread with one connection does all database work: commits in order, pages of waiting messages after them, and
checkpoints and cleanup when idle. Invariant: after an error the connection is discarded, and the next attempt starts
from the state on disk; a commit that turns out to be durable is not repeated.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from mqttlite.core.changes import Change
from mqttlite.core.question import Entries
from mqttlite.store.sqlite import files
from mqttlite.store.sqlite.mark import CommitMark
from mqttlite.store.sqlite.reader import Page, Reader
from mqttlite.store.sqlite.rescue import look, missing, rebuild
from mqttlite.store.sqlite.schema import IS_ALIVE, TABLES
from mqttlite.store.sqlite.worker import IDLE_S, Worker
from mqttlite.store.sqlite.writer import Writer

IDLE_CHECKPOINT_BYTES: Final = 1_048_576
"""How much is written before a checkpoint when the store has just become idle."""

IDLE_CHECKPOINT_S: Final = 2.0
"""How long without a commit before everything is put into the database and the journal is emptied: damage to a journal
costs more than damage to a database."""

CHECKPOINT_BYTES: Final = 2 * 1_048_576
"""How much is written before a checkpoint in any case. It takes some milliseconds, and commits wait for it."""

SPARSE_BYTES: Final = 64 * 1_048_576
"""A longer database of which more than half is unused is shrunk when idle, until a quarter is unused."""

SHRINK_S: Final = 0.01
"""How long one part of it may take, with its commit, for which a client's commit may wait: after a longer one the next
has half of the pages, after one of less than half of it twice as many."""

SHRINK_PAGES: Final = 8
MAX_SHRINK_PAGES: Final = 512
"""The pages of the first part, and of the largest."""

SHRINK_PAUSE_S: Final = 0.05
"""Between two parts."""

CLOSE_S: Final = 10.0
"""How long `close` waits for a hanging disk. Changes lost then were never acknowledged."""

CHECKED_BYTES: Final = 256 * 1_048_576
"""A database up to this size is checked completely before it is loaded, which takes half a second."""

LOST_LOGGED: Final = 20
"""How many lost records the log names; the others are counted."""

T = TypeVar("T")

_log = logging.getLogger("mqttlite.store")


class SqliteStore:
    """A `Store` in a data directory. Raises `StoreError` for a directory that is unusable or in use.

    It is created, loaded and closed outside of its thread. In between, only `commit`, `page` and `checkpoint` may be
    called. `is_picture` says that a log elsewhere has each commit first: then a commit is only safe from a power cut
    after a `checkpoint`, and what is damaged raises `DamagedPicture` in place of being put together again.
    """

    pages: Final = True

    def __init__(self, directory: Path, *, is_picture: bool = False) -> None:
        files.make_directory(directory)
        self._is_picture: Final = is_picture
        self._path: Final = directory / files.DATABASE
        self._lock: Final = files.Lock(directory)
        self._mark: Final = CommitMark(self._path)
        self._connection: sqlite3.Connection | None = None
        self._writer: Writer
        self._reader: Reader
        self._attempt = -1
        """The number of a commit with unknown success; -1 if there is none."""
        self._committed_at = 0.0
        self._has_journal = False
        """Whether something may be in the journal that is not in the database."""
        self._is_shrinking = False
        self._shrink_pages = SHRINK_PAGES
        """How many pages the next part gives back."""
        self._is_alone = False
        """Whether the disk had no room for what the users of a database share."""
        self.lost: int = 0
        """How many records could not be read by the last `load`."""
        self._is_suspect = False
        """Whether damage was found that opening the database may not detect."""
        try:
            files.finish_replacing(self._path)
            if not self._path.exists():
                self._create()
            self._open()
        except BaseException as error:
            self._release()
            if isinstance(error, sqlite3.Error):
                raise files.cannot_open(self._path, error) from None
            raise
        self._worker: Final = Worker("mqttlite-store", self._after, self._idle)

    def commit(self, changes: list[Change]) -> "asyncio.Future[None]":
        """Make the changes durable, all or none. The future raises `OSError` if the disk fails."""
        return self._worker.submit(lambda: self._commit(changes))

    def page(self, key: str, first: int, count: int) -> "asyncio.Future[Page]":
        """Up to `count` messages of a session from a sequence on; None for each lost one."""
        return self._worker.submit_read(lambda: self._read(lambda: self._reader.page(key, first, count)))

    def entries(self, key: str, first: int, end: int, count: int) -> "asyncio.Future[Entries]":
        """Implements `Store`."""
        return self._worker.submit_read(lambda: self._read(lambda: self._reader.entries(key, first, end, count)))

    def checkpoint(self) -> "asyncio.Future[bool]":
        """Make all commits before it safe from a power cut. False: somebody reads the database, ask again later."""
        return self._worker.submit(self._checkpoint_all)

    def record(self, key: str) -> bytes | None:
        """The data of a feature's record; None if there is none, empty if it cannot be read."""
        return self._reader.record(key)

    def load(self) -> Iterator[list[Change]]:
        """Yield the stored state without queued messages. Unreadable records are lost, and logged.

        The database is checked first, because damage that is found later may have spread.
        """
        self._check()
        self.lost = 0
        yield from self._reader.load()
        if self.lost:
            _log.error("%s: %d things could not be read and are lost", self._path, self.lost)

    def close(self) -> None:
        """End the thread and unlock the directory."""
        if not self._worker.close(CLOSE_S):
            _log.error("%s: the disk does not answer, and is waited for no longer", self._path)
            return
        self._release()

    # ------------------------------------------------------------------ on the thread

    def _commit(self, changes: list[Change]) -> None:
        try:
            if self._is_alone:  # the disk was full; perhaps others can read the database now
                self._give_up()
            if self._connection is None:
                self._open()
            if self._attempt == self._writer.commits:
                self._attempt = -1
                self._note_commit()
                return  # it raised, but is durable
            self._attempt = self._writer.commits + 1
            try:
                self._writer.commit(changes)
            except sqlite3.DatabaseError as error:
                if not files.is_damage(error):
                    raise
                self._rebuild(str(error))
                self._attempt = self._writer.commits + 1
                self._writer.commit(changes)
            self._attempt = -1
            self._note_commit()
            self._committed_at = time.monotonic()
            self._has_journal = True
        except BaseException as error:
            self._give_up()
            raise _explained(error) from None

    def _note_commit(self) -> None:
        if not self._is_picture:  # of a picture, a power cut may undo what was noted
            self._mark.write(self._writer.commits)

    def _read(self, read: Callable[[], T]) -> T:
        """What `read` reads of the database, which is rebuilt if it is damaged."""
        try:
            if self._connection is None:
                self._open()
            try:
                return read()
            except sqlite3.DatabaseError as error:
                if not files.is_damage(error):
                    raise
                self._rebuild(str(error))
                return read()
        except BaseException as error:
            self._give_up()
            raise _explained(error) from None

    def _after(self) -> None:
        """Do urgent maintenance: checkpoint a long journal, delete an ended session."""
        if self._connection is not None:
            self._tidy(CHECKPOINT_BYTES)

    def _idle(self) -> float | None:
        """Do some maintenance. Return after how many seconds there is more; None if there is none."""
        if self._connection is None:
            return None
        self._tidy(IDLE_CHECKPOINT_BYTES)
        if self._connection is None or not self._has_journal:
            return None
        if self._writer.has_leftovers:
            return IDLE_S
        rest_s = self._committed_at + IDLE_CHECKPOINT_S - time.monotonic()
        if rest_s > 0:
            return rest_s
        return self._put_away()

    def _put_away(self) -> float | None:
        """Nothing came for a while: empty the journal, then shrink the database."""
        self._tidied(self._empty_journal)
        if self._has_journal:
            return IDLE_CHECKPOINT_S
        self._tidied(self._shrink)
        return SHRINK_PAUSE_S if self._is_shrinking else None

    def _tidy(self, least: int) -> None:
        self._tidied(lambda: self._tidy_some(least))

    def _tidy_some(self, least: int) -> None:
        if self._writer.has_leftovers:
            self._writer.sweep()
            self._has_journal = True
        self._checkpoint(least)

    def _tidied(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # the thread must not end: maintenance is retried later
            _log.error("%s: it could not be tidied: %s", self._path, error)
            self._give_up()
            self._is_suspect = files.is_damage(error)

    def _checkpoint(self, least: int) -> None:
        if self._writer.written_bytes >= least and self._connection is not None:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._writer.written_bytes = 0

    def _checkpoint_all(self) -> bool:
        try:
            if self._connection is None:
                self._open()
            assert self._connection is not None, "it is open"
            _, written, copied = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except BaseException as error:
            self._give_up()
            raise _explained(error) from None
        self._writer.written_bytes = 0
        return bool(written == copied)

    def _empty_journal(self) -> None:
        """Put everything into the database, and truncate the journal unless somebody reads it."""
        assert self._connection is not None, "it is open"
        self._connection.execute("PRAGMA busy_timeout = 0")  # a commit would wait, too
        is_read, _, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self._connection.execute(f"PRAGMA busy_timeout = {files.BUSY_MS}")
        self._writer.written_bytes = 0
        self._has_journal = bool(is_read)

    def _shrink(self) -> None:
        """Give a part of an unused half of the file back to the system."""
        connection = self._connection
        if connection is None:
            return
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (unused,) = connection.execute("PRAGMA freelist_count").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (mode,) = connection.execute("PRAGMA auto_vacuum").fetchone()
        most = 4 if self._is_shrinking else 2
        self._is_shrinking = bool(mode) and pages * size > SPARSE_BYTES and unused * most > pages
        if not self._is_shrinking:
            return
        self._has_journal = True
        began_at = time.monotonic()
        # As one script: `execute` ends the pragma after its first page.
        connection.executescript(f"BEGIN IMMEDIATE; PRAGMA incremental_vacuum({self._shrink_pages}); COMMIT")
        took_s = time.monotonic() - began_at
        if took_s > SHRINK_S:
            self._shrink_pages = max(1, self._shrink_pages // 2)
        elif took_s < SHRINK_S / 2:
            self._shrink_pages = min(MAX_SHRINK_PAGES, self._shrink_pages * 2)

    # ------------------------------------------------------------------ open and give up

    def _create(self) -> None:
        """Make the database. If one is missing, say so."""
        acknowledged = self._mark.read()
        if acknowledged > 0:
            _log.error("%s is missing; %s", self._path, missing(0, acknowledged))
        files.create(self._path)
        self._mark.write(0)

    def _open(self) -> None:
        """Open the database, or rebuild it from its readable parts. Everything in its journal is written again, because
        after an error the system may falsely report pages as written."""
        files.finish_replacing(self._path)
        try:
            damage = "it could not be tidied" if self._is_suspect else look(self._path, self._mark.read())
            if damage:
                self._rebuild(damage)
                return
            self._use(files.connect(self._path, is_synced=not self._is_picture))
            acknowledged = self._mark.read()
            if acknowledged > self._writer.commits:
                _log.error("%s: %s", self._path, missing(self._writer.commits, acknowledged))
            self._mark.write(self._writer.commits)
        except sqlite3.DatabaseError as error:
            if not files.is_damage(error):
                raise
            self._rebuild(str(error))

    def _check(self) -> None:
        """Rebuild a database with misplaced pages.

        The chunks of a large database, most of its size, are not checked: damage there is found when they are read.
        """
        connection = self._connection
        assert connection is not None, "it was opened and not used yet"
        found = "ok"
        is_large = self._path.stat().st_size > CHECKED_BYTES
        try:
            for table in [f"({table})" for table in TABLES if table != "chunks"] if is_large else [""]:
                if found == "ok":
                    (found,) = connection.execute(f"PRAGMA integrity_check{table}").fetchone()
            if connection.execute(f"SELECT 1 FROM ended WHERE {IS_ALIVE} LIMIT 1").fetchone():
                found = "it says of sessions that they have ended, and has them"
        except sqlite3.DatabaseError as error:
            if not files.is_damage(error):
                raise
            found = str(error)
        if found != "ok":
            self._rebuild(found)

    def _use(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._is_suspect = False
        self._is_alone = files.is_alone(connection)
        self._writer = Writer(connection)
        self._reader = Reader(connection, self._on_lost)

    def _rebuild(self, reason: str) -> None:
        """Build a new database from the readable parts of a damaged one, which is kept."""
        self._give_up()
        _log.error("%s is damaged: %s", self._path, reason)
        if self._is_picture:
            raise files.DamagedPicture(f"{self._path} is damaged: {reason}")
        for sentence in rebuild(self._path, self._mark.read()):
            _log.error("%s", sentence)
        self._use(files.connect(self._path, is_synced=not self._is_picture))
        self._mark.write(self._writer.commits)

    def _give_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _release(self) -> None:
        """Let another broker use the directory."""
        self._give_up()
        self._mark.close()
        self._lock.release()

    def _on_lost(self, what: str) -> None:
        self.lost += 1
        if self.lost <= LOST_LOGGED:
            _log.error("%s: lost: %s", self._path, what)


def _explained(error: BaseException) -> BaseException:
    """Convert an error of SQLite to an `OSError`."""
    if isinstance(error, sqlite3.Error):
        return OSError(f"the database cannot be written: {error}")
    return error
