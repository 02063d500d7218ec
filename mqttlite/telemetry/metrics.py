"""A report in the text format of Prometheus. docs/reference/metrics.md lists the metrics; a test compares.

Invariant: clients cannot choose label values, and so cannot fill up Prometheus. The exception are names of queues,
which `MAX_REPORTED` bounds.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

from mqttlite.telemetry.broker_figures import of_report
from mqttlite.telemetry.figures import Figure, Values
from mqttlite.telemetry.histograms import Histogram, bounds_of
from mqttlite.telemetry.report import Report

if sys.platform != "win32":
    import resource

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

BOUNDS_US: Final = tuple(1 << exponent for exponent in range(4, 26))
"""Upper bounds of the buckets, from 16 µs to 34 s, each twice the one before. They coincide with bounds of our own
buckets, so that counts are exact."""

PIECE: Final = 30
"""Samples that are formatted in one loop iteration: less than half a millisecond."""


def exposition(report: Report) -> Iterator[bytes]:
    """All metrics in the text format of Prometheus, in pieces, so that the loop can continue in between."""
    return exposition_of(of_report(report))


def exposition_of(figures: Iterable[tuple[Figure, Values]]) -> Iterator[bytes]:
    """Figures, and what is known of the process, as `exposition` has them."""
    for family in families(figures):
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


def families(figures: Iterable[tuple[Figure, Values]]) -> Iterator[Metric]:
    """Each metric."""
    for figure, values in figures:
        yield _family(f"mqttlite_{figure.name}", figure, values)
    for figure, value in _process():
        yield _family(f"process_{figure.name}", figure, value)


def _process() -> Iterator[tuple[Figure, float]]:
    """The metrics of prometheus-client's process collector, under the same names.

    That collector lists /proc/self/fd, which holds up the loop for 23 ms with 20 000 clients; we ask the kernel for the
    number of files, which Linux knows from 6.2 on.
    """
    yield Figure("counter", "cpu_seconds", "Total user and system CPU time spent in seconds."), time.process_time()
    if sys.platform != "linux":
        return
    page = os.sysconf("SC_PAGE_SIZE")
    try:
        virtual, resident = Path("/proc/self/statm").read_bytes().split()[:2]
        begun_ticks = int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19])
    except OSError:  # clients have all files that may be open; the other metrics matter all the more
        return
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - begun_ticks / os.sysconf("SC_CLK_TCK")
    gauges = {
        "virtual_memory_bytes": ("Virtual memory size in bytes.", int(virtual) * page),
        "resident_memory_bytes": ("Resident memory size in bytes.", int(resident) * page),
        "start_time_seconds": ("Start time of the process since unix epoch in seconds.", time.time() - age_s),
        "max_fds": ("Maximum number of open file descriptors.", resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        "open_fds": ("Number of open file descriptors.", os.stat("/proc/self/fd").st_size),
    }
    for name, (documentation, value) in gauges.items():
        if value or name != "open_fds":
            yield Figure("gauge", name, documentation), value


def _family(name: str, figure: Figure, values: Values) -> Metric:
    """A metric. The library puts `_total` behind the name of a counter."""
    series: Sequence[tuple[Mapping[str, str], float | Histogram]]
    series = values if isinstance(values, Sequence) else [({}, values)]
    labels = [*series[0][0]] if series else []
    if figure.kind == "histogram":
        durations = HistogramMetricFamily(name, figure.documentation, labels=labels)
        for names, histogram in series:
            assert isinstance(histogram, Histogram), "that is what it is a figure of"
            buckets = [(_bound(bound), count) for bound, count in cumulative(histogram)]
            durations.add_metric([*names.values()], buckets=buckets, sum_value=histogram.sum_us / 1e6)
        return durations
    kind = GaugeMetricFamily if figure.kind == "gauge" else CounterMetricFamily
    family = kind(name, figure.documentation, labels=labels)
    for names, value in series:
        assert isinstance(value, int | float), "durations have a kind of their own"
        family.add_metric([*names.values()], float(value))
    return family


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
