"""Slow minutes of the broker, told apart from slow clients."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_analytics.frames import Frames
from spark_analytics.reports import minutes

from .made import expect, make, written
from .test_latency import histogram

pytestmark = pytest.mark.slow

Row = dict[str, Any]


def minute(at: str, *, messages: int = 20, **stages: list[int] | int) -> list[Row]:
    """What was measured in a minute: stages take 25 µs, 0 in the queue, 60 to write and 3 ms until acknowledged."""
    usual: dict[str, list[int] | int] = {"route": 25, "queue": 0, "write": 60, "total": 85, "acknowledge": 3_000}
    rows = []
    for stage, us in (usual | stages).items():
        durations = us if isinstance(us, list) else [us] * messages
        rows.append(histogram(durations, stage=stage, interval_start=f"{at}:10"))
    return rows


def usual_minutes(but: set[str]) -> list[Row]:
    times = [f"11:{number:02}" for number in range(30)]
    return [row for at in times if at not in but for row in minute(at)]


def dataset(spark: SparkSession, latency: list[Row], **rows: list[Row]) -> Frames:
    return make(spark, latency=[*latency, *usual_minutes({row["interval_start"][:5] for row in latency})], **rows)


def test_a_minute_that_is_slow_for_everybody_is_the_brokers_and_one_for_a_few_their_own(spark: SparkSession) -> None:
    waits = [0] * 19 + [90_000_000]
    latency = [
        *minute("11:05", route=25 * 62, write=60 * 62, total=85 * 62),
        *minute("11:09", route=25 * 98, write=60 * 98, total=85 * 98, queue=waits),
        *minute("11:12", queue=waits, total=waits),
        *minute("11:15", acknowledge=[3_000] * 19 + [400_000]),
        *minute("11:20", messages=minutes.FEWEST - 1, route=25 * 62, write=60 * 62),
        *minute("11:22", route=25 * 4, write=60 * 4),
    ]
    samples = [
        {"at": "11:12:10", "receiver": client_id, "queued_us": queued_us, "written_us": 9}
        for client_id, queued_us in (("viewer", 90_000_000), ("other", 200_000), ("quick", 0))
    ]
    tables = written(spark, dataset(spark, latency, samples=samples), minutes.TABLES)
    expect(
        spark,
        tables["slow_minutes"],
        "minute timestamp, who string, slowest_client string, slow_clients long",
        ("11:05:00", "broker", None, 0),
        ("11:09:00", "broker and clients", None, 0),
        ("11:12:00", "clients", "viewer", 2),
        ("11:15:00", "clients", None, 0),
    )
    times = {f"{row['minute']:%M}": row["times"] for row in tables["slow_minutes"].collect()}
    assert times["05"] == pytest.approx(62, rel=0.07)
    assert times["09"] == pytest.approx(98, rel=0.07)
    broker, clients = minutes.findings(tables)
    assert "The broker itself was slow in 2 minutes: 2026-11-21 11:09 UTC (×" in broker.sentence
    assert "In 2 minutes messages waited for slow clients while the broker was as fast as usual" in clients.sentence
    assert "most often for viewer (1)" in clients.sentence


def test_a_blocked_socket_makes_writes_slow_and_not_the_broker(spark: SparkSession) -> None:
    latency = [*minute("11:05", write=500_000, total=500_000), *minute("11:06", write=500_000, total=500_000)]
    latency += minute("11:07", route=25 * 40, write=60 * 40)  # beside it, the broker may be slow as well
    blocked = [
        {"client_id": "viewer", "interval_start": f"11:{at}:20", "backpressure_s": minutes.PAUSED_S}
        for at in ("05", "07")
    ]
    blocked += [{"client_id": "viewer", "interval_start": "11:06:20", "backpressure_s": minutes.PAUSED_S / 2}]
    expect(
        spark,
        minutes.slow_minutes(dataset(spark, latency, activity=blocked)),
        "minute timestamp, who string, slowest_client string, paused_s double",
        ("11:05:00", "clients", "viewer", 1.0),
        ("11:06:00", "broker", "viewer", 0.5),
        ("11:07:00", "broker and clients", "viewer", 1.0),
    )


def test_a_slow_minute_tells_what_else_happened(spark: SparkSession) -> None:
    found = minutes.slow_minutes(
        dataset(
            spark,
            minute("11:05", route=25 * 200),
            events=[{"event": "connected", "at": f"11:05:{second:02}"} for second in (0, 59)],
            drops=[{"interval_start": "11:05:50", "messages": 4}, {"interval_start": "11:06:00", "messages": 8}],
        )
    )
    expect(spark, found, "dropped long, events map<string,long>", (4, {"connected": 2}))


def test_without_measurements_nothing_is_slow(spark: SparkSession) -> None:
    tables = written(spark, make(spark), minutes.TABLES)
    assert tables["slow_minutes"].count() == 0
    assert minutes.findings(tables) == []
