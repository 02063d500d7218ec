"""Which reports there are, in the order of the page. To add one: write `reports/<name>.py` and name it here.

Invariant: no two tables have the same name.
"""

from __future__ import annotations

from typing import Final

from spark_analytics.reports import backpressure, capacity, devices, dropped, latency, overview, sessions, topics
from spark_analytics.tables import ReportModule

REPORTS: Final[tuple[ReportModule, ...]] = (
    overview,
    sessions,
    devices,
    topics,
    latency,
    backpressure,
    dropped,
    capacity,
)
