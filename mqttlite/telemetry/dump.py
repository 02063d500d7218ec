"""The session dump: one JSON line per ended connection, written off the event loop.

Here live the row (`SessionRow`), its queue and the one thread that writes it to files. Here does not live any MQTT:
whoever ends a connection fills in the row. `docs/reference/telemetry.md` is the contract; readers know only that.

Invariant: `write` neither blocks nor raises, and memory is bounded by `max_pending_rows` plus one batch, whatever the
disk does. What does not fit is dropped and counted.

A file is ours while we hold an exclusive `flock` on it. The kernel lets go of the lock when a process dies, however it
dies, so a `.open` file whose lock is free has no writer, and the next broker that starts may finish it.
"""

from __future__ import annotations

import errno
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

if sys.platform != "win32":
    import fcntl

SCHEMA_VERSION: Final = 1

# Rows encoded and written with one system call: large enough to make the call cheap, small enough (about 512 KiB) to
# be held in memory a second time while the disk is away.
_BATCH_ROWS: Final = 512

_TAIL_BLOCK_BYTES: Final = 64 * 1024

_log = logging.getLogger("mqttlite.telemetry")


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the rows go and how much may wait."""

    directory: str
    rotate_bytes: int = 64 * 1024 * 1024
    rotate_after_s: float = 60.0
    max_pending_rows: int = 10_000
    retry_after_s: float = 1.0


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of `sessions`, in order. Timestamps carry UTC; `None` only where the reference says `?`."""

    schema_version: int = SCHEMA_VERSION
    broker_id: str
    connection_id: int
    client_id: str
    username: str | None
    listener: str
    transport: str
    tls_version: str | None
    tls_cipher: str | None
    peer: str
    protocol_version: str
    clean_start: bool
    session_present: bool
    session_expiry_s: int | None
    keep_alive_s: int
    opened_at: datetime
    connected_at: datetime
    ended_at: datetime
    duration_s: float
    close_reason: str
    reason_code: int
    close_detail: str | None
    will_published: bool
    bytes_received: int
    bytes_sent: int
    received_qos0: int
    received_qos1: int
    received_qos2: int
    sent_qos0: int
    sent_qos1: int
    sent_qos2: int
    drops: dict[str, int]
    dropped: int
    outbox_high_water_bytes: int
    outbox_high_water_messages: int
    queue_high_water_messages: int
    inflight_high_water: int
    backpressure_s: float
    backpressure_count: int
    subscriptions: int


