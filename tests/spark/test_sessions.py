"""Reports about sessions, each on a frame of a few rows: what goes in, what comes out."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_analytics.frames import PROBLEM
from spark_analytics.reports import dropped, overview, reconnects
from spark_analytics.reports import sessions as report
from spark_analytics.reports.dropped import all_drops

from .made import at, expect, frame, make, written

pytestmark = pytest.mark.slow

Row = dict[str, Any]


def clock(second: int) -> str:
    """Seconds after 11:00:00."""
    return f"{11 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"


def lives(client_id: str, number: int, reason: str, *, every_s: int = 300, lasts_s: int = 60, **row: Any) -> list[Row]:
    """So many sessions one after another, each ended for that reason; two such lists do not share connection ids."""
    first = 1000 * (sum(client_id.encode()) % 1000)
    return [
        {
            "connection_id": first + nth,
            "client_id": client_id,
            "connected_at": clock(nth * every_s),
            "ended_at": clock(nth * every_s + lasts_s),
            "duration_s": float(lasts_s),
            "close_reason": reason,
        }
        | row
        for nth in range(number)
    ]


def overview_of(
    spark: SparkSession,
    rows: list[Row],
    events: list[Row] | None = None,
    activity: list[Row] | None = None,
    since: datetime | None = None,
) -> DataFrame:
    tables = {"sessions": rows, "events": events or [], "activity": activity or []}
    frames = [frame(spark, name, *told) for name, told in tables.items()]
    return overview.sessions(frames[0], frames[1], frames[2], since)


def test_the_overview_has_every_connection_in_the_order_of_its_client(spark: SparkSession) -> None:
    opened = {
        "event": "connected",
        "client_id": "a",
        "connection_id": 3,
        "at": "11:09:00",
        "numbers": {"keep_alive_s": 9},
    }
    found = overview_of(
        spark,
        [
            {"connection_id": 1, "client_id": "a", "connected_at": "11:00:00.25", "ended_at": "11:05:00"}
            | {"received_qos0": 1, "received_qos1": 2, "sent_qos2": 7, "drops": {"expired": 4}},
            {"connection_id": 2, "client_id": "a", "connected_at": "11:06:00", "ended_at": "11:07:00"},
        ],
        [opened, opened | {"connection_id": 2}, {"event": "refused", "client_id": "a", "connection_id": 8}],
    )
    expect(
        spark,
        found,
        "connection_id long, keep_alive_s int, ended_at timestamp, handshake_s double, messages_received long,"
        " messages_sent long, drops map<string,long>, nth int, previous_ended_at timestamp,"
        " next_connected_at timestamp",
        (1, 0, "11:05:00", 0.25, 3, 7, {"expired": 4}, 1, None, "11:06:00"),
        (2, 0, "11:07:00", 360.0, 0, 0, {}, 2, "11:05:00", "11:09:00"),
        (3, 9, None, None, 0, 0, None, 3, "11:07:00", None),
    )


def test_moved_messages_are_reported_while_the_broker_runs_and_after_a_crash(spark: SparkSession) -> None:
    """A session tells nothing of it before it has ended, and nothing at all when its broker died."""
    crashed = {"connection_id": 1, "client_id": "a", "close_reason": "broker_crash"}
    ended = {"connection_id": 2, "client_id": "b", "received_qos1": 50, "bytes_received": 900, "dropped": 2}
    opened = {"event": "connected", "client_id": "c", "connection_id": 3}
    moved = {"messages_received": 40, "messages_sent": 4, "bytes_received": 800, "bytes_sent": 80, "dropped": 1}
    activity = [
        {"connection_id": number, "client_id": client_id, "interval_start": time} | moved
        for number, client_id in ((1, "a"), (2, "b"), (3, "c"), (4, "d"))
        for time in ("11:00:00", "11:00:10")[: 1 if client_id == "b" else 2]
    ]
    found = overview_of(spark, [crashed, ended], [opened], activity)
    columns = "client_id string, messages_received long, messages_sent long, bytes_received long, dropped long"
    expect(
        spark,
        found,
        columns,
        ("a", 80, 8, 1600, 2),
        ("b", 50, 4, 900, 2),
        ("c", 80, 8, 1600, 2),
        ("d", 80, 8, 1600, 2),
    )
    drops = [{"client_id": "a", "messages": 7}, {"client_id": None, "messages": 30, "reason": "no_subscribers"}]
    expect(
        spark,
        overview.totals(found, all_drops(make(spark, drops=drops))),
        "clients long, sessions long, open_sessions long, messages_received long, messages_sent long,"
        " bytes_received long, messages_dropped long, dropped_for_a_client long",
        (4, 4, 2, 290, 28, 5700, 37, 7),
    )


def test_of_what_began_before_the_asked_time_only_that_in_it_counts(spark: SparkSession) -> None:
    began = {"client_id": "a", "connected_at": "11:00:00", "ended_at": "12:30:00", "received_qos0": 500}
    later = {"client_id": "a", "connected_at": "12:40:00", "ended_at": "12:45:00", "received_qos0": 3}
    activity = [{"client_id": "a", "interval_start": "12:10:00", "messages_received": 20}]
    found = overview_of(spark, [began, later], activity=activity, since=at("12:00:00"))
    expect(spark, found, "connection_id long, messages_received long", (1, 20), (2, 3))


def test_totals_and_findings_tell_the_same_number_of_drops(spark: SparkSession) -> None:
    drops = [{"client_id": "a", "messages": 5, "reason": "queue_full"}]
    drops += [{"client_id": None, "messages": 30, "reason": "no_subscribers"}]
    frames = make(spark, drops=drops, sessions=[{"client_id": "a", "dropped": 5, "drops": {"queue_full": 5}}])
    tables = written(spark, frames, [*overview.TABLES, *dropped.TABLES])
    (told,) = tables["totals"].collect()
    assert (told["messages_dropped"], told["dropped_for_a_client"]) == (35, 5)
    (finding,) = dropped.findings(tables)
    assert finding.sentence.startswith("35 messages were dropped")


def test_without_traffic_totals_are_zero_and_not_blank(spark: SparkSession) -> None:
    (told,) = overview.totals(overview_of(spark, []), all_drops(make(spark))).collect()
    assert set(told.asDict().values()) == {0}


def test_traffic_is_summed_by_client_the_busiest_first(spark: SparkSession) -> None:
    """Whichever way it goes: a sensor that only sends is as busy as a viewer that only reads."""
    sensor = {"client_id": "sensor", "received_qos0": 1, "received_qos1": 10, "bytes_received": 550, "bytes_sent": 50}
    rows = [
        sensor,
        {"client_id": "viewer", "sent_qos1": 3, "sent_qos2": 4, "bytes_sent": 200},
        {"client_id": "viewer", "sent_qos0": 1, "bytes_sent": 200},
    ]
    (table,) = [table for table in overview.TABLES if table.name == "traffic_by_client"]
    found = overview.traffic_by_client(overview_of(spark, rows))
    expect(
        spark,
        found,
        "client_id string, sessions long, messages long, messages_received long, messages_sent long, bytes long,"
        " share double, bytes_received long, bytes_sent long",
        ("sensor", 1, 11, 11, 0, 600, 0.6, 550, 50),
        ("viewer", 2, 8, 0, 8, 400, 0.4, 0, 400),
    )
    assert [row["client_id"] for row in found.orderBy(*table.sorted_by()).collect()] == ["sensor", "viewer"]


def test_durations_are_quantiles_by_listener_and_protocol(spark: SparkSession) -> None:
    hundred = [{"duration_s": float(number)} for number in range(1, 101)]
    other = {"listener": "tls", "protocol_version": "3.1.1", "duration_s": 7.5}
    expect(
        spark,
        report.durations(frame(spark, "sessions", *hundred, other)),
        "listener string, protocol_version string, sessions long, min_s double, p50_s double, p90_s double,"
        " p99_s double, max_s double, mean_s double",
        ("local", "5.0", 100, 1.0, 50.0, 90.0, 99.0, 100.0, 50.5),
        ("tls", "3.1.1", 1, 7.5, 7.5, 7.5, 7.5, 7.5, 7.5),
    )


def test_the_histogram_puts_a_session_on_a_border_into_the_upper_bucket(spark: SparkSession) -> None:
    values = (0.0, 0.999, 1.0, 9.999, 10.0, 604_799.9, 604_800.0, 1e9)
    expect(
        spark,
        report.duration_histogram(frame(spark, "sessions", *({"duration_s": value} for value in values))),
        "listener string, lasted string, from_s double, to_s double, sessions long",
        ("local", "< 1 s", 0.0, 1.0, 2),
        ("local", "< 10 s", 1.0, 10.0, 2),
        ("local", "< 1 min", 10.0, 60.0, 1),
        ("local", "< 7 d", 86400.0, 604800.0, 1),
        ("local", "≥ 7 d", 604800.0, None, 2),
    )


def test_the_histogram_counts_every_session_once(spark: SparkSession) -> None:
    values = [border + step for border in report.BUCKETS_S for step in (0.0, 0.5)]
    found = report.duration_histogram(frame(spark, "sessions", *({"duration_s": value} for value in values)))
    assert sum(row["sessions"] for row in found.collect()) == len(values)


def test_close_reasons_have_their_share_of_all_sessions(spark: SparkSession) -> None:
    found = report.close_reasons(
        frame(
            spark,
            "sessions",
            {"client_id": "a", "duration_s": 1.0},
            {"client_id": "a", "duration_s": 2.0},
            {"client_id": "b", "duration_s": 9.0},
            {"client_id": "b", "duration_s": 30.0, "close_reason": "connection_lost", "will_published": True},
        )
    )
    expect(
        spark,
        found,
        "close_reason string, sessions long, share double, clients long, median_duration_s double,"
        " wills_published long",
        ("client_disconnected", 3, 0.75, 2, 2.0, 0),
        ("connection_lost", 1, 0.25, 1, 30.0, 1),
    )


def test_keep_alive_names_the_silent_client_and_the_delay_of_the_broker(spark: SparkSession) -> None:
    silent = {"close_reason": "keep_alive_timeout", "client_id": "a", "keep_alive_s": 60}
    rows = frame(
        spark,
        "sessions",
        {"client_id": "a", "keep_alive_s": 60},
        silent | {"ended_at": "11:00:03", "duration_s": 90.0, "keep_alive_late_s": 0.5},
        silent | {"ended_at": "11:00:02", "duration_s": 90.0, "keep_alive_late_s": 7.0},
        silent | {"ended_at": "11:00:05", "keep_alive_s": 10},
        {"client_id": "b"},
    )
    expect(
        spark,
        report.keep_alive_timeouts(rows),
        "client_id string, keep_alive_s int, timeouts long, sessions long, share double, median_duration_s double,"
        " latest_s double, first_at timestamp, last_at timestamp",
        ("a", 60, 2, 3, 2 / 3, 90.0, 7.0, "11:00:02", "11:00:03"),
        ("a", 10, 1, 1, 1.0, 0.0, None, "11:00:05", "11:00:05"),
    )
    expect(
        spark,
        report.keep_alive_lateness(rows),
        "keep_alive_s int, timeouts long, p50_late_s double, p99_late_s double, max_late_s double",
        (60, 2, 0.5, 7.0, 7.0),
    )


def test_protocol_versions_are_reported_with_their_shares(spark: SparkSession) -> None:
    tls = {"listener": "tls", "transport": "tls", "tls_version": "TLSv1.2", "tls_cipher": "AES"}
    expect(
        spark,
        report.protocols(frame(spark, "sessions", {"client_id": "a"}, {"client_id": "a"}, {"client_id": "b"}, tls)),
        "listener string, transport string, protocol_version string, tls_version string, tls_cipher string,"
        " sessions long, clients long, share double",
        ("local", "tcp", "5.0", None, None, 3, 2, 0.75),
        ("tls", "tls", "5.0", "TLSv1.2", "AES", 1, 1, 0.25),
    )


def test_churn_counts_by_the_minute_and_adds_up_what_is_open(spark: SparkSession) -> None:
    sessions = overview_of(
        spark,
        [
            {"connection_id": 1, "client_id": "a", "connected_at": "11:00:10", "ended_at": "11:05:00"},
            {"connection_id": 2, "client_id": "b", "connected_at": "11:00:20", "ended_at": "11:00:40"}
            | {"close_reason": "connection_lost"},
        ],
        [{"event": "connected", "client_id": "c", "connection_id": 3, "at": "11:00:59", "listener": "local"}],
    )
    refused = frame(spark, "events", {"event": "refused", "at": "11:05:30", "listener": "local"})
    churn = report.churn_per_minute(sessions, refused)
    expect(
        spark,
        churn,
        "minute timestamp, listener string, connects long, disconnects long, unclean long, refused long,"
        " open_sessions long",
        ("11:00:00", "local", 3, 1, 1, 0, 2),
        ("11:05:00", "local", 0, 1, 0, 1, 1),
    )
    expect(
        spark,
        report.concurrent_sessions(churn),
        "at timestamp, listener string, open_sessions long, connects long, disconnects long, step_s long",
        ("11:00:00", "local", 2, 3, 1, 60),
        ("11:05:00", "local", 1, 0, 1, 60),
    )


# ── who comes back too often ─────────────────────────────────────────────────────────────────────────────────────────


def flapping(spark: SparkSession, rows: list[Row]) -> dict[str, Row]:
    sessions = overview_of(spark, rows)
    found = reconnects.flapping_clients(sessions, reconnects.duplicate_client_ids(sessions)).collect()
    return {row["client_id"]: row.asDict() for row in found}


def test_a_client_flaps_that_loses_its_connection_five_times_within_an_hour(spark: SparkSession) -> None:
    steady = [row for number in range(9) for row in lives(f"s{number}", 1, "client_disconnected")]
    found = flapping(
        spark,
        [
            *steady,
            *lives("at-limit", reconnects.FLAPS_AN_HOUR + 1, "keep_alive_timeout", keep_alive_s=5),
            *lives("below", reconnects.FLAPS_AN_HOUR, "keep_alive_timeout"),
            *lives("too-slow", 9, "connection_lost", every_s=1000),
            *lives("says-goodbye", 9, "client_disconnected"),
            *lives("means-no-goodbye", 9, "client_disconnected", lasts_s=296),
            *lives("thrown-out", 9, "buffer_full"),
            *lives("broker-left", 9, "server_shutdown"),
        ],
    )
    assert set(found) == {"at-limit", "means-no-goodbye"}
    row = found["at-limit"]
    assert (row["flaps"], row["worst_hour"], row["sessions"]) == (5, 5, 6), "the last did not come back"
    assert (row["keep_alive_s"], row["main_reason"], row["median_session_s"]) == (5, "keep_alive_timeout", 60.0)
    assert "keep-alive too short" in row["cause"]
    assert "says goodbye and is back at once" in found["means-no-goodbye"]["cause"]


def test_where_most_of_the_fleet_loses_connections_no_client_flaps(spark: SparkSession) -> None:
    rows = [row for number in range(5) for row in lives(f"c{number}", 9, "connection_lost")]
    assert not flapping(spark, [*rows, *lives("other", 10, "connection_lost")])


def test_devices_that_fight_for_an_id_are_told_from_one_that_reconnects(spark: SparkSession) -> None:
    fight = lives("twins", 8, "taken_over", lasts_s=300)
    for nth, row in enumerate(fight):
        row["peer"] = f"10.0.0.{nth % 2}:4711"
    roaming = lives("roams", reconnects.TAKEOVERS_AN_HOUR - 1, "taken_over")
    alone = [*lives("own", 6, "taken_over"), *lives("own", 4, "connection_lost", every_s=290, connection_id=0)]
    for nth, row in enumerate(alone):
        row["connection_id"] = 9000 + nth
    rows = [*fight, *roaming, *alone, *lives("steady", 1, "client_disconnected")]
    rows += [row for number in range(9) for row in lives(f"s{number}", 1, "client_disconnected")]
    sessions = overview_of(spark, rows)
    expect(
        spark,
        reconnects.duplicate_client_ids(sessions),
        "client_id string, takeovers long, worst_hour long, sessions long, addresses long, such_as string",
        ("twins", 8, 8, 8, 2, "10.0.0.0, 10.0.0.1"),
    )
    assert set(flapping(spark, rows)) == {"own"}, "who fights does not flap, who reconnects unnoticed does"


def test_a_storm_is_much_of_the_fleet_coming_back_at_once(spark: SparkSession) -> None:
    fleet = 50
    rows = []
    for number in range(fleet):
        client, back = f"c{number:02}", number < 20
        rows += [
            {"connection_id": 2 * number, "client_id": client, "connected_at": clock(number * 30)}
            | {"ended_at": "12:00:00" if back else "13:59:00", "close_reason": "connection_lost"},
            {"connection_id": 2 * number + 1, "client_id": client, "connected_at": clock(3600 + number * 5)}
            | {"ended_at": "14:00:00"},
        ][: 2 if back else 1]
    # As many come back an hour later, after a goodbye; and one alone comes back all the time.
    rows += [row for n in range(20) for row in lives(f"d{n}", 2, "client_disconnected", every_s=7200 + n)]
    rows += lives("flaps", 40, "connection_lost", every_s=60, lasts_s=30)
    sessions = overview_of(spark, rows)
    churn = report.churn_per_minute(sessions, frame(spark, "events"))
    always = sessions.where("client_id = 'flaps'").select("client_id")
    storms = reconnects.reconnect_storms(sessions, churn, always)
    expect(
        spark,
        storms,
        "start timestamp, end timestamp, lasted_s double, clients long, connections long, before string",
        ("12:00:00", "12:01:35", 95.0, 20, 20, "connection_lost"),
    )
    (finding,) = report._storms(storms)
    assert finding.weight == PROBLEM
    assert finding.sentence.startswith(
        "1 reconnect storm: in the largest, on 2026-11-21 12:00 UTC, 20 clients came back"
    )


def test_endings_without_a_goodbye_and_late_keep_alives_are_told(spark: SparkSession) -> None:
    lost = {"close_reason": "keep_alive_timeout", "keep_alive_late_s": report.LATE_S + 1}
    rows = frame(spark, "sessions", lost, lost, {"client_id": "a"})
    tables = {"close_reasons": report.close_reasons(rows), "keep_alive_lateness": report.keep_alive_lateness(rows)}
    assert [finding.sentence for finding in report._ends(tables)] == [
        "66.7 % of 3 ended sessions ended without a goodbye, most of them by keep alive timeout (2).",
        "Keep-alive ended a connection 6.0 s late: the broker was too busy, or its machine slept.",
    ]
