"""Messages to `$delayed/<seconds>/<topic>` are published to the topic after so many seconds, also after a restart."""

import pytest

from mqttlite.core.changes import Change, Enqueue, RemoveDelayed, SaveDelayed, SaveRetained
from mqttlite.core.connect.capabilities import Capabilities
from mqttlite.core.limits import BATCH_MESSAGES, ITERATION_WORK, Limits
from mqttlite.core.memory import DELAYED_BYTES, MESSAGE_BYTES
from mqttlite.core.reasons import EXPIRED, NOT_AUTHORIZED, PURGED, QUEUE_FULL
from mqttlite.core.route.delayed_messages import DELAYS_FULL
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.topics.namespaces import MAX_DELAY_S
from mqttlite.wire.constants import PUBACK, PUBREC, V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Connect, Publish, Will
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World, publishes, request
from tests.support.memory import end_everything
from tests.support.rules import OpenRules


def reading(world: World, *filters: str, qos: int = 2, version: int = V5) -> Client:
    client = world.connect(f"reader-{version}", version, expiry=1_000)
    client.subscribe(*filters, qos=qos)
    return client


def kinds(changes: list[Change]) -> list[str]:
    """Those of delayed messages, and of what they became."""
    return [type(change).__name__ for change in changes if not hasattr(change, "topic_filter")]


def drops(world: World) -> dict[str, int]:
    return world.broker.router.drops.by_reason


# ── publishing ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_is_published_to_its_topic_when_its_time_has_come(qos: int, version: int) -> None:
    world = World()
    reader = reading(world, "#", "$delayed/#", version=version)
    publisher = world.connect("p", version)
    publisher.publish("$delayed/60/a/b", "x", qos)
    acks = [packet.reason_code for packet in publisher.received() if isinstance(packet, Ack)]
    assert acks == [0] * qos
    world.advance(59.9)
    assert reader.messages() == []
    assert len(world.broker.delayed) == 1
    world.advance(0.1)
    (packet,) = publishes(reader.received())
    assert (packet.topic, packet.payload, packet.qos, packet.retain) == (b"a/b", b"x", qos, False)
    world.advance(MAX_DELAY_S)
    assert reader.messages() == []
    assert len(world.broker.delayed) == 0


def test_a_delay_of_no_seconds_ends_at_the_next_tick() -> None:
    world = World()
    reader = reading(world, "a")
    world.connect("p").publish("$delayed/0/a", "x", 1)
    assert world.broker.due_at() == world.now
    world.advance(0)
    assert reader.payloads() == ["x"]


def test_the_longest_delay() -> None:
    world = World()
    reader = reading(world, "a")
    world.publish(f"$delayed/{MAX_DELAY_S}/a", "x", 1)
    world.advance(MAX_DELAY_S - 1)
    assert reader.payloads() == []
    world.advance(1)
    assert reader.payloads() == ["x"]


def test_messages_of_a_program_are_delayed_too() -> None:
    world = World()
    reader = reading(world, "a")
    assert world.publish("$delayed/5/a", "x") == 0
    world.advance(5)
    assert reader.payloads() == ["x"]


def test_a_will_is_delayed_when_it_is_published() -> None:
    world = World()
    reader = reading(world, "a")
    world.connect("w", will=Will(b"$delayed/5/a", b"gone", 1)).lose()
    world.advance(4.9)
    assert reader.payloads() == []
    world.advance(0.1)
    assert reader.payloads() == ["gone"]


def test_a_topic_alias_may_stand_for_a_delayed_topic() -> None:
    world = World()
    reader = reading(world, "a")
    client = world.connect("p")
    client.send(Publish(b"$delayed/5/a", b"0", properties=Properties(topic_alias=1)))
    client.send(Publish(b"", b"1", 1, packet_id=1, properties=Properties(topic_alias=1)))
    world.advance(5)
    assert reader.payloads() == ["0", "1"]


