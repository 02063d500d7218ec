"""Namespaces that the broker does not serve are refused with a reason, and are no ordinary topics."""

import re

import pytest

from mqttlite.core.connect.capabilities import Capabilities
from mqttlite.core.reasons import NO_SUBSCRIBERS
from mqttlite.core.route.subscription import Subscription
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.wire.constants import PUBACK, PUBREC, V5, V311
from mqttlite.wire.errors import TopicNameInvalid
from mqttlite.wire.packets import Ack, Connack, Connect, Publish, Suback, Subscribe, Unsuback, Unsubscribe, Will
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World, request

REASONS = {
    "$queue/orders": "$queue/…: nothing takes that; consumers publish to $queue/<name>/$ack, $nack or $extend, "
    "and operators to $create, $delete, $seek, $purge, $pause, $resume, $snapshot or $replay",
    "$delayed/x/lamp": "$delayed/…: 'x' is no whole number of seconds from 0 to 4294967",
}
TOPICS = list(REASONS)
NO_QUEUES = "$queue/…: this broker does not serve it"
ONE_QUEUE = "$queue/…: the name of one queue follows, without wildcards"
FILTERS = {
    "$queue/orders": NO_QUEUES,
    "$queue/#": ONE_QUEUE,
    "$queue/+/a": ONE_QUEUE,
    "$queue/": ONE_QUEUE,
    "$queue/orders/$ack": "$queue/…: no message comes on its control topics",
    "$stream/orders": "$stream/…: this broker does not serve it",
    "$delayed/x/lamp": "$delayed/…: no message comes on it; subscribe to the topic behind the seconds",
    "$share/g/$queue/orders": "$share/…: the consumers of a queue share it already; subscribe to $queue/<name>",
    "$share/g/$stream/orders": "$stream/…: this broker does not serve it",
}


def connected(world: World, properties: Properties, capabilities: Capabilities | None = None) -> Client:
    client = world.open(V5, capabilities=capabilities or Capabilities())
    client.send(Connect("c", V5, properties=properties))
    client.received()
    return client


def suback(client: Client, *filters: str) -> Suback:
    client.send(Subscribe(1, tuple(request(each) for each in filters)))
    (packet,) = client.received()
    assert isinstance(packet, Suback)
    return packet


@pytest.mark.parametrize("topic_filter", FILTERS)
def test_a_subscription_is_refused_and_the_suback_says_why(topic_filter: str) -> None:
    world = World()
    client = world.connect("c")
    packet = suback(client, "a", topic_filter, "b")
    assert packet.reason_codes == b"\0\x8f\0"
    assert packet.properties.reason_string == FILTERS[topic_filter]
    assert set(world.session("c").subscriptions) == {b"a", b"b"}
    client.send(Unsubscribe(2, (topic_filter.encode(),)))
    assert client.received() == [Unsuback(2, b"\x11")]


def test_the_reason_is_that_of_the_first_filter_that_has_one() -> None:
    client = World().connect("c")
    packet = suback(client, "a", "$stream/a", "$queue/a")
    assert packet.properties.reason_string == FILTERS["$stream/orders"]
    assert suback(client, "a").properties.reason_string is None


def test_a_3_1_1_client_gets_the_failure_code() -> None:
    client = World().connect("c", V311)
    assert client.subscribe("a", "$queue/orders") == b"\0\x80"
    assert not client.closed


@pytest.mark.parametrize(("qos", "answer"), [(1, PUBACK), (2, PUBREC)])
@pytest.mark.parametrize("topic", TOPICS)
def test_an_acknowledgement_says_why_a_message_is_not_accepted(topic: str, qos: int, answer: int) -> None:
    world = World()
    client = world.connect("c")
    for retain in (False, False, True):
        packet_id = client.publish(topic, "x", qos, retain)
        (ack,) = client.received()
        assert ack == Ack(answer, packet_id, 0x90, Properties(reason_string=REASONS[topic]))
    assert not client.closed
    assert world.broker.router.drops.by_reason == {NO_SUBSCRIBERS: 3}
    assert len(world.broker.router.retained) == 0
    assert world.session("c").received.all() == []


