"""The outcome of a message: why a receiver drops it, whether durable state changed, and what is decided later."""

from collections.abc import Callable

import pytest

from mqttlite.core.inbound.inbound import Ticket
from mqttlite.core.limits import Limits
from mqttlite.core.load.quotas import Quotas, Rates
from mqttlite.core.load.rate_limits import BucketTable, Rate
from mqttlite.core.message import Message
from mqttlite.core.reasons import BUFFER_FULL, NOT_AUTHORIZED, PACKET_TOO_LARGE, QOS0_OFFLINE, RATE_LIMITED
from mqttlite.core.route.tally import NO_MATCHING_SUBSCRIBERS, QUOTA_EXCEEDED, Tally
from mqttlite.core.source import Source
from mqttlite.core.topic_policy import TopicPolicy
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.wire.constants import V5
from mqttlite.wire.packets import Ack, Publish
from tests.support.core_driver import Client, World
from tests.support.queues import QueueWorld, options
from tests.unit.core.test_payload_check import KeptAsDeadLetters, Policies
from tests.unit.core.test_sink import Recorder


def offer(world: World, payload: bytes = b"x", qos: int = 1, retain: bool = False, topic: str = "t") -> Ticket:
    return world.broker.publish(topic.encode(), payload, qos, retain, world.now)


# ── why a receiver drops a QoS 0 message ───────────────────────────────────────────────────────────────────────────


def away(world: World, topic_filter: str) -> None:
    reader = world.connect("r", expiry=100)
    reader.subscribe(topic_filter)
    reader.disconnect()


def full(world: World, topic_filter: str) -> None:
    reader = world.connect("r")
    reader.subscribe(topic_filter)
    reader.connection.outbox.block()
    for _ in range(100):
        offer(world, b"x" * 100, 0)


def paced(world: World, topic_filter: str, is_full: bool = False) -> None:
    reader = world.open(quotas=Quotas(outgoing=Rates(BucketTable(Rate(messages_per_s=1)))))
    assert reader.connect("r") is not None
    reader.subscribe(topic_filter)
    for _ in range(3):
        world.publish("t")
    if is_full:
        reader.connection.outbox.block()
        for _ in range(100):
            offer(world, b"x" * 100, 0)


def paced_and_full(world: World, topic_filter: str) -> None:
    paced(world, topic_filter, is_full=True)


def yielding(world: World, topic_filter: str) -> None:
    reader = world.connect("r")
    reader.subscribe(topic_filter)
    reader.connection.outbox.block()
    reader.connection.outbox.yields = True


def small(world: World, topic_filter: str) -> None:
    world.connect("r", maximum_packet_size=50).subscribe(topic_filter)


def small_and_blocked(world: World, topic_filter: str) -> None:
    reader = world.connect("r", maximum_packet_size=50)
    reader.subscribe(topic_filter)
    reader.connection.outbox.block()


@pytest.mark.parametrize("topic_filter", ["t", "$share/group/t"])
@pytest.mark.parametrize(
    ("situation", "reason"),
    [
        (away, QOS0_OFFLINE),
        (full, BUFFER_FULL),
        (paced, RATE_LIMITED),
        (paced_and_full, BUFFER_FULL),
        (yielding, BUFFER_FULL),
        (small, PACKET_TOO_LARGE),
        (small_and_blocked, PACKET_TOO_LARGE),
    ],
)
def test_answer_and_plan_name_the_same_reason(
    situation: Callable[[World, str], None], reason: str, topic_filter: str
) -> None:
    world = World(Limits(max_outbox_bytes=2_000, on_overflow="drop_newest"))
    situation(world, topic_filter)
    plan = world.broker.planner.publish("p", None, b"t", b"x" * 100, 0, False)
    assert [each.reason for each in plan.receivers] == [reason]
    before = drops_of(world)
    assert offer(world, b"x" * 100, 0).tally.dropped == {reason: 1}
    assert drops_of(world) == before | {reason: before.get(reason, 0) + 1}
    publisher = world.connect("p")
    publisher.send(Publish(b"t", b"x" * 100))
    assert drops_of(world) == before | {reason: before.get(reason, 0) + 2}


