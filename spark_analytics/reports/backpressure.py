"""Who reads more slowly than messages come: how long, what waited, what was lost, and how much room would have done.

Invariant: what is summed per client comes from every table that knows it, and where two tell the same, the larger
counts: a connection that is still open has no row in `sessions`, one of an older broker none in `activity` and `drops`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_analytics.frames import Finding, Frames
from spark_analytics.reports.steps import with_steps
from spark_analytics.tables import Chart, Table, Tables

OUTBOX_FULL: Final = "buffer_full"
QUEUE_FULL: Final = "queue_full"

SAME_EPISODE: Final = 0.5
"""Drops belong together if the next interval begins within this part of its length after the one before: what did not
drain between two intervals must have had room for both."""

ACCURACY: Final = 0.02
"""Of the number of slow clients, which is estimated: an exact one would be a shuffle of all rows."""

_MARKS: Final = (
    "outbox_high_water_bytes",
    "outbox_high_water_messages",
    "queue_high_water_messages",
    "inflight_high_water",
)


def back_pressure_by_client(frames: Frames) -> DataFrame:
    """One row per client whose socket was slow or that lost messages because its buffers were full.

    `share` is of its connected time. A `needed_…` column is the most that waited and all that was dropped in the worst
    episode, a run of intervals that follow each other: with a buffer of that size, nothing would have been dropped.
    Bytes of dropped messages are those of the client's average message; null where it never got one.
    """
    parts = [
        _of_sessions(frames.sessions),
        _of_activity(frames.activity),
        _of_pauses(frames.events),
        _of_drops(frames.drops),
    ]
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.unionByName(part, allowMissingColumns=True)
    summed = rows.groupBy("client_id").agg(
        *(F.sum(name).alias(name) for name in _SUMMED),
        *(F.max(name).alias(name) for name in _LARGEST),
    )
    paused_s = _larger("session_paused_s", "activity_paused_s")
    connected_s = _larger("session_s", "activity_s")
    outbox_lost = _larger("session_outbox_lost", "outbox_episode_lost")
    queue_lost = _larger("session_queue_lost", "queue_episode_lost")
    # Without rows in `drops`, a session's drops are taken as one episode.
    outbox_worst = F.coalesce("outbox_episode", "session_outbox_worst", F.lit(0))
    queue_worst = F.coalesce("queue_episode", "session_queue_worst", F.lit(0))
    message_bytes = F.coalesce(
        F.when(F.col("session_messages") > 0, F.col("session_bytes") / F.col("session_messages")),
        F.when(F.col("activity_messages") > 0, F.col("activity_bytes") / F.col("activity_messages")),
    )
    outbox_lost_bytes = F.when(outbox_worst == 0, F.lit(0)).otherwise(F.ceil(outbox_worst * message_bytes))
    return summed.select(
        "client_id",
        paused_s.alias("backpressure_s"),
        F.when(connected_s > 0, paused_s / connected_s).alias("share"),
        _or_zero("backpressure_count").alias("backpressure_count"),
        F.col("longest_pause_s"),
        *(_or_zero(mark).alias(mark) for mark in _MARKS),
        outbox_lost.alias("dropped_outbox_full"),
        queue_lost.alias("dropped_queue_full"),
        _or_zero("ended_full").alias("ended_full"),
        (_or_zero("outbox_high_water_bytes") + outbox_lost_bytes).alias("needed_outbox_bytes"),
        (_or_zero("outbox_high_water_messages") + outbox_worst).alias("needed_outbox_messages"),
        (_or_zero("queue_high_water_messages") + queue_worst).alias("needed_queue_messages"),
    ).where(
        "backpressure_s > 0 or backpressure_count > 0 or dropped_outbox_full > 0 or dropped_queue_full > 0"
        " or ended_full > 0"
    )


def back_pressure_over_time(frames: Frames) -> DataFrame:
    """One row per step of time and listener; steps in which no client was slow are there, too.

    `paused_clients` is estimated. `queued` is the most that waited for one client at the end of an interval.
    """
    paused = F.col("backpressure_s") > 0
    rows = with_steps(frames.activity, "interval_start")
    return (
        rows.groupBy("at", "listener")
        .agg(
            F.sum("backpressure_s").alias("backpressure_s"),
            F.approx_count_distinct(F.when(paused, F.col("client_id")), ACCURACY).alias("paused_clients"),
            F.sum("dropped").alias("dropped"),
            F.max("queued").alias("queued"),
            F.max("queued_bytes").alias("queued_bytes"),
        )
        .select("at", "listener", "backpressure_s", "paused_clients", "dropped", "queued", "queued_bytes")
    )


def high_water_marks(frames: Frames) -> DataFrame:
    """One row per listener and mark: how high it was in half of the sessions, in nine of ten, in 99 of 100, at most.

    A limit at p99 would have been met by one session in a hundred.
    """
    marks = F.explode(F.array(*(F.struct(F.lit(mark).alias("mark"), F.col(mark).alias("value")) for mark in _MARKS)))
    return (
        frames.sessions.select("listener", marks.alias("at"))
        .groupBy("listener", "at.mark")
        .agg(
            F.count("*").alias("sessions"),
            F.percentile_approx("at.value", [0.5, 0.9, 0.99], 10_000).alias("quantiles"),
            F.max("at.value").alias("largest"),
        )
        .select(
            "listener",
            "mark",
            "sessions",
            F.col("quantiles")[0].alias("p50"),
            F.col("quantiles")[1].alias("p90"),
            F.col("quantiles")[2].alias("p99"),
            F.col("largest").alias("max"),
        )
    )


def findings(tables: Tables) -> list[Finding]:
    """None: each client that is slow or loses messages has a sentence of its own, in `trouble`."""
    return []


_SUMMED: Final = (
    "session_paused_s",
    "activity_paused_s",
    "session_s",
    "activity_s",
    "backpressure_count",
    "session_outbox_lost",
    "session_queue_lost",
    "outbox_episode_lost",
    "queue_episode_lost",
    "session_messages",
    "session_bytes",
    "activity_messages",
    "activity_bytes",
    "ended_full",
)
_LARGEST: Final = (
    *_MARKS,
    "longest_pause_s",
    "session_outbox_worst",
    "session_queue_worst",
    "outbox_episode",
    "queue_episode",
)


def _of_sessions(sessions: DataFrame) -> DataFrame:
    outbox_lost = F.try_element_at("drops", F.lit(OUTBOX_FULL))
    queue_lost = F.try_element_at("drops", F.lit(QUEUE_FULL))
    return sessions.select(
        "client_id",
        *_MARKS,
        "backpressure_count",
        F.col("backpressure_s").alias("session_paused_s"),
        F.col("duration_s").alias("session_s"),
        F.expr("sent_qos0 + sent_qos1 + sent_qos2").alias("session_messages"),
        F.col("bytes_sent").alias("session_bytes"),
        outbox_lost.alias("session_outbox_lost"),
        outbox_lost.alias("session_outbox_worst"),
        queue_lost.alias("session_queue_lost"),
        queue_lost.alias("session_queue_worst"),
        (F.col("close_reason") == OUTBOX_FULL).cast("long").alias("ended_full"),
    )


def _of_activity(activity: DataFrame) -> DataFrame:
    return activity.select(
        "client_id",
        F.col("backpressure_s").alias("activity_paused_s"),
        F.col("interval_s").alias("activity_s"),
        F.col("messages_sent").alias("activity_messages"),
        F.col("bytes_sent").alias("activity_bytes"),
        F.col("queued").alias("queue_high_water_messages"),
        F.col("inflight").alias("inflight_high_water"),
    )


def _of_pauses(events: DataFrame) -> DataFrame:
    return events.where("event = 'backpressure_ended' and client_id is not null").select(
        "client_id", F.col("duration_s").alias("longest_pause_s")
    )


def _of_drops(drops: DataFrame) -> DataFrame:
    """One row per episode: the messages that were dropped in it because a buffer was full."""
    start, end = F.col("interval_start").cast("double"), F.col("interval_start").cast("double") + F.col("interval_s")
    of_client = Window.partitionBy("client_id", "reason").orderBy("interval_start")
    apart = start - F.lag(end).over(of_client) > F.col("interval_s") * SAME_EPISODE
    episodes = (
        drops.where(F.col("reason").isin(OUTBOX_FULL, QUEUE_FULL) & F.col("client_id").isNotNull())
        # Topics and brokers together: a client's buffer holds them all.
        .groupBy("client_id", "reason", "interval_start")
        .agg(F.sum("messages").alias("messages"), F.max("interval_s").alias("interval_s"))
        .withColumn("apart", F.coalesce(apart.cast("int"), F.lit(0)))
        .withColumn("episode", F.sum("apart").over(of_client))
        .groupBy("client_id", "reason", "episode")
        .agg(F.sum("messages").alias("messages"))
    )
    outbox = F.when(F.col("reason") == OUTBOX_FULL, F.col("messages"))
    queue = F.when(F.col("reason") == QUEUE_FULL, F.col("messages"))
    return episodes.select(
        "client_id",
        outbox.alias("outbox_episode"),
        outbox.alias("outbox_episode_lost"),
        queue.alias("queue_episode"),
        queue.alias("queue_episode_lost"),
    )


def _larger(one: str, other: str) -> Column:
    return F.greatest(_or_zero(one), _or_zero(other))


def _or_zero(name: str) -> Column:
    return F.coalesce(name, F.lit(0))


TABLES: Final = (
    Table(
        "back_pressure_by_client",
        "Clients that read too slowly",
        "One row per client whose socket did not take bytes for a while, or that lost messages because its send buffer"
        " (outbox) or queue was full. share is of its connected time. high water is the most that ever waited; needed"
        " is that and what was lost in the worst episode: with so much room nothing would have been.",
        back_pressure_by_client,
        ("-dropped_outbox_full", "-dropped_queue_full", "-backpressure_s", "client_id"),
        Chart("bars", "client_id", ("backpressure_s",), title="Time under back-pressure"),
        "No client was too slow for its messages.",
        one_file=False,
    ),
    Table(
        "back_pressure_over_time",
        "Back-pressure over time",
        "One row per step of time and listener: for how long sockets took no bytes, of how many clients, and what"
        " waited. queued is the most that waited for one client; clients are estimated to 2 %.",
        back_pressure_over_time,
        ("at", "listener"),
        Chart("lines", "at", ("backpressure_s",), by="listener", title="Time under back-pressure, by listener"),
        "No client moved a message.",
    ),
    Table(
        "high_water_marks",
        "How full buffers get",
        "One row per listener and mark: half of the sessions never had more waiting than p50, 99 of 100 no more than"
        " p99. A limit well above p99 costs nobody anything; what it must hold for the rest is in the tables above.",
        high_water_marks,
        ("listener", "mark"),
    ),
)
