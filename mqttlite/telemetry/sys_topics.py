"""Publishes the values of a snapshot as retained messages below `$SYS/broker/…`, with Mosquitto's names.

The core keeps clients from publishing here. Invariant: a counter never falls, and a retained value is published again
only when it changes.
"""

import asyncio
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from mqttlite import build
from mqttlite.core.reasons import BUFFER_FULL, QUEUE_FULL
from mqttlite.telemetry.broker_figures import of_snapshot
from mqttlite.telemetry.figures import Figure, Values, total
from mqttlite.telemetry.publish_queue import PublishQueue
from mqttlite.telemetry.snapshot import Snapshot, Snapshots

if sys.platform != "win32":
    import resource

_LOADS: Final = (
    ("messages/received", "messages/received"),
    ("messages/sent", "messages/sent"),
    ("publish/dropped", "publish/messages/dropped"),
    ("publish/received", "publish/messages/received"),
    ("publish/sent", "publish/messages/sent"),
    ("bytes/received", "bytes/received"),
    ("bytes/sent", "bytes/sent"),
    ("sockets", "connections/socket/count"),
    ("connections", "connects"),
)
"""Names below `load/`, and the counters whose growth they are."""

_MINUTES: Final = (1, 5, 15)

_NO_LEVEL: Final = str.maketrans("/+#\0", "____")
"""What a listener's name may have and a level of a topic name may not."""

_UNPUBLISHED: Final = "connects"


class SysOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often `$SYS` is published, and whether clients that connect and disconnect are announced."""

    interval_s: float = 10.0
    """The interval between updates. 0: no updates."""
    presence: bool = True
    """Whether connects and disconnects of clients are published."""
    publishers: tuple[str, ...] = ()
    """User names or client ids that may publish below `$SYS/analytics`. No other clients may."""
    bridges: bool | None = None
    """Whether clients may publish the state of a bridge (`$SYS/broker/connection/<name>/state`) where no rule says who
    may. Absent: if only this machine reaches the listeners."""

    def __post_init__(self) -> None:
        if self.interval_s != 0 and not 0.1 <= self.interval_s < math.inf:
            raise ValueError(f"interval_s is {self.interval_s:g}: 0.1 at least, and finite, or 0 for never")


class SysTopics:
    """Publishes a snapshot every `interval_s` seconds. `now` is the start in the broker's seconds. `certificates`
    returns when TLS files expire, in Unix time, by listener and option; `of_extensions` returns names and values of
    extensions."""

    def __init__(
        self,
        snapshots: Snapshots,
        queue: PublishQueue,
        interval_s: float,
        now: float,
        certificates: Callable[[], Mapping[str, Mapping[str, float]]] = dict,
        of_extensions: Callable[[], Iterable[tuple[str, str]]] = tuple,
    ) -> None:
        self._snapshots: Final = snapshots
        self._queue: Final = queue
        self._interval_s: Final = interval_s
        self._certificates: Final = certificates
        self._of_extensions: Final = of_extensions
        self._version: Final = f"mqttlite version {build.VERSION}"
        self._started_at: Final = now
        self._published_at = now
        self._counters: dict[str, float] = {}
        self._loads: Final = {name: [0.0] * len(_MINUTES) for name, _counter in _LOADS}
        self._published: Final[dict[str, str]] = {}

    async def run(self) -> None:
        """Publish every interval until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self.publish(await self._snapshots.take(), loop.time())
            await asyncio.sleep(self._interval_s)

    def publish(self, snapshot: Snapshot, now: float) -> None:
        """Publish what has changed since the last time."""
        previous, self._counters = self._counters, _counters(snapshot)
        self._put("version", self._version)
        self._put("uptime", f"{int(now - self._started_at)} seconds")
        for name, value in {**_gauges(snapshot), **self._counters}.items():
            if name != _UNPUBLISHED:
                self._put(name, str(value))
        for listener, ends_at in self._certificates().items():
            level = listener.translate(_NO_LEVEL)
            for option, seconds in ends_at.items():
                self._put(f"tls/{level}/{option}/expires_at", str(int(seconds)))
        for name, text in self._of_extensions():
            self._put(name, text)
        elapsed_s = now - self._published_at
        for name, counter in _LOADS:
            growth = self._counters[counter] - previous.get(counter, 0)
            averages = self._loads[name]
            for at, minutes in enumerate(_MINUTES):
                averages[at] = average(averages[at], growth, elapsed_s, minutes)
                self._put(f"load/{name}/{minutes}min", f"{averages[at]:.2f}")
        self._published_at = now

    def _put(self, name: str, value: str) -> None:
        if self._published.get(name) != value:
            self._published[name] = value
            self._queue.put(f"$SYS/broker/{name}".encode(), value.encode(), retain=True)


def _sums(figures: Iterable[tuple[Figure, Values]], kind: str) -> dict[str, float]:
    """The values of figures that have a topic here, by topic."""
    return {figure.sys_topic: total(values) for figure, values in figures if figure.sys_topic and figure.kind == kind}


def _counters(snapshot: Snapshot) -> dict[str, float]:
    totals = snapshot.totals
    drops = totals.drops
    return {
        **_sums(of_snapshot(snapshot), "counter"),
        "clients/maximum": snapshot.most_online,
        "connects": totals.connects,
        "quotas/held": snapshot.over_quota_ever,
        "messages/received": totals.packets_received,
        "messages/sent": totals.packets_sent,
        "publish/messages/dropped": drops.get(QUEUE_FULL, 0) + drops.get(BUFFER_FULL, 0),
        **{f"publish/messages/dropped/{reason}": messages for reason, messages in drops.items()},
    }


def _gauges(snapshot: Snapshot) -> dict[str, float]:
    offline = snapshot.sessions - snapshot.online
    stored = snapshot.retained + snapshot.queued
    return {
        **_sums(of_snapshot(snapshot), "gauge"),
        "clients/inactive": offline,
        "clients/disconnected": offline,
        "clients/active": snapshot.online,
        "clients/connected": snapshot.online,
        "messages/stored": stored,
        "store/messages/count": stored,
        "store/messages/bytes": snapshot.retained_bytes + snapshot.queued_bytes,
        "subscriptions/count": snapshot.subscriptions,
        "shared_subscriptions/count": snapshot.shared_subscriptions,
        "retained messages/count": snapshot.retained + snapshot.own_retained,
        "overload/load": round(100 * snapshot.overload_load),
        **_heap(),
    }


def average(former: float, growth: float, elapsed_s: float, minutes: int) -> float:
    """A moving average, per minute, over `minutes`, of what grew by `growth` in `elapsed_s` seconds."""
    if elapsed_s <= 0:
        return former
    per_minute = growth * 60 / elapsed_s
    return per_minute + math.exp(-elapsed_s / (60 * minutes)) * (former - per_minute)


def _heap() -> dict[str, int]:
    """The memory that the process holds, in bytes, as far as the system tells."""
    found: dict[str, int] = {}
    try:
        with open("/proc/self/statm", "rb") as statm:
            found["heap/current"] = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # only Linux has such a file
        pass
    if sys.platform != "win32":
        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        found["heap/maximum"] = max(peak, found.get("heap/current", 0))  # the kernel counts the two apart
    return found
