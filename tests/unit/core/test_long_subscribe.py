"""A SUBSCRIBE or UNSUBSCRIBE with very many filters is handled in parts, and answered when all are done."""

from collections.abc import Callable

import pytest

from mqttlite.core.broker import Broker
from mqttlite.core.connect.connection import ITS_FILTERS, NOTHING
from mqttlite.core.limits import FILTER_WORK, FILTERS_PER_STEP, INLINE_FILTERS_BYTES, ITERATION_WORK, Limits
from mqttlite.core.reasons import CloseReason
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Packet, Pingreq, Pingresp, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World, request

MANY = 4_000
FILTERS = tuple(f"f/{number:05}" for number in range(MANY))


def subscribe(*filters: str, qos: int = 0, identifier: int = 0) -> Subscribe:
    properties = Properties(subscription_identifiers=[identifier] if identifier else [])
    return Subscribe(7, tuple(request(each, qos) for each in filters), properties)


def unsubscribe(*filters: str) -> Unsubscribe:
    return Unsubscribe(8, tuple(each.encode() for each in filters))


def begin(client: Client, *packets: Packet) -> Broker:
    """Send packets in a chunk, and do nothing more."""
    broker = client.world.broker
    chunk = b"".join([encode(packet, client.version) for packet in packets])
    broker.feed(client.connection, chunk, client.world.now)
    return broker


def iterations(client: Client) -> int:
    """How many it takes until the connection waits for its filters no more."""
    world, count = client.world, 1
    while client.connection.waits_for == ITS_FILTERS:
        world._run()
        assert not client.received(), "the answer comes when all is done"
        world.broker.tick(world.now)
        assert world.broker.effects.work < ITERATION_WORK + 2 * FILTER_WORK * FILTERS_PER_STEP
        count += 1
    return count


@pytest.mark.long
@pytest.mark.parametrize("version", [V311, V5])
def test_a_long_subscribe_takes_several_iterations_and_one_suback(version: int) -> None:
    world = World()
    client = world.connect("c", version)
    begin(client, subscribe(*FILTERS))
    assert client.connection.waits_for == ITS_FILTERS
    assert "waits for its filters" in repr(client.connection)
    assert iterations(client) > 2 * MANY * FILTER_WORK // ITERATION_WORK
    world.settle()
    assert client.received() == [Suback(7, bytes(MANY))]
    assert len(world.session("c").subscriptions) == MANY
    begin(client, unsubscribe(*FILTERS, "other"))
    assert client.connection.waits_for == ITS_FILTERS
    assert iterations(client) > MANY * FILTER_WORK // ITERATION_WORK
    world.settle()
    assert client.received() == [Unsuback(8, bytes(MANY) + b"\x11" if version == V5 else b"")]
    assert not world.session("c").subscriptions


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("kind", [Subscribe, Unsubscribe])
def test_a_packet_is_long_above_a_number_of_bytes(kind: type, more: int) -> None:
    world = World()
    client = world.connect("c", V311)
    room = INLINE_FILTERS_BYTES + more - 2 - (3 if kind is Subscribe else 2)
    packet = subscribe("x" * room) if kind is Subscribe else unsubscribe("x" * room)
    assert len(encode(packet, V311)) == INLINE_FILTERS_BYTES + more + 3
    begin(client, packet)
    assert client.connection.deferred == (more > 0), "the next packet waits for the next iteration"
    world.settle()
    assert len(client.received()) == 1


def test_the_codes_are_in_the_order_of_the_filters() -> None:
    world = World(Limits(max_subscriptions=600))
    client = world.connect("c")
    filters = [request(f"f/{number:05}", number % 3) for number in range(1_000)]
    client.send(Subscribe(7, tuple(filters)))
    codes = bytes(number % 3 if number < 600 else 0x97 for number in range(1_000))
    assert client.received() == [Suback(7, codes)]
    client.send(unsubscribe(*[f"f/{number:05}" for number in range(599, 1_000)]))
    assert client.received() == [Unsuback(8, b"\0" + b"\x11" * 400)]


