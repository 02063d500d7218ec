"""Shared groups: each message of a stream is leased to one member, whatever its partition, as by a queue."""

from typing import Final

import pytest

from mqttlite.core.log_changes import SaveRecord
from mqttlite.core.message import Message
from mqttlite.core.question import LoadEntries, LoadPage
from mqttlite.extensions.streams import dead_places
from mqttlite.extensions.streams.errors import NoSuchStream, WrongMode
from mqttlite.extensions.streams.limits import MAX_UNDER_WAY
from mqttlite.extensions.streams.options import StreamOptions
from mqttlite.extensions.streams.position import EARLIEST, parse_position
from mqttlite.extensions.streams.records import PART
from mqttlite.extensions.streams.shared_options import SharedGroupOptions, SharedGroupSettings
from mqttlite.extensions.streams.shared_record import decode_share
from mqttlite.extensions.streams.states import GroupState
from mqttlite.filters import Filters
from mqttlite.log.deliveries import ARRIVAL_S
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import PUBACK, V5, V311
from mqttlite.wire.packets import Ack, Publish, Unsubscribe
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, publishes
from tests.support.rules import OpenRules
from tests.support.streams import StreamWorld, ack, got, options, places, reader

GROUP: Final = "$share/g/$stream/s@earliest"
KEPT: Final = {"clean_start": False, "expiry": 1_000}
BUSY: Final = SharedGroupOptions(name="g", ack_deadline_s=10, max_attempts=3, min_delay_s=4, max_delay_s=8)


def shared(partitions: int = 1, **fields: object) -> StreamOptions:
    return options(partitions=partitions, groups=(BUSY,), **fields)


def member(world: StreamWorld, name: str, **fields: object) -> Client:
    return reader(world, GROUP, name, **{"receive_maximum": 1_000, **fields})  # type: ignore[arg-type]


def state(world: StreamWorld) -> GroupState:
    (found,) = world.streams.groups("s")
    return found


def attempts(packets: list[Publish]) -> list[str]:
    return [dict(each.properties.user_properties)["delivery-attempt"] for each in packets]


def refuse(client: Client, *packets: Publish) -> None:
    for each in packets:
        client.send(Ack(PUBACK, each.packet_id, 0x80))


@pytest.fixture(params=[False, True], ids=["memory", "pages"])
def store(request: pytest.FixtureRequest) -> MemoryStore:
    return MemoryStore(pages=request.param)


def test_each_message_goes_to_one_member_in_turn_also_of_one_partition(store: MemoryStore) -> None:
    world = StreamWorld([shared()], store)
    first, second = member(world, "1"), member(world, "2", version=V311)
    world.append(*map(str, range(10)))
    of_first, of_second = publishes(first.received()), publishes(second.received())
    assert [int(each.payload) for each in of_first] == [0, 2, 4, 6, 8]
    assert [int(each.payload) for each in of_second] == [1, 3, 5, 7, 9]
    assert attempts(of_first) == ["1"] * 5
    assert places(of_first)[0] == (0, 0)
    assert (state(world).under_way, state(world).lag, state(world).mode) == (10, 10, "shared")
    ack(first, *of_first)
    assert (state(world).under_way, list(state(world).positions)) == (5, [1])
    ack(second, *of_second)
    assert (state(world).under_way, state(world).lag, list(state(world).positions)) == (0, 0, [10])
    assert world.streams.state("s").messages == 10, "the stream keeps them for other readers"
    world.end()


def test_more_members_than_partitions_all_work_and_a_window_paces_each() -> None:
    world = StreamWorld([shared()])
    members = [member(world, str(each), receive_maximum=2) for each in range(4)]
    world.append(*map(str, range(20)))
    held = [publishes(each.received()) for each in members]
    assert [len(each) for each in held] == [2, 2, 2, 2]
    ack(members[1], held[1][0])
    assert got(members[1]) == ["8"]
    world.end()


