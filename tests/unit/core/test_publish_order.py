"""Two retained messages of a topic: the one that was published later stays, whichever arrives later."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.core.changes import RemoveRetained, SaveRetained
from mqttlite.core.effects import Effects
from mqttlite.core.limits import MAX_CLOCK_AHEAD_S, TOMBSTONE_S, TOMBSTONES_SWEPT, Limits
from mqttlite.core.message import Message, RawProperties
from mqttlite.core.retained.publish_order import PUBLISHED, PublishOrder, published_us
from mqttlite.wire.constants import NEVER_EXPIRES, PUBLISH, V5
from mqttlite.wire.packets import Ack, Publish
from mqttlite.wire.properties import Properties, encode_properties
from mqttlite.wire.reason_codes import ReasonCode
from tests.support.core_driver import START, Client, World, request

US = 1_000_000


def joined(limits: Limits | None = None) -> World:
    """A broker that a bridge has joined to another one."""
    world = World(limits, newest_retained=True)
    peer(world)
    return world


def peer(world: World, *, clean_start: bool = False, receive_maximum: int | None = None) -> Client:
    """The bridge of another broker."""
    client = world.open(V5)
    connack = client.connect(
        "peer",
        clean_start=clean_start,
        expiry=NEVER_EXPIRES,
        receive_maximum=receive_maximum,
        user_properties=[(PUBLISHED, "1")],
    )
    assert connack is not None
    assert (PUBLISHED, "1") in connack.properties.user_properties
    return client


def at(seconds: float) -> dict[str, list[tuple[str, str]]]:
    """The property of a message that was published at another broker."""
    return {"user_properties": [(PUBLISHED, str(int(seconds * US)))]}


def arrive(
    world: World, topic: str, payload: str, seconds: float, *, others: list[tuple[str, str]] | None = None
) -> Ack:
    """A message that was published at another broker comes over the bridge."""
    dates = at(seconds)["user_properties"]
    return publish_by(peer(world), topic, payload, [*dates, *(others or [])])


def publish_by(client: Client, topic: str, payload: str, user_properties: list[tuple[str, str]]) -> Ack:
    properties = Properties(user_properties=user_properties)
    client.send(Publish(topic.encode(), payload.encode(), 1, True, False, client.packet_id(), properties))
    answer = client.packets[-1]
    assert isinstance(answer, Ack)
    return answer


def kept(world: World, topic: str = "t") -> str | None:
    message = world.broker.router.retained.get(topic.encode())
    return None if message is None else message.payload.decode()


def test_a_client_that_does_not_ask_is_told_nothing() -> None:
    world = World()
    client = world.open(V5)
    connack = client.connect("c")
    assert connack is not None
    assert connack.properties.user_properties == []
    assert not world.broker.router.retained.order.is_on


def test_no_client_turns_the_order_on() -> None:
    """Where the operator does not want it, the wish of a bridge is not granted, and removals leave nothing."""
    world = World()
    client = world.open(V5)
    connack = client.connect("nobody", user_properties=[(PUBLISHED, "1")])
    assert connack is not None
    assert connack.properties.user_properties == []
    for number in range(20):
        publish_by(client, f"never/{number}", "", [])
    retained = world.broker.router.retained
    assert (retained.size_bytes, retained.order.tombstones) == (0, 0)
    assert not any(isinstance(each, SaveRetained) for batch in world.store.load() for each in batch)
    world = world.restart()
    assert not world.broker.router.retained.order.is_on
    assert world.broker.router.retained.order.tombstones == 0


def test_tombstones_go_where_the_operator_wants_no_order_any_more() -> None:
    world = joined()
    world.publish("t", "x", 1, True)
    world.publish("t", "", 1, True)
    assert world.broker.router.retained.order.tombstones == 1
    world = World(store=world.store)
    world.settle()
    assert world.broker.router.retained.order.tombstones == 0
    assert World(store=world.store, newest_retained=True).broker.router.retained.order.tombstones == 0


def test_the_time_that_a_client_writes_does_not_count_unless_it_asked() -> None:
    world = joined()
    client = world.connect("c")
    publish_by(client, "t", "x", [*at(START + 30)["user_properties"], ("k", "v")])
    message = world.broker.router.retained.get(b"t")
    assert message is not None
    assert message.properties.user_properties == [("k", "v"), (PUBLISHED, str(int(START * US) + 1))]
    publish_by(client, "t", "y", at(START - 30)["user_properties"])
    assert kept(world) == "y"
    peer(world)
    client = world.connect("peer", clean_start=False, expiry=NEVER_EXPIRES)
    publish_by(client, "t", "z", at(START - 30)["user_properties"])
    assert kept(world) == "z"


def test_tombstones_count_as_retained_messages_and_give_way_to_them() -> None:
    world = joined(Limits(max_retained_messages=3))
    order = world.broker.router.retained.order
    for topic in "abcd":
        world.publish(topic, "x", 1, True)
        world.publish(topic, "", 1, True)
    assert order.tombstones == 3
    arrive(world, "b", "older", START - 1)
    assert kept(world, "b") is None
    for number, topic in enumerate("xyz"):
        assert world.publish(topic, "x", 1, True) != ReasonCode.QUOTA_EXCEEDED
        assert order.tombstones == 2 - number
    assert world.publish("v", "x", 1, True) == ReasonCode.QUOTA_EXCEEDED
    world.publish("w", "", 1, True)
    assert order.tombstones == 0
    assert [kept(world, topic) for topic in "xyz"] == ["x", "x", "x"]


@pytest.mark.parametrize(
    ("limits", "size"),
    [
        (Limits(max_retained_bytes=200_000), 100_000),
        (Limits(max_memory_bytes=600_000, max_route_cache_bytes=50_000), 350_000),
    ],
)
def test_tombstones_of_long_topics_have_no_more_memory_than_retained_messages(limits: Limits, size: int) -> None:
    world = joined(limits)
    retained = world.broker.router.retained
    for number in range(30):
        arrive(world, f"{number:05d}".ljust(20_000, "x"), "", START)
    assert 0 < retained.order.tombstones < 15
    assert retained.size_bytes <= (limits.max_memory_bytes // 2 or limits.max_retained_bytes)
    assert not world.broker.effects.memory.is_full()
    world.publish("t", "y" * size, 1, True)
    assert kept(world) is not None
    assert 0 < world.restart().broker.router.retained.order.tombstones < 15


def test_a_delayed_message_has_the_time_at_which_it_is_due() -> None:
    world = joined()
    client = world.connect("c")
    publish_by(client, "$delayed/120/t", "delayed", [])
    world.advance(90)
    arrive(world, "t", "before it was due", START + 90)
    world.advance(30)
    assert kept(world) == "delayed"
    message = world.broker.router.retained.get(b"t")
    assert message is not None
    assert message.properties.user_properties == [(PUBLISHED, str(published_us(message)))]
    assert published_us(message) == int((START + 120) * US)
    arrive(world, "t", "before it was due", START + 90)
    assert kept(world) == "delayed"
    reader = world.connect("reader")
    reader.subscribe("t")
    assert [each.properties.user_properties for each in reader.packets if isinstance(each, Publish)] == [
        message.properties.user_properties
    ]


def test_a_delayed_removal_holds_from_when_it_is_due() -> None:
    world = joined()
    client = world.connect("c")
    world.publish("t", "x", 1, True)
    publish_by(client, "$delayed/300/t", "", [])
    world.advance(300)
    assert kept(world) is None
    arrive(world, "t", "from before", START + 200)
    assert kept(world) is None


@pytest.mark.parametrize("how", ["still kept", "found", "swept"])
def test_an_older_message_does_not_come_after_one_that_has_expired(how: str) -> None:
    world = joined(Limits(max_retained_messages=3))
    for topic in "st":
        world.publish(topic, "newer", 1, True, message_expiry_interval=5)
    world.publish("u", "stays", 1, True)
    world.advance(6)
    if how == "found":
        world.connect("reader").subscribe("t")
        assert kept(world) is None
    elif how == "swept":
        world.publish("v", "has room", 1, True)
        assert kept(world) is None
    arrive(world, "t", "older", START - 1)
    assert kept(world) != "older"
    arrive(world, "t", "newest", START + 6)
    assert kept(world) == "newest"


def test_a_message_that_found_no_room_lets_no_older_one_in() -> None:
    world = joined(Limits(max_retained_bytes=3_000))
    world.publish("t", "first", 1, True)
    assert world.publish("t", "x" * 6_000, 1, True) == ReasonCode.QUOTA_EXCEEDED
    assert kept(world) is None
    arrive(world, "t", "older", START - 100)
    assert kept(world) is None
    world.publish("t", "newest", 1, True)
    assert kept(world) == "newest"


def test_a_message_has_the_same_size_with_its_time_and_after_a_restart() -> None:
    world = joined()
    client = world.connect("c")
    publish_by(client, "t", "x", [("k", "v" * 60_000)])
    for each in (world, world.restart()):
        message = each.broker.router.retained.get(b"t")
        assert message is not None
        assert message.size() == Message(b"t", b"x", properties=message.properties).size() > 50_000


def test_without_a_bridge_the_last_arrival_holds_and_is_passed_on_as_it_came() -> None:
    world = World()
    reader = world.connect("reader")
    reader.subscribe("t")
    world.publish("t", "new", 1, True)
    world.publish("t", "old", 1, True, **at(START - 10))
    assert kept(world) == "old"
    assert [each.properties.user_properties for each in reader.packets if isinstance(each, Publish)] == [
        [],
        at(START - 10)["user_properties"],
    ]
    assert world.broker.router.retained.order.tombstones == 0


def test_an_older_message_is_delivered_without_retain_and_not_retained() -> None:
    world = joined()
    reader = world.connect("reader")
    reader.subscribe(request("t", 1, retain_as_published=True))
    world.publish("t", "here", 1, True)
    arrive(world, "t", "older", START - 1)
    assert kept(world) == "here"
    assert [(each.payload, each.retain) for each in reader.packets if isinstance(each, Publish)] == [
        (b"here", True),
        (b"older", False),
    ]
    assert world.broker.router.retained.order.outdated == 1


def test_a_newer_message_replaces_and_a_repetition_changes_nothing() -> None:
    world = joined()
    world.publish("t", "here", 1, True)
    arrive(world, "t", "newer", START + 1)
    assert kept(world) == "newer"
    arrive(world, "t", "newer", START + 1)
    assert kept(world) == "newer"
    assert world.broker.router.retained.order.outdated == 0


@pytest.mark.parametrize("first", ["a", "b"])
def test_of_two_messages_of_one_time_the_same_one_holds_in_either_order(first: str) -> None:
    world = joined()
    for payload in (first, "b" if first == "a" else "a"):
        arrive(world, "t", payload, START + 1)
    assert kept(world) == "b"


def test_a_message_published_here_is_newer_than_all_known_ones() -> None:
    world = joined()
    peer_ahead = START + MAX_CLOCK_AHEAD_S - 1
    arrive(world, "t", "from a clock ahead", peer_ahead)
    world.publish("t", "here", 1, True)
    message = world.broker.router.retained.get(b"t")
    assert message is not None
    assert message.payload == b"here"
    assert message.properties.user_properties == [(PUBLISHED, str(int(peer_ahead * US) + 1))]


@pytest.mark.parametrize(
    "value", [str(int((START + MAX_CLOCK_AHEAD_S + 1) * US)), "soon", "-1", "", "9" * 18, "١"], ids=str
)
def test_a_time_that_cannot_be_right_is_that_of_the_arrival(value: str) -> None:
    world = joined()
    publish_by(peer(world), "t", "odd", [(PUBLISHED, value)])
    assert kept(world) == "odd"
    message = world.broker.router.retained.get(b"t")
    assert message is not None
    assert message.properties.user_properties == [(PUBLISHED, str(int(START * US) + 1))]
    arrive(world, "t", "newer", START + 1)
    assert kept(world) == "newer"
    arrive(world, "t", "older", START - 1)
    assert kept(world) == "newer"


def test_a_removed_message_does_not_come_back_for_a_day() -> None:
    world = joined()
    world.publish("t", "x", 1, True)
    world.publish("t", "", 1, True)
    arrive(world, "t", "older", START - 1)
    assert kept(world) is None
    world = world.restart()
    assert world.broker.router.retained.order.tombstones == 1
    arrive(world, "t", "older", START - 1)
    assert kept(world) is None
    world.advance(TOMBSTONE_S)
    arrive(world, "t", "older", START - 1)
    assert kept(world) == "older"
    assert world.restart().broker.router.retained.order.tombstones == 0


def test_a_removal_that_is_older_removes_nothing() -> None:
    world = joined()
    world.publish("t", "x", 1, True)
    arrive(world, "t", "", START - 1)
    assert kept(world) == "x"
    arrive(world, "t", "", START + 1)
    assert kept(world) is None


def test_a_removal_holds_also_where_there_was_nothing() -> None:
    world = joined()
    arrive(world, "t", "", START + 1)
    arrive(world, "t", "older", START)
    assert kept(world) is None
    arrive(world, "t", "newer", START + 2)
    assert kept(world) == "newer"
    assert world.broker.router.retained.order.tombstones == 0


def test_tombstones_that_have_expired_are_forgotten_after_a_restart_too() -> None:
    world = joined()
    for number in range(3):
        world.publish(f"old/{2 - number}", "", 1, True)
        world.advance(1)
    world = world.restart()
    order = world.broker.router.retained.order
    world.advance(TOMBSTONE_S - 2)
    world.publish("new", "", 1, True)
    assert order.tombstones == 2
    arrive(world, "old/2", "back", START - 1)
    assert kept(world, "old/2") == "back"


def removal(topic: bytes, number: int) -> Message:
    message = Message(topic, b"", 1, True)
    message.number = number
    return message


def test_one_tombstone_too_many_drops_the_oldest() -> None:
    effects = Effects()
    order = PublishOrder(effects, True, max_tombstones=2)
    for number, topic in enumerate((b"a", b"b", b"a", b"c")):
        order.exhume(topic)
        order.bury(order.tombstone(removal(topic, number + 1)), False)
    older = Message(b"b", b"x", 1, True, Properties(user_properties=[(PUBLISHED, "1")]))
    assert order.tombstones == 2
    assert order.placed(older, None, True).retain
    again = Message(b"a", b"x", 1, True, Properties(user_properties=[(PUBLISHED, "1")]))
    assert not order.placed(again, None, True).retain


def test_restored_tombstones_go_in_the_order_in_which_they_were_made() -> None:
    effects = Effects()
    order = PublishOrder(effects, True)
    for topic, now in ((b"later", 2.0), (b"first", 1.0)):
        effects.now = now
        order.restore(order.tombstone(removal(topic, 1)))
    order.restored()
    order.drop_first()
    assert [each.topic for each in effects.changes if isinstance(each, RemoveRetained)] == [b"first"]


def test_expired_tombstones_are_not_restored() -> None:
    world = joined()
    for topic in "ab":
        world.publish(topic, "x", 1, True)
        world.publish(topic, "", 1, True)
    saved = [each for batch in world.store.load() for each in batch if isinstance(each, SaveRetained)]
    effects = Effects()
    effects.now = world.now + TOMBSTONE_S
    order = PublishOrder(effects, True)
    for each in saved:
        order.restore(each.message)
    assert order.tombstones == 0
    assert [each.topic for each in effects.changes if isinstance(each, RemoveRetained)] == [b"a", b"b"]


@pytest.mark.parametrize("is_vain", [False, True])
def test_many_tombstones_that_expire_together_go_little_by_little(is_vain: bool) -> None:
    effects = Effects()
    order = PublishOrder(effects, True)
    for number in range(TOMBSTONES_SWEPT + 1):
        order.bury(order.tombstone(removal(b"%d" % number, number + 1)), is_vain)
    effects.now += TOMBSTONE_S
    back = Message(b"%d" % TOMBSTONES_SWEPT, b"x", 1, True, Properties(user_properties=[(PUBLISHED, "1")]))
    assert order.placed(back, None, True).retain
    assert order.tombstones == 1
    order.placed(back, None, True)
    assert order.tombstones == 0


@pytest.mark.parametrize(("max_tombstones", "remembered"), [(4, "abef"), (100, "abdef")])
def test_removals_that_found_nothing_displace_no_others(max_tombstones: int, remembered: str) -> None:
    effects = Effects()
    order = PublishOrder(effects, True, max_tombstones=max_tombstones, max_vain=2)
    for number, topic in enumerate((b"a", b"b", b"c", b"d", b"e", b"f")):
        order.bury(order.tombstone(removal(topic, number + 2)), topic not in b"a b f")
    assert order.tombstones == len(remembered)

    def is_remembered(topic: bytes) -> bool:
        return not order.placed(
            Message(topic, b"x", 1, True, Properties(user_properties=[(PUBLISHED, "1")])), None, True
        ).retain

    assert "".join(topic for topic in "abcdef" if is_remembered(topic.encode())) == remembered


def test_other_user_properties_stay_and_come_first() -> None:
    world = joined()
    client = world.connect("c")
    others = [("k", "v"), ("k", "w")]
    client.send(Publish(b"t", b"x", 1, True, False, client.packet_id(), Properties(user_properties=list(others))))
    world.publish("u", "x", 1, True, user_properties=list(others))
    for topic in (b"t", b"u"):
        message = world.broker.router.retained.get(topic)
        assert message is not None
        assert message.properties.user_properties[:-1] == others
        assert message.properties.user_properties[-1][0] == PUBLISHED
    arrive(world, "u", "newer", START + 1, others=others)
    assert kept(world, "u") == "newer"
    arrive(world, "u", "older", START, others=others)
    assert kept(world, "u") == "newer"


def test_a_restored_message_has_the_time_in_its_properties_or_that_of_its_number() -> None:
    for user_properties, time in (([("k", "v")], 7), ([("k", PUBLISHED)], 7), ([("k", "v"), (PUBLISHED, "5")], 5)):
        data = encode_properties(Properties(user_properties=user_properties), PUBLISH)
        message = Message(b"t", b"x", 1, True, raw=RawProperties(data))
        message.number = 7
        assert published_us(message) == time


def test_own_topics_are_not_compared() -> None:
    world = joined()
    world.broker.publish(b"$SYS/x", b"1", 1, True, world.now)
    world.settle()
    message = world.broker.router.retained.get(b"$SYS/x")
    assert message is not None
    assert message.properties.user_properties == []


def test_a_message_of_before_says_its_time_when_it_is_sent_to_a_new_subscriber() -> None:
    before = World()
    before.publish("t", "before", 1, True)
    before.publish("u", "of another", 1, True, **at(START - 5))
    before.publish("v", "forged", 1, True, **at(START + 500))
    world = World(store=before.store, newest_retained=True)
    message = world.broker.router.retained.get(b"t")
    assert message is not None
    client = peer(world)
    client.subscribe(request("#", 1, retain_as_published=True))
    found = {each.topic: each.properties.user_properties for each in client.packets if isinstance(each, Publish)}
    forged = world.broker.router.retained.get(b"v")
    assert forged is not None
    assert found == {
        b"t": [(PUBLISHED, str(message.number))],
        b"u": at(START - 5)["user_properties"],
        b"v": [(PUBLISHED, str(forged.number))],
    }


def test_nothing_is_held_at_the_end() -> None:
    world = joined()
    world.publish("t", "x", 1, True)
    world.publish("t", "", 1, True)
    world.publish("u", "", 1, True)
    world.broker.router.retained.order.exhume(b"t")
    world.broker.router.retained.order.exhume(b"u")
    world.end()


class Pair:
    """Two brokers whose clocks differ, and a bridge between them that a test moves."""

    def __init__(self) -> None:
        self.worlds = [World(newest_retained=True), World(now=START + 3.5, newest_retained=True)]
        self.peers = [self._join(number) for number in (0, 1)]
        self.waiting: list[list[Publish]] = [[], []]

    def _join(self, number: int) -> Client:
        client = peer(self.worlds[number])
        client.subscribe(request("#", 1, no_local=True, retain_as_published=True))
        return client

    def collect(self) -> None:
        for number, client in enumerate(self.peers):
            self.waiting[number] += [each for each in client.packets if isinstance(each, Publish)]
            client.packets.clear()

    def carry(self, number: int) -> None:
        """One message to the other side."""
        self.collect()
        if self.waiting[number]:
            sent = self.waiting[number].pop(0)
            other = self.peers[1 - number]
            packet_id = other.packet_id()
            properties = Properties(user_properties=sent.properties.user_properties)
            other.send(Publish(sent.topic, sent.payload, 1, sent.retain, False, packet_id, properties))

    def restart(self, number: int) -> None:
        self.collect()
        self.worlds[number] = self.worlds[number].restart()
        self.peers[number] = self._join(number)

    def heal(self) -> None:
        for number in (0, 1, 0, 1):
            self.collect()
            while self.waiting[number]:
                self.carry(number)

    def kept(self, number: int) -> dict[bytes, bytes]:
        found = self.worlds[number].broker.router.retained.search(b"#").take(1_000)
        return {each.topic: each.payload for each in found}


SIDE = st.integers(0, 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), SIDE, st.sampled_from("abc"), st.sampled_from(["", "1", "2"])),
        st.tuples(st.just("carry"), SIDE),
        st.tuples(st.just("restart"), SIDE),
        st.tuples(st.just("wait"), st.floats(0.0, 10.0)),
    ),
    max_size=40,
)


@given(STEPS)
def test_two_brokers_keep_the_same_messages_whatever_happens_in_which_order(steps: list[tuple[object, ...]]) -> None:
    pair = Pair()
    for step in steps:
        if step[0] == "publish":
            pair.worlds[int(str(step[1]))].publish(str(step[2]), str(step[3]), 1, True)
        elif step[0] == "carry":
            pair.carry(int(str(step[1])))
        elif step[0] == "restart":
            pair.restart(int(str(step[1])))
        else:
            for world in pair.worlds:
                world.advance(float(str(step[1])))
    pair.heal()
    assert pair.kept(0) == pair.kept(1)
