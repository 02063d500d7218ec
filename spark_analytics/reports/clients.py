"""What the page shows of single clients: those in trouble, then the busiest, each with a view of its own.

Invariant: of the tables only the rows of the chosen clients reach the driver, and of each no more than the limits here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_analytics.frames import Finding, Frames
from spark_analytics.reports.steps import with_steps
from spark_analytics.tables import Table, Tables

VIEWS: Final = 120
"""Clients with a view: some kilobytes of the page each."""

POINTS: Final = 100
"""Steps of a client's chart, which is half as wide as others."""

SESSIONS: Final = 200
"""Of a client, the last ones: bars of a time line that still can be told apart."""

NEIGHBOURS: Final = 12
"""Clients named beside one because they have the same trouble."""

_TIME: Final = "yyyy-MM-dd HH:mm:ss"


def client_activity(frames: Frames) -> DataFrame:
    """One row per client and step of time in which it did something: what it moved, what was dropped, what waited."""
    return (
        with_steps(frames.activity, "interval_start", POINTS)
        .groupBy("client_id", "at")
        .agg(
            F.max("step_s").alias("step_s"),
            F.sum("messages_received").alias("messages_received"),
            F.sum("messages_sent").alias("messages_sent"),
            F.sum("bytes_received").alias("bytes_received"),
            F.sum("bytes_sent").alias("bytes_sent"),
            F.sum("dropped").alias("dropped"),
            F.max("queued").alias("queued"),
            F.sum("backpressure_s").alias("backpressure_s"),
        )
    )


def views(tables: Tables) -> dict[str, dict[str, Any]]:
    """By client id, what its view shows: rows of several tables, times as text in UTC."""
    chosen = _chosen(tables)
    ids = [row["client_id"] for row in chosen.collect()]
    found: dict[str, dict[str, Any]] = {client_id: {} for client_id in ids}

    def rows(table: DataFrame, name: str, *columns: str) -> None:
        of_chosen = table.join(F.broadcast(chosen), "client_id", "left_semi")
        times = {field.name for field in table.schema if field.dataType.typeName() == "timestamp"}
        shown = [F.date_format(each, _TIME).alias(each) if each in times else F.col(each) for each in columns]
        for row in of_chosen.select("client_id", *shown).collect():
            found[row["client_id"]].setdefault(name, []).append([row[each] for each in columns])

    last = Window.partitionBy("client_id").orderBy(F.desc_nulls_first("connected_at"))
    recent = tables["sessions"].withColumn("place", F.row_number().over(last)).where(F.col("place") <= SESSIONS)
    ended = ("connected_at", "ended_at", "close_reason", "peer", "messages_received", "messages_sent", "dropped")
    rows(recent.orderBy("connected_at"), "sessions", *ended)
    moved = ("at", "messages_received", "messages_sent", "dropped", "queued", "backpressure_s")
    rows(tables["client_activity"].orderBy("at"), "activity", *moved)
    rows(tables["drops_by_client"].orderBy(F.desc("messages")), "drops", "reason", "messages", "first_at", "last_at")
    taken = ("messages", "p50_us", "p99_us", "max_us", "queue_p99_us", "acknowledge_p99_us")
    rows(tables["latency_by_client"], "latency", *taken)
    both = ("sessions", "messages_received", "messages_sent", "bytes_received", "bytes_sent", "share")
    rows(tables["traffic_by_client"], "traffic", *both)
    rows(tables["devices_in_trouble"], "trouble", "kinds", "reasons")
    _neighbours(found)
    return found


def _chosen(tables: Tables) -> DataFrame:
    troubled = tables["devices_in_trouble"].select("client_id", F.lit(0).alias("place"), F.col("weight").alias("much"))
    busy = tables["traffic_by_client"].select("client_id", F.lit(1).alias("place"), F.col("bytes").alias("much"))
    return (
        troubled.unionByName(busy)
        .where("client_id is not null")
        .groupBy("client_id")
        .agg(F.min("place").alias("place"), F.min_by("much", "place").alias("much"))
        .orderBy("place", F.desc("much"), "client_id")
        .limit(VIEWS)
        .select("client_id")
    )


def _neighbours(found: Mapping[str, dict[str, Any]]) -> None:
    """By kind of trouble, who else has it."""
    kinds = {client_id: set(view["trouble"][0][0]) for client_id, view in found.items() if "trouble" in view}
    for client_id, own in kinds.items():
        shared = {other: sorted(own & kinds[other]) for other in kinds if other != client_id and own & kinds[other]}
        nearest = sorted(shared, key=lambda other: (-len(shared[other]), other))[:NEIGHBOURS]
        found[client_id]["neighbours"] = [[other, shared[other]] for other in nearest]


def findings(tables: Tables) -> list[Finding]:
    """None: this is what the views of clients are made of."""
    return []


TABLES: Final = (
    Table(
        "client_activity",
        "Clients over time",
        "One row per client and step of time in which it did something.",
        client_activity,
        ("client_id", "at"),
        one_file=False,
    ),
)
