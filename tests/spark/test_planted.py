"""Whether the report finds what was planted, and nothing else: precision and recall over as many fleets as asked.

Each fleet has its own seed, devices of six classes, ordinary noise and troubles whose truth is known. A report that
names the consequence of another trouble is not wrong: a device that floods a thousand topics does publish more than it
used to. Such rows are `CONSEQUENCES` and count neither way.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.rounds import todays

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

FLEETS: Final = os.environ.get("MQTTLITE_FLEETS", "")
SEEDS: Final = range(int(FLEETS)) if FLEETS else todays(range(2), 2)
"""A fleet takes a processor half a minute, so a run has one of two. After a change of a report run twenty:
`MQTTLITE_FLEETS=20 tools/test tests/spark/test_planted.py`."""

ENOUGH: Final = 20
"""Fleets until each cause is surely planted somewhere."""

FEW_SEEDS: Final = todays(range(3), 3)
DEVICES: Final = 50
DAYS: Final = 2.0
INTERVAL_S: Final = 60
WANTED: Final = 0.95

PLANTED: Final = "flapping=3,silent=3,rate=2,greedy=2,slow=2,duplicate=2,storm=2,clock=1,explosion=1,dead=2"
PLANTED_IN_QUEUES: Final = "consumer=2,key=3,outage=1"

BY_CLIENT: Final = {
    "flapping": "flapping_clients",
    "silent": "silent_devices",
    "rate": "rate_anomalies",
    "greedy": "greedy_clients",
    "slow": "slow_clients",
    "duplicate": "duplicate_client_ids",
}

OTHERS: Final = (
    "reconnect_storms",
    "clock_jumps",
    "dead_topics",
    "topic_explosion",
    "queue_consumers",
    "stuck_keys",
    "retry_storms",
)

CONSEQUENCES: Final = {
    # Between its connections a client says nothing, and for each it publishes anew.
    "rate": {"flapping", "duplicate", "silent", "explosion", "greedy"},
    # Its connections end as soon as the other device comes.
    "flapping": {"duplicate"},
    # While it flaps it is heard for seconds a time.
    "silent": {"flapping", "rate"},
    # So many more messages, or a message to so many topics.
    "greedy": {"explosion", "rate"},
}

Found = dict[str, list[dict[str, Any]]]
Truth = dict[str, Any]


class Written(dict[str, "DataFrame"]):
    """The report's tables, each computed when it is first asked for and kept in a file, as a run of it does."""

    def __init__(self, spark: SparkSession, frames: Any, directory: Path) -> None:
        super().__init__()
        from spark_analytics.registry import REPORTS

        self._spark = spark
        self._frames = frames
        self._directory = directory
        self._tables = {table.name: table for report in REPORTS for table in report.TABLES}

    def __missing__(self, name: str) -> DataFrame:
        frame = self._tables[name].report(replace(self._frames, written=self))
        path = str(self._directory / name)
        frame.write.parquet(path)
        self[name] = self._spark.read.schema(frame.schema).parquet(path)
        return self[name]


@pytest.fixture(scope="module", autouse=True)
def plans_are_compiled(spark: SparkSession) -> Iterator[None]:
    """For hundreds of thousands of rows that takes less time than not to compile them."""
    wanted = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        assert value is not None
        spark.conf.set(name, value)


@pytest.fixture(scope="module")
def fleets(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Truth, Found]]:
    return [report_of(spark, tmp_path_factory.mktemp("fleet"), seed) for seed in SEEDS]


def report_of(spark: SparkSession, directory: Path, seed: int) -> tuple[Truth, Found]:
    truth, tables = reported(spark, directory, seed, f"{PLANTED},{PLANTED_IN_QUEUES}", DAYS)
    names = (*BY_CLIENT.values(), *OTHERS)
    found = {name: [row.asDict() for row in tables[name].collect()] for name in names}
    spark.catalog.clearCache()
    return truth, found


