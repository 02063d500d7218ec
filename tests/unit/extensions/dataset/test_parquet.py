"""Complete files as Parquet: the same rows, exactly the columns of the reference, and no row lost on the way."""

import importlib.util
import io
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet
import pytest

from mqttlite.extensions.dataset import parquet
from mqttlite.extensions.dataset.dataset import Dataset
from mqttlite.extensions.dataset.options import TelemetryError
from mqttlite.extensions.dataset.parquet import NotConvertible, convert
from mqttlite.extensions.dataset.parts import Disk
from mqttlite.extensions.dataset.tables import TABLES, DropRow, LatencyRow, Row, columns_of
from tests.support.dataset import ENDED_AT, EVENT, FailingDisk, left_open, options, row, until

RUDE = '"numbers":{} "drops":{"a":1}, \\"numbers\\":{"b":2}} é\n\t\x01'

TYPES = {
    "string": "string",
    "int": "int32",
    "long": "int64",
    "double": "double",
    "boolean": "bool",
    "timestamp": "timestamp[us, tz=UTC]",
    "list<int>": "list<element: int32 not null>",
    "list<long>": "list<element: int64 not null>",
    "map<string,long>": "map<string, int64 ('value')>",
}


def lines_of(rows: list[Any]) -> bytes:
    return msgspec.json.Encoder().encode_lines(rows)


def converted(folder: Path, table: str, lines: bytes) -> pyarrow.parquet.ParquetFile:
    source = folder / "lines"
    source.write_bytes(lines)
    sink = io.BytesIO()
    for _ in convert(table, source, sink.write):
        pass
    return pyarrow.parquet.ParquetFile(io.BytesIO(sink.getvalue()))


def made_up(table: str, number: int) -> Row:
    """A row in which every column has a value of its type; those that may be null have none in every other row."""
    values: dict[str, Any] = {
        "string": RUDE * number,
        "int": number - 2**31,
        "long": 2**63 - 1 - number,
        "double": number / 3,
        "boolean": bool(number % 2),
        "timestamp": datetime(2026, 11, 21, 11, tzinfo=UTC) + timedelta(microseconds=number),
        "list<int>": list(range(number)),
        "list<long>": [2**40] * number,
        "map<string,long>": {f"reason_{each}": -each for each in range(number)},
    }
    columns = {each.name: None if each.optional and number % 2 else values[each.kind] for each in columns_of(table)}
    return TABLES[table](**columns)


def as_written(value: Any) -> Any:
    """What pyarrow gives back for a value: a map is a list of pairs."""
    return list(value.items()) if isinstance(value, dict) else value


@pytest.mark.parametrize("table", TABLES)
def test_the_columns_are_those_of_the_reference(tmp_path: Path, table: str) -> None:
    schema = converted(tmp_path, table, lines_of([made_up(table, 1)])).schema_arrow
    columns = columns_of(table)
    assert schema.names == [column.name for column in columns]
    for field, column in zip(schema, columns, strict=True):
        assert field.nullable == column.optional, field.name
        found = str(field.type).replace(f"('{field.name}')", "('value')")
        assert found == TYPES[column.kind], field.name


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("block_bytes", [100, parquet.BLOCK_BYTES])
def test_the_rows_are_the_same(tmp_path: Path, table: str, block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "BLOCK_BYTES", block_bytes)
    rows = [made_up(table, number) for number in range(50)]
    read = converted(tmp_path, table, lines_of(rows)).read().to_pylist()
    assert read == [{name: as_written(getattr(each, name)) for name in each.__struct_fields__} for each in rows]


@pytest.mark.long
def test_a_large_file_is_converted_in_steps_and_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "BLOCK_BYTES", 1_000)
    source = tmp_path / "lines"
    lines = lines_of([EVENT]) * 500
    source.write_bytes(lines)
    sink = io.BytesIO()
    steps = sum(1 for _ in convert("events", source, sink.write))
    assert len(lines) // 1_000 <= steps <= len(lines) // 1_000 + 1
    file = pyarrow.parquet.ParquetFile(io.BytesIO(sink.getvalue()))
    assert file.metadata.num_rows == 500
    assert file.num_row_groups == -(-steps // parquet.BLOCKS)
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


LATENCY = LatencyRow(
    broker_id="b1", interval_start=ENDED_AT, interval_s=10.0, stage="route", qos=0, topic="t", messages=1, sum_us=1,
    max_us=1, buckets=[1], counts=[1],
)  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        b"rubbish\n",
        b"{}\n",
        lines_of([LATENCY]).replace(b'"qos":0', b'"qos":null'),
        lines_of([LATENCY]).replace(b'"qos":0', b'"qos":2147483648'),
        lines_of([LATENCY]).replace(b'"qos":0', b'"qos":0,"more":1'),
        lines_of([LATENCY]).replace(b'"t"', b'"\xff"').replace(b'"messages":1', b'"messages":"one"'),
        lines_of([msgspec.structs.replace(LATENCY, interval_s=float("nan"))]),
        lines_of([LATENCY])[:-2] + b" " * 100 + b"}\n",
    ],
)
def test_a_line_that_is_no_row_is_not_converted(tmp_path: Path, line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "BLOCK_BYTES", 8)
    monkeypatch.setattr(parquet, "MAX_LINE_BYTES", len(lines_of([LATENCY])) + 50)
    assert converted(tmp_path, "latency", lines_of([LATENCY])).metadata.num_rows == 1
    with pytest.raises(NotConvertible):
        converted(tmp_path, "latency", lines_of([LATENCY]) + line)