def test_a_message_that_is_not_acknowledged_in_time_goes_to_another_member_after_a_delay(store: MemoryStore) -> None:
    world = StreamWorld([shared()], store)
    first = member(world, "1", receive_maximum=1)
    world.append("a")
    (lost,) = publishes(first.received())
    second = member(world, "2")
    world.advance(10 + ARRIVAL_S - 0.01)
    assert (state(world).under_way, state(world).scheduled) == (1, 0)
    world.advance(0.02)
    assert (state(world).under_way, state(world).scheduled) == (0, 1)
    world.advance(3.9)
    assert got(second) == []
    world.advance(0.6)  # 4 seconds, and up to a tenth at random
    (again,) = publishes(second.received())
    assert (again.payload, attempts([again])) == (b"a", ["2"])
    assert state(world).redeliveries == 1
    ack(first, lost)  # it was late, but it is done
    assert (state(world).under_way, state(world).lag) == (0, 0)
    ack(second, again)
    assert state(world).positions == [1]
    world.end()


def test_a_member_that_goes_gives_its_messages_back_at_once() -> None:
    world = StreamWorld([shared()])
    first, second = member(world, "1", receive_maximum=3), member(world, "2", receive_maximum=10)
    world.append(*"abcdef")
    assert got(first) == ["a", "c", "e"]
    assert got(second) == ["b", "d", "f"]
    first.lose()
    again = publishes(second.received())
    assert ([each.payload for each in again], attempts(again)) == ([b"a", b"c", b"e"], ["2"] * 3)
    assert state(world).members == ["2"]
    world.end()


def test_members_that_come_and_go_while_the_disk_stands_still_take_no_more_memory(store: MemoryStore) -> None:
    world = StreamWorld([shared()], store)
    member(world, "1").lose()
    world.append(*"abcdefghij")
    world.stall()
    told, changes = [], []
    for _ in range(4):
        first = member(world, "1")
        assert state(world).under_way == 10
        first.lose()
        waiting = world.waiting_for_disk()
        changes.append(waiting[0])
        told.append(waiting[1])
    assert told == [10] * 4
    assert changes[3] - changes[2] == changes[2] - changes[1] < 10, "those of a session, none for a message"
    world.go_on()
    world.end()


def test_a_message_that_waited_for_the_disk_when_its_member_went_was_not_attempted(store: MemoryStore) -> None:
    world = StreamWorld([shared()], store)
    first = member(world, "1")
    first.lose()
    world.append("a")
    world.stall()
    for _ in range(4):
        first = member(world, "1")
        world.advance(30)  # three deadlines
        assert (got(first), state(world).under_way) == ([], 1)
        first.lose()
        assert (state(world).under_way, state(world).scheduled) == (0, 0)
    world.go_on()
    world = world.restart()
    (found,) = publishes(member(world, "2").received())
    assert (found.payload, attempts([found]), state(world).redeliveries) == (b"a", ["1"], 0)
    world.end()


def test_a_message_becomes_a_dead_letter_after_the_last_attempt_and_the_others_pass(store: MemoryStore) -> None:
    world = StreamWorld([shared()], store)
    client = member(world, "1")
    world.append("poison", "b")
    for _ in range(3):
        found = publishes(client.received())
        refuse(client, *[each for each in found if each.payload == b"poison"])
        ack(client, *[each for each in found if each.payload != b"poison"])
        world.advance(9)
    assert got(client) == []
    found = state(world)
    assert (found.dead_letters, found.lag, found.under_way, found.scheduled) == (1, 0, 0, 0)
    (letter,) = world.streams.shared_group("s", "g").dead.all()
    assert (letter.partition, letter.offset, letter.cause, letter.attempts) == (0, 0, "nacked", 3)
    assert letter.detail == "reason code 0x80"
    world = world.restart()
    assert state(world).dead_letters == 1
    assert world.streams.shared_group("s", "g").dead.all() == [letter]
    world.end()


def dead(world: StreamWorld, client: Client, payload: str) -> Publish:
    """Make a message a dead letter. Return its first delivery."""
    world.append(payload)
    (first,) = publishes(client.received())
    refuse(client, first)
    for _ in range(2):
        world.advance(9)
        refuse(client, *publishes(client.received()))
    return first


