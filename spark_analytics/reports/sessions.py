"""How sessions come, last and end: churn, concurrency, durations, reasons, keep-alive, what is spoken, and who flaps.

Invariant: every report here counts a session once; storms and flapping are in `reconnects`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_analytics import units
from spark_analytics.frames import INFORMATION, NOTABLE, PROBLEM, Finding
from spark_analytics.reports.reconnects import UNCLEAN, duplicate_client_ids, flapping_clients, reconnect_storms
from spark_analytics.reports.steps import with_steps
from spark_analytics.tables import Chart, Table, Tables

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0

BUCKETS_S: Final = (0.0, 1.0, 10.0, _MINUTE, 10 * _MINUTE, _HOUR, 6 * _HOUR, _DAY, 7 * _DAY)
"""About a factor of six from one to the next: from a device that publishes and leaves to one that never leaves."""

LATE_S: Final = 5.0
"""A keep-alive that ends a connection later than this means that the broker itself was late."""


def durations(sessions: DataFrame) -> DataFrame:
    """One row per listener and protocol version: quantiles of the duration, each the duration of a real session."""
    quantile = F.percentile_approx("duration_s", [0.5, 0.9, 0.99], 10_000)
    return (
        sessions.groupBy("listener", "protocol_version")
        .agg(
            F.count("*").alias("sessions"),
            F.min("duration_s").alias("min_s"),
            quantile.alias("quantiles"),
            F.max("duration_s").alias("max_s"),
            F.avg("duration_s").alias("mean_s"),
        )
        .select(
            "listener",
            "protocol_version",
            "sessions",
            "min_s",
            F.col("quantiles")[0].alias("p50_s"),
            F.col("quantiles")[1].alias("p90_s"),
            F.col("quantiles")[2].alias("p99_s"),
            "max_s",
            "mean_s",
        )
    )


def duration_histogram(sessions: DataFrame) -> DataFrame:
    """One row per listener and bucket with `from_s <= duration_s < to_s`; `to_s` of the last bucket is null."""
    last = F.struct(F.lit(BUCKETS_S[-1]).alias("from_s"), F.lit(None).cast("double").alias("to_s"))
    bucket = last
    for from_s, to_s in reversed(list(pairwise(BUCKETS_S))):
        this = F.struct(F.lit(from_s).alias("from_s"), F.lit(to_s).alias("to_s"))
        bucket = F.when(F.col("duration_s") < to_s, this).otherwise(bucket)
    return (
        sessions.withColumn("bucket", bucket)
        .groupBy("listener", "bucket")
        .agg(F.count("*").alias("sessions"))
        .withColumn("lasted", _lasted())
        .select("listener", "lasted", "bucket.from_s", "bucket.to_s", "sessions")
    )


def _lasted() -> Column:
    """`< 1 s`, …, `≥ 7 d`: names of the buckets."""
    name = F.lit(f"≥ {_short(BUCKETS_S[-1])}")
    for to_s in reversed(BUCKETS_S[1:]):
        name = F.when(F.col("bucket.to_s") == to_s, f"< {_short(to_s)}").otherwise(name)
    return name


def _short(value: float) -> str:
    return units.seconds(value).replace(".0", "")


def close_reasons(sessions: DataFrame) -> DataFrame:
    """One row per close reason: sessions, their share of all, how many clients, the median duration."""
    everything = sessions.agg(F.count("*").alias("all_sessions"))
    return (
        sessions.groupBy("close_reason")
        .agg(
            F.count("*").alias("sessions"),
            F.countDistinct("client_id").alias("clients"),
            F.percentile_approx("duration_s", 0.5).alias("median_duration_s"),
            F.count_if("will_published").alias("wills_published"),
        )
        .crossJoin(F.broadcast(everything))
        .withColumn("share", F.col("sessions") / F.col("all_sessions"))
        .select("close_reason", "sessions", "share", "clients", "median_duration_s", "wills_published")
    )


def keep_alive_timeouts(sessions: DataFrame) -> DataFrame:
    """One row per client and keep-alive with a timeout; `share` is of that client's sessions with that keep-alive."""
    timed_out = F.col("close_reason") == "keep_alive_timeout"
    return (
        sessions.groupBy("client_id", "keep_alive_s")
        .agg(
            F.count_if(timed_out).alias("timeouts"),
            F.count("*").alias("sessions"),
            F.min(F.when(timed_out, F.col("ended_at"))).alias("first_at"),
            F.max(F.when(timed_out, F.col("ended_at"))).alias("last_at"),
            F.percentile_approx(F.when(timed_out, F.col("duration_s")), 0.5).alias("median_duration_s"),
            F.max(F.when(timed_out, F.col("keep_alive_late_s"))).alias("latest_s"),
        )
        .where("timeouts > 0")
        .withColumn("share", F.col("timeouts") / F.col("sessions"))
        .select(
            "client_id",
            "keep_alive_s",
            "timeouts",
            "sessions",
            "share",
            "median_duration_s",
            "latest_s",
            "first_at",
            "last_at",
        )
    )


