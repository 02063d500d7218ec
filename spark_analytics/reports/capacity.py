"""Where the load is going, and when it will meet a limit.

The trend is a line through hours: the median of the slopes between each hour and the one half of the dataset later
(Theil's incomplete method). A mad hour does not bend it, as it would bend least squares, and where the dataset is long
enough hours are compared with the same hour of another day, so that the rhythm of the day is no growth. Its height is
that of busy hours, not of average ones: those meet the limit first.

Invariant: what is computed here is computed over hours, never over rows of the dataset.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_analytics import units
from spark_analytics.frames import INFORMATION, NOTABLE, PROBLEM, Finding, Frames
from spark_analytics.limits import CONNECTIONS, METRICS
from spark_analytics.reports.load import load_by_hour, load_over_time, runs_of
from spark_analytics.tables import Chart, Table, Tables

ENOUGH_HOURS: Final = 3
"""Two points always lie on a line; only from the third on there is something that agrees."""

COVERED_S: Final = 600
"""Of an hour, at least, for it to be a point: the first and the last may be a few seconds long."""

BUSY: Final = 0.9
"""One hour in ten is busier: high enough for the rush of the day, and no record of a single mad hour."""

AGREEMENT: Final = 0.75
"""So many of the compared pairs of hours must grow, or the line is drawn through noise."""

HORIZON_DAYS: Final = 3650
"""Later dates are not told: nothing grows evenly for ten years."""

SOON_DAYS: Final = 30
"""Time to buy, to build or to tell somebody."""

SAME_DAY_FROM_H: Final = 36
"""From so many hours on there are enough pairs of the same hour on two days."""

ALIVE_S: Final = 600
"""A broker that gave no sign for so long before the dataset's end no longer counts, and so does not its limit."""

STOPPED_TOGETHER_S: Final = 60
"""Of brokers that have all stopped, those that did within so long of each other ran side by side."""

BROKER_LIMITS: Final = {"max_connections": CONNECTIONS, "max_sessions": CONNECTIONS}
"""By the names in the configuration: what `broker_started` tells, and what it limits. A connection has a session."""

TOO_LITTLE_DATA: Final = "too_little_data"
NO_LIMIT: Final = "no_limit_known"
MET: Final = "met"
NOT_GROWING: Final = "not_growing"
BEYOND_HORIZON: Final = "beyond_horizon"
WILL_BE_MET: Final = "will_be_met"


def capacity(frames: Frames) -> DataFrame:
    """One row per metric and limit that is known for it, or one without a limit.

    `hours` is how many hours the trend is made of, `busy_now` how much a busy hour asks for at the end, `highest` the
    highest hour, `growth_per_day` and `met_at` come from the trend, and `agreement` is the share of pairs of hours that
    agree with its direction. `verdict` is `too_little_data`, `no_limit_known`, `met`, `not_growing`, `beyond_horizon`
    or `will_be_met`; only the last has a `met_at`.
    """
    trends = _trends(_points(_load(frames)))
    limits = _limits(frames)
    too_little = F.col("growth_per_h").isNull()
    hours_left = F.when(F.col("growth_per_h") > 0, (F.col("limit") - F.col("busy_now")) / F.col("growth_per_h"))
    verdict = (
        F.when(F.col("highest") >= F.col("limit"), MET)
        .when(too_little, TOO_LITTLE_DATA)
        .when(F.col("limit").isNull(), NO_LIMIT)
        .when((F.col("growth_per_h") <= 0) | (F.col("agreement") < AGREEMENT), NOT_GROWING)
        .when(hours_left > HORIZON_DAYS * 24, BEYOND_HORIZON)
        .otherwise(WILL_BE_MET)
    )
    met_at = F.timestamp_seconds((F.col("last_h") + F.greatest(hours_left, F.lit(0.0))) * 3600)
    return (
        trends.join(limits, "metric", "left")
        .withColumn("verdict", verdict)
        .select(
            "metric",
            "limit_name",
            "limit",
            "hours",
            "busy_now",
            "highest",
            F.when(F.col("limit") > 0, F.col("busy_now") / F.col("limit")).alias("share"),
            (F.col("growth_per_h") * 24).alias("growth_per_day"),
            "agreement",
            "verdict",
            F.when(F.col("verdict") == WILL_BE_MET, met_at).alias("met_at"),
            F.timestamp_seconds(F.col("last_h") * 3600).alias("last_hour"),
        )
    )


