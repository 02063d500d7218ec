"""The port for schemas: what a topic policy asks about the payload of each message."""

from typing import Final, Protocol, final

from mqttlite.core.source import Source
from mqttlite.wire.properties import Properties


@final
class SchemaViolation:
    """Why a message is dropped: the reason code for its publisher, and a sentence with the place in the payload."""

    __slots__ = ("code", "reason", "to_dead_letters")

    def __init__(self, code: int, reason: str, to_dead_letters: bool = False) -> None:
        self.code: Final = code
        self.reason: Final = reason
        self.to_dead_letters: Final = to_dead_letters
        """Whether the queues of the topic keep it as a dead letter; where none does, it is refused with the code."""


class SchemaCheck(Protocol):
    """Checks messages of topics that have a schema. The core calls it inside the event loop: it must not block, raise
    or call the core, and it bounds what one payload may cost."""

    def violation(self, source: Source, topic: bytes, payload: bytes, properties: Properties) -> SchemaViolation | None:
        """Why a message of a source is to be dropped; None if it is not. Asked once for each message."""
        ...

    def look(self, payload: bytes, properties: Properties) -> SchemaViolation | None:
        """The violation of a message, with code 0 where it is let through all the same. Nothing is counted."""
        ...
