"""Intervals that become shorter in packets that are made already."""

import pytest

from mqttlite.wire.constants import V5
from mqttlite.wire.decode import decode
from mqttlite.wire.expiry import with_time_left
from mqttlite.wire.packets import Publish

BEFORE = {
    "nothing": b"",
    "a format": b"\x01\x01",
    "text": b"\x03\x00\x03a\x02b",
    "a topic": b"\x08\x00\x01a",
    "data": b"\x09\x00\x05\x02\x00\x00\x00\x09",
    "an identifier": b"\x0b\x80\x02",
    "an alias": b"\x23\x00\x02",
    "pairs": b"\x26\x00\x02\x02\x02\x00\x00\x26\x00\x00\x00\x01\x02",
}


def packet(block: bytes, payload: bytes) -> bytes:
    rest = b"\x00\x03a/b" + bytes((len(block),)) + block + payload
    head = bytes((len(rest),)) if len(rest) < 128 else bytes((len(rest) & 127 | 128, len(rest) >> 7))
    return b"\x30" + head + rest


@pytest.mark.parametrize("payload_bytes", [1, 200])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("before", [*BEFORE.values(), b"".join(BEFORE.values())])
def test_it_is_found_wherever_it_is(before: bytes, count: int, payload_bytes: int) -> None:
    def packets(seconds: int) -> bytes:
        block = before + b"\x02" + seconds.to_bytes(4, "big") + b"\x26\x00\x01x\x00\x01y"
        return b"".join([packet(block, bytes((at,)) * payload_bytes) for at in range(count)])

    assert with_time_left(packets(70_000), count, 66_000) == packets(66_000)
    assert with_time_left(packets(5), count, 5) == packets(5)
    assert with_time_left(packets(5), count, 9) == packets(5), "it is not made longer"
    read = packets(7)
    decoded = decode(read[0], read[2 if payload_bytes == 1 else 3 : len(read) // count], V5)
    assert isinstance(decoded, Publish)
    assert decoded.properties.message_expiry_interval == 7
