"""A disk below SQLite that tells all that is done to it, and fails when a test says so.

`Disk.installed` gives what calls `sqlite3.connect` a connection of `apsw`, whose file system (VFS) is the real one
with this class in between. Invariant: the log has each call that changes a file or folder, in order, and of those
that failed only what they did; a sync that failed made the system forget what was to be written.
"""

import contextlib
import errno
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import apsw
import pytest

from mqttlite.store.sqlite import files
from mqttlite.store.sqlite.mark import CommitMark


class Op(NamedTuple):
    """Something that was done to a file, or a mark of the test's (`kind` "mark")."""

    kind: str
    name: str = ""
    at: int = 0
    data: bytes = b""
    target: str = ""


class Fault(NamedTuple):
    """How a call fails: for SQLite, and as an `OSError`."""

    name: str
    code: int | None
    """The code for every call; None: SQLITE_IOERR with the one that belongs to the call."""
    number: int
    torn: bool = False
    """Whether a write that fails wrote the first half; a sync that fails may still have done its work."""


EIO: Final = Fault("EIO", None, errno.EIO)
EIO_TORN: Final = Fault("EIO in the middle", None, errno.EIO, True)
FULL: Final = Fault("ENOSPC", apsw.SQLITE_FULL, errno.ENOSPC, True)
READ_ONLY: Final = Fault("EROFS", apsw.SQLITE_READONLY, errno.EROFS)
FAULTS: Final = (EIO, EIO_TORN, FULL, READ_ONLY)

_IO_CODES: Final = {
    "open": apsw.SQLITE_CANTOPEN,
    "read": apsw.SQLITE_IOERR_READ,
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "size": apsw.SQLITE_IOERR_FSTAT,
    "delete": apsw.SQLITE_IOERR_DELETE,
    "access": apsw.SQLITE_IOERR_ACCESS,
}

_numbers: Final = count(1)


