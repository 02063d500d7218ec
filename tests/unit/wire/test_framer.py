"""A stream becomes packets; where it is cut does not matter, and how much is kept is bounded."""

import tracemalloc

import pytest

from mqttlite.wire.constants import MAX_REMAINING_LENGTH
from mqttlite.wire.errors import MalformedPacket, PacketTooLarge
from mqttlite.wire.framer import PIECES, Framer, packet_size
from mqttlite.wire.primitives import encode_varint
from tests.support.packets import raw

TWO = raw("40 02 0001 c0 00")


def test_whole_packets_come_out_at_once() -> None:
    framer = Framer(100)
    assert list(framer.split(TWO)) == [(0x40, b"\0\1"), (0xC0, b"")]
    assert framer.kept_bytes == 0


def test_a_packet_comes_out_with_its_last_byte() -> None:
    framer = Framer(100)
    outcome = [list(framer.split(TWO[at : at + 1])) for at in range(len(TWO))]
    assert outcome == [[], [], [], [(0x40, b"\0\1")], [], [(0xC0, b"")]]
    assert framer.kept_bytes == 0


def test_the_start_of_a_packet_is_kept() -> None:
    framer = Framer(100)
    assert list(framer.split(TWO[:3])) == []
    assert framer.kept_bytes == 3
    assert list(framer.split(b"")) == []
    assert framer.kept_bytes == 3
    assert list(framer.split(TWO[3:5])) == [(0x40, b"\0\1")]
    assert framer.kept_bytes == 1


def test_nothing_gives_nothing() -> None:
    framer = Framer(100)
    assert framer.kept_bytes == 0
    assert list(framer.split(b"")) == []
    assert framer.kept_bytes == 0


def test_a_long_packet_is_not_looked_at_before_it_is_whole() -> None:
    framer = Framer(1000)
    framer.keep(raw("30 f403 0001 'a'"), 0)
    assert [framer.join(100 * b"x") for _ in range(4)] == 4 * [b""]
    assert framer.kept_bytes == 406
    assert framer.join(97 * b"x") == raw("30 f403 0001 'a'") + 497 * b"x"
    assert framer.kept_bytes == 0