def findings(tables: Tables) -> list[Finding]:
    """A sentence for each limit, and one for all metrics that there is too little data for."""
    rows = (
        tables["capacity"]
        .select(
            "*",
            F.date_format("met_at", "yyyy-MM-dd HH:mm").alias("date"),
            ((F.col("met_at").cast("double") - F.col("last_hour").cast("double")) / 86_400).alias("days"),
        )
        .orderBy("metric", "limit_name")
        .collect()  # a row per metric and limit
    )
    found = []
    for row in rows:
        what, show = units.heading(row["metric"]), partial(units.shown, row["metric"])
        if row["verdict"] == MET:
            weight, sentence = PROBLEM, f"was met: {show(row['highest'])} in the highest hour"
        elif row["verdict"] == WILL_BE_MET:
            weight = PROBLEM if row["days"] <= SOON_DAYS else NOTABLE
            sentence = (
                f"will be met about {row['date']} UTC: a busy hour has {show(row['busy_now'])} now,"
                f" {show(row['growth_per_day'])} more each day, as {row['hours']:,} hours tell"
            )
        elif row["verdict"] in (NOT_GROWING, BEYOND_HORIZON):
            weight, sentence = INFORMATION, f"is not in sight: a busy hour has {show(row['busy_now'])}, and no trend"
            if row["verdict"] == BEYOND_HORIZON:
                sentence = f"is more than {HORIZON_DAYS // 365} years away: a busy hour has {show(row['busy_now'])}"
        elif row["verdict"] == TOO_LITTLE_DATA and row["limit"] is not None:
            weight = INFORMATION
            sentence = (
                f"cannot be projected yet: {row['hours']} full {'hour' if row['hours'] == 1 else 'hours'} of data, and"
                f" a trend needs {ENOUGH_HOURS}"
            )
            if row["highest"] is not None:
                sentence += f"; the highest hour had {show(row['highest'])}"
        else:
            continue
        limit = f"The limit of {show(row['limit'])} {what} ({row['limit_name']}) "
        found.append(Finding(weight, f"{limit}{sentence}.", "capacity"))
    short = [row for row in rows if row["verdict"] == TOO_LITTLE_DATA]
    if short and len(short) == len(rows) and not found:
        found.append(
            Finding(
                INFORMATION,
                f"There is too little data for a trend: it needs {ENOUGH_HOURS} hours of which"
                f" {units.seconds(COVERED_S)} at least were recorded, and there are"
                f" {max(row['hours'] for row in short)}.",
                "capacity",
            )
        )
    return found


def _load(frames: Frames) -> DataFrame:
    written = frames.written.get("load_by_hour")
    return load_by_hour(frames) if written is None else written


def _points(load: DataFrame) -> DataFrame:
    """One row per metric and hour: `h` in hours since 1970, `y` the value, null where it is not known well enough."""
    known = F.col("covered_s") >= COVERED_S
    values = F.explode(
        F.array(
            *(
                F.struct(F.lit(name).alias("metric"), F.when(known, F.col(name)).cast("double").alias("y"))
                for name in METRICS
            )
        )
    )
    hour = F.floor(F.unix_timestamp("hour") / 3600).alias("h")
    return load.select(hour, values.alias("at")).select("h", "at.metric", "at.y")


def _trends(points: DataFrame) -> DataFrame:
    """One row per metric; `growth_per_h`, `agreement` and `busy_now` are null where there are too few points."""
    spans = (
        points.groupBy("metric")
        .agg(
            F.count("y").alias("hours"),
            F.max("y").alias("highest"),
            F.min(F.when(F.col("y").isNotNull(), F.col("h"))).alias("first_h"),
            F.max(F.when(F.col("y").isNotNull(), F.col("h"))).alias("last_h"),
        )
        .withColumn("apart_h", _apart_h(F.col("last_h") - F.col("first_h")))
    )
    points = points.where("y is not null")
    earlier = points.join(F.broadcast(spans), "metric")
    later = points.select(
        F.col("metric").alias("later_metric"), F.col("h").alias("later_h"), F.col("y").alias("later_y")
    )
    slope = (F.col("later_y") - F.col("y")) / F.col("apart_h")
    slopes = (
        earlier.join(later, F.expr("later_metric = metric and later_h = h + apart_h"))
        .where(F.col("hours") >= ENOUGH_HOURS)
        .groupBy("metric")
        .agg(
            F.percentile(slope, F.lit(0.5)).alias("growth_per_h"),
            F.avg((slope > 0).cast("double")).alias("growing"),
            F.avg((slope < 0).cast("double")).alias("shrinking"),
        )
        .withColumn(
            "agreement",
            F.when(F.col("growth_per_h") > 0, F.col("growing"))
            .when(F.col("growth_per_h") < 0, F.col("shrinking"))
            .otherwise(1 - F.col("growing") - F.col("shrinking")),
        )
        .select("metric", "growth_per_h", "agreement")
    )
    above = F.col("y") - F.col("growth_per_h") * (F.col("h") - F.col("last_h"))
    busy = (
        earlier.join(slopes, "metric").groupBy("metric").agg(F.percentile_approx(above, BUSY, 10_000).alias("busy_now"))
    )
    return spans.join(slopes, "metric", "left").join(busy, "metric", "left")


