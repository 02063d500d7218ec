"""Shared subscriptions (5.0 §4.8.2): who of a group gets which message, and what becomes of it when that one leaves."""

import itertools

import pytest

from mqttlite.core.limits import Limits
from mqttlite.core.message import Message
from mqttlite.core.routes import Routes
from mqttlite.core.session import Session
from mqttlite.core.shares import HASH_KEY, HASH_TOPIC, LEAST_INFLIGHT, Share
from mqttlite.topics.names import split_share
from mqttlite.wire.constants import PUBACK, PUBREC, V5, V311
from mqttlite.wire.errors import TopicFilterInvalid
from mqttlite.wire.packets import Ack, Disconnect, Publish, Subscribe, SubscriptionRequest, Unsubscribe
from tests.support.core_driver import Client, World

JOBS = "$share/workers/jobs/+"


def payloads(client: Client) -> list[bytes]:
    return [packet.payload for packet in client.received() if isinstance(packet, Publish)]


def workers(world: World, count: int, qos: int = 1, version: int = V5, **options: object) -> list[Client]:
    members = []
    for number in range(count):
        member = world.connect(f"worker-{number}", version, auto_ack=False, **options)
        member.subscribe(JOBS, qos=qos)
        members.append(member)
    return members


@pytest.mark.parametrize(
    "bad", ["$share//jobs", "$share/+/jobs", "$share/a#/jobs", "$share/workers", "$share/workers/"]
)
def test_a_share_needs_a_plain_name_and_a_filter(bad: str) -> None:
    with pytest.raises(TopicFilterInvalid):
        split_share(bad.encode())


def test_a_filter_that_only_looks_like_a_share_is_none() -> None:
    assert split_share(b"$shared/a/b") is None
    assert split_share(b"$share/a//b") == (b"a", b"/b")


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_message_goes_to_one_member_in_turn(qos: int) -> None:
    world = World()
    members = workers(world, 3, qos=2)
    for number in range(6):
        assert world.publish("jobs/a", str(number), qos) == 0
    got = [payloads(member) for member in members]
    assert sorted(itertools.chain(*got)) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert [len(each) for each in got] == [2, 2, 2]


@pytest.mark.parametrize("largest", [None, 1000])
@pytest.mark.parametrize("version", [V311, V5])
def test_a_run_of_qos_0_messages_is_dealt_out_in_order(version: int, largest: int | None) -> None:
    world = World()
    members = workers(world, 2, 0, maximum_packet_size=largest)
    publisher = world.connect("publisher", version)
    publisher.send(*[Publish(b"jobs/a", b"%d" % number) for number in range(9)])
    got = [payloads(member) for member in members]
    assert sorted(itertools.chain(*got)) == [b"%d" % number for number in range(9)]
    assert sorted(len(each) for each in got) == [4, 5]
    assert all(each == sorted(each) for each in got)


def test_a_group_and_a_plain_subscription_each_get_a_copy() -> None:
    world = World()
    (member,) = workers(world, 1)
    plain = world.connect("plain")
    plain.subscribe("jobs/#", qos=1)
    world.publish("jobs/a", "x", 1)
    assert payloads(member) == payloads(plain) == [b"x"]


def test_two_groups_each_get_a_copy_and_so_do_two_filters_of_one_group() -> None:
    world = World()
    (one,) = workers(world, 1)
    other = world.connect("other")
    other.subscribe("$share/others/jobs/+", qos=1)
    other.subscribe("$share/workers/jobs/#", qos=1)
    world.publish("jobs/a", "x", 1)
    assert payloads(one) == [b"x"]
    assert payloads(other) == [b"x", b"x"]


def test_the_copy_has_the_members_own_qos_and_identifier() -> None:
    world = World()
    member = world.connect("member")
    member.subscribe(JOBS, qos=1, identifier=7)
    publisher = world.connect("publisher")
    publisher.send(Publish(b"jobs/a", b"x", 2, packet_id=1), Publish(b"jobs/a", b"y"))
    first, second = [packet for packet in member.received() if isinstance(packet, Publish)]
    assert (first.qos, first.properties.subscription_identifiers) == (1, [7])
    assert (second.qos, second.properties.subscription_identifiers) == (0, [7])


