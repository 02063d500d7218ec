"""Devices that publish more or less than they use to, more than all others, or read more slowly than they are sent.

All of them read `device_hours`. Invariant: a device is compared with itself, but for the greedy: those are compared
with the fleet.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

KNOWN_HOURS: Final = 6
"""Hours in which a device published, before it is said what it uses to do."""

SCORE: Final = 6.0
"""Robust standard deviations upwards. Messages at random (Poisson) are so many once in some hundred thousand hours."""

SCORE_LESS: Final = 4.0
"""Downwards, where a third sign is asked for: that the messages are further apart all through the hour."""

KNOWN_INTERVALS: Final = 4
"""Intervals of an hour in which a device published, before that hour is called slow: what came in fewer is the little
that it said before it left, or after it came."""

TO_SIGMA: Final = 1.4826
"""From the median absolute deviation to the standard deviation it stands for."""

LEAST_SIGMA: Final = 0.1
"""Of what is usual: a device that publishes by the clock does not scatter at all, and a tenth more is no anomaly."""

MORE: Final = 2.0
LESS: Final = 0.5
"""Times what is usual, at least: an anomaly is something that one sees."""

GREEDY: Final = 3.0
"""Times what nine of ten clients publish in a usual hour: the fast ones among ordinary devices are near those nine.
Of the greedy it is the usual hour too that counts: who floods now and then has a rate anomaly."""

GREEDY_AN_HOUR: Final = 600
GREEDY_BYTES_AN_HOUR: Final = 10_000_000
"""One message in six seconds, or three kilobytes a second, is no burden for any broker, whatever the others do."""

SLOW_SHARE: Final = 0.1
"""Of an hour in which it is connected: a socket that takes no bytes so long is no hiccup of a network."""

SLOW_S: Final = 30.0
"""And at least so long: a client that was there for a few seconds has shown nothing."""

WAITING: Final = 100.0
"""Messages that wait for a client on the average of an hour: it is there, and acknowledges too slowly."""


def rate_anomalies(hours: DataFrame) -> DataFrame:
    """One row per client and hour in which it published far more or less than it uses to.

    `usual` is the device's median hour, times what all devices do more or less in that hour: when the broker was down
    or the day is busy, that is nobody's anomaly. `score` is in robust standard deviations; downwards of the logarithm,
    for no rate falls below nothing, while one that doubles between night and noon scatters widely. An hour in which the
    device was away for a while is no slow hour: in a slow one its messages are further apart also while it was there.
    """
    spoken = hours.where("messages > 0").withColumn("pace_s", _pace_s())
    usual = (
        spoken.groupBy("client_id")
        .agg(
            F.count("*").alias("hours"),
            F.percentile("messages", 0.5).alias("median"),
            F.percentile("pace_s", 0.5).alias("usual_pace_s"),
        )
        .where(F.col("hours") >= KNOWN_HOURS)
    )
    with_usual = spoken.join(usual, "client_id")
    fleet = with_usual.groupBy("hour").agg(F.percentile(F.col("messages") / F.col("median"), 0.5).alias("everybody"))
    compared = with_usual.join(F.broadcast(fleet), "hour").withColumn("usual", F.col("median") * F.col("everybody"))
    ratio = F.log(F.col("messages") / F.col("usual"))
    scatter = compared.groupBy("client_id").agg(
        F.percentile(F.abs(F.col("messages") - F.col("usual")), 0.5).alias("mad"),
        F.percentile(F.abs(ratio), 0.5).alias("mad_of_ratio"),
    )
    usual_sigma = F.greatest(TO_SIGMA * F.col("mad"), LEAST_SIGMA * F.col("usual"), F.sqrt("usual"), F.lit(1.0))
    upwards = (F.col("messages") - F.col("usual")) / usual_sigma
    # The root of a count at random scatters by a half, whatever the count (Anscombe).
    downwards = F.greatest(
        ratio / F.greatest(TO_SIGMA * F.col("mad_of_ratio"), F.lit(LEAST_SIGMA)),
        2 * (F.sqrt(F.col("messages") + 0.375) - F.sqrt(F.col("usual") + 0.375)),
    )
    slower = F.col("pace_s") >= MORE * F.col("usual_pace_s")
    more = (F.col("score") >= SCORE) & (F.col("messages") >= MORE * F.col("usual"))
    less = (F.col("score") <= -SCORE_LESS) & (F.col("messages") <= LESS * F.col("usual")) & slower
    return (
        compared.join(scatter, "client_id")
        .withColumn("score", F.when(F.col("messages") >= F.col("usual"), upwards).otherwise(downwards))
        .where(more | less)
        .select(
            "client_id",
            "hour",
            "messages",
            "usual",
            (F.col("messages") / F.col("usual")).alias("times"),
            "score",
            F.when(F.col("score") > 0, "more").otherwise("less").alias("than_usual"),
        )
    )


def _pace_s() -> Column:
    """Seconds per message from the first interval of the hour in which it published to the last, but for the longest
    pause between them. It is no median of pauses: those are whole intervals."""
    span_s = F.col("last_at").cast("double") - F.col("first_at").cast("double")
    pause_s = F.when(F.col("gap_longest_at") < F.col("last_at"), F.col("gap_longest_s")).otherwise(0.0)
    return F.when(F.col("sending") >= KNOWN_INTERVALS, (span_s - pause_s) / F.col("messages"))


def greedy_clients(hours: DataFrame) -> DataFrame:
    """One row per client that in its usual hour publishes far more than the fleet does, in messages or in bytes.

    `fleet` and `fleet_bytes` are what nine of ten clients publish in their median hour at most, `times` the larger of
    what the client's are of those; `share` is of all messages.
    """
    clients = (
        hours.where("messages > 0")
        .groupBy("client_id")
        .agg(
            F.max("messages").alias("busiest_hour"),
            F.max_by("hour", "messages").alias("busiest_at"),
            F.percentile("messages", 0.5).alias("median_hour"),
            F.percentile("bytes", 0.5).alias("median_bytes"),
            F.sum("messages").alias("messages"),
            F.sum("bytes").alias("bytes"),
        )
    )
    fleet = clients.agg(
        F.percentile("median_hour", 0.9).alias("fleet"),
        F.percentile("median_bytes", 0.9).alias("fleet_bytes"),
        F.sum("messages").alias("all_messages"),
    )
    often = F.col("median_hour") >= F.greatest(GREEDY * F.col("fleet"), F.lit(GREEDY_AN_HOUR))
    much = F.col("median_bytes") >= F.greatest(GREEDY * F.col("fleet_bytes"), F.lit(GREEDY_BYTES_AN_HOUR))
    times = F.greatest(*(F.when(F.col(of) > 0, F.col(own) / F.col(of)) for own, of in (
        ("median_hour", "fleet"), ("median_bytes", "fleet_bytes"),
    )))  # fmt: skip
    return (
        clients.crossJoin(F.broadcast(fleet))
        .where(often | much)
        .select(
            "client_id",
            "median_hour",
            "fleet",
            "median_bytes",
            "fleet_bytes",
            times.alias("times"),
            "busiest_hour",
            "busiest_at",
            "messages",
            "bytes",
            (F.col("messages") / F.col("all_messages")).alias("share"),
        )
    )


def slow_clients(hours: DataFrame, sessions: DataFrame) -> DataFrame:
    """One row per client that took bytes, or acknowledged, more slowly than it was sent messages.

    `worst_share` is the part of an hour in which its socket took nothing, at worst; of a session, where a broker told
    no more. `worst_queue` is how many messages waited on the average of an hour, at worst.
    """
    by_hour = hours.where("observed_s > 0").select(
        "client_id",
        F.col("hour").alias("at"),
        "backpressure_s",
        _share("backpressure_s", "observed_s").alias("share"),
        F.col("queued_mean").alias("queued"),
        "queued_most",
        "dropped",
    )
    told = hours.select("client_id").distinct()
    by_session = (
        sessions.where("backpressure_s > 0")
        .join(told, "client_id", "left_anti")
        .select(
            "client_id",
            F.col("connected_at").alias("at"),
            "backpressure_s",
            _share("backpressure_s", "duration_s").alias("share"),
            F.lit(0.0).alias("queued"),
            F.lit(0).cast("long").alias("queued_most"),
            "dropped",
        )
    )
    slow = ((F.col("share") >= SLOW_SHARE) & (F.col("backpressure_s") >= SLOW_S)) | (F.col("queued") >= WAITING)
    return (
        by_hour.unionByName(by_session)
        .groupBy("client_id")
        .agg(
            F.count_if(slow).alias("slow_hours"),
            F.min(F.when(slow, F.col("at"))).alias("first_at"),
            F.max(F.when(slow, F.col("at"))).alias("last_at"),
            F.sum("backpressure_s").alias("backpressure_s"),
            F.max("share").alias("worst_share"),
            F.max("queued").alias("worst_queue"),
            F.max("queued_most").alias("queued_most"),
            F.sum("dropped").alias("dropped"),
        )
        .where("slow_hours > 0")
        .select(
            "client_id",
            "slow_hours",
            "backpressure_s",
            "worst_share",
            "worst_queue",
            "queued_most",
            "dropped",
            "first_at",
            "last_at",
        )
    )


def _share(part: str, whole: str) -> Column:
    return F.when(F.col(whole) > 0, F.least(F.col(part) / F.col(whole), F.lit(1.0))).otherwise(0.0)
