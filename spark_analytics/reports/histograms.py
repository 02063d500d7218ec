"""The broker's histograms: merged by adding their counts, and quantiles out of them.

The buckets are those of `docs/reference/telemetry.md`. Invariant: a quantile is in the bucket that holds the
measurement of its rank (the smallest with at least that part of all at or below it), so it is off by less than the
width of that bucket: nothing below 32 µs, 6.25 % beyond.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

QUANTILES: Final = {"p50_us": 500, "p95_us": 950, "p99_us": 990, "p999_us": 999}
"""In thousandths: ranks are whole numbers, and 0.95 is none that a double knows."""


def merged(latency: DataFrame, by: Sequence[str]) -> DataFrame:
    """One row per group and bucket that is not empty: `n`, and the sum and maximum of what the rows tell."""
    # Each row's sum goes with its first bucket, lest it count once per bucket.
    bars = latency.select(*by, "sum_us", "max_us", F.posexplode(F.arrays_zip("buckets", "counts")).alias("pos", "bar"))
    return added(
        bars.select(
            *by,
            F.col("bar.buckets").alias("bucket"),
            F.col("bar.counts").alias("n"),
            F.when(F.col("pos") == 0, F.col("sum_us")).alias("sum_us"),
            "max_us",
        ),
        by,
    )


def added(histograms: DataFrame, by: Sequence[str]) -> DataFrame:
    """The same for rows that are already one bucket each."""
    return histograms.groupBy(*by, "bucket").agg(
        F.sum("n").alias("n"), F.sum("sum_us").alias("sum_us"), F.max("max_us").alias("max_us")
    )


def quantiles(histograms: DataFrame, by: Sequence[str]) -> DataFrame:
    """One row per group: `messages`, the quantiles, `max_us` and `mean_us`, out of what `merged` gives.

    Within its bucket a quantile lies where its rank does, as if the measurements were spread evenly.
    """
    group = Window.partitionBy(*by)
    upward = group.orderBy("bucket").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = (
        histograms.withColumn("up_to", F.sum("n").over(upward))
        .withColumn("messages", F.sum("n").over(group))
        .withColumn("largest_us", F.max("max_us").over(group))
    )
    return (
        ranked.groupBy(*by)
        .agg(
            F.max("messages").alias("messages"),
            *(_quantile(thousandths).alias(name) for name, thousandths in QUANTILES.items()),
            F.max("largest_us").alias("max_us"),
            (F.sum("sum_us") / F.max("messages")).alias("mean_us"),
        )
        .select(*by, "messages", *QUANTILES, "max_us", "mean_us")
    )


def bucket(us: Column) -> Column:
    """The bucket that holds a duration."""
    exponent = F.greatest(F.length(F.bin(us)) - 5, F.lit(0))
    return (16 * exponent + F.floor(us / F.pow(F.lit(2.0), exponent))).cast("int")


def low(bucket: Column) -> Column:
    """The smallest duration in a bucket, in microseconds."""
    return F.when(bucket < 32, bucket.cast("long")).otherwise((bucket % 16 + 16) * width(bucket))


def width(bucket: Column) -> Column:
    """How many microseconds a bucket holds."""
    return F.pow(F.lit(2.0), F.greatest(F.floor(bucket / 16) - 1, F.lit(0))).cast("long")


def _quantile(thousandths: int) -> Column:
    """Of all rows of a group the one bucket that holds the rank; the maximum is among the measured too."""
    rank = F.floor((F.col("messages") * thousandths + 999) / 1000)
    below = F.col("up_to") - F.col("n")
    inside = F.floor((rank - below - F.lit(0.5)) / F.col("n") * width(F.col("bucket")))
    holds = (rank > below) & (rank <= F.col("up_to"))
    return F.min(F.when(holds, F.least(low(F.col("bucket")) + inside, F.col("largest_us"))))
