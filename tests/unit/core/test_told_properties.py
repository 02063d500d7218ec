"""Receivers that want it are told which message they get, and from whom if they may know."""

import pytest

from mqttlite.core.connect.capabilities import Capabilities
from mqttlite.core.limits import Limits
from mqttlite.core.message import Message, PublishBatch
from mqttlite.core.outbound.told_properties import time_text, told_properties, with_more
from mqttlite.core.topic_policy import TopicPolicy
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.wire.constants import PUBLISH, V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Publish
from mqttlite.wire.primitives import Cursor
from mqttlite.wire.properties import Properties, decode_properties, encode_properties
from tests.support.core_driver import Client, World, publishes
from tests.support.rules import OpenRules

UserProperties = list[tuple[str, str]]


class TellsOfT(OpenRules):
    def policy_of(self, topic: bytes) -> TopicPolicy:
        return TopicPolicy(tells_publisher=topic == b"t")


class Limits10S(OpenRules):
    def policy_of(self, topic: bytes) -> TopicPolicy:
        return TopicPolicy(ttl_s=10, max_qos=1)


def told_client(
    world: World,
    name: str,
    version: int = V5,
    sees_publishers: bool = False,
    mount: bytes = b"",
    size: int | None = None,
) -> Client:
    capabilities = Capabilities(tell_message=True)
    client = world.open(version, capabilities=capabilities, mount_point=mount, sees_publishers=sees_publishers)
    client.connect(name, maximum_packet_size=size)
    return client


def told(client: Client) -> list[UserProperties]:
    return [packet.properties.user_properties for packet in publishes(client.received())]


def ids(client: Client) -> list[str]:
    return [dict(each)["message-id"] for each in told(client)]


@pytest.mark.parametrize("block_bytes", [0, 200])
def test_more_properties_stand_behind_those_that_came(block_bytes: int) -> None:
    own = [("a", "x" * block_bytes)]
    block = encode_properties(Properties(content_type="text", user_properties=own), PUBLISH)
    both = decode_properties(Cursor(with_more(block, told_properties(1_795_262_594_000_001, "p"))), PUBLISH)
    assert both.content_type == "text"
    assert both.user_properties == [
        *own,
        ("message-id", "1795262594000001"),
        ("publish-time", "2026-11-21T12:03:14.000001Z"),
        ("publisher-id", "p"),
    ]
    assert time_text(1_795_262_595_000_000) == "2026-11-21T12:03:15.000000Z"


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("number", [1, 3], ids=["alone", "together"])
def test_each_receiver_is_told_the_same_id_whatever_its_qos(qos: int, number: int) -> None:
    world = World()
    readers = [told_client(world, f"r{level}") for level in range(3)]
    for level, reader in enumerate(readers):
        reader.subscribe("t", qos=level)
    plain, old = world.connect("plain"), told_client(world, "old", V311)
    plain.subscribe("t", qos=1)
    old.subscribe("t")
    publisher = world.connect("p", V5)
    own = Properties(user_properties=[("a", "b")])
    packets = [Publish(b"t", b"%d" % at, qos, packet_id=qos and at + 1, properties=own) for at in range(number)]
    publisher.send(*packets)
    first = told(readers[0])
    assert [[name for name, _ in each] for each in first] == [["a", "message-id", "publish-time"]] * number
    assert len({dict(each)["message-id"] for each in first}) == number
    assert told(readers[1]) == told(readers[2]) == first
    assert told(plain) == [[("a", "b")]] * number
    assert told(old) == [[]] * number


def test_parts_of_a_batch_have_the_same_messages() -> None:
    frame = encode(Publish(b"t", b"1", 0), V5)
    batch = PublishBatch(b"t", frame * 5, len(frame), len(frame) - 1, 0, V5)
    batch.traces = [7]
    assert batch.every(1, 2).delivery(1, 1).message is batch.delivery(3, 0).message
    assert batch.untraced().select([0, 2]).delivery(1, 0).message is batch.delivery(3, 2).message
    assert batch.delivery(0, 0).message.trace == batch.delivery(0, 1).message.trace == 7


