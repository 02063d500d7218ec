"""A stream keeps the messages of its topics, and each reader gets them from its own place on."""

from datetime import UTC, datetime
from typing import Any, Final

import pytest

from mqttlite.core.changes import LatestNumber, Stored
from mqttlite.core.limits import MAX_PAGES_AT_ONCE, Limits
from mqttlite.core.log_changes import Append, SaveRecord, StoredLog
from mqttlite.core.message import Message
from mqttlite.core.question import Entries, LoadEntries, LoadPage
from mqttlite.core.reasons import NOT_AUTHORIZED
from mqttlite.core.route.tally import NO_MATCHING_SUBSCRIBERS, POLICY_REFUSES, Tally
from mqttlite.core.source import THE_PROGRAM
from mqttlite.extensions.streams import limits, readers, service
from mqttlite.extensions.streams.errors import NoSuchStream, StreamExists, TooManyStreams
from mqttlite.extensions.streams.keys import partition_of
from mqttlite.extensions.streams.position import parse_position
from mqttlite.extensions.streams.shared_options import SharedGroupOptions
from mqttlite.filters import Filters
from mqttlite.log.segments import Segments
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import PUBACK, V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Publish, Unsubscribe
from tests.support.core_driver import publishes
from tests.support.rules import OpenRules
from tests.support.streams import StreamWorld, ack, got, options, places, reader, subscribe_at

KEPT: Final = {"clean_start": False, "expiry": 1_000}


@pytest.fixture(params=[False, True], ids=["memory", "pages"])
def store(request: pytest.FixtureRequest) -> MemoryStore:
    return MemoryStore(pages=request.param)


def test_a_reader_gets_less_at_a_time_while_others_wait_for_the_store() -> None:
    """Commits of new messages wait until a page is read."""
    world = StreamWorld([options()], MemoryStore(pages=True))
    world.append("0", "1", "2", topic="a/b")
    world.late_pages = []
    clients = [reader(world, name=f"r{at}") for at in range(MAX_PAGES_AT_ONCE + 2)]
    asked = world.late_pages
    assert [each.count for each in asked] == [limits.READ_AHEAD] * MAX_PAGES_AT_ONCE
    for _ in range(2):
        question = asked.pop(0)
        assert isinstance(question, LoadEntries)
        world.broker.page_reads.on_answer(
            question, world.store.read_entries(question.key, question.first, question.end, question.count)
        )
        world.settle()
    last_two = asked[-2:]
    assert [each.count for each in last_two] == [limits.SHORT_READ_AHEAD, limits.READ_AHEAD]
    world.read_late_pages()
    assert got(clients[-1]) == got(clients[-2]) == ["0", "1", "2"]


def test_any_number_of_readers_get_all_messages_each_once(store: MemoryStore) -> None:
    world = StreamWorld([options()], store)
    world.append("0", "1", "2", topic="a/b")
    first, second = reader(world, qos=0), reader(world, name="r2", version=V311)
    assert got(first) == ["0", "1", "2"]
    packets = publishes(second.received())
    assert [(each.topic, each.payload, each.qos) for each in packets] == [(b"a/b", b"%d" % at, 1) for at in range(3)]
    world.append("3")
    assert (got(first), got(second)) == (["3"], ["3"])
    assert len([each for each in world.changes if isinstance(each, Append)]) == 4, "each message is stored once"
    world.end()


def test_a_message_says_where_it_is_behind_what_its_publisher_said() -> None:
    world = StreamWorld([options()])
    client = reader(world)
    world.publish("a", "x", 1, user_properties=[("k", "v")], content_type="text/plain")
    (packet,) = publishes(client.received())
    told = dict(packet.properties.user_properties)
    assert list(told) == ["k", "stream-partition", "stream-offset", "message-id", "publish-time"]
    assert (told["stream-partition"], told["stream-offset"]) == ("0", "0")
    assert told["publish-time"].startswith("1970-01-12T13:46:40.")
    assert packet.properties.content_type == "text/plain"
    world.end()


def test_a_publisher_is_told_that_the_message_is_kept_and_what_is_too_large_is_refused() -> None:
    world = StreamWorld([options(keep_bytes=1_000)])
    assert world.publish("a", "x", 1) == 0
    assert world.publish("a", "x" * 1_000, 1) == POLICY_REFUSES
    state = world.streams.state("s")
    assert (state.messages, state.appended, state.refused) == (1, 1, 1)
    world.end()


