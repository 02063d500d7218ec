"""Shared subscriptions (5.0 §4.8.2): who of a group gets which message, and what becomes of it when that one leaves."""

import gc
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.core.effects import Effects
from mqttlite.core.inbound.acknowledgements import Acknowledgements
from mqttlite.core.limits import DELIVERY_WORK, ITERATION_WORK, MEMBERS_ASKED, MEMBERS_PER_WORK_UNIT, Limits
from mqttlite.core.message import Delivery, Message, PublishBatch
from mqttlite.core.outbound.outbox import Outbox
from mqttlite.core.reasons import NO_SUBSCRIBERS
from mqttlite.core.route.routes import Routes
from mqttlite.core.route.share_members import HASH_KEY, HASH_TOPIC, LEAST_INFLIGHT, ROUND_ROBIN, SHARE_POLICIES
from mqttlite.core.route.shared_subscription import SharedSubscription
from mqttlite.core.route.subscription import Subscription
from mqttlite.core.route.tally import NO_MATCHING_SUBSCRIBERS, Tally
from mqttlite.core.session.session import Session
from mqttlite.core.source import THE_PROGRAM
from mqttlite.wire.constants import PUBACK, V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Publish
from mqttlite.wire.properties import NONE
from tests.support.core_driver import Client, World, end_iteration
from tests.support.examples import examples
from tests.support.rules import permissions

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


def burst(publisher: Client, count: int, qos: int) -> list[int]:
    """Publish numbers in one chunk. Return the reason codes of the answers."""
    publisher.send(*[Publish(b"jobs/a", b"%03d" % number, qos, packet_id=number + 1) for number in range(count)])
    return [packet.reason_code for packet in publisher.received() if isinstance(packet, Ack)]


def numbers(count: int) -> list[bytes]:
    return [b"%03d" % number for number in range(count)]


@pytest.mark.parametrize("member_qos", [1, 2])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("version", [V311, V5])
def test_a_run_of_qos_1_or_2_messages_is_dealt_out_in_blocks(version: int, qos: int, member_qos: int) -> None:
    world = World()
    members = workers(world, 2, member_qos)
    publisher = world.connect("publisher", version, auto_ack=False)
    assert burst(publisher, 9, qos) == [0] * 9
    got = [[packet for packet in member.received() if isinstance(packet, Publish)] for member in members]
    assert [[packet.payload for packet in each] for each in got] == [numbers(9)[::2], numbers(9)[1::2]]
    assert {packet.qos for each in got for packet in each} == {min(qos, member_qos)}
    assert [[packet.packet_id for packet in each] for each in got] == [[1, 2, 3, 4, 5], [1, 2, 3, 4]]


@pytest.mark.parametrize(
    "options", [{"receive_maximum": 2}, {"maximum_packet_size": 100}, {"expiry": 100}, {"qos": 0}, {"identifier": 7}]
)
def test_a_run_is_dealt_out_one_by_one_if_a_member_cannot_take_a_block(options: dict[str, int]) -> None:
    world = World()
    (plain,) = workers(world, 1)
    asked = {"qos": options.get("qos", 1), "identifier": options.get("identifier", 0)}
    other = world.connect("other", **{name: value for name, value in options.items() if name not in asked})
    other.subscribe(JOBS, **asked)
    assert burst(world.connect("publisher"), 9, 1) == [0] * 9
    got = [packet for packet in other.received() if isinstance(packet, Publish)]
    assert {packet.qos for packet in got} == {asked["qos"]}
    identifiers = (asked["identifier"],) if asked["identifier"] else ()
    assert {tuple(packet.properties.subscription_identifiers) for packet in got} == {identifiers}
    assert len(world.session("other").inflight) == 0
    assert sorted([packet.payload for packet in got] + payloads(plain)) == numbers(9)


def test_a_run_goes_to_members_with_room_as_its_messages_would_alone() -> None:
    world = World()
    (free,) = workers(world, 1)
    busy = world.connect("busy", receive_maximum=2, auto_ack=False)
    busy.subscribe(JOBS, qos=1)
    assert burst(world.connect("publisher"), 9, 1) == [0] * 9
    assert (len(payloads(free)), len(payloads(busy)), world.session("busy").queued) == (6, 2, 1)


