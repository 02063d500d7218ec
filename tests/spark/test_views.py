"""What is made of finished tables: the verdict and the views of clients; and the steps of time that charts have."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_analytics.reports import clients, load, steps
from spark_analytics.verdict import verdict

from .made import at, expect, frame, frame_of, make

pytestmark = pytest.mark.slow

Rows = list[tuple[Any, ...]]


class Given:
    """Tables with a few columns and rows."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, columns: str, *rows: tuple[Any, ...]) -> DataFrame:
        return frame_of(self._spark, columns, rows)


def judged(spark: SparkSession, **rows: Rows) -> list[str]:
    columns = {
        "totals": "clients long, messages_received long, messages_sent long, messages_dropped long,"
        " dropped_for_a_client long",
        "devices_in_trouble": "client_id string, reasons string, weight long, lost long",
        "broker_runs": "ending string",
        "standstills": "duration_s double",
        "slow_minutes": "who string",
        "drops_by_client": "client_id string, reason string, messages long",
        "capacity": "metric string, limit_name string, limit double, verdict string, met_at timestamp",
        "queues": "queue string, attempts long, dead_letters long",
        "queue_consumers": "queue string, consumer string, verdict string, failed long, failing_share double",
        "stuck_keys": "queue string, ordering_key string, stuck_s double, ending string",
        "retry_storms": "queue string",
    }
    given = {"totals": [(2, 6979, 12000, 0, 0)], "broker_runs": [("running",)]} | rows
    return verdict({name: Given(spark)(ddl, *given.get(name, [])) for name, ddl in columns.items()})


def test_the_verdict_of_a_broker_without_trouble(spark: SparkSession) -> None:
    assert judged(spark) == [
        "None of 2 clients is in trouble.",
        "The broker ran all the time, and was never slow itself.",
        "6,979 messages came and 12,000 went out; 0 were dropped, 0 of them on the way to a client; no limit is known.",
    ]


def test_the_verdict_names_the_worst_device_and_tells_the_broker_from_its_clients(spark: SparkSession) -> None:
    assert judged(
        spark,
        totals=[(48, 100, 200, 50, 30)],
        devices_in_trouble=[("meter", "flaps", 1, 0), ("viewer", "lost 20 messages; reads too slowly", 4, 20)],
        broker_runs=[("crashed",), ("crashed",), ("stopped",), ("running",)],
        slow_minutes=[("broker",), ("broker and clients",), ("clients",)],
        drops_by_client=[("viewer", "expired", 5), ("viewer", "queue_full", 15), ("phone", "queue_full", 10)],
        capacity=[("connections", "max_connections", 100.0, "will_be_met", at("2026-12-24 00:00:00"))],
    ) == [
        "2 of 48 clients are in trouble; the worst is viewer: lost 20 messages.",
        "The broker crashed 2 times and was stopped once, and was itself slow in 2 minutes; messages waited for slow"
        " clients in 1 minute.",
        "100 messages came and 200 went out; 50 were dropped, 30 of them on the way to a client (most to viewer: 20,"
        " queue_full); the first limit to be met is max_connections, about 2026-12-24. What was moved in the last"
        " interval (10 s) before a crash is not counted.",
    ]


def test_the_verdict_does_not_call_a_broker_fast_that_stood_still(spark: SparkSession) -> None:
    def of_broker(**rows: Rows) -> str:
        return judged(spark, **rows)[1]

    assert of_broker(standstills=[(20.0,)]) == "The broker ran all the time, and stood still once for 20.0 s."
    assert (
        of_broker(standstills=[(20.0,), (1.5,)], slow_minutes=[("broker",)])
        == "The broker ran all the time, and stood still 2 times for up to 20.0 s and was itself slow in 1 minute."
    )


def test_the_verdict_has_a_sentence_about_queues_where_there_are_any(spark: SparkSession) -> None:
    queues: Rows = [("jobs", 900, 17), ("mail", 100, 0)]
    assert judged(spark, queues=queues[1:])[3:] == ["1 queue with 100 deliveries: nothing is wrong."]
    assert judged(
        spark,
        queues=queues,
        queue_consumers=[
            ("jobs", "ann", "fails", 40, 0.5),
            ("jobs", "bob", "fails", 70, 0.25),
            ("jobs", "eve", "works", 90, 0.1),
            ("mail", "dan", "fails as the others do", 20, 0.4),
        ],
        stuck_keys=[("mail", "a", 99.0, None), ("mail", "b", 100.0, None), ("mail", "c", 200.0, "nacked")],
        retry_storms=[("jobs",)],
    )[3:] == [
        "2 queues with 1,000 deliveries: 2 consumers fail, most of all bob in jobs (25.0 %); all consumers of mail fail"
        " alike; 2 ordering keys are stuck, longest b in mail; 1 retry storm; 17 dead letters."
    ]


def test_a_name_in_the_verdict_cannot_command_a_terminal(spark: SparkSession) -> None:
    said = judged(spark, devices_in_trouble=[("\x1b[2J", "flaps", 1, 0)], drops_by_client=[("\x1b[2J", "expired", 5)])
    assert "\\x1b[2J: flaps" in said[0]
    assert "\x1b" not in "".join(said)


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (["met", "will_be_met"], "the limit max_0 was met"),
        (["too_little_data"], "it is too early to say when a limit will be met"),
        (["not_growing", "too_little_data"], "no limit is in sight"),
    ],
)
def test_the_verdict_about_limits(spark: SparkSession, verdicts: list[str], said: str) -> None:
    rows: Rows = [("connections", f"max_{n}", 9.0, each, None) for n, each in enumerate(verdicts)]
    assert judged(spark, capacity=rows)[2].endswith(f"; {said}.")


# ── views of clients ─────────────────────────────────────────────────────────────────────────────────────────────────


