"""The port with which a topic policy checks the payload of each message, for example against a schema."""

from typing import Final, Protocol, final

from mqttlite.core.source import Source
from mqttlite.wire.properties import Properties


@final
class PayloadViolation:
    """Why a message is refused: the reason code for its publisher, and a sentence with the place in the payload."""

    __slots__ = ("code", "reason", "to_dead_letters")

    def __init__(self, code: int, reason: str, to_dead_letters: bool = False) -> None:
        self.code: Final = code
        self.reason: Final = reason
        self.to_dead_letters: Final = to_dead_letters
        """Whether the topic's queues keep it as a dead letter. If none does, it is refused with the code."""


class PayloadCheck(Protocol):
    """Checks the messages of a topic. The core calls it inside the event loop: it must not block, raise or call the
    core, and it must bound the cost of one payload."""

    def violation(
        self, source: Source, topic: bytes, payload: bytes, properties: Properties
    ) -> PayloadViolation | None:
        """The violation for which a message is refused; None if it is valid. Called once for each message."""
        ...

    def look(self, payload: bytes, properties: Properties) -> PayloadViolation | None:
        """The violation of a message, with code 0 if the message is let through all the same. Counts nothing."""
        ...