def test_a_run_for_members_that_are_away_passes_over_full_queues() -> None:
    world = World(Limits(max_queued_messages=3, min_drain_rate=0))
    (first,) = workers(world, 1, expiry=100)
    first.lose()
    assert burst(world.connect("early"), 2, 1) == [0, 0]
    second = world.connect("second", expiry=100)
    second.subscribe(JOBS, qos=1)
    second.lose()
    assert burst(world.connect("publisher"), 4, 1) == [0] * 4
    assert [world.session(name).queued for name in ("worker-0", "second")] == [3, 3]


def test_a_member_that_joins_after_a_run_has_the_next_turn() -> None:
    world = World()
    (first,) = workers(world, 1)
    publisher = world.connect("publisher")
    burst(publisher, 3, 1)
    second = world.connect("second")
    second.subscribe(JOBS, qos=1)
    publisher.publish("jobs/a", "next", 1, packet_id=9)
    assert (payloads(first), payloads(second)) == (numbers(3), [b"next"])


def test_a_run_waits_for_members_that_are_all_away() -> None:
    world = World()
    for member in workers(world, 2, expiry=100):
        member.lose()
    assert burst(world.connect("publisher"), 5, 1) == [0] * 5
    again = [world.connect(name, expiry=100, clean_start=False) for name in ("worker-0", "worker-1")]
    assert [payloads(member) for member in again] == [numbers(5)[::2], numbers(5)[1::2]]


def test_a_full_queue_refuses_its_messages_of_a_run_and_no_others() -> None:
    world = World(Limits(max_inflight=1, max_queued_messages=1, min_drain_rate=0))
    workers(world, 2)
    assert burst(world.connect("publisher"), 6, 1) == [0, 0, 0, 0, 0x97, 0x97]


def test_identifiers_that_do_not_follow_one_another_break_a_block_up() -> None:
    world = World()
    (member,) = workers(world, 1)
    world.session("worker-0").window.next_id = 65_534
    assert burst(world.connect("publisher"), 5, 1) == [0] * 5
    got = [packet for packet in member.received() if isinstance(packet, Publish)]
    assert [packet.payload for packet in got] == numbers(5)
    assert [packet.packet_id for packet in got] == [65_534, 65_535, 1, 2, 3]


def test_the_unacknowledged_rest_of_a_block_goes_to_another_member_when_the_session_ends() -> None:
    world = World()
    first, second = workers(world, 2)
    burst(world.connect("publisher"), 6, 1)
    assert (payloads(first), payloads(second)) == (numbers(6)[::2], numbers(6)[1::2])
    first.send(Ack(PUBACK, 1))
    first.lose()
    assert payloads(second) == [b"002", b"004"]


def test_a_part_of_a_run_that_is_kept_holds_no_memory_of_the_others() -> None:
    world = World()
    members = workers(world, 10)
    publisher = world.connect("publisher")
    burst(publisher, 50, 1)
    for member in members[1:]:
        member.send(*[Ack(PUBACK, packet_id) for packet_id in range(1, 6)])
    kept = world.session("worker-0").inflight
    assert len(kept) == 5
    gc.collect()
    batches = [each for each in gc.get_objects() if isinstance(each, PublishBatch) and each.topic == b"jobs/a"]
    assert [each.count for each in batches] == [5]


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
    world = World(Limits(max_inflight=1, max_queued_messages=1, min_drain_rate=0))
    members = workers(world, 2)
    codes = [world.publish("jobs/a", str(number), 1) for number in range(5)]
    assert codes == [0, 0, 0, 0, 0x97]
    assert sum(len(payloads(member)) for member in members) == 2


def test_a_member_whose_queue_is_full_is_passed_over_even_by_a_topic_that_is_its_own() -> None:
    limits = Limits(max_inflight=1, max_queued_messages=1, min_drain_rate=0)
    world = World(limits, share_policies={"*": HASH_TOPIC})
    workers(world, 2)
    assert [world.publish("jobs/a", str(number), 1) for number in range(5)] == [0, 0, 0, 0, 0x97]


