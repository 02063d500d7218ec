"""The figures of a broker as one JSON object, for `mqttlite top` and for programs; docs/reference/metrics.md lists it.

Invariant: its size does not grow with the number of clients.
"""

from typing import Any

import msgspec

from mqttlite.telemetry.figures import Figures


def status(figures: Figures) -> bytes:
    """`/status`. Rates are per second, over `interval_s`."""
    totals = figures.totals
    document: dict[str, Any] = {
        "version": figures.build.version,
        "compiled": figures.build.compiled,
        "python": figures.build.python,
        "broker_id": figures.broker_id,
        "uptime_s": round(figures.uptime_s, 3),
        "not_ready": figures.not_ready or None,
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
            for each in figures.listeners
        ],
        "clients": {
            "connected": figures.online,
            "sessions": figures.sessions,
            "blocked": figures.blocked,
            "subscriptions": figures.subscriptions + figures.shared_subscriptions,
        },
        "held": {
            "queued_messages": figures.queued,
            "queued_bytes": figures.queued_bytes,
            "inflight_messages": figures.inflight,
            "outbox_bytes": figures.outbox_bytes,
            "retained_messages": figures.retained,
            "retained_bytes": figures.retained_bytes,
            "oldest_unacknowledged_s": figures.oldest_unacknowledged_s,
        },
        "totals": {
            "messages_received": totals.messages_received,
            "messages_sent": totals.messages_sent,
            "bytes_received": totals.bytes_received,
            "bytes_sent": totals.bytes_sent,
            "connections_opened": figures.opened,
            "connects": sum(figures.connected.values()),
            "disconnects": sum(figures.disconnected.values()),
            "refused": sum(figures.refused.values()),
        },
        "interval_s": round(figures.interval_s, 3),
        "rates": {name: round(growth / figures.interval_s, 3) for name, growth in figures.grown.items()},
        "drops": totals.drops,
        "disconnects": figures.disconnected,
        "loop_lag_s": figures.recent_lag,
        "store": {
            "commits": figures.commits.messages,
            "failures": figures.commit_failures,
            "failing": figures.store_failing,
            "p99_s": figures.commits.at_most(0.99) / 1e6,
        },
        "latency_s": {
            stage: {"p50": histogram.at_most(0.5) / 1e6, "p99": histogram.at_most(0.99) / 1e6}
            for stage, histogram in figures.latency.items()
            if histogram.messages
        },
        "telemetry": {
            table: {"written": rows, "dropped": figures.rows_dropped.get(table, 0)}
            for table, rows in figures.rows_written.items()
        },
        "top": figures.rankings,
    }
    return msgspec.json.encode(document)
