"""The whole in one row, every session on one line, and who moves how much.

Invariant: `sessions` has each connection once, whether it ended or not, in the order of its client's connections.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_analytics.frames import Finding, Frames
from spark_analytics.schema import KEY
from spark_analytics.tables import Chart, Table, Tables

_RECEIVED: Final = ("received_qos0", "received_qos1", "received_qos2")
_SENT: Final = ("sent_qos0", "sent_qos1", "sent_qos2")


def sessions(sessions: DataFrame, events: DataFrame) -> DataFrame:
    """One row per connection: who, from when to when, why it ended, what it moved and lost.

    A connection of which only the beginning was told has no `ended_at` and no numbers: it is open, or its end lies
    outside the asked time. `handshake_s` is the time from the TCP connection to CONNACK, TLS included; `duration_s`
    begins where it ends. `nth` counts the client's connections; `previous_…` and `next_connected_at` tell of those
    before and after.
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
        ended.unionByName(still_open, allowMissingColumns=True)
        .withColumn("nth", F.row_number().over(by_client))
        .withColumn("previous_ended_at", F.lag("ended_at").over(by_client))
        .withColumn("previous_close_reason", F.lag("close_reason").over(by_client))
        .withColumn("next_connected_at", F.lead("connected_at").over(by_client))
        .select(*ended.columns, "nth", "previous_ended_at", "previous_close_reason", "next_connected_at")
    )


def totals(sessions: DataFrame) -> DataFrame:
    """One row: how many sessions, of whom, and what they moved and lost. Of `sessions` above."""
    return sessions.agg(
        F.count("*").alias("sessions"),
        F.count_if(F.col("ended_at").isNull()).alias("open_sessions"),
        F.countDistinct("client_id").alias("clients"),
        F.sum("messages_received").alias("messages_received"),
        F.sum("messages_sent").alias("messages_sent"),
        F.sum("bytes_received").alias("bytes_received"),
        F.sum("bytes_sent").alias("bytes_sent"),
        F.sum("dropped").alias("dropped"),
        F.count_if(F.col("close_reason") == "keep_alive_timeout").alias("keep_alive_timeouts"),
        F.sum("backpressure_s").alias("backpressure_s"),
    )


def traffic_by_client(sessions: DataFrame) -> DataFrame:
    """One row per client: PUBLISH packets by QoS and MQTT bytes, both ways as the broker sees them."""
    counters = [*_RECEIVED, *_SENT]
    return (
        sessions.groupBy("client_id")
        .agg(
            F.count("*").alias("sessions"),
            F.sum("duration_s").alias("connected_s"),
            *(F.sum(name).alias(name) for name in counters),
            F.sum("bytes_received").alias("bytes_received"),
            F.sum("bytes_sent").alias("bytes_sent"),
        )
        .select(
            "client_id",
            "sessions",
            "connected_s",
            _sum(_RECEIVED).alias("messages_received"),
            _sum(_SENT).alias("messages_sent"),
            "bytes_received",
            "bytes_sent",
            *counters,
        )
    )


def findings(tables: Tables) -> list[Finding]:
    """None: these tables are what others are made of."""
    return []


def _sum(names: tuple[str, ...]) -> Column:
    return F.expr(" + ".join(names))


def _sessions(frames: Frames) -> DataFrame:
    return sessions(frames.sessions, frames.events)


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
        "All sessions in one row. Traffic of sessions that are still open is not in it.",
        lambda frames: totals(frames.written["sessions"]),
        (),
    ),
    Table(
        "traffic_by_client",
        "Traffic by client",
        "One row per client with an ended session, the busiest first. Messages are PUBLISH packets; bytes are all of"
        " MQTT, without TLS.",
        lambda frames: traffic_by_client(frames.sessions),
        ("-bytes_sent", "-bytes_received", "client_id"),
        Chart("bars", "client_id", ("bytes_received", "bytes_sent"), title="Bytes by client"),
        empty="No session ended.",
    ),
)