def test_a_member_that_is_away_and_wants_qos_0_refuses_nobodys_message() -> None:
    world = World()
    (only,) = workers(world, 1, qos=0, expiry=100)
    only.lose()
    assert world.publish("jobs/a", "missed", 2) == 0
    assert world.session("worker-0").drops == {"qos0_offline": 1}


def test_unacknowledged_messages_of_a_member_go_to_another_when_its_session_ends() -> None:
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


def test_redistributed_messages_keep_their_order() -> None:
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
    routes = Routes(sessions, 1000, {}, permissions(), Effects())
    assert routes.share(b"$share/a/b") is None


def sessions_of(count: int) -> list[Session]:
    """Sessions that are connected and have nothing to do."""
    next_at, limits = Effects(), Limits(max_inflight=1)
    sessions = [Session(f"s{number}", 100, next_at, limits) for number in range(count)]
    for number, session in enumerate(sessions):
        session.attach(Outbox(number, next_at, limits), 10)
    return sessions


def share_of(sessions: list[Session], policy: str) -> SharedSubscription:
    share = SharedSubscription(b"$share/g/t", policy, Effects(), permissions())
    for session in sessions:
        share.add(session, Subscription(session.client_id, share.name, 1))
    return share


def send_to(share: SharedSubscription, topic: bytes) -> str:
    """Whom a message goes to first."""
    return share.members.first(Message(topic, b"")).session.client_id


@pytest.mark.parametrize("leaving", range(5))
@pytest.mark.parametrize("had", range(6))
def test_in_one_round_everybody_has_one_turn_even_if_somebody_leaves_and_another_comes(had: int, leaving: int) -> None:
    sessions = sessions_of(6)
    share = share_of(sessions[:5], ROUND_ROBIN)
    round_ = [send_to(share, b"t") for _ in range(had)]
    share.remove(Subscription(f"s{leaving}", share.name, 1))
    share.add(sessions[5], Subscription("s5", share.name, 1))
    remaining = {"s0", "s1", "s2", "s3", "s4", "s5"} - {f"s{leaving}"} - set(round_)
    assert {send_to(share, b"t") for _ in remaining} == remaining
    assert len({send_to(share, b"t") for _ in range(5)}) == 5


def test_a_slow_member_is_passed_over_once_and_not_by_each_message() -> None:
    sessions = sessions_of(200)
    share = share_of(sessions, ROUND_ROBIN)
    for session in sessions[1:]:
        assert session.outbox is not None
        session.outbox.block()
    assert {send_to(share, b"t") for _ in range(2)} == {"s0"}
    assert [len(ring.members) for ring in share.members.rings] == [1, 199, 0]
    assert all(session.watchers for session in sessions[1:])
    for session in sessions[1:]:
        assert session.outbox is not None
        session.outbox.unblock()
        session.fill()
        assert not session.watchers
    assert len({send_to(share, b"t") for _ in range(200)}) == 200


def test_a_member_that_left_a_group_that_passed_it_over_is_not_called_back() -> None:
    sessions = sessions_of(2)
    share = share_of(sessions, ROUND_ROBIN)
    sessions[0].detach()
    assert send_to(share, b"t") == "s1"
    share.remove(Subscription("s0", share.name, 1))
    assert not sessions[0].watchers
    share.add(sessions[0], Subscription("s0", share.name, 1))
    assert send_to(share, b"t") == send_to(share, b"t") == "s1"
    sessions[0].attach(Outbox(7, Effects(), Limits()), 10)
    share.remove(Subscription("s0", share.name, 1))
    assert send_to(share, b"t") == "s1"
    again = Session("s0", 0, Effects(), Limits())
    share.add(again, Subscription("s0", share.name, 1))
    assert send_to(share, b"t") == "s1"


