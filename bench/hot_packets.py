"""The packets of a topic with very many subscribers, by hand: what reads and writes them is to cost little."""

import struct
from typing import Final

TOPIC: Final = "news"


def text(value: str) -> bytes:
    """A UTF-8 string, with its length."""
    return struct.pack(">H", len(value)) + value.encode()


def packet(first: int, body: bytes) -> bytes:
    """A packet of less than 128 bytes."""
    assert len(body) < 128, "the length has one byte"
    return bytes([first, len(body)]) + body
