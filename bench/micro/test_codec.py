"""Bytes to packets and back, one packet at a time; and a stream's chunk cut into its packets."""

from functools import partial
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.micro.allocations import allocations
from bench.micro.conftest import Note
from mqttlite.wire.constants import PUBACK, PUBREC, PUBREL, V5, V311
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import encode
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import Ack, Connect, Packet, Publish, Subscribe, SubscriptionRequest, Will
from mqttlite.wire.properties import Properties

TOPIC: Final = b"site/7/device/1234/temp"
PAYLOAD: Final = b"0123456789abcdef"
CHUNK_BYTES: Final = 65_536
"""What one read of a socket gives."""


def some_properties() -> Properties:
    """What an application that uses 5.0 sends with a request."""
    return Properties(
        message_expiry_interval=60,
        content_type="application/json",
        response_topic="replies/1234",
        correlation_data=b"12345678",
        user_properties=[("trace", "4bf92f3577b34da6")],
    )


PACKETS: Final[dict[str, tuple[Packet, int]]] = {
    "publish-q0-v311": (Publish(TOPIC, PAYLOAD), V311),
    "publish-q0-v5": (Publish(TOPIC, PAYLOAD), V5),
    "publish-q0-4KiB": (Publish(TOPIC, b"x" * 4096), V5),
    "publish-q0-properties": (Publish(TOPIC, PAYLOAD, properties=some_properties()), V5),
    "publish-q1-v311": (Publish(TOPIC, PAYLOAD, qos=1, packet_id=7), V311),
    "publish-q1-v5": (Publish(TOPIC, PAYLOAD, qos=1, packet_id=7), V5),
    "publish-q1-properties": (Publish(TOPIC, PAYLOAD, qos=1, packet_id=7, properties=some_properties()), V5),
    "puback": (Ack(PUBACK, 7), V5),
    "puback-code": (Ack(PUBACK, 7, 0x10), V5),
    "pubrec": (Ack(PUBREC, 7), V5),
    "pubrel": (Ack(PUBREL, 7), V5),
    "connect-v311": (Connect("device-1234", V311, keep_alive=60), V311),
    "connect-v5-full": (
        Connect(
            "device-1234",
            keep_alive=60,
            username="device",
            password=b"secret",
            will=Will(b"state/1234", b"lost", qos=1, retain=True),
            properties=Properties(session_expiry_interval=3600, receive_maximum=100),
        ),
        V5,
    ),
    "subscribe-1": (Subscribe(7, (SubscriptionRequest(b"site/7/#", 1),)), V5),
    "subscribe-10": (Subscribe(7, tuple(SubscriptionRequest(b"site/%d/+/temp" % n, 1) for n in range(10))), V5),
}


def body_of(frame: bytes) -> tuple[int, bytes]:
    """What `decode` takes of a frame."""
    [packet] = Framer(len(frame)).split(frame)
    return packet


@pytest.mark.benchmark(group="decode", max_time=0.2)
@pytest.mark.parametrize("name", PACKETS)
def test_decode(benchmark: BenchmarkFixture, note: Note, name: str) -> None:
    packet, version = PACKETS[name]
    first, body = body_of(encode(packet, version))
    assert benchmark(decode, first, body, version) == packet
    note(**allocations(partial(decode, first, body, version)))


@pytest.mark.benchmark(group="encode", max_time=0.2)
@pytest.mark.parametrize("name", PACKETS)
def test_encode(benchmark: BenchmarkFixture, note: Note, name: str) -> None:
    packet, version = PACKETS[name]
    frame = benchmark(encode, packet, version)
    assert decode(*body_of(frame), version) == packet
    note(**allocations(partial(encode, packet, version)))


@pytest.mark.benchmark(group="frame", max_time=0.3)
@pytest.mark.parametrize("payload_bytes", [16, 1024], ids=["16B", "1KiB"])
def test_frame_a_chunk_of_64_kib(benchmark: BenchmarkFixture, note: Note, payload_bytes: int) -> None:
    """The chunk begins and ends in the middle of a packet, as a busy stream's do."""
    frame = encode(Publish(TOPIC, b"x" * payload_bytes), V5)
    stream = frame * (CHUNK_BYTES // len(frame) + 3)
    cut = len(frame) // 2
    head, chunk = stream[:cut], stream[cut : cut + CHUNK_BYTES]

    def split() -> int:
        framer = Framer(len(frame))
        return sum(1 for part in (head, chunk) for _packet in framer.split(part))

    assert benchmark(split) == (cut + CHUNK_BYTES) // len(frame)
    note(packets=(cut + CHUNK_BYTES) // len(frame))


@pytest.mark.benchmark(group="frame", max_time=0.3)
@pytest.mark.parametrize("size", [65_536, 1_048_576], ids=["64KiB", "1MiB"])
def test_frame_one_packet_that_comes_in_pieces_of_1_kib(benchmark: BenchmarkFixture, size: int) -> None:
    """The price of a packet grows with its size, not with its square."""
    frame = encode(Publish(TOPIC, b"x" * size), V5)
    pieces = [frame[at : at + 1024] for at in range(0, len(frame), 1024)]

    def split() -> int:
        framer = Framer(len(frame))
        return sum(1 for piece in pieces for _packet in framer.split(piece))

    assert benchmark(split) == 1
