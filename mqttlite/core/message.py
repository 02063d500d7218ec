"""A message as it was published (`Message`), and in the form that a group of receivers gets (`Delivery`).

Similar messages that arrived together are a `PublishBatch`: one object with the bytes in which they arrived. Invariant:
receivers share all three; only the packet identifier differs, which is kept elsewhere. A traced message has a trace;
its retained copy has none.
"""

from typing import Final, Protocol, final

from mqttlite.core.limits import MAX_RAW_PROPERTIES_BYTES
from mqttlite.core.memory import BATCH_BYTES, MESSAGE_BYTES, Holdable
from mqttlite.core.outbound.told_properties import with_more
from mqttlite.core.retained.writer import Writer
from mqttlite.core.route.relayed import NO_TARGET
from mqttlite.core.tracer import NOT_TRACED
from mqttlite.topics.namespaces import unmounted
from mqttlite.wire.blocks import numbered
from mqttlite.wire.constants import PUBLISH, V5
from mqttlite.wire.encode import publish_parts
from mqttlite.wire.plain import NO_EXPIRY, with_identifiers
from mqttlite.wire.primitives import Cursor, encode_u16
from mqttlite.wire.properties import NONE, Properties, decode_properties, encode_properties

UNCOUNTED_BYTES: Final = 3_000
"""Memory of properties up to this is not counted in the size of a message. Raw properties, of at most
`MAX_RAW_PROPERTIES_BYTES`, never take more."""

_RAW_BYTES: Final = 100
_PROPERTIES_BYTES: Final = 350
"""The memory of properties without their strings: raw, and decoded."""


@final
class RawProperties:
    """The properties of a PUBLISH as bytes with their length, for messages that are forwarded unchanged.

    The broker changes or removes none of them (`wire.plain`), so it rarely decodes them.
    """

    __slots__ = ("_properties", "data", "expiry_s", "target", "untargeted")

    def __init__(
        self,
        data: bytes,
        expiry_s: int = NO_EXPIRY,
        target: tuple[int, ...] = NO_TARGET,
        untargeted: "RawProperties | None" = None,
    ) -> None:
        self.data: Final = data
        self.target: Final = target
        """The subscription identifiers among them, of a message that a relay brings."""
        self.untargeted: Final = untargeted
        """The properties without those, if there are any."""
        self.expiry_s: Final = expiry_s
        """Message Expiry Interval, or `NO_EXPIRY`."""
        self._properties: Properties | None = None

    @property
    def properties(self) -> Properties:
        """The decoded properties. They are decoded once, on first use."""
        if self._properties is None:
            self._properties = NONE if self is NO_PROPERTIES else decode_properties(Cursor(self.data), PUBLISH)
        return self._properties

    def expires_at(self, now: float) -> float:
        """When a message that arrives at `now` expires; 0.0 is never."""
        return 0.0 if self.expiry_s == NO_EXPIRY else now + self.expiry_s


NO_PROPERTIES: Final = RawProperties(b"\0")
"""The raw properties of a message without properties."""


def seconds_left(expiry_s: int, expires_at: float, now: float) -> int:
    """The remaining Message Expiry Interval in seconds, at least 1; 0 if `expiry_s` is 0 (no expiry)."""
    return max(1, int(expires_at - now + 0.5)) if expiry_s else 0  # rounded: 10 s may have become 9.999…


