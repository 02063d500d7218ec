"""What a topic policy asks of messages: it holds for all publishers, and on every way that a message takes."""

import pytest

from mqttlite.core.limits import DELIVERY_WORK, Limits
from mqttlite.core.topic_policy import EPHEMERAL, NO_POLICY, TopicPolicy
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Publish
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World, publishes
from tests.support.rules import OpenRules


class Policies(OpenRules):
    """Everything is allowed, and one policy holds for the topic `t`."""

    def __init__(self, policy: TopicPolicy) -> None:
        super().__init__()
        self._policy = policy

    def policy_of(self, topic: bytes) -> TopicPolicy:
        return self._policy if topic == b"t" else NO_POLICY


def world_with(policy: TopicPolicy) -> World:
    world = World()
    world.broker.authorize(built_in_rules(authorizer=Policies(policy)))
    return world


def acknowledged(client: Client) -> tuple[int, str | None]:
    """The reason code and string of the PUBACK or PUBREC that came."""
    answer, *_pubcomp = client.received()
    assert isinstance(answer, Ack)
    return answer.reason_code, answer.properties.reason_string


def payloads(client: Client) -> list[tuple[bytes, int]]:
    return [(each.payload, each.qos) for each in client.received() if isinstance(each, Publish)]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [V311, V5])
def test_a_longer_payload_is_refused(qos: int, version: int) -> None:
    world = world_with(TopicPolicy("t", max_payload_bytes=4))
    reader, publisher = world.connect("r"), world.connect("p", version)
    reader.subscribe("t", qos=0)
    publisher.publish("t", "12345", qos)
    if qos:
        expected = (0, None) if version == V311 else (0x83, "5 bytes of payload: the policy of t allows 4")
        assert acknowledged(publisher) == expected
    assert world.broker.router.drops.by_reason == {"not_authorized": 1}
    publisher.publish("t", "1234", qos)
    assert payloads(reader) == [(b"1234", 0)]
    publisher.publish("other", "12345", qos)
    assert world.broker.router.drops.by_reason["not_authorized"] == 1


@pytest.mark.parametrize(("qos", "is_refused"), [(0, True), (1, False), (2, False)])
def test_a_lower_qos_is_refused(qos: int, is_refused: bool) -> None:
    world = world_with(TopicPolicy("t", min_qos=1))
    reader, publisher = world.connect("r"), world.connect("p")
    reader.subscribe("t", qos=0)
    publisher.publish("t", "x", qos)
    assert (payloads(reader) == []) == is_refused
    assert world.broker.router.drops.by_reason == ({"not_authorized": 1} if is_refused else {})


def test_a_lower_qos_than_2_is_refused_with_a_sentence() -> None:
    world = world_with(TopicPolicy("t", min_qos=2))
    publisher = world.connect("p")
    publisher.publish("t", "x", 1)
    assert acknowledged(publisher) == (0x83, "QoS 1: the policy of t asks for 2 at least")


@pytest.mark.parametrize(("most", "got"), [(0, 0), (1, 1), (2, 2)])
def test_receivers_get_the_highest_qos_that_is_allowed(most: int, got: int) -> None:
    world = world_with(TopicPolicy("t", max_qos=most, max_payload_bytes=100))
    reader, publisher = world.connect("r"), world.connect("p")
    reader.subscribe("t", qos=2)
    publisher.publish("t", "x", 2)
    assert payloads(reader) == [(b"x", got)]


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize(("said", "left"), [(None, 60), (100, 60), (10, 10)])
def test_messages_expire_in_time(qos: int, said: int | None, left: int) -> None:
    world = world_with(TopicPolicy("t", ttl_s=60))
    reader, old, publisher = world.connect("r"), world.connect("o", V311), world.connect("p")
    reader.subscribe("t", qos=1)
    old.subscribe("t", qos=1)
    properties = Properties(message_expiry_interval=said, content_type="a")
    publisher.send(Publish(b"t", b"x", qos, packet_id=qos, properties=properties))
    (arrived,) = reader.received()
    assert isinstance(arrived, Publish)
    assert (arrived.properties.message_expiry_interval, arrived.properties.content_type) == (left, "a")
    assert payloads(old) == [(b"x", qos)]


def test_a_message_of_an_old_client_expires_in_time() -> None:
    world = world_with(TopicPolicy("t", ttl_s=60))
    reader, publisher = world.connect("r"), world.connect("p", V311)
    reader.subscribe("t", qos=0)
    publisher.publish("t", "x", 0)
    (arrived,) = reader.received()
    assert isinstance(arrived, Publish)
    assert arrived.properties.message_expiry_interval == 60


