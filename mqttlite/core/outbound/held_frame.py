"""QoS 0 messages that wait in blocked outboxes, as bytes to write. All outboxes that keep them share one object."""

from typing import Final, final

from mqttlite.core.memory import FRAME_BYTES, Holdable
from mqttlite.core.tracer import NOT_TRACED


@final
class HeldFrame(Holdable):
    """`messages` packets of one size. Only a single one may have a trace. `expires_at` 0.0 is never."""

    __slots__ = ("expires_at", "messages", "piece", "trace")

    def __init__(self, piece: bytes, messages: int, trace: int, expires_at: float) -> None:
        super().__init__(FRAME_BYTES + len(piece))
        self.piece: Final = piece
        self.messages: Final = messages
        self.trace: Final = trace
        self.expires_at: Final = expires_at

    @property
    def size(self) -> int:
        """Bytes of each packet."""
        return len(self.piece) // self.messages

    def first(self, messages: int) -> "HeldFrame":
        """The first of the messages."""
        return HeldFrame(self.piece[: messages * self.size], messages, self.trace, self.expires_at)

    def last(self, messages: int) -> "HeldFrame":
        """The last of the messages."""
        return HeldFrame(self.piece[-messages * self.size :], messages, self.trace, self.expires_at)

    def topic(self) -> bytes:
        """The topic of the first packet."""
        piece = self.piece
        at = 1
        while piece[at] > 127:
            at += 1
        at += 3
        return piece[at : at + (piece[at - 2] << 8 | piece[at - 1])]


NO_FRAME: Final = HeldFrame(b"x", 1, NOT_TRACED, 0.0)
"""Stands for no frame."""
