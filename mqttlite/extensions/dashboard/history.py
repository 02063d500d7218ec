"""Samples the figures of the overview while the gateway runs, so that its curves begin before a page is opened.

Invariant: it holds `POINTS` numbers of each figure, and uses at most `SHARE` of a processor.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mqttlite.operations.reports import Reports
from mqttlite.telemetry.snapshot import Snapshots
from mqttlite.telemetry.status import status

EVERY_S: Final = 10.0

POINTS: Final = 180
"""Half an hour."""

SHARE: Final = 0.007
"""Of one processor: with many clients a report takes longer, and samples are rarer."""

FIGURES: Final = (
    "rates.messages_received",
    "rates.messages_sent",
    "rates.bytes_received",
    "rates.bytes_sent",
    "clients.connected",
    "held.memory_bytes",
    "loop_lag_s.p99",
    "overload.load",
)
"""The paths of these figures in the status of the broker."""

DROPPED: Final = "dropped"
"""Messages that were dropped since the sample before."""


class History:
    """The samples of one run; each figure has as many."""

    def __init__(self) -> None:
        self._points: Final[Mapping[str, deque[float]]] = {name: deque(maxlen=POINTS) for name in (*FIGURES, DROPPED)}
        self._dropped: int | None = None

    def points(self) -> dict[str, list[float]]:
        """The samples by figure, the latest last."""
        return {name: list(points) for name, points in self._points.items()}

    def note(self, found: Mapping[str, Any]) -> None:
        """Add the figures of a status."""
        for path in FIGURES:
            section, _, name = path.partition(".")
            self._points[path].append(float(found[section][name] or 0))
        dropped = sum(found["drops"].values())
        self._points[DROPPED].append(0 if self._dropped is None else max(0, dropped - self._dropped))
        self._dropped = dropped

    async def run(self, reports: Reports, snapshots: Snapshots) -> None:
        """Sample until cancelled."""
        while True:
            self.note(msgspec.json.decode(status(await reports.latest(EVERY_S / 2))))
            await asyncio.sleep(max(EVERY_S, snapshots.cost_s / SHARE))
