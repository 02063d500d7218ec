"""Groups: the members share the partitions of a stream, and have one position in each."""

from collections import Counter
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.core.log_changes import RemoveRecord, SaveRecord
from mqttlite.extensions.streams import readers
from mqttlite.extensions.streams.assignor import assigned
from mqttlite.extensions.streams.errors import NoSuchStream
from mqttlite.extensions.streams.limits import DRAIN_S, GROUP_EXPIRY_S
from mqttlite.extensions.streams.position import parse_position
from mqttlite.filters import Filters
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Publish, Unsubscribe
from tests.support.core_driver import Client, publishes
from tests.support.rules import OpenRules
from tests.support.streams import StreamWorld, ack, got, options, places, reader

GROUP: Final = "$share/g/$stream/s@earliest"
KEPT: Final = {"clean_start": False, "expiry": 1_000}


@given(st.lists(st.integers(-1, 9), max_size=60), st.integers(0, 10))
def test_partitions_are_given_out_evenly_and_stay_where_they_are(owners: list[int], members: int) -> None:
    owners = [each if each < members else -1 for each in owners]
    found = assigned(owners, members)
    if not members:
        assert found == [-1] * len(owners)
        return
    counts = Counter(dict.fromkeys(range(members), 0))
    counts.update(found)
    assert sum(counts.values()) == len(owners)
    assert max(counts.values()) - min(counts.values()) <= 1
    before = Counter(each for each in owners if each >= 0)
    least, more = divmod(len(owners), members)
    kept = sum(now == then for now, then in zip(found, owners, strict=True) if then >= 0)
    sizes = sorted((before[each] for each in range(members)), reverse=True)
    best = sum(min(size, least + (at < more)) for at, size in enumerate(sizes))
    assert kept == best, "a partition moved without need"
    assert assigned(found, members) == found


@pytest.mark.parametrize(
    ("partitions", "events", "moves"),
    [
        (7, "+0 +1 +2 -1 +4 -0 +6 +7 -4 +9 +10 +11 -11 -10", [0, 3, 2, 0, 2, 0, 2, 1, 0, 1, 1, 1, 0, 0]),
        (16, "+0 -0 +2 -2 +4 -4 +6 +7 +8 +9 +10 +11 +12 -10", [0, 0, 0, 0, 0, 0, 0, 8, 5, 4, 3, 2, 2, 0]),
        (64, "+0 +1 +2 +3 +4 -3 -0 -2 -4 +9 +10 +11 +12 +13", [0, 32, 21, 16, 12, 0, 0, 0, 0, 32, 21, 16, 12, 10]),
    ],
)
def test_as_many_partitions_move_as_with_kafkas_sticky_assignor(partitions: int, events: str, moves: list[int]) -> None:
    """`moves` are those of `StickyPartitionAssignor` of kafka-python 3.0.12 for the same members, which come and go."""
    members: list[str] = []
    owners = [""] * partitions
    found: list[int] = []
    for event in events.split():
        if event.startswith("+"):
            members.append(event[1:])
        else:
            members.remove(event[1:])
        before = [members.index(each) if each in members else -1 for each in owners]
        after = assigned(before, len(members))
        found.append(sum(was >= 0 and was != now for was, now in zip(before, after, strict=True)))
        owners = ["" if each < 0 else members[each] for each in after]
    assert found == moves


def member(world: StreamWorld, name: str, **fields: object) -> Client:
    return reader(world, GROUP, name, **{"receive_maximum": 1_000, **fields})  # type: ignore[arg-type]


def owners(world: StreamWorld) -> list[str]:
    (group,) = world.streams.groups("s")
    return group.owners


@pytest.fixture(params=[False, True], ids=["memory", "pages"])
def store(request: pytest.FixtureRequest) -> MemoryStore:
    return MemoryStore(pages=request.param)


def take(client: Client) -> list[Publish]:
    """What a member received, which it acknowledges."""
    packets = publishes(client.received())
    ack(client, *packets)
    return packets


def test_members_share_the_partitions_and_each_message_goes_to_one(store: MemoryStore) -> None:
    world = StreamWorld([options(partitions=4)], store)
    first, second = member(world, "1"), member(world, "2", version=V311)
    world.append(*map(str, range(40)), topic="$stream/s")
    of_first, of_second = take(first), take(second)
    assert sorted(int(each.payload) for each in of_first + of_second) == list(range(40))
    assert {partition for partition, _ in places(of_first)} == {at for at in range(4) if owners(world)[at] == "1"}
    assert sorted(owners(world)) == ["1", "1", "2", "2"]
    (group,) = world.streams.groups("s")
    assert (group.lag, sorted(group.positions), group.members) == (0, [10] * 4, ["1", "2"])
    world.end()


