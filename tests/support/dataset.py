"""Rows, disks that fail, and what is in a dataset's files; the disk fails where a test says so."""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from mqttlite.extensions.dataset.journal import Opened
from mqttlite.extensions.dataset.options import TelemetryOptions
from mqttlite.extensions.dataset.parts import Disk, Parts
from mqttlite.extensions.dataset.tables import EventRow, SessionRow

ENDED_AT = datetime(2026, 11, 21, 11, 59, 30, 250000, tzinfo=UTC)

ROW = SessionRow(
    broker_id="b1",
    connection_id=1,
    client_id="thermometer",
    username=None,
    listener="local",
    transport="tcp",
    tls_version=None,
    tls_cipher=None,
    peer="127.0.0.1:50000",
    protocol_version="5.0",
    clean_start=True,
    session_present=False,
    session_expiry_s=0,
    keep_alive_s=60,
    opened_at=ENDED_AT - timedelta(seconds=30),
    connected_at=ENDED_AT - timedelta(seconds=29),
    ended_at=ENDED_AT,
    duration_s=29.0,
    close_reason="client_disconnected",
    reason_code=0,
    close_detail=None,
    will_published=False,
    bytes_received=100,
    bytes_sent=200,
    received_qos0=1,
    received_qos1=2,
    received_qos2=3,
    sent_qos0=4,
    sent_qos1=5,
    sent_qos2=6,
    drops={"queue_full": 7},
    dropped=7,
    outbox_high_water_bytes=8,
    outbox_high_water_messages=9,
    queue_high_water_messages=10,
    inflight_high_water=11,
    backpressure_s=0.5,
    backpressure_count=12,
    subscriptions=13,
    last_heard_at=ENDED_AT,
    keep_alive_late_s=None,
)


EVENT = EventRow(broker_id="b1", at=ENDED_AT, event="connected", numbers={"keep_alive_s": 60})


class FailingDisk(Disk):
    """Fails those calls, counted from 1, that `fails` says; a failing write leaves half of its bytes behind."""

    def __init__(self, fails: Callable[[int], bool]) -> None:
        self._fails = fails
        self.calls = 0

    def _call(self) -> None:
        self.calls += 1
        if self._fails(self.calls):
            raise OSError(errno.ENOSPC, "No space left on device")

    def create(self, path: Path) -> int:
        self._call()
        return super().create(path)

    def write(self, fd: int, data: bytes) -> int:
        try:
            self._call()
        except OSError:
            super().write(fd, data[: len(data) // 2])
            raise
        return super().write(fd, data[:400])

    def truncate(self, fd: int, size: int) -> None:
        self._call()
        super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        self._call()
        super().sync(fd)

    def overwrite(self, path: Path) -> int:
        self._call()
        return super().overwrite(path)

    def touch(self, fd: int) -> None:
        self._call()
        super().touch(fd)

    def unlink(self, path: Path) -> None:
        self._call()
        super().unlink(path)

    def rename(self, source: Path, target: Path) -> None:
        self._call()
        super().rename(source, target)


def row(number: int, **changes: object) -> SessionRow:
    return msgspec.structs.replace(ROW, connection_id=number, **changes)


def options(directory: Path, **changes: object) -> TelemetryOptions:
    return msgspec.structs.replace(
        TelemetryOptions(directory=str(directory), format="jsonl", retry_after_s=0.001), **changes
    )


def published(directory: Path) -> list[Path]:
    return sorted(directory.rglob("part-*.jsonl"))


def left_open(directory: Path) -> list[Path]:
    return sorted(directory.rglob(".part-*.open"))


def numbers(directory: Path) -> list[int]:
    """The connections in the published files; a line that is not whole makes the test fail."""
    paths = [path for path in published(directory) if "table=sessions" in str(path)]
    return [json.loads(line)["connection_id"] for path in paths for line in path.read_text().splitlines()]


def publish(parts: Parts) -> None:
    parts.complete()
    for _ in parts.publish():
        pass


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited a minute in vain"
        time.sleep(0.001)


def opened(number: int) -> Opened:
    """The same session as `row(number)`, when it begins."""
    return Opened(**{name: getattr(row(number), name) for name in Opened.__struct_fields__ if name != "schema_version"})
