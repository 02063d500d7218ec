"""`$SYS` is the broker's own: nobody publishes there from outside, and what is there takes nobody's room."""

import pytest

from mqttlite.core.limits import MAX_OWN_RETAINED, Limits
from mqttlite.core.memory import MESSAGE_BYTES, RETAINED_BYTES
from mqttlite.core.reasons import NO_SUBSCRIBERS, NOT_AUTHORIZED, CloseReason
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.topics.names import is_own
from mqttlite.wire.constants import PUBACK, PUBREC, V5, V311
from mqttlite.wire.errors import TopicNameInvalid
from mqttlite.wire.packets import Ack, Connack, Publish, Will
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World

WHY = Properties(reason_string="clients may not publish to $SYS and below")

OUTSIDE = ["$SYS", "$SYS/", "$SYS/broker/uptime"]


def listener(world: World, version: int = V5) -> Client:
    client = world.connect("listener", version)
    client.subscribe("$SYS/#", "#", qos=2)
    return client


@pytest.mark.parametrize(
    ("own", "topics"),
    [(True, "$SYS $SYS/ $SYS/a $SYS/#"), (False, "$SYSTEM $sys/a a/$SYS/a /$SYS # $SY")],
)
def test_own_are_sys_and_what_is_below(topics: str, own: bool) -> None:
    assert {is_own(topic.encode()) for topic in topics.split()} == {own}


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("topic", OUTSIDE)
def test_qos_0_from_outside_is_dropped_and_counted(topic: str, version: int) -> None:
    world = World()
    subscriber = listener(world)
    client = world.connect("p", version)
    publish = Publish(topic.encode(), b"x")
    client.send(publish, publish, publish)  # a new route, then a cached one
    client.send(publish)
    client.publish(topic, "x", retain=True)
    assert not client.closed
    assert client.connection.received_qos0 == 5
    assert subscriber.messages() == []
    assert world.broker.router.drops.by_reason == {NOT_AUTHORIZED: 5}
    assert listener(world).messages() == []


@pytest.mark.parametrize("topic", OUTSIDE)
@pytest.mark.parametrize(("qos", "answer"), [(1, PUBACK), (2, PUBREC)])
def test_a_5_0_client_is_told_that_it_may_not(qos: int, answer: int, topic: str) -> None:
    world = World()
    subscriber = listener(world)
    client = world.connect("p")
    for _ in range(2):
        packet_id = client.publish(topic, "x", qos, retain=True)
        assert client.received() == [Ack(answer, packet_id, 0x87, WHY)]
    assert subscriber.messages() == []
    assert world.session("p").received.all() == []
    assert world.broker.router.drops.by_reason == {NOT_AUTHORIZED: 2}


@pytest.mark.parametrize("qos", [1, 2])
def test_a_3_1_1_client_is_acknowledged_and_the_message_dropped(qos: int) -> None:
    world = World()
    subscriber = listener(world)
    client = world.connect("p", V311)
    client.publish("$SYS/a", "x", qos)
    assert all(packet.reason_code == 0 for packet in client.received() if isinstance(packet, Ack))
    assert not client.closed
    assert world.session("p").received.all() == [], "the QoS 2 exchange went to its end"
    assert subscriber.messages() == []
    assert world.broker.router.drops.by_reason == {NOT_AUTHORIZED: 1}


def test_an_alias_is_no_way_in() -> None:
    world = World()
    subscriber = listener(world)
    client = world.connect("p")
    client.send(Publish(b"$SYS/a", b"x", properties=Properties(topic_alias=1)))
    client.send(Publish(b"", b"x", properties=Properties(topic_alias=1)))
    assert subscriber.messages() == []
    assert world.broker.router.drops.by_reason == {NOT_AUTHORIZED: 2}


@pytest.mark.parametrize("topic", OUTSIDE)
@pytest.mark.parametrize(("version", "code"), [(V311, 5), (V5, 0x87)])
def test_a_will_from_outside_is_refused_with_its_connect(version: int, code: int, topic: str) -> None:
    world = World()
    client = world.open(version)
    connack = client.connect("w", will=Will(topic.encode(), b"x"))
    assert isinstance(connack, Connack)
    assert connack.reason_code == code
    assert client.closed
    assert client.connection.close_reason == CloseReason.NOT_AUTHORIZED


def test_the_broker_itself_may() -> None:
    world = World()
    subscriber = listener(world)
    world.connect("p").publish("$SYS/a", "outside")  # the refused route is cached now
    assert world.publish("$SYS/a", "inside", qos=1) == 0
    assert subscriber.messages() == [("$SYS/a", "inside")]
    assert world.publish("elsewhere", "too") == 0
    assert subscriber.messages() == [("elsewhere", "too")]
    with pytest.raises(TopicNameInvalid):
        world.publish("$SYS/+", "x")


