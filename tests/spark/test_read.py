"""Reading dumps that are whole, torn, foreign, of another version, or not there."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from spark_analytics.errors import InputUnusable
from spark_analytics.read import read
from spark_analytics.schema import SESSIONS, TABLES

from .conftest import ROW

pytestmark = pytest.mark.slow

WriteFile = Callable[..., Path]

ARROW = {
    "int": pyarrow.int32(),
    "bigint": pyarrow.int64(),
    "double": pyarrow.float64(),
    "string": pyarrow.string(),
    "boolean": pyarrow.bool_(),
}
DROPS = pyarrow.map_(pyarrow.string(), pyarrow.int64())

OF_ANOTHER_TYPE = (
    pyarrow.array(["7"]),
    pyarrow.array([7], pyarrow.uint64()),
    pyarrow.array([7.0]),
    pyarrow.array([[7]]),
    pyarrow.array([{"bytes": 7}]),
    pyarrow.array([7], pyarrow.timestamp("us", "UTC")),
    pyarrow.array([b"\xff"]),
)
"""Columns instead of a `long`."""

IMPOSSIBLE: tuple[dict[str, Any], ...] = (
    {"client_id": None},
    {"client_id": "x" * 200_000},
    {"bytes_sent": 1 << 60},
    {"bytes_sent": -1 << 63},
    {"drops": {"x": 1 << 60}},
    {"drops": {"x": None}},
    {"duration_s": float("nan")},
    {"duration_s": float("inf")},
    {"ended_at": "0001-01-01T00:00:00Z"},
    {"opened_at": "1969-12-31T23:59:59Z"},
    {"opened_at": "9999-12-31T23:59:59Z"},
)
"""What no row of a broker has."""

NO_ROWS = (
    "rubbish",
    "",
    '{"schema_version":1,"broker_id":"b1","conn',
    '{"schema_version":1}',
    "[]",
    "null",
    "\x00\x01\x02",
)

BREAK_THE_SCHEMA: tuple[dict[str, Any], ...] = (
    {"duration_s": "long"},
    {"ended_at": "yesterday"},
    {"client_id": None},
    {"drops": [1]},
    {"bytes_sent": 1.5},
    {"bytes_sent": 1 << 60},
    {"bytes_sent": -1 << 63},
    {"drops": {"x": 1 << 60}},
    {"duration_s": float("nan")},
    {"duration_s": 1e308},
    {"ended_at": "0001-01-01T00:00:00Z"},
    {"opened_at": "9999-12-31T23:59:59Z"},
)


@pytest.fixture
def dump(tmp_path: Path) -> str:
    return str(tmp_path / "dump")


def clients(spark: SparkSession, dump: str) -> list[str]:
    return sorted(row["client_id"] for row in read(spark, dump).frames.sessions.collect())


def write_parquet(dump: str, table: str, rows: list[dict[str, Any]], name: str, hour: int = 11) -> Path:
    """As the broker does: pyarrow, microseconds in UTC, and whatever columns the rows have."""
    path = Path(dump, f"table={table}/date=2026-11-21/hour={hour}", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {}
    for column in rows[0]:
        values = [row[column] for row in rows]
        if column == "drops":
            columns[column] = pyarrow.array([list(value.items()) for value in values], DROPS)
        elif column.endswith("_at") or column in ("interval_start", "at"):
            moments = [value and datetime.fromisoformat(value) for value in values]
            columns[column] = pyarrow.array(moments, pyarrow.timestamp("us", "UTC"))
        else:
            kind = ARROW[TABLES[table][column].dataType.simpleString()] if column in TABLES[table].names else None
            columns[column] = pyarrow.array(values, kind)
    parquet.write_table(pyarrow.table(columns), path)
    return path


def row_of(**changes: Any) -> dict[str, Any]:
    return ROW | changes


def test_both_formats_in_one_directory_are_one_table(spark: SparkSession, dump: str, write_file: WriteFile) -> None:
    write_file({"client_id": "a"})
    write_parquet(
        dump, "sessions", [row_of(client_id="b", connection_id=7, drops={"expired": 3})], "part-b2-000001.parquet"
    )
    rows = {row["client_id"]: row for row in read(spark, dump).frames.sessions.collect()}
    assert set(rows) == {"a", "b"}
    assert rows["b"]["drops"] == {"expired": 3}
    assert rows["a"]["ended_at"] == rows["b"]["ended_at"]


def test_a_session_of_version_1_lacks_two_columns_and_is_read(
    spark: SparkSession, dump: str, write_file: WriteFile
) -> None:
    old = {name: value for name, value in ROW.items() if name not in ("last_heard_at", "keep_alive_late_s")}
    write_file(json.dumps(old | {"schema_version": 1}))
    dataset = read(spark, dump)
    (row,) = dataset.frames.sessions.collect()
    assert (row["last_heard_at"], row["keep_alive_late_s"], row["client_id"]) == (None, None, "thermometer")
    assert not dataset.warnings


def test_machines_of_a_cluster_are_one_dataset_in_which_each_session_is_once(
    spark: SparkSession, dump: str, write_file: WriteFile
) -> None:
    """As after copying the directories of two machines into one, of which one had an older broker before."""
    old = {name: value for name, value in ROW.items() if name != "node"}
    write_file(json.dumps(old | {"broker_id": "b0", "received_qos1": 1}))
    write_parquet(dump, "sessions", [old | {"broker_id": "b9", "received_qos1": 10}], "part-b9-000001.parquet")
    first, second = (row_of(broker_id=run, node=name) for run, name in (("b3", "a"), ("b4", "b")))
    write_parquet(dump, "sessions", [first | {"received_qos1": 100}], "part-b3-000001.parquet")
    write_parquet(dump, "sessions", [first | {"received_qos1": 100}], "part-b3-000002.parquet")
    write_parquet(dump, "sessions", [second | {"received_qos1": 1000}], "part-b4-000001.parquet")
    dataset = read(spark, dump)
    found = {(row["broker_id"], row["node"], row["received_qos1"]) for row in dataset.frames.sessions.collect()}
    assert found == {("b0", None, 1), ("b9", None, 10), ("b3", "a", 100), ("b4", "b", 1000)}
    assert dataset.rows["sessions"] == 4
    assert not dataset.warnings


def test_a_parquet_file_that_no_broker_writes_is_named_and_the_others_are_read(spark: SparkSession, dump: str) -> None:
    """It is not whole, lacks a column that every row has, or has one of another type."""
    write_parquet(dump, "sessions", [row_of(client_id="a")], "part-b1-000001.parquet")
    expected = []
    for number, damage in enumerate(("torn", "garbage", "empty"), 2):
        path = write_parquet(dump, "sessions", [row_of(connection_id=number)], f"part-b1-{number:06}.parquet")
        whole = path.read_bytes()
        path.write_bytes({"torn": whole[:-100], "garbage": b"rubbish" * 99, "empty": b""}[damage])
        expected.append((path, "left out, no whole Parquet file ("))
    lacking = {name: value for name, value in ROW.items() if name != "peer"}
    path = write_parquet(dump, "sessions", [lacking | {"connection_id": 5}], "part-b1-000005.parquet")
    expected.append((path, "left out, it has no column peer"))
    for number, column in enumerate(OF_ANOTHER_TYPE, 6):
        path = write_parquet(dump, "sessions", [row_of(connection_id=number)], f"part-b1-{number:06}.parquet")
        table = parquet.ParquetFile(path).read()
        parquet.write_table(table.set_column(table.column_names.index("bytes_sent"), "bytes_sent", column), path)
        expected.append((path, "left out, its column bytes_sent has another type"))
    dataset = read(spark, dump)
    assert [row["client_id"] for row in dataset.frames.sessions.collect()] == ["a"]
    assert dataset.rows["sessions"] == 1
    for warning, (path, why) in zip(sorted(dataset.warnings), expected, strict=True):
        assert warning.startswith(f"file:{path}: {why}")


def test_a_row_of_parquet_that_no_broker_writes_is_left_out_and_counted(spark: SparkSession, dump: str) -> None:
    for number, change in enumerate(IMPOSSIBLE):
        rows = [row_of(client_id=f"a{number}", connection_id=number), row_of(connection_id=100 + number, **change)]
        write_parquet(dump, "sessions", rows, f"part-b1-{number:06}.parquet")
    dataset = read(spark, dump)
    assert {row["client_id"] for row in dataset.frames.sessions.collect()} == {f"a{n}" for n in range(len(IMPOSSIBLE))}
    assert dataset.rows["sessions"] == len(IMPOSSIBLE)
    for number, warning in enumerate(sorted(dataset.warnings)):
        assert warning.endswith(f"part-b1-{number:06}.parquet: 1 broken row left out"), IMPOSSIBLE[number]
    assert len(dataset.warnings) == len(IMPOSSIBLE)


def test_a_copied_part_is_read_once_whatever_its_table(spark: SparkSession, dump: str) -> None:
    drop = {"schema_version": 2, "broker_id": "b1", "interval_start": "2026-11-21T11:00:00Z", "interval_s": 10.0}
    drop |= {"reason": "queue_full", "client_id": None, "topic": None, "messages": 5}
    write_parquet(dump, "drops", [drop], "part-b1-000001.parquet")
    copy = write_parquet(dump, "drops", [drop], "part-b1-000001.parquet", hour=12)
    lines = copy.with_suffix(".jsonl")
    lines.write_text(json.dumps(drop) + "\n")
    dataset = read(spark, dump)
    assert dataset.rows["drops"] == 1
    assert [warning.split(": ")[0] for warning in dataset.warnings] == [f"file:{copy}", f"file:{lines}"]
    assert all("left out, a copy of" in warning for warning in dataset.warnings)


def test_only_the_time_that_is_asked_for_is_read(spark: SparkSession, dump: str, write_file: WriteFile) -> None:
    for hour in range(8, 14):
        ended = f"2026-11-21T{hour:02}:30:00Z"
        write_file(
            {"connection_id": hour, "client_id": f"c{hour}", "ended_at": ended},
            name=f"part-b1-{hour:06}.jsonl",
            hour=hour,
        )
    since, until = datetime(2026, 11, 21, 11, 30, tzinfo=UTC), datetime(2026, 11, 21, 13, 30, tzinfo=UTC)
    dataset = read(spark, dump, since=since, until=until)
    assert sorted(row["client_id"] for row in dataset.frames.sessions.collect()) == ["c11", "c12"]
    assert dataset.files == 5, "the folder of 8 o'clock cannot hold such a row, those of 9 and 10 might"
    assert (dataset.starts_at, dataset.ends_at) == (since, datetime(2026, 11, 21, 12, 30, tzinfo=UTC))


def test_a_time_without_rows_is_an_error(spark: SparkSession, dump: str, write_file: WriteFile) -> None:
    write_file({})
    with pytest.raises(InputUnusable, match=r"no rows in .* in the time that was asked for"):
        read(spark, dump, since=datetime(2027, 1, 1, tzinfo=UTC))


def test_files_that_are_still_growing_and_files_of_others_are_not_read(
    spark: SparkSession, dump: str, write_file: WriteFile
) -> None:
    write_file({"client_id": "a"})
    assert read(spark, dump).growing == 0
    write_file({"client_id": "growing"}, name=".part-b1-000002.jsonl.open")
    write_file({"client_id": "converted"}, name=".part-b1-000003.parquet.open")  # of a file that counts itself
    write_file("notes", name="README.txt")
    assert clients(spark, dump) == ["a"]
    assert read(spark, dump).growing == 1


def test_a_line_that_no_broker_writes_is_left_out_counted_and_named(
    spark: SparkSession, dump: str, write_file: WriteFile
) -> None:
    wrong: list[str | dict[str, object]] = [*NO_ROWS, *BREAK_THE_SCHEMA]
    for number, line in enumerate(wrong):
        broken = line if isinstance(line, str) else {"connection_id": 300 + number} | line
        first, last = (
            {"client_id": f"{name}{number}", "connection_id": number + at} for name, at in (("a", 0), ("b", 99))
        )
        write_file(first, broken, last, name=f"part-b1-{number:06}.jsonl")
    dataset = read(spark, dump)
    found = {row["client_id"] for row in dataset.frames.sessions.collect()}
    assert found == {f"{name}{number}" for name in "ab" for number in range(len(wrong))}
    assert dataset.rows["sessions"] == 2 * len(wrong)
    for number, warning in enumerate(sorted(dataset.warnings)):
        assert warning.endswith(f"part-b1-{number:06}.jsonl: 1 broken line left out"), wrong[number]
    assert len(dataset.warnings) == len(wrong)


def test_a_file_of_rubbish_is_named_and_the_others_are_read(
    spark: SparkSession, dump: str, write_file: WriteFile
) -> None:
    write_file({"client_id": "a"})
    write_file(*["rubbish"] * 1200, name="part-b1-000002.jsonl")
    dataset = read(spark, dump)
    assert dataset.rows["sessions"] == 1
    (warning,) = dataset.warnings
    assert warning.endswith("part-b1-000002.jsonl: 1,200 broken lines left out")


def test_columns_that_a_later_broker_adds_are_ignored(spark: SparkSession, dump: str, write_file: WriteFile) -> None:
    write_file({"client_id": "a", "moon_phase": "full"})
    dataset = read(spark, dump)
    assert dataset.frames.sessions.columns == SESSIONS.fieldNames()
    assert not dataset.warnings


def test_a_row_that_was_written_twice_counts_once(spark: SparkSession, dump: str, write_file: WriteFile) -> None:
    write_file({"client_id": "a"}, {"client_id": "b"})
    write_file({"client_id": "a"}, name="part-b1-000002.jsonl")
    assert clients(spark, dump) == ["a", "b"]


def test_an_unknown_schema_version_is_an_error_that_names_a_file(
    spark: SparkSession, dump: str, write_file: WriteFile
) -> None:
    path = write_file({}, {"schema_version": 3, "listener": {"name": "changed its type"}})
    with pytest.raises(InputUnusable, match=rf"{path.name} has rows of schema version 3; .* reads versions 1 and 2"):
        read(spark, dump)


def test_an_unknown_schema_version_in_parquet_is_an_error_that_names_a_file(spark: SparkSession, dump: str) -> None:
    path = write_parquet(dump, "sessions", [row_of(schema_version=3)], "part-b1-000001.parquet")
    with pytest.raises(InputUnusable, match=rf"{path.name} has rows of schema version 3"):
        read(spark, dump)


def test_a_directory_without_files_is_an_error(spark: SparkSession, dump: str) -> None:
    with pytest.raises(InputUnusable, match="There are no files of a dataset in"):
        read(spark, dump)


def test_files_without_rows_are_an_error(spark: SparkSession, dump: str, write_file: WriteFile) -> None:
    write_file()
    with pytest.raises(InputUnusable, match="have no rows"):
        read(spark, dump)


def test_nothing_but_broken_lines_is_an_error(spark: SparkSession, dump: str, write_file: WriteFile) -> None:
    write_file("rubbish", "more")
    with pytest.raises(InputUnusable, match=r"Nothing in .* can be read.*part-b1-000001\.jsonl: 2 broken lines"):
        read(spark, dump)
