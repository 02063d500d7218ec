"""A message with a `dedup-id` is appended once, and with `acks` together with what its publisher has finished."""

import tracemalloc

import pytest

from mqttlite.core.authentication import NO_GRANTS
from mqttlite.core.effects import Effects
from mqttlite.core.log_changes import Append, SaveRecord
from mqttlite.core.message import Message
from mqttlite.core.route.tally import POLICY_REFUSES
from mqttlite.core.source import THE_PROGRAM
from mqttlite.extensions.dedup import DEDUP_BLOCKS, DEDUP_IDS_OF_BLOCK, ID_MEMORY_BYTES, DedupWindow, digest_of
from mqttlite.extensions.streams.limits import GROUP_EXPIRY_S, MAX_ACKS, MAX_ACKS_CHARACTERS
from mqttlite.extensions.streams.once import DEDUP
from mqttlite.extensions.streams.position import parse_position
from mqttlite.extensions.streams.records import CURSOR
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.packets import Ack, Publish
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, publishes
from tests.support.recorder import Recorder
from tests.support.streams import StreamWorld, ack, got, options, places, reader

GROUP = "$share/g/$stream/in@earliest"


@pytest.fixture(params=[False, True], ids=["memory", "pages"])
def store(request: pytest.FixtureRequest) -> MemoryStore:
    return MemoryStore(pages=request.param)


def put(world: StreamWorld, payload: str, dedup_id: str, topic: str = "a") -> int:
    return world.publish(topic, payload, 1, user_properties=[("dedup-id", dedup_id)])


def counts(world: StreamWorld, name: str = "s") -> tuple[int, int]:
    """How many messages a stream has, and how often one came again."""
    state = world.streams.state(name)
    return state.messages, state.duplicates


def test_a_message_that_comes_again_is_a_success_and_not_a_second_message(store: MemoryStore) -> None:
    world = StreamWorld([options()], store)
    assert [put(world, "x", "1"), put(world, "x", "1"), put(world, "y", "2"), put(world, "x", "1")] == [0, 0, 0, 0]
    assert counts(world) == (2, 2)
    assert world.publish("a", "z", 1) == world.publish("a", "z", 1) == 0
    assert counts(world) == (4, 2), "without an id each is a message of its own"
    assert got(reader(world)) == ["x", "y", "z", "z"]
    assert put(world, "x", "1", "$stream/s") == 0
    assert counts(world) == (4, 3), "whatever its topic"
    world.end()


def test_ids_are_remembered_over_a_restart_with_their_messages_or_not_at_all(store: MemoryStore) -> None:
    world = StreamWorld([options()], store)
    assert put(world, "x", "1") == 0
    world = world.restart()
    assert put(world, "x", "1") == 0
    assert [put(world, "y", "2"), put(world, "z", "3")] == [0, 0]
    world = world.restart()
    assert [put(world, "y", "2"), put(world, "z", "3")] == [0, 0]
    assert counts(world) == (3, 2)
    world.end()


def test_the_ids_of_one_commit_are_one_record() -> None:
    world = StreamWorld([options()])
    client = world.connect("p")
    sent = [
        Publish(b"a", b"x", 1, packet_id=at + 1, properties=Properties(user_properties=[("dedup-id", str(at))]))
        for at in range(200)
    ]
    world.changes.clear()
    client.send(*sent)
    records = [each.key for each in world.changes if isinstance(each, SaveRecord) and DEDUP in each.key]
    assert records == [f"{DEDUP}s/0", f"{DEDUP}s/1"]
    world = world.restart()
    world.connect("p").send(*sent)
    assert counts(world) == (200, 200)
    world.end()


def test_the_id_is_in_the_commit_of_its_message() -> None:
    world = StreamWorld([options()])
    world.changes.clear()
    put(world, "x", "1")
    saved, appended, *_ = world.changes
    assert isinstance(saved, SaveRecord)
    assert saved.key == f"{DEDUP}s/0"
    assert isinstance(appended, Append)
    world.end()


def test_a_refused_message_may_come_again() -> None:
    world = StreamWorld([options(keep_bytes=1_000)])
    assert put(world, "x" * 1_000, "1") == POLICY_REFUSES
    assert put(world, "x", "1") == 0
    assert counts(world) == (1, 0)
    world.end()


def test_each_stream_remembers_its_own(store: MemoryStore) -> None:
    world = StreamWorld([options("s"), options("t")], store)
    assert put(world, "x", "1", "$stream/t") == put(world, "x", "1") == 0
    assert (counts(world, "s"), counts(world, "t")) == ((1, 0), (1, 1))
    world.streams.delete("s")
    world.streams.create(options("s"))
    assert put(world, "x", "1") == 0
    assert counts(world) == (1, 0), "a new stream of that name knows nothing"
    world.end()


