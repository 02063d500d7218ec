"""Builds the bodies of pushed messages: Google's JSON, or only the payload."""

from typing import Final

import msgspec

from mqttlite.core.message import Message
from mqttlite.extensions.queues.message_json import message_json

JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"
TEXT: Final = "text/plain; charset=utf-8"


def wrapped(message: Message, subscription: str, attempt: int) -> bytes:
    """The body of a push. Like Google, it has two members in both spellings, for all receivers."""
    found = message_json(message)
    found["message_id"] = found["messageId"]
    found["publish_time"] = found["publishTime"]
    return msgspec.json.encode({"message": found, "subscription": subscription, "deliveryAttempt": attempt})


def content_type(message: Message) -> str:
    """The Content-Type of a plain payload: the publisher's, if it is valid in a header."""
    properties = message.properties
    given = properties.content_type
    if given and given.isascii() and given.isprintable() and len(given) <= MAX_CONTENT_TYPE:
        return given
    return TEXT if properties.payload_format_indicator == 1 else BYTES


MAX_CONTENT_TYPE: Final = 256
"""The longest Content Type that is sent as a header."""
