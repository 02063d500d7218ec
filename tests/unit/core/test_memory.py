"""The memory account: it charges what the allocator gives, a message once, and refuses those first that hold much."""

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from mqttlite.core.limits import Limits
from mqttlite.core.memory import CHUNK_BYTES, MESSAGE_BYTES, MemoryAccount, text_bytes
from mqttlite.core.message import Message
from mqttlite.core.reasons import BUFFER_FULL, QUEUE_FULL, CloseReason
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Disconnect, Publish, Will
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World

MANY = 1_000_000_000
KIB = 1_024
SHORT = 0x97


def world_of(max_memory_bytes: int = 0) -> World:
    """A broker of which only the memory is limited."""
    limits = Limits(
        max_memory_bytes=max_memory_bytes,
        max_queued_messages=MANY,
        max_queued_bytes=MANY,
        max_outbox_bytes=MANY,
        max_outbox_messages=MANY,
        max_retained_bytes=MANY,
    )
    return World(limits)


def used(world: World) -> int:
    return world.broker.effects.memory.used


def away(world: World, client_id: str, topic_filter: str = "#", identifier: int = 0) -> None:
    """A client that subscribed, and left."""
    client = world.connect(client_id, expiry=1_000)
    client.subscribe(topic_filter, qos=1, identifier=identifier)
    client.lose()


def frozen(world: World, client_id: str) -> Client:
    """A client that subscribed to everything, and takes no bytes."""
    client = world.connect(client_id, expiry=0)
    client.subscribe("#")
    client.block()
    return client


# ── what it charges is what it takes ───────────────────────────────────────────────────────────────────────────────


def queue_small(world: World) -> Callable[[], None]:
    away(world, "a")
    publisher = world.connect("p")

    def run() -> None:
        for _ in range(3_000):
            publisher.publish("topic", "x" * 20, qos=1)
            publisher.received()

    return run


def queue_large(world: World) -> Callable[[], None]:
    away(world, "a")
    publisher = world.connect("p")

    def run() -> None:
        for number in range(300):
            publisher.publish("topic", f"{number:05}" * 1_000, qos=1)

    return run


def queue_for_many(world: World) -> Callable[[], None]:
    for number in range(200):
        away(world, f"c{number}", identifier=7)
    publisher = world.connect("p")

    def run() -> None:
        for _ in range(500):
            publisher.publish("topic", "x" * 100, qos=1)

    return run


def block_many(world: World) -> Callable[[], None]:
    for number in range(50):
        frozen(world, f"c{number}")
    publisher = world.connect("p")

    def run() -> None:
        for number in range(1_000):
            publisher.publish("topic", f"{number:05}" * 50)

    return run


def block_small(world: World) -> Callable[[], None]:
    frozen(world, "a")
    publisher = world.connect("p")

    def run() -> None:
        for number in range(5_000):
            publisher.publish("topic", f"{number:05}")

    return run


def send_unacknowledged(world: World) -> Callable[[], None]:
    reader = world.connect("a", receive_maximum=60_000, auto_ack=False)
    reader.subscribe("#", qos=1)
    publisher = world.connect("p")

    def run() -> None:
        for number in range(900):
            publisher.publish("topic", f"{number:05}" * 200, qos=1)
        reader.received()

    return run


def keep_topics(world: World) -> Callable[[], None]:
    publisher = world.connect("p")

    def run() -> None:
        for number in range(3_000):
            publisher.publish(f"r/{number}", "x" * 500, qos=1, retain=True)

    return run


def subscribe_often(world: World) -> Callable[[], None]:
    client = world.connect("a")

    def run() -> None:
        for number in range(3_000):
            client.subscribe(f"site/{number}/temperature")

    return run


def connect_partly(world: World) -> Callable[[], None]:
    clients = [world.connect(f"c{number}") for number in range(20)]

    def run() -> None:
        for client in clients:
            packet = encode(Publish(b"t", bytes(200_000), 0), client.version)
            for at in range(0, 100_000, 1_000):
                client.send_bytes(packet[at : at + 1_000])

    return run


