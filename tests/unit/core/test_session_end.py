"""The end of a session: it is gone at once, and what it leaves behind is seen to in parts."""

import pytest

from mqttlite.core.changes import EndSession, Enqueue, SaveSession
from mqttlite.core.connect.connection import CONNECTED
from mqttlite.core.limits import ITERATION_WORK, Limits
from mqttlite.core.reasons import SESSION_EXPIRED
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Connect, Disconnect, Subscribe, Unsubscribe
from mqttlite.wire.properties import Properties
from tests.support.core_driver import Client, World, publishes, request
from tests.support.recorder import Recorder
from tests.support.stores import loaded

FILTERS = 4_000
MESSAGES = 10_000
OWED = 2_000


def subscribe_deeply(client: Client) -> None:
    """To many filters of many levels, in a few packets."""
    for first in range(0, FILTERS, 1_000):
        wanted = tuple(request(f"a/b/c/d/e/f/{number}/+", 1) for number in range(first, first + 1_000))
        client.send(Subscribe(client.packet_id(), wanted))
    client.received()


def grown(world: World, client_id: str = "big", expiry: int = 100) -> Client:
    client = world.connect(client_id, expiry=expiry)
    subscribe_deeply(client)
    client.lose()
    return client


def feed_connect(world: World, client_id: str) -> Client:
    """Let a client connect, and nothing else happen: a job goes on when the loop comes round again."""
    client = world.open()
    world.broker.effects.work = 0
    packet = Connect(client_id, V5, True, properties=Properties(session_expiry_interval=100))
    world.broker.feed(client.connection, encode(packet, V5), world.now)
    return client


def subscribe_now(world: World, client: Client, topic_filter: str, qos: int = 1) -> None:
    """Let a client subscribe, and nothing else happen."""
    world.broker.effects.work = 0
    packet = Subscribe(1, (request(topic_filter, qos),))
    world.broker.feed(client.connection, encode(packet, V5), world.now)


def publish_now(world: World, topic: str, payload: str) -> int:
    """Publish from inside, and let nothing else happen; the code for the publisher."""
    world.broker.effects.work = 0
    return world.broker.publish(topic.encode(), payload.encode(), 1, False, world.now).tally.code


def parts(world: World) -> int:
    """How many iterations of the loop it takes until nothing is left to do now; none does more than its share."""
    done = 0
    while world.broker.due_at() == world.now:
        world.broker.effects.work = world.broker.effects.pending_bytes = 0  # as the loop driver does
        world.broker.tick(world.now)
        assert world.broker.effects.work <= ITERATION_WORK + 100
        done += 1
    world.settle()
    return done


@pytest.mark.long
def test_a_session_with_many_filters_is_taken_apart_in_parts_and_gone_at_once() -> None:
    world = World()
    grown(world)
    before = world.broker.subscriptions
    client = feed_connect(world, "big")  # a clean start: its former session ends
    assert client.connection.state == CONNECTED
    assert not client.connection.session_present
    left = world.broker.subscriptions
    assert 0 < left < before, "some of it is left for later"
    assert world.session("big").subscriptions == {}
    assert publish_now(world, "a/b/c/d/e/f/7/x", "x") == 0x10, "the former session is none of a message's receivers"
    assert parts(world) >= 2
    assert world.broker.subscriptions == 0
    assert [type(change).__name__ for change in loaded(world.store)] == ["SaveSession"]


@pytest.mark.reaches
@pytest.mark.long
def test_a_new_session_has_its_own_subscriptions_while_the_former_is_taken_apart() -> None:
    world = World()
    grown(world)
    first = feed_connect(world, "big")
    subscribe_now(world, first, "a/b/c/d/e/f/7/+")
    assert publish_now(world, "a/b/c/d/e/f/7/x", "once") == 0
    assert publish_now(world, "a/b/c/d/e/f/8/x", "of the former") == 0x10
    second = feed_connect(world, "big")  # and that ends before the first is done with
    subscribe_now(world, second, "a/b/c/d/e/f/9/+")
    subscribe_now(world, second, "a/b/c/d/e/f/6/x", qos=0)  # matches together with one of the former
    codes = [publish_now(world, f"a/b/c/d/e/f/{number}/x", f"{number}") for number in (6, 7, 8, 9)]
    assert codes == [0, 0x10, 0x10, 0]
    parts(world)
    assert world.broker.subscriptions == 2
    assert publish_now(world, "a/b/c/d/e/f/9/y", "9 again") == 0
    world.settle()
    assert first.payloads() == ["once"]
    assert [(each.payload, each.qos) for each in publishes(second.received())] == [
        (b"6", 0),
        (b"9", 1),
        (b"9 again", 1),
    ]


