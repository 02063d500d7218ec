"""The files of the dataset: they grow, are completed and published, or are recovered by another run after a crash.

A writer holds an exclusive `flock` on its file. The kernel releases the lock when the process dies, so an unlocked
`.open` file has no writer, and the next broker may finish it. Invariant: a file with its final name is complete, and
never changes again.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from mqttlite.extensions.dataset import parquet
from mqttlite.extensions.dataset.options import TelemetryOptions
from mqttlite.extensions.dataset.tables import SCHEMA_VERSION, TABLES

if sys.platform != "win32":
    import fcntl

_TAIL_BLOCK_BYTES: Final = 64 * 1024

_FIRST_BYTES: Final = b'{"schema_version":%d,' % SCHEMA_VERSION
"""How a line of this version begins."""

_log = logging.getLogger("mqttlite.telemetry")


class Disk:
    """The system calls used. Tests pass one that fails at the first call, the second, …"""

    def create(self, path: Path) -> int:
        """Create a file that did not exist and lock it for this process."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640)
        # Between the two calls a starting broker may have found the file, empty and unlocked, and be removing it.
        if not try_lock(fd) or not is_at(path, fd):
            os.close(fd)
            raise BlockingIOError(errno.EWOULDBLOCK, "another broker is tidying up here", str(path))
        return fd

    def overwrite(self, path: Path) -> int:
        """Create a file, or empty it. Only who holds the lock on what it is made of may ask for it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o640)

    def write(self, fd: int, data: bytes) -> int:
        return os.write(fd, data)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)
        os.lseek(fd, size, os.SEEK_SET)

    def touch(self, fd: int) -> None:
        os.utime(fd)

    def sync(self, fd: int) -> None:
        os.fsync(fd)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def close(self, fd: int) -> None:
        os.close(fd)


class Growing:
    """A file to which whole lines are added."""

    def __init__(self, disk: Disk, path: Path, fd: int) -> None:
        self.path = path
        self.size_bytes: int = 0
        self.fd: Final = fd
        self._disk: Final = disk
        self._torn = False

    def append(self, lines: bytes) -> None:
        """Write complete lines, or raise OSError and leave the file unchanged."""
        self.cut_torn_end()
        self._torn = True
        rest = lines
        while rest:
            rest = rest[self._disk.write(self.fd, rest) :]
        self._torn = False
        self.size_bytes += len(lines)

    def cut_torn_end(self) -> None:
        if self._torn:
            self._disk.truncate(self.fd, self.size_bytes)
            self._torn = False

    def close(self) -> None:
        self._disk.close(self.fd)


class _Part:
    """A growing file of a table, and since when it is open."""

    def __init__(self, disk: Disk, path: Path, now: float) -> None:
        self.opened_at: Final = now
        self.file: Final = Growing(disk, path, disk.create(path))


class Parts:
    """The files of one table, one open at a time. Time is an argument; one thread calls."""

    def __init__(self, options: TelemetryOptions, table: str, broker_id: str, disk: Disk, as_parquet: bool) -> None:
        self.table: Final = table
        self._options: Final = options
        self._broker_id: Final = broker_id
        self._disk: Final = disk
        self._as_parquet: Final = as_parquet
        self._number = 0
        self._part: _Part | None = None
        self._complete: _Part | None = None

    def append(self, lines: bytes, at: datetime, now: float) -> None:
        """Add whole lines; `at`, the time column of the first row, places a new file. All lines or OSError."""
        if self._part is None:
            self._number += 1
            name = f".part-{self._broker_id}-{self._number:06d}.jsonl.open"
            self._part = _Part(self._disk, folder_of(Path(self._options.directory), self.table, at) / name, now)
        self._part.file.append(lines)

    def due_at(self) -> float | None:
        """When the open file must be published; None if no file is open, or another is being published."""
        if self._part is None or self._complete is not None:
            return None
        if self._part.file.size_bytes >= self._options.rotate_bytes:
            return self._part.opened_at
        return self._part.opened_at + self._options.rotate_after_s

    @property
    def has_files(self) -> bool:
        """Whether there is one that is not published."""
        return self._part is not None or self._complete is not None

    def complete(self) -> None:
        """Make the open file the next to publish. Further rows go to a new one."""
        if self._complete is None:
            self._complete, self._part = self._part, None

    def publish(self) -> Iterator[None]:
        """Publish the complete file, in steps. After an OSError call it again."""
        if self._complete is None:
            return
        file = self._complete.file
        try:
            file.cut_torn_end()
            yield from finish(self._disk, self.table, file.path, file.fd, final_name(file.path), self._as_parquet)
        except FileNotFoundError:
            # Somebody removed the file under us. Its rows are gone; what comes now deserves a file with a name.
            self._forget(file)
            raise
        self._forget(file)

    def close(self) -> None:
        """Close files that could not be published. The next broker finishes them."""
        for part in (self._complete, self._part):
            if part is not None:
                part.file.close()
        self._complete = self._part = None

    def _forget(self, file: Growing) -> None:
        self._complete = None
        file.close()


def folder_of(directory: Path, table: str, at: datetime) -> Path:
    at = at.astimezone(UTC)
    return directory / f"table={table}" / f"date={at:%Y-%m-%d}" / f"hour={at:%H}"


def final_name(path: Path) -> Path:
    """`.part-x-000001.jsonl.open` → `part-x-000001.jsonl`"""
    return path.with_name(path.name.removeprefix(".").removesuffix(".open"))


def finish(disk: Disk, table: str, path: Path, fd: int, final: Path, as_parquet: bool) -> Iterator[None]:
    """Sync a file of complete lines, then give it its final name, as Parquet if wanted. Works in steps.

    `fd` is that of `path`, locked: nobody else can take it for a dead broker's file. A power cut may undo the rename;
    then the next start finds the file and does the same again.
    """
    disk.sync(fd)
    yield
    if as_parquet and _is_of_this_version(path):
        try:
            yield from _convert(disk, table, path, final.with_suffix(".parquet"))
            return
        except parquet.NotConvertible as error:
            _log.error("%s stays JSON lines, for it cannot be converted to Parquet: %s", final, error)
    disk.rename(path, final)


def _convert(disk: Disk, table: str, path: Path, final: Path) -> Iterator[None]:
    hidden = final.with_name(f".{final.name}.open")
    fd = disk.overwrite(hidden)
    try:
        yield from parquet.convert(table, path, lambda data: disk.write(fd, data))
        disk.sync(fd)
        disk.rename(hidden, final)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise
    finally:
        disk.close(fd)
    # A process that dies here leaves both files; the one that recovers the lines finds the complete part.
    disk.unlink(path)


def _is_of_this_version(path: Path) -> bool:
    with open(path, "rb") as lines:
        return lines.read(len(_FIRST_BYTES)) == _FIRST_BYTES


# ── what other runs left ─────────────────────────────────────────────────────────────────────────────────────────────


def hours_of(directory: Path, table: str) -> list[Path]:
    """The folders of a table's files, the oldest first."""
    return sorted(directory.glob(f"table={table}/date=*/hour=*"))


