"""The load of each hour, lines through the hours, and when they meet limits."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from itertools import zip_longest
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_analytics.frames import INFORMATION, NOTABLE, PROBLEM, Finding
from spark_analytics.limits import METRICS
from spark_analytics.reports import capacity as report
from spark_analytics.reports.load import load_by_hour

from .made import at, expect, frame_of, make, written

pytestmark = pytest.mark.slow

START = at("2026-11-01 00:00:00")
CAPACITY = next(table for table in report.TABLES if table.name == "capacity")
COLUMNS = "hour timestamp, covered_s double, " + ", ".join(f"{metric} double" for metric in METRICS)
RUN = {"event": "broker_started", "at": "11:00:00"}


def load(spark: SparkSession, connections: list[float], *, covered_s: float = 3600.0) -> DataFrame:
    """`load_by_hour` with so many connections in one hour after the other, and nothing known of the rest."""
    rest = (None,) * (len(METRICS) - 1)
    rows = [
        (START + timedelta(hours=hour), float(covered_s), float(number), *rest)
        for hour, number in enumerate(connections)
    ]
    return frame_of(spark, COLUMNS, rows)


def projected(spark: SparkSession, hours: DataFrame, limit: int | None = None, **rows: Any) -> dict[str, Any]:
    """The row of `capacity` for connections, and its finding as `said`."""
    frames = make(spark, limits={} if limit is None else {"connections": limit}, **rows)
    found = written(spark, replace(frames, written={"load_by_hour": hours}), [CAPACITY])["capacity"]
    (row,) = found.where("metric = 'connections'").selectExpr("*", "cast(met_at as string) as met").collect()
    said = report.findings({"capacity": found})
    return row.asDict() | {"said": [(finding.weight, finding.sentence) for finding in said]}


def test_a_line_meets_its_limit_when_it_does(spark: SparkSession) -> None:
    """100 and 5 more each hour: a busy hour is one in ten, and on a line all are."""
    row = projected(spark, load(spark, [100 + 5 * hour for hour in range(10)]), 1000)
    assert (row["hours"], row["busy_now"], row["highest"], row["growth_per_day"]) == (10, 145, 145, 120)
    assert (row["limit"], row["limit_name"], row["share"], row["agreement"]) == (1000, "--limit", 0.145, 1)
    # (1000 − 145) / 5 = 171 hours after 09:00.
    assert (row["verdict"], row["met"]) == ("will_be_met", "2026-11-08 12:00:00")
    assert row["said"] == [
        (
            PROBLEM,
            "The limit of 1,000 connections (--limit) will be met about 2026-11-08 12:00 UTC: a busy hour has 145 now,"
            " 120 more each day, as 10 hours tell.",
        )
    ]


def test_a_mad_hour_does_not_move_the_date(spark: SparkSession) -> None:
    line: list[float] = [100 + 5 * hour for hour in range(20)]
    line[13] = 900
    row = projected(spark, load(spark, line), 1000)
    assert (row["growth_per_day"], row["busy_now"], row["highest"]) == (120, 195, 900)


def test_the_rhythm_of_the_day_is_no_growth(spark: SparkSession) -> None:
    """Sixty hours from midnight to noon: least squares would see it grow."""
    day = [round(1000 + 500 * math.sin((hour % 24 - 6) / 24 * 2 * math.pi)) for hour in range(60)]
    row = projected(spark, load(spark, [float(number) for number in day]), 2000)
    assert (row["growth_per_day"], row["verdict"], row["met_at"]) == (0, "not_growing", None)
    assert row["busy_now"] == pytest.approx(1400, abs=100)

    growing = [number + 10.0 * hour for hour, number in enumerate(day)]
    row = projected(spark, load(spark, growing), 10_000)
    assert row["growth_per_day"] == 240
    assert row["verdict"] == "will_be_met"


@pytest.mark.parametrize(("hours", "verdict"), [(2, "too_little_data"), (3, "will_be_met")])
def test_three_hours_are_needed(spark: SparkSession, hours: int, verdict: str) -> None:
    row = projected(spark, load(spark, [10.0 + hour for hour in range(hours)]), 100)
    assert (row["verdict"], row["hours"]) == (verdict, hours)
    if verdict == "too_little_data":
        assert (row["growth_per_day"], row["busy_now"], row["met_at"]) == (None, None, None)
        assert row["said"] == [
            (
                INFORMATION,
                "The limit of 100 connections (--limit) cannot be projected yet: 2 full hours of data, and a trend"
                " needs 3; the highest hour had 11.",
            )
        ]


def test_of_a_run_of_minutes_no_hour_is_the_highest(spark: SparkSession) -> None:
    row = projected(spark, load(spark, [90.0], covered_s=60), 100)
    assert (row["hours"], row["highest"], row["verdict"]) == (0, None, "too_little_data")
    assert row["said"] == [
        (
            INFORMATION,
            "The limit of 100 connections (--limit) cannot be projected yet: 0 full hours of data, and a trend"
            " needs 3.",
        )
    ]


def test_hours_of_which_too_little_was_recorded_are_no_points(spark: SparkSession) -> None:
    hours = load(spark, [1.0, 2.0, 3.0], covered_s=report.COVERED_S)
    hours = hours.union(load(spark, [90.0], covered_s=report.COVERED_S - 1))
    row = projected(spark, hours)
    assert (row["hours"], row["highest"], row["verdict"]) == (3, 3, "no_limit_known")


def test_verdicts(spark: SparkSession) -> None:
    """Each of another figure, in one report."""
    cases = (
        ([10.0, 11.0, 12.0, 13.0], 13, "met", PROBLEM),
        ([10.0, 20.0, 10.0, 20.0, 10.0], 100, "not_growing", INFORMATION),
        ([50.0, 40.0, 30.0, 20.0], 100, "not_growing", INFORMATION),
        ([7.0] * 9, 100, "not_growing", INFORMATION),
        ([1.0, 2.0, 3.0, 4.0], 100_000, "beyond_horizon", INFORMATION),
        ([1.0, 2.0, 3.0, 4.0], 1_000, "will_be_met", NOTABLE),
    )
    values = zip_longest(*(numbers for numbers, *_ in cases))
    rows = [(START + timedelta(hours=hour), 3600.0, *each) for hour, each in enumerate(values)]
    hours = frame_of(spark, COLUMNS, rows)
    limits = {metric: limit for metric, (_, limit, *_) in zip(METRICS, cases, strict=True)}
    found = written(spark, replace(make(spark, limits=limits), written={"load_by_hour": hours}), [CAPACITY])["capacity"]
    verdicts = {row["metric"]: row["verdict"] for row in found.collect()}
    assert verdicts == {metric: verdict for metric, (_, _, verdict, _) in zip(METRICS, cases, strict=True)}
    weights = [finding.weight for finding in report.findings({"capacity": found})]  # in the order of their figures
    assert weights == [weight for _, (*_, weight) in sorted(zip(METRICS, cases, strict=True))]


def test_without_load_there_is_no_verdict(spark: SparkSession) -> None:
    assert report.capacity(make(spark, limits={"connections": 100})).count() == 0


def test_the_limits_of_brokers_side_by_side_are_added(spark: SparkSession) -> None:
    def events(*runs: tuple[str, str, str | None]) -> list[dict[str, Any]]:
        numbers = {"max_connections": 100, "max_sessions": 500}
        rows: list[dict[str, Any]] = []
        for broker, start, stop in runs:
            rows.append({"event": "broker_started", "at": start, "broker_id": broker, "numbers": numbers})
            rows += [{"event": "broker_stopped", "at": stop, "broker_id": broker}] if stop else []
        return rows

    def limits(**rows: Any) -> dict[str, float]:
        hours = load(spark, [1.0, 2.0, 3.0])
        frames = make(spark, **rows)
        found = report.capacity(replace(frames, written={"load_by_hour": hours}))
        return {row["limit_name"]: row["limit"] for row in found.where("metric = 'connections'").collect()}

    end = {"event": "connected", "at": "12:00:00"}
    # Two that run, one that stopped in between, one that crashed.
    running = events(
        ("a", "11:00:00", None), ("b", "11:00:00", None), ("c", "11:00:00", "11:59:00"), ("d", "11:59:00", None)
    )
    found = limits(
        events=[*running, end | {"broker_id": "a"}, end | {"broker_id": "b"}],
        sessions=[{"broker_id": "d", "close_reason": "broker_crash", "ended_at": "11:59:30"}],
    )
    assert found == {"max_connections": 200, "max_sessions": 1000}
    # All have stopped, one of them long before the others.
    ended = events(("a", "11:00:00", "11:59:40"), ("b", "11:00:00", "12:00:00"), ("c", "11:00:00", "11:58:00"))
    assert limits(events=ended) == {"max_connections": 200, "max_sessions": 1000}
    assert limits(events=[end]) == {None: None}


LOAD = (
    "hour timestamp, covered_s double, connections long, messages_received_per_s double, messages_sent_per_s double,"
    " bytes_received_per_s double, bytes_sent_per_s double, queued_bytes long"
)


def test_load_is_told_hour_by_hour(spark: SparkSession) -> None:
    """Three ways to know of a connection, an hour in which nothing happens, and a broker that was killed."""
    sent = {"messages_sent": 50, "bytes_received": 100, "bytes_sent": 200}
    frames = make(
        spark,
        events=[
            RUN | {"at": "11:30:00"},
            {"event": "connected", "at": "11:40:00", "connection_id": 1},
            {"event": "connected", "at": "11:41:30", "connection_id": 2},
            {"event": "taken_over", "at": "11:42:00", "connection_id": 2},
            # Comes and goes within a minute.
            {"event": "connected", "at": "11:43:10", "connection_id": 3},
            {"event": "disconnected", "at": "11:43:20", "connection_id": 3},
            # Began before the time that was read.
            {"event": "keep_alive_timeout", "at": "14:20:00", "connection_id": 4},
            {"event": "connected", "at": "14:00:00", "connection_id": 1, "broker_id": "killed"},
            {"event": "subscribed", "at": "14:30:00", "connection_id": 5},
        ],
        sessions=[
            # Also told by an event.
            {"connection_id": 1, "connected_at": "11:40:00", "ended_at": "14:10:00"},
        ],
        activity=[
            {"interval_start": "11:40:00", "connection_id": 1, "messages_received": 36, "queued_bytes": 5} | sent,
            {"interval_start": "11:40:00", "connection_id": 6, "queued_bytes": 6},
            {"interval_start": "11:50:00", "connection_id": 6, "queued_bytes": 10},
            {"interval_start": "14:00:00", "connection_id": 9, "messages_received": 90, "broker_id": "killed"},
            {"interval_start": "14:00:00", "connection_id": 6, "messages_received": 90},
        ],
    )
    expect(
        spark,
        load_by_hour(frames),
        LOAD,
        # 1, 4 and 6, and 2 for half a minute: at 11:41 there were four.
        ("11:00:00", 1800.0, 4, 0.02, 50 / 1800, 100 / 1800, 200 / 1800, 11),
        ("12:00:00", 3600.0, 3, 0.0, 0.0, 0.0, 0.0, 0),
        ("13:00:00", 3600.0, 3, 0.0, 0.0, 0.0, 0.0, 0),
        # And two of the killed one, the last sign of which was at 14:00:10.
        ("14:00:00", 1800.0, 5, 0.1, 0.0, 0.0, 0.0, 0),
    )


def test_of_the_first_schema_version_only_connections_are_known(spark: SparkSession) -> None:
    session = {"schema_version": 1, "connected_at": "11:00:30"}
    frames = make(spark, sessions=[session | {"ended_at": "11:00:40"}, session | {"ended_at": "13:00:00"}])
    expect(
        spark,
        load_by_hour(frames),
        LOAD,
        ("11:00:00", 3560.0, 1, None, None, None, None, None),
        ("12:00:00", 3600.0, 1, None, None, None, None, None),
        ("13:00:00", 0.0, 1, None, None, None, None, None),
    )
    assert report.findings(written(spark, frames, report.TABLES)) == [
        Finding(
            INFORMATION,
            "There is too little data for a trend: it needs 3 hours of which 10.0 min at least were recorded, and there"
            " are 2.",
            "capacity",
        )
    ]


def test_limits_have_names_that_the_load_has(spark: SparkSession) -> None:
    assert set(METRICS) <= set(load_by_hour(make(spark)).columns)
    assert set(report.BROKER_LIMITS.values()) <= set(METRICS)
