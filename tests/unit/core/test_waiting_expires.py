"""QoS 0 messages with an expiry that wait for a link that takes nothing."""

import pytest

from mqttlite.wire.constants import V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.expiry import with_time_left
from mqttlite.wire.packets import Connect, Publish
from mqttlite.wire.properties import NONE, Properties
from tests.support.core_driver import Client, World, publishes
from tests.support.recorder import Everything


def reader(world: World, kind: str) -> Client:
    version = V311 if kind == "older" else V5
    client = world.open(version)
    aliases = Properties(topic_alias_maximum=5 if kind == "aliases" else None)
    client.send(Connect("reader", version, properties=aliases if version == V5 else NONE))
    client.received()
    client.subscribe("t", qos=0, identifier=7 if kind == "identifier" else 0)
    return client


def send(writer: Client, qos: int, messages: int, properties: Properties) -> None:
    packets = [
        Publish(b"t", b"%d" % at, qos, packet_id=at + 1 if qos else 0, properties=properties) for at in range(messages)
    ]
    writer.send(*packets)


@pytest.mark.parametrize("start_tracing", [False, True])
@pytest.mark.parametrize("properties", [{}, {"content_type": "text", "user_properties": [("a", "ü")]}])
@pytest.mark.parametrize("messages", [1, 3])
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("kind", ["plain", "older", "aliases", "identifier"])
def test_they_expire_or_say_what_is_left(
    kind: str, qos: int, messages: int, properties: dict[str, object], start_tracing: bool
) -> None:
    world = World()
    if start_tracing:
        world.broker.watch(Everything())
    client, writer = reader(world, kind), world.connect("writer")
    client.received()
    client.block()
    for seconds in (5, 10, 60):
        send(writer, qos, messages, Properties(message_expiry_interval=seconds, **properties))  # type: ignore[arg-type]
    send(writer, qos, messages, Properties(**properties))  # type: ignore[arg-type]
    world.advance(6.4)
    client.unblock()
    got = publishes(client.received())
    assert [each.payload for each in got] == [b"%d" % at for at in range(messages)] * 3
    if kind != "older":
        left = [each.properties.message_expiry_interval for each in got]
        assert left == [4] * messages + [54] * messages + [None] * messages
        assert {each.properties.content_type for each in got} == {properties.get("content_type")}
        assert all(each.properties.user_properties == properties.get("user_properties", []) for each in got)
    assert client.connection.outbox.drops == {"expired": messages}
    send(writer, qos, 1, Properties(message_expiry_interval=5))
    assert [each.payload for each in publishes(client.received())] == [b"0"], "it takes bytes again"


def test_those_that_waited_for_less_than_half_a_second_are_as_they_were() -> None:
    world = World()
    client, writer = reader(world, "plain"), world.connect("writer")
    client.block()
    send(writer, 0, 2, Properties(message_expiry_interval=5))
    world.advance(0.4)
    client.unblock()
    assert [each.properties.message_expiry_interval for each in publishes(client.received())] == [5, 5]


def test_one_of_no_seconds_is_for_those_who_take_it_at_once() -> None:
    world = World()
    client, writer = reader(world, "plain"), world.connect("writer")
    send(writer, 0, 1, Properties(message_expiry_interval=0))
    client.block()
    send(writer, 0, 1, Properties(message_expiry_interval=0))
    client.unblock()
    assert len(publishes(client.received())) == 1


def test_long_packets_have_lengths_of_several_bytes() -> None:
    packets = [Publish(b"t", bytes(500), properties=Properties(message_expiry_interval=at)) for at in (9, 3)]
    assert with_time_left(encode(packets[0], V5) * 2, 2, 3) == encode(packets[1], V5) * 2
