"""Cuts a byte stream into packets. Keeps the start of a packet until the rest arrives; does not read inside packets.

Invariant: the kept bytes are shorter than one packet of `max_packet_size` bytes unless `put` added to them, take little
more memory than that, however small the pieces in which they arrive, and are copied three times at most.
"""

from collections.abc import Iterator
from typing import Final, final

from mqttlite.wire.errors import MalformedPacket, PacketTooLarge

PIECES: Final = 1_000
"""Pieces of a packet that may lie side by side before they are made one: of two bytes each takes forty."""


@final
class Framer:
    """One stream's memory.

    `join` gives the bytes to look at, `keep` takes back what was no whole packet. The broker walks the bytes itself
    between the two; `split` does all three for callers that want packets one by one.
    """

    __slots__ = ("_have", "_kept", "_need", "_pieces", "max_packet_size")

    def __init__(self, max_packet_size: int) -> None:
        self.max_packet_size: int = max_packet_size
        self._kept: list[bytes] = []
        self._pieces = 0  # at the end of `_kept`, not joined yet
        self._have = 0
        self._need = 0

    @property
    def kept_bytes(self) -> int:
        """Bytes of an unfinished packet that wait here."""
        return self._have

    @property
    def missing_bytes(self) -> int:
        """Bytes of it that are known to be still to come."""
        return max(0, self._need - self._have)

    def join(self, chunk: bytes) -> bytes:
        """Join the kept bytes and `chunk`; empty while the packet that was begun is known not to be whole yet."""
        if self._have == 0:
            return chunk
        self._kept.append(chunk)
        self._have += len(chunk)
        if self._have < self._need:
            self._pieces += 1
            if self._pieces == PIECES:
                self._kept[-PIECES:] = [b"".join(self._kept[-PIECES:])]
                self._pieces = 0
            return b""
        data = b"".join(self._kept)
        self._kept = []
        self._have = self._need = self._pieces = 0
        return data

    def put(self, chunk: bytes) -> None:
        """Keep `chunk` behind the kept bytes without looking at it."""
        self._kept.append(chunk)
        self._have += len(chunk)

    def take(self) -> bytes:
        """Give the kept bytes away."""
        kept = b"".join(self._kept)
        self.clear()
        return kept

    def drop_unfinished(self) -> None:
        """Forget the start of a packet whose rest does not come; keep whole packets before it."""
        if self._have == 0:
            return
        kept = self.take()
        end = 0
        try:
            while 0 < (size := packet_size(kept, end)) <= len(kept) - end:
                end += size
        except MalformedPacket:
            pass  # it is none that could be kept
        if end:
            self.put(kept[:end])

    def clear(self) -> None:
        """Forget the kept bytes."""
        self._kept = []
        self._have = self._need = self._pieces = 0

    def keep(self, data: bytes, at: int) -> None:
        """Keep `data[at:]`, the start of a packet, or packets to be looked at later.

        Raises `MalformedPacket` for a remaining length of more than four bytes or one that is longer than it need
        be, `PacketTooLarge` as soon as the length is known.
        """
        size = packet_size(data, at)
        if size > self.max_packet_size:
            raise PacketTooLarge(f"packet of {size} bytes, at most {self.max_packet_size} accepted")
        self._kept = [data[at:]]
        self._have = len(data) - at
        self._need = size

    def split(self, chunk: bytes) -> Iterator[tuple[int, bytes]]:
        """The whole packets that `chunk` completes, as (first byte, body); walk them to the end or lose the rest.

        Raises what `keep` raises, after the packets that stand before the fault.
        """
        data = self.join(chunk)
        at, end = 0, len(data)
        while at < end:
            size = packet_size(data, at)
            if size == 0 or size > end - at or size > self.max_packet_size:
                self.keep(data, at)
                break
            body = at + 2
            while data[body - 1] > 0x7F:
                body += 1
            yield data[at], data[body : at + size]
            at += size


def packet_size(data: bytes, at: int) -> int:
    """Size in bytes of the packet that starts at `at`, its fixed header included; 0 while too little of it is here.

    Raises `MalformedPacket` for a remaining length that is longer than four bytes or than it need be [MQTT-1.5.5-1].
    """
    end = len(data)
    value = 0
    for size in range(1, 5):
        if at + size >= end:
            return 0
        byte = data[at + size]
        value |= (byte & 0x7F) << (7 * (size - 1))
        if byte < 0x80:
            if byte == 0 and size > 1:
                raise MalformedPacket("remaining length is longer than it need be [MQTT-1.5.5-1]")
            return 1 + size + value
    raise MalformedPacket("remaining length has more than four bytes")
