"""What became of a message that the program published."""

from typing import Self

from mqttlite.core.inbound.inbound import Ticket
from mqttlite.wire.constants import PUBLISH
from mqttlite.wire.properties import Properties, encode_properties


class Published(int):
    """The MQTT 5.0 reason code of a message, as a number, and what became of the message."""

    message_id: str
    """As `mqttlite why` takes it, and as PUBACK tells it; empty if the broker refused the message."""
    delivered: int
    """Receivers to which it is on its way. A shared subscription counts as one receiver."""
    queued: int
    """Receivers for which it waits, in a session or a queue."""
    dropped: dict[str, int]
    """Receivers that do not get it, by drop reason."""
    reason: str
    """Why the broker refused the message, as a sentence; empty if there is none."""

    @classmethod
    def of(cls, ticket: Ticket) -> Self:
        """The outcome of a ticket that is done."""
        tally = ticket.tally
        published = cls(tally.code)
        published.message_id = "" if tally.is_refused else str(ticket.message_id())
        published.delivered, published.queued = tally.sent, tally.queued
        published.dropped = dict(tally.dropped)
        published.reason = tally.refusal
        return published

    @property
    def reason_code(self) -> int:
        """The same number as a plain `int`."""
        return int(self)

    def __repr__(self) -> str:
        return (
            f"Published(0x{int(self):02x}, message_id={self.message_id!r}, delivered={self.delivered}, "
            f"queued={self.queued}, dropped={self.dropped}, reason={self.reason!r})"
        )


def check_properties(properties: Properties) -> None:
    """Raises `ValueError` for properties that a PUBLISH cannot have, and for those that only the broker sets."""
    if properties.topic_alias is not None or properties.subscription_identifiers:
        raise ValueError("topic_alias and subscription_identifiers are set by the broker, for each receiver")
    encode_properties(properties, PUBLISH)
