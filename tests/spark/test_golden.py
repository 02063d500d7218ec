"""Files that brokers of each schema version wrote, read and reported: today's reader must not forget yesterday's rows.

`golden/v1` was written by the writer of version 1; `golden/v2` holds the same rows in both formats. What is expected
of the reports is in `golden/*.json`, one row a line: look at each line that you change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.types import StructType, TimestampType

from spark_analytics.read import read
from spark_analytics.reports import backpressure, capacity, dropped, latency, minutes, overview, queues, runs, topics
from spark_analytics.schema import TABLES
from spark_analytics.tables import ReportModule
from tests.support.rounds import todays

from .made import written

pytestmark = pytest.mark.slow

GOLDEN: Final = Path(__file__).parent / "golden"
DATASETS: Final = ("v1", "v2/jsonl", "v2/parquet")
ADDED: Final = frozenset({"stream_groups"})
"""Tables that brokers began to write later: a dataset without them is read, too."""

OF_SESSIONS: Final[tuple[ReportModule, ...]] = (backpressure, dropped, capacity, runs, overview)
ALL: Final[tuple[ReportModule, ...]] = (
    topics,
    backpressure,
    dropped,
    latency,
    capacity,
    runs,
    overview,
    minutes,
    queues,
)
REPORTS_OF: Final[Mapping[str, Sequence[ReportModule]]] = {"v1": OF_SESSIONS, "v2/parquet": ALL}

_TIME: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"


def as_read(frame: DataFrame) -> list[dict[str, Any]]:
    columns = [
        functions.date_format(field.name, _TIME).alias(field.name)
        if isinstance(field.dataType, TimestampType)
        else functions.col(field.name)
        for field in frame.schema
    ]
    return [row.asDict() for row in frame.select(*columns).collect()]


def as_written(table: str, directory: Path) -> list[dict[str, Any]]:
    schema: StructType = TABLES[table]
    rows = []
    for path in sorted(directory.glob(f"table={table}/*/*/*.jsonl")):
        for line in path.read_text().splitlines():
            row = dict.fromkeys(schema.fieldNames()) | json.loads(line)
            for field in schema:
                if isinstance(field.dataType, TimestampType) and row[field.name] is not None:
                    moment = datetime.fromisoformat(row[field.name]).astimezone(UTC)
                    row[field.name] = moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            rows.append(row)
    return rows


@pytest.mark.parametrize("dataset", todays(DATASETS))
def test_every_row_is_read_as_it_was_written(spark: SparkSession, dataset: str) -> None:
    found = read(spark, str(GOLDEN / dataset))
    assert found.warnings == []
    lines = GOLDEN / dataset.replace("parquet", "jsonl")
    for table in TABLES:
        frame = getattr(found.frames, table)
        assert frame.columns == TABLES[table].fieldNames()
        rows = as_read(frame)
        assert sorted(rows, key=json.dumps) == sorted(as_written(table, lines), key=json.dumps)
        assert rows or table in ADDED or (dataset == "v1" and table != "sessions")


@pytest.mark.parametrize("dataset", todays(list(REPORTS_OF)))
def test_reports_say_what_they_said(spark: SparkSession, dataset: str) -> None:
    """The rows of `v2/jsonl` are those of `v2/parquet`, as the test above shows. Version 1 has sessions alone, and
    reports of other tables have no rows then, as their own tests show."""
    expected: Mapping[str, list[Any]] = json.loads((GOLDEN / f"{dataset.split('/')[0]}.json").read_text())
    said = reported(spark, dataset, REPORTS_OF[dataset])
    assert said == {name: rows for name, rows in expected.items() if rows or name in said}


def reported(spark: SparkSession, dataset: str, reports: Sequence[ReportModule]) -> dict[str, list[Any]]:
    """Every table of the reports, null left out, and all that they find."""
    frames = read(spark, str(GOLDEN / dataset), limits={"connections": 4}).frames
    tables = [table for report in reports for table in report.TABLES]
    frames_of = written(spark, frames, tables)
    said: dict[str, list[Any]] = {}
    for table in tables:
        frame = frames_of[table.name]
        frame = frame.orderBy(*table.sorted_by()) if table.order else frame
        rows = frame.select(functions.to_json(functions.struct(*frame.columns), {"timestampFormat": _TIME}))
        said[table.name] = [json.loads(text) for (text,) in rows.collect()]
    said["findings"] = [finding.sentence for report in reports for finding in report.findings(frames_of)]
    return said