@pytest.mark.long
def test_an_id_takes_no_more_memory_than_is_counted() -> None:
    effects = Effects()
    window = DedupWindow(f"{DEDUP}w/", effects)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for at in range(DEDUP_BLOCKS * DEDUP_IDS_OF_BLOCK):
            window.add(digest_of(str(at)))
            effects.changes.clear()  # the store has it
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert ID_MEMORY_BYTES / 2 < used / len(window) <= ID_MEMORY_BYTES


def test_messages_of_a_batch_are_told_apart() -> None:
    world = StreamWorld([options()])
    client = world.connect("p")
    properties = Properties(user_properties=[("dedup-id", "1")])
    client.send(*[Publish(b"a", b"x", properties=properties) for _ in range(5)])
    assert counts(world) == (1, 4)
    world.end()


@pytest.mark.long
def test_the_window_is_bounded_and_forgets_the_oldest() -> None:
    world = StreamWorld([options()])
    effects = world.broker.effects
    before = effects.memory.used
    window = DedupWindow(f"{DEDUP}w/", effects)
    most = DEDUP_BLOCKS * DEDUP_IDS_OF_BLOCK
    for at in range(most):
        window.add(digest_of(str(at)))
    assert len(window) == most
    assert effects.memory.used - before == most * ID_MEMORY_BYTES
    window.add(digest_of("one more"))
    assert len(window) == most - DEDUP_IDS_OF_BLOCK + 1
    assert not window.has(digest_of("0"))
    assert window.has(digest_of(str(DEDUP_IDS_OF_BLOCK)))
    records = {each.key: each.data for each in effects.changes if isinstance(each, SaveRecord)}
    assert len(records) == DEDUP_BLOCKS
    assert max(map(len, records.values())) == 8 + 16 * DEDUP_IDS_OF_BLOCK
    again = DedupWindow(f"{DEDUP}w/", effects)
    for name, data in records.items():
        again.restore(int(name.removeprefix(f"{DEDUP}w/")), data)
    assert len(again) == len(window)
    again.add(digest_of("two more"))
    assert again.has(digest_of("one more"))
    assert len(again) == len(window) + 1, "it goes on in the block where the other one was"
    window.delete()
    again.delete()
    assert effects.memory.used == before
    effects.changes.clear()


@pytest.mark.long
@pytest.mark.parametrize("data", [b"", b"12345678", bytes(8) + b"x", bytes(7) + b"\1" + bytes(16), bytes(8 + 16 * 129)])
def test_a_block_that_cannot_be_read_is_forgotten(data: bytes) -> None:
    world = StreamWorld([options()])
    window = DedupWindow(f"{DEDUP}w/", world.broker.effects)
    window.restore(0, data)
    assert len(window) == 0
    world.end()


def test_ids_of_a_stream_that_is_gone_leave_the_store(store: MemoryStore) -> None:
    world = StreamWorld([options()], store)
    world.broker.effects.record(SaveRecord(f"{DEDUP}gone/0", b""))
    put(world, "x", "1")
    world = world.restart()
    world.settle()
    names = [each.key for batch in world.store.load() for each in batch if isinstance(each, SaveRecord)]
    assert [each for each in names if each.startswith(DEDUP)] == [f"{DEDUP}s/0"]
    world.end()


def test_a_trace_says_that_it_is_there() -> None:
    world = StreamWorld([options(keep_s=10)])
    recorder = Recorder(topics=(b"a",))
    world.broker.watch(recorder)
    put(world, "x", "1")
    world.advance(100)
    assert counts(world) == (0, 0)
    put(world, "x", "1")
    assert [each[2:] for each in recorder.told if each[0] == "queued"] == [
        ("$stream/s", "it is kept, and read from $stream", 1, 0),
        ("$stream/s", "it was appended before: its dedup-id is known", 1, 0),
    ]
    world.end()


def test_explain_says_that_it_is_there() -> None:
    world = StreamWorld([options()])
    put(world, "x", "1")
    stream = world.streams._kept["s"].stream
    for dedup_id, detail in (("1", "it was appended before: its dedup-id is known"), ("2", "it is kept")):
        message = Message(b"a", b"x", properties=Properties(user_properties=[("dedup-id", dedup_id)]))
        (planned,) = stream.outlook(message, THE_PROGRAM, True)
        assert detail in planned.detail
    world.end()