@pytest.mark.parametrize("rules", [OpenRules(), Limits10S()])
@pytest.mark.parametrize("topic", ["t", "$delayed/5/t"])
@pytest.mark.parametrize("qos", [1, 2])
def test_the_id_is_the_one_that_the_publisher_is_told(rules: OpenRules, topic: str, qos: int) -> None:
    world = World()
    world.broker.authorize(built_in_rules(authorizer=rules))
    reader = told_client(world, "r")
    reader.subscribe("t", qos=1)
    publisher = world.open(V5, capabilities=Capabilities(tell_delivery=True))
    publisher.connect("p")
    publisher.publish(topic, "x", qos)
    answer, *_ = publisher.received()
    world.advance(6)
    assert isinstance(answer, Ack)
    assert [("message-id", each) for each in ids(reader)] == [answer.properties.user_properties[0]]


def test_a_policy_limits_a_message_of_qos_0_too() -> None:
    world = World()
    world.broker.authorize(built_in_rules(authorizer=Limits10S()))
    reader = told_client(world, "r")
    reader.subscribe("t", qos=1)
    world.publish("t", "x")
    (packet,) = publishes(reader.received())
    assert packet.properties.message_expiry_interval == 10


def test_a_publisher_is_named_to_those_who_may_know_and_where_the_policy_says_so() -> None:
    world = World()
    world.broker.authorize(built_in_rules(authorizer=TellsOfT()))
    anybody, viewer = told_client(world, "r"), told_client(world, "v", sees_publishers=True)
    for each in (anybody, viewer):
        each.subscribe("#", qos=1)
    publisher = world.connect("p")
    for topic in ("t", "u"):
        publisher.publish(topic, "x", 1)
        publisher.send(Publish(topic.encode(), b"x"), Publish(topic.encode(), b"x"))
    world.publish("t", "of the broker")
    assert [dict(each).get("publisher-id") for each in told(anybody)] == ["p"] * 3 + [None] * 4
    assert [dict(each).get("publisher-id") for each in told(viewer)] == ["p"] * 6 + [None]


def test_a_packet_that_is_too_large_for_it_comes_without() -> None:
    world = World()
    reader = told_client(world, "r", size=60)
    reader.subscribe("t", qos=1)
    world.connect("p").publish("t", "x" * 40, 1)
    assert told(reader) == [[]]
    assert world.session("r").drops == {}


def test_it_is_told_below_a_mount_point_and_elsewhere_is_not_there() -> None:
    world = World()
    below = told_client(world, "r", sees_publishers=True, mount=b"site/")
    below.subscribe("t", qos=1)
    publisher = world.connect("p")
    publisher.publish("site/t", "x", 1)
    (packet,) = publishes(below.received())
    assert (packet.topic, packet.properties.user_properties[-1]) == (b"t", ("publisher-id", "p"))


@pytest.mark.parametrize("how", ["waits", "retained", "retained for a while"])
def test_the_time_of_a_message_is_when_it_came(how: str) -> None:
    world = World(Limits(), now=5.0, retained_expiry_s={b"#": 90} if how == "retained for a while" else None)
    reader = told_client(world, "r", sees_publishers=True)
    publisher = world.connect("p")
    if how == "waits":
        reader.subscribe("t", qos=1)
        reader.auto_ack = False
        world.session("r").window.quota = 1
    publisher.publish("t", "1", 1, retain=True)
    publisher.publish("t", "2", 1, retain=True)
    world.now = 60.0
    if how == "waits":
        reader.send(Ack(4, publishes(reader.received())[0].packet_id))
    else:
        reader.subscribe("t", qos=1)
    ((_, time, publisher_id),) = told(reader)
    assert time[1].startswith("1970-01-01T00:00:05.")
    assert publisher_id[1] == "p"


def test_a_dead_letter_is_told_once() -> None:
    world = World()
    reader = told_client(world, "r")
    reader.subscribe("$dlq/q", qos=1)
    own = [("message-id", "7"), ("publish-time", "then")]
    message = Message(b"$dlq/q", b"x", 1, False, Properties(user_properties=own))
    world.broker.effects.now = world.now
    world.broker.publish_own(message)
    world.settle()
    [packet] = publishes(reader.received())
    assert packet.properties.user_properties == own
    world.end()
