"""What each device did in each hour: the one pass over `activity` of which the reports about devices are made.

Invariant: a row holds the intervals that began in its hour; a pause belongs to the hour in which it began.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def device_hours(activity: DataFrame) -> DataFrame:
    """One row per client and hour.

    `sending` counts intervals in which it published, `gap_…` the times from one of those to the next: how many, their
    median and third quartile, the longest and when that began. `first_at` and `last_at` are of intervals in which it
    published. `observed_s` is the length of all its intervals, `backpressure_s` how much of them it took no bytes.
    """
    sent = F.col("messages_received") > 0
    following = F.expr("lead(sent_at) ignore nulls over (partition by client_id order by interval_start)")
    gap_s = F.col("next_sent_at").cast("double") - F.col("sent_at").cast("double")
    return (
        activity.select(
            "client_id",
            "interval_start",
            "interval_s",
            "messages_received",
            "messages_sent",
            "bytes_received",
            "dropped",
            "queued",
            "backpressure_s",
            F.when(sent, F.col("interval_start")).alias("sent_at"),
        )
        .withColumn("next_sent_at", following)
        # Two connections of a client, or two brokers, have rows of the same interval.
        .withColumn("gap_s", F.when(gap_s > 0, gap_s))
        .groupBy("client_id", F.date_trunc("hour", "interval_start").alias("hour"))
        .agg(
            F.sum("messages_received").alias("messages"),
            F.sum("bytes_received").alias("bytes"),
            F.count("sent_at").alias("sending"),
            F.min("sent_at").alias("first_at"),
            F.max("sent_at").alias("last_at"),
            F.count("gap_s").alias("gaps"),
            F.percentile_approx("gap_s", [0.5, 0.75], 1000).alias("quartiles"),
            F.max("gap_s").alias("gap_longest_s"),
            F.max_by("sent_at", "gap_s").alias("gap_longest_at"),
            F.count("*").alias("intervals"),
            F.sum("interval_s").alias("observed_s"),
            F.sum("messages_sent").alias("messages_sent"),
            F.sum("dropped").alias("dropped"),
            F.avg("queued").alias("queued_mean"),
            F.max("queued").alias("queued_most"),
            F.sum("backpressure_s").alias("backpressure_s"),
        )
        .select(
            "client_id",
            "hour",
            "messages",
            "bytes",
            "sending",
            "first_at",
            "last_at",
            "gaps",
            F.col("quartiles")[0].alias("gap_p50_s"),
            F.col("quartiles")[1].alias("gap_p75_s"),
            "gap_longest_s",
            "gap_longest_at",
            "intervals",
            "observed_s",
            "messages_sent",
            "dropped",
            "queued_mean",
            "queued_most",
            "backpressure_s",
        )
    )
