"""Shared subscriptions with members at several brokers: which broker gets a message, and that one member gets it."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import groupby
from random import Random
from typing import Final

import pytest

from mqttlite.core.changes import SaveSubscription
from mqttlite.core.limits import MAX_SHARES_TOLD, MAX_SHARES_TOLD_BYTES, Limits
from mqttlite.core.reasons import FILTER_MISMATCH, NO_SUBSCRIBERS
from mqttlite.core.route.relayed import RETAINED_COPY, number_of
from mqttlite.core.route.share_members import HASH_KEY, HASH_TOPIC, LEAST_INFLIGHT, PREFER_LOCAL
from mqttlite.core.route.share_relays import MOST_TURNS
from mqttlite.core.route.shared_subscription import MOST_TIMES
from mqttlite.core.route.tally import SENT
from mqttlite.core.share_interest import NONE_LEFT, UNTOLD, ShareInterest, connected_of, members_of, qos_of, summary
from mqttlite.core.share_interest import weights_of as weights
from mqttlite.extensions.streams.options import StreamOptions
from mqttlite.filters import Filters
from mqttlite.wire.constants import PUBLISH, V5
from mqttlite.wire.encode import publish_parts
from mqttlite.wire.packets import Ack, Pingreq, Publish, Subscribe, SubscriptionRequest, Unsubscribe
from mqttlite.wire.plain import with_identifiers
from mqttlite.wire.properties import NONE, Properties, encode_properties
from tests.support.core_driver import Client, World, answer_to, publishes
from tests.support.streams import StreamWorld
from tests.unit.core.test_permissions import Readers, world_with
from tests.unit.core.test_relays import RELAYS, Told, relay, subscribe
from tests.unit.core.test_topic_overflow import acks, world_of

SHARE: Final = "$share/g/t"
NUMBER: Final = number_of(SHARE.encode())
ME: Final = number_of(f"{RELAYS}me".encode())


class Place:
    """A broker with members of `SHARE`, and others that have some."""

    def __init__(self, world: World | None = None, me: str = "me") -> None:
        self.world = world or World()
        self.told = Told(self.world, me)
        self.publisher = self.world.connect("p")

    def member(self, client_id: str, qos: int = 2, share: str = SHARE, expiry: int | None = None) -> Client:
        """A member here."""
        client = self.world.connect(client_id, expiry=expiry, clean_start=False)
        subscribe(client, share, qos=qos)
        self.told.take()
        client.received()
        return client

    def broker(self, name: str, connected: int, members: int = 0, qos: int = 2, share: str = SHARE) -> Client:
        """Another broker with members."""
        client = relay(self.world, name)
        self.weigh(client, connected, members, qos, share)
        return client

    def weigh(self, broker: Client, connected: int, members: int = 0, qos: int = 2, share: str = SHARE) -> None:
        """It tells how many members it has."""
        told = summary(qos, connected, members or connected)
        request = SubscriptionRequest(share.encode(), qos_of(told), retain_as_published=True)
        assert broker.subscribe(request, identifier=weights(told)) == bytes([qos])

    def relayed(self, broker: Client, payload: str, *tried: int, qos: int = 1, share: str = SHARE) -> None:
        """Another broker sends a message for a member here."""
        properties = Properties(subscription_identifiers=[number_of(share.encode()), *tried])
        packet_id = broker.packet_id() if qos else 0
        broker.send(Publish(b"t", payload.encode(), qos, False, False, packet_id, properties))

    def burst(self, broker: Client, count: int, qos: int, *tried: int) -> None:
        """The same of several at once."""
        properties = Properties(subscription_identifiers=[NUMBER, *tried])
        ids = [broker.packet_id() if qos else 0 for _ in range(count)]
        broker.send(*[Publish(b"t", b"%d" % at, qos, False, False, each, properties) for at, each in enumerate(ids)])


def number(broker: str) -> int:
    """Of another broker."""
    return number_of(f"{RELAYS}{broker}".encode())


def identifiers(client: Client) -> list[tuple[str, list[int]]]:
    """The payloads and subscription identifiers of what has come."""
    return [(each.payload.decode(), each.properties.subscription_identifiers) for each in publishes(client.received())]


# ---------------------------------------------------------------------- published here


@pytest.mark.parametrize("burst", [1, 4])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_broker_gets_as_many_messages_as_it_has_connected_members(qos: int, burst: int) -> None:
    place = Place()
    own, second = place.member("m"), place.member("n")
    b, c = place.broker("b", 4), place.broker("c", 2, 9)
    for first in range(0, 16, burst):
        place.publisher.send(
            *[
                Publish(b"t", b"%d" % at, qos, packet_id=place.publisher.packet_id() if qos else 0)
                for at in range(first, first + burst)
            ]
        )
    got = [each.payloads() for each in (own, second, b, c)]
    assert sorted(int(each) for payloads in got for each in payloads) == list(range(16))
    assert [len(each) for each in got] == [2, 2, 8, 4]
    assert all(each == sorted(each, key=int) for each in got)


@pytest.mark.parametrize("policy", ["round_robin", LEAST_INFLIGHT, HASH_TOPIC])
def test_a_message_goes_to_another_broker_under_the_number_of_the_share(policy: str) -> None:
    place = Place(World(share_policies={"*": policy}))
    b = place.broker("b", 1)
    place.publisher.publish("t", "x", qos=2, retain=True)
    (packet,) = publishes(b.received())
    assert (packet.payload, packet.qos, packet.retain) == (b"x", 2, True)
    assert packet.properties.subscription_identifiers == [NUMBER]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_goes_to_another_broker_at_the_highest_qos_of_its_members(qos: int) -> None:
    place = Place()
    b = place.broker("b", 1, qos=qos)
    place.publisher.publish("t", "x", qos=2)
    assert [each.qos for each in publishes(b.received())] == [qos]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_broker_with_subscribers_and_members_gets_a_message_for_each(qos: int) -> None:
    place = Place()
    b = place.broker("b", 1)
    b.subscribe(SubscriptionRequest(b"t", 2, no_local=True))
    place.publisher.publish("t", "x", qos=qos)
    assert sorted(identifiers(b)) == [("x", []), ("x", [NUMBER])]


@pytest.mark.parametrize("qos", [0, 1])
def test_large_numbers_of_members_take_turns_soon_and_get_their_part(qos: int) -> None:
    place = Place()
    b, c, d = place.broker("b", 1_024), place.broker("c", 2), place.broker("d", 512)
    row = []
    for at in range(1_538 * 2):
        place.publisher.publish("t", str(at), qos=qos)
        row += ["b"] * len(b.payloads()) + ["c"] * len(c.payloads()) + ["d"] * len(d.payloads())
    counts = Counter(row)
    assert max(len(list(same)) for _, same in groupby(row)) <= 64
    assert abs(counts["b"] - 2_048) <= MOST_TURNS
    assert abs(counts["d"] - 1_024) <= MOST_TURNS
    assert abs(counts["c"] - 4) <= 2


@pytest.mark.parametrize("burst", [1, 3])
def test_where_members_here_come_first_others_get_messages_only_if_none_here_is_ready(burst: int) -> None:
    place = Place(World(share_policies={"*": PREFER_LOCAL}))
    own = place.member("m")
    b = place.broker("b", 5)

    def got() -> list[int]:
        place.publisher.send(*[Publish(b"t", b"x") for _ in range(burst)])
        return [len(own.payloads()), len(b.payloads())]

    assert got() == [burst, 0]
    own.block()
    assert got() == [0, burst]
    own.unblock()
    assert got() == [burst, 0]
    own.lose()
    assert got() == [0, burst]


def test_a_broker_that_is_not_connected_gets_messages_when_nobody_else_is() -> None:
    place = Place()
    own = place.member("m", expiry=1_000)
    b = place.broker("b", 5)
    c = place.broker("c", 0, 5)
    b.lose()
    for at in range(4):
        place.publisher.publish("t", str(at), qos=1)
    assert own.payloads() == ["0", "1", "2", "3"]
    own.lose()
    place.weigh(c, 1, 5)
    place.publisher.publish("t", "c", qos=1)
    assert c.payloads() == ["c"]
    place.weigh(c, 0, 5)
    for at in range(11):
        place.publisher.publish("t", str(at), qos=1)
    waiting = [place.world.session(each).queued for each in ("m", f"{RELAYS}b")]
    assert [*waiting, len(c.payloads())] == [1, 5, 5]


def test_a_broker_that_does_not_read_gets_none_while_others_do() -> None:
    place = Place()
    own = place.member("m")
    b = place.broker("b", 3)
    b.block()
    for at in range(3):
        place.publisher.publish("t", str(at), qos=1)
    assert own.payloads() == ["0", "1", "2"]
    b.unblock()
    for at in range(4):
        place.publisher.publish("t", str(at), qos=1)
    assert len(b.payloads()) == 3
    assert len(own.payloads()) == 1


def test_a_message_for_which_there_is_no_room_goes_to_others() -> None:
    limits = Limits(max_queued_messages=1, max_block_s=0.0)
    place = Place(World(limits))
    own = place.member("m", expiry=1_000)
    b, c = place.broker("b", 1), place.broker("c", 0, 1)
    own.lose()
    b.lose()
    c.lose()
    codes = []
    for at in range(4):
        place.publisher.publish("t", str(at), qos=1)
        codes += acks(place.publisher)
    assert codes == [0, 0, 0, 0x97]
    assert [place.world.session(each).queued for each in ("m", f"{RELAYS}b", f"{RELAYS}c")] == [1, 1, 1]


def test_a_full_member_here_passes_messages_on_and_says_so() -> None:
    place = Place(World(Limits(max_queued_messages=1, max_inflight=1, max_block_s=0.0)))
    place.member("m")
    member = place.world.connect("m", auto_ack=False)
    subscribe(member, SHARE, qos=1)
    place.told.take()
    for at in range(2):
        place.publisher.publish("t", str(at), qos=1)
    b = place.broker("b", 1)
    b.auto_ack = False
    place.relayed(b, "x")
    assert identifiers(b) == [("x", [NUMBER, ME])]


# ---------------------------------------------------------------------- from another broker


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_for_a_member_reaches_one_member_and_nobody_else(qos: int) -> None:
    place = Place()
    members = [place.member("m"), place.member("n"), place.member("other", share="$share/h/t")]
    plain = place.world.connect("plain")
    subscribe(plain, "t", qos=2)
    place.told.take()
    b, c = place.broker("b", 9), place.broker("c", 9)
    b.subscribe("t")
    for at in range(4):
        place.relayed(c, str(at), qos=qos)
    assert [len(each.payloads()) for each in (*members, plain, b, c)] == [2, 2, 0, 0, 0, 0]
    place.burst(c, 4, qos)
    assert [len(each.payloads()) for each in (*members, plain, b, c)] == [2, 2, 0, 0, 0, 0]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_burst_is_passed_on_if_no_member_is_connected(qos: int) -> None:
    place = Place()
    place.member("m", expiry=1_000).lose()
    b, c = place.broker("b", 1), place.broker("c", 1)
    place.burst(b, 3, qos, number("b"))
    assert [len(each.payloads()) for each in (b, c)] == [0, 3]
    place.burst(b, 3, qos, number("b"), number("c"))
    assert [len(each.payloads()) for each in (b, c)] == [0, 0]
    assert place.world.session("m").queued == (3 if qos else 0)
    place.world.broker.unsubscribe("m", SHARE.encode(), place.world.now)
    twice = (number("b"), number("c")) * MOST_TIMES
    place.burst(b, 3, qos, *twice, ME)
    assert place.world.broker.router.drops.by_reason[NO_SUBSCRIBERS] == 3
    b.send(Unsubscribe(b.packet_id(), (SHARE.encode(),)))
    c.send(Unsubscribe(c.packet_id(), (SHARE.encode(),)))
    place.burst(b, 3, qos, *twice, ME)
    assert place.world.broker.router.drops.by_reason[NO_SUBSCRIBERS] == 6


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_broker_that_knows_of_no_member_gives_messages_back(is_known: bool, qos: int, count: int) -> None:
    place = Place()
    b = relay(place.world, "b")
    c = place.broker("c", 1) if is_known else relay(place.world, "c")
    place.burst(b, count, qos, number("c"))
    back = [NUMBER, number("c"), ME]
    assert identifiers(b) == [(str(at), back) for at in range(count)]
    place.burst(b, count, qos, number("c"), ME)
    assert identifiers(b) == []
    dropped = place.world.broker.router.drops.by_reason.get(NO_SUBSCRIBERS, 0)
    assert (len(c.payloads()), dropped) == ((count, 0) if is_known else (0, count))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_message_that_came_back_goes_to_a_broker_at_most_twice(qos: int, count: int) -> None:
    place = Place()
    b = place.broker("b", 1)
    place.burst(b, count, qos, ME, number("b"))
    assert identifiers(b) == [(str(at), [NUMBER, ME, number("b"), ME]) for at in range(count)]
    place.burst(b, count, qos, ME, number("b"), ME, number("b"))
    assert identifiers(b) == []
    assert place.world.broker.router.drops.by_reason[NO_SUBSCRIBERS] == count


@pytest.mark.parametrize("policy", [HASH_TOPIC, LEAST_INFLIGHT])
def test_each_message_of_a_burst_without_a_member_is_counted(policy: str) -> None:
    place = Place(World(share_policies={"*": policy}))
    b, c = place.broker("b", 1), place.broker("c", 1)
    place.burst(b, 4, 0, *(number("b"), number("c")) * MOST_TIMES, ME)
    assert c.payloads() == []
    assert place.world.broker.router.drops.by_reason[NO_SUBSCRIBERS] == 4


@pytest.mark.parametrize("policy", [HASH_TOPIC, LEAST_INFLIGHT])
def test_a_burst_for_a_broker_goes_to_its_members_by_their_policy(policy: str) -> None:
    place = Place(World(share_policies={"*": policy}))
    member, b = place.member("m"), place.broker("b", 1)
    place.burst(b, 4, 0)
    assert member.payloads() == ["0", "1", "2", "3"]
    place.publisher.send(*[Publish(b"t", b"%d" % at) for at in range(4)])
    assert len(member.payloads()) + len(b.payloads()) == 4


@pytest.mark.parametrize("policy", ["round_robin", HASH_TOPIC])
def test_a_member_that_is_away_comes_behind_brokers_with_room_if_the_first_one_has_none(policy: str) -> None:
    limits = Limits(max_queued_messages=1, max_inflight=1, max_block_s=0.0)
    place = Place(World(limits, share_policies={"*": policy}))
    place.member("m", expiry=1_000).lose()
    brokers = [place.broker("b", 1), place.broker("c", 1)]
    for each in brokers:
        each.auto_ack = False
    for at in range(4):
        place.publisher.publish("t", str(at), qos=1)
    assert place.world.session("m").queued == 0
    assert [place.world.session(f"{RELAYS}{name}").queued for name in "bc"] == [1, 1]
    place.publisher.publish("t", "4", qos=1)
    assert place.world.session("m").queued == 1


def test_a_broker_without_a_member_passes_a_message_on_to_one_that_has_not_had_it() -> None:
    place = Place()
    c, b = place.broker("c", 0, 1), place.broker("b", 1)
    d = place.broker("d", 1)
    place.relayed(b, "x", number("d"))
    assert (identifiers(b), identifiers(c), identifiers(d)) == ([("x", [NUMBER, number("d"), ME])], [], [])
    place.relayed(b, "y", number("d"), number("b"))
    assert identifiers(c) == [("y", [NUMBER, number("d"), number("b"), ME])]
    b.received()
    place.relayed(b, "z", *(number("b"), number("c"), number("d")) * MOST_TIMES, ME)
    assert acks(b) == [0x10]
    assert place.world.broker.router.drops.by_reason[NO_SUBSCRIBERS] == 1
    assert [each.payloads() for each in (b, c, d)] == [[], [], []]


def test_a_message_of_a_share_that_nobody_has_any_more_is_counted() -> None:
    place = Place()
    b = relay(place.world, "b")
    place.relayed(b, "x", ME)
    assert acks(b) == [0x10]
    assert place.world.broker.router.drops.by_reason[NO_SUBSCRIBERS] == 1


def test_a_message_waits_for_a_member_that_is_away_only_if_no_broker_has_a_connected_one() -> None:
    place = Place()
    place.member("m", expiry=1_000).lose()
    b = place.broker("b", 1)
    place.relayed(b, "x")
    assert identifiers(b) == [("x", [NUMBER, ME])]
    place.weigh(b, 0, 1)
    place.relayed(b, "y")
    assert identifiers(b) == []
    assert place.world.session("m").queued == 1


def test_a_message_that_no_member_may_get_is_passed_on() -> None:
    place = Place(World(filters=Filters()))
    member = place.world.connect("m")
    wanted = SubscriptionRequest(SHARE.encode(), 1)
    where = Properties(user_properties=[("filter", "payload > 6")])
    member.send(Subscribe(member.packet_id(), (wanted,), where))
    place.told.take()
    b = place.broker("b", 1)
    place.publisher.publish("t", "7", qos=1)
    place.publisher.publish("t", "5", qos=1)
    place.publisher.publish("t", "6", qos=1)
    assert sorted([*identifiers(b), *identifiers(member)]) in (
        [("5", [NUMBER]), ("6", [NUMBER, ME]), ("7", [])],
        [("5", [NUMBER, ME]), ("6", [NUMBER]), ("7", [NUMBER])],
    )
    place.relayed(b, "4", number("b"))
    assert place.world.broker.router.drops.by_reason[FILTER_MISMATCH] == 1
    place.publisher.send(*[Publish(b"t", b"3") for _ in range(4)])
    assert len(b.payloads()) == 4


def test_rules_of_members_are_asked_where_they_are() -> None:
    place = Place(world_with(Readers()))
    member = place.member("m", share="$share/g/private")
    b = place.broker("b", 1, share="$share/g/private")
    for at in range(3):
        place.world.publish("private", str(at), 1)
    assert member.payloads() == []
    assert len(b.payloads()) == 3


# ---------------------------------------------------------------------- by key


@pytest.mark.parametrize("policy", [HASH_TOPIC, HASH_KEY])
def test_all_brokers_choose_the_same_one_for_a_key(policy: str) -> None:
    chosen: list[dict[str, str]] = []
    for me, others in (("me", "bc"), ("b", ("me", "c")), ("c", ("me", "b"))):
        world = World(share_policies={"*": policy})
        place = Place(world, me)
        share = "$share/g/#"
        here = [place.member(f"m{at}", share=share) for at in range(_MEMBERS[me])]
        there = {name: place.broker(name, _MEMBERS[name], share=share) for name in others}
        found: dict[str, str] = {}
        for key in range(300):
            if policy == HASH_KEY:
                world.publish("t", str(key), 1, user_properties=[("ordering-key", f"k{key}")])
            else:
                world.publish(f"t/{key}", str(key), 1)
        for client in here:
            found |= dict.fromkeys(client.payloads(), me)
        for name, client in there.items():
            found |= dict.fromkeys(client.payloads(), name)
        chosen.append(found)
    assert len(chosen[0]) == 300
    assert chosen[0] == chosen[1] == chosen[2]
    counts = Counter(chosen[0].values())
    for name, members in _MEMBERS.items():
        assert abs(counts[name] - 50 * members) < 40, counts


_MEMBERS: Final = {"me": 1, "b": 2, "c": 3}


def test_a_key_stays_at_its_broker_while_one_of_its_members_is_away() -> None:
    place = Place(World(share_policies={"*": HASH_TOPIC}))
    place.member("m", share="$share/g/#")
    b = place.broker("b", 2, share="$share/g/#")

    def at_b() -> list[str]:
        for key in range(100):
            place.world.publish(f"t/{key}", str(key), 1)
        return b.payloads()

    both = at_b()
    assert 40 < len(both) < 90
    place.weigh(b, 1, 2, share="$share/g/#")
    assert at_b() == both
    place.weigh(b, 0, 2, share="$share/g/#")
    assert at_b() == []


def test_if_no_member_is_connected_a_key_has_a_broker_all_the_same() -> None:
    place = Place(World(share_policies={"*": HASH_TOPIC}))
    place.member("m", share="$share/g/#", expiry=1_000).lose()
    b = place.broker("b", 0, 1, share="$share/g/#")
    for key in range(100):
        place.world.publish(f"t/{key}", str(key), 1)
    assert 20 < len(b.payloads()) < 80
    assert 20 < place.world.session("m").queued < 80


# ---------------------------------------------------------------------- sessions that end


def test_messages_that_an_ended_session_has_not_acknowledged_go_to_another_broker() -> None:
    place = Place()
    member = place.member("m")
    member.auto_ack = False
    for qos in (1, 2):
        place.publisher.publish("t", f"{qos}", qos=qos)
    assert member.payloads() == ["1", "2"]
    b = place.broker("b", 1)
    member.disconnect()
    assert identifiers(b) == [("1", [NUMBER])]


@pytest.mark.parametrize("has_member", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
def test_messages_that_waited_for_a_lost_broker_go_to_a_member_here(qos: int, has_member: bool) -> None:
    place = Place()
    b = place.broker("b", 1)
    b.auto_ack = False
    place.publisher.publish("t", "sent", qos=2)
    b.lose()
    place.publisher.publish("t", "x", qos=qos)
    member = place.member("m") if has_member else place.world.connect("m")
    place.world.broker.end_session(f"{RELAYS}b", place.world.now)
    place.world.settle()
    assert member.payloads() == (["x"] if has_member else [])


def test_a_message_that_waited_over_a_restart_still_names_its_share() -> None:
    place = Place()
    place.broker("b", 1).lose()
    place.publisher.publish("t", "x", qos=1)
    world = place.world.restart()
    Told(world)
    assert identifiers(relay(world, "b")) == [("x", [NUMBER])]


# ---------------------------------------------------------------------- what others are told


def test_joining_leaving_connecting_and_disconnecting_are_news() -> None:
    place = Place()
    told, name = place.told, SHARE.encode()
    first, second = place.world.connect("a", expiry=1_000), place.world.connect("b")
    steps: list[tuple[Callable[[], object], int | None]] = [
        (lambda: subscribe(first, SHARE, qos=1), summary(1, 1, 1)),
        (lambda: subscribe(first, SHARE, qos=1), None),
        (lambda: place.publisher.send(Pingreq()), None),
        (lambda: subscribe(second, SHARE, qos=0), summary(1, 2, 2)),
        (lambda: subscribe(second, SHARE, qos=2), summary(2, 2, 2)),
        (first.lose, summary(2, 1, 2)),
        (lambda: place.world.connect("a", expiry=1_000, clean_start=False), summary(2, 2, 2)),
        (second.disconnect, summary(1, 1, 1)),
        (lambda: place.world.broker.unsubscribe("a", name, place.world.now), NONE_LEFT),
    ]
    for at, (step, news) in enumerate(steps):
        step()
        assert told.take() == ({} if news is None else {name: news}), at
    assert len(told.interest.shares) == told.interest.shares.size_bytes == 0
    assert told.interest.shares.current() == []


def test_a_member_that_is_back_soon_is_no_news() -> None:
    place = Place()
    interest, name = place.told.interest, SHARE.encode()
    client = place.world.connect("a", expiry=1_000)
    subscribe(client, SHARE, qos=1)
    assert interest.take(is_due=False)[0] == {name: summary(1, 1, 1)}
    client.lose()
    assert interest.take(is_due=False)[0] == {}
    assert interest.shares.has_news
    client = place.world.connect("a", expiry=1_000, clean_start=False)
    assert interest.take(is_due=False)[0] == {}
    assert interest.take(is_due=True)[0] == {}
    assert not interest.shares.has_news
    client.lose()
    assert interest.take(is_due=False)[0] == {}
    assert interest.take(is_due=True)[0] == {name: summary(1, 0, 1)}
    place.world.connect("a", expiry=1_000, clean_start=False)
    assert interest.take(is_due=False)[0] == {}
    place.world.broker.unsubscribe("a", name, place.world.now)
    assert interest.take(is_due=False)[0] == {name: NONE_LEFT}
    assert interest.take(is_due=True)[0] == {}


def test_a_member_that_blinks_while_a_broker_connects_is_news_when_it_is_back() -> None:
    place = Place()
    member = place.member("m", expiry=1_000)
    shares = place.told.interest.shares
    known = {SHARE.encode(): summary(2, 1, 1)}
    member.lose()
    assert shares.take(False) == {}
    assert shares.current() == [(SHARE.encode(), summary(2, 0, 1))], "what a new broker is told"
    place.world.connect("m", expiry=1_000, clean_start=False)
    assert shares.take(True) == known
    assert shares.take(True) == {}


def test_how_many_members_are_connected_elsewhere_is_not_kept() -> None:
    place = Place()
    b = place.broker("b", 1, 2)
    for connected, members, qos, is_kept in ((0, 2, 2, False), (2, 2, 2, False), (2, 2, 1, True), (2, 3, 1, True)):
        place.world.changes.clear()
        place.weigh(b, connected, members, qos)
        assert any(isinstance(each, SaveSubscription) for each in place.world.changes) is is_kept


def test_many_members_come_and_go_without_news_of_each() -> None:
    for count in (1, 15, 16, 17, 18, 100, 8_191, 100_000):
        told = weights(summary(0, count, count))
        assert connected_of(told) == members_of(told)
        assert count * 0.85 < members_of(told) <= count or count > 8_191
        assert (members_of(told) == count) == (count < 17 or count == 18)
    assert members_of(weights(summary(2, 100_000, 100_000))) == 7_680


def test_a_member_more_of_many_is_no_news() -> None:
    place = Place()
    for at in range(17):
        place.member(f"m{at}")
        assert place.told.interest.shares.current() == [(SHARE.encode(), summary(2, min(at + 1, 16), min(at + 1, 16)))]
    subscribe(place.publisher, SHARE, qos=2)
    assert place.told.take() == {SHARE.encode(): summary(2, 18, 18)}


def test_earlier_members_are_told_and_relays_of_an_earlier_time_are_none() -> None:
    place = Place()
    place.member("m", expiry=1_000)
    b = place.broker("b", 3)
    b.lose()
    world = place.world.restart()
    told = Told(world)
    assert told.interest.shares.current() == [(SHARE.encode(), summary(2, 0, 1))]
    b = relay(world, "b")
    for at in range(3):
        world.publish("t", str(at), 1)
    assert len(b.payloads()) == 3


def test_shares_below_dollar_and_of_namespaces_are_each_brokers_own() -> None:
    place = Place(StreamWorld([StreamOptions(name="s", filters=("a",))]))
    assert place.told.take() == {b"a": 2}, "the stream takes what is published at others"
    member = place.world.connect("m", expiry=1_000)
    subscribe(member, "$share/g/$SYS/#", "$share/g/$stream/s")
    assert place.told.take() == {}
    member.lose()
    place.world.connect("m", expiry=1_000, clean_start=False)
    assert place.told.take() == {}


def test_more_shares_than_others_may_know_are_not_told() -> None:
    calls = []
    shares = ShareInterest(lambda: calls.append(1))
    for at in range(MAX_SHARES_TOLD):
        assert shares.count(b"%d" % at, 1, True) != UNTOLD
    assert calls == [1]
    assert not shares.has_untold
    assert shares.count(b"x", 1, True) == UNTOLD
    assert shares.has_untold
    shares.uncount(b"x", UNTOLD)
    shares.uncount(b"0", shares.count(b"0", 1, False, UNTOLD))
    assert len(shares) == MAX_SHARES_TOLD
    large = ShareInterest(lambda: None)
    assert large.count(b"x" * MAX_SHARES_TOLD_BYTES, 0, False) != UNTOLD
    assert large.count(b"y", 0, False) == UNTOLD


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("qos", [0, 1])
def test_of_two_shares_with_one_number_each_gets_what_its_filter_matches(qos: int, count: int) -> None:
    first, second = _of_one_number("$share/{}/other/#", "$share/{}/t")
    place = Place()
    members = [place.member(f"m{at}", share=each) for at, each in enumerate((first, second))]
    assert [name.decode() for name, _ in place.told.interest.shares.current()] == [first, second]
    b = relay(place.world, "b")

    def got() -> list[int]:
        properties = Properties(subscription_identifiers=[number_of(second.encode()), ME])
        ids = [b.packet_id() if qos else 0 for _ in range(count)]
        b.send(*[Publish(b"t", b"x", qos, False, False, each, properties) for each in ids])
        return [len(each.payloads()) for each in members]

    assert got() == [0, count]
    members[0].disconnect()
    members[0] = place.member("m0", share=first)
    assert got() == [0, count]
    members[1].disconnect()
    assert got() == [0, 0]
    assert place.world.broker.router.drops.by_reason[NO_SUBSCRIBERS] == count


def test_of_two_shares_with_one_number_that_match_a_topic_one_with_a_member_here_gets_it() -> None:
    first, second = _of_one_number("$share/{}/#", "$share/{}/t")
    place = Place()
    b = place.broker("b", 1, share=first)
    member = place.member("m", share=second)
    place.relayed(b, "x", share=second)
    assert member.payloads() == ["x"]


def _of_one_number(*patterns: str) -> tuple[str, str]:
    """Names by two patterns."""
    first, second = patterns
    found = {number_of(name.encode()): name for name in (first.format(at) for at in range(40_000))}
    return next(
        (found[number_of(name.encode())], name)
        for name in (second.format(at) for at in range(1_000_000))
        if number_of(name.encode()) in found
    )


def test_a_relay_has_as_many_shares_as_others_have() -> None:
    place = Place(World(Limits(max_shared_subscriptions=1)))
    subscribe(place.publisher, SHARE, "$share/h/t")
    place.told.take()
    b = place.broker("b", 1)
    place.weigh(b, 1, share="$share/h/t")


def test_the_brokers_with_members_are_among_the_subscribers_of_a_topic() -> None:
    place = Place()
    place.member("m")
    place.broker("b", 1)
    found, others = place.world.broker.subscribers(b"t")
    assert ([each.client_id for each in found], others) == (["m", f"{RELAYS}b"], 0)


def test_a_topic_that_refuses_without_room_asks_for_room_at_other_brokers() -> None:
    place = Place(world_of("reject", Limits(max_queued_messages=1, max_inflight=1)))
    b = place.broker("b", 1)
    b.lose()
    codes = []
    for at in range(2):
        place.publisher.publish("t", str(at), qos=1)
        codes += acks(place.publisher)
    assert codes == [0, 0x97]


def test_a_publisher_waits_for_no_member_while_another_broker_has_room() -> None:
    place = Place(World(Limits(max_inflight=4, max_queued_messages=32, min_drain_rate=100)))
    member = place.world.connect("m", auto_ack=False)
    subscribe(member, SHARE, qos=1)
    place.told.take()
    for at in range(30):
        place.publisher.publish("t", str(at), qos=1)
    place.broker("b", 1)
    for at in range(10):
        place.publisher.publish("t", str(at), qos=1)
    assert acks(place.publisher) == [0] * 40


def test_bursts_for_a_broker_that_takes_no_large_packets_are_sent_one_by_one() -> None:
    place = Place()
    b = place.world.open(V5, is_trusted=True, is_relay=True)
    b.connect(f"{RELAYS}b", expiry=1_000, maximum_packet_size=1_000)
    place.weigh(b, 1)
    place.publisher.send(*[Publish(b"t", b"x" * size) for size in (1, 1, 1)])
    assert [each for _, each in identifiers(b)] == [[NUMBER]] * 3
    b.lose()
    place.publisher.send(*[Publish(b"t", b"x") for _ in range(3)])
    assert place.world.session(f"{RELAYS}b").drops


def test_a_message_with_other_properties_keeps_them_on_its_way() -> None:
    place = Place()
    member, b = place.member("m"), place.broker("b", 1)
    for content_type, user_property in (("text", "v"), ("zażółć", "v"), (None, "v"), (None, "zażółć")):
        properties = Properties(content_type=content_type, user_properties=[("k", user_property)])
        block = with_identifiers(encode_properties(properties, PUBLISH), [NUMBER, number("b")])
        head, tail = publish_parts(b"t", b"x", 1, False, NONE, V5, block=block)
        b.send_bytes(head + b.packet_id().to_bytes(2) + tail)
        (packet,) = publishes(member.received())
        assert packet.properties == properties


@pytest.mark.parametrize("packet", ["3208 000174 0000 020b02", "3608 000174 0001 020b02"])
def test_a_faulty_message_with_a_target_ends_the_connection(packet: str) -> None:
    place = Place()
    place.member("m")
    b = place.broker("b", 1)
    place.relayed(b, "x")
    b.send_bytes(bytes.fromhex(packet))
    assert b.closed


def test_bursts_are_counted_by_topic_one_by_one() -> None:
    place = Place()
    traffic = place.world.broker.count_traffic(10)
    member, b = place.member("m"), place.broker("b", 1)
    place.burst(b, 3, 0)
    assert len(member.payloads()) == 3
    assert traffic is not None


def test_a_member_that_has_stopped_reading_is_passed_over_when_another_one_ends() -> None:
    place = Place()
    slow, ending = place.member("m"), place.member("n")
    ending.auto_ack = False
    for at in range(2):
        place.publisher.publish("t", str(at), qos=1)
    assert len(slow.payloads()) == len(ending.payloads()) == 1
    b = place.broker("b", 1)
    slow.block()
    ending.disconnect()
    assert len(b.payloads()) == 1


def test_a_message_that_nobody_has_room_for_is_dropped_by_the_first_broker() -> None:
    place = Place(World(Limits(max_queued_messages=1, max_inflight=1, max_block_s=0.0)))
    brokers = [place.broker(name, 1) for name in "bcd"]
    for each in brokers:
        each.lose()
    for at in range(3):
        place.publisher.publish("t", str(at), qos=1)
    e = relay(place.world, "e")
    place.relayed(e, "x")
    assert [place.world.session(f"{RELAYS}{name}").queued for name in "bcd"] == [1, 1, 1]
    assert acks(e) == [0x97]


def test_a_broker_that_has_no_members_any_more_gets_nothing() -> None:
    place = Place()
    member = place.member("m")
    b = place.broker("b", 3)
    b.send(Unsubscribe(b.packet_id(), (SHARE.encode(),)))
    for at in range(2):
        place.publisher.publish("t", str(at), qos=1)
    assert member.payloads() == ["0", "1"]
    assert place.world.broker.subscribers(b"t")[0] != []


# ---------------------------------------------------------------------- what is asked before


def test_a_plan_names_the_broker_that_is_next() -> None:
    place = Place()
    place.member("m")
    place.broker("b", 2)
    for at in range(6):
        plan = place.world.broker.planner.publish("p", None, b"t", b"x", 1, False)
        (chosen,) = [each.client_id for each in plan.receivers if each.is_next]
        assert {each.client_id: each.outcome for each in plan.receivers} == {f"{RELAYS}b": SENT, "m": SENT}
        place.publisher.publish("t", str(at), qos=1)
        assert len(place.world.clients) == 3
        assert _latest(place.world) == chosen


def test_to_ask_what_would_become_of_a_message_changes_no_turn() -> None:
    rows = []
    for plans in (0, 3):
        place = Place()
        place.member("m")
        for name in "bcd":
            place.broker(name, 90)
        row = []
        for at in range(400):
            for _ in range(plans):
                place.world.broker.planner.publish("p", None, b"t", b"x", 1, False)
            place.publisher.publish("t", str(at))
            row.append(_latest(place.world))
        rows.append(row)
    assert rows[0] == rows[1]
    assert set(rows[0]) == {"m", f"{RELAYS}b", f"{RELAYS}c", f"{RELAYS}d"}


def _latest(world: World) -> str:
    for client in world.clients.values():
        if client.payloads():
            session = client.connection.session
            assert session is not None
            return session.client_id
    return ""


def test_copies_without_retain_are_kept_and_given_back_by_nobody() -> None:
    place = Place()
    member, b = place.member("m"), place.broker("b", 1)
    properties = Properties(subscription_identifiers=[RETAINED_COPY])
    b.send(*[Publish(b"t", b"x", 1, False, False, b.packet_id(), properties) for _ in range(3)])
    assert [each.payloads() for each in (member, b)] == [[], []]
    assert not place.world.broker.router.drops.by_reason


def test_messages_for_members_here_go_one_by_one_if_those_for_others_have_filled_the_memory() -> None:
    place = Place(World(limits=Limits(max_memory_bytes=640_000)))
    place.publisher.publish("kept", "x" * 200_000, retain=True)
    member, b = place.world.open(V5), place.broker("b", 1)
    member.connect("m", auto_ack=False)
    subscribe(member, SHARE, qos=1)
    b.auto_ack = False
    for _ in range(2):
        place.publisher.publish("t", "x" * 100_000, qos=1)
    assert [len(each.payloads()) for each in (member, b)] == [1, 1]
    place.publisher.received()
    packets = [Publish(b"t", b"x" * 20_000, 1, packet_id=place.publisher.packet_id()) for _ in range(8)]
    place.publisher.send(*packets)
    assert [len(each.payloads()) for each in (member, b)] == [1, 3]
    codes = [each.reason_code for each in place.publisher.received() if isinstance(each, Ack)]
    assert sorted(codes) == [0, 0, 0, 0, 0x97, 0x97, 0x97, 0x97]


@pytest.mark.parametrize("seed", range(60))
def test_a_burst_is_dealt_as_its_messages_would_be_one_by_one(seed: int) -> None:
    random = Random(seed)
    together, apart = Dealt(), Dealt()
    steps = [partial(Dealt.member, name=name, **_drawn_member(random)) for name in ("m", "n")[: random.randint(0, 2)]]
    steps += [partial(Dealt.broker, name=name, connected=random.randint(0, 3)) for name in "bc"[: random.randint(1, 2)]]
    for step in steps:
        for side in (together, apart):
            step(side)
    for _ in range(12):
        step, qos, count = random.choice(["publish", "publish", "come", "come", "answer"]), random.choice([1, 1, 2]), 8
        who = random.choice(list(together.clients))
        tried = random.choice([(), (number("c"),), (number("b"), number("c"))])
        for side in (together, apart):
            if step == "answer":
                side.answer(who)
            elif step == "publish":
                side.publish(qos, count, 1 if side is apart else count)
            elif "b" in side.clients:
                side.come(qos, count, 1 if side is apart else 2 * count, tried)
        assert together.seen() == apart.seen()


def _drawn_member(random: Random) -> dict[str, int]:
    return {"qos": random.choice([2, 2, 1]), "window": random.choice([100, 100, 5]), "expiry": random.choice([0, 0, 9])}


class Dealt:
    """A broker whose clients answer only when they are told to."""

    def __init__(self) -> None:
        self.place = Place()
        self.clients: dict[str, Client] = {}
        self._owed: dict[str, list[Ack]] = {}

    def member(self, name: str, qos: int, window: int, expiry: int) -> None:
        client = self.place.world.open(V5)
        client.connect(name, expiry=expiry, receive_maximum=window, auto_ack=False)
        subscribe(client, SHARE, qos=qos)
        self.place.told.take()
        self._add(name, client)

    def broker(self, name: str, connected: int) -> None:
        client = relay(self.place.world, name)
        client.auto_ack = False
        if connected:
            self.place.weigh(client, connected)
        self._add(name, client)

    def publish(self, qos: int, count: int, at_once: int) -> None:
        self._in_parts(self.place.publisher, qos, at_once, [NONE] * count)

    def come(self, qos: int, count: int, at_once: int, tried: tuple[int, ...]) -> None:
        """Messages of broker b for a member here. Brokers have tried a half of them in another order."""
        some, others = (Properties(subscription_identifiers=[NUMBER, *had]) for had in (tried, tried[::-1]))
        self._in_parts(self.clients["b"], qos, at_once, [some] * count + [others] * count)

    def _in_parts(self, client: Client, qos: int, at_once: int, properties: list[Properties]) -> None:
        messages = [
            Publish(b"t", b"%d" % at, qos, False, False, client.packet_id(), each) for at, each in enumerate(properties)
        ]
        for at in range(0, len(messages), at_once):
            client.send(*messages[at : at + at_once])

    def _add(self, name: str, client: Client) -> None:
        self.clients[name] = client
        self._owed[name] = []
        client.received()

    def answer(self, name: str) -> None:
        """Acknowledge all that has come."""
        owed, self._owed[name] = self._owed[name], []
        if owed:
            self.clients[name].send(*owed)

    def seen(self) -> dict[str, list[tuple[bytes, int, list[int]]]]:
        """What messages have come to each client since the last call, and what waits for it; and what was answered to
        the publisher."""
        answers = [each for each in self.place.publisher.received() if isinstance(each, Ack)]
        found = {"p": sorted((b"", each.packet_id, [each.reason_code]) for each in answers)}
        for name, client in self.clients.items():
            packets = client.received()
            self._owed[name] += [owed for each in packets if (owed := answer_to(each)) is not None]
            came = publishes(packets)
            found[name] = [(each.payload, each.qos, each.properties.subscription_identifiers) for each in came]
            found[name].append((b"waits", self.place.world.session(name if name in "mn" else RELAYS + name).queued, []))
        return found
