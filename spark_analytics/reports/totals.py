"""The whole dump in one row: the numbers on top of the page."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_analytics.schema import CLIENT_ID, CLOSE_REASON, DURATION_S, ENDED_AT, KEEP_ALIVE_TIMEOUT


def totals(sessions: DataFrame) -> DataFrame:
    """One row: how many sessions, of whom, when, and what they moved and lost."""
    return sessions.agg(
        F.count("*").alias("sessions"),
        F.countDistinct(CLIENT_ID).alias("clients"),
        F.min("connected_at").alias("first_connected_at"),
        F.max(ENDED_AT).alias("last_ended_at"),
        F.sum(DURATION_S).alias("connected_s"),
        F.sum(F.expr("received_qos0 + received_qos1 + received_qos2")).alias("messages_received"),
        F.sum(F.expr("sent_qos0 + sent_qos1 + sent_qos2")).alias("messages_sent"),
        F.sum("bytes_received").alias("bytes_received"),
        F.sum("bytes_sent").alias("bytes_sent"),
        F.sum("dropped").alias("dropped"),
        F.count_if(F.col(CLOSE_REASON) == KEEP_ALIVE_TIMEOUT).alias("keep_alive_timeouts"),
        F.sum("backpressure_s").alias("backpressure_s"),
    ).select(
        "sessions",
        "clients",
        "first_connected_at",
        "last_ended_at",
        "connected_s",
        "messages_received",
        "messages_sent",
        "bytes_received",
        "bytes_sent",
        "dropped",
        "keep_alive_timeouts",
        "backpressure_s",
    )