def test_retained_messages_are_not_sent_to_a_new_member() -> None:
    world = World()
    world.publish("jobs/a", "old", 1, retain=True)
    (member,) = workers(world, 1)
    assert payloads(member) == []


def test_no_local_on_a_share_is_a_protocol_error() -> None:
    world = World()
    client = world.connect("client")
    client.send(Subscribe(1, (SubscriptionRequest(JOBS.encode(), 1, no_local=True),)))
    disconnect = client.received()[-1]
    assert isinstance(disconnect, Disconnect)
    assert disconnect.reason_code == 0x82
    assert client.closed


def test_members_that_are_away_get_messages_only_when_nobody_is_connected() -> None:
    world = World()
    away, here = workers(world, 2, expiry=1000, clean_start=False)
    away.lose()
    for number in range(4):
        world.publish("jobs/a", str(number), 1)
    assert payloads(here) == [b"0", b"1", b"2", b"3"]
    here.send(*[Ack(PUBACK, number) for number in range(1, 5)])
    here.lose()
    world.publish("jobs/a", "kept", 1)
    again = [world.connect(name, expiry=1000, clean_start=False) for name in ("worker-0", "worker-1")]
    assert sorted(payloads(again[0]) + payloads(again[1])) == [b"kept"]


def test_a_member_that_does_not_read_is_passed_over() -> None:
    world = World()
    slow, quick = workers(world, 2)
    slow.block()
    for number in range(4):
        world.publish("jobs/a", str(number), number % 2)
    assert len(payloads(quick)) == 4


def test_a_full_queue_lets_the_next_member_have_it_and_only_full_queues_refuse() -> None:
    world = World(Limits(max_inflight=1, max_queued_messages=1))
    members = workers(world, 2)
    codes = [world.publish("jobs/a", str(number), 1) for number in range(5)]
    assert codes == [0, 0, 0, 0, 0x97]
    assert sum(len(payloads(member)) for member in members) == 2


def test_a_member_whose_queue_is_full_is_passed_over_even_by_a_topic_that_is_its_own() -> None:
    world = World(Limits(max_inflight=1, max_queued_messages=1), share_policies={"*": HASH_TOPIC})
    workers(world, 2)
    assert [world.publish("jobs/a", str(number), 1) for number in range(5)] == [0, 0, 0, 0, 0x97]


def test_a_member_that_is_away_and_wants_qos_0_refuses_nobodys_message() -> None:
    world = World()
    (only,) = workers(world, 1, qos=0, expiry=100)
    only.lose()
    assert world.publish("jobs/a", "missed", 2) == 0
    assert world.session("worker-0").drops == {"qos0_offline": 1}


def test_what_a_member_has_not_acknowledged_goes_to_another_when_its_session_ends() -> None:
    world = World()
    first, second = workers(world, 2, qos=2)
    second.lose()
    for number in range(2):
        world.publish("jobs/a", f"qos1-{number}", 1)
    world.publish("jobs/a", "qos2", 2)
    assert payloads(first) == [b"qos1-0", b"qos1-1", b"qos2"]
    third = world.connect("worker-2")
    third.subscribe(JOBS, qos=2)
    first.send(Ack(PUBACK, 1))
    first.lose()
    assert payloads(third) == [b"qos1-1"]  # QoS 2 never [MQTT-4.8.2-5]


def test_what_goes_to_another_keeps_its_order() -> None:
    world = World()
    first, second = workers(world, 2, receive_maximum=1)
    second.lose()
    for number in range(3):
        world.publish("jobs/a", str(number), 1)
    assert payloads(first) == [b"0"]  # in flight, and the others behind it in the queue
    third = world.connect("worker-2")
    third.subscribe(JOBS, qos=1)
    first.lose()
    assert payloads(third) == [b"0", b"1", b"2"]  # [MQTT-4.6.0-6]


