"""Every session on one line, with what the other reports add up."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_analytics.schema import (
    BROKER_ID,
    CLIENT_ID,
    CLOSE_REASON,
    CONNECTION_ID,
    DROPS,
    DURATION_S,
    ENDED_AT,
    KEEP_ALIVE_S,
    LISTENER,
    PROTOCOL_VERSION,
)


def overview(sessions: DataFrame) -> DataFrame:
    """One row per session: who, from when to when, why it ended, what it moved and lost.

    `handshake_s` is the time from the TCP connection to CONNACK, TLS included; `duration_s` begins where it ends.
    """
    handshake_s = F.col("connected_at").cast("double") - F.col("opened_at").cast("double")
    return sessions.select(
        BROKER_ID,
        CONNECTION_ID,
        CLIENT_ID,
        "username",
        LISTENER,
        "transport",
        PROTOCOL_VERSION,
        "peer",
        "connected_at",
        ENDED_AT,
        F.round(handshake_s, 6).alias("handshake_s"),
        DURATION_S,
        KEEP_ALIVE_S,
        CLOSE_REASON,
        "reason_code",
        F.expr("received_qos0 + received_qos1 + received_qos2").alias("messages_received"),
        F.expr("sent_qos0 + sent_qos1 + sent_qos2").alias("messages_sent"),
        "bytes_received",
        "bytes_sent",
        DROPS,
        "dropped",
        "backpressure_s",
    )
