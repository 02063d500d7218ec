"""The broker itself: its runs, how each ended, what that cut off; and connections that it refused.

Invariant: each run of a broker, of which the dataset has any sign, is one row.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from spark_analytics import units
from spark_analytics.frames import INFORMATION, NOTABLE, PROBLEM, Finding, Frames
from spark_analytics.reports.load import runs_of
from spark_analytics.tables import Chart, Table, Tables

STOPPED: Final = "stopped"
CRASHED: Final = "crashed"
RUNNING: Final = "running"
NO_SIGN: Final = "no_sign"

UNCOUNTED: Final = "What was moved in the last interval (10 s) before a crash is not counted"

NAMED: Final = 3
"""Runs, or sources of refused connections, that a sentence names; the table has the rest."""

GUESSES: Final = 20
"""Refused attempts from one source that are no slip of somebody's finger."""


def broker_runs(frames: Frames) -> DataFrame:
    """One row per run: from when to when, how it ended, what this cut off, and the pause until the next run.

    A run `crashed` if the next broker recovered connections that it had left open, and is `running` when the dataset
    ends unless another began after its last sign: then it gave `no_sign`, and had perhaps nothing to tell. `down_s` is
    null where another broker ran meanwhile.
    """
    said = (
        frames.events.where("event in ('broker_started', 'broker_stopped')")
        .groupBy("broker_id")
        .agg(
            F.min(F.when(F.col("event") == "broker_started", F.col("at"))).alias("said_started"),
            F.max(F.when(F.col("event") == "broker_stopped", F.col("at"))).alias("said_stopped"),
        )
    )
    cut = F.col("close_reason").isin("broker_crash", "server_shutdown")
    ended = frames.sessions.groupBy("broker_id").agg(
        F.count_if(cut).alias("cut_off"),
        F.countDistinct(F.when(cut, F.col("client_id"))).alias("clients"),
        F.count_if(F.col("close_reason") == "broker_crash").alias("recovered"),
    )
    moved = frames.activity.groupBy("broker_id").agg(
        F.sum("messages_received").alias("messages_received"), F.sum("messages_sent").alias("messages_sent")
    )
    later = Window.orderBy("started_at", "broker_id").rowsBetween(1, Window.unboundedFollowing)
    earlier = Window.orderBy("started_at", "broker_id").rowsBetween(Window.unboundedPreceding, 0)
    last_at = F.coalesce("said_stopped", F.timestamp_seconds("last_s"))
    runs = (
        runs_of(frames)
        .join(said, "broker_id", "left")
        .join(ended, "broker_id", "left")
        .join(moved, "broker_id", "left")
        .withColumn("started_at", F.coalesce("said_started", F.timestamp_seconds("first_s")))
        .withColumn("ended_at", last_at)
        .withColumn("next_at", F.min("started_at").over(later))
        .withColumn("last_of_all", F.max("ended_at").over(earlier))
    )
    followed = F.col("next_at") >= F.col("ended_at")
    ending = (
        F.when(F.col("recovered") > 0, CRASHED)
        .when(F.col("said_stopped").isNotNull(), STOPPED)
        .when(followed, NO_SIGN)
        .otherwise(RUNNING)
    )
    alone = followed & (F.col("last_of_all") <= F.col("ended_at"))
    return runs.withColumn("ending", ending).select(
        "started_at",
        "ended_at",
        (_seconds("ended_at") - _seconds("started_at")).alias("ran_s"),
        "ending",
        F.coalesce("cut_off", F.lit(0)).alias("cut_off"),
        F.coalesce("clients", F.lit(0)).alias("clients"),
        F.when(alone, _seconds("next_at") - _seconds("ended_at")).alias("down_s"),
        F.coalesce("messages_received", F.lit(0)).alias("messages_received"),
        F.coalesce("messages_sent", F.lit(0)).alias("messages_sent"),
        "broker_id",
    )


def refused_connections(events: DataFrame) -> DataFrame:
    """One row per user, client id, address and reason: how often it was refused, and when.

    `user` is who the connection claimed to be. `an_hour` is the most often within one hour of the clock.
    """
    by = ("user", "client_id", "address", "reason", "why")
    return (
        events.where("event = 'refused'")
        .select(
            F.col("username").alias("user"),
            "client_id",
            F.regexp_replace("peer", r":\d+$", "").alias("address"),
            "reason",
            F.col("detail").alias("why"),
            "at",
        )
        .groupBy(*by, F.date_trunc("hour", "at").alias("hour"))
        .agg(F.count("*").alias("n"), F.min("at").alias("first_at"), F.max("at").alias("last_at"))
        .groupBy(*by)
        .agg(
            F.sum("n").alias("attempts"),
            F.max("n").alias("an_hour"),
            F.min("first_at").alias("first_at"),
            F.max("last_at").alias("last_at"),
        )
        .select(*by, "attempts", "an_hour", "first_at", "last_at")
    )


def standstills(events: DataFrame) -> DataFrame:
    """One row per time that a whole broker stood still: until when, and for how long."""
    return events.where("event = 'stood_still' and duration_s is not null").select(
        F.col("at").alias("ended_at"), "duration_s", "broker_id"
    )


