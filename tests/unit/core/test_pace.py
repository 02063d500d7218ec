"""Quotas of what clients get: QoS 1 and 2 messages wait, QoS 0 messages are dropped, answers leave at once."""

import pytest

from mqttlite.core.load.quotas import Quotas, Rates
from mqttlite.core.load.rate_limits import Buckets, BucketTable, Rate
from mqttlite.wire.packets import Pingreq, Pingresp
from tests.support.core_driver import START, Client, World


def listener(world: World, rate: Rate, qos: int = 1, auto_ack: bool = True) -> Client:
    client = world.open(quotas=Quotas(outgoing=Rates(BucketTable(rate))))
    assert client.connect("slow", auto_ack=auto_ack) is not None
    client.subscribe("t", qos=qos)
    return client


def publish(world: World, messages: int, qos: int) -> None:
    for number in range(messages):
        world.publish("t", str(number), qos)


@pytest.mark.parametrize("qos", [1, 2])
def test_messages_wait_in_the_queue_and_leave_at_the_rate_in_order(qos: int) -> None:
    world = World()
    client = listener(world, Rate(messages_per_s=10), qos)
    publish(world, 50, qos)
    seen = client.payloads()
    assert len(seen) == 11, "the burst, and one on credit"
    for second in range(1, 4):
        world.advance(1.0)
        seen += client.payloads()
        assert 10 * second + 9 <= len(seen) <= 10 * second + 12
    world.advance(1.0)
    assert seen + client.payloads() == [str(number) for number in range(50)]
    assert client.connection.backpressure_s == 0.0, "the client has read all the time"
    client.disconnect()
    world.end()


def test_qos_0_messages_over_the_rate_are_dropped_and_counted() -> None:
    world = World()
    client = listener(world, Rate(messages_per_s=10), 0)
    publish(world, 50, 0)
    assert len(client.payloads()) == 11
    assert client.connection.outbox.drops == {"rate_limited": 39}
    world.advance(1.0)
    publish(world, 1, 0)
    assert client.payloads() == ["0"]


@pytest.mark.parametrize(
    ("rates", "scope"),
    [
        (Rates(users=BucketTable(Rate(messages_per_s=10))), "to_user"),
        (Rates(addresses=BucketTable(Rate(messages_per_s=10))), "to_address"),
        (Rates(listener=Buckets(Rate(messages_per_s=10), START)), "to_listener"),
        (Rates(BucketTable(Rate(messages_per_s=100)), broker=Buckets(Rate(messages_per_s=10), START)), "to_broker"),
    ],
)
def test_clients_that_share_a_rate_get_no_more_together(rates: Rates, scope: str) -> None:
    world = World()
    quotas = Quotas(outgoing=rates)
    clients = []
    for number in range(3):
        client = world.open(quotas=quotas)
        client.connection.quota_address = "192.0.2.1"
        client.connect(f"c{number}", username="ann")
        client.subscribe("t", qos=1)
        clients.append(client)
    stranger = world.connect("stranger")
    stranger.subscribe("t", qos=1)
    publish(world, 40, 1)
    assert len(stranger.payloads()) == 40
    seen = [client.payloads() for client in clients]
    for _ in range(30):
        world.advance(0.1)
        seen = [former + client.payloads() for former, client in zip(seen, clients, strict=True)]
    assert 38 <= sum(map(len, seen)) <= 46, "ten at once, and thirty in three seconds"
    assert min(map(len, seen)) >= 9, "each has its part"
    for _ in range(100):
        world.advance(0.1)
        seen = [former + client.payloads() for former, client in zip(seen, clients, strict=True)]
    assert seen == [[str(number) for number in range(40)]] * 3
    assert list(quotas.held) == [scope]


def test_the_rate_in_bytes_holds_back_too() -> None:
    world = World()
    client = listener(world, Rate(bytes_per_s=1_000))
    for _ in range(10):
        world.publish("t", "x" * 490, 1)
    seen = len(client.payloads())
    assert seen in (2, 3)
    world.advance(1.0)
    assert len(client.payloads()) in (2, 3)


def test_answers_are_not_held_back() -> None:
    world = World()
    client = listener(world, Rate(messages_per_s=1), 0)
    publish(world, 5, 0)
    client.received()
    client.send(Pingreq())
    assert [type(packet) for packet in client.received()] == [Pingresp]


def test_a_link_that_takes_no_bytes_keeps_what_its_pace_would_drop() -> None:
    world = World()
    client = listener(world, Rate(messages_per_s=1), 0)
    publish(world, 2, 0)
    assert len(client.payloads()) == 2
    client.block()
    publish(world, 3, 0)
    client.unblock()
    assert client.payloads() == [], "the pace is not over yet"
    world.advance(1.1)
    assert len(client.payloads()) == 3
    assert client.connection.backpressure_s > 0.0


def test_a_pace_that_is_over_does_not_write_to_a_link_that_takes_no_bytes() -> None:
    world = World()
    client = listener(world, Rate(messages_per_s=1), 1)
    publish(world, 5, 1)
    client.received()
    client.block()
    world.advance(10.0)
    assert client.received() == []
    client.unblock()
    assert client.payloads() == ["2"]


def test_a_connection_that_ends_before_its_pace_is_over() -> None:
    world = World()
    client = listener(world, Rate(messages_per_s=1), 1)
    publish(world, 5, 1)
    client.disconnect()
    assert client.connection.backpressure_s == 0.0
    world.advance(10.0)
    world.end()


def test_messages_about_to_be_written_leave_no_room_for_others_of_the_queue() -> None:
    world = World()
    client = listener(world, Rate(messages_per_s=100), 1, auto_ack=False)
    publish(world, 100, 1)
    assert len(client.payloads()) == 100
    publish(world, 30, 1)
    seen = client.payloads()
    for _ in range(40):
        world.advance(0.01)
        seen += client.payloads()
    assert seen == [str(number) for number in range(30)]


def test_a_long_backlog_that_is_leaving_is_begun_once() -> None:
    world = World()
    client = world.connect("reader")
    client.subscribe("t")
    client.block()
    for _ in range(40):
        world.publish("t", "x" * 20_000)
    world.broker.unblock(client.connection, world.now)
    world.broker.unblock(client.connection, world.now)
    assert world.broker.effects.backlogged == [client.connection.number]
    world.settle()
    assert len(client.payloads()) == 40


def test_messages_within_the_rate_leave_the_queue_at_once() -> None:
    world = World()
    client = listener(world, Rate(messages_per_s=10), 1)
    client.block()
    publish(world, 5, 1)
    client.unblock()
    assert len(client.payloads()) == 5
