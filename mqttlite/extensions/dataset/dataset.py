"""The writer of the dataset: the event loop queues rows of all tables, and one thread writes them to files.

This module has the queue, its limits, and the order of the thread's work. `docs/reference/telemetry.md` defines the
rows and is the only contract with readers.

Invariant: `write` neither blocks nor raises, and memory is bounded by `max_pending_rows` of each table plus one batch,
whatever the disk does; tables with a row for each client may have as many more as there were clients at once. Rows
beyond that are dropped and counted.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from mqttlite.extensions.dataset import parquet
from mqttlite.extensions.dataset.journal import Journal, Opened, recover
from mqttlite.extensions.dataset.options import TelemetryOptions
from mqttlite.extensions.dataset.parts import Disk, Parts, recover_files
from mqttlite.extensions.dataset.retention import Retention
from mqttlite.extensions.dataset.tables import TABLES, TIME_COLUMNS, Row, SessionRow

BATCH_ROWS: Final = 512
"""Encoded and written with one system call: enough to make the call cheap, few enough (about 512 KiB) to be held in
memory a second time while the disk is away, and to hold the interpreter's lock for a millisecond at most."""

GATHER_S: Final = 0.02
"""How long the thread collects rows, so that it wakes at most fifty times a second."""

SWEEP_S: Final = 60.0
"""The least interval between searches for files to remove."""

_OF_EACH_CLIENT: Final = ("sessions", "events", "activity")
"""Tables that get a row for each client when all clients leave at once, for example at a stop."""

_JOURNAL: Final = "journal"
"""Counted like a table."""

_LONG_JOURNAL: Final = "long journal"

_log = logging.getLogger("mqttlite.telemetry")


Item = tuple[str, Row] | Opened | int
_Line = TypeVar("_Line", bound=Row | Opened)


class _BackgroundTask:
    """Long work done in steps between the batches. An error restarts it."""

    def __init__(self, name: str, begin: Callable[[], Iterator[object]]) -> None:
        self.name: Final = name
        self.begin: Final = begin
        self.steps: Iterator[object] | None = None

    def is_done(self) -> bool:
        """Do a step. Raises OSError."""
        if self.steps is None:
            self.steps = self.begin()
        try:
            next(self.steps)
        except StopIteration:
            return True
        except OSError:
            self.steps = None
            raise
        except Exception:  # a defect, or what we never thought of, costs this and not the rows
            _log.exception("telemetry: %s is given up", self.name)
            return True
        return False

    def finish(self) -> None:
        """Do all steps that are left. Raises OSError."""
        while not self.is_done():
            pass