def test_of_an_ephemeral_topic_nothing_is_kept() -> None:
    world = world_with(TopicPolicy("t", EPHEMERAL))
    here, away, publisher = world.connect("h"), world.connect("a", expiry=100), world.connect("p")
    for client in (here, away):
        client.subscribe("t", qos=1)
    away.lose()
    publisher.publish("t", "x", 1)
    assert acknowledged(publisher)[0] == 0
    assert payloads(here) == [(b"x", 0)]
    assert world.session("a").queued == 0
    publisher.publish("t", "x", 1, retain=True)
    assert acknowledged(publisher) == (0x83, "RETAIN: t is ephemeral, and nothing is kept of it")
    assert len(world.broker.router.retained) == 0


def test_the_program_and_delayed_messages_are_bound_as_well() -> None:
    world = world_with(TopicPolicy("t", max_payload_bytes=1))
    reader, publisher = world.connect("r"), world.connect("p")
    reader.subscribe("t", qos=1)
    assert world.publish("t", "xx", 1) == 0x83
    publisher.publish("$delayed/1/t", "xx", 1)
    assert acknowledged(publisher) == (0x83, "2 bytes of payload: the policy of t allows 1")
    publisher.publish("$delayed/1/t", "xx", 0)
    publisher.publish("$delayed/1/t", "x", 1)
    assert acknowledged(publisher)[0] == 0
    world.advance(2)
    assert payloads(reader) == [(b"x", 1)]
    assert world.broker.router.drops.by_reason == {"not_authorized": 3}


def test_a_traced_message_keeps_its_number() -> None:
    policy = TopicPolicy("t", max_qos=1, ttl_s=60)
    world = world_with(policy)
    publisher = world.connect("p")
    publisher.publish("t", "x", 2, retain=True)
    (message,) = world.broker.router.retained.search(b"t").take(1)
    assert (message.qos, message.number) == (1, world.broker.effects.numbers.latest)


@pytest.mark.parametrize(
    ("policy", "is_together"),
    [
        (TopicPolicy("t", priority="low", max_payload_bytes=9, min_qos=1), True),
        (TopicPolicy("t", on_overflow="drop_oldest"), True),
        (TopicPolicy("t", max_qos=0), False),
        (TopicPolicy("t", ttl_s=5), True),
        (TopicPolicy("t", on_overflow="reject"), False),
    ],
)
def test_a_batch_is_passed_on_together_where_no_message_needs_a_look(policy: TopicPolicy, is_together: bool) -> None:
    world = world_with(policy)
    publisher, reader = world.connect("p"), world.connect("r")
    reader.subscribe("t", qos=1)
    chunk = b"".join([encode(Publish(b"t", b"text", 1, packet_id=at), V5) for at in range(1, 21)])
    before = world.broker.effects.work
    world.broker.feed(publisher.connection, chunk, world.now)
    assert (world.broker.effects.work - before < 20 * DELIVERY_WORK) == is_together
    world.settle()


def test_a_batch_overflows_as_its_policy_says() -> None:
    world = World(Limits(max_queued_messages=2))
    world.broker.authorize(built_in_rules(authorizer=Policies(TopicPolicy("t", on_overflow="drop_oldest"))))
    publisher, reader = world.connect("p"), world.connect("r", expiry=100)
    reader.subscribe("t", qos=1)
    reader.lose()
    publisher.send_bytes(b"".join([encode(Publish(b"t", b"%d" % at, 1, packet_id=at), V5) for at in range(1, 6)]))
    again = world.open()
    again.connect("r", expiry=100, clean_start=False)
    assert again.payloads() == ["4", "5"]


def test_a_policy_that_asks_nothing_changes_nothing() -> None:
    assert TopicPolicy("t").is_plain
    assert not TopicPolicy("t", EPHEMERAL).is_plain


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize(("expiry_s", "told_s"), [(None, 30), (10, 10), (60, 30)])
def test_a_run_stays_together_and_expires_early(qos: int, expiry_s: int | None, told_s: int) -> None:
    world = World()
    world.broker.authorize(built_in_rules(authorizer=Policies(TopicPolicy("t", ttl_s=30))))
    reader, old, publisher = world.connect("r"), world.connect("old", V311), world.connect("p")
    reader.subscribe("t", qos=1)
    old.subscribe("t", qos=1)
    properties = Properties(message_expiry_interval=expiry_s, user_properties=[("a", "b")])
    publisher.send(
        *(Publish(b"t", b"%d" % at, qos, packet_id=qos and at + 1, properties=properties) for at in range(5))
    )
    got = publishes(reader.received())
    assert [(each.payload, each.qos, each.properties.message_expiry_interval) for each in got] == [
        (b"%d" % at, qos, told_s) for at in range(5)
    ]
    assert got[0].properties.user_properties == [("a", "b")]
    assert old.payloads() == ["0", "1", "2", "3", "4"]
