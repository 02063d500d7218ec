"""The generated dataset: it keeps the contract, its tables tell of one fleet, and its truth is true of its rows."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from tools.telemetry import schema
from tools.telemetry.command import command
from tools.telemetry.generate import Order, generate
from tools.telemetry.traced import bucket

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
ARROW = {
    "int": "int32", "long": "int64", "double": "double", "boolean": "bool", "string": "string",
    "timestamp": "timestamp[us, tz=UTC]", "map<string,long>": "map<string, int64>",
    "list<int>": "list<item: int32>", "list<long>": "list<item: int64>",
}  # fmt: skip
Rows = dict[str, list[dict[str, Any]]]


def rows_of(directory: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.dataset.dataset(directory / f"table={table}").to_table().to_pylist()
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("fleet")
    generate(Order(40, 1.0, 11, 60, "parquet", "default"), directory, lambda share: None)
    return directory


@pytest.fixture(scope="module")
def rows(made: Path) -> Rows:
    return {table: rows_of(made, table) for table in schema.TABLES}


@pytest.fixture(scope="module")
def truth(made: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((made / "truth.json").read_text())
    return document


def reference() -> Iterator[tuple[str, list[tuple[str, str, bool]]]]:
    """The tables of the reference page: name, type and whether it may be null, of each column."""
    text = (ROOT / "docs/reference/telemetry.md").read_text()
    for part in text.split("\n### ")[1:]:
        header = part.partition("| column | type | meaning |")[2]
        columns = re.findall(r"^\| `(\w+)` \| ([\w<>,]+)(\??) \|", header.partition("\n\n")[0], re.M)
        yield part.split("`")[1], [(name, kind, optional == "?") for name, kind, optional in columns]


def test_the_columns_are_those_of_the_reference() -> None:
    pages = dict(reference())
    assert pages.keys() - schema.TABLES.keys() == {"stream_groups"}, "the fleet has no streams"
    assert schema.TABLES.keys() <= pages.keys()
    for table, columns in pages.items():
        if table not in schema.TABLES:
            continue
        ours = [
            (field.name, str(field.type).replace("element", "item"), field.nullable) for field in schema.TABLES[table]
        ]
        theirs = [(name, ARROW[kind], optional) for name, kind, optional in columns]
        assert [(name, kind.split(" (")[0], optional) for name, kind, optional in ours] == theirs, table


def test_files_have_the_columns_the_names_and_the_folders_of_the_contract(made: Path) -> None:
    files = sorted(made.rglob("*.parquet"))
    assert {path.parts[-4] for path in files} == {f"table={table}" for table in schema.TABLES}
    for path in files:
        table, date, hour, name = path.parts[-4:]
        columns = schema.TABLES[table.removeprefix("table=")]
        read = pa.parquet.read_table(path, partitioning=None)
        assert read.schema.names == columns.names
        assert [field.type for field in read.schema] == [field.type for field in columns], path
        assert re.fullmatch(r"part-[\w-]+-\d{6}\.parquet", name)
        first = read.column(schema.TIME_COLUMNS.get(table.removeprefix("table="), "interval_start"))[0].as_py()
        assert (date, hour) == (f"date={first:%Y-%m-%d}", f"hour={first:%H}")
        for field in columns:
            assert field.nullable or read.column(field.name).null_count == 0, (path, field.name)


def test_messages_are_the_same_in_traffic_activity_and_sessions(rows: Rows) -> None:
    published = sum(row[f"messages_qos{qos}"] for row in rows["traffic"] for qos in range(3))
    assert published == sum(row["messages_received"] for row in rows["activity"]) > 10_000
    received: Counter[tuple[str, int]] = Counter()
    sent: Counter[tuple[str, int]] = Counter()
    dropped: Counter[tuple[str, int]] = Counter()
    for row in rows["activity"]:
        key = (row["broker_id"], row["connection_id"])
        received[key] += row["messages_received"]
        sent[key] += row["messages_sent"]
        dropped[key] += row["dropped"]
    for row in rows["sessions"]:
        key = (row["broker_id"], row["connection_id"])
        if row["close_reason"] != "broker_crash":
            assert sum(row[f"received_qos{qos}"] for qos in range(3)) == received[key]
            assert sum(row[f"sent_qos{qos}"] for qos in range(3)) == sent[key]
            assert row["dropped"] == dropped[key] == sum(dict(row["drops"]).values())


def test_each_delivered_message_is_sent_dropped_or_waits(rows: Rows) -> None:
    delivered = sum(row["deliveries"] for row in rows["traffic"])
    sent = sum(row["messages_sent"] for row in rows["activity"])
    dropped = sum(row["dropped"] for row in rows["activity"])
    last = {
        (row["client_id"]): row["queued"] for row in sorted(rows["activity"], key=lambda row: row["interval_start"])
    }
    assert delivered == sent + dropped + sum(last.values())
    assert dropped == sum(row["messages"] for row in rows["drops"] if row["client_id"] is not None) > 0


def test_a_topic_or_client_has_one_row_in_an_interval(rows: Rows) -> None:
    for table, name in (("traffic", "topic"), ("activity", "connection_id"), ("activity", "client_id")):
        keys = Counter((row["broker_id"], row["interval_start"], row[name]) for row in rows[table])
        again = [key for key, count in keys.items() if count > 1]
        # A client that comes back within an interval has two connections in it.
        assert name == "client_id" or not again


def test_each_session_begins_and_ends_once(rows: Rows) -> None:
    begun = Counter((row["broker_id"], row["connection_id"]) for row in rows["events"] if row["event"] == "connected")
    ends = ("disconnected", "taken_over", "keep_alive_timeout")
    ended = Counter((row["broker_id"], row["connection_id"]) for row in rows["events"] if row["event"] in ends)
    kept = Counter((row["broker_id"], row["connection_id"]) for row in rows["sessions"])
    crashed = {(r["broker_id"], r["connection_id"]) for r in rows["sessions"] if r["close_reason"] == "broker_crash"}
    assert set(begun.values()) == set(kept.values()) == {1}
    assert ended.keys() == kept.keys() - crashed
    assert kept.keys() <= begun.keys()


def test_a_client_has_one_session_at_a_time(rows: Rows, truth: dict[str, Any]) -> None:
    jumps = [trouble for trouble in truth["troubles"] if trouble["kind"] == "clock"]
    slack = sum(abs(jump["amount"]) for jump in jumps)
    lives: dict[str, list[tuple[datetime, datetime]]] = defaultdict(list)
    for row in rows["sessions"]:
        lives[row["client_id"]].append((row["connected_at"], row["ended_at"]))
    for life in lives.values():
        life.sort()
        for (_, ended), (began, _) in itertools.pairwise(life):
            assert (began - ended).total_seconds() >= -slack


def test_a_followed_message_has_its_stages_in_the_histograms(rows: Rows) -> None:
    for stage, column in (("route", "routed_us"), ("queue", "queued_us"), ("write", "written_us")):
        measured = [row[column] for row in rows["samples"] if row[column] is not None]
        histograms = [row for row in rows["latency"] if row["stage"] == stage]
        assert sum(row["messages"] for row in histograms) == len(measured) > 100
        assert sum(row["sum_us"] for row in histograms) == sum(measured)
        assert max(row["max_us"] for row in histograms) == max(measured)
        for row in histograms:
            assert sum(row["counts"]) == row["messages"]
            assert row["buckets"] == sorted(set(row["buckets"]))


def test_buckets_are_those_of_the_reference() -> None:
    us = np.unique(np.concatenate([np.arange(5000), 1 << np.arange(40), (1 << np.arange(1, 40)) - 1]))
    for value, number in zip(us.tolist(), bucket(us).tolist(), strict=True):
        exponent = number // 16 - 1
        low, width = (number, 1) if number < 32 else ((number % 16 + 16) << exponent, 1 << exponent)
        assert low <= value < low + width


def test_troubles_show_in_the_rows(rows: Rows, truth: dict[str, Any]) -> None:
    of = defaultdict(list)
    for trouble in truth["troubles"]:
        of[trouble["kind"]].append(trouble)
    ended: Counter[tuple[str, str]] = Counter((row["client_id"], row["close_reason"]) for row in rows["sessions"])
    for trouble in of["flapping"]:
        assert ended[trouble["client_id"], trouble["cause"]] > 30
    for trouble in of["duplicate"]:
        assert ended[trouble["client_id"], "taken_over"] > 60
        assert len({r["peer"].split(":")[0] for r in rows["sessions"] if r["client_id"] == trouble["client_id"]}) == 2
    for trouble in of["silent"]:
        start, end = (datetime.fromisoformat(trouble[name]) for name in ("start", "end"))
        published = [
            row["interval_start"]
            for row in rows["activity"]
            if row["client_id"] == trouble["client_id"] and row["messages_received"]
        ]
        assert any(at < start for at in published)
        assert not any(start < at < end for at in published)
    for trouble in of["slow"]:
        mine = [row for row in rows["activity"] if row["client_id"] == trouble["client_id"]]
        assert sum(row["backpressure_s"] for row in mine) > 1000
    for trouble in of["clock"]:
        (event,) = [row for row in rows["events"] if row["event"] == "clock_jumped"]
        assert event["duration_s"] == trouble["amount"]
    for trouble in of["dead"]:
        dead = [row for row in rows["traffic"] if row["topic"] == trouble["topic"]]
        assert len(dead) > 100
        assert not any(row["deliveries"] for row in dead)
    for trouble in of["explosion"]:
        topics = {row["topic"] for row in rows["traffic"] if row["topic"].startswith(trouble["topic"] + "/")}
        assert len(topics) > 500
    for trouble in of["storm"]:
        start, end = (datetime.fromisoformat(trouble[name]) for name in ("start", "end"))
        back = {r["client_id"] for r in rows["events"] if r["event"] == "connected" and start <= r["at"] <= end}
        assert len(back) > 0.4 * truth["clients"]


def test_without_troubles_the_truth_is_empty(tmp_path: Path) -> None:
    done = CliRunner().invoke(command, ["--devices", "30", "--days", "1", "--out", str(tmp_path), "--troubles", "none"])
    assert done.exit_code == 0, done.output
    assert "sessions" in done.output
    assert json.loads((tmp_path / "truth.json").read_text())["troubles"] == []


def test_the_same_seed_gives_the_same_rows_in_both_formats(tmp_path: Path) -> None:
    for form in ("parquet", "jsonl"):
        generate(Order(30, 1.0, 3, 600, form, "flapping=1,dead=1"), tmp_path / form, lambda share: None)
    (path,) = sorted((tmp_path / "jsonl").glob("table=traffic/date=2026-11-01/hour=05/*"))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    other = pa.parquet.read_table(
        str(path).replace("/jsonl/", "/parquet/").replace(".jsonl", ".parquet"), partitioning=None
    ).to_pylist()
    for row in other:
        row["interval_start"] = row["interval_start"].strftime("%Y-%m-%dT%H:%M:%SZ")
    assert lines == other
    events = (tmp_path / "jsonl/table=events").rglob("*.jsonl")
    texts = [line for path in events for line in path.read_text().splitlines()]
    assert all(isinstance(json.loads(line)["numbers"], dict) for line in texts)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--troubles", "gremlins=1"], "'gremlins=1' is no trouble: KIND=NUMBER"),
        (["--troubles", "flapping=999"], "30 devices are too few for 999 of flapping"),
        (["--troubles", "slow=99"], "6 viewers are too few for 99 of slow"),
        (["--interval", "7"], "an hour must be a multiple of it"),
    ],
)
def test_wrong_options_are_refused_with_a_sentence(tmp_path: Path, options: list[str], says: str) -> None:
    done = CliRunner().invoke(command, ["--devices", "30", "--days", "1", "--out", str(tmp_path / "out"), *options])
    assert done.exit_code == 2
    assert says in " ".join(done.output.replace("│", "").split())


def test_a_directory_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    done = CliRunner().invoke(command, ["--devices", "30", "--days", "1", "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "is not empty" in done.output


def test_a_missing_part_is_reported_in_a_sentence(tmp_path: Path) -> None:
    hide = "import sys; sys.modules['pyarrow'] = None; from tools.telemetry.command import command; command()"
    done = subprocess.run(
        [sys.executable, "-c", hide, "--devices", "30", "--days", "1", "--out", str(tmp_path / "out")],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "error: pyarrow is missing: pip install 'mqttlite[spark,telemetry]'\n"