class Dataset:
    """Bounded queues and the thread that empties them into files. POSIX only: it needs `flock`."""

    def __init__(
        self,
        options: TelemetryOptions,
        broker_id: str,
        *,
        disk: Disk | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises `TelemetryError` where Parquet is asked for and there is no pyarrow."""
        if sys.platform == "win32":
            raise OSError("telemetry needs file locks that Windows does not have (flock)")
        self.options: Final = options
        self._clock: Final = clock
        self._disk: Final = disk or Disk()
        self._as_parquet: Final = parquet.is_wanted(options.format)
        if options.format == "auto" and not self._as_parquet:
            _log.info("telemetry is written as JSON Lines, which take more room: Parquet needs pyarrow")
        self._directory: Final = Path(options.directory)
        self._parts: Final = {table: Parts(options, table, broker_id, self._disk, self._as_parquet) for table in TABLES}
        self._journal: Final = Journal(self._directory, broker_id, self._disk)
        self._retention: Final = Retention(options, self._disk)
        self._encoder: Final = msgspec.json.Encoder()
        # A table's name comes with its row; None wakes the thread to look at `_closing`, and a number is that of a
        # session whose row was dropped.
        self._queue: Final[queue.SimpleQueue[Item | None]] = queue.SimpleQueue()
        self._closing: Final = threading.Event()
        # What fails at present, such as "sessions" or "journal". Filling up this set is an outage, emptying it ends it.
        self._failing: Final[set[str]] = set()
        # Each counter has one writing thread, so none needs a lock.
        self._open = 0
        self._most_open = 0
        self._taken: Final = dict.fromkeys((*TABLES, _JOURNAL), 0)
        self._refused: Final = dict.fromkeys((*TABLES, _JOURNAL), 0)
        self._done: Final = dict.fromkeys((*TABLES, _JOURNAL), 0)
        self._lost: Final = dict.fromkeys((*TABLES, _JOURNAL), 0)
        self.written_rows: Final = dict.fromkeys(TABLES, 0)
        self.disk_errors: int = 0
        self._has_unclosed = False
        self._touch_at = 0.0
        self._sweep_at = 0.0
        self._reported = 0
        self._background: Final = deque([_BackgroundTask("what other runs left", self._tidy_up)])
        self._retry_at = 0.0
        self._thread: Final = threading.Thread(target=self._run, name="mqttlite-telemetry", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return (
            f"<Dataset {self.options.directory!r} written={sum(self.written_rows.values())}"
            f" pending={self.pending_rows} dropped={sum(self.dropped_rows.values())} disk_errors={self.disk_errors}>"
        )

    @property
    def pending_rows(self) -> int:
        """Rows that wait for the thread, or that it is writing."""
        return sum(self._taken[table] - self._done[table] for table in TABLES)

    @property
    def dropped_rows(self) -> dict[str, int]:
        """Rows that will never be on disk, by table: no room, not encodable, or the disk failed until the end."""
        return {table: self._refused[table] + self._lost[table] for table in TABLES}

    def begin(self, session: Opened) -> None:
        """Enter a session in the journal, so that the next broker writes its row if this one dies before `write`. Call
        it only from the event loop's thread."""
        self._open += 1
        self._most_open = max(self._most_open, self._open)
        if self._has_room(_JOURNAL):
            self._queue.put(session)

    def write(self, table: str, row: Row) -> None:
        """Queue a row, or drop and count it. Call it only from the event loop's thread."""
        if isinstance(row, SessionRow):
            self._open -= 1
        if self._has_room(table):
            self._queue.put((table, row))
        elif isinstance(row, SessionRow):
            self._queue.put(row.connection_id)  # as many as there are sessions in the journal

    def _has_room(self, table: str) -> bool:
        # One producer, and a consumer that only takes: it cannot get fuller between the look and the put.
        room = self.options.max_pending_rows + (self._most_open if table in _OF_EACH_CLIENT else 0)
        if self._closing.is_set() or self._taken[table] - self._done[table] >= room:
            self._refused[table] += 1
            return False
        self._taken[table] += 1
        return True

    def close(self, timeout: float | None = None) -> bool:
        """Write waiting rows and publish the open files. Return whether that worked. Call it after the last `write`.

        Blocks up to `timeout` seconds, so call it from a thread. A failing disk is tried once more; then waiting rows
        are dropped and counted. A second call is harmless.
        """
        if not self._closing.is_set():
            self._closing.set()
            self._queue.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive() and not self._failing

    # ── the writer's thread ──────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        while not self._closing.is_set():
            self._store(self._next_batch())
            self._look_around()
            self._do_a_step()
        self._finish_background()
        while batch := self._take([]):
            self._store(batch)
            self._look_around()
            self._finish_background()
        self._end()

    def _next_batch(self) -> list[Item]:
        """Wait for rows, but not longer than until other work is due."""
        try:
            first = self._queue.get(timeout=max(0.0, self._due_at() - self._clock()))
        except queue.Empty:
            return []
        if not self._background and self._queue.qsize() < BATCH_ROWS:
            self._closing.wait(GATHER_S)
        return self._take([] if first is None else [first])

    def _take(self, batch: list[Item]) -> list[Item]:
        """Fill up a batch, without waiting."""
        while len(batch) < BATCH_ROWS:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
            if item is not None:
                batch.append(item)
        return batch

    def _due_at(self) -> float:
        due = [due_at for parts in self._parts.values() if (due_at := parts.due_at()) is not None]
        return min([self._touch_at, *due, *([self._retry_at] if self._background else [])])

    # ── a batch ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _store(self, batch: Iterable[Item]) -> None:
        """Write a batch to disk: new sessions to the journal, the rows, then closed sessions to the journal."""
        begun: list[Opened] = []
        ended: list[int] = []
        rows: dict[str, list[Row]] = {}
        for item in batch:
            if isinstance(item, Opened):
                begun.append(item)
            elif isinstance(item, int):
                ended.append(item)
            else:
                rows.setdefault(item[0], []).append(item[1])
        if begun:
            self._enter(begun)
        for table, of_table in rows.items():
            if self._write(table, of_table):
                ended += [row.connection_id for row in of_table if isinstance(row, SessionRow)]
            self._done[table] += len(of_table)
        if ended and not self._persist(_JOURNAL, lambda: self._journal.end(ended)):
            self._has_unclosed = True

    def _enter(self, begun: list[Opened]) -> None:
        lines, kept = self._encode(_JOURNAL, begun)
        if kept:
            numbers = [session.connection_id for session in kept]
            if not self._persist(_JOURNAL, lambda: self._journal.begin(numbers, lines)):
                self._lost[_JOURNAL] += len(kept)
        self._done[_JOURNAL] += len(begun)

    def _write(self, table: str, rows: list[Row]) -> bool:
        """Write rows to their file. False if the disk failed until the end."""
        lines, kept = self._encode(table, rows)
        if not kept:
            return True
        at: datetime = getattr(kept[0], TIME_COLUMNS[table])
        if not self._persist(table, lambda: self._parts[table].append(lines, at, self._clock())):
            self._lost[table] += len(kept)
            return False
        self.written_rows[table] += len(kept)
        return True

    def _encode(self, table: str, rows: list[_Line]) -> tuple[bytes, list[_Line]]:
        """The encoded lines, and the rows that they contain. Rows that JSON cannot represent are counted as dropped."""
        try:
            return self._encoder.encode_lines(rows), rows
        except (msgspec.MsgspecError, TypeError, ValueError):
            pass
        lines, kept = [], []
        for row in rows:
            try:
                lines.append(self._encoder.encode(row) + b"\n")
                kept.append(row)
            except (msgspec.MsgspecError, TypeError, ValueError) as error:
                self._lost[table] += 1
                _log.warning("a row of %s cannot be written (%s): %r", table, error, row)
        return b"".join(lines), kept

    def _persist(self, name: str, act: Callable[[], None]) -> bool:
        """Run a disk operation. While the disk fails, wait and retry; during `close`, try a last time."""
        while True:
            last_time = self._closing.is_set()
            if self._try(name, act):
                return True
            if last_time:
                return False
            self._closing.wait(self.options.retry_after_s)

    def _try(self, name: str, act: Callable[[], object]) -> bool:
        """Run a disk operation; False if it failed. The first failure of an outage is logged, and its end."""
        try:
            act()
        except OSError as error:
            self._failed(name, error)
            return False
        self._succeeded(name)
        return True

    def _failed(self, name: str, error: OSError) -> None:
        self.disk_errors += 1
        if not self._failing:
            _log.warning("telemetry cannot be written (%s), will keep trying: %s", name, error)
        self._failing.add(name)

    def _succeeded(self, name: str) -> None:
        if name in self._failing:
            self._failing.remove(name)
            if not self._failing:
                _log.warning("telemetry is written again; %d rows were dropped since the start", self._dropped())

    def _dropped(self) -> int:
        return sum(self._refused.values()) + sum(self._lost.values())

    # ── what takes long, in steps ────────────────────────────────────────────────────────────────────────────────────

    def _look_around(self) -> None:
        """Do quick work that is due, and schedule the rest."""
        now = self._clock()
        for parts in self._parts.values():
            due_at = parts.due_at()
            if due_at is not None and due_at <= now:
                parts.complete()
                self._background.append(_BackgroundTask(f"{parts.table} files", parts.publish))
        if self._touch_at <= now:
            self._touch_at = now + self.options.interval_s
            self._try(_JOURNAL, self._journal.touch)
            self._report_drops()
        if self._journal.is_long and not any(task.name == _LONG_JOURNAL for task in self._background):
            self._background.append(_BackgroundTask(_LONG_JOURNAL, self._compact))
        if self._retention.is_limited and self._sweep_at <= now:
            self._sweep_at = now + SWEEP_S
            self._background.append(_BackgroundTask("retention", lambda: self._retention.sweep(time.time())))

    def _do_a_step(self) -> None:
        if not self._background or self._retry_at > self._clock():
            return
        task = self._background.popleft()
        try:
            if task.is_done():
                self._succeeded(task.name)
            else:
                self._background.appendleft(task)
        except OSError as error:
            self._failed(task.name, error)
            self._background.append(task)
            self._retry_at = self._clock() + self.options.retry_after_s

    def _compact(self) -> Iterator[None]:
        self._journal.compact()
        yield

    def _tidy_up(self) -> Iterator[None]:
        """Recover sessions before files, because the open files tell which sessions have their rows."""
        yield from recover(self._directory, self._disk, self._as_parquet)
        yield from recover_files(self._directory, self._disk, self._as_parquet)

    def _report_drops(self) -> None:
        dropped = self._dropped()
        if dropped > self._reported:
            tables = {table: count for table, count in self.dropped_rows.items() if count}
            _log.warning("%d rows of telemetry were dropped; since the start: %s", dropped - self._reported, tables)
            self._reported = dropped

    def _end(self) -> None:
        """Publish the open files. The next broker completes what fails."""
        for parts in self._parts.values():
            # Rows of sessions that the journal still has must stay where the next broker looks for them.
            if parts.table != "sessions" or not self._has_unclosed:
                while parts.has_files and self._try(f"{parts.table} files", partial(_publish, parts)):
                    pass
            parts.close()
        self._try("end of the journal", self._journal.close)

    def _finish_background(self) -> None:
        while self._background:
            task = self._background.popleft()
            self._try(task.name, task.finish)


def _publish(parts: Parts) -> None:
    parts.complete()
    deque(parts.publish(), 0)