def test_no_member_is_dealt_two_messages_of_a_run_while_others_turn_out_to_be_away() -> None:
    for away in itertools.product([False, True], repeat=4):
        for before in range(4):
            sessions = sessions_of(4)
            share = share_of(sessions, ROUND_ROBIN)
            for _ in range(before):
                send_to(share, b"t")
            for session, is_away in zip(sessions, away, strict=True):
                if is_away:
                    session.detach()
            dispatched = [member.session.client_id for member in share.members.dispatch_many(10)]
            here = {session.client_id for session in sessions if session.outbox is not None}
            assert len(set(dispatched)) == len(dispatched) >= 1
            assert set(dispatched) <= (here or set(dispatched))
            settled = [member.session.client_id for member in share.members.dispatch_many(10)]
            assert sorted(settled) == sorted(here or {session.client_id for session in sessions})
            assert len(share.members.dispatch_many(2)) == min(2, len(settled))


@given(st.integers(1, 5), st.lists(st.integers(1, 12), max_size=12))
def test_runs_of_any_length_go_on_where_the_one_before_ended(count: int, runs: list[int]) -> None:
    share = share_of(sessions_of(count), ROUND_ROBIN)
    sent: list[str] = []
    for messages in runs:
        dispatched = [member.session.client_id for member in share.members.dispatch_many(messages)]
        sent += [dispatched[number % len(dispatched)] for number in range(messages)]
    assert sent == [f"s{number % count}" for number in range(len(sent))]


@pytest.mark.parametrize("policy", [HASH_TOPIC, HASH_KEY])
def test_a_key_keeps_its_member_while_others_come_back_and_go(policy: str) -> None:
    sessions = sessions_of(50)
    share = share_of(sessions, policy)
    topics = [b"t/%d" % number for number in range(300)]
    before = {topic: send_to(share, topic) for topic in topics}
    for session in sessions[:25]:
        session.detach()
    meanwhile = {topic: send_to(share, topic) for topic in topics}
    here = {session.client_id for session in sessions[25:]}
    assert set(meanwhile.values()) <= here
    assert all(meanwhile[topic] == before[topic] for topic in topics if before[topic] in here)
    moved = [meanwhile[topic] for topic in topics if before[topic] not in here]
    assert len(set(moved)) > 12  # and not all to the same
    for session in sessions[:25]:
        session.attach(Outbox(0, Effects(), Limits()), 10)
    assert {topic: send_to(share, topic) for topic in topics} == before


@pytest.mark.parametrize("here", [0, 1, 98, 99])
def test_a_key_finds_the_only_member_that_is_connected(here: int) -> None:
    sessions = sessions_of(100)
    share = share_of(sessions, HASH_TOPIC)
    for number, session in enumerate(sessions):
        if number != here:
            session.detach()
    assert {send_to(share, b"t/%d" % number) for number in range(50)} == {f"s{here}"}
    sessions[here].detach()
    assert len({send_to(share, b"t/%d" % number) for number in range(50)}) > 10


def test_acknowledging_on_a_new_connection_makes_the_client_ready_again() -> None:
    next_at, limits = Effects(), Limits()
    session, other = Session("s0", 100, next_at, limits), sessions_of(2)[1]
    session.attach(Outbox(0, next_at, limits), 2)
    share = share_of([session, other], ROUND_ROBIN)
    for _ in range(2):
        session.deliver(Delivery(Message(b"x", b"x"), 1, False))
    session.detach()
    session.attach(Outbox(1, next_at, limits), 1)
    session.resume()  # one is sent again, the other waits for its answer
    assert {send_to(share, b"t") for _ in range(3)} == {"s1"}
    Acknowledgements(next_at).on_puback(session, 2, 0)
    assert {send_to(share, b"t") for _ in range(2)} == {"s0", "s1"}


def test_the_least_busy_is_found_behind_the_busy() -> None:
    sessions = sessions_of(4)
    for session, busy in zip(sessions, [3, 1, 2, 2], strict=True):
        assert session.outbox is not None
        session.attach(session.outbox, 10)
        for _ in range(busy):
            session.deliver(Delivery(Message(b"x", b"x"), 1, False))
    share = share_of(sessions, LEAST_INFLIGHT)
    assert [send_to(share, b"t") for _ in range(3)] == ["s1"] * 3


