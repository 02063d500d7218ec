"""Which reports there are, in the order in which they are computed. To add one: write `reports/<name>.py`, name it
here, and its tables in `sections.py`.

Invariant: no two tables have the same name.
"""

from __future__ import annotations

from typing import Final

from spark_analytics.reports import (
    backpressure,
    capacity,
    clients,
    cluster,
    devices,
    dropped,
    latency,
    minutes,
    nodes,
    overview,
    queues,
    runs,
    sessions,
    streams,
    topics,
    trouble,
)
from spark_analytics.tables import ReportModule

REPORTS: Final[tuple[ReportModule, ...]] = (
    runs,
    cluster,
    nodes,
    overview,
    sessions,
    devices,
    dropped,
    backpressure,
    queues,
    streams,
    trouble,
    minutes,
    latency,
    topics,
    capacity,
    clients,
)
