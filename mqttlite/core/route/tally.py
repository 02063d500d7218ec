"""The result of one fan-out: the outcomes of a published message for its receivers.

Invariant: `is_durable` is true if any step changed durable state; the publisher's answer then waits for a commit.
"""

from collections.abc import Callable
from typing import Final, final

from mqttlite.core.reasons import QUEUE_FULL

SUCCESS: Final = 0x00
NO_MATCHING_SUBSCRIBERS: Final = 0x10
POLICY_REFUSES: Final = 0x83
"""Implementation specific error. The standard has no code for a message that violates its topic's policy."""

NOT_AUTHORIZED_CODE: Final = 0x87
TOPIC_NAME_INVALID: Final = 0x90
QUOTA_EXCEEDED: Final = 0x97

ALONE: Final = -1
"""In place of the position of a message that is in no batch."""


DROPPED: Final = 0
QUEUED: Final = 1
SENT: Final = 2
"""The outcomes of a message for one receiver. `SENT`: it is in the outbox."""

_NONE_DROPPED: Final[dict[str, int]] = {}
_NO_PLACES: Final[dict[int, None]] = {}
"""Never changed. Shared by tallies that need no tables."""


@final
class Tally:
    """The reason code for the publisher, and the numbers of receivers that a message was sent to, queued for and
    dropped for.

    A tally of a batch has one entry per message and receiver; `rejected` holds the positions in the batch of the
    messages for which a receiver's queue was full.
    """

    __slots__ = (
        "code",
        "dropped",
        "filtered",
        "is_durable",
        "on_settled",
        "pending",
        "queued",
        "reached",
        "reached_partly",
        "refusal",
        "rejected",
        "sent",
    )

    def __init__(self, code: int = SUCCESS) -> None:
        self.code: int = code
        self.reached: int = 0
        """Receivers of the message, or of all messages of a batch. A shared subscription counts as one."""
        self.reached_partly: dict[int, None] = _NO_PLACES
        """The positions in a batch of messages with a receiver that not all messages of the batch have."""
        self.filtered: int = 0
        """Receivers whose filters keep it out."""
        self.refusal: str = ""
        """Why the topic's policy refuses the message, as a sentence for the publisher."""
        self.sent: int = 0
        self.queued: int = 0
        self.dropped: dict[str, int] = _NONE_DROPPED
        """Receivers that do not get it, by reason."""
        self.rejected: dict[int, None] = _NO_PLACES
        self.is_durable: bool = False
        """Whether durable state changed, so that the publisher's answer waits for a commit."""
        self.pending: int = 0
        """How many parts are not decided yet (`pend`)."""
        self.on_settled: Callable[[], None] | None = None
        """Called when the last part is decided, if the fan-out waits for that."""

    def pend(self) -> None:
        """A sink decides later: until it calls `settle`, the publisher gets no answer. It must do so within a limit."""
        self.pending += 1

    def settle(self, code: int = SUCCESS) -> None:
        """A part that was pending is decided. A code other than 0 replaces the code for the publisher."""
        self.pending -= 1
        self.code = code or self.code
        if self.pending == 0 and self.on_settled is not None:
            self.on_settled()

    def count(self, outcome: int) -> None:
        """Count one receiver of a QoS 1 or 2 message."""
        if outcome == SENT:
            self.sent += 1
        elif outcome == QUEUED:
            self.queued += 1
        else:
            self.drop(QUEUE_FULL)

    def count_qos0(self, reason: str) -> None:
        """Count one receiver of a QoS 0 message. `reason`: why it does not get the message; empty if it does."""
        if reason:
            self.drop(reason)
        else:
            self.sent += 1

    def drop(self, reason: str, messages: int = 1) -> None:
        if self.dropped is _NONE_DROPPED:
            self.dropped = {}
        self.dropped[reason] = self.dropped.get(reason, 0) + messages

    def refuse(self, position: int) -> None:
        """There is no room for the message at this position of a batch, or for one that is `ALONE`."""
        if position == ALONE:
            self.code = QUOTA_EXCEEDED
        else:
            self.reject(position)

    def reject(self, position: int) -> None:
        """A receiver's queue was full for the message at this position of a batch."""
        if self.rejected is _NO_PLACES:
            self.rejected = {}
        self.rejected[position] = None

    def reach(self, positions: list[int], count: int) -> None:
        """The messages at these positions of a batch of `count` have a receiver."""
        if len(positions) == count:
            self.reached += 1
            return
        if self.reached_partly is _NO_PLACES:
            self.reached_partly = {}
        for position in positions:
            self.reached_partly[position] = None

    @property
    def is_refused(self) -> bool:
        """Whether the broker did not take the message, so that it reaches nobody."""
        return self.code >= 0x80 and not self.reached

    @property
    def dropped_for(self) -> int:
        """How many receivers do not get it."""
        return sum(self.dropped.values())
