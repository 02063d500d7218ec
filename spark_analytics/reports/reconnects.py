"""Who comes back too often, all at once, or against itself: flapping clients, reconnect storms, duplicate client ids.

All of them read the report's own table `sessions`. Invariant: a connection that was lost is charged to one of the three
at most: a fight for a client id is no flapping, and a storm counts clients, not connections.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

GOODBYES: Final = ("client_disconnected", "client_disconnected_with_will")

UNCLEAN: Final = (
    "connection_lost",
    "keep_alive_timeout",
    "malformed_packet",
    "protocol_error",
    "not_authorized",
    "buffer_full",
    "quota_exceeded",
    "packet_too_large",
)
"""Ended by neither a goodbye, nor the broker's own end, nor another connection."""

_THROWN_OUT: Final = ("buffer_full", "quota_exceeded")
"""The broker ended it because the client was too slow or too greedy; it is named for that, not for flapping."""

AT_ONCE_S: Final = 5.0
"""Who says goodbye and is back that soon did not mean it. A device that sleeps between messages sleeps longer."""

FLAPS_AN_HOUR: Final = 5
"""A bad radio link costs a connection now and then; the fifth within an hour is a fault somebody can mend."""

ABOVE_FLEET: Final = 3
"""Where half of the fleet loses connections all the time, the network is at fault; then it takes so many times more."""

TAKEOVERS_AN_HOUR: Final = 5
"""Who changes networks takes its own session over once; devices that share an id do it whenever one reconnects."""

_HOUR_S: Final = 3600

STORM_CLIENTS: Final = 5
"""Fewer clients are no storm for any broker, whatever part of the fleet they are."""

HOT_SHARE: Final = 0.05
"""A minute in which this part of the fleet comes back is in a storm …"""

WARM_SHARE: Final = 0.02
"""… and so are the minutes next to it while this part does, and more than one client: its slopes."""

STORM_SHARE: Final = 0.1
"""A storm brings back this part of the fleet in all."""

ABOVE_USUAL: Final = 3
"""In a fleet that reconnects all the time, a storm is so many times the median minute."""

_CAUSES: Final = {
    "keep_alive_timeout": "it is silent for longer than 1.5 × keep-alive: a bad network, or a keep-alive too short",
    "connection_lost": "the connection breaks: the network, a proxy, or a device that restarts",
    "malformed_packet": "it sends what is not MQTT: its library or firmware",
    "protocol_error": "it breaks the protocol: its library or firmware",
    "not_authorized": "it tries what it may not do",
    "packet_too_large": "its messages are too large",
    "taken_over": "it reconnects before the broker knows that its connection is lost: the network",
}
_GOODBYE_CAUSE: Final = "it says goodbye and is back at once: it restarts, or connects for each message"

_STORM_CAUSES: Final = {
    "server_shutdown": "the broker had been stopped",
    "broker_crash": "the broker had crashed",
    "administrative": "an administrator had closed the connections",
    "keep_alive_timeout": "the clients had fallen silent, so the network between was down",
    "connection_lost": "the connections had broken, so a network, a proxy or a load balancer failed",
    "taken_over": "the old connections were still open, so a network failed unnoticed",
}


def flapping_clients(sessions: DataFrame, duplicates: DataFrame) -> DataFrame:
    """One row per client that lost connections and came back, `FLAPS_AN_HOUR` times or more within some hour.

    Devices that fight for a client id, `duplicates`, and those thrown out for being slow or greedy are named elsewhere.
    """
    fighting = duplicates.select("client_id", F.lit(True).alias("fights"))
    lost = (
        F.col("close_reason").isin(*(reason for reason in UNCLEAN if reason not in _THROWN_OUT))
        | (F.col("close_reason").isin(*GOODBYES) & (_seconds("next_connected_at") - _seconds("ended_at") < AT_ONCE_S))
        | ((F.col("close_reason") == "taken_over") & F.col("fights").isNull())
    )
    ended = (
        sessions.where("ended_at is not null")
        .join(F.broadcast(fighting), "client_id", "left")
        .withColumn("flapped", lost & F.col("next_connected_at").isNotNull())
        .withColumn("an_hour", _within_an_hour(F.col("flapped")))
    )
    flapped = F.col("flapped")
    clients = ended.groupBy("client_id").agg(
        F.count_if(flapped).alias("flaps"),
        F.max("an_hour").alias("worst_hour"),
        F.count("*").alias("sessions"),
        F.percentile_approx(F.when(flapped, F.col("duration_s")), 0.5).alias("median_session_s"),
        F.max_by("listener", F.when(flapped, F.col("ended_at"))).alias("listener"),
        F.max_by("keep_alive_s", F.when(flapped, F.col("ended_at"))).alias("keep_alive_s"),
        F.mode(F.when(flapped, F.col("close_reason"))).alias("main_reason"),
        F.min(F.when(flapped, F.col("ended_at"))).alias("first_at"),
        F.max(F.when(flapped, F.col("ended_at"))).alias("last_at"),
    )
    usual = clients.agg(F.percentile_approx("worst_hour", 0.5).alias("usual"))
    return (
        clients.where(F.col("worst_hour") >= FLAPS_AN_HOUR)
        .crossJoin(F.broadcast(usual))
        .where(F.col("worst_hour") >= ABOVE_FLEET * F.col("usual"))
        .withColumn("cause", _named(F.col("main_reason"), _CAUSES, _GOODBYE_CAUSE))
        .select(
            "client_id",
            "flaps",
            "worst_hour",
            "sessions",
            "median_session_s",
            "listener",
            "keep_alive_s",
            "main_reason",
            "cause",
            "first_at",
            "last_at",
        )
    )


