"""Queues: who fails, which ordering key is stuck, when retries became a storm, how long an acknowledgement takes.

Deliveries are sampled: each row stands for `one_in`, and counts are sums of these. What asks for single messages, as
stuck keys do, goes by the number of the attempt, which a row has whatever was left out. Invariant: a delivery counts as
failed if and only if its outcome is one of `FAILURES`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_analytics.frames import Frames
from spark_analytics.reports.histograms import added, bucket, quantiles
from spark_analytics.reports.steps import minute_of

FAILURES: Final = ("nacked", "deadline", "disconnected", "too_large")
"""Any other outcome but these is none of the consumer's."""

ACKNOWLEDGED: Final = "acknowledged"

FEWEST_FAILED: Final = 20
FAILING_SHARE: Final = 0.2
FAILING_TIMES: Final = 3.0
"""A consumer fails if it fails so many deliveries, so large a share of its own, and so many times the share of the
others. Where all of a queue fail alike, what they have in common is at fault, and the queue is told of."""

STUCK_ATTEMPTS: Final = 3
STUCK_S: Final = 60.0
"""A key is stuck when a message of it was delivered so often, in so long a time, while others with the key waited."""

STORM_PER_MINUTE: Final = 60
STORM_SHARE: Final = 0.5
"""A minute is one of a storm when so many deliveries are retries, and so large a share of them all."""

ACCURACY: Final = 0.05
"""Of distinct messages and topics, which are estimated."""

FAILS: Final = "fails"
WORKS: Final = "works"
TOO_FEW: Final = "too few to say"
"""Of a large share that failed, and of fewer deliveries than it takes."""
AS_OTHERS: Final = "fails as the others do"


def queues(frames: Frames) -> DataFrame:
    """One row per queue: deliveries, retries, failures, and how long an acknowledgement took."""
    counted = frames.attempts.groupBy("queue").agg(
        F.sum("one_in").alias("attempts"),
        _sum_if(F.col("attempt") > 1, "retries"),
        _sum_if(F.col("outcome") == ACKNOWLEDGED, "acknowledged"),
        _sum_if(failed(), "failed"),
        F.approx_count_distinct("consumer", ACCURACY).alias("consumers"),
        *_first_and_last("ended_at"),
    )
    letters = frames.dead_letters.groupBy("queue").agg(
        F.sum("one_in").alias("dead_letters"), *_first_and_last("at", "letters_")
    )
    joined = counted.join(letters, "queue", "full").join(_times(frames.attempts, ("queue",)), "queue", "left")
    return joined.select(
        "queue",
        *(_or_zero(name) for name in ("attempts", "retries", "acknowledged", "failed")),
        _share("failed", "attempts").alias("failed_share"),
        _or_zero("dead_letters"),
        _or_zero("consumers"),
        "p50_us",
        "p99_us",
        "max_us",
        F.least("first_at", "letters_first_at").alias("first_at"),
        F.greatest("last_at", "letters_last_at").alias("last_at"),
    )


def queue_consumers(frames: Frames) -> DataFrame:
    """One row per queue and consumer; `verdict` is one of `FAILS`, `AS_OTHERS`, `TOO_FEW` and `WORKS`.

    A consumer is judged hour by hour, and over the whole time. `failing_share` is what it failed in the hours in which
    it failed, or over the whole time where these tell nothing; `others_share` is what the queue's others failed then.
    """
    by = ("queue", "consumer")
    of_hour = judged(_counted(frames.attempts, (*by, F.date_trunc("hour", "delivered_at").alias("hour"))), "hour")
    fails = F.col("verdict") == FAILS
    hours = of_hour.groupBy(*by).agg(
        F.count_if(fails).alias("failing_hours"),
        F.min(F.when(fails, F.col("hour"))).alias("failing_from"),
        F.max(F.when(F.col("verdict") == AS_OTHERS, F.lit(True))).alias("fails_alike"),
        *(F.sum(F.when(fails, F.col(name))).alias(f"hours_{name}") for name in _SUMS),
    )
    whole = judged(_counted(frames.attempts, by)).withColumnRenamed("verdict", "whole_verdict")
    alike = (F.col("whole_verdict") == AS_OTHERS) | F.col("fails_alike")
    verdict = (
        F.when((F.col("failing_hours") > 0) | (F.col("whole_verdict") == FAILS), FAILS)
        .when(alike, AS_OTHERS)
        .otherwise(F.col("whole_verdict"))
    )
    return (
        whole.join(hours, [*by])
        .join(_times(frames.attempts, by), [*by], "left")
        .select(
            *by,
            verdict.alias("verdict"),
            "attempts",
            "acknowledged",
            "failed",
            (F.col("failed") / F.col("attempts")).alias("failed_share"),
            "failing_hours",
            "failing_from",
            F.coalesce(_share("hours_failed", "hours_attempts"), _share("failed", "attempts")).alias("failing_share"),
            F.coalesce(
                _share("hours_others_failed", "hours_others_attempts"), _share("others_failed", "others_attempts")
            ).alias("others_share"),
            *FAILURES,
            "p50_us",
            "p99_us",
            "max_us",
            "first_at",
            "last_at",
        )
    )


