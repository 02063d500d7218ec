"""Quantiles out of histograms, held against sorted measurements; and the slowest minutes."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession, functions

from spark_analytics.frames import INFORMATION
from spark_analytics.reports import histograms
from spark_analytics.reports import latency as report

from .made import expect, make, written

pytestmark = pytest.mark.slow


def bucket_of(duration_us: int) -> int:
    """The formula of `docs/reference/telemetry.md`, read backwards."""
    if duration_us < 32:
        return duration_us
    e = duration_us.bit_length() - 5
    return 16 * (e + 1) + (duration_us >> e) - 16


def histogram(durations_us: list[int], **row: Any) -> dict[str, Any]:
    counts = Counter(map(bucket_of, durations_us))
    return {
        "messages": len(durations_us),
        "sum_us": sum(durations_us),
        "max_us": max(durations_us, default=0),
        "buckets": sorted(counts),
        "counts": [counts[bucket] for bucket in sorted(counts)],
    } | row


def rank(durations_us: list[int], thousandths: int) -> int:
    return sorted(durations_us)[math.ceil(len(durations_us) * thousandths / 1000) - 1]


def test_buckets_are_those_of_the_reference(spark: SparkSession) -> None:
    last = bucket_of(10**12)
    rows = (
        spark.range(last)
        .select("id", histograms.low(functions.col("id")), histograms.width(functions.col("id")))
        .collect()
    )
    expected = 0
    for bucket, low, width in rows:
        assert low == expected, bucket
        assert width == (1 if bucket < 32 else 2 ** (bucket // 16 - 1))
        expected = low + width
    assert bucket_of(expected) == last


def test_quantiles_are_in_the_bucket_of_the_measurement_with_their_rank(spark: SparkSession) -> None:
    dice = random.Random(11)
    worlds = {
        "one": [1_000_000],
        "small": list(range(32)) * 7,
        "thousand": list(range(1, 1001)),
        "two hills": [dice.randint(100, 200) for _ in range(950)] + [dice.randint(10**6, 10**7) for _ in range(50)],
        "long tail": [int(10 ** dice.uniform(0, 9)) for _ in range(3000)],
        "zeros": [0] * 10,
    }
    rows = []
    for topic, durations in worlds.items():
        # In several rows, as intervals and brokers are.
        rows += [histogram(durations[part::3], topic=topic) for part in range(3) if durations[part::3]]
    found = {
        row["prefix"]: row for row in report.latency_by_topic(make(spark, latency=rows)).where("level = 1").collect()
    }
    assert found.keys() == worlds.keys()
    for topic, durations in worlds.items():
        for name, thousandths in histograms.QUANTILES.items():
            assert bucket_of(found[topic][name]) == bucket_of(rank(durations, thousandths)), (topic, name)
        assert found[topic]["messages"] == len(durations)
        assert found[topic]["max_us"] == max(durations)
        assert found[topic]["mean_us"] == pytest.approx(sum(durations) / len(durations))
    # What is in a bucket of its own is told exactly, and nothing is larger than the largest.
    assert found["small"]["p50_us"] == rank(worlds["small"], 500)
    assert found["one"]["p999_us"] <= 1_000_000


def test_stages_and_qos_are_told_apart_and_empty_histograms_tell_nothing(spark: SparkSession) -> None:
    frames = make(
        spark,
        latency=[
            histogram([1, 2, 3], stage="route"),
            histogram([4], stage="route", topic="other", interval_start="12:00:00"),
            histogram([9], stage="route", qos=1),
            histogram([7], stage="total"),
            histogram([], stage="queue"),
        ],
    )
    columns = "stage string, qos int, messages long, p50_us long, p99_us long, max_us long, mean_us double"
    expect(
        spark,
        report.latency_by_stage(frames),
        columns,
        ("route", 0, 4, 2, 4, 4, 2.5),
        ("route", 1, 1, 9, 9, 9, 9.0),
        ("total", 0, 1, 7, 7, 7, 7.0),
    )
    expect(
        spark,
        report.latency_over_time(frames),
        "at timestamp, series string, " + columns,
        ("11:00:00", "route QoS 0", "route", 0, 3, 2, 3, 3, 2.0),
        ("12:00:00", "route QoS 0", "route", 0, 1, 4, 4, 4, 4.0),
        ("11:00:00", "route QoS 1", "route", 1, 1, 9, 9, 9, 9.0),
        ("11:00:00", "total QoS 0", "total", 0, 1, 7, 7, 7, 7.0),
    )


def test_topics_are_merged_under_their_prefixes(spark: SparkSession) -> None:
    frames = make(
        spark,
        latency=[
            histogram([1], topic="a/b"),
            histogram([3], topic="a/#"),
            histogram([5, 6], topic="#"),
        ],
    )
    expect(
        spark,
        report.latency_by_topic(frames),
        "level int, prefix string, stage string, qos int, messages long, p50_us long, max_us long",
        (0, "#", "total", 0, 4, 3, 6),
        (1, "a", "total", 0, 2, 1, 3),
        (2, "a/b", "total", 0, 1, 1, 1),
    )


def test_receivers_have_the_quantiles_of_their_own_messages(spark: SparkSession) -> None:
    taken = {"receiver": "viewer", "routed_us": 10, "queued_us": 0, "written_us": 5, "acknowledged_us": 300}
    frames = make(
        spark,
        samples=[
            *({**taken, "queued_us": queued_us} for queued_us in (0, 100, 9_000)),
            {"receiver": "other", "routed_us": 1, "queued_us": 2, "written_us": 3},
            {"receiver": "viewer", "routed_us": 10, "reason": "queue_full"},  # dropped: it never came
            {"receiver": None, "routed_us": 10},
        ],
    )
    expect(
        spark,
        report.latency_by_client(frames),
        "client_id string, messages long, p50_us int, p99_us int, max_us int, queue_p99_us int, write_p99_us int,"
        " acknowledge_p99_us int".replace(" int", " long"),
        ("viewer", 3, 115, 9015, 9015, 9000, 5, 300),
        ("other", 1, 6, 6, 6, 2, 3, None),
    )


def test_a_finding_tells_how_fast_it_is(spark: SparkSession) -> None:
    frames = make(
        spark,
        latency=[
            histogram([20] * 1000),
            histogram([15] * 1000, stage="write"),
            histogram([2] * 1000, stage="route"),
            histogram([1_015_808], interval_start="11:07:00"),
        ],
    )
    found = report.findings(written(spark, frames, report.TABLES))
    assert [(finding.weight, finding.sentence) for finding in found] == [
        (
            INFORMATION,
            "Half of the QoS 0 messages took at most 20 µs from socket to socket, 99 of 100 at most 20 µs, the slowest"
            " 1.0 s; the longest stage is write (p99 15 µs).",
        ),
    ]


def test_nothing_measured_is_nothing_to_say(spark: SparkSession) -> None:
    frames = make(spark, events=[{"event": "connected"}])
    assert report.findings(written(spark, frames, report.TABLES)) == []
