"""A message on its way: what was published (`Message`), and what a group of receivers gets of it (`Delivery`).

Messages of one kind that came together are a `Run`: one object, and the bytes in which they came.
Invariant: all three are shared by all their receivers; what differs per receiver is a packet identifier, kept
elsewhere. A message that is followed has a trace, which does not go with it to another worker, nor to those who find
it retained.
"""

from typing import Final, final

from mqttlite.core.witness import NOT_FOLLOWED
from mqttlite.wire.blocks import numbered
from mqttlite.wire.constants import PUBLISH, V5
from mqttlite.wire.encode import publish_parts
from mqttlite.wire.primitives import Cursor
from mqttlite.wire.properties import NONE, Properties, decode_properties


@final
class Block:
    """Properties of a PUBLISH, with the same as bytes, length and all: for messages that are passed on as they came.

    Nothing in it is for the broker to change or to take away: no topic alias, no subscription identifier.
    """

    __slots__ = ("data", "properties")

    def __init__(self, data: bytes, properties: Properties) -> None:
        self.data: Final = data
        self.properties: Final = properties

    def expires_at(self, now: float) -> float:
        """When a message expires that came `now`; 0.0 is never."""
        interval = self.properties.message_expiry_interval
        return 0.0 if interval is None else now + interval


NO_PROPERTIES: Final = Block(b"\0", NONE)
"""What most messages have."""


def block_of(data: bytes) -> Block:
    """That of bytes that hold one; raises what `decode_properties` raises."""
    return NO_PROPERTIES if data == b"\0" else Block(data, decode_properties(Cursor(data), PUBLISH))


@final
class Message:
    """An application message. `expires_at` is in the broker's seconds; 0.0 is never (5.0 §3.3.2.3.3). `block` is what
    its properties are on the wire, where that is known; else empty."""

    __slots__ = ("block", "expires_at", "payload", "properties", "qos", "retain", "superseded", "topic", "trace")

    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NONE,
        expires_at: float = 0.0,
        block: bytes = b"",
    ) -> None:
        self.topic: Final = topic
        self.payload: Final = payload
        self.qos: Final = qos
        self.retain: Final = retain
        self.properties: Final = properties
        self.expires_at: Final = expires_at
        self.block: Final = block
        self.superseded = False
        """A retained message that another has replaced: who still waits for it need not get it."""
        self.trace = NOT_FOLLOWED
        """What the witness calls it, if it is followed."""

    def size(self) -> int:
        """What it is counted as where bytes are limited."""
        return len(self.topic) + len(self.payload)

    def expired(self, now: float) -> bool:
        return 0.0 < self.expires_at <= now

    def not_followed(self) -> "Message":
        """The same message, which nobody follows."""
        return Message(self.topic, self.payload, self.qos, self.retain, self.properties, self.expires_at, self.block)


@final
class Delivery:
    """A message in the shape in which some receivers get it: QoS, retain flag, subscription identifiers."""

    __slots__ = ("_head3", "_head5", "_tail3", "_tail5", "identifiers", "message", "qos", "retain", "share")

    def __init__(
        self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...] = (), share: bytes = b""
    ) -> None:
        self.message: Final = message
        self.qos: Final = qos
        self.retain: Final = retain
        self.identifiers: Final = identifiers
        self.share: Final = share
        """The shared subscription that chose its receiver; empty for all others."""
        self._head3 = b""
        self._tail3 = b""
        self._head5 = b""
        self._tail5 = b""

    def parts(self, version: int, now: float) -> tuple[bytes, bytes]:
        """What stands before and behind the packet identifier; built once for a protocol version.

        The properties are those that came [MQTT-3.3.2-4] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17]
        [MQTT-3.3.2-18] [MQTT-3.3.2-20], but for the time that is left [MQTT-3.3.2-6].
        """
        message = self.message
        if version != V5:
            if not self._head3:
                self._head3, self._tail3 = publish_parts(
                    message.topic, message.payload, self.qos, self.retain, NONE, version
                )
            return self._head3, self._tail3
        if message.expires_at:  # the remaining time differs from one moment to the next
            left = max(1, int(message.expires_at - now + 0.5))  # else 10 s become 9.999…, become 9
            return self._parts5(0 if message.properties.message_expiry_interval == 0 else left)
        if not self._head5:
            self._head5, self._tail5 = self._parts5(None)
        return self._head5, self._tail5

    def _parts5(self, remaining_s: int | None) -> tuple[bytes, bytes]:
        message = self.message
        properties = message.properties
        block = message.block
        if self.identifiers or remaining_s != properties.message_expiry_interval:
            block = b""
        if not block and (self.identifiers or remaining_s is not None):
            properties = Properties(
                payload_format_indicator=properties.payload_format_indicator,
                message_expiry_interval=remaining_s,
                content_type=properties.content_type,
                response_topic=properties.response_topic,
                correlation_data=properties.correlation_data,
                user_properties=properties.user_properties,
                subscription_identifiers=list(self.identifiers),
            )
        return publish_parts(message.topic, message.payload, self.qos, self.retain, properties, V5, block=block)


