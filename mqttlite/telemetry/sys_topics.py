"""`$SYS`: what the broker says of itself, under the names that Mosquitto gave it, and of clients that come and go.

What there is to say is in `counters`; that nobody else publishes here is seen to in the core. Invariant: a counter
never falls, and a retained value is published again only when it changes.
"""

import asyncio
import math
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import msgspec

from mqttlite.core.broker import Broker
from mqttlite.core.connection import Connection
from mqttlite.core.reasons import BUFFER_FULL, QUEUE_FULL
from mqttlite.telemetry.counters import Survey, Totals
from mqttlite.wire.constants import MAX_STRING_BYTES, VERSION_NAMES

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

_UNPUBLISHED: Final = "connects"


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often the status is published, and whether the coming and going of clients is."""

    interval_s: float = 10.0
    """0: never."""
    presence: bool = True
    publishers: tuple[str, ...] = ()
    """User names, or client ids, that may publish below `$SYS/analytics`, where nobody else may."""

    def __post_init__(self) -> None:
        if self.interval_s != 0 and not 0.1 <= self.interval_s < math.inf:
            raise ValueError(f"interval_s is {self.interval_s:g}: 0.1 at least, and finite, or 0 for never")


class Status:
    """The retained topics. `connections` tells all connections that `on_closed` was not told of yet."""

    def __init__(
        self,
        core: Broker,
        connections: Callable[[], list[Connection]],
        wake: Callable[[], None],
        interval_s: float,
        now: float,
    ) -> None:
        self._core: Final = core
        self._connections: Final = connections
        self._wake: Final = wake
        self._interval_s: Final = interval_s
        self._version: Final = f"mqttlite version {_version()}"
        self._started_at: Final = now
        self._published_at = now
        self._ended: Final = Totals()
        self._most_online = 0
        self._counters: dict[str, int] = {}
        self._loads: Final = {name: [0.0] * len(_MINUTES) for name, _counter in _LOADS}
        self._said: Final[dict[str, str]] = {}

    def on_connected(self) -> None:
        """A client is there."""
        self._most_online = max(self._most_online, self._core.online)

    def on_closed(self, connection: Connection) -> None:
        """A connection is over and will not be among `connections` again."""
        self._ended.add(connection)

    async def run(self) -> None:
        """Publish every interval until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            survey = self.survey()
            while not survey.step():
                await asyncio.sleep(0)
            self.publish(survey, loop.time())
            await asyncio.sleep(self._interval_s)

    def survey(self) -> Survey:
        return Survey(self._core, self._connections(), self._ended)

    def publish(self, survey: Survey, now: float) -> None:
        """Publish what has changed since the last time."""
        counters, gauges = self._count(survey), self._gauges(survey)
        self._most_online = max(self._most_online, gauges["clients/active"])
        counters["clients/maximum"] = self._most_online
        self._say("version", self._version, now)
        self._say("uptime", f"{int(now - self._started_at)} seconds", now)
        former, self._counters = self._counters, counters
        for name, value in former.items():
            # A connection may end between two slices of a survey, and a client come back with what it missed.
            self._counters[name] = max(value, self._counters.get(name, 0))
        for name, value in {**gauges, **self._counters}.items():
            if name != _UNPUBLISHED:
                self._say(name, str(value), now)
        elapsed_s = now - self._published_at
        for name, counter in _LOADS:
            growth = self._counters[counter] - former.get(counter, 0)
            averages = self._loads[name]
            for at, minutes in enumerate(_MINUTES):
                averages[at] = average(averages[at], growth, elapsed_s, minutes)
                self._say(f"load/{name}/{minutes}min", f"{averages[at]:.2f}", now)
        self._published_at = now
        self._wake()

    def _say(self, name: str, value: str, now: float) -> None:
        if self._said.get(name) != value:
            self._said[name] = value
            self._core.publish(f"$SYS/broker/{name}".encode(), value.encode(), 0, True, now)

    def _count(self, survey: Survey) -> dict[str, int]:
        totals = survey.totals
        drops = totals.drops
        return {
            "clients/expired": self._core.sessions.expired,
            "connections/socket/count": self._core.opened,
            "connects": totals.connects,
            "messages/received": totals.packets_received,
            "messages/sent": totals.packets_sent,
            "publish/messages/dropped": drops.get(QUEUE_FULL, 0) + drops.get(BUFFER_FULL, 0),
            "publish/messages/received": totals.messages_received,
            "publish/messages/sent": totals.messages_sent,
            "publish/bytes/received": totals.publish_bytes_received,
            "publish/bytes/sent": totals.publish_bytes_sent,
            "bytes/received": totals.bytes_received,
            "bytes/sent": totals.bytes_sent,
            **{f"publish/messages/dropped/{reason}": messages for reason, messages in drops.items()},
        }

    def _gauges(self, survey: Survey) -> dict[str, int]:
        core = self._core
        clients = len(core.sessions)
        stored = len(core.router.retained) + survey.queued
        return {
            "clients/total": clients,
            "clients/inactive": clients - core.online,
            "clients/disconnected": clients - core.online,
            "clients/active": core.online,
            "clients/connected": core.online,
            "messages/inflight": survey.inflight,
            "messages/stored": stored,
            "store/messages/count": stored,
            "store/messages/bytes": core.router.retained.size_bytes + survey.queued_bytes,
            "subscriptions/count": core.subscriptions,
            "shared_subscriptions/count": core.shared_subscriptions,
            "retained messages/count": len(core.router.retained) + core.router.retained.own,
            **_heap(),
        }