# ---------------------------------------------------------------------- acknowledge and publish in one commit


def streams() -> list[object]:
    return [options("in", "work/#", partitions=2), options("out", "done/#")]


def worker(world: StreamWorld, name: str = "w") -> Client:
    return reader(world, GROUP, name)


def finish(client: Client, payload: str, *acks: str, topic: str = "$stream/out", **more: str) -> tuple[int, str]:
    """Publish with acks. Return the code of PUBACK, and its sentence."""
    told = [*[("acks", each) for each in acks], *[(name.replace("_", "-"), value) for name, value in more.items()]]
    properties = Properties(user_properties=told)
    client.send(Publish(topic.encode(), payload.encode(), 1, packet_id=client.packet_id(), properties=properties))
    (puback,) = [each for each in client.packets if isinstance(each, Ack)]
    client.packets.remove(puback)
    return puback.reason_code, puback.properties.reason_string or ""


def test_a_result_and_what_it_was_made_of_are_one_commit(store: MemoryStore) -> None:
    world = StreamWorld(streams(), store)  # type: ignore[arg-type]
    world.append("1", "2", "3", topic="work/a")
    client = worker(world)
    packets = publishes(client.received())
    ((partition, _), *_rest) = places(packets)
    before = len(world.changes)
    assert finish(client, "1+2", f"{GROUP} {partition}:1") == (0, "")
    saved, appended, *_ = world.changes[before:]
    assert isinstance(saved, SaveRecord)
    assert saved.key.startswith(CURSOR)
    assert isinstance(appended, Append)
    world = world.restart()
    assert got(reader(world, "$stream/out@earliest", "r")) == ["1+2"]
    assert got(worker(world)) == ["3"], "what was finished does not come again"
    world.end()


def test_a_message_that_is_there_takes_no_acks_again_and_is_a_success(store: MemoryStore) -> None:
    world = StreamWorld(streams(), store)  # type: ignore[arg-type]
    world.append("1", topic="work/a")
    client = worker(world)
    ((partition, _),) = places(publishes(client.received()))
    acks = f"{GROUP} {partition}:0"
    assert finish(client, "1", acks, dedup_id="x") == (0, "")
    world = world.restart()
    client = worker(world)
    assert finish(client, "1", acks, dedup_id="x") == (0, ""), "its first PUBACK was lost with the broker"
    assert counts(world, "out") == (1, 1)
    world.end()


def test_of_results_with_the_same_acks_that_come_together_the_first_is_taken(store: MemoryStore) -> None:
    world = StreamWorld(streams(), store)  # type: ignore[arg-type]
    world.append("1", topic="work/a")
    client = worker(world)
    ((partition, _),) = places(publishes(client.received()))
    properties = Properties(user_properties=[("acks", f"{GROUP} {partition}:0")])
    results = [
        Publish(b"$stream/out", each, 1, packet_id=client.packet_id(), properties=properties) for each in (b"1", b"2")
    ]
    client.send(*results)
    assert [each.reason_code for each in client.packets if isinstance(each, Ack)] == [0, POLICY_REFUSES]
    assert got(reader(world, "$stream/out@earliest", "r")) == ["1"]
    client.packets.clear()
    world.end()


def test_pubacks_may_follow(store: MemoryStore) -> None:
    world = StreamWorld(streams(), store)  # type: ignore[arg-type]
    client = reader(world, GROUP, "w", receive_maximum=2)
    world.append("1", "2", "3", "4", topic="work/a")
    first, second = publishes(client.received())
    ((partition, _),) = places([first])
    assert finish(client, "1+2", f"{GROUP} {partition}:1") == (0, "")
    assert got(client) == [], "the window is full until then"
    ack(client, second, first)
    assert got(client) == ["3", "4"]
    assert world.streams.groups("in")[0].positions[partition] == 2
    code, _ = finish(client, "1+2", f"{GROUP} {partition}:1")
    assert code == POLICY_REFUSES, "sent again without a dedup-id it would be a second message"
    world.end()


def test_a_member_without_the_partition_finishes_nothing_and_publishes_nothing(store: MemoryStore) -> None:
    world = StreamWorld(streams(), store)  # type: ignore[arg-type]
    client = worker(world)
    world.append("1", topic="work/a")
    ((partition, _),) = places(publishes(client.received()))
    world.streams.delete_group("in", "g")
    other = worker(world, "w2")
    assert got(other) == ["1"]
    code, sentence = finish(client, "1", f"{GROUP} {partition}:0")
    assert (code, sentence) == (POLICY_REFUSES, f"acks: {GROUP!r} is no subscription of this client in a group")
    again = worker(world)
    code, sentence = finish(again, "1", f"{GROUP} {partition}:0")
    assert code == POLICY_REFUSES
    assert sentence == f"acks: {partition}:0 is finished, of another member now, or was not sent to this one"
    assert counts(world, "out") == (0, 0)
    assert finish(other, "1", f"{GROUP} {partition}:0") == (0, "")
    world.end()