def stuck_keys(frames: Frames) -> DataFrame:
    """One row per queue and ordering key of which a message was delivered again and again while others waited.

    The row is of the message that held the key longest; `messages` is how many did. `ending` is what became of it:
    `acknowledged`, the cause with which it was given up, or null where it was still on its way.
    """
    by = ("queue", "ordering_key")
    keyed = frames.attempts.where("ordering_key is not null")
    of_message = (
        keyed.groupBy(*by, "message_id")
        .agg(
            F.max("attempt").alias("attempts"),
            F.max("behind").alias("behind"),
            F.min("delivered_at").alias("first_at"),
            F.max("ended_at").alias("last_at"),
            F.max_by("consumer", F.when(failed(), F.col("attempt"))).alias("consumer"),
            F.max_by("outcome", F.when(failed(), F.col("attempt"))).alias("failure"),
            F.max(F.when(F.col("outcome") == ACKNOWLEDGED, F.lit(ACKNOWLEDGED))).alias("acknowledged"),
        )
        .withColumn("stuck_s", F.col("last_at").cast("double") - F.col("first_at").cast("double"))
        .where(
            (F.col("attempts") >= STUCK_ATTEMPTS)
            & (F.col("behind") > 0)
            & (F.col("stuck_s") >= STUCK_S)
            & F.col("failure").isNotNull()
        )
    )
    letters = frames.dead_letters.groupBy("queue", "message_id").agg(F.max("cause").alias("cause"))
    told = of_message.join(letters, ["queue", "message_id"], "left").withColumn(
        "ending", F.coalesce("acknowledged", "cause")
    )
    rank = Window.partitionBy(*by).orderBy(F.desc("stuck_s"), "message_id")
    return (
        told.withColumn("messages", F.count("*").over(Window.partitionBy(*by)))
        .withColumn("rank", F.row_number().over(rank))
        .where("rank = 1")
        .select(*by, "stuck_s", "attempts", "behind", "failure", "consumer", "ending", "messages", "message_id",
                "first_at", "last_at")
    )  # fmt: skip


def retry_storms(frames: Frames) -> DataFrame:
    """One row per storm of a queue: minutes, one after the other, in which most deliveries were retries."""
    minutes = (
        frames.attempts.groupBy("queue", minute_of("delivered_at").alias("minute"))
        .agg(
            F.sum("one_in").alias("attempts"),
            _sum_if(F.col("attempt") > 1, "retries"),
            F.approx_count_distinct("message_id", ACCURACY).alias("messages"),
            *(_sum_if(F.col("outcome") == outcome, outcome) for outcome in FAILURES),
        )
        .where((F.col("retries") >= STORM_PER_MINUTE) & (F.col("retries") >= STORM_SHARE * F.col("attempts")))
    )
    by_time = Window.partitionBy("queue").orderBy("minute")
    number = F.col("minute").cast("long") / 60 - F.row_number().over(by_time)
    failures = F.array(*(F.struct(F.sum(outcome).alias("n"), F.lit(outcome).alias("outcome")) for outcome in FAILURES))
    return (
        minutes.withColumn("run", number)
        .groupBy("queue", "run")
        .agg(
            F.min("minute").alias("start"),
            F.max("minute").alias("last_minute"),
            F.count("*").alias("minutes"),
            F.sum("attempts").alias("attempts"),
            F.sum("retries").alias("retries"),
            F.max("retries").alias("most_in_a_minute"),
            F.max("messages").alias("messages"),
            F.array_max(failures)["outcome"].alias("cause"),
        )
        .select(
            "queue",
            "start",
            (F.col("last_minute") + F.expr("interval 1 minute")).alias("end"),
            "minutes",
            "retries",
            (F.col("retries") / F.col("attempts")).alias("retries_share"),
            "most_in_a_minute",
            "messages",
            "cause",
        )
    )


