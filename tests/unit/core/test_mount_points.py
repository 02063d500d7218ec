"""Clients of a listener with a mount point live below it, and do not see it."""

import pytest

from mqttlite.core.limits import CONNECT_WORK, ITERATION_WORK, Limits
from mqttlite.extensions.namespaces import NAMESPACES
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.topics.namespaces import unmounted
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import (
    Ack,
    Connack,
    Connect,
    Pingreq,
    Pingresp,
    Publish,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World
from tests.support.recorder import Recorder
from tests.support.rules import OpenRules

SITE: bytes = b"site7/"


def open_below(world: World, mount_point: bytes = SITE, version: int = V5) -> Client:
    return world.open(version, mount_point=mount_point)


def below(world: World, name: str = "device", mount_point: bytes = SITE, version: int = V5) -> Client:
    client = open_below(world, mount_point, version)
    connack = client.connect(name)
    assert connack is not None
    assert connack.reason_code == 0
    return client


def got(client: Client) -> list[tuple[str, str]]:
    """Topics and payloads that came."""
    return [(each.topic.decode(), each.payload.decode()) for each in client.received() if isinstance(each, Publish)]


@pytest.mark.parametrize(
    ("topic", "name", "topic_filter"),
    [
        (b"t/1", b"site7/t/1", b"site7/t/1"),
        (b"/", b"site7//", b"site7//"),
        (b"+/#", b"site7/+/#", b"site7/+/#"),
        (b"$other/1", b"site7/$other/1", b"site7/$other/1"),
        (b"$SYS/broker", b"$SYS/broker", b"$SYS/broker"),
        (b"$SYStem", b"site7/$SYStem", b"site7/$SYStem"),
        (b"$CONTROL/x", b"$CONTROL/x", b"$CONTROL/x"),
        (b"$queue/jobs", b"$queue/jobs", b"$queue/jobs"),
        (b"$share/group/t/+", b"site7/$share/group/t/+", b"$share/group/site7/t/+"),
        (b"$share/group/$SYS/#", b"site7/$share/group/$SYS/#", b"$share/group/$SYS/#"),
        (b"$delayed/5/t/1", b"$delayed/5/site7/t/1", b"$delayed/5/site7/t/1"),
        (b"$delayed/5", b"$delayed/5", b"$delayed/5"),
        (b"$delayed/5/$SYS/x", b"$delayed/5/$SYS/x", b"$delayed/5/$SYS/x"),
        (b"$delayed/5/$delayed/5/x", b"$delayed/5/$delayed/5/x", b"$delayed/5/$delayed/5/x"),
    ],
)
def test_topics_are_put_below_the_mount_point(topic: bytes, name: bytes, topic_filter: bytes) -> None:
    assert NAMESPACES.mounted_name(SITE, topic) == name
    assert NAMESPACES.mounted_filter(SITE, topic) == topic_filter


@pytest.mark.parametrize(
    ("topic", "seen"),
    [(b"site7/t", b"t"), (b"site7/", b""), (b"site7", b""), (b"other", b""), (b"$SYS/x", b"$SYS/x")],
)
def test_the_mount_point_is_taken_away_again(topic: bytes, seen: bytes) -> None:
    assert unmounted(SITE, topic) == seen


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("versions", [(V5, V5), (V311, V5), (V5, V311), (V311, V311)])
def test_messages_below_a_mount_point_and_beside_it(qos: int, versions: tuple[int, int]) -> None:
    world = World()
    outside = world.connect("outside", versions[0])
    outside.subscribe("#", qos=qos)
    inside, other = below(world, version=versions[1]), below(world, "other", b"site8/")
    for client in (inside, other):
        client.subscribe("#", qos=qos)
    inside.publish("t/1", "a", qos)
    outside.publish("site7/t/2", "b", qos)
    outside.publish("t/3", "c", qos)
    other.publish("t/4", "d", qos)
    assert got(outside) == [("site7/t/1", "a"), ("site7/t/2", "b"), ("t/3", "c"), ("site8/t/4", "d")]
    assert got(inside) == [("t/1", "a"), ("t/2", "b")]
    assert got(other) == [("t/4", "d")]
    world.end()


@pytest.mark.parametrize("qos", [0, 1])
def test_many_messages_in_one_chunk(qos: int) -> None:
    world = World()
    inside, second, outside = below(world), below(world, "second"), world.connect("outside")
    for client in (inside, second):
        client.subscribe("t/#", qos=qos)
    packets = [Publish(b"site7/t/1", b"%d" % each, qos, packet_id=each if qos else 0) for each in range(1, 6)]
    outside.send(*packets)
    expected = [("t/1", str(each)) for each in range(1, 6)]
    assert got(inside) == expected
    assert got(second) == expected


@pytest.mark.parametrize("topic", ["site7", "site7/"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_topic_of_the_mount_point_itself_has_no_name_below_it(topic: str, qos: int) -> None:
    world = World()
    recorder = Recorder()
    inside, outside = below(world), world.connect("outside")
    inside.subscribe("#", qos=qos)
    world.broker.watch(recorder)
    outside.publish(topic, "x", qos)
    assert got(inside) == []
    assert world.session("device").drops == {"not_authorized": 1}


def test_messages_by_the_broker_carry_its_own_name() -> None:
    world = World()
    inside = below(world)
    inside.subscribe("$SYS/#", "#")
    world.publish("$SYS/broker/version", "v")
    assert got(inside) == [("$SYS/broker/version", "v")]


def test_a_client_unsubscribes_with_the_names_it_knows() -> None:
    world = World()
    inside = below(world)
    inside.subscribe("t/#", "$share/group/s/#")
    assert sorted(world.session("device").subscriptions) == [b"$share/group/site7/s/#", b"site7/t/#"]
    inside.send(Unsubscribe(9, (b"t/#", b"$share/group/s/#", b"site7/t/#")))
    assert inside.received() == [Unsuback(9, b"\0\0\x11")]
    assert not world.session("device").subscriptions


def test_long_subscribes_and_unsubscribes_are_mounted_too() -> None:
    world = World()
    inside = below(world)
    inside.subscribe(*[f"{number}/{'x' * 30}" for number in range(100)])
    assert all(each.startswith(SITE) for each in world.session("device").subscriptions)
    assert len(world.session("device").subscriptions) == 100
    inside.send(Unsubscribe(9, tuple(f"{number}/{'x' * 30}".encode() for number in range(99))))
    assert list(world.session("device").subscriptions) == [b"site7/99/" + b"x" * 30]


def test_a_filter_that_is_too_deep_with_the_mount_point_is_refused() -> None:
    world = World(Limits(max_topic_levels=3))
    inside = below(world)
    assert inside.subscribe("a/b", "a/b/c") == b"\0\x8f"


def test_shared_subscriptions_meet_those_from_outside() -> None:
    world = World()
    inside, outside, publisher = below(world), world.connect("outside"), world.connect("p")
    inside.subscribe("$share/group/t/#", qos=1)
    outside.subscribe("$share/group/site7/t/#", qos=1)
    for number in range(4):
        publisher.publish("site7/t/1", str(number), 1)
    for number in range(4, 8):
        publisher.publish("site7/t/1", str(number), 0)
    first, second = got(inside), got(outside)
    assert {topic for topic, _ in first} == {"t/1"}
    assert {topic for topic, _ in second} == {"site7/t/1"}
    assert sorted(payload for _, payload in first + second) == [str(number) for number in range(8)]


def test_delayed_messages_and_wills_are_mounted() -> None:
    world = World()
    reader = world.connect("outside")
    reader.subscribe("#")
    inside = open_below(world)
    inside.connect("device", will=Will(b"gone", b"w", 0, True))
    inside.publish("$delayed/5/t", "later", 1)
    inside.lose()
    assert got(reader) == [("site7/gone", "w")]
    world.advance(6)
    assert got(reader) == [("site7/t", "later")]
    again = below(world)
    again.subscribe("gone")
    assert got(again) == [("gone", "w")]


def test_the_rules_see_the_whole_topic() -> None:
    class Rules(OpenRules):
        def is_open(self, topic: bytes) -> bool:
            return False

        def may_publish(self, role: int, topic: bytes) -> bool:
            return topic == b"site7/may"

        def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
            return topic_filter == b"site7/may"

    world = World()
    world.broker.authorize(built_in_rules(authorizer=Rules()))
    inside = open_below(world)
    inside.connect("device", will=Will(b"may", b"x"))
    assert world.session("device").will == Will(b"site7/may", b"x")
    assert inside.subscribe("may", "not") == b"\0\x87"
    inside.publish("may", "x", 1)
    inside.publish("not", "x", 1)
    codes = [each.reason_code for each in inside.received() if isinstance(each, Ack)]
    assert codes == [0, 0x87]


def test_a_response_topic_is_passed_on_as_it_came() -> None:
    world = World()
    inside, outside = below(world), world.connect("outside")
    outside.subscribe("#")
    inside.send(Publish(b"t", b"x", properties=Properties(response_topic="answers")))
    (message,) = outside.received()
    assert isinstance(message, Publish)
    assert message.properties.response_topic == "answers"


def test_topic_aliases_are_of_the_names_that_the_client_knows() -> None:
    world = World()
    outside = world.connect("outside")
    outside.subscribe("#")
    inside = open_below(world)
    inside.send(Connect("device", V5, properties=Properties(topic_alias_maximum=5)))
    inside.subscribe("t/#", qos=1)
    inside.received()
    inside.send(Publish(b"t/1", b"1", properties=Properties(topic_alias=1)))
    inside.send(Publish(b"", b"2", properties=Properties(topic_alias=1)))
    assert got(outside) == [("site7/t/1", "1"), ("site7/t/1", "2")]
    packets = [each for each in inside.received() if isinstance(each, Publish)]
    assert [each.topic for each in packets] == [b"t/1", b""]
    outside.publish("site7/t/1", "3", 1)
    (third,) = [each for each in inside.received() if isinstance(each, Publish)]
    assert (third.topic, third.payload) == (b"", b"3")


def test_a_session_goes_on_below_its_mount_point_also_after_a_restart() -> None:
    world = World()
    inside = open_below(world)
    inside.connect("device", expiry=100)
    inside.subscribe("t/#", qos=1)
    inside.lose()
    for is_restarted in (False, True):
        if is_restarted:
            world = world.restart()
        world.publish("site7/t/1", "x", 1)
        again = open_below(world)
        connack = again.connect("device", clean_start=False, expiry=100)
        assert isinstance(connack, Connack)
        assert connack.session_present
        assert got(again) == [("t/1", "x")]
        again.lose()


@pytest.mark.parametrize(("first", "second"), [(SITE, b""), (b"", SITE), (SITE, b"site8/")])
def test_a_client_that_comes_to_another_mount_point_has_a_new_session(first: bytes, second: bytes) -> None:
    world = World()
    client = open_below(world, first)
    client.connect("device", expiry=100)
    client.subscribe("#", qos=1)
    client.lose()
    world.publish((first or SITE).decode() + "t", "secret", 1)
    moved = open_below(world, second)
    connack = moved.connect("device", clean_start=False, expiry=100)
    assert isinstance(connack, Connack)
    assert not connack.session_present
    assert got(moved) == []
    assert not world.session("device").subscriptions


def test_messages_that_were_sent_before_are_sent_again_with_the_names_the_client_knows() -> None:
    world = World()
    inside = open_below(world)
    inside.connect("device", expiry=100, auto_ack=False)
    inside.subscribe("t", qos=1)
    world.publish("site7/t", "x", 1)
    assert got(inside) == [("t", "x")]
    inside.lose()
    again = open_below(world)
    again.connect("device", clean_start=False, expiry=100)
    assert got(again) == [("t", "x")]


def test_a_packet_that_fits_without_the_mount_point_is_taken() -> None:
    world = World()
    inside = open_below(world)
    inside.connect("device", maximum_packet_size=20)
    inside.subscribe("t")
    world.publish("site7/t", "x" * 14)
    world.publish("site7/t", "x" * 15)
    assert got(inside) == [("t", "x" * 14)]


def test_no_local_and_subscription_options_hold() -> None:
    world = World()
    inside = below(world)
    inside.subscribe(SubscriptionRequest(b"t", 1, True, True, 2), identifier=7)
    inside.publish("t", "own", 1)
    world.publish("site7/t", "other", 1, True)
    (message,) = [each for each in inside.received() if isinstance(each, Publish)]
    assert (message.topic, message.payload, message.retain) == (b"t", b"other", True)
    assert message.properties.subscription_identifiers == [7]


@pytest.mark.parametrize("is_busy", [False, True])
def test_packets_in_one_chunk_with_connect_are_mounted_too(is_busy: bool) -> None:
    world = World()
    outside = world.connect("outside")
    outside.subscribe("#")
    inside = open_below(world)
    if is_busy:
        world.broker.effects.work = ITERATION_WORK - CONNECT_WORK - 10
    inside.send(Connect("device", V5), *[Publish(b"t", b"%d" % number) for number in range(20)])
    world.settle()
    assert got(outside) == [("site7/t", str(number)) for number in range(20)]


@pytest.mark.parametrize(("used", "is_handled"), [(-1, True), (0, False), (1, False)])
def test_a_client_below_a_mount_point_waits_for_the_budget_of_the_iteration(used: int, is_handled: bool) -> None:
    world = World()
    client = below(world)
    client.received()
    world.broker.effects.work = ITERATION_WORK + used
    world.broker.feed(client.connection, encode(Pingreq(), V5), world.now)
    assert client.connection.deferred != is_handled
    world.settle()
    assert client.received() == [Pingresp()]
