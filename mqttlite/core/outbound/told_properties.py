"""The user properties that identify a message to its receivers: `message-id`, `publish-time`, and `publisher-id` if
they may see it.

Invariant: they follow the publisher's properties, which stay unchanged. So the last ones are the broker's.
"""

from datetime import UTC, datetime
from typing import Final, final

from mqttlite.wire.primitives import encode_utf8, encode_varint

MESSAGE_ID: Final = "message-id"
PUBLISH_TIME: Final = "publish-time"
PUBLISHER_ID: Final = "publisher-id"

USER_PROPERTY: Final = b"\x26"
_MESSAGE_ID: Final = USER_PROPERTY + encode_utf8(MESSAGE_ID)
_PUBLISH_TIME: Final = USER_PROPERTY + encode_utf8(PUBLISH_TIME)
_PUBLISHER_ID: Final = USER_PROPERTY + encode_utf8(PUBLISHER_ID)


def told_properties(number: int, publisher: str) -> bytes:
    """The properties for the message with this number. An empty `publisher` is left out."""
    told = _MESSAGE_ID + encode_utf8(str(number)) + _PUBLISH_TIME + encode_utf8(time_text(number))
    return told + _PUBLISHER_ID + encode_utf8(publisher) if publisher else told


def with_more(block: bytes, more: bytes) -> bytes:
    """Append properties to the properties of a packet, which include their length."""
    at = 0
    while block[at] & 0x80:
        at += 1
    body = block[at + 1 :]
    return encode_varint(len(body) + len(more)) + body + more


def time_text(number: int) -> str:
    """The time in a message's number, in RFC 3339 format, UTC, with microseconds."""
    seconds, micros = divmod(number, 1_000_000)
    return f"{_second(seconds)}.{micros:06d}Z"


@final
class _Latest:
    """Caches the text of the latest second, which many messages share."""

    __slots__ = ("second", "text")

    def __init__(self) -> None:
        self.second: int = -1
        self.text: str = ""


_LATEST: Final = _Latest()


def _second(seconds: int) -> str:
    if seconds != _LATEST.second:
        _LATEST.second = seconds
        _LATEST.text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return _LATEST.text
