"""`$SYS` of a core without sockets; time is a number."""

import math
from collections.abc import Callable

import pytest

from mqttlite.core.limits import Limits
from mqttlite.core.memory import INFLIGHT_BYTES, MESSAGE_BYTES, RETAINED_BYTES
from mqttlite.event_hub import EventHub
from mqttlite.telemetry import snapshot, sys_topics
from mqttlite.telemetry.broker_figures import of_snapshot
from mqttlite.telemetry.counters import ConnectionCounters
from mqttlite.telemetry.figures import total
from mqttlite.telemetry.publish_queue import PublishQueue
from mqttlite.telemetry.snapshot import Collection, Snapshots
from mqttlite.telemetry.sys_topics import SysOptions, SysTopics, average
from mqttlite.wire.constants import V311
from mqttlite.wire.packets import Pingreq, Publish
from tests.support.core_driver import START, Client, World
from tests.unit.telemetry.watched import Link


class Reported:
    """A world with `$SYS`, whose hub hears of connections as the assembly tells it."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.world = World(limits)
        self.wakes = 0
        self.links: dict[int, Link] = {}
        self.scheduled: list[Callable[[], None]] = []
        counters = ConnectionCounters(self.world.broker)
        self.hub = EventHub()
        self.hub.register(counters)
        self.snapshots = Snapshots(
            self.world.broker, lambda: list(self.links.values()), counters, lambda: self.world.now
        )
        queue = PublishQueue(
            self.world.broker, self.wake, lambda: self.world.now, call_soon=self.scheduled.append, clock=lambda: 0.0
        )
        self.certificates: dict[str, dict[str, float]] = {}
        self.sys_topics = SysTopics(
            self.snapshots, queue, 10.0, START, lambda: self.certificates, of_extensions=lambda: [("mail/sent", "7")]
        )

    def wake(self) -> None:
        self.wakes += 1

    def connect(self, client_id: str, version: int = 5, **options: object) -> Client:
        client = self.world.connect(client_id, version, **options)
        self.links[client.connection.number] = Link(client.connection)
        self.hub.on_connected(self.links[client.connection.number])
        return client

    def close(self, client: Client) -> None:
        client.lose()
        self.hub.on_ended(self.links.pop(client.connection.number))

    def report(self, after_s: float = 10.0) -> dict[str, str]:
        """Let time pass; all that is retained then, without the prefix."""
        self.publish(after_s)
        return self.retained()

    def publish(self, after_s: float = 10.0) -> None:
        self.world.advance(after_s)
        collection = self.snapshots.begin()
        while not collection.step():
            pass
        self.finish(collection)

    def finish(self, collection: Collection) -> None:
        self.sys_topics.publish(self.snapshots.finish(collection), self.world.now)
        while self.scheduled:
            self.scheduled.pop()()
        self.world.settle()

    def retained(self) -> dict[str, str]:
        kept = self.world.broker.router.retained.search(b"$SYS/#").take(10_000)
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


def test_a_figure_is_the_same_here_and_for_metrics() -> None:
    """A value with labels is their sum here."""
    reported = Reported()
    client = reported.connect("c", expiry=100)
    client.subscribe("t")
    for qos in (0, 1, 1):
        client.publish("t", "x", qos)
    said = reported.report()
    collection = reported.snapshots.begin()
    while not collection.step():
        pass
    figures = list(of_snapshot(reported.snapshots.finish(collection)))
    assert len({figure.name for figure, _ in figures}) == len(figures) > 35
    shown = {figure.sys_topic: total(values) for figure, values in figures if figure.sys_topic}
    assert shown == {name: float(said[name]) for name in shown}
    assert (shown["publish/messages/received"], shown["clients/total"], len(shown) > 15) == (3, 1, True)


def test_the_ends_of_certificates_are_said_by_listener_and_file() -> None:
    reported = Reported()
    reported.certificates = {"plant/#1": {"cert_file": 1_900_000_000.5, "crl_file": 1_800_000_000.0}}
    said = reported.report()
    assert said["tls/plant__1/cert_file/expires_at"] == "1900000000"
    assert said["tls/plant__1/crl_file/expires_at"] == "1800000000"


def test_only_changed_values_are_published_again() -> None:
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


def test_reports_of_extensions_are_published() -> None:
    assert Reported().report()["mail/sent"] == "7"


def test_kept_messages_are_counted() -> None:
    reported = Reported()
    client = reported.connect("c", expiry=100, auto_ack=False)
    client.subscribe("a", "$share/g/b", qos=2)
    reported.world.publish("a", "sent", qos=1)
    reported.world.publish("a", "sent", qos=2)
    reported.world.publish("r", "1", retain=True)
    kept = RETAINED_BYTES + 2 + MESSAGE_BYTES + 2
    said = reported.report()
    assert numbers(said, "subscriptions/count", "shared_subscriptions/count", "messages/inflight") == [1, 1, 2]
    assert numbers(said, "store/messages/count", "messages/stored", "store/messages/bytes") == [1, 1, kept]
    reported.close(client)
    kept += 2 * (INFLIGHT_BYTES + MESSAGE_BYTES + 5)
    said = reported.report()
    assert numbers(said, "store/messages/count", "store/messages/bytes", "messages/inflight") == [3, kept, 0]
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


def test_totals_keep_the_counts_of_ended_connections() -> None:
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


def test_a_connection_that_ends_during_a_snapshot_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "SLICE", 2)
    reported = Reported()
    clients = [reported.connect(str(number)) for number in range(5)]
    collection = reported.snapshots.begin()
    assert not collection.step()
    assert not collection.step()
    reported.close(clients[4])
    while not collection.step():
        pass
    reported.finish(collection)
    reported.publish()
    assert reported.retained()["connections/socket/count"] == "5"
    assert numbers(reported.retained(), "bytes/received") == [
        sum(client.connection.bytes_received for client in clients)
    ]


def test_a_client_without_connect_is_a_socket_and_no_connection() -> None:
    reported = Reported()
    reported.publish(0)
    client = reported.world.open()
    reported.links[client.connection.number] = Link(client.connection)
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


# ── options, and what a system may lack ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("interval_s", [0, 0.1, 10.0, 3600])
def test_intervals(interval_s: float) -> None:
    assert SysOptions(interval_s=interval_s).interval_s == interval_s


@pytest.mark.parametrize("interval_s", [-1.0, 0.01, math.inf, math.nan])
def test_intervals_that_are_none(interval_s: float) -> None:
    with pytest.raises(ValueError, match=r"interval_s is .*: 0\.1 at least, and finite, or 0 for never"):
        SysOptions(interval_s=interval_s)


def test_a_system_that_does_not_tell_the_memory_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_arguments: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(sys_topics, "open", missing, raising=False)
    said = Reported().report()
    assert "heap/current" not in said
    assert int(said["heap/maximum"]) > 1_000_000