@pytest.mark.parametrize(
    ("acks", "refusal"),
    [
        ("", "acks: '' is no subscription"),
        (f"{GROUP}", "acks: '' is no subscription"),
        ("$share/g/$stream/none 0:0", "acks: '$share/g/$stream/none' is no subscription"),
        ("$stream/in@earliest 0:0", "acks: '$stream/in@earliest' is no subscription"),
        ("$a/b/c/in@earliest 0:0", "acks: '$a/b/c/in@earliest' is no subscription"),
        (f"{GROUP} noon", "acks: 'noon' is not of the form <partition>:<last>,… or <partition>:<first>-<last>,…"),
        (f"{GROUP} earliest,0:0", "acks: 'earliest,0:0' is not of the form"),
        (f"{GROUP} 0:2-1", "acks: 0:2-1 ends before it begins"),
        (f"{GROUP} 2:0", "acks: 2:0 is finished, of another member now"),
        (f"{GROUP} 0:9", "acks: 0:9 is finished, of another member now"),
        (f"{GROUP} 0:0-9", "acks: 0:0-9 is finished, of another member now"),
    ],
)
def test_wrong_acks_are_refused_with_a_sentence(acks: str, refusal: str) -> None:
    world = StreamWorld(streams())  # type: ignore[arg-type]
    client = worker(world)
    assert client.subscribe("$stream/in@earliest", qos=1) == b"\x01"
    code, sentence = finish(client, "x", acks)
    assert code == POLICY_REFUSES
    assert refusal in sentence
    assert counts(world, "out") == (0, 0)
    world.end()


def test_acks_are_for_messages_to_the_stream_itself() -> None:
    world = StreamWorld(streams())  # type: ignore[arg-type]
    client = worker(world)
    code, sentence = finish(client, "x", f"{GROUP} 0:0", topic="done/a")
    assert (code, sentence) == (
        POLICY_REFUSES,
        "acks: only a message to $stream/out itself is appended together with them",
    )
    world.end()


def test_all_acks_are_taken_or_none(store: MemoryStore) -> None:
    world = StreamWorld(streams(), store)  # type: ignore[arg-type]
    client = worker(world)
    world.append("1", topic="work/a")
    ((partition, _),) = places(publishes(client.received()))
    code, _ = finish(client, "1", f"{GROUP} {partition}:0,{1 - partition}:0")
    assert code == POLICY_REFUSES
    assert world.streams.groups("in")[0].lag == 1
    world.end()


def test_a_message_that_is_too_large_finishes_nothing() -> None:
    world = StreamWorld([options("in", "work/#"), options("out", "done/#", keep_bytes=1_000)])
    client = worker(world)
    world.append("1", topic="work/a")
    code, _ = finish(client, "x" * 1_000, f"{GROUP} 0:0")
    assert code == POLICY_REFUSES
    assert world.streams.groups("in")[0].lag == 1
    world.end()


# ---------------------------------------------------------------------- of publishers without a session


def ack_over_http(world: StreamWorld, *acks: str) -> tuple[int, str]:
    """Publish to the stream `out` as an HTTP caller does. Return the code, and the refusal."""
    properties = Properties(user_properties=[("acks", each) for each in acks])
    publisher = world.broker.publisher("key", None, NO_GRANTS)
    ticket = world.broker.publish(b"$stream/out", b"x", 1, False, world.now, properties, publisher)
    world.settle()
    return ticket.tally.code, ticket.tally.refusal


def idle_group(world: StreamWorld, messages: int) -> None:
    """Append messages for a group that has no member any more."""
    client = worker(world)
    client.disconnect()
    world.append(*map(str, range(messages)), topic="work/a", key="k")


def test_a_group_that_is_used_over_http_does_not_expire(store: MemoryStore) -> None:
    world = StreamWorld([options("in", "work/#", keep_s=0), options("out", "done/#")], store)
    idle_group(world, 3)
    for offset in range(3):
        world.advance(GROUP_EXPIRY_S * 0.6)
        if offset == 2:
            world = world.restart()
        assert ack_over_http(world, f"{GROUP} 0:{offset}") == (0, ""), offset
    world.advance(GROUP_EXPIRY_S + 1)
    assert world.streams.groups("in") == []
    world.end()