def test_a_session_that_is_kept_keeps_its_messages() -> None:
    world = World()
    first, second = workers(world, 2, expiry=100)
    world.publish("jobs/a", "0", 1)
    world.publish("jobs/a", "1", 1)
    first.lose()
    assert payloads(second) == [b"1"]
    world.advance(101)
    assert payloads(second) == [b"0"]


def test_messages_of_a_group_that_is_gone_go_with_its_last_member() -> None:
    world = World()
    (only,) = workers(world, 1)
    world.publish("jobs/a", "0", 1)
    only.lose()
    assert world.publish("jobs/a", "1", 1) == 0x10


def test_a_message_that_expired_meanwhile_is_not_offered_again() -> None:
    world = World()
    first, second = workers(world, 2, expiry=100)
    world.publish("jobs/a", "0", 1, message_expiry_interval=50)
    first.lose()
    world.advance(101)
    assert payloads(second) == []


def test_a_member_that_refuses_gets_no_second_offer_and_nor_does_anybody_else() -> None:
    world = World()
    first, second = workers(world, 2, qos=2)
    world.publish("jobs/a", "x", 2)
    (message,) = [packet for packet in first.received() if isinstance(packet, Publish)]
    first.send(Ack(PUBREC, message.packet_id, 0x80))
    first.lose()
    assert payloads(second) == []


def test_unsubscribing_leaves_the_group() -> None:
    world = World()
    first, second = workers(world, 2)
    first.send(Unsubscribe(9, (JOBS.encode(),)))
    for number in range(3):
        world.publish("jobs/a", str(number), 1)
    assert len(payloads(second)) == 3


def test_subscribing_again_replaces_a_member_and_does_not_double_it() -> None:
    world = World()
    first, second = workers(world, 2)
    first.subscribe(JOBS, qos=0)
    for number in range(4):
        world.publish("jobs/a", str(number), 1)
    assert (len(payloads(first)), len(payloads(second))) == (2, 2)


def test_least_in_flight_spares_the_busy() -> None:
    world = World(share_policies={"workers": LEAST_INFLIGHT})
    busy, free = workers(world, 2)
    for number in range(4):
        world.publish("jobs/a", str(number), 1)
        free.send(*[Ack(PUBACK, p.packet_id) for p in free.received() if isinstance(p, Publish)])
    assert len(payloads(busy)) == 1


def test_by_topic_a_topic_stays_with_one_member() -> None:
    world = World(share_policies={"*": HASH_TOPIC})
    members = workers(world, 3)
    publisher = world.connect("publisher")
    for number in range(30):
        publisher.send(Publish(b"jobs/%d" % (number % 10), b"x", number % 2, packet_id=number % 2))
    seen: dict[bytes, set[int]] = {}
    for at, member in enumerate(members):
        for packet in member.received():
            if isinstance(packet, Publish):
                seen.setdefault(packet.topic, set()).add(at)
    assert len(seen) == 10
    assert all(len(who) == 1 for who in seen.values())
    assert len(set.union(*seen.values())) > 1


def test_by_ordering_key_a_key_stays_with_one_member() -> None:
    world = World(share_policies={"workers": HASH_KEY})
    members = workers(world, 3)
    for number in range(30):
        key = [("other", "z"), ("ordering-key", f"k{number % 5}")]
        world.publish(f"jobs/{number}", f"k{number % 5}", 1, user_properties=key)
    world.publish("jobs/plain", "no key", 1)
    seen: dict[bytes, set[int]] = {}
    for at, member in enumerate(members):
        for payload in payloads(member):
            seen.setdefault(payload, set()).add(at)
    assert len(seen) == 6
    assert all(len(who) == 1 for who in seen.values())


def test_a_share_without_members_is_no_more() -> None:
    sessions: dict[str, Session] = {}
    routes = Routes(sessions, 1000, {})
    assert routes.share(b"$share/a/b") is None
    assert Share(b"$share/a/b", HASH_TOPIC).candidates(Message(b"b", b"")) == []
