"""The port through which queues report each finished delivery to a consumer, and each message that they give up.

Telemetry implements it. Invariant: a queue reports an attempt once, when it is over, and never corrects a report.
"""

from typing import Final, Protocol, final

from mqttlite.core.message import Message


@final
class Attempt:
    """One finished delivery of a message. Times are in the broker's seconds."""

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
        """The client id of the consumer, or the name given with a pull; may be empty."""
        self.key: Final = key
        """The ordering key of the message; may be empty."""
        self.number: Final = number
        """1 for the first delivery of the message."""
        self.delivered_at: Final = delivered_at
        self.ended_at: Final = ended_at
        self.outcome: Final = outcome
        self.detail: Final = detail
        """The consumer's answer, such as a status or a reason code."""
        self.behind: Final = behind
        """How many messages with the same ordering key waited for this one."""


@final
class GivenUp:
    """A message that became a dead letter. Its times are 0.0 if it was never delivered."""

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
        """The name of its last consumer."""
        self.key: Final = key
        self.first_at: Final = first_at
        self.last_at: Final = last_at
        self.at: Final = at


class AttemptTracer(Protocol):
    """An implementation must not raise or call back."""

    def sample(self, is_failure: bool) -> int:
        """How many attempts the finished one stands for. 0: the queue reports it only if its message is traced."""
        ...

    def on_attempt(self, attempt: Attempt, one_in: int) -> None:
        """An attempt is over. Its message is traced, or it is a sample that stands for `one_in` attempts."""
        ...

    def on_given_up(self, letter: GivenUp) -> None:
        """A message became a dead letter."""
        ...
