"""Devices that stop to say anything, each measured by its own rhythm.

A device that sent DISCONNECT, was cut off with all others, or had no broker is not silent: this time is excused.
Invariant: a pause counts with what is left of it when all excused time is taken off.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_analytics.reports.reconnects import GOODBYES

KNOWN_GAPS: Final = 4
"""Pauses between messages that make a rhythm; fewer may be chance."""

REGULAR: Final = 5.0
"""A device that speaks at even times is silent after so many of them: more than a few lost messages."""

IRREGULAR: Final = 24.0
"""For one that speaks at random: so many times the distance from the median pause to the third quartile, beyond the
median. Of pauses with no memory (exponential) one in thirty million is that long; of those by night, where the device
speaks half as often, one in five thousand."""

INTERVALS: Final = 2.0
"""Intervals that a pause may seem longer than it is, as only their beginnings are known."""

RHYTHM: Final = 3
"""A pause that a device makes so often, as each night, is its rhythm."""

RECONNECTED_S: Final = 900.0
"""A connection that is lost, and comes back within this time, is no silence: clients wait for minutes between attempts,
and such losses are told as keep-alive timeouts and flapping."""

LONGER: Final = 2.0
"""Beyond that rhythm, a silence is so many times as long."""

UNNOTICED: Final = 1.5
"""Of its keep-alive, how long a connection may be broken before the broker knows."""


def silent_devices(hours: DataFrame, sessions: DataFrame, storms: DataFrame, events: DataFrame) -> DataFrame:
    """One row per silence: since when, until when if it ended, how long without excused time, and the usual pause.

    `hours`, `sessions` and `storms` are the report's own tables. `then` is `connected` while the device was, else how
    its connection ended.
    """
    pauses = _pauses(hours)
    ranked = Window.partitionBy("client_id").orderBy(F.desc("silent_s"), "silent_from")
    all_of_it = Window.partitionBy("client_id")
    excused = _excused(pauses, sessions, storms, events)
    reconnected = F.col("ended") & (F.col("then") != "connected")
    silences = (
        pauses.join(excused, ["client_id", "silent_from"], "left")
        .join(_then(pauses, sessions), ["client_id", "silent_from"], "left")
        .withColumn("silent_s", F.col("pause_s") - F.coalesce("excused_s", F.lit(0.0)))
        .where(F.col("silent_s") > F.greatest("at_most_s", F.when(reconnected, RECONNECTED_S).otherwise(0.0)))
        .withColumn("rank", F.row_number().over(ranked))
        .withColumn("rhythm_s", F.max(F.when(F.col("rank") == RHYTHM, F.col("silent_s"))).over(all_of_it))
        .where(F.col("rhythm_s").isNull() | (F.col("silent_s") >= LONGER * F.col("rhythm_s")))
    )
    return silences.withColumn("times", F.col("silent_s") / F.col("usual_pause_s")).select(
        "client_id",
        "silent_from",
        F.when(F.col("ended"), F.col("until")).alias("silent_until"),
        "silent_s",
        "usual_pause_s",
        "times",
        "then",
    )


def _pauses(hours: DataFrame) -> DataFrame:
    """The longest pause that began in each hour, and the one until the end of all, where longer than the device's
    rhythm explains."""
    spoken = hours.where("last_at is not null")
    weighted = F.percentile("gap_p50_s", 0.5, F.col("gaps")), F.percentile("gap_p75_s", 0.75, F.col("gaps"))
    rhythms = (
        spoken.groupBy("client_id")
        .agg(
            F.sum("gaps").alias("gaps"),
            weighted[0].alias("p50_s"),
            weighted[1].alias("p75_s"),
            (F.sum("observed_s") / F.sum("intervals")).alias("interval_s"),
            F.max("last_at").alias("last_at"),
        )
        .where(F.col("gaps") >= KNOWN_GAPS)
        .withColumn(
            "at_most_s",
            F.greatest(REGULAR * F.col("p50_s"), F.col("p50_s") + IRREGULAR * (F.col("p75_s") - F.col("p50_s")))
            + INTERVALS * F.col("interval_s"),
        )
    )
    end = spoken.agg(F.max("last_at").alias("end"))
    between = spoken.select("client_id", F.col("gap_longest_at").alias("silent_from"), "gap_longest_s").join(
        rhythms, "client_id"
    )
    columns = (
        "client_id",
        "silent_from",
        "until",
        "pause_s",
        "ended",
        "at_most_s",
        F.col("p50_s").alias("usual_pause_s"),
    )
    inner = (
        between.withColumn("pause_s", F.col("gap_longest_s"))
        .withColumn("until", F.timestamp_seconds(_seconds("silent_from") + F.col("gap_longest_s")))
        .withColumn("ended", F.lit(True))
        .select(*columns)
    )
    last = (
        rhythms.crossJoin(F.broadcast(end))
        .withColumn("silent_from", F.col("last_at"))
        .withColumn("until", F.col("end"))
        .withColumn("pause_s", _seconds("end") - _seconds("last_at"))
        .withColumn("ended", F.lit(False))
        .select(*columns)
    )
    return inner.unionByName(last).where(F.col("pause_s") > F.col("at_most_s"))


def _excused(pauses: DataFrame, sessions: DataFrame, storms: DataFrame, events: DataFrame) -> DataFrame:
    """Seconds of each pause in which nobody could expect a message."""
    goodbyes = (
        pauses.join(_after_goodbyes(sessions), "client_id")
        .where(F.col("usual_absence_s").isNull() | (F.col("usual_absence_s") > F.col("at_most_s")))
        .select("client_id", "silent_from", _overlap())
    )
    in_storms = pauses.join(_in_storms(sessions, storms), "client_id").select("client_id", "silent_from", _overlap())
    of_all = pauses.join(F.broadcast(_without_broker(sessions, events)), _touches()).select(
        "client_id", "silent_from", _overlap()
    )
    return (
        goodbyes.unionByName(in_storms)
        .unionByName(of_all)
        .groupBy("client_id", "silent_from")
        .agg(F.sum("excused_s").alias("excused_s"))
    )


def _after_goodbyes(sessions: DataFrame) -> DataFrame:
    """From each goodbye until the device is back, or should be.

    Who said goodbye and came back often enough has a usual absence, and is expected after `REGULAR` of them. Where that
    is no longer than its pauses, it sleeps between messages, and a goodbye tells nothing.
    """
    absent_s = _seconds("next_connected_at") - _seconds("ended_at")
    goodbyes = sessions.where(F.col("close_reason").isin(*GOODBYES))
    usual = (
        goodbyes.groupBy("client_id")
        .agg(F.percentile_approx(absent_s, 0.5).alias("usual_absence_s"), F.count(absent_s).alias("absences"))
        .where(F.col("absences") >= KNOWN_GAPS)
    )
    expected_at = F.timestamp_seconds(_seconds("ended_at") + REGULAR * F.col("usual_absence_s"))
    return goodbyes.join(usual, "client_id", "left").select(
        "client_id",
        F.col("ended_at").alias("from_at"),
        F.least("next_connected_at", expected_at).alias("to_at"),  # of those that are not null
        "usual_absence_s",
    )


def _in_storms(sessions: DataFrame, storms: DataFrame) -> DataFrame:
    """From the loss of a connection until its device came back with all the others."""
    unnoticed_s = UNNOTICED * F.coalesce("keep_alive_s", F.lit(0))
    lost_at = _seconds("lost_at") - unnoticed_s
    back = sessions.where("nth > 1").withColumn("lost_at", F.coalesce("previous_ended_at", "connected_at"))
    return back.join(
        F.broadcast(storms.select("start", "end")), F.col("connected_at").between(F.col("start"), F.col("end"))
    ).select("client_id", F.timestamp_seconds(lost_at).alias("from_at"), F.col("connected_at").alias("to_at"))


def _without_broker(sessions: DataFrame, events: DataFrame) -> DataFrame:
    """Times in which no broker ran, and those that a clock left out when it was set forward.

    A run lasts from its first sign to its last. There are as many rows as there were runs.
    """
    signs = (
        events.select("broker_id", "at")
        .unionByName(sessions.select("broker_id", F.col("connected_at").alias("at")))
        .unionByName(sessions.where("ended_at is not null").select("broker_id", F.col("ended_at").alias("at")))
    )
    in_order = Window.orderBy("began", "broker_id").rowsBetween(Window.unboundedPreceding, -1)
    stopped = (
        signs.groupBy("broker_id")
        .agg(F.min("at").alias("began"), F.max("at").alias("stopped"))
        .withColumn("from_at", F.max("stopped").over(in_order))
        .where("from_at < began")
        .select("from_at", F.col("began").alias("to_at"))
    )
    left_out = events.where("event = 'clock_jumped' and duration_s > 0").select(
        F.timestamp_seconds(_seconds("at") - F.col("duration_s")).alias("from_at"), F.col("at").alias("to_at")
    )
    return stopped.unionByName(left_out)


def _touches() -> Column:
    return (F.col("from_at") < F.col("until")) & (F.col("to_at").isNull() | (F.col("to_at") > F.col("silent_from")))


def _overlap() -> Column:
    begins = F.greatest(_seconds("from_at"), _seconds("silent_from"))
    ends = F.least(F.coalesce(_seconds("to_at"), _seconds("until")), _seconds("until"))
    return F.greatest(ends - begins, F.lit(0.0)).alias("excused_s")


def _then(pauses: DataFrame, sessions: DataFrame) -> DataFrame:
    """What became of the connection that a device had when it paused."""
    had = sessions.select("client_id", "connected_at", "ended_at", "close_reason")
    ended = F.col("ended_at").isNotNull() & (F.col("ended_at") < F.col("until"))
    return (
        pauses.select("client_id", "silent_from", "until")
        .join(had, "client_id")
        .where(
            (F.col("connected_at") <= F.col("silent_from"))
            & (F.col("ended_at").isNull() | (F.col("ended_at") >= F.col("silent_from")))
        )
        .groupBy("client_id", "silent_from")
        .agg(F.max_by(F.when(ended, F.col("close_reason")).otherwise("connected"), "connected_at").alias("then"))
    )


def _seconds(time: str) -> Column:
    return F.col(time).cast("double")
