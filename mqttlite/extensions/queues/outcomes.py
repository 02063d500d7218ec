"""The outcomes of messages, the causes of failed attempts, and their counters."""

from typing import Final, final

from mqttlite.core.reasons import EXPIRED

ACKNOWLEDGED: Final = "acknowledged"
DEAD_LETTERED: Final = "dead_lettered"
PURGED: Final = "purged"
ENDS: Final = (ACKNOWLEDGED, DEAD_LETTERED, EXPIRED, PURGED)
"""How messages of a queue end."""

NACKED: Final = "nacked"
DEADLINE: Final = "deadline"
DISCONNECTED: Final = "disconnected"
UNSENT: Final = "disconnected before it was sent"
"""Why, for `why`, a message came back that was no attempt: its consumer was gone before its lease was on disk."""

TOO_LATE: Final = "refused too late"
"""The outcome, for `why`, of an attempt that was acknowledged before it was refused."""

NEVER_ACKNOWLEDGED: Final = "sent"
"""The outcome of an attempt to a QoS 0 consumer, which does not acknowledge."""

TOO_LARGE: Final = "too_large"
OVERFLOW: Final = "overflow"
FILTERED: Final = "filtered"
"""The cause of a dead letter that did not pass the queue's filter. It had no attempt."""

PAYLOAD_INVALID: Final = "schema_invalid"
"""The cause of a dead letter whose payload violates its topic's schema."""

CAUSES: Final = (NACKED, DEADLINE, DISCONNECTED, TOO_LARGE, OVERFLOW)
"""Why an attempt failed, or was not made."""


@final
class Counts:
    """The counters of one queue since the broker started."""

    __slots__ = (
        "attempts",
        "causes",
        "duplicates",
        "ends",
        "filtered",
        "nacked_late",
        "published",
        "redeliveries",
        "refused",
        "returned",
    )

    def __init__(self) -> None:
        self.published: int = 0
        self.duplicates: int = 0
        """Messages with a `dedup-id` that it knew, so that they were not taken again."""
        self.refused: int = 0
        """Messages refused for lack of room, or because their topic is ephemeral."""
        self.filtered: int = 0
        """Messages that did not pass its filter."""
        self.nacked_late: int = 0
        """Refusals by `$nack` of no message under way: it was acknowledged or has ended before."""
        self.attempts: int = 0
        self.redeliveries: int = 0
        """Attempts after the first of their message."""
        self.returned: int = 0
        """Ended messages that a seek brought back."""
        self.causes: Final[dict[str, int]] = dict.fromkeys(CAUSES, 0)
        self.ends: Final[dict[str, int]] = dict.fromkeys(ENDS, 0)
