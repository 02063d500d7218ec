"""A last-value stream keeps the newest message of each key beyond retention, with its offset."""

from datetime import UTC, datetime
from typing import Final

import pytest

from mqttlite.core.log_changes import Append, Compact
from mqttlite.core.message import Message
from mqttlite.core.route.tally import POLICY_REFUSES, QUOTA_EXCEEDED
from mqttlite.core.source import THE_PROGRAM
from mqttlite.extensions.streams import compaction
from mqttlite.extensions.streams.options import StreamOptions
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.packets import Publish
from tests.support.core_driver import Client, publishes
from tests.support.streams import StreamWorld, ack, got, options, places, reader

KEPT: Final = {"clean_start": False, "expiry": 100_000}
KEEP_S: Final = 1_000
TOMBSTONE_S: Final = 10_000


@pytest.fixture(params=[False, True], ids=["memory", "pages"])
def store(request: pytest.FixtureRequest) -> MemoryStore:
    return MemoryStore(pages=request.param)


def stream(**fields: object) -> StreamOptions:
    given = {"keep_s": KEEP_S, "last_value": True, "keep_tombstones_s": TOMBSTONE_S, **fields}
    return options("s", "a/#", **given)


def world_with(store: MemoryStore, **fields: object) -> StreamWorld:
    return StreamWorld([stream(**fields)], store)


def put(world: StreamWorld, *pairs: str) -> None:
    """Publish `<key>=<value>`, where the key is the last level of the topic."""
    for each in pairs:
        key, _, value = each.partition("=")
        assert world.publish(f"a/{key}", value, 1) == 0


def age(world: StreamWorld) -> None:
    """What is there becomes history that is not kept."""
    world.advance(2 * KEEP_S + 10)


def seen(client: Client) -> list[str]:
    packets = publishes(client.received())
    ack(client, *packets)
    return [f"{each.topic.decode()[2:]}={each.payload.decode()}" for each in packets]


def test_of_old_messages_only_the_newest_of_each_key_stay_with_their_offsets(store: MemoryStore) -> None:
    world = world_with(store)
    put(world, "x=1", "y=1", "x=2", "z=1", "x=3")
    state = world.streams.state("s")
    assert (state.messages, state.partitions[0].messages) == (5, 5)
    age(world)
    put(world, "y=2", "y=3")
    client = reader(world)
    packets = publishes(client.received())
    assert [each.payload for each in packets] == [b"1", b"1", b"3", b"2", b"3"]
    assert [offset for _, offset in places(packets)] == [1, 3, 4, 5, 6], "young messages are history"
    state = world.streams.state("s")
    assert (state.messages, state.removed, state.partitions[0].first, state.partitions[0].end) == (5, 2, 1, 7)
    world.end()


def test_a_read_at_a_removed_offset_begins_at_the_next_and_says_so(store: MemoryStore) -> None:
    world = world_with(store)
    put(world, "y=0", "x=1", "x=2", "x=3", "z=1")
    age(world)
    client = reader(world, "$stream/s@0:1")
    packets = publishes(client.received())
    assert [offset for _, offset in places(packets)] == [3, 4]
    assert skipped(packets) == ["2", ""]
    assert world.streams.readers("s")[0].skipped == 2
    world.end()


def skipped(packets: list[Publish]) -> list[str]:
    return [dict(each.properties.user_properties).get("stream-skipped", "") for each in packets]


@pytest.mark.parametrize("last_value", [False, True])
def test_partitions_that_are_compacted_are_not_kept_together(last_value: bool) -> None:
    """Else the place of removed messages would stay taken by those of other partitions."""
    world = world_with(MemoryStore(pages=True), last_value=last_value, partitions=2)
    put(world, "x=1", "y=1", "z=1", "w=1")
    families = {each.key: each.family for each in world.changes if isinstance(each, Append)}
    assert (len(families), set(families.values())) == (2, {"" if last_value else "$stream/s"})
    world.end()


@pytest.mark.long
def test_an_empty_message_removes_its_key_after_its_time(store: MemoryStore) -> None:
    world = world_with(store)
    put(world, "x=1", "y=1", "x=", "z=1")
    age(world)
    assert seen(reader(world)) == ["y=1", "x=", "z=1"]
    world.advance(TOMBSTONE_S * 2)
    assert seen(reader(world, name="r2")) == ["y=1", "z=1"]
    world.end()


