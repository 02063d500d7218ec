"""Topic aliases to a client (5.0 §3.3.2.3.4): for topics that come again, never more than it takes, never lost."""

import pytest

from mqttlite.core.limits import Limits
from mqttlite.core.outbound.outbox import TopicAliases
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import publish_parts, put_topic_alias
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import Connect, Publish
from mqttlite.wire.properties import NONE, Properties
from tests.support.core_driver import Client, World, publishes
from tests.support.recorder import Everything


def reader(world: World, aliases: int, qos: int = 0, topic_filter: str = "#", largest: int | None = None) -> Client:
    client = world.open()
    asked = Properties(topic_alias_maximum=aliases, maximum_packet_size=largest)
    client.send(Connect("reader", properties=asked))
    client.received()
    client.subscribe(topic_filter, qos=qos)
    return client


def resolved(client: Client, known: dict[int, bytes]) -> list[tuple[bytes, bytes]]:
    """Topic and payload of what came, aliases put in by the client's own rules."""
    messages = []
    for packet in publishes(client.received()):
        alias = packet.properties.topic_alias
        topic = packet.topic
        if alias is not None:
            if topic:
                known[alias] = topic
            topic = known[alias]
        assert topic
        messages.append((topic, packet.payload))
    return messages


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_topic_is_introduced_with_an_alias_and_then_travels_without_its_name(qos: int) -> None:
    world = World()
    client = reader(world, 5, qos)
    for number in range(4):
        world.publish("a/long/topic", str(number), qos)
    sent = publishes(client.received())
    assert [(each.topic, each.properties.topic_alias) for each in sent] == [
        (b"a/long/topic", 1),
        (b"", 1),
        (b"", 1),
        (b"", 1),
    ]
    assert [each.payload for each in sent] == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("messages", [1, 2, 3, 9])
def test_a_run_of_messages_uses_it_as_soon_as_it_can(messages: int) -> None:
    world = World()
    client, plain = reader(world, 5), world.connect("plain")
    plain.subscribe("#")
    publisher = world.connect("publisher")
    known: dict[int, bytes] = {}
    for _ in range(2):
        publisher.send(*[Publish(b"topic", b"%d" % number) for number in range(messages)])
        assert resolved(client, known) == [(b"topic", b"%d" % number) for number in range(messages)]
        assert plain.payloads() == [str(number) for number in range(messages)]
    assert list(known) == [1]


def test_never_more_than_the_client_takes_nor_than_we_give() -> None:
    for client_takes, we_give in ((2, 32), (9, 2)):
        world = World(Limits(max_topic_aliases=we_give))
        client = reader(world, client_takes)
        known: dict[int, bytes] = {}
        for _ in range(3):
            for topic in "abcd":
                world.publish(topic, topic)
        assert [topic for topic, _payload in resolved(client, known)] == [b"a", b"b", b"c", b"d"] * 3
        assert sorted(known) == [1, 2]


def test_when_all_are_taken_only_a_topic_that_comes_again_takes_over_one() -> None:
    aliases = TopicAliases(2)
    assert [aliases.use(topic) for topic in (b"a", b"b", b"c")] == [-1, -2, 0]
    assert [aliases.use(topic) for topic in (b"c", b"c", b"b", b"a", b"a")] == [-1, 1, 2, 0, -2]
    assert [aliases.use(topic) for topic in (b"b", b"b")] == [0, -1]


def test_topics_that_never_come_again_take_none_and_are_forgotten() -> None:
    aliases = TopicAliases(1)
    aliases.use(b"taken")
    assert [aliases.use(b"%d" % number) for number in range(100)] == [0] * 100
    assert aliases.use(b"99") == -1
    assert aliases.use(b"1") == 0


def test_a_blocked_link_is_not_introduced_to_an_alias() -> None:
    world = World(Limits(max_outbox_messages=2, on_overflow="drop_oldest"))
    client = reader(world, 5)
    known: dict[int, bytes] = {}
    world.publish("topic", "0")
    client.block()
    for number in range(1, 6):
        world.publish("topic", str(number))
    client.unblock()
    for number in range(6, 9):
        world.publish("topic", str(number))
    assert [payload for _topic, payload in resolved(client, known)] == [b"0", b"4", b"5", b"6", b"7", b"8"]


@pytest.mark.parametrize("qos", [0, 1])
def test_an_alias_never_makes_a_packet_too_large(qos: int) -> None:
    world = World()
    client = reader(world, 5, qos, largest=30)
    for size in (5, 5, 5, 17, 17, 17, 5):
        world.publish("topic", "x" * size, qos)
    sizes = [len(payload) for _topic, payload in resolved(client, {})]
    assert sizes == [5, 5, 5, 17, 17, 17, 5]


@pytest.mark.parametrize("length", [0, 100, 200])
def test_an_alias_stands_before_the_other_properties(length: int) -> None:
    properties = Properties(content_type="x" * length) if length else NONE
    head, tail = publish_parts(b"topic", b"payload", 0, False, properties, 5)
    both = b"".join(put_topic_alias(head, tail, b"topic", 7, True))
    alone = b"".join(put_topic_alias(head, tail, b"topic", 7, False))
    for frame, name in ((both, b"topic"), (alone, b"")):
        ((first, body),) = Framer(1000).split(frame)
        packet = decode(first, body, 5)
        assert isinstance(packet, Publish)
        assert (packet.topic, packet.payload, packet.properties.topic_alias) == (name, b"payload", 7)
        assert packet.properties.content_type == ("x" * length if length else None)


def test_a_run_that_a_blocked_client_gets_later_has_its_topic_in_full() -> None:
    world = World()
    client = reader(world, 1)
    client.block()
    world.connect("publisher").send(*[Publish(b"t", b"%d" % number) for number in range(5)])
    client.unblock()
    packets = publishes(client.received())
    assert [(packet.topic, packet.payload) for packet in packets] == [(b"t", b"%d" % number) for number in range(5)]
    assert all(packet.properties.topic_alias is None for packet in packets)


def test_of_a_run_that_a_group_shares_a_member_gets_its_part_under_an_alias() -> None:
    world = World()
    aliased = reader(world, 5, topic_filter="$share/g/a/#")
    plain = world.connect("plain")
    plain.subscribe("$share/g/a/#")
    sent = [b"%d" % number for number in range(9)]
    world.connect("publisher").send(*[Publish(b"a/b", payload) for payload in sent])
    packets = publishes(aliased.received())
    assert [packet.properties.topic_alias for packet in packets] == [1] * len(packets)
    assert [packet.topic for packet in packets] == [b"a/b"] + [b""] * (len(packets) - 1)
    assert len(packets) in (4, 5)
    got = [packet.payload for packet in packets] + [packet.payload for packet in publishes(plain.received())]
    assert sorted(got) == sent


@pytest.mark.parametrize("together", [1, 2, 5])
def test_a_member_of_a_group_gets_the_same_whether_its_messages_come_together_or_are_followed(together: int) -> None:
    written = []
    for tracer in (None, Everything()):
        world = World()
        world.broker.watch(tracer)
        client = reader(world, 5, topic_filter="$share/g/a/long/topic")
        world.connect("w").send(*[Publish(b"a/long/topic", b"%d" % at) for at in range(together)])
        written.append([(each.topic, each.properties.topic_alias, each.payload) for each in publishes(client.packets)])
    assert written[0] == written[1]
    assert written[0][0] == (b"a/long/topic", 1, b"0")
    assert [topic for topic, _alias, _payload in written[0][1:]] == [b""] * (together - 1)
