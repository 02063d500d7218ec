"""What is published is counted by topic: each message in one counter, harvested once, in tables that are bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.core.connect.capabilities import Capabilities
from mqttlite.core.connect.connection import Peer
from mqttlite.core.route.traffic import TopicTraffic, Traffic
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Publish
from mqttlite.wire.properties import Properties
from tests.support.core_driver import World, request
from tests.support.recorder import Recorder


def names(traffic: Traffic) -> list[str]:
    return sorted(counter.topic.decode() for counter in traffic.drain())


def told(counter: TopicTraffic) -> tuple[list[int], int, int, int]:
    by_qos = [counter.messages_qos0, counter.messages_qos1, counter.messages_qos2]
    return by_qos, counter.payload_bytes, counter.payload_bytes_max, counter.deliveries


def only(traffic: Traffic) -> tuple[list[int], int, int, int]:
    (counter,) = traffic.drain()
    return told(counter)


# ── the table ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_topic_has_one_counter_until_the_harvest() -> None:
    traffic = Traffic(10)
    counter = traffic.of(b"a")
    assert traffic.of(b"a") is counter
    assert traffic.drain() == [counter]
    assert counter.drain != traffic.drains, "so that its owner asks for another"
    assert traffic.of(b"a") is not counter
    assert traffic.of(b"a").drain == traffic.drains


def test_where_there_are_more_topics_their_first_levels_are_counted_and_then_the_rest() -> None:
    traffic = Traffic(2)
    for topic in (b"a/1", b"a/2", b"a/3", b"b", b"b/x", b"a/4", b"c/1", b"/d", b"a/1"):
        traffic.of(topic)
    topics = {counter.topic: counter.topics for counter in traffic.drain()}
    assert topics == {b"a/1": 1, b"a/2": 1, b"a/#": 2, b"b/#": 2, b"#": 2}


@pytest.mark.parametrize("max_topics", [1, 2, 3])
def test_there_are_so_many_counters_at_most(max_topics: int) -> None:
    traffic = Traffic(max_topics)
    for number in range(20):
        traffic.of(b"%d/x" % number)
    assert len(traffic.drain()) == 2 * max_topics + 1


def test_a_number_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="max_topics is 0: 1 at least"):
        Traffic(0)


def test_a_counted_entry_keeps_its_place_for_one_more_harvest() -> None:
    traffic = Traffic(2)
    traffic.of(b"a/x")
    traffic.of(b"b/x")
    assert names(traffic) == ["a/x", "b/x"]
    traffic.of(b"c/x")
    traffic.of(b"a/x")
    assert names(traffic) == ["a/x", "c/#"], "the places of those before are theirs"
    traffic.of(b"c/x")
    traffic.of(b"d/x")
    assert names(traffic) == ["c/x", "d/#"], "that of b was not used; that of a still is kept"
    assert names(traffic) == []
    traffic.of(b"e/x")
    assert names(traffic) == ["e/x"]


@given(
    st.integers(1, 4),
    st.lists(st.one_of(st.none(), st.sampled_from([b"a", b"a/b", b"a/c", b"b/c", b"c/d", b"d", b"e/f", b"f/g"]))),
)
def test_no_message_is_lost_or_counted_twice(max_topics: int, steps: list[bytes | None]) -> None:
    traffic = Traffic(max_topics)
    published = harvested = 0
    for topic in steps:
        if topic is not None:
            traffic.of(topic).count(0, 1, 0, 0)
            published += 1
            continue
        counters = traffic.drain()
        assert len({counter.topic for counter in counters}) == len(counters) <= 2 * max_topics + 1
        harvested += sum(counter.messages_qos0 for counter in counters)
    assert harvested + sum(counter.messages_qos0 for counter in traffic.drain()) == published


# ── what the broker counts ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_that_come_together_and_alone(qos: int, version: int) -> None:
    world = World()
    traffic = world.broker.count_traffic(10)
    for name in ("r", "s"):
        world.connect(name).subscribe("t", qos=1)
    writer = world.connect("w", version)
    writer.send(*[Publish(b"t", b"abc", qos, packet_id=number if qos else 0) for number in (1, 2, 3)])
    writer.publish("t", "abcde", qos)
    assert only(traffic) == ([4 * (qos == each) for each in range(3)], 14, 5, 8)
    assert traffic.drain() == []
    writer.publish("t", "", qos, retain=True)
    assert only(traffic) == ([1 * (qos == each) for each in range(3)], 0, 0, 2)


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_group_is_one_receiver_and_whoever_wants_none_of_his_own_is_none(qos: int, together: int) -> None:
    world = World()
    traffic = world.broker.count_traffic(10)
    for name in ("m", "n"):
        world.connect(name).subscribe("$share/g/t", "t" if name == "n" else "u", qos=1)
    writer = world.connect("w")
    writer.subscribe(request("t", no_local=True))
    writer.send(*[Publish(b"t", b"x", qos, packet_id=number if qos else 0) for number in range(1, together + 1)])
    assert only(traffic)[3] == 2 * together
    other = world.connect("o")
    other.send(*[Publish(b"t", b"x", qos, packet_id=number if qos else 0) for number in range(1, together + 1)])
    assert only(traffic)[3] == 3 * together


def test_messages_without_receivers_count_and_those_that_were_refused_do_not() -> None:
    world = World()
    traffic = world.broker.count_traffic(10)
    writer = world.open(capabilities=Capabilities(check_payload_format=True))
    writer.connect("w")
    writer.publish("t", "x")
    writer.publish("$SYS/x", "x")
    writer.publish("$SYS/x", "x", qos=1)
    writer.send(Publish(b"t", b"\xff", properties=Properties(payload_format_indicator=1)))
    (counter,) = traffic.drain()
    assert (counter.topic, told(counter)) == (b"t", ([1, 0, 0], 1, 1, 0))


def test_messages_by_the_broker_count_except_sys_topics() -> None:
    world = World()
    traffic = world.broker.count_traffic(10)
    world.broker.watch(Recorder())
    world.connect("r").subscribe("#", "$SYS/#")
    world.publish("$SYS/x", "x")
    world.publish("t", "x")
    (counter,) = traffic.drain()
    assert (counter.topic, told(counter)) == (b"t", ([1, 0, 0], 1, 1, 1))


def test_a_qos_2_message_that_comes_twice_is_one() -> None:
    world = World()
    traffic = world.broker.count_traffic(10)
    writer = world.connect("w", auto_ack=False)
    for _ in range(2):
        writer.publish("t", "x", qos=2, packet_id=7)
    assert only(traffic) == ([0, 0, 1], 1, 1, 0)


def test_routes_that_are_cached_already_are_counted_too() -> None:
    world = World()
    writer = world.connect("w")
    writer.publish("t", "x")
    traffic = world.broker.count_traffic(10)
    writer.publish("t", "x")
    again = world.broker.count_traffic(10)
    writer.publish("t", "x")
    assert only(traffic)[0] == only(again)[0] == [1, 0, 0]


def test_without_it_nothing_is_counted() -> None:
    world = World()
    connection = world.broker.open(Peer(), world.now)
    assert connection.number == 1
    world.connect("w").publish("t", "x")
    route = world.broker._routes.cached(b"t")
    assert route is not None
    assert route.observed is None
