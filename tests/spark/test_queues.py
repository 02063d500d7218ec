"""Queues: consumers that fail, keys that are stuck, storms of retries, dead letters, and how long it takes."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_analytics.frames import INFORMATION, NOTABLE, PROBLEM, Finding
from spark_analytics.reports import queues as report

from .made import expect, make, written

pytestmark = pytest.mark.slow


def attempts(number: int, **row: Any) -> list[dict[str, Any]]:
    """So many deliveries of the queue `jobs`, which took 16 µs each."""
    usual = {"queue": "jobs", "consumer": "a", "attempt": 1, "outcome": "acknowledged", "held_us": 16, "one_in": 1}
    return [usual | {"message_id": str(at)} | row for at in range(number)]


def tries(message: str, key: str, behind: int, times: list[str], **last: Any) -> list[dict[str, Any]]:
    """Deliveries of one message of the queue `keys`, which were refused; `last` is what the last one has."""
    usual = {"queue": "keys", "ordering_key": key, "behind": behind, "outcome": "nacked", "message_id": message}
    made = [usual | {"attempt": number, "delivered_at": time, "ended_at": time} for number, time in enumerate(times, 1)]
    made[-1] |= last
    return [attempts(1, **row)[0] for row in made]


def minute(time: str, retries: int, firsts: int) -> list[dict[str, Any]]:
    """A minute of the queue `storms`."""
    when = {"queue": "storms", "delivered_at": time, "ended_at": time}
    return [*attempts(1, attempt=2, outcome="deadline", one_in=retries, **when), *attempts(1, one_in=firsts, **when)]


MINUTES = ["11:00:00", "11:01:00", "11:03:00"]
ATTEMPTS = [
    *attempts(95),
    *attempts(5, outcome="nacked"),
    *attempts(1, consumer="b", outcome="acknowledged", one_in=60),
    *attempts(20, consumer="b", outcome="deadline"),
    *attempts(20, consumer="b", outcome="nacked"),
    *attempts(5, consumer="c", outcome="disconnected"),
    *attempts(50, consumer="d", queue="mail", outcome="nacked"),
    *attempts(50, consumer="e", queue="mail", outcome="nacked"),
    *attempts(9, consumer=None, queue="mail"),
    *tries("1", "still", 7, MINUTES),
    *tries("2", "given up", 2, MINUTES),
    *tries("3", "went on", 2, [*MINUTES, "11:04:00"], outcome="acknowledged"),
    *tries("4", "went on", 2, ["11:05:00", "11:06:00", "11:06:10"]),
    *tries("5", "alone", 0, MINUTES),
    *tries("6", "quick", 3, ["11:00:00", "11:00:10", "11:00:20"]),
    *tries("7", "twice", 3, ["11:00:00", "11:10:00"]),
    *minute("11:00:30", 60, 60),
    *minute("11:01:30", 100, 20),
    *minute("11:02:30", 59, 1),
    *minute("11:03:30", 70, 71),
    *minute("11:05:30", 80, 0),
]
LETTERS = [
    {"queue": "keys", "message_id": "2", "cause": "nacked", "attempts": 3, "one_in": 1},
    {"queue": "storms", "cause": "deadline", "attempts": 5, "one_in": 3, "at": "11:06:00", "consumer": "a"},
    {"queue": "storms", "cause": "deadline", "attempts": 1, "one_in": 1, "at": "11:05:00", "consumer": "b"},
]


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[str, DataFrame]:
    return written(spark, make(spark, attempts=ATTEMPTS, dead_letters=LETTERS), report.TABLES)


@pytest.fixture(scope="module")
def found(tables: dict[str, DataFrame]) -> list[Finding]:
    return report.findings(tables)


def test_a_consumer_that_fails_more_than_the_others_is_named(
    spark: SparkSession, tables: dict[str, DataFrame], found: list[Finding]
) -> None:
    expect(
        spark,
        tables["queue_consumers"].where("queue in ('jobs', 'mail')"),
        "queue string, consumer string, verdict string, attempts long, failed long, failed_share double",
        ("jobs", "a", "works", 100, 5, 0.05),
        ("jobs", "b", "fails", 100, 40, 0.4),
        ("jobs", "c", "too few to say", 5, 5, 1.0),
        ("mail", "d", "fails as the others do", 50, 50, 1.0),
        ("mail", "e", "fails as the others do", 50, 50, 1.0),
    )
    expect(
        spark,
        tables["queues"].where("queue in ('jobs', 'mail')"),
        "queue string, attempts long, retries long, acknowledged long, failed long, p50_us long, dead_letters long",
        ("jobs", 205, 0, 155, 50, 16, 0),
        ("mail", 109, 0, 9, 100, 16, 0),
    )
    told = {each.client_id: each for each in found if each.table == "queue_consumers"}
    assert told["b"].weight == PROBLEM
    assert told["b"].sentence == (
        "b fails 40.0 % of what queue jobs delivers to it, in 1 hour from 2026-11-21 11:00 UTC on"
        " (nacked 20, deadline 20 of 100 in all); the others fail 9.5 %."
    )
    assert told[None].sentence.startswith("Queue mail: 2 consumers fail alike, 100.0 % of their deliveries")
    assert found[-1].weight == INFORMATION


def test_a_key_is_stuck_while_others_wait_for_a_message_that_fails_and_fails(
    spark: SparkSession, tables: dict[str, DataFrame], found: list[Finding]
) -> None:
    expect(
        spark,
        tables["stuck_keys"],
        "ordering_key string, stuck_s double, attempts int, behind long, ending string, messages long",
        ("still", 180.0, 3, 7, None, 1),
        ("given up", 180.0, 3, 2, "nacked", 1),
        ("went on", 240.0, 4, 2, "acknowledged", 2),
    )
    of_keys = [each for each in found if each.table == "stuck_keys"]
    assert [each.weight for each in of_keys] == [NOTABLE, NOTABLE, PROBLEM]
    assert of_keys[2].sentence == (
        "Key still of queue keys was stuck for 3.0 min: 3 attempts (nacked), 7 waited behind; it still is."
    )


def test_a_storm_is_of_minutes_in_a_row_in_which_most_deliveries_are_retries(
    spark: SparkSession, tables: dict[str, DataFrame], found: list[Finding]
) -> None:
    expect(
        spark,
        tables["retry_storms"],
        "queue string, start timestamp, end timestamp, minutes long, retries long, cause string",
        ("storms", "11:00:00", "11:02:00", 2, 160, "deadline"),
        ("storms", "11:05:00", "11:06:00", 1, 80, "deadline"),
    )
    (storm, _) = [each.sentence for each in found if each.table == "retry_storms"]
    assert storm.startswith("Retry storm in queue storms at 2026-11-21 11:00 UTC: 160 retries in 2 minutes")


def test_dead_letters_are_told_by_cause(
    spark: SparkSession, tables: dict[str, DataFrame], found: list[Finding]
) -> None:
    expect(
        spark,
        tables["dead_letters_by_cause"],
        "queue string, cause string, messages long, mean_attempts double, latest_consumer string",
        ("keys", "nacked", 1, 3.0, None),
        ("storms", "deadline", 4, 4.0, "a"),
    )
    sentences = [each.sentence for each in found]
    assert "5 messages were given up as dead letters: storms deadline 4, keys nacked 1." in sentences