def keep_alive_lateness(sessions: DataFrame) -> DataFrame:
    """One row per keep-alive: how long after 1.5 × keep-alive of silence the broker closed the connection."""
    late = F.percentile_approx("keep_alive_late_s", [0.5, 0.99], 10_000)
    return (
        sessions.where("close_reason = 'keep_alive_timeout' and keep_alive_late_s is not null")
        .groupBy("keep_alive_s")
        .agg(F.count("*").alias("timeouts"), late.alias("late"), F.max("keep_alive_late_s").alias("max_late_s"))
        .select(
            "keep_alive_s",
            "timeouts",
            F.col("late")[0].alias("p50_late_s"),
            F.col("late")[1].alias("p99_late_s"),
            "max_late_s",
        )
    )


def protocols(sessions: DataFrame) -> DataFrame:
    """One row per listener, transport, MQTT version, TLS version and cipher: sessions, clients, share of all."""
    by = ("listener", "transport", "protocol_version", "tls_version", "tls_cipher")
    everything = sessions.agg(F.count("*").alias("all_sessions"))
    return (
        sessions.groupBy(*by)
        .agg(F.count("*").alias("sessions"), F.countDistinct("client_id").alias("clients"))
        .crossJoin(F.broadcast(everything))
        .select(*by, "sessions", "clients", (F.col("sessions") / F.col("all_sessions")).alias("share"))
    )


def churn_per_minute(sessions: DataFrame, events: DataFrame) -> DataFrame:
    """One row per minute and listener in which something began or ended. Of the report's table `sessions`.

    `unclean` ended by neither a goodbye nor the broker; `open_sessions` is at the end of the minute. The sum over time
    runs over the minutes, of which there are as many as the clock makes, not as the fleet does.
    """

    def minutes(of: DataFrame, time: str, began: int, ended: int, refused: int) -> DataFrame:
        unclean = F.when(F.col("close_reason").isin(*UNCLEAN), ended).otherwise(0)
        reason = of if "close_reason" in of.columns else of.withColumn("close_reason", F.lit(None).cast("string"))
        return reason.where(F.col(time).isNotNull()).select(
            F.date_trunc("minute", time).alias("minute"),
            F.coalesce("listener", F.lit("")).alias("listener"),
            F.lit(began).alias("connects"),
            F.lit(ended).alias("disconnects"),
            unclean.alias("unclean"),
            F.lit(refused).alias("refused"),
        )

    counts = ("connects", "disconnects", "unclean", "refused")
    over_time = Window.partitionBy("listener").orderBy("minute").rowsBetween(Window.unboundedPreceding, 0)
    return (
        minutes(sessions, "connected_at", 1, 0, 0)
        .unionByName(minutes(sessions, "ended_at", 0, 1, 0))
        .unionByName(minutes(events.where("event = 'refused'"), "at", 0, 0, 1))
        .groupBy("minute", "listener")
        .agg(*(F.sum(name).alias(name) for name in counts))
        .withColumn("open_sessions", F.sum(F.col("connects") - F.col("disconnects")).over(over_time))
        .select("minute", "listener", *counts, "open_sessions")
    )