def delay_many(world: World) -> Callable[[], None]:
    publisher = world.connect("p")

    def run() -> None:
        for number in range(3_000):
            publisher.publish(f"$delayed/{number}/topic", f"{number:05}" * 10, qos=1)

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "least", "most"),
    [
        (queue_small, 0.85, 1.15),
        (queue_large, 0.9, 1.1),
        (queue_for_many, 0.8, 1.25),
        (block_many, 0.85, 1.25),
        (block_small, 0.85, 1.15),
        (send_unacknowledged, 0.9, 1.15),
        (keep_topics, 0.9, 1.4),
        (delay_many, 0.85, 1.15),
        (subscribe_often, 0.7, 1.4),
        (connect_partly, 0.85, 1.1),
    ],
)
def test_the_charge_equals_what_the_allocator_gives(
    load: Callable[[World], Callable[[], None]], least: float, most: float
) -> None:
    world = world_of()
    world.changes = Forgetful()
    run = load(world)
    gc.collect()
    charged = -used(world)
    tracemalloc.start()
    try:
        run()
        gc.collect()
        taken, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    charged += used(world)
    assert least < charged / taken < most, f"charged {charged}, taken {taken}"


class Forgetful(list):  # type: ignore[type-arg]
    """The changes of a world that are not of interest."""

    def __iadd__(self, _changes: object) -> "Forgetful":  # type: ignore[misc,override]
        return self


def test_a_message_is_charged_once_however_many_sessions_queue_it() -> None:
    world = world_of()
    for number in range(100):
        away(world, f"c{number}")
    publisher = world.connect("p")
    publisher.publish("topic", qos=1)  # its route is cached from now on
    before = used(world)
    publisher.publish("topic", "x" * 100_000, qos=1)
    assert 100_000 < used(world) - before < 110_000
    assert world.session("c7").queued_bytes > 100_000, "each session is held to its limit as if it were alone"


def test_all_is_given_back() -> None:
    world = world_of()
    assert used(world) == 0
    for number in range(3):
        away(world, f"c{number}", identifier=number)
    readers = [frozen(world, f"f{number}") for number in range(3)]
    slow = world.connect(
        "slow", auto_ack=False, will=Will(b"w", b"x" * 999, 1, False, Properties(will_delay_interval=9))
    )
    slow.subscribe("#", "$share/group/#", qos=2)
    publisher = world.connect("p")
    for qos in (0, 1, 2):
        publisher.publish("topic", "x" * 999, qos, retain=True)
        publisher.publish("r", "x" * 999, qos, retain=True)
    slow.lose()
    readers[0].unblock()
    publisher.publish("r", retain=True)
    publisher.publish("topic", retain=True)
    for reader in readers:
        reader.disconnect()
    for number in range(3):
        back = world.connect(f"c{number}", clean_start=False, expiry=0)
        back.disconnect()
    publisher.disconnect()
    world.advance(2_000)
    world.broker.authorize(built_in_rules())  # which drops all cached routes
    assert world.broker.effects.memory.droppable == 0
    assert used(world) == 0


# ── who is refused ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_holder_may_have_as_much_as_nobody_has_taken() -> None:
    memory = MemoryAccount(1_600)
    assert memory.room_for(0) == 1_500, "a sixteenth is left for newcomers"
    memory.used = 1_000
    assert memory.room_for(400) == 100
    assert memory.room_for(500) == 0
    assert memory.room_for(600) < 0
    memory.used = 1_599
    assert not memory.is_full()
    memory.used = 1_600
    assert memory.is_full()


def test_without_a_limit_there_is_always_room() -> None:
    memory = MemoryAccount(0)
    memory.used = 10**15
    assert memory.room_for(10**15) > 10**15


def test_a_large_queue_is_refused_more_while_a_small_one_still_grows() -> None:
    world = world_of(1_000 * KIB)
    away(world, "large", "large")
    away(world, "small", "small")
    publisher = world.connect("p", auto_ack=False)
    codes = []
    for _ in range(100):
        publisher.publish("large", "x" * 10 * KIB, qos=1)
        codes += [packet.reason_code for packet in publisher.received() if isinstance(packet, Ack)]
    assert 0 < codes.count(0) < 100
    assert set(codes[codes.index(SHORT) :]) == {SHORT}
    assert world.session("large").drops[QUEUE_FULL] == codes.count(SHORT)
    publisher.publish("small", "x" * 10 * KIB, qos=1)
    assert [packet.reason_code for packet in publisher.received() if isinstance(packet, Ack)] == [0]
    assert used(world) <= 1_000 * KIB


def test_the_clients_that_hold_most_lose_their_qos_0_messages_first() -> None:
    world = world_of(1_000 * KIB)
    little, much = frozen(world, "little"), frozen(world, "much")
    publisher = world.connect("p")
    for number in range(4):
        publisher.publish("t", f"{number}" * 10 * KIB)
    little.unblock()
    little.block()
    for number in range(20):
        publisher.publish("t", f"{number % 10}" * 10 * KIB)
    memory = world.broker.effects.memory
    memory.used = memory.shed_above + 1
    kept = little.connection.outbox.waiting_bytes
    most = much.connection.outbox.waiting_bytes
    assert 0 < kept < most
    assert world.broker.shed(world.now) == [(much.connection.number, most, 24)]
    assert much.connection.outbox.drops == {BUFFER_FULL: 24}
    assert much.connection.outbox.waiting_bytes == 0
    assert little.connection.outbox.waiting_bytes == kept


