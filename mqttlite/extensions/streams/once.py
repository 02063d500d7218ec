"""What a publisher asks with a message so that it takes effect once: `dedup-id` and `acks`."""

import re
from typing import Final, NamedTuple

from mqttlite.core.log_changes import LOG_MARK
from mqttlite.core.message import NO_PROPERTIES, Message, RawProperties
from mqttlite.extensions.dedup import DEDUP_ID, digest_of

ACKS: Final = "acks"
"""The user property with what the publisher has finished: the topic filter of its subscription, a space, and what
`parse_finished` takes."""

DEDUP: Final = f"{LOG_MARK}$stream-dedup/"
"""Begins the names of the records of ids."""

_DEDUP_ID: Final = DEDUP_ID.encode()
_ACKS: Final = ACKS.encode()
_NO_ACKS: Final[list[str]] = []
"""Never added to."""

_FINISHED: Final = re.compile(r"(?P<partition>[0-9]{1,4}):((?P<first>[0-9]{1,18})-)?(?P<last>[0-9]{1,18})")


class Finished(NamedTuple):
    """What a publisher has finished in a partition: all up to the offset `last`. With `first` it says that it began
    there, so that another one has not finished a part of it meanwhile."""

    text: str
    partition: int
    first: int | None
    last: int


def parse_finished(text: str) -> list[Finished]:
    """What `0:17,1:20-22` means. Raises `ValueError` with a sentence."""
    found: list[Finished] = []
    for each in text.split(","):
        parts = _FINISHED.fullmatch(each)
        if parts is None:
            raise ValueError(f"{text[:64]!r} is not of the form <partition>:<last>,… or <partition>:<first>-<last>,…")
        first, last = parts["first"], int(parts["last"])
        if first is not None and int(first) > last:
            raise ValueError(f"{each} ends before it begins")
        found.append(Finished(each, int(parts["partition"]), None if first is None else int(first), last))
    return found


def has_acks(raw: RawProperties) -> bool:
    """Whether messages with these properties may have `acks`."""
    return _ACKS in raw.data


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
