"""All that is told of a running broker, at one moment: the source of `/metrics` and of `/status`.

Invariant: plain values, from which those two are made without a look at the broker.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mqttlite.telemetry.counters import Totals
from mqttlite.telemetry.histograms import Histogram
from mqttlite.telemetry.snapshot import Kind, Ranked


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What runs."""

    version: str
    compiled: bool
    python: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerFigures:
    """One listener."""

    name: str
    transport: str
    addresses: list[str]
    connections: int
    """Open now, also those that are not through their handshake yet."""
    turned_away: int
    half_open_closed: int
    failed_handshakes: int
    certificate_ends_at: float | None
    """When the first certificate of its chain is out of date, in seconds since 1970; None without TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """`_s` are seconds; what has `_at` is in seconds since 1970. Counters are since the start."""

    build: Build
    broker_id: str
    uptime_s: float
    not_ready: str
    """A sentence; empty for a broker that is ready."""

    totals: Totals
    opened: int
    """Connections."""
    sessions_expired: int
    connected: Mapping[Kind, int]
    disconnected: Mapping[str, int]
    refused: Mapping[tuple[str, str], int]

    listeners: list[ListenerFigures]
    connections: Mapping[Kind, int]
    blocked: int
    online: int
    sessions: int
    subscriptions: int
    shared_subscriptions: int
    retained: int
    retained_bytes: int
    queued: int
    queued_bytes: int
    inflight: int
    outbox_bytes: int
    rankings: Mapping[str, list[Ranked]]

    interval_s: float
    """How long ago the figures were that `moved` and the ranking by bytes are measured from."""
    grown: Mapping[str, int]
    """By how much some totals grew in that time."""

    lag: Histogram
    recent_lag: Mapping[str, float]
    commits: Histogram
    commit_failures: int
    store_failing: bool
    log_lines_dropped: int = 0
    rows_written: Mapping[str, int] = field(default_factory=dict)
    """By table of the telemetry dataset."""
    rows_dropped: Mapping[str, int] = field(default_factory=dict)
    latency: Mapping[str, Histogram] = field(default_factory=dict)
    """By stage, of the messages that were followed."""
    oldest_unacknowledged_s: float | None = None
    """None where no message is followed."""
