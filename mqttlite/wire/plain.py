"""The properties of a PUBLISH that is passed on as it came, looked at where they lie: no object is made of them.

Invariant: what is plain here `decode_properties` takes too, and there is nothing in it to change or to take away.
"""

from collections.abc import Sequence
from typing import Final

from mqttlite.wire.primitives import encode_varint

NOT_PLAIN: Final = -2
"""Decode them: they are faulty, or name an alias or a subscription, or have text that is not ASCII."""

NO_EXPIRY: Final = -1

SUBSCRIPTION_IDENTIFIER: Final = 0x0B


def expiry_if_plain(data: bytes, at: int, end: int) -> int:
    """The Message Expiry Interval among the properties in `data[at:end]`, in seconds; `NO_EXPIRY` or `NOT_PLAIN`."""
    expiry = NO_EXPIRY
    seen = 0
    while at < end:
        identifier = data[at]
        at += 1
        if identifier != 0x26:  # a user property, of which there may be many
            if seen >> identifier & 1:
                return NOT_PLAIN
            seen |= 1 << identifier
        if identifier == 0x02:
            if at + 4 > end:
                return NOT_PLAIN
            expiry = int.from_bytes(data[at : at + 4], "big")
            at += 4
        elif identifier == 0x01:
            if at == end or data[at] > 1:
                return NOT_PLAIN
            at += 1
        elif identifier in (0x03, 0x08, 0x09, 0x26):
            strings = 2 if identifier == 0x26 else 1
            while strings:
                if at + 2 > end:
                    return NOT_PLAIN
                start = at + 2
                at = start + (data[at] << 8 | data[at + 1])
                if at > end:
                    return NOT_PLAIN
                if identifier != 0x09 and not _is_plain_text(data[start:at], identifier == 0x08):
                    return NOT_PLAIN
                strings -= 1
        else:
            return NOT_PLAIN
    return expiry


def with_identifiers(block: bytes, identifiers: Sequence[int]) -> bytes:
    """The properties of a PUBLISH, with their length, and with subscription identifiers where `encode_properties` has
    them. `block` has none, and is plain."""
    start = 1
    while block[start - 1] > 0x7F:
        start += 1
    at = start
    while at < len(block) and block[at] < SUBSCRIPTION_IDENTIFIER:
        if block[at] == 0x01:
            at += 2
        elif block[at] == 0x02:
            at += 5
        else:
            at += 3 + (block[at + 1] << 8 | block[at + 2])
    added = b"".join([b"\x0b" + encode_varint(identifier) for identifier in identifiers])
    return encode_varint(len(added) + len(block) - start) + block[start:at] + added + block[at:]


def split_identifiers(block: bytes) -> tuple[tuple[int, ...], bytes]:
    """The opposite: the subscription identifiers before all other properties, and those with their length. `block` has
    a length of one byte. What is no identifier of up to 28 bits is left with the others."""
    identifiers: list[int] = []
    at = 1
    while at < len(block) and block[at] == SUBSCRIPTION_IDENTIFIER:
        end = at + 1
        value = shift = 0
        while end < len(block) and block[end] > 0x7F and shift < 21:
            value |= (block[end] & 0x7F) << shift
            shift += 7
            end += 1
        if end == len(block) or block[end] > 0x7F or not value | block[end]:
            break
        identifiers.append(value | block[end] << shift)
        at = end + 1
    rest = block[at:]
    return tuple(identifiers), encode_varint(len(rest)) + rest


def _is_plain_text(text: bytes, is_topic: bool) -> bool:
    """Whether it is ASCII without U+0000, and a topic name if it is to be one."""
    if not text.isascii() or 0 in text:
        return False
    return not is_topic or (len(text) > 0 and 0x2B not in text and 0x23 not in text)
