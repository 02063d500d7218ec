"""How long messages took: quantiles by stage, QoS, topic, receiver and over time.

Invariant: quantiles come from added histograms, never from averaged quantiles.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_analytics import units
from spark_analytics.frames import INFORMATION, Finding, Frames
from spark_analytics.reports.histograms import added, merged, quantiles
from spark_analytics.reports.levels import LEVELS, prefixes
from spark_analytics.reports.steps import with_steps
from spark_analytics.tables import Chart, Table, Tables

POINTS: Final = 150
"""Points of a line; a chart has one for each stage and QoS."""

ACCURACY: Final = 1_000
"""Of quantiles of single messages: ranks are right to a thousandth."""

TOTAL: Final = "total"


def latency_by_stage(frames: Frames) -> DataFrame:
    """One row per stage and QoS: quantiles of all that was measured, in microseconds."""
    by = ("stage", "qos")
    return quantiles(merged(frames.latency, by), by)


def latency_over_time(frames: Frames) -> DataFrame:
    """One row per step of time, stage and QoS; `series` names stage and QoS together."""
    by = ("at", "stage", "qos")
    over_time = quantiles(merged(with_steps(frames.latency, "interval_start", POINTS), by), by)
    return over_time.withColumn("series", F.concat_ws(" QoS ", "stage", F.col("qos").cast("string")))


def latency_by_topic(frames: Frames, levels: int = LEVELS) -> DataFrame:
    """One row per prefix, stage and QoS: all topics at and below the prefix; (0, `#`) is everything.

    As in traffic, a row `plant/#` of the broker counts under `plant`.
    """
    by = ("level", "prefix", "stage", "qos")
    by_topic = merged(frames.latency, ("topic", "stage", "qos"))
    rolled = by_topic.withColumn("at", F.explode(prefixes(F.col("topic"), levels))).select("*", "at.*")
    return quantiles(added(rolled, by), by)


def latency_by_client(frames: Frames) -> DataFrame:
    """One row per receiver: how long single messages took that were traced, until they were in its socket.

    `acknowledge_p99_us` is what it took to answer, of QoS 1 and 2.
    """
    whole = F.col("routed_us") + F.col("queued_us") + F.col("written_us")
    return (
        frames.samples.where("receiver is not null and written_us is not null")
        .groupBy(F.col("receiver").alias("client_id"))
        .agg(
            F.count("*").alias("messages"),
            F.percentile_approx(whole, 0.5, ACCURACY).alias("p50_us"),
            F.percentile_approx(whole, 0.99, ACCURACY).alias("p99_us"),
            F.max(whole).alias("max_us"),
            F.percentile_approx("queued_us", 0.99, ACCURACY).alias("queue_p99_us"),
            F.percentile_approx("written_us", 0.99, ACCURACY).alias("write_p99_us"),
            F.percentile_approx("acknowledged_us", 0.99, ACCURACY).alias("acknowledge_p99_us"),
        )
    )


def findings(tables: Tables) -> list[Finding]:
    """How fast the whole way is, and where most of the time goes."""
    stages = tables["latency_by_stage"].orderBy(F.desc("messages"), "qos").collect()  # at most stages × QoS rows
    whole = next((row for row in stages if row["stage"] == TOTAL), None)
    if whole is None:
        return []
    parts = [row for row in stages if row["stage"] in ("route", "queue", "write") and row["qos"] == whole["qos"]]
    longest = max(parts, key=lambda row: (row["p99_us"], row["stage"]), default=None)
    where = f"; the longest stage is {longest['stage']} (p99 {_time(longest['p99_us'])})" if longest else ""
    return [
        Finding(
            INFORMATION,
            f"Half of the QoS {whole['qos']} messages took at most {_time(whole['p50_us'])} from socket to socket,"
            f" 99 of 100 at most {_time(whole['p99_us'])}, the slowest {_time(whole['max_us'])}{where}.",
            "latency_by_stage",
        )
    ]


def _time(microseconds: float) -> str:
    return f"{microseconds:,.0f} µs" if microseconds < 1000 else units.seconds(microseconds / 1e6)


_QUANTILES_SAY: Final = (
    "Half of the messages took at most p50, 99 of 100 at most p99, 999 of 1000 at most p999; off by 6.25 % at most, for"
    " they come from histograms."
)

TABLES: Final = (
    Table(
        "latency_by_stage",
        "How long messages take",
        "One row per stage and QoS: route (until the receivers are known), queue (in the receiver's queue), write"
        " (until handed to its socket), total (all of these), acknowledge (until the receiver answers). "
        + _QUANTILES_SAY,
        latency_by_stage,
        ("-p99_us", "stage", "qos"),
        empty="No message was measured.",
    ),
    Table(
        "latency_over_time",
        "How long messages take, over time",
        "One row per step of time, stage and QoS; steps are as long as makes few of them. " + _QUANTILES_SAY,
        latency_over_time,
        ("at", "stage", "qos"),
        Chart("lines", "at", ("p99_us",), by="series", title="99 of 100 messages took at most", log=True),
        empty="No message was measured.",
    ),
    Table(
        "latency_by_client",
        "How long messages take, by receiver",
        "One row per receiver of messages that were traced, the slowest first: from the publisher's socket to its own,"
        " and of that in its queue; acknowledge is how long it took to answer.",
        latency_by_client,
        ("-p99_us", "client_id"),
        Chart("bars", "client_id", ("p99_us",), title="99 of 100 messages took at most", log=True),
        empty="No message was traced.",
        one_file=False,
    ),
    Table(
        "latency_by_topic",
        "How long messages take, by topic",
        "One row per prefix of topics, stage and QoS: everything at and below the prefix. " + _QUANTILES_SAY,
        latency_by_topic,
        ("level", "-p99_us", "prefix", "stage", "qos"),
        empty="No message was measured.",
        one_file=False,
    ),
)