def test_a_removal_with_an_expiry_is_told_as_long_as_others_are(store: MemoryStore) -> None:
    """Otherwise a table that was away would keep a value that is gone."""
    world = world_with(store)
    put(world, "x=1", "y=1")
    assert world.publish("a/x", "", 1, message_expiry_interval=5) == 0
    assert world.publish("a/y", "2", 1, message_expiry_interval=5) == 0
    put(world, "z=1")
    world.advance(10)
    assert seen(reader(world)) == ["x=1", "y=1", "x=", "z=1"]
    age(world)
    assert seen(reader(world, name="r2")) == ["x=", "z=1"]
    world.advance(TOMBSTONE_S * 2)
    assert seen(reader(world, name="r3")) == ["z=1"]
    world.end()


@pytest.mark.long
def test_the_last_message_stays_even_if_it_is_a_tombstone_because_it_says_the_end(store: MemoryStore) -> None:
    world = world_with(store, keep_tombstones_s=0)
    put(world, "x=1", "x=")
    world.advance(TOMBSTONE_S * 3)
    assert seen(reader(world)) == ["x="]
    world = world.restart()
    assert world.streams.partition("s", 0).end == 2
    put(world, "x=2")
    assert seen(reader(world, name="r2")) == ["x=", "x=2"]
    world.end()


def test_the_key_is_the_property_or_the_topic_and_a_message_without_one_is_refused() -> None:
    world = world_with(MemoryStore())
    world.append("1", "2", topic="$stream/s", key="k")
    world.append("3", topic="a/b", key="k")
    age(world)
    assert got(reader(world)) == ["3"]
    assert world.publish("$stream/s", "x", 1) == POLICY_REFUSES
    publisher = world.connect("p")
    publisher.publish("$stream/s", "x", qos=1)
    (answer,) = publisher.received()
    assert "needs the user property ordering-key" in (answer.properties.reason_string or "")  # type: ignore[union-attr]
    assert world.streams.state("s").refused == 2
    world.end()


def test_values_are_not_removed_for_room_and_a_message_without_room_is_refused(store: MemoryStore) -> None:
    world = world_with(store, keep_bytes=20_000, keep_s=0)
    for at in range(200):
        put(world, f"x={at:0500}")
    state = world.streams.state("s")
    assert (state.refused, state.removed > 100, state.size_bytes <= 20_000) == (0, True, True)
    refused = 0
    for at in range(50):
        refused += world.publish(f"a/{at}", "v" * 500, 1) == QUOTA_EXCEEDED
    assert refused > 0
    values = [each for each in seen(reader(world, receive_maximum=1_000)) if not each.startswith("x")]
    assert values == [f"{at}={'v' * 500}" for at in range(50 - refused)], "no value that was taken is gone"
    world.end()


@pytest.mark.long
def test_a_full_stream_is_emptied_by_removals(store: MemoryStore) -> None:
    world = world_with(store, keep_bytes=200_000, keep_s=0, keep_tombstones_s=0)
    keys = 0
    while world.publish(f"a/{keys}", "v" * 100, 1) == 0:
        keys += 1
    left = [f"a/{at}" for at in range(keys)]
    for _ in range(10):
        left = [each for each in left if world.publish(each, "", 1) != 0]
        world.advance(1.0)
    assert left == []
    assert world.publish("a/new", "v" * 100, 1) == 0
    found = dict(each.split("=") for each in seen(reader(world, receive_maximum=10_000)))
    assert {key for key, value in found.items() if value} == {"new"}
    world.end()


@pytest.mark.long
def test_compaction_goes_on_after_a_crash_between_any_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "COMPACTED_AT_ONCE", 3)
    pairs = [f"{key}={at}" for at in range(6) for key in "xyz"]
    steps = 0
    while True:
        world = world_with(MemoryStore(pages=True))
        put(world, *pairs, "x=", "y=last")
        world.late_pages = []
        world.now += 2 * KEEP_S + 10
        world.broker.tick(world.now)
        world.settle()
        for _ in range(steps):
            late, world.late_pages = world.late_pages, []
            for page in late:
                world.broker.answer(page.id, world.read(page), world.now)
            world.settle()
        was_over = not world.late_pages
        world = world.restart()
        values = dict(each.split("=") for each in seen(reader(world, receive_maximum=1_000)))
        assert values == {"x": "", "y": "last", "z": "5"}, steps
        world.advance(1.0)
        client = reader(world, name="r2", receive_maximum=1_000)
        assert seen(client) == ["z=5", "x=", "y=last"]
        world.end()
        if was_over:
            break
        steps += 1
    assert steps > 10


