"""A dataset that grows in a folder, somebody who watches it, and rows to put into it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGIN = datetime(2026, 11, 21, 11, tzinfo=UTC)
Row = dict[str, Any]


def at(minutes: float) -> str:
    return (BEGIN + timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")


def event(minutes: float, client_id: str, kind: str = "connected", reason: str | None = None) -> Row:
    row: Row = {"schema_version": 2, "broker_id": "b1", "at": at(minutes), "event": kind, "client_id": client_id}
    return row | {"reason": reason, "numbers": {}}


def activity(minutes: float, client_id: str, messages: int = 1) -> Row:
    names = ("messages_sent", "bytes_received", "bytes_sent", "dropped", "queued", "queued_bytes", "inflight")
    row: Row = {"schema_version": 2, "broker_id": "b1", "interval_start": at(minutes), "interval_s": 10.0}
    row |= {"connection_id": 1, "client_id": client_id, "listener": "l", "messages_received": messages}
    return row | dict.fromkeys(names, 0) | {"backpressure_s": 0.0}


def drop(minutes: float, client_id: str | None, messages: int) -> Row:
    row: Row = {"schema_version": 2, "broker_id": "b1", "interval_start": at(minutes), "interval_s": 10.0}
    return row | {"reason": "queue_full", "client_id": client_id, "topic": None, "messages": messages}


class Folder:
    """A dataset that grows, and somebody who watches it once in a while."""

    def __init__(self, spark: SparkSession | None, directory: Path) -> None:
        self.source = directory / "dump"
        self.source.mkdir()
        self.out = directory / "out"
        self.reported: list[Row] = []
        self._spark = spark
        self._files = 0

    def add(self, table: str, *rows: Row) -> None:
        self._files += 1
        folder = self.source / f"table={table}/date=2026-11-21/hour=11"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"part-b1-{self._files:06d}.jsonl"
        growing = path.with_name(f".{path.name}.open")
        growing.write_text("".join(json.dumps(row) + "\n" for row in rows))
        growing.rename(path)

    def watch(self, report: Callable[[list[Row]], None] | None = None) -> None:
        from spark_analytics.watch import watch

        assert self._spark is not None
        watch(self._spark, str(self.source), str(self.out), None, report or self.reported.extend, once=True)

    def lines(self, status: str) -> list[Row]:
        """Of the files."""
        paths = sorted((self.out / "findings").glob("*.jsonl"))
        rows = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
        return [row for row in rows if row["status"] == status]

    def found(self) -> list[tuple[str, str | None, str]]:
        return sorted((row["kind"], row["client_id"] or "", row["start"]) for row in self.lines("began"))


def connects(client_id: str, first: float, number: int = 6) -> list[Row]:
    return [event(first + each * 0.1, client_id) for each in range(number)]
