"""Publishers wait for connected clients that read and whose queues are full, and for nobody else."""

from random import Random

import pytest

from mqttlite.core.limits import (
    DROP_OLDEST,
    ITERATION_WORK,
    MAX_ROOM_LOOKS,
    PACE_S,
    READER_LOOK_S,
    SLOW_LOOK_S,
    TURN_MESSAGES,
    Limits,
)
from mqttlite.core.memory import MemoryAccount
from mqttlite.core.reasons import QUEUE_FULL
from mqttlite.core.route.outlook import PUBLISHER_WAITS
from mqttlite.core.route.tally import DROPPED, QUEUED, SENT
from mqttlite.core.topic_policy import TopicPolicy
from mqttlite.core.tracer import WINDOW_FULL
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.wire.constants import PUBACK, V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Publish
from tests.support.core_driver import Client, World, publishes
from tests.unit.core.test_permissions import Readers as OnlyReaders
from tests.unit.core.test_permissions import world_with
from tests.unit.core.test_topic_policies import Policies

QUEUE = 32
LIMITS = Limits(max_inflight=4, max_queued_messages=QUEUE, min_drain_rate=100)
"""A client that takes ten messages in `PACE_S` is waited for."""


class Reader:
    """A client that acknowledges when it is told to."""

    def __init__(self, world: World, client_id: str = "reader", topic: str = "t") -> None:
        self.client = world.connect(client_id, expiry=1_000, auto_ack=False)
        self.client.subscribe(topic, qos=1)
        self._unacknowledged: list[int] = []
        self.got: list[str] = []

    def acknowledge(self, most: int) -> None:
        self.see()
        now, self._unacknowledged = self._unacknowledged[:most], self._unacknowledged[most:]
        self.client.send(*[Ack(PUBACK, packet_id) for packet_id in now])
        self.see()

    def see(self) -> None:
        for packet in publishes(self.client.received()):
            if packet.qos:
                self._unacknowledged.append(packet.packet_id)
            self.got.append(packet.payload.decode())


def burst(client: Client, first: int, count: int, topic: str = "t", qos: int = 1) -> None:
    """Messages that come in one chunk."""
    numbers = range(first, first + count)
    packets = [encode(Publish(topic.encode(), b"%d" % n, qos, packet_id=n + 1), client.version) for n in numbers]
    client.send_bytes(b"".join(packets))


def acknowledged(client: Client) -> list[int]:
    """The reason codes that it got since the last call."""
    return [packet.reason_code for packet in client.received() if isinstance(packet, Ack)]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("version", [V311, V5])
def test_a_publisher_waits_for_a_client_that_reads_and_nothing_is_lost(version: int, qos: int) -> None:
    world = World(LIMITS)
    reader, publisher = Reader(world), world.connect("p", version)
    burst(publisher, 0, 200, qos=qos)
    before = len(acknowledged(publisher))
    assert QUEUE // 2 < before < QUEUE + 5, "the others wait where they came"
    for _ in range(QUEUE):
        reader.acknowledge(4)  # it has caught up before anybody looks
    world.advance(READER_LOOK_S)
    burst(publisher, 200, 10, qos=qos)
    for _ in range(200):
        reader.acknowledge(4)
        world.advance(READER_LOOK_S)
    assert reader.got == [str(number) for number in range(210)]
    assert acknowledged(publisher)[: 210 - before].count(0) == 210 - before
    assert not world.session("reader").drops
    assert world.broker.effects.held_back > 0
    world.advance(1.0)
    assert not world.broker.effects.filling, "it has room again"
    world.end()


def plan(world: World, who: str, qos: int = 1, topic: str = "t") -> tuple[str, dict[str, tuple[int, str]]]:
    """For whom a publisher would wait, and what each receiver would get."""
    found = world.broker.planner.publish(who, None, topic.encode(), b"x", qos, False)
    assert (found.wait_s > 0.0) == bool(found.wait_for)
    return found.wait_for, {each.client_id: (each.outcome, each.reason) for each in found.receivers}