@final
class Message(Holdable):
    """An application message. `expires_at` is in the broker's seconds; 0.0 is never (5.0 §3.3.2.3.3).

    If `raw` is given, its properties are in there.
    """

    __slots__ = (
        "_properties",
        "_size",
        "expires_at",
        "number",
        "on_overflow",
        "payload",
        "publisher",
        "qos",
        "raw",
        "retain",
        "superseded",
        "target",
        "topic",
        "trace",
        "writer",
    )

    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NONE,
        expires_at: float = 0.0,
        raw: RawProperties | None = None,
    ) -> None:
        size = len(topic) + len(payload)
        if raw is not None or properties is not NONE:
            super().__init__(MESSAGE_BYTES + size + _properties_memory(properties, raw))
            size += _counted_bytes(properties, raw)
        else:
            super().__init__(MESSAGE_BYTES + size)
        self.topic: Final = topic
        self.payload: Final = payload
        self.qos: Final = qos
        self.retain: Final = retain
        self._properties: Final = properties
        self.expires_at: Final = expires_at
        self.raw: Final = raw
        self._size: Final = size
        self.superseded: bool = False
        """A retained message that was replaced: replays skip it."""
        self.number: int = 0
        """Its number (`MessageNumbers`), if it is stored, traced, or reported to its publisher; else 0."""
        self.trace: int = NOT_TRACED
        """Its number if it is traced, else `NOT_TRACED`."""
        self.target: tuple[int, ...] = NO_TARGET
        """For whom it is here, if it comes from a relay (`relayed`); empty: for whoever subscribes to its topic."""
        self.publisher: str = ""
        """The client identifier of its publisher; empty if that is not a client, and for a message from a store."""
        self.writer: Writer | None = None
        """Who wrote it, if it is retained or to be retained later, and its writer is known."""
        self.on_overflow: str = ""
        """The topic's policy for a receiver without room, or empty: see `TopicPolicy.on_overflow`."""

    @property
    def properties(self) -> Properties:
        """Must not be changed: other messages may share them."""
        return self._properties if self.raw is None else self.raw.properties

    def expiry_s(self) -> int:
        """The Message Expiry Interval as received, or `NO_EXPIRY`."""
        if self.raw is not None:
            return self.raw.expiry_s
        interval = self._properties.message_expiry_interval
        return NO_EXPIRY if interval is None else interval

    def size(self) -> int:
        """Its size as counted by limits. The same with raw and with decoded properties."""
        return self._size

    def expired(self, now: float) -> bool:
        return 0.0 < self.expires_at <= now

    def copy(self, qos: int) -> "Message":
        """The same message with another QoS."""
        return self._like(qos, self.retain, self._properties, self.raw)

    def untraced(self) -> "Message":
        """The same message without a trace."""
        return self.for_topic(self.topic)

    def with_raw(self, raw: RawProperties) -> "Message":
        """The same message at QoS 1 with other properties of the same expiry. It keeps the trace."""
        message = Message(self.topic, self.payload, 1, False, NONE, self.expires_at, raw)
        message.number, message.trace = self.number, self.trace
        return message

    def with_user_properties(self, more: bytes, without: str = "") -> "Message":
        """The same message with encoded user properties behind its own. Those with the name `without` are left out."""
        if without:
            block = encode_properties(_without(self.properties, without), PUBLISH)
        else:
            block = self.raw.data if self.raw is not None else encode_properties(self._properties, PUBLISH)
        raw = RawProperties(with_more(block, more), self.expiry_s())
        return self._like(self.qos, self.retain, NONE, raw)

    def unretained(self) -> "Message":
        """The same message without RETAIN."""
        return self._like(self.qos, False, self._properties, self.raw)

    def _like(self, qos: int, retain: bool, properties: Properties, raw: RawProperties | None) -> "Message":
        message = Message(self.topic, self.payload, qos, retain, properties, self.expires_at, raw)
        message.number, message.trace, message.on_overflow = self.number, self.trace, self.on_overflow
        message.publisher, message.writer, message.target = self.publisher, self.writer, self.target
        return message

    def for_topic(self, topic: bytes) -> "Message":
        """The same message to another topic, without a trace."""
        message = Message(topic, self.payload, self.qos, self.retain, self._properties, self.expires_at, self.raw)
        message.number, message.publisher, message.writer = self.number, self.publisher, self.writer
        return message


