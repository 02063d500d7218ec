"""Clients that read more slowly than messages came for them."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_analytics.schema import CLIENT_ID, DURATION_S


def back_pressure_by_client(sessions: DataFrame) -> DataFrame:
    """One row per client that ever was slow: for how long, how often, its share of the connected time, and the
    highest water marks of any of its sessions, slow or not."""
    marks = (
        "outbox_high_water_bytes",
        "outbox_high_water_messages",
        "queue_high_water_messages",
        "inflight_high_water",
    )
    share = F.when(F.col("connected_s") > 0, F.col("backpressure_s") / F.col("connected_s"))
    return (
        sessions.groupBy(CLIENT_ID)
        .agg(
            F.sum("backpressure_s").alias("backpressure_s"),
            F.sum("backpressure_count").alias("backpressure_count"),
            F.count_if(F.col("backpressure_count") > 0).alias("slow_sessions"),
            F.count("*").alias("sessions"),
            F.sum(DURATION_S).alias("connected_s"),
            *(F.max(mark).alias(mark) for mark in marks),
        )
        .where("backpressure_count > 0 or backpressure_s > 0")
        .withColumn("share", share)
        .select(CLIENT_ID, "backpressure_s", "share", "backpressure_count", "slow_sessions", "sessions", *marks)
    )