@pytest.mark.long
def test_others_who_subscribe_to_the_same_are_not_touched() -> None:
    world = World()
    other = world.connect("other")
    other.subscribe("a/b/c/d/e/f/+/x", qos=1)
    client = grown(world)
    world.publish("a/b/c/d/e/f/7/x", "before", 1)
    feed_connect(world, "big")
    publish_now(world, "a/b/c/d/e/f/7/x", "meanwhile")
    parts(world)
    world.publish("a/b/c/d/e/f/7/x", "after", 1)
    assert other.payloads() == ["before", "meanwhile", "after"]
    assert client.closed


@pytest.mark.long
def test_a_session_with_many_messages_lets_them_go_in_parts_and_counts_each() -> None:
    world = World(Limits(max_queued_messages=2 * MESSAGES))
    recorder = Recorder(topics=(b"traced",))
    world.broker.watch(recorder)
    world.connect("big", expiry=100).subscribe("t", "traced", qos=1)
    world.connect("big", expiry=100, clean_start=False).lose()
    for _ in range(MESSAGES):
        world.publish("t", "x", 1)
    for _ in range(2):
        world.publish("traced", "x", 1)
    feed_connect(world, "big")
    assert world.session("big").queued == 0
    assert parts(world) >= 1
    assert world.broker.router.drops.by_reason == {SESSION_EXPIRED: MESSAGES + 2}
    assert recorder.drops["big", SESSION_EXPIRED] == MESSAGES + 2
    assert [recorder.of(trace)[-1] for trace in (1, 2)] == [("dropped", "big", SESSION_EXPIRED)] * 2


@pytest.mark.long
def test_messages_owed_to_a_group_reach_another_member_in_the_end() -> None:
    world = World()
    world.connect("big", expiry=100).subscribe("$share/g/t", "own", qos=1)
    world.connect("big", expiry=100, clean_start=False).lose()
    for number in range(2_000):
        world.publish("t", f"{number}", 1)
    world.publish("own", "own", 1)
    other = world.connect("other")
    other.subscribe("$share/g/t", qos=1)
    feed_connect(world, "big")
    publish_now(world, "t", "new")
    parts(world)
    assert sorted(other.payloads()) == sorted([*[f"{number}" for number in range(2_000)], "new"])
    assert world.broker.router.drops.by_reason == {SESSION_EXPIRED: 1}
    assert world.broker.shared_subscriptions == 1


@pytest.mark.long
def test_a_broker_that_shuts_down_leaves_no_session_half_taken_apart() -> None:
    world = World()
    client = world.connect("big")
    subscribe_deeply(client)
    world.broker.shut_down(world.now)
    world.settle()
    assert world.broker.subscriptions == 0
    assert world.broker.due_at() != world.now


@pytest.mark.parametrize("levels", [1, 100])
def test_deep_filters_cost_more_than_flat_ones(levels: int) -> None:
    world = World()
    client = world.connect("c", expiry=100)
    wanted = tuple(request("/".join([f"{number}"] * levels)) for number in range(500))
    client.send(Subscribe(1, wanted))
    client.lose()
    feed_connect(world, "c")
    assert (world.broker.subscriptions > 0) == (levels == 100)


@pytest.mark.long
def test_a_session_that_is_being_removed_receives_nothing() -> None:
    world = World()
    grown(world)
    world.broker.effects.work = 0
    assert world.broker.end_session("big", world.now)
    assert len(world.broker.jobs) == 1
    assert publish_now(world, "a/b/c/d/e/f/1/x", "x") == 0x10
    world.settle()
    assert world.broker.subscriptions == 0