def concurrent_sessions(churn: DataFrame) -> DataFrame:
    """One row per listener and step of time: the most sessions that were open at the end of a minute in it.

    Steps are as long as it takes to have few of them; without a change in it, a step has no row. Of `churn_per_minute`.
    """
    return (
        with_steps(churn, "minute")
        .groupBy("at", "listener")
        .agg(
            F.max("open_sessions").alias("open_sessions"),
            F.sum("connects").alias("connects"),
            F.sum("disconnects").alias("disconnects"),
            F.max("step_s").alias("step_s"),
        )
        .select("at", "listener", "open_sessions", "connects", "disconnects", "step_s")
    )


def findings(tables: Tables) -> list[Finding]:
    """Storms, how many sessions end badly, and whether the broker's keep-alive is late."""
    return [
        *_storms(tables["reconnect_storms"]),
        *_ends(tables),
    ]


def _storms(storms: DataFrame) -> list[Finding]:
    number = storms.count()
    largest = storms.select("*", F.date_format("start", "yyyy-MM-dd HH:mm").alias("text")).orderBy(
        F.desc("clients"), "start"
    )
    row = largest.first()
    if row is None:
        return []
    return [
        Finding(
            PROBLEM,
            f"{units.some(number, 'reconnect storm')}: in the largest, on {row['text']} UTC,"
            f" {units.some(row['clients'], 'client')} came back within {units.seconds(row['lasted_s'])};"
            f" {row['cause']}.",
            "reconnect_storms",
        )
    ]


def _ends(tables: Tables) -> list[Finding]:
    found = []
    reasons = tables["close_reasons"].collect()  # as many rows as there are reasons
    all_sessions = sum(row["sessions"] for row in reasons)
    unclean = sorted((row for row in reasons if row["close_reason"] in UNCLEAN), key=lambda row: -row["sessions"])
    if unclean:
        ended = sum(row["sessions"] for row in unclean)
        share = ended / all_sessions
        most = unclean[0]
        found.append(
            Finding(
                NOTABLE if share > 0.5 else INFORMATION,
                f"{units.share(share)} of {units.some(all_sessions, 'ended session')} ended without a goodbye, most of"
                f" them by {most['close_reason'].replace('_', ' ')} ({units.count(most['sessions'])}).",
                "close_reasons",
            )
        )
    late = tables["keep_alive_lateness"].agg(F.max("max_late_s"), F.sum("timeouts")).first()
    if late is not None and late[0] is not None and late[0] > LATE_S:
        found.append(
            Finding(
                NOTABLE,
                f"Keep-alive ended a connection {units.seconds(late[0])} late: the broker was too busy, or its machine"
                " slept.",
                "keep_alive_lateness",
            )
        )
    return found


def _reconnect_storms(written: Tables) -> DataFrame:
    always_back = [written[name].select("client_id") for name in ("flapping_clients", "duplicate_client_ids")]
    return reconnect_storms(written["sessions"], written["churn_per_minute"], always_back[0].union(always_back[1]))


