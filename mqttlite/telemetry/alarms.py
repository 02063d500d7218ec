"""Publishes alarms as retained messages below `$SYS/broker/alarms/`: whether each is active, since when, and why.

Invariant: from the start on, each alarm has a retained message with its current state.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec

from mqttlite.event_hub import (
    BRIDGE_AWAY,
    CLUSTER_WEAK,
    DOCUMENTS_DIFFER,
    MEMORY_SHORT,
    NODE_AWAY,
    OVERLOADED,
    PUSH_STOPPED,
    STOOD_STILL,
    STORE_FAILING,
    Listener,
)
from mqttlite.telemetry.publish_queue import PublishQueue

TOPICS: Final = {
    STORE_FAILING: b"$SYS/broker/alarms/store",
    MEMORY_SHORT: b"$SYS/broker/alarms/memory",
    OVERLOADED: b"$SYS/broker/alarms/overload",
    PUSH_STOPPED: b"$SYS/broker/alarms/push",
    BRIDGE_AWAY: b"$SYS/broker/alarms/bridges",
    CLUSTER_WEAK: b"$SYS/broker/alarms/cluster",
    NODE_AWAY: b"$SYS/broker/alarms/nodes",
    DOCUMENTS_DIFFER: b"$SYS/broker/alarms/documents",
    STOOD_STILL: b"$SYS/broker/alarms/standstill",
}


def name_of(alarm: str) -> str:
    """Its name for people: the last level of its topic."""
    return TOPICS[alarm].rpartition(b"/")[2].decode()


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an alarm. `since` is when it began or ended, or when the broker started."""

    active: bool
    since: datetime
    detail: str


class Alarms(Listener):
    """`now` returns the UTC time. The constructor publishes each alarm as inactive."""

    def __init__(self, queue: PublishQueue, now: Callable[[], datetime]) -> None:
        self._queue: Final = queue
        self._now: Final = now
        for alarm in TOPICS:
            self.on_alarm(alarm, False, "")

    def on_alarm(self, alarm: str, active: bool, detail: str) -> None:
        state = Alarm(active=active, since=self._now(), detail=detail)
        self._queue.put(TOPICS[alarm], msgspec.json.encode(state), retain=True)
