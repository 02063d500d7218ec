"""How long messages took: quantiles by stage, QoS, hour and topic, and the slowest minutes with what happened in them.

Invariant: quantiles come from added histograms, never from averaged quantiles.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_analytics import units
from spark_analytics.frames import INFORMATION, NOTABLE, Finding, Frames
from spark_analytics.reports.histograms import added, merged, quantiles
from spark_analytics.reports.levels import LEVELS, prefixes
from spark_analytics.tables import Chart, Table, Tables

SLOWEST: Final = 20
"""Minutes to look into; whoever has read so many looks for a cause, not for more minutes."""

MUCH_SLOWER: Final = 10
"""A minute that is so many times slower than the whole is an incident, not noise."""

TOTAL: Final = "total"
STAGES: Final = ("route", "queue", "write", TOTAL, "acknowledge")


def latency_by_stage(frames: Frames) -> DataFrame:
    """One row per stage and QoS: quantiles of all that was measured, in microseconds."""
    by = ("stage", "qos")
    return quantiles(merged(frames.latency, by), by)


def latency_by_hour(frames: Frames) -> DataFrame:
    """One row per hour, stage and QoS; `series` names stage and QoS together."""
    by = ("hour", "stage", "qos")
    by_hour = quantiles(merged(frames.latency.withColumn("hour", F.date_trunc("hour", "interval_start")), by), by)
    return by_hour.withColumn("series", F.concat_ws(" QoS ", "stage", F.col("qos").cast("string")))


def latency_by_topic(frames: Frames, levels: int = LEVELS) -> DataFrame:
    """One row per prefix, stage and QoS: all topics at and below the prefix; (0, `#`) is everything.

    As in traffic, a row `plant/#` of the broker counts under `plant`.
    """
    by = ("level", "prefix", "stage", "qos")
    by_topic = merged(frames.latency, ("topic", "stage", "qos"))
    rolled = by_topic.withColumn("at", F.explode(prefixes(F.col("topic"), levels))).select("*", "at.*")
    return quantiles(added(rolled, by), by)


def slowest_minutes(frames: Frames) -> DataFrame:
    """The minutes with the highest p99 of the whole way, and what else happened in them.

    The p99 of each stage tells where the time went. `events` counts events by kind, `dropped` messages, `paused_s`
    the seconds in which sockets took no bytes, summed over `paused_clients`. A minute holds the intervals that began
    in it.
    """
    by = ("minute", "stage")
    by_stage = quantiles(merged(_by_minute(frames.latency), by), by)

    def of(stage: str, name: str) -> str:
        return f"max(case when stage = '{stage}' then {name} end)"

    slowest = (
        by_stage.groupBy("minute")
        .agg(
            F.expr(of(TOTAL, "messages")).alias("messages"),
            F.expr(of(TOTAL, "p50_us")).alias("p50_us"),
            F.expr(of(TOTAL, "p99_us")).alias("p99_us"),
            F.expr(of(TOTAL, "max_us")).alias("max_us"),
            *(F.expr(of(stage, "p99_us")).alias(f"{stage}_p99_us") for stage in STAGES if stage != TOTAL),
        )
        .where("p99_us is not null")
        .orderBy(F.desc("p99_us"), F.desc("max_us"), "minute")
        .limit(SLOWEST)
    )
    return (
        slowest.join(_events(frames.events), "minute", "left")
        .join(_dropped(frames.drops), "minute", "left")
        .join(_paused(frames.activity), "minute", "left")
        .select(
            *slowest.columns,
            F.coalesce("events", F.create_map().cast("map<string,bigint>")).alias("events"),
            F.coalesce("dropped", F.lit(0).cast("long")).alias("dropped"),
            F.coalesce("paused_s", F.lit(0.0)).alias("paused_s"),
            F.coalesce("paused_clients", F.lit(0).cast("long")).alias("paused_clients"),
        )
    )


def findings(tables: Tables) -> list[Finding]:
    """How fast the whole way is, where most of the time goes, and the slowest minute."""
    stages = tables["latency_by_stage"].orderBy(F.desc("messages"), "qos").collect()  # at most stages × QoS rows
    whole = next((row for row in stages if row["stage"] == TOTAL), None)
    if whole is None:
        return []
    parts = [row for row in stages if row["stage"] in ("route", "queue", "write") and row["qos"] == whole["qos"]]
    longest = max(parts, key=lambda row: (row["p99_us"], row["stage"]), default=None)
    where = f"; the longest stage is {longest['stage']} (p99 {_time(longest['p99_us'])})" if longest else ""
    found = [
        Finding(
            INFORMATION,
            f"Half of the QoS {whole['qos']} messages took at most {_time(whole['p50_us'])} from socket to socket,"
            f" 99 of 100 at most {_time(whole['p99_us'])}, the slowest {_time(whole['max_us'])}{where}.",
            "latency_by_stage",
        )
    ]
    minute = (
        tables["slowest_minutes"]
        .orderBy(F.desc("p99_us"), F.desc("max_us"), "minute")
        .select("*", F.date_format("minute", "yyyy-MM-dd HH:mm").alias("text"))
        .first()
    )
    if minute is not None:
        also = [f"{units.count(number)} {kind.replace('_', ' ')}" for kind, number in sorted(minute["events"].items())]
        if minute["dropped"]:
            also.append(f"{units.some(minute['dropped'], 'message')} dropped")
        if minute["paused_s"]:
            also.append(f"{units.seconds(minute['paused_s'])} under back-pressure")
        slower = minute["p99_us"] >= MUCH_SLOWER * max(whole["p99_us"], 1)
        found.append(
            Finding(
                NOTABLE if slower else INFORMATION,
                f"The slowest minute began at {minute['text']} UTC: 99 of 100 messages took at most"
                f" {_time(minute['p99_us'])}. In it: {', '.join(also) or 'nothing else of note'}.",
                "slowest_minutes",
            )
        )
    return found


def _time(microseconds: float) -> str:
    return f"{microseconds:,.0f} µs" if microseconds < 1000 else units.seconds(microseconds / 1e6)


def _by_minute(rows: DataFrame, column: str = "interval_start") -> DataFrame:
    return rows.withColumn("minute", F.date_trunc("minute", column))


def _events(events: DataFrame) -> DataFrame:
    """Events by kind; there are few kinds."""
    return (
        _by_minute(events, "at")
        .groupBy("minute", "event")
        .agg(F.count("*").alias("n"))
        .groupBy("minute")
        .agg(F.map_from_entries(F.sort_array(F.collect_list(F.struct("event", "n")))).alias("events"))
    )


def _dropped(drops: DataFrame) -> DataFrame:
    return _by_minute(drops).groupBy("minute").agg(F.sum("messages").alias("dropped"))


def _paused(activity: DataFrame) -> DataFrame:
    return (
        _by_minute(activity.where("backpressure_s > 0"))
        .groupBy("minute")
        .agg(F.sum("backpressure_s").alias("paused_s"), F.countDistinct("client_id").alias("paused_clients"))
    )


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
        "latency_by_hour",
        "How long messages take, hour by hour",
        "One row per hour, stage and QoS. " + _QUANTILES_SAY,
        latency_by_hour,
        ("-hour", "stage", "qos"),
        Chart("lines", "hour", ("p99_us",), by="series", title="p99 by hour, stage and QoS", log=True),
        empty="No message was measured.",
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
    Table(
        "slowest_minutes",
        "The slowest minutes",
        f"The {SLOWEST} minutes with the highest p99 of the whole way, which stage it was spent in, and what else"
        " happened in them: events by kind, messages dropped, seconds in which sockets took no bytes.",
        slowest_minutes,
        ("-p99_us", "-max_us", "minute"),
        Chart("bars", "minute", ("p99_us",)),
        empty="No message was measured.",
    ),
)
