"""A report as one JSON object, for `mqttlite top` and for programs; docs/reference/metrics.md lists its keys.

Invariant: its size does not grow with the number of clients.
"""

from typing import Any

import msgspec

from mqttlite.telemetry.broker_figures import of_snapshot
from mqttlite.telemetry.report import Report


def status(report: Report) -> bytes:
    """`/status`. Rates are per second, over `interval_s`."""
    snapshot = report.snapshot
    totals = snapshot.totals
    document: dict[str, Any] = {
        "version": report.build.version,
        "compiled": report.build.compiled,
        "python": report.build.python,
        "broker_id": report.broker_id,
        "uptime_s": round(report.uptime_s, 3),
        "not_ready": report.not_ready or None,
        "listeners": [
            {
                "name": each.name,
                "transport": each.transport,
                "addresses": each.addresses,
                "connections": each.connections,
                "turned_away": each.turned_away,
                "half_open_closed": each.half_open_closed,
                "failed_handshakes": each.failed_handshakes,
                "certificate_ends_at": each.certificate_ends_at,
            }
            for each in report.listeners
        ],
        "clients": {
            "connected": snapshot.online,
            "sessions": snapshot.sessions,
            "blocked": snapshot.blocked,
            "subscriptions": snapshot.subscriptions + snapshot.shared_subscriptions,
        },
        "held": {
            **{figure.name: value for figure, value in (*of_snapshot(snapshot), *report.figures) if figure.is_held},
            "oldest_unacknowledged_s": report.oldest_unacknowledged_s,
        },
        "totals": {
            "messages_received": totals.messages_received,
            "messages_sent": totals.messages_sent,
            "bytes_received": totals.bytes_received,
            "bytes_sent": totals.bytes_sent,
            "connections_opened": snapshot.opened,
            "connects": sum(snapshot.connected.values()),
            "disconnects": sum(snapshot.disconnected.values()),
            "refused": sum(snapshot.refused.values()),
        },
        "interval_s": round(snapshot.interval_s, 3),
        "rates": {name: round(growth / snapshot.interval_s, 3) for name, growth in snapshot.growth.items()},
        "drops": totals.drops,
        "disconnects": snapshot.disconnected,
        "loop_lag_s": report.recent_lag,
        "overload": {
            "stage": snapshot.overload_stage,
            "load": round(snapshot.overload_load, 3),
            "slowed": snapshot.slowed,
        },
        "store": {
            "commits": report.commits.messages,
            "failures": report.commit_failures,
            "failing": report.store_failing,
            "p99_s": report.commits.at_most(0.99) / 1e6,
        },
        "latency_s": {
            stage: {"p50": histogram.at_most(0.5) / 1e6, "p99": histogram.at_most(0.99) / 1e6}
            for stage, histogram in report.latency.items()
            if histogram.messages
        },
        "telemetry": {
            table: {"written": rows, "dropped": report.rows_dropped.get(table, 0)}
            for table, rows in report.rows_written.items()
        },
        "top": snapshot.rankings,
    }
    return msgspec.json.encode(document)
