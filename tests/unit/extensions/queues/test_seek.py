"""A queue goes back to what it retained, or on over what waits; snapshots; and what gives way to what."""

import random

import pytest

from mqttlite.extensions.queues.errors import SeekUnderWay
from mqttlite.extensions.queues.limits import RELEASED_PER_STEP
from mqttlite.extensions.queues.snapshots import NoSuchSnapshot, SnapshotExists, SnapshotRefused
from mqttlite.log.ranges import Ranges
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import PUBACK
from mqttlite.wire.packets import Ack
from tests.support.core_driver import publishes
from tests.support.queues import QueueWorld, deliveries, options

DAY = 86_400.0


@pytest.fixture(params=[False, True], ids=["memory", "pages"])
def world(request: pytest.FixtureRequest) -> QueueWorld:
    return QueueWorld([options(retain_acked=True, max_attempts=1)], MemoryStore(pages=request.param))


def publish(world: QueueWorld, *payloads: str) -> list[int]:
    """The numbers of the messages, which are one second apart."""
    numbers = []
    for payload in payloads:
        world.publish("a", payload, 1)
        numbers.append(world.broker.effects.numbers.latest)
        world.advance(1)
    return numbers


def seek(world: QueueWorld, number: int) -> None:
    done: list[bool] = []
    world.queues.seek("q", number, lambda: done.append(True))
    world.settle()
    assert done == [True]


def take(world: QueueWorld, most: int = 1_000, acknowledge: bool = True) -> list[str]:
    found: list[str] = []
    while len(found) < most:
        pulled = world.queues.pull("q", most - len(found))
        if acknowledge:
            world.queues.ack("q", [each.ack_id for each in pulled])
        world.settle()
        if not pulled and not world.queues.state("q").waiting:
            break
        found += [each.message.payload.decode() for each in pulled]
    return found


def counts(world: QueueWorld) -> tuple[int, int, int]:
    state = world.queues.state("q")
    return state.depth, state.retained, state.returned


def test_a_seek_goes_back_and_on(world: QueueWorld) -> None:
    numbers = publish(world, *"abcdef")
    assert take(world, 4) == list("abcd")
    assert counts(world) == (2, 4, 0)
    seek(world, numbers[2])
    assert counts(world) == (4, 2, 2)
    assert take(world) == list("cdef")
    seek(world, 0)
    assert take(world) == list("abcdef")
    seek(world, numbers[4] + 1)
    assert take(world) == ["f"]
    seek(world, numbers[-1] + 1)
    assert (take(world), counts(world)[:2]) == ([], (0, 6))
    assert take(world.restart()) == []


def test_nothing_older_comes_after_a_seek_also_after_a_restart(world: QueueWorld) -> None:
    numbers = publish(world, *"abcd")
    held = world.queues.pull("q", 2)
    seek(world, numbers[3])
    assert world.ends() == {"purged": 3}
    assert world.queues.ack("q", [each.ack_id for each in held]) == [False, False]
    again = world.restart()
    assert take(again) == ["d"]
    seek(again, 0)
    assert take(again) == list("abcd")


def test_a_message_leased_before_a_seek_cannot_be_acknowledged_after_it(world: QueueWorld) -> None:
    publish(world, "a", "b")
    first, second = world.queues.pull("q", 2)
    world.queues.ack("q", [first.ack_id])
    seek(world, 0)
    anew = world.queues.pull("q", 2) or world.settle() or world.queues.pull("q", 2)
    assert [(each.message.payload, each.attempt) for each in anew] == [(b"a", 1), (b"b", 1)]
    assert world.queues.ack("q", [first.ack_id, second.ack_id]) == [False, False]
    assert world.queues.ack("q", [each.ack_id for each in anew]) == [True, True]


def test_a_consumer_over_mqtt_gets_them_anew_and_its_late_puback_is_harmless() -> None:
    world = QueueWorld([options(retain_acked=True)])
    consumer = world.connect("c", receive_maximum=2, auto_ack=False)
    consumer.subscribe("$queue/q", qos=1)
    publish(world, "a", "b", "c")
    first, second = publishes(consumer.received())
    consumer.send(Ack(PUBACK, first.packet_id))
    [third] = publishes(consumer.received())
    seek(world, 0)
    for packet in (second, third):
        consumer.send(Ack(PUBACK, packet.packet_id))
    assert deliveries(consumer.received()) == [("a", 1), ("b", 1)]
    assert world.queues.state("q").ends["acknowledged"] == 1


