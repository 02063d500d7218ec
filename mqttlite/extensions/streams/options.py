"""The options of a stream."""

import re
from typing import Final

import msgspec

from mqttlite.extensions.namespaces import check_plain_filter
from mqttlite.extensions.streams.shared_options import SharedGroupOptions

MAX_NAME: Final = 128
"""The longest name of a stream. Names appear in topics, metrics and records."""

MAX_FILTERS: Final = 100
"""The most topic filters of one stream."""

MAX_PARTITIONS: Final = 1_000
"""The most partitions of one stream."""

_NAME: Final = re.compile(r"[A-Za-z0-9._~-]+")

MAX_SHARED_GROUPS: Final = 100
"""The most shared groups in the options of one stream."""

MAX_KEEP_S: Final = 100 * 366 * 86_400


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One stream."""

    name: str
    """The name. Readers subscribe to `$stream/<name>`."""
    filters: tuple[str, ...] = ()
    """The topic filters whose messages it keeps."""
    partitions: int = 4
    """How many partitions it has. Messages with the same key are in one partition, in order. It cannot be changed."""
    keep_s: int = 7 * 86_400
    """How long messages are kept. 0: for any time."""
    keep_bytes: int = 1_073_741_824
    """How many bytes of messages are kept, in all partitions together, as they are counted in memory. The oldest go
    first."""
    last_value: bool = False
    """Whether the newest message of each key is kept longer than that, until one with an empty payload removes the
    key. Then a message without a key is refused, and so is one for which there is no room."""
    keep_tombstones_s: int = 86_400
    """How long a message that removes a key is kept at least, so that readers see that it is gone."""
    groups: tuple[SharedGroupOptions, ...] = ()
    """Its shared groups. Others are made by their first subscription."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > MAX_NAME or self.name in (".", ".."):
            raise ValueError(
                f"name is {self.name[:MAX_NAME]!r}: the name of a stream has 1 to {MAX_NAME} letters, digits and any "
                "of . _ ~ -, and is not . or .., which no URL can name"
            )
        if len(self.filters) > MAX_FILTERS:
            raise ValueError(f"filters has {len(self.filters)} filters: {MAX_FILTERS} at most")
        if len(set(self.filters)) < len(self.filters):
            raise ValueError("filters names a filter twice")
        for each in self.filters:
            check_plain_filter(each, "a stream is bound to plain topics")
        if not 1 <= self.partitions <= MAX_PARTITIONS:
            raise ValueError(f"partitions is {self.partitions}: it may be 1 to {MAX_PARTITIONS}")
        if not 0 <= self.keep_s <= MAX_KEEP_S:
            raise ValueError(f"keep_s is {self.keep_s}: it may be 1 to {MAX_KEEP_S}, or 0 for any time")
        if self.keep_bytes < 1:
            raise ValueError(f"keep_bytes is {self.keep_bytes}: 1 at least")
        if len(self.groups) > MAX_SHARED_GROUPS:
            raise ValueError(f"groups has {len(self.groups)} groups: {MAX_SHARED_GROUPS} at most")
        if len({each.name for each in self.groups}) < len(self.groups):
            raise ValueError("groups names a group twice")
        if not 0 <= self.keep_tombstones_s <= MAX_KEEP_S:
            raise ValueError(f"keep_tombstones_s is {self.keep_tombstones_s}: it may be 0 to {MAX_KEEP_S}")

    def is_below(self, mount_point: bytes) -> bool:
        """Whether all topics of the stream are below a mount point."""
        return all(each.encode().startswith(mount_point) for each in self.filters)
