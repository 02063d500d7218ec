"""Whatever ends, in whatever way, gives back to the memory account exactly what it took: `World.end` checks it."""

import pytest

from mqttlite.core.limits import DROP_OLDEST, ITERATION_WORK, Limits
from mqttlite.core.memory import MESSAGE_BYTES
from mqttlite.core.outbound.outbox import Outbox
from mqttlite.wire.constants import PUBACK, V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Disconnect, Publish, Subscribe, SubscriptionRequest, Will
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World


def feed(client: Client, *packets: Publish | Subscribe) -> None:
    """Hand packets to the broker in an iteration of the loop whose budget is nearly used up."""
    broker = client.world.broker
    broker.effects.work = ITERATION_WORK - 40
    broker.feed(client.connection, b"".join([encode(packet, client.version) for packet in packets]), client.world.now)


def waiting_will(world: World, delay: int) -> None:
    properties = Properties(will_delay_interval=delay, content_type="text", user_properties=[("name", "value")])
    world.connect("c", expiry=100, will=Will(b"w", b"the will", 1, False, properties)).lose()


def test_a_will_that_is_over_in_time() -> None:
    world = World()
    waiting_will(world, 10)
    world.advance(20)
    world.end()


def test_a_will_whose_client_is_back() -> None:
    world = World()
    waiting_will(world, 10)
    world.connect("c", clean_start=False)
    world.end()


@pytest.mark.parametrize("end", ["expires", "clean start", "ended"])
def test_a_will_that_still_waits_when_its_session_ends(end: str) -> None:
    world = World()
    waiting_will(world, 100)
    if end == "expires":
        world.advance(200)
    elif end == "clean start":
        world.connect("c")
    else:
        world.broker.end_session("c", world.now)
    world.end()


def test_a_will_and_a_session_after_a_restart() -> None:
    world = World()
    waiting_will(world, 50)
    client = world.connect("d", expiry=100, auto_ack=False)
    client.subscribe("t", "u", qos=2)
    for number in range(5):
        world.publish("t", f"{number}", 1 + number % 2)
        world.publish("r", f"{number}", 1, retain=True)
    client.lose()
    world.publish("t", "away", 1)
    after = world.restart()
    assert after.broker.effects.memory.used > 6 * MESSAGE_BYTES
    after.end()
    world.end()


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("messages", [1, 3])
def test_a_message_or_batch_that_waits_for_the_rest_of_its_receivers(qos: int, messages: int) -> None:
    world = World()
    readers = [world.connect(f"reader-{number}") for number in range(50)]
    for reader in readers:
        reader.subscribe("t", qos=qos, identifier=7)
    writer = world.connect("writer")
    used = world.broker.effects.memory.used
    payload = b"x" * 1_000
    feed(writer, *[Publish(b"t", payload, qos, packet_id=number if qos else 0) for number in range(1, 1 + messages)])
    assert len(world.broker.jobs) == 1
    assert world.broker.effects.memory.used > used + messages * 1_000
    world.settle()
    assert [reader.payloads() for reader in readers] == [["x" * 1_000] * messages] * 50
    world.end()


def test_a_session_that_ends_in_parts() -> None:
    world = World()
    client = world.connect("c", expiry=100)
    client.subscribe(*[f"t/{number}" for number in range(200)], qos=1)
    client.lose()
    for number in range(200):
        world.publish(f"t/{number}", "x", 1)
    world.broker.effects.work = ITERATION_WORK - 40
    world.broker.end_session("c", world.now)
    assert len(world.broker.jobs) == 1
    world.end()


def test_batches_in_flight_that_are_acknowledged_in_part_or_not_at_all() -> None:
    world = World()
    client = world.connect("c", auto_ack=False)
    client.subscribe("t", qos=1)
    writer = world.connect("writer")
    for first in (1, 11):
        writer.send(*[Publish(b"t", b"x", 1, packet_id=first + number) for number in range(5)])
    client.send(*[Ack(PUBACK, packet_id) for packet_id in (1, 2, 3)])
    client.send(Ack(PUBACK, 7))
    assert len(client.world.session("c").inflight) == 6
    client.lose()
    world.end()


@pytest.mark.parametrize("on_overflow", ["drop_newest", DROP_OLDEST, "disconnect"])
def test_frames_that_many_blocked_links_hold(on_overflow: str) -> None:
    world = World(Limits(max_outbox_bytes=5_000, on_overflow=on_overflow))
    readers = [world.connect(f"reader-{number}") for number in range(4)]
    for reader in readers:
        reader.subscribe("t")
        reader.block()
    memory = world.broker.effects.memory
    for size in (10, 700, 2_000, 50, 1_500, 1_200):
        world.connect("writer").send(*[Publish(b"t", b"x" * size)] * 3)
    assert memory.droppable > 0 or on_overflow == "disconnect"
    readers[0].unblock()
    readers[1].lose()
    world.broker.kick("reader-2", world.now)
    world.settle()
    world.broker.shed(world.now)
    world.end()


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_blocked_connection_still_writes_its_last_packets_when_it_is_closed(is_gone: bool) -> None:
    """It is never written if the link is gone before."""
    world = World()
    client = world.connect("c")
    client.block()
    client.send(Subscribe(1, (SubscriptionRequest(b"t", 1),)))
    outbox: Outbox = client.connection.outbox
    world.broker.kick("c", world.now)
    assert outbox.chunks
    if is_gone:
        outbox.chunks.clear()
    world.end()


def test_retained_messages_below_many_prefixes() -> None:
    world = World(Limits(max_retained_messages=150))
    for number in range(200):
        world.publish(f"a/{number % 20}/{number}", "x" * number, 1, retain=True, message_expiry_interval=10)
    for number in range(0, 200, 3):
        world.publish(f"a/{number % 20}/{number}", "" if number % 2 else "other", 1, retain=True)
    world.advance(100)
    world.connect("c", V5).subscribe("a/#")
    world.end()


def test_packets_behind_the_one_that_ends_a_connection() -> None:
    world = World()
    client = world.connect("c")
    world.broker.feed(client.connection, encode(Disconnect(), V5) + b"\x30", world.now)
    world.end()