def test_dead_letters_do_not_come_back_but_by_a_replay(world: QueueWorld) -> None:
    numbers = publish(world, *"abc")
    pulled = world.queues.pull("q", 3)
    world.queues.nack("q", [pulled[1].ack_id], 0)
    world.queues.ack("q", [pulled[0].ack_id, pulled[2].ack_id])
    world.settle()
    again = world.restart()
    seek(again, 0)
    assert counts(again)[0] == 2
    assert b"b" not in [each.payload for each in again.queues.peek("q", 5)]
    assert take(again) == ["a", "c"]
    again.queues.replay("q", 1)
    publish(again, "d")
    seek(again, numbers[2])  # the replayed one is older, though it came later
    assert take(again) == ["c", "d"]
    seek(again, numbers[1])
    assert sorted(take(again.restart())) == ["b", "c", "d"]


@pytest.mark.parametrize("seed", range(6))
def test_a_seek_finds_its_place_among_messages_that_came_late(seed: int) -> None:
    rng = random.Random(seed)
    world = QueueWorld([options(retain_acked=True, max_attempts=1)], MemoryStore(pages=True))
    numbers: dict[str, int] = {}
    for at in range(60):
        numbers[str(at)] = publish(world, str(at))[0]
        for pulled in world.queues.pull("q", rng.choice([0, 0, 2])):
            if rng.random() < 0.5:
                world.queues.nack("q", [pulled.ack_id], 0)
            else:
                world.queues.ack("q", [pulled.ack_id])
        letters = list(world.queues.dead_letters("q").letters())
        if letters and rng.random() < 0.5:
            assert world.queues.replay("q", rng.choice(letters).number)
        world.settle()
    if seed % 2:
        world = world.restart()
    dead = {letter.message.payload.decode() for letter in world.queues.dead_letters("q").letters()}
    for _ in range(12):
        number = rng.choice(list(numbers.values())) + rng.choice([0, 1])
        seek(world, number)
        wanted = sorted(each for each in numbers if numbers[each] >= number and each not in dead)
        assert sorted(set(take(world))) == wanted


@pytest.mark.parametrize("pages", [False, True])
def test_without_retention_a_seek_only_goes_on(pages: bool) -> None:
    world = QueueWorld([options()], MemoryStore(pages=pages))
    numbers = publish(world, *"abcd")
    assert take(world, 1) == ["a"]
    seek(world, 0)
    assert counts(world) == (3, 0, 0)
    seek(world, numbers[2])
    assert take(world) == ["c", "d"]


@pytest.mark.parametrize(("limit", "kept"), [({"max_messages": 10}, 10), ({"max_bytes": 4_000}, 11)])
def test_retained_messages_give_way_to_others(limit: dict[str, int], kept: int) -> None:
    world = QueueWorld([options(retain_acked=True, **limit)], MemoryStore(pages=True))
    for _ in range(5):
        publish(world, *"abcd")
        assert take(world) == list("abcd")
    assert world.queues.state("q").refused == 0
    seek(world, 0)
    assert 0 < world.queues.state("q").depth <= kept


def test_messages_are_retained_as_long_as_others(world: QueueWorld) -> None:
    world.queues.change(options(retain_acked=True, expiry_s=100))
    for _ in range(30):
        publish(world, *"0123456789")
        take(world)
    assert 100 <= world.queues.state("q").retained <= 115
    world.queues.change(options())
    assert world.queues.state("q").retained == 0
    assert len(take(world)) == 0


