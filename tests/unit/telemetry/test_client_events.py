"""Events of clients on a core without sockets; time is a number."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from mqttlite.event_hub import EventHub
from mqttlite.telemetry.client_events import ClientEvents, presence_topic
from mqttlite.telemetry.publish_queue import PublishQueue
from mqttlite.wire.constants import V311
from mqttlite.wire.packets import Disconnect
from tests.support.core_driver import START, Client, World
from tests.unit.telemetry.watched import Link


@pytest.mark.parametrize(
    ("client_id", "level"),
    [
        ("plain", "plain"),
        ("a/b", "a%2Fb"),
        ("+", "%2B"),
        ("#", "%23"),
        ("%2F", "%252F"),
        ("é $", "é $"),
        ("//", "%2F%2F"),
    ],
)
def test_a_client_id_is_one_level_of_its_topic(client_id: str, level: str) -> None:
    assert presence_topic(client_id, "connected").decode() == f"$SYS/broker/clients/{level}/connected"


class Watched:
    """A world with presence."""

    def __init__(self) -> None:
        self.world = World()
        offset = datetime(2026, 11, 21, 12, 0, tzinfo=UTC) - datetime.fromtimestamp(START, UTC)
        self.scheduled: list[Callable[[], None]] = []
        queue = PublishQueue(
            self.world.broker, lambda: None, lambda: self.world.now, call_soon=self.scheduled.append, clock=lambda: 0.0
        )
        self.hub = EventHub()
        self.hub.register(ClientEvents(self.world.broker, queue, offset))

    def seen(self, client: Client, watcher: Client) -> list[tuple[str, dict[str, object]]]:
        """What a watcher is sent after a client connected, or closed."""
        link = Link(client.connection, address="10.0.0.1:5000", listener="tls-8883")
        (self.hub.on_ended if client.closed else self.hub.on_connected)(link)
        while self.scheduled:
            self.scheduled.pop()()
        self.world.settle()
        return [(topic, json.loads(payload)) for topic, payload in watcher.messages()]


def test_a_watcher_sees_clients_connect_and_disconnect() -> None:
    watched = Watched()
    watcher = watched.world.connect("watcher")
    watcher.subscribe("$SYS/broker/clients/+/+")
    client = watched.world.connect("a/b", V311, keep_alive=30, username="anna", password=b"x")
    who = {"client_id": "a/b", "connection_id": 2, "username": "anna", "peer": "10.0.0.1:5000", "listener": "tls-8883"}
    assert watched.seen(client, watcher) == [
        (
            "$SYS/broker/clients/a%2Fb/connected",
            {
                **who,
                "protocol_version": "3.1.1",
                "keep_alive_s": 30,
                "clean_start": True,
                "session_present": False,
                "connected_at": "2026-11-21T12:00:00Z",
            },
        )
    ]
    watched.world.now += 1.5
    client.send(Disconnect())
    assert watched.seen(client, watcher) == [
        (
            "$SYS/broker/clients/a%2Fb/disconnected",
            {
                **who,
                "reason": "client_disconnected",
                "reason_code": 0,
                "connected_at": "2026-11-21T12:00:00Z",
                "disconnected_at": "2026-11-21T12:00:01.500000Z",
                "duration_s": 1.5,
            },
        )
    ]
    late = watched.world.connect("late")
    late.subscribe("$SYS/#")
    assert late.messages() == [], "events are not retained"


def test_nothing_is_published_for_clients_without_a_watcher() -> None:
    watched = Watched()
    watcher = watched.world.connect("watcher")
    watcher.subscribe("#", "$SYS/broker/clients/other/+")
    client = watched.world.connect("c")
    assert watched.seen(client, watcher) == []
    client.lose()
    assert watched.seen(client, watcher) == []
