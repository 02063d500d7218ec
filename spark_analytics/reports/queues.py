"""What is said of queues: their tables, and findings about consumers, ordering keys, storms and dead letters.

How the tables are computed is in `queue_tables`. Invariant: each number of a sentence is one of a table.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_analytics import units
from spark_analytics.frames import INFORMATION, NOTABLE, PROBLEM, Finding
from spark_analytics.reports.queue_tables import (
    ACKNOWLEDGED,
    AS_OTHERS,
    FAILS,
    FAILURES,
    dead_letters_by_cause,
    queue_consumers,
    queues,
    retry_storms,
    stuck_keys,
)
from spark_analytics.tables import Chart, Table, Tables

NAMED: Final = 5
"""Consumers, keys and storms that have a sentence each; the tables have the rest."""


def findings(tables: Tables) -> list[Finding]:
    """Consumers that fail, keys that are stuck, storms, dead letters, and how long an acknowledgement takes."""
    return [
        *_of_consumers(tables["queue_consumers"]),
        *_of_keys(tables["stuck_keys"]),
        *_of_storms(tables["retry_storms"]),
        *_of_dead_letters(tables["dead_letters_by_cause"]),
        *_of_times(tables["queues"]),
    ]


def _of_consumers(table: DataFrame) -> list[Finding]:
    """A consumer that fails alone has a sentence; consumers that fail alike have one with their queue."""
    found = []
    since = F.date_format("failing_from", "yyyy-MM-dd HH:mm").alias("since")
    failing = table.where(F.col("verdict") == FAILS).orderBy(F.desc("failed"), "queue", "consumer").select("*", since)
    for row in failing.limit(NAMED).collect():
        others = row["others_share"]
        beside = "it is the only consumer" if others is None else f"the others fail {units.share(others)}"
        causes = ", ".join(f"{name} {units.count(row[name])}" for name in FAILURES if row[name])
        when = ""
        if row["since"] is not None:
            when = f", in {units.some(row['failing_hours'], 'hour')} from {row['since']} UTC on"
        found.append(
            Finding(
                PROBLEM,
                f"{row['consumer']} fails {units.share(row['failing_share'])} of what queue {row['queue']} delivers to"
                f" it{when} ({causes} of {units.count(row['attempts'])} in all); {beside}.",
                "queue_consumers",
                row["consumer"],
            )
        )
    alike = (
        table.where(F.col("verdict") == AS_OTHERS)
        .groupBy("queue")
        .agg(F.count("*").alias("consumers"), F.sum("failed").alias("failed"), F.sum("attempts").alias("attempts"))
        .orderBy(F.desc("failed"), "queue")
        .limit(NAMED)
        .collect()
    )
    for row in alike:
        found.append(
            Finding(
                PROBLEM,
                f"Queue {row['queue']}: {units.some(row['consumers'], 'consumer')} fail alike,"
                f" {units.share(row['failed'] / row['attempts'])} of their deliveries: what they have in common fails,"
                " or the messages do.",
                "queue_consumers",
            )
        )
    return found


def _of_keys(table: DataFrame) -> list[Finding]:
    number = table.count()
    found = []
    for row in table.orderBy(F.desc("stuck_s"), "queue", "ordering_key").limit(NAMED).collect():
        ending = row["ending"]
        then = "it still is" if ending is None else "then it was acknowledged"
        if ending not in (None, ACKNOWLEDGED):
            then = f"then its message was given up ({ending})"
        found.append(
            Finding(
                PROBLEM if ending is None else NOTABLE,
                f"Key {row['ordering_key']} of queue {row['queue']} was stuck for {units.seconds(row['stuck_s'])}:"
                f" {units.some(row['attempts'], 'attempt')} ({row['failure']}), {units.count(row['behind'])} waited"
                f" behind; {then}.",
                "stuck_keys",
            )
        )
    if number > len(found):
        more = units.some(number - len(found), "more key was", "more keys were")
        found.append(Finding(NOTABLE, f"{more} stuck; the table has them all.", "stuck_keys"))
    return found


def _of_storms(table: DataFrame) -> list[Finding]:
    said = F.date_format("start", "yyyy-MM-dd HH:mm").alias("said")
    rows = table.select("*", said).orderBy(F.desc("retries"), "queue").limit(NAMED).collect()
    return [
        Finding(
            PROBLEM,
            f"Retry storm in queue {row['queue']} at {row['said']} UTC:"
            f" {units.some(row['retries'], 'retry', 'retries')} in {units.some(row['minutes'], 'minute')},"
            f" {units.share(row['retries_share'])} of all deliveries (mostly {row['cause']}).",
            "retry_storms",
        )
        for row in rows
    ]


def _of_dead_letters(table: DataFrame) -> list[Finding]:
    total = table.agg(F.sum("messages").alias("messages")).first()
    top = table.orderBy(F.desc("messages"), "queue", "cause").limit(NAMED).collect()
    if total is None or not top:
        return []
    told = ", ".join(f"{row['queue']} {row['cause']} {units.count(row['messages'])}" for row in top)
    given_up = units.some(total["messages"], "message was", "messages were")
    return [Finding(NOTABLE, f"{given_up} given up as dead letters: {told}.", "dead_letters_by_cause")]


def _of_times(table: DataFrame) -> list[Finding]:
    rows = table.where("p50_us is not null").orderBy(F.desc("acknowledged"), "queue").limit(NAMED).collect()
    return [
        Finding(
            INFORMATION,
            f"Consumers of queue {row['queue']} acknowledge half of its messages within"
            f" {units.seconds(row['p50_us'] / 1e6)}, 99 of 100 within {units.seconds(row['p99_us'] / 1e6)}.",
            "queues",
        )
        for row in rows
    ]


TABLES: Final = (
    Table(
        "queues",
        "Queues",
        "One row per queue: deliveries, those of them that were retries, and those that failed. Half of the"
        " acknowledgements took at most p50, 99 of 100 at most p99, off by 6.25 % at most.",
        queues,
        ("-attempts", "queue"),
        Chart("bars", "queue", ("acknowledged", "failed")),
        "No queue delivered anything.",
    ),
    Table(
        "queue_consumers",
        "Which consumer fails",
        "One row per queue and consumer, the most failures first. A consumer fails if, in an hour or over the whole"
        " time, it fails a fifth of its deliveries, 20 at least, and three times the share that the queue's others fail"
        " (others share).",
        queue_consumers,
        ("-failed", "queue", "consumer"),
        Chart("bars", "consumer", FAILURES, title="Failures by consumer and queue", beside="queue"),
        "No consumer got a message of a queue.",
        one_file=False,
    ),
    Table(
        "stuck_keys",
        "Which ordering key is stuck",
        "One row per queue and ordering key of which a message was delivered three times or more, over a minute or"
        " more, while others with the key waited behind it. Where ending is empty, it still holds them up.",
        stuck_keys,
        ("-stuck_s", "queue", "ordering_key"),
        empty="No key was stuck.",
        one_file=False,
    ),
    Table(
        "retry_storms",
        "Retry storms",
        "One row per storm: minutes in which most deliveries of a queue were retries, 60 a minute at least. cause is"
        " how most of the deliveries failed.",
        retry_storms,
        ("start", "queue"),
        empty="There was no retry storm.",
    ),
    Table(
        "dead_letters_by_cause",
        "Dead letters",
        "One row per queue and cause: messages that were given up, and after how many attempts. Topics are estimated to"
        " 5 %.",
        dead_letters_by_cause,
        ("-messages", "queue", "cause"),
        Chart("bars", "queue", ("messages",), title="Messages by queue and cause", beside="cause"),
        "No message was given up.",
    ),
)
