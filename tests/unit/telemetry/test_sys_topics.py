"""The broker's status and its clients' coming and going, on a core without sockets; time is a number."""

import json
import math
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError

import pytest

from mqttlite.core.connection import Connection
from mqttlite.core.limits import Limits
from mqttlite.telemetry import counters, sys_topics
from mqttlite.telemetry.sys_topics import Options, Presence, Status, average, presence_topic
from mqttlite.wire.constants import V311
from mqttlite.wire.packets import Disconnect, Pingreq, Publish
from tests.support.core_driver import START, Client, World


class Reported:
    """A world with a status, told of connections as the hall tells it."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.world = World(limits)
        self.wakes = 0
        self.links: dict[int, Connection] = {}
        self.status = Status(self.world.broker, self.connections, self.wake, 10.0, START)

    def wake(self) -> None:
        self.wakes += 1

    def connections(self) -> list[Connection]:
        return list(self.links.values())

    def connect(self, client_id: str, version: int = 5, **options: object) -> Client:
        client = self.world.connect(client_id, version, **options)
        self.links[client.connection.number] = client.connection
        self.status.on_connected()
        return client

    def close(self, client: Client) -> None:
        client.lose()
        self.status.on_closed(self.links.pop(client.connection.number))

    def report(self, after_s: float = 10.0) -> dict[str, str]:
        """Let time pass; all that is retained then, without the prefix."""
        self.publish(after_s)
        return self.retained()

    def publish(self, after_s: float = 10.0) -> None:
        self.world.advance(after_s)
        survey = self.status.survey()
        while not survey.step():
            pass
        self.status.publish(survey, self.world.now)
        self.world.settle()

    def retained(self) -> dict[str, str]:
        kept = self.world.broker.router.retained.own_messages()
        return {message.topic.decode().removeprefix("$SYS/broker/"): message.payload.decode() for message in kept}


def numbers(said: dict[str, str], *names: str) -> list[float]:
    return [float(said[name]) for name in names]


# ── what it says ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_at_the_start_everything_is_said() -> None:
    said = Reported().report(0)
    assert said["uptime"] == "0 seconds"
    assert said["version"].startswith("mqttlite version ")
    assert int(said["heap/maximum"]) >= int(said["heap/current"]) > 1_000_000
    zero = {name for name in said if name.startswith("load/")}
    assert len(zero) == 27
    assert {said[name] for name in zero} == {"0.00"}
    assert said["clients/connected"] == said["messages/received"] == said["publish/messages/dropped"] == "0"


def test_only_what_changed_is_said_again() -> None:
    reported = Reported()
    reported.publish(0)
    reported.publish()
    client = reported.connect("c")
    client.subscribe("$SYS/#")
    client.messages()
    reported.publish()
    names = [topic for topic, _value in client.messages()]
    assert len(names) == len(set(names))
    assert "$SYS/broker/uptime" in names
    assert "$SYS/broker/clients/connected" in names
    assert not {"$SYS/broker/version", "$SYS/broker/clients/expired", "$SYS/broker/load/publish/dropped/1min"} & {
        *names
    }
    assert reported.wakes == 3


def test_clients_are_counted() -> None:
    reported = Reported()
    names = [f"clients/{name}" for name in ("connected", "active", "disconnected", "inactive", "total", "maximum")]
    reported.connect("a")
    second = reported.connect("b", expiry=15)
    third = reported.connect("c")
    assert numbers(reported.report(), *names) == [3, 3, 0, 0, 3, 3]
    reported.close(second)
    reported.close(third)
    assert numbers(reported.report(), *names) == [1, 1, 1, 1, 2, 3]
    said = reported.report()
    assert numbers(said, *names) == [1, 1, 0, 0, 1, 3]
    assert said["clients/expired"] == "1"


def test_what_is_kept_is_counted() -> None:
    reported = Reported()
    client = reported.connect("c", expiry=100, auto_ack=False)
    client.subscribe("a", "$share/g/b", qos=2)
    reported.world.publish("a", "sent", qos=1)
    reported.world.publish("a", "sent", qos=2)
    reported.world.publish("r", "1", retain=True)
    said = reported.report()
    assert numbers(said, "subscriptions/count", "shared_subscriptions/count", "messages/inflight") == [1, 1, 2]
    assert numbers(said, "store/messages/count", "messages/stored", "store/messages/bytes") == [1, 1, 2]
    reported.close(client)
    said = reported.report()
    assert numbers(said, "store/messages/count", "store/messages/bytes", "messages/inflight") == [3, 12, 0]
    assert int(said["retained messages/count"]) == 1 + len(reported.retained())


def test_packets_are_counted_with_the_acknowledgements_that_belong_to_them() -> None:
    reported = Reported()
    subscriber = reported.connect("s", V311)  # CONNECT, CONNACK
    subscriber.subscribe("t", qos=2)  # SUBSCRIBE, SUBACK
    publisher = reported.connect("p", V311)  # CONNECT, CONNACK
    for qos in (0, 1, 2):
        publisher.publish("t", "payload", qos)
    publisher.send(Pingreq())
    said = reported.report()
    assert numbers(said, "publish/messages/received", "publish/messages/sent") == [3, 3]
    received = 4 + 3 + 1 + 3  # requests, messages, the publisher's PUBREL, the subscriber's acknowledgements
    assert numbers(said, "messages/received", "messages/sent") == [received, 4 + 3 + 3 + 1]
    links = [publisher.connection, subscriber.connection]
    assert int(said["bytes/received"]) == sum(link.bytes_received for link in links)
    assert int(said["bytes/sent"]) == sum(link.outbox.bytes_sent for link in links)
    frames = (2 + 3 + 7) + 2 * (2 + 3 + 2 + 7)  # with topic "t" and a payload of 7 bytes
    assert numbers(said, "publish/bytes/received", "publish/bytes/sent") == [frames, frames]


def test_totals_keep_what_ended_connections_counted() -> None:
    reported = Reported()
    client = reported.connect("c")
    client.publish("nowhere", "x", 1)
    before = reported.report()
    reported.close(client)
    after = reported.report()
    for name in ("bytes/received", "bytes/sent", "messages/received", "messages/sent", "publish/messages/received"):
        assert after[name] == before[name] != "0"
    reported.close(reported.connect("c"))
    assert reported.report()["connections/socket/count"] == "2"


def test_dropped_are_those_that_a_limit_cost_and_each_reason_has_a_name() -> None:
    reported = Reported(Limits(max_queued_messages=1, max_outbox_messages=1))
    away = reported.connect("away", expiry=100)
    away.subscribe("q", qos=1)
    reported.close(away)
    frozen = reported.connect("frozen")
    frozen.subscribe("b")
    frozen.block()
    for _ in range(3):
        reported.world.publish("q", "x", 1)
        reported.world.publish("b", "x")
        reported.world.publish("nobody", "x")
    reported.world.publish("q", "x")
    publisher = reported.connect("p")
    publisher.publish("$SYS/x", "x")
    expected = {
        "/queue_full": "2",
        "/buffer_full": "2",
        "/no_subscribers": "3",
        "/qos0_offline": "1",
        "/not_authorized": "1",
    }

    def dropped() -> dict[str, str]:
        found = {name: value for name, value in reported.report().items() if "messages/dropped" in name}
        return {name.removeprefix("publish/messages/dropped"): value for name, value in found.items()}

    assert dropped() == {"": "4", **expected}
    reported.close(frozen)  # and with it the message that waited
    assert dropped() == {"": "5", **expected, "/buffer_full": "3"}


def test_a_counter_never_falls() -> None:
    reported = Reported()
    client = reported.connect("c")
    client.publish("nowhere", "x")
    before = reported.report()
    reported.links.clear()
    after = reported.report()
    assert after["bytes/received"] == before["bytes/received"]
    assert numbers(after, "load/bytes/received/1min")[0] < numbers(before, "load/bytes/received/1min")[0]
    assert min(float(value) for name, value in after.items() if name.startswith("load/")) >= 0


def test_a_survey_looks_at_so_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "SLICE", 2)
    reported = Reported()
    clients = [reported.connect(str(number)) for number in range(5)]
    survey = reported.status.survey()
    assert not survey.step()
    assert not survey.step()
    reported.close(clients[4])  # ended meanwhile: still counted, and once
    assert survey.step()
    assert survey.totals.connects == 5
    reported.publish()
    assert reported.retained()["connections/socket/count"] == "5"
    assert numbers(reported.retained(), "bytes/received") == [
        sum(client.connection.bytes_received for client in clients)
    ]


def test_who_sends_no_connect_is_a_socket_and_no_connection() -> None:
    reported = Reported()
    reported.publish(0)
    client = reported.world.open()
    reported.links[client.connection.number] = client.connection
    said = reported.report(60)
    assert float(said["load/sockets/1min"]) > 0
    assert said["load/connections/1min"] == "0.00"


# ── loads ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_load_is_an_exponential_average_per_minute() -> None:
    assert average(0.0, 10, 60.0, 1) == pytest.approx(10 * (1 - math.exp(-1)))
    assert average(10.0, 0, 60.0, 5) == pytest.approx(10 * math.exp(-0.2))
    assert average(7.0, 5, 0.0, 1) == 7.0
    steady = 0.0
    for _ in range(2_000):
        steady = average(steady, 5, 10.0, 15)
    assert steady == pytest.approx(30.0)


def test_loads_rise_and_fall() -> None:
    reported = Reported()
    reported.publish(0)
    client = reported.connect("c")
    client.send(*[Publish(b"t", b"x")] * 60)
    names = [f"load/publish/received/{minutes}min" for minutes in (1, 5, 15)]
    first = numbers(reported.report(10), *names)
    assert first == [pytest.approx(360 * (1 - math.exp(-10 / (60 * minutes))), abs=0.01) for minutes in (1, 5, 15)]
    assert numbers(reported.report(60), *names)[0] == pytest.approx(first[0] * math.exp(-1), abs=0.01)
    assert numbers(reported.report(1e5), *names) == [0, 0, 0]


# ── presence ───────────────────────────────────────────────────────────────────────────────────────────────────────


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
    def __init__(self) -> None:
        self.world = World()
        self.wakes = 0
        offset = datetime(2026, 11, 21, 12, 0, tzinfo=UTC) - datetime.fromtimestamp(START, UTC)
        self.presence = Presence(self.world.broker, self.wake, offset)

    def wake(self) -> None:
        self.wakes += 1

    def told(self, client: Client, watcher: Client) -> list[tuple[str, dict[str, object]]]:
        now = self.world.now
        tell = self.presence.on_disconnected if client.closed else self.presence.on_connected
        tell(client.connection, "10.0.0.1:5000", "tls-8883", now)
        self.world.settle()
        return [(topic, json.loads(payload)) for topic, payload in watcher.messages()]


def test_clients_that_come_and_go_are_told_of() -> None:
    watched = Watched()
    watcher = watched.world.connect("watcher")
    watcher.subscribe("$SYS/broker/clients/+/+")
    client = watched.world.connect("a/b", V311, keep_alive=30, username="anna", password=b"x")
    who = {"client_id": "a/b", "connection_id": 2, "username": "anna", "peer": "10.0.0.1:5000", "listener": "tls-8883"}
    assert watched.told(client, watcher) == [
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
    assert watched.told(client, watcher) == [
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
    assert watched.wakes == 2
    late = watched.world.connect("late")
    late.subscribe("$SYS/#")
    assert late.messages() == [], "events are not retained"


def test_nothing_is_told_to_nobody() -> None:
    watched = Watched()
    watcher = watched.world.connect("watcher")
    watcher.subscribe("#", "$SYS/broker/clients/other/+")
    client = watched.world.connect("c")
    assert watched.told(client, watcher) == []
    client.lose()
    assert watched.told(client, watcher) == []
    assert watched.wakes == 0


def test_a_client_id_too_long_for_a_topic_is_not_told_of() -> None:
    watched = Watched()
    watcher = watched.world.connect("watcher")
    watcher.subscribe("$SYS/#")
    assert watched.told(watched.world.connect("/" * 21_836), watcher) == []
    assert len(watched.told(watched.world.connect("/" * 21_835), watcher)) == 1


# ── options, and what a system may lack ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("interval_s", [0, 0.1, 10.0, 3600])
def test_intervals(interval_s: float) -> None:
    assert Options(interval_s=interval_s).interval_s == interval_s


@pytest.mark.parametrize("interval_s", [-1.0, 0.01, math.inf, math.nan])
def test_intervals_that_are_none(interval_s: float) -> None:
    with pytest.raises(ValueError, match=r"interval_s is .*: 0\.1 at least, and finite, or 0 for never"):
        Options(interval_s=interval_s)


def test_a_program_that_is_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_name: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(sys_topics, "version", unknown)
    assert Reported().report()["version"] == "mqttlite version unknown"


def test_a_system_that_does_not_tell_what_memory_is_used_now(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_arguments: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(sys_topics, "open", missing, raising=False)
    said = Reported().report()
    assert "heap/current" not in said
    assert int(said["heap/maximum"]) > 1_000_000
