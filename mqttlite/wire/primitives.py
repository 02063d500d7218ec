"""The data types of MQTT (5.0 §1.5): integers, variable byte integers, strings, binary data.

`Cursor` reads and raises when it runs short, so that decoders never count bytes; the functions below it write.
"""

from typing import Final, final

from mqttlite.wire.constants import MAX_REMAINING_LENGTH, MAX_STRING_BYTES
from mqttlite.wire.errors import MalformedPacket

_TOO_SHORT: Final = "packet ends in the middle of a field"


@final
class Cursor:
    """A place in a packet's body; each read moves it on."""

    __slots__ = ("_at", "_data", "_end")

    def __init__(self, data: bytes) -> None:
        self._data: Final = data
        self._at = 0
        self._end = len(data)

    @property
    def at_end(self) -> bool:
        return self._at >= self._end

    def take(self, count: int) -> bytes:
        """The next `count` bytes. Raises `MalformedPacket` when there are fewer, as every read here does."""
        start = self._at
        if count > self._end - start:
            raise MalformedPacket(_TOO_SHORT)
        self._at = start + count
        return self._data[start : start + count]

    def u8(self) -> int:
        at = self._at
        if at >= self._end:
            raise MalformedPacket(_TOO_SHORT)
        self._at = at + 1
        return self._data[at]

    def u16(self) -> int:
        at = self._at
        if at + 2 > self._end:
            raise MalformedPacket(_TOO_SHORT)
        self._at = at + 2
        return self._data[at] << 8 | self._data[at + 1]

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def packet_id(self) -> int:
        """A packet identifier, never zero [MQTT-2.2.1-3]."""
        packet_id = self.u16()
        if packet_id == 0:
            raise MalformedPacket("packet identifier is zero [MQTT-2.2.1-3]")
        return packet_id

    def varint(self) -> int:
        """A variable byte integer of one to four bytes, in its shortest form [MQTT-1.5.5-1]."""
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0 and shift:
                    raise MalformedPacket("variable byte integer is longer than it need be [MQTT-1.5.5-1]")
                return value
        raise MalformedPacket("variable byte integer has more than four bytes")

    def binary(self) -> bytes:
        """Binary data behind its two-byte length."""
        return self.take(self.u16())

    def utf8_bytes(self) -> bytes:
        """A UTF-8 string as its validated bytes: no surrogates [MQTT-1.5.4-1], no U+0000 [MQTT-1.5.4-2]."""
        raw = self.binary()
        check_utf8(raw)
        return raw

    def utf8(self) -> str:
        """A UTF-8 string, under the same rules as `utf8_bytes`."""
        return check_utf8(self.binary())

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(self._end - self._at)

    def rewind(self) -> None:
        """Begin again."""
        self._at = 0

    def finish(self) -> None:
        """Raises `MalformedPacket` when bytes are left behind the last field."""
        if self._at < self._end:
            raise MalformedPacket(f"{self._end - self._at} bytes behind the end of the packet")


def check_utf8(raw: bytes) -> str:
    """The text of `raw`. Raises `MalformedPacket` for ill-formed UTF-8 and for U+0000."""
    if 0 in raw:
        raise MalformedPacket("string contains U+0000 [MQTT-1.5.4-2]")
    try:
        return raw.decode()  # U+FEFF stays where it is [MQTT-1.5.4-3]
    except UnicodeDecodeError as error:
        raise MalformedPacket(f"string is not UTF-8: {error.reason} at byte {error.start} [MQTT-1.5.4-1]") from None


BYTES: Final = bytes(range(256))
"""Each byte, at its own place: a slice of it is cheaper than `to_bytes`."""

HIGH: Final = b"".join([bytes((high,)) * 256 for high in range(256)])
LOW: Final = BYTES * 256
"""The two bytes of every number of 16 bits, each at the place that the number is."""

_SHORT: Final = 0x4000


def _all_u16() -> bytes:
    """The numbers of 16 bits, end to end."""
    block = bytearray(2 * 0x10000)
    block[0::2] = HIGH
    block[1::2] = LOW
    return bytes(block)


def _all_short() -> bytes:
    """The variable byte integers below `_SHORT` in two bytes, end to end: those of most packets."""
    block = bytearray(2 * _SHORT)
    block[0::2] = BYTES[0x80:] * 0x80
    block[1::2] = b"".join([bytes((high,)) * 0x80 for high in range(0x80)])
    return bytes(block)


_U16S: Final = _all_u16()
_SHORT_VARINTS: Final = _all_short()


def encode_varint(value: int) -> bytes:
    """A variable byte integer in its shortest form. Raises `ValueError` outside of 0 to 268 435 455."""
    if 0 <= value < 0x80:
        return BYTES[value : value + 1]
    if 0 <= value < _SHORT:
        return _SHORT_VARINTS[2 * value : 2 * value + 2]
    if not 0 <= value <= MAX_REMAINING_LENGTH:
        raise ValueError(f"{value} does not fit a variable byte integer: the largest is {MAX_REMAINING_LENGTH}")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_u8(value: int) -> bytes:
    """One byte. Raises `ValueError` for what does not fit, as the next two do."""
    return _encode_uint(value, 1)


def encode_u16(value: int) -> bytes:
    return _U16S[2 * value : 2 * value + 2] if 0 <= value < 0x10000 else _encode_uint(value, 2)


def encode_u32(value: int) -> bytes:
    return _encode_uint(value, 4)


def encode_packet_id(packet_id: int) -> bytes:
    """A packet identifier. Raises `ValueError` for zero, which is none [MQTT-2.2.1-3], and above 65 535."""
    if not 0 < packet_id <= 0xFFFF:
        raise ValueError(f"packet identifier {packet_id}: the least is 1, the largest 65535 [MQTT-2.2.1-3]")
    return encode_u16(packet_id)


def _encode_uint(value: int, size: int) -> bytes:
    try:
        return value.to_bytes(size, "big")
    except OverflowError:
        raise ValueError(f"{value} does not fit {size} unsigned bytes") from None


def encode_binary(raw: bytes) -> bytes:
    """Binary data behind its length. Raises `ValueError` above 65 535 bytes."""
    if len(raw) > MAX_STRING_BYTES:
        raise ValueError(f"field of {len(raw)} bytes: MQTT allows {MAX_STRING_BYTES}")
    return encode_u16(len(raw)) + raw


def encode_utf8(text: str) -> bytes:
    """A UTF-8 string behind its length. Raises `ValueError` for surrogates, U+0000 or more than 65 535 bytes."""
    if "\0" in text:
        raise ValueError("string contains U+0000, which MQTT does not allow [MQTT-1.5.4-2]")
    return encode_binary(text.encode())