def parts(world: StreamWorld) -> list[str]:
    """The names of the records of shared groups in the store."""
    found = [change for batch in world.store.load() for change in batch if isinstance(change, SaveRecord)]
    return [each.key for each in found if each.key.startswith(PART)]


def replay(world: StreamWorld, offset: int, payload: str = "a") -> bool:
    """Replay the message of the partition 0."""
    return world.streams.shared_group("s", "g").replay(0, offset, Message(b"a", payload.encode(), 1))


def test_a_dead_letter_is_replayed_until_it_is_acknowledged() -> None:
    world = StreamWorld([shared()], MemoryStore(pages=True))
    client = member(world, "1")
    dead(world, client, "a")
    assert not replay(world, 1), "it is no dead letter"
    assert replay(world, 0)
    assert not replay(world, 0), "it is under way"
    world.settle()
    (again,) = publishes(client.received())
    assert attempts([again]) == ["1"]
    assert state(world).dead_letters == 1
    refuse(client, again)
    for _ in range(2):
        world.advance(9)
        refuse(client, *publishes(client.received()))
    assert (state(world).dead_letters, state(world).under_way) == (1, 0)
    assert replay(world, 0)
    world.settle()
    ack(client, *publishes(client.received()))
    assert (state(world).dead_letters, list(state(world).positions)) == (0, [1])
    world = world.restart()
    assert state(world).dead_letters == 0
    world.end()


def test_a_dead_letter_is_dropped_and_the_oldest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_places, "MAX_DEAD_PLACES", 2)
    world = StreamWorld([shared()])
    client = member(world, "1")
    for each in "abc":
        dead(world, client, each)
    group = world.streams.shared_group("s", "g")
    assert [each.offset for each in group.dead.all()] == [1, 2]
    assert (group.dead.dropped, group.dead.total) == (1, 3)
    assert group.drop(0, 1)
    assert not group.drop(0, 0)
    world.settle()
    assert state(world.restart()).dead_letters == 1
    world.end()


@pytest.mark.parametrize("acknowledged", [[], [0], [1, 3], [0, 1, 2, 4]])
def test_after_a_kill_what_is_acknowledged_does_not_come_again(store: MemoryStore, acknowledged: list[int]) -> None:
    world = StreamWorld([shared()], store)
    client = member(world, "1")
    world.append(*"abcde")
    found = publishes(client.received())
    ack(client, *[found[each] for each in acknowledged])
    world.settle()
    world = world.restart()
    world.append("f")
    again = publishes(member(world, "1").received())
    left = [each for at, each in enumerate("abcde") if at not in acknowledged]
    assert [each.payload.decode() for each in again] == [*left, "f"]
    assert attempts(again) == ["2"] * len(left) + ["1"]
    world.end()


def test_attempts_and_delays_survive_a_kill(store: MemoryStore) -> None:
    world = StreamWorld([shared()], store)
    client = member(world, "1")
    world.append("a", "b")
    first = publishes(client.received())
    refuse(client, *first)
    world.advance(4.5)
    (second,) = [each for each in publishes(client.received()) if each.payload == b"a"]
    refuse(client, second)  # "a" waits for its third attempt; "b" has its second
    world = world.restart()
    client = member(world, "1")
    again = publishes(client.received())
    assert [(each.payload, *attempts([each])) for each in again] == [(b"b", "3")]
    assert state(world).scheduled == 1
    world.advance(9)
    again = publishes(client.received())
    assert [(each.payload, *attempts([each])) for each in again] == [(b"a", "3")]
    world = world.restart()  # these were the last attempts
    client = member(world, "1")
    assert got(client) == []
    assert (state(world).dead_letters, state(world).lag) == (2, 0)
    world.end()


def test_an_ordered_group_and_the_shared_one_read_the_same_log() -> None:
    world = StreamWorld([shared(2)], MemoryStore(pages=True))
    worker, alone = member(world, "1"), reader(world, "$share/other/$stream/s@earliest", "2", receive_maximum=100)
    world.append("a", "b", topic="$stream/s")
    assert sorted(got(worker)) == sorted(got(alone)) == ["a", "b"]
    assert world.streams.state("s").messages == 2
    world.end()


