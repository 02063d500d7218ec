"""Creates reports on the running broker, for the metrics port and the dashboard.

Invariant: at most one snapshot is under way, for any number of callers, and it works in slices; without callers nothing
is done.
"""

import platform
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from mqttlite.build import VERSION, is_compiled
from mqttlite.event_hub import MEMORY_SHORT, STORE_FAILING
from mqttlite.event_hub import Listener as EventListener
from mqttlite.net.listeners import Listener
from mqttlite.operations.certificate_watch import CertificateWatch
from mqttlite.telemetry.answers import Answers
from mqttlite.telemetry.extension_figures import ExtensionFigures
from mqttlite.telemetry.following import Following
from mqttlite.telemetry.histograms import Histogram
from mqttlite.telemetry.log import lines_dropped
from mqttlite.telemetry.report import Build, HttpFigures, ListenerState, Report, RowCounts
from mqttlite.telemetry.snapshot import Snapshot, Snapshots
from mqttlite.telemetry.timing import LoopLag, TimedStore

FRESH_S: Final = 0.5
"""A younger snapshot is reused, so that many callers cost no more than one."""

_NOT_READY: Final = {STORE_FAILING: "the store fails, and what is to be kept waits until it recovers"}
"""Alarms during which the broker is not ready, in words."""


class Reports(EventListener):
    """One for each run. `not_ready` returns a sentence that says why no clients may connect, or an empty text."""

    def __init__(
        self,
        snapshots: Snapshots,
        listeners: list[Listener],
        certificates: CertificateWatch,
        store: TimedStore,
        lag: LoopLag,
        *,
        following: Following,
        broker_id: str,
        not_ready: Callable[[], str],
    ) -> None:
        self.answers: Callable[[], Answers | None] = lambda: None
        """Says why messages were not delivered; None where nothing is traced."""
        self.following: Final = following
        """Traces filters at run time."""
        self.latency: Callable[[], Mapping[str, Histogram]] = dict
        """By stage, of the messages that were traced since the start."""
        self.oldest_unacknowledged_s: Callable[[], float] | None = None
        self.dataset: RowCounts | None = None
        """None where no telemetry is written."""
        self.hook_failures: Callable[[], Mapping[str, int]] = dict
        """How often each hook raised or was late."""
        self.http: Callable[[], HttpFigures] | None = None
        """None without a gateway."""
        self.alarms: Final[dict[str, str]] = {}
        """Those that are active, and what was said of each."""
        self.alarms_since: Final[dict[str, datetime]] = {}
        """When they began."""
        self.of_extensions: Final = ExtensionFigures()
        self._snapshots: Final = snapshots
        self._listeners: Final = listeners
        self._store: Final = store
        self._lag: Final = lag
        self._broker_id: Final = broker_id
        self._not_ready: Final = not_ready
        self._certificates: Final = certificates
        self._build: Final = Build(version=VERSION, compiled=is_compiled(), python=platform.python_version())
        self._started_at: Final = time.monotonic()
        self._latest: Report | None = None

    def on_alarm(self, alarm: str, active: bool, detail: str) -> None:
        if active:
            self.alarms_since.setdefault(alarm, datetime.now(UTC))
            self.alarms[alarm] = detail
        else:
            self.alarms.pop(alarm, None)
            self.alarms_since.pop(alarm, None)

    async def latest(self, max_age_s: float | None = None) -> Report:
        """The state of the broker, not older than that, or than `FRESH_S`."""
        snapshot = await self._snapshots.take(FRESH_S if max_age_s is None else max_age_s)
        if self._latest is None or self._latest.snapshot is not snapshot:
            self._latest = self._make(snapshot)
        return self._latest

    def not_ready(self) -> str:
        """Why the broker is not ready, as a sentence; empty if it is."""
        reason = self._not_ready()
        for alarm in self.alarms:
            reason = reason or _NOT_READY.get(alarm, "")
        return reason

    def _make(self, snapshot: Snapshot) -> Report:
        tls_files = self._certificates.ends_at()
        return Report(
            build=self._build,
            broker_id=self._broker_id,
            uptime_s=time.monotonic() - self._started_at,
            not_ready=self.not_ready(),
            snapshot=snapshot,
            listeners=[
                ListenerState(
                    name=listener.name,
                    transport=listener.transport,
                    addresses=listener.addresses,
                    connections=listener.open,
                    turned_away=listener.turned_away,
                    limited=dict(listener.limited),
                    throttled=dict(listener.throttled),
                    half_open_closed=listener.half_open_closed,
                    failed_handshakes=listener.failed_handshakes,
                    tls_files_end_at=tls_files.get(listener.name, {}),
                )
                for listener in self._listeners
            ],
            lag=self._lag.histogram,
            recent_lag=self._lag.recent(),
            commits=self._store.histogram,
            commit_failures=self._store.failures,
            store_failing=STORE_FAILING in self.alarms,
            memory_short=MEMORY_SHORT in self.alarms,
            rows_written={} if self.dataset is None else dict(self.dataset.written_rows),
            rows_dropped={} if self.dataset is None else self.dataset.dropped_rows,
            latency=self.latency(),
            log_lines_dropped=lines_dropped(),
            hook_failures=self.hook_failures(),
            http=None if self.http is None else self.http(),
            figures=list(self.of_extensions.values()),
            oldest_unacknowledged_s=None if self.oldest_unacknowledged_s is None else self.oldest_unacknowledged_s(),
        )
