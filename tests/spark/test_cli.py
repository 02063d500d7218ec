"""`python -m spark_analytics` as a person runs it, judged by files, output and exit code.

A process of its own that writes a report is in `tests/e2e/test_dataset`.
"""

from __future__ import annotations

import csv
import importlib.metadata
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_analytics import __main__ as cli
from spark_analytics import environment
from spark_analytics.registry import REPORTS
from spark_analytics.schema import TABLES as DATASET

from .test_stream_report import archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WriteFile = Callable[..., Path]
Command = Callable[..., int]
"""Takes the command's arguments and returns its exit code."""

ROOT = Path(__file__).parents[2]


def run(*arguments: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "spark_analytics", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def rows(out: Path, table: str) -> list[dict[str, str]]:
    texts = (path.read_text() for path in sorted((out / table / "csv").glob("*.csv")))
    return [row for text in texts for row in csv.DictReader(io.StringIO(text, newline=""))]


# ── what does not need Spark ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.long
def test_without_java_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    done = run("report", "--input", tmp_path, "--out", tmp_path / "out", PATH="", JAVA_HOME="")
    assert done.returncode == 3
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "apt-get install openjdk-17-jre-headless" in line
    assert not (tmp_path / "out").exists()


def fake_java(directory: Path, version: str) -> None:
    java = directory / "bin/java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    java.chmod(0o755)


@pytest.mark.parametrize(("version", "major"), [("1.8.0_412", 8), ("11.0.2", 11)])
def test_a_java_that_is_too_old_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], version: str, major: int
) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "4.0.1")
    assert cli.main(["report", "--input", "in", "--out", "out"]) == 3
    assert f"pyspark 4.0.1 needs Java 17 or newer; {tmp_path}/bin/java is Java {major}" in capsys.readouterr().err


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_a_java_that_is_new_enough_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    environment.require()


@pytest.mark.parametrize("package", ["pyspark", "plotly"])
def test_without_a_package_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], package: str
) -> None:
    def missing(name: str) -> str:
        if name == package:
            raise importlib.metadata.PackageNotFoundError(name)
        return "4.0.1"

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert cli.main(["report", "--input", "in", "--out", "out"]) == 3
    assert capsys.readouterr().err == f"error: Reports need {package}: pip install 'mqttlite[spark]'\n"


# ── with Spark ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """The command, in a zone far from UTC, with the Spark that is here already."""
    monkeypatch.setattr(environment, "spark_session", lambda _master, _local: nullcontext(spark))
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    time.tzset()
    yield lambda *arguments: cli.main(list(map(str, arguments)))
    monkeypatch.undo()
    time.tzset()


@pytest.mark.slow
def test_a_report_is_all_tables_and_a_page_with_its_archive_and_replaces_only_its_own(
    tmp_path: Path, write_file: WriteFile, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = '<script>alert(1)</script>,"x"'
    write_file(
        {"client_id": "a", "close_reason": "keep_alive_timeout"},
        {"client_id": hostile, "drops": {"queue_full": 5, "expired": 1}, "dropped": 6, "bytes_sent": 9}
        | {"schema_version": 1},
        {"client_id": "b", "backpressure_s": 1.5, "backpressure_count": 1},
        "rubbish",
    )
    out = tmp_path / "out"
    out.mkdir()
    (out / "diary.txt").write_text("mine")
    (out / "report.html").write_text("old")
    archive(tmp_path / "archive", "orders", 0, 0, *["hot"] * 1_000)
    archive(tmp_path / "archive", "orders", 2, 0, "k")
    arguments = ("--input", tmp_path / "dump", "--archive", tmp_path / "archive", "--out", out, "--overwrite")
    assert command("report", *arguments) == 0

    done = capsys.readouterr()
    *said, warning = done.err.splitlines()
    steps = [line for line in said if line.startswith("[")]
    assert [line for line in said if line not in steps] == [line for line in done.out.splitlines() if line[:1] == "!"]
    tables = [table.name for report in REPORTS for table in report.TABLES]
    assert sorted(step.split()[1] for step in steps[len(DATASET) : -1]) == sorted(tables)
    assert warning.endswith("part-b1-000001.jsonl: 1 broken line left out")
    assert "2026-11-21 11:00:30 to 2026-11-21 11:00:30 UTC" in done.out
    assert "33.3 % of 3 ended sessions ended without a goodbye" in done.out
    assert "Partition 0 of stream orders has 99.9 % of its messages, 3.0 times an even share" in done.out
    assert done.out.endswith(f"Look at {out}/report.html\n")

    assert {path.name for path in out.iterdir()} == {*tables, "report.html", "diary.txt"}
    assert (out / "diary.txt").read_text() == "mine"
    for table in tables:
        assert list((out / table / "parquet").glob("*.parquet")), table
        assert [path.name for path in (out / table / "csv").glob("*.csv")] == [f"{table}.csv"]
    by_client = {row["client_id"]: row for row in rows(out, "sessions")}
    assert by_client[hostile]["drops"] == "expired=1;queue_full=5"
    assert by_client["a"]["ended_at"] == "2026-11-21T11:00:30.250000Z"
    assert [row["client_id"] for row in rows(out, "keep_alive_timeouts")] == ["a"]

    page = (out / "report.html").read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;,&quot;x&quot;" in page
    assert "1 broken line left out" in page
    assert "Hot keys of streams" in page
    assert "No client flaps." in page
    assert '<a href="sessions/csv/sessions.csv">' in page


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--since", "yesterday"), "'yesterday' is no time"),
        (("--limit", "connections"), "'connections' is no limit"),
        (("--limit", "connections=-5"), "'connections=-5' is no limit"),
        (("--limit", "moons=1"), "'moons=1' is no limit: 'moons' is none of connections, messages_received_per_s"),
    ],
)
def test_an_unreadable_configuration_is_reported_before_anything_starts(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, str], complaint: str
) -> None:
    with pytest.raises(SystemExit) as exit:
        cli.main(["report", "--input", "in", "--out", "out", *arguments])
    assert exit.value.code == 2
    assert complaint in capsys.readouterr().err


def test_only_a_local_directory_with_little_in_it_is_small(tmp_path: Path) -> None:
    assert not environment.is_small(str(tmp_path / "nowhere"))
    assert not environment.is_small("hdfs:///telemetry")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/part").write_bytes(bytes(environment.SMALL_BYTES - 2))
    (tmp_path / "part").write_bytes(b"x")
    (tmp_path / "gone").symlink_to("nothing")
    assert environment.is_small(str(tmp_path))
    (tmp_path / "one more").write_bytes(b"x")
    assert not environment.is_small(str(tmp_path))


@pytest.mark.slow
def test_an_output_that_is_not_empty_is_refused(
    tmp_path: Path, write_file: WriteFile, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    write_file({})
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.html").write_text("old")

    assert command("report", "--input", tmp_path / "dump", "--out", out) == 5
    assert capsys.readouterr().err == (
        f"error: {out} is not empty. Give another --out, or --overwrite to replace the report in it.\n"
    )
    assert (out / "report.html").read_text() == "old"


@pytest.mark.slow
def test_without_files_nothing_is_written(tmp_path: Path, command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("report", "--input", tmp_path / "nowhere", "--out", tmp_path / "out") == 4
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: There are no files of a dataset in {tmp_path}/nowhere")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_master_that_cannot_be_reached_is_one_sentence(tmp_path: Path) -> None:
    done = run("report", "--input", tmp_path, "--out", tmp_path / "out", "--master", "nonsense")
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert "Master" in line
    assert "install" not in line
