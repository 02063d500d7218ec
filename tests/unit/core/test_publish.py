"""What happens to a message: forwarded, translated, shaped for its receivers, retained, counted."""

import pytest

from mqttlite.core.limits import RETAINED_SWEEP_S, Limits
from mqttlite.core.memory import MESSAGE_BYTES, RETAINED_BYTES
from mqttlite.core.message import Delivery, Message
from mqttlite.core.reasons import BUFFER_FULL, NO_SUBSCRIBERS, PACKET_TOO_LARGE, QOS0_OFFLINE
from mqttlite.wire.constants import PUBACK, PUBREC, V5, V31, V311
from mqttlite.wire.packets import Ack, Publish
from mqttlite.wire.properties import Properties
from tests.support.core_driver import World, publishes, request
from tests.support.packets import decode_frame
from tests.support.stores import loaded

VERSIONS = [V31, V311, V5]

# ── QoS 0, as it came ──────────────────────────────────────────────────────────────────────────────────────────────

RETAINED_MESSAGE_BYTES = RETAINED_BYTES + MESSAGE_BYTES + 3
"""What a retained message takes beside its payload if its topic is one letter, which is kept three times."""


@pytest.mark.parametrize("subscriber_version", VERSIONS)
@pytest.mark.parametrize("publisher_version", VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 120, 121, 122, 123, 124, 16_376, 16_380])
def test_qos_0_messages_arrive_whatever_the_versions_and_sizes(
    publisher_version: int, subscriber_version: int, size: int
) -> None:
    world = World()
    subscriber = world.connect("s", subscriber_version)
    subscriber.subscribe("a/#")
    publisher = world.connect("p", publisher_version)
    payloads = [letter.encode() * size for letter in "xyz"]
    publisher.send(*[Publish(b"a/b", payload) for payload in payloads], Publish(b"a", b"end"))
    assert subscriber.received() == [*[Publish(b"a/b", payload) for payload in payloads], Publish(b"a", b"end")]
    assert publisher.connection.received_qos0 == 4
    assert subscriber.connection.outbox.sent_qos0 == 4


def test_a_run_ends_where_topic_or_size_change() -> None:
    world = World()
    subscriber = world.connect("s")
    subscriber.subscribe("#")
    publisher = world.connect("p")
    messages = [(b"a", b"1"), (b"a", b"2"), (b"b", b"3"), (b"a", b"44"), (b"a", b"55"), (b"a", b"6")]
    publisher.send(*[Publish(topic, payload) for topic, payload in messages])
    assert [(packet.topic, packet.payload) for packet in publishes(subscriber.received())] == messages


def test_receivers_of_both_versions_identifiers_and_sizes_get_the_same_messages() -> None:
    world = World()
    clients = [world.connect("3", V311), world.connect("5"), world.connect("m", maximum_packet_size=30)]
    for client in clients:
        client.subscribe("t")
    named = world.connect("i")
    named.subscribe("t", identifier=9)
    world.connect("p").send(*[Publish(b"t", payload) for payload in (b"1", b"2", b"x" * 50)])
    for client in (clients[0], clients[1]):
        assert client.payloads() == ["1", "2", "x" * 50]
    assert clients[2].payloads() == ["1", "2"]
    assert clients[2].connection.outbox.drops == {PACKET_TOO_LARGE: 1}
    assert [packet.properties.subscription_identifiers for packet in publishes(named.received())] == [[9]] * 3


def test_a_blocked_receiver_keeps_a_run_and_the_others_have_it_at_once() -> None:
    world = World(Limits(max_outbox_messages=2))
    slow, quick, other = world.connect("slow"), world.connect("quick"), world.connect("3", V311)
    for client in (slow, quick, other):
        client.subscribe("t")
    slow.block()
    other.block()
    world.connect("p").send(*[Publish(b"t", payload) for payload in (b"1", b"2", b"3")])
    assert quick.payloads() == ["1", "2", "3"]
    assert slow.payloads() == other.payloads() == []
    slow.unblock()
    other.unblock()
    assert slow.payloads() == other.payloads() == ["1", "2"]
    assert slow.connection.outbox.drops == {BUFFER_FULL: 1}


def test_qos_0_messages_for_a_session_whose_client_is_away_are_counted() -> None:
    world = World()
    away = world.connect("away", expiry=100)
    away.subscribe("t", qos=1)
    away.lose()
    publisher = world.connect("p")
    publisher.send(Publish(b"t", b"1"), Publish(b"t", b"2"))
    assert world.session("away").drops == {QOS0_OFFLINE: 2}
    back = world.connect("away", clean_start=False, expiry=100)
    assert back.received() == []
    back.disconnect()
    assert back.connection.drops == {QOS0_OFFLINE: 2}


@pytest.mark.parametrize("qos", [0, 1])
def test_messages_that_reach_nobody_are_counted(qos: int) -> None:
    world = World()
    publisher = world.connect("p")
    publisher.subscribe(request("t", no_local=True))
    publisher.publish("nobody", "1", qos)
    publisher.publish("t", "2", qos)
    assert world.broker.router.drops.by_reason == {NO_SUBSCRIBERS: 2}


