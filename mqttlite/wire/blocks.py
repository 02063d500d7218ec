"""Runs of packets that differ in their packet identifiers, built and recognised as one block of bytes.

A sender of many packets counts its identifiers up, so the acknowledgements of a run are a slice of a table that has
the acknowledgements of all identifiers end to end. Invariant: a block is, byte for byte, the packets that `encode`
would make.
"""

from typing import Final, final

from mqttlite.wire.constants import PUBACK, PUBCOMP, PUBREC, PUBREL
from mqttlite.wire.primitives import HIGH, LOW

_IDENTIFIERS: Final = 65_536

_AT_ONCE: Final = 256
"""Acknowledgements to compare before anything is known of them, a kilobyte."""


def _all_of(packet_type: int) -> bytes:
    """The acknowledgements of one type for every identifier, without reason code."""
    block = bytearray(bytes((packet_type << 4 | (2 if packet_type == PUBREL else 0), 2, 0, 0)) * _IDENTIFIERS)
    block[2::4] = HIGH
    block[3::4] = LOW
    return bytes(block)


PUBACKS: Final = _all_of(PUBACK)
PUBRECS: Final = _all_of(PUBREC)
PUBRELS: Final = _all_of(PUBREL)
PUBCOMPS: Final = _all_of(PUBCOMP)
"""A quarter of a megabyte each."""


def counted(acks: bytes, first: int, count: int) -> bytes:
    """The acknowledgements of `count` identifiers from `first` on, from one of the tables above."""
    return acks[4 * first : 4 * (first + count)]


def leading(data: bytes, at: int, acks: bytes, first: int, most: int) -> int:
    """How many of those acknowledgements, `most` at the most, `data` has at `at`; where fewer, at least half of them.

    So a caller that comes again has them all in a few steps. A step costs what it finds, however many might have been
    there: else who has thousands of messages under way could break each block after its first.
    """
    room = len(data) - at
    if room == 4:  # one that came alone, as most do from a fleet
        is_expected = most > 0 and data[at + 3] == first & 255 and data[at + 2] == first >> 8 and data[at] == acks[0]
        return 1 if is_expected and data[at + 1] == 2 else 0
    most = min(most, room // 4)
    found = min(most, _AT_ONCE)
    while found > 0 and data[at : at + 4 * found] != acks[4 * first : 4 * (first + found)]:
        found //= 2
    if found < _AT_ONCE:
        return found
    while found < most:
        more = min(2 * found, most)
        if data[at + 4 * found : at + 4 * more] != acks[4 * (first + found) : 4 * (first + more)]:
            break
        found = more
    return found


def numbered(packets: bytes, size: int, at: int, first: int) -> bytes:
    """Packets of one size with new identifiers, from `first` on, in the place of those that they have at `at`."""
    block = bytearray(packets)
    block[at::size] = HIGH[first : first + len(packets) // size]
    block[at + 1 :: size] = LOW[first : first + len(packets) // size]
    return bytes(block)


@final
class Ids:
    """The identifiers of packets that came one behind the other: counted up from the first, or as they came."""

    __slots__ = ("_high", "_low", "count", "counted", "first")

    def __init__(self, first: int, count: int = 1, high: bytes = b"", low: bytes = b"") -> None:
        self.first: Final = first
        self.count: Final = count
        self.counted: Final = not high
        self._high: Final = high
        self._low: Final = low

    def get(self, number: int) -> int:
        return self.first + number if self.counted else self._high[number] << 8 | self._low[number]

    def acknowledged(self, packet_type: int, reason_code: int) -> bytes:
        """PUBACKs or PUBRECs for all of them, with one reason code."""
        size = 5 if reason_code else 4
        block = bytearray(bytes((packet_type << 4, size - 2, 0, 0, reason_code))[:size] * self.count)
        block[2::size] = HIGH[self.first : self.first + self.count] if self.counted else self._high
        block[3::size] = LOW[self.first : self.first + self.count] if self.counted else self._low
        return bytes(block)


def ids_of(data: bytes, at: int, end: int, size: int) -> Ids:
    """The identifiers at `at` and every `size` bytes behind it, up to `end`, but for the first zero and what follows.

    The one at `at` is not zero.
    """
    high, low = data[at:end:size], data[at + 1 : end : size]
    first = high[0] << 8 | low[0]
    if high == HIGH[first : first + len(high)] and low == LOW[first : first + len(low)]:
        return Ids(first, len(high))
    zero = low.find(0)
    while zero >= 0 and high[zero]:
        zero = low.find(0, zero + 1)
    if zero >= 0:
        high, low = high[:zero], low[:zero]
    return Ids(first, len(high), high, low)