def _apart_h(span_h: Column) -> Column:
    """How far apart the hours are that are compared: half of the span, in whole days where it is long enough."""
    half = F.floor(span_h / 2)
    days = F.greatest(F.floor(half / 24) * 24, F.lit(24))
    return F.when(span_h >= SAME_DAY_FROM_H, days).otherwise(F.greatest(half, F.lit(1)))


def _limits(frames: Frames) -> DataFrame:
    """One row per limit: the metric, the limit's name and value; those of the person who asks, then the brokers'."""
    asked = [_limit(metric, "--limit", F.lit(float(value))) for metric, value in frames.limits.items()]
    told = [_limit(metric, name, F.col(name)) for name, metric in BROKER_LIMITS.items()]
    return (
        _broker_limits(frames)
        .select(F.explode(F.array(*asked, *told)).alias("at"))
        .select("at.*")
        .where("limit is not null")
    )


def _limit(metric: str, name: str, value: Column) -> Column:
    return F.struct(F.lit(metric).alias("metric"), F.lit(name).alias("limit_name"), value.alias("limit"))


def _broker_limits(frames: Frames) -> DataFrame:
    """One row: each limit, summed over the brokers that run side by side at the end of the dataset."""
    crashed = frames.sessions.where("close_reason = 'broker_crash'").select("broker_id").distinct()
    ended = frames.events.where("event = 'broker_stopped'")
    stopped = ended.select("broker_id", F.lit(True).alias("stopped")).distinct()
    started = frames.events.where("event = 'broker_started'").select("broker_id", "numbers")
    runs = runs_of(frames)
    alive = (
        runs.join(crashed, "broker_id", "left_anti")
        .join(stopped, "broker_id", "left")
        .join(started, "broker_id", "left")
        .crossJoin(F.broadcast(runs.agg(F.max("last_s").alias("end_s"))))
        .where(F.col("last_s") >= F.col("end_s") - ALIVE_S)
    )
    running = F.col("stopped").isNull()
    together = F.col("last_s") >= F.col("end_s") - STOPPED_TOGETHER_S

    def summed(name: str) -> Column:
        value = F.try_element_at("numbers", F.lit(name)).cast("double")
        return F.coalesce(F.sum(F.when(running, value)), F.sum(F.when(~running & together, value))).alias(name)

    return alive.agg(*(summed(name) for name in BROKER_LIMITS))


TABLES: Final = (
    Table(
        "load_over_time",
        "Load over time",
        "One row per step of time, also of those in which nothing happened: messages and bytes a second on the average"
        " of the step, from clients (received) and to them (sent), and messages dropped for connected clients.",
        load_over_time,
        ("at",),
        Chart("lines", "at", ("messages_received_per_s", "messages_sent_per_s"), title="Messages a second"),
        "No client moved a message.",
    ),
    Table(
        "load_by_hour",
        "Load by hour",
        "One row per hour, also of those in which nothing happened. connections is the most that were open at the end"
        " of a minute; rates are averages over the part of the hour that was recorded (covered); queued bytes is the"
        " most that waited in all queues.",
        load_by_hour,
        ("-hour",),
        Chart("lines", "hour", (CONNECTIONS,), title="Most connections in each hour"),
    ),
    Table(
        "capacity",
        "When limits will be met",
        "One row per metric and limit: what a busy hour (one in ten is busier) has at the end, how much more it gets"
        " each day, and when the line meets the limit. agreement is the share of pairs of hours that go the same way;"
        " below 75 % there is no trend. Give limits of your own with --limit, such as --limit connections=10000.",
        capacity,
        ("metric", "limit_name"),
    ),
)
