"""The port by which queues tell what becomes of each delivery to a consumer, and of messages that are given up.

Telemetry fulfils it. Invariant: an attempt is told once, when it is over; what is told is never changed after.
"""

from typing import Final, Protocol, final

from mqttlite.core.message import Message


@final
class Attempt:
    """One delivery of a message that is over. Times are the broker's seconds."""

    __slots__ = (
        "behind",
        "consumer",
        "delivered_at",
        "detail",
        "ended_at",
        "key",
        "message",
        "number",
        "outcome",
        "queue",
    )

    def __init__(
        self,
        queue: str,
        message: Message,
        consumer: str,
        key: str,
        number: int,
        delivered_at: float,
        ended_at: float,
        outcome: str,
        detail: str,
        behind: int,
    ) -> None:
        self.queue: Final = queue
        self.message: Final = message
        self.consumer: Final = consumer
        """The client id of who had it, or the name that was given with a pull; empty where none was."""
        self.key: Final = key
        """Its ordering key; empty: none."""
        self.number: Final = number
        """1 for the first delivery of the message."""
        self.delivered_at: Final = delivered_at
        self.ended_at: Final = ended_at
        self.outcome: Final = outcome
        self.detail: Final = detail
        """The consumer's answer, such as a status or a reason code."""
        self.behind: Final = behind
        """Messages with the same ordering key that waited for it."""


@final
class GivenUp:
    """A message that became a dead letter. Times are 0.0 for one that was never delivered."""

    __slots__ = ("at", "attempts", "cause", "consumer", "detail", "first_at", "key", "last_at", "message", "queue")

    def __init__(
        self,
        queue: str,
        message: Message,
        cause: str,
        detail: str,
        attempts: int,
        consumer: str,
        key: str,
        first_at: float,
        last_at: float,
        at: float,
    ) -> None:
        self.queue: Final = queue
        self.message: Final = message
        self.cause: Final = cause
        self.detail: Final = detail
        self.attempts: Final = attempts
        self.consumer: Final = consumer
        """The name of the consumer that had it last."""
        self.key: Final = key
        self.first_at: Final = first_at
        self.last_at: Final = last_at
        self.at: Final = at


class AttemptTracer(Protocol):
    """It never raises and never calls back."""

    def sample(self, is_failure: bool) -> int:
        """For how many attempts the one that is over stands; 0: it is told only if its message is traced."""
        ...

    def on_attempt(self, attempt: Attempt, one_in: int) -> None:
        """An attempt is over: of a traced message, or of a sample that stands for `one_in` attempts."""
        ...

    def on_given_up(self, letter: GivenUp) -> None:
        """A message became a dead letter."""
        ...
