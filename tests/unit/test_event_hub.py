"""The event hub: each listener hears what it asks for, and none can hurt another."""

import logging

import pytest

from mqttlite.event_hub import CoreTracer, EventHub, Link, Listener, NoMessages
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.telemetry.connection_log import ConnectionLog
from mqttlite.wire.packets import Unsubscribe
from tests.support.core_driver import World
from tests.support.rules import OpenRules
from tests.unit.telemetry.watched import Link as FakeLink


class Toy(Listener):
    """A listener as a program would write one."""

    def __init__(self, heard: list[str], name: str = "toy") -> None:
        self._heard = heard
        self._name = name

    def on_connected(self, link: Link) -> None:
        self._heard.append(f"{self._name}: {link.connection.client_id} connected")

    def on_closed(self, link: Link) -> None:
        self._heard.append(f"{self._name}: {link.connection.client_id} closed")


class Faulty(Listener):
    def on_connected(self, link: Link) -> None:
        raise KeyError("a bug")


class Everything(Listener):
    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []

    def on_refused(self, link: Link) -> None:
        self.heard.append(("refused",))

    def on_subscribed(self, connection: int, topic_filter: bytes, qos: int, reason_code: int, existing: bool) -> None:
        self.heard.append(("subscribed", connection, topic_filter, qos, reason_code, existing))

    def on_unsubscribed(self, connection: int, topic_filter: bytes) -> None:
        self.heard.append(("unsubscribed", connection, topic_filter))

    def on_dropped(
        self, trace: int, receiver: str | None, topic: bytes, reason: str, messages: int, detail: str
    ) -> None:
        self.heard.append(("dropped", trace, receiver, topic, reason, messages))

    def on_blocked(self, connection: int) -> None:
        self.heard.append(("blocked", connection))

    def on_unblocked(self, connection: int, duration_s: float, waiting_bytes: int) -> None:
        self.heard.append(("unblocked", connection, duration_s))

    def on_alarm(self, alarm: str, active: bool, detail: str) -> None:
        self.heard.append(("alarm", alarm, active, detail))


def test_listeners_hear_in_the_order_of_their_registration() -> None:
    world, hub, heard = World(), EventHub(), list[str]()
    hub.register(Toy(heard, "one"))
    hub.register(Toy(heard, "two"))
    client = world.connect("c")
    hub.on_connected(FakeLink(client.connection))
    client.lose()
    hub.on_ended(FakeLink(client.connection))
    assert heard == ["one: c connected", "two: c connected", "one: c closed", "two: c closed"]


def test_an_exception_is_logged_and_hurts_no_other_listener(caplog: pytest.LogCaptureFixture) -> None:
    world, hub, heard = World(), EventHub(), list[str]()
    hub.register(Faulty())
    hub.register(Toy(heard))
    hub.on_connected(FakeLink(world.connect("c").connection))
    assert heard == ["toy: c connected"]
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.ERROR, "a listener to events failed in on_connected")
    assert "a bug" in str(record.exc_info)


def test_a_connection_that_was_never_accepted_is_refused_and_not_closed() -> None:
    world, hub, heard, everything = World(), EventHub(), list[str](), Everything()
    hub.register(Toy(heard))
    hub.register(everything)
    stranger = world.open()
    stranger.lose()
    hub.on_ended(FakeLink(stranger.connection))
    assert (heard, everything.heard) == ([], [("refused",)])


@pytest.mark.parametrize(("listener", "needed"), [(Toy([]), False), (Faulty(), False), (Everything(), True)])
def test_a_tracer_is_needed_only_for_events_that_the_core_tells(listener: Listener, needed: bool) -> None:
    hub = EventHub()
    assert not hub.needs_tracer
    hub.register(listener)
    assert hub.needs_tracer is needed


def test_the_core_tells_the_hub_of_subscriptions_drops_and_back_pressure() -> None:
    world, hub, everything = World(), EventHub(), Everything()
    hub.register(everything)
    world.broker.watch(CoreTracer(hub, NoMessages()))
    client = world.connect("c")
    client.subscribe("t", qos=1)
    client.publish("nobody", "x")
    client.block()
    world.now += 2.0
    client.unblock()
    client.send(Unsubscribe(1, (b"t",)))
    hub.on_alarm("store_failing", True, "disk full")
    number = client.connection.number
    assert everything.heard == [
        ("subscribed", number, b"t", 1, 1, False),
        ("dropped", 0, None, b"nobody", "no_subscribers", 1),
        ("blocked", number),
        ("unblocked", number, 2.0),
        ("unsubscribed", number, b"t"),
        ("alarm", "store_failing", True, "disk full"),
    ]


def test_a_hub_without_an_observer_traces_no_message() -> None:
    world, hub = World(), EventHub()
    world.broker.watch(CoreTracer(hub, NoMessages()))
    receiver, publisher = world.connect("r"), world.connect("p")
    receiver.subscribe("t", qos=1)
    publisher.publish("t", "x", 1)
    assert receiver.messages() == [("t", "x")]


def test_a_denial_is_told_and_logged_with_its_rule(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[tuple[object, ...]] = []

    class Denials(Listener):
        def on_denied(self, *told: object) -> None:
            heard.append(told)

    class Closed(OpenRules):
        def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
            return False

        def reason(self, role: int, action: str, topic: bytes) -> str:
            return "denied by acl.conf:3"

    world, hub = World(), EventHub()
    hub.register(ConnectionLog())
    hub.register(Denials())
    client = world.connect("c")
    link = FakeLink(client.connection)
    world.broker.permissions.on_denied = lambda *told: hub.on_denied(*told, link)  # type: ignore[arg-type]
    world.broker.authorize(built_in_rules(authorizer=Closed()))
    client.subscribe("a/#")
    assert heard == [("c", None, "subscribe", b"a/#", "denied by acl.conf:3", link)]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == f"{link.address} client 'c' may not subscribe to 'a/#': denied by acl.conf:3"
    fields = record.fields  # type: ignore[attr-defined]
    assert (fields["peer"], fields["listener"]) == (link.address, link.listener)
    caplog.clear()
    hub.on_denied("away", "ann", "receive", b"a", "denied by acl.conf:3", None)
    assert caplog.records[0].getMessage() == "client 'away' (user 'ann') may not receive from 'a': denied by acl.conf:3"