def test_messages_by_the_broker_without_a_receiver_are_not_counted_as_lost() -> None:
    world = World()
    assert world.publish("$SYS/a", "x") == 0x10
    assert world.broker.router.drops.by_reason == {}
    assert world.publish("a", "x") == 0x10
    assert world.broker.router.drops.by_reason == {NO_SUBSCRIBERS: 1}


def test_messages_retained_by_the_broker_are_found_replaced_and_forgotten() -> None:
    world = World()
    world.publish("$SYS/a", "1", retain=True)
    world.publish("$SYS/a", "2", retain=True)
    world.publish("$SYS/b", "3", retain=True)
    assert sorted(listener(world).messages()) == [("$SYS/a", "2"), ("$SYS/b", "3")]
    world.publish("$SYS/a", "", retain=True)
    world.publish("$SYS/a", "", retain=True)
    assert listener(world).messages() == [("$SYS/b", "3")]


def test_messages_retained_by_the_broker_may_expire() -> None:
    world = World()
    world.publish("$SYS/a", "1", retain=True, message_expiry_interval=10)
    world.advance(10)
    assert listener(world).messages() == []


def test_messages_retained_by_the_broker_take_no_clients_room_and_are_not_stored() -> None:
    world = World(Limits(max_retained_messages=1, max_retained_bytes=RETAINED_BYTES + 8 + MESSAGE_BYTES + 5))
    for number in range(20):
        assert world.publish(f"$SYS/{number}", "long enough for two", retain=True) == 0x10
    assert world.changes == []
    assert world.connect("p").publish("mine", "1", 1, retain=True)
    client = world.connect("s")
    client.subscribe("#", "$SYS/#")
    assert len(client.messages()) == 21
    restarted = world.restart()
    client = restarted.connect("s")
    client.subscribe("#", "$SYS/#")
    assert client.messages() == [("mine", "1")]


@pytest.mark.reaches
@pytest.mark.long
def test_even_the_broker_retains_only_so_much() -> None:
    world = World()
    for number in range(MAX_OWN_RETAINED):
        assert world.publish(f"$SYS/{number}", "x", retain=True) == 0x10
    assert world.publish("$SYS/more", "x", retain=True) == 0x97
    assert world.publish("$SYS/0", "in its place", retain=True) == 0x10
    assert len(listener(world).messages()) == MAX_OWN_RETAINED


# ------------------------------------------------------------------------------------------------ who is named may


ALERT = "$SYS/analytics/alerts/silent/c1"


def analyst(world: World, client_id: str = "analyst", version: int = V5) -> Client:
    world.broker.authorize(built_in_rules(frozenset({"analyst", "ana"})))
    return world.connect(client_id, version)


@pytest.mark.parametrize("version", [V311, V5])
def test_a_named_user_publishes_below_analytics(version: int) -> None:
    world = World()
    subscriber = listener(world)
    client = analyst(world, version=version)
    alert = Publish(ALERT.encode(), b"x")
    client.send(alert, alert)
    client.publish(ALERT, "y", qos=1)
    client.publish(ALERT, "z", qos=1, retain=True)
    assert subscriber.payloads() == ["x", "x", "y", "z"]
    assert world.broker.router.drops.by_reason == {}
    assert listener(world).payloads() == ["z"]


def test_several_at_once_are_acknowledged_one_by_one() -> None:
    world = World()
    subscriber = listener(world)
    client = analyst(world)
    client.send(*(Publish(ALERT.encode(), b"x", 1, packet_id=number) for number in (1, 2, 3)))
    assert client.received() == [Ack(PUBACK, number) for number in (1, 2, 3)]
    assert subscriber.payloads() == ["x", "x", "x"]


def test_where_nobody_listens_an_analyst_is_told_so() -> None:
    world = World()
    client = analyst(world)
    client.send(Publish(ALERT.encode(), b"x"))
    packet_id = client.publish(ALERT, "x", qos=1)
    assert client.received() == [Ack(PUBACK, packet_id, 0x10)]
    assert world.broker.router.drops.by_reason == {NO_SUBSCRIBERS: 1}


@pytest.mark.parametrize("topic", [*OUTSIDE, "$SYS/analytics"])
def test_elsewhere_below_sys_an_analyst_may_no_more_than_others(topic: str) -> None:
    world = World()
    client = analyst(world)
    client.send(Publish(topic.encode(), b"x"))
    packet_id = client.publish(topic, "x", qos=1)
    assert client.received() == [Ack(PUBACK, packet_id, 0x87, WHY)]
    assert world.broker.router.drops.by_reason == {NOT_AUTHORIZED: 2}


def test_an_unnamed_user_may_not_publish_below_analytics() -> None:
    world = World()
    client = analyst(world, "somebody")
    client.send(Publish(ALERT.encode(), b"x"))
    packet_id = client.publish(ALERT, "x", qos=1)
    assert client.received() == [Ack(PUBACK, packet_id, 0x87, WHY)]
    assert world.broker.router.drops.by_reason == {NOT_AUTHORIZED: 2}
