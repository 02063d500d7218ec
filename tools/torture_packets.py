"""Packets of MQTT by hand, for clients that know nothing of the broker which they torture."""

import asyncio
import struct


def packet(first: int, body: bytes) -> bytes:
    """A packet with that first byte."""
    length, size = b"", len(body)
    while True:
        size, rest = divmod(size, 128)
        length += bytes([rest | 128 if size else rest])
        if not size:
            return bytes([first]) + length + body


def text(value: str) -> bytes:
    """A UTF-8 string, with its length."""
    return struct.pack(">H", len(value)) + value.encode()


async def read_packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The first byte and the body of the next packet. Raises `IncompleteReadError` where the connection ends."""
    first = (await reader.readexactly(1))[0]
    length = shift = 0
    while True:
        digit = (await reader.readexactly(1))[0]
        length |= (digit & 127) << shift
        shift += 7
        if digit < 128:
            return first, await reader.readexactly(length)