def test_one_member_reads_all_and_one_too_many_stands_by_and_takes_over() -> None:
    world = StreamWorld([options(partitions=2)])
    first = member(world, "1")
    assert owners(world) == ["1", "1"]
    member(world, "2")
    member(world, "3")
    assert sorted(owners(world)) == ["1", "2"]
    first.lose()
    assert sorted(owners(world)) == ["2", "3"]
    world.end()


def test_the_positions_of_a_group_stay_without_members_and_over_a_restart(store: MemoryStore) -> None:
    world = StreamWorld([options()], store)
    world.append("0", "1", "2")
    client = member(world, "1")
    packets = publishes(client.received())
    ack(client, packets[0])
    client.lose()
    assert world.streams.readers("s") == [], "its session has ended"
    world.append("3")
    assert [each.payload for each in take(member(world, "2"))] == [b"1", b"2", b"3"]
    world = world.restart()
    world.append("4")
    assert [each.payload for each in take(member(world, "3"))] == [b"4"]
    world.end()


def test_a_kept_member_comes_back_to_its_group_after_a_restart(store: MemoryStore) -> None:
    world = StreamWorld([options()], store)
    take(member(world, "1", **KEPT))
    world = world.restart()
    world.append("0")
    client = world.connect("1", auto_ack=False, **KEPT)
    assert got(client) == ["0"]
    assert owners(world) == ["1"]
    world.end()


def test_a_partition_that_moves_is_drained_first() -> None:
    world = StreamWorld([options(partitions=2)])
    world.append("0", "1", topic="$stream/s")
    first = member(world, "1")
    held = publishes(first.received())
    assert len(held) == 2
    second = member(world, "2")
    world.append("2", "3", topic="$stream/s")
    assert len(got(first)) == 1, "only of the partition that it keeps"
    assert got(second) == [], "the other one is not drained"
    moving = owners(world)
    assert moving == ["1", "1"]
    ack(first, *held)
    assert sorted(owners(world)) == ["1", "2"]
    assert len(got(second)) == 1
    world.end()


def test_a_member_that_does_not_acknowledge_loses_the_partition_after_some_time() -> None:
    world = StreamWorld([options(partitions=2)])
    world.append("0", "1", topic="$stream/s")
    first = member(world, "1")
    held = publishes(first.received())
    second = member(world, "2")
    world.advance(DRAIN_S - 0.1)
    assert got(second) == []
    world.advance(0.2)
    (again,) = publishes(second.received())
    (late,) = [each for each in held if each.payload == again.payload]
    ack(first, late)
    (group,) = world.streams.groups("s")
    (partition, _) = places([again])[0]
    assert group.positions[partition] == 0, "an acknowledgement of an earlier reader changes nothing"
    ack(second, again)
    (group,) = world.streams.groups("s")
    assert (group.positions[partition], group.moves) == (1, 1)
    world.end()


def test_a_partition_that_is_to_move_stays_when_the_new_member_goes_again() -> None:
    world = StreamWorld([options(partitions=2)])
    world.append(*"0123456789", topic="$stream/s")
    first = member(world, "1")
    held = publishes(first.received())
    second = member(world, "2")
    second.lose()
    world.append(*"abcdef", topic="$stream/s")
    assert sorted(got(first)) == list("abcdef")
    ack(first, *held)
    world.advance(2 * DRAIN_S)
    world.append("x", "y", topic="$stream/s")
    assert sorted(got(first)) == ["x", "y"]
    world.end()


def test_each_partition_that_moves_has_its_time() -> None:
    world = StreamWorld([options(partitions=3)])
    world.append(*"012", topic="$stream/s")
    first = member(world, "1")
    held = publishes(first.received())
    second = member(world, "2")
    world.advance(DRAIN_S - 0.2)
    third = member(world, "3")
    world.advance(0.4)
    assert (len(got(second)), got(third)) == (1, []), "the third has only begun to wait"
    world.advance(DRAIN_S)
    assert len(got(third)) == 1
    ack(first, *held)
    world.end()