def _properties_memory(properties: Properties, raw: RawProperties | None) -> int:
    if raw is None:
        return _PROPERTIES_BYTES + properties.size()
    return 0 if raw is NO_PROPERTIES else _RAW_BYTES + len(raw.data)


def _counted_bytes(properties: Properties, raw: RawProperties | None) -> int:
    """The part of the properties' size that counts in the size of a message."""
    if raw is None:
        return max(0, properties.size() - UNCOUNTED_BYTES)
    if len(raw.data) <= MAX_RAW_PROPERTIES_BYTES:
        return 0
    return max(0, decode_properties(Cursor(raw.data), PUBLISH).size() - UNCOUNTED_BYTES)


def _without(came: Properties, name: str) -> Properties:
    """The properties of a PUBLISH without the user properties of a name."""
    return Properties(
        payload_format_indicator=came.payload_format_indicator,
        message_expiry_interval=came.message_expiry_interval,
        content_type=came.content_type,
        response_topic=came.response_topic,
        correlation_data=came.correlation_data,
        user_properties=[each for each in came.user_properties if each[0] != name],
    )


class Origin(Protocol):
    """Gets the outcome of a delivery that it gave to a session."""

    @property
    def name(self) -> bytes:
        """Its name in the store; empty for an origin that does not survive a restart."""
        ...

    @property
    def keeps(self) -> bool:
        """Whether the origin keeps the message until it is settled. The session then holds it only while connected, and
        does not store it."""
        ...

    def settled(self, delivery: "Delivery", reason_code: int) -> None:
        """The receiver acknowledged the message; from 0x80 on, the reason code rejects it. Only an origin that `keeps`
        the message is told."""
        ...

    def returned(self, delivery: "Delivery") -> bool:
        """The session ended before the receiver acknowledged the message. Return whether another receiver gets it now.
        An origin that `keeps` the message is called already when the connection ends."""
        ...


@final
class StoredOrigin:
    """The name of an origin, loaded from a store. `Routes.with_origin` finds the origin."""

    __slots__ = ("name",)

    def __init__(self, name: bytes) -> None:
        self.name: Final = name

    @property
    def keeps(self) -> bool:
        return False

    def settled(self, delivery: "Delivery", reason_code: int) -> None:
        raise AssertionError("a message is sent with the origin that it was found for")

    def returned(self, delivery: "Delivery") -> bool:
        raise AssertionError("a message is handed on by the origin that it was found for")


_TOLD: Final = b"told"
_TOLD_ALL: Final = b"told all"


