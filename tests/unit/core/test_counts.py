"""What the core can say of itself: packets that are rare enough to be counted, and how much of everything there is."""

import pytest

from mqttlite.core.limits import Limits
from mqttlite.core.memory import ENTRY_BYTES, MESSAGE_BYTES, RETAINED_BYTES
from mqttlite.wire.constants import PUBACK, V5, V311
from mqttlite.wire.packets import Ack, Disconnect, Pingreq, Publish, Unsubscribe
from mqttlite.wire.properties import Properties
from tests.support.core_driver import World, request


@pytest.mark.parametrize("version", [V311, V5])
def test_requests_and_answers_are_counted_and_messages_and_acknowledgements_are_not(version: int) -> None:
    world = World()
    client = world.connect("c", version)
    connection, outbox = client.connection, client.connection.outbox
    assert (connection.requests, outbox.answers) == (1, 1)
    assert connection.request_bytes == connection.bytes_received
    assert outbox.answer_bytes == outbox.bytes_sent
    client.subscribe("t", qos=2)
    client.send(Unsubscribe(9, (b"none",)), Pingreq())
    assert (connection.requests, outbox.answers) == (4, 4)
    assert connection.request_bytes == connection.bytes_received
    assert outbox.answer_bytes == outbox.bytes_sent
    for qos in (0, 1, 2):
        client.publish("t", "x", qos)
    client.publish("t", "x", retain=True)
    client.send(Ack(PUBACK, 77))
    assert (connection.requests, outbox.answers) == (4, 4)
    client.send(Disconnect())
    assert (connection.requests, outbox.answers) == (5, 4)


def test_a_last_word_is_an_answer() -> None:
    world = World()
    client = world.connect("c")
    client.send(Publish(b"t", b"", properties=Properties(topic_alias=1_000)))
    assert client.connection.outbox.answers == 2
    refused = world.open(V311)
    refused.connect("", clean_start=False)
    assert refused.closed
    assert (refused.connection.requests, refused.connection.outbox.answers) == (1, 1)


def test_connections_and_clients() -> None:
    world = World()
    first = world.connect("a")
    world.open()
    assert (world.broker.opened, world.broker.online) == (2, 1)
    world.connect("a")
    world.connect("b")
    assert (world.broker.opened, world.broker.online) == (4, 2)
    assert first.closed


def test_subscriptions_are_counted_as_they_come_and_go() -> None:
    world = World()
    broker = world.broker
    client, other = world.connect("c", expiry=10), world.connect("o")
    client.subscribe("a", "b/#", "$share/g/a")
    other.subscribe("a", "$share/g/a")
    assert (broker.subscriptions, broker.shared_subscriptions) == (3, 2)
    client.subscribe(request("a", 1), request("$share/g/a", 1))
    assert (broker.subscriptions, broker.shared_subscriptions) == (3, 2)
    client.send(Unsubscribe(1, (b"a", b"none")))
    assert (broker.subscriptions, broker.shared_subscriptions) == (2, 2)
    other.send(Unsubscribe(1, (b"$share/g/a",)))
    other.lose()
    assert (broker.subscriptions, broker.shared_subscriptions) == (1, 1)
    restarted = world.restart().broker
    assert (restarted.subscriptions, restarted.shared_subscriptions) == (1, 1)
    client.lose()
    world.advance(10)
    assert (broker.subscriptions, broker.shared_subscriptions) == (0, 0)


def test_expired_are_sessions_whose_time_went_by() -> None:
    world = World()
    world.connect("stays", expiry=100).lose()
    world.connect("ends").lose()
    world.connect("again", expiry=5).lose()
    world.connect("again", expiry=5).lose()
    assert len(world.broker.sessions.values()) == 2
    world.advance(5)
    assert world.broker.sessions.expired == 1
    assert [session.client_id for session in world.broker.sessions.values()] == ["stays"]


def test_retained_entries_are_kept() -> None:
    world = World(Limits())
    client = world.connect("c", expiry=100)
    client.subscribe("t", qos=1)
    client.lose()
    world.publish("t", "four", qos=1)
    assert world.session("c").queued_bytes == ENTRY_BYTES + MESSAGE_BYTES + 5
    world.publish("r", "12", retain=True)
    world.publish("$SYS/r", "12", retain=True)
    publisher = world.broker.router
    kept = RETAINED_BYTES + 2 + MESSAGE_BYTES + 3
    assert (len(publisher.retained), publisher.retained.size_bytes, publisher.retained.own) == (1, kept, 1)


def test_the_receivers_of_a_message_by_the_broker() -> None:
    world = World()
    assert not world.broker.has_subscribers(b"$SYS/a")
    client = world.connect("c")
    client.subscribe("#")
    assert not world.broker.has_subscribers(b"$SYS/a")
    assert world.broker.has_subscribers(b"a")
    client.subscribe("$share/g/$SYS/#")
    assert world.broker.has_subscribers(b"$SYS/a")
    client.send(Unsubscribe(1, (b"$share/g/$SYS/#",)))
    assert not world.broker.has_subscribers(b"$SYS/a")
