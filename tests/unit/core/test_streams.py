"""QoS 0 messages that go to another worker together, whatever their topics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.core.forwards import Batch, Forward, Passage, Stream
from mqttlite.core.limits import FOLLOW_BYTES, FOLLOW_CHUNKS, STREAM_BYTES, STREAM_S, Limits
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Publish
from mqttlite.wire.properties import NONE, Properties
from tests.support.core_crew import Crew
from tests.support.core_driver import Client, publishes

LABEL = Properties(user_properties=[("from", "here")])


def to(topic: str, payload: str = "x", properties: Properties = NONE) -> Publish:
    return Publish(topic.encode(), payload.encode(), properties=properties)


def streams(crew: Crew, at: int = 0) -> list[Stream]:
    """What a worker has for others, if that is all."""
    outgoing = crew.gather(at)
    assert all(isinstance(each, Stream) for each in outgoing)
    return [each for each in outgoing if isinstance(each, Stream)]


@pytest.mark.parametrize("version", [V311, V5])
def test_all_of_a_pass_are_one_whatever_their_topics_and_publishers(version: int) -> None:
    crew = Crew(2)
    subscriber = crew.subscriber(1, "#")
    first, second = (crew.connect(0, version) for _ in range(2))
    first.send(*[to(f"t/{number}", str(number)) for number in (1, 2, 2, 3)])
    second.send(to("t/1", "4"))
    first.send(to("t/1", "5"))
    (stream,) = streams(crew)
    assert stream.size == len(stream.packets())
    crew.send(0)
    assert subscriber.messages() == [
        ("t/1", "1"), ("t/2", "2"), ("t/2", "2"), ("t/3", "3"), ("t/1", "4"), ("t/1", "5"),
    ]  # fmt: skip


def test_what_was_taken_takes_no_more() -> None:
    crew = Crew(2)
    subscriber, publisher = crew.subscriber(1, "#"), crew.connect(0)
    publisher.publish("a")
    (first,) = streams(crew)
    publisher.publish("b")
    assert streams(crew)[0] is first
    assert len(streams(crew)) == 2
    crew.pump()
    assert subscriber.messages() == [("a", ""), ("b", "")]


def test_each_version_has_its_own() -> None:
    crew = Crew(2)
    subscribers = [crew.subscriber(1, "#", version=version) for version in (V311, V5)]
    publishers = [crew.connect(0, version) for version in (V311, V5)]
    for payload in "abc":
        for publisher in publishers:
            publisher.publish("t", payload)
    assert [stream.version for stream in streams(crew)] == [V311, V5] * 3
    crew.pump()
    assert [subscriber.payloads() for subscriber in subscribers] == [[*"aabbcc"]] * 2


def test_each_worker_has_its_own() -> None:
    crew = Crew(3)
    one, two = crew.subscriber(1, "one", "both"), crew.subscriber(2, "two", "both")
    crew.connect(0).send(*[to(topic) for topic in ("one", "two", "both", "one", "two")])
    assert [stream.worker for stream in streams(crew)] == [1, 2]
    crew.pump()
    assert [topic for topic, _ in one.messages()] == ["one", "both", "one"]
    assert [topic for topic, _ in two.messages()] == ["two", "both", "two"]


def test_one_is_full_after_so_many_bytes() -> None:
    crew = Crew(2)
    subscriber, publisher = crew.subscriber(1, "#"), crew.connect(0)
    payload = "x" * (STREAM_BYTES // 3)
    publisher.send(*[to(f"t{number}", payload) for number in range(5)], to("long", payload * 9), to("t5", payload))
    sizes = [stream.size for stream in streams(crew)]
    assert len(sizes) == 5
    assert [size > STREAM_BYTES for size in sizes] == [False, False, False, True, False]
    crew.pump()
    assert [topic for topic, _ in subscriber.messages()] == ["t0", "t1", "t2", "t3", "t4", "long", "t5"]


def test_what_goes_to_one_worker_is_no_end_for_those_to_others() -> None:
    crew = Crew(3)
    subscribers = [crew.subscriber(at, f"to/{at}") for at in (1, 2)]
    publisher = crew.connect(0)
    for at, qos in ((1, 0), (2, 0), (2, 1), (1, 0), (2, 0)):
        publisher.publish(f"to/{at}", str(qos), qos)
    kinds = [(type(each), each.workers[0] if isinstance(each, Batch) else each.worker) for each in crew.gather(0)]
    assert kinds == [(Stream, 1), (Stream, 2), (Batch, 2), (Stream, 2)]
    crew.pump()
    assert [subscriber.payloads() for subscriber in subscribers] == [["0", "0"], ["0", "1", "0"]]


@pytest.mark.parametrize("between", ["retained", "qos 1", "run of qos 1", "share"])
def test_nothing_overtakes_what_goes_in_another_way(between: str) -> None:
    crew = Crew(2)
    subscriber = crew.subscriber(1, "t")
    member = crew.subscriber(1, "$share/g/s", qos=0)
    publisher = crew.connect(0)
    publisher.publish("t", "1")
    if between == "retained":
        publisher.publish("t", "2", retain=True)
    elif between == "share":
        publisher.publish("s", "2")
    elif between == "qos 1":
        publisher.publish("t", "2", 1)
    else:
        publisher.send(*[Publish(b"t", b"2", 1, packet_id=number) for number in (1, 2)])
    publisher.publish("t", "3")
    kinds = [type(each) for each in crew.gather(0)]
    assert kinds == [Stream, Forward if between in ("retained", "share") else Batch, Stream]
    crew.pump()
    twice = ["2", "2"] if between == "run of qos 1" else ["2"] if between != "share" else []
    assert subscriber.payloads() == ["1", *twice, "3"]
    assert member.payloads() == (["2"] if between == "share" else [])


def test_a_question_stays_behind_what_was_sent_before_it() -> None:
    crew = Crew(2)
    crew.subscriber(1, "t")
    streamer, other = crew.connect(0), crew.connect(0)
    for _ in range(FOLLOW_CHUNKS):
        streamer.send(*[to("t", "x" * 50)] * (FOLLOW_BYTES // 50))
    crew.ask(0)
    other.publish("t", "behind")
    kinds = [type(each) for each in crew.gather(0)]
    assert kinds[-2:] == [Passage, Stream]


def test_who_adds_to_one_that_is_open_has_sent_something_all_the_same() -> None:
    crew = Crew(2)
    crew.subscriber(1, "#")
    publisher = crew.connect(0)
    turn = crew[0].broker.turn
    publisher.publish("a")
    before, waiting = turn.forwards, len(turn.outgoing)
    publisher.publish("b")
    assert (turn.forwards, len(turn.outgoing)) == (before + 1, waiting)


def test_each_message_has_its_own_properties() -> None:
    crew = Crew(2)
    subscriber, publisher = crew.subscriber(1, "#"), crew.connect(0)
    others = Properties(content_type="text/plain")
    publisher.send(to("t", "1", LABEL), to("t", "2"), to("t", "3", others), to("t", "4", others), to("u", "5", LABEL))
    assert len(streams(crew)) == 1
    crew.pump()
    got = publishes(subscriber.received())
    assert [each.payload for each in got] == [b"1", b"2", b"3", b"4", b"5"]
    assert [each.properties.user_properties for each in got] == [
        LABEL.user_properties,
        [],
        [],
        [],
        LABEL.user_properties,
    ]
    assert [each.properties.content_type for each in got] == [None, None, "text/plain", "text/plain", None]


def test_what_was_on_its_way_for_long_has_less_time_left() -> None:
    crew = Crew(2)
    readers = [crew.subscriber(1, "#", version=version) for version in (V311, V5)]
    publisher = crew.connect(0)
    short, long = (Properties(message_expiry_interval=seconds) for seconds in (10, 100))
    publisher.send(to("t", "a", short), to("t", "b"), to("t", "c", long))
    crew.gather(0)
    crew.advance(5)
    crew.pump()
    assert readers[0].payloads() == ["a", "b", "c"]
    got = publishes(readers[1].received())
    assert [each.properties.message_expiry_interval for each in got] == [5, None, 95]


def test_none_counts_as_much_older_than_it_is() -> None:
    crew = Crew(2)
    crew.subscriber(1, "#")
    publisher = crew.connect(0)
    for seconds in (0.0, STREAM_S / 2, STREAM_S):  # the loop stands still meanwhile
        crew.advance(seconds)
        publisher.publish("t")
    first, second = streams(crew)
    assert (len(first.pieces), len(second.pieces)) == (2, 1)
    assert second.came_at - first.came_at > STREAM_S


def test_whose_outbox_overflows_by_one_is_cut_off() -> None:
    crew = Crew(2, Limits(max_outbox_messages=3, on_overflow="disconnect"))
    subscriber = crew.subscriber(1, "#", qos=0)
    crew[1].broker.block(subscriber.connection, crew[1].now)
    crew.connect(0).send(*[to(f"t/{number}") for number in range(5)])
    crew.pump()
    assert subscriber.closed


SIZES = st.sampled_from(
    [0, 1, 100, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 200, 16_370, 16_384, 70_000]
)
MESSAGES = st.tuples(
    st.sampled_from(["a", "a/b", "b", "t" * 126, "t" * 300]), SIZES, st.sampled_from([NONE, LABEL]), st.booleans()
)


@given(st.lists(MESSAGES, max_size=12), st.sampled_from([V311, V5]), st.sampled_from([V311, V5]))
def test_it_is_as_with_one_worker(messages: list[tuple[str, int, Properties, bool]], version: int, other: int) -> None:
    """The subscriber gets the same bytes, wherever its publisher is."""

    def heard(home: int) -> bytes:
        crew = Crew(2)
        subscriber: Client = crew.subscriber(1, "#", qos=0, version=other)
        publisher = crew.connect(home, version)
        publisher.send(
            *[
                to(topic, "x" * size, properties if version == V5 else NONE)
                for topic, size, properties, twice in messages
                for _ in range(2 if twice else 1)
            ]
        )
        crew.pump()
        return b"".join(repr(packet).encode() for packet in subscriber.received())

    assert heard(0) == heard(1)