@final
class Delivery:
    """A message with the QoS, RETAIN flag and subscription identifiers that some receivers get."""

    __slots__ = (
        "_head3",
        "_head5",
        "_left_s",
        "_tail3",
        "_tail5",
        "_variants",
        "identifiers",
        "is_lent",
        "message",
        "origin",
        "qos",
        "retain",
    )

    def __init__(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...] = (),
        origin: Origin | None = None,
    ) -> None:
        self.message: Final = message
        self.qos: Final = qos
        self.retain: Final = retain
        self.identifiers: Final = identifiers
        self.origin: Final = origin
        """The origin to call with the outcome, for example the shared subscription that chose the receiver."""
        self.is_lent: Final = origin is not None and origin.keeps
        """Whether the origin keeps the message, and gets it back when the connection ends."""
        self._head3 = b""
        self._tail3 = b""
        self._head5 = b""
        self._tail5 = b""
        self._left_s = NO_EXPIRY  # the remaining interval in the two parts above
        self._variants: dict[bytes, Delivery] | None = None
        """Its variants: by mount point, which ends with a slash, and by `_TOLD` and `_TOLD_ALL`."""

    def parts(self, version: int, now: float) -> tuple[bytes, bytes]:
        """The bytes before and after the packet identifier; built once for each protocol version.

        The properties are those received [MQTT-3.3.2-4] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-18]
        [MQTT-3.3.2-20], with the remaining expiry interval [MQTT-3.3.2-6].
        """
        message = self.message
        if version != V5:
            if not self._head3:
                self._head3, self._tail3 = publish_parts(
                    message.topic, message.payload, self.qos, self.retain, NONE, version
                )
            return self._head3, self._tail3
        left = NO_EXPIRY
        if message.expires_at:  # the remaining interval changes every second
            left = seconds_left(message.expiry_s(), message.expires_at, now)
        if not self._head5 or left != self._left_s:
            self._left_s = left
            self._head5, self._tail5 = self._parts5(left)
        return self._head5, self._tail5

    def packet_bytes(self, version: int, now: float) -> int:
        """The size of its packet."""
        head, tail = self.parts(version, now)
        return len(head) + (2 if self.qos else 0) + len(tail)

    def forget_parts(self) -> None:
        """Free the cached parts, because no receiver needs them soon. They can be built again."""
        self._head3 = self._tail3 = self._head5 = self._tail5 = b""
        self._variants = None

    def unmounted(self, mount_point: bytes) -> "Delivery | None":
        """The delivery for clients below a mount point, cached for all of them. None if its topic is not below the
        mount point."""
        if self._variants is None:
            self._variants = {}
        seen = self._variants.get(mount_point)
        if seen is None:
            topic = unmounted(mount_point, self.message.topic)
            if not topic:
                return None
            seen = Delivery(self.message.for_topic(topic), self.qos, self.retain, self.identifiers)
            self._variants[mount_point] = seen
        return seen

    def told_to(self, sees_publishers: bool) -> "Delivery | None":
        """The cached result of `tell` for receivers that see publishers, or for those that do not; None if there is
        none."""
        return None if self._variants is None else self._variants.get(_TOLD_ALL if sees_publishers else _TOLD)

    def tell(self, sees_publishers: bool, told: bytes) -> "Delivery":
        """The delivery with the broker's user properties added, cached for `told_to`."""
        if self._variants is None:
            self._variants = {}
        seen = self.message.with_user_properties(told)
        made = Delivery(seen, self.qos, self.retain, self.identifiers)
        self._variants[_TOLD_ALL if sees_publishers else _TOLD] = made
        return made

    def _parts5(self, remaining_s: int) -> tuple[bytes, bytes]:
        message = self.message
        raw = message.raw
        if raw is not None and remaining_s == raw.expiry_s:
            block = with_identifiers(raw.data, self.identifiers) if self.identifiers else raw.data
            return publish_parts(message.topic, message.payload, self.qos, self.retain, NONE, V5, block=block)
        properties = message.properties
        if self.identifiers or remaining_s != NO_EXPIRY:
            properties = Properties(
                payload_format_indicator=properties.payload_format_indicator,
                message_expiry_interval=None if remaining_s == NO_EXPIRY else remaining_s,
                content_type=properties.content_type,
                response_topic=properties.response_topic,
                correlation_data=properties.correlation_data,
                user_properties=properties.user_properties,
                subscription_identifiers=list(self.identifiers) or properties.subscription_identifiers,
            )
        return publish_parts(message.topic, message.payload, self.qos, self.retain, properties, V5)


_NO_DELIVERIES: Final[list[Delivery | None]] = []
NO_TRACES: Final[list[int]] = []
_NO_PLACES: Final[list[int]] = []
"""Never changed. Shared by batches of which no single message was needed."""


