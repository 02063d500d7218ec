"""Several nodes that serve at the same time, as the report tells them."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_analytics.frames import INFORMATION, NOTABLE
from spark_analytics.reports import cluster, nodes, runs

from .made import expect, make, written

pytestmark = pytest.mark.slow

TABLES = (*(each for each in runs.TABLES if each.name == "broker_runs"), *cluster.TABLES, *nodes.TABLES)

NODES = (
    "node string, clients long, messages_in long, messages_out long, share double, crossed_in long, crossed_out long"
)
CROSSINGS = "from_node string, to_node string, messages long, bytes long, dropped long, waiting_max long"


def event(run: str, node: str | None, client_id: str | None, at: str = "11:00:00", kind: str = "") -> dict[str, Any]:
    kind = kind or ("broker_started" if client_id is None else "connected")
    return {"event": kind, "broker_id": run, "node": node, "at": at, "client_id": client_id, "connection_id": None}


def active(run: str, client_id: str, received: int, sent: int, **more: int) -> dict[str, Any]:
    return {
        "broker_id": run,
        "client_id": client_id,
        "messages_received": received,
        "messages_sent": sent,
        "bytes_sent": 10 * sent,
        **more,
    }


def test_nodes_tell_the_work_of_each_and_what_crosses(spark: SparkSession) -> None:
    frames = make(
        spark,
        events=[
            *(event("r1", "a", each) for each in (None, "$node/b", "$node/b/z/1", "x", "x", "y")),
            *(event("r2", "b", each) for each in (None, "$node/a", "z")),
            event("r3", "a", "w", "12:00:00"),
            event("r3", "a", "$node/b", "12:00:00"),
            event("r9", None, "alone"),
        ],
        activity=[
            active("r1", "x", 1_000, 10),
            active("r1", "y", 1_000, 0),
            active("r1", "$node/b", 5, 40, queued=3),
            active("r1", "$node/b", 5, 50, queued=7, dropped=2),
            active("r1", "$node/b/z/1", 0, 10),
            active("r3", "w", 1_000, 0),
            active("r3", "$node/b", 0, 100),
            active("r2", "z", 10, 200),
            active("r2", "$node/a", 200, 10),
            active("r9", "alone", 7, 7),
        ],
    )
    tables = written(spark, frames, TABLES)
    expect(
        spark,
        tables["nodes"],
        NODES,
        ("a", 3, 3_000, 10, 3_010 / 3_220, 10, 200),
        ("b", 1, 10, 200, 210 / 3_220, 200, 10),
    )
    expect(spark, tables["crossings"], CROSSINGS, ("a", "b", 200, 2_000, 2, 7), ("b", "a", 10, 100, 0, 0))
    hot, crossed = nodes.findings(tables)
    assert (hot.weight, hot.table) == (NOTABLE, "nodes")
    assert hot.sentence == "Node a moved 93.5 % of the messages of the clients of 2 nodes."
    assert (crossed.weight, crossed.table) == (INFORMATION, "crossings")
    assert crossed.sentence == (
        "210 messages crossed from node to node, and 3,010 messages came from clients; most crossed from a to b."
    )


def test_nodes_that_do_as_much_as_each_other_or_little_are_not_hot(spark: SparkSession) -> None:
    events = [event("r1", "a", "$node/b"), event("r2", "b", "$node/a")]
    even = [active("r1", "x", 1_400, 0), active("r2", "y", 600, 0)]
    few = [active("r1", "x", 900, 0)]
    for activity in (even, few):
        tables = written(spark, make(spark, events=events, activity=activity), TABLES)
        assert nodes.findings(tables) == []


def test_a_broker_alone_is_no_node(spark: SparkSession) -> None:
    frames = make(spark, events=[event("r1", None, "x")], activity=[active("r1", "x", 5_000, 0)])
    tables = written(spark, frames, TABLES)
    assert (tables["nodes"].count(), tables["crossings"].count()) == (0, 0)
    assert nodes.findings(tables) == []


def test_nodes_that_start_one_after_the_other_do_not_take_over(spark: SparkSession) -> None:
    events = [
        event("r1", "a", None),
        event("r1", "a", "$node/b", "11:00:05"),
        event("r1", "a", None, "11:30:00", "broker_stopped"),
        event("r2", "b", None, "11:40:00"),
        event("r2", "b", "$node/a", "11:40:05"),
    ]
    tables = written(spark, make(spark, events=events), TABLES)
    assert tables["take_overs"].count() == 0
    assert tables["nodes"].count() == 2
