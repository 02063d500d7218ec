"""Minutes in which messages took long, and whose fault it was: the broker's or its clients'.

A slow broker is slow for everybody, so half of all messages show it: the medians of `route` and `write`, which nothing
but the broker takes part in while no socket is blocked. A slow client delays its own messages alone, in its queue or
until it acknowledges, so the slowest hundredth shows it.

Invariant: a minute holds the intervals that began in it, and is compared with the median of all minutes.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from spark_analytics import units
from spark_analytics.frames import INFORMATION, NOTABLE, PROBLEM, Finding, Frames
from spark_analytics.reports.histograms import merged, quantiles
from spark_analytics.reports.steps import minute_of
from spark_analytics.tables import Table, Tables

SLOWER: Final = 5.0
"""Times the median minute: load that doubles or a collection of garbage make a minute slower, not so much."""

BROKER_US: Final = 2_000
"""Less than two milliseconds in the broker nobody notices, however fast it is otherwise."""

CLIENT_US: Final = 100_000
"""What a message waits for a client at least: an answer over a mobile network takes less."""

PAUSED_S: Final = 1.0
"""Of back-pressure in a minute, from which on the writes to a socket say more about clients than about the broker."""

FEWEST: Final = 5
"""Messages that were measured in a minute before their median says anything."""

NAMED: Final = 3
"""Minutes that a sentence names; the table has the rest."""

BROKER: Final = "broker"
CLIENTS: Final = "clients"
BOTH: Final = "broker and clients"

_STAGES: Final = ("route", "queue", "write", "total", "acknowledge")


def slow_minutes(frames: Frames) -> DataFrame:
    """One row per slow minute: who was slow, how many times slower the broker was than usual, and what else happened.

    `slowest_client` is the one for which a message, or its socket, waited longest; `slow_clients` how many waited long.
    """
    # Kept, for the usual times and the waits are made of it too.
    minutes = _judged(_minutes(frames).persist(StorageLevel.MEMORY_AND_DISK)).where("who is not null")
    return (
        minutes.join(_waits(frames, minutes), "minute", "left")
        .join(_events(frames.events), "minute", "left")
        .join(_dropped(frames.drops), "minute", "left")
        .select(
            "minute",
            "who",
            "times",
            "messages",
            "p50_us",
            "p99_us",
            "route_p50_us",
            "write_p50_us",
            "queue_p99_us",
            "acknowledge_p99_us",
            "slowest_client",
            F.coalesce("slow_clients", F.lit(0)).alias("slow_clients"),
            "paused_s",
            F.coalesce("dropped", F.lit(0)).alias("dropped"),
            F.coalesce("events", F.create_map().cast("map<string,bigint>")).alias("events"),
        )
    )


def _minutes(frames: Frames) -> DataFrame:
    """One row per minute in which messages were measured, with the quantiles of each stage."""
    by = ("minute", "stage")
    stages = quantiles(merged(frames.latency.withColumn("minute", minute_of("interval_start")), by), by)

    def of(stage: str, name: str) -> Column:
        return F.max(F.when(F.col("stage") == stage, F.col(name)))

    paused = (
        frames.activity.where("backpressure_s > 0")
        .groupBy(minute_of("interval_start").alias("minute"))
        .agg(F.sum("backpressure_s").alias("paused_s"))
    )
    return (
        stages.groupBy("minute")
        .agg(
            of("route", "messages").alias("messages"),
            of("total", "p50_us").alias("p50_us"),
            of("total", "p99_us").alias("p99_us"),
            *(of(stage, f"{q}_us").alias(f"{stage}_{q}_us") for stage in _STAGES for q in ("p50", "p99")),
        )
        .join(paused, "minute", "left")
        .withColumn("paused_s", F.coalesce("paused_s", F.lit(0.0)))
    )


def _judged(minutes: DataFrame) -> DataFrame:
    """With `times` and `who`, which is null where nobody was slow."""
    usual = minutes.agg(
        *(
            F.percentile_approx(name, 0.5, 10_000).alias(f"usual_{name}")
            for name in ("route_p50_us", "write_p50_us", "acknowledge_p99_us")
        )
    )
    route = F.col("route_p50_us") / F.greatest("usual_route_p50_us", F.lit(1))
    write = F.col("write_p50_us") / F.greatest("usual_write_p50_us", F.lit(1))
    unblocked = F.col("paused_s") < PAUSED_S
    in_broker_us = F.coalesce("route_p50_us", F.lit(0)) + F.coalesce("write_p50_us", F.lit(0))
    times = F.greatest(route, F.when(unblocked, write))
    broker = (times >= SLOWER) & (in_broker_us >= BROKER_US) & (F.col("messages") >= FEWEST)
    answers = F.col("acknowledge_p99_us")
    clients = (
        (F.col("queue_p99_us") >= CLIENT_US)
        | ((answers >= CLIENT_US) & (answers >= SLOWER * F.col("usual_acknowledge_p99_us")))
        | ~unblocked
    )
    broker, clients = F.coalesce(broker, F.lit(False)), F.coalesce(clients, F.lit(False))
    return (
        minutes.crossJoin(F.broadcast(usual))
        .withColumn("times", times)
        .withColumn("who", F.when(broker & clients, BOTH).when(broker, BROKER).when(clients, CLIENTS))
    )


def _waits(frames: Frames, minutes: DataFrame) -> DataFrame:
    """Of slow minutes, the client for which something waited longest, and how many waited for."""
    blocked = frames.activity.where("backpressure_s > 0").select(
        minute_of("interval_start").alias("minute"),
        "client_id",
        (F.col("backpressure_s") * 1e6).cast("long").alias("waited_us"),
    )
    messages = frames.samples.where("receiver is not null").select(
        minute_of("at").alias("minute"),
        F.col("receiver").alias("client_id"),
        (F.coalesce("queued_us", F.lit(0)) + F.coalesce("acknowledged_us", F.lit(0))).alias("waited_us"),
    )
    return (
        blocked.unionByName(messages)
        .join(F.broadcast(minutes.select("minute")), "minute", "left_semi")
        .where(F.col("waited_us") >= CLIENT_US)
        .groupBy("minute", "client_id")
        .agg(F.max("waited_us").alias("waited_us"))
        .groupBy("minute")
        .agg(F.max_by("client_id", "waited_us").alias("slowest_client"), F.count("*").alias("slow_clients"))
    )


def _events(events: DataFrame) -> DataFrame:
    """Events by kind; there are few kinds."""
    return (
        events.groupBy(minute_of("at").alias("minute"), "event")
        .agg(F.count("*").alias("n"))
        .groupBy("minute")
        .agg(F.map_from_entries(F.sort_array(F.collect_list(F.struct("event", "n")))).alias("events"))
    )


def _dropped(drops: DataFrame) -> DataFrame:
    return drops.groupBy(minute_of("interval_start").alias("minute")).agg(F.sum("messages").alias("dropped"))


def findings(tables: Tables) -> list[Finding]:
    """When the broker was slow, and when it was its clients."""
    table = tables["slow_minutes"].select("*", F.date_format("minute", "yyyy-MM-dd HH:mm").alias("text"))
    found = []
    of_broker = table.where(F.col("who").isin(BROKER, BOTH))
    worst = of_broker.orderBy(F.desc("times"), "minute").limit(NAMED).collect()
    if worst:
        number = of_broker.count()
        each = units.listed([f"{row['text']} UTC (×{row['times']:,.0f})" for row in worst], number)
        found.append(
            Finding(
                PROBLEM,
                f"The broker itself was slow in {units.some(number, 'minute')}: {each}. It was slow for everybody then;"
                " look at its disk, its processor and what else ran on its machine.",
                "slow_minutes",
            )
        )
    of_clients = table.where(F.col("who") == CLIENTS)
    number = of_clients.count()
    if number:
        slowest = of_clients.groupBy("slowest_client").agg(F.count("*").alias("n")).where("slowest_client is not null")
        most = slowest.orderBy(F.desc("n"), "slowest_client").first()
        who = f", most often for {most['slowest_client']} ({units.count(most['n'])})" if most else ""
        said = (
            f"In {units.some(number, 'minute')} messages waited for slow clients while the broker was as fast as usual"
        )
        found.append(Finding(NOTABLE if not worst else INFORMATION, f"{said}{who}.", "slow_minutes"))
    return found


TABLES: Final = (
    Table(
        "slow_minutes",
        "Slow minutes: the broker or its clients",
        "One row per minute that was slow, those of the broker first. who: the broker, if half of all messages took"
        f" {SLOWER:.0f} times as long as usual in it (times); clients, if messages waited in their queues, for their"
        " acknowledgements or before their sockets, the longest for slowest client. A minute that is not here was"
        " neither.",
        slow_minutes,
        ("who", "-times", "minute"),
        page_rows=1_440,  # a day of minutes: somebody looks for one of them
        empty="No minute was slow: neither the broker nor a client kept messages waiting.",
    ),
)
