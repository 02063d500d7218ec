"""Alarms on a core without sockets; time is a number."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

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
    EventHub,
)
from mqttlite.telemetry.alarms import TOPICS, Alarms
from mqttlite.telemetry.publish_queue import PublishQueue
from tests.support.core_driver import World


class Alarmed:
    """A world with alarms, and a client that sees them."""

    def __init__(self) -> None:
        self.world = World()
        self.scheduled: list[Callable[[], None]] = []
        self.time = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
        queue = PublishQueue(
            self.world.broker, lambda: None, lambda: self.world.now, call_soon=self.scheduled.append, clock=lambda: 0.0
        )
        self.hub = EventHub()
        self.hub.register(Alarms(queue, lambda: self.time))
        self.publish()

    def publish(self) -> None:
        while self.scheduled:
            self.scheduled.pop()()
        self.world.settle()

    def retained(self) -> dict[str, dict[str, object]]:
        """What a client finds that subscribes now."""
        client = self.world.connect("late")
        client.subscribe("$SYS/broker/alarms/+")
        return {topic: json.loads(payload) for topic, payload in client.messages()}


NONE = {"active": False, "since": "2026-11-21T12:00:00Z", "detail": ""}


def test_alarms_are_inactive_from_the_start_on() -> None:
    assert Alarmed().retained() == {
        f"$SYS/broker/alarms/{name}": NONE
        for name in ("store", "memory", "overload", "push", "bridges", "cluster", "nodes", "documents", "standstill")
    }


def test_an_alarm_says_since_when_and_why_until_it_ends() -> None:
    alarmed = Alarmed()
    watcher = alarmed.world.connect("watcher")
    watcher.subscribe("$SYS/broker/alarms/#")
    watcher.messages()
    alarmed.time = datetime(2026, 11, 21, 12, 0, 1, 500_000, UTC)
    alarmed.hub.on_alarm(STORE_FAILING, True, "disk full")
    alarmed.publish()
    store = {"active": True, "since": "2026-11-21T12:00:01.500000Z", "detail": "disk full"}
    assert alarmed.retained() == {
        "$SYS/broker/alarms/store": store,
        "$SYS/broker/alarms/memory": NONE,
        "$SYS/broker/alarms/overload": NONE,
        "$SYS/broker/alarms/push": NONE,
        "$SYS/broker/alarms/bridges": NONE,
        "$SYS/broker/alarms/cluster": NONE,
        "$SYS/broker/alarms/nodes": NONE,
        "$SYS/broker/alarms/documents": NONE,
        "$SYS/broker/alarms/standstill": NONE,
    }
    assert [(topic, json.loads(payload)) for topic, payload in watcher.messages()] == [
        ("$SYS/broker/alarms/store", store)
    ]
    alarmed.time = datetime(2026, 11, 21, 13, 0, tzinfo=UTC)
    alarmed.hub.on_alarm(STORE_FAILING, False, "")
    alarmed.hub.on_alarm(MEMORY_SHORT, True, "7 of 8 bytes")
    alarmed.publish()
    found = alarmed.retained()
    assert found["$SYS/broker/alarms/store"] == {**NONE, "since": "2026-11-21T13:00:00Z"}
    assert found["$SYS/broker/alarms/memory"]["detail"] == "7 of 8 bytes"


def test_every_alarm_has_a_topic() -> None:
    assert {
        STORE_FAILING,
        MEMORY_SHORT,
        OVERLOADED,
        PUSH_STOPPED,
        BRIDGE_AWAY,
        CLUSTER_WEAK,
        NODE_AWAY,
        DOCUMENTS_DIFFER,
        STOOD_STILL,
    } == {*TOPICS}