def test_of_two_workers_that_did_the_same_messages_the_second_is_refused_if_it_says_where_it_began() -> None:
    world = StreamWorld([options("in", "work/#"), options("out", "done/#")])
    idle_group(world, 20)
    refused = (POLICY_REFUSES, "acks: 0:0-14 does not begin at the position of the group, which is 10")
    assert ack_over_http(world, f"{GROUP} 0:0-9") == (0, "")
    assert ack_over_http(world, f"{GROUP} 0:0-14") == refused
    assert ack_over_http(world, f"{GROUP} 0:11-14")[0] == POLICY_REFUSES, "10 would be finished without a result"
    assert (list(world.streams.groups("in")[0].positions), counts(world, "out")) == ([10], (1, 0))
    assert ack_over_http(world, f"{GROUP} 0:10-14") == (0, "")
    assert ack_over_http(world, f"{GROUP} 0:16") == (0, ""), "without a begin it is all up to there"
    assert list(world.streams.groups("in")[0].positions) == [17]
    world.end()


def test_removed_messages_that_a_group_has_not_read_need_no_result() -> None:
    world = StreamWorld([options("in", "work/#", keep_bytes=2_000), options("out", "done/#")])
    idle_group(world, 20)
    (first,) = [each.first for each in world.streams._kept["in"].stream.partitions]
    assert 0 < first < 19
    assert ack_over_http(world, f"{GROUP} 0:{first - 1}-19")[0] == POLICY_REFUSES
    assert ack_over_http(world, f"{GROUP} 0:{first}-{first}") == (0, "")
    world.streams.seek("in", "g", parse_position("0:0"))
    assert ack_over_http(world, f"{GROUP} 0:0-{first}") == (0, ""), "the worker took the position of the group"
    assert ack_over_http(world, f"{GROUP} 0:{first + 1}-19") == (0, "")
    world.end()


def test_a_member_may_say_where_it_began() -> None:
    world = StreamWorld([options("in", "work/#"), options("out", "done/#")])
    world.append("1", "2", "3", topic="work/a")
    client = worker(world)
    assert got(client) == ["1", "2", "3"]
    assert finish(client, "x", f"{GROUP} 0:0-0") == (0, "")
    code, sentence = finish(client, "x", f"{GROUP} 0:0-1")
    assert (code, sentence) == (
        POLICY_REFUSES,
        "acks: 0:0-1 does not begin at the position of the group, which is 1",
    )
    assert finish(client, "x", f"{GROUP} 0:1-2") == (0, "")
    world.end()


def test_so_many_acks_come_with_a_message_and_no_more() -> None:
    """Each takes a look at the group, in the iteration of all clients."""
    world = StreamWorld([options("in", "work/#"), options("out", "done/#")])
    world.append("1", topic="work/a")
    client = worker(world)
    many = [f"{GROUP} 0:0"] * MAX_ACKS
    assert finish(client, "x", *many)[1].endswith("is named twice for the group 'g'")
    assert finish(client, "x", *many, f"{GROUP} 0:0")[1] == "acks: 101 of them, and 100 may come with a message"
    text = f"{GROUP} ".ljust(MAX_ACKS_CHARACTERS, "0")
    assert "is not of the form" in finish(client, "x", text)[1]
    assert finish(client, "x", text + "0")[1] == "acks: 32769 characters, and 32768 may come with a message"
    assert finish(client, "x", f"{GROUP} 0:0") == (0, "")
    world.end()


@pytest.mark.parametrize("second", [f"{GROUP} 0:4", "$share/g/$stream/in 0:4", f"{GROUP} 0:0-4"])
def test_a_message_finishes_a_partition_once(second: str) -> None:
    world = StreamWorld([options("in", "work/#"), options("out", "done/#")])
    idle_group(world, 20)
    refused = (POLICY_REFUSES, "acks: the partition 0 of $stream/in is named twice for the group 'g'")
    assert ack_over_http(world, f"{GROUP} 0:9", second) == refused
    assert ack_over_http(world, f"{GROUP} 0:9,0:4") == refused
    client = worker(world)
    assert client.subscribe("$share/g/$stream/in", qos=1) == b"\x01"
    client.received()
    code, sentence = finish(client, "x", f"{GROUP} 0:9,0:4")
    assert (code, sentence) == refused
    assert (list(world.streams.groups("in")[0].positions), counts(world, "out")) == ([0], (0, 0))
    world.end()
