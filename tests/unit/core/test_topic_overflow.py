"""`on_overflow` of a topic policy: what becomes of messages for which a receiver has no room, topic by topic."""

import pytest

from mqttlite.core.inbound.back_pressure import NO_ROOM
from mqttlite.core.limits import ITERATION_WORK, MAX_ROOM_LOOKS, ROOM_LOOK_S, Limits
from mqttlite.core.load.quotas import Quotas, Rates
from mqttlite.core.load.rate_limits import BucketTable, Rate
from mqttlite.core.message import Message
from mqttlite.core.reasons import CloseReason
from mqttlite.core.topic_policy import TopicPolicy
from mqttlite.filters import Filters
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.wire.constants import PUBACK, PUBREC, V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Publish, SubscriptionRequest
from mqttlite.wire.reason_codes import ReasonCode
from tests.support.core_driver import Client, World
from tests.unit.core.test_topic_policies import Policies

QUEUE = Limits(max_queued_messages=2, max_block_s=1.0)
OUTBOX = Limits(max_outbox_messages=2, max_block_s=1.0)


def world_of(on_overflow: str, limits: Limits) -> World:
    """A world in which that holds for the topic `t`."""
    world = World(limits)
    policy = TopicPolicy("t", on_overflow=on_overflow)
    world.broker.authorize(built_in_rules(authorizer=Policies(policy)))
    return world


def away(world: World, client_id: str = "away", topic: str = "t") -> None:
    """A client whose queue is kept while it is away."""
    client = world.connect(client_id, expiry=1_000)
    client.subscribe(topic, qos=1)
    client.lose()


def back(world: World, client_id: str = "away") -> list[str]:
    """What it finds when it is back."""
    return world.connect(client_id, clean_start=False, expiry=1_000).payloads()


def acks(client: Client) -> list[int]:
    """The reason codes of PUBACK and PUBREC since the last call."""
    found = [each for each in client.received() if isinstance(each, Ack) and each.packet_type in (PUBACK, PUBREC)]
    return [each.reason_code for each in found]


@pytest.mark.parametrize("default", ["drop_newest", "drop_oldest"])
@pytest.mark.parametrize(
    ("on_overflow", "kept"), [("", None), ("drop_newest", ["0", "1"]), ("drop_oldest", ["2", "3"])]
)
def test_a_topic_chooses_which_messages_a_full_queue_drops(
    on_overflow: str, kept: list[str] | None, default: str
) -> None:
    limits = Limits(max_queued_messages=2, on_overflow=default)
    world = world_of(on_overflow, limits)
    away(world)
    publisher = world.connect("p")
    for number in range(4):
        publisher.publish("t", str(number), 1)
    by_default = ["0", "1"] if default == "drop_newest" else ["2", "3"]
    assert back(world) == (kept or by_default)


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("identifier", [0, 7])
@pytest.mark.parametrize(("on_overflow", "kept"), [("drop_newest", ["0", "1"]), ("drop_oldest", ["2", "3"])])
def test_a_topic_chooses_which_messages_a_blocked_client_loses(
    on_overflow: str, kept: list[str], identifier: int, version: int, many: bool
) -> None:
    world = world_of(on_overflow, OUTBOX)
    reader, publisher = world.connect("r"), world.connect("p", version)
    reader.subscribe("t", identifier=identifier)
    reader.block()
    packets = [encode(Publish(b"t", b"%d" % number), version) for number in range(4)]
    for chunk in [b"".join(packets)] if many else packets:
        publisher.send_bytes(chunk)
    reader.unblock()
    assert reader.payloads() == kept


@pytest.mark.parametrize("qos", [0, 1])
def test_a_topic_may_have_slow_clients_disconnected(qos: int) -> None:
    world = world_of("disconnect", Limits(max_queued_messages=2, max_outbox_messages=2, min_drain_rate=0))
    reader, publisher = world.connect("r"), world.connect("p")
    reader.subscribe("t", "u", qos=qos)
    reader.block()
    for _ in range(3):
        publisher.publish("u", "x", qos)
    assert not reader.closed, "the policy is that of t"
    publisher.publish("t", "x", qos)
    assert reader.connection.close_reason == CloseReason.BUFFER_FULL


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("version", [V311, V5])
def test_a_message_that_is_rejected_goes_to_nobody(version: int, qos: int) -> None:
    world = world_of("reject", QUEUE)
    away(world)
    reader, publisher = world.connect("r"), world.connect("p", version)
    reader.subscribe("t", qos=1)
    for number in range(3):
        publisher.publish("t", str(number), qos)
    assert acks(publisher) == [0, 0, 0 if version == V311 else ReasonCode.QUOTA_EXCEEDED]
    assert reader.payloads() == ["0", "1"]
    assert world.broker.router.drops.by_reason == {"queue_full": 1}
    assert back(world) == ["0", "1"]
    publisher.publish("t", "4", qos)
    assert acks(publisher) == [0]
    assert reader.payloads() == ["4"]