TABLES: Final = (
    Table(
        "churn_per_minute",
        "Connects and disconnects per minute",
        "One row per minute and listener in which something began or ended. unclean: neither a goodbye nor the broker"
        " ended it; refused: connections that never were sessions; open sessions: at the end of the minute.",
        lambda frames: churn_per_minute(frames.written["sessions"], frames.events),
        ("minute", "listener"),
    ),
    Table(
        "duplicate_client_ids",
        "Client ids that several devices use",
        "One row per client id for which connections fight: each takes the session over from the other, again and"
        " again. Give each device an id of its own.",
        lambda frames: duplicate_client_ids(frames.written["sessions"]),
        ("-takeovers", "client_id"),
        Chart("bars", "client_id", ("takeovers",), title="Takeovers by client id"),
        empty="No client id is used by two devices at a time.",
    ),
    Table(
        "flapping_clients",
        "Flapping clients",
        "One row per client that lost its connection and came back many times within an hour. worst_hour is the most"
        " often in any hour; main reason is how most of its connections ended, cause what that usually means.",
        lambda frames: flapping_clients(frames.written["sessions"], frames.written["duplicate_client_ids"]),
        ("-flaps", "client_id"),
        Chart("bars", "client_id", ("flaps",), title="Lost connections by flapping client"),
        empty="No client flaps.",
    ),
    Table(
        "reconnect_storms",
        "Reconnect storms",
        "One row per time in which much of the fleet came back at once after it had lost its connections. share is of"
        " the most sessions that were ever open; before is how most of the lost connections had ended.",
        lambda frames: _reconnect_storms(frames.written),
        ("start",),
        Chart("bars", "start", ("clients",), title="Clients that came back, by storm"),
        empty="There was none.",
    ),
    Table(
        "concurrent_sessions",
        "Sessions over time",
        "One row per listener and step of time: the most sessions that were open at the end of a minute in it, and how"
        " many began and ended.",
        lambda frames: concurrent_sessions(frames.written["churn_per_minute"]),
        ("at", "listener"),
        Chart("lines", "at", ("open_sessions",), by="listener", title="Open sessions by listener"),
    ),
    Table(
        "close_reasons",
        "Why sessions ended",
        "One row per close reason. A healthy fleet says goodbye; connection_lost and keep_alive_timeout are networks.",
        lambda frames: close_reasons(frames.sessions),
        ("-sessions", "close_reason"),
        Chart("bars", "close_reason", ("sessions",), title="Sessions by close reason"),
        empty="No session ended.",
    ),
    Table(
        "durations",
        "Durations by listener and protocol version",
        "Half of the sessions lasted no longer than p50, nine in ten no longer than p90.",
        lambda frames: durations(frames.sessions),
        ("listener", "protocol_version"),
        empty="No session ended.",
    ),
    Table(
        "duration_histogram",
        "How long sessions lasted",
        "One row per listener and range of durations. Many short sessions: clients that reconnect.",
        lambda frames: duration_histogram(frames.sessions),
        ("from_s", "listener"),
        Chart("columns", "lasted", ("sessions",), by="listener", title="Sessions by duration and listener"),
        empty="No session ended.",
    ),
    Table(
        "keep_alive_timeouts",
        "Keep-alive timeouts",
        "One row per client and keep-alive interval that ended a connection; share is of that client's sessions with"
        " that interval; latest is how long after 1.5 times the interval the broker acted, at worst.",
        lambda frames: keep_alive_timeouts(frames.sessions),
        ("-timeouts", "client_id", "keep_alive_s"),
        Chart("bars", "client_id", ("timeouts",), title="Keep-alive timeouts by client"),
        empty="No session ended by a keep-alive timeout.",
    ),
    Table(
        "keep_alive_lateness",
        "How late keep-alive acts",
        "One row per keep-alive interval: the time from 1.5 intervals of silence to the end of the connection. A second"
        " or less is healthy; more is a broker that is too busy.",
        lambda frames: keep_alive_lateness(frames.sessions),
        ("keep_alive_s",),
        empty="No session ended by a keep-alive timeout of which that is known.",
    ),
    Table(
        "protocols",
        "What is spoken",
        "One row per listener, transport, MQTT version, TLS version and cipher. Look for what is old: TLSv1.2, 3.1.",
        lambda frames: protocols(frames.sessions),
        ("-sessions", "listener", "transport", "protocol_version", "tls_version", "tls_cipher"),
        empty="No session ended.",
    ),
)
