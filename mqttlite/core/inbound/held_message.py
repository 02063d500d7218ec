"""A message on its way in, which may have to wait before it is published, because a receiver has no room for it.

`Inbound` asks about messages of all publishers; a subclass says how its publisher waits, and how it is told.
"""

from typing import Final

from mqttlite.core.message import Message
from mqttlite.core.route.tally import QUOTA_EXCEEDED
from mqttlite.core.source import Source

INSIDE: Final = 0
"""The number of all publishers that are no connection. Many messages of theirs may wait, first come, first served."""


class HeldMessage:
    """`number` tells publishers apart that wait for the same reader: a connection's, or `INSIDE`. `is_told` says
    whether the publisher of a QoS 1 or 2 message can be told that nobody gets it."""

    __slots__ = ("is_hooked", "is_told", "message", "number", "source")

    def __init__(self, message: Message, source: Source, number: int, is_told: bool) -> None:
        self.message: Message = message
        self.source: Source = source
        self.number: int = number
        self.is_told: bool = is_told
        self.is_hooked: bool = False
        """Whether the hook of its topic was asked."""

    def may_wait(self) -> bool:
        """Whether there is a place to wait. If not, nobody gets the message, and its publisher was told."""
        raise AssertionError("a subclass does it")

    def wait(self) -> None:
        """The publisher's next messages wait for this one."""
        raise AssertionError("a subclass does it")

    def is_over(self) -> bool:
        """Whether nobody waits for the message any more: its publisher is gone, and it was never acknowledged."""
        raise AssertionError("a subclass does it")

    def publish(self) -> None:
        """Publish the message, which may be another one than came."""
        raise AssertionError("a subclass does it")

    def go_on(self) -> None:
        """Publish a message that waited."""
        raise AssertionError("a subclass does it")

    def end(self, reason: str, refusal: str, code: int = QUOTA_EXCEEDED, detail: str = "") -> None:
        """Nobody gets the message, for a drop reason. `refusal` is the sentence for the publisher of a QoS 1 or 2
        message, with the code; if it is empty, the publisher is told no more than that it was dropped. `detail` is the
        sentence for operators."""
        raise AssertionError("a subclass does it")
