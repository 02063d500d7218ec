"""A message of a stream: where it is there, and how a member of a group commits it.

Invariant: a message is committed once, on the connection on which it came, or not at all.
"""

from typing import Final, Protocol, final

from mqttlite.client.receipts import Receipt
from mqttlite.client.told_message import ToldMessage
from mqttlite.wire.packets import Publish

UNKNOWN: Final = -1
"""The partition and the offset of a message that is too large for the client together with them."""


class MemberOfGroup(Protocol):
    """The member of a group, as its messages see it."""

    @property
    def topic_filter(self) -> str:
        """Its subscription."""
        ...

    def forget(self, message: "StreamMessage", /) -> None:
        """A message is committed."""
        ...

    def finish_to(self, message: "StreamMessage", /) -> None:
        """The broker has committed a message, and all before it in its partition."""
        ...


@final
class StreamMessage(ToldMessage):
    """`topic`, `payload` and `properties` are as the publisher wrote them."""

    __slots__ = ("member", "offset", "partition", "stream")

    def __init__(self, packet: Publish, receipt: Receipt, stream: str, member: MemberOfGroup | None) -> None:
        super().__init__(packet, receipt)
        self.member: Final = member
        """The member of a group to which it came; None for a reading."""
        self.stream: Final = stream
        """The name of the stream."""
        self.partition: Final[int] = self._number("stream-partition")
        """Its partition, from 0; `UNKNOWN` (-1) if the message is too large for the client with it."""
        self.offset: Final[int] = self._number("stream-offset")
        """Its offset in the partition, from 0; `UNKNOWN` (-1) if the message is too large for the client with it."""

    def __repr__(self) -> str:
        return f"StreamMessage({self.stream}@{self.partition}:{self.offset}, topic={self.topic!r})"

    @property
    def key(self) -> str:
        """What chose its partition: the first user property `ordering-key`, or else the topic. "" for a message that
        was published to the stream itself without a key."""
        for name, value in self.properties.user_properties:
            if name == "ordering-key":
                return value
        return "" if self.topic == f"$stream/{self.stream}" else str(self.topic)

    @property
    def skipped(self) -> int:
        """How many messages before it were removed before the reader came to them."""
        return max(0, self._number("stream-skipped"))

    @property
    def is_open(self) -> bool:
        """Whether it can still be committed."""
        return self._way.is_open and self._way.code < 0

    def commit(self) -> bool:
        """The work is done, and the group need not have the message again. Call it in the thread of the event loop.

        Commits leave in the order in which the messages came: one waits for those of the messages before it. False:
        there is nothing to commit. It was done, the message is of no group, or its connection is gone; in the last
        case a member gets the message again.
        """
        return self.ack()

    def ack(self, reason_code: int = 0) -> bool:
        """As `commit`. The reason code changes nothing."""
        is_committed = super().ack(reason_code)
        if self.member is not None:
            self.member.forget(self)
        return is_committed

    def _number(self, name: str) -> int:
        text = self.told(name)
        return int(text) if text.isascii() and text.isdecimal() else UNKNOWN
