"""Each message of a queue comes to exactly one end, also where nobody is there to see it, or the queue changes."""

import pytest

from mqttlite.extensions.queues.dead_letters import DeadLetter
from mqttlite.extensions.queues.options import RetryOptions
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import PUBACK, V311
from mqttlite.wire.packets import Ack, Publish
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, publishes
from tests.support.queues import QueueWorld, deliveries, options, told


def consumer(world: QueueWorld, name: str = "c", **fields: object) -> Client:
    client = world.connect(name, auto_ack=False, **fields)
    assert client.subscribe("$queue/q", qos=1) == b"\x01"
    return client


def ack(client: Client, packet: Publish, code: int = 0) -> None:
    client.send(Ack(PUBACK, packet.packet_id, code))


def one(client: Client) -> Publish:
    (packet,) = publishes(client.received())
    assert isinstance(packet, Publish)
    return packet


@pytest.mark.parametrize("own", [True, False], ids=["its own interval", "the queue's"])
def test_a_message_that_a_consumer_gave_back_expires_with_nobody_there(own: bool) -> None:
    world = QueueWorld([options(expiry_s=0 if own else 60)])
    client = consumer(world)
    properties = Properties(message_expiry_interval=60 if own else None)
    world.connect("p").send(Publish(b"a", b"x", 1, packet_id=1, properties=properties))
    world.publish("a", "y", message_expiry_interval=120)
    assert len(publishes(client.received())) == 2
    client.lose()
    world.advance(59)
    assert world.ends() == {}
    world.advance(1.1)
    assert world.ends() == {"expired": 1 if own else 2}
    world.end()


def test_a_message_that_waits_for_its_next_attempt_expires_at_its_time() -> None:
    world = QueueWorld([options(expiry_s=60)])
    world.publish("a", "x")
    (pulled,) = world.queues.pull("q", 1)
    world.queues.nack("q", [pulled.ack_id], 600.0)
    world.advance(59.9)
    assert (world.ends(), world.queues.state("q").scheduled) == ({}, 1)
    world.advance(0.2)
    assert world.ends() == {"expired": 1}
    world.end()


def test_a_message_that_a_consumer_has_does_not_expire_before_its_deadline() -> None:
    world = QueueWorld([options(expiry_s=5)])
    client = consumer(world)
    world.publish("a", "x")
    packet = one(client)
    world.advance(9)
    ack(client, packet)
    assert world.ends() == {"acknowledged": 1}
    world.end()


def test_an_expired_message_may_be_a_dead_letter() -> None:
    world = QueueWorld([options(expiry_s=60, dead_letter_on=("expiry",))])
    world.publish("a", "waits")
    world.publish("a", "taken")
    client = consumer(world, receive_maximum=1)
    assert one(client).payload == b"waits"
    client.lose()
    world.advance(61)
    assert world.ends() == {"dead_lettered": 2}
    letters = [(letter.value("dead-letter-cause"), letter.message.payload) for letter in letters_of(world)]
    assert letters == [("expired", b"waits"), ("expired", b"taken")]
    world.end()


def test_a_dead_letter_that_nobody_reads_is_no_lost_message() -> None:
    world = QueueWorld([options(max_attempts=1)])
    client = consumer(world)
    reader = world.connect("r")
    for read in (False, True):
        if read:
            reader.subscribe("$dlq/+", qos=1)
        world.publish("a", "x")
        ack(client, one(client), 0x80)
        assert [each.payload for each in publishes(reader.received())] == [b"x"] * read
    assert len(letters_of(world)) == 2
    assert "no_subscribers" not in world.broker.router.drops.by_reason
    world.end()


def letters_of(world: QueueWorld) -> list[DeadLetter]:
    return list(world.queues.dead_letters("q").letters())


def test_a_message_whose_last_attempt_the_broker_did_not_survive_is_a_dead_letter_with_nobody_there() -> None:
    world = QueueWorld([options(max_attempts=1)])
    client = consumer(world)
    for number in range(3):
        world.publish("a", str(number))
    ack(client, publishes(client.received())[1])
    world = world.restart()
    assert world.ends() == {"dead_lettered": 2}
    assert [letter.message.payload for letter in letters_of(world)] == [b"0", b"2"]
    world = world.restart()
    assert (len(letters_of(world)), world.queues.state("q").depth) == (2, 0)
    world.end()


def test_a_message_too_large_for_a_consumer_of_qos_0_is_not_acknowledged() -> None:
    world = QueueWorld([options(max_attempts=2)])
    client = world.connect("c", maximum_packet_size=200)
    client.subscribe("$queue/q", qos=0)
    world.publish("a", "x" * 300)
    world.advance(20)
    assert world.ends() == {"dead_lettered": 1}
    assert world.queues.state("q").failures["too_large"] == 2
    world.end()