def test_an_error_of_the_disk_stays_one(tmp_path: Path) -> None:
    source = tmp_path / "lines"
    source.write_bytes(lines_of([EVENT]))

    def full(data: bytes) -> int:
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        list(convert("events", source, full))


# ── with the writer ──────────────────────────────────────────────────────────────────────────────────────────────────


def complete(folder: Path) -> list[Path]:
    return sorted(folder.rglob("part-*"))


def sessions(folder: Path) -> list[int]:
    found = []
    for path in complete(folder):
        rows = pyarrow.parquet.ParquetFile(path).read(["connection_id"], use_threads=False).to_pylist()
        found += [each["connection_id"] for each in rows]
    return found


def run_on(folder: Path, disk: Disk) -> Dataset:
    dataset = Dataset(options(folder, format="parquet", rotate_bytes=1), "b1", disk=disk)
    for number in (1, 2):
        dataset.write("sessions", row(number))
        until(lambda number=number: len(complete(folder)) == number)  # type: ignore[misc]
    assert dataset.close(5)
    return dataset


def test_complete_files_are_parquet_and_growing_ones_are_lines(tmp_path: Path) -> None:
    dataset = Dataset(options(tmp_path, format="auto"), "b1")
    dataset.write("sessions", row(1))
    dataset.write("events", EVENT)
    until(lambda: len(left_open(tmp_path)) == 2)
    assert complete(tmp_path) == []
    assert dataset.close(5)
    assert [path.relative_to(tmp_path).as_posix() for path in complete(tmp_path)] == [
        f"table={table}/date=2026-11-21/hour=11/part-b1-000001.parquet" for table in ("events", "sessions")
    ]
    assert left_open(tmp_path) == []


@pytest.mark.slow
def test_any_single_disk_error_costs_no_row_and_doubles_none(tmp_path: Path) -> None:
    peaceful = FailingDisk(lambda _: False)
    run_on(tmp_path / "peace", peaceful)
    assert peaceful.calls > 12
    for failing in range(1, peaceful.calls + 1):
        folder = tmp_path / str(failing)
        dataset = run_on(folder, FailingDisk(lambda call, failing=failing: call == failing))  # type: ignore[misc]
        assert sessions(folder) == [1, 2]
        assert list(folder.rglob(".*")) == []
        assert (dataset.disk_errors, dataset.dropped_rows["sessions"]) == (1, 0), f"call {failing}"


def test_rows_that_cannot_be_converted_stay_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset = Dataset(options(tmp_path, format="parquet"), "b1")
    drop = DropRow(
        broker_id="b1", interval_start=ENDED_AT, interval_s=float("inf"), reason="expired", client_id=None, topic=None,
        messages=1,
    )  # fmt: skip
    dataset.write("drops", drop)
    assert dataset.close(5)
    (path,) = complete(tmp_path)
    assert path.name == "part-b1-000001.jsonl"
    assert json.loads(path.read_text())["reason"] == "expired"
    assert "cannot be converted to Parquet" in caplog.text
    assert list(tmp_path.rglob(".*")) == []


def left_by(folder: Path, lines: bytes, number: int = 1) -> Path:
    path = folder / f"table=events/date=2026-11-20/hour=03/.part-dead-{number:06d}.jsonl.open"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines)
    return path


def test_rows_of_a_dead_broker_become_parquet(tmp_path: Path) -> None:
    left_by(tmp_path, lines_of([EVENT]) + b'{"torn')
    assert Dataset(options(tmp_path, format="parquet"), "b1").close(5)
    (path,) = complete(tmp_path)
    assert path.name == "part-dead-000001.parquet"
    assert pyarrow.parquet.ParquetFile(path).read().to_pylist()[0]["numbers"] == [("keep_alive_s", 60)]


def test_files_of_an_older_broker_stay_as_they_are(tmp_path: Path) -> None:
    older = b'{"schema_version":1,"broker_id":"dead"}\n'
    path = tmp_path / "table=sessions/date=2026-11-20/hour=03/.part-dead-000001.jsonl.open"
    path.parent.mkdir(parents=True)
    path.write_bytes(older)
    assert Dataset(options(tmp_path, format="parquet"), "b1").close(5)
    (path,) = complete(tmp_path)
    assert (path.name, path.read_bytes()) == ("part-dead-000001.jsonl", older)


def test_a_crash_between_two_names_leaves_a_complete_file(tmp_path: Path) -> None:
    hidden = left_by(tmp_path, lines_of([EVENT]))
    hidden.with_name("part-dead-000001.parquet").write_bytes(b"complete")
    assert Dataset(options(tmp_path, format="jsonl"), "b1").close(5)
    (path,) = complete(tmp_path)
    assert (path.suffix, path.read_bytes()) == (".parquet", b"complete")
    assert not hidden.exists()


# ── without pyarrow ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_pyarrow_files_stay_lines_unless_parquet_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "pyarrow.json", None)
    dataset = Dataset(options(tmp_path, format="auto"), "b1")
    dataset.write("events", EVENT)
    assert dataset.close(5)
    assert [path.suffix for path in complete(tmp_path)] == [".jsonl"]
    with pytest.raises(TelemetryError, match=r"needs pyarrow.*pip install 'mqttlite\[telemetry\]'") as caught:
        Dataset(options(tmp_path, format="parquet"), "b1")
    assert caught.value.option == "format"