def test_a_message_with_retain_is_retained_when_it_is_due() -> None:
    world = World()
    client = world.connect("p")
    client.publish("$delayed/5/a", "x", 1, retain=True)
    assert len(world.broker.router.retained) == 0
    world.advance(5)
    reader = reading(world, "a")
    (packet,) = publishes(reader.received())
    assert (packet.topic, packet.payload, packet.retain) == (b"a", b"x", True)
    client.publish("$delayed/5/a", "", 0, retain=True)
    world.advance(5)
    assert len(world.broker.router.retained) == 0


@pytest.mark.parametrize("version", [V311, V5])
def test_messages_of_one_due_time_keep_their_order(version: int) -> None:
    world = World()
    reader = reading(world, "#")
    client = world.connect("p", version)
    client.send(*[Publish(b"$delayed/9/a", b"%d" % number) for number in range(5)])
    client.send(*[Publish(b"$delayed/9/a", b"%d" % number, 1, packet_id=number) for number in range(5, 10)])
    client.send(*[Publish(b"$delayed/9/b", b"%d" % number, 2, packet_id=number) for number in range(10, 15)])
    world.publish("$delayed/8/c", "first")
    world.advance(9)
    assert reader.payloads() == ["first", *map(str, range(15))]


@pytest.mark.long
def test_a_long_chunk_is_delayed_in_parts() -> None:
    world = World()
    reader = reading(world, "a")
    client = world.connect("p")
    total = 2 * BATCH_MESSAGES + 100
    chunk = b"".join([encode(Publish(b"$delayed/9/a", b"%04d" % number), V5) for number in range(total)])
    world.broker.feed(client.connection, chunk, world.now)
    assert 0 < len(world.broker.delayed) < total
    world.settle()
    assert len(world.broker.delayed) == total
    world.advance(9)
    assert [int(payload) for payload in reader.payloads()] == list(range(total))


def test_delayed_topics_fill_no_cache() -> None:
    world = World()
    client = world.connect("p")
    client.publish("$delayed/1/a", qos=1)
    cached = len(world.broker._routes.cache)
    for seconds in range(100):
        client.publish(f"$delayed/{seconds}/a", qos=1)
        client.publish(f"$delayed/x{seconds}/a", qos=1)
    assert len(world.broker._routes.cache) == cached


def test_the_expiry_interval_counts_from_the_publish() -> None:
    world = World()
    reader = reading(world, "#")
    client = world.connect("p")
    for expiry_s in (9, 10, 11, 60):
        properties = Properties(message_expiry_interval=expiry_s, content_type="text" if expiry_s == 60 else None)
        client.send(Publish(b"$delayed/10/a", b"%d" % expiry_s, 1, packet_id=1, properties=properties))
    world.advance(10)
    received = [(packet.payload, packet.properties.message_expiry_interval) for packet in publishes(reader.received())]
    assert received == [(b"11", 1), (b"60", 50)]
    assert drops(world) == {EXPIRED: 2}
    assert len(world.broker.delayed) == 0


def test_no_local_holds_for_delayed_messages() -> None:
    world = World()
    client = world.connect("c", expiry=100)
    client.subscribe(request("a", 1, no_local=True))
    client.publish("$delayed/5/a", "x", 1)
    world.advance(5)
    assert client.messages() == []
    client.publish("$delayed/5/a", "y", 1)
    client.disconnect()
    world.broker.end_session("c", world.now)
    reader = reading(world, "a")
    world.advance(5)
    assert reader.payloads() == ["y"], "its publisher's session is over"


# ── who may publish ────────────────────────────────────────────────────────────────────────────────────────────────