def drops_of(world: World) -> dict[str, int]:
    session = world.session("r")
    found = dict(session.drops)
    for reason, messages in {} if session.outbox is None else session.outbox.drops.items():
        found[reason] = found.get(reason, 0) + messages
    return found


def test_the_topic_of_a_mount_point_itself_is_not_authorized() -> None:
    world = World()
    reader = world.open(V5, mount_point=b"site/")
    assert reader.connect("r") is not None
    reader.subscribe("#")
    assert offer(world, qos=0, topic="site").tally.dropped == {NOT_AUTHORIZED: 1}


# ── durable state ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_retained_message_is_durable_also_when_it_only_removes_the_earlier_one() -> None:
    world = World(Limits(max_retained_bytes=1_000))
    assert offer(world, retain=True).tally.is_durable
    refused = offer(world, b"x" * 2_000, retain=True).tally
    assert (refused.code, refused.is_durable) == (QUOTA_EXCEEDED, True), "the earlier one is removed"


def test_a_delayed_message_is_durable() -> None:
    assert offer(World(), topic="$delayed/10/t").tally.is_durable


def test_an_invalid_message_that_a_queue_keeps_is_durable() -> None:
    world = QueueWorld([options("jobs", "t")])
    world.broker.authorize(built_in_rules(authorizer=Policies(TopicPolicy("t", payload_check=KeptAsDeadLetters()))))
    kept = offer(world, b"").tally
    assert (kept.code, kept.queued, kept.is_durable) == (0, 1, True)


def test_a_message_for_a_kept_session_is_durable() -> None:
    world = World()
    world.connect("r").subscribe("t", qos=1)
    assert not offer(world).tally.is_durable
    world.connect("kept", expiry=100).subscribe("t", qos=1)
    assert offer(world).tally.is_durable
    assert not offer(world, qos=0).tally.is_durable


# ── what is decided later ──────────────────────────────────────────────────────────────────────────────────────────


class Remote(Recorder):
    """A sink that decides later."""

    def __init__(self) -> None:
        super().__init__()
        self.tallies: list[Tally] = []

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        super().accept(message, source, tally)
        tally.pend()
        self.tallies.append(tally)


def remotes(world: World) -> list[Remote]:
    found = [Remote(), Remote()]
    for each in found:
        world.broker.bind(b"t", each)
    return found


@pytest.mark.parametrize("code", [0, QUOTA_EXCEEDED])
def test_a_publisher_gets_its_answer_when_the_last_part_is_decided(code: int) -> None:
    world = World()
    first, second = remotes(world)
    publisher = world.connect("p")
    publisher.send(Publish(b"t", b"x", 1, packet_id=7), Publish(b"u", b"y", 1, packet_id=8))
    assert publisher.received() == [], "a later message does not overtake"
    second.tallies[0].settle(code)
    world.settle()
    assert publisher.received() == []
    first.tallies[0].settle()
    world.settle()
    assert [(each.packet_id, each.reason_code) for each in acks_of(publisher)] == [
        (7, code),
        (8, NO_MATCHING_SUBSCRIBERS),
    ]
    world.end()


def acks_of(client: Client) -> list[Ack]:
    return [each for each in client.received() if isinstance(each, Ack)]


def test_a_ticket_is_done_when_the_last_part_is_decided() -> None:
    world = World()
    first, second = remotes(world)
    done: list[bool] = []
    ticket = offer(world)
    assert not ticket.done
    ticket.on_done = lambda: done.append(True)
    first.tallies[0].settle()
    assert not done
    second.tallies[0].settle(QUOTA_EXCEEDED)
    assert (done, ticket.done, ticket.tally.code) == ([True], True, QUOTA_EXCEEDED)


def test_a_publisher_that_left_needs_no_answer() -> None:
    world = World()
    first, second = remotes(world)
    publisher = world.connect("p")
    publisher.send(Publish(b"t", b"x", 1, packet_id=7))
    publisher.disconnect()
    first.tallies[0].settle()
    second.tallies[0].settle()
    world.end()