def reported(spark: SparkSession, directory: Path, seed: int, planted: str, days: float) -> tuple[Truth, Written]:
    from spark_analytics.read import read
    from tools.telemetry.generate import Order, generate

    generate(Order(DEVICES, days, seed, INTERVAL_S, "parquet", planted), directory / "dump", lambda share: None)
    truth: Truth = json.loads((directory / "dump/truth.json").read_text())
    return truth, Written(spark, read(spark, str(directory / "dump")).frames, directory)


def of_kind(truth: Truth, kind: str) -> list[dict[str, Any]]:
    return [trouble for trouble in truth["troubles"] if trouble["kind"] == kind]


class Score:
    """What was right, wrong and missed, with the fleets it was so in."""

    def __init__(self) -> None:
        self.right: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.missed: list[str] = []

    def add(self, seed: int, true: set[str], found: set[str], neither: set[str]) -> None:
        self.right.update(true & found)
        self.wrong += [f"seed {seed}: {name}" for name in sorted(found - true - neither)]
        self.missed += [f"seed {seed}: {name}" for name in sorted(true - found)]

    def judge(self) -> None:
        right = self.right.total()
        assert right, "nothing that was planted was found"
        precision, recall = right / (right + len(self.wrong)), right / (right + len(self.missed))
        assert precision >= WANTED, f"precision {precision:.3f}: {self.wrong}"
        assert recall >= WANTED, f"recall {recall:.3f}: {self.missed}"


@pytest.mark.parametrize("kind", BY_CLIENT)
def test_clients_in_trouble_are_named_and_no_others(fleets: list[tuple[Truth, Found]], kind: str) -> None:
    score = Score()
    for seed, (truth, found) in zip(SEEDS, fleets, strict=True):
        true = {trouble["client_id"] for trouble in of_kind(truth, kind)}
        neither = {
            trouble["client_id"] for cause in CONSEQUENCES.get(kind, ()) for trouble in of_kind(truth, cause)
        }  # fmt: skip
        named = {row["client_id"] for row in found[BY_CLIENT[kind]]}
        score.add(seed, true, named, neither)
    score.judge()


def test_reconnect_storms(fleets: list[tuple[Truth, Found]]) -> None:
    """One that a restart of the broker began is one, too; it is known from the truth, but was not planted."""
    score = Score()
    minute = timedelta(minutes=1)
    for seed, (truth, found) in zip(SEEDS, fleets, strict=True):
        planted = {trouble["start"]: spans(trouble["start"], trouble["end"]) for trouble in of_kind(truth, "storm")}
        restarts = [spans(restart["stopped"], restart["started"]) for restart in truth["restarts"]]
        rows = [(row["start"].astimezone(UTC), row["end"].astimezone(UTC)) for row in found["reconnect_storms"]]
        seen, others = set(), set()
        for start, end in rows:
            hits = {name for name, (a, b) in planted.items() if start <= b and end >= a}
            seen |= hits
            if not hits and not any(start <= b + 2 * minute and end >= a for a, b in restarts):
                others.add(start.isoformat())
        score.add(seed, set(planted), seen | others, set())
    score.judge()


def spans(start: str, end: str) -> tuple[datetime, datetime]:
    return datetime.fromisoformat(start), datetime.fromisoformat(end)


def test_clock_jumps(fleets: list[tuple[Truth, Found]]) -> None:
    score = Score()
    for seed, (truth, found) in zip(SEEDS, fleets, strict=True):
        score.add(
            seed,
            {f"{trouble['amount']:.3f}" for trouble in of_kind(truth, "clock")},
            {f"{row['seconds']:.3f}" for row in found["clock_jumps"]},
            set(),
        )
    score.judge()


@pytest.mark.parametrize(
    ("kind", "table", "name"),
    [("dead", "dead_topics", "topic"), ("explosion", "topic_explosion", "prefix")],
)
def test_topics_in_trouble(fleets: list[tuple[Truth, Found]], kind: str, table: str, name: str) -> None:
    score = Score()
    for seed, (truth, found) in zip(SEEDS, fleets, strict=True):
        true = {trouble["topic"] for trouble in of_kind(truth, kind)}
        score.add(seed, true, {row[name] for row in found[table]}, set())
    score.judge()


