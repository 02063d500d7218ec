"""The user properties of a queue's messages: what consumers are told of each delivery, and what publishers say.

Invariant: the publisher's own properties come first and as they came.
"""

from datetime import UTC, datetime
from typing import Final

from mqttlite.core.message import Message, RawProperties
from mqttlite.wire.constants import PUBLISH
from mqttlite.wire.primitives import encode_utf8, encode_varint
from mqttlite.wire.properties import encode_properties

ACK_ID: Final = "ack-id"
MESSAGE_ID: Final = "message-id"
ATTEMPT: Final = "delivery-attempt"
PUBLISH_TIME: Final = "publish-time"
ORDERING_KEY: Final = "ordering-key"
PRIORITY: Final = "priority"

_USER: Final = b"\x26"
_ACK_ID: Final = _USER + encode_utf8(ACK_ID)
_MESSAGE_ID: Final = _USER + encode_utf8(MESSAGE_ID)
_ATTEMPT: Final = _USER + encode_utf8(ATTEMPT)
_PUBLISH_TIME: Final = _USER + encode_utf8(PUBLISH_TIME)

MAX_PRIORITY: Final = 9
"""Priorities are 0 to 9; what is no number counts as 0, and a higher one as 9."""


def time_text(number: int) -> str:
    """The time in the number of a message, as RFC 3339 says it, in UTC and microseconds."""
    seconds, micros = divmod(number, 1_000_000)
    return f"{_second(seconds)}.{micros:06d}Z"


class _Latest:
    """The text of a second, which many messages share."""

    def __init__(self) -> None:
        self.second: int = -1
        self.text: str = ""


_LATEST: Final = _Latest()


def _second(seconds: int) -> str:
    if seconds != _LATEST.second:
        _LATEST.second = seconds
        _LATEST.text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return _LATEST.text


def user_property(name: str, message: Message) -> str:
    """The first value of a user property; empty where there is none."""
    raw = message.raw
    if raw is not None and name.encode() not in raw.data:  # mostly so, and then nothing is decoded
        return ""
    for key, value in message.properties.user_properties:
        if key == name:
            return value
    return ""


def priority_of(message: Message) -> int:
    """What the publisher said, from 0 to `MAX_PRIORITY`."""
    text = user_property(PRIORITY, message)
    if not (text.isascii() and text.isdecimal()):
        return 0
    return min(int(text[:3]), MAX_PRIORITY)


def with_delivery_properties(message: Message, ack_id: str, attempt: int) -> Message:
    """The message with the properties that tell a consumer about this delivery."""
    number = message.number
    added = (
        _ACK_ID
        + _text(ack_id)
        + _MESSAGE_ID
        + _text(str(number))
        + _ATTEMPT
        + _text(str(attempt))
        + _PUBLISH_TIME
        + _text(time_text(number))
    )
    raw = message.raw
    block = raw.data if raw is not None else encode_properties(message.properties, PUBLISH)
    body = block[_length_bytes(block) :]
    properties = RawProperties(encode_varint(len(body) + len(added)) + body + added, message.expiry_s())
    return message.with_raw(properties)


def _text(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data) >> 8, len(data) & 0xFF)) + data


def _length_bytes(block: bytes) -> int:
    """How many bytes the length at the beginning of a property block takes."""
    at = 0
    while block[at] & 0x80:
        at += 1
    return at + 1
