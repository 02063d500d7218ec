"""What is published where: by prefix, by topic, to how many, of what size; and topics that nobody reads or that grow.

Invariant: the rows are first merged per topic; what is exploded into prefixes is as small as the number of topics.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_analytics import units
from spark_analytics.frames import INFORMATION, NOTABLE, Finding, Frames
from spark_analytics.reports.levels import LEVELS, parent, prefixes, stands_for_many
from spark_analytics.tables import Chart, Table, Tables

EXPLODING_SIBLINGS: Final = 100
"""Fewer topics beside each other are a list that somebody made, whatever they are."""

FEW_MESSAGES: Final = 10
"""A topic that carries more than so many is used, not thrown away."""

SHORT_LIVED: Final = 0.1
"""Of the time in which their parent is used: topics of devices live as long as it does, topics of requests do not."""

HOT_SHARE: Final = 0.5
"""One topic with this part of all messages decides what the broker does with its time."""

_QOS: Final = ("messages_qos0", "messages_qos1", "messages_qos2")


def topics(frames: Frames) -> DataFrame:
    """One row per topic, or filter that stands for `topics` of them: what was published to it, and to how many.

    `peak_per_s` is the rate in its busiest interval on one broker, `fan_out` deliveries per message.
    """
    messages = F.expr("messages_qos0 + messages_qos1 + messages_qos2")
    return (
        frames.traffic.groupBy("topic")
        .agg(
            F.max("topics").alias("topics"),
            F.sum(messages).alias("messages"),
            *(F.sum(name).alias(name) for name in _QOS),
            F.max(F.when(F.col("interval_s") > 0, messages / F.col("interval_s"))).alias("peak_per_s"),
            *_sums(),
            F.min("interval_start").alias("first_at"),
            F.max("interval_start").alias("last_at"),
        )
        .select(
            "topic",
            "topics",
            "messages",
            *_QOS,
            "peak_per_s",
            *_per_message(),
            "first_at",
            "last_at",
        )
    )


def traffic_by_prefix(frames: Frames, levels: int = LEVELS) -> DataFrame:
    """One row per prefix and level, (0, `#`) for everything: the sum of all topics at and below it.

    `share` is of all messages. A row `plant/#` of the broker counts under `plant`, `#` under level 0 alone.
    """
    rolled = _by_prefix(_topics(frames), levels)
    everything = rolled.where("level = 0").select(F.col("messages").alias("all_messages"))
    share = F.when(F.col("all_messages") > 0, F.col("messages") / F.col("all_messages"))
    return rolled.crossJoin(F.broadcast(everything)).select(
        "level",
        "prefix",
        "topics",
        "messages",
        share.alias("share"),
        *_QOS,
        *_per_message(),
        "first_at",
        "last_at",
    )


def dead_topics(frames: Frames) -> DataFrame:
    """One row per topic to which messages were published and of which none was for anybody.

    A retained message may still be read by those who subscribe later; that is no delivery of the message. Dead letters
    are kept by their queue, whether or not somebody reads their topic.
    """
    return (
        _topics(frames)
        .where("messages > 0 and deliveries = 0 and topic not like '$dlq/%'")
        .select("topic", "topics", "messages", "payload_bytes", "first_at", "last_at")
    )


def fan_out(frames: Frames) -> DataFrame:
    """How many receivers messages have: one row per power of two that is not empty.

    A row holds the intervals of topics with more than half of `up_to_receivers` and at most so many per message, on
    the average of the interval; 0 holds what was for nobody.
    """
    receivers = F.when(F.col("messages") > 0, F.col("deliveries") / F.col("messages"))
    return (
        frames.traffic.withColumn("messages", F.expr("messages_qos0 + messages_qos1 + messages_qos2"))
        .where("messages > 0")
        .groupBy(_power_of_two(receivers).alias("up_to_receivers"))
        .agg(F.sum("messages").alias("messages"), F.sum("deliveries").alias("deliveries"))
        .select("up_to_receivers", "messages", "deliveries")
    )


def payload_sizes(frames: Frames) -> DataFrame:
    """How large payloads are: one row per power of two that is not empty.

    A row holds the intervals of topics whose average payload is more than half of `up_to_bytes` and at most that;
    `payload_bytes_max` is the largest payload in them.
    """
    return (
        frames.traffic.withColumn("messages", F.expr("messages_qos0 + messages_qos1 + messages_qos2"))
        .where("messages > 0")
        .groupBy(_power_of_two(F.col("payload_bytes") / F.col("messages")).alias("up_to_bytes"))
        .agg(
            F.sum("messages").alias("messages"),
            F.sum("payload_bytes").alias("payload_bytes"),
            F.max("payload_bytes_max").alias("payload_bytes_max"),
        )
        .select("up_to_bytes", "messages", "payload_bytes", "payload_bytes_max")
    )


def topic_explosion(frames: Frames, levels: int = LEVELS) -> DataFrame:
    """One row per prefix under which each child is one entity: a request, a time, a file.

    Such a prefix has many children, half of which carry few messages and live for a small part of its own life; or so
    many that the broker stopped to name them (`unnamed`, which a row such as `plant/#` stands for).
    """
    by_topic = _topics(frames)
    named = (
        _by_prefix(by_topic, levels)
        .where("level > 0")
        .select(
            (F.col("level") - 1).alias("level"),
            parent(F.col("level"), F.col("prefix")).alias("prefix"),
            F.col("prefix").alias("example"),
            F.col("messages").alias("child_messages"),
            (F.col("last_at").cast("double") - F.col("first_at").cast("double")).alias("life_s"),
            "messages",
            F.lit(0).cast("long").alias("unnamed"),
            "first_at",
            "last_at",
        )
    )
    last = F.element_at(prefixes(F.col("topic"), levels), -1)
    unnamed = (
        by_topic.where(stands_for_many(F.col("topic")) & (F.col("topics") > 1))
        .withColumn("last", last)
        .select(
            "last.level",
            "last.prefix",
            "messages",
            F.col("topics").alias("unnamed"),
            "first_at",
            "last_at",
        )
    )
    few = (F.col("median_messages") <= FEW_MESSAGES) & (F.col("median_life_s") <= SHORT_LIVED * F.col("span_s"))
    return (
        named.unionByName(unnamed, allowMissingColumns=True)
        .groupBy("level", "prefix")
        .agg(
            F.count("child_messages").alias("named"),
            F.sum("unnamed").alias("unnamed"),
            F.sum("messages").alias("messages"),
            F.percentile_approx("child_messages", 0.5).alias("median_messages"),
            F.percentile_approx("life_s", 0.5).alias("median_life_s"),
            F.min("example").alias("example"),
            F.min("first_at").alias("first_at"),
            F.max("last_at").alias("last_at"),
        )
        .withColumn("span_s", F.col("last_at").cast("double") - F.col("first_at").cast("double"))
        .withColumn("siblings", F.col("named") + F.col("unnamed"))
        .where((F.col("unnamed") >= EXPLODING_SIBLINGS) | ((F.col("named") >= EXPLODING_SIBLINGS) & few))
        .select(
            "level",
            "prefix",
            "siblings",
            "named",
            "unnamed",
            "messages",
            (F.col("messages") / F.col("siblings")).alias("messages_per_sibling"),
            "median_life_s",
            "example",
            "first_at",
            "last_at",
        )
    )


def findings(tables: Tables) -> list[Finding]:
    """The hottest topic, topics for nobody, prefixes that explode."""
    return [*_hot(tables), *_dead(tables["dead_topics"]), *_exploding(tables["topic_explosion"])]


def _hot(tables: Tables) -> list[Finding]:
    everything = tables["traffic_by_prefix"].where("level = 0").first()
    hottest = tables["topics"].where("topics = 1").orderBy(F.desc("messages"), "topic").first()
    if everything is None or hottest is None or not everything["messages"]:
        return []
    share = hottest["messages"] / everything["messages"]
    return [
        Finding(
            NOTABLE if share >= HOT_SHARE and everything["topics"] > 1 else INFORMATION,
            f"The topic with the most messages is {hottest['topic']}: {units.count(hottest['messages'])} of"
            f" {units.count(everything['messages'])} ({units.share(share)}), each for {hottest['fan_out']:,.1f}"
            f" receivers, {units.shown('peak_per_s', hottest['peak_per_s'] or 0)} at most.",
            "topics",
        )
    ]


def _dead(table: DataFrame) -> list[Finding]:
    total = table.agg(F.sum("topics").alias("topics"), F.sum("messages").alias("messages")).first()
    worst = table.orderBy(F.desc("messages"), "topic").first()
    if total is None or worst is None:
        return []
    return [
        Finding(
            NOTABLE,
            f"{units.some(total['topics'], 'topic was', 'topics were')} published to and read by nobody,"
            f" {units.some(total['messages'], 'message')} altogether; the most, {units.count(worst['messages'])}, went"
            f" to {worst['topic']}.",
            "dead_topics",
        )
    ]


def _exploding(table: DataFrame) -> list[Finding]:
    prefixes_found = table.count()
    worst = table.orderBy(F.desc("siblings"), "prefix").first()
    if worst is None:
        return []
    where = "at the top of the hierarchy" if worst["level"] == 0 else f"directly below {worst['prefix']}"
    others = f"; {prefixes_found - 1:,} more such prefixes are in the table" if prefixes_found > 1 else ""
    example = f", such as {worst['example']}" if worst["example"] is not None else ""
    return [
        Finding(
            NOTABLE,
            f"Topics explode: {units.count(worst['siblings'])} {where}{example}, share"
            f" {units.some(worst['messages'], 'message')}{others}. What varies may belong into the payload.",
            "topic_explosion",
        )
    ]


def _topics(frames: Frames) -> DataFrame:
    """The table `topics`, from its files where it was written before."""
    written = frames.written.get("topics")
    return topics(frames) if written is None else written


def _by_prefix(by_topic: DataFrame, levels: int) -> DataFrame:
    return (
        by_topic.withColumn("at", F.explode(prefixes(F.col("topic"), levels)))
        .groupBy("at.level", "at.prefix")
        .agg(
            F.sum("topics").alias("topics"),
            F.sum("messages").alias("messages"),
            *(F.sum(name).alias(name) for name in _QOS),
            *_sums(),
            F.min("first_at").alias("first_at"),
            F.max("last_at").alias("last_at"),
        )
    )


def _sums() -> list[Column]:
    return [
        F.sum("payload_bytes").alias("payload_bytes"),
        F.max("payload_bytes_max").alias("payload_bytes_max"),
        F.sum("deliveries").alias("deliveries"),
    ]


def _per_message() -> list[Column]:
    some = F.col("messages") > 0
    return [
        F.col("payload_bytes"),
        F.when(some, F.col("payload_bytes") / F.col("messages")).alias("mean_payload_bytes"),
        F.col("payload_bytes_max"),
        F.col("deliveries"),
        F.when(some, F.col("deliveries") / F.col("messages")).alias("fan_out"),
    ]


def _power_of_two(value: Column) -> Column:
    """The next power of two that is not below the value; 1 for what is between 0 and 1, 0 for 0."""
    # By digits: a logarithm of doubles puts some powers of two into the next bucket.
    digits = F.length(F.bin(F.ceil(value) - 1))
    return F.when(value <= 0, F.lit(0)).when(value <= 1, F.lit(1)).otherwise(F.pow(F.lit(2.0), digits)).cast("long")


TABLES: Final = (
    Table(
        "topics",
        "Topics",
        "One row per topic, the hottest first; a row such as plant/# stands for so many topics below plant. peak is the"
        " rate of the busiest interval on one broker, fan out how many receivers a message had on the average.",
        topics,
        ("-messages", "topic"),
        Chart("bars", "topic", _QOS, title="The hottest topics"),
        empty="Nothing was published.",
        one_file=False,
    ),
    Table(
        "traffic_by_prefix",
        "Traffic by level of the hierarchy",
        "One row per prefix: everything at and below it, on each level down to the "
        f"{LEVELS}th. Level 0 is everything, and share a part of it.",
        traffic_by_prefix,
        ("level", "-messages", "prefix"),
        Chart("bars", "prefix", _QOS, title="Messages by prefix, the upper levels first"),
        empty="Nothing was published.",
        one_file=False,
    ),
    Table(
        "fan_out",
        "How many receivers messages have",
        "One row per power of two: messages with at most so many receivers, and more than half of it. 0: nobody.",
        fan_out,
        ("up_to_receivers",),
        Chart("columns", "up_to_receivers", ("messages",)),
        empty="Nothing was published.",
    ),
    Table(
        "payload_sizes",
        "How large payloads are",
        "One row per power of two: messages whose payload, on the average of topic and interval, is at most so large"
        " and more than half of it. payload bytes max is the largest single one among them.",
        payload_sizes,
        ("up_to_bytes",),
        Chart("columns", "up_to_bytes", ("messages",)),
        empty="Nothing was published.",
    ),
    Table(
        "dead_topics",
        "Topics that nobody reads",
        "One row per topic that was published to while no session was subscribed. Retained messages may still be read"
        " later, when somebody subscribes.",
        dead_topics,
        ("-messages", "topic"),
        Chart("bars", "topic", ("messages",)),
        empty="Every topic had a receiver.",
        one_file=False,
    ),
    Table(
        "topic_explosion",
        "Topics that explode",
        f"One row per prefix with {EXPLODING_SIBLINGS} children or more that carry few messages each and live shortly,"
        " or with more topics than the broker tells apart (unnamed): each child is one request, time or file. The"
        " broker keeps something for each topic; such names may belong into the payload.",
        topic_explosion,
        ("-siblings", "prefix"),
        Chart("bars", "prefix", ("named", "unnamed")),
        empty="No prefix has children that come and go.",
    ),
)
