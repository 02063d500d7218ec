"""True on disk before true on the wire: each answer, and each message of QoS 1 or 2, waits for the commit of what it
confirms."""

from collections.abc import Callable

import pytest

from mqttlite.wire.constants import PUBACK, PUBREC, PUBREL, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Connect, Packet, Publish, Subscribe, SubscriptionRequest, Unsubscribe
from tests.support.core_driver import Client, World


def kept(world: World, name: str, **options: object) -> Client:
    return world.connect(name, V311, clean_start=False, **options)


def feed(client: Client, *packets: Packet) -> None:
    """Hand packets to the broker; the iteration of the loop is not over."""
    data = b"".join([encode(packet, client.version) for packet in packets])
    client.world.broker.feed(client.connection, data, client.world.now)


def connack(world: World) -> Client:
    client = world.open(V311)
    feed(client, Connect("c", V311, False, 0))
    return client


def suback(world: World) -> Client:
    client = kept(world, "c")
    feed(client, Subscribe(1, (SubscriptionRequest(b"t", 1),)))
    return client


def unsuback(world: World) -> Client:
    client = kept(world, "c")
    client.subscribe("t")
    feed(client, Unsubscribe(1, (b"t",)))
    return client


def puback(world: World) -> Client:
    kept(world, "reader").subscribe("t", qos=1)
    client = world.connect("c")
    feed(client, Publish(b"t", b"", 1, packet_id=1))
    return client


def pubrec(world: World) -> Client:
    client = kept(world, "c")
    feed(client, Publish(b"t", b"", 2, packet_id=1))
    return client


def pubcomp(world: World) -> Client:
    client = kept(world, "c", auto_ack=False)
    client.publish("t", qos=2, packet_id=1)
    feed(client, Ack(PUBREL, 1))
    return client


def pubcomps_out_of_order(world: World) -> Client:
    client = kept(world, "c", auto_ack=False)
    for packet_id in (1, 2, 3):
        client.publish("t", qos=2, packet_id=packet_id)
    feed(client, Ack(PUBREL, 2))
    return client


def publish_at_once(world: World) -> Client:
    client = kept(world, "c")
    client.subscribe("t", qos=1)
    feed(world.connect("writer"), Publish(b"t", b"", 1, packet_id=1))
    return client


def publish_from_the_queue(world: World) -> Client:
    client = kept(world, "c", auto_ack=False)
    client.subscribe("t", qos=1)
    for _ in range(1_001):  # the window has room for a thousand
        world.publish("t", qos=1)
    feed(client, Ack(PUBACK, 1))
    return client


def pubrel(world: World) -> Client:
    client = kept(world, "c", auto_ack=False)
    client.subscribe("t", qos=2)
    world.publish("t", qos=2)
    feed(client, Ack(PUBREC, 1))
    return client


@pytest.mark.parametrize(
    "answered",
    [
        connack,
        suback,
        unsuback,
        puback,
        pubrec,
        pubcomp,
        pubcomps_out_of_order,
        publish_at_once,
        publish_from_the_queue,
        pubrel,
    ],
)
def test_an_answer_waits_for_the_commit_of_what_it_confirms(answered: Callable[[World], Client]) -> None:
    world = World()
    client = answered(world)
    assert client.connection.outbox.chunks
    assert world.broker.effects.changes
    assert client.connection.outbox.awaits_commit
