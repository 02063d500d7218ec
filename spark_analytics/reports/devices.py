"""Devices in trouble: silent, with odd rates, greedy, slow, fighting for a client id; and clocks that were set.

What makes a device one of them is in `silence`, `rates` and `reconnects`. Invariant: each table names a device for one
kind of trouble, with the numbers that show it.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_analytics import units
from spark_analytics.frames import NOTABLE, Finding
from spark_analytics.reports.hours import device_hours
from spark_analytics.reports.rates import greedy_clients, rate_anomalies, slow_clients
from spark_analytics.reports.silence import silent_devices
from spark_analytics.tables import Chart, Table, Tables


def clock_jumps(events: DataFrame) -> DataFrame:
    """One row per jump of a broker's wall clock; `seconds` is how far, forward if positive."""
    return events.where("event = 'clock_jumped' and duration_s is not null").select(
        "at", F.col("duration_s").alias("seconds"), "broker_id"
    )


def findings(tables: Tables) -> list[Finding]:
    """Clocks that were set; the devices are told of one by one, in `trouble`."""
    return _clocks(tables["clock_jumps"])


def _clocks(jumps: DataFrame) -> list[Finding]:
    text = F.date_format("at", "yyyy-MM-dd HH:mm:ss").alias("text")
    largest = jumps.select("seconds", text).orderBy(F.desc(F.abs("seconds")), "text").first()
    if largest is None:
        return []
    number = jumps.count()
    way = "forward" if largest["seconds"] > 0 else "back"
    return [
        Finding(
            NOTABLE,
            f"The broker's clock jumped {units.some(number, 'time')}, at most {units.seconds(abs(largest['seconds']))}"
            f" {way}, at {largest['text']} UTC: times around it are not to be compared.",
            "clock_jumps",
        )
    ]


TABLES: Final = (
    Table(
        "device_hours",
        "Devices by hour",
        "One row per client and hour.",
        lambda frames: device_hours(frames.activity),
        ("client_id", "hour"),
        one_file=False,
    ),
    Table(
        "silent_devices",
        "Silent devices",
        "One row per silence: a device did not publish for much longer than it uses to. silent is without the time in"
        " which it had said goodbye, was cut off with all others, or no broker ran; usual pause is its own median; then"
        " is connected while it stayed so, else how its connection ended. Without an end: still silent.",
        lambda frames: silent_devices(
            frames.written["device_hours"],
            frames.written["sessions"],
            frames.written["reconnect_storms"],
            frames.events,
        ),
        ("-silent_s", "client_id", "silent_from"),
        Chart("bars", "client_id", ("silent_s",), title="Longest silences"),
        empty="No device fell silent.",
    ),
    Table(
        "rate_anomalies",
        "Devices with odd rates",
        "One row per client and hour in which it published far more or less than it uses to. usual is its median hour,"
        " corrected by what all devices did in that hour; score is in robust standard deviations (median and median"
        " absolute deviation of the device's own hours).",
        lambda frames: rate_anomalies(frames.written["device_hours"]),
        ("-score", "client_id", "hour"),
        Chart("bars", "client_id", ("times",), title="Highest rates, times the usual"),
        empty="Every device publishes as it uses to.",
    ),
    Table(
        "greedy_clients",
        "Greedy clients",
        "One row per client that in its usual (median) hour publishes many times what nine of ten clients do in theirs:"
        " messages (fleet) or bytes (fleet bytes). Messages are PUBLISH packets; share is of all of them.",
        lambda frames: greedy_clients(frames.written["device_hours"]),
        ("-median_hour", "client_id"),
        Chart("bars", "client_id", ("median_hour",), title="Messages in the usual hour"),
        empty="No client floods the broker.",
    ),
    Table(
        "slow_clients",
        "Slow clients",
        "One row per client whose socket took no bytes for much of an hour (worst share), or for which messages waited"
        " all the time (worst queue: on the average of an hour). dropped are messages that it lost.",
        lambda frames: slow_clients(frames.written["device_hours"], frames.written["sessions"]),
        ("-worst_share", "-worst_queue", "client_id"),
        Chart("bars", "client_id", ("backpressure_s",), title="Time under back-pressure"),
        empty="No client is too slow for its messages.",
    ),
    Table(
        "clock_jumps",
        "Clocks that were set",
        "One row per jump of a broker's wall clock by more than a second; seconds is how far, forward if positive.",
        lambda frames: clock_jumps(frames.events),
        ("at", "broker_id"),
        empty="No clock jumped.",
    ),
)
