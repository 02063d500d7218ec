"""A cluster: when another machine took over, and what that cost.

Invariant: without the column `node`, as of a broker alone, there is no row.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from spark_analytics import units
from spark_analytics.frames import NOTABLE, Finding, Frames
from spark_analytics.reports.nodes import names_of_nodes
from spark_analytics.tables import Table, Tables

NAMED: Final = 3
"""Take-overs that a sentence names; the table has the rest."""


def take_overs(frames: Frames) -> DataFrame:
    """One row for each time that the next run of a broker in time is one of another machine.

    `down_s` is from the last sign of the one machine to the start of the other, and `gap_s` between the traced messages
    before and after; null if one of them traced none. `resumed` counts the clients whose first connection to the other
    machine resumed a session.
    """
    runs = (
        _machines(frames)
        .join(frames.written["broker_runs"].select("broker_id", "started_at", "ended_at", "ending"), "broker_id")
        .join(_traced(frames.samples), "broker_id", "left")
        .join(_resumed(frames.events), "broker_id", "left")
    )
    in_order = Window.orderBy("started_at", "broker_id")
    before = {name: F.lag(name).over(in_order) for name in ("node", "ended_at", "ending", "last_message_at")}
    pairs = runs.select("*", *(value.alias(f"before_{name}") for name, value in before.items()))
    return pairs.where(F.col("before_node") != F.col("node")).select(
        F.col("started_at").alias("taken_over_at"),
        F.col("before_node").alias("from_node"),
        F.col("node").alias("to_node"),
        F.col("before_ending").alias("ending"),
        _between("before_ended_at", "started_at").alias("down_s"),
        _between("before_last_message_at", "first_message_at").alias("gap_s"),
        F.coalesce("resumed", F.lit(0)).alias("resumed"),
        "broker_id",
    )


def _machines(frames: Frames) -> DataFrame:
    """One row for each run of a broker that belongs to a machine of a cluster, and is none of several nodes."""
    named = frames.events.select("broker_id", "node").unionByName(frames.sessions.select("broker_id", "node"))
    machines = named.where("node is not null").groupBy("broker_id").agg(F.max("node").alias("node"))
    return machines.join(names_of_nodes(frames), "node", "left_anti")


def _traced(samples: DataFrame) -> DataFrame:
    """The times of the first and the last traced message of each run."""
    return samples.groupBy("broker_id").agg(F.min("at").alias("first_message_at"), F.max("at").alias("last_message_at"))


def _resumed(events: DataFrame) -> DataFrame:
    """How many clients of each run resumed a session when they first connected."""
    return (
        events.where("event = 'connected' and client_id is not null")
        .groupBy("broker_id", "client_id")
        .agg(F.min_by(F.col("numbers")["session_present"], "at").alias("was_present"))
        .groupBy("broker_id")
        .agg(F.count_if(F.col("was_present") == 1).alias("resumed"))
    )


def _between(first: str, second: str) -> Column:
    """Seconds; 0 if the clocks of two machines have them the other way round."""
    seconds = F.col(second).cast("double") - F.col(first).cast("double")
    return F.when(seconds.isNotNull(), F.greatest(seconds, F.lit(0.0)))


def findings(tables: Tables) -> list[Finding]:
    """How often another machine took over."""
    table = tables["take_overs"]
    number = table.count()
    if not number:
        return []
    last = (
        table.select("*", F.date_format("taken_over_at", "yyyy-MM-dd HH:mm:ss").alias("text"))
        .orderBy(F.desc("taken_over_at"))
        .limit(NAMED)
        .collect()
    )
    each = units.listed([_one(row) for row in last], number)
    return [Finding(NOTABLE, f"Another machine took over {units.some(number, 'time')}: {each}.", "take_overs")]


def _one(row: Row) -> str:
    gap = "" if row["gap_s"] is None else f", no message for {units.seconds(row['gap_s'])}"
    resumed = units.some(row["resumed"], "session resumed", "sessions resumed")
    return f"{row['to_node']} from {row['from_node']} at {row['text']} UTC ({resumed}{gap})"


TABLES: Final = (
    Table(
        "take_overs",
        "Take-overs in a cluster",
        "One row for each time that another machine of a cluster began to serve, the last first. ending is how the run"
        " before ended; down is from its last sign until the other machine began, by the clocks of both. gap is between"
        " the last message of one and the first of the other, of those that were traced: with few messages it is longer"
        " than the pause. resumed are the clients whose session the other machine went on with.",
        take_overs,
        ("-taken_over_at", "broker_id"),
        empty="No machine of a cluster took over from another.",
    ),
)
