"""A message of a stream at its place, in the form that readers get; and the message that says where the end was."""

from collections.abc import Sequence
from typing import Final, final

from mqttlite.core.message import Delivery, Message, RawProperties
from mqttlite.core.outbound.outbox import Outbox
from mqttlite.core.outbound.told_properties import MESSAGE_ID, PUBLISH_TIME, USER_PROPERTY, time_text, with_more
from mqttlite.wire.constants import PUBLISH, V5
from mqttlite.wire.primitives import encode_utf8
from mqttlite.wire.properties import encode_properties

PARTITION: Final = "stream-partition"
OFFSET: Final = "stream-offset"
SKIPPED: Final = "stream-skipped"
END: Final = "stream-end"
MISSED: Final = "stream-missed"
ATTEMPT: Final = "delivery-attempt"

_PARTITION: Final = USER_PROPERTY + encode_utf8(PARTITION)
_OFFSET: Final = USER_PROPERTY + encode_utf8(OFFSET)
_SKIPPED: Final = USER_PROPERTY + encode_utf8(SKIPPED)
_ATTEMPT: Final = USER_PROPERTY + encode_utf8(ATTEMPT)
_END: Final = USER_PROPERTY + encode_utf8(END)
_MISSED: Final = USER_PROPERTY + encode_utf8(MISSED) + encode_utf8("removals")
_MESSAGE_ID: Final = USER_PROPERTY + encode_utf8(MESSAGE_ID)
_PUBLISH_TIME: Final = USER_PROPERTY + encode_utf8(PUBLISH_TIME)


def end_of(topic: bytes, positions: Sequence[int], *, has_missed: bool) -> Message:
    """The message that tells a reader that it has all before these offsets, by partition; and whether it may have
    missed the removal of a key."""
    text = ",".join([f"{partition}:{offset}" for partition, offset in enumerate(positions)])
    more = _MISSED if has_missed else b""
    return Message(topic, b"", raw=RawProperties(with_more(b"\0", _END + encode_utf8(text) + more)))


@final
class Entry:
    """Readers at the same place share it."""

    __slots__ = ("_delivery", "_told", "message", "offset", "partition")

    def __init__(self, partition: int, offset: int, message: Message) -> None:
        self.partition: Final = partition
        self.offset: Final = offset
        self.message: Final = message
        self._told: Message | None = None
        self._delivery: Delivery | None = None

    def seen(self, version: int, skipped: int) -> Message:
        """The message for a client of this protocol version. In 5.0 it says where it is in the stream, behind the
        publisher's properties, and how many messages before it were removed before the reader came to them."""
        if version != V5:
            return self.message
        if skipped:
            return self._with(_SKIPPED + encode_utf8(str(skipped)))
        if self._told is None:
            self._told = self._with(b"")
        return self._told

    def seen_at_attempt(self, version: int, skipped: int, attempt: int) -> Message:
        """The same with the number of the attempt, for a member of a shared group."""
        if version != V5:
            return self.message
        more = _ATTEMPT + encode_utf8(str(attempt))
        return self._with(more + _SKIPPED + encode_utf8(str(skipped)) if skipped else more)

    def fitting(self, seen: Message, outbox: Outbox, identifiers: tuple[int, ...], now: float) -> Message:
        """What a client gets of `seen`: if that is too large for it, the message without what was added."""
        if not outbox.has_own_packets or seen is self.message:
            return seen
        size = Delivery(seen, 1, False, identifiers).packet_bytes(outbox.version, now)
        return self.message if outbox.is_too_large(size) else seen

    def delivery(self, message: Message) -> Delivery:
        """The delivery at QoS 0 of what `seen` returned, without subscription identifier."""
        delivery = self._delivery
        if delivery is None or delivery.message is not message:
            delivery = self._delivery = Delivery(message, 0, False)
        return delivery

    def _with(self, more: bytes) -> Message:
        message = self.message
        number = message.number
        added = (
            _PARTITION
            + encode_utf8(str(self.partition))
            + _OFFSET
            + encode_utf8(str(self.offset))
            + _MESSAGE_ID
            + encode_utf8(str(number))
            + _PUBLISH_TIME
            + encode_utf8(time_text(number))
            + more
        )
        raw = message.raw
        block = raw.data if raw is not None else encode_properties(message.properties, PUBLISH)
        return message.with_raw(RawProperties(with_more(block, added), message.expiry_s()))
