"""Messages that were dropped: why, for whom, of which topic.

Invariant: each dropped message counts once, whether its broker wrote `drops` or, as of schema version 1, only sessions.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_analytics import units
from spark_analytics.frames import INFORMATION, Finding, Frames
from spark_analytics.tables import Chart, Table, Tables

ACCURACY: Final = 0.05
"""Of distinct clients and topics, which are estimated: exact ones would be a shuffle of all rows for each column, and
closer ones kilobytes for each client."""

REASONS_TOLD: Final = 3
"""In the sentence; the table has them all."""


def drops_by_reason(frames: Frames) -> DataFrame:
    """One row per reason: messages dropped, their share of all that were, how many clients and topics, when."""
    everything = Window.partitionBy()  # over a handful of reasons
    return (
        all_drops(frames)
        .groupBy("reason")
        .agg(
            F.sum("messages").alias("messages"),
            F.approx_count_distinct("client_id", ACCURACY).alias("clients"),
            F.approx_count_distinct("topic", ACCURACY).alias("topics"),
            *_first_and_last(),
        )
        .withColumn("share", F.col("messages") / F.sum("messages").over(everything))
        .select("reason", "messages", "share", "clients", "topics", "first_at", "last_at")
    )


def drops_by_client(frames: Frames) -> DataFrame:
    """One row per receiver and reason; messages for nobody have none and are in `drops_by_topic`."""
    return (
        all_drops(frames)
        .where("client_id is not null")
        .groupBy("client_id", "reason")
        .agg(
            F.sum("messages").alias("messages"),
            F.approx_count_distinct("topic", ACCURACY).alias("topics"),
            *_first_and_last(),
        )
        .select("client_id", "reason", "messages", "topics", "first_at", "last_at")
    )


def drops_by_topic(frames: Frames) -> DataFrame:
    """One row per topic and reason, as far as the topic is known."""
    return (
        all_drops(frames)
        .where("topic is not null")
        .groupBy("topic", "reason")
        .agg(
            F.sum("messages").alias("messages"),
            F.approx_count_distinct("client_id", ACCURACY).alias("clients"),
            *_first_and_last(),
        )
        .select("topic", "reason", "messages", "clients", "first_at", "last_at")
    )


def findings(tables: Tables) -> list[Finding]:
    """How many, and the most frequent reasons."""
    table = tables["drops_by_reason"]
    total = table.agg(F.sum("messages").alias("messages")).first()
    top = table.orderBy(F.desc("messages"), "reason").limit(REASONS_TOLD).collect()
    if total is None or not top:
        return []
    told = ", ".join(f"{row['reason']} {units.count(row['messages'])} ({units.share(row['share'])})" for row in top)
    return [
        Finding(
            INFORMATION,
            f"{units.some(total['messages'], 'message was', 'messages were')} dropped: {told}.",
            "drops_by_reason",
        )
    ]


def all_drops(frames: Frames) -> DataFrame:
    """`drops`, and what sessions of schema version 1 tell, which had no such table."""
    of_sessions = (
        frames.sessions.where("schema_version < 2")
        .select("client_id", F.col("ended_at").alias("at"), F.explode("drops").alias("reason", "messages"))
        .where("messages > 0")
    )
    return frames.drops.select(
        "client_id", "topic", F.col("interval_start").alias("at"), "reason", "messages"
    ).unionByName(of_sessions, allowMissingColumns=True)


def _first_and_last() -> list[Column]:
    return [F.min("at").alias("first_at"), F.max("at").alias("last_at")]


TABLES: Final = (
    Table(
        "drops_by_reason",
        "Why messages were dropped",
        "One row per reason, over all receivers; share is of all drops. Clients and topics are estimated to 5 %.",
        drops_by_reason,
        ("-messages", "reason"),
        Chart("bars", "reason", ("messages",)),
        "No message was dropped.",
    ),
    Table(
        "drops_by_client",
        "Who lost messages",
        "One row per receiver and reason. queue_full and buffer_full: it reads more slowly than it is sent.",
        drops_by_client,
        ("-messages", "client_id", "reason"),
        Chart("bars", "client_id", ("messages",)),
        "No message was dropped on its way to a client.",
        one_file=False,
    ),
    Table(
        "drops_by_topic",
        "Of which topics messages were dropped",
        "One row per topic and reason, where the topic is known. no_subscribers: nobody was there to read it.",
        drops_by_topic,
        ("-messages", "topic", "reason"),
        Chart("bars", "topic", ("messages",)),
        "No message of a known topic was dropped.",
        one_file=False,
    ),
)
