"""What a publisher asks with a message so that it takes effect once: `dedup-id` and `acks`."""

from typing import Final

from mqttlite.core.log_changes import LOG_MARK
from mqttlite.core.message import NO_PROPERTIES, Message
from mqttlite.extensions.dedup import DEDUP_ID, digest_of

ACKS: Final = "acks"
"""The user property with what the publisher has finished: the topic filter of its subscription, a space, positions."""

DEDUP: Final = f"{LOG_MARK}$stream-dedup/"
"""Begins the names of the records of ids."""

_DEDUP_ID: Final = DEDUP_ID.encode()
_ACKS: Final = ACKS.encode()
_NO_ACKS: Final[list[str]] = []
"""Never added to."""


def asked_with(message: Message) -> tuple[bytes, list[str]]:
    """The digest of the first `dedup-id` of a message, empty for none, and its `acks`."""
    raw = message.raw
    if raw is NO_PROPERTIES or (raw is not None and _DEDUP_ID not in raw.data and _ACKS not in raw.data):
        return b"", _NO_ACKS
    digest, acks = b"", _NO_ACKS
    for name, value in message.properties.user_properties:
        if name == DEDUP_ID:
            digest = digest or digest_of(value)
        elif name == ACKS:
            acks = [*acks, value]
    return digest, acks
