"""The troubles that somebody who watches a folder is told of, each with what is none beside it."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .watched import Folder, Row, activity, at, connects, drop, event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Folder:
    return Folder(spark, tmp_path)


def test_bursts_and_storms_of_the_whole_fleet_in_both_formats_beside_files_that_are_torn(folder: Folder) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tools.telemetry.schema import TABLES

    silent = [event(1 + each * 0.01, f"c{each}", "keep_alive_timeout") for each in range(10)]
    storm = [event(6 + each * 0.01, f"c{each}") for each in range(12)]
    polite = [event(11 + each * 0.01, f"c{each}") for each in range(12)]
    polite += [event(12, f"c{each}", "disconnected", "client_disconnected") for each in range(12)]
    folder.add("events", *connects("lines", 1), *silent, *storm, *polite, event(60, "other"))
    folder.add("drops", drop(1, "slow", 60), drop(2, "slow", 60), drop(1, None, 1000), drop(1, "lucky", 99))
    rows = [row | {"at": datetime.fromisoformat(row["at"]), "numbers": []} for row in connects("parquet", 1)]
    path = folder.source / "table=events/date=2026-11-21/hour=11/part-b2-000001.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=TABLES["events"]), path)
    path.with_name("part-b3-000001.jsonl").write_text('{"schema_version": 2, "at": "2026-\n')
    path.with_name("part-b3-000002.parquet").write_bytes(b"PAR1 torn")
    folder.watch()
    assert folder.found() == [
        ("drop_burst", "slow", at(0)),
        ("flapping", "lines", at(0)),
        ("flapping", "parquet", at(0)),
        ("keep_alive_burst", "", at(0)),
        ("reconnect_storm", "", at(5)),
    ]


def test_a_device_that_breaks_off_is_silent_and_one_that_said_goodbye_is_not(folder: Folder) -> None:
    for client_id in ("gone", "polite", "alive"):
        folder.add("activity", *(activity(minute, client_id) for minute in range(40)))
    folder.add("activity", *(activity(minute * 2, "seldom") for minute in range(12)))
    folder.add("events", event(40, "polite", "disconnected", "client_disconnected"))
    folder.add("activity", *(activity(minute, "alive") for minute in range(40, 160)))
    folder.watch()
    assert folder.found() == [("silent", "gone", at(0))]
    assert folder.reported[0]["sentence"] == "gone is silent; it usually publishes every 60 s"
    folder.add("activity", activity(161, "gone"), *(activity(minute, "alive") for minute in range(160, 200)))
    folder.watch()
    folder.add("activity", *(activity(minute, "alive") for minute in range(200, 220)))
    folder.watch()
    assert folder.found() == [("silent", "gone", at(0))]
    (over,) = folder.lines("ended")
    assert (over["id"], over["end"]) == (f"silent/gone/{at(0)}", at(160))
    assert over["sentence"] == "gone publishes again, after 121 min"


def attempt(minutes: float, outcome: str = "acknowledged", consumer: str | None = "a", **changes: Any) -> Row:
    """A delivery of the queue `jobs`; `number` of them."""
    row: Row = {"schema_version": 2, "broker_id": "b1", "queue": "jobs", "message_id": "1", "topic": "t"}
    row |= {"consumer": consumer, "ordering_key": None, "attempt": 1, "outcome": outcome, "detail": None}
    row |= {"delivered_at": at(minutes), "ended_at": at(minutes), "held_us": 16, "behind": 0, "one_in": 1}
    return row | changes


def letters(minutes: float, queue: str, number: int) -> Row:
    row: Row = {"schema_version": 2, "broker_id": "b1", "queue": queue, "message_id": "1", "topic": "t"}
    row |= {"cause": "nacked", "detail": None, "attempts": 5, "consumer": "a", "ordering_key": None}
    row |= {"payload_bytes": 1, "published_at": at(0), "first_at": at(0), "last_at": at(0), "at": at(minutes)}
    return row | {"one_in": number}


def test_troubles_of_queues(folder: Folder) -> None:
    keyed = {"ordering_key": "k", "behind": 7, "attempt": 3}
    folder.add(
        "attempts",
        *(attempt(1, one_in=100), attempt(2, "nacked", one_in=25)),  # a fifth, and the other fails less
        *(attempt(1, consumer="b", one_in=100), attempt(2, "deadline", consumer="b", one_in=5)),
        *(attempt(3, "nacked", consumer=each, queue="mail", one_in=20) for each in ("c", "d")),
        *(attempt(each, "nacked", consumer="c", queue="keys", **keyed) for each in (1, 4)),
        *(attempt(4, "nacked", consumer="c", queue="keys", **keyed | {"ordering_key": "goes on"}),),
        *(attempt(each, "nacked", consumer="c", queue="more", **keyed) for each in (3, 4)),  # for a minute
        *(attempt(4.5, consumer="c", queue="more", ordering_key="k"),),
        *(attempt(4.5, consumer="c", queue="keys", ordering_key="goes on"),),
        *(attempt(4, "nacked", consumer="c", queue="keys", **keyed | {"ordering_key": "alone", "behind": 0}),),
        *(attempt(6, "nacked", consumer="a", one_in=19), attempt(6, one_in=1)),  # too few
    )
    folder.add("dead_letters", letters(1, "jobs", 10), letters(1, "mail", 9))
    folder.watch()
    assert folder.found() == []  # more may come
    folder.add("activity", activity(60, "other"))
    folder.watch()
    told = {row["kind"]: row for row in folder.lines("began") if row["queue"] != "more"}
    assert {kind: (row["queue"], row["client_id"], row["ordering_key"]) for kind, row in told.items()} == {
        "failing_consumer": ("jobs", "a", None),
        "failing_queue": ("mail", None, None),
        "dead_letters": ("jobs", None, None),
        "stuck_key": ("keys", None, "k"),
    }
    assert [row["id"] for row in folder.lines("began") if row["queue"] == "more"] == [f"stuck_key/more/k/{at(0)}"]
    assert len(folder.lines("began")) == 5
    assert [told[kind]["sentence"] for kind in ("failing_consumer", "failing_queue", "dead_letters", "stuck_key")] == [
        "a failed 25 deliveries of queue jobs in 5 minutes, 20 % of what it got",
        "the consumers of queue mail all fail alike: 40 deliveries in 5 minutes, 100 % of them",
        "10 messages of queue jobs were given up in 5 minutes",
        "key k of queue keys is stuck: a message was tried 3 times, with 7 behind it",
    ]
    assert told["stuck_key"]["id"] == f"stuck_key/keys/k/{at(0)}"
    folder.add("activity", activity(120, "other"))  # the queues have nothing to do, and clients have
    folder.watch()
    over = sorted(row["sentence"] for row in folder.lines("ended") if row["queue"] != "more")
    assert over == [
        "10 messages of queue jobs were given up in 5 min; no more are",
        "a failed 25 deliveries of queue jobs in 5 min; it works again",
        "key k of queue keys was stuck for 5 min; it is not any more",
        "the consumers of queue mail failed 40 deliveries in 5 min; they work again",
    ]


def test_planted_troubles_of_queues_are_found(spark: SparkSession, folder: Folder) -> None:
    from tools.telemetry.generate import Order, generate

    dump = folder.source / "fleet"
    generate(Order(30, 1.0, 1, 600, "parquet", "consumer=2,key=3,outage=1"), dump, lambda share: None)
    for table in dump.glob("table=*"):
        table.rename(folder.source / table.name)
    folder.watch()
    planted = json.loads((dump / "truth.json").read_text())["troubles"]
    found: dict[str, set[str]] = {}
    for row in folder.lines("began"):
        found.setdefault(row["kind"], set()).add(row["ordering_key"] or row["client_id"] or row["queue"])
    of_kind = {kind: [each for each in planted if each["kind"] == kind] for kind in ("consumer", "key", "outage")}
    assert found["failing_consumer"] == {each["consumer"] for each in of_kind["consumer"]}
    assert found["failing_queue"] == {each["queue"] for each in of_kind["outage"]}
    assert found["stuck_key"] >= {each["key"] for each in of_kind["key"]}
    assert len(found["stuck_key"]) <= 5  # the consumers that fail hold up others


def test_once_it_prints_what_it_finds_and_ends(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from contextlib import nullcontext

    from spark_analytics import __main__ as cli
    from spark_analytics import environment

    monkeypatch.setattr(environment, "spark_session", lambda _master, _local: nullcontext(spark))
    folder = Folder(spark, tmp_path)
    folder.add("events", *connects("flapper", 1), event(30, "other"))
    command = ["watch", "--once", "--out", str(folder.out), "--input"]
    assert cli.main([*command, str(folder.source)]) == 0
    assert capsys.readouterr().out == f"{at(0)}  flapping began  flapper connected 6 times in 5 minutes\n"
    assert cli.main([*command, str(folder.source)]) == 0
    assert capsys.readouterr() == ("Nothing to tell: no trouble began or ended in what was read.\n", "")
    assert cli.main([*command, str(tmp_path / "nowhere")]) == 4
    assert capsys.readouterr().err.startswith(f"error: There is no {tmp_path / 'nowhere'}")