def test_a_pass_that_knows_no_more_keys_ends_there_and_another_goes_on(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "MAX_KEYS_OF_PASS", 2)
    world = world_with(store)
    put(world, *(f"{key}={at}" for at in range(4) for key in "abcde"))
    age(world)
    assert seen(reader(world, receive_maximum=1_000)) == ["a=3", "b=3", "c=3", "d=3", "e=3"]
    used = world.streams.state("s").size_bytes
    world = world.restart()
    assert world.streams.state("s").size_bytes == used
    world.end()


def test_the_memory_account_has_what_is_left_in_memory() -> None:
    world = world_with(MemoryStore())
    memory = world.broker.effects.memory
    put(world, "x=1", "y=1", "x=2", "x=3", "z=1")
    used, size = memory.used, world.streams.state("s").size_bytes
    age(world)
    size_left = world.streams.state("s").size_bytes
    assert used - memory.used == size - size_left > 0
    world = world.restart()
    assert world.broker.effects.memory.used == world.streams.state("s").size_bytes == size_left
    world.end()


def test_a_stream_that_is_deleted_is_compacted_no_more() -> None:
    world = world_with(MemoryStore(pages=True))
    put(world, "x=1", "x=2", "y=1")
    world.late_pages = []
    world.now += 2 * KEEP_S + 10
    world.broker.tick(world.now)
    world.settle()
    world.streams.delete("s")
    world.read_late_pages()
    assert not [each for each in world.changes if isinstance(each, Compact)]
    world.end()


def test_messages_without_a_key_are_history_and_no_values(store: MemoryStore) -> None:
    world = world_with(store, last_value=False)
    world.append("1", "2", topic="$stream/s")
    world = world.restart(stream())
    put(world, "x=1")
    age(world)
    put(world, "x=2")
    assert got(reader(world)) == ["1", "2"]
    world.end()


def test_it_is_predicted_what_becomes_of_a_message_without_a_key() -> None:
    world = world_with(MemoryStore())
    found = world.streams._kept["s"].stream
    (planned,) = found.outlook(Message(b"$stream/s", b"x"), THE_PROGRAM, True)
    assert "needs the user property ordering-key" in planned.detail
    (planned,) = found.outlook(Message(b"a/x", b"x"), THE_PROGRAM, True)
    assert "kept" in planned.detail
    world.end()


def test_an_expired_value_goes_and_former_ones_do_not_come_back(store: MemoryStore) -> None:
    world = world_with(store)
    put(world, "x=1", "y=1")
    assert world.publish("a/x", "short", 1, message_expiry_interval=5) == 0
    put(world, "z=1")
    age(world)
    assert seen(reader(world)) == ["y=1", "z=1"]
    assert world.streams.state("s").messages == 2
    world.end()


def test_a_reader_that_is_on_its_way_passes_what_is_compacted(store: MemoryStore) -> None:
    world = world_with(store)
    put(world, *(f"{key}={at}" for at in range(4) for key in "xy"), "z=1")
    client = reader(world, receive_maximum=2, **KEPT)
    packets = publishes(client.received())
    assert [offset for _, offset in places(packets)] == [0, 1]
    age(world)
    ack(client, *packets)
    packets = publishes(client.received())
    assert [offset for _, offset in places(packets)] == [6, 7]
    assert skipped(packets) == ["4", ""]
    client.lose()
    world = world.restart()
    client = world.connect("r", auto_ack=False, **KEPT)
    assert seen(client) == ["x=3", "y=3", "z=1"]
    world.end()


def test_messages_of_a_group_are_sparse_too(store: MemoryStore) -> None:
    world = world_with(store)
    put(world, *(f"{key}={at}" for at in range(4) for key in "xy"))
    age(world)
    client = world.connect("m", auto_ack=False)
    client.subscribe("$share/g/$stream/s@earliest", qos=1)
    assert seen(client) == ["x=3", "y=3"]
    assert world.streams.groups("s")[0].positions == [8]
    world.end()


def test_a_time_finds_the_first_message_left(store: MemoryStore) -> None:
    world = world_with(store)
    put(world, "x=1")
    world.advance(10)
    since = datetime.fromtimestamp(world.now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    put(world, "x=2", "y=1", "x=3")
    age(world)
    put(world, "z=1")
    assert seen(reader(world, f"$stream/s@{since}")) == ["y=1", "x=3", "z=1"]
    world.end()


def test_history_begins_again_when_the_option_is_taken_away(store: MemoryStore) -> None:
    world = world_with(store)
    put(world, "x=1", "x=2", "y=1")
    age(world)
    assert world.streams.state("s").messages == 2
    world = world.restart(options("s", "a/#", keep_s=KEEP_S))
    assert world.streams.state("s").messages == 0
    world.append("new", topic="a/z")
    assert got(reader(world)) == ["new"]
    world.end()
