"""The whole in one row, every session on one line, and who moves how much.

Invariant: `sessions` has each connection once, whether it ended or not, in the order of its client's connections, and
what it moved comes from `activity` where its broker did not count it: the connection is open, or the broker died.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_analytics.frames import Finding, Frames
from spark_analytics.reports.dropped import all_drops
from spark_analytics.schema import KEY
from spark_analytics.tables import Chart, Table, Tables

_RECEIVED: Final = ("received_qos0", "received_qos1", "received_qos2")
_SENT: Final = ("sent_qos0", "sent_qos1", "sent_qos2")

COUNTERS: Final = ("messages_received", "messages_sent", "bytes_received", "bytes_sent", "dropped", "backpressure_s")
"""What both a session and an interval of `activity` count."""


def sessions(sessions: DataFrame, events: DataFrame, activity: DataFrame, since: datetime | None = None) -> DataFrame:
    """One row per connection: who, from when to when, why it ended, what it moved and lost.

    A connection of which only the beginning was told has no `ended_at`: it is open, or its end lies outside the asked
    time. `handshake_s` is the time from the TCP connection to CONNACK, TLS included; `duration_s` begins where it ends.
    `nth` counts the client's connections; `previous_…` and `next_connected_at` tell of those before and after.
    """
    known = sessions.select(*KEY)
    opened = events.where("event = 'connected' and connection_id is not null and client_id is not null")
    still_open = opened.join(known, list(KEY), "left_anti").select(
        *KEY,
        "client_id",
        "username",
        "listener",
        "transport",
        "protocol_version",
        "peer",
        F.col("at").alias("connected_at"),
        F.col("duration_s").alias("handshake_s"),
        F.col("numbers")["keep_alive_s"].cast("int").alias("keep_alive_s"),
    )
    handshake_s = F.col("connected_at").cast("double") - F.col("opened_at").cast("double")
    ended = sessions.select(
        *KEY,
        "client_id",
        "username",
        "listener",
        "transport",
        "protocol_version",
        "peer",
        "connected_at",
        "ended_at",
        F.round(handshake_s, 6).alias("handshake_s"),
        "duration_s",
        "keep_alive_s",
        "close_reason",
        "reason_code",
        _sum(_RECEIVED).alias("messages_received"),
        _sum(_SENT).alias("messages_sent"),
        "bytes_received",
        "bytes_sent",
        "drops",
        "dropped",
        "backpressure_s",
    )
    by_client = Window.partitionBy("client_id").orderBy("connected_at", *KEY)
    return (
        _counted(ended.unionByName(still_open, allowMissingColumns=True), activity, since)
        .withColumn("nth", F.row_number().over(by_client))
        .withColumn("previous_ended_at", F.lag("ended_at").over(by_client))
        .withColumn("previous_close_reason", F.lag("close_reason").over(by_client))
        .withColumn("next_connected_at", F.lead("connected_at").over(by_client))
        .select(*ended.columns, "nth", "previous_ended_at", "previous_close_reason", "next_connected_at")
    )


def _counted(connections: DataFrame, activity: DataFrame, since: datetime | None) -> DataFrame:
    """What each connection moved: the larger of what its session and its intervals tell.

    A session's row has everything, but is missing while the connection is open, and empty after a crash. Of one that
    began before `since` the session counts too much; one that only `activity` knows began before that, too.
    """
    intervals = activity.groupBy(*KEY).agg(
        F.first("client_id").alias("active_client_id"),
        F.first("listener").alias("active_listener"),
        *(F.sum(name).alias(f"active_{name}") for name in COUNTERS),
    )
    of_session = F.lit(True)
    if since is not None:
        of_session = F.coalesce(F.col("connected_at") >= F.lit(since.isoformat()).cast("timestamp"), F.lit(False))

    def larger(name: str) -> Column:
        told = F.when(of_session, F.coalesce(name, F.lit(0))).otherwise(0)
        return F.greatest(told, F.coalesce(f"active_{name}", F.lit(0))).alias(name)

    names = {"client_id": "active_client_id", "listener": "active_listener"}
    return connections.join(intervals, list(KEY), "full").select(
        *(
            larger(name)
            if name in COUNTERS
            else F.coalesce(name, names[name]).alias(name)
            if name in names
            else F.col(name)
            for name in connections.columns
        )
    )


def totals(sessions: DataFrame, drops: DataFrame) -> DataFrame:
    """One row: how many sessions, of whom, and what they moved and lost. Of `sessions` above and `all_drops`."""
    dropped = drops.agg(
        F.sum("messages").alias("all_dropped"),
        F.sum(F.when(F.col("client_id").isNotNull(), F.col("messages"))).alias("dropped_on_the_way"),
    )
    moved = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in COUNTERS if name != "dropped"]
    return (
        sessions.agg(
            F.count("*").alias("sessions"),
            F.count_if(F.col("ended_at").isNull()).alias("open_sessions"),
            F.countDistinct("client_id").alias("clients"),
            *moved,
            F.count_if(F.col("close_reason") == "keep_alive_timeout").alias("keep_alive_timeouts"),
        )
        .crossJoin(dropped)
        .select(
            "clients",
            "sessions",
            "open_sessions",
            "messages_received",
            "messages_sent",
            "bytes_received",
            "bytes_sent",
            F.coalesce("all_dropped", F.lit(0)).alias("messages_dropped"),
            F.coalesce("dropped_on_the_way", F.lit(0)).alias("dropped_for_a_client"),
            "keep_alive_timeouts",
            "backpressure_s",
        )
    )


def traffic_by_client(sessions: DataFrame) -> DataFrame:
    """One row per client: PUBLISH packets and MQTT bytes, both ways as the broker sees them. Of `sessions` above.

    `share` is of the bytes of all clients.
    """
    both = [
        F.expr("messages_received + messages_sent").alias("messages"),
        F.expr("bytes_received + bytes_sent").alias("bytes"),
    ]
    everything = sessions.agg(F.sum(F.expr("bytes_received + bytes_sent")).alias("all_bytes"))
    summed = sessions.groupBy("client_id").agg(
        F.count("*").alias("sessions"),
        *(F.sum(name).alias(name) for name in ("messages_received", "messages_sent", "bytes_received", "bytes_sent")),
    )
    return (
        summed.select("*", *both)
        .crossJoin(F.broadcast(everything))
        .select(
            "client_id",
            "sessions",
            "messages",
            "messages_received",
            "messages_sent",
            "bytes",
            F.when(F.col("all_bytes") > 0, F.col("bytes") / F.col("all_bytes")).alias("share"),
            "bytes_received",
            "bytes_sent",
        )
    )


def findings(tables: Tables) -> list[Finding]:
    """None: these tables are what others are made of."""
    return []


def _sum(names: tuple[str, ...]) -> Column:
    return F.expr(" + ".join(names))


def _sessions(frames: Frames) -> DataFrame:
    return sessions(frames.sessions, frames.events, frames.activity, frames.since)


TABLES: Final = (
    Table(
        "sessions",
        "Sessions",
        "One row per connection, the last to begin first. Without an end: still open. Messages are PUBLISH packets,"
        " bytes all of MQTT without TLS; received is from the client, sent to it.",
        _sessions,
        ("-connected_at", *KEY),
        one_file=False,
    ),
    Table(
        "totals",
        "In total",
        "All sessions in one row, those that are open included. messages dropped are all of them; dropped for a client"
        " are those that somebody should have received.",
        lambda frames: totals(frames.written["sessions"], all_drops(frames)),
        (),
    ),
    Table(
        "traffic_by_client",
        "Traffic by client",
        "One row per client, the busiest first: by bytes in both directions, of which share is its part. Messages are"
        " PUBLISH packets; bytes are all of MQTT, without TLS; received is from the client, sent to it.",
        lambda frames: traffic_by_client(frames.written["sessions"]),
        ("-bytes", "client_id"),
        Chart("bars", "client_id", ("bytes_received", "bytes_sent"), title="Bytes by client"),
        empty="No client connected.",
    ),
)
