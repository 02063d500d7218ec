"""The values that a client sends and receives: `Message`, `Will`, `PublishOutcome`.

Invariant: nothing here changes after it was made.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias, final

from mqttlite.client.receipts import Receipt, check_reason_code
from mqttlite.client.topics import check_name, matches
from mqttlite.wire import packets
from mqttlite.wire.properties import NONE, Properties

Payload: TypeAlias = bytes | bytearray | memoryview | str | int | float | None
"""A payload: bytes, text (as UTF-8), a number (as its decimal digits), or None for an empty one."""


def payload_bytes(payload: Payload) -> bytes:
    """The payload as it goes on the wire."""
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        return payload.encode()
    if payload is None:
        return b""
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    if isinstance(payload, int | float):
        return str(payload).encode()
    raise ValueError(f"a payload is bytes, str, a number or None, not {type(payload).__name__}")


@final
class Topic(str):
    """The topic of a message: text, with the question whether a filter matches it."""

    __slots__ = ()

    @property
    def value(self) -> str:
        """The text, by the name that aiomqtt has for it."""
        return str(self)

    def matches(self, topic_filter: str) -> bool:
        """Whether a subscription to that filter would have brought a message of this topic."""
        return matches(topic_filter, self)


class Message:
    """A message that arrived. `packet_id` is 0 at QoS 0; `dup` says that the server sent it before."""

    __slots__ = ("_receipt", "dup", "packet_id", "payload", "properties", "qos", "retain", "topic")

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 0,
        properties: Properties = NONE,
        receipt: Receipt | None = None,
    ) -> None:
        self._receipt: Final = receipt
        self.topic: Final = Topic(topic)
        self.payload: Final = payload
        self.qos: Final = qos
        self.retain: Final = retain
        self.dup: Final = dup
        self.packet_id: Final = packet_id
        self.properties: Final = properties

    def ack(self, reason_code: int = 0) -> bool:
        """Acknowledge a message of a subscription with `manual_ack`; a reason code from 0x80 on refuses it (5.0).

        The packet leaves when all messages that came before are acknowledged. False where there is nothing to
        acknowledge: it was done, the client did it, or the connection on which the message came is gone.
        """
        check_reason_code(reason_code)
        return self._receipt is not None and self._receipt.settle(reason_code)

    def matches(self, topic_filter: str) -> bool:
        """Whether a subscription to that filter would have brought this message."""
        return self.topic.matches(topic_filter)

    def __repr__(self) -> str:
        return (
            f"Message(topic={self.topic!r}, payload={self.payload[:64]!r}, qos={self.qos}, retain={self.retain}, "
            f"properties={self.properties!r})"
        )


@dataclass(frozen=True, slots=True)
class PublishOutcome:
    """The server's answer to a message; `NO_MATCHING_SUBSCRIBERS` (0x10) is a success, too."""

    reason_code: int = 0
    properties: Properties = NONE


SENT: Final = PublishOutcome()
"""The outcome at QoS 0, where nobody answers."""


@dataclass(frozen=True, slots=True)
class Will:
    """The message that the server publishes when it loses this client."""

    topic: str
    payload: Payload = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = NONE

    def packet(self) -> packets.Will:
        """The will as the wire has it. Raises `ValueError` for a topic that is none."""
        return packets.Will(check_name(self.topic), payload_bytes(self.payload), self.qos, self.retain, self.properties)
