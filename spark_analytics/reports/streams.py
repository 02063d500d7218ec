"""Streams: by the dataset, how far groups are behind; by their archive, how even partitions are, which keys are hot,
and what was not archived in time.

Invariant: a message counts for
the partition where it was, and its key is `ordering-key`, else its topic, as brokers choose partitions.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_analytics import units
from spark_analytics.frames import NOTABLE, Finding, Frames, empty
from spark_analytics.streams import SCHEMA
from spark_analytics.tables import Chart, Table, Tables

GROWTH_S: Final = 3_600.0
"""Over how long the growth of a lag is measured: the forecast is about the hour to come."""

BEHIND: Final = 1_000
"""A lag that grows is worth a sentence from here on."""

HOT_TIMES: Final = 2.0
HOT_MESSAGES: Final = 1_000
"""A partition is hot if it has so many times an even share of its stream, and so many messages."""

KEY_SHARE: Final = 0.01
"""A key with less of its stream is in no table: a stream has 100 others at most."""

ACCURACY: Final = 0.05
"""Of distinct keys, which are estimated."""

NAMED: Final = 5
"""Partitions and streams that have a sentence each; the tables have the rest."""


def stream_groups(frames: Frames) -> DataFrame:
    """One row per stream and group. `growth_per_s` is the slope of its lag over the last hour of its rows, and
    `caught_up_in_s` says when the lag is 0 at that slope; null if it does not fall."""
    of_group = Window.partitionBy("broker_id", "stream", "group")
    ends_s = F.col("interval_start").cast("double") + F.col("interval_s")
    rows = frames.stream_groups.withColumn("at_s", ends_s).withColumn("latest_s", F.max("at_s").over(of_group))
    recent = F.col("at_s") >= F.col("latest_s") - GROWTH_S
    latest = F.max_by
    grouped = rows.groupBy("broker_id", "stream", "group").agg(
        latest("mode", "at_s").alias("mode"),
        latest("members", "at_s").alias("members"),
        latest("lag", "at_s").alias("lag"),
        F.max("lag").alias("lag_max"),
        F.regr_slope(F.when(recent, F.col("lag").cast("double")), F.when(recent, F.col("at_s"))).alias("growth_per_s"),
        (F.sum("appended") / F.sum("interval_s")).alias("appended_per_s"),
        F.sum("redeliveries").alias("redeliveries"),
        F.sum("moves").alias("moves"),
        latest("dead_letters", "at_s").alias("dead_letters"),
    )
    falls = (F.col("growth_per_s") < 0) & (F.col("lag") > 0)
    return grouped.select(
        "stream",
        "group",
        "mode",
        "members",
        "lag",
        "lag_max",
        "growth_per_s",
        F.when(falls, F.col("lag") / -F.col("growth_per_s")).alias("caught_up_in_s"),
        "appended_per_s",
        "redeliveries",
        "moves",
        "dead_letters",
        "broker_id",
    )


def stream_partitions(frames: Frames) -> DataFrame:
    """One row per stream and partition. `missing` are offsets between its first and its last one that the archive does
    not have."""
    of_stream = Window.partitionBy("stream")
    counted = (
        _archived(frames)
        .groupBy("stream", "partition")
        .agg(
            F.count("*").alias("messages"),
            F.sum(F.length("payload")).alias("payload_bytes"),
            F.approx_count_distinct("chosen_by", ACCURACY).alias("keys"),
            (F.max("offset") - F.min("offset") + 1).alias("offsets"),
            F.min("published_at").alias("first_at"),
            F.max("published_at").alias("last_at"),
        )
    )
    share = F.col("messages") / F.sum("messages").over(of_stream)
    return counted.select(
        "stream",
        "partition",
        "messages",
        share.alias("share"),
        (share * (F.max("partition").over(of_stream) + 1)).alias("times_even"),
        "payload_bytes",
        "keys",
        (F.col("offsets") - F.col("messages")).alias("missing"),
        "first_at",
        "last_at",
    )


def stream_keys(frames: Frames) -> DataFrame:
    """One row per stream and key that has `KEY_SHARE` of its messages, or more."""
    archived = _archived(frames)
    totals = archived.groupBy("stream").agg(F.count("*").alias("total"))
    counted = (
        archived.where("chosen_by IS NOT NULL")
        .groupBy("stream", F.col("chosen_by").alias("key"))
        .agg(
            F.min("partition").alias("partition"),
            F.count("*").alias("messages"),
            F.sum(F.length("payload")).alias("payload_bytes"),
        )
    )
    share = F.col("messages") / F.col("total")
    return (
        counted.join(F.broadcast(totals), "stream")
        .where(share >= KEY_SHARE)
        .select("stream", "key", "partition", "messages", share.alias("share"), "payload_bytes")
    )


def _archived(frames: Frames) -> DataFrame:
    """The archive, with the key by which a partition was chosen; null where it was the turn of one."""
    archived = frames.archived
    if archived is None:
        spark = frames.events.sparkSession
        archived = empty(spark, spark.createDataFrame([], f"{SCHEMA}, stream STRING").schema)
    is_published_to_it = F.col("topic") == F.concat(F.lit("$stream/"), F.col("stream"))
    return archived.withColumn("chosen_by", F.coalesce("key", F.when(~is_published_to_it, F.col("topic"))))


def findings(tables: Tables) -> list[Finding]:
    """Hot partitions, with the key that makes them hot, and messages that were removed before they were archived."""
    return [
        *_of_groups(tables["stream_groups"]),
        *_of_partitions(tables),
        *_of_missing(tables["stream_partitions"]),
    ]


def _of_groups(table: DataFrame) -> list[Finding]:
    grows = table.where((F.col("lag") >= BEHIND) & (F.col("growth_per_s") > 0))
    dead = table.where("dead_letters > 0")
    return [
        *(
            Finding(
                NOTABLE,
                f"Group {row['group']} of stream {row['stream']} is {units.some(row['lag'], 'message')} behind, and it"
                f" grows by {row['growth_per_s']:,.1f} a second: in an hour it is"
                f" {row['lag'] + row['growth_per_s'] * GROWTH_S:,.0f}.",
                "stream_groups",
            )
            for row in grows.orderBy(F.desc("growth_per_s"), "stream", "group").limit(NAMED).collect()
        ),
        *(
            Finding(
                NOTABLE,
                f"Group {row['group']} of stream {row['stream']} has {units.some(row['dead_letters'], 'dead letter')}.",
                "stream_groups",
            )
            for row in dead.orderBy(F.desc("dead_letters"), "stream", "group").limit(NAMED).collect()
        ),
    ]


def _of_partitions(tables: Tables) -> list[Finding]:
    hot = (
        tables["stream_partitions"]
        .where((F.col("times_even") >= HOT_TIMES) & (F.col("messages") >= HOT_MESSAGES))
        .orderBy(F.desc("times_even"), "stream", "partition")
        .limit(NAMED)
    )
    latest = Window.partitionBy("stream", "partition").orderBy(F.desc("messages"), "key")
    keys = (
        tables["stream_keys"]
        .withColumn("place", F.row_number().over(latest))
        .where("place = 1")
        .select("stream", "partition", "key", F.col("share").alias("key_share"))
    )
    found = []
    for row in hot.join(keys, ["stream", "partition"], "left").orderBy(F.desc("times_even"), "stream").collect():
        of_key = "" if row["key"] is None else f"; the key {row['key']} alone has {units.share(row['key_share'])}"
        found.append(
            Finding(
                NOTABLE,
                f"Partition {row['partition']} of stream {row['stream']} has {units.share(row['share'])} of its"
                f" messages, {row['times_even']:.1f} times an even share{of_key}.",
                "stream_partitions",
            )
        )
    return found


def _of_missing(table: DataFrame) -> list[Finding]:
    missing = table.groupBy("stream").agg(F.sum("missing").alias("missing")).where("missing > 0")
    return [
        Finding(
            NOTABLE,
            f"{units.some(row['missing'], 'message')} of stream {row['stream']} "
            f"{'is' if row['missing'] == 1 else 'are'} not in its archive, though later ones are: retention or"
            " compaction removed them before they were archived, or files are gone.",
            "stream_partitions",
        )
        for row in missing.orderBy(F.desc("missing"), "stream").limit(NAMED).collect()
    ]


TABLES: Final = (
    Table(
        "stream_groups",
        "Groups of streams",
        "One row per stream and group: how many messages it has not finished, at last and at most, by how many a second"
        " that grew in its last hour, and in how many seconds it has all if it goes on so (null if the lag does not"
        " fall). moves are partitions that got another reader; redeliveries and dead letters are of shared groups.",
        stream_groups,
        ("-lag", "stream", "group", "broker_id"),
        Chart("bars", "group", ("lag",), title="Lag by group and stream", beside="stream"),
        "No stream of a broker had a group.",
    ),
    Table(
        "stream_partitions",
        "Partitions of streams",
        "One row per stream and partition of the archive: messages, their share of the stream, and how many times an"
        " even share that is (times even; 1: all partitions have the same). missing are offsets between the first and"
        " the last one that the archive does not have: removed before they were archived, or compacted. Keys are"
        " estimated to 5 %.",
        stream_partitions,
        ("-messages", "stream", "partition"),
        Chart("bars", "stream", ("messages",), title="Messages by stream and partition", beside="partition"),
        "No archive of streams was named (--archive), or it has no messages of that time.",
    ),
    Table(
        "stream_keys",
        "Hot keys of streams",
        "One row per key that has a hundredth of the messages of its stream, or more. The key is ordering-key, else the"
        " topic; messages with one key are in one partition, and one consumer of a group gets them.",
        stream_keys,
        ("-share", "stream", "key"),
        Chart("bars", "key", ("messages",), title="Messages by key and stream", beside="stream"),
        "No archive of streams was named (--archive), or no key has a hundredth of a stream.",
    ),
)