@final
class PublishBatch(Holdable):
    """Messages with the same QoS, topic, size and properties, without RETAIN, in order of arrival."""

    __slots__ = (
        "_before",
        "_behind",
        "_deliveries",
        "_forms",
        "_identified",
        "_places",
        "_special",
        "_whole",
        "count",
        "data",
        "expires_at",
        "head",
        "on_overflow",
        "origin",
        "publisher",
        "qos",
        "raw",
        "size",
        "target",
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
        raw: RawProperties = NO_PROPERTIES,
        expires_at: float = 0.0,
    ) -> None:
        super().__init__(BATCH_BYTES + len(topic) + len(data))
        self.topic: Final = topic
        self.data: Final = data
        self.size: Final = size
        """The size of each packet."""
        self.head: Final = head
        """The offset of the payload in a packet."""
        self.qos: Final = qos
        self.count: Final = len(data) // size
        self.version: Final = version
        self.raw: Final = raw
        self.expires_at: Final = expires_at
        self._forms: dict[tuple[bool, int], PublishBatch] | None = None
        self._identified: dict[tuple[int, ...], PublishBatch] | None = None
        self._deliveries: list[Delivery | None] = _NO_DELIVERIES  # by position and QoS
        self._special: dict[tuple[int, int, tuple[int, ...]], Delivery] | None = None
        self.on_overflow: str = ""
        """As that of a message."""
        self.traces: list[int] = NO_TRACES
        """The traces of the first messages; set before any single message is taken."""
        self.publisher: str = ""
        """The publisher, as in `Message`; set likewise."""
        self.target: tuple[int, ...] = NO_TARGET
        """As that of a message."""
        self.origin: Origin | None = None
        """As that of a delivery, for all of its messages; set before any of them is taken."""
        self._whole: PublishBatch | None = None
        self._places: list[int] = _NO_PLACES
        """The batch of which it is a part, and the positions of its messages there."""
        self._before = b""
        self._behind = b""
        """Of a single message: its packet before and behind the identifier, once a receiver needs them."""

    def message_bytes(self) -> int:
        """The size of each message as counted by limits."""
        return len(self.topic) + self.size - self.head

    def delivery(self, at: int, qos: int, identifiers: tuple[int, ...] = ()) -> Delivery:
        """One of the messages, for receivers that get it at `qos` with these subscription identifiers."""
        if identifiers:
            return self._special_delivery(at, qos, identifiers)
        if self._deliveries is _NO_DELIVERIES:
            self._deliveries = [None] * (3 * self.count)
        delivery = self._deliveries[3 * at + qos]
        if delivery is None:
            delivery = self._deliveries[3 * at + qos] = Delivery(self._message(at), qos, False, (), self.origin)
        return delivery

    def _message(self, at: int) -> Message:
        """One of the messages: one object for all receivers at any QoS, so that it has one number."""
        if self._whole is not None:
            return self._whole.delivery(self._places[at], 0).message
        for known in self._deliveries[3 * at : 3 * at + 3]:
            if known is not None:
                return known.message
        message = Message(self.topic, self.payload(at), self.qos, False, NONE, self.expires_at, self.raw)
        message.on_overflow = self.on_overflow
        message.publisher = self.publisher
        message.target = self.target
        if at < len(self.traces):
            message.trace = message.number = self.traces[at]
        return message

    def _special_delivery(self, at: int, qos: int, identifiers: tuple[int, ...]) -> Delivery:
        if self._special is None:
            self._special = {}
        key = (at, qos, identifiers)
        delivery = self._special.get(key)
        if delivery is None:
            delivery = self._special[key] = Delivery(self.delivery(at, qos).message, qos, False, identifiers)
        return delivery

    def payload(self, at: int) -> bytes:
        """The payload of one of the messages."""
        start = at * self.size
        return self.data[start + self.head : start + self.size]

    def untraced(self) -> "PublishBatch":
        """The messages after the traced ones; there is at least one."""
        traced = len(self.traces)
        if traced == 0:
            return self
        return self._part(self.data[traced * self.size :], list(range(traced, self.count)))

    def _part(self, data: bytes, places: list[int]) -> "PublishBatch":
        """A batch of some of the messages, given with their positions."""
        part = PublishBatch(self.topic, data, self.size, self.head, self.qos, self.version, self.raw, self.expires_at)
        part.on_overflow = self.on_overflow
        part._whole, part._places = self, places
        return part

    def every(self, start: int, step: int) -> "PublishBatch":
        """Every `step`th message from position `start` on."""
        return self.select(list(range(start, self.count, step)))

    def select(self, positions: list[int]) -> "PublishBatch":
        """The messages at these positions."""
        return self._part(self._packets(positions), positions)

    def dealt(self, positions: list[int], origin: Origin) -> "PublishBatch":
        """The messages at these positions, as a batch of its own: it may be kept long after the others are gone."""
        data = self._packets(positions)
        batch = PublishBatch(self.topic, data, self.size, self.head, self.qos, self.version, self.raw, self.expires_at)
        batch.on_overflow, batch.publisher, batch.origin = self.on_overflow, self.publisher, origin
        return batch

    def _packets(self, positions: list[int]) -> bytes:
        return b"".join([self.data[at * self.size : (at + 1) * self.size] for at in positions])

    def identified(self, identifiers: tuple[int, ...]) -> "PublishBatch":
        """The same QoS 0 messages as 5.0 packets with these subscription identifiers."""
        if self._identified is None:
            self._identified = {}
        batch = self._identified.get(identifiers)
        if batch is None:
            raw = RawProperties(with_identifiers(self.raw.data, identifiers), self.raw.expiry_s)
            packets, head = reframed(self.topic, self.data, self.size, self.head, 0, V5, raw)
            size = len(packets) // self.count
            batch = PublishBatch(self.topic, packets, size, head, 0, V5, raw, self.expires_at)
            batch.on_overflow = self.on_overflow
            self._identified[identifiers] = batch
        return batch

    def frames(self, version: int, qos: int, first: int, count: int) -> bytes:
        """The first `count` messages as packets of a version and QoS, with identifiers from `first` on."""
        form = self if qos == self.qos and (version == V5) == (self.version == V5) else self._form(version, qos)
        if qos and form.count == 1:
            if not form._before:
                id_at = form._id_at(version)
                form._before, form._behind = form.data[:id_at], form.data[id_at + 2 :]
            return form._before + encode_u16(first) + form._behind
        packets = form.data if count == form.count else form.data[: count * form.size]
        return numbered(packets, form.size, form._id_at(version), first) if qos else packets

    def _id_at(self, version: int) -> int:
        """The offset of the packet identifier in a packet of QoS 1 or 2."""
        return self.head - 2 - len(self.raw.data) if version == V5 else self.head - 2

    def forget_forms(self) -> None:
        """Free the cached forms, like `Delivery.forget_parts`."""
        self._forms = None
        self._identified = None
        self._special = None
        self._before = self._behind = b""
        for delivery in self._deliveries:
            if delivery is not None:
                delivery.forget_parts()

    def _form(self, version: int, qos: int) -> "PublishBatch":
        """The same messages as packets of another version or QoS; made once."""
        if self._forms is None:
            self._forms = {}
        form = self._forms.get((version == V5, qos))
        if form is None:
            packets, head = reframed(self.topic, self.data, self.size, self.head, qos, version, self.raw)
            form = PublishBatch(self.topic, packets, len(packets) // self.count, head, qos, version, self.raw)
            self._forms[version == V5, qos] = form
        return form


def reframed(
    topic: bytes, data: bytes, size: int, head: int, qos: int, version: int, raw: RawProperties
) -> tuple[bytes, int]:
    """Convert packets of one topic, size and properties to a version and QoS. Return them and the offset of the
    payload.

    `data` holds packets of `size` bytes, with the payload at offset `head`. The packet identifiers in the result are 0.
    """
    payload_bytes = size - head
    prefix, tail = publish_parts(topic, data[head:size], qos, False, NONE, version, block=raw.data)
    if qos:
        prefix += b"\0\0"
    if len(data) == size:  # a message that came alone: the loop below costs more than all of this
        return prefix + tail, len(prefix) + len(tail) - payload_bytes
    prefix += tail[: len(tail) - payload_bytes]
    packets = b"".join([prefix + data[at + head : at + size] for at in range(0, len(data), size)])
    return packets, len(prefix)
