"""A chunk that costs much is looked at in parts, and the others have their turn between two of them."""

from itertools import product

import pytest

from mqttlite.core.broker import Broker
from mqttlite.core.connect.connection import CLOSED, Connection, Peer
from mqttlite.core.limits import ITERATION_WORK, MAX_PENDING_BYTES, Limits
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import Connect, Disconnect, Pingreq, Publish, Subscribe, SubscriptionRequest

NOW = 1_000.0


def client(broker: Broker, name: str, version: int = V5) -> Connection:
    connection = broker.open(Peer(), NOW)
    broker.feed(connection, encode(Connect(name, version), version), NOW)
    assert connection.accepted
    settle(broker)
    return connection


def settle(broker: Broker) -> list[int]:
    """Write what is to be written; who rests."""
    effects = broker.effects
    for outbox in effects.dirty:
        outbox.take()
    effects.dirty.clear()
    effects.changes.clear()
    effects.pending_bytes = 0
    effects.work = 0
    deferred, effects.deferred = effects.deferred, []
    return deferred


def passes(broker: Broker, connection: Connection) -> int:
    """How many it takes until all is looked at."""
    count = 1
    deferred = settle(broker)
    while deferred or len(broker.jobs):
        broker.tick(NOW)
        if deferred:
            broker.feed(connection, b"", NOW)
        count += 1
        deferred = settle(broker)
    assert not connection.deferred
    return count


def subscribe(broker: Broker, connection: Connection, *filters: bytes) -> None:
    broker.feed(connection, encode(Subscribe(1, tuple(SubscriptionRequest(each) for each in filters)), V5), NOW)
    passes(broker, connection)


def test_many_packets_that_go_the_long_way() -> None:
    broker = Broker(Limits())
    connection = client(broker, "c")
    broker.feed(connection, encode(Pingreq(), V5) * 10_000, NOW)
    assert connection.outbox.answers < 1 + 10_000 // 2, "the others have their turn"
    assert 2 < passes(broker, connection) < 100
    assert connection.outbox.answers == 1 + 10_000


@pytest.mark.slow
def test_topics_that_thousands_of_filters_match() -> None:
    broker = Broker(Limits())
    reader, writer = client(broker, "reader"), client(broker, "writer")
    subscribe(broker, reader, *[b"/".join(each) + b"/#" for each in product((b"a", b"+"), repeat=13)])
    topics = [b"a/" * 13 + b"%d" % number for number in range(50)]
    broker.feed(writer, b"".join([encode(Publish(topic, b""), V5) for topic in topics]), NOW)
    assert broker.effects.work < 3 * ITERATION_WORK
    assert 5 < passes(broker, writer) <= 50
    assert reader.outbox.sent_qos0 == 50
    broker.feed(writer, b"".join([encode(Publish(topic, b""), V5) for topic in topics]), NOW)
    assert passes(broker, writer) == 1, "where they go is known by now"


@pytest.mark.slow
def test_filters_that_are_walked_through_in_vain() -> None:
    broker = Broker(Limits())
    reader, writer = client(broker, "reader"), client(broker, "writer")
    subscribe(broker, reader, *[b"/".join(each) + b"/other" for each in product((b"a", b"+"), repeat=13)])
    broker.feed(writer, b"".join([encode(Publish(b"a/" * 13 + b"%d" % number, b""), V5) for number in range(50)]), NOW)
    assert 2 < passes(broker, writer) <= 50


def test_arguments_that_would_pile_up() -> None:
    broker = Broker(Limits())
    readers = [client(broker, f"reader-{number}") for number in range(200)]
    for reader in readers:
        subscribe(broker, reader, b"#")
    writer = client(broker, "writer")
    chunk = b"".join([encode(Publish(b"t/%d" % (number % 2), bytes(50_000)), V5) for number in range(10)])
    broker.feed(writer, chunk, NOW)
    assert MAX_PENDING_BYTES < broker.effects.pending_bytes < MAX_PENDING_BYTES + 200 * 51_000
    assert passes(broker, writer) == 2
    assert {reader.outbox.sent_qos0 for reader in readers} == {10}


def test_ordinary_chunks_are_looked_at_at_once() -> None:
    broker = Broker(Limits())
    reader, writer = client(broker, "reader"), client(broker, "writer")
    subscribe(broker, reader, b"#")
    broker.feed(writer, b"".join([encode(Publish(b"t/%d" % number, bytes(100)), V5) for number in range(700)]), NOW)
    assert not broker.effects.deferred
    assert reader.outbox.sent_qos0 == 700


@pytest.mark.parametrize("version", [V311, V5])
def test_packets_that_arrive_meanwhile_are_handled_afterwards(version: int) -> None:
    broker = Broker(Limits(max_packet_bytes=1_000))
    connection = client(broker, "c", version)
    broker.feed(connection, encode(Pingreq(), version) * 5_000, NOW)
    assert connection.deferred
    answers = connection.outbox.answers
    for _ in range(10):
        broker.feed(connection, encode(Pingreq(), version) * 500 + b"\xc0", NOW)
        broker.feed(connection, b"\x00", NOW)
    assert connection.outbox.answers == answers, "it is not its turn"
    assert connection.bytes_received > 20_000
    passes(broker, connection)
    assert connection.outbox.answers == 1 + 5_000 + 10 * 501


def test_a_connection_that_ends_meanwhile_is_skipped() -> None:
    broker = Broker(Limits())
    connection = client(broker, "c")
    broker.feed(connection, encode(Pingreq(), V5) * 5_000, NOW)
    broker.close(connection, NOW)
    broker.feed(connection, b"", NOW)
    settle(broker)
    broker.tick(NOW)
    assert connection.state == CLOSED
    assert connection.outbox.answers < 5_000
    assert broker.connections == {}


def test_a_client_that_says_goodbye_is_handled_to_the_end() -> None:
    broker = Broker(Limits())
    connection = client(broker, "c")
    broker.feed(connection, encode(Pingreq(), V5) * 5_000 + encode(Disconnect(), V5), NOW)
    passes(broker, connection)
    assert connection.said_goodbye


def test_a_framer_takes_more_behind_what_it_keeps() -> None:
    framer = Framer(100)
    framer.keep(encode(Pingreq(), V5) * 3, 2)
    framer.put(b"\xc0")
    assert framer.kept_bytes == 5
    assert framer.join(b"\x00") == encode(Pingreq(), V5) * 3
