"""Quotas of what clients send: who is held and for how long, who is disconnected, and whose buckets these are."""

import pytest

from mqttlite.core.limits import Limits
from mqttlite.core.load.quotas import Quotas, Rates
from mqttlite.core.load.rate_limits import Buckets, BucketTable, Rate
from mqttlite.core.reasons import CloseReason, HoldReason
from mqttlite.core.route.topic_limits import TopicLimits
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Connect, Disconnect, Publish, Will
from mqttlite.wire.reason_codes import ReasonCode
from tests.support.core_driver import START, Client, World

TEN = Rate(messages_per_s=10)


def member(world: World, quotas: Quotas, client_id: str, version: int = V5, username: str | None = None) -> Client:
    client = world.open(version, quotas=quotas)
    assert client.connect(client_id, username=username) is not None
    return client


def flood(client: Client, messages: int) -> None:
    client.send_bytes(encode(Publish(b"t", b"x"), client.version) * messages)


def held(world: World) -> list[int]:
    return world.take_holds(HoldReason.RATE, is_held=True)


def freed(world: World) -> list[int]:
    return world.take_holds(HoldReason.RATE, is_held=False)


@pytest.mark.parametrize("version", [V311, V5])
def test_a_client_is_held_until_the_average_is_kept_and_all_it_sent_arrives(version: int) -> None:
    world = World()
    quotas = Quotas(Rates(BucketTable(TEN)))
    receiver = world.connect("receiver")
    receiver.subscribe("t")
    client = member(world, quotas, "client", version)
    flood(client, 10)
    assert held(world) == [], "the burst passes"
    flood(client, 25)
    arrived = 10 + 1
    assert len(receiver.messages()) == arrived, "what may not pass yet waits in the chunk"
    assert held(world) == [client.connection.number]
    world.advance(0.09)
    assert freed(world) == []
    while client.connection.deferred:
        world.advance(0.02)
        if freed(world):
            world.broker.feed(client.connection, b"", world.now)  # as its link does then
            world.settle()
            arrived += len(receiver.messages())
            assert arrived <= 10 + 1 + 10 * (world.now - START)
    assert arrived == 35
    assert 2.0 < world.now - START < 3.0
    world.advance(0.2)
    assert quotas.held["client"] > 1
    client.disconnect()
    receiver.disconnect()
    world.end()


def test_bytes_under_way_to_a_held_connection_prolong_the_hold() -> None:
    world = World()
    client = member(world, Quotas(Rates(BucketTable(TEN))), "client")
    flood(client, 20)
    flood(client, 10)
    assert held(world) == [client.connection.number], "once"
    world.broker.feed(client.connection, b"", world.now)
    assert client.connection.deferred, "nothing goes on before the release"
    assert let_go_on(world, client) > 10


def let_go_on(world: World, client: Client) -> int:
    """Let a held client go on at each release, until nothing of it waits; return how often."""
    times = 0
    while client.connection.deferred:
        world.advance(0.11)
        assert freed(world) == [client.connection.number]
        world.broker.feed(client.connection, b"", world.now)  # as its link does then
        world.settle()
        times += 1
    return times


@pytest.mark.parametrize("in_one", [False, True])
def test_one_chunk_brings_little_more_than_the_burst_also_behind_connect(in_one: bool) -> None:
    world = World()
    receiver = world.connect("receiver")
    receiver.subscribe("t")
    client = world.open(V311, quotas=Quotas(Rates(BucketTable(Rate(messages_per_s=100)))))
    connect, publish = encode(Connect("client", V311), V311), encode(Publish(b"t", b""), V311)
    assert len(publish) == 5
    chunks = [connect + publish * 5_000] if in_one else [connect, publish * 5_000]
    for chunk in chunks:
        client.send_bytes(chunk)
    assert 100 <= len(receiver.messages()) <= 110
    assert held(world) == [client.connection.number]
    client.lose()
    world.advance(5)


def test_a_chunk_that_ends_within_a_packet_or_is_no_packet_is_handled_as_ever() -> None:
    world = World()
    receiver = world.connect("receiver")
    receiver.subscribe("t")
    client = member(world, Quotas(Rates(BucketTable(Rate(bytes_per_s=1_000_000)))), "client", V311)
    publish = encode(Publish(b"t", b"x" * 200), V311)
    for at in range(len(publish)):
        client.send_bytes(publish[at : at + 1])
    client.send_bytes(publish + publish[:3])
    client.send_bytes(publish[3:])
    assert len(receiver.messages()) == 3
    client.send_bytes(b"\xf0\x00")
    assert client.closed


def test_a_client_gains_nothing_by_connecting_anew() -> None:
    world = World()
    quotas = Quotas(Rates(BucketTable(TEN)))
    first = member(world, quotas, "client")
    flood(first, 20)
    assert held(world) == [first.connection.number]
    first.disconnect()
    second = member(world, quotas, "client")
    flood(second, 1)
    assert held(world) == [second.connection.number]


@pytest.mark.parametrize(
    ("quotas", "scope"),
    [
        (Quotas(Rates(users=BucketTable(TEN)), disconnects=True), "user"),
        (Quotas(Rates(listener=Buckets(TEN, START)), disconnects=True), "listener"),
        (Quotas(Rates(broker=Buckets(TEN, START)), disconnects=True), "broker"),
    ],
)
def test_a_shared_quota_holds_the_client_that_exceeds_it(quotas: Quotas, scope: str) -> None:
    world = World()
    one = member(world, quotas, "one", username="ann")
    other = member(world, quotas, "other", username="ann")
    flood(one, 8)
    assert held(world) == []
    flood(other, 7)
    assert held(world) == [other.connection.number]
    assert quotas.held == {scope: 1}
    assert not other.closed


