"""The report in three sentences: its devices, the broker itself, and what was moved, lost and is to come; and a fourth
about queues, where there are any.

Invariant: each number is one of a table of the report.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from spark_analytics import units
from spark_analytics.reports.capacity import MET, TOO_LITTLE_DATA, WILL_BE_MET
from spark_analytics.reports.minutes import CLIENTS
from spark_analytics.reports.queue_tables import AS_OTHERS, FAILS
from spark_analytics.reports.runs import CRASHED, STOPPED, UNCOUNTED
from spark_analytics.tables import Tables

NAMED: Final = 5
"""Queues that a sentence names."""


def verdict(tables: Tables) -> list[str]:
    """Three sentences, or four."""
    totals = tables["totals"].first()
    assert totals is not None, "a table of one row"
    said = (
        _devices(tables, totals["clients"]),
        _broker(tables),
        f"{_moved(totals)}{_lost(tables)} {_limits(tables)}.{_uncounted(tables)}",
        *_queues(tables),
    )
    return [units.printable(sentence) for sentence in said]


def _devices(tables: Tables, clients: int) -> str:
    table = tables["devices_in_trouble"]
    number = table.count()
    if not number:
        return f"None of {units.some(clients, 'client')} is in trouble."
    worst = table.orderBy(F.desc("weight"), F.desc("lost"), "client_id").first()
    assert worst is not None, "a table with rows has a first"
    are = "is" if number == 1 else "are"
    return (
        f"{units.count(number)} of {units.some(clients, 'client')} {are} in trouble; the worst is"
        f" {worst['client_id']}: {worst['reasons'].split('; ')[0]}."
    )


def _broker(tables: Tables) -> str:
    runs = _counts(tables["broker_runs"], "ending")
    slow = _counts(tables["slow_minutes"], "who")
    of_clients = slow.pop(CLIENTS, 0)
    of_broker = sum(slow.values())
    ended = [
        f"{did} {_times(runs[ending])}"
        for ending, did in ((CRASHED, "crashed"), (STOPPED, "was stopped"))
        if ending in runs
    ]
    ran = " and ".join(ended) or "ran all the time"
    was = [_stood_still(tables["standstills"])]
    if of_broker or not was[0]:
        was.append(f"was itself slow in {units.some(of_broker, 'minute')}" if of_broker else "was never slow itself")
    waited = f"; messages waited for slow clients in {units.some(of_clients, 'minute')}" if of_clients else ""
    return f"The broker {ran}, and {' and '.join(filter(None, was))}{waited}."


def _stood_still(table: DataFrame) -> str:
    found = table.agg(F.count("*").alias("n"), F.max("duration_s").alias("longest")).first()
    if found is None or not found["n"]:
        return ""
    longest = units.seconds(found["longest"])
    return f"stood still {_times(found['n'])} for {'' if found['n'] == 1 else 'up to '}{longest}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{units.count(number)} times"


def _counts(table: DataFrame, column: str) -> dict[str, int]:
    return {row[0]: row[1] for row in table.groupBy(column).agg(F.count("*")).collect()}


def _moved(totals: Row) -> str:
    came, went = units.some(totals["messages_received"], "message"), units.count(totals["messages_sent"])
    dropped, of_them = units.count(totals["messages_dropped"]), units.count(totals["dropped_for_a_client"])
    return f"{came} came and {went} went out; {dropped} were dropped, {of_them} of them on the way to a client"


def _lost(tables: Tables) -> str:
    by_client = (
        tables["drops_by_client"]
        .groupBy("client_id")
        .agg(F.sum("messages").alias("n"), F.max_by("reason", "messages").alias("reason"))
    )
    worst = by_client.orderBy(F.desc("n"), "client_id").first()
    if worst is None:
        return ";"
    return f" (most to {worst['client_id']}: {units.count(worst['n'])}, {worst['reason']});"


def _uncounted(tables: Tables) -> str:
    """What the totals lack, if a broker crashed."""
    return f" {UNCOUNTED}." if tables["broker_runs"].where(F.col("ending") == CRASHED).count() else ""


def _queues(tables: Tables) -> list[str]:
    """What is wrong with queues, the worst of each kind by name."""
    totals = tables["queues"].agg(
        F.count("*").alias("queues"), F.sum("attempts").alias("attempts"), F.sum("dead_letters").alias("letters")
    )
    found = totals.first()
    assert found is not None, "a sum has one row"
    if not found["queues"]:
        return []
    wrong = [*_failing(tables["queue_consumers"]), *_stuck(tables["stuck_keys"])]
    storms = tables["retry_storms"].count()
    if storms:
        wrong.append(units.some(storms, "retry storm"))
    if found["letters"]:
        wrong.append(units.some(found["letters"], "dead letter"))
    of = f"{units.some(found['queues'], 'queue')} with {units.some(found['attempts'], 'delivery', 'deliveries')}"
    return [f"{of}: {'; '.join(wrong) or 'nothing is wrong'}."]


def _failing(consumers: DataFrame) -> list[str]:
    said = []
    failing = consumers.where(F.col("verdict") == FAILS)
    worst = failing.orderBy(F.desc("failed"), "queue", "consumer").first()
    if worst is not None:
        most = f"{worst['consumer']} in {worst['queue']} ({units.share(worst['failing_share'])})"
        said.append(f"{units.some(failing.count(), 'consumer fails', 'consumers fail')}, most of all {most}")
    alike = consumers.where(F.col("verdict") == AS_OTHERS).select("queue").distinct().orderBy("queue").collect()
    if alike:
        names = units.listed([row["queue"] for row in alike[:NAMED]], len(alike))
        said.append(f"all consumers of {names} fail alike")
    return said


def _stuck(keys: DataFrame) -> list[str]:
    stuck = keys.where("ending is null")
    longest = stuck.orderBy(F.desc("stuck_s"), "queue", "ordering_key").first()
    if longest is None:
        return []
    number = units.some(stuck.count(), "ordering key is stuck", "ordering keys are stuck")
    return [f"{number}, longest {longest['ordering_key']} in {longest['queue']}"]


def _limits(tables: Tables) -> str:
    rows = (
        tables["capacity"]
        .where("limit is not null")
        .select("*", F.date_format("met_at", "yyyy-MM-dd").alias("date"))
        .orderBy("met_at", "metric", "limit_name")
        .collect()  # a row per limit
    )
    met = [row["limit_name"] for row in rows if row["verdict"] == MET]
    soon = [row for row in rows if row["verdict"] == WILL_BE_MET]
    if met:
        return f"the limit {units.listed(met, len(met))} was met"
    if soon:
        return f"the first limit to be met is {soon[0]['limit_name']}, about {soon[0]['date']}"
    if not rows:
        return "no limit is known"
    early = all(row["verdict"] == TOO_LITTLE_DATA for row in rows)
    return "it is too early to say when a limit will be met" if early else "no limit is in sight"