@pytest.mark.reaches
@pytest.mark.long
def test_two_former_sessions_of_a_client_are_taken_apart_beside_each_other() -> None:
    world = World()
    grown(world)
    first = feed_connect(world, "big")
    subscribe_now(world, first, "a/b/c/d/e/f/1/x")
    world.broker.effects.work = ITERATION_WORK
    assert world.broker.end_session("big", world.now)
    assert len(world.broker.jobs) == 2
    assert publish_now(world, "a/b/c/d/e/f/1/x", "x") == 0x10
    world.settle()
    assert world.broker.subscriptions == 0
    assert publish_now(world, "a/b/c/d/e/f/1/x", "x") == 0x10


def owed(world: World) -> Client:
    """A durable session with many messages of a group, whose other member is away; the client's connection is lost."""
    member = world.connect("big", expiry=100)
    member.subscribe("$share/g/t", qos=1)
    member.lose()
    for number in range(OWED):
        world.publish("t", f"{number}", 1)
    other = world.connect("other", expiry=1_000)
    other.subscribe("$share/g/t", qos=1)
    other.lose()
    return other


def one_iteration(world: World) -> None:
    world.broker.effects.work = 0
    world.broker.tick(world.now)
    world._run()


@pytest.mark.long
def test_the_store_has_a_session_until_what_it_owed_is_handed_on() -> None:
    world = World()
    owed(world)
    world.now += 101
    before = len(world.changes)
    one_iteration(world)
    assert len(world.broker.jobs) == 1
    changes = world.changes[before:]
    assert [change.expires_at for change in changes if isinstance(change, SaveSession)] == [world.now]
    assert not any(isinstance(change, EndSession) for change in changes)
    while len(world.broker.jobs):
        one_iteration(world)
    assert isinstance(world.changes[-1], EndSession)
    handed_on = [change for change in world.changes[before:-1] if isinstance(change, Enqueue)]
    assert len(handed_on) == OWED
    assert {change.client_id for change in handed_on} == {"other"}


@pytest.mark.long
def test_a_broker_that_is_killed_while_a_session_ends_ends_it_after_its_restart() -> None:
    world = World()
    owed(world)
    world.now += 101
    one_iteration(world)
    assert len(world.broker.jobs) == 1
    kept = [change.delivery.message.payload for change in loaded(world.store) if isinstance(change, Enqueue)]
    assert {*kept} == {b"%d" % number for number in range(OWED)}, "those that are not handed on are still there"
    again = World(store=world.store, now=world.now)
    again.advance(0)
    assert again.broker.sessions.get("big") is None
    assert [change.client_id for change in loaded(again.store) if isinstance(change, SaveSession)] == ["other"]


@pytest.mark.long
def test_a_new_session_takes_the_place_of_one_whose_end_is_not_done_in_the_store() -> None:
    world = World()
    owed(world)
    before = len(world.changes)
    client = feed_connect(world, "big")
    world._run()
    assert len(world.broker.jobs) == 1
    of_client = [type(change) for change in world.changes[before:] if isinstance(change, SaveSession | EndSession)]
    assert of_client == [SaveSession, EndSession, SaveSession]
    before = len(world.changes)
    parts(world)
    assert not any(isinstance(change, EndSession) for change in world.changes[before:])
    assert world.broker.sessions.get("big") is client.connection.session


@pytest.mark.reaches
@pytest.mark.long
def test_a_session_that_its_client_ends_with_disconnect_is_handed_on_too() -> None:
    world = World()
    owed(world)
    back = world.open()
    back.connect("big", clean_start=False, expiry=100, auto_ack=False)
    world.broker.effects.work = 0
    packet = encode(Disconnect(0, Properties(session_expiry_interval=0)), V5)
    before = len(world.changes)
    world.broker.feed(back.connection, packet, world.now)
    world._run()
    assert len(world.broker.jobs) == 1
    assert not any(isinstance(change, EndSession) for change in world.changes[before:])
    parts(world)
    assert isinstance(world.changes[-1], EndSession)


def test_a_group_that_was_empty_in_between_gets_what_a_former_member_was_owed() -> None:
    world = World()
    former = world.connect("former", expiry=100, auto_ack=False)
    former.subscribe("$share/g/t", qos=1)
    world.publish("t", "owed", 1)
    former.send(Unsubscribe(9, (b"$share/g/t",)))
    later = world.connect("later")
    later.subscribe("$share/g/t", qos=1)
    former.lose()
    world.advance(200)
    assert later.payloads() == ["owed"]
