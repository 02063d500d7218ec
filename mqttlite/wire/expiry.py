"""Lowers the Message Expiry Interval in packets that were encoded before they waited [MQTT-3.3.2-6]."""

from typing import Final

_INTERVAL: Final = 0x02
_FLAG: Final = 0x01
_ALIAS: Final = 0x23
_IDENTIFIER: Final = 0x0B
_PAIR: Final = 0x26


def with_time_left(packets: bytes, count: int, left_s: int) -> bytes:
    """`count` QoS 0 PUBLISH packets of 5.0 with the same head, with the expiry interval cut to at most `left_s`."""
    size = len(packets) // count
    at = _interval_at(packets)
    if int.from_bytes(packets[at : at + 4], "big") <= left_s:
        return packets
    changed = bytearray(packets)
    for place, byte in enumerate(left_s.to_bytes(4, "big"), at):
        changed[place::size] = bytes((byte,)) * count
    return bytes(changed)


def _interval_at(packet: bytes) -> int:
    """Where the interval is in a PUBLISH that has one; its properties are in any order."""
    at = _behind_number(packet, 1)
    at += 2 + (packet[at] << 8 | packet[at + 1])
    at = _behind_number(packet, at)
    while packet[at] != _INTERVAL:
        identifier = packet[at]
        at += 1
        if identifier == _FLAG:
            at += 1
        elif identifier == _ALIAS:
            at += 2
        elif identifier == _IDENTIFIER:
            at = _behind_number(packet, at)
        else:
            for _ in range(2 if identifier == _PAIR else 1):
                at += 2 + (packet[at] << 8 | packet[at + 1])
    return at + 1


def _behind_number(packet: bytes, at: int) -> int:
    """Behind a variable byte integer."""
    while packet[at] > 0x7F:
        at += 1
    return at + 1
