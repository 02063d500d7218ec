"""The user properties of a queue's messages: those for consumers about a delivery, and those of publishers.

Invariant: the publisher's properties come first, unchanged.
"""

from typing import Final

from mqttlite.core.message import Message, RawProperties
from mqttlite.core.outbound.told_properties import MESSAGE_ID, PUBLISH_TIME, USER_PROPERTY, time_text, with_more
from mqttlite.wire.constants import PUBLISH
from mqttlite.wire.primitives import encode_utf8
from mqttlite.wire.properties import encode_properties

ACK_ID: Final = "ack-id"
ATTEMPT: Final = "delivery-attempt"
ORDERING_KEY: Final = "ordering-key"
PRIORITY: Final = "priority"

_ACK_ID: Final = USER_PROPERTY + encode_utf8(ACK_ID)
_MESSAGE_ID: Final = USER_PROPERTY + encode_utf8(MESSAGE_ID)
_ATTEMPT: Final = USER_PROPERTY + encode_utf8(ATTEMPT)
_PUBLISH_TIME: Final = USER_PROPERTY + encode_utf8(PUBLISH_TIME)

_EXPLICIT: Final = USER_PROPERTY + encode_utf8("ack") + encode_utf8("explicit")

MAX_PRIORITY: Final = 9
"""Priorities are 0 to 9. An invalid one counts as 0, a higher one as 9."""


def user_property(name: str, message: Message) -> str:
    """The first value of a user property; empty if there is none."""
    raw = message.raw
    if raw is not None and name.encode() not in raw.data:  # the usual case needs no decoding
        return ""
    for key, value in message.properties.user_properties:
        if key == name:
            return value
    return ""


def priority_of(message: Message) -> int:
    """The publisher's priority, from 0 to `MAX_PRIORITY`."""
    text = user_property(PRIORITY, message)
    if not (text.isascii() and text.isdecimal()):
        return 0
    return min(int(text[:3]), MAX_PRIORITY)


def with_delivery_properties(message: Message, ack_id: str, attempt: int, is_explicit: bool) -> Message:
    """The message with the properties of this delivery. `is_explicit` says that PUBACK does not acknowledge it."""
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
    if is_explicit:
        added += _EXPLICIT
    raw = message.raw
    block = raw.data if raw is not None else encode_properties(message.properties, PUBLISH)
    return message.with_raw(RawProperties(with_more(block, added), message.expiry_s()))


def _text(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data) >> 8, len(data) & 0xFF)) + data