# ── shapes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_remaining_time_is_said_to_each_receiver_and_never_grows() -> None:
    world = World(now=123_456.789)
    subscriber = world.connect("s", expiry=100)
    subscriber.subscribe("t", qos=1)
    world.publish("t", "at once", 1, message_expiry_interval=10)
    subscriber.lose()
    world.publish("t", "later", 1, message_expiry_interval=10)
    world.publish("t", "never", 1, message_expiry_interval=6)
    world.advance(7)
    back = world.connect("s", clean_start=False, expiry=100)
    expiries = [
        (packet.payload, packet.properties.message_expiry_interval)
        for packet in publishes(subscriber.received() + back.received())
    ]
    assert expiries == [(b"at once", 10), (b"later", 3)]


def test_a_delivery_is_encoded_once_for_all_receivers_of_a_version() -> None:
    delivery = Delivery(Message(b"t", b"x" * 1_000, 1), 1, False)
    for version in (V311, V5):
        assert delivery.parts(version, 0.0)[0] is delivery.parts(version, 1.0)[0]


def test_a_delivery_of_an_expiring_message_with_less_than_a_second_left_says_one() -> None:
    message = Message(b"t", b"x", 0, False, Properties(message_expiry_interval=10), 10.0)
    packet = decode_frame(b"".join(Delivery(message, 0, False).parts(V5, 9.9)), V5)
    assert isinstance(packet, Publish)
    assert packet.properties.message_expiry_interval == 1


# ── what the publisher is told ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("qos", "answer"), [(1, PUBACK), (2, PUBREC)])
def test_a_publisher_hears_whether_anybody_got_it(qos: int, answer: int) -> None:
    world = World(Limits(max_queued_messages=1))
    publisher = world.connect("p", auto_ack=False)
    assert publisher.publish("t", "x", qos) == 1
    assert publisher.received() == [Ack(answer, 1, 0x10)]
    away = world.connect("s", expiry=100)
    away.subscribe("t", qos=2)
    away.lose()
    for packet_id, code in [(2, 0), (3, 0x97)]:
        publisher.publish("t", "x", qos, packet_id=packet_id)
        assert publisher.received() == [Ack(answer, packet_id, code)]


def test_a_refused_qos_2_identifier_is_free_and_an_accepted_one_is_not() -> None:
    world = World(Limits(max_retained_messages=0))
    publisher = world.connect("p", auto_ack=False)
    publisher.publish("t", "x", 2, retain=True, packet_id=1)
    publisher.publish("t", "x", 2, packet_id=2)
    assert world.session("p").received.all() == [2]


# ── retained messages ──────────────────────────────────────────────────────────────────────────────────────────────


def test_an_expired_retained_message_is_not_given_to_a_new_subscription() -> None:
    world = World()
    world.publish("t", "x", 0, retain=True, message_expiry_interval=10)
    world.advance(9.9)
    subscriber = world.connect("s")
    subscriber.subscribe("t")
    assert subscriber.payloads() == ["x"]
    world.advance(0.1)
    subscriber.subscribe("t")
    assert subscriber.payloads() == []
    assert loaded(world.store) == []


@pytest.mark.parametrize(("messages", "refused"), [(1, 0), (2, 0), (3, 1)])
def test_as_many_messages_are_retained_as_allowed_and_more_are_only_delivered(messages: int, refused: int) -> None:
    world = World(Limits(max_retained_messages=2))
    subscriber = world.connect("s")
    subscriber.subscribe("#")
    codes = [world.publish(f"t/{number}", "x", 1, retain=True) for number in range(messages)]
    assert codes.count(0x97) == refused
    assert len(subscriber.payloads()) == messages
    assert len(loaded(world.store)) == messages - refused


@pytest.mark.parametrize(("size", "code"), [(7, 0x10), (8, 0x10), (9, 0x97)])
def test_as_many_bytes_are_retained_as_allowed(size: int, code: int) -> None:
    world = World(Limits(max_retained_bytes=2 * RETAINED_MESSAGE_BYTES + 18))
    world.publish("a", "x" * 10, retain=True)
    assert world.publish("b", "x" * size, retain=True) == code


def test_replacing_and_forgetting_give_the_room_back() -> None:
    world = World(Limits(max_retained_messages=1, max_retained_bytes=RETAINED_MESSAGE_BYTES + 10))
    for _ in range(3):
        assert world.publish("a", "x" * 10, retain=True) == 0x10
    assert world.publish("b", "x", retain=True) == 0x97
    world.publish("a", "", retain=True)
    assert world.publish("b", "x" * 10, retain=True) == 0x10


def test_expired_retained_messages_give_their_room_to_others_now_and_then() -> None:
    world = World(Limits(max_retained_messages=2))
    world.publish("a", "x", retain=True, message_expiry_interval=10)
    world.publish("b", "x", retain=True, message_expiry_interval=20)
    assert world.publish("c", "x", retain=True) == 0x97
    world.advance(30)
    assert world.publish("c", "x", retain=True) == 0x97  # the search is not made again so soon
    world.advance(RETAINED_SWEEP_S)
    assert world.publish("c", "x", retain=True) == 0x10
    assert world.publish("d", "x", retain=True) == 0x10
    assert world.publish("e", "x", retain=True) == 0x97