class Disk:
    """One folder of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder
        self.log: list[Op] = []
        self.calls = 0
        """Calls that could fail."""
        self.failed = 0
        self.passes = frozenset[str]()
        """Kinds of calls that do not fail."""
        self.fault = EIO
        self._fail_from = self._fail_to = -1
        self._gate: Final = threading.Event()
        self._gate.set()
        self._vfs: Final = _Vfs(f"faults-{next(_numbers)}", self)

    def fail(self, fault: Fault, first: int, times: int) -> None:
        """Let that many calls fail, from the `first` of those to come (1 is the next)."""
        self.fault = fault
        self._fail_from = self.calls + first
        self._fail_to = self._fail_from + times

    def heal(self) -> None:
        """Let no more calls fail or hang."""
        self._fail_from = self._fail_to = -1
        self._gate.set()

    def hang(self) -> None:
        """Let each call hang until `heal`."""
        self._gate.clear()

    def mark(self, name: str, number: int = 0) -> None:
        self.log.append(Op("mark", name, number))

    def is_failing(self, kind: str) -> bool:
        """Count a call; whether it is one that fails."""
        if kind in self.passes:
            return False
        self._gate.wait()
        self.calls += 1
        if not self._fail_from <= self.calls < self._fail_to:
            return False
        self.failed += 1
        return True

    def sqlite_error(self, kind: str) -> apsw.Error:
        code = self.fault.code or _IO_CODES[kind]
        error = apsw.exception_for(code)
        error.extendedresult = code
        return error

    def os_error(self, path: object) -> OSError:
        return OSError(self.fault.number, os.strerror(self.fault.number), str(path))

    def has(self, path: object) -> bool:
        return Path(str(path)).parent == self.folder

    # ------------------------------------------------------------------ between the store and the system

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Put it between the store and the system, as far as its folder goes."""
        real_connect, real_sync, real_rename, real_unlink = sqlite3.connect, files.sync, Path.rename, Path.unlink
        real_write_again, real_copy, real_overwrite = files.write_again, files.copy, files.overwrite
        real_write_mark, real_touch = CommitMark.write, Path.touch

        def connect(database: Any, **options: Any) -> Any:
            name = str(database)
            path = unquote(name.removeprefix("file://").partition("?")[0])
            if not self.has(path):
                return real_connect(database, **options)
            return _Connection(name, self._vfs.vfs_name)

        def sync(path: Path) -> None:
            if path != self.folder and not self.has(path):
                return real_sync(path)
            if self.is_failing("sync"):
                raise self.os_error(path)
            self.log.append(Op("sync_folder") if path == self.folder else Op("sync", path.name))
            return None

        def write_again(path: Path) -> None:
            if self.has(path) and path.exists():
                if self.is_failing("sync"):
                    self.log.append(Op("forget", path.name))
                    raise self.os_error(path)
                self.log.append(Op("write", path.name, 0, path.read_bytes()))
                self.log.append(Op("sync", path.name))
            real_write_again(path)

        def copy(source: Path, target: Path, length: int) -> None:
            if self.has(target) and self.is_failing("write"):
                raise self.os_error(target)
            real_copy(source, target, length)
            if self.has(target):
                self.log.append(Op("write", target.name, 0, target.read_bytes()))

        def overwrite(path: Path, places: Mapping[int, bytes]) -> None:
            if self.has(path) and self.is_failing("write"):
                raise self.os_error(path)
            real_overwrite(path, places)
            if self.has(path):
                self.log += (Op("write", path.name, at, data) for at, data in places.items())

        def write_mark(mark: CommitMark, number: int) -> None:
            """It is never synced, so that a power cut leaves any of its numbers."""
            if not self.has(mark.path):
                return real_write_mark(mark, number)
            real_write_mark(mark, number)
            self.log.append(Op("write", mark.path.name, 0, mark.path.read_bytes()))
            return None

        def rename(path: Path, target: Path) -> Path:
            if not self.has(path):
                return real_rename(path, target)
            if self.is_failing("rename"):
                raise self.os_error(path)
            renamed = real_rename(path, target)
            self.log.append(Op("rename", path.name, target=Path(target).name))
            return renamed

        def touch(path: Path, mode: int = 0o666, exist_ok: bool = True) -> None:
            is_new = not path.exists()
            real_touch(path, mode, exist_ok)
            if is_new and self.has(path):
                self.log.append(Op("create", path.name))

        def unlink(path: Path, missing_ok: bool = False) -> None:
            if not self.has(path):
                return real_unlink(path, missing_ok)
            if self.is_failing("unlink"):
                raise self.os_error(path)
            real_unlink(path, missing_ok)
            self.log.append(Op("delete", path.name))
            return None

        patch.setattr(sqlite3, "connect", connect)
        patch.setattr(files, "sync", sync)
        patch.setattr(files, "write_again", write_again)
        patch.setattr(files, "copy", copy)
        patch.setattr(files, "overwrite", overwrite)
        patch.setattr(CommitMark, "write", write_mark)
        patch.setattr(Path, "rename", rename)
        patch.setattr(Path, "touch", touch)
        patch.setattr(Path, "unlink", unlink)


