"""The options of a group that shares the messages of a stream, as a queue does."""

from typing import Final, Literal

import msgspec

MIN_DEADLINE_S: Final = 1.0
MAX_DEADLINE_S: Final = 600.0
"""With less, a slow client or network causes duplicates; with more, a member that hangs holds up its messages."""

MAX_ATTEMPTS: Final = 100

MAX_DELAY_S: Final = 86_400.0

MAX_GROUP_NAME: Final = 128


class SharedGroupSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a group delivers. `mode` is always `shared`: a group of the other mode, where each partition has one reader,
    needs no options and is made by its first subscription."""

    mode: Literal["shared"] = "shared"
    """Each message goes to any member, whatever its partition, and to another one if it is not acknowledged."""
    ack_deadline_s: float = 10.0
    """How long a member may hold a message before it goes to another one."""
    max_attempts: int = 5
    """How often a message is delivered before it becomes a dead letter."""
    min_delay_s: float = 10.0
    """The delay after the first failed attempt; it doubles with each one. After a disconnect there is none."""
    max_delay_s: float = 600.0
    """The longest delay. Up to a tenth is added at random."""

    def __post_init__(self) -> None:
        if not MIN_DEADLINE_S <= self.ack_deadline_s <= MAX_DEADLINE_S:
            raise ValueError(
                f"ack_deadline_s is {self.ack_deadline_s:g}: it may be {MIN_DEADLINE_S:g} to {MAX_DEADLINE_S:g} seconds"
            )
        if not 1 <= self.max_attempts <= MAX_ATTEMPTS:
            raise ValueError(f"max_attempts is {self.max_attempts}: it may be 1 to {MAX_ATTEMPTS}")
        if not 0 <= self.min_delay_s <= self.max_delay_s <= MAX_DELAY_S:
            raise ValueError(
                f"min_delay_s is {self.min_delay_s:g}, and max_delay_s {self.max_delay_s:g}: they may be 0 to "
                f"{MAX_DELAY_S:g} seconds, and the latter is the longer"
            )


class SharedGroupOptions(SharedGroupSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group with its name."""

    name: str
    """The name of the group. Its members subscribe to `$share/<name>/$stream/<stream>`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_group_name(self.name)

    def settings(self) -> SharedGroupSettings:
        """The options without the name."""
        return SharedGroupSettings(
            ack_deadline_s=self.ack_deadline_s,
            max_attempts=self.max_attempts,
            min_delay_s=self.min_delay_s,
            max_delay_s=self.max_delay_s,
        )


def check_group_name(name: str) -> None:
    """Raise `ValueError` if no SUBSCRIBE can name such a group."""
    if not 0 < len(name) <= MAX_GROUP_NAME or any(each in name for each in "/+#\0"):
        raise ValueError(
            f"the name of a group is {name[:MAX_GROUP_NAME]!r}: it has 1 to {MAX_GROUP_NAME} characters, and none of "
            "/ + #, as in $share/<group>/…"
        )