def test_the_first_subscription_says_where_it_begins_and_a_seek_moves_it() -> None:
    world = StreamWorld([shared()])
    world.append("a", "b")
    assert (state(world).lag, state(world).members) == (2, [])
    client = member(world, "1")
    found = publishes(client.received())
    assert [each.payload for each in found] == [b"a", b"b"]
    ack(client, found[0])
    world.streams.seek("s", "g", EARLIEST)
    world.settle()
    again = publishes(client.received())
    assert [each.payload for each in again] == [b"a", b"b"]
    assert attempts(again) == ["1", "1"]
    ack(client, found[1])  # of before
    assert state(world).lag == 2
    ack(client, *again)
    assert state(world).lag == 0
    world.streams.seek("s", "g", parse_position("0:1"))
    world.settle()
    assert got(client) == ["b"]
    world = world.restart()
    assert list(state(world).positions) == [1]
    world.end()


def test_a_seek_before_the_first_subscription_holds() -> None:
    world = StreamWorld([shared()])
    world.append("a", "b", "c")
    world.streams.seek("s", "g", parse_position("0:2"))
    world.settle()
    assert got(member(world, "1")) == ["c"]
    world.end()


def test_a_group_is_made_changed_and_deleted_while_the_broker_runs() -> None:
    world = StreamWorld([options()])
    world.streams.set_group("s", "g", SharedGroupSettings(max_attempts=1, min_delay_s=0, max_delay_s=0))
    client = member(world, "1")
    world.append("a")
    refuse(client, *publishes(client.received()))
    assert state(world).dead_letters == 1
    world.streams.set_group("s", "g", SharedGroupSettings(max_attempts=2, min_delay_s=0, max_delay_s=0))
    world.append("b")
    refuse(client, *publishes(client.received()))
    assert got(client) == ["b"]
    world.settle()
    world = world.restart(options())
    assert world.streams.shared_group("s", "g").settings.max_attempts == 2
    world.streams.delete_group("s", "g")
    world.settle()
    assert not parts(world)
    world = world.restart(options())
    assert world.streams.groups("s") == []
    world.end()


def test_a_group_has_one_mode() -> None:
    world = StreamWorld([options()])
    client = member(world, "1")
    with pytest.raises(WrongMode, match="delete it first"):
        world.streams.set_group("s", "g", SharedGroupSettings())
    with pytest.raises(NoSuchStream, match="not shared"):
        world.streams.shared_group("s", "g")
    with pytest.raises(NoSuchStream):
        world.streams.shared_group("s", "h")
    client.lose()
    world = world.restart(shared())  # the configuration cannot change it, and says so in the log
    assert state(world).mode == "ordered"
    world.end()


def test_a_shared_group_stays_without_members() -> None:
    world = StreamWorld([shared()])
    client = member(world, "1")
    client.send(Unsubscribe(client.packet_id(), (GROUP.encode(),)))
    world.advance(30 * 86_400)
    assert state(world).members == []
    world.end()


def test_members_have_one_filter_and_what_it_refuses_is_passed() -> None:
    world = StreamWorld([shared()], filters=Filters())
    client = world.connect("1", V5, auto_ack=False, receive_maximum=100)
    topic = "$share/g/$stream/s@earliest/a/b"
    assert client.subscribe(topic, qos=1, where="payload.n > 1") == b"\x01"
    assert world.connect("2", V5).subscribe(topic, qos=1)[0] >= 0x80
    for each in ("a/b", "a/c"):
        world.append('{"n": 1}', '{"n": 2}', topic=each)
    found = publishes(client.received())
    assert [(each.topic, each.payload) for each in found] == [(b"a/b", b'{"n": 2}')]
    ack(client, *found)
    assert state(world).lag == 0
    world = StreamWorld([shared()], world.store, world.now, filters=Filters())
    world.append('{"n": 1}', '{"n": 3}', topic="a/b")
    client = world.connect("1", V5, auto_ack=False, receive_maximum=100)
    assert client.subscribe(topic, qos=1, where="payload.n > 1") == b"\x01"
    assert got(client) == ['{"n": 3}']
    world.end()