class Disk:
    """The system calls the dump makes; tests pass one that fails on the first call, the second, …"""

    def create(self, path: Path) -> int:
        """Create a file that did not exist and lock it for this process."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640)
        # Between the two calls a starting broker may have found the file, empty and unlocked, and be removing it.
        if not _try_lock(fd) or not _is_at(path, fd):
            os.close(fd)
            raise BlockingIOError(errno.EWOULDBLOCK, "another broker is tidying up here", str(path))
        return fd

    def write(self, fd: int, data: bytes) -> int:
        return os.write(fd, data)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)
        os.lseek(fd, size, os.SEEK_SET)

    def sync(self, fd: int) -> None:
        os.fsync(fd)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def close(self, fd: int) -> None:
        os.close(fd)


class _Part:
    """One growing file: how much of it is whole lines, and since when it is open."""

    def __init__(self, disk: Disk, path: Path, now: float) -> None:
        self._disk = disk
        self.path = path
        self.opened_at = now
        self.size_bytes = 0
        self._torn = False
        self._fd = disk.create(path)

    def append(self, lines: bytes) -> None:
        """Write whole lines, or raise OSError and leave the file as if nothing had been asked."""
        self._cut_torn_end()
        self._torn = True
        rest = lines
        while rest:
            rest = rest[self._disk.write(self._fd, rest) :]
        self._torn = False
        self.size_bytes += len(lines)

    def publish(self) -> None:
        """Make the file true on disk, then give it its final name."""
        self._cut_torn_end()
        self._disk.sync(self._fd)
        # Renamed before it is closed: while we hold the lock nobody else can take it for a dead broker's file.
        # A power cut may undo the rename; then the next start finds the file and renames it again.
        self._disk.rename(self.path, _final_name(self.path))

    def close(self) -> None:
        self._disk.close(self._fd)

    def _cut_torn_end(self) -> None:
        if self._torn:
            self._disk.truncate(self._fd, self.size_bytes)
            self._torn = False


class Parts:
    """The files of one broker, one open at a time. Time is an argument; one thread calls."""

    def __init__(self, options: Options, broker_id: str, disk: Disk) -> None:
        self._options = options
        self._broker_id = broker_id
        self._disk = disk
        self._number = 0
        self._part: _Part | None = None

    def append(self, lines: bytes, ended_at: datetime, now: float) -> None:
        """Add whole lines; `ended_at`, that of the first row, places a new file. All lines or OSError."""
        if self._part is None:
            self._number += 1
            self._part = _Part(self._disk, self._place(ended_at), now)
        self._part.append(lines)

    def due_at(self) -> float | None:
        """When the open file has to be published; None if no file is open."""
        if self._part is None:
            return None
        if self._part.size_bytes >= self._options.rotate_bytes:
            return self._part.opened_at
        return self._part.opened_at + self._options.rotate_after_s

    def publish(self) -> None:
        """Publish the open file. On OSError it stays open and this may be called again."""
        if self._part is None:
            return
        try:
            self._part.publish()
        except FileNotFoundError:
            # Somebody removed the file under us. Its rows are gone; what comes now deserves a file with a name.
            self._forget()
            raise
        self._forget()

    def _forget(self) -> None:
        if self._part is not None:
            part, self._part = self._part, None
            part.close()

    def _place(self, ended_at: datetime) -> Path:
        at = ended_at.astimezone(UTC)
        folder = Path(self._options.directory, "table=sessions", f"date={at:%Y-%m-%d}", f"hour={at:%H}")
        return folder / f".part-{self._broker_id}-{self._number:06d}.jsonl.open"


class SessionDump:
    """A bounded queue and the thread that empties it into files. POSIX only: it needs `flock`."""

    def __init__(
        self,
        options: Options,
        broker_id: str,
        *,
        disk: Disk | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if sys.platform == "win32":
            raise OSError("session telemetry needs file locks that Windows does not have (flock)")
        self._options = options
        self._clock = clock
        self._disk = disk or Disk()
        self._parts = Parts(options, broker_id, self._disk)
        self._encoder = msgspec.json.Encoder()
        # None wakes the thread to look at `_closing`.
        self._queue: queue.SimpleQueue[SessionRow | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        # What fails at present: "append", "publish" or both. Filling up this set is an outage, emptying it ends it.
        self._failing: set[str] = set()
        # Each counter has one writing thread, so none needs a lock.
        self._refused_rows = 0
        self._lost_rows = 0
        self.written_rows = 0
        self.disk_errors = 0
        self.adopted_files = 0
        self._thread = threading.Thread(target=self._run, name="mqttlite-session-dump", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return (
            f"<SessionDump {self._options.directory!r} written={self.written_rows} pending={self.pending_rows}"
            f" dropped={self.dropped_rows} disk_errors={self.disk_errors}>"
        )

    @property
    def pending_rows(self) -> int:
        """Rows that wait in the queue."""
        return self._queue.qsize()

    @property
    def dropped_rows(self) -> int:
        """Rows that will never be on disk: no room, not encodable, or no disk until the end."""
        return self._refused_rows + self._lost_rows

    def write(self, row: SessionRow) -> None:
        """Take a row, or drop and count it. Called from one thread, the event loop's."""
        # One producer, and a consumer that only takes: the queue cannot grow between the look and the put.
        if self._closing.is_set() or self._queue.qsize() >= self._options.max_pending_rows:
            self._refused_rows += 1
        else:
            self._queue.put(row)

    def close(self, timeout: float | None = None) -> bool:
        """Write what waits and publish the open file; True if that worked. Call it after the last `write`.

        Blocks up to `timeout` seconds: call it from a thread. A failing disk is tried once more, then what waits is
        dropped and counted. A second call is harmless.
        """
        if not self._closing.is_set():
            self._closing.set()
            self._queue.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive() and not self._failing

    # ── the writer's thread ──────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        self.adopted_files = adopt(Path(self._options.directory), self._disk)
        while not self._closing.is_set():
            self._store(self._next_batch())
            self._rotate()
        while batch := self._take(_BATCH_ROWS):
            self._store(batch)
            self._rotate()
        self._try("publish", self._parts.publish)

    def _next_batch(self) -> list[SessionRow]:
        """Wait for rows until the open file is due; empty when it is, or when we close."""
        due_at = self._parts.due_at()
        try:
            first = self._queue.get(timeout=None if due_at is None else max(0.0, due_at - self._clock()))
        except queue.Empty:
            return []
        return [] if first is None else [first, *self._take(_BATCH_ROWS - 1)]

    def _take(self, limit: int) -> list[SessionRow]:
        """Up to `limit` rows, without waiting."""
        rows: list[SessionRow] = []
        while len(rows) < limit:
            try:
                row = self._queue.get_nowait()
            except queue.Empty:
                break
            if row is not None:
                rows.append(row)
        return rows

    def _store(self, rows: Sequence[SessionRow]) -> None:
        """Bring one batch to disk. While the disk fails, wait and try again; once we close, try a last time."""
        encoded = [(line, row.ended_at) for row in rows if (line := self._encode(row))]
        if not encoded:
            return
        lines, ended_at = b"".join(line for line, _ in encoded), encoded[0][1]
        while True:
            last_time = self._closing.is_set()
            if self._try("append", lambda: self._parts.append(lines, ended_at, self._clock())):
                self.written_rows += len(encoded)
                return
            if last_time:
                self._lost_rows += len(encoded)
                return
            self._closing.wait(self._options.retry_after_s)

    def _rotate(self) -> None:
        due_at = self._parts.due_at()
        if due_at is not None and due_at <= self._clock() and not self._try("publish", self._parts.publish):
            self._closing.wait(self._options.retry_after_s)

    def _encode(self, row: SessionRow) -> bytes:
        """One line; empty, and the row counted as dropped, if JSON cannot hold it."""
        try:
            return self._encoder.encode(row) + b"\n"
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            self._lost_rows += 1
            _log.warning("session row of connection %s cannot be written: %s", row.connection_id, error)
            return b""

    def _try(self, name: str, act: Callable[[], None]) -> bool:
        """Run a disk operation; False if it failed. The first failure of an outage is logged, and its end."""
        try:
            act()
        except OSError as error:
            self.disk_errors += 1
            if not self._failing:
                _log.warning("session rows cannot be written, will keep trying: %s", error)
            self._failing.add(name)
            return False
        if name in self._failing:
            self._failing.remove(name)
            if not self._failing:
                _log.warning("session rows are written again; %d dropped since the start", self.dropped_rows)
        return True