def test_members_of_a_group_have_the_same_filters() -> None:
    world = StreamWorld([options("s", "a/#", "b/#")], filters=Filters())
    reader(world, "$share/g/$stream/s@earliest/a/#", "1")
    for topic_filter, where in (
        ("$share/g/$stream/s@earliest/b/#", None),
        ("$share/g/$stream/s", None),
        ("$share/g/$stream/s/a/#", "payload.t > 1"),
    ):
        suback = world.connect("2").suback(topic_filter, where=where)
        assert suback.reason_codes == b"\x8f"
        assert "the members of the group 'g' have another filter" in (suback.properties.reason_string or "")
    assert world.connect("2").subscribe("$share/g/$stream/s/a/#") == b"\x00"
    world = world.restart()
    assert world.connect("3").subscribe("$share/g/$stream/s/a/#") == b"\x00"
    world.end()


def test_messages_that_a_lost_member_has_not_acknowledged_go_to_another() -> None:
    world = StreamWorld([options(partitions=2)])
    first, second = member(world, "1"), member(world, "2")
    world.append(*"0123", topic="$stream/s")
    packets, others = publishes(first.received()), publishes(second.received())
    ack(first, packets[0])
    first.lose()
    assert [each.payload for each in publishes(second.received())] == [packets[1].payload]
    ack(second, *others)
    world.end()


def test_messages_acknowledged_ahead_do_not_come_again_to_the_next_member() -> None:
    world = StreamWorld([options()])
    first = member(world, "1")
    world.append("0", "1", "2")
    packets = publishes(first.received())
    ack(first, packets[1])
    member_two = member(world, "2")
    first.lose()
    assert got(member_two) == ["0", "2"]
    world.end()


def test_a_member_at_qos_0_has_finished_what_it_was_sent() -> None:
    world = StreamWorld([options()])
    world.append("0", "1")
    client = member(world, "1", qos=0)
    assert got(client) == ["0", "1"]
    client.lose()
    assert got(member(world, "2")) == []
    world.end()


def test_a_member_that_unsubscribes_leaves_the_group() -> None:
    world = StreamWorld([options(partitions=2)])
    first, second = member(world, "1"), member(world, "2")
    first.send(Unsubscribe(9, (GROUP.encode(),)))
    assert owners(world) == ["2", "2"]
    world.append("0", "1", topic="$stream/s")
    assert (got(first), len(got(second))) == ([], 2)
    world.end()


def test_groups_do_not_disturb_each_other_or_other_readers() -> None:
    world = StreamWorld([options()])
    world.append("0")
    others = [reader(world, f"$share/{name}/$stream/s@earliest", name) for name in ("a", "b")]
    alone = reader(world, name="alone")
    assert [got(each) for each in (*others, alone)] == [["0"]] * 3
    assert [each.name for each in world.streams.groups("s")] == ["a", "b"]
    world.end()


def test_a_group_begins_where_its_first_member_says() -> None:
    world = StreamWorld([options()])
    world.append("0")
    first = reader(world, "$share/g/$stream/s", "1")
    assert got(first) == []
    second = reader(world, "$share/g/$stream/s@earliest", "2")
    first.lose()
    assert got(second) == []
    world.end()


def test_a_group_goes_on_from_another_place_when_it_is_told() -> None:
    world = StreamWorld([options(partitions=2)])
    world.append(*"012345", topic="$stream/s")
    client = member(world, "1")
    held = publishes(client.received())
    world.streams.seek("s", "g", parse_position("earliest"))
    world.settle()
    again = publishes(client.received())
    assert sorted(each.payload for each in again) == sorted(each.payload for each in held)
    ack(client, *held)
    assert world.streams.groups("s")[0].positions == [0, 0]
    ack(client, *again)
    assert world.streams.groups("s")[0].positions == [3, 3]
    world.streams.seek("s", "g", parse_position("1:2"))
    world.settle()
    assert places(take(client)) == [(1, 2)]
    world.streams.seek("s", "g", parse_position("latest"))
    assert world.streams.groups("s")[0].positions == [3, 3]
    for name, group, position in (("t", "g", "earliest"), ("s", "h", "earliest"), ("s", "g", "2:0")):
        with pytest.raises(NoSuchStream):
            world.streams.seek(name, group, parse_position(position))
    with pytest.raises(ValueError, match="the partition 1 of s ends at 3"):
        world.streams.seek("s", "g", parse_position("1:4"))
    world.end()


