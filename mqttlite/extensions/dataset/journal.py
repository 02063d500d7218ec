"""A journal of open sessions on disk, from which the next broker writes the rows of sessions of a broker that died.

A line is a new session (a list) or the number of a session whose row is in a file. The journal is locked like the
parts; its modification time is the last sign of life. Invariant: a session is closed in the journal only after its row
was written, and a file of rows is published only after all its sessions are closed there, so rows unknown to a journal
are in the open file of its run.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from mqttlite.extensions.dataset.parts import (
    Disk,
    Growing,
    finish,
    folder_of,
    hours_of,
    is_at,
    is_growing,
    journal_of,
    names_in,
    run_of,
    try_lock,
)
from mqttlite.extensions.dataset.tables import SCHEMA_VERSION, SessionRow

SLACK_LINES: Final = 1_024
"""How many lines of ended sessions, in addition to the number of open ones, trigger a rewrite of the journal."""

BATCH_LINES: Final = 512
"""Rows written in one step, as in the writer."""

CRASHED: Final = "the broker ended without a word, so that nothing was counted"

_log = logging.getLogger("mqttlite.telemetry")


class Opened(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The columns of a session's row that are known at its beginning."""

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
    schema_version: int = SCHEMA_VERSION
    node: str | None = None
    """Last, since an entry of an older broker ends before it."""


_encoder: Final = msgspec.json.Encoder()
_opened: Final = msgspec.json.Decoder(Opened)


class Journal:
    """The open sessions of this run. Used by one thread. Each call succeeds completely or raises OSError, and may be
    repeated."""

    def __init__(self, directory: Path, broker_id: str, disk: Disk) -> None:
        self._disk: Final = disk
        self._path: Final = journal_of(directory, broker_id)
        self._file: Growing | None = None
        self._open: Final[set[int]] = set()
        self._closed = 0

    def __len__(self) -> int:
        """Sessions that are open."""
        return len(self._open)

    def begin(self, numbers: Iterable[int], lines: bytes) -> None:
        """Enter sessions, each a line of `Opened`."""
        if self._file is None:
            self._file = Growing(self._disk, self._path, self._disk.create(self._path))
        self._file.append(lines)
        self._open.update(numbers)

    def end(self, numbers: Iterable[int]) -> None:
        """Close sessions whose rows are in a file or were given up. Unknown ones are ignored."""
        known = [number for number in numbers if number in self._open]
        if self._file is not None and known:
            self._file.append(b"".join(b"%d\n" % number for number in known))
            self._open.difference_update(known)
            self._closed += len(known)

    def touch(self) -> None:
        """Update the modification time as a sign of life."""
        if self._file is not None:
            self._disk.touch(self._file.fd)

    @property
    def is_long(self) -> bool:
        """Whether most lines are of ended sessions."""
        return self._closed > max(SLACK_LINES, len(self._open))

    def compact(self) -> None:
        """Rewrite it without ended sessions."""
        assert self._file is not None
        path = _new(self._path)
        self._disk.unlink(path)  # of an attempt that failed
        file = Growing(self._disk, path, self._disk.create(path))
        try:
            with open(self._path, "rb") as lines:
                entries = (line for line in lines if line.startswith(b"["))
                for batch in _batches(line for line in entries if _number_of(line) in self._open):
                    file.append(b"".join(batch))
            self._disk.rename(path, self._path)
        except BaseException:
            file.close()
            raise
        # Locked before it had the name: nobody could take it for a dead broker's.
        self._file.close()
        self._file, file.path = file, self._path
        self._closed = 0

    def close(self) -> None:
        """Remove it if no session is open. Otherwise the next broker writes the rows of the open ones."""
        if self._file is None:
            return
        if not self._open:
            self._disk.unlink(self._path)
        self._file.close()
        self._file = None