def test_without_a_position_a_reader_begins_with_new_messages(store: MemoryStore) -> None:
    world = StreamWorld([options()], store)
    world.append("old")
    client = reader(world, "$stream/s")
    world.append("new")
    assert got(client) == ["new"]
    world.end()


@pytest.mark.parametrize("by_property", [False, True])
@pytest.mark.parametrize(
    ("position", "expected"), [("earliest", "01234"), ("latest", ""), ("0:3", "34"), ("0:99", ""), ("time", "234")]
)
def test_a_reader_begins_where_it_says(position: str, expected: str, by_property: bool, store: MemoryStore) -> None:
    world = StreamWorld([options()], store)
    world.append("0", "1")
    world.advance(10)
    if position == "time":
        position = datetime.fromtimestamp(world.now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    world.append("2", "3", "4")
    if by_property:
        client = world.connect("r", auto_ack=False)
        assert subscribe_at(client, position).reason_codes == b"\x01"
    else:
        client = reader(world, f"$stream/s@{position}")
    assert got(client) == list(expected)
    world.append("new")
    assert got(client) == ["new"], "then it goes on without a gap"
    world.end()


def test_a_wrong_position_is_refused_with_a_sentence() -> None:
    world = StreamWorld([options()])
    client = world.connect("r")
    for topic_filter, refusal in (
        ("$stream/s@noon", "'noon' is no position"),
        ("$stream/s@1:0", "s has the partitions 0 to 0"),
        ("$stream/other", "there is no stream 'other'"),
        ("$stream/+", "the name of one stream follows"),
        ("$share/g/$stream/other", "there is no stream 'other'"),
        ("$share/g/$stream/s@1:0", "s has the partitions 0 to 0"),
    ):
        suback = client.suback(topic_filter)
        assert suback.reason_codes == b"\x8f", topic_filter
        assert refusal in (suback.properties.reason_string or "")
    suback = subscribe_at(client, "noon")
    assert "stream-offset: 'noon' is no position" in (suback.properties.reason_string or "")
    world.end()


def test_a_reader_gets_the_topics_and_messages_that_it_asks_for() -> None:
    world = StreamWorld([options("s", "#")], filters=Filters())
    by_topic = reader(world, "$stream/s@earliest/a/+")
    by_filter = world.connect("f", auto_ack=False)
    by_filter.suback("$stream/s@earliest", qos=1, where="payload.t > 2")
    for topic, payload in (("a/1", '{"t": 1}'), ("b/1", '{"t": 2}'), ("a/2", '{"t": 3}'), ("a/b/c", "4")):
        world.append(payload, topic=topic)
    packets = publishes(by_topic.received())
    assert [each.topic for each in packets] == [b"a/1", b"a/2"]
    assert got(by_filter) == ['{"t": 3}']
    ack(by_topic, *packets)
    (first, second) = world.streams.readers("s")
    assert (first.positions, second.positions) == ([4], [2])
    world.end()


def test_messages_with_one_key_are_in_one_partition_in_order(store: MemoryStore) -> None:
    world = StreamWorld([options(partitions=8)], store)
    client = reader(world, receive_maximum=1_000)
    for at in range(60):
        world.append(f"{at % 6}:{at}", topic=f"a/{at}", key=f"key {at % 6}")
    packets = publishes(client.received())
    by_key: dict[str, list[int]] = {}
    partitions: dict[str, set[int]] = {}
    for packet, (partition, _) in zip(packets, places(packets), strict=True):
        key, _, number = packet.payload.decode().partition(":")
        by_key.setdefault(key, []).append(int(number))
        partitions.setdefault(key, set()).add(partition)
    assert by_key == {str(key): list(range(key, 60, 6)) for key in range(6)}
    assert all(len(each) == 1 for each in partitions.values())
    assert len(set.union(*partitions.values())) > 1
    world.end()


def test_without_a_key_the_topic_is_the_key_and_the_streams_own_topic_goes_round() -> None:
    world = StreamWorld([options(partitions=4)])
    client = reader(world, receive_maximum=1_000)
    world.append(*"abcdefgh", topic="a/same")
    assert len({partition for partition, _ in places(publishes(client.received()))}) == 1
    world.append(*"abcdefgh", topic="$stream/s")
    packets = publishes(client.received())
    assert sorted(partition for partition, _ in places(packets)) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert {each.topic for each in packets} == {b"$stream/s"}
    world.end()


def test_the_window_of_the_session_paces_a_reader(store: MemoryStore) -> None:
    world = StreamWorld([options()], store)
    world.append(*map(str, range(10)))
    client = reader(world, receive_maximum=3)
    seen: list[str] = []
    while packets := publishes(client.received()):
        assert len(packets) <= 3
        seen += [each.payload.decode() for each in packets]
        ack(client, *packets)
    assert seen == list(map(str, range(10)))
    session = world.broker.sessions.get("r")
    assert session is not None
    assert len(session.queue) == 0, "nothing is copied to its queue"
    world.end()


def test_the_driver_is_told_that_a_reader_goes_on_after_an_acknowledgement() -> None:
    world = StreamWorld([options()])
    world.append("0", "1")
    client = reader(world, receive_maximum=1)
    (packet,) = publishes(client.received())
    assert world.broker.effects.is_empty
    world.broker.feed(client.connection, encode(Ack(PUBACK, packet.packet_id), V5), world.now)
    assert not world.broker.effects.is_empty
    world.settle()
    assert world.broker.effects.is_empty
    assert got(client) == ["1"]
    world.end()


def test_a_kept_session_goes_on_where_it_was(store: MemoryStore) -> None:
    world = StreamWorld([options()], store)
    world.append("0", "1", "2", "3")
    client = reader(world, **KEPT)
    packets = publishes(client.received())
    ack(client, packets[0], packets[2])
    client.lose()
    world.append("4")
    client = reader(world, **KEPT)  # it subscribes again, as most clients do
    packets = publishes(client.received())
    assert [each.payload for each in packets] == [b"1", b"3", b"4"], "2 was acknowledged"
    ack(client, *packets)
    world = world.restart()
    client = world.connect("r", auto_ack=False, **KEPT)
    assert got(client) == []
    world.append("5")
    assert got(client) == ["5"]
    world.end()


def test_after_a_restart_what_was_not_acknowledged_comes_again(store: MemoryStore) -> None:
    world = StreamWorld([options(partitions=2)], store)
    world.append(*map(str, range(6)), topic="$stream/s")
    client = reader(world, "$stream/s@earliest", **KEPT)
    packets = publishes(client.received())
    assert len(packets) == 6
    ack(client, packets[0], packets[3])
    world = world.restart()
    client = world.connect("r", auto_ack=False, **KEPT)
    again = publishes(client.received())
    before = dict(zip(places(packets), packets, strict=True))
    assert len(again) == 4
    assert all(before[place].payload == each.payload for place, each in zip(places(again), again, strict=True))
    world.end()


def test_a_new_session_begins_anew_and_an_unsubscribed_one_gets_nothing() -> None:
    world = StreamWorld([options()])
    client = reader(world, **KEPT)
    world.append("0")
    ack(client, *publishes(client.received()))
    client = reader(world, clean_start=True, expiry=1_000)
    assert got(client) == ["0"]
    client.send(Unsubscribe(9, (b"$stream/s@earliest",)))
    client.received()
    world.append("1")
    assert got(client) == []
    assert world.streams.readers("s") == []
    world.end()


def test_a_cursor_leaves_the_store_with_its_subscription_or_session() -> None:
    world = StreamWorld([options()])
    client = reader(world, **KEPT)
    assert cursors(world) == 1
    client.send(Unsubscribe(9, (b"$stream/s@earliest",)))
    assert cursors(world) == 0
    client.subscribe("$stream/s", qos=1)
    assert cursors(world) == 1
    client.lose()
    world.advance(2_000)
    assert (cursors(world), world.streams.readers("s")) == (0, [])
    reader(world, name="not kept")
    assert cursors(world) == 0
    world.end()


def cursors(world: StreamWorld) -> int:
    saved = [each for batch in world.store.load() for each in batch if isinstance(each, SaveRecord)]
    return len([each for each in saved if "$stream-cursor/" in each.key])


def test_a_subscriber_may_have_several_subscriptions_to_one_stream() -> None:
    world = StreamWorld([options()])
    world.append("0")
    client = reader(world, "$stream/s@earliest", receive_maximum=9)
    client.subscribe("$stream/s", qos=0)
    world.append("1")
    assert sorted(got(client)) == ["0", "1", "1"]
    world.end()


def test_subscription_identifiers_are_told() -> None:
    world = StreamWorld([options()])
    client = world.connect("r")
    client.subscribe("$stream/s", qos=0, identifier=7)
    world.append("0")
    (packet,) = publishes(client.received())
    assert packet.properties.subscription_identifiers == [7]
    world.end()


# ---------------------------------------------------------------------- retention


def size_of(world: StreamWorld) -> int:
    return world.streams.state("s").size_bytes


def test_the_oldest_messages_make_room_and_a_reader_is_told_of_it(store: MemoryStore) -> None:
    world = StreamWorld([options(keep_bytes=10_000)], store)
    client = reader(world, "$stream/s@earliest", **KEPT)
    client.lose()
    for at in range(100):
        world.append(str(at))
        assert size_of(world) <= 10_000
    state = world.streams.state("s")
    assert state.messages + state.removed == 100
    assert state.size_bytes >= 9_000
    client = world.connect("r", auto_ack=False, receive_maximum=1_000, **KEPT)
    packets = publishes(client.received())
    assert [each.payload.decode() for each in packets] == [str(at) for at in range(state.removed, 100)]
    assert dict(packets[0].properties.user_properties)["stream-skipped"] == str(state.removed)
    assert "stream-skipped" not in dict(packets[1].properties.user_properties)
    assert world.streams.readers("s")[0].skipped == state.removed
    world.end()


def test_messages_go_when_they_are_old_also_those_of_a_quiet_stream(store: MemoryStore) -> None:
    world = StreamWorld([options(keep_s=256)], store)
    world.append("0")
    world.advance(100)
    world.append("1")
    world.advance(154)
    assert world.streams.state("s").messages == 2
    world.advance(4)
    assert world.streams.state("s").messages == 1
    world = world.restart()
    world.advance(100)
    assert world.streams.state("s").messages == 0
    assert size_of(world) == 0
    world.append("2")
    assert got(reader(world)) == ["2"]
    assert world.streams.state("s").partitions[0].end == 3, "offsets go on"
    world.end()


@pytest.mark.long
def test_the_tail_in_memory_is_bounded_and_needs_readers() -> None:
    world = StreamWorld([options(partitions=2)], MemoryStore(pages=True))
    world.append(*map(str, range(50)), topic="$stream/s")
    assert len(world.streams.partition("s", 0).tail) == 0
    client = reader(world, "$stream/s", qos=0)
    for _ in range(2 * limits.TAIL_MESSAGES):
        world.broker.publish(b"$stream/s", b"x", 1, False, world.now)
    world.settle()
    held = sum(len(world.streams.partition("s", at).tail) for at in range(2))
    assert limits.TAIL_MESSAGES // 2 <= held <= limits.TAIL_MESSAGES + 2
    assert len(got(client)) == 2 * limits.TAIL_MESSAGES
    client.lose()
    world.append("x", "x", topic="$stream/s")
    assert [len(world.streams.partition("s", at).tail) for at in range(2)] == [0, 0]
    world.end()


def test_without_a_disk_the_memory_of_the_broker_bounds_a_stream() -> None:
    world = StreamWorld([options()], limits=Limits(max_memory_bytes=100_000))
    for at in range(1_000):
        world.append(str(at))
    state = world.streams.state("s")
    assert 0 < state.messages < 1_000
    assert state.messages + state.removed == 1_000
    world.end()


# ---------------------------------------------------------------------- who may


class StreamsOnly(OpenRules):
    """Clients may subscribe to `$stream/s` alone."""

    def __init__(self) -> None:
        self.may_read = True

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        return self.may_read and topic_filter == b"$stream/s"

    def may_receive(self, role: int, topic: bytes) -> bool:
        return False

    def is_readable(self, topic: bytes) -> bool:
        return False


def test_the_right_to_read_a_stream_is_about_its_name_and_can_be_taken_away() -> None:
    world = StreamWorld([options(), options("t")])
    rules = StreamsOnly()
    world.broker.authorize(rules)
    client = reader(world, "$stream/s@earliest")
    assert client.subscribe("$stream/t@earliest") == b"\x87"
    world.append("0")
    assert got(client) == ["0"]
    rules.may_read = False
    world.broker.authorize(rules)
    world.streams.on_new_rules()
    world.append("1")
    assert got(client) == []
    rules.may_read = True
    world.broker.authorize(rules)
    world.streams.on_new_rules()
    world.settle()
    assert got(client) == ["1"]
    world.end()


def test_a_client_below_a_mount_point_reads_only_streams_of_its_topics() -> None:
    world = StreamWorld([options("s", "t/#"), options("all", "#")])
    client = world.open(mount_point=b"t/")
    client.connect("r")
    assert client.subscribe("$stream/all") == b"\x8f"
    assert client.subscribe("$stream/s/a", qos=0) == b"\x00"
    world.append("0", topic="t/a")
    world.append("1", topic="t/b")
    (packet,) = publishes(client.received())
    assert (packet.topic, packet.payload) == (b"a", b"0")
    world.end()


def test_an_ephemeral_topic_is_not_kept() -> None:
    world = StreamWorld([options()])
    (replaced,) = world.streams.refuse_ephemeral([world.streams._kept["s"].stream], "a")
    message, tally = Message(b"a", b"x"), Tally()
    replaced.accept(message, THE_PROGRAM, tally)
    (planned,) = replaced.outlook(message, THE_PROGRAM, True)
    assert (tally.code, tally.dropped, planned.reason) == (POLICY_REFUSES, {NOT_AUTHORIZED: 1}, NOT_AUTHORIZED)
    assert "the topic policy of a is ephemeral" in tally.refusal
    assert world.streams.state("s").refused == 1
    world.end()


# ---------------------------------------------------------------------- made, changed, deleted


def test_a_stream_is_made_and_deleted_while_the_broker_runs(store: MemoryStore) -> None:
    world = StreamWorld([], store)
    world.streams.create(options())
    world.settle()
    world.append("0")
    world = world.restart()
    assert world.streams.names == ["s"]
    client = reader(world, **KEPT)
    assert got(client) == ["0"]
    world.streams.delete("s")
    world.settle()
    assert world.publish("a", "1", 1) == NO_MATCHING_SUBSCRIBERS
    assert (got(client), cursors(world)) == ([], 0)
    with pytest.raises(NoSuchStream, match="there is no stream 's'"):
        world.streams.state("s")
    world = world.restart()
    assert world.streams.names == []
    world.end()


@pytest.mark.long
def test_there_is_one_stream_of_a_name_and_a_limit_on_all() -> None:
    world = StreamWorld([options()])
    with pytest.raises(StreamExists, match="there is a stream s already"):
        world.streams.create(options())
    for at in range(9):
        world.streams.create(options(f"s{at}", partitions=1_000))
    with pytest.raises(TooManyStreams, match="all streams together have 9001 of 10000 partitions"):
        world.streams.create(options("t", partitions=1_000))
    with pytest.raises(NoSuchStream, match="has the partitions 0 to 0, not 1"):
        world.streams.partition("s", 1)
    world.end()


def test_the_number_of_streams_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_STREAMS", 1)
    world = StreamWorld([options()])
    with pytest.raises(TooManyStreams, match="there are 1 streams, which is the limit"):
        world.streams.create(options("t"))
    world.end()


def test_the_number_of_readers_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MAX_READERS", 1)
    world = StreamWorld([options()])
    reader(world)
    suback = world.connect("other").suback("$stream/s")
    assert "s has 1 readers, which is the limit" in (suback.properties.reason_string or "")
    world.end()


def test_the_readers_of_one_client_are_limited() -> None:
    world = StreamWorld([options()], limits=Limits(max_subscriptions=1_000))
    client = world.connect("r")
    for at in range(limits.MAX_READERS_OF_CLIENT):
        assert client.subscribe(f"$stream/s@0:{at}") == b"\x00"
    suback = client.suback("$stream/s")
    assert "the client reads s 100 times, which is the limit" in (suback.properties.reason_string or "")
    client.send(Unsubscribe(999, (b"$stream/s@0:0",)))
    assert client.subscribe("$stream/s") == b"\x00"
    assert reader(world, name="other")
    client.lose()
    assert world.streams._kept["s"].per_client == {"other": 1}
    world.end()


def test_the_configuration_changes_a_stream_but_not_its_partitions() -> None:
    world = StreamWorld([options(partitions=2)])
    world.append("0")
    world = world.restart(options("s", "b/#", partitions=5, keep_s=9))
    state = world.streams.state("s")
    assert (state.filters, state.keep_s, state.messages, len(state.partitions)) == (("b/#",), 9, 1, 2)
    world.end()


# ---------------------------------------------------------------------- how it is read


def test_a_message_is_sent_only_when_it_is_stored() -> None:
    world = StreamWorld([options()])
    client = reader(world, qos=0)
    world.broker.publish(b"a", b"0", 1, False, world.now)
    world.broker.tick(world.now)
    assert client.connection.outbox.awaits_commit
    world.settle()
    assert got(client) == ["0"]
    world.end()


def test_a_page_that_comes_late_is_put_where_it_belongs() -> None:
    world = StreamWorld([options()], MemoryStore(pages=True))
    world.append(*map(str, range(5)))
    world.late_pages = []
    client = reader(world, **KEPT)
    assert (got(client), len(world.late_pages)) == ([], 1)
    client.lose()
    late, world.late_pages = world.late_pages, None
    answer(world, late)
    client = world.connect("r", auto_ack=False, **KEPT)
    assert got(client) == list("01234")
    world.end()


@pytest.mark.parametrize(
    ("mode", "step_back"),
    [
        *[("reader", "loses"), ("reader", "is taken over")],
        *[("ordered", "loses"), ("ordered", "is taken over"), ("ordered", "seeks")],
        ("shared", "seeks"),
    ],
)
def test_a_page_that_comes_late_does_not_undo_a_step_back(mode: str, step_back: str) -> None:
    groups = (SharedGroupOptions(name="g"),) if mode == "shared" else ()
    topic_filter = "$stream/s@earliest" if mode == "reader" else "$share/g/$stream/s@earliest"
    world = StreamWorld([options(groups=groups)], MemoryStore(pages=True))
    world.append("0", "1", "2")
    fields: dict[str, Any] = {"receive_maximum": 3, **KEPT}
    client = reader(world, topic_filter, **fields)
    first, second, third = publishes(client.received())
    world.append("3", "4", "5")
    world.streams._kept["s"].stream.partitions[0].forget(3)
    world.late_pages = []
    ack(client, first)
    assert (got(client), len(world.late_pages)) == ([], 1), "the page from the offset 3 on is asked for"
    late, world.late_pages = world.late_pages, None
    if step_back == "seeks":
        world.streams.seek("s", "g", parse_position("0:1"))
        world.settle()
        ack(client, second, third)  # of before
    else:
        if step_back == "loses":
            client.lose()
        client = world.connect("r", auto_ack=False, **fields)
    answer(world, late)
    packets = publishes(client.received())
    assert [each.payload for each in packets] == [b"1", b"2", b"3"]
    ack(client, *packets)
    assert got(client) == ["4", "5"]
    world.end()


def answer(world: StreamWorld, pages: list[LoadPage | LoadEntries]) -> None:
    for page in pages:
        world.broker.answer(page.id, world.read(page), world.now)
    world.settle()


def test_a_lost_message_is_passed_over_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(pages=True)
    world = StreamWorld([options()], store)
    world.append(*map(str, range(6)))
    read = store.read_entries

    def damaged(key: str, first: int, end: int, count: int) -> Entries:
        found, following = read(key, first, end, count)
        return Entries([each for each in found if each[0] not in (0, 3, 4)], following)

    monkeypatch.setattr(store, "read_entries", damaged)
    client = reader(world)
    assert got(client) == ["1", "2", "5"]
    world.end()


def test_a_client_that_cannot_take_a_message_gets_the_next() -> None:
    world = StreamWorld([options()])
    client = reader(world, maximum_packet_size=200)
    world.append("x" * 300, "small")
    assert got(client) == ["small"]
    world.end()


def test_an_expired_message_is_not_delivered() -> None:
    world = StreamWorld([options()])
    world.publish("a", "old", 1, message_expiry_interval=10)
    world.advance(20)
    world.append("new")
    assert got(reader(world)) == ["new"]
    world.end()


@pytest.mark.long
def test_a_long_backlog_takes_turns_with_others(store: MemoryStore) -> None:
    world = StreamWorld([options(partitions=3)], store)
    for at in range(1_000):
        world.broker.publish(b"$stream/s", str(at).encode(), 1, False, world.now)
    world.settle()
    client = reader(world, qos=0)
    packets = publishes(client.received())
    assert len(packets) == 1_000
    found: dict[int, list[int]] = {}
    for partition, offset in places(packets):
        found.setdefault(partition, []).append(offset)
    assert all(each == list(range(len(each))) for each in found.values())
    world.end()


def test_explain_says_that_a_stream_is_missing() -> None:
    world = StreamWorld([options()])
    ask = world.broker.planner.subscribe
    for topic_filter in ("$stream/none", "$stream/none@earliest/a", "$share/g/$stream/none"):
        plan = ask("c", None, topic_filter.encode(), 1)
        assert (plan.code, plan.reason) == (0x8F, "$stream/…: there is no stream 'none'")
    for topic_filter in ("$stream/s", "$stream/s@earliest/a", "$share/g/$stream/s@0:0"):
        assert ask("c", None, topic_filter.encode(), 2).code == 1
    world.end()


def test_explain_says_what_would_become_of_a_message() -> None:
    world = StreamWorld([options(keep_bytes=1_000)])
    for payload, outcome in ((b"x", "it is kept, and read from $stream"), (b"x" * 999, "/1000 bytes")):
        (planned,) = world.streams._kept["s"].stream.outlook(Message(b"a", payload), THE_PROGRAM, True)
        assert (planned.sink, outcome in planned.detail) == ("$stream/s", True)
    world.end()


def test_a_batch_at_qos_0_is_kept_too() -> None:
    world = StreamWorld([options()])
    client = world.connect("p", V5)
    client.send(*[Publish(b"a", b"%d" % at, 0) for at in range(20)])
    assert world.streams.state("s").messages == 20
    assert got(reader(world)) == [str(at) for at in range(20)]
    world.end()


def test_messages_read_ahead_of_one_partition_are_never_taken_for_another() -> None:
    world = StreamWorld([options(partitions=2)], MemoryStore(pages=True))
    keys = {partition_of(each.encode(), 2): each for each in ("0", "1", "2", "3", "4")}
    world.append(*(f"first {at}" for at in range(50)), key=keys[0])
    world.append(*(f"second {at}" for at in range(100)), key=keys[1])
    reader(world, "$stream/s", name="live", qos=0)
    world.append(*(f"first {at}" for at in range(50, 60)), key=keys[0])  # these are in memory
    client = reader(world, "$share/g/$stream/s@0:40", receive_maximum=1_000)
    assert len(got(client)) == 20
    world.streams.seek("s", "g", parse_position("1:52"))
    world.streams.seek("s", "g", parse_position("0:40"))
    world.settle()
    assert sorted(got(client)) == sorted(
        [*(f"first {at}" for at in range(40, 60)), *(f"second {at}" for at in range(52, 100))]
    )
    world.end()


def test_another_filter_or_position_at_a_new_subscribe_holds_from_then_on() -> None:
    world = StreamWorld([options()], filters=Filters())
    client = world.connect("r", auto_ack=False, **KEPT)
    for where, payload, expected in (
        ("payload.t = 1", '{"t": 1}', ['{"t": 1}']),
        ("payload.t = 2", '{"t": 1}', []),
        ("payload.t = 2", '{"t": 2}', ['{"t": 2}']),
        (None, '{"t": 3}', ['{"t": 3}']),
    ):
        client.suback("$stream/s", qos=1, where=where)
        world.append(payload)
        packets = publishes(client.received())
        assert [each.payload.decode() for each in packets] == expected, where
        ack(client, *packets)
    assert subscribe_at(client, "0:2").reason_codes == b"\x01"
    assert got(client) == ['{"t": 2}', '{"t": 3}']
    assert len(world.streams.readers("s")) == 1
    assert cursors(world) == 1
    world.end()


def test_messages_that_were_sent_and_removed_are_told_after_a_new_connection() -> None:
    world = StreamWorld([options(keep_bytes=10_000)])
    client = reader(world, **KEPT, receive_maximum=1_000)
    world.append(*(f"{at:03}".ljust(300) for at in range(60)))
    first = world.streams.partition("s", 0).first
    assert first > 0
    client.lose()
    client = world.connect("r", auto_ack=False, receive_maximum=1_000, **KEPT)
    packets = publishes(client.received())
    assert places(packets)[0] == (0, first)
    assert dict(packets[0].properties.user_properties)["stream-skipped"] == str(first)
    world.end()


def test_a_delayed_message_is_as_old_as_its_place_in_the_stream(store: MemoryStore) -> None:
    world = StreamWorld([options(keep_s=256)], store)
    client = world.connect("p")
    client.publish("$delayed/300/a", "late", 1)
    world.append("before")
    world.advance(301)
    assert world.streams.state("s").messages == 1
    assert got(reader(world)) == ["late"]
    world.end()


def test_a_smaller_size_after_a_restart_removes_no_more_than_it_must(store: MemoryStore) -> None:
    world = StreamWorld([options()], store)
    world.append(*(str(at).ljust(1_000) for at in range(200)))
    world = world.restart(options(keep_bytes=200_000))
    world.append("new")
    state = world.streams.state("s")
    assert state.size_bytes <= 200_000
    assert state.messages > 100
    assert world.streams._kept["s"].stream.size_bytes == state.partitions[0].size_bytes
    world.end()


def test_a_message_that_is_too_large_with_its_place_comes_without() -> None:
    world = StreamWorld([options()])
    for qos in (0, 1):
        client = reader(world, "$stream/s", f"r{qos}", qos=qos, maximum_packet_size=200)
        world.append("x" * 120)
        (packet,) = publishes(client.received())
        assert packet.properties.user_properties == []
        ack(client, *([packet] if qos else []))
    world.end()


def test_lag_counts_what_is_there() -> None:
    world = StreamWorld([options(keep_s=256)])
    client = reader(world, **KEPT)
    client.lose()
    world.append("0", "1")
    assert (world.streams.readers("s")[0].lag, world.streams.lag("s")) == (2, 2)
    world.advance(300)
    assert (world.streams.readers("s")[0].lag, world.streams.lag("s")) == (0, 0)
    world.end()


def test_a_stream_that_is_made_later_also_removes_what_is_old() -> None:
    world = StreamWorld([options("t", keep_s=0)])
    world.streams.create(options(keep_s=2))
    world.append("0")
    world.advance(3)
    assert world.streams.state("s").messages == 0
    world.end()


# ---------------------------------------------------------------------- what the store has lost


def without(store: MemoryStore, *lost: str) -> MemoryStore:
    """A store that has lost the records whose names contain one of the texts."""
    damaged = MemoryStore(pages=True)
    for batch in store.load():
        for change in batch:
            if isinstance(change, LatestNumber | Stored):
                continue
            if isinstance(change, SaveRecord) and any(each in change.key for each in lost):
                continue
            if isinstance(change, StoredLog):
                for at, delivery in enumerate(store.read(change.key, change.first, change.count), change.first):
                    assert delivery is not None
                    damaged.commit([Append(change.key, at, delivery)])
            else:
                damaged.commit([change])
    return damaged


def test_a_stream_whose_options_are_lost_keeps_its_messages(caplog: pytest.LogCaptureFixture) -> None:
    world = StreamWorld([options(partitions=2)], MemoryStore(pages=True))
    world.append(*"0123", topic="$stream/s")
    store = without(world.store, "$stream-options/")
    world = StreamWorld([], store)
    state = world.streams.state("s")
    assert (state.messages, len(state.partitions), state.keep_s, state.filters) == (4, 2, 0, ())
    assert "the options of the stream s are lost" in caplog.text
    assert sorted(got(reader(world))) == list("0123")
    world = world.restart(options("s", "b/#"))
    assert (world.streams.state("s").filters, world.streams.state("s").messages) == (("b/#",), 4)
    world.end()


def test_a_lost_cursor_begins_with_the_first_message_and_a_lost_group_is_a_group() -> None:
    world = StreamWorld([options()], MemoryStore(pages=True))
    world.append("0")
    reader(world, "$stream/s", "alone", **KEPT)
    for name in ("1", "2"):
        reader(world, "$share/g/$stream/s", name, **KEPT)
    world = StreamWorld([options()], without(world.store, "$stream-cursor/"))
    assert got(world.connect("alone", auto_ack=False, **KEPT)) == ["0"]
    members = [world.connect(name, auto_ack=False, **KEPT) for name in ("1", "2")]
    assert [got(each) for each in members] == [["0"], []]
    assert [each.name for each in world.streams.groups("s")] == ["g"]
    world.end()


def test_no_offset_is_given_again_that_a_reader_has_seen() -> None:
    world = StreamWorld([options()], MemoryStore(pages=True))
    world.append("0", "1")
    client = reader(world, **KEPT)
    ack(client, *publishes(client.received()))
    world = StreamWorld([options()], without(world.store, "$stream/s/0"))
    assert world.streams.state("s").messages == 0
    world.append("2")
    client = world.connect("r", auto_ack=False, **KEPT)
    assert places(publishes(client.received())) == [(0, 2)]
    assert [each.message.payload for each in world.store.read("\0$stream/s/0", 2, 1) if each is not None] == [b"2"]
    world.end()


def test_segments_that_are_lost_make_no_message_old() -> None:
    segments = Segments(10, 100)
    segments.restore([], first=5, size_bytes=7, now=1_000)
    assert segments.rows() == [(5, 1_000, 1_100, 7)]


def test_a_message_that_never_fits_is_refused_as_such_even_if_a_subscriber_has_no_room_for_it_now() -> None:
    world = StreamWorld([options(keep_bytes=6_000)], limits=Limits(max_queued_messages=1))
    absent = world.connect("absent", expiry=1_000)
    absent.subscribe("a/#", qos=1)
    absent.lose()
    publisher = world.connect("p")
    publisher.publish("a/1", "x", qos=1)
    publisher.received()
    publisher.send(*[Publish(b"a/1", bytes(9_000), 1, packet_id=publisher.packet_id()) for _ in range(2)])
    assert [each.reason_code for each in publisher.received() if isinstance(each, Ack)] == [POLICY_REFUSES] * 2
    world.end()
