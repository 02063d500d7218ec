"""Each report on a frame of a few rows: what goes in, what comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from spark_analytics.reports.back_pressure import back_pressure_by_client
from spark_analytics.reports.close_reasons import close_reasons
from spark_analytics.reports.drops import drops_by_client
from spark_analytics.reports.durations import BUCKETS_S, duration_histogram, durations
from spark_analytics.reports.keep_alive import keep_alive_timeouts
from spark_analytics.reports.overview import overview
from spark_analytics.reports.totals import totals
from spark_analytics.reports.traffic import traffic_by_client

pytestmark = pytest.mark.slow

MakeFrame = Callable[..., DataFrame]
Expect = Callable[..., None]

SECOND = "cast('2026-11-21T11:00:{}.250Z' as timestamp)"


@pytest.fixture
def expect(spark: SparkSession) -> Expect:
    """`expect(frame, "a string, n long", ("x", 1), …)`: these columns in this order, and these rows in any."""

    def check(frame: DataFrame, columns: str, *rows: tuple[Any, ...]) -> None:
        assertDataFrameEqual(frame, spark.createDataFrame(list(rows), columns))

    return check


def test_the_overview_has_a_row_per_session_with_its_handshake_and_sums(sessions: MakeFrame, expect: Expect) -> None:
    frame = overview(
        sessions(
            {"received_qos0": 1, "received_qos1": 2, "received_qos2": 3, "drops": {"expired": 4}, "dropped": 4},
            {"sent_qos0": 4, "sent_qos1": 5, "sent_qos2": 6},
        )
    )
    assert frame.columns == [
        "broker_id",
        "connection_id",
        "client_id",
        "username",
        "listener",
        "transport",
        "protocol_version",
        "peer",
        "connected_at",
        "ended_at",
        "handshake_s",
        "duration_s",
        "keep_alive_s",
        "close_reason",
        "reason_code",
        "messages_received",
        "messages_sent",
        "bytes_received",
        "bytes_sent",
        "drops",
        "dropped",
        "backpressure_s",
    ]
    expect(
        frame.select("connection_id", "handshake_s", "duration_s", "messages_received", "messages_sent", "drops"),
        "connection_id long, handshake_s double, duration_s double, messages_received long, messages_sent long,"
        " drops map<string,long>",
        (1, 0.25, 30.0, 6, 0, {"expired": 4}),
        (2, 0.25, 30.0, 0, 15, {}),
    )


def test_durations_are_quantiles_by_listener_and_protocol(sessions: MakeFrame, expect: Expect) -> None:
    hundred = [{"duration_s": float(number)} for number in range(1, 101)]
    expect(
        durations(sessions(*hundred, {"listener": "tls", "protocol_version": "3.1.1", "duration_s": 7.5})),
        "listener string, protocol_version string, sessions long, min_s double, p50_s double, p90_s double,"
        " p99_s double, max_s double, mean_s double",
        ("local", "5.0", 100, 1.0, 50.0, 90.0, 99.0, 100.0, 50.5),
        ("tls", "3.1.1", 1, 7.5, 7.5, 7.5, 7.5, 7.5, 7.5),
    )


def test_the_histogram_puts_a_session_on_a_border_into_the_upper_bucket(sessions: MakeFrame, expect: Expect) -> None:
    frame = sessions(*({"duration_s": value} for value in (0.0, 0.999, 1.0, 9.999, 10.0, 604_799.9, 604_800.0, 1e9)))
    expect(
        duration_histogram(frame),
        "listener string, protocol_version string, from_s double, to_s double, sessions long",
        ("local", "5.0", 0.0, 1.0, 2),
        ("local", "5.0", 1.0, 10.0, 2),
        ("local", "5.0", 10.0, 60.0, 1),
        ("local", "5.0", 86400.0, 604800.0, 1),
        ("local", "5.0", 604800.0, None, 2),
    )


def test_the_histogram_counts_every_session_once(sessions: MakeFrame) -> None:
    values = [border + step for border in BUCKETS_S for step in (0.0, 0.5)]
    frame = duration_histogram(sessions(*({"duration_s": value} for value in values)))
    assert sum(row["sessions"] for row in frame.collect()) == len(values)


def test_close_reasons_have_their_share_of_all_sessions(sessions: MakeFrame, expect: Expect) -> None:
    frame = sessions(
        {"client_id": "a", "duration_s": 1.0},
        {"client_id": "a", "duration_s": 2.0},
        {"client_id": "b", "duration_s": 9.0},
        {"client_id": "b", "close_reason": "connection_lost", "will_published": True},
    )
    expect(
        close_reasons(frame),
        "close_reason string, sessions long, share double, clients long, median_duration_s double,"
        " wills_published long",
        ("client_disconnected", 3, 0.75, 2, 2.0, 0),
        ("connection_lost", 1, 0.25, 1, 30.0, 1),
    )


def test_keep_alive_timeouts_name_only_clients_that_fell_silent(spark: SparkSession, sessions: MakeFrame) -> None:
    silent = {"close_reason": "keep_alive_timeout"}
    frame = sessions(
        {"client_id": "a", "ended_at": "2026-11-21T11:00:01.250Z"},
        {"client_id": "a", "ended_at": "2026-11-21T11:00:03.250Z", "duration_s": 90.0} | silent,
        {"client_id": "a", "ended_at": "2026-11-21T11:00:02.250Z", "duration_s": 90.0} | silent,
        {"client_id": "a", "ended_at": "2026-11-21T11:00:04.250Z"},
        {"client_id": "a", "ended_at": "2026-11-21T11:00:05.250Z", "keep_alive_s": 10} | silent,
        {"client_id": "b"},
    )
    expected = spark.sql(
        f"""
        select * from values
            ('a', 60, 2L, 4L, 0.5D, 90D, {SECOND.format("02")}, {SECOND.format("03")}),
            ('a', 10, 1L, 1L, 1.0D, 30D, {SECOND.format("05")}, {SECOND.format("05")})
        as t(client_id, keep_alive_s, timeouts, sessions, share, median_duration_s, first_at, last_at)
        """
    )
    assertDataFrameEqual(keep_alive_timeouts(frame), expected)


def test_traffic_is_summed_by_client(sessions: MakeFrame, expect: Expect) -> None:
    frame = sessions(
        {"client_id": "a", "received_qos0": 1, "received_qos1": 10, "bytes_received": 500},
        {"client_id": "a", "received_qos2": 100, "sent_qos0": 2, "bytes_sent": 70, "duration_s": 12.0},
        {"client_id": "b", "sent_qos1": 3, "sent_qos2": 4},
    )
    expect(
        traffic_by_client(frame),
        "client_id string, sessions long, connected_s double, messages_received long, messages_sent long,"
        " bytes_received long, bytes_sent long, received_qos0 long, received_qos1 long, received_qos2 long,"
        " sent_qos0 long, sent_qos1 long, sent_qos2 long",
        ("a", 2, 42.0, 111, 2, 500, 70, 1, 10, 100, 2, 0, 0),
        ("b", 1, 30.0, 0, 7, 0, 0, 0, 0, 0, 0, 3, 4),
    )


def test_drops_are_summed_by_client_and_reason(spark: SparkSession, sessions: MakeFrame) -> None:
    frame = sessions(
        {"client_id": "a", "drops": {"expired": 1, "queue_full": 20}, "ended_at": "2026-11-21T11:00:01.250Z"},
        {"client_id": "a", "drops": {"queue_full": 5}, "ended_at": "2026-11-21T11:00:02.250Z"},
        {"client_id": "b", "drops": {"expired": 0}},
        {"client_id": "c", "drops": {}},
    )
    expected = spark.sql(
        f"""
        select * from values
            ('a', 'expired', 1L, 1L, {SECOND.format("01")}),
            ('a', 'queue_full', 25L, 2L, {SECOND.format("02")})
        as t(client_id, drop_reason, dropped, sessions, last_ended_at)
        """
    )
    assertDataFrameEqual(drops_by_client(frame), expected)


def test_back_pressure_names_slow_clients_and_their_highest_water(sessions: MakeFrame, expect: Expect) -> None:
    frame = sessions(
        {"client_id": "a", "backpressure_s": 3.0, "backpressure_count": 2, "outbox_high_water_bytes": 900},
        {"client_id": "a", "outbox_high_water_bytes": 1000, "outbox_high_water_messages": 7},
        {"client_id": "a", "queue_high_water_messages": 50, "inflight_high_water": 20, "duration_s": 0.0},
        {"client_id": "b", "outbox_high_water_bytes": 5000},
        {"client_id": "c", "backpressure_count": 1, "duration_s": 0.0},
    )
    expect(
        back_pressure_by_client(frame),
        "client_id string, backpressure_s double, share double, backpressure_count long, slow_sessions long,"
        " sessions long, outbox_high_water_bytes long, outbox_high_water_messages long,"
        " queue_high_water_messages long, inflight_high_water long",
        ("a", 3.0, 0.05, 2, 1, 3, 1000, 7, 50, 20),
        ("c", 0.0, None, 1, 1, 1, 0, 0, 0, 0),
    )


def test_the_totals_add_up_everything(spark: SparkSession, sessions: MakeFrame) -> None:
    frame = sessions(
        {"client_id": "a", "bytes_sent": 5, "dropped": 2, "ended_at": "2026-11-21T11:00:01.250Z"},
        {"client_id": "a", "received_qos1": 3, "backpressure_s": 0.5, "close_reason": "keep_alive_timeout"},
        {"client_id": "b", "sent_qos2": 4, "bytes_received": 6},
    )
    expected = spark.sql(
        f"""
        select * from values
            (3L, 2L, {SECOND.format("00")}, {SECOND.format("30")}, 90D, 3L, 4L, 6L, 5L, 2L, 1L, 0.5D)
        as t(sessions, clients, first_connected_at, last_ended_at, connected_s, messages_received, messages_sent,
             bytes_received, bytes_sent, dropped, keep_alive_timeouts, backpressure_s)
        """
    )
    assertDataFrameEqual(totals(frame), expected)
