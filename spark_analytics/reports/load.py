"""How much was asked of the brokers, hour by hour: connections, messages, bytes.

Invariant: there is one row for every hour from the first to the last, also for those in which nothing happened. A
window without partitions here is one over hours or minutes, of which a year has half a million.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_analytics.frames import Frames
from spark_analytics.limits import CONNECTIONS, QUEUED_BYTES
from spark_analytics.reports.steps import every_step, with_steps

RATES: Final = {
    "messages_received_per_s": "messages_received",
    "messages_sent_per_s": "messages_sent",
    "bytes_received_per_s": "bytes_received",
    "bytes_sent_per_s": "bytes_sent",
}
"""By the column of `activity` that they are made of."""

_ENDS: Final = ("disconnected", "taken_over", "keep_alive_timeout")


def load_by_hour(frames: Frames) -> DataFrame:
    """One row per hour: the most connections at the end of a minute, rates on the average of the hour, and the most
    bytes that waited in all queues together at the end of an interval.

    `covered_s` are the seconds of the hour between the first and the last row of the dataset; rates are per second of
    these, and null where the dataset has no `activity`. A connection that neither began, ended nor moved a message in
    the time that was read is not known.
    """
    intervals = _intervals(frames.activity)
    runs = runs_of(frames, intervals)
    everything = runs.agg(
        F.min("first_s").alias("first_s"), F.max("last_s").alias("last_s"), F.max("active").alias("active")
    )
    hour_s = F.unix_timestamp("hour")
    hours = (
        everything.where("first_s is not null")
        .withColumn(
            "hour",
            F.explode(
                F.sequence(
                    F.date_trunc("hour", F.timestamp_seconds("first_s")),
                    F.date_trunc("hour", F.timestamp_seconds("last_s")),
                    F.expr("interval 1 hour"),
                )
            ),
        )
        .withColumn("covered_s", F.least("last_s", hour_s + 3600) - F.greatest("first_s", hour_s))
    )
    return (
        hours.join(_activity_by_hour(intervals), "hour", "left")
        .join(_connections_by_hour(frames, runs, hours), "hour", "left")
        .select(
            "hour",
            "covered_s",
            F.coalesce(CONNECTIONS, F.lit(0)).cast("long").alias(CONNECTIONS),
            *(
                F.when(F.col("active") & (F.col("covered_s") > 0), F.coalesce(column, F.lit(0)) / F.col("covered_s"))
                .cast("double")
                .alias(name)
                for name, column in RATES.items()
            ),
            F.when(F.col("active"), F.coalesce(QUEUED_BYTES, F.lit(0))).cast("long").alias(QUEUED_BYTES),
        )
    )


def load_over_time(frames: Frames) -> DataFrame:
    """One row per step of time, also of those in which nothing moved: messages and bytes a second, and drops.

    The first and the last step are as long as the others, though the dataset may begin or end within them.
    """
    steps = with_steps(_intervals(frames.activity), "interval_start")
    moved = steps.groupBy("at").agg(*(F.sum(name).alias(name) for name in (*RATES.values(), "dropped")))
    rates = [(F.coalesce(of, F.lit(0)) / F.col("step_s")).alias(name) for name, of in RATES.items()]
    return (
        every_step(steps)
        .join(moved, "at", "left")
        .select("at", "step_s", *rates, F.coalesce("dropped", F.lit(0)).alias("dropped"))
    )


def runs_of(frames: Frames, intervals: DataFrame | None = None) -> DataFrame:
    """One row per run of a broker: its first and last sign in the dataset, in seconds since 1970, and whether there
    is activity."""
    no = F.lit(False).alias("active")
    if intervals is None:
        intervals = _intervals(frames.activity)
    started = F.col("interval_start").cast("double")
    signs = (
        intervals.select(
            "broker_id",
            started.alias("from_s"),
            (started + F.col("interval_s")).alias("to_s"),
            F.lit(True).alias("active"),
        )
        .unionByName(_sign(frames.events, "at").withColumn("active", no))
        .unionByName(_sign(frames.sessions, "ended_at").withColumn("active", no))
    )
    return signs.groupBy("broker_id").agg(
        F.min("from_s").alias("first_s"), F.max("to_s").alias("last_s"), F.max("active").alias("active")
    )


def _sign(rows: DataFrame, column: str) -> DataFrame:
    at = F.col(column).cast("double")
    return rows.select("broker_id", at.alias("from_s"), at.alias("to_s"))


def _intervals(activity: DataFrame) -> DataFrame:
    """All clients of a broker together: one row per run and interval."""
    return activity.groupBy("broker_id", "interval_start").agg(
        F.max("interval_s").alias("interval_s"),
        *(F.sum(name).alias(name) for name in (*RATES.values(), QUEUED_BYTES, "dropped")),
    )


def _activity_by_hour(intervals: DataFrame) -> DataFrame:
    """Sums, and the most that waited; brokers have their worst moment at different times, so this is an upper bound."""
    return (
        intervals.groupBy(F.date_trunc("hour", "interval_start").alias("hour"), "broker_id")
        .agg(
            *(F.sum(name).alias(name) for name in RATES.values()),
            F.max(QUEUED_BYTES).alias(QUEUED_BYTES),
        )
        .groupBy("hour")
        .agg(*(F.sum(name).alias(name) for name in (*RATES.values(), QUEUED_BYTES)))
    )


def _connections_by_hour(frames: Frames, runs: DataFrame, hours: DataFrame) -> DataFrame:
    """The most that were open at the end of a minute; what was open when the hour began counts too."""
    changes = _changes(frames, runs).groupBy(F.date_trunc("minute", "at").alias("minute")).agg(F.sum("n").alias("n"))
    changes = changes.withColumn("hour", F.date_trunc("hour", "minute"))
    in_hour = Window.partitionBy("hour").orderBy("minute").rowsBetween(Window.unboundedPreceding, 0)
    by_hour = (
        changes.withColumn("change", F.sum("n").over(in_hour))
        .groupBy("hour")
        .agg(F.sum("n").alias("n"), F.greatest(F.max("change"), F.lit(0)).alias("above"))
    )
    before = Window.orderBy("hour").rowsBetween(Window.unboundedPreceding, -1)
    # Hours without changes take part, and changes before the first hour: what began then is still open.
    every_hour = hours.select("hour").join(by_hour, "hour", "full")
    open_before = F.coalesce(F.sum("n").over(before), F.lit(0))
    return every_hour.select("hour", (open_before + F.coalesce("above", F.lit(0))).alias(CONNECTIONS))


def _changes(frames: Frames, runs: DataFrame) -> DataFrame:
    """+1 where a connection began, −1 where it ended; one row each.

    Three tables know of connections, and each alone misses some: those that are still open, those of a broker that
    died, those that began before the time that was read. One whose end nobody told is open until the last sign of its
    run.
    """
    key = ("broker_id", "connection_id")
    told = frames.events.where("connection_id is not null")
    known = (
        frames.sessions.select(*key, F.col("connected_at").alias("began_at"), F.col("ended_at").alias("end_at"))
        .unionByName(
            told.where("event = 'connected'").select(*key, F.col("at").alias("began_at")), allowMissingColumns=True
        )
        .unionByName(
            told.where(F.col("event").isin(*_ENDS)).select(*key, F.col("at").alias("end_at")),
            allowMissingColumns=True,
        )
        .unionByName(frames.activity.select(*key, F.col("interval_start").alias("active_at")), allowMissingColumns=True)
        .groupBy(*key)
        .agg(
            F.min("began_at").alias("began_at"), F.max("end_at").alias("end_at"), F.min("active_at").alias("active_at")
        )
        .join(F.broadcast(runs.select("broker_id", "first_s", "last_s")), "broker_id")
    )
    # A minute later, so that it still counts at the end of the last one.
    last_at = F.timestamp_seconds(F.col("last_s") + 60)
    began_at = F.coalesce("began_at", "active_at", F.timestamp_seconds("first_s"))
    return known.select(
        F.explode(
            F.array(
                F.struct(began_at.alias("at"), F.lit(1).alias("n")),
                F.struct(F.coalesce("end_at", last_at).alias("at"), F.lit(-1).alias("n")),
            )
        ).alias("change")
    ).select("change.*")