def test_qos_0_messages_are_dropped_and_counted() -> None:
    world = World()
    client = world.connect("c")
    publish = Publish(b"$queue/orders", b"x")
    client.send(publish, publish)
    client.publish("$queue/orders", "x", retain=True)
    assert not client.closed
    assert client.received() == []
    assert world.broker.router.drops.by_reason == {NO_SUBSCRIBERS: 3}
    assert len(world.broker.router.retained) == 0


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_of_a_3_1_1_client_is_acknowledged_and_dropped(qos: int) -> None:
    world = World()
    client = world.connect("c", V311)
    client.publish("$queue/orders", "x", qos)
    assert all(packet.reason_code == 0 for packet in client.received() if isinstance(packet, Ack))
    assert not client.closed
    assert world.session("c").received.all() == [], "the QoS 2 exchange went to its end"
    assert world.broker.router.drops.by_reason == {NO_SUBSCRIBERS: 1}


@pytest.mark.parametrize("why", ["no problem information", "small packets"])
def test_no_reason_is_sent_to_clients_that_do_not_want_it_or_have_no_room(why: str) -> None:
    wanted = {"request_problem_information": 0} if why == "no problem information" else {"maximum_packet_size": 30}
    client = connected(World(), Properties(**wanted))  # type: ignore[arg-type]
    assert suback(client, "$queue/orders") == Suback(1, b"\x8f")
    client.publish("$queue/orders", "x", 1, packet_id=7)
    assert client.received() == [Ack(PUBACK, 7, 0x90)]


def test_a_reason_that_just_fits_is_sent() -> None:
    reason = NO_QUEUES
    for size, told in ((9 + len(reason.encode()), reason), (8 + len(reason.encode()), None)):
        client = connected(World(), Properties(maximum_packet_size=size))
        assert suback(client, "$queue/orders").properties.reason_string == told


def test_where_delivery_is_told_the_reason_comes_with_it() -> None:
    client = connected(World(), Properties(), Capabilities(tell_delivery=True))
    client.publish("$queue/orders", "x", 1)
    (ack,) = client.received()
    assert isinstance(ack, Ack)
    assert ack.reason_code == 0x90
    assert ack.properties.reason_string == REASONS["$queue/orders"]
    assert ack.properties.user_properties[1:] == [("delivered-to", "0"), ("queued-for", "0"), ("dropped-for", "0")]


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize(("version", "code"), [(V5, 0x90), (V311, None)])
def test_a_will_is_refused_with_its_connect(version: int, code: int | None, topic: str) -> None:
    world = World()
    client = world.open(version)
    connack = client.connect("w", will=Will(topic.encode(), b"x"))
    assert client.closed
    assert client.connection.close_detail == REASONS[topic]
    if code is None:
        assert connack is None, "3.1.1 has no return code for it"
    else:
        assert isinstance(connack, Connack)
        assert connack.reason_code == code
        assert connack.properties.reason_string == REASONS[topic]


@pytest.mark.parametrize("topic", TOPICS)
def test_a_program_is_told_by_an_error(topic: str) -> None:
    world = World()
    with pytest.raises(TopicNameInvalid, match=re.escape(REASONS[topic])):
        world.publish(topic, "x")
    assert world.broker.router.drops.by_reason == {}


def test_only_the_broker_and_the_program_publish_dead_letters() -> None:
    world = World()
    world.broker.authorize(built_in_rules())
    reader, client = world.connect("r"), world.connect("c")
    assert reader.subscribe("$dlq/#", "$share/g/$dlq/orders") == b"\0\0"
    packet_id = client.publish("$dlq/orders", "x", 1)
    reason = "clients may not publish below $dlq: dead letters come from queues"
    assert client.received() == [Ack(PUBACK, packet_id, 0x87, Properties(reason_string=reason))]
    assert reader.messages() == []
    assert world.publish("$dlq/orders", "x") == 0
    assert reader.payloads() == ["x", "x"]


def test_a_subscription_knows_its_share_name_and_filter() -> None:
    shared = Subscription("c", b"$share/workers/jobs/+", 1)
    assert (shared.share_name, shared.filter) == (b"workers", b"jobs/+")
    plain = Subscription("c", b"jobs/+", 1)
    assert (plain.share_name, plain.filter) == (b"", b"jobs/+")
