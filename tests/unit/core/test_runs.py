"""QoS 1 and 2 messages that come alike and together: what each would be by itself, they are in one step."""

import pytest

from mqttlite.core.limits import DROP_NEWEST, FILL_BYTES, Limits
from mqttlite.core.reasons import QUEUE_FULL, CloseReason
from mqttlite.wire.constants import PUBACK, PUBCOMP, PUBREC, PUBREL, V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Packet, Publish
from tests.support.core_driver import Client, World, publishes


def alike(payloads: str, qos: int, *, first: int = 1, topic: str = "t") -> list[Packet]:
    """A message for each letter, with identifiers that are counted up."""
    return [Publish(topic.encode(), letter.encode(), qos, packet_id=first + at) for at, letter in enumerate(payloads)]


def identifiers(client: Client) -> list[int]:
    return [packet.packet_id for packet in publishes(client.received())]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("ours", [V311, V5])
@pytest.mark.parametrize("theirs", [V311, V5])
def test_they_arrive_with_identifiers_of_the_receiver(qos: int, granted: int, ours: int, theirs: int) -> None:
    world = World()
    reader = world.connect("r", theirs, auto_ack=False)
    reader.subscribe("t", qos=granted)
    writer = world.connect("w", ours, auto_ack=False)
    writer.send(*alike("abc", qos, first=254))
    at = min(qos, granted)
    assert reader.received() == [
        Publish(b"t", letter.encode(), at, packet_id=number if at else 0) for number, letter in enumerate("abc", 1)
    ]
    assert writer.received() == [Ack(PUBACK if qos == 1 else PUBREC, packet_id) for packet_id in (254, 255, 256)]
    outbox = reader.connection.outbox
    assert [outbox.sent_qos0, outbox.sent_qos1, outbox.sent_qos2] == [3 * (each == at) for each in range(3)]


@pytest.mark.parametrize("packet_ids", [(7, 7, 7), (3, 1, 2), (65_534, 65_535, 1)])
@pytest.mark.parametrize("qos", [1, 2])
def test_identifiers_may_come_in_any_order(packet_ids: tuple[int, ...], qos: int) -> None:
    world = World()
    reader = world.connect("r")
    reader.subscribe("t", qos=2)
    writer = world.connect("w", auto_ack=False)
    writer.send(*[Publish(b"t", b"%d" % at, qos, packet_id=packet_id) for at, packet_id in enumerate(packet_ids)])
    assert writer.received() == [Ack(PUBACK if qos == 1 else PUBREC, packet_id) for packet_id in packet_ids]
    assert reader.payloads() == (["0"] if qos == 2 and packet_ids[0] == 7 else ["0", "1", "2"])


