"""Messages from inside the process meet what a client's PUBLISH meets."""

from functools import partial

import pytest

from mqttlite.core.authentication import NO_GRANTS, Grants
from mqttlite.core.inbound.back_pressure import NO_ROOM
from mqttlite.core.inbound.inbound import MANY_WAIT, Ticket
from mqttlite.core.inbound.priority import OVERLOADED
from mqttlite.core.limits import ITERATION_WORK, MAX_WAITING_INSIDE, READER_LOOK_S, ROOM_LOOK_S
from mqttlite.core.load.rate_limits import Buckets, Rate
from mqttlite.core.message import Message
from mqttlite.core.reasons import (
    NO_SUBSCRIBERS,
    NOT_AUTHORIZED,
    OVERLOAD_LOW_PRIORITY,
    OVERLOAD_QOS0,
    PACKET_TOO_LARGE,
    QUEUE_FULL,
    RATE_LIMITED,
)
from mqttlite.core.route.tally import QUOTA_EXCEEDED
from mqttlite.core.route.topic_limits import TopicLimits
from mqttlite.core.source import CLIENT, THE_BROKER, THE_PROGRAM, Source
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.wire.properties import NONE, Properties
from tests.support.core_driver import World
from tests.support.rules import OpenRules
from tests.unit.core.test_back_pressure import LIMITS, QUEUE, Reader, burst
from tests.unit.core.test_topic_overflow import QUEUE as TWO
from tests.unit.core.test_topic_overflow import away, back, world_of

LOW = Properties(user_properties=[("priority", "low")])


def offer(
    world: World,
    payload: str = "x",
    qos: int = 1,
    topic: str = "t",
    source: Source = THE_PROGRAM,
    properties: Properties = NONE,
) -> Ticket:
    ticket = world.broker.publish(topic.encode(), payload.encode(), qos, False, world.now, properties, source)
    world.settle()
    return ticket


def outcome(ticket: Ticket) -> tuple[bool, int, str, dict[str, int]]:
    tally = ticket.tally
    return ticket.done, tally.code, tally.refusal, tally.dropped


def test_a_burst_waits_for_a_client_that_reads_and_nothing_is_lost() -> None:
    world = World(LIMITS)
    reader = Reader(world)
    tickets = [offer(world, str(number)) for number in range(200)]
    assert QUEUE // 2 < sum(ticket.done for ticket in tickets) < QUEUE + 5
    done: list[int] = []
    for number, ticket in enumerate(tickets):
        ticket.on_done = partial(done.append, number)
    for _ in range(200):
        reader.acknowledge(4)
        world.advance(READER_LOOK_S)
    assert reader.got == [str(number) for number in range(200)]
    assert {outcome(ticket) == (True, 0, "", {}) for ticket in tickets} == {True}
    assert done == sorted(done), "first come, first served"
    assert tickets[-1].tally.is_durable
    assert not world.session("reader").drops
    world.end()


def test_messages_from_inside_do_not_overtake_those_that_wait() -> None:
    world = World(LIMITS)
    reader = Reader(world)
    numbers = iter(range(1_000))
    for _ in range(100):
        offer(world, str(next(numbers)))
    for _ in range(300):
        reader.acknowledge(4)
        world.advance(READER_LOOK_S)
        offer(world, str(next(numbers)))
    for _ in range(100):
        reader.acknowledge(4)
        world.advance(READER_LOOK_S)
    assert reader.got == [str(number) for number in range(400)]


def test_a_client_and_the_program_take_turns() -> None:
    world = World(LIMITS)
    reader, publisher = Reader(world), world.connect("p")
    for number in range(100):
        offer(world, f"inside {number}")
    burst(publisher, 0, 100)
    for _ in range(200):
        reader.acknowledge(4)
        world.advance(READER_LOOK_S)
    assert sorted(reader.got) == sorted([f"inside {number}" for number in range(100)] + [str(n) for n in range(100)])
    assert not world.session("reader").drops


def test_only_so_many_messages_wait() -> None:
    world = World(LIMITS)
    world.broker.inbound.waiting = MAX_WAITING_INSIDE - 3
    reader = Reader(world)
    tickets = [offer(world, str(number)) for number in range(QUEUE + 20)]
    assert sum(not ticket.done for ticket in tickets) == 3
    assert outcome(tickets[-1]) == (True, QUOTA_EXCEEDED, MANY_WAIT, {QUEUE_FULL: 1})
    lost = sum(ticket.tally.code == QUOTA_EXCEEDED for ticket in tickets)
    assert world.broker.router.drops.by_reason == {QUEUE_FULL: lost}
    for _ in range(50):
        reader.acknowledge(4)
        world.advance(READER_LOOK_S)
    assert len(reader.got) == len(tickets) - lost
    assert offer(world).done
    world = world_of("block", TWO)
    world.broker.inbound.waiting = MAX_WAITING_INSIDE - 3
    away(world)
    tickets = [offer(world, str(number)) for number in range(6)]
    assert [ticket.done for ticket in tickets] == [True, True, False, False, False, True]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_waits_for_room(qos: int) -> None:
    world = world_of("block", TWO)
    away(world)
    tickets = [offer(world, str(number), qos) for number in range(3)]
    assert [ticket.done for ticket in tickets] == [True, True, False]
    assert back(world) == ["0", "1"]
    world.advance(ROOM_LOOK_S)
    assert outcome(tickets[2]) == (True, 0, "", {})
    assert tickets[2].tally.is_durable