def tables_of_clients(spark: SparkSession, troubled: Rows, busy: Rows, sessions: Rows) -> dict[str, DataFrame]:
    given = Given(spark)
    activity = clients.client_activity(
        make(spark, activity=[{"client_id": "viewer", "messages_sent": 4, "queued": 3, "backpressure_s": 1.5}])
    )
    return {
        "devices_in_trouble": given("client_id string, kinds array<string>, reasons string, weight long", *troubled),
        "traffic_by_client": given(
            "client_id string, sessions long, messages_received long, messages_sent long, bytes_received long,"
            " bytes_sent long, share double, bytes long",
            *busy,
        ),
        "sessions": given(
            "client_id string, connected_at timestamp, ended_at timestamp, close_reason string, peer string,"
            " messages_received long, messages_sent long, dropped long",
            *sessions,
        ),
        "client_activity": activity,
        "drops_by_client": given(
            "client_id string, reason string, messages long, first_at timestamp, last_at timestamp",
            ("viewer", "queue_full", 7, at("11:00:00"), at("11:05:00")),
        ),
        "latency_by_client": given(
            "client_id string, messages long, p50_us long, p99_us long, max_us long, queue_p99_us long,"
            " acknowledge_p99_us long",
            ("viewer", 5, 80, 90, 95, 1, None),
        ),
    }


def test_a_view_has_what_all_tables_know_of_its_client(spark: SparkSession) -> None:
    ended = ("viewer", at("11:00:00"), at("11:05:00"), "connection_lost", "10.0.0.1:5", 0, 4, 7)
    still_open = ("viewer", at("11:06:00"), None, None, "10.0.0.1:6", 0, 0, 0)
    tables = tables_of_clients(
        spark,
        [
            ("viewer", ["drops", "slow"], "lost 7 messages; slow", 4),
            ("phone", ["slow"], "slow", 2),
            ("x", ["rate"], "r", 1),
        ],
        [("viewer", 2, 0, 4, 10, 90, 0.5, 100), ("calm", 1, 1, 0, 60, 40, 0.5, 100)],
        [still_open, ended],
    )
    found = clients.views(tables)
    assert list(found) == ["viewer", "phone", "x", "calm"]
    assert found["viewer"] == {
        "sessions": [
            ["2026-11-21 11:00:00", "2026-11-21 11:05:00", "connection_lost", "10.0.0.1:5", 0, 4, 7],
            ["2026-11-21 11:06:00", None, None, "10.0.0.1:6", 0, 0, 0],
        ],
        "activity": [["2026-11-21 11:00:00", 0, 4, 0, 3, 1.5]],
        "drops": [["queue_full", 7, "2026-11-21 11:00:00", "2026-11-21 11:05:00"]],
        "latency": [[5, 80, 90, 95, 1, None]],
        "traffic": [[2, 0, 4, 10, 90, 0.5]],
        "trouble": [[["drops", "slow"], "lost 7 messages; slow"]],
        "neighbours": [["phone", ["slow"]]],
    }
    assert found["x"]["neighbours"] == []
    assert "neighbours" not in found["calm"]


def test_only_so_many_clients_have_a_view_and_so_many_sessions_in_it(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "VIEWS", 2)
    monkeypatch.setattr(clients, "SESSIONS", 2)
    lives = [(name, at(f"11:0{n}:00"), None, None, "p", 0, 0, 0) for name in "abc" for n in range(3)]
    busy = [(name, 1, 0, 0, 0, 0, 0.0, much) for name, much in (("a", 5), ("b", 50), ("c", 500))]
    found = clients.views(tables_of_clients(spark, [("a", ["slow"], "slow", 2)], busy, lives))
    assert list(found) == ["a", "c"]
    assert [row[0] for row in found["a"]["sessions"]] == ["2026-11-21 11:01:00", "2026-11-21 11:02:00"]


# ── steps of time ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("end", "interval_s", "step_s"),
    [
        ("11:09:59", 10.0, 60),
        ("2026-11-21 19:20:00", 10.0, 60),  # 500 minutes, a point each
        ("2026-11-21 19:20:01", 10.0, 300),
        ("11:09:59", 60.001, 60),
        ("11:09:59", 300.0, 300),
        ("2027-11-21 11:00:00", 10.0, 86400),
    ],
)
def test_steps_are_as_short_as_the_time_and_the_intervals_permit(
    spark: SparkSession, end: str, interval_s: float, step_s: int
) -> None:
    rows = [{"interval_start": time, "interval_s": interval_s} for time in ("11:00:00", end)]
    found = steps.with_steps(frame(spark, "activity", *rows), "interval_start").select("at", "step_s").collect()
    assert {row["step_s"] for row in found} == {step_s}
    assert all(int(row["at"].timestamp()) % step_s == 0 for row in found)


def test_the_load_over_time_has_a_point_for_minutes_without_traffic(spark: SparkSession) -> None:
    moved = {"messages_received": 60, "messages_sent": 120, "bytes_received": 600, "bytes_sent": 1200, "dropped": 3}
    activity = [{"client_id": name, "interval_start": "11:00:10"} | moved for name in "ab"]
    activity += [{"client_id": "a", "interval_start": "11:02:10", "messages_received": 6}]
    expect(
        spark,
        load.load_over_time(make(spark, activity=activity)),
        "at timestamp, step_s long, messages_received_per_s double, messages_sent_per_s double,"
        " bytes_sent_per_s double, dropped long",
        ("11:00:00", 60, 2.0, 4.0, 40.0, 6),
        ("11:01:00", 60, 0.0, 0.0, 0.0, 0),
        ("11:02:00", 60, 0.1, 0.0, 0.0, 0),
    )
    assert load.load_over_time(make(spark)).count() == 0
