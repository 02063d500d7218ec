"""Reports about topics, each on rows that fit on a page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_analytics.frames import INFORMATION, NOTABLE, Frames
from spark_analytics.reports import topics as report

from .made import expect, make, written

pytestmark = pytest.mark.slow


def findings(spark: SparkSession, frames: Frames) -> list[tuple[int, str]]:
    return [(found.weight, found.sentence) for found in report.findings(written(spark, frames, report.TABLES))]


def siblings(parent: str, number: int, *, every_s: int = 0, **row: Any) -> list[dict[str, Any]]:
    """One message to each of so many children, one after another."""
    return [
        {
            "topic": f"{parent}/{child:04}",
            "messages_qos0": 1,
            "interval_start": f"11:{child * every_s // 60:02}:{child * every_s % 60:02}",
        }
        | row
        for child in range(number)
    ]


def test_a_topic_sums_its_intervals_over_brokers(spark: SparkSession) -> None:
    frames = make(
        spark,
        traffic=[
            {"topic": "a", "messages_qos0": 1, "messages_qos1": 2, "payload_bytes": 30, "payload_bytes_max": 20},
            {"topic": "a", "messages_qos2": 7, "payload_bytes": 70, "payload_bytes_max": 10, "deliveries": 20}
            | {"interval_start": "11:00:10", "broker_id": "b2", "interval_s": 2.0},
            {"topic": "b/#", "topics": 40, "messages_qos0": 5},
            {"topic": "b/#", "topics": 60, "interval_start": "11:00:20"},
        ],
    )
    expect(
        spark,
        report.topics(frames),
        "topic string, topics long, messages long, messages_qos0 long, messages_qos1 long, messages_qos2 long,"
        " peak_per_s double, payload_bytes long, mean_payload_bytes double, payload_bytes_max long, deliveries long,"
        " fan_out double, first_at timestamp, last_at timestamp",
        ("a", 1, 10, 1, 2, 7, 3.5, 100, 10.0, 20, 20, 2.0, "11:00:00", "11:00:10"),
        ("b/#", 60, 5, 5, 0, 0, 0.5, 0, 0.0, 0, 0, 0.0, "11:00:00", "11:00:20"),
    )


def test_traffic_counts_under_every_prefix_and_a_filter_under_what_it_stands_for(spark: SparkSession) -> None:
    frames = make(
        spark,
        traffic=[
            {"topic": "plant/line1/temp", "messages_qos0": 3, "payload_bytes": 30, "deliveries": 6},
            {"topic": "plant/line1", "messages_qos1": 1, "payload_bytes": 1, "payload_bytes_max": 1},
            {"topic": "plant/#", "messages_qos0": 4, "topics": 50},
            {"topic": "#", "messages_qos0": 1, "topics": 9},
            {"topic": "/lead", "messages_qos0": 1},
        ],
    )
    expect(
        spark,
        report.traffic_by_prefix(frames),
        "level int, prefix string, topics long, messages long, share double, messages_qos1 long, payload_bytes long,"
        " deliveries long, fan_out double",
        (0, "#", 62, 10, 1.0, 1, 31, 6, 0.6),
        (1, "plant", 52, 8, 0.8, 1, 31, 6, 0.75),
        (2, "plant/line1", 2, 4, 0.4, 1, 31, 6, 1.5),
        (3, "plant/line1/temp", 1, 3, 0.3, 0, 30, 6, 2.0),
        (1, "", 1, 1, 0.1, 0, 0, 0, 0.0),
        (2, "/lead", 1, 1, 0.1, 0, 0, 0, 0.0),
    )


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_prefixes_end_at_the_level_that_was_asked_for(spark: SparkSession, levels: int) -> None:
    frames = make(spark, traffic=[{"topic": "a/b/c", "messages_qos0": 1}])
    found = report.traffic_by_prefix(frames, levels).select("level", "prefix").orderBy("level").collect()
    assert [tuple(row) for row in found] == [(0, "#"), (1, "a"), (2, "a/b"), (3, "a/b/c")][: levels + 1]


def test_a_table_that_was_written_is_not_computed_again(spark: SparkSession) -> None:
    frames = make(spark, traffic=[{"topic": "a", "messages_qos0": 1}])
    other = make(spark, traffic=[{"topic": "b", "messages_qos0": 2}])
    found = report.dead_topics(replace(frames, written={"topics": report.topics(other)}))
    expect(spark, found, "topic string, messages long", ("b", 2))


def test_a_topic_is_dead_if_no_interval_had_a_delivery(spark: SparkSession) -> None:
    frames = make(
        spark,
        traffic=[
            {"topic": "dead", "messages_qos0": 2, "payload_bytes": 20},
            {"topic": "dead", "messages_qos0": 3, "payload_bytes": 30, "interval_start": "11:00:10"},
            {"topic": "late", "messages_qos0": 1},
            {"topic": "late", "messages_qos0": 1, "deliveries": 1, "interval_start": "11:00:10"},
            {"topic": "nothing"},
            {"topic": "$dlq/jobs", "messages_qos1": 1},  # its queue keeps it
        ],
    )
    expect(
        spark,
        report.dead_topics(frames),
        "topic string, topics long, messages long, payload_bytes long, first_at timestamp, last_at timestamp",
        ("dead", 1, 5, 50, "11:00:00", "11:00:10"),
    )


def test_fan_out_is_by_powers_of_two_and_a_power_is_in_its_own_row(spark: SparkSession) -> None:
    counts = {0: 0, 1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 8: 8, 9: 16, 536_870_912: 536_870_912}
    frames = make(spark, traffic=[{"messages_qos1": 1, "deliveries": number} for number in counts])
    found = {row["up_to_receivers"]: row["messages"] for row in report.fan_out(frames).collect()}
    assert found == {power: list(counts.values()).count(power) for power in counts.values()}


def test_less_than_one_receiver_per_message_is_not_none(spark: SparkSession) -> None:
    frames = make(spark, traffic=[{"messages_qos0": 10, "deliveries": 1}, {"messages_qos0": 0}])
    expect(
        spark,
        report.fan_out(frames),
        "up_to_receivers long, messages long, deliveries long",
        (1, 10, 1),
    )


def test_payload_sizes_are_the_averages_of_intervals(spark: SparkSession) -> None:
    frames = make(
        spark,
        traffic=[
            {"messages_qos0": 2, "payload_bytes": 128, "payload_bytes_max": 100},
            {"messages_qos0": 1, "payload_bytes": 65, "payload_bytes_max": 65},
            {"messages_qos2": 4, "payload_bytes": 0},
        ],
    )
    expect(
        spark,
        report.payload_sizes(frames),
        "up_to_bytes long, messages long, payload_bytes long, payload_bytes_max long",
        (64, 2, 128, 100),
        (128, 1, 65, 65),
        (0, 4, 0, 0),
    )


def test_children_that_come_and_go_are_an_explosion(spark: SparkSession) -> None:
    frames = make(
        spark,
        traffic=[
            *siblings("requests", report.EXPLODING_SIBLINGS, every_s=10),
            *siblings("list", report.EXPLODING_SIBLINGS - 1, every_s=10),
        ],
    )
    expect(
        spark,
        report.topic_explosion(frames),
        "level int, prefix string, siblings long, named long, unnamed long, messages long,"
        " messages_per_sibling double, median_life_s double, example string, first_at timestamp, last_at timestamp",
        (1, "requests", 100, 100, 0, 100, 1.0, 0.0, "requests/0000", "11:00:00", "11:16:30"),
    )


def test_a_fleet_that_reports_now_and_then_is_no_explosion(spark: SparkSession) -> None:
    morning = siblings("devices", 150, interval_start="11:00:00")
    evening = siblings("devices", 150, interval_start="11:50:00")
    assert report.topic_explosion(make(spark, traffic=[*morning, *evening])).count() == 0


def test_topics_with_many_messages_are_no_explosion(spark: SparkSession) -> None:
    at_once = siblings("devices", 150, messages_qos0=report.FEW_MESSAGES + 1)
    assert report.topic_explosion(make(spark, traffic=at_once)).count() == 0
    few = siblings("devices", 150, messages_qos0=report.FEW_MESSAGES)
    assert report.topic_explosion(make(spark, traffic=few)).count() == 1


def test_topics_that_the_broker_could_not_name_are_an_explosion(spark: SparkSession) -> None:
    frames = make(
        spark,
        traffic=[
            {"topic": "plant/line/#", "topics": 700, "messages_qos0": 1400},
            {"topic": "plant/line/a", "messages_qos0": 1},
            {"topic": "#", "topics": 130, "messages_qos0": 260},
            {"topic": "one/#", "topics": 1, "messages_qos0": 60},
        ],
    )
    expect(
        spark,
        report.topic_explosion(frames),
        "level int, prefix string, siblings long, named long, unnamed long, messages long, example string",
        (2, "plant/line", 701, 1, 700, 1401, "plant/line/a"),
        (0, "#", 132, 2, 130, 1721, "one"),
    )


def test_a_few_more_topics_than_the_broker_names_are_no_explosion(spark: SparkSession) -> None:
    frames = make(spark, traffic=[{"topic": "fleet/#", "topics": 7, "messages_qos0": 700}, *siblings("fleet", 20)])
    assert report.topic_explosion(frames).count() == 0


def test_findings_name_the_hottest_the_dead_and_the_exploding(spark: SparkSession) -> None:
    frames = make(
        spark,
        traffic=[
            {"topic": "hot", "messages_qos0": 900, "deliveries": 1800, "interval_s": 10.0},
            *siblings("r", 100, every_s=10),
        ],
    )
    assert findings(spark, frames) == [
        (
            NOTABLE,
            "The topic with the most messages is hot: 900 of 1,000 (90.0 %), each for 2.0 receivers, 90/s at most.",
        ),
        (
            NOTABLE,
            "100 topics were published to and read by nobody, 100 messages altogether; the most, 1, went to r/0000.",
        ),
        (
            NOTABLE,
            "Topics explode: 100 directly below r, such as r/0000, share 100 messages. What varies may belong into"
            " the payload.",
        ),
    ]


def test_nothing_published_is_nothing_to_say(spark: SparkSession) -> None:
    frames = make(spark)
    assert all(table.report(frames).count() == 0 for table in report.TABLES)
    assert findings(spark, frames) == []


def test_one_topic_alone_may_have_all_messages(spark: SparkSession) -> None:
    frames = make(spark, traffic=[{"topic": "only", "messages_qos0": 1, "deliveries": 1}])
    assert [weight for weight, _ in findings(spark, frames)] == [INFORMATION]