def names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def run_of(name: str) -> str:
    """`.part-x-000001.jsonl.open` → `x`"""
    return name.removeprefix(".").removeprefix("part-").rpartition("-")[0]


def is_growing(name: str) -> bool:
    return name.startswith(".part-") and name.endswith(".jsonl.open")


def recover_files(directory: Path, disk: Disk, as_parquet: bool) -> Iterator[None]:
    """Finish the files that dead brokers left open, in steps.

    Files in use are skipped, and session files whose run still has a journal: the recovery of the journal reads them
    first.
    """
    for table in TABLES:
        for folder in hours_of(directory, table):
            for name in sorted(filter(is_growing, names_in(folder))):
                if table == "sessions" and journal_of(directory, run_of(name)).exists():
                    continue
                try:
                    yield from _recover_file(folder / name, disk, table, as_parquet)
                except FileNotFoundError:
                    pass  # another broker was faster
                except OSError as error:
                    _log.warning("%s, left by another run, cannot be finished: %s", folder / name, error)
            yield


def journal_of(directory: Path, broker_id: str) -> Path:
    return directory / f".journal-{broker_id}"


def _recover_file(path: Path, disk: Disk, table: str, as_parquet: bool) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR)
    try:
        # The second question matters: its writer may have published and closed the file after we opened it.
        if not try_lock(fd) or not is_at(path, fd):
            return
        size = end_of_last_line(fd)
        final = final_name(path)
        if size == 0 or final.with_suffix(".parquet").exists():
            path.unlink()
            return
        disk.truncate(fd, size)
        yield from finish(disk, table, path, fd, final, as_parquet)
    finally:
        os.close(fd)


def try_lock(fd: int) -> bool:
    """Take the exclusive lock that says: this file has a living writer."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def end_of_last_line(fd: int) -> int:
    """The offset just behind the last newline; 0 if there is none."""
    end = os.fstat(fd).st_size
    while end > 0:
        start = max(0, end - _TAIL_BLOCK_BYTES)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