def test_a_message_for_which_there_is_no_room_is_refused_in_the_end() -> None:
    world = world_of("block", TWO)
    away(world)
    for number in range(2):
        offer(world, str(number))
    memory = world.broker.effects.memory
    used = memory.used
    ticket = offer(world, "2")
    assert memory.used > used, "it waits"
    world.advance(TWO.max_block_s + ROOM_LOOK_S)
    assert outcome(ticket) == (True, QUOTA_EXCEEDED, NO_ROOM, {QUEUE_FULL: 1})
    assert world.broker.router.drops.by_reason == {QUEUE_FULL: 1}
    assert memory.used == used
    assert back(world) == ["0", "1"]


def test_the_messages_of_one_request_wait_for_room_until_one_moment() -> None:
    world = world_of("block", TWO)
    away(world)
    source = world.broker.publisher("http", None, NO_GRANTS).for_request(world.now + TWO.max_block_s)
    tickets = [offer(world, str(number), source=source) for number in range(2)]
    world.advance(TWO.max_block_s / 2)
    tickets.append(offer(world, "2", source=source))
    world.advance(TWO.max_block_s / 2 + ROOM_LOOK_S)
    assert outcome(tickets[2]) == (True, QUOTA_EXCEEDED, NO_ROOM, {QUEUE_FULL: 1})
    assert outcome(offer(world, "3", source=source)) == (True, QUOTA_EXCEEDED, NO_ROOM, {QUEUE_FULL: 1}), "at once"
    assert not offer(world, "4").done, "other publishers wait"


def test_where_the_policy_rejects_nobody_waits() -> None:
    world = world_of("reject", TWO)
    away(world)
    assert [outcome(offer(world)) for _ in range(3)][2] == (True, QUOTA_EXCEEDED, NO_ROOM, {QUEUE_FULL: 1})


def test_the_payload_of_a_source_is_limited() -> None:
    world = World()
    world.connect("r").subscribe("#")
    source = Source(CLIENT, "http")
    source.topic_limits = TopicLimits(8, 100, 3)
    assert outcome(offer(world, "abc", source=source)) == (True, 0, "", {})
    ticket = offer(world, "abcd", source=source)
    assert outcome(ticket) == (True, QUOTA_EXCEEDED, source.topic_limits.payload_refusal(4), {PACKET_TOO_LARGE: 1})
    assert world.broker.router.drops.by_reason == {PACKET_TOO_LARGE: 1}


def test_overload_drops_what_it_drops_of_clients() -> None:
    world = World()
    world.connect("r").subscribe("#")
    effects = world.broker.effects
    effects.sheds_low_priority = True
    assert outcome(offer(world)) == outcome(offer(world, qos=0)) == (True, 0, "", {})
    assert outcome(offer(world, properties=LOW)) == (True, QUOTA_EXCEEDED, OVERLOADED, {OVERLOAD_LOW_PRIORITY: 1})
    ticket = offer(world, qos=0, properties=LOW)
    assert outcome(ticket) == (True, 0, "", {OVERLOAD_LOW_PRIORITY: 1})
    assert ticket.tally.reached == 1, "it may have had receivers"
    assert ticket.message_id() == ticket.message_id() > 0
    effects.sheds_qos0 = True
    assert outcome(offer(world, qos=0)) == (True, 0, "", {OVERLOAD_QOS0: 1})
    assert outcome(offer(world, qos=0, source=THE_BROKER)) == (True, 0, "", {})
    assert outcome(offer(world)) == (True, 0, "", {})


def test_a_client_that_may_not_publish_is_refused_also_in_an_overload() -> None:
    class Nobody(OpenRules):
        def is_open(self, topic: bytes) -> bool:
            return False

        def may_publish(self, role: int, topic: bytes) -> bool:
            return False

    world = World()
    world.broker.authorize(built_in_rules(authorizer=Nobody()))
    world.broker.effects.sheds_low_priority = True
    source = Source(CLIENT, "http")
    assert outcome(offer(world, properties=LOW, source=source))[1] == 0x87
    assert outcome(offer(world, properties=LOW))[1] == QUOTA_EXCEEDED, "the program may"


