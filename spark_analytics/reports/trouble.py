"""Each device in trouble once, with all its reasons: what the reports about one kind of trouble say, put together.

Invariant: a client is in at most one row, and in it if and only if one of those reports names it.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_analytics import units
from spark_analytics.frames import NOTABLE, PROBLEM, Finding
from spark_analytics.reports.queue_tables import FAILS
from spark_analytics.tables import Table, Tables

RULES: Final = (
    "no_subscribers",
    "not_authorized",
    "filter_mismatch",
    "no_local",
    "qos0_offline",
    "schema_invalid",
    "hook_rejected",
    "duplicate",
    "takeover",
    "nacked",
)
"""Drop reasons that are rules at work, or the client's own refusal. Any other means that a client did not get what it
had asked for."""

NAMED: Final = 20
"""Devices that have a sentence each; the others are in the table."""


def devices_in_trouble(tables: Tables) -> DataFrame:
    """One row per client: `kinds` of trouble and `reasons` in words, the worst first, and when it began and ended.

    `weight` is the sum of those of its reasons; `lost` counts messages that it should have got.
    """
    parts = [
        _duplicates(tables["duplicate_client_ids"]),
        _silent(tables["silent_devices"]),
        _flapping(tables["flapping_clients"]),
        _lost(tables["drops_by_client"], tables["back_pressure_by_client"]),
        _failing(tables["queue_consumers"]),
        _slow(tables["slow_clients"]),
        _greedy(tables["greedy_clients"]),
        _rates(tables["rate_anomalies"]),
    ]
    ordered = [part.withColumn("place", F.lit(place)) for place, part in enumerate(parts)]
    reason = F.struct((-F.col("weight")).alias("weight"), "place", "kind", "why")
    return (
        reduce(DataFrame.unionByName, ordered)
        .groupBy("client_id")
        .agg(
            F.sort_array(F.collect_list(reason)).alias("told"),
            F.sum("weight").alias("weight"),
            F.max("weight").alias("worst"),
            F.sum("lost").alias("lost"),
            F.min("first_at").alias("first_at"),
            F.max("last_at").alias("last_at"),
        )
        .select(
            "client_id",
            F.col("told.kind").alias("kinds"),
            F.concat_ws("; ", "told.why").alias("reasons"),
            "lost",
            "worst",
            "weight",
            "first_at",
            "last_at",
        )
    )


def findings(tables: Tables) -> list[Finding]:
    """A sentence for each of the worst, and one for how many more there are."""
    table = tables["devices_in_trouble"]
    number = table.count()
    worst = table.orderBy(*TABLES[0].sorted_by()).limit(NAMED).collect()
    found = [
        Finding(row["worst"], f"{row['client_id']}: {row['reasons']}.", "devices_in_trouble", row["client_id"])
        for row in worst
    ]
    if number > len(worst):
        more = units.some(number - len(worst), "more device is", "more devices are")
        found.append(Finding(worst[-1]["worst"], f"{more} in trouble; the table has them all.", "devices_in_trouble"))
    return found


def _found(rows: DataFrame, kind: str, weight: int, why: Column, first_at: str, last_at: str) -> DataFrame:
    lost = F.col("lost") if "lost" in rows.columns else F.lit(0)
    return rows.select(
        "client_id",
        F.lit(kind).alias("kind"),
        F.lit(weight).alias("weight"),
        why.alias("why"),
        lost.cast("long").alias("lost"),
        F.col(first_at).alias("first_at"),
        F.col(last_at).alias("last_at"),
    )


def _duplicates(table: DataFrame) -> DataFrame:
    why = F.format_string("several devices use its client id and threw each other out %,d times", "takeovers")
    return _found(table, "duplicate", PROBLEM, why, "first_at", "last_at")


def _silent(table: DataFrame) -> DataFrame:
    """A device may fall silent several times: the longest silence is told."""
    since = F.date_format("silent_from", "yyyy-MM-dd HH:mm")
    connected = F.when(F.col("then") == "connected", F.lit(" though it was connected")).otherwise(
        F.concat(F.lit(", after "), F.translate("then", "_", " "))
    )
    ended = F.when(F.col("silent_until").isNull(), F.lit("has been silent since ")).otherwise(F.lit("fell silent at "))
    lasted = F.concat(F.lit(" UTC for "), _duration("silent_s"), F.lit(" (usual pause "), _duration("usual_pause_s"))
    why = F.concat(ended, since, lasted, F.lit(")"), F.coalesce(connected, F.lit("")))
    longest = (
        table.withColumn("why", why)
        .groupBy("client_id")
        .agg(
            F.max_by("why", "silent_s").alias("why"),
            F.min("silent_from").alias("first_at"),
            F.max("silent_until").alias("last_at"),
        )
    )
    return _found(longest, "silent", PROBLEM, F.col("why"), "first_at", "last_at")


def _flapping(table: DataFrame) -> DataFrame:
    why = F.concat(F.format_string("lost its connection %,d times: ", "flaps"), F.col("cause"))
    return _found(table, "flapping", PROBLEM, why, "first_at", "last_at")


def _lost(drops: DataFrame, room: DataFrame) -> DataFrame:
    """With how much room would have held them, where the queue or the send buffer was full."""
    each = F.struct((-F.col("messages")).alias("n"), F.format_string("%s %,d", "reason", "messages").alias("text"))
    lost = (
        drops.where(~F.col("reason").isin(*RULES) & ~F.col("client_id").startswith("$queue/"))
        .groupBy("client_id")
        .agg(
            F.sum("messages").alias("lost"),
            F.sort_array(F.collect_list(each)).alias("each"),
            F.min("first_at").alias("first_at"),
            F.max("last_at").alias("last_at"),
        )
        .join(room.select("client_id", *_ROOM), "client_id", "left")
    )
    queue = F.when(
        F.col("dropped_queue_full") > 0,
        F.format_string(", a queue of %,d messages would have held them", "needed_queue_messages"),
    )
    outbox = F.when(
        (F.col("dropped_outbox_full") > 0) & F.col("needed_outbox_bytes").isNotNull(),
        F.format_string(", a send buffer of %,.1f MB would have held them", F.col("needed_outbox_bytes") / 1e6),
    )
    why = F.concat(
        F.format_string("lost %,d message%s (", F.col("lost"), F.when(F.col("lost") == 1, "").otherwise("s")),
        F.concat_ws(", ", "each.text"),
        F.lit(")"),
        F.coalesce(queue, outbox, F.lit("")),
    )
    return _found(lost, "drops", PROBLEM, why, "first_at", "last_at")


_ROOM: Final = ("dropped_queue_full", "dropped_outbox_full", "needed_queue_messages", "needed_outbox_bytes")


def _failing(table: DataFrame) -> DataFrame:
    """A consumer of several queues is told of with the one of which it fails most."""
    why = F.format_string(
        "fails %.1f %% of what queue %s delivers to it (%,d deliveries)",
        F.col("failing_share") * 100,
        "queue",
        "failed",
    )
    worst = (
        table.where(F.col("verdict") == FAILS)
        .groupBy(F.col("consumer").alias("client_id"))
        .agg(
            F.max_by(why, "failed").alias("why"), F.min("first_at").alias("first_at"), F.max("last_at").alias("last_at")
        )
    )
    return _found(worst, "consumer", PROBLEM, F.col("why"), "first_at", "last_at")


def _slow(table: DataFrame) -> DataFrame:
    blocked = F.when(
        F.col("backpressure_s") > 0,
        F.concat(F.lit("its socket took no bytes for "), _duration("backpressure_s")),
    )
    waited = F.when(F.col("worst_queue") >= 1, F.format_string("%,.0f messages waited for it", "worst_queue"))
    why = F.concat(F.lit("reads too slowly ("), F.concat_ws(", ", blocked, waited), F.lit(")"))
    return _found(table, "slow", PROBLEM, why, "first_at", "last_at")


def _greedy(table: DataFrame) -> DataFrame:
    why = F.format_string(
        "publishes %,.0f times what others do, %.1f %% of all messages", "times", F.col("share") * 100
    )
    return _found(table.withColumn("last_at", F.col("busiest_at")), "greedy", NOTABLE, why, "busiest_at", "last_at")


def _rates(table: DataFrame) -> DataFrame:
    more = F.col("than_usual") == "more"
    summed = table.groupBy("client_id").agg(
        F.count("*").alias("hours"),
        F.max_by("than_usual", F.abs("score")).alias("than_usual"),
        F.max(F.when(more, F.col("times"))).alias("most"),
        F.min(F.when(~more, F.col("times"))).alias("least"),
        F.min("hour").alias("first_at"),
        F.max("hour").alias("last_at"),
    )
    hours = F.when(F.col("hours") == 1, F.lit("in 1 hour")).otherwise(F.format_string("in %,d hours", "hours"))
    much = F.format_string("published up to %,.1f times as much as usual ", "most")
    little = F.format_string("published only %.0f %% of the usual ", F.col("least") * 100)
    why = F.concat(F.when(F.col("than_usual") == "more", much).otherwise(little), hours)
    return _found(summed, "rate", NOTABLE, why, "first_at", "last_at")


def _duration(name: str) -> Column:
    """As `units.seconds`, by Spark."""
    seconds = F.col(name)
    return (
        F.when(seconds >= 86400, F.format_string("%,.1f d", seconds / 86400))
        .when(seconds >= 3600, F.format_string("%.1f h", seconds / 3600))
        .when(seconds >= 60, F.format_string("%.1f min", seconds / 60))
        .otherwise(F.format_string("%.1f s", seconds.cast("double")))
    )


TABLES: Final = (
    Table(
        "devices_in_trouble",
        "Devices in trouble",
        "One row per client, the worst first, with everything that is wrong with it. kinds are also the names of the"
        " tables below; lost are messages that it should have got.",
        lambda frames: devices_in_trouble(frames.written),
        ("-weight", "-lost", "client_id"),
        empty="No device is in trouble.",
        one_file=False,
    ),
)
