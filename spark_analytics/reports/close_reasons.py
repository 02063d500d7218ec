"""Why sessions end."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_analytics.schema import CLIENT_ID, CLOSE_REASON, DURATION_S


def close_reasons(sessions: DataFrame) -> DataFrame:
    """One row per close reason: sessions, their share of all, how many clients, the median duration."""
    everything = Window.partitionBy()
    return (
        sessions.groupBy(CLOSE_REASON)
        .agg(
            F.count("*").alias("sessions"),
            F.countDistinct(CLIENT_ID).alias("clients"),
            F.percentile_approx(DURATION_S, 0.5).alias("median_duration_s"),
            F.count_if("will_published").alias("wills_published"),
        )
        .withColumn("share", F.col("sessions") / F.sum("sessions").over(everything))
        .select(CLOSE_REASON, "sessions", "share", "clients", "median_duration_s", "wills_published")
    )