def test_nothing_is_shed_while_there_is_enough_or_nothing_may_be_dropped() -> None:
    world = world_of(1_000 * KIB)
    reader = frozen(world, "a")
    publisher = world.connect("p")
    publisher.publish("t", "x" * 10 * KIB)
    world.broker.shed(world.now)
    assert reader.connection.outbox.waiting_bytes > 10 * KIB
    assert reader.connection.outbox.drops == {}
    reader.unblock()
    world.broker.effects.memory.used += 1_000 * KIB
    world.broker.shed(world.now)
    assert reader.payloads() == ["x" * 10 * KIB]


def test_shedding_ends_when_nothing_is_left_to_drop() -> None:
    world = world_of(1_000 * KIB)
    readers = [frozen(world, "a"), frozen(world, "b")]
    world.publish("t", "x" * 10 * KIB)
    world.broker.effects.memory.used += 2_000 * KIB
    world.broker.shed(world.now)
    assert [reader.connection.outbox.waiting_bytes for reader in readers] == [0, 0]
    assert world.broker.effects.memory.droppable == 0


def test_bytes_behind_a_disconnect_are_not_kept() -> None:
    world = world_of()
    client = world.connect("c")
    client.send_bytes(
        encode(Disconnect(), client.version) + encode(Publish(b"t", bytes(9_000), 0), client.version)[:99]
    )
    assert client.closed
    assert client.connection.framer.kept_bytes == 0
    assert used(world) == 0


def test_receivers_with_the_same_subscription_identifier_share_a_delivery() -> None:
    world = world_of()
    for client_id in ("a", "b"):
        away(world, client_id, identifier=7)
    world.publish("t", "x", 1)
    assert world.session("a").queue.deliveries[0] is world.session("b").queue.deliveries[0]


def fill(world: World) -> None:
    memory = world.broker.effects.memory
    memory.used = memory.limit


def test_when_all_is_used_new_sessions_are_refused_and_known_ones_are_not() -> None:
    world = world_of(1_000 * KIB)
    away(world, "known")
    fill(world)
    client = world.open()
    connack = client.connect("new")
    assert connack is not None
    assert connack.reason_code == SHORT
    assert connack.properties.reason_string == "the broker has no memory left for another session"
    assert world.open().connect("known", clean_start=False, expiry=100).reason_code == 0  # type: ignore[union-attr]


def test_when_there_is_no_room_new_clients_are_told_of_another_server_if_one_is_known() -> None:
    world = world_of(1_000 * KIB)
    away(world, "known")
    server = ""
    world.broker.sessions.elsewhere = lambda: server
    assert not world.broker.sessions.is_full
    fill(world)
    assert world.broker.sessions.is_full
    for server, code, says in (
        ("", SHORT, "the broker has no memory left for another session"),
        ("b:1883", 0x9C, "the broker has no memory left for another session: use b:1883"),
    ):
        client = world.open()
        connack = client.connect("new")
        assert connack is not None
        assert (connack.reason_code, connack.properties.server_reference) == (code, server or None)
        assert connack.properties.reason_string == says
    world.broker.effects.memory.used = 0
    world.broker.effects.refuses_connects = True
    assert world.broker.sessions.is_full
    connack = world.open().connect("new")
    assert connack is not None
    assert connack.properties.reason_string == "the broker is overloaded: come again later: use b:1883"
    connack = world.open().connect("known", clean_start=False, expiry=100)
    assert connack is not None
    assert connack.reason_code == 0x89, "no other server has its session"


def test_a_broker_with_as_many_sessions_as_it_may_have_is_full() -> None:
    world = World(Limits(max_sessions=1))
    assert not world.broker.sessions.is_full
    world.connect("a")
    assert world.broker.sessions.is_full


def test_when_all_is_used_new_subscriptions_are_refused_and_known_ones_are_not() -> None:
    world = world_of(1_000 * KIB)
    client = world.connect("c")
    assert client.subscribe("a") == b"\0"
    fill(world)
    assert client.subscribe("a", "b", qos=1) == b"\x01\x97"


