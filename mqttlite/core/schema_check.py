"""The port for schemas: a topic policy uses it to check the payload of each message."""

from typing import Final, Protocol, final

from mqttlite.core.source import Source
from mqttlite.wire.properties import Properties


@final
class SchemaViolation:
    """Why a message is refused: the reason code for its publisher, and a sentence with the place in the payload."""

    __slots__ = ("code", "reason", "to_dead_letters")

    def __init__(self, code: int, reason: str, to_dead_letters: bool = False) -> None:
        self.code: Final = code
        self.reason: Final = reason
        self.to_dead_letters: Final = to_dead_letters
        """Whether the topic's queues keep it as a dead letter. If none does, it is refused with the code."""


class SchemaCheck(Protocol):
    """Checks messages of topics with a schema. The core calls it inside the event loop: it must not block, raise or
    call the core, and it must bound the cost of one payload."""

    def violation(self, source: Source, topic: bytes, payload: bytes, properties: Properties) -> SchemaViolation | None:
        """The violation for which a message is refused; None if it is valid. Called once for each message."""
        ...

    def look(self, payload: bytes, properties: Properties) -> SchemaViolation | None:
        """The violation of a message, with code 0 if the message is let through all the same. Counts nothing."""
        ...