@pytest.mark.parametrize("pieces", [PIECES - 1, PIECES, PIECES + 1, 3 * PIECES])
def test_a_packet_may_come_in_any_number_of_pieces(pieces: int) -> None:
    body = bytes(range(256)) * (2 * pieces // 256) + bytes(range(2 * pieces % 256))
    framer = Framer(100_000)
    assert list(framer.split(b"\x30" + encode_varint(len(body)))) == []
    for at in range(0, len(body) - 2, 2):
        assert list(framer.split(body[at : at + 2])) == []
    assert list(framer.split(body[-2:])) == [(0x30, body)]
    assert framer.kept_bytes == 0


@pytest.mark.long
def test_a_packet_in_small_pieces_takes_no_more_memory_than_it_is_long() -> None:
    framer = Framer(100_000)
    framer.keep(b"\x30" + encode_varint(90_000), 0)
    tracemalloc.start()
    try:
        for number in range(40_000):
            framer.join(number.to_bytes(2, "big"))
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < 2 * 80_000


def test_a_framer_gives_away_what_it_keeps() -> None:
    framer = Framer(100)
    framer.keep(b"\x30\x0a123", 0)
    assert framer.join(b"45") == b""
    framer.put(b"6")
    assert framer.take() == b"\x30\x0a123456"
    assert (framer.take(), framer.kept_bytes, framer.missing_bytes) == (b"", 0, 0)


def test_a_length_that_is_not_whole_yet_is_looked_at_again() -> None:
    framer = Framer(1000)
    framer.keep(b"\x30", 0)
    assert framer.join(b"\xf4") == b"\x30\xf4"


def test_a_framer_keeps_from_where_it_is_told() -> None:
    framer = Framer(100)
    framer.keep(TWO, 4)
    assert framer.kept_bytes == 2
    assert framer.join(b"\xff") == b"\xc0\x00\xff"


@pytest.mark.parametrize(
    ("head", "size"),
    [
        ("c0 00", 2),
        ("30 7f", 129),
        ("30 8001", 131),
        ("30 ff7f", 16386),
        ("30 808001", 16388),
        ("30 ffff7f", 2_097_155),
        ("30 80808001", 2_097_157),
        ("30 ffffff7f", MAX_REMAINING_LENGTH + 5),
    ],
)
def test_a_size_is_known_with_the_last_byte_of_the_length(head: str, size: int) -> None:
    before = b"\xff\xff\xff"
    assert packet_size(before + raw(head), 3) == size
    assert packet_size(before + raw(head) + b"\xff", 3) == size
    for end in range(1, len(raw(head))):
        assert packet_size(before + raw(head)[:end], 3) == 0


@pytest.mark.parametrize("start", ["", "30", "30 05", "30 05 0001", "30 80", "30 8000"])
def test_the_start_of_a_packet_whose_rest_does_not_come_is_dropped_and_those_before_it_are_not(start: str) -> None:
    framer = Framer(100)
    framer.put(TWO)
    framer.put(raw(start))
    framer.drop_unfinished()
    assert list(framer.split(TWO[:4])) == [(0x40, b"\0\1"), (0xC0, b""), (0x40, b"\0\1")]


@pytest.mark.parametrize("start", ["", "30", "30 05 0001"])
def test_without_a_whole_packet_nothing_is_left(start: str) -> None:
    framer = Framer(100)
    assert list(framer.split(raw(start))) == []
    framer.drop_unfinished()
    assert framer.kept_bytes == framer.missing_bytes == 0
    assert list(framer.split(TWO)) == [(0x40, b"\0\1"), (0xC0, b"")]


@pytest.mark.parametrize("text", ["30 8000", "30 ff00", "30 808000", "30 ffffff00", "30 80808000"])
def test_a_length_that_is_longer_than_need_be_is_malformed(text: str) -> None:
    with pytest.raises(MalformedPacket, match="longer than it need be"):
        packet_size(raw(text), 0)


@pytest.mark.parametrize("text", ["30 80808080", "30 ffffffff", "30 ffffff80 01"])
def test_a_length_of_five_bytes_is_malformed(text: str) -> None:
    with pytest.raises(MalformedPacket, match="more than four bytes"):
        packet_size(raw(text), 0)


@pytest.mark.parametrize("maximum", [129, 130])
def test_a_packet_is_at_most_as_large_as_agreed(maximum: int) -> None:
    assert list(Framer(maximum).split(b"\x30\x7f" + 127 * b"x")) == [(0x30, 127 * b"x")]
    framer = Framer(maximum)
    assert list(framer.split(b"\x30\x7f" + 126 * b"x")) == []
    assert list(framer.split(b"x")) == [(0x30, 127 * b"x")]


def test_a_packet_is_not_larger_than_agreed() -> None:
    with pytest.raises(PacketTooLarge, match="packet of 129 bytes, at most 128 accepted"):
        list(Framer(128).split(b"\x30\x7f" + 127 * b"x"))


def test_a_packet_that_is_too_large_is_refused_at_its_length() -> None:
    framer = Framer(128)
    assert list(framer.split(b"\x30")) == []
    with pytest.raises(PacketTooLarge):
        list(framer.split(b"\x7f"))


@pytest.mark.parametrize("fault", ["30 8000", "30 ffffffff", "30 7f"])
def test_the_packets_before_a_fault_come_out(fault: str) -> None:
    packets = Framer(100).split(TWO + raw(fault))
    assert next(packets) == (0x40, b"\0\1")
    assert next(packets) == (0xC0, b"")
    with pytest.raises((MalformedPacket, PacketTooLarge)):
        next(packets)