def test_when_all_is_used_messages_to_clients_that_read_are_refused_too() -> None:
    world = world_of(1_000 * KIB)
    reader = world.connect("r")
    reader.subscribe("#", qos=1)
    publisher = world.connect("p")
    fill(world)
    publisher.publish("t", "x", qos=1)
    assert [packet.reason_code for packet in publisher.received() if isinstance(packet, Ack)] == [SHORT]
    assert reader.messages() == []


def test_a_queue_leaves_when_all_is_used() -> None:
    world = world_of(1_000 * KIB)
    away(world, "r")
    publisher = world.connect("p")
    for number in range(20):
        publisher.publish("t", str(number), qos=1)
    world.broker.effects.memory.used += 1_000 * KIB
    reader = world.connect("r", clean_start=False, expiry=100)
    assert reader.payloads() == [str(number) for number in range(20)]


def test_when_all_is_used_nothing_more_is_retained() -> None:
    world = world_of(1_000 * KIB)
    publisher = world.connect("p")
    fill(world)
    publisher.publish("t", "x", qos=1, retain=True)
    assert [packet.reason_code for packet in publisher.received() if isinstance(packet, Ack)] == [SHORT]
    assert len(world.broker.router.retained) == 0


def test_a_long_packet_for_which_there_is_no_memory_ends_its_connection_and_no_other() -> None:
    world = world_of(1_000 * KIB)
    client, other = world.connect("c"), world.connect("o")
    packet = encode(Publish(b"t", bytes(900 * KIB), 0), client.version)
    for at in range(0, 600 * KIB, 10 * KIB):
        if not client.closed:
            client.send_bytes(packet[at : at + 10 * KIB])
    assert client.closed
    [goodbye] = client.received()
    assert isinstance(goodbye, Disconnect)
    assert goodbye.reason_code == SHORT
    assert "no memory left for a packet of" in (goodbye.properties.reason_string or "")
    assert client.connection.close_reason == CloseReason.QUOTA_EXCEEDED
    assert not other.closed
    assert used(world) < 100 * KIB


def test_a_short_packet_is_taken_even_when_all_is_used() -> None:
    world = world_of(1_000 * KIB)
    client = world.connect("c")
    fill(world)
    packet = encode(Publish(b"t", bytes(500), 0), client.version)
    client.send_bytes(packet[:300])
    client.send_bytes(packet[300:])
    assert not client.closed


def test_deferred_bytes_are_charged_and_refused_alike() -> None:
    world = world_of(1_000 * KIB)
    client = world.connect("c")
    client.connection.deferred = True
    for _ in range(100):
        world.broker.feed(client.connection, bytes(10 * KIB), world.now)
    world.settle()
    assert client.closed
    assert client.connection.close_reason == CloseReason.QUOTA_EXCEEDED


def test_unsent_bytes_of_a_blocked_link_count_until_it_reads_again() -> None:
    world = world_of()
    client = world.connect("c")
    before = used(world)
    world.broker.block(client.connection, world.now, 5_000)
    assert used(world) - before == 5_000
    assert client.connection.outbox.held_bytes == 5_000
    client.send_bytes(b"\xc0\0")  # PINGREQ
    assert used(world) - before == 5_000 + 2 + CHUNK_BYTES
    client.unblock()
    assert used(world) == before


def test_aliases_are_charged_until_they_are_replaced_or_the_connection_ends() -> None:
    world = world_of()
    client = world.connect("c")
    client.publish("t" * 1_000)
    before = used(world)
    for topic, more in (("t" * 1_000, 1_000), ("t" * 400, 400)):
        packet = Publish(topic.encode(), b"", 0, properties=Properties(topic_alias=1))
        world.publish(topic)  # its route is cached
        cached = used(world) - before
        client.send(packet)
        assert used(world) - before >= min(cached, more)
    client.lose()


def test_a_connect_that_waits_for_a_verdict_is_charged() -> None:
    world = world_of()
    client = world.open(must_authenticate=True)
    before = used(world)
    client.connect("c", will=Will(b"w", b"x" * 10_000, 0, False))
    assert used(world) - before > 10_000
    world.answer(client, accepted=False)
    assert used(world) == 0


def test_texts_cost_what_they_take() -> None:
    assert text_bytes("a" * 100) == 150
    assert text_bytes("ä" * 100) == 450


def test_a_message_costs_its_properties() -> None:
    assert Message(b"t", b"p").memory_bytes == MESSAGE_BYTES + 2
    assert Message(b"t", b"p", properties=Properties(content_type="x" * 500)).memory_bytes > MESSAGE_BYTES + 500