def _new(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


def _batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    for line in lines:
        batch.append(line)
        if len(batch) == BATCH_LINES:
            yield batch
            batch = []
    if batch:
        yield batch


def _number_of(line: bytes) -> int:
    """The number in one of our entries, four times as fast as decoding it."""
    return int(line[1 : line.index(b",")])


def _entries(path: Path) -> Iterator[tuple[bytes, int]]:
    """The lines of open sessions with their numbers. A torn last line is ignored."""
    with open(path, "rb") as lines:
        for line in lines:
            if line.startswith(b"[") and line.endswith(b"\n"):
                with contextlib.suppress(msgspec.MsgspecError):  # what a power cut left
                    yield line, _opened.decode(line).connection_id


def _closed_in(path: Path) -> set[int]:
    with open(path, "rb") as lines:
        return {int(line) for line in lines if line.endswith(b"\n") and line[:-1].isdigit()}


# ── what dead brokers left ───────────────────────────────────────────────────────────────────────────────────────────


def recover(directory: Path, disk: Disk, as_parquet: bool) -> Iterator[None]:
    """Write the rows of the sessions that dead brokers left open, in steps.

    Call it before their files are recovered. All rows of a run appear at once, under a unique name: a crash before that
    changes nothing, and after that only the journal must be removed.
    """
    for name in sorted(names_in(directory)):
        if name.startswith(".journal-") and not name.endswith(".new"):
            path = directory / name
            try:
                yield from _recover_one(path, disk, as_parquet)
            except FileNotFoundError:
                pass  # another broker was faster
            except (OSError, msgspec.MsgspecError) as error:
                _log.warning("%s, left by another run, cannot be read and its sessions written: %s", path, error)


def _recover_one(path: Path, disk: Disk, as_parquet: bool) -> Iterator[None]:
    directory, broker_id = path.parent, path.name.removeprefix(".journal-")
    fd = os.open(path, os.O_RDWR)
    try:
        if not try_lock(fd) or not is_at(path, fd):
            return
        hours = hours_of(directory, "sessions")
        if not _was_recovered(hours, broker_id):
            closed = _closed_in(path) | _in_open_files(hours, broker_id)
            yield
            last_sign = datetime.fromtimestamp(os.fstat(fd).st_mtime_ns / 1e9, UTC)
            left = (line for line, number in _entries(path) if number not in closed)
            yield from _write_rows(directory, broker_id, left, last_sign, disk, as_parquet)
        disk.unlink(_hidden(directory, broker_id))
        disk.unlink(_new(path))
        disk.unlink(path)
    finally:
        os.close(fd)


def _write_rows(
    directory: Path, broker_id: str, left: Iterator[bytes], last_sign: datetime, disk: Disk, as_parquet: bool
) -> Iterator[None]:
    hidden = _hidden(directory, broker_id)
    count = 0
    final: Path | None = None
    file = Growing(disk, hidden, disk.overwrite(hidden))
    try:
        for lines in _batches(left):
            rows = [_row(_opened.decode(line), broker_id, last_sign) for line in lines]
            final = final or folder_of(directory, "sessions", rows[0].ended_at) / _crash_name(broker_id)
            file.append(_encoder.encode_lines(rows))
            count += len(rows)
            yield
        if final is not None:
            final.parent.mkdir(parents=True, exist_ok=True)
            yield from finish(disk, "sessions", hidden, file.fd, final, as_parquet)
            _log.warning("%d sessions of a broker that died were written as ended by it (%s)", count, broker_id)
    finally:
        file.close()


def _hidden(directory: Path, broker_id: str) -> Path:
    return directory / f".crash-{broker_id}.jsonl.open"


def _crash_name(broker_id: str) -> str:
    return f"part-{broker_id}-000000.jsonl"


def _was_recovered(hours: Iterable[Path], broker_id: str) -> bool:
    name = _crash_name(broker_id)
    return any((hour / name).exists() or (hour / name).with_suffix(".parquet").exists() for hour in hours)


def _in_open_files(hours: Iterable[Path], broker_id: str) -> set[int]:
    """The sessions of a run with rows in its open files."""
    found: set[int] = set()
    for hour in hours:
        for name in names_in(hour):
            if is_growing(name) and run_of(name) == broker_id:
                with open(hour / name, "rb") as lines:
                    for line in lines:
                        with contextlib.suppress(msgspec.MsgspecError):
                            found |= {_number.decode(line).connection_id} if line.endswith(b"\n") else set()
    return found


class _Number(msgspec.Struct, frozen=True):
    """The fields of a row that identify its session."""

    connection_id: int


_number: Final = msgspec.json.Decoder(_Number)


def _row(opened: Opened, broker_id: str, last_sign: datetime) -> SessionRow:
    ended_at = max(last_sign, opened.connected_at)
    known = {name: getattr(opened, name) for name in Opened.__struct_fields__ if name != "schema_version"}
    return SessionRow(
        **known,
        broker_id=broker_id,
        ended_at=ended_at,
        duration_s=(ended_at - opened.connected_at).total_seconds(),
        close_reason="broker_crash",
        reason_code=0,
        close_detail=CRASHED,
        will_published=False,
        bytes_received=0,
        bytes_sent=0,
        received_qos0=0,
        received_qos1=0,
        received_qos2=0,
        sent_qos0=0,
        sent_qos1=0,
        sent_qos2=0,
        drops={},
        dropped=0,
        outbox_high_water_bytes=0,
        outbox_high_water_messages=0,
        queue_high_water_messages=0,
        inflight_high_water=0,
        backpressure_s=0.0,
        backpressure_count=0,
        subscriptions=0,
        last_heard_at=None,
        keep_alive_late_s=None,
    )