def test_the_publisher_is_told_why() -> None:
    world = world_of("reject", QUEUE)
    away(world)
    publisher = world.connect("p")
    for number in range(3):
        publisher.publish("t", str(number), 1)
    assert publisher.received()[-1].properties.reason_string == NO_ROOM  # type: ignore[union-attr]


@pytest.mark.parametrize("retain", [False, True])
def test_qos_0_messages_are_rejected_too(retain: bool) -> None:
    world = world_of("reject", OUTBOX)
    slow, reader, publisher = world.connect("s"), world.connect("r"), world.connect("p")
    slow.subscribe("t")
    reader.subscribe("t")
    slow.block()
    publisher.send(*[Publish(b"t", b"%d" % number, 0, retain) for number in range(4)])
    assert reader.payloads() == ["0", "1"]
    assert world.broker.router.drops.by_reason == {"queue_full": 2}
    slow.unblock()
    assert slow.payloads() == ["0", "1"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_blocked_publisher_waits_for_room_and_keeps_its_order(qos: int) -> None:
    world = world_of("block", Limits(max_queued_messages=2, max_outbox_messages=2))
    slow, reader, publisher = world.connect("s"), world.connect("r"), world.connect("p")
    slow.subscribe("t", qos=1)
    reader.subscribe("#", qos=1)
    slow.block()
    packets = [Publish(b"t", b"%d" % number, qos, packet_id=(number + 1 if qos else 0)) for number in range(4)]
    publisher.send(*packets, Publish(b"other", b"5", qos, packet_id=5 if qos else 0))
    assert reader.payloads() == ["0", "1"]
    assert "waits for room" in repr(publisher.connection)
    world.advance(10 * ROOM_LOOK_S)
    assert reader.payloads() == []
    slow.unblock()
    world.advance(2 * ROOM_LOOK_S)
    assert reader.payloads() == ["2", "3", "5"]
    assert slow.payloads() == ["0", "1", "2", "3"]
    assert acks(publisher) == ([0] * 5 if qos else [])
    assert world.broker.router.drops.by_reason == {}
    world.end()


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("max_block_s", [0.0, 1.0])
def test_after_the_deadline_the_message_is_refused_and_the_next_is_handled(max_block_s: float, qos: int) -> None:
    limits = Limits(max_queued_messages=2, max_outbox_messages=2, max_block_s=max_block_s)
    world = world_of("block", limits)
    slow, reader, publisher = world.connect("s"), world.connect("r"), world.connect("p")
    slow.subscribe("t", qos=1)
    reader.subscribe("#", qos=1)
    slow.block()
    numbered = enumerate((b"t", b"t", b"t", b"u"), 1)
    publisher.send(*[Publish(topic, b"%d" % (at - 1), qos, packet_id=at if qos else 0) for at, topic in numbered])
    world.advance(max(0.0, max_block_s - 2 * ROOM_LOOK_S))
    assert reader.payloads() == (["0", "1", "3"] if max_block_s == 0.0 else ["0", "1"])
    world.advance(4 * ROOM_LOOK_S)
    assert acks(publisher) == ([0, 0, ReasonCode.QUOTA_EXCEEDED, 0] if qos else [])
    assert reader.payloads() == ([] if max_block_s == 0.0 else ["3"])
    assert world.broker.router.drops.by_reason == {"queue_full": 1}
    slow.lose()
    world.end()


@pytest.mark.parametrize("how", ["takeover", "shut down"])
def test_the_message_of_a_connection_that_ends_is_not_acknowledged(how: str) -> None:
    world = world_of("block", QUEUE)
    away(world)
    publisher = world.connect("p")
    for number in range(3):
        publisher.publish("t", str(number), 1)
    assert acks(publisher) == [0, 0]
    if how == "takeover":
        world.connect("p")
    else:
        world.broker.shut_down(world.now)
    world.settle()
    world.advance(2.0)
    assert acks(publisher) == []
    assert world.broker.router.drops.by_reason == {}


def test_rules_that_change_meanwhile_hold() -> None:
    world = world_of("block", QUEUE)
    away(world)
    publisher = world.connect("p")
    for number in range(3):
        publisher.publish("t", str(number), 1)
    world.broker.authorize(built_in_rules(authorizer=Policies(TopicPolicy("t", on_overflow="drop_oldest"))))
    world.advance(2 * ROOM_LOOK_S)
    assert acks(publisher) == [0, 0, 0]
    assert back(world) == ["1", "2"]


def test_a_message_that_the_policy_refuses_does_not_wait() -> None:
    world = World(QUEUE)
    policy = TopicPolicy("t", on_overflow="block", max_payload_bytes=1)
    world.broker.authorize(built_in_rules(authorizer=Policies(policy)))
    away(world)
    publisher = world.connect("p")
    for payload in ("1", "2", "too long"):
        publisher.publish("t", payload, 1)
    assert acks(publisher) == [0, 0, 0x83]


@pytest.mark.parametrize("members", [1, 2])
def test_a_shared_subscription_has_room_where_a_member_has(members: int) -> None:
    world = world_of("reject", QUEUE)
    for number in range(members):
        away(world, f"away{number}", "$share/g/t")
    publisher = world.connect("p")
    for number in range(2 * members + 1):
        publisher.publish("t", str(number), 1)
    assert acks(publisher) == [0] * (2 * members) + [ReasonCode.QUOTA_EXCEEDED]


def test_a_client_that_sends_itself_nothing_needs_no_room() -> None:
    world = world_of("reject", QUEUE)
    publisher = world.connect("p", auto_ack=False, receive_maximum=1)
    publisher.subscribe(SubscriptionRequest(b"t", 1, no_local=True))
    for number in range(5):
        publisher.publish("t", str(number), 1)
    assert [code for code in acks(publisher) if code >= 0x80] == []


@pytest.mark.long
def test_where_receivers_are_very_many_each_drops_for_itself() -> None:
    world = world_of("reject", QUEUE)
    for number in range(MAX_ROOM_LOOKS + 1):
        away(world, f"away{number}")
    publisher = world.connect("p")
    for number in range(3):
        publisher.publish("t", str(number), 1)
    assert acks(publisher) == [0, 0, ReasonCode.QUOTA_EXCEEDED]
    assert world.broker.router.drops.by_reason == {}, "they are counted for the receivers"


@pytest.mark.parametrize("on_overflow", ["block", "reject"])
def test_a_value_accepted_before_is_not_refused(on_overflow: str) -> None:
    world = world_of(on_overflow, QUEUE)
    away(world)
    tallies = [world.broker.publish_own(Message(b"t", b"%d" % number, 1)).tally for number in range(3)]
    assert [tally.code for tally in tallies] == [0, 0, ReasonCode.QUOTA_EXCEEDED]
    assert world.session("away").drops == {"queue_full": 1}


@pytest.mark.parametrize("seconds", [-1.0, 4_000.0, float("nan")])
def test_the_longest_wait_is_bounded(seconds: float) -> None:
    with pytest.raises(ValueError, match=r"max_block_s is .*: it may be 0 to 3600 seconds"):
        Limits(max_block_s=seconds)


def test_where_the_wait_is_over_and_the_fan_out_is_interrupted_the_publisher_goes_on_after_it() -> None:
    world = world_of("block", QUEUE)
    away(world)
    reader, publisher = world.connect("r"), world.connect("p")
    reader.subscribe("t")
    for number in range(3):
        publisher.publish("t", str(number), 1)
    publisher.publish("u", "x", 1)
    world.broker.end_session("away", world.now)
    effects = world.broker.effects
    world.now += 2 * ROOM_LOOK_S
    effects.share_from = ITERATION_WORK
    effects.work = ITERATION_WORK - 1  # enough for the deadline, and for nothing behind it
    world.broker.tick(world.now)
    world.settle()
    assert acks(publisher) == [0, 0, 0, 0x10]
    assert reader.payloads() == ["0", "1", "2"]


class Restricted(Policies):
    """The same, and only members may read."""

    def is_readable(self, topic: bytes) -> bool:
        return False


@pytest.mark.parametrize("topic", ["t", "$share/g/t"])
def test_receivers_of_topics_that_not_all_may_read_are_looked_at(topic: str) -> None:
    world = World(QUEUE)
    world.broker.authorize(built_in_rules(authorizer=Restricted(TopicPolicy("t", on_overflow="reject"))))
    away(world, topic=topic)
    publisher = world.connect("p")
    for number in range(3):
        publisher.publish("t", str(number), 1)
    assert acks(publisher) == [0, 0, ReasonCode.QUOTA_EXCEEDED]


@pytest.mark.parametrize("more", [False, True])
def test_receivers_with_filters_are_looked_at(more: bool) -> None:
    world = World(QUEUE, filters=Filters())
    world.broker.authorize(built_in_rules(authorizer=Policies(TopicPolicy("t", on_overflow="reject"))))
    client, publisher = world.connect("away", expiry=1_000), world.connect("p")
    client.subscribe("t", qos=1, where="payload >= 0")
    if more:
        client.subscribe("#", qos=1, where="payload >= 0")
    client.lose()
    for number in range(3):
        publisher.publish("t", str(number), 1)
    assert acks(publisher) == [0, 0, ReasonCode.QUOTA_EXCEEDED]


def test_a_paced_reader_has_no_room_until_the_pace_ends() -> None:
    world = world_of("reject", Limits())
    quotas = Quotas(outgoing=Rates(BucketTable(Rate(messages_per_s=1))))
    reader = world.open(quotas=quotas)
    assert reader.connect("r") is not None
    reader.subscribe("t")
    publisher = world.connect("p")
    for number in range(4):
        publisher.publish("t", str(number), 0)
    assert world.broker.router.drops.by_reason == {"queue_full": 2}
    assert reader.payloads() == ["0", "1"]