def adopt(directory: Path, disk: Disk) -> int:
    """Finish the files dead brokers left open under `directory`; return how many. Files in use are left alone."""
    adopted = 0
    for path in sorted(directory.glob("table=sessions/date=*/hour=*/.part-*.jsonl.open")):
        try:
            adopted += _adopt_one(path, disk)
        except OSError as error:
            _log.warning("%s, left by another run, cannot be finished: %s", path, error)
    return adopted


def _adopt_one(path: Path, disk: Disk) -> bool:
    fd = os.open(path, os.O_RDWR)
    try:
        # The second question matters: its writer may have published and closed the file after we opened it.
        if not _try_lock(fd) or not _is_at(path, fd):
            return False
        size = _end_of_last_line(fd)
        if size == 0:
            path.unlink()
            return False
        disk.truncate(fd, size)
        disk.sync(fd)
        disk.rename(path, _final_name(path))
        return True
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    """Take the exclusive lock that says: this file has a living writer."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _end_of_last_line(fd: int) -> int:
    """The offset just behind the last newline; 0 if there is none."""
    end = os.fstat(fd).st_size
    while end > 0:
        start = max(0, end - _TAIL_BLOCK_BYTES)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _final_name(path: Path) -> Path:
    """`.part-x-000001.jsonl.open` → `part-x-000001.jsonl`"""
    return path.with_name(path.name.removeprefix(".").removesuffix(".open"))
