"""A report in the text format of Prometheus. docs/reference/metrics.md lists the metrics; a test compares.

Invariant: clients cannot choose label values, and so cannot fill up Prometheus. The exception are names of queues,
which `MAX_REPORTED` bounds.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from mqttlite.telemetry.figures import Figure, Values
from mqttlite.telemetry.histograms import Histogram, bounds_of
from mqttlite.telemetry.queue_figures import MAX_REPORTED
from mqttlite.telemetry.report import Report

if sys.platform != "win32":
    import resource

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

BOUNDS_US: Final = tuple(1 << exponent for exponent in range(4, 26))
"""Upper bounds of the buckets, from 16 µs to 34 s, each twice the one before. They coincide with bounds of our own
buckets, so that counts are exact."""

PIECE: Final = 30
"""Samples that are formatted in one loop iteration: less than half a millisecond."""

_Labels = Mapping[str, str]
_Values = Sequence[tuple[_Labels, float]]


def exposition(report: Report) -> Iterator[bytes]:
    """All metrics in the text format of Prometheus, in pieces, so that the loop can continue in between."""
    for family in families(report):
        for start in range(0, max(1, len(family.samples)), PIECE):
            part = Metric(family.name, family.documentation, family.type)
            part.samples = family.samples[start : start + PIECE]
            text = generate_latest(_One(part))
            yield text if start == 0 else text.split(b"\n", 2)[2]  # help and type stand before the first piece


class _One(Collector):
    def __init__(self, family: Metric) -> None:
        self._family: Final = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


def families(report: Report) -> Iterator[Metric]:
    """Each metric."""
    build = report.build
    yield _gauge(
        "mqttlite_build_info",
        "What runs: always 1.",
        [({"version": build.version, "compiled": str(build.compiled).lower(), "python": build.python}, 1)],
    )
    yield _gauge("mqttlite_uptime_seconds", "Time since the broker started.", report.uptime_s)
    yield _gauge("mqttlite_ready", "1 while clients may come in, 0 while it starts or stops.", not report.not_ready)
    yield from _messages(report)
    yield from _connections(report)
    yield from _held(report)
    for figure, values in report.figures:
        yield _of_extension(figure, values)
    yield from _queues(report)
    yield from _http(report)
    yield from _timing(report)
    yield from _telemetry(report)
    yield from _process()


def _messages(report: Report) -> Iterator[Metric]:
    totals = report.snapshot.totals
    received = totals.received_qos0, totals.received_qos1, totals.received_qos2
    sent = totals.sent_qos0, totals.sent_qos1, totals.sent_qos2
    yield _counter(
        "mqttlite_messages_received",
        "PUBLISH packets from clients.",
        [({"qos": str(qos)}, count) for qos, count in enumerate(received)],
    )
    yield _counter(
        "mqttlite_messages_sent",
        "PUBLISH packets to clients, resends included.",
        [({"qos": str(qos)}, count) for qos, count in enumerate(sent)],
    )
    yield _counter(
        "mqttlite_messages_dropped",
        "Messages that a client did not get, or that met none, by reason.",
        _by("reason", totals.drops),
    )
    yield _counter(
        "mqttlite_denied",
        "Messages, or topic filters, that the rules did not allow, by action.",
        _by("action", report.snapshot.denied),
    )
    if report.hook_failures:
        yield _counter(
            "mqttlite_hook_failures", "How often a hook raised or was late.", _by("hook", report.hook_failures)
        )
    yield _counter(
        "mqttlite_messages_filtered",
        "Messages that the filter of a subscription kept from its client; none of them is lost.",
        report.snapshot.filtered,
    )
    yield _counter("mqttlite_received_bytes", "MQTT bytes from clients.", totals.bytes_received)
    yield _counter("mqttlite_sent_bytes", "MQTT bytes to clients.", totals.bytes_sent)
    yield _counter(
        "mqttlite_publish_received_bytes",
        "Bytes of PUBLISH packets from clients, about.",
        totals.publish_bytes_received,
    )
    yield _counter(
        "mqttlite_publish_sent_bytes", "Bytes of PUBLISH packets to clients, about.", totals.publish_bytes_sent
    )


def _connections(report: Report) -> Iterator[Metric]:
    snapshot = report.snapshot
    yield _gauge(
        "mqttlite_connections",
        "Open connections; their protocol is none until their CONNECT has come.",
        [(_kind(*kind), count) for kind, count in sorted(snapshot.connections.items())],
    )
    yield _counter("mqttlite_connections_opened", "Connections that were ever opened.", snapshot.opened)
    yield _counter(
        "mqttlite_connects",
        "Clients that were accepted.",
        [(_kind(*kind), count) for kind, count in sorted(snapshot.connected.items())],
    )
    yield _counter(
        "mqttlite_disconnects",
        "Accepted connections that ended, by close reason.",
        _by("reason", snapshot.disconnected),
    )
    yield _counter(
        "mqttlite_connections_refused",
        "Connections that ended before they were accepted, by close reason.",
        [
            ({"listener": listener, "reason": reason}, count)
            for (listener, reason), count in sorted(snapshot.refused.items())
        ],
    )
    yield _counter(
        "mqttlite_logins_jailed",
        "Addresses, and user names and client ids of an address, that failed to log in too often.",
        _by("kind", snapshot.jailed),
    )
    yield _counter(
        "mqttlite_logins_refused_in_jail",
        "Logins refused without a check, for too many had failed.",
        snapshot.refused_in_jail,
    )
    yield _counter(
        "mqttlite_connections_turned_away",
        "Connections closed at once, for there were max_connections, or no open files left for it.",
        [({"listener": each.name}, each.turned_away) for each in report.listeners],
    )
    yield _counter(
        "mqttlite_connects_limited",
        "Connections refused because somebody connects too often or has too many, by the limit.",
        [
            ({"listener": each.name, "limit": limit}, count)
            for each in report.listeners
            for limit, count in sorted(each.limited.items())
        ],
    )
    yield _counter(
        "mqttlite_rate_limited",
        "Times a client was not read, or was disconnected, because it was over a quota.",
        [
            ({"listener": each.name, "quota": quota}, count)
            for each in report.listeners
            for quota, count in sorted(each.throttled.items())
        ],
    )
    yield _counter(
        "mqttlite_quota_refusals",
        "Subscriptions refused, and messages dropped, because a quota was used up.",
        [({"quota": quota}, count) for quota, count in sorted(snapshot.quota_refusals.items())],
    )
    yield _counter(
        "mqttlite_half_open_connections_closed",
        "Connections closed before their CONNECT came, to make room for others.",
        [({"listener": each.name}, each.half_open_closed) for each in report.listeners],
    )
    yield _counter(
        "mqttlite_handshakes_failed",
        "Handshakes of TLS, and headers of proxies, that failed.",
        [({"listener": each.name}, each.failed_handshakes) for each in report.listeners],
    )
    yield _gauge(
        "mqttlite_tls_certificate_not_after_timestamp_seconds",
        "When a file of a listener's TLS is out of date, in seconds since 1970.",
        [
            ({"listener": each.name, "file": option}, ends_at)
            for each in report.listeners
            for option, ends_at in each.tls_files_end_at.items()
        ],
    )


def _held(report: Report) -> Iterator[Metric]:
    snapshot = report.snapshot
    yield _gauge(
        "mqttlite_sessions",
        "Sessions, with their client connected or away.",
        [({"state": "connected"}, snapshot.online), ({"state": "away"}, snapshot.sessions - snapshot.online)],
    )
    yield _counter(
        "mqttlite_sessions_expired", "Sessions that ended while their client was away.", snapshot.sessions_expired
    )
    yield _gauge(
        "mqttlite_subscriptions",
        "Subscriptions of all sessions.",
        [({"kind": "plain"}, snapshot.subscriptions), ({"kind": "shared"}, snapshot.shared_subscriptions)],
    )
    yield _gauge("mqttlite_retained_messages", "Retained messages.", snapshot.retained)
    yield _gauge("mqttlite_retained_bytes", "What they take in memory.", snapshot.retained_bytes)
    yield _gauge("mqttlite_queued_messages", "Messages that wait in sessions' queues.", snapshot.queued)
    yield _gauge("mqttlite_queued_bytes", "What they take in memory, or would.", snapshot.queued_bytes)
    yield _gauge(
        "mqttlite_inflight_messages",
        "QoS 1 and 2 messages to clients that are not acknowledged to the end.",
        snapshot.inflight,
    )
    yield _gauge("mqttlite_outbox_bytes", "Bytes that wait for clients whose sockets take none.", snapshot.outbox_bytes)
    yield _gauge("mqttlite_memory_bytes", "What is held in memory for clients, as accounted.", snapshot.memory_bytes)
    yield _gauge("mqttlite_memory_limit_bytes", "The limit of that (`max_memory_bytes`).", snapshot.memory_limit_bytes)
    yield _gauge(
        "mqttlite_memory_short", "1 while more than seven eighths of that are used, else 0.", report.memory_short
    )
    yield _counter(
        "mqttlite_memory_shed",
        "Times a client lost the QoS 0 messages that waited for it, for memory was short and it held most.",
        snapshot.sheds,
    )
    yield _gauge(
        "mqttlite_overload_stage",
        "What is done about an overload, from 0 (nothing) to 4 (connections are refused).",
        snapshot.overload_stage,
    )
    yield _gauge(
        "mqttlite_overload_load", "How loaded the broker is; with 1 it does all of that.", snapshot.overload_load
    )
    yield _gauge("mqttlite_connections_slowed", "Connections not read now, for the overload.", snapshot.slowed)
    yield _counter("mqttlite_overload_slowed", "Times a client was not read for the overload.", snapshot.slowed_ever)
    yield _counter("mqttlite_messages_held_back", "Messages that waited for a full receiver.", snapshot.held_back)
    yield _counter(
        "mqttlite_overload_connects_refused", "Connections refused for the overload.", snapshot.connects_shed
    )
    yield _gauge("mqttlite_connections_over_quota", "Connections not read now, for a quota.", snapshot.over_quota)
    yield _gauge("mqttlite_connections_blocked", "Connections whose sockets take no bytes for now.", snapshot.blocked)
    if report.oldest_unacknowledged_s is not None:
        yield _gauge(
            "mqttlite_oldest_unacknowledged_seconds",
            "For how long the oldest of the traced messages that are not acknowledged has been with its client.",
            report.oldest_unacknowledged_s,
        )


def _queues(report: Report) -> Iterator[Metric]:
    queues = report.queues[:MAX_REPORTED]

    def each(field: str) -> _Values:
        return [({"queue": queue.name}, getattr(queue, field)) for queue in queues]

    yield _gauge("mqttlite_queue_depth", "Messages in a queue that have not come to their end.", each("depth"))
    yield _gauge("mqttlite_queue_leased", "Those that consumers have.", each("leased"))
    yield _gauge("mqttlite_queue_scheduled", "Those that wait for their next attempt.", each("scheduled"))
    yield _gauge("mqttlite_queue_lag", "Those that no consumer has: depth without leased.", each("lag"))
    yield _gauge(
        "mqttlite_queue_growth_per_second",
        "Messages that came less those that came to their end, over about a minute.",
        each("growth_per_s"),
    )
    yield _gauge("mqttlite_queue_oldest_seconds", "How long ago the oldest was published.", each("oldest_age_s"))
    yield _gauge("mqttlite_queue_consumers", "Connected consumers.", each("consumers"))
    yield _gauge("mqttlite_queue_dead_letters", "Dead letters that are kept.", each("dead_letters"))
    yield _counter("mqttlite_queue_published", "Messages that the queue took.", each("published"))
    yield _counter(
        "mqttlite_queue_refused",
        "Messages that it did not take: it had no room, or their topic is ephemeral.",
        each("refused"),
    )
    yield _counter("mqttlite_queue_filtered", "Messages that did not pass its filter.", each("filtered"))
    yield _gauge("mqttlite_queue_retained", "Messages that ended and are kept for a seek.", each("retained"))
    yield _gauge("mqttlite_queue_snapshots", "Snapshots that are kept.", each("snapshots"))
    yield _counter("mqttlite_queue_returned", "Ended messages that a seek had wait again.", each("returned"))
    yield _counter("mqttlite_queue_attempts", "Deliveries to consumers.", each("attempts"))
    yield _counter("mqttlite_queue_redeliveries", "Those that were not the first of a message.", each("redeliveries"))
    yield _counter(
        "mqttlite_queue_nacked_late",
        "Refusals by $nack that changed nothing, because the message was acknowledged or had ended.",
        each("nacked_late"),
    )
    yield _counter(
        "mqttlite_dead_letters",
        "Messages that became dead letters, by cause.",
        [
            ({"queue": queue.name, "cause": cause}, count)
            for queue in queues
            for cause, count in queue.dead_letter_causes.items()
        ],
    )
    yield _counter(
        "mqttlite_queue_ended",
        "Messages that came to their end, by end.",
        [({"queue": queue.name, "end": end}, count) for queue in queues for end, count in queue.ends.items()],
    )
    yield _counter(
        "mqttlite_queue_failures",
        "Attempts that failed, by cause.",
        [({"queue": queue.name, "cause": cause}, count) for queue in queues for cause, count in queue.failures.items()],
    )


def _http(report: Report) -> Iterator[Metric]:
    http = report.http
    if http is None:
        return
    yield _gauge("mqttlite_http_connections", "Connections to the gateway.", http.connections)
    yield _counter(
        "mqttlite_http_connections_turned_away",
        "Connections closed at once, for as many as may be were open.",
        http.turned_away,
    )
    yield _counter(
        "mqttlite_http_requests",
        "Requests that were answered, by group of paths and status.",
        [({"group": group, "status": str(status)}, count) for (group, status), count in sorted(http.requests.items())],
    )
    yield _counter("mqttlite_http_received_bytes", "Bytes from clients of the gateway.", http.received_bytes)
    yield _counter("mqttlite_http_sent_bytes", "Bytes of bodies, events and messages to them.", http.sent_bytes)
    yield _counter(
        "mqttlite_http_slow_readers_cut",
        "Connections that ended because the client took nothing for a minute.",
        http.slow_readers_cut,
    )


def _timing(report: Report) -> Iterator[Metric]:
    yield _histogram(
        "mqttlite_event_loop_lag_seconds",
        "How late the event loop came to a timer, looked at ten times a second.",
        [({}, report.lag)],
    )
    yield _gauge(
        "mqttlite_event_loop_lag_max_seconds",
        "The largest of these in the last minute; a second or more is a standstill of the process.",
        report.recent_lag["max"],
    )
    yield _histogram(
        "mqttlite_store_commit_duration_seconds",
        "How long a commit took to be durable (fsync where the store has one).",
        [({}, report.commits)],
    )
    yield _counter(
        "mqttlite_store_commit_failures", "Commits that failed; each is tried again.", report.commit_failures
    )
    yield _gauge("mqttlite_store_failing", "1 while the latest commit failed, else 0.", report.store_failing)
    if report.latency:
        yield _histogram(
            "mqttlite_message_latency_seconds",
            "How long traced messages took in each stage.",
            [({"stage": stage}, histogram) for stage, histogram in report.latency.items()],
        )


def _telemetry(report: Report) -> Iterator[Metric]:
    yield _counter(
        "mqttlite_log_lines_dropped",
        "Lines of the log that were dropped, for nobody read them in time.",
        report.log_lines_dropped,
    )
    if report.rows_written:
        yield _counter(
            "mqttlite_telemetry_rows_written",
            "Rows of the dataset that are in files.",
            [({"table": table}, rows) for table, rows in report.rows_written.items()],
        )
        yield _counter(
            "mqttlite_telemetry_rows_dropped",
            "Rows of the dataset that were dropped, for the disk was too slow or failed.",
            [({"table": table}, rows) for table, rows in report.rows_dropped.items()],
        )


def _process() -> Iterator[Metric]:
    """The metrics of prometheus-client's process collector, under the same names.

    That collector lists /proc/self/fd, which holds up the loop for 23 ms with 20 000 clients; we ask the kernel for the
    number of files, which Linux knows from 6.2 on.
    """
    yield _counter("process_cpu_seconds", "Total user and system CPU time spent in seconds.", time.process_time())
    if sys.platform != "linux":
        return
    page = os.sysconf("SC_PAGE_SIZE")
    try:
        virtual, resident = Path("/proc/self/statm").read_bytes().split()[:2]
        begun_ticks = int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19])
    except OSError:  # clients have all files that may be open; the other metrics matter all the more
        return
    yield _gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", int(virtual) * page)
    yield _gauge("process_resident_memory_bytes", "Resident memory size in bytes.", int(resident) * page)
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - begun_ticks / os.sysconf("SC_CLK_TCK")
    yield _gauge(
        "process_start_time_seconds", "Start time of the process since unix epoch in seconds.", time.time() - age_s
    )
    yield _gauge(
        "process_max_fds",
        "Maximum number of open file descriptors.",
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )
    files = os.stat("/proc/self/fd").st_size
    if files:
        yield _gauge("process_open_fds", "Number of open file descriptors.", files)


def _of_extension(figure: Figure, values: Values) -> Metric:
    name = f"mqttlite_{figure.name}"
    if isinstance(values, Histogram):
        return _histogram(name, figure.documentation, [({}, values)])
    return (_gauge if figure.kind == "gauge" else _counter)(name, figure.documentation, values)


def _by(label: str, counts: Mapping[str, float]) -> _Values:
    """A value for each name, in the order of the names."""
    return [({label: name}, count) for name, count in sorted(counts.items())]


def _kind(listener: str, transport: str, protocol: str) -> _Labels:
    return {"listener": listener, "transport": transport, "protocol": protocol}


def _gauge(name: str, documentation: str, values: _Values | float) -> Metric:
    return _with_values(GaugeMetricFamily, name, documentation, values)


def _counter(name: str, documentation: str, values: _Values | float) -> Metric:
    """The library puts `_total` behind the name."""
    return _with_values(CounterMetricFamily, name, documentation, values)


def _with_values(
    kind: type[GaugeMetricFamily | CounterMetricFamily], name: str, documentation: str, values: _Values | float
) -> Metric:
    """A metric with values by their labels, or with one value that has none."""
    if isinstance(values, int | float):
        values = [({}, float(values))]
    family = kind(name, documentation, labels=_names(values))
    for labels, value in values:
        family.add_metric([*labels.values()], value)
    return family


def _histogram(name: str, documentation: str, values: Sequence[tuple[_Labels, Histogram]]) -> Metric:
    family = HistogramMetricFamily(name, documentation, labels=_names(values))
    for labels, histogram in values:
        family.add_metric(
            [*labels.values()],
            buckets=[(_bound(bound), count) for bound, count in cumulative(histogram)],
            sum_value=histogram.sum_us / 1e6,
        )
    return family


def _names(values: Sequence[tuple[_Labels, object]]) -> list[str]:
    return [*values[0][0]] if values else []


def cumulative(histogram: Histogram) -> list[tuple[int | None, float]]:
    """How many durations are within each of `BOUNDS_US`; None stands for all."""
    ordered = sorted(histogram.counts.items())
    found: list[tuple[int | None, float]] = []
    within = at = 0
    for bound in BOUNDS_US:
        while at < len(ordered) and bounds_of(ordered[at][0])[1] <= bound:
            within += ordered[at][1]
            at += 1
        found.append((bound, within))
    return [*found, (None, histogram.messages)]


def _bound(microseconds: int | None) -> str:
    return "+Inf" if microseconds is None else repr(microseconds / 1e6)