def duplicate_client_ids(sessions: DataFrame) -> DataFrame:
    """One row per client id for which connections fight: each takes the session over from the other, again and again.

    They come from several addresses, or almost all of their connections end so.
    """
    taken = F.col("close_reason") == "taken_over"
    host = F.regexp_replace("peer", r":\d+$", "")
    return (
        sessions.where("ended_at is not null")
        .withColumn("an_hour", _within_an_hour(taken))
        .groupBy("client_id")
        .agg(
            F.count_if(taken).alias("takeovers"),
            F.max("an_hour").alias("worst_hour"),
            F.count("*").alias("sessions"),
            F.collect_set(F.when(taken, host)).alias("hosts"),
            F.percentile_approx(F.when(taken, F.col("duration_s")), 0.5).alias("median_session_s"),
            F.min(F.when(taken, F.col("ended_at"))).alias("first_at"),
            F.max(F.when(taken, F.col("ended_at"))).alias("last_at"),
        )
        .where(F.col("worst_hour") >= TAKEOVERS_AN_HOUR)
        .where((F.size("hosts") > 1) | (F.col("takeovers") > 0.9 * F.col("sessions")))
        .select(
            "client_id",
            "takeovers",
            "worst_hour",
            "sessions",
            F.size("hosts").cast("long").alias("addresses"),
            F.concat_ws(", ", F.slice(F.array_sort("hosts"), 1, 5)).alias("such_as"),
            "median_session_s",
            "first_at",
            "last_at",
        )
    )


def reconnect_storms(sessions: DataFrame, churn: DataFrame, always_back: DataFrame) -> DataFrame:
    """One row per time in which much of the fleet came back after it had lost its connections.

    Coming back after a goodbye does not count, nor does coming for the first time, nor who is `always_back`: clients
    that flap or fight. The windows over all minutes run over those in which a storm may be, of which there are few.
    """
    lost = (F.col("nth") > 1) & ~F.coalesce("previous_close_reason", F.lit("")).isin(*GOODBYES)
    settled = sessions.where(lost).join(F.broadcast(always_back.select("client_id")), "client_id", "left_anti")
    back = settled.select(
        "client_id",
        "connected_at",
        F.coalesce("previous_close_reason", F.lit("broker_crash")).alias("lost_by"),
        F.floor(_seconds("connected_at") / 60).alias("minute"),
    )
    minutes = back.groupBy("minute").agg(F.countDistinct("client_id").alias("clients"))
    span = churn.agg(((F.max("minute").cast("long") - F.min("minute").cast("long")) / 60 + 1).alias("all_minutes"))
    busy = minutes.agg(F.percentile_approx("clients", 0.5).alias("median"), F.count("*").alias("busy_minutes"))
    usual = busy.crossJoin(span).select(
        F.when(F.col("busy_minutes") > 0.5 * F.col("all_minutes"), F.col("median")).otherwise(0).alias("usual")
    )
    fleet = (
        churn.groupBy("listener")
        .agg(F.max("open_sessions").alias("open_sessions"))
        .agg(F.sum("open_sessions").alias("fleet"))
    )
    measures = F.broadcast(usual.crossJoin(fleet))
    in_order = Window.orderBy("minute")
    spans = (
        minutes.crossJoin(measures)
        .where(F.col("clients") >= F.greatest(F.lit(2), WARM_SHARE * F.col("fleet"), ABOVE_USUAL * F.col("usual")))
        .withColumn("apart", F.col("minute") - F.lag("minute").over(in_order) > 1)
        .withColumn("storm", F.count_if("apart").over(in_order))
        .groupBy("storm")
        .agg(
            F.min("minute").alias("from_minute"),
            F.max("minute").alias("to_minute"),
            F.max("clients").alias("peak_per_minute"),
            F.max("fleet").alias("fleet"),
        )
        .where(F.col("peak_per_minute") >= HOT_SHARE * F.col("fleet"))
    )
    return (
        back.join(F.broadcast(spans), F.col("minute").between(F.col("from_minute"), F.col("to_minute")))
        .groupBy("storm", "fleet", "peak_per_minute")
        .agg(
            F.min("connected_at").alias("start"),
            F.max("connected_at").alias("end"),
            F.countDistinct("client_id").alias("clients"),
            F.count("*").alias("connections"),
            F.mode("lost_by").alias("before"),
        )
        .where(F.col("clients") >= F.greatest(F.lit(STORM_CLIENTS), STORM_SHARE * F.col("fleet")))
        .select(
            "start",
            "end",
            F.round(_seconds("end") - _seconds("start"), 6).alias("lasted_s"),
            "clients",
            (F.col("clients") / F.col("fleet")).alias("share"),
            "connections",
            "peak_per_minute",
            "before",
            _named(F.col("before"), _STORM_CAUSES, "their connections had been closed").alias("cause"),
        )
    )


def _within_an_hour(happened: Column) -> Column:
    """Of a client, how often it happened in the hour up to this row."""
    hour = Window.partitionBy("client_id").orderBy(_seconds("ended_at")).rangeBetween(-_HOUR_S, 0)
    return F.when(happened, F.sum(happened.cast("int")).over(hour)).otherwise(0)


def _named(reason: Column, names: dict[str, str], other: str) -> Column:
    name = F.lit(other)
    for key, text in names.items():
        name = F.when(reason == key, text).otherwise(name)
    return name


def _seconds(time: str) -> Column:
    return F.col(time).cast("double")
