"""Who was too slow, what that cost, and how much room would have done; drops by reason, client and topic."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark_analytics.frames import INFORMATION, Frames
from spark_analytics.reports import backpressure as report
from spark_analytics.reports import dropped

from .made import expect, make, written

pytestmark = pytest.mark.slow

NEEDED = (
    "client_id string, dropped_outbox_full long, dropped_queue_full long, needed_outbox_bytes long,"
    " needed_outbox_messages long, needed_queue_messages long"
)


def slow_fleet(spark: SparkSession) -> Frames:
    """`camera` is slow and closed once, `tap` is slow and still open, `phone` was away; `fast` is fine."""
    full = {"reason": "buffer_full", "client_id": "camera", "messages": 10}
    return make(
        spark,
        sessions=[
            {"client_id": "camera", "duration_s": 60.0, "backpressure_s": 6.0, "backpressure_count": 2}
            | {"outbox_high_water_bytes": 1000, "outbox_high_water_messages": 7, "sent_qos0": 30, "sent_qos1": 10}
            | {"bytes_sent": 2000, "drops": {"buffer_full": 45, "expired": 3}},
            {"client_id": "camera", "duration_s": 40.0, "outbox_high_water_bytes": 400, "inflight_high_water": 9}
            | {"sent_qos2": 60, "bytes_sent": 3000, "close_reason": "buffer_full"},
            {"client_id": "fast", "duration_s": 100.0, "outbox_high_water_bytes": 5000, "sent_qos0": 9},
        ],
        activity=[
            {"client_id": "camera", "backpressure_s": 2.0},
            {"client_id": "tap", "backpressure_s": 2.5, "queued": 4, "inflight": 3, "messages_sent": 5},
            {"client_id": "tap", "backpressure_s": 2.5, "queued": 2, "interval_start": "11:00:10", "bytes_sent": 50},
        ],
        events=[
            {"event": "backpressure_ended", "client_id": "camera", "duration_s": 5.5},
            {"event": "backpressure_ended", "client_id": "camera", "duration_s": 0.5},
            {"event": "connected", "client_id": "camera", "duration_s": 99.0},
        ],
        drops=[
            # Two intervals that follow each other, the second with two topics, then one that stands alone.
            full | {"topic": "a"},
            full | {"topic": "a", "interval_start": "11:00:10"},
            full | {"topic": "b", "interval_start": "11:00:10.2"},
            full | {"messages": 15, "interval_start": "11:00:40"},
            {"reason": "queue_full", "client_id": "phone", "messages": 6},
            {"reason": "queue_full", "client_id": "phone", "messages": 6, "interval_start": "11:00:10"},
            {"reason": "no_subscribers", "messages": 1000, "topic": "a"},
            {"reason": "expired", "client_id": "fast", "messages": 1},
        ],
    )


def test_a_client_would_have_needed_what_waited_and_what_its_worst_episode_lost(spark: SparkSession) -> None:
    expect(
        spark,
        report.back_pressure_by_client(slow_fleet(spark)),
        NEEDED,
        # 30 messages of 50 bytes in the worst episode, above the 1000 that waited.
        ("camera", 45, 0, 2500, 37, 0),
        ("tap", 0, 0, 0, 0, 4),
        ("phone", 0, 12, 0, 0, 12),
    )


def test_pauses_come_from_whatever_table_knows_most(spark: SparkSession) -> None:
    expect(
        spark,
        report.back_pressure_by_client(slow_fleet(spark)),
        "client_id string, backpressure_s double, share double, backpressure_count long, longest_pause_s double,"
        " outbox_high_water_bytes long, outbox_high_water_messages long, queue_high_water_messages long,"
        " inflight_high_water long, ended_full long",
        ("camera", 6.0, 0.06, 2, 5.5, 1000, 7, 0, 9, 1),
        ("tap", 5.0, 0.25, 0, None, 0, 0, 4, 3, 0),
        ("phone", 0.0, None, 0, None, 0, 0, 0, 0, 0),
    )


def test_sessions_of_the_first_version_have_their_known_values(spark: SparkSession) -> None:
    """Their drops are no episodes: all of one session are taken as one."""
    old = {"schema_version": 1, "client_id": "a", "bytes_sent": 100, "sent_qos0": 10}
    frames = make(
        spark,
        sessions=[
            old | {"drops": {"buffer_full": 3, "queue_full": 5}, "outbox_high_water_bytes": 64},
            old | {"drops": {"buffer_full": 4}, "queue_high_water_messages": 2, "ended_at": "11:00:30"},
            {"client_id": "b", "drops": {"expired": 7}},
        ],
        drops=[{"reason": "expired", "client_id": "b", "messages": 7}],
    )
    expect(spark, report.back_pressure_by_client(frames), NEEDED, ("a", 7, 5, 64 + 40, 4, 7))
    expect(
        spark,
        dropped.drops_by_client(frames),
        "client_id string, reason string, messages long, topics long, first_at timestamp, last_at timestamp",
        ("a", "buffer_full", 7, 0, "11:00:00", "11:00:30"),
        ("a", "queue_full", 5, 0, "11:00:00", "11:00:00"),
        ("b", "expired", 7, 0, "11:00:00", "11:00:00"),
    )


def test_bytes_are_not_guessed_for_a_client_that_never_got_a_message(spark: SparkSession) -> None:
    frames = make(spark, drops=[{"reason": "buffer_full", "client_id": "a", "messages": 2}])
    expect(spark, report.back_pressure_by_client(frames), NEEDED, ("a", 2, 0, None, 2, 0))


@pytest.mark.parametrize(("second", "worst"), [("11:00:15", 4), ("11:00:15.1", 3)])
def test_an_episode_ends_where_half_an_interval_is_missing(spark: SparkSession, second: str, worst: int) -> None:
    full = {"reason": "queue_full", "client_id": "a"}
    frames = make(spark, drops=[full | {"messages": 1}, full | {"messages": 3, "interval_start": second}])
    expect(spark, report.back_pressure_by_client(frames), "needed_queue_messages long", (worst,))


def test_back_pressure_over_time_and_listener(spark: SparkSession) -> None:
    frames = make(
        spark,
        activity=[
            {"client_id": "a", "backpressure_s": 1.0, "queued": 5, "queued_bytes": 50},
            {"client_id": "a", "backpressure_s": 2.0, "dropped": 1, "interval_start": "11:59:50"},
            {"client_id": "b", "backpressure_s": 4.0},
            {"client_id": "c", "queued": 9, "queued_bytes": 10, "listener": "tls"},
            {"client_id": "d", "interval_start": "12:00:00", "messages_sent": 100},
        ],
    )
    expect(
        spark,
        report.back_pressure_over_time(frames),
        "at timestamp, listener string, backpressure_s double, paused_clients long, dropped long, queued long,"
        " queued_bytes long",
        ("11:00:00", "local", 5.0, 2, 0, 5, 50),
        ("11:59:00", "local", 2.0, 1, 1, 0, 0),
        ("12:00:00", "local", 0.0, 0, 0, 0, 0),
        ("11:00:00", "tls", 0.0, 0, 0, 9, 10),
    )


def test_marks_are_quantiles_of_sessions(spark: SparkSession) -> None:
    frames = make(spark, sessions=[{"outbox_high_water_bytes": number} for number in range(1, 101)])
    expect(
        spark,
        report.high_water_marks(frames),
        "listener string, mark string, sessions long, p50 long, p90 long, p99 long, max long",
        ("local", "outbox_high_water_bytes", 100, 50, 90, 99, 100),
        *(
            ("local", mark, 100, 0, 0, 0, 0)
            for mark in ("outbox_high_water_messages", "queue_high_water_messages", "inflight_high_water")
        ),
    )


def test_drops_are_told_by_reason_and_topic(spark: SparkSession) -> None:
    frames = make(
        spark,
        drops=[
            {"reason": "expired", "client_id": "a", "topic": "t", "messages": 1},
            {"reason": "expired", "client_id": "b", "topic": "t", "messages": 2, "interval_start": "11:00:10"},
            {"reason": "expired", "client_id": "b", "messages": 3},
            {"reason": "no_subscribers", "topic": "u", "messages": 2},
        ],
    )
    expect(
        spark,
        dropped.drops_by_reason(frames),
        "reason string, messages long, share double, clients long, topics long, first_at timestamp, last_at timestamp",
        ("expired", 6, 0.75, 2, 1, "11:00:00", "11:00:10"),
        ("no_subscribers", 2, 0.25, 0, 1, "11:00:00", "11:00:00"),
    )
    expect(
        spark,
        dropped.drops_by_topic(frames),
        "topic string, reason string, messages long, clients long, first_at timestamp, last_at timestamp",
        ("t", "expired", 3, 2, "11:00:00", "11:00:10"),
        ("u", "no_subscribers", 2, 0, "11:00:00", "11:00:00"),
    )


def test_drops_are_told_by_reason(spark: SparkSession) -> None:
    frames = slow_fleet(spark)
    tables = written(spark, frames, (*report.TABLES, *dropped.TABLES))
    found = [*report.findings(tables), *dropped.findings(tables)]
    assert [(finding.weight, finding.sentence) for finding in found] == [
        (
            INFORMATION,
            "1,058 messages were dropped: no_subscribers 1,000 (94.5 %), buffer_full 45 (4.3 %), queue_full 12"
            " (1.1 %).",
        ),
    ]


def test_a_fleet_without_trouble_is_nothing_to_say(spark: SparkSession) -> None:
    frames = make(spark, sessions=[{"outbox_high_water_bytes": 10}], activity=[{"messages_sent": 5}])
    tables = written(spark, frames, (*report.TABLES, *dropped.TABLES))
    assert [*report.findings(tables), *dropped.findings(tables)] == []