def test_a_qos_0_member_acknowledges_by_being_sent(store: MemoryStore) -> None:
    world = StreamWorld([shared()], store)
    client = member(world, "1", qos=0)
    world.append("a", "b")
    assert got(client) == ["a", "b"]
    assert (state(world).lag, state(world).under_way) == (0, 0)
    world = world.restart()
    assert got(member(world, "1", qos=0)) == []
    world.end()


def test_a_message_that_is_too_large_for_the_members_becomes_a_dead_letter() -> None:
    world = StreamWorld([shared()])
    client = member(world, "1", maximum_packet_size=200)
    world.append("x" * 300, "b")
    (small,) = publishes(client.received())
    assert small.payload == b"b"
    ack(client, small)
    for _ in range(3):
        world.advance(9)
    (letter,) = world.streams.shared_group("s", "g").dead.all()
    assert (letter.cause, letter.attempts) == ("too_large", 3)
    world.end()


def test_a_message_that_expires_between_attempts_ends() -> None:
    world = StreamWorld([shared()])
    client = member(world, "1")
    assert world.publish("a", "x", 1, message_expiry_interval=2) == 0
    refuse(client, *publishes(client.received()))
    assert state(world).scheduled == 1
    world.advance(2.1)
    assert (got(client), state(world).scheduled, state(world).lag) == ([], 0, 0)
    world.end()


