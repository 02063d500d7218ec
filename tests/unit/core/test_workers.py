"""Several workers as one broker. What one says to another travels when the test says so: races can be played."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.core.broker import Broker
from mqttlite.core.capabilities import Capabilities
from mqttlite.core.connection import Peer
from mqttlite.core.forwards import Outcome
from mqttlite.core.limits import MAX_STAMPS, STAMPS_S, Limits
from mqttlite.core.shares import SHARE_POLICIES
from mqttlite.core.workers import Workers
from mqttlite.wire.constants import PUBACK, PUBCOMP, PUBREC, PUBREL, V5, V31, V311
from mqttlite.wire.decode import client_id_in
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    Will,
)
from mqttlite.wire.properties import NONE, Properties
from tests.support.core_crew import Crew, Worker
from tests.support.core_driver import START, Client, World, publishes, request
from tests.support.recorder import Everything

NOBODY = 0x10
REFUSED = 0x97


def acks(client: Client) -> list[tuple[int, int, int]]:
    """Type, identifier and reason code of the acknowledgements that came since the last call."""
    return [(ack.packet_type, ack.packet_id, ack.reason_code) for ack in client.received() if isinstance(ack, Ack)]


def retained(worker: Worker, topic: str) -> str | None:
    """What a new subscriber at a worker gets."""
    subscriber = worker.connect(worker.crew.name(worker.at))
    subscriber.subscribe(topic)
    payloads = subscriber.payloads()
    subscriber.disconnect()
    return payloads[0] if payloads else None


# ---------------------------------------------------------------------- CONNECT


@pytest.mark.parametrize("keeper", [0, 1])
@pytest.mark.parametrize("version", [V31, V311, V5])
def test_a_client_is_at_home_where_it_came_in(version: int, keeper: int) -> None:
    crew = Crew(2)
    client = crew[0].open(version)
    name = crew.name(keeper)
    connack = client.connect(name)
    crew.pump()
    assert client.world is crew[0]
    assert isinstance(connack or client.received()[0], Connack)
    assert crew.home(name) == [0]
    client.disconnect()
    crew.pump()
    assert crew.home(name) == [], "nothing is left of it"


@pytest.mark.parametrize("keeper", [0, 1, 2])
def test_a_connection_goes_on_where_its_session_is(keeper: int) -> None:
    crew = Crew(3)
    name = crew.resident(1, keeper)
    client = crew[0].open()
    client.connect(name, clean_start=False, expiry=600)
    crew.pump()
    assert client.world is crew[1]
    connack = client.received()[0]
    assert isinstance(connack, Connack)
    assert connack.session_present
    assert (crew[0].broker.opened, crew[1].broker.opened) == (0, 2)
    assert not crew[0].broker.connections
    crew.advance(60)
    assert not client.closed, "nobody waits for its CONNECT any more"
    client.disconnect()
    crew.advance(601)
    crew.pump()
    assert crew.home(name) == []


def test_what_came_behind_connect_goes_with_it_and_nothing_more_is_looked_at() -> None:
    crew = Crew(2)
    packets = [
        Connect(crew.resident(1), V5),
        Subscribe(1, (SubscriptionRequest(b"t", 1),)),
        Publish(b"t", b"mine", 1, packet_id=2),
    ]
    client = crew[0].open()
    whole = b"".join([encode(packet, V5) for packet in packets])
    client.send_bytes(whole[:-3])
    client.send_bytes(whole[-3:])  # the link is to read nothing more, and if it does nothing comes of it
    assert crew.move(0) == 1
    client.send_bytes(whole[-3:])
    kinds = [type(packet) for packet in client.received()]
    assert kinds == [Connack, Suback, Publish, Ack]


@pytest.mark.parametrize("keeper", [0, 1])
def test_what_comes_while_the_keeper_is_asked_waits_in_order(keeper: int) -> None:
    crew = Crew(2)
    client = crew[1 - keeper].open()
    packets = [Connect(crew.name(keeper), V5), Pingreq(), Publish(b"t", b"", 1, packet_id=7)]
    for packet in packets:
        for byte in encode(packet, V5):
            client.send_bytes(bytes((byte,)))
    assert client.received() == []
    crew.pump()
    assert [type(packet) for packet in client.received()] == [Connack, Pingresp, Ack]


def test_who_says_too_much_while_the_keeper_is_asked_is_refused() -> None:
    crew = Crew(2, Limits(max_packet_bytes=200))
    client = crew[0].open()
    client.send_bytes(encode(Connect(crew.name(1), V5), V5))
    for _ in range(3):
        client.send_bytes(bytes(150))
    assert client.closed
    assert isinstance(connack := client.received()[0], Connack)
    assert connack.reason_code == 0x97
    crew.pump()
    assert crew.home("client1") == []


def test_who_leaves_while_the_keeper_is_asked_is_at_home_nowhere() -> None:
    crew = Crew(2)
    name = crew.name(1)
    client = crew[0].open()
    client.connect(name)
    crew.send(0)
    client.lose()
    crew.pump()
    assert crew.home(name) == []


def test_two_at_once_for_one_identifier_become_one_client() -> None:
    crew = Crew(3)
    name = crew.name(2)
    first, second = crew[0].open(), crew[1].open()
    for client in (first, second):
        client.connect(name, clean_start=False, expiry=60)
    third = crew[0].open()
    third.connect(name, clean_start=False, expiry=60)
    crew.pump()
    assert crew.home(name) == [0]
    assert sorted([first.closed, second.closed, third.closed]) == [False, True, True]
    assert {first.world, second.world, third.world} == {crew[0]}


def test_a_session_that_ends_while_a_connection_is_on_its_way_to_it_begins_anew() -> None:
    crew = Crew(2)
    name = crew.resident(1, 0)
    client = crew[0].open()
    client.connect(name, clean_start=False, expiry=60)
    crew.advance(601)
    crew.pump()
    connack = client.received()[0]
    assert isinstance(connack, Connack)
    assert not connack.session_present
    assert len(crew.home(name)) == 1


def test_a_session_from_a_store_is_at_home_where_it_was() -> None:
    crew = Crew(2)
    stored = [crew.resident(1, 0), crew.resident(1, 1)]
    again = Crew(2)
    again[1].broker.restore(crew[1].store.load(), again[1].now)
    again.pump()
    for name in stored:
        assert again.home(name) == [1]
        client = again[0].open()
        client.connect(name, clean_start=False, expiry=60)
        again.pump()
        assert client.world is again[1]


def test_connect_may_come_in_any_pieces() -> None:
    crew = Crew(2)
    connect = encode(Connect(crew.resident(1), V5, properties=Properties(session_expiry_interval=60)), V5)
    for cut in range(1, len(connect)):
        client = crew[0].open()
        client.send_bytes(connect[:cut])
        assert crew.move(0) == 0
        client.send_bytes(connect[cut:])
        assert crew.move(0) == 1
        assert isinstance(client.received()[0], Connack)


@pytest.mark.parametrize("at", [0, 1])
def test_a_malformed_connect_is_refused_wherever_its_client_may_be_at_home(at: int) -> None:
    crew = Crew(2)
    client = crew[at].open()
    name = crew.name(1)
    connect = bytearray(encode(Connect(name, V5), V5))
    connect[9] |= 1  # the reserved flag
    client.send_bytes(bytes(connect))
    crew.pump()
    assert client.closed
    assert isinstance(connack := client.received()[0], Connack)
    assert connack.reason_code == 0x81
    assert sum(worker.broker.opened for worker in crew.workers) == 1
    assert crew.home(name) == []


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(
    "packet",
    [
        "100d 0004 4d515454 ff 02 0000 0001 31",
        "1000",
        "1001 00",
        "1003 000031",
        "1007 ffff 4d515454 05",
        "100b 0004 4d515454 05 02 0000 ff",
        "100f 0004 4d515454 05 02 0000 ffffffffff",
        "100d 0004 4d515454 05 02 0000 00 ffff",
        "100c 0004 4d515454 04 02 0000 ffff",
        "100d 0004 4d515454 04 02 0000 0001 ff",
    ],
)
def test_what_is_no_connect_at_all_is_refused(at: int, packet: str) -> None:
    crew = Crew(2)
    client = crew[at].open(V5 if " 05 02 " in packet else V311)
    data = bytes.fromhex(packet)
    client.send_bytes(bytes((data[0], len(data) - 2)) + data[2:])
    crew.pump()
    assert client.closed


@given(
    client_id=st.text(st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cs"]), max_size=300),
    version=st.sampled_from([V31, V311, V5]),
    name=st.text("abc", max_size=200),
    will=st.sampled_from([None, Will(b"will", b"gone", 1, False)]),
    username=st.sampled_from([None, "user"]),
    cut=st.integers(0, 2_000),
)
def test_the_home_is_that_of_the_client_identifier_that_is_decoded_later(
    client_id: str, version: int, name: str, will: Will | None, username: str | None, cut: int
) -> None:
    properties = Properties(user_properties=[("name", name)]) if version == V5 and name else NONE
    packet = encode(Connect(client_id, version, True, 10, username, None, will, properties), version)
    body = packet[3 if packet[1] > 127 else 2 :]
    assert client_id_in(body) == client_id.encode()
    assert client_id_in(body[:cut]) in (b"", client_id.encode()), "what is cut off is not guessed"


def test_who_is_silent_at_the_wrong_worker_is_closed_in_time() -> None:
    crew = Crew(2)
    client = crew[0].open()
    client.send_bytes(encode(Connect(crew.name(1), V5), V5)[:-1])
    crew.advance(11)
    assert client.closed
    assert crew.move(0) == 0


def test_an_identifier_that_is_assigned_is_at_home_where_it_is() -> None:
    crew = Crew(3)
    seen = set()
    for at in range(3):
        for _ in range(10):
            client = crew[at].connect("")
            name = client.connection.client_id
            assert crew.keeper(name) == at
            assert crew.home(name) == [at]
            seen.add(name)
            assert crew.move(at) == 0
    assert len(seen) == 30


def test_an_identifier_that_is_assigned_is_nobody_else_s() -> None:
    crew = Crew(2)
    taken = crew[0].connect("").connection
    squatted = f"auto0-{taken.number + 2 * 2}"
    squatter = crew[1].open()
    squatter.connect(squatted)
    crew.pump()
    names = {crew[0].connect("").connection.client_id for _ in range(4)}
    assert len(names) == 4
    assert squatted not in names


def test_numbers_of_connections_are_no_other_worker_s() -> None:
    crew = Crew(3)
    numbers = [crew[at].open().connection.number for at in (0, 1, 2, 0, 1, 2)]
    assert len(set(numbers)) == 6


def test_a_takeover_happens_at_home_wherever_the_second_connection_came_in() -> None:
    crew = Crew(2)
    name = crew.name(1)
    first = crew.connect(1, client_id=name, expiry=60)
    first.subscribe("t", qos=1)
    second = crew[0].open()
    second.connect(name, clean_start=False, expiry=60)
    crew.pump()
    connack = second.received()[0]
    assert isinstance(connack, Connack)
    assert connack.session_present
    assert first.closed
    assert isinstance(goodbye := first.received()[-1], Disconnect)
    assert goodbye.reason_code == 0x8E
    publisher = crew.connect(0)
    publisher.publish("t", "on", 1)
    crew.pump()
    assert second.payloads() == ["on"]


# ---------------------------------------------------------------------- interests


def test_the_first_and_the_last_subscription_of_a_filter_are_told() -> None:
    crew = Crew(2)
    one, other = crew.connect(1), crew.connect(1)
    turn = crew[1].broker.turn
    one.subscribe("t")
    assert [(each.topic_filter, each.members) for each in turn.interests] == [(b"t", 1)]
    crew.tell(1)
    other.subscribe("t")
    one.subscribe("t", qos=1)  # in the place of the first
    assert not turn.interests
    one.send(Unsubscribe(9, (b"t",)))
    assert not turn.interests
    other.disconnect()
    assert [(each.topic_filter, each.members) for each in turn.interests] == [(b"t", 0)]


def test_a_suback_waits_until_the_others_know_also_of_what_is_being_told_already() -> None:
    crew = Crew(2)
    subscribe = encode(Subscribe(1, (SubscriptionRequest(b"t", 0),)), V5)
    for _ in range(2):
        client = crew[0].connect(crew.name(0))
        crew[0].broker.feed(client.connection, subscribe, START)
        assert client.connection.outbox.awaits_commit, "only the shell knows what others have yet to note"
        client.world.settle()
        crew.tell(0)  # on its way: nobody knows whether it has been noted


def test_a_message_for_a_session_that_just_ended_is_nobody_s() -> None:
    crew = Crew(2)
    subscriber, publisher = crew.subscriber(1, "t"), crew.connect(0)
    publisher.publish("t", "late", 1)
    subscriber.disconnect()
    crew.pump()
    assert acks(publisher) == [(PUBACK, 1, 0)]
    publisher.publish("t", "later", 1)
    crew.pump()
    assert acks(publisher) == [(PUBACK, 2, NOBODY)]


def test_a_message_before_the_interest_reaches_nobody_and_says_so() -> None:
    crew = Crew(2)
    subscriber, publisher = crew.connect(1), crew.connect(0)
    subscriber.subscribe("t")
    publisher.publish("t", "early", 1)
    assert acks(publisher) == [(PUBACK, 1, NOBODY)]
    crew.pump()
    publisher.publish("t", "in time", 1)
    crew.pump()
    assert acks(publisher) == [(PUBACK, 2, 0)]
    assert subscriber.payloads() == ["in time"]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [V311, V5])
def test_overlapping_filters_of_two_workers_reach_each_subscriber_once(qos: int, version: int) -> None:
    crew = Crew(3)
    subscribers = [crew.subscriber(at, "a/+", "#", "a/b", qos=2, version=V5) for at in range(3)]
    publisher = crew.connect(0, version)
    for payload in "123":
        publisher.publish("a/b", payload, qos)
    crew.pump()
    assert [subscriber.payloads() for subscriber in subscribers] == [["1", "2", "3"]] * 3


def test_a_topic_of_any_length_travels_as_it_came() -> None:
    crew = Crew(2)
    subscriber, publisher = crew.subscriber(1, "#"), crew.connect(0)
    for length in (1, 100, 120, 130, 16_300, 16_400, 65_535):
        publisher.send(*[Publish(b"t" * length, b"x", qos, packet_id=qos and length) for qos in (0, 1)])
        crew.pump()
        assert [len(topic) for topic, _payload in subscriber.messages()] == [length] * 2


def test_a_no_local_subscription_keeps_its_own_messages_away_and_lets_others_in() -> None:
    crew = Crew(2)
    client, other = crew.connect(1), crew.connect(0)
    client.subscribe(request("t", 1, no_local=True))
    crew.pump()
    client.publish("t", "own", 1)
    other.publish("t", "other's", 1)
    other.publish("t", "plain", 0)
    crew.pump()
    assert client.payloads() == ["other's", "plain"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_subscription_identifiers_come_from_home(qos: int) -> None:
    crew = Crew(2)
    subscriber, publisher = crew.connect(1), crew.connect(0)
    subscriber.subscribe("t", qos=2, identifier=7)
    subscriber.subscribe("+", qos=2, identifier=9)
    crew.pump()
    publisher.send(*[Publish(b"t", b"x", qos, packet_id=qos and at + 1) for at in range(3)])
    crew.pump()
    got = publishes(subscriber.received())
    assert [sorted(publish.properties.subscription_identifiers or []) for publish in got] == [[7, 9]] * 3


def test_a_will_reaches_subscribers_of_other_workers_and_is_retained_there() -> None:
    crew = Crew(3)
    subscribers = [crew.subscriber(at, "will") for at in range(3)]
    client = crew.connect(1, will=Will(b"will", b"gone", 1, True))
    client.lose()
    crew.pump()
    assert [subscriber.payloads() for subscriber in subscribers] == [["gone"]] * 3
    assert [retained(crew[at], "will") for at in range(3)] == ["gone"] * 3


def test_a_forwarded_message_expires_as_it_would_have_here() -> None:
    crew = Crew(2)
    subscriber = crew.subscriber(1, "t", clean_start=False, expiry=1_000)
    name = subscriber.connection.client_id
    subscriber.lose()
    publisher = crew.connect(0)
    for payload, expiry in ((b"short", 10), (b"long", 100)):
        publisher.send(Publish(b"t", payload, 1, packet_id=1, properties=Properties(message_expiry_interval=expiry)))
    crew.advance(5)
    crew.pump()
    crew.advance(6)
    got = publishes(crew.connect(1, client_id=name, clean_start=False, expiry=1_000).received())
    assert [(publish.payload, publish.properties.message_expiry_interval) for publish in got] == [(b"long", 89)]


@pytest.mark.parametrize("topic", ["plain", "$share/group/plain"])
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("messages", [1, 3])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_expires_on_its_way_to_another_worker_is_dropped(
    qos: int, messages: int, retain: bool, topic: str
) -> None:
    crew = Crew(2)
    subscriber = crew.subscriber(1, topic, qos=2)
    publisher = crew.connect(0, auto_ack=False)
    for seconds, delivered in ((1, 0), (6, messages), (0, messages)):  # 0: for those who get it at once
        expiry = Properties(message_expiry_interval=seconds)
        packets = [
            Publish(b"plain", b"x", qos, retain, packet_id=at + 1 if qos else 0, properties=expiry)
            for at in range(messages)
        ]
        dropped = crew[1].broker.publisher.drops.get("expired", 0)
        publisher.send(*packets)
        crew.advance(2)
        crew.pump()
        assert len(subscriber.payloads()) == delivered
        assert crew[1].broker.publisher.drops.get("expired", 0) - dropped == messages - delivered
        first = PUBACK if qos == 1 else PUBREC
        assert [each[:2] for each in acks(publisher)] == [(first, at + 1) for at in range(messages if qos else 0)]
        if qos == 2:
            publisher.send(*[Ack(PUBREL, at + 1) for at in range(messages)])
            assert len(acks(publisher)) == messages


@pytest.mark.parametrize("count", [2, 3])
def test_what_was_left_by_a_member_of_a_group_finds_one_where_it_came_from(count: int) -> None:
    """Two leave at once, and each worker believes that the other still has a member."""
    crew = Crew(count)
    leaving = [crew.subscriber(at, "$share/g/t", qos=1, auto_ack=False) for at in (0, 1)]
    staying = crew.subscriber(1, "$share/g/t", qos=1)
    publisher = crew.connect(0)
    for at in range(12):
        publisher.publish("t", str(at), 1)
        crew.pump()
    for client in leaving:
        client.disconnect()
    crew.pump()
    assert sorted(staying.payloads(), key=int) == [str(at) for at in range(12)]
    assert not any(crew[at].broker.publisher.drops for at in range(count))


@pytest.mark.parametrize("count", [2, 3])
def test_what_no_member_is_left_for_is_not_sent_to_and_fro(count: int) -> None:
    """Each worker believes that others still have members, for as long as nobody is told that they have none."""
    crew = Crew(count)
    members = [crew.subscriber(at, "$share/g/t") for at in range(count)]
    publisher = crew.connect(0)
    for member in members:
        member.disconnect()
    for at in range(6):
        publisher.publish("t", str(at))
    sent = [sum(crew.send(at) for at in range(count)) for _ in range(2 * count)]
    assert sum(sent) <= 6 * count
    assert sent[-1] == 0
    assert sum(crew[at].broker.publisher.drops.get("no_subscribers", 0) for at in range(count)) == 6


# ---------------------------------------------------------------------- what is retained


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(("one", "other"), [("0", "1"), ("0", ""), ("", "1")])
def test_of_two_retained_at_once_the_same_wins_everywhere(first: int, one: str, other: str) -> None:
    crew = Crew(3)
    publishers = [crew.connect(0), crew.connect(1)]
    publishers[0].publish("t", "before", retain=True)
    crew.pump()
    publishers[0].publish("t", one, retain=True)
    publishers[1].publish("t", other, retain=True)
    crew.send(first)
    crew.send(1 - first)
    crew.pump()
    assert [retained(crew[at], "t") for at in range(3)] == [other or None] * 3, "the clocks say the same: the last"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_later_retained_wins_in_whatever_order_they_arrive(order: tuple[int, int]) -> None:
    crew = Crew(3)
    publishers = [crew.connect(0), crew.connect(1)]
    publishers[1].publish("t", "early", retain=True)
    for worker in crew.workers:
        worker.now += 1
    publishers[0].publish("t", "late", retain=True)
    for at in order:
        crew.send(at)
    crew.pump()
    assert [retained(crew[at], "t") for at in range(3)] == ["late"] * 3


def test_many_retained_in_one_moment_keep_their_order() -> None:
    crew = Crew(2)
    publisher, other = crew.connect(0), crew.connect(1)
    for payload in ("1", "2", "", "3"):
        publisher.publish("t", payload, retain=True)
    other.publish("t", "other's first", retain=True)
    crew.pump()
    assert [retained(crew[at], "t") for at in range(2)] == ["3", "3"]


def test_a_retained_message_is_a_new_one_to_those_who_subscribe_already() -> None:
    crew = Crew(2)
    publisher, subscriber = crew.connect(0), crew.connect(1)
    subscriber.subscribe("t", qos=1)  # of which the other worker has not heard
    publisher.publish("t", "x", 1, retain=True)
    crew.send(0)
    (publish,) = publishes(subscriber.received())
    assert not publish.retain
    crew.pump()
    assert acks(publisher) == [(PUBACK, 1, NOBODY)], "nobody here, and nobody heard of"


def test_a_stamp_is_forgotten_in_time() -> None:
    workers = Workers(0, 2, World().broker.turn)
    assert workers.is_latest(b"old", 1_000.0, 0)
    assert workers.is_latest(b"renewed", 1_000.0, 0)
    assert workers.is_latest(b"renewed", 1_050.0, 0)
    assert not workers.is_latest(b"renewed", 1_040.0, 1)
    assert workers.is_latest(b"other", 1_001.0 + STAMPS_S, 0)
    assert not workers.is_latest(b"renewed", 1_040.0, 1)
    assert workers.is_latest(b"old", 999.0, 0), "by now everybody has heard of it"
    assert workers.is_latest(b"last", 2_000.0, 0)
    assert workers.is_latest(b"renewed", 1_040.0, 1)


def test_stamps_of_many_topics_and_of_one_topic_often_do_not_pile_up() -> None:
    workers = Workers(0, 2, World().broker.turn)
    for _ in range(1_000):
        workers.stamp(b"same")
    assert workers.stamps == 1
    for number in range(MAX_STAMPS + 10):
        workers.stamp(b"%d" % number)
    assert workers.stamps == MAX_STAMPS


def test_what_there_is_no_room_for_is_retained_nowhere() -> None:
    crew = Crew(2, Limits(max_retained_bytes=100))
    publisher, subscriber = crew.connect(0), crew.subscriber(1, "t")
    publisher.publish("t", "small", 1, retain=True)
    crew.pump()
    publisher.publish("t", "x" * 200, 1, retain=True)
    crew.pump()
    assert acks(publisher) == [(PUBACK, 1, 0), (PUBACK, 2, REFUSED)]
    assert [len(payload) for payload in subscriber.payloads()] == [5, 200]
    assert [retained(crew[at], "t") for at in range(2)] == [None, None], "the earlier one made room for it"


def test_what_the_broker_retains_of_its_own_is_seen_at_every_worker() -> None:
    crew = Crew(2)
    subscriber = crew.subscriber(1, "$SYS/#")
    crew[0].publish("$SYS/broker/x", "1", retain=True)
    crew.pump()
    assert subscriber.payloads() == ["1"]
    assert retained(crew[1], "$SYS/broker/x") == "1"
    assert crew[1].broker.publisher.own_retained == 1
    assert not crew[1].changes, "it is not worth a place in the store"
    crew[0].publish("$SYS/broker/x", "", retain=True)
    crew.pump()
    assert retained(crew[1], "$SYS/broker/x") is None


def test_what_is_said_of_the_broker_s_own_is_for_those_who_listen_elsewhere() -> None:
    crew = Crew(2)
    assert not crew[0].broker.has_subscribers(b"$SYS/broker/clients/x/connected")
    subscriber = crew.subscriber(1, "$SYS/broker/clients/+/connected")
    assert crew[0].broker.has_subscribers(b"$SYS/broker/clients/x/connected")
    assert crew[0].publish("$SYS/broker/clients/x/connected", "{}") == 0
    crew.pump()
    assert subscriber.payloads() == ["{}"]


# ---------------------------------------------------------------------- acknowledgements


FULL = Limits(max_queued_messages=1, max_inflight=1)


def full(crew: Crew, home: int, topic: str, version: int = V5) -> Client:
    """A subscriber that has no room: one message in flight, one waiting."""
    subscriber = crew.subscriber(home, topic, qos=2, version=version, auto_ack=False)
    filler = crew.connect(home)
    for _ in range(2):
        filler.publish(topic, "fill", 2)
    crew.pump()
    filler.disconnect()
    subscriber.received()
    return subscriber


@pytest.mark.parametrize("qos", [1, 2])
def test_refused_elsewhere_is_told_to_the_publisher_and_its_identifier_is_free(qos: int) -> None:
    crew = Crew(2, FULL)
    full(crew, 1, "t")
    publisher = crew.connect(0, auto_ack=False)
    packet_id = publisher.publish("t", "x", qos)
    assert acks(publisher) == []
    assert crew[0].broker.postponed == 1
    crew.pump()
    assert acks(publisher) == [(PUBACK if qos == 1 else PUBREC, packet_id, REFUSED)]
    assert crew[0].broker.postponed == 0
    if qos == 2:
        assert not crew[0].session(publisher.connection.client_id).received.has(packet_id)
        publisher.send(Ack(PUBREL, packet_id))
        assert acks(publisher) == [(PUBCOMP, packet_id, 0x92)]


@pytest.mark.parametrize("qos", [1, 2])
def test_an_older_publisher_just_gets_its_acknowledgement(qos: int) -> None:
    crew = Crew(2, FULL)
    full(crew, 1, "t")
    publisher = crew.connect(0, V311, auto_ack=False)
    publisher.publish("t", "x", qos)
    crew.pump()
    assert acks(publisher) == [(PUBACK if qos == 1 else PUBREC, 1, 0)]
    if qos == 2:
        publisher.send(Ack(PUBREL, 1))
        assert acks(publisher) == [(PUBCOMP, 1, 0)]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("ids", [(1, 2, 3, 4), (9, 4, 7, 2)])
def test_of_a_run_those_are_refused_for_which_there_is_no_room(qos: int, ids: tuple[int, ...]) -> None:
    crew = Crew(3, Limits(max_queued_messages=1, max_inflight=1))
    subscribers = [crew.subscriber(at, "t", qos=2, auto_ack=False) for at in (1, 2)]
    publisher = crew.connect(0, auto_ack=False)
    publisher.send(*[Publish(b"t", b"%d" % packet_id, qos, packet_id=packet_id) for packet_id in ids])
    assert len(crew.gather(0)) == 1 or (qos == 2 and ids[0] == 9), "they travel together"
    assert acks(publisher) == []
    crew.send(0)
    crew.send(2)
    assert acks(publisher) == [], "one of them has not told"
    crew.send(1)
    answer = PUBACK if qos == 1 else PUBREC
    codes = [0, 0, REFUSED, REFUSED]
    assert acks(publisher) == [(answer, packet_id, code) for packet_id, code in zip(ids, codes, strict=True)]
    received = crew[0].session(publisher.connection.client_id).received
    assert [received.has(packet_id) for packet_id in ids] == ([True, True, False, False] if qos == 2 else [False] * 4)
    assert [subscriber.payloads() for subscriber in subscribers] == [[str(ids[0])]] * 2


def test_a_refusal_here_and_there_of_the_same_run_is_one() -> None:
    crew = Crew(2, FULL)
    full(crew, 1, "t")
    full(crew, 0, "t")
    crew.connect(0).publish("u")
    publisher = crew.connect(0, auto_ack=False)
    publisher.send(*[Publish(b"t", b"x", 2, packet_id=packet_id) for packet_id in (1, 2)])
    crew.pump()
    assert acks(publisher) == [(PUBREC, 1, REFUSED), (PUBREC, 2, REFUSED)]


def test_a_run_of_an_older_publisher_is_acknowledged_whatever_became_of_it() -> None:
    crew = Crew(2, FULL)
    full(crew, 1, "t")
    publisher = crew.connect(0, V311, auto_ack=False)
    publisher.send(*[Publish(b"t", b"x", 2, packet_id=packet_id) for packet_id in (1, 2)])
    crew.pump()
    assert acks(publisher) == [(PUBREC, 1, 0), (PUBREC, 2, 0)]
    assert len(crew[0].session(publisher.connection.client_id).received) == 2


def test_acknowledgements_keep_their_order_while_an_earlier_one_waits() -> None:
    crew = Crew(3)
    for at in (1, 2):
        crew.subscriber(at, f"at/{at}")
    crew.subscriber(0, "here")
    publisher = crew.connect(0, auto_ack=False)
    topics = ["at/1", "here", "at/2", "nobody", "at/1"]
    for topic in topics:
        publisher.publish(topic, "x", 1)
    publisher.send(Pingreq())
    assert [type(packet) for packet in publisher.received()] == [Pingresp], "of what waits nothing else has to wait"
    crew.send(0, to=2)
    crew.send(2)
    assert acks(publisher) == []
    crew.send(0, to=1)
    assert acks(publisher) == []
    crew.send(1)
    assert acks(publisher) == [(PUBACK, at + 1, NOBODY if topic == "nobody" else 0) for at, topic in enumerate(topics)]
    publisher.publish("here", "x", 1)
    assert acks(publisher) == [(PUBACK, 6, 0)]


def test_a_run_behind_one_that_waits_waits_its_turn() -> None:
    crew = Crew(2)
    crew.subscriber(1, "there")
    publisher = crew.connect(0, auto_ack=False)
    publisher.publish("there", "x", 1)
    publisher.send(*[Publish(b"nobody", b"x", 1, packet_id=packet_id) for packet_id in (5, 6)])
    assert acks(publisher) == []
    crew.pump()
    assert acks(publisher) == [(PUBACK, 1, 0), (PUBACK, 5, NOBODY), (PUBACK, 6, NOBODY)]


def test_an_invalid_payload_behind_one_that_waits_waits_its_turn() -> None:
    crew = Crew(2)
    subscriber = crew.subscriber(1, "t")
    client = crew[0].open(capabilities=Capabilities(check_payload_format=True))
    client.connect(crew.name(0))
    client.publish("t", "x", 1)
    client.send(Publish(b"t", b"\xff", 1, packet_id=2, properties=Properties(payload_format_indicator=1)))
    assert acks(client) == []
    crew.pump()
    assert acks(client) == [(PUBACK, 1, 0), (PUBACK, 2, 0x99)]
    assert subscriber.payloads() == ["x"]


@pytest.mark.parametrize("back", ["same connection", "new connection", "takeover"])
@pytest.mark.parametrize("code", [0, REFUSED])
def test_a_qos_2_message_again_before_the_outcome_is_neither_new_nor_answered_early(back: str, code: int) -> None:
    crew = Crew(2, FULL if code else None)
    subscriber = full(crew, 1, "t") if code else crew.subscriber(1, "t", qos=2)
    name = crew.name(0)
    publisher = crew.connect(0, client_id=name, clean_start=False, expiry=60, auto_ack=False)
    publisher.publish("t", "x", 2, packet_id=5)
    if back == "new connection":
        publisher.lose()
    if back != "same connection":
        publisher = crew[0].connect(name, clean_start=False, expiry=60, auto_ack=False)
    publisher.publish("t", "x", 2, dup=True, packet_id=5)
    publisher.publish("t", "x", 2, dup=True, packet_id=5)
    assert acks(publisher) == []
    crew.pump()
    answers = acks(publisher)
    assert set(answers) == {(PUBREC, 5, code)}
    assert len(answers) == 1, "one answer says it"
    assert subscriber.payloads() == ([] if code else ["x"])
    assert crew[0].session(name).received.has(5) == (code == 0)
    publisher.publish("t", "y", 1)
    crew.pump()
    assert acks(publisher) == [(PUBACK, 1, code)], "nothing stands before it"


def test_a_run_sent_again_on_another_connection_is_answered_once() -> None:
    crew = Crew(2)
    subscriber = crew.subscriber(1, "t", qos=2)
    name = crew.name(0)
    publisher = crew.connect(0, client_id=name, clean_start=False, expiry=60, auto_ack=False)
    run = [Publish(b"t", b"%d" % number, 2, packet_id=number) for number in (1, 2, 3)]
    publisher.send(*run)
    publisher.lose()
    publisher = crew[0].connect(name, clean_start=False, expiry=60, auto_ack=False)
    publisher.send(*[Publish(each.topic, each.payload, 2, dup=True, packet_id=each.packet_id) for each in run])
    publisher.send(*run)
    assert acks(publisher) == []
    crew.pump()
    assert acks(publisher) == [(PUBREC, number, 0) for number in (1, 2, 3)]
    assert subscriber.payloads() == ["1", "2", "3"]
    publisher.send(*run)
    assert acks(publisher) == [(PUBREC, number, 0) for number in (1, 2, 3)]


def test_an_identifier_that_is_let_go_before_the_outcome_is_its_next_messages() -> None:
    crew = Crew(2)
    subscriber = crew.subscriber(1, "t", qos=2)
    publisher = crew.connect(0, auto_ack=False)
    publisher.publish("t", "x", 2, packet_id=5)
    publisher.send(Ack(PUBREL, 5))
    publisher.publish("t", "y", 2, packet_id=5)
    publisher.publish("t", "y", 2, dup=True, packet_id=5)
    assert acks(publisher) == [(PUBCOMP, 5, 0)]
    crew.pump()
    assert acks(publisher) == [(PUBREC, 5, 0), (PUBREC, 5, 0)]
    assert subscriber.payloads() == ["x", "y"]
    workers = crew[0].broker._workers
    assert workers is not None
    assert (workers.postponed, workers._undecided) == ({}, {}), "nothing is remembered of them"


@pytest.mark.parametrize("qos", [1, 2])
def test_a_publisher_that_is_gone_before_the_outcome_is_no_trouble(qos: int) -> None:
    crew = Crew(2, FULL)
    full(crew, 1, "t")
    publisher = crew.connect(0, auto_ack=False)
    publisher.publish("t", "x", qos)
    publisher.lose()
    crew.pump()
    assert crew[0].broker.postponed == 0
    assert acks(publisher) == []


def test_a_clean_start_meanwhile_begins_with_free_identifiers() -> None:
    crew = Crew(2)
    subscriber = crew.subscriber(1, "t", qos=2)
    name = crew.name(0)
    crew.connect(0, client_id=name, expiry=60, auto_ack=False).publish("t", "former", 2, packet_id=5)
    publisher = crew[0].connect(name, expiry=60, auto_ack=False)
    publisher.publish("t", "new", 2, packet_id=5)
    crew.pump()
    assert acks(publisher) == [(PUBREC, 5, 0)]
    assert subscriber.payloads() == ["former", "new"]


def outcome_of(crew: Crew) -> Outcome:
    """What the other worker is about to tell worker 0."""
    crew.send(0)
    (outcome,) = crew.gather(1)
    assert isinstance(outcome, Outcome)
    return outcome


@pytest.mark.parametrize("run", [1, 2])
@pytest.mark.parametrize("durable", [True, False])
def test_an_outcome_waits_for_the_commit_of_what_it_tells_of(run: int, durable: bool) -> None:
    crew = Crew(2)
    crew.subscriber(1, "t", clean_start=not durable, expiry=60 if durable else 0)
    publisher = crew.connect(0)
    publisher.send(*[Publish(b"t", b"x", 1, packet_id=number + 1) for number in range(run)])
    assert outcome_of(crew).awaits_commit == durable
    publisher.send(Publish(b"t", b"x", 1, packet_id=9, properties=Properties(content_type="x")))
    crew.outgoing[1].clear()
    assert outcome_of(crew).awaits_commit == durable


def test_an_identifier_that_is_free_again_is_so_on_disk_before_the_client_hears() -> None:
    crew = Crew(2, FULL)
    full(crew, 1, "t")
    publisher = crew.connect(0, clean_start=False, expiry=60, auto_ack=False)
    publisher.publish("t", "x", 2)
    outcome = outcome_of(crew)
    told = Outcome(1, outcome.tag, outcome.code, outcome.dropped, outcome.queued, outcome.sent, [])
    told.refused = outcome.refused
    publisher.connection.outbox.awaits_commit = False  # that was the commit of what it sent
    crew[0].broker.on_outcome(told, START)
    assert crew[0].broker.turn.changes
    assert publisher.connection.outbox.awaits_commit


@pytest.mark.parametrize("version", [V311, V5])
def test_what_became_of_it_is_counted_over_all_workers(version: int) -> None:
    crew = Crew(3, Limits(max_queued_messages=1, max_inflight=1))
    full(crew, 2, "t")
    crew.subscriber(0, "t")
    crew.subscriber(1, "t")
    crew.subscriber(1, "t", clean_start=False, expiry=60).lose()
    client = crew[0].open(version, capabilities=Capabilities(tell_delivery=True))
    client.connect(crew.name(0))
    client.publish("t", "x", 1)
    crew.pump()
    (ack,) = [packet for packet in client.received() if isinstance(packet, Ack)]
    told = dict(ack.properties.user_properties) if ack.properties is not NONE else {}
    told.pop("message-id", None)
    assert told == ({"delivered-to": "2", "queued-for": "1", "dropped-for": "1"} if version == V5 else {})


# ---------------------------------------------------------------------- who overflows by what comes from elsewhere


CUT = Limits(max_queued_messages=1, max_inflight=1, on_overflow="disconnect")


@pytest.mark.parametrize("how", ["batch", "forward"])
def test_whose_queue_overflows_by_another_worker_s_message_is_cut_off(how: str) -> None:
    crew = Crew(2, CUT)
    subscriber = full(crew, 1, "t")
    publisher = crew.connect(0)
    properties = NONE if how == "batch" else Properties(content_type="x")
    publisher.send(Publish(b"t", b"x", 1, packet_id=1, properties=properties))
    crew.pump()
    assert subscriber.closed


# ---------------------------------------------------------------------- shared subscriptions


SHARE = "$share/g/t"


def publish_many(crew: Crew, publisher: Client, count: int, qos: int, topic: str = "t") -> None:
    for number in range(count):
        publisher.publish(topic, str(number), qos)
    crew.pump()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_worker_gets_as_much_of_a_share_as_it_has_members(qos: int) -> None:
    crew = Crew(3)
    homes = [0, 1, 1, 2, 2, 2]
    members = [crew.subscriber(home, SHARE, qos=2) for home in homes]
    for home in range(3):
        publish_many(crew, crew.connect(home), 60, qos)
    counts = [len(member.payloads()) for member in members]
    assert counts == [30] * 6


@pytest.mark.parametrize("qos", [0, 1])
def test_members_that_are_connected_come_before_those_of_another_worker_that_are_away(qos: int) -> None:
    crew = Crew(2)
    away = crew.subscriber(1, SHARE, clean_start=False, expiry=60)
    here = crew.subscriber(0, SHARE)
    name = away.connection.client_id
    away.lose()
    crew.pump()
    publisher = crew.connect(0)
    publish_many(crew, publisher, 10, qos)
    assert len(here.payloads()) == 10
    back = crew.connect(1, client_id=name, clean_start=False, expiry=60)
    assert back.payloads() == []
    publish_many(crew, publisher, 10, qos)
    assert len(back.payloads()) == 5
    assert len(here.payloads()) == 5


def test_if_all_are_away_each_keeps_its_part() -> None:
    crew = Crew(2)
    names = []
    for home in (0, 1):
        member = crew.subscriber(home, SHARE, clean_start=False, expiry=60)
        names.append(member.connection.client_id)
        member.lose()
    crew.pump()
    publish_many(crew, crew.connect(0), 10, 1)
    for home, name in enumerate(names):
        assert len(crew.connect(home, client_id=name, clean_start=False, expiry=60).payloads()) == 5


@pytest.mark.parametrize("policy", ["hash_topic", "hash_key"])
def test_a_key_goes_to_the_same_member_whichever_worker_it_comes_from(policy: str) -> None:
    crew = Crew(3, policies={"g": policy})
    members = [crew.subscriber(home, "$share/g/#") for home in (0, 0, 1, 2, 2)]
    publishers = [crew.connect(home) for home in range(3)]
    for publisher in publishers:
        for number in range(30):
            key = Properties(user_properties=[("ordering-key", str(number))])
            topic = b"%d" % number if policy == "hash_topic" else b"t"
            publisher.send(Publish(topic, b"%d" % number, 1, packet_id=number + 1, properties=key))
    crew.pump()
    got = [Counter(member.payloads()) for member in members]
    assert all(count == 3 for counter in got for count in counter.values())
    assert sum(len(counter) for counter in got) == 30
    assert sum(1 for counter in got if counter) > 2


@pytest.mark.parametrize("policy", SHARE_POLICIES)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_every_policy_gives_each_message_to_one(policy: str, qos: int) -> None:
    crew = Crew(3, policies={"*": policy})
    members = [crew.subscriber(home, "$share/g/#") for home in (0, 1, 2, 2)]
    publisher = crew.connect(0)
    publisher.send(*[Publish(b"t/%d" % (at % 7), b"%d" % at, qos, packet_id=qos and at + 1) for at in range(50)])
    crew.pump()
    assert sorted(int(payload) for member in members for payload in member.payloads()) == list(range(50))


def test_members_of_another_worker_that_are_gone_meanwhile_leave_it_to_those_here() -> None:
    crew = Crew(2)
    there, here = crew.subscriber(1, SHARE), crew.subscriber(0, SHARE)
    publisher = crew.connect(0, auto_ack=False)
    there.disconnect()  # of which nobody has heard
    for number in range(4):
        publisher.publish("t", str(number), 1)
    crew.send(0)
    crew.send(1)
    assert sorted(here.payloads()) == ["0", "1", "2", "3"]
    assert acks(publisher) == [(PUBACK, number, 0) for number in (1, 2, 3, 4)]
    crew.pump()
    publisher.publish("t", "5", 1)
    assert here.payloads() == ["5"]


def test_members_gone_meanwhile_leave_it_to_a_third_worker() -> None:
    crew = Crew(3)
    gone, third = crew.subscriber(1, SHARE), crew.subscriber(2, SHARE)
    publisher = crew.connect(0, auto_ack=False)
    gone.disconnect()
    for number in range(4):
        publisher.publish("t", str(number), 1)
    crew.send(0)
    crew.send(1)  # the outcomes, but not that nobody is left there
    assert crew[0].broker.postponed > 0, "the third has yet to tell"
    crew.send(0)
    crew.send(2)
    assert sorted(third.payloads()) == ["0", "1", "2", "3"]
    assert sorted(acks(publisher)) == [(PUBACK, number, 0) for number in (1, 2, 3, 4)]
    crew.pump()


def test_members_gone_everywhere_leave_a_message_to_nobody_and_it_is_counted() -> None:
    crew = Crew(3)
    members = [crew.subscriber(1, SHARE), crew.subscriber(2, SHARE)]
    publisher = crew.connect(0, auto_ack=False)
    for member in members:
        member.disconnect()
    publisher.publish("t", "x", 1)
    for _ in range(4):  # from one to the other, and no further
        for at in range(3):
            crew.send(at)
    assert crew[0].broker.postponed == 0
    assert acks(publisher) == [(PUBACK, 1, 0)]
    crew.pump()
    assert crew[0].broker.publisher.drops == {"no_subscribers": 1}
    publisher.publish("t", "y", 1)
    assert acks(publisher) == [(PUBACK, 2, NOBODY)]


def test_a_share_that_is_gone_here_too_when_the_outcome_comes_is_nobody_s() -> None:
    crew = Crew(2)
    there = crew.subscriber(1, SHARE)
    publisher = crew.connect(0, auto_ack=False)
    publisher.publish("t", "x", 1)
    there.disconnect()
    crew.send(0)
    crew.tell(1)
    crew.send(1)
    assert acks(publisher) == [(PUBACK, 1, 0)]
    assert crew[0].broker.publisher.drops == {"no_subscribers": 1}


def test_the_last_member_here_may_leave_before_it_is_heard_that_there_is_none_there() -> None:
    crew = Crew(2)
    there, here = crew.subscriber(1, SHARE), crew.subscriber(0, SHARE)
    publisher = crew.connect(0)
    there.disconnect()
    publish = [publisher.publish("t", str(number), 1) for number in range(2)]
    assert publish
    crew.send(0)
    crew.send(1)
    here.disconnect()
    crew.pump()
    publisher.publish("t", "x", 1)
    crew.pump()
    assert acks(publisher)[-1][2] == NOBODY


def test_who_joins_there_before_the_outcome_is_not_forgotten() -> None:
    crew = Crew(2)
    there = crew.subscriber(1, SHARE)
    publisher = crew.connect(0)
    there.disconnect()
    publisher.publish("t", "1", 1)
    crew.send(0)  # where nobody is left
    joins = crew[1].connect(crew.name(1))
    joins.subscribe(SHARE, qos=1)
    crew.tell(1)  # faster than the outcome, which may wait for a commit
    crew.send(1)
    crew.pump()
    publisher.publish("t", "2", 1)
    crew.pump()
    assert joins.payloads()[-1:] == ["2"]


@pytest.mark.parametrize("full_up", [True, False])
def test_a_message_back_from_elsewhere_may_be_refused_here(full_up: bool) -> None:
    crew = Crew(2, FULL)
    there = crew.subscriber(1, SHARE)
    here = crew.subscriber(0, SHARE, qos=1 if full_up else 0, auto_ack=False)
    publisher = crew.connect(0, auto_ack=False)
    there.disconnect()
    for _ in range(6):
        publisher.publish("t", "x", 1)
    crew.send(0)
    crew.send(1)
    codes = Counter(code for _kind, _packet_id, code in acks(publisher))
    assert codes == ({0: 2, REFUSED: 4} if full_up else {0: 6})
    assert len(here.payloads()) == (1 if full_up else 6)


def test_whose_queue_overflows_by_a_message_that_came_back_is_cut_off() -> None:
    crew = Crew(2, CUT)
    there, here = crew.subscriber(1, SHARE), crew.subscriber(0, SHARE, "filler", auto_ack=False)
    publisher = crew.connect(0)
    publish_many(crew, publisher, 2, 1, "filler")
    there.disconnect()
    publisher.publish("t", "x")
    publisher.publish("t", "x", 1)  # it is the other worker's turn
    crew.send(0)
    assert not here.closed
    crew.send(1)
    assert here.closed
    crew.pump()


def test_a_member_that_is_full_elsewhere_is_told_of() -> None:
    crew = Crew(2, FULL)
    there = crew.subscriber(1, SHARE, auto_ack=False)
    publisher = crew.connect(0, auto_ack=False)
    publish_many(crew, publisher, 4, 1)
    assert [code for _kind, _packet_id, code in acks(publisher)] == [0, 0, REFUSED, REFUSED]
    assert there.payloads() == ["0"]


@pytest.mark.parametrize("home", [0, 1])
def test_what_a_session_leaves_goes_to_a_member_of_another_worker(home: int) -> None:
    crew = Crew(2)
    leaves = crew.subscriber(0, SHARE, clean_start=False, expiry=60)
    name = leaves.connection.client_id
    leaves.lose()
    crew.pump()
    publish_many(crew, crew.connect(home), 3, 1)
    stays = crew.subscriber(1, SHARE)
    crew.advance(61)
    crew.pump()
    assert crew[0].broker.sessions.get(name) is None
    assert sorted(stays.payloads()) == ["0", "1", "2"]


def test_what_a_session_leaves_goes_to_a_member_here_before_one_that_is_away_elsewhere() -> None:
    crew = Crew(2)
    crew.subscriber(1, SHARE, clean_start=False, expiry=600).lose()
    here = crew.subscriber(0, SHARE)
    frozen = crew.subscriber(0, SHARE, auto_ack=False)
    crew.pump()
    publish_many(crew, crew.connect(0), 4, 1)
    frozen.disconnect()
    crew.pump()
    assert sorted(here.payloads()) == ["0", "1", "2", "3"]


def test_a_retained_message_and_shares_of_several_workers_are_one_message_each() -> None:
    crew = Crew(3)
    plain = [crew.subscriber(home, "t") for home in range(3)]
    groups = {name: [crew.subscriber(home, f"$share/{name}/t") for home in range(3)] for name in "abcd"}
    publisher = crew.connect(0)
    publisher.publish("t", "x", 1, retain=True)
    crew.pump()
    assert acks(publisher) == [(PUBACK, 1, 0)]
    assert [client.payloads() for client in plain] == [["x"]] * 3
    for members in groups.values():
        assert sum(len(member.payloads()) for member in members) == 1


def test_what_nobody_asks_about_is_counted_where_its_share_has_no_members_left() -> None:
    crew = Crew(2)
    member = crew.subscriber(1, SHARE)
    publisher = crew.connect(0)
    member.disconnect()
    publisher.publish("t", "x", 0)
    crew.pump()
    assert crew[1].broker.publisher.drops == {"no_subscribers": 1}


def test_a_will_for_a_share_goes_to_a_member_of_another_worker() -> None:
    crew = Crew(2)
    member = crew.subscriber(1, SHARE)
    crew.connect(0, will=Will(b"t", b"gone", 1, False)).lose()
    crew.pump()
    assert member.payloads() == ["gone"]


def test_one_worker_alone_makes_nothing_of_it() -> None:
    broker = Broker(Limits())
    assert broker.postponed == 0
    assert broker.open(Peer(), START).number == 1


# ── what is told and counted of messages that travel ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("retain", [False, True])
def test_a_message_counts_where_it_came_in_and_its_deliveries_where_they_are(
    qos: int, together: int, retain: bool
) -> None:
    crew = Crew()
    traffic = [worker.broker.count_traffic(10) for worker in crew.workers]
    for home in (0, 1, 1):
        crew.subscriber(home, "t", "$share/g/t")
    crew.connect(0).send(
        *[Publish(b"t", b"abc", qos, retain, packet_id=at if qos else 0) for at in range(1, together + 1)]
    )
    crew.pump()
    here, there = [counter for each in traffic for counter in each.harvest()]
    assert (here.messages_qos0 + here.messages_qos1, here.deliveries) == (together, 2 * together)
    assert (there.messages_qos0 + there.messages_qos1, there.deliveries) == (0, 2 * together)
    assert (here.payload_bytes, there.payload_bytes) == (3 * together, 0)


@pytest.mark.parametrize("qos", [0, 1])
def test_without_groups_too(qos: int) -> None:
    crew = Crew()
    traffic = [worker.broker.count_traffic(10) for worker in crew.workers]
    crew.subscriber(1, "t")
    crew.connect(0).send(*[Publish(b"t", b"abc", qos, packet_id=at if qos else 0) for at in (1, 2, 3)])
    crew.pump()
    here, there = [counter for each in traffic for counter in each.harvest()]
    assert (here.messages_qos0 + here.messages_qos1, here.deliveries) == (3, 0)
    assert (there.messages_qos0 + there.messages_qos1, there.deliveries) == (0, 3)


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_message_is_followed_where_it_came_in_only(qos: int, together: int) -> None:
    crew = Crew()
    witnesses = [Everything(), Everything()]
    for worker, witness in zip(crew.workers, witnesses, strict=True):
        worker.broker.watch(witness)
    near, _far = crew.subscriber(0, "t", client_id=crew.name(0)), crew.subscriber(1, "t")
    messages = [Publish(b"t", b"abc", qos, packet_id=at if qos else 0) for at in range(1, together + 1)]
    writer = crew.connect(0)
    writer.send(*messages)
    crew.pump()
    assert witnesses[1].traces == 0
    assert not [each for each in witnesses[1].told if each[0] in ("sent", "acknowledged")]
    sent = ("sent", near.connection.client_id, near.connection.number, qos)
    assert [witnesses[0].of(trace)[1:3] for trace in range(1, together + 1)] == [[("routed", 2), sent]] * together