def test_the_brokers_slow_minutes_are_those_in_which_the_disk_was_slow(spark: SparkSession, tmp_path: Path) -> None:
    """And no others, though clients are slow for hours, whose messages take longer than on any disk."""
    score = Score()
    for seed in FEW_SEEDS:
        truth, tables = reported(spark, tmp_path / str(seed), seed, "slow_minute=3,slow=2", 1.0)
        rows = tables["slow_minutes"].where("who <> 'clients'").collect()
        found = {row["minute"].astimezone(UTC).isoformat() for row in rows}
        true = {minute.isoformat() for trouble in of_kind(truth, "slow_minute") for minute in minutes(trouble)}
        # Of a minute at the edge, in which it was slow for seconds, either may be said.
        edges = {minute.isoformat() for trouble in of_kind(truth, "slow_minute") for minute in edges_of(trouble)}
        score.add(seed, true - edges, found - edges, set())
    score.judge()


def edges_of(trouble: dict[str, Any]) -> set[datetime]:
    """Minutes of which the trouble had less than half."""
    start, end = spans(trouble["start"], trouble["end"])
    half = timedelta(seconds=30)
    return {minute for minute in minutes(trouble) if minute + half < start or minute + half > end}


def minutes(trouble: dict[str, Any]) -> Iterator[datetime]:
    start, end = spans(trouble["start"], trouble["end"])
    at = start.replace(second=0, microsecond=0)
    while at < end:
        yield at
        at += timedelta(minutes=1)


def causes(truth: Truth) -> dict[str, list[str]]:
    of: dict[str, list[str]] = defaultdict(list)
    for trouble in truth["troubles"]:
        of[trouble["kind"]].append(trouble["cause"])
    return of


def test_every_cause_is_planted_in_some_fleet(fleets: list[tuple[Truth, Found]]) -> None:
    planted: dict[str, set[str]] = defaultdict(set)
    for truth, _ in fleets:
        for kind, named in causes(truth).items():
            planted[kind] |= set(named)
    known = {
        "flapping": {
            "connection_lost", "keep_alive_timeout", "malformed_packet", "not_authorized", "packet_too_large",
        },
        "silent": {"vanished", "hung", "paused"},
        "rate": {"high", "low"},
    }  # fmt: skip
    for kind, all_causes in known.items():
        assert planted[kind] <= all_causes
        assert planted[kind] == all_causes or len(SEEDS) < ENOUGH


def test_queues_in_trouble(fleets: list[tuple[Truth, Found]]) -> None:
    """Consumers that fail, keys that are held up, and outages that make a storm of retries."""
    scores = {kind: Score() for kind in ("consumer", "key", "outage")}
    for seed, (truth, found) in zip(SEEDS, fleets, strict=True):
        failing = {row["consumer"] for row in found["queue_consumers"] if row["verdict"] == "fails"}
        scores["consumer"].add(seed, {each["consumer"] for each in of_kind(truth, "consumer")}, failing, set())
        bad = [spans(each["start"], each["end"]) for each in of_kind(truth, "consumer")]
        stuck = {row["ordering_key"]: row["first_at"].astimezone(UTC) for row in found["stuck_keys"]}
        # A message that a failing consumer got again and again holds its key up, too.
        neither = {key for key, at in stuck.items() if any(a <= at <= b for a, b in bad)}
        scores["key"].add(seed, {each["key"] for each in of_kind(truth, "key")}, set(stuck), neither)
        outages = {each["start"]: spans(each["start"], each["end"]) for each in of_kind(truth, "outage")}
        seen = set()
        for row in found["retry_storms"]:
            start, end = row["start"].astimezone(UTC), row["end"].astimezone(UTC)
            seen |= {name for name, (a, b) in outages.items() if a <= end and start <= b} or {f"{start}"}
        scores["outage"].add(seed, set(outages), seen, set())
    for score in scores.values():
        score.judge()
