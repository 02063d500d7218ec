"""A message that waits before it is published, because a receiver has no room for it.

`Room` and `Readers` hold back messages of all publishers; a subclass says how its publisher waits.
"""

from typing import Final

from mqttlite.core.message import Message
from mqttlite.core.source import Source

INSIDE: Final = 0
"""The number of all publishers that are no connection. Many messages of theirs may wait, first come, first served."""


class HeldMessage:
    """`number` tells publishers apart that wait for the same reader: a connection's, or `INSIDE`."""

    __slots__ = ("message", "number", "source")

    def __init__(self, message: Message, source: Source, number: int) -> None:
        self.message: Message = message
        self.source: Source = source
        self.number: int = number

    def wait(self) -> None:
        """The publisher's next messages wait for this one."""
        raise AssertionError("a subclass does it")

    def is_over(self) -> bool:
        """Whether nobody waits for the message any more: its publisher is gone, and it was never acknowledged."""
        raise AssertionError("a subclass does it")

    def go_on(self, has_room: bool) -> None:
        """Publish the message, or refuse it if there is still no room."""
        raise AssertionError("a subclass does it")
