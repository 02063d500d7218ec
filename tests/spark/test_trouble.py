"""A device is told of once, with all that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_analytics.frames import NOTABLE, PROBLEM
from spark_analytics.reports import trouble

from .made import at, frame_of

pytestmark = pytest.mark.slow

COLUMNS: Final = {
    "duplicate_client_ids": "client_id string, takeovers long, first_at timestamp, last_at timestamp",
    "silent_devices": "client_id string, silent_from timestamp, silent_until timestamp, silent_s double,"
    " usual_pause_s double, then string",
    "flapping_clients": "client_id string, flaps long, cause string, first_at timestamp, last_at timestamp",
    "drops_by_client": "client_id string, reason string, messages long, first_at timestamp, last_at timestamp",
    "back_pressure_by_client": "client_id string, dropped_queue_full long, dropped_outbox_full long,"
    " needed_queue_messages long, needed_outbox_bytes long",
    "queue_consumers": "queue string, consumer string, verdict string, failed long, failing_share double,"
    " first_at timestamp, last_at timestamp",
    "slow_clients": "client_id string, backpressure_s double, worst_queue double, first_at timestamp,"
    " last_at timestamp",
    "greedy_clients": "client_id string, times double, share double, busiest_at timestamp",
    "rate_anomalies": "client_id string, hour timestamp, times double, score double, than_usual string",
}

TEN, ELEVEN, NOON = at("10:00:00"), at("11:00:00"), at("12:00:00")


def tables_of(spark: SparkSession, rows: Mapping[str, list[tuple[Any, ...]]]) -> dict[str, DataFrame]:
    given = {name: frame_of(spark, columns, rows.get(name, [])) for name, columns in COLUMNS.items()}
    found = trouble.devices_in_trouble(given)
    return {"devices_in_trouble": frame_of(spark, found.schema, found.collect())}


def test_a_device_with_three_troubles_has_one_row_and_one_sentence(spark: SparkSession) -> None:
    tables = tables_of(
        spark,
        {
            "slow_clients": [("viewer", 9720.0, 150.0, ELEVEN, NOON)],
            "drops_by_client": [
                ("viewer", "queue_full", 3000, TEN, NOON),
                ("viewer", "expired", 10, TEN, TEN),
                ("viewer", "qos0_offline", 99, TEN, TEN),
                ("away", "qos0_offline", 99, TEN, TEN),
            ],
            "back_pressure_by_client": [("viewer", 3000, 0, 3200, 0)],
            "rate_anomalies": [("viewer", NOON, 12.5, 9.0, "more"), ("meter", NOON, 0.2, -6.0, "less")],
        },
    )
    viewer, meter = trouble.findings(tables)
    assert viewer.sentence == (
        "viewer: lost 3,010 messages (queue_full 3,000, expired 10), a queue of 3,200 messages would have held them;"
        " reads too slowly (its socket took no bytes for 2.7 h, 150 messages waited for it); published up to 12.5"
        " times as much as usual in 1 hour."
    )
    assert (viewer.weight, viewer.client_id) == (PROBLEM, "viewer")
    assert meter.sentence == "meter: published only 20 % of the usual in 1 hour."
    assert (meter.weight, meter.client_id) == (NOTABLE, "meter")
    row = tables["devices_in_trouble"].where("client_id = 'viewer'").collect()[0]
    assert (row["kinds"], row["lost"]) == (["drops", "slow", "rate"], 3010)


def test_each_kind_of_trouble_has_its_words(spark: SparkSession) -> None:
    tables = tables_of(
        spark,
        {
            "duplicate_client_ids": [("a", 12, TEN, NOON)],
            "silent_devices": [
                ("b", TEN, None, 7200.0, 60.0, "connected"),
                ("b", TEN, ELEVEN, 3600.0, 60.0, "connected"),
                ("c", TEN, NOON, 7200.0, 5.0, "keep_alive_timeout"),
                ("d", TEN, NOON, 7200.0, 5.0, None),
            ],
            "flapping_clients": [("e", 40, "its network breaks", TEN, NOON)],
            "greedy_clients": [("f", 11.6, 0.31, NOON)],
            "drops_by_client": [
                ("g", "buffer_full", 5, TEN, TEN),
                ("h", "a_reason_of_tomorrow", 1, TEN, TEN),
                *(("i", rule, 9, TEN, TEN) for rule in trouble.RULES),
                ("$queue/jobs", "queue_full", 9, TEN, TEN),  # no device
            ],
            "back_pressure_by_client": [("g", 0, 5, 0, 2_500_000)],
        },
    )
    told = {finding.client_id: finding.sentence for finding in trouble.findings(tables)}
    assert told == {
        "a": "a: several devices use its client id and threw each other out 12 times.",
        "b": "b: has been silent since 2026-11-21 10:00 UTC for 2.0 h (usual pause 1.0 min) though it was connected.",
        "c": "c: fell silent at 2026-11-21 10:00 UTC for 2.0 h (usual pause 5.0 s), after keep alive timeout.",
        "d": "d: fell silent at 2026-11-21 10:00 UTC for 2.0 h (usual pause 5.0 s).",
        "e": "e: lost its connection 40 times: its network breaks.",
        "f": "f: publishes 12 times what others do, 31.0 % of all messages.",
        "g": "g: lost 5 messages (buffer_full 5), a send buffer of 2.5 MB would have held them.",
        "h": "h: lost 1 message (a_reason_of_tomorrow 1).",
    }


def test_of_many_devices_the_worst_are_named_and_the_others_counted(spark: SparkSession) -> None:
    rows = [(f"d{number:02}", "queue_full", 100 - number, TEN, TEN) for number in range(trouble.NAMED + 2)]
    tables = tables_of(spark, {"drops_by_client": rows})
    found = trouble.findings(tables)
    assert [finding.client_id for finding in found[:2]] == ["d00", "d01"]
    assert len(found) == trouble.NAMED + 1
    assert found[-1].sentence == "2 more devices are in trouble; the table has them all."
