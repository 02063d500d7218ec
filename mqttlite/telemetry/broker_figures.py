"""The figures of the broker itself: one table, from which the metrics port, `$SYS` and `/status` are made.

Figures of extensions are in their manifests, and those that the process has are in `metrics`. Invariant: a figure has
one name and one value, wherever it is shown.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from mqttlite.telemetry.figures import Figure, Labelled, Values
from mqttlite.telemetry.report import HttpFigures, ListenerState, Report
from mqttlite.telemetry.snapshot import Snapshot


def of_snapshot(snapshot: Snapshot) -> Iterator[tuple[Figure, Values]]:
    """The figures of what the core counts."""
    for figure, value in _OF_SNAPSHOT:
        yield figure, value(snapshot)


def of_report(report: Report) -> Iterator[tuple[Figure, Values]]:
    """All figures, those of extensions too."""
    for figure, value in _OF_REPORT:
        found = value(report)
        if found is not None:
            yield figure, found
    yield from of_snapshot(report.snapshot)
    yield from report.figures
    if report.http is not None:
        for figure, of_http in _OF_HTTP:
            yield figure, of_http(report.http)


def _gauge(name: str, documentation: str, sys_topic: str = "", *, is_held: bool = False) -> Figure:
    return Figure("gauge", name, documentation, sys_topic, is_held)


def _counter(name: str, documentation: str, sys_topic: str = "") -> Figure:
    return Figure("counter", name, documentation, sys_topic)


def _by(label: str, counts: Mapping[str, float]) -> Labelled:
    """A value for each name, in the order of the names."""
    return [({label: name}, count) for name, count in sorted(counts.items())]


def _by_qos(*counts: int) -> Labelled:
    return [({"qos": str(qos)}, count) for qos, count in enumerate(counts)]


def _by_kind(counts: Mapping[tuple[str, str, str], int]) -> Labelled:
    return [
        ({"listener": listener, "transport": transport, "protocol": protocol}, count)
        for (listener, transport, protocol), count in sorted(counts.items())
    ]


_OF_SNAPSHOT: Final[tuple[tuple[Figure, Callable[[Snapshot], Values]], ...]] = (
    # ── messages ──
    (
        _counter("messages_received", "PUBLISH packets from clients.", "publish/messages/received"),
        lambda s: _by_qos(s.totals.received_qos0, s.totals.received_qos1, s.totals.received_qos2),
    ),
    (
        _counter("messages_sent", "PUBLISH packets to clients, resends included.", "publish/messages/sent"),
        lambda s: _by_qos(s.totals.sent_qos0, s.totals.sent_qos1, s.totals.sent_qos2),
    ),
    (
        _counter("messages_dropped", "Messages that a client did not get, or that met none, by reason."),
        lambda s: _by("reason", s.totals.drops),
    ),
    (
        _counter("denied", "Messages, or topic filters, that the rules did not allow, by action."),
        lambda s: _by("action", s.denied),
    ),
    (
        _counter(
            "messages_filtered",
            "Messages that the filter of a subscription kept from its client; none of them is lost.",
        ),
        lambda s: s.filtered,
    ),
    (
        _counter("received_bytes", "MQTT bytes from clients.", "bytes/received"),
        lambda s: s.totals.bytes_received,
    ),
    (_counter("sent_bytes", "MQTT bytes to clients.", "bytes/sent"), lambda s: s.totals.bytes_sent),
    (
        _counter("publish_received_bytes", "Bytes of PUBLISH packets from clients, about.", "publish/bytes/received"),
        lambda s: s.totals.publish_bytes_received,
    ),
    (
        _counter("publish_sent_bytes", "Bytes of PUBLISH packets to clients, about.", "publish/bytes/sent"),
        lambda s: s.totals.publish_bytes_sent,
    ),
    # ── connections ──
    (
        _gauge("connections", "Open connections; their protocol is none until their CONNECT has come."),
        lambda s: _by_kind(s.connections),
    ),
    (
        _counter("connections_opened", "Connections that were ever opened.", "connections/socket/count"),
        lambda s: s.opened,
    ),
    (_counter("connects", "Clients that were accepted."), lambda s: _by_kind(s.connected)),
    (
        _counter("disconnects", "Accepted connections that ended, by close reason."),
        lambda s: _by("reason", s.disconnected),
    ),
    (
        _counter("connections_refused", "Connections that ended before they were accepted, by close reason."),
        lambda s: [
            ({"listener": listener, "reason": reason}, count) for (listener, reason), count in sorted(s.refused.items())
        ],
    ),
    (
        _counter(
            "logins_jailed",
            "Addresses, and user names and client ids of an address, that failed to log in too often.",
            "logins/jailed",
        ),
        lambda s: _by("kind", s.jailed),
    ),
    (
        _counter(
            "logins_refused_in_jail",
            "Logins refused without a check, for too many had failed.",
            "logins/refused in jail",
        ),
        lambda s: s.refused_in_jail,
    ),
    (
        _counter(
            "quota_refusals",
            "Subscriptions refused, and messages dropped, because a quota was used up.",
            "quotas/refused",
        ),
        lambda s: _by("quota", s.quota_refusals),
    ),
    # ── what is held ──
    (
        _gauge("sessions", "Sessions, with their client connected or away.", "clients/total"),
        lambda s: [({"state": "connected"}, s.online), ({"state": "away"}, s.sessions - s.online)],
    ),
    (
        _counter("sessions_expired", "Sessions that ended while their client was away.", "clients/expired"),
        lambda s: s.sessions_expired,
    ),
    (
        _gauge("subscriptions", "Subscriptions of all sessions."),
        lambda s: [({"kind": "plain"}, s.subscriptions), ({"kind": "shared"}, s.shared_subscriptions)],
    ),
    (_gauge("retained_messages", "Retained messages.", is_held=True), lambda s: s.retained),
    (_gauge("retained_bytes", "What they take in memory.", is_held=True), lambda s: s.retained_bytes),
    (_gauge("retained_tombstones", "Removals of retained messages that are remembered."), lambda s: s.tombstones),
    (
        _counter("retained_outdated", "Messages that were not retained because their topic had a newer one."),
        lambda s: s.retained_outdated,
    ),
    (_gauge("queued_messages", "Messages that wait in sessions' queues.", is_held=True), lambda s: s.queued),
    (_gauge("queued_bytes", "What they take in memory, or would.", is_held=True), lambda s: s.queued_bytes),
    (
        _gauge(
            "inflight_messages",
            "QoS 1 and 2 messages to clients that are not acknowledged to the end.",
            "messages/inflight",
            is_held=True,
        ),
        lambda s: s.inflight,
    ),
    (
        _gauge("outbox_bytes", "Bytes that wait for clients whose sockets take none.", is_held=True),
        lambda s: s.outbox_bytes,
    ),
    (
        _gauge("memory_bytes", "What is held in memory for clients, as accounted.", "memory/used", is_held=True),
        lambda s: s.memory_bytes,
    ),
    (
        _gauge("memory_limit_bytes", "The limit of that (`max_memory_bytes`).", "memory/limit", is_held=True),
        lambda s: s.memory_limit_bytes,
    ),
    (
        _counter(
            "memory_shed",
            "Times a client lost the QoS 0 messages that waited for it, for memory was short and it held most.",
            "memory/shed",
        ),
        lambda s: s.sheds,
    ),
    # ── load ──
    (
        _gauge(
            "overload_stage",
            "What is done about an overload, from 0 (nothing) to 4 (connections are refused).",
            "overload/stage",
        ),
        lambda s: s.overload_stage,
    ),
    (_gauge("overload_load", "How loaded the broker is; with 1 it does all of that."), lambda s: s.overload_load),
    (
        _gauge("connections_slowed", "Connections not read now, for the overload.", "overload/clients/slowed"),
        lambda s: s.slowed,
    ),
    (
        _counter("overload_slowed", "Times a client was not read for the overload.", "overload/slowed"),
        lambda s: s.slowed_ever,
    ),
    (_counter("messages_held_back", "Messages that waited for a full receiver."), lambda s: s.held_back),
    (
        _counter("overload_connects_refused", "Connections refused for the overload.", "overload/connects/refused"),
        lambda s: s.connects_shed,
    ),
    (
        _gauge("connections_over_quota", "Connections not read now, for a quota.", "quotas/clients/held"),
        lambda s: s.over_quota,
    ),
    (_gauge("connections_blocked", "Connections whose sockets take no bytes for now."), lambda s: s.blocked),
)


def _by_listener(value: Callable[[ListenerState], float]) -> Callable[[Report], Values]:
    return lambda report: [({"listener": each.name}, value(each)) for each in report.listeners]


def _by_listener_and(label: str, counts: Callable[[ListenerState], Mapping[str, float]]) -> Callable[[Report], Values]:
    return lambda report: [
        ({"listener": each.name, **labels}, count)
        for each in report.listeners
        for labels, count in _by(label, counts(each))
    ]


_OF_REPORT: Final[tuple[tuple[Figure, Callable[[Report], "Values | None"]], ...]] = (
    (
        _gauge("build_info", "What runs: always 1."),
        lambda r: [
            ({"version": r.build.version, "compiled": str(r.build.compiled).lower(), "python": r.build.python}, 1)
        ],
    ),
    (_gauge("uptime_seconds", "Time since the broker started."), lambda r: r.uptime_s),
    (_gauge("ready", "1 while clients may come in, 0 while it starts or stops."), lambda r: not r.not_ready),
    (
        _counter("hook_failures", "How often a hook raised or was late."),
        lambda r: _by("hook", r.hook_failures) or None,
    ),
    (
        _gauge("memory_short", "1 while more than seven eighths of that are used, else 0."),
        lambda r: r.memory_short,
    ),
    (
        _gauge(
            "oldest_unacknowledged_seconds",
            "For how long the oldest of the traced messages that are not acknowledged has been with its client.",
        ),
        lambda r: r.oldest_unacknowledged_s,
    ),
    # ── listeners ──
    (
        _counter(
            "connections_turned_away",
            "Connections closed at once, for there were max_connections, or no open files left for it.",
        ),
        _by_listener(lambda each: each.turned_away),
    ),
    (
        _counter(
            "connects_limited",
            "Connections refused because somebody connects too often or has too many, by the limit.",
        ),
        _by_listener_and("limit", lambda each: each.limited),
    ),
    (
        _counter("rate_limited", "Times a client was not read, or was disconnected, because it was over a quota."),
        _by_listener_and("quota", lambda each: each.throttled),
    ),
    (
        _counter(
            "half_open_connections_closed", "Connections closed before their CONNECT came, to make room for others."
        ),
        _by_listener(lambda each: each.half_open_closed),
    ),
    (
        _counter("handshakes_failed", "Handshakes of TLS, and headers of proxies, that failed."),
        _by_listener(lambda each: each.failed_handshakes),
    ),
    (
        _gauge(
            "tls_certificate_not_after_timestamp_seconds",
            "When a file of a listener's TLS is out of date, in seconds since 1970.",
        ),
        _by_listener_and("file", lambda each: each.tls_files_end_at),
    ),
    # ── timing ──
    (
        Figure(
            *("histogram", "event_loop_lag_seconds"),
            "How late the event loop came to a timer, looked at ten times a second.",
        ),
        lambda r: r.lag,
    ),
    (
        _gauge(
            "event_loop_lag_max_seconds",
            "The largest of these in the last minute; a second or more is a standstill of the process.",
        ),
        lambda r: r.recent_lag["max"],
    ),
    (
        Figure(
            *("histogram", "store_commit_duration_seconds"),
            "How long a commit took to be durable (fsync where the store has one).",
        ),
        lambda r: r.commits,
    ),
    (_counter("store_commit_failures", "Commits that failed; each is tried again."), lambda r: r.commit_failures),
    (_gauge("store_failing", "1 while the latest commit failed, else 0."), lambda r: r.store_failing),
    (
        Figure("histogram", "message_latency_seconds", "How long traced messages took in each stage."),
        lambda r: [({"stage": stage}, histogram) for stage, histogram in r.latency.items()] or None,
    ),
    # ── telemetry ──
    (
        _counter("log_lines_dropped", "Lines of the log that were dropped, for nobody read them in time."),
        lambda r: r.log_lines_dropped,
    ),
)


_OF_HTTP: Final[tuple[tuple[Figure, Callable[[HttpFigures], Values]], ...]] = (
    (_gauge("http_connections", "Connections to the gateway."), lambda http: http.connections),
    (
        _counter("http_connections_turned_away", "Connections closed at once, for as many as may be were open."),
        lambda http: http.turned_away,
    ),
    (
        _counter("http_requests", "Requests that were answered, by group of paths and status."),
        lambda http: [
            ({"group": group, "status": str(status)}, count) for (group, status), count in sorted(http.requests.items())
        ],
    ),
    (_counter("http_received_bytes", "Bytes from clients of the gateway."), lambda http: http.received_bytes),
    (
        _counter("http_sent_bytes", "Bytes of bodies, events and messages to them."),
        lambda http: http.sent_bytes,
    ),
    (
        _counter("http_slow_readers_cut", "Connections that ended because the client took nothing for a minute."),
        lambda http: http.slow_readers_cut,
    ),
)
