"""Bytes give packets or a `PeerError`, never anything else; and what was read can be written and read again."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.wire.decode import connect_version, decode
from mqttlite.wire.encode import encode
from mqttlite.wire.errors import PeerError
from mqttlite.wire.framer import Framer
from tests.support.examples import examples
from tests.support.packets import VERSIONS, decode_frame, raw
from tests.support.rounds import todays
from tests.unit.wire.good import ACCEPTED, GOOD

FRAMES = [raw(text) for _version, _what, text, _packet in GOOD + ACCEPTED if len(raw(text)) < 200]


def read(first: int, body: bytes, version: int) -> bool:
    """Whether these bytes are a packet, which then survives being written."""
    try:
        packet = decode(first, body, version)
    except PeerError:
        return False
    written = encode(packet, version)
    assert decode_frame(written, version) == packet
    return True


def feed(stream: bytes) -> int:
    """How many packets are in that stream."""
    found = 0
    for version in VERSIONS:
        try:
            for first, body in Framer(1000).split(stream):
                found += read(first, body, version)
        except PeerError:
            continue
    return found


def hurt(frame: bytes, rng: random.Random) -> bytes:
    """A frame with one to three faults: a bit, a byte, a piece gone, come twice or come from another frame."""
    hurt = bytearray(frame)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(hurt) + 1)
        end = min(len(hurt), at + rng.randint(1, 4))
        other = rng.choice(FRAMES)
        piece = other[rng.randrange(len(other)) :][: rng.randint(1, 8)]
        hurt[at:end] = rng.choice(
            [
                bytes([byte ^ 1 << rng.randrange(8) for byte in hurt[at:end]]),
                rng.choice([b"\0", b"\1", b"\x7f", b"\x80", b"\xff", rng.randbytes(1)]),
                b"",
                bytes(hurt[at:end]) * 2,
                piece,
            ]
        )
    return bytes(hurt)


@pytest.mark.long
@examples(200)
@given(st.binary(max_size=64))
def test_any_stream_is_packets_or_a_peers_error(stream: bytes) -> None:
    feed(stream)


@examples(200)
@given(st.integers(0, 255), st.binary(max_size=64))
def test_any_body_is_a_packet_or_a_peers_error(first: int, body: bytes) -> None:
    for version in VERSIONS:
        read(first, body, version)


@examples(100)
@given(st.binary(max_size=16))
def test_any_connect_has_a_version_or_is_a_peers_error(body: bytes) -> None:
    try:
        assert connect_version(body) in VERSIONS
    except PeerError:
        return


@pytest.mark.parametrize(
    "seed", [*range(50), *(pytest.param(seed, marks=pytest.mark.slow) for seed in todays(range(50, 500)))]
)
def test_a_hurt_packet_is_a_packet_or_a_peers_error(seed: int) -> None:
    rng = random.Random(seed)
    found = 0
    for _ in range(200):
        frame = hurt(rng.choice(FRAMES), rng)
        found += feed(frame)
        for version in VERSIONS:
            found += read(frame[0] if frame else 0, frame[2:], version)
    assert found > 50, "the hurts are so rude that nothing is a packet any more"
