"""Reports about devices, each on a small fleet: who is named, and who is not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_analytics.reports import devices, overview, rates, silence
from spark_analytics.reports.hours import device_hours

from .made import at, expect, frame, frame_of

pytestmark = pytest.mark.slow

Row = dict[str, Any]


def clock(second: float) -> str:
    """Seconds after 00:00:00 of the day."""
    return (at("00:00:00") + timedelta(seconds=second)).replace(tzinfo=None).isoformat(sep=" ")


def speaks(client_id: str, *, every_s: int, from_s: int = 0, to_s: int = 6 * 3600, messages: int = 1) -> list[Row]:
    """A row for each interval in which it published."""
    return [
        {"client_id": client_id, "interval_start": clock(second), "messages_received": messages, "bytes_received": 50}
        for second in range(from_s, to_s, every_s)
    ]


def hours_of(spark: SparkSession, rows: list[Row]) -> DataFrame:
    return device_hours(frame(spark, "activity", *rows))


def test_a_device_hour_tells_what_was_published_and_how_regularly(spark: SparkSession) -> None:
    rows = speaks("a", every_s=600, from_s=0, to_s=7200, messages=2)
    rows += [{"client_id": "a", "interval_start": clock(30), "queued": 8, "backpressure_s": 2.5, "dropped": 3}]
    first, second = (8, 80.0, 3, 1.0, 8, 2.5), (6, 60.0, 0, 0.0, 0, 0.0)
    # The same interval on another connection is no pause.
    rows += [{"client_id": "a", "interval_start": clock(1200), "messages_received": 1}]
    expect(
        spark,
        hours_of(spark, rows),
        "client_id string, hour timestamp, messages long, bytes long, sending long, first_at timestamp,"
        " last_at timestamp, gaps long, gap_p50_s double, gap_p75_s double, gap_longest_s double,"
        " gap_longest_at timestamp, intervals long, observed_s double, dropped long, queued_mean double,"
        " queued_most long, backpressure_s double",
        (*("a", "00:00:00", 13, 300, 7, "00:00:00", "00:50:00", 6, 600.0, 600.0, 600.0, "00:50:00"), *first),
        (*("a", "01:00:00", 12, 300, 6, "01:00:00", "01:50:00", 5, 600.0, 600.0, 600.0, "01:40:00"), *second),
    )


# ── silence ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def silent(
    spark: SparkSession,
    rows: list[Row],
    sessions: list[Row] | None = None,
    events: list[Row] | None = None,
    storms: list[tuple[str, str]] | None = None,
) -> dict[str, list[Row]]:
    told = frame(spark, "events", *(events or []))
    stormy = [(at(start), at(end)) for start, end in storms or []]
    found = silence.silent_devices(
        hours_of(spark, [*rows, *speaks("always", every_s=60)]),
        overview.sessions(frame(spark, "sessions", *(sessions or [])), told, frame(spark, "activity")),
        frame_of(spark, "start timestamp, end timestamp", stormy),
        told,
    )
    named: dict[str, list[Row]] = {}
    for row in found.orderBy("silent_from").collect():
        named.setdefault(row["client_id"], []).append(row.asDict())
    return named


Story = tuple[list[Row], list[Row]]
"""What its devices published, and the sessions that they had."""


def rhythms() -> Story:
    rows = [
        *speaks("stops", every_s=60, to_s=3600),
        *speaks("pauses", every_s=60, to_s=3600),
        *speaks("pauses", every_s=60, from_s=3600 + LIMIT_S),
        *speaks("nearly", every_s=60, to_s=3600),
        *speaks("nearly", every_s=60, from_s=3540 + LIMIT_S),
        *speaks("slow", every_s=3600),
        *speaks("unknown", every_s=60, to_s=240),
    ]
    return rows, []


def at_random() -> Story:
    rows, second = [], 0
    pattern = [20, 60, 150, 30, 90, 250, 40, 70, 10, 120]
    for pause in [*pattern * 20, 620, *pattern * 4]:
        rows.append({"client_id": "random", "interval_start": clock(second), "messages_received": 1})
        second += pause
    return rows, []


def pauses_that_come_back() -> Story:
    return [
        row for nth in range(4) for row in speaks("breaks", every_s=60, from_s=nth * 5400, to_s=nth * 5400 + 1800)
    ], []


def left_and_hanging() -> Story:
    rows = [row for client in ("gone", "hangs") for row in speaks(client, every_s=60, to_s=3600)]
    sessions = [
        {"client_id": "gone", "connected_at": clock(0), "ended_at": clock(3601)},
        {"client_id": "hangs", "connected_at": clock(0), "ended_at": clock(21600)}
        | {"close_reason": "server_shutdown"},
    ]
    return rows, sessions


def sleepers() -> Story:
    rows, sessions = [], []
    for nth in range(6):
        rows += speaks("sleeps", every_s=600, from_s=nth * 600, to_s=nth * 600 + 600)
        rows += speaks("shifts", every_s=60, from_s=nth * 3000, to_s=nth * 3000 + 1200)
        for client, at_s, until_s in (
            ("sleeps", nth * 600, nth * 600 + 5),
            ("shifts", nth * 3000, nth * 3000 + 1200),
        ):
            sessions.append({"client_id": client, "connected_at": clock(at_s), "ended_at": clock(until_s)})
    return rows, sessions


def remade() -> Story:
    rows, sessions = [], []
    for client, away_s in (("soon", silence.RECONNECTED_S), ("late", silence.RECONNECTED_S + 60)):
        back = 3540 + int(away_s)
        rows += [*speaks(client, every_s=60, to_s=3600), *speaks(client, every_s=60, from_s=back)]
        sessions += [
            {"client_id": client, "connected_at": clock(0), "ended_at": clock(3600)}
            | {"close_reason": "keep_alive_timeout"},
            {"client_id": client, "connected_at": clock(back), "ended_at": clock(21600)},
        ]
    return rows, sessions


LIMIT_S = int(silence.REGULAR * 60 + silence.INTERVALS * 10)


@pytest.fixture(scope="module")
def told(spark: SparkSession) -> dict[str, list[Row]]:
    """The silences of all stories: one query, since no device says anything of another."""
    stories = [each() for each in (rhythms, at_random, pauses_that_come_back, left_and_hanging, sleepers, remade)]
    rows = [row for story, _ in stories for row in story]
    sessions = [session for _, of_story in stories for session in of_story]
    return silent(spark, rows, sessions)


def test_each_device_is_measured_by_its_own_rhythm(told: dict[str, list[Row]]) -> None:
    assert told.keys() & {"stops", "pauses", "nearly", "slow", "unknown"} == {"stops", "pauses"}
    (stops,), (pauses,) = told["stops"], told["pauses"]
    assert (stops["silent_until"], stops["usual_pause_s"]) == (None, 60.0)
    assert stops["silent_s"] == pytest.approx(18000, abs=60)
    assert (pauses["silent_s"], pauses["times"]) == (60.0 + LIMIT_S, (60.0 + LIMIT_S) / 60)
    assert pauses["silent_until"] is not None


def test_a_device_that_speaks_at_random_may_pause_for_longer(told: dict[str, list[Row]]) -> None:
    assert "random" not in told


def test_a_pause_that_comes_back_is_the_rhythm(told: dict[str, list[Row]]) -> None:
    assert "breaks" not in told


def test_a_gone_device_that_said_goodbye_is_not_silent_and_one_that_hangs_is(told: dict[str, list[Row]]) -> None:
    assert "gone" not in told
    assert [row["then"] for row in told["hangs"]] == ["connected"]


def test_a_device_that_sleeps_between_messages_is_expected_back(told: dict[str, list[Row]]) -> None:
    """Its goodbyes are its rhythm; those of one that leaves for the night excuse the night."""
    assert told.keys() & {"sleeps", "shifts"} == {"sleeps"}


def test_a_connection_that_is_soon_remade_is_no_silence(told: dict[str, list[Row]]) -> None:
    assert told.keys() & {"soon", "late"} == {"late"}


def test_time_in_which_no_message_could_be_expected_is_excused(spark: SparkSession) -> None:
    """After a goodbye, without a broker, in a leap of its clock, and until a storm was over."""
    rows, sessions = [], []
    for number, client in enumerate(("said-goodbye", "in-storm", "lost")):
        rows += [*speaks(client, every_s=60, to_s=3600), *speaks(client, every_s=60, from_s=7200)]
        sessions += [
            {"client_id": client, "connection_id": 10 + number, "connected_at": clock(0), "ended_at": clock(3590)}
            | {"close_reason": "client_disconnected" if client == "said-goodbye" else "connection_lost"},
            {"client_id": client, "connection_id": 20 + number, "connected_at": clock(7190), "ended_at": clock(21600)},
        ]
    sessions[-1]["connected_at"] = clock(7100)
    found = silent(spark, rows, sessions, storms=[(clock(7150), clock(7200))])
    assert set(found) == {"lost"}
    assert found["lost"][0]["then"] == "connection_lost"


def test_without_a_broker_and_in_a_leap_of_the_clock_no_device_is_silent(spark: SparkSession) -> None:
    rows = [*speaks("a", every_s=60, to_s=3600), *speaks("a", every_s=60, from_s=7200)]
    stopped = [
        {"broker_id": "b1", "event": "broker_started", "at": clock(0)},
        {"broker_id": "b1", "event": "broker_stopped", "at": clock(3600)},
        {"broker_id": "b2", "event": "broker_started", "at": clock(7190)},
    ]
    leapt = [{"broker_id": "b1", "event": "clock_jumped", "at": clock(7190), "duration_s": 3590.0}]
    assert not silent(spark, rows, events=stopped)
    assert not silent(spark, rows, events=leapt)
    assert set(silent(spark, rows, events=[stopped[0]])) == {"a"}


# ── rates ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_hour_is_compared_with_what_the_device_uses_to_do(spark: SparkSession) -> None:
    rows = []
    for client in ("floods", "drips", "away", "left", "steady", "steady-2", "steady-3"):
        for hour in range(12):
            every_s = {("floods", 5): 10, ("drips", 5): 600, ("left", 5): 130}.get((client, hour), 60)
            to_s = hour * 3600 + {("away", 5): 600, ("left", 5): 140}.get((client, hour), 3600)
            rows += speaks(client, every_s=every_s, from_s=hour * 3600, to_s=to_s)
    rows += [
        row for hour in range(3) for row in speaks("new", every_s=10 if hour == 2 else 600, to_s=hour * 3600 + 3600)
    ]
    expect(
        spark,
        rates.rate_anomalies(hours_of(spark, rows)),
        "client_id string, hour timestamp, messages long, usual double, times double, than_usual string",
        ("floods", "05:00:00", 360, 60.0, 6.0, "more"),
        ("drips", "05:00:00", 6, 60.0, 0.1, "less"),
    )


def test_a_pattern_shared_by_all_devices_is_no_anomaly(spark: SparkSession) -> None:
    rows = []
    for client in range(4):
        for hour in range(12):
            rows += speaks(f"c{client}", every_s=10 if hour == 5 else 60, from_s=hour * 3600, to_s=hour * 3600 + 3600)
    assert not rates.rate_anomalies(hours_of(spark, rows)).collect()


def test_a_greedy_client_publishes_many_times_what_the_fleet_does(spark: SparkSession) -> None:
    few = [row for number in range(9) for row in speaks(f"c{number}", every_s=600, to_s=7200, messages=50)]
    limit = int(rates.GREEDY * 300)
    rows = [
        *few,
        *speaks("greedy", every_s=3600, to_s=7200, messages=limit),
        *speaks("busy", every_s=3600, to_s=7200, messages=limit - 1),
    ]
    fleet = frame(
        spark, "activity", *rows, *(row for n in range(10) for row in speaks(f"d{n}", every_s=7200, to_s=7200))
    )
    expect(
        spark,
        rates.greedy_clients(device_hours(fleet)),
        "client_id string, busiest_hour long, fleet double, times double",
        ("greedy", limit, 300.0, rates.GREEDY),
    )


def test_a_client_may_be_greedy_in_bytes_alone(spark: SparkSession) -> None:
    rows = [row for number in range(19) for row in speaks(f"c{number}", every_s=600, to_s=7200)]
    for client_id, in_bytes in (("films", rates.GREEDY_BYTES_AN_HOUR), ("draws", rates.GREEDY_BYTES_AN_HOUR - 1)):
        rows += [row | {"bytes_received": in_bytes} for row in speaks(client_id, every_s=3600, to_s=7200)]
    expect(
        spark,
        rates.greedy_clients(hours_of(spark, rows)),
        "client_id string, median_bytes double, fleet_bytes double, times double",
        ("films", float(rates.GREEDY_BYTES_AN_HOUR), 300.0, rates.GREEDY_BYTES_AN_HOUR / 300),
    )


def test_in_a_quiet_fleet_no_client_is_greedy(spark: SparkSession) -> None:
    rows = [row for number in range(9) for row in speaks(f"c{number}", every_s=3600, to_s=7200)]
    rows += speaks("talks", every_s=3600, to_s=7200, messages=rates.GREEDY_AN_HOUR - 1)
    assert not rates.greedy_clients(hours_of(spark, rows)).collect()


def test_a_client_is_slow_that_takes_no_bytes_or_lets_messages_wait(spark: SparkSession) -> None:
    def hour(client: str, **row: Any) -> list[Row]:
        return [{"client_id": client, "interval_start": clock(nth * 10)} | row for nth in range(60)]

    rows = [
        *hour("blocks", backpressure_s=1.0, dropped=2),
        *hour("hiccups", backpressure_s=0.9),
        *hour("lets-wait", queued=100),
        *hour("hardly-waits", queued=99),
        {"client_id": "short", "backpressure_s": 10.0, "interval_start": clock(0)},
    ]
    sessions = [
        {"client_id": "old", "backpressure_s": 40.0, "duration_s": 100.0},
        {"client_id": "hiccups", "backpressure_s": 54.0, "duration_s": 60.0},
    ]
    found = rates.slow_clients(hours_of(spark, rows), frame(spark, "sessions", *sessions))
    expect(
        spark,
        found,
        "client_id string, slow_hours long, worst_share double, worst_queue double, dropped long",
        ("blocks", 1, 0.1, 0.0, 120),
        ("lets-wait", 1, 0.0, 100.0, 0),
        ("old", 1, 0.4, 0.0, 0),
    )


# ── clocks and findings ──────────────────────────────────────────────────────────────────────────────────────────────


def test_each_jump_of_a_clock_is_a_row(spark: SparkSession) -> None:
    jumped = {"event": "clock_jumped", "duration_s": -90.0, "at": "11:05:00"}
    found = devices.clock_jumps(frame(spark, "events", jumped, {"event": "connected", "duration_s": 1.0}))
    expect(spark, found, "at timestamp, seconds double, broker_id string", ("11:05:00", -90.0, "b1"))
    (finding,) = devices._clocks(found)
    assert finding.sentence == (
        "The broker's clock jumped 1 time, at most 1.5 min back, at 2026-11-21 11:05:00 UTC: times around it are not"
        " to be compared."
    )
