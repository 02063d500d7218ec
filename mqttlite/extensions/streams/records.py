"""What the store keeps of streams beside their messages: definitions, segments, and the cursors of readers.

Each is a record under a name of its own. Invariant: a record that cannot be read loses positions at most, never
messages; a definition that cannot be read stops the start.
"""

from typing import Final

import msgspec

from mqttlite.core.log_changes import LOG_MARK
from mqttlite.extensions.streams.errors import StreamRecordError
from mqttlite.extensions.streams.options import StreamOptions
from mqttlite.extensions.streams.shared_options import SharedGroupSettings
from mqttlite.log.segments import Row

DEFINITION: Final = f"{LOG_MARK}$stream-options/"
LOG: Final = f"{LOG_MARK}$stream/"
CURSOR: Final = f"{LOG_MARK}$stream-cursor/"
PART: Final = f"{LOG_MARK}$stream-shared/"
"""Of a shared group: the number of its cursor's record follows, and a partition or `dead`."""


class Definition(msgspec.Struct, frozen=True):
    """A stream. `origin` says who made it: `config` or `admin`."""

    options: StreamOptions
    origin: str
    made_us: int = 0
    """When it was made, in microseconds of Unix time; 0: by an earlier version."""


class SavedSegments(msgspec.Struct, frozen=True, omit_defaults=True):
    """The segments of a partition, and how far it is compacted. It is the data of its log."""

    segments: list[Row] = []
    clean: int = 0
    clean_count: int = 0
    clean_bytes: int = 0
    tombstone_us: int = 0
    lateness: list[int] = []
    """See `Segments.lateness`. Earlier versions recorded none."""


class SavedCursor(msgspec.Struct, frozen=True, kw_only=True):
    """The cursor of a group, or of a subscription of a kept session, whose filter is as in its SUBSCRIBE."""

    stream: str
    positions: list[int]
    group: str = ""
    client_id: str = ""
    subscription: str = ""
    filter: str = ""
    since: int = 0
    tells_end: bool = False
    idle_since_us: int = 0
    shared: SharedGroupSettings | None = None
    """Of a shared group, whose positions are in other records once it has begun."""
    has_begun: bool = False
    mount_point: str = ""


def decode_definition(name: str, data: bytes) -> Definition:
    """Raises `StreamRecordError`, because without its definition the messages of a stream would be lost."""
    try:
        return msgspec.json.decode(data, type=Definition)
    except msgspec.DecodeError as error:
        raise StreamRecordError(
            f"the options of $stream/{name} cannot be used: {error}. Run the version of mqttlite that wrote them and "
            "delete the stream there, or restore a backup into another folder; nothing was changed"
        ) from None


def decode_segments(data: bytes) -> SavedSegments:
    """The segments of a record; none if it cannot be read."""
    try:
        return msgspec.json.decode(data, type=SavedSegments)
    except msgspec.DecodeError:
        return SavedSegments()


def decode_cursor(data: bytes) -> SavedCursor | None:
    """The cursor of a record; None if it cannot be read."""
    try:
        return msgspec.json.decode(data, type=SavedCursor)
    except msgspec.DecodeError:
        return None