def test_a_member_with_qos_0_takes_what_a_full_queue_does_not() -> None:
    world = World(Limits(max_inflight=1, max_queued_messages=0))
    full = world.connect("full", auto_ack=False)
    full.subscribe(JOBS, qos=1)
    other = world.connect("other")
    other.subscribe(JOBS, qos=0)
    for number in range(4):
        assert world.publish("jobs/a", str(number), 1) == 0
    assert payloads(full) == [b"0"]
    assert payloads(other) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("policy", [ROUND_ROBIN, LEAST_INFLIGHT])
def test_the_slow_come_before_the_away_and_those_where_nobody_is_there(policy: str) -> None:
    sessions = sessions_of(4)
    share = share_of(sessions, policy)
    sessions[0].detach()
    for session in sessions[1:]:
        assert session.outbox is not None
        session.outbox.block()
    assert {send_to(share, b"t") for _ in range(9)} == {"s1", "s2", "s3"}
    sessions[2].detach()
    assert {send_to(share, b"t") for _ in range(9)} == {"s1", "s3"}
    first = share.members.first(Message(b"t", b""))
    assert [member.session.client_id for member in share.members.others(first)] == [
        "s3" if first.session is sessions[1] else "s1"
    ]
    for session in (sessions[1], sessions[3]):
        session.detach()
    assert {send_to(share, b"t") for _ in range(9)} == {"s0", "s1", "s2", "s3"}
    assert len(share.members.others(share.members.first(Message(b"t", b"")))) == 3


@pytest.mark.parametrize("policy", SHARE_POLICIES)
@pytest.mark.parametrize("members", [MEMBERS_ASKED, MEMBERS_ASKED + 1, MEMBERS_ASKED + 2, 3 * MEMBERS_ASKED])
def test_of_very_many_members_only_some_are_asked(policy: str, members: int) -> None:
    """Or else a message that nobody has room for would cost ten milliseconds in a group of five thousand."""
    sessions = sessions_of(members)
    share = share_of(sessions, policy)
    first = share.members.first(Message(b"t", b""))
    others = share.members.others(first)
    tracing = [at % members for at in range(first.at + 1, first.at + 1 + min(members - 1, MEMBERS_ASKED))]
    assert [member.at for member in others] == tracing


@pytest.mark.parametrize(("idle", "found"), [(MEMBERS_ASKED - 1, True), (MEMBERS_ASKED, False)])
def test_the_least_busy_is_looked_for_among_those_whose_turn_is_next(idle: int, found: bool) -> None:
    sessions = sessions_of(2 * MEMBERS_ASKED)
    for number, session in enumerate(sessions):
        if number != idle:
            session.deliver(Delivery(Message(b"x", b"x"), 1, False))
    assert send_to(share_of(sessions, LEAST_INFLIGHT), b"t") == (f"s{idle}" if found else "s0")


@pytest.mark.parametrize("away", [MEMBERS_ASKED - 1, MEMBERS_ASKED, 2 * MEMBERS_ASKED])
def test_however_many_turn_out_to_be_away_those_who_are_there_come_first(away: int) -> None:
    sessions = sessions_of(away + 2)
    share = share_of(sessions, LEAST_INFLIGHT)
    for session in sessions[:away]:
        session.detach()
    assert {send_to(share, b"t") for _ in range(4)} == {f"s{away}", f"s{away + 1}"}


def test_of_the_equally_busy_each_has_its_turn() -> None:
    share = share_of(sessions_of(5), LEAST_INFLIGHT)
    assert sorted(send_to(share, b"t") for _ in range(5)) == ["s0", "s1", "s2", "s3", "s4"]


_actions = st.tuples(
    st.sampled_from(["come", "lose", "block", "unblock", "deliver", "answer", "move"]), st.integers(0, 4)
)


