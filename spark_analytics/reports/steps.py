"""Steps of time for charts: as short as makes a line of few enough points.

Invariant: all rows of a frame are cut into steps of one length.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

STEPS_S: Final = (60, 300, 900, 3600, 6 * 3600, 86400)
"""A chart over time takes the first of these that cuts the time into at most `POINTS`."""

POINTS: Final = 500
"""Points of a line; a chart is about so many pixels wide."""


def with_steps(rows: DataFrame, time: str, points: int = POINTS) -> DataFrame:
    """The rows, each with `at`, the beginning of its step, and `step_s`, the length of all steps.

    No step is shorter than the rows' intervals: between those there would be some without a row.
    """
    interval_s = F.max("interval_s") if "interval_s" in rows.columns else F.lit(0.0)
    span = rows.agg(
        (F.max(time).cast("long") - F.min(time).cast("long")).alias("span_s"), interval_s.alias("longest_s")
    )
    step_s = F.lit(STEPS_S[-1])
    for shorter in reversed(STEPS_S[:-1]):
        # Clocks are no exact ones: an interval of a minute may take a little longer.
        enough = (F.col("span_s") <= shorter * points) & (F.col("longest_s") < 1.5 * shorter)
        step_s = F.when(enough, shorter).otherwise(step_s)
    return rows.crossJoin(F.broadcast(span.select(step_s.cast("long").alias("step_s")))).withColumn(
        "at", F.timestamp_seconds(F.floor(F.col(time).cast("long") / F.col("step_s")) * F.col("step_s"))
    )


def every_step(rows: DataFrame) -> DataFrame:
    """One row per step from the first to the last `at`: a line that leaves steps out tells of traffic that was none."""
    bounds = rows.agg(F.min("at").alias("first_at"), F.max("at").alias("last_at"), F.max("step_s").alias("step_s"))
    return (
        bounds.where("first_at is not null")
        .select(
            F.explode(F.sequence(F.unix_seconds("first_at"), F.unix_seconds("last_at"), F.col("step_s"))).alias(
                "second"
            ),
            "step_s",
        )
        .select(F.timestamp_seconds("second").alias("at"), "step_s")
    )


def minute_of(time: str) -> Column:
    """The minute in which a time is."""
    return F.date_trunc("minute", time)