def test_a_plan_says_for_whom_a_publisher_would_wait() -> None:
    world = World(LIMITS)
    reader, publisher = Reader(world), world.connect("p")
    world.connect("other")
    reader.client.subscribe("u", qos=0)
    assert plan(world, "p") == ("", {"reader": (SENT, "")})
    burst(publisher, 0, QUEUE // 2 + 10)
    assert plan(world, "p") == ("", {"reader": (QUEUED, WINDOW_FULL)}), "its queue fills, and there is room"
    assert plan(world, "reader")[0] == ""
    burst(publisher, 100, QUEUE)
    waits = {"reader": (QUEUED, WINDOW_FULL)}
    assert plan(world, "other") == plan(world, "nobody") == ("reader", waits)
    assert plan(world, "p", qos=0)[0] == ""
    assert plan(world, "p", topic="u")[0] == ""
    burst(reader.client, 0, QUEUE)  # which does not wait for itself
    assert plan(world, "other") == ("reader", {"reader": (QUEUED, PUBLISHER_WAITS)})
    assert plan(world, "reader") == ("", {"reader": (DROPPED, QUEUE_FULL)}), "it would wait for itself"
    for _ in range(QUEUE):
        reader.acknowledge(4)
    assert plan(world, "other")[0] == "reader", "there is room, and the others were there before"
    publisher.lose()
    world.advance(2 * PACE_S)
    world.end()


def test_a_plan_says_for_which_member_a_publisher_would_wait() -> None:
    world = World(LIMITS)
    Reader(world, topic="$share/g/t")
    burst(world.connect("p"), 0, 100)
    assert plan(world, "p")[0] == "reader"
    world.broker.authorize(built_in_rules(authorizer=Policies(TopicPolicy("t", on_overflow="drop_oldest"))))
    assert plan(world, "p")[0] == "", "somebody has said what happens instead"
    world.advance(2 * PACE_S)
    world.end()


def test_one_that_does_not_read_costs_a_second_once() -> None:
    world = World(LIMITS)
    reader, publisher = Reader(world), world.connect("p")
    burst(publisher, 0, 100)
    before = len(acknowledged(publisher))
    assert before < QUEUE + 5
    world.advance(PACE_S + 2 * READER_LOOK_S)
    codes = acknowledged(publisher)
    assert before + len(codes) == 100
    assert 0x97 in codes
    assert not world.broker.effects.filling
    burst(publisher, 100, 10)
    assert acknowledged(publisher) == [0x97] * 10, "nobody waits any more"
    for _ in range(100):
        reader.acknowledge(4)
        world.advance(READER_LOOK_S)
    world.advance(SLOW_LOOK_S)
    burst(publisher, 200, 60)
    assert 0x97 not in acknowledged(publisher), "it has read, and is waited for"
    publisher.lose()
    world.advance(2 * PACE_S)
    world.end()


@pytest.mark.long
def test_publishers_go_on_in_turn() -> None:
    world = World(LIMITS)
    reader = Reader(world)
    publishers = [world.connect(f"p{number}") for number in range(3)]
    for number, publisher in enumerate(publishers):
        burst(publisher, number * 1_000, 400)
    for _ in range(400):
        reader.acknowledge(4)
        world.advance(READER_LOOK_S)
    of_each = [[got for got in reader.got[40:400] if int(got) // 1_000 == number] for number in range(3)]
    assert min(map(len, of_each)) > 360 // 3 - 2 * TURN_MESSAGES
    assert all(numbers == sorted(numbers, key=int) for numbers in of_each)
    for _ in range(800):
        reader.acknowledge(4)
        world.advance(READER_LOOK_S)
    assert len(reader.got) == 1_200
    world.end()


@pytest.mark.parametrize("who", ["reader", "publisher"])
def test_it_is_over_when_one_of_them_leaves(who: str) -> None:
    world = World(LIMITS)
    reader, publisher = Reader(world), world.connect("p")
    burst(publisher, 0, 100)
    before = len(acknowledged(publisher))
    if who == "reader":
        reader.client.lose()
        world.advance(READER_LOOK_S)
        assert len(acknowledged(publisher)) == 100 - before, "one that is away has a queue, and no publisher waits"
    else:
        publisher.lose()
        for _ in range(50):
            reader.acknowledge(4)
            world.advance(READER_LOOK_S)
        assert reader.got == [str(number) for number in range(before)]
    world.advance(PACE_S + SLOW_LOOK_S)
    world.end()


def test_no_publisher_waits_longer_than_max_block_s() -> None:
    world = World(Limits(max_inflight=1, max_queued_messages=QUEUE, min_drain_rate=20, max_block_s=0.5))
    reader = Reader(world)
    publishers = [world.connect(f"p{number}") for number in range(40)]
    for publisher in publishers:
        burst(publisher, 0, 20)
    codes: list[int] = []
    for _ in range(25):
        reader.acknowledge(1)
        world.advance(0.03)
    for publisher in publishers:
        codes += acknowledged(publisher)
    assert codes.count(0x97) > 0
    for publisher in publishers:
        publisher.lose()
    world.advance(2 * PACE_S)
    world.end()


def test_one_message_waits_for_one_reader_after_the_other() -> None:
    world = World(LIMITS)
    first, second, publisher = Reader(world, "first"), Reader(world, "second"), world.connect("p")
    burst(publisher, 0, 60)
    for _ in range(5):  # the second one reads a little less
        first.acknowledge(4)
        second.acknowledge(2)
        world.advance(READER_LOOK_S)
    for _ in range(60):
        first.acknowledge(4)
        second.acknowledge(4)
        world.advance(READER_LOOK_S)
    assert first.got == second.got == [str(number) for number in range(60)]
    world.end()


@pytest.mark.long
def test_a_fan_out_to_many_that_is_interrupted_is_finished() -> None:
    world = World(LIMITS)
    reader, publisher = Reader(world), world.connect("p")
    others = [world.connect(f"c{number}") for number in range(520)]
    for other in others:
        other.subscribe("t")
    burst(publisher, 0, 45)
    world.broker.effects.work = ITERATION_WORK
    for _ in range(20):
        reader.acknowledge(4)
        world.broker.effects.work = ITERATION_WORK
        world.advance(READER_LOOK_S)
    assert reader.got == others[-1].payloads() == [str(number) for number in range(45)]
    world.end()


@pytest.mark.parametrize("topic", ["t", "private"])
def test_a_shared_subscription_is_waited_for_when_no_member_has_room(topic: str) -> None:
    world = world_with(OnlyReaders(), LIMITS)  # who begin with r and alone receive what is private
    one, two = Reader(world, "r1", f"$share/g/{topic}"), Reader(world, "r2", f"$share/g/{topic}")
    publisher = world.connect("p")
    burst(publisher, 0, 200, topic)
    assert len(acknowledged(publisher)) < 2 * QUEUE + 10
    for _ in range(100):
        one.acknowledge(4)
        two.acknowledge(2)
        world.advance(READER_LOOK_S)
    assert sorted(one.got + two.got, key=int) == [str(number) for number in range(200)]
    world.end()


@pytest.mark.parametrize("why", ["QoS 0", "itself"])
def test_a_shared_subscription_is_not_waited_for(why: str) -> None:
    world = World(LIMITS)
    reader = Reader(world, "one", "$share/g/t")
    publisher = world.connect("p") if why == "QoS 0" else reader.client
    if why == "QoS 0":
        Reader(world, "busy", "t")  # for whom publishers wait for a second
        world.connect("two").subscribe("$share/g/t")
    burst(publisher, 0, 100)
    if why == "QoS 0":
        world.advance(2 * PACE_S)
    assert len(acknowledged(publisher)) == 100
    world.end()


def test_qos_0_messages_do_not_stand_before_a_full_queue() -> None:
    world = World(LIMITS)
    reader, publisher = Reader(world), world.connect("p")
    reader.client.block()
    publisher.publish("t", "before")
    burst(publisher, 0, 25)
    publisher.publish("t", "behind")
    assert world.broker.effects.filling
    assert reader.client.connection.outbox.drops == {"buffer_full": 1}
    reader.client.unblock()
    for _ in range(10):
        reader.acknowledge(4)
    world.advance(1.0)
    publisher.publish("t", "after")
    reader.see()
    assert reader.got == ["before", *[str(number) for number in range(25)], "after"]
    world.end()


def test_a_client_that_publishes_to_itself_does_not_wait_for_itself() -> None:
    world = World(LIMITS)
    reader = Reader(world)
    burst(reader.client, 0, 100)
    assert len(acknowledged(reader.client)) == 100
    world.end()


@pytest.mark.reaches
@pytest.mark.long
@pytest.mark.parametrize("why", ["a policy", "drop_oldest", "zero", "no queue", "very many receivers"])
def test_no_publisher_waits_under_another_policy(why: str) -> None:
    limits = {
        "drop_oldest": Limits(max_inflight=4, max_queued_messages=QUEUE, on_overflow=DROP_OLDEST),
        "zero": Limits(max_inflight=4, max_queued_messages=QUEUE, min_drain_rate=0),
        "no queue": Limits(max_inflight=4, max_queued_messages=0),
    }
    world = World(limits.get(why, LIMITS))
    if why == "a policy":
        world.broker.authorize(built_in_rules(authorizer=Policies(TopicPolicy("t", on_overflow="drop_newest"))))
    Reader(world)
    if why == "very many receivers":
        for number in range(MAX_ROOM_LOOKS):
            world.connect(f"c{number}").subscribe("t")
    publisher = world.connect("p")
    burst(publisher, 0, 50)
    assert len(acknowledged(publisher)) == 50
    assert world.session("reader").drops["queue_full"] > 0
    world.end()


def test_publishers_wait_while_memory_is_short() -> None:
    world = World(Limits(max_inflight=4, min_drain_rate=100, max_memory_bytes=64 * 1_048_576))
    reader, publisher = Reader(world), world.connect("p")
    memory: MemoryAccount = world.broker.effects.memory
    more = memory.shed_above - memory.used
    memory.used += more
    burst(publisher, 0, 100)
    for _ in range(60):
        reader.acknowledge(4)
        world.advance(READER_LOOK_S)
    memory.used -= more
    world.advance(1.0)
    reader.acknowledge(4)
    assert reader.got == [str(number) for number in range(100)]
    world.end()


@pytest.mark.reaches
@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_no_acknowledged_message_is_lost_while_its_receivers_read(seed: int) -> None:
    random = Random(seed)
    world = World(
        Limits(max_inflight=random.choice([2, 10]), max_queued_messages=random.choice([8, 40]), min_drain_rate=20)
    )
    readers = [Reader(world, f"reader{number}") for number in range(random.choice([1, 3]))]
    publishers = [world.connect(f"p{number}", random.choice([V311, V5])) for number in range(5)]
    sent = [0] * len(publishers)
    for _ in range(150):
        if random.random() < 0.6:
            number = random.randrange(len(publishers))
            count = random.randint(1, 30)
            burst(publishers[number], sent[number], count, qos=random.choice([1, 1, 1, 2]))
            sent[number] += count
        for reader in readers:
            reader.acknowledge(random.randint(1, 6))
        world.advance(READER_LOOK_S)
    for _ in range(4_000):
        for reader in readers:
            reader.acknowledge(10)
        world.advance(READER_LOOK_S)
        if not world.broker.effects.filling and all(len(each.got) == sum(sent) for each in readers):
            break
    assert [len(each.got) for each in readers] == [sum(sent)] * len(readers)
    assert {code for publisher in publishers for code in acknowledged(publisher)} == {0}
    world.end()