def test_a_kept_session_of_3_1_1_gets_the_message_anew_and_no_duplicate() -> None:
    world = QueueWorld([options()])
    for attempt in (1, 2):
        client = world.connect("c", version=V311, clean_start=False, auto_ack=False)
        if attempt == 1:
            client.subscribe("$queue/q", qos=2)
            world.publish("a", "x")
        packet = one(client)
        assert (packet.qos, packet.dup) == (1, False)
        if attempt == 1:
            client.lose()
    ack(client, packet)
    assert (world.ends(), world.queues.state("q").attempts) == ({"acknowledged": 1}, 2)
    world.end()


def test_a_takeover_delivers_the_messages_as_new_attempts() -> None:
    world = QueueWorld([options()])
    first = consumer(world, expiry=100)
    world.publish("a", "x")
    assert one(first).payload == b"x"
    second = world.connect("c", auto_ack=False, clean_start=False, expiry=100)
    packet = one(second)
    assert (packet.dup, told(packet)["delivery-attempt"]) == (False, "2")
    ack(second, packet)
    assert world.ends() == {"acknowledged": 1}
    world.end()


def test_a_queue_that_is_deleted_and_made_again_knows_nothing_of_what_it_delivered() -> None:
    world = QueueWorld([options()], MemoryStore(pages=True))
    client = consumer(world)
    world.publish("a", "old")
    old = one(client)
    world.queues.delete("q")
    world.queues.create(options())
    world.publish("a", "new")
    new = one(client)
    ack(client, old)
    assert world.queues.ack("q", [told(old)["ack-id"]]) == [False]
    assert world.queues.state("q").depth == 1
    ack(client, new, 0x80)
    world.advance(3)
    ack(client, one(client))
    assert world.ends() == {"acknowledged": 1}
    world = world.restart()
    assert world.queues.state("q").depth == 0
    world.end()


@pytest.mark.long
def test_a_message_published_after_a_long_queue_was_purged_is_delivered() -> None:
    world = QueueWorld([options()], MemoryStore(pages=True))
    for number in range(2_000):
        world.publish("a", str(number))
    assert world.queues.purge("q") == 2_000
    client = world.connect("c")
    client.subscribe("$queue/q", qos=1)
    for number in range(300):
        world.publish("a", f"new {number}")
    world.advance(1)
    state = world.queues.state("q")
    assert (state.depth, sum(state.ends.values())) == (0, 2_300)
    assert [packet.payload for packet in publishes(client.received())][-300:] == [b"new %d" % n for n in range(300)]
    world.end()


def test_a_queue_that_the_configuration_names_no_longer_keeps_its_messages() -> None:
    store = MemoryStore(pages=True)
    world = QueueWorld([options()], store)
    world.publish("a", "x")
    world = QueueWorld([], store, world.now)
    assert (world.queues.names, world.queues.state("q").depth) == (["q"], 1)
    assert deliveries(consumer(world).received()) == [("x", 1)]
    world.end()


def test_a_message_that_was_refused_for_now_does_not_wait_for_its_old_deadline_after_a_restart() -> None:
    world = QueueWorld([options()])
    world.publish("a", "x")
    (pulled,) = world.queues.pull("q", 1, 600.0)
    world.queues.nack("q", [pulled.ack_id], 0.0)
    world.settle()
    world = world.restart()
    assert deliveries(consumer(world).received()) == [("x", 2)]
    world.end()


def test_fewer_attempts_than_a_message_has_had_make_it_a_dead_letter() -> None:
    store = MemoryStore(pages=True)
    world = QueueWorld([options(max_attempts=5)], store)
    world.publish("a", "x")
    for _ in range(3):
        (pulled,) = world.queues.pull("q", 1)
        world.queues.nack("q", [pulled.ack_id], 0.0)
        world.settle()
    world = QueueWorld([options(max_attempts=2)], store, world.now)
    assert world.ends() == {"dead_lettered": 1}
    world.end()


def test_a_dead_letter_for_which_its_queue_has_no_room_stays() -> None:
    world = QueueWorld([options(max_attempts=1, max_messages=1)])
    world.publish("a", "x")
    (pulled,) = world.queues.pull("q", 1)
    world.queues.nack("q", [pulled.ack_id])
    world.publish("a", "y")
    assert not world.queues.replay("q", 1)
    assert (world.queues.state("q").depth, len(letters_of(world))) == (1, 1)
    world.queues.purge("q")
    assert world.queues.replay("q", 1)
    assert (world.queues.state("q").depth, len(letters_of(world))) == (1, 0)
    world.end()


def test_a_poisoned_key_goes_on_after_the_dead_letter() -> None:
    world = QueueWorld([options(ordering=True, max_attempts=2, retry=RetryOptions(min_s=0, max_s=0))])
    for payload in ("poison", "next"):
        world.publish("a", payload, user_properties=[("ordering-key", "k")])
    client = consumer(world)
    for _ in range(2):
        packet = one(client)
        assert packet.payload == b"poison"
        ack(client, packet, 0x80)
    ack(client, one(client))
    assert world.ends() == {"acknowledged": 1, "dead_lettered": 1}
    world.end()
