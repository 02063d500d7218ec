"""How long sessions last, by listener and protocol version.

Invariant: `duration_histogram` counts every session once, in the bucket with `from_s <= duration_s < to_s`.
"""

from itertools import pairwise
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_analytics.schema import DURATION_S, LISTENER, PROTOCOL_VERSION

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0

# About a factor of six from one to the next: from a device that publishes and leaves to one that never leaves.
BUCKETS_S: Final = (0.0, 1.0, 10.0, _MINUTE, 10 * _MINUTE, _HOUR, 6 * _HOUR, _DAY, 7 * _DAY)


def durations(sessions: DataFrame) -> DataFrame:
    """One row per listener and protocol version: quantiles of the duration, each the duration of a real session."""
    quantile = F.percentile_approx(DURATION_S, [0.5, 0.9, 0.99], 10_000)
    return (
        sessions.groupBy(LISTENER, PROTOCOL_VERSION)
        .agg(
            F.count("*").alias("sessions"),
            F.min(DURATION_S).alias("min_s"),
            quantile.alias("quantiles"),
            F.max(DURATION_S).alias("max_s"),
            F.avg(DURATION_S).alias("mean_s"),
        )
        .select(
            LISTENER,
            PROTOCOL_VERSION,
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
    """One row per listener, protocol version and bucket that is not empty; `to_s` of the last bucket is null."""
    last = F.struct(F.lit(BUCKETS_S[-1]).alias("from_s"), F.lit(None).cast("double").alias("to_s"))
    bucket = last
    for from_s, to_s in reversed(list(pairwise(BUCKETS_S))):
        this = F.struct(F.lit(from_s).alias("from_s"), F.lit(to_s).alias("to_s"))
        bucket = F.when(F.col(DURATION_S) < to_s, this).otherwise(bucket)
    return (
        sessions.withColumn("bucket", bucket)
        .groupBy(LISTENER, PROTOCOL_VERSION, "bucket")
        .agg(F.count("*").alias("sessions"))
        .select(LISTENER, PROTOCOL_VERSION, "bucket.from_s", "bucket.to_s", "sessions")
    )
