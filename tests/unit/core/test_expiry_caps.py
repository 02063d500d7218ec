"""How long retained messages are kept at most, by topic; and that only the retained copy of a message expires."""

import pytest

from mqttlite.core.limits import RETAINED_SWEEP_S, Limits
from mqttlite.core.message import Message
from mqttlite.core.retained.expiry_caps import ExpiryCaps
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Publish, Subscribe
from mqttlite.wire.properties import Properties
from tests.support.core_driver import World, publishes, request

EXPIRY = {"#": 100, "sensors/#": 10, "sensors/+/mode": 30, "sensors/7/mode": 0}


def world_of(expiry: dict[str, int], limits: Limits | None = None) -> World:
    return World(limits, retained_expiry_s={key.encode(): seconds for key, seconds in expiry.items()})


def found(world: World, topic_filter: str = "#", version: int = V5) -> list[Publish]:
    """What a new subscription finds retained."""
    client = world.connect("late", version)
    client.subscribe(topic_filter)
    return publishes(client.received())


def names(world: World) -> list[bytes]:
    return sorted(publish.topic for publish in found(world))


def interval(publish: Publish) -> int | None:
    return publish.properties.message_expiry_interval


@pytest.mark.parametrize(
    ("filters", "topic", "chosen"),
    [
        (["#", "a/#"], "a/b", "a/#"),
        (["#", "a/#"], "a", "a/#"),
        (["#", "a/#"], "b", "#"),
        (["a/+/c", "a/b/#"], "a/b/c", "a/+/c"),
        (["a/+", "a/b"], "a/b", "a/b"),
        (["+/b", "a/+"], "a/b", "a/+"),
        (["a/b/#", "a/b"], "a/b", "a/b"),
        (["#", "+"], "a", "+"),
        (["+/#", "+/+"], "a/b", "+/+"),
        (["b", "a/b"], "a", None),
        (["#", "+/x"], "$share/x", None),
    ],
)
def test_the_most_specific_filter_counts(filters: list[str], topic: str, chosen: str | None) -> None:
    for ordered in (filters, filters[::-1]):
        expiry = ExpiryCaps({each.encode(): number for number, each in enumerate(ordered, 1)})
        limited = expiry.limited(Message(topic.encode(), b"x"), 50.0)
        assert limited.expires_at == (0.0 if chosen is None else 51.0 + ordered.index(chosen))


def test_retained_messages_expire_from_their_publication_on() -> None:
    world = world_of(EXPIRY)
    for topic in ("a", "sensors/1", "sensors/1/mode", "sensors/7/mode"):
        world.publish(topic, "x", 1, retain=True)
    world.advance(9.4)
    assert [interval(publish) for publish in found(world, "sensors/1")] == [1]
    assert [interval(publish) for publish in found(world, "sensors/7/mode")] == [None]
    assert len(found(world, version=V311)) == 4
    world.advance(0.6)
    assert names(world) == [b"a", b"sensors/1/mode", b"sensors/7/mode"]
    world.advance(20)
    assert names(world) == [b"a", b"sensors/7/mode"]
    world.advance(70)
    assert names(world) == [b"sensors/7/mode"]


def test_another_message_begins_anew() -> None:
    world = world_of({"a": 10})
    for _ in range(3):
        world.publish("a", "x", retain=True)
        world.advance(9)
        assert names(world) == [b"a"]


@pytest.mark.parametrize(("asked", "kept"), [(5, 5), (10, 10), (11, 10), (1_000, 10), (0, None)])
def test_a_shorter_interval_of_the_message_stays(asked: int, kept: int | None) -> None:
    world = world_of({"a": 10})
    world.publish("a", "x", retain=True, message_expiry_interval=asked)
    assert [interval(publish) for publish in found(world)] == ([] if kept is None else [kept])


@pytest.mark.parametrize("qos", [0, 1])
def test_a_present_subscriber_gets_the_message_as_it_came(qos: int) -> None:
    world = world_of({"#": 10})
    here, away = world.connect("here"), world.connect("away", expiry=1_000, clean_start=False)
    for client in (here, away):
        client.subscribe("#", qos=1)
    away.disconnect()
    world.publish("a", "x", qos, retain=True)
    world.publish("a", "y", qos, retain=True, message_expiry_interval=100)
    assert [interval(publish) for publish in publishes(here.received())] == [None, 100]
    world.advance(20)
    back = world.connect("away", expiry=1_000, clean_start=False)
    assert [interval(publish) for publish in publishes(back.received())] == ([None, 80] if qos else [])


def test_all_else_of_the_message_stays() -> None:
    world = world_of({"#": 10})
    properties = Properties(
        payload_format_indicator=1,
        content_type="text",
        response_topic="r",
        correlation_data=b"c",
        user_properties=[("k", "v")],
    )
    world.broker.publish(b"a", b"x", 1, True, world.now, properties)
    (publish,) = found(world)
    properties.message_expiry_interval = 10
    assert publish.properties == properties
    assert (publish.topic, publish.payload, publish.qos, publish.retain) == (b"a", b"x", 0, True)


def test_an_expiry_survives_a_restart() -> None:
    world = world_of({"a": 10})
    world.publish("a", "x", 1, retain=True)
    world.advance(4)
    after = world.restart()
    assert [interval(publish) for publish in found(after)] == [6]
    after.advance(6)
    assert found(after) == []


def test_expired_entries_make_room() -> None:
    world = world_of({"a": 10}, Limits(max_retained_messages=1))
    world.publish("a", "x", retain=True)
    assert world.publish("b", "x", retain=True) == 0x97
    world.advance(10 + RETAINED_SWEEP_S)
    assert world.publish("b", "x", retain=True) == 0x10


def test_the_empty_message_removes_and_the_brokers_own_stay() -> None:
    world = world_of({"#": 10, "$SYS/#": 10})
    world.publish("a", "x", retain=True)
    world.publish("a", "", retain=True)
    world.broker.publish(b"$SYS/broker/x", b"1", 0, True, world.now)
    world.advance(10)
    assert found(world) == []
    assert [interval(publish) for publish in found(world, "$SYS/#")] == [None]


def test_a_blocked_client_is_told_the_time_that_is_left() -> None:
    world = world_of({"#": 10})
    world.publish("a", "x", retain=True)
    client = world.connect("slow")
    world.broker.block(client.connection, world.now)
    client.send(Subscribe(1, (request("a"),)))
    world.advance(4)
    world.broker.unblock(client.connection, world.now)
    world.settle()
    assert [interval(publish) for publish in publishes(client.received())] == [6]