@pytest.mark.parametrize("pages", [False, True])
def test_a_snapshot_keeps_what_had_not_ended(pages: bool) -> None:
    world = QueueWorld([options(ordering=True)], MemoryStore(pages=pages))
    publish(world, *"abcdef")
    held = world.queues.pull("q", 3)
    world.queues.ack("q", [held[1].ack_id])
    made = world.queues.snapshots.create("before", "q")
    assert (made.messages, made.expires_at - made.created_at) == (5, pytest.approx(7 * DAY, abs=10))
    world.queues.ack("q", [held[0].ack_id, held[2].ack_id])
    publish(world, "g")
    assert take(world, 3) == ["d", "e", "f"]
    again = world.restart()
    again.queues.seek_snapshot("q", "before")
    again.settle()
    assert take(again.restart(), 3) == ["a", "c", "d"]
    again.queues.seek_snapshot("q", "before")
    again.settle()
    assert take(again) == ["a", "c", "d", "e", "f", "g"]
    assert [each.name for each in again.queues.snapshots.of("q")] == ["before"]
    again.queues.snapshots.delete("before")
    assert counts(again)[:2] == (0, 0)


def test_snapshots_end(world: QueueWorld) -> None:
    snapshots = world.queues.snapshots
    publish(world, "a")
    for name in ("one", "two", "three"):
        snapshots.create(name, "q")
    with pytest.raises(SnapshotExists):
        snapshots.create("one", "q")
    with pytest.raises(ValueError, match="name is"):
        snapshots.create("a/b", "q")
    with pytest.raises(SnapshotRefused, match="to come"):
        snapshots.expire_at("one", 0)
    now = snapshots.get("one").created_at
    assert snapshots.expire_at("one", now + DAY).expires_at == now + DAY
    world.advance(DAY + 2)
    with pytest.raises(NoSuchSnapshot):
        snapshots.get("one")
    world.advance(5.98 * DAY)
    with pytest.raises(SnapshotRefused, match="within an hour"):
        snapshots.create("late", "q")
    world.advance(DAY)
    assert snapshots.of() == []
    snapshots.create("four", "q")
    world.queues.purge("q")
    assert snapshots.of() == []
    snapshots.create("five", "q")
    world.queues.delete("q")
    assert snapshots.of() == []
    assert world.restart().queues.snapshots.of() == []


def test_a_snapshot_is_dropped_whose_messages_had_to_give_way() -> None:
    world = QueueWorld([options(max_messages=5)])
    world.queues.snapshots.create("s", "q")
    publish(world, *"abcd")
    take(world)
    publish(world, *"efgh")
    assert (world.queues.state("q").refused, world.queues.snapshots.of()) == (0, [])


def test_a_purged_queue_keeps_what_comes_after_a_restart(world: QueueWorld) -> None:
    publish(world, *"abc")
    take(world)
    world.queues.purge("q")
    world.settle()
    world = world.restart()
    seek(world, 0)
    assert counts(world) == (0, 0, 0)
    publish(world, *"de")
    assert take(world) == ["d", "e"]
    world = world.restart()
    seek(world, 0)
    assert take(world) == ["d", "e"]
    world.end()


def test_one_seek_of_a_queue_is_under_way_at_a_time(world: QueueWorld) -> None:
    publish(world, *"abc")
    take(world)
    world.late_pages = []
    world.queues.seek("q", world.broker.effects.numbers.latest - 1, lambda: None)
    with pytest.raises(SeekUnderWay):
        world.queues.seek("q", 1, lambda: None)


def test_many_messages_are_let_go_of_in_parts() -> None:
    world = QueueWorld([options()])
    for number in range(RELEASED_PER_STEP + 10):
        world.publish("a", str(number), 1)
    world.queues.purge("q")
    held = world.broker.effects.memory.used
    world.settle()
    assert world.broker.effects.memory.used < held
    world.end()


def test_ranges() -> None:
    ranges = Ranges([(5, 7), (1, 2), (9, 12), (7, 9), (3, 3)])
    assert (ranges.within(0, 20), len(ranges), ranges.end) == ([(1, 2), (5, 12)], 2, 12)
    assert [each in ranges for each in (0, 1, 2, 4, 5, 11, 12)] == [False, True, False, False, True, True, False]
    assert (ranges.after(5), ranges.after(4), ranges.count(0, 8)) == (12, 4, 4)
    ranges.cut(6)
    assert (ranges.within(0, 20), ranges.first_of(0)) == ([(6, 12)], 6)
    ranges.clear()
    assert (ranges.within(0, 20), ranges.end) == ([], 0)