@examples(60)
@given(st.sampled_from(SHARE_POLICIES), st.lists(_actions, max_size=40))
def test_the_client_that_is_always_first_stands_as_well_as_any_other(
    policy: str, actions: list[tuple[str, int]]
) -> None:
    """Ready, slow or away, as a look at every member would find it: no change of a session escapes its groups."""
    next_at, limits = Effects(), Limits(max_inflight=1)
    sessions = sessions_of(5)
    share = share_of(sessions, policy)

    def state(session: Session) -> tuple[int, int]:
        if session.outbox is None:
            at = 2
        elif policy in (HASH_TOPIC, HASH_KEY):
            at = 0
        else:
            at = 1 if session.outbox.blocked or session.queued else 0
        busy = len(session.inflight) + session.queued if policy == LEAST_INFLIGHT else 0
        return at, busy

    for number, (action, who) in enumerate(actions):
        session = sessions[who]
        outbox = session.outbox
        if action == "come" and outbox is None:
            session.attach(Outbox(number, next_at, limits), 10)
            session.resume()
        elif action == "move":
            share.remove(Subscription(session.client_id, share.name, 1))
            share.add(session, Subscription(session.client_id, share.name, 1))
        elif action == "deliver":
            session.deliver(Delivery(Message(b"x", b"x"), 1, False))
        elif outbox is not None and action == "lose":
            session.detach()
        elif outbox is not None and action == "block":
            outbox.block()
        elif outbox is not None and action == "unblock":
            outbox.unblock()
            session.fill()
        elif outbox is not None and action == "answer":
            for packet_id in [*session.inflight.by_id(), *session.window.resend][:1]:
                Acknowledgements(next_at).on_puback(session, packet_id, 0)
        best = min(state(each) for each in sessions)
        for topic in (b"t", b"u"):
            first = share.members.first(Message(topic, b""))
            assert state(first.session) == best
            others = [member.session for member in share.members.others(first)]
            assert {first.session.client_id, *(each.client_id for each in others)} == {
                each.client_id for each in sessions if best[0] == 2 or each.outbox is not None
            }
            if policy not in (HASH_TOPIC, HASH_KEY):
                assert [state(each) for each in others] == sorted(state(each) for each in others)
        dispatched = [member.session for member in share.members.dispatch_many(3)] if policy == ROUND_ROBIN else []
        assert all(state(each) == best for each in dispatched)


LEFT = 500
"""What others left of the budget."""
MANY = 5 * LEFT // 2


def iterations_to_prepare(share: SharedSubscription, effects: Effects, messages: int) -> int:
    iterations = 1
    effects.work = ITERATION_WORK - LEFT
    while not share.prepare(messages):
        assert ITERATION_WORK <= effects.work < ITERATION_WORK + 10
        effects.work = ITERATION_WORK - LEFT
        iterations += 1
    return iterations


@pytest.mark.reaches
@pytest.mark.long
@pytest.mark.parametrize("messages", [1, 100])
@pytest.mark.parametrize("policy", [ROUND_ROBIN, LEAST_INFLIGHT])
def test_members_that_have_changed_are_looked_at_in_several_iterations(policy: str, messages: int) -> None:
    effects = Effects()
    share = SharedSubscription(b"$share/g/t", policy, effects, permissions())
    sessions = [Session(f"c{number}", 100, effects, Limits()) for number in range(MANY)]
    for session in sessions:
        share.add(session, Subscription(session.client_id, b"$share/g/t", 1))
    assert iterations_to_prepare(share, effects, messages) == 3, "all are away"
    assert iterations_to_prepare(share, effects, messages) == 1
    for number, session in enumerate(sessions):
        session.attach(Outbox(number, effects, Limits()), 10)
    assert iterations_to_prepare(share, effects, messages) == 3, "all are back"
    effects.work = 0
    tally = Tally()
    share.accept(Message(b"t", b"x", 1), THE_PROGRAM, tally)
    assert tally.sent == 1
    assert effects.work <= MEMBERS_ASKED
    assert len(share) == MANY


def test_a_batch_is_charged_for_each_member_that_gets_a_part() -> None:
    for policy in (ROUND_ROBIN, HASH_TOPIC):
        world = World(share_policies={"*": policy})
        effects = world.broker.effects
        crowd = workers(world, 50)
        writer = world.connect("writer")
        end_iteration(effects)
        packets = b"".join(encode(Publish(b"jobs/a", b"%02d" % number), V5) for number in range(50))
        world.broker.feed(writer.connection, packets, world.now)
        assert effects.work >= 50 * DELIVERY_WORK
        world.settle()
        assert sum(len(payloads(member)) for member in crowd) == 50