def test_users_have_buckets_of_their_own_and_clients_without_a_name_have_none() -> None:
    world = World()
    quotas = Quotas(Rates(users=BucketTable(TEN)))
    for client in (
        member(world, quotas, "one", username="ann"),
        member(world, quotas, "other", username="bob"),
    ):
        flood(client, 10)
    nobody = member(world, quotas, "nobody")
    flood(nobody, 100)
    assert nobody.connection.throttle is None
    assert held(world) == []


def test_addresses_have_buckets_of_their_own_and_connections_without_one_have_none() -> None:
    world = World()
    quotas = Quotas(Rates(addresses=BucketTable(TEN)))
    clients = []
    for name, address in (("one", "192.0.2.1"), ("two", "192.0.2.1"), ("other", "192.0.2.2"), ("local", "")):
        client = world.open(quotas=quotas)
        client.connection.quota_address = address
        client.connect(name)
        clients.append(client)
        flood(client, 8)
    assert held(world) == [clients[1].connection.number]
    assert quotas.held == {"address": 1}


@pytest.mark.parametrize(("username", "most"), [("meter", 3), ("ann", 9), (None, 9)])
def test_a_user_may_have_smaller_payloads(username: str | None, most: int) -> None:
    world = World(Limits(max_payload_bytes=9))
    quotas = Quotas(topics={"meter": TopicLimits(200, 65_535, 3), "ann": TopicLimits(200, 65_535, 100)})
    client = member(world, quotas, "c", username=username)
    reader = world.connect("r")
    reader.subscribe("t", qos=1)
    for qos in (0, 1, 2):
        client.publish("t", "x" * most, qos)
        client.publish("t", "x" * (most + 1), qos)
    codes = [each.reason_code for each in client.received() if isinstance(each, Ack)]
    assert [code for code in codes if code] == [0x97, 0x97]
    assert reader.payloads() == ["x" * most] * 3
    assert world.broker.planner.publish("c", username, b"t", b"x" * (most + 1), 0, False).code == 0x97
    will = Will(b"t", b"x" * (most + 1), 0)
    mortal = world.open(quotas=quotas)
    mortal.connect("mortal", username=username, will=will)
    assert mortal.closed


@pytest.mark.parametrize(("username", "levels", "size"), [("meter", 2, 6), ("ann", 3, 9), (None, 3, 9)])
def test_a_user_may_have_shorter_topics(username: str | None, levels: int, size: int) -> None:
    world = World(Limits(max_topic_levels=3, max_topic_bytes=9))
    client = member(world, Quotas(topics={"meter": TopicLimits(2, 6, 1_000)}), "c", username=username)
    reader = world.connect("r")
    reader.subscribe("#")
    fits = ["/".join("t" * levels), "t" * size]
    too_long = ["/".join("t" * (levels + 1)), "t" * (size + 1)]
    for topic in fits + too_long:
        client.publish(topic, "x", 1)
    assert [topic for topic, _ in reader.messages()] == fits
    assert [each.reason_code for each in client.received() if isinstance(each, Ack)] == [0, 0, 0x90, 0x90]
    assert [client.subscribe(topic)[0] for topic in fits + too_long] == [0, 0, 0x8F, 0x8F]


@pytest.mark.parametrize(
    ("rate", "code"),
    [(TEN, ReasonCode.MESSAGE_RATE_TOO_HIGH), (Rate(bytes_per_s=50), ReasonCode.QUOTA_EXCEEDED)],
)
def test_where_it_is_so_set_a_client_over_its_own_rate_is_disconnected(rate: Rate, code: int) -> None:
    world = World()
    quotas = Quotas(Rates(BucketTable(rate)), disconnects=True)
    client = member(world, quotas, "client")
    flood(client, 100)
    assert [packet.reason_code for packet in client.received() if isinstance(packet, Disconnect)] == [code]
    assert client.closed
    assert client.connection.close_reason == CloseReason.QUOTA_EXCEEDED
    assert quotas.held == {"disconnect": 1}
    assert held(world) == []


def test_a_connection_that_ends_in_the_chunk_that_is_too_much_is_not_held() -> None:
    world = World()
    client = member(world, Quotas(Rates(BucketTable(TEN))), "client")
    client.send_bytes(encode(Publish(b"t", b"x"), V5) * 30 + encode(Disconnect(), V5))
    assert held(world) == [client.connection.number]
    let_go_on(world, client)
    assert client.closed
    assert len(held(world)) < 20, "with DISCONNECT it is held no more"


def test_a_held_connection_that_ends_is_let_go_of() -> None:
    world = World()
    client = member(world, Quotas(Rates(BucketTable(TEN))), "client")
    flood(client, 20)
    client.lose()
    world.advance(5)
    assert freed(world) == [client.connection.number], "harmless for the loop driver"


def test_a_chunk_that_was_read_before_the_hold_prolongs_it() -> None:
    world = World()
    client = member(world, Quotas(Rates(BucketTable(TEN))), "client")
    flood(client, 11)
    assert held(world) == [client.connection.number]
    assert not client.connection.deferred, "all of the first chunk is handled"
    flood(client, 1)
    assert held(world) == [], "it is held already"
    world.advance(0.11)
    assert freed(world) == []
    world.advance(0.1)
    assert freed(world) == [client.connection.number]
    world.end()