@pytest.mark.long
def test_packets_behind_it_wait_for_it() -> None:
    world = World()
    client = world.connect("c")
    broker = begin(client, subscribe(*FILTERS, identifier=5), Publish(b"f/00007", b"in one chunk"))
    broker.feed(client.connection, encode(Publish(b"f/00008", b"later"), V5)[:3], world.now)
    broker.feed(client.connection, encode(Publish(b"f/00008", b"later"), V5)[3:], world.now)
    broker.feed(client.connection, b"", world.now)
    client.send(Pingreq())
    suback, first, second, pong = client.received()
    assert isinstance(suback, Suback)
    assert isinstance(first, Publish)
    assert isinstance(second, Publish)
    assert (first.payload, first.properties.subscription_identifiers) == (b"in one chunk", [5])
    assert second.payload == b"later"
    assert pong == Pingresp()
    assert client.connection.waits_for == NOTHING
    assert not client.connection.deferred


@pytest.mark.reaches
@pytest.mark.long
def test_retained_messages_follow_the_suback() -> None:
    world = World()
    for number in range(0, MANY, 10):
        world.publish(FILTERS[number], str(number), retain=True)
    client = world.connect("c")
    client.send(subscribe(*FILTERS))
    assert isinstance(client.packets[0], Suback)
    assert client.payloads() == [str(number) for number in range(0, MANY, 10)]
    client.send(subscribe(*FILTERS))
    assert client.payloads() == [str(number) for number in range(0, MANY, 10)]


def test_another_client_is_served_meanwhile() -> None:
    world = World()
    client, other = world.connect("c"), world.connect("other")
    begin(client, subscribe(*FILTERS))
    world._run()
    world.broker.tick(world.now)
    assert client.connection.waits_for == ITS_FILTERS
    begin(other, Pingreq())
    world._run()
    assert other.received() == [Pingresp()]


@pytest.mark.reaches
@pytest.mark.long
@pytest.mark.parametrize("expiry", [0, 100])
@pytest.mark.parametrize("how", ["lose", "take over", "break a rule"])
def test_a_client_that_leaves_meanwhile_leaves_nothing_behind(how: str, expiry: int) -> None:
    world = World()
    client = world.connect("c", expiry=expiry)
    begin(client, subscribe(*FILTERS))
    world._run()
    if how == "lose":
        world.broker.close(client.connection, world.now)
    elif how == "take over":
        world.connect("c", clean_start=False)
    else:
        world.advance(0.0)
        begin(client, subscribe(*FILTERS[:1_000], "a/#/b"))
    world.settle()
    assert client.closed
    assert len(world.broker.jobs) == 0
    assert not world.broker.effects.deferred
    if how != "take over" and not expiry:
        assert len(world.broker.sessions) == 0
        assert world.broker.subscriptions == 0


@pytest.mark.parametrize("make", [subscribe, unsubscribe])
def test_a_faulty_filter_at_the_end_changes_nothing(make: Callable[..., Packet]) -> None:
    world = World()
    client = world.connect("c", expiry=100)
    client.subscribe("f/00000")
    client.send(make(*FILTERS[:1_000], "a/#/b"))
    assert client.closed
    assert client.connection.reason_code == 0x8F
    assert list(world.session("c").subscriptions) == [b"f/00000"]
    assert len(world.broker.jobs) == 0


def test_a_packet_without_a_filter_is_refused_however_long_its_properties_are() -> None:
    world = World()
    client = world.connect("c")
    pairs = Properties(user_properties=[("k", "x" * INLINE_FILTERS_BYTES)])
    client.send(Subscribe(7, (), pairs))
    assert client.connection.close_reason == CloseReason.PROTOCOL_ERROR


def test_a_client_that_does_not_accept_a_suback_as_long_is_disconnected() -> None:
    world = World()
    client = world.connect("c", maximum_packet_size=100)
    client.send(subscribe(*FILTERS[:300]))
    assert client.connection.close_reason == CloseReason.PACKET_TOO_LARGE
    assert len(world.broker.jobs) == 0


def test_a_durable_suback_waits_for_the_commit() -> None:
    world = World()
    client = world.connect("c", expiry=100)
    begin(client, subscribe(*FILTERS[:300]))
    assert client.connection.outbox.awaits_commit
    world.settle()
    assert len(client.received()) == 1
    assert len(world.restart().session("c").subscriptions) == 300