_NO_DELIVERIES: Final[list[Delivery | None]] = []
NO_TRACES: Final[list[int]] = []
"""Never changed: they stand for those of a run of which nobody asked for one, and none is followed."""


@final
class Run:
    """QoS 1 or 2 messages of one topic, size and properties, without RETAIN, one behind the other as they came."""

    __slots__ = (
        "_deliveries",
        "_forms",
        "block",
        "count",
        "data",
        "expires_at",
        "head",
        "qos",
        "size",
        "topic",
        "traces",
        "version",
    )

    def __init__(
        self,
        topic: bytes,
        data: bytes,
        size: int,
        head: int,
        qos: int,
        version: int,
        block: Block = NO_PROPERTIES,
        expires_at: float = 0.0,
    ) -> None:
        self.topic: Final = topic
        self.data: Final = data
        self.size: Final = size
        """Of each packet."""
        self.head: Final = head
        """Where in it the payload begins."""
        self.qos: Final = qos
        self.count: Final = len(data) // size
        self.version: Final = version
        self.block: Final = block
        self.expires_at: Final = expires_at
        self._forms: dict[tuple[bool, int], Run] | None = None
        self._deliveries: list[Delivery | None] = _NO_DELIVERIES  # by place and QoS
        self.traces = NO_TRACES
        """Of the first messages, which are followed; set before anybody asks for one of them."""

    def message_bytes(self) -> int:
        """What each of the messages is counted as where bytes are limited."""
        return len(self.topic) + self.size - self.head

    def delivery(self, at: int, qos: int) -> Delivery:
        """One of the messages by itself, for receivers that get it at that QoS."""
        if self._deliveries is _NO_DELIVERIES:
            self._deliveries = [None] * (3 * self.count)
        delivery = self._deliveries[3 * at + qos]
        if delivery is None:
            start = at * self.size
            payload = self.data[start + self.head : start + self.size]
            block = self.block
            message = Message(self.topic, payload, self.qos, False, block.properties, self.expires_at, block.data)
            if at < len(self.traces):
                message.trace = self.traces[at]
            delivery = self._deliveries[3 * at + qos] = Delivery(message, qos, False)
        return delivery

    def behind(self, messages: int) -> "Run":
        """All but the first so many messages; there are more."""
        data = self.data[messages * self.size :]
        return Run(self.topic, data, self.size, self.head, self.qos, self.version, self.block, self.expires_at)

    def frames(self, version: int, qos: int, first: int, count: int) -> bytes:
        """The first `count` messages as packets of that version and QoS, with identifiers from `first` on."""
        form = self if qos == self.qos and (version == V5) == (self.version == V5) else self._form(version, qos)
        packets = form.data if count == form.count else form.data[: count * form.size]
        if qos == 0:
            return packets
        id_at = form.head - 2
        if version == V5:
            id_at -= len(self.block.data)
        return numbered(packets, form.size, id_at, first)

    def _form(self, version: int, qos: int) -> "Run":
        """The same messages as packets of another version or QoS; made once."""
        if self._forms is None:
            self._forms = {}
        form = self._forms.get((version == V5, qos))
        if form is None:
            payload_bytes = self.size - self.head
            first = self.data[self.head : self.size]
            head, tail = publish_parts(
                self.topic, first, qos, False, self.block.properties, version, block=self.block.data
            )
            head += (b"\0\0" if qos else b"") + tail[: len(tail) - payload_bytes]
            packets = b"".join(
                [head + self.data[at + self.head : at + self.size] for at in range(0, len(self.data), self.size)]
            )
            form = Run(self.topic, packets, len(head) + payload_bytes, len(head), qos, version, self.block)
            self._forms[version == V5, qos] = form
        return form
