"""How runs of the broker ended and what that cut off, and who was refused."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_analytics.frames import NOTABLE, PROBLEM
from spark_analytics.reports import runs

from .made import expect, make, written

pytestmark = pytest.mark.slow

Row = dict[str, Any]


def event(kind: str, broker_id: str, at: str) -> Row:
    return {"event": kind, "broker_id": broker_id, "at": at, "client_id": None, "connection_id": None}


def run_of(broker_id: str, ends: str, reason: str, connections: int) -> list[Row]:
    return [
        {"broker_id": broker_id, "client_id": f"c{number}", "connection_id": number}
        | {"connected_at": ends, "ended_at": ends, "close_reason": reason}
        for number in range(1, connections + 1)
    ]


def test_each_standstill_is_a_row_and_the_longest_ones_are_named(spark: SparkSession) -> None:
    stood = [event("stood_still", "b1", f"11:{minute}:00") | {"duration_s": s} for minute, s in ((10, 1.5), (20, 20.0))]
    tables = written(spark, make(spark, events=[event("broker_started", "b1", "11:00:00"), *stood]), runs.TABLES)
    expect(
        spark,
        tables["standstills"],
        "ended_at timestamp, duration_s double, broker_id string",
        ("11:10:00", 1.5, "b1"),
        ("11:20:00", 20.0, "b1"),
    )
    (found,) = runs.findings(tables)
    assert (found.weight, found.table) == (PROBLEM, "standstills")
    assert "stood still 2 times: 20.0 s until 2026-11-21 11:20:00 UTC" in found.sentence


def test_a_crash_and_a_restart_name_the_sessions_that_they_cut_off(spark: SparkSession) -> None:
    frames = make(
        spark,
        events=[
            event("broker_started", "b1", "11:00:00"),
            event("broker_started", "b2", "11:20:00"),
            event("broker_stopped", "b2", "11:40:00"),
            event("broker_started", "b3", "11:41:00"),
        ],
        sessions=[
            *run_of("b1", "11:19:30", "broker_crash", 3),
            *run_of("b2", "11:40:00", "server_shutdown", 2),
            *run_of("b3", "11:50:00", "connection_lost", 1),
        ],
        activity=[
            {"broker_id": "b1", "interval_start": "11:19:00", "messages_received": 7, "messages_sent": 2},
            {"broker_id": "b1", "interval_start": "11:19:10", "messages_received": 3},
        ],
    )
    tables = written(spark, frames, runs.TABLES)
    expect(
        spark,
        tables["broker_runs"],
        "broker_id string, started_at timestamp, ended_at timestamp, ending string, cut_off long, down_s double,"
        " messages_received long, messages_sent long",
        ("b1", "11:00:00", "11:19:30", "crashed", 3, 30.0, 10, 2),
        ("b2", "11:20:00", "11:40:00", "stopped", 2, 60.0, 0, 0),
        ("b3", "11:41:00", "11:50:00", "running", 0, None, 0, 0),
    )
    crash, restart = runs.findings(tables)
    assert (crash.weight, restart.weight) == (PROBLEM, NOTABLE)
    assert crash.sentence == (
        "The broker crashed: its last sign was at 2026-11-21 11:19:30 UTC, which cut off 3 connections, and it was back"
        " 30.0 s later. What was moved in the last interval (10 s) before a crash is not counted."
    )
    assert restart.sentence.startswith("The broker was restarted: at 2026-11-21 11:40:00 UTC, which cut off 2 conn")


def test_a_broker_beside_another_is_no_restart(spark: SparkSession) -> None:
    frames = make(
        spark,
        events=[
            event("broker_started", "b1", "11:00:00"),
            event("broker_started", "b2", "11:00:05"),
            event("broker_stopped", "b2", "11:40:00"),
            event("connected", "b1", "11:50:00"),
        ],
    )
    tables = written(spark, frames, runs.TABLES)
    expect(
        spark,
        tables["broker_runs"],
        "broker_id string, ending string, down_s double",
        ("b1", "running", None),
        ("b2", "stopped", None),
    )
    assert runs.findings(tables) == []


def refused(times: int, **row: Any) -> list[Row]:
    who = {"event": "refused", "reason": "not_authorized", "detail": "wrong password", "username": "bob"}
    return [who | {"client_id": "meter", "peer": f"10.0.0.7:{5000 + n}"} | row for n in range(times)]


@pytest.mark.parametrize(("times", "weight"), [(runs.GUESSES - 1, NOTABLE), (runs.GUESSES, PROBLEM)])
def test_refused_logins_are_told_by_user_client_and_address(spark: SparkSession, times: int, weight: int) -> None:
    frames = make(
        spark,
        events=[
            *refused(times),
            *refused(2, username=None, client_id=None, peer="[2001:db8::1]:4000"),
            *refused(1, reason="protocol_error", detail="no CONNECT", client_id=None, username=None),
            {"event": "connected", "client_id": "meter"},
        ],
    )
    tables = written(spark, frames, runs.TABLES)
    expect(
        spark,
        tables["refused_connections"],
        "user string, client_id string, address string, reason string, why string, attempts long, an_hour long",
        ("bob", "meter", "10.0.0.7", "not_authorized", "wrong password", times, times),
        (None, None, "[2001:db8::1]", "not_authorized", "wrong password", 2, 2),
        (None, None, "10.0.0.7", "protocol_error", "no CONNECT", 1, 1),
    )
    (finding,) = runs.findings(tables)
    assert finding.weight == weight
    assert finding.sentence == (
        f"{times + 3} connections were refused, {times + 2} of them at login: user bob as client meter from 10.0.0.7"
        f" {times} times; without a user name from [2001:db8::1] 2 times."
    )


def test_attempts_over_many_hours_are_no_guessing(spark: SparkSession) -> None:
    frames = make(spark, events=[row for hour in range(24) for row in refused(1, at=f"{hour:02}:00:00")])
    (finding,) = runs.findings(written(spark, frames, runs.TABLES))
    assert finding.weight == NOTABLE