def test_those_before_a_faulty_one_arrive() -> None:
    world = World()
    reader = world.connect("r")
    reader.subscribe("t", qos=1)
    writer = world.connect("w")
    stream = b"".join([encode(packet, V5) for packet in alike("abcd", 1)])
    writer.send_bytes(stream[: len(stream) // 2 + 6] + b"\0" + stream[len(stream) // 2 + 7 :])
    assert reader.payloads() == ["a", "b"]
    assert writer.connection.close_reason == CloseReason.MALFORMED_PACKET


@pytest.mark.parametrize("window", [1, 2, 3, 4])
def test_messages_beyond_the_window_wait_in_order(window: int) -> None:
    world = World(Limits(max_inflight=window))
    reader = world.connect("r", auto_ack=False)
    reader.subscribe("t", qos=1)
    writer = world.connect("w")
    writer.send(*alike("abc", 1))
    session = world.session("r")
    assert (len(session.inflight), session.queued) == (min(window, 3), max(0, 3 - window))
    reader.send(*[Ack(PUBACK, packet_id) for packet_id in (1, 2, 3)])
    assert reader.payloads() == ["a", "b", "c"]
    assert (len(session.inflight), session.queued, session.window.quota) == (0, 0, window)


@pytest.mark.parametrize("qos", [1, 2])
def test_those_that_find_no_place_are_refused_each(qos: int) -> None:
    world = World(Limits(max_inflight=1, max_queued_messages=1, on_overflow=DROP_NEWEST, min_drain_rate=0))
    reader = world.connect("r", auto_ack=False)
    reader.subscribe("t", qos=2)
    writer = world.connect("w", auto_ack=False)
    writer.send(*alike("abcd", qos, first=5))
    answer = PUBACK if qos == 1 else PUBREC
    assert writer.received() == [Ack(answer, 5), Ack(answer, 6), Ack(answer, 7, 0x97), Ack(answer, 8, 0x97)]
    assert world.session("w").received.all() == ([5, 6] if qos == 2 else [])
    assert world.session("r").drops == {QUEUE_FULL: 2}
    old = world.connect("o", V311, auto_ack=False)
    old.send(*alike("ef", qos))
    assert old.received() == [Ack(answer, 1), Ack(answer, 2)], "3.1.1 has no word for it"
    assert world.session("o").received.all() == ([1, 2] if qos == 2 else [])


def test_identifiers_go_round_and_pass_over_those_in_use() -> None:
    world = World()
    reader = world.connect("r", auto_ack=False)
    reader.subscribe("t", qos=1)
    writer = world.connect("w")
    session = world.session("r")
    session.window.continue_at(65_533)
    writer.send(*alike("ab", 1))
    writer.send(*alike("cdef", 1))
    assert identifiers(reader) == [65_533, 65_534, 65_535, 1, 2, 3]
    session.window.continue_at(65_532)
    writer.send(*alike("ghij", 1))
    assert identifiers(reader) == [65_532, 4, 5, 6]


def test_an_acknowledgement_out_of_order_finds_its_message() -> None:
    world = World()
    reader = world.connect("r", V311, auto_ack=False, clean_start=True)
    reader.subscribe("t", qos=2)
    writer = world.connect("w")
    writer.send(*alike("abcd", 2))
    reader.send(Ack(PUBREC, 2), Ack(PUBREC, 1), Ack(PUBREC, 4), Ack(PUBREC, 3))
    session = world.session("r")
    assert session.window.released.all() == [2, 1, 4, 3]
    reader.received()
    reader.send(*[Ack(PUBCOMP, packet_id) for packet_id in (3, 4, 1, 2)])
    assert (len(session.window.released), session.window.quota) == (0, 1_000)


def test_the_qos_2_exchange_of_a_run_takes_a_block_for_each_of_its_steps() -> None:
    world = World()
    reader = world.connect("r", auto_ack=False)
    reader.subscribe("t", qos=2)
    writer = world.connect("w", auto_ack=False)
    blocks: list[tuple[str, int]] = []
    effects = world.broker.effects

    def look(chunk: bytes, client: Client) -> None:
        world.broker.feed(client.connection, chunk, world.now)
        for each in (reader, writer):
            blocks.extend((each.connection.client_id, len(chunk)) for chunk in each.connection.outbox.chunks)
        world.settle()

    def block(packets: list[Packet]) -> bytes:
        return b"".join([encode(packet, V5) for packet in packets])

    look(block(alike("abc", 2)), writer)
    for packet_type, client in ((PUBREC, reader), (PUBCOMP, reader), (PUBREL, writer)):
        look(block([Ack(packet_type, packet_id) for packet_id in (1, 2, 3)]), client)
    assert blocks == [("r", 27), ("w", 12), ("r", 12), ("w", 12)]
    assert not effects.changes
    session = world.session("r")
    assert (len(session.inflight), len(session.window.released), session.window.quota) == (0, 0, 1_000)
    assert len(world.session("w").received) == 0


def test_a_client_that_stops_reading_gets_the_rest_when_it_reads_again() -> None:
    world = World()
    reader = world.connect("r", auto_ack=False)
    reader.subscribe("t", qos=1)
    writer = world.connect("w")
    writer.send(*alike("ab", 1))
    reader.block()
    writer.send(*alike("cd", 1))
    assert world.session("r").queued == 2
    reader.unblock()
    assert reader.payloads() == ["a", "b", "c", "d"]


def test_a_run_goes_behind_a_backlog_that_leaves_in_several_passes() -> None:
    world = World(Limits(max_inflight=1_000))
    reader = world.connect("r", auto_ack=False)
    reader.subscribe("#", qos=1)
    writer = world.connect("w")
    reader.block()
    for letter in "abcd":
        writer.publish("long", letter * (FILL_BYTES // 2), 1)
    world.broker.unblock(reader.connection, world.now)
    assert world.session("r").queued == 2
    world.broker.feed(writer.connection, b"".join([encode(packet, V5) for packet in alike("ef", 1)]), world.now)
    world.settle()
    assert [payload[0] for payload in reader.payloads()] == ["a", "b", "c", "d", "e", "f"]


def test_messages_to_be_released_count_as_in_flight_from_the_start() -> None:
    world = World()
    reader = world.connect("r", auto_ack=False, expiry=60)
    reader.subscribe("t", qos=2)
    world.connect("w").send(*alike("abc", 2))
    reader.send(*[Ack(PUBREC, packet_id) for packet_id in (1, 2, 3)])
    reader.lose()
    world.connect("r", auto_ack=False, expiry=60, clean_start=False)
    assert world.session("r").window.high_water == 3, "a block of answers leaves the marks that one by one they would"