def test_a_key_whose_members_are_all_away_is_charged_for_the_search() -> None:
    effects = Effects()
    share = SharedSubscription(b"$share/g/t", HASH_TOPIC, effects, permissions())
    sessions = [Session(f"c{number}", 100, effects, Limits()) for number in range(1_000)]
    for session in sessions:
        share.add(session, Subscription(session.client_id, b"$share/g/t", 0))
    assert share.prepare(1)
    share.members.first(Message(b"t", b"x", 0))
    assert effects.work == 1_000 // MEMBERS_PER_WORK_UNIT
    sessions[0].attach(Outbox(0, effects, Limits()), 10)
    assert share.members.first(Message(b"t", b"x", 0)).session is sessions[0]
    assert 1_000 // MEMBERS_PER_WORK_UNIT < effects.work < 2_000 // MEMBERS_PER_WORK_UNIT


@pytest.mark.parametrize("policy", SHARE_POLICIES)
@pytest.mark.parametrize("qos", [0, 1])
def test_a_group_whose_last_member_left_while_a_message_was_on_its_way_gets_nothing(qos: int, policy: str) -> None:
    world = World(share_policies={"*": policy})
    member = world.connect("member")
    member.subscribe("$share/g/t", qos=qos)
    writer = world.connect("writer")
    writer.publish("t", "first", qos, packet_id=1)
    end_iteration(world.broker.effects)
    world.broker.effects.work = ITERATION_WORK - 1
    packets = encode(Publish(b"t", b"x", qos, packet_id=2 * qos), V5)
    world.broker.feed(writer.connection, packets, world.now)
    assert len(world.broker.jobs) == 1
    end_iteration(world.broker.effects)
    world.broker.close(member.connection, world.now)
    world.settle()
    assert member.payloads() == ["first"]
    assert world.broker.router.drops.by_reason == {NO_SUBSCRIBERS: 1}
    if qos:
        assert writer.received()[-1] == Ack(PUBACK, 2, NO_MATCHING_SUBSCRIBERS)


@pytest.mark.parametrize("identifier", [0, 7])
@pytest.mark.parametrize("messages", [1, 2])
def test_a_message_that_is_too_large_for_a_connected_member_is_dropped_for_that_reason(
    identifier: int, messages: int
) -> None:
    world = World()
    member, publisher = world.connect("m", maximum_packet_size=40), world.connect("p")
    member.subscribe(JOBS, identifier=identifier)
    large = Publish(b"jobs/1", b"x" * 60, 0)
    publisher.send(*[large] * messages)
    assert payloads(member) == []
    assert world.session("m").outbox is not None
    assert world.session("m").outbox.drops == {"packet_too_large": messages}  # type: ignore[union-attr]


@pytest.mark.parametrize(("size", "reason"), [(None, "buffer_full"), (40, "packet_too_large")])
def test_the_tally_of_a_group_has_the_reason_of_its_member(size: int | None, reason: str) -> None:
    world = World(Limits(max_outbox_messages=1))
    member = world.connect("m", maximum_packet_size=size)
    member.subscribe(JOBS)
    if size is None:
        member.block()
        world.publish("jobs/1", "x")
    tally = world.broker.publish(b"jobs/1", b"x" * 60, 0, False, world.now, NONE).tally
    world.settle()
    assert tally.dropped == {reason: 1}


def test_the_blocks_of_a_group_keep_no_packets_beside_those_that_are_charged() -> None:
    world = World()
    member = world.connect("m", auto_ack=False)
    member.subscribe("$share/g/t", qos=1)
    publisher = world.connect("p", V311)
    publisher.send(*[Publish(b"t", bytes(1_000), 1, packet_id=publisher.packet_id()) for _ in range(8)])
    assert len(member.payloads()) == 8
    session = member.connection.session
    assert session is not None
    sent = session.inflight._first
    assert sent is not None
    assert isinstance(sent.run, PublishBatch)
    assert sent.run._forms is None
