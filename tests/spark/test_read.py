"""Reading dumps that are whole, torn, foreign, of another version, or not there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from mqttlite.telemetry.dump import Options, SessionDump, SessionRow
from spark_analytics.errors import InputUnusable
from spark_analytics.read import read_sessions
from spark_analytics.schema import REQUIRED, SESSIONS

from .conftest import ROW

pytestmark = pytest.mark.slow

WriteFile = Callable[..., Path]


@pytest.fixture
def dump(tmp_path: Path) -> str:
    return str(tmp_path / "dump")


def clients(spark: SparkSession, dump: str) -> list[str]:
    return sorted(row["client_id"] for row in read_sessions(spark, dump).rows.collect())


def test_the_writer_and_the_reader_agree_on_every_column(spark: SparkSession, dump: str) -> None:
    assert list(SessionRow.__struct_fields__) == SESSIONS.fieldNames()
    optional = {field.name for field in msgspec.structs.fields(SessionRow) if "None" in str(field.type)}
    assert set(REQUIRED) == set(SESSIONS.fieldNames()) - optional

    row = msgspec.convert(ROW | {"drops": {"expired": 3}, "username": 'zoë\n"x"'}, SessionRow)
    writer = SessionDump(Options(directory=dump), "b1")
    writer.write(row)
    assert writer.close(5)
    (read,) = (
        read_sessions(spark, dump)
        .rows.selectExpr("*", "date_format(ended_at, \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'\") as ended_text")
        .collect()
    )
    assert read["ended_text"] == ROW["ended_at"]
    for name in SESSIONS.fieldNames():
        if not name.endswith("_at"):
            assert read[name] == getattr(row, name), name


def test_files_that_are_still_growing_and_files_of_others_are_not_read(
    spark: SparkSession, dump: str, write_file: WriteFile
) -> None:
    write_file({"client_id": "a"})
    write_file({"client_id": "growing"}, name=".part-b1-000002.jsonl.open")
    write_file("notes", name="README.txt")
    assert clients(spark, dump) == ["a"]


@pytest.mark.parametrize(
    "broken",
    [
        "rubbish",
        "",
        '{"schema_version":1,"broker_id":"b1","conn',
        '{"schema_version":1}',
        "[]",
        "null",
        "\x00\x01\x02",
    ],
)
def test_a_broken_line_is_left_out_counted_and_named(
    spark: SparkSession, dump: str, write_file: WriteFile, broken: str
) -> None:
    path = write_file({"client_id": "a"}, broken, {"client_id": "b"})
    sessions = read_sessions(spark, dump)
    assert sorted(row["client_id"] for row in sessions.rows.collect()) == ["a", "b"]
    assert sessions.lines == 3
    (warning,) = sessions.warnings()
    assert warning.endswith(f"{path.name}: 1 broken line left out")


@pytest.mark.parametrize(
    "change",
    [{"duration_s": "long"}, {"ended_at": "yesterday"}, {"client_id": None}, {"drops": [1]}, {"bytes_sent": 1.5}],
    ids=str,
)
def test_a_row_that_breaks_the_schema_is_a_broken_line(
    spark: SparkSession, dump: str, write_file: WriteFile, change: dict[str, object]
) -> None:
    write_file({"client_id": "a"}, change)
    sessions = read_sessions(spark, dump)
    assert sessions.rows.count() == 1
    assert list(sessions.broken_lines.values()) == [1]


def test_a_file_of_rubbish_is_named_and_the_others_are_read(
    spark: SparkSession, dump: str, write_file: WriteFile
) -> None:
    write_file({"client_id": "a"})
    write_file(*["rubbish"] * 1200, name="part-b1-000002.jsonl")
    sessions = read_sessions(spark, dump)
    assert sessions.rows.count() == 1
    (warning,) = sessions.warnings()
    assert warning.endswith("part-b1-000002.jsonl: 1,200 broken lines left out")


def test_columns_that_a_later_broker_adds_are_ignored(spark: SparkSession, dump: str, write_file: WriteFile) -> None:
    write_file({"client_id": "a", "moon_phase": "full"})
    sessions = read_sessions(spark, dump)
    assert sessions.rows.columns == SESSIONS.fieldNames()
    assert not sessions.broken_lines


def test_a_row_that_was_written_twice_counts_once(spark: SparkSession, dump: str, write_file: WriteFile) -> None:
    write_file({"client_id": "a"}, {"client_id": "b"})
    write_file({"client_id": "a"}, name="part-b1-000002.jsonl")
    assert clients(spark, dump) == ["a", "b"]


def test_an_unknown_schema_version_is_an_error_that_names_a_file(
    spark: SparkSession, dump: str, write_file: WriteFile
) -> None:
    path = write_file({}, {"schema_version": 2, "listener": {"name": "changed its type"}})
    with pytest.raises(InputUnusable, match=rf"{path.name} has rows of schema version 2; .* reads version 1"):
        read_sessions(spark, dump)


def test_a_directory_without_sessions_is_an_error(spark: SparkSession, dump: str) -> None:
    with pytest.raises(InputUnusable, match="There is no table=sessions under"):
        read_sessions(spark, dump)


def test_a_table_without_rows_is_an_error(spark: SparkSession, dump: str, write_file: WriteFile) -> None:
    write_file()
    with pytest.raises(InputUnusable, match="no session rows"):
        read_sessions(spark, dump)


def test_a_table_of_nothing_but_broken_lines_is_an_error(spark: SparkSession, dump: str, write_file: WriteFile) -> None:
    write_file("rubbish", "more")
    with pytest.raises(InputUnusable, match=r"All 2 lines .* are broken, the first in .*part-b1-000001\.jsonl"):
        read_sessions(spark, dump)