def dead_letters_by_cause(frames: Frames) -> DataFrame:
    """One row per queue and cause."""
    return (
        frames.dead_letters.groupBy("queue", "cause")
        .agg(
            F.sum("one_in").alias("messages"),
            F.approx_count_distinct("topic", ACCURACY).alias("topics"),
            (F.sum(F.col("attempts") * F.col("one_in")) / F.sum("one_in")).alias("mean_attempts"),
            F.max_by("consumer", "at").alias("latest_consumer"),
            F.max_by("detail", "at").alias("latest_detail"),
            *_first_and_last("at"),
        )
        .select(
            *("queue", "cause", "messages", "topics", "mean_attempts", "latest_consumer", "latest_detail"),
            *("first_at", "last_at"),
        )
    )


# ------------------------------------------------------------------------------------------------------------ inside


def failed() -> Column:
    """Whether a delivery failed."""
    return F.col("outcome").isin(*FAILURES)


_SUMS: Final = ("attempts", "failed", "others_attempts", "others_failed")


def _counted(attempts: DataFrame, by: tuple[str | Column, ...]) -> DataFrame:
    """Deliveries to consumers that have a name, by how they ended."""
    return (
        attempts.where("consumer is not null")
        .groupBy(*by)
        .agg(
            F.sum("one_in").alias("attempts"),
            _sum_if(F.col("outcome") == ACKNOWLEDGED, "acknowledged"),
            *(_sum_if(F.col("outcome") == outcome, outcome) for outcome in FAILURES),
            _sum_if(failed(), "failed"),
            *_first_and_last("ended_at"),
        )
    )


def judged(counted: DataFrame, *within: str) -> DataFrame:
    """Deliveries counted by queue and consumer, with what the other consumers of the queue did, and a `verdict`."""
    of_queue = Window.partitionBy("queue", *within)
    share = F.col("failed") / F.col("attempts")
    much = share >= FAILING_SHARE
    often = (F.col("failed") >= FEWEST_FAILED) & much
    others_share = F.coalesce(_share("others_failed", "others_attempts"), F.lit(0.0))
    return (
        counted.withColumn("others_attempts", F.sum("attempts").over(of_queue) - F.col("attempts"))
        .withColumn("others_failed", F.sum("failed").over(of_queue) - F.col("failed"))
        .withColumn(
            "verdict",
            F.when(often & (share >= FAILING_TIMES * others_share), FAILS)
            .when(often, AS_OTHERS)
            .when(much, TOO_FEW)
            .otherwise(WORKS),
        )
    )


def _share(part: str, whole: str) -> Column:
    """Null where there is no whole."""
    return F.col(part) / F.nullif(F.col(whole), F.lit(0))


def _sum_if(condition: Column, name: str) -> Column:
    return F.sum(F.when(condition, F.col("one_in")).otherwise(0)).alias(name)


def _or_zero(name: str) -> Column:
    return F.coalesce(name, F.lit(0)).alias(name)


def _first_and_last(time: str, prefix: str = "") -> list[Column]:
    return [F.min(time).alias(f"{prefix}first_at"), F.max(time).alias(f"{prefix}last_at")]


def _times(attempts: DataFrame, by: tuple[str, ...]) -> DataFrame:
    """Quantiles of how long an acknowledgement took, by weighted histograms."""
    bars = attempts.where(F.col("outcome") == ACKNOWLEDGED).select(
        *by,
        bucket(F.col("held_us")).alias("bucket"),
        F.col("one_in").alias("n"),
        (F.col("held_us") * F.col("one_in")).alias("sum_us"),
        F.col("held_us").alias("max_us"),
    )
    return quantiles(added(bars, by), by).select(*by, "p50_us", "p99_us", "max_us")