def test_a_group_is_deleted_with_its_positions() -> None:
    world = StreamWorld([options()])
    world.append("0")
    client = member(world, "1", **KEPT)
    take(client)
    world.streams.delete_group("s", "g")
    world.settle()
    world.append("1")
    assert got(client) == []
    assert [each for each in saved(world) if "cursor" in each] == []
    assert world.streams.groups("s") == []
    client.send(Unsubscribe(9, (GROUP.encode(),)))
    assert client.subscribe(GROUP, qos=1) == b"\x01"
    assert got(client) == ["0", "1"]
    world.end()


def saved(world: StreamWorld) -> list[str]:
    return [each.key for batch in world.store.load() for each in batch if isinstance(each, SaveRecord)]


def test_a_stream_is_deleted_with_its_groups() -> None:
    world = StreamWorld([options()])
    member(world, "1", **KEPT)
    world.streams.delete("s")
    world.settle()
    assert saved(world) == []
    world.end()


def test_the_record_of_a_group_without_a_stream_is_removed() -> None:
    world = StreamWorld([options()])
    member(world, "1")
    key = next(each for each in saved(world) if "cursor" in each)
    world.store.commit([RemoveRecord(f"\0{each}") for each in ("$stream-options/s", "$stream/s/0")])
    world = StreamWorld([options("t")], world.store)
    assert key not in saved(world)
    world.end()


def test_the_number_of_groups_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MAX_GROUPS", 1)
    world = StreamWorld([options()])
    member(world, "1")
    suback = world.connect("other").suback("$share/h/$stream/s")
    assert "s has 1 groups, which is the limit" in (suback.properties.reason_string or "")
    world.end()


class Readers(OpenRules):
    """Only those in `may` may subscribe to `$stream/s`."""

    def __init__(self) -> None:
        self.may = True

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        return self.may and topic_filter == b"$stream/s"

    def is_readable(self, topic: bytes) -> bool:
        return False


def test_the_rules_are_asked_about_the_stream_and_a_member_without_the_right_leaves() -> None:
    world = StreamWorld([options()])
    rules = Readers()
    world.broker.authorize(rules)
    client = member(world, "1")
    rules.may = False
    world.broker.authorize(rules)
    world.streams.on_new_rules()
    world.settle()
    assert owners(world) == [""]
    world.append("0")
    assert got(client) == []
    world.end()


def test_a_member_uses_up_a_shared_subscription_of_its_client() -> None:
    world = StreamWorld([options()])
    client = world.connect("1", V5)
    assert client.subscribe(GROUP, qos=2) == b"\x01", "2 is granted as 1"
    session = world.broker.sessions.get("1")
    assert session is not None
    assert world.broker._routes.groups_of(session) == 1
    client.lose()
    assert world.streams.readers("s") == []
    world.end()


@pytest.mark.long
def test_a_group_that_nobody_subscribes_with_is_deleted_after_its_time(store: MemoryStore) -> None:
    world = StreamWorld([options()], store)
    client = reader(world, GROUP)
    client.disconnect()
    world.advance(GROUP_EXPIRY_S - 10)
    assert len(world.streams.groups("s")) == 1
    world = world.restart()
    world.advance(9)
    assert len(world.streams.groups("s")) == 1, "the time goes on over a restart"
    world.advance(2)
    assert world.streams.groups("s") == []
    world = world.restart()
    assert world.streams.groups("s") == []
    world.end()


@pytest.mark.long
def test_a_group_is_kept_while_a_client_is_subscribed_and_begins_its_time_anew(store: MemoryStore) -> None:
    world = StreamWorld([options()], store)
    kept = reader(world, GROUP, clean_start=False, expiry=10 * int(GROUP_EXPIRY_S))
    kept.lose()
    world.advance(2 * GROUP_EXPIRY_S)
    assert len(world.streams.groups("s")) == 1, "its session is kept"
    world = world.restart()
    world.advance(GROUP_EXPIRY_S)
    assert len(world.streams.groups("s")) == 1
    reader(world, GROUP).disconnect()
    world.advance(GROUP_EXPIRY_S - 10)
    world.streams.seek("s", "g", parse_position("earliest"))
    world.advance(GROUP_EXPIRY_S - 10)
    assert len(world.streams.groups("s")) == 1, "a seek is a use"
    second = reader(world, GROUP, "second")
    world.advance(20)
    assert len(world.streams.groups("s")) == 1
    second.disconnect()
    world.streams.delete_group("s", "g")
    world.advance(2 * GROUP_EXPIRY_S)
    world.end()
