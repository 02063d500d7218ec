"""How messages of a queue end, why attempts fail, and how often each was so."""

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
NEVER_ACKNOWLEDGED: Final = "sent"
"""How an attempt to a consumer of QoS 0 ends, which acknowledges nothing."""

TOO_LARGE: Final = "too_large"
OVERFLOW: Final = "overflow"
FILTERED: Final = "filtered"
"""The cause of a dead letter that did not pass the queue's filter: no attempt, and so none of these."""

SCHEMA_INVALID: Final = "schema_invalid"
"""The same of one whose payload is not what the schema of its topic says."""

CAUSES: Final = (NACKED, DEADLINE, DISCONNECTED, TOO_LARGE, OVERFLOW)
"""Why an attempt failed, or why there was none."""


@final
class Counts:
    """Of one queue since the broker started."""

    __slots__ = ("attempts", "causes", "ends", "filtered", "published", "redeliveries", "refused", "returned")

    def __init__(self) -> None:
        self.published: int = 0
        self.refused: int = 0
        """Messages that it had no room for, or that are of an ephemeral topic."""
        self.filtered: int = 0
        """Messages that did not pass its filter."""
        self.attempts: int = 0
        self.redeliveries: int = 0
        """Those of the attempts that were not the first of their message."""
        self.returned: int = 0
        """Messages that had ended and that a seek had wait again."""
        self.causes: Final[dict[str, int]] = dict.fromkeys(CAUSES, 0)
        self.ends: Final[dict[str, int]] = dict.fromkeys(ENDS, 0)