@pytest.mark.long
def test_the_messages_under_way_have_a_limit() -> None:
    world = StreamWorld([shared()])
    members = [member(world, str(each)) for each in range(MAX_UNDER_WAY // 1_000 + 1)]  # each has a window of 1,000
    world.append(*map(str, range(MAX_UNDER_WAY + 2)))
    found = [(each, packet) for each in members for packet in publishes(each.received())]
    assert len(found) == MAX_UNDER_WAY
    assert world.streams.shared_group("s", "g").room == 0
    ack(*found[1])
    assert [payload for each in members for payload in got(each)] == [str(MAX_UNDER_WAY)]
    world.end()


class Allowed(OpenRules):
    """Only while `may` is true, clients may subscribe."""

    def __init__(self) -> None:
        self.may = True

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        return self.may

    def is_readable(self, topic: bytes) -> bool:
        return False


def test_a_member_that_may_no_longer_subscribe_gets_nothing() -> None:
    world = StreamWorld([shared()])
    rules = Allowed()
    world.broker.authorize(rules)
    client = member(world, "1")
    rules.may = False
    world.broker.authorize(rules)
    world.append("a")
    assert got(client) == []
    rules.may = True
    world.broker.authorize(rules)
    world.streams.on_new_rules()
    world.settle()
    assert got(client) == ["a"]
    world.end()


def test_acks_with_a_publish_are_refused_for_a_shared_group() -> None:
    world = StreamWorld([shared()])
    client = member(world, "1")
    world.append("a")
    found = publishes(client.received())
    properties = Properties(user_properties=[("acks", f"{GROUP} 0:0")])
    client.send(Publish(b"$stream/s", b"done", 1, packet_id=9, properties=properties))
    (puback,) = [each for each in client.received() if isinstance(each, Ack)]
    assert puback.reason_code == 0x83
    assert "is shared" in (puback.properties.reason_string or "")
    ack(client, *found)
    assert state(world).lag == 0
    world.end()


def test_removed_messages_are_told_and_not_waited_for() -> None:
    world = StreamWorld([shared(keep_bytes=12_000)], MemoryStore(pages=True))
    for each in range(100):
        world.append(f"{each}".ljust(300))
    client = member(world, "1")
    client.received()
    world.streams.seek("s", "g", parse_position("0:0"))
    world.settle()
    found = publishes(client.received())
    told = dict(found[0].properties.user_properties)
    assert int(told["stream-skipped"]) == places(found)[0][1] > 0
    ack(client, *found)
    assert state(world).lag == 0
    world.end()


def test_records_of_a_group_that_is_gone_are_removed() -> None:
    world = StreamWorld([shared()])
    client = member(world, "1")
    world.append("a")
    publishes(client.received())
    world.settle()
    assert parts(world) == [f"{PART}0/0"]
    world.streams.delete("s")
    world.settle()
    assert not parts(world)


def test_a_record_that_cannot_be_read_delivers_again() -> None:
    world = StreamWorld([shared()])
    client = member(world, "1")
    world.append("a", "b")
    ack(client, *publishes(client.received()))
    world.settle()
    world.broker.effects.record(SaveRecord(f"{PART}0/0", b"{"))
    world.broker.effects.record(SaveRecord(f"{PART}0/dead", b"{"))
    world.broker.effects.record(SaveRecord(f"{PART}99/0", b"[0,0,[],[]]"))
    world.settle()
    world = world.restart()
    assert got(member(world, "1")) == ["a", "b"]
    world.end()


class CountingWorld(StreamWorld):
    """Counts what it reads from the store."""

    reads = 0

    def read(self, page: LoadPage | LoadEntries) -> object:
        self.reads += 1
        return super().read(page)


def test_a_group_that_is_behind_reads_each_page_once_while_a_member_is_connected() -> None:
    world = CountingWorld([shared()], MemoryStore(pages=True))
    world.append(*map(str, range(40)))
    first, second = member(world, "1", receive_maximum=2), member(world, "2", receive_maximum=2)
    found: list[Publish] = []
    for _ in range(12):
        for each in (first, second):
            packets = publishes(each.received())
            found += packets
            ack(each, *packets)
    assert [int(each.payload) for each in found] == list(range(40))
    assert world.reads == 1
    world.end()


def test_messages_read_ahead_are_forgotten_when_the_last_member_goes() -> None:
    world = CountingWorld([shared()], MemoryStore(pages=True))
    world.append(*["x" * 1_000] * 40)
    first, second = member(world, "1", receive_maximum=2), member(world, "2", receive_maximum=2)
    memory = world.broker.effects.memory
    first.lose()
    assert memory.used > 30_000, "the other member goes on"
    second.send(Unsubscribe(second.packet_id(), (GROUP.encode(),)))
    assert memory.used < 20_000
    assert world.reads == 1
    first = member(world, "1", receive_maximum=5)
    assert attempts(publishes(first.received())) == ["2"] * 2 + ["1"] * 3
    assert world.reads == 2
    world.end()


def test_a_member_that_was_idle_and_connects_again_gets_messages_from_the_store() -> None:
    world = StreamWorld([shared()], MemoryStore(pages=True))
    world.append("a", "b")
    client = member(world, "1", **KEPT)
    ack(client, *publishes(client.received()))
    client.lose()
    client = world.connect("1", auto_ack=False, **KEPT)
    world.streams.seek("s", "g", EARLIEST)
    world.settle()
    assert got(client) == ["a", "b"]
    world.end()


def test_a_dead_letter_that_is_acknowledged_after_a_seek_is_none() -> None:
    world = StreamWorld([shared()], MemoryStore(pages=True))
    client = member(world, "1")
    dead(world, client, "a")
    world.streams.seek("s", "g", EARLIEST)
    world.settle()
    assert state(world).dead_letters == 1
    ack(client, *publishes(client.received()))
    assert state(world).dead_letters == 0
    assert not replay(world, 0)
    world = world.restart()
    assert state(world).dead_letters == 0
    world.end()


def test_a_shorter_deadline_holds_behind_an_older_lease() -> None:
    world = StreamWorld([shared()])
    client = member(world, "1")
    world.streams.set_group("s", "g", SharedGroupSettings(ack_deadline_s=600, min_delay_s=0, max_delay_s=0))
    world.append("old")
    assert got(client) == ["old"]
    world.streams.set_group("s", "g", SharedGroupSettings(ack_deadline_s=1, min_delay_s=0, max_delay_s=0))
    world.append("new")
    assert got(client) == ["new"]
    world.advance(1 + 2 * ARRIVAL_S)
    assert got(client) == ["new"]
    world.end()


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("identifier", [0, 200_000_000])
def test_a_message_that_fits_only_without_what_is_added_is_given_without_it(qos: int, identifier: int) -> None:
    told: dict[tuple[str, int], int] = {}
    for size in range(50, 300, 5):
        world = StreamWorld([shared()])
        filters = {"member": GROUP, "reader": "$stream/s@earliest"}
        connected = {name: world.connect(name, auto_ack=False, maximum_packet_size=size) for name in filters}
        for name, client in connected.items():
            client.subscribe(filters[name], qos=qos, identifier=identifier)
        world.append("x" * 20)
        for name, client in connected.items():
            (packet,) = publishes(client.received())
            told[name, size] = len(packet.properties.user_properties)
    assert {told["member", 50], told["reader", 50]} == {0}
    assert (told["member", 295], told["reader", 295]) == (5, 4)


def saved(world: StreamWorld) -> list[int]:
    """The offsets of the partition 0 with attempts in the store."""
    world.settle()
    found = [change for batch in world.store.load() for change in batch if isinstance(change, SaveRecord)]
    share = decode_share([each.data for each in found if each.key == f"{PART}0/0"][-1])
    assert share is not None
    return sorted([offset for offset, *_ in share.retried])


def test_the_attempts_of_what_is_passed_or_dead_are_forgotten() -> None:
    world = StreamWorld([shared(keep_bytes=20_000)], MemoryStore(pages=True))
    client = member(world, "1", **KEPT)
    dead(world, client, "a")
    assert replay(world, 0)
    world.settle()
    for _ in range(2):
        refuse(client, *publishes(client.received()))
        world.advance(9)
    world.append(*map(str, range(20)))
    again = publishes(client.received())
    assert attempts(again)[0] == "3"
    refuse(client, *reversed(again[1:]))
    world = world.restart()
    assert saved(world) == list(range(1, 21)), "a replay begins anew after a restart"
    first = 0
    while first < 2:
        world.append("x" * 500)
        first = world.streams.state("s").partitions[0].first
    client = member(world, "1", **{**KEPT, "receive_maximum": 1})
    assert len(got(client)) == 1
    assert saved(world) == list(range(first, 21))
    assert first < 20, "some are left"
    world.end()


def test_attempts_in_a_record_of_what_is_done_are_not_kept() -> None:
    world = StreamWorld([shared()], MemoryStore(pages=True))
    client = member(world, "1", **KEPT)
    world.append(*"abcd")
    ack(client, *publishes(client.received())[:1])
    world.settle()
    world.broker.effects.record(SaveRecord(f"{PART}0/0", b"[1,4,[[3,4]],[[3,2,0],[2,2,0],[0,2,0]]]"))
    world.settle()
    world = world.restart()
    client = member(world, "1", receive_maximum=1, **KEPT)
    assert got(client) == ["b"]
    assert saved(world) == [1, 2]
    world.end()


def test_the_lag_is_without_what_is_acknowledged_ahead() -> None:
    world = StreamWorld([shared()])
    client = member(world, "1")
    world.append(*map(str, range(9)))
    ack(client, *publishes(client.received())[1:])
    assert (state(world).lag, state(world).under_way, state(world).positions) == (1, 1, [0])
    world.end()


@pytest.mark.parametrize("window", [1, 1_000])
def test_a_replay_that_a_seek_meets_is_the_delivery_of_its_message(window: int) -> None:
    world = StreamWorld([shared()], MemoryStore(pages=True))
    client = member(world, "1", **KEPT)
    dead(world, client, "a")
    dead(world, client, "b")
    client.lose()
    world.streams.seek("s", "g", EARLIEST)
    assert replay(world, 0, "a")
    assert replay(world, 1, "b")
    client = world.connect("1", auto_ack=False, receive_maximum=window, **KEPT)
    found: list[Publish] = []
    while packets := publishes(client.received()):
        found += packets
        refuse(client, *packets)
    assert [each.payload for each in found] == [b"a", b"b"]
    assert saved(world) == [0, 1]
    world.advance(9)
    found = []
    while packets := publishes(client.received()):
        found += packets
        ack(client, *packets)
    assert attempts(found) == ["2", "2"]
    assert (state(world).positions, state(world).under_way, state(world).dead_letters) == ([2], 0, 0)
    world.end()
