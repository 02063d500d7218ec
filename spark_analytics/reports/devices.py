"""Devices in trouble."""

from __future__ import annotations

from typing import Final

from spark_analytics import units
from spark_analytics.frames import PROBLEM, Finding
from spark_analytics.reports.reconnects import duplicate_client_ids
from spark_analytics.tables import Chart, Table, Tables


def findings(tables: Tables) -> list[Finding]:
    """Who fights for a client id."""
    rows = tables["duplicate_client_ids"]
    number = rows.count()
    if not number:
        return []
    return [Finding(PROBLEM, f"{units.some(number, 'client id')} are used by several devices.", "duplicate_client_ids")]


TABLES: Final = (
    Table(
        "duplicate_client_ids",
        "Client ids that several devices use",
        "One row per client id for which connections fight: each takes the session over from the other, again and"
        " again. Give each device an id of its own.",
        lambda frames: duplicate_client_ids(frames.written["sessions"]),
        ("-takeovers", "client_id"),
        Chart("bars", "client_id", ("takeovers",), title="Takeovers by client id"),
        empty="No client id is used by two devices at a time.",
    ),
)
