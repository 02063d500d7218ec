"""Where each table is on the page: sections in the order in which somebody asks, and in each the tables by weight.

Invariant: a table is named once, or it is not on the page: others are made of it.
"""

from __future__ import annotations

from typing import Final

SECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "Overview": (
        "load_over_time",
        "concurrent_sessions",
        "broker_runs",
        "take_overs",
        "nodes",
        "crossings",
        "standstills",
        "refused_connections",
        "reconnect_storms",
        "close_reasons",
        "clock_jumps",
    ),
    "Devices in trouble": (
        "devices_in_trouble",
        "silent_devices",
        "flapping_clients",
        "duplicate_client_ids",
        "slow_clients",
        "rate_anomalies",
        "greedy_clients",
        "keep_alive_timeouts",
        "keep_alive_lateness",
    ),
    "Traffic": (
        "traffic_by_client",
        "topics",
        "traffic_by_prefix",
        "dead_topics",
        "topic_explosion",
        "fan_out",
        "payload_sizes",
    ),
    "Latency": (
        "slow_minutes",
        "latency_over_time",
        "latency_by_client",
        "latency_by_stage",
        "latency_by_topic",
    ),
    "Back-pressure and drops": (
        "drops_by_reason",
        "drops_by_client",
        "drops_by_topic",
        "back_pressure_by_client",
        "back_pressure_over_time",
        "high_water_marks",
    ),
    "Queues": (
        "queues",
        "queue_consumers",
        "stuck_keys",
        "retry_storms",
        "dead_letters_by_cause",
    ),
    "Streams": (
        "stream_groups",
        "stream_partitions",
        "stream_keys",
    ),
    "Capacity": (
        "capacity",
        "load_by_hour",
    ),
    "Sessions": (
        "durations",
        "duration_histogram",
        "protocols",
        "sessions",
    ),
}
