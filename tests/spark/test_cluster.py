"""Take-overs of machines of a cluster, as the report tells them."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_analytics.frames import NOTABLE
from spark_analytics.reports import cluster, runs

from .made import expect, make, written

pytestmark = pytest.mark.slow

TABLES = (*(each for each in runs.TABLES if each.name == "broker_runs"), *cluster.TABLES)


def event(kind: str, run: str, node: str | None, at: str, **more: Any) -> dict[str, Any]:
    return {"event": kind, "broker_id": run, "node": node, "at": at, "client_id": None, "connection_id": None} | more


def connected(run: str, node: str, at: str, client_id: str, *, present: bool) -> dict[str, Any]:
    return event("connected", run, node, at, client_id=client_id, numbers={"session_present": int(present)})


def test_take_overs_tell_the_gap_and_the_sessions_that_went_on(spark: SparkSession) -> None:
    frames = make(
        spark,
        events=[
            event("broker_started", "r1", "a", "11:00:00"),
            connected("r1", "a", "11:00:01", "x", present=False),
            event("broker_stopped", "r1", "a", "11:10:00"),
            event("broker_started", "r2", "b", "11:10:00.500"),
            connected("r2", "b", "11:10:01", "x", present=True),
            connected("r2", "b", "11:10:02", "y", present=True),
            connected("r2", "b", "11:10:03", "z", present=False),
            connected("r2", "b", "11:10:04", "z", present=True),
            event("broker_started", "r3", "b", "11:30:00"),
            event("broker_started", "r4", "a", "11:40:00"),
        ],
        samples=[
            {"broker_id": "r1", "at": "11:09:58"},
            {"broker_id": "r1", "at": "11:05:00"},
            {"broker_id": "r2", "at": "11:10:01"},
            {"broker_id": "r2", "at": "11:20:00"},
        ],
    )
    tables = written(spark, frames, TABLES)
    expect(
        spark,
        tables["take_overs"],
        "taken_over_at timestamp, from_node string, to_node string, ending string, down_s double, gap_s double,"
        " resumed long, broker_id string",
        ("11:10:00.500", "a", "b", "stopped", 0.5, 3.0, 2, "r2"),
        ("11:40:00", "b", "a", "no_sign", 600.0, None, 0, "r4"),
    )
    (found,) = cluster.findings(tables)
    assert (found.weight, found.table) == (NOTABLE, "take_overs")
    assert found.sentence == (
        "Another machine took over 2 times: a from b at 2026-11-21 11:40:00 UTC (0 sessions resumed) and b from a"
        " at 2026-11-21 11:10:00 UTC (2 sessions resumed, no message for 3.0 s)."
    )


def test_runs_of_a_broker_alone_are_no_take_overs(spark: SparkSession) -> None:
    events = [event("broker_started", "r1", None, "11:00:00"), event("broker_started", "r2", None, "11:10:00")]
    tables = written(spark, make(spark, events=events), TABLES)
    assert tables["take_overs"].count() == 0
    assert cluster.findings(tables) == []