def findings(tables: Tables) -> list[Finding]:
    """Crashes, restarts, standstills, and who was refused."""
    return [
        *_ends(tables["broker_runs"]),
        *_stood_still(tables["standstills"]),
        *_refused(tables["refused_connections"]),
    ]


def _ends(table: DataFrame) -> list[Finding]:
    runs = (
        table.where(F.col("ending").isin(CRASHED, STOPPED))
        .select("*", F.date_format("ended_at", "yyyy-MM-dd HH:mm:ss").alias("text"))
        .orderBy(F.desc("ended_at"))
        .collect()  # as many as a broker has runs
    )
    crashes = [row for row in runs if row["ending"] == CRASHED]
    restarts = [row for row in runs if row["ending"] == STOPPED and row["down_s"] is not None]
    found = []
    for weight, did, rows in ((PROBLEM, "crashed", crashes), (NOTABLE, "was restarted", restarts)):
        if rows:
            times = "" if len(rows) == 1 else f" {len(rows)} times"
            each = "; ".join(_one_end(row) for row in rows[:NAMED])
            more = f"; {len(rows) - NAMED} earlier ones are in the table" if len(rows) > NAMED else ""
            missing = f" {UNCOUNTED}." if did == "crashed" else ""
            found.append(Finding(weight, f"The broker {did}{times}: {each}{more}.{missing}", "broker_runs"))
    return found


def _stood_still(table: DataFrame) -> list[Finding]:
    number = table.count()
    if not number:
        return []
    longest = (
        table.select("*", F.date_format("ended_at", "yyyy-MM-dd HH:mm:ss").alias("text"))
        .orderBy(F.desc("duration_s"), "ended_at")
        .limit(NAMED)
        .collect()
    )
    each = units.listed([f"{units.seconds(row['duration_s'])} until {row['text']} UTC" for row in longest], number)
    said = (
        f"The broker stood still {units.some(number, 'time')}: {each}. It was stopped, its machine was paused or"
        " swapped, or its disk blocked it; no client was served then."
    )
    return [Finding(PROBLEM, said, "standstills")]


def _one_end(row: Row) -> str:
    back = f", and it was back {units.seconds(row['down_s'])} later" if row["down_s"] is not None else ""
    sign = "its last sign was at" if row["ending"] == CRASHED else "at"
    return f"{sign} {row['text']} UTC, which cut off {units.some(row['cut_off'], 'connection')}{back}"


def _refused(table: DataFrame) -> list[Finding]:
    total = table.agg(F.sum("attempts").alias("attempts"), F.max("an_hour").alias("an_hour")).first()
    if total is None or not total["attempts"]:
        return []
    logins = table.where("reason = 'not_authorized'")
    number = logins.agg(F.sum("attempts")).first()
    sources = (
        logins.groupBy("user", "client_id", "address")
        .agg(F.sum("attempts").alias("attempts"), F.max("an_hour").alias("an_hour"))
        .orderBy(F.desc("attempts"), "user", "client_id", "address")
    )
    worst = sources.limit(NAMED).collect()
    others = units.some(total["attempts"], "connection was refused", "connections were refused")
    if not worst or number is None:
        why = table.groupBy("why").agg(F.sum("attempts").alias("n")).orderBy(F.desc("n"), "why").first()
        return [Finding(INFORMATION, f"{others}, most of them because: {why and why['why']}.", "refused_connections")]
    named = "; ".join(f"{_source(row)} {units.some(row['attempts'], 'time')}" for row in worst)
    more = sources.count() - len(worst)
    named += f"; and {units.some(more, 'other')}" if more else ""
    weight = PROBLEM if worst[0]["an_hour"] >= GUESSES else NOTABLE
    said = f"{others}, {units.count(number[0])} of them at login: {named}."
    return [Finding(weight, said, "refused_connections")]


def _source(row: Row) -> str:
    user = "without a user name" if row["user"] is None else f"user {row['user']}"
    client = "" if row["client_id"] is None else f" as client {row['client_id']}"
    return f"{user}{client} from {row['address'] or 'an unknown address'}"


def _seconds(time: str) -> Column:
    return F.col(time).cast("double")


TABLES: Final = (
    Table(
        "broker_runs",
        "Runs of the broker",
        "One row per run of a broker, the last first. cut off are the connections that its end closed, clients theirs;"
        " down is the time until the next run. What happened in the last interval before a crash (10 s) is not in the"
        " other tables.",
        broker_runs,
        ("-started_at", "broker_id"),
        empty="No sign of a broker.",
    ),
    Table(
        "standstills",
        "Standstills of the broker",
        "One row per time that the whole broker stood still for a second or longer, the longest first: the process was"
        " stopped, its machine was paused or swapped, or its disk blocked it.",
        lambda frames: standstills(frames.events),
        ("-duration_s", "ended_at", "broker_id"),
        empty="The broker never stood still.",
    ),
    Table(
        "refused_connections",
        "Refused connections",
        "One row per user, client id, address and reason. why is the broker's sentence; an hour is the most often"
        " within one hour. Many attempts of one source: a password that changed, or somebody who guesses.",
        lambda frames: refused_connections(frames.events),
        ("-attempts", "user", "client_id", "address", "reason", "why"),
        Chart("bars", "address", ("attempts",), title="Refused connections, the most first"),
        empty="No connection was refused.",
        one_file=False,
    ),
)
