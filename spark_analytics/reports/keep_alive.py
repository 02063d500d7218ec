"""Clients that fell silent: whom the keep-alive ended, how often, and with which interval."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_analytics.schema import CLIENT_ID, CLOSE_REASON, DURATION_S, ENDED_AT, KEEP_ALIVE_S, KEEP_ALIVE_TIMEOUT


def keep_alive_timeouts(sessions: DataFrame) -> DataFrame:
    """One row per client and keep-alive with a timeout; `share` is of that client's sessions with that keep-alive."""
    timed_out = F.col(CLOSE_REASON) == KEEP_ALIVE_TIMEOUT
    return (
        sessions.groupBy(CLIENT_ID, KEEP_ALIVE_S)
        .agg(
            F.count_if(timed_out).alias("timeouts"),
            F.count("*").alias("sessions"),
            F.min(F.when(timed_out, F.col(ENDED_AT))).alias("first_at"),
            F.max(F.when(timed_out, F.col(ENDED_AT))).alias("last_at"),
            F.percentile_approx(F.when(timed_out, F.col(DURATION_S)), 0.5).alias("median_duration_s"),
        )
        .where("timeouts > 0")
        .withColumn("share", F.col("timeouts") / F.col("sessions"))
        .select(CLIENT_ID, KEEP_ALIVE_S, "timeouts", "sessions", "share", "median_duration_s", "first_at", "last_at")
    )
