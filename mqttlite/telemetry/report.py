"""The state of a running broker at one moment, for `/metrics` and `/status`.

Invariant: it contains plain values; formatting them does not access the broker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mqttlite.telemetry.figures import Figure, Values
from mqttlite.telemetry.histograms import Histogram
from mqttlite.telemetry.snapshot import Snapshot


class RowCounts(Protocol):
    """How many rows a dataset wrote and dropped, by table."""

    @property
    def written_rows(self) -> Mapping[str, int]: ...
    @property
    def dropped_rows(self) -> Mapping[str, int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """The version and build of the broker."""

    version: str
    compiled: bool
    python: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerState:
    """One listener."""

    name: str
    transport: str
    addresses: list[str]
    connections: int
    """Open now, also those that are not through their handshake yet."""
    turned_away: int
    half_open_closed: int
    failed_handshakes: int
    throttled: Mapping[str, int]
    """How often a client exceeded a quota, by scope: client, user, listener, broker; `disconnect` counts ended
    connections."""
    limited: Mapping[str, int]
    """Connections refused by a limit on connecting, by limit."""
    tls_files_end_at: Mapping[str, float]
    """When its certificate, authorities and list of revoked certificates are out of date, in seconds since 1970, by
    option; empty without TLS."""

    @property
    def certificate_ends_at(self) -> float | None:
        """When the first certificate of its chain is out of date; None without TLS."""
        return self.tls_files_end_at.get("cert_file")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpFigures:
    """The totals of the gateway."""

    requests: Mapping[tuple[str, int], int]
    """By group of paths and status."""
    connections: int
    """Open now."""
    turned_away: int
    received_bytes: int
    sent_bytes: int
    slow_readers_cut: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Names that end in `_s` are seconds, `_at` seconds since 1970. Counters are since the start."""

    build: Build
    broker_id: str
    uptime_s: float
    not_ready: str
    """A sentence; empty for a broker that is ready."""

    snapshot: Snapshot
    listeners: list[ListenerState]

    lag: Histogram
    recent_lag: Mapping[str, float]
    commits: Histogram
    commit_failures: int
    store_failing: bool
    memory_short: bool
    log_lines_dropped: int = 0
    rows_written: Mapping[str, int] = field(default_factory=dict)
    """By table of the telemetry dataset."""
    rows_dropped: Mapping[str, int] = field(default_factory=dict)
    latency: Mapping[str, Histogram] = field(default_factory=dict)
    """By stage, of the messages that were traced."""
    hook_failures: Mapping[str, int] = field(default_factory=dict)
    """How often hooks raised or were late, by their names."""
    figures: Sequence[tuple[Figure, Values]] = ()
    """Those of extensions."""
    http: HttpFigures | None = None
    """None without a gateway."""
    oldest_unacknowledged_s: float | None = None
    """None where no message is traced."""