class _Vfs(apsw.VFS):
    def __init__(self, name: str, disk: Disk) -> None:
        self.vfs_name: Final = name
        self._disk: Final = disk
        super().__init__(name, "")

    def xOpen(self, name: Any, flags: list[int]) -> "_File":  # noqa: N802
        if self._disk.is_failing("open"):
            raise self._disk.sqlite_error("open")
        return _File(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        if self._disk.is_failing("delete"):
            raise self._disk.sqlite_error("delete")
        super().xDelete(filename, syncdir)
        self._disk.log.append(Op("delete", Path(filename).name))
        if syncdir:
            self._disk.log.append(Op("sync_folder"))

    def xAccess(self, pathname: str, flags: int) -> bool:  # noqa: N802
        if self._disk.is_failing("access"):
            raise self._disk.sqlite_error("access")
        return super().xAccess(pathname, flags)


_SYNCED_WITH_FOLDER: Final = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._disk: Final = disk
        self._name: Final = Path(path).name
        is_new = not Path(path).exists()
        super().__init__("", name, flags)
        is_new = is_new and Path(path).exists()
        if is_new:
            disk.log.append(Op("create", self._name))
        self._syncs_folder = is_new and bool(flags[0] & _SYNCED_WITH_FOLDER)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        if self._disk.is_failing("read"):
            raise self._disk.sqlite_error("read")
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        fails = self._disk.is_failing("write")
        if fails and not self._disk.fault.torn:
            raise self._disk.sqlite_error("write")
        written = data[: len(data) // 2] if fails else data
        super().xWrite(written, offset)
        self._disk.log.append(Op("write", self._name, offset, bytes(written)))
        if fails:
            raise self._disk.sqlite_error("write")

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        if self._disk.is_failing("truncate"):
            raise self._disk.sqlite_error("truncate")
        super().xTruncate(newsize)
        self._disk.log.append(Op("truncate", self._name, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self._disk.is_failing("sync"):
            self._disk.log.append(Op("forget", self._name))
            raise self._disk.sqlite_error("sync")
        self._disk.log.append(Op("sync", self._name))
        if self._syncs_folder:  # the system's VFS does so with the first sync of a new journal
            self._disk.log.append(Op("sync_folder"))
            self._syncs_folder = False

    def xFileSize(self) -> int:  # noqa: N802
        if self._disk.is_failing("size"):
            raise self._disk.sqlite_error("size")
        return super().xFileSize()


# ---------------------------------------------------------------------- apsw as sqlite3


def _translated(error: Exception) -> Exception:
    """An error of apsw as one of sqlite3."""
    if not isinstance(error, apsw.Error):
        return error
    code = getattr(error, "extendedresult", None) or getattr(error, "result", None) or apsw.SQLITE_ERROR
    kind: type[sqlite3.Error] = sqlite3.OperationalError
    if code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        kind = sqlite3.DatabaseError
    elif code & 0xFF == sqlite3.SQLITE_CONSTRAINT:
        kind = sqlite3.IntegrityError
    translated = kind(str(error))
    translated.sqlite_errorcode = code
    return translated


class _Cursor:
    """As in `sqlite3`, the next row is always read ahead, so that a statement ends with its last row."""

    def __init__(self, connection: apsw.Connection, sql: str, values: Any) -> None:
        self._rows = self._step(lambda: iter(connection.execute(sql, values)))
        self._next = self._step(lambda: next(self._rows, None))
        self.rowcount = connection.changes()

    def _step(self, step: Any) -> Any:
        try:
            return step()
        except apsw.Error as error:
            raise _translated(error) from None

    def fetchone(self) -> Any:
        row = self._next
        if row is not None:
            self._next = self._step(lambda: next(self._rows, None))
        return row

    def fetchmany(self, size: int) -> list[Any]:
        return list(islice(self, size))

    def fetchall(self) -> list[Any]:
        return list(self)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row


class _Connection:
    """What the store uses of `sqlite3.Connection`."""

    def __init__(self, name: str, vfs: str) -> None:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        try:
            self._connection: Final = apsw.Connection(name, flags=flags, vfs=vfs)
        except apsw.Error as error:
            raise _translated(error) from None
        self.text_factory: object = str

    def execute(self, sql: str, values: Any = ()) -> _Cursor:
        return _Cursor(self._connection, sql, values)

    def executemany(self, sql: str, rows: Sequence[Any]) -> None:
        for row in rows:
            _Cursor(self._connection, sql, row)

    def close(self) -> None:
        with contextlib.suppress(apsw.Error):  # sqlite3 says nothing of a checkpoint that failed then
            self._connection.close()
