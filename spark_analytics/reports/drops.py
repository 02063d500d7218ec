"""Messages that were meant for a client and did not reach it, and why."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_analytics.schema import CLIENT_ID, DROPS, ENDED_AT


def drops_by_client(sessions: DataFrame) -> DataFrame:
    """One row per client and drop reason: messages dropped, in how many sessions, the end of the last of them."""
    return (
        sessions.select(CLIENT_ID, ENDED_AT, F.explode(DROPS).alias("drop_reason", "count"))
        .where("count > 0")
        .groupBy(CLIENT_ID, "drop_reason")
        .agg(F.sum("count").alias("dropped"), F.count("*").alias("sessions"), F.max(ENDED_AT).alias("last_ended_at"))
        .select(CLIENT_ID, "drop_reason", "dropped", "sessions", "last_ended_at")
    )