class Rules(OpenRules):
    """Clients may publish to `open` and `mine`, to other topics they may not."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.allowed = b"mine"

    def is_open(self, topic: bytes) -> bool:
        return topic == b"open"

    def may_publish(self, role: int, topic: bytes) -> bool:
        self.asked.append(topic)
        return topic == self.allowed


def test_permission_is_asked_for_the_topic_behind_the_seconds() -> None:
    world = World()
    rules = Rules()
    world.broker.authorize(built_in_rules(authorizer=rules))
    client = world.connect("p")
    for topic in ("open", "mine", "other"):
        client.publish(f"$delayed/5/{topic}", "x", 1)
        client.send(*[Publish(b"$delayed/5/" + topic.encode(), b"x") for _ in range(2)])
    assert [packet.reason_code for packet in client.received() if isinstance(packet, Ack)] == [0, 0, 0x87]
    assert set(rules.asked) == {b"mine", b"other"}
    assert drops(world) == {NOT_AUTHORIZED: 3}
    assert len(world.broker.delayed) == 6


def test_a_message_that_was_accepted_is_published_whatever_became_of_the_permission() -> None:
    world = World()
    rules = Rules()
    world.broker.authorize(built_in_rules(authorizer=rules))
    reader = reading(world, "mine")
    world.connect("p", expiry=100).publish("$delayed/5/mine", "x", 1)
    rules.allowed = b"nothing"
    world.broker.authorize(built_in_rules(authorizer=rules))
    world.advance(5)
    assert reader.payloads() == ["x"]


# ── limits ─────────────────────────────────────────────────────────────────────────────────────────────────────────

ONE = DELAYED_BYTES + MESSAGE_BYTES + 2
"""What a message of one byte to a topic of one byte takes."""


@pytest.mark.parametrize(
    "limits", [Limits(max_delayed_messages=2), Limits(max_delayed_bytes=3 * ONE - 1)], ids=["messages", "bytes"]
)
@pytest.mark.parametrize(("qos", "answer"), [(1, PUBACK), (2, PUBREC)])
def test_a_message_too_many_is_refused_and_told_why(limits: Limits, qos: int, answer: int) -> None:
    world = World(limits)
    client = world.connect("p")
    for code in (0, 0, 0x97):
        packet_id = client.publish("$delayed/5/a", "x", qos)
        properties = Properties(reason_string=DELAYS_FULL) if code else Properties()
        assert client.received()[0] == Ack(answer, packet_id, code, properties)
    client.send(Publish(b"$delayed/5/a", b"x"), Publish(b"$delayed/5/a", b"x"))
    assert world.publish("$delayed/5/a", "x") == 0x97
    assert drops(world) == {QUEUE_FULL: 4}
    assert len(world.broker.delayed) == 2
    assert world.broker.delayed.size_bytes == 2 * ONE
    world.advance(5)
    client.publish("$delayed/5/a", "x", qos)
    assert client.received()[0] == Ack(answer, client._next_packet_id, 0)


def test_a_message_too_many_of_a_3_1_1_client_is_acknowledged_and_dropped() -> None:
    world = World(Limits(max_delayed_messages=0))
    client = world.connect("p", V311)
    packet_id = client.publish("$delayed/5/a", "x", 1)
    assert client.received() == [Ack(PUBACK, packet_id)]
    assert drops(world) == {QUEUE_FULL: 1}


def test_without_memory_no_message_is_delayed() -> None:
    world = World(Limits(max_memory_bytes=1 << 20))
    client = world.connect("p")
    while world.publish("$delayed/5/a", "x" * 10_000) == 0:
        pass
    memory = world.broker.effects.memory
    assert 0.4 * memory.limit < world.broker.delayed.size_bytes < 0.5 * memory.limit
    client.publish("$delayed/5/a", "x" * 10_000, 1)
    assert [packet.reason_code for packet in client.received() if isinstance(packet, Ack)] == [0x97]


def test_where_delivery_is_told_a_delayed_message_is_queued_for_one() -> None:
    world = World(Limits(max_delayed_messages=1))
    client = world.open(V5, capabilities=Capabilities(tell_delivery=True))
    client.send(Connect("c", V5))
    client.received()
    for code, queued, dropped in ((0, "1", "0"), (0x97, "0", "1")):
        client.publish("$delayed/5/a", "x", 1)
        (ack,) = client.received()
        assert isinstance(ack, Ack)
        assert ack.reason_code == code
        details = dict(ack.properties.user_properties)
        assert (details["delivered-to"], details["queued-for"], details["dropped-for"]) == ("0", queued, dropped)


# ── durability ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_is_acknowledged_when_it_is_in_the_store(qos: int) -> None:
    world = World()
    client = world.connect("p", expiry=0)
    packet = Publish(b"$delayed/5/a", b"x", qos, packet_id=1)
    world.broker.feed(client.connection, encode(packet, V5), world.now)
    assert kinds(world.broker.effects.changes) == ["SaveDelayed"]
    assert client.connection.outbox.awaits_commit


def test_messages_of_qos_0_are_not_durable_unless_they_are_to_be_retained() -> None:
    world = World()
    for qos in (0, 1, 2):
        world.publish("$delayed/5/a", f"{qos}", qos)
        world.publish("$delayed/5/r", f"{qos} retained", qos, retain=True)
    after = world.restart()
    reader = reading(after, "#")
    after.advance(5)
    assert reader.payloads() == ["0 retained", "1", "1 retained", "2", "2 retained"]


def test_the_removal_is_in_the_commit_of_what_the_message_became() -> None:
    world = World()
    away = reading(world, "a")
    away.lose()
    world.publish("$delayed/5/a", "x", 1, retain=True)
    world.changes.clear()
    world.now += 5
    world.broker.tick(world.now)
    changes = world.broker.effects.changes
    assert kinds(changes) == ["SaveRetained", "Enqueue", "RemoveDelayed"]
    saved, enqueued, removed = changes
    assert isinstance(saved, SaveRetained)
    assert isinstance(enqueued, Enqueue)
    assert isinstance(removed, RemoveDelayed)
    assert removed.number == 1


def test_delayed_messages_outlive_the_broker() -> None:
    world = World()
    client = world.connect("c", expiry=1_000)
    client.subscribe(request("a", 1, no_local=True))
    client.publish("$delayed/10/a", "its own", 1)
    for number in range(5):
        world.publish("$delayed/10/b", f"{number}", 2, message_expiry_interval=60)
    world.publish("$delayed/4/b", "past", 1)
    world.changes.clear()
    world.advance(0)
    world.now += 5
    after = world.restart()
    assert len(after.broker.delayed) == 7
    assert after.broker.delayed.size_bytes == world.broker.delayed.size_bytes
    reader = reading(after, "b")
    after.publish("$delayed/5/b", "after", 1)
    after.advance(0)
    assert reader.payloads() == ["past"]
    after.advance(5)
    received = publishes(reader.received())
    assert [packet.payload for packet in received] == [b"0", b"1", b"2", b"3", b"4", b"after"]
    assert received[0].properties.message_expiry_interval == 50
    assert after.session("c").queued == 0, "No Local holds for the session that came back"
    assert [change.number for change in after.changes if isinstance(change, SaveDelayed)] == [8]
    assert len(after.restart().broker.delayed) == 0


# ── many at once ───────────────────────────────────────────────────────────────────────────────────────────────────


def one_iteration(world: World) -> int:
    """What it cost."""
    world.broker.tick(world.now)
    work = world.broker.effects.work
    world._run()
    return work


@pytest.mark.long
def test_an_iteration_publishes_as_many_as_its_budget_has_room_for() -> None:
    world = World()
    reader = reading(world, "a")
    for number in range(3_000):
        world.publish("$delayed/5/a", f"{number}")
    world.now += 5
    iterations = 0
    while world.broker.due_at() == world.now:
        iterations += 1
        assert one_iteration(world) < ITERATION_WORK + 100
    assert iterations > 5
    assert [int(payload) for payload in reader.payloads()] == list(range(3_000))


def crowd(world: World) -> list[Client]:
    readers = [world.connect(f"r{number}", expiry=100) for number in range(1_500)]
    for reader in readers:
        reader.subscribe("a", qos=1)
    return readers


def busy_iteration(world: World) -> None:
    """One in which links have left the others their least share."""
    world.broker.effects.work = ITERATION_WORK
    one_iteration(world)


@pytest.mark.reaches
@pytest.mark.long
def test_a_message_for_very_many_is_removed_when_all_have_it_and_the_next_waits_for_that() -> None:
    world = World()
    readers = crowd(world)
    for number in range(2):
        world.publish("$delayed/5/a", f"{number}", 1)
    world.publish("$delayed/5/b", "2", 1)
    world.changes.clear()
    world.now += 5
    busy_iteration(world)
    assert 0 < kinds(world.changes).count("Enqueue") < 1_500
    assert "RemoveDelayed" not in kinds(world.changes)
    assert not world.broker.cancel_delayed(1, world.now)
    while world.broker.due_at() == world.now:
        busy_iteration(world)
    ends = [change for change in world.changes if isinstance(change, (Enqueue, RemoveDelayed))]
    at = [place for place, change in enumerate(ends) if isinstance(change, RemoveDelayed)]
    assert at == [1_500, 3_001, 3_002]
    assert all(reader.payloads() == ["0", "1"] for reader in (readers[0], readers[-1]))


@pytest.mark.slow
def test_after_a_crash_amid_a_message_for_very_many_it_is_published_once_more() -> None:
    world = World()
    crowd(world)
    world.publish("$delayed/5/a", "0", 1)
    world.now += 5
    busy_iteration(world)
    after = world.restart()
    after.advance(0)
    queued = [after.session(f"r{number}").queued for number in (0, 1_499)]
    assert queued == [2, 1]


def test_due_messages_are_published_at_shut_down_and_others_stay_in_the_store() -> None:
    world = World()
    reading(world, "a").lose()
    for number in range(1_000):
        world.publish("$delayed/5/a", f"{number}", 1)
    world.publish("$delayed/6/a", "later", 1)
    world.now += 5
    one_iteration(world)
    world.broker.shut_down(world.now)
    world._run()
    queued = world.session("reader-5").queued
    assert 0 < queued < 1_000
    after = world.restart()
    assert len(after.broker.delayed) == 1_001 - queued


# ── operators ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_message_can_be_cancelled_until_it_is_due() -> None:
    world = World()
    reader = reading(world, "#")
    for number in range(3):
        world.publish("$delayed/5/a", f"{number}", number)
    for number in (1, 2):
        assert world.broker.cancel_delayed(number, world.now)
        assert not world.broker.cancel_delayed(number, world.now)
    world.settle()
    assert drops(world) == {PURGED: 2}
    assert len(world.restart().broker.delayed) == 1
    world.advance(5)
    assert reader.payloads() == ["2"]
    assert not world.broker.cancel_delayed(3, world.now)


def test_messages_can_be_listed_by_their_numbers() -> None:
    world = World()
    for number in range(1, 6):
        world.publish("$delayed/5/a", f"{number}")
    world.broker.cancel_delayed(2, world.now)
    for first, limit, expected in ((0, 10, [1, 3, 4, 5]), (2, 2, [3, 4]), (6, 2, [])):
        assert [delayed.number for delayed in world.broker.delayed.page(first, limit)] == expected


@pytest.mark.parametrize("end", ["published", "cancelled"])
def test_nothing_is_held_of_messages_that_are_gone(end: str) -> None:
    world = World()
    reading(world, "a")
    client = world.connect("p")
    for qos in (0, 1, 2):
        client.publish("$delayed/5/a", "x", qos, retain=qos == 1)
    assert world.broker.delayed.size_bytes == 3 * ONE
    if end == "published":
        world.advance(5)
        assert world.broker.delayed.size_bytes == 0
    end_everything(world.broker, world.now)
    assert world.broker.effects.memory.used == 0