@pytest.mark.parametrize("expiry", [0, 100])
def test_a_ticket_is_done_when_the_last_receiver_has_the_message(expiry: int) -> None:
    world = World()
    readers = [world.connect(f"r{number}", expiry=expiry if number == 0 else 0) for number in range(50)]
    for reader in readers:
        reader.subscribe("t", qos=1)
    effects = world.broker.effects
    effects.work = ITERATION_WORK
    ticket = world.broker.publish(b"t", b"x", 1, False, world.now)
    assert not ticket.done
    done: list[bool] = []
    ticket.on_done = lambda: done.append(ticket.done)
    effects.work = 0
    world.settle()
    world.advance(0.1)
    assert (done, ticket.tally.is_durable, ticket.tally.sent) == ([True], expiry > 0, 50)
    assert ticket.message_id() > 0


def test_an_answer_waits_for_the_disk_where_something_is_kept() -> None:
    world = World()
    assert not offer(world).tally.is_durable
    away(world)
    assert offer(world).tally.is_durable
    assert not offer(world, qos=0).tally.is_durable
    assert world.broker.publish(b"r", b"x", 0, True, world.now).tally.is_durable, "the retained message"


def test_the_brokers_own_messages_wait_for_a_client_that_reads() -> None:
    world = World(LIMITS)
    reader = Reader(world)
    tickets = [world.broker.publish_own(Message(b"t", b"%d" % number, 1)) for number in range(200)]
    assert not tickets[-1].done
    for _ in range(200):
        reader.acknowledge(4)
        world.advance(READER_LOOK_S)
    assert reader.got == [str(number) for number in range(200)]
    assert all(ticket.done for ticket in tickets)
    assert not world.session("reader").drops


def test_a_banned_publisher_is_refused_at_each_message() -> None:
    world = World()
    source = world.broker.publisher("http", "ann", NO_GRANTS, address="192.0.2.7:5")
    assert offer(world, source=source).tally.code == 0x10
    asked: list[tuple[str, str | None, str]] = []

    def ban_of(client_id: str, username: str | None, address: str) -> str:
        asked.append((client_id, username, address))
        return "the user is banned" if username == "ann" else ""

    world.broker.ban_by(ban_of)
    assert outcome(offer(world, source=source)) == (True, 0x87, "the user is banned", {NOT_AUTHORIZED: 1})
    assert asked == [("http", "ann", "192.0.2.7:5")]
    assert offer(world, source=world.broker.publisher("http", "bob", NO_GRANTS)).tally.code == 0x10
    assert offer(world).tally.code == 0x10, "the program itself"
    assert world.broker.router.drops.by_reason == {NO_SUBSCRIBERS: 3, NOT_AUTHORIZED: 1}


def test_a_publisher_whose_credentials_have_expired_is_refused() -> None:
    world = World()
    source = world.broker.publisher("http", "ann", Grants(expires_at=world.now + 10.0))
    assert offer(world, source=source).tally.code == 0x10
    world.advance(10.0)
    expected = (True, 0x87, "the client's credentials have expired", {NOT_AUTHORIZED: 1})
    assert outcome(offer(world, source=source)) == expected


def test_a_publisher_over_its_quota_is_refused_until_its_debt_is_paid() -> None:
    world = World()
    world.connect("r").subscribe("#")
    buckets = [("user", Buckets(Rate(messages_per_s=2.0), world.now)), ("broker", Buckets(Rate(), world.now))]
    source = world.broker.publisher("http", "ann", NO_GRANTS, buckets=buckets)
    found = [outcome(offer(world, source=source))[1] for _ in range(4)]
    assert found == [0, 0, 0, QUOTA_EXCEEDED]
    why = "the user publishes more than its quota allows (quotas)"
    assert outcome(offer(world, qos=0, source=source)) == (True, QUOTA_EXCEEDED, why, {RATE_LIMITED: 1})
    world.advance(1.0)
    assert offer(world, source=source).tally.code == 0


def test_messages_that_were_charged_together_are_not_charged_again() -> None:
    world = World()
    buckets = [("user", Buckets(Rate(messages_per_s=2.0), world.now))]
    source = world.broker.publisher("http", "ann", NO_GRANTS, buckets=buckets)
    assert world.broker.admit(source, 10, 100, world.now) is None
    together = source.for_request(world.now)
    assert [offer(world, source=together).tally.code for _ in range(10)] == [0x10] * 10
    refused = world.broker.admit(source, 1, 1, world.now)
    assert refused is not None
    assert (refused.code, refused.dropped) == (QUOTA_EXCEEDED, {RATE_LIMITED: 1})
    assert world.broker.admit(THE_PROGRAM, 1_000, 1, world.now) is None
