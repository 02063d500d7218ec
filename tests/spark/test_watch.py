"""Watching a folder that grows: late files, restarts and crashes, and the findings that must be there exactly once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

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


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Folder:
    return Folder(spark, tmp_path)


def connects(client_id: str, first: float, number: int = 6) -> list[Row]:
    return [event(first + each * 0.1, client_id) for each in range(number)]


def test_a_finding_is_told_once_though_rows_come_late_and_the_watch_crashes_and_starts_again(folder: Folder) -> None:
    """It crashes between the file of findings and the checkpoint, and makes the same file again."""

    def crash(rows: list[Row]) -> None:
        raise RuntimeError("the power fails")

    from spark_analytics.errors import AnalyticsError

    folder.add("events", *connects("flapper", 1), *connects("calm", 1, 2), *connects("late", 1, 3), event(14, "other"))
    folder.watch()
    folder.add("events", *connects("late", 2, 3))
    folder.watch()
    assert folder.found() == []  # more of it may come
    folder.add("events", event(40, "other"))
    with pytest.raises(AnalyticsError, match="failed"):
        folder.watch(crash)
    once = [("flapping", "flapper", at(0)), ("flapping", "late", at(0))]
    assert folder.found() == once
    folder.watch()
    folder.add("events", *connects("late", 3, 6))  # its five minutes are told of already
    folder.add("events", event(80, "other"))
    folder.watch()
    assert folder.found() == once
    told = [(row["id"], row["status"], row["number"], row["end"], row["sentence"]) for row in folder.reported]
    began, over = ("connected 6 times in 5 minutes", "connected 6 times in 5 min; it is steady again")
    assert sorted(told) == [
        (f"flapping/{client_id}/{at(0)}", status, 6, at(5), f"{client_id} {sentence}")
        for client_id in ("flapper", "late")
        for status, sentence in (("began", began), ("ended", over))
    ]


def test_a_trouble_that_lasts_is_told_when_it_begins_and_ends_and_counted_between(folder: Folder) -> None:
    """Also if the watch ends and starts again meanwhile."""
    for first in (1, 6, 21):  # five minutes, the next, and a quarter of an hour later
        folder.add("events", *connects("flapper", first))
    folder.add("events", event(36, "other"))
    folder.watch()
    assert [row["status"] for row in folder.reported] == ["began", "goes_on", "goes_on"]
    folder.add("events", *connects("flapper", 41), event(75, "other"))
    folder.watch()
    folder.add("events", event(120, "other"))
    folder.watch()
    identity = f"flapping/flapper/{at(0)}"
    told = [(row["id"], row["status"], row["number"], row["end"]) for row in folder.reported]
    assert told == [
        (identity, "began", 6, at(5)),
        (identity, "goes_on", 12, at(10)),
        (identity, "goes_on", 18, at(25)),
        (identity, "goes_on", 24, at(45)),
        (identity, "ended", 24, at(45)),
    ]
    assert [len(folder.lines(status)) for status in ("began", "goes_on", "ended")] == [1, 0, 1]
    assert folder.reported[-1]["sentence"] == "flapper connected 24 times in 45 min; it is steady again"


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


# ---------------------------------------------------------------------------------------------------------- alerts


def finding(kind: str, client_id: str | None) -> Row:
    named: Row = {"client_id": client_id, "queue": None, "ordering_key": None}
    return {"id": f"{kind}/{client_id}", "kind": kind, "start": at(0), "sentence": "…"} | named


def test_an_alert_has_a_topic_that_its_client_cannot_choose() -> None:
    from spark_analytics.alerts import topic_of

    assert topic_of(finding("silent", "meter-7")) == "$SYS/analytics/alerts/silent/meter-7"
    assert topic_of(finding("silent", "a/+/#")) == "$SYS/analytics/alerts/silent/a%2F%2B%2F%23"
    assert topic_of(finding("reconnect_storm", None)) == "$SYS/analytics/alerts/reconnect_storm"
    stuck = finding("stuck_key", None) | {"queue": "jobs", "ordering_key": "a/b"}
    assert topic_of(stuck) == "$SYS/analytics/alerts/stuck_key/jobs/a%2Fb"


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("mqtt://host", ("host", 1883, False, None, None)),
        ("mqtts://me:p%40ss@host", ("host", 8883, True, "me", "p@ss")),
        ("mqtt://[::1]:1884/", ("::1", 1884, False, None, None)),
    ],
)
def test_where_alerts_go(url: str, meant: tuple[object, ...]) -> None:
    from spark_analytics.alerts import Target

    assert Target.parse(url) == Target(*meant)  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["host:1883", "http://host", "mqtt://", "mqtt://host:x", "mqtt://host/topic"])
def test_a_server_that_is_no_broker_is_reported(url: str) -> None:
    from spark_analytics.alerts import Target

    with pytest.raises(ValueError, match="names no broker"):
        Target.parse(url)


async def test_alerts_reach_subscribers_where_the_broker_permits_it(capsys: pytest.CaptureFixture[str]) -> None:
    import asyncio

    from mqttlite import Broker, Client
    from mqttlite.config import Config, ListenerOptions
    from mqttlite.telemetry.sys_topics import Options
    from spark_analytics.alerts import Alerts, Target

    findings = [finding("silent", "meter/7"), finding("reconnect_storm", None)]
    config = Config(listeners=(ListenerOptions(port=0),), sys=Options(publishers=("spark-analytics",)))
    async with Broker(config) as broker, Client("127.0.0.1", broker.port) as client:
        await client.subscribe("$SYS/analytics/alerts/#", qos=1)
        await asyncio.to_thread(Alerts(Target("127.0.0.1", broker.port, False, None, None)).publish, findings)
        got = [await anext(client.messages) for _ in findings]
    assert [message.topic for message in got] == [
        "$SYS/analytics/alerts/silent/meter%2F7",
        "$SYS/analytics/alerts/reconnect_storm",
    ]
    assert [json.loads(message.payload) for message in got] == findings
    assert capsys.readouterr().err == ""


async def test_a_broker_that_refuses_or_is_gone_costs_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    import asyncio

    from mqttlite import Broker
    from spark_analytics.alerts import Alerts, Target

    async with Broker(port=0) as broker:
        port = broker.port
        alerts = Alerts(Target("127.0.0.1", port, False, None, None))
        await asyncio.to_thread(alerts.publish, [finding("silent", "c1")])
    await asyncio.to_thread(alerts.publish, [finding("silent", "c1")])
    refused, gone = capsys.readouterr().err.splitlines()
    assert refused.startswith(f"warning: alerts did not reach 127.0.0.1:{port}: ")
    assert "$SYS/analytics/alerts/silent/c1" in refused
    assert gone.startswith(f"warning: alerts did not reach 127.0.0.1:{port}: ")


def test_without_mqttlite_only_alerts_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from spark_analytics.alerts import Alerts, Target
    from spark_analytics.errors import EnvironmentMissing

    monkeypatch.setitem(sys.modules, "mqttlite.client", None)
    with pytest.raises(EnvironmentMissing, match="pip install mqttlite"):
        Alerts(Target("127.0.0.1", 1883, False, None, None))


# ------------------------------------------------------------------------------------------------------ the command


def test_it_prints_what_it_finds_until_ctrl_c(tmp_path: Path) -> None:
    import signal
    import subprocess
    import sys

    folder = Folder(None, tmp_path)
    folder.add("events", *connects("flapper", 1), event(30, "other"))
    command = [sys.executable, "-m", "spark_analytics", "watch", "--master", "local[2]"]
    command += ["--input", str(folder.source), "--out", str(folder.out)]
    soon_over = {**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}  # else Java optimises for half a minute
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], env=soon_over, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "Watching; nothing to tell so far.\n"
        assert process.stdout.readline() == f"{at(0)}  flapping began  flapper connected 6 times in 5 minutes\n"
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=400)
    assert (process.returncode, complaints) == (130, "")


def test_once_it_prints_what_it_finds_and_ends(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from contextlib import nullcontext

    from spark_analytics import __main__ as cli
    from spark_analytics import environment

    monkeypatch.setattr(environment, "spark_session", lambda _master: nullcontext(spark))
    folder = Folder(spark, tmp_path)
    folder.add("events", *connects("flapper", 1), event(30, "other"))
    command = ["watch", "--once", "--out", str(folder.out), "--input"]
    assert cli.main([*command, str(folder.source)]) == 0
    assert capsys.readouterr().out == f"{at(0)}  flapping began  flapper connected 6 times in 5 minutes\n"
    assert cli.main([*command, str(folder.source)]) == 0
    assert capsys.readouterr() == ("Nothing to tell: no trouble began or ended in what was read.\n", "")
    assert cli.main([*command, str(tmp_path / "nowhere")]) == 4
    assert capsys.readouterr().err.startswith(f"error: There is no {tmp_path / 'nowhere'}")