def average(former: float, growth: int, elapsed_s: float, minutes: int) -> float:
    """A moving average, per minute, over so many minutes: what grew by `growth` in `elapsed_s` seconds."""
    if elapsed_s <= 0:
        return former
    per_minute = growth * 60 / elapsed_s
    return per_minute + math.exp(-elapsed_s / (60 * minutes)) * (former - per_minute)


class Connected(msgspec.Struct, frozen=True, kw_only=True):
    """A client was let in."""

    client_id: str
    connection_id: int
    username: str | None
    peer: str
    listener: str
    protocol_version: str
    keep_alive_s: int
    clean_start: bool
    session_present: bool
    connected_at: datetime


class Disconnected(msgspec.Struct, frozen=True, kw_only=True):
    """A client's connection ended."""

    client_id: str
    connection_id: int
    username: str | None
    peer: str
    listener: str
    reason: str
    reason_code: int
    connected_at: datetime
    disconnected_at: datetime
    duration_s: float


class Presence:
    """The events of clients that come and go, told to those who listen just then."""

    def __init__(self, core: Broker, wake: Callable[[], None], clock_offset: timedelta) -> None:
        self._core: Final = core
        self._wake: Final = wake
        self._clock_offset: Final = clock_offset

    def on_connected(self, connection: Connection, peer: str, listener: str, now: float) -> None:
        topic = presence_topic(connection.client_id, "connected")
        if self._is_heard(topic):
            event = Connected(
                client_id=connection.client_id,
                connection_id=connection.number,
                username=connection.username,
                peer=peer,
                listener=listener,
                protocol_version=VERSION_NAMES[connection.version],
                keep_alive_s=connection.keep_alive_s,
                clean_start=connection.clean_start,
                session_present=connection.session_present,
                connected_at=self._wall(connection.connected_at),
            )
            self._tell(topic, event, now)

    def on_disconnected(self, connection: Connection, peer: str, listener: str, now: float) -> None:
        topic = presence_topic(connection.client_id, "disconnected")
        if self._is_heard(topic):
            event = Disconnected(
                client_id=connection.client_id,
                connection_id=connection.number,
                username=connection.username,
                peer=peer,
                listener=listener,
                reason=str(connection.close_reason),
                reason_code=int(connection.reason_code),
                connected_at=self._wall(connection.connected_at),
                disconnected_at=self._wall(connection.ended_at),
                duration_s=connection.ended_at - connection.connected_at,
            )
            self._tell(topic, event, now)

    def _is_heard(self, topic: bytes) -> bool:
        return len(topic) <= MAX_STRING_BYTES and self._core.has_subscribers(topic)

    def _tell(self, topic: bytes, event: Connected | Disconnected, now: float) -> None:
        self._core.publish(topic, msgspec.json.encode(event), 0, False, now)
        self._wake()

    def _wall(self, at: float) -> datetime:
        return datetime.fromtimestamp(at, UTC) + self._clock_offset


def presence_topic(client_id: str, event: str) -> bytes:
    """The topic of a client's events: what would not be one level of a name is written as in a URL."""
    level = client_id.replace("%", "%25").replace("/", "%2F").replace("+", "%2B").replace("#", "%23")
    return f"$SYS/broker/clients/{level}/{event}".encode()


def _version() -> str:
    try:
        return version("mqttlite")
    except PackageNotFoundError:  # run from a folder, and not installed
        return "unknown"


def _heap() -> dict[str, int]:
    """The memory that the process holds, in bytes, as far as the system says it."""
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
