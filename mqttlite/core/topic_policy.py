"""The policy for messages of a topic from any publisher: a `TopicPolicy`, cached by the topic's route."""

from typing import Final, final

from mqttlite.core.inbound.priority import LOW, NORMAL
from mqttlite.core.limits import BLOCK, DROP_NEWEST, REJECT
from mqttlite.core.message import Message, PublishBatch, RawProperties, reframed
from mqttlite.core.payload_check import PayloadCheck
from mqttlite.core.retained.expiry_caps import expiring, with_expiry
from mqttlite.wire.constants import PUBLISH, V5
from mqttlite.wire.properties import encode_properties

STANDARD: Final = "standard"
EPHEMERAL: Final = "ephemeral"
"""Messages of an ephemeral topic reach connected clients at QoS 0 and are kept nowhere."""


@final
class TopicPolicy:
    """A value. `max_payload_bytes` and `ttl_s` 0 mean no limit; an empty `on_overflow` means the broker's."""

    __slots__ = (
        "asks_room",
        "blocks",
        "is_ephemeral",
        "is_low",
        "is_plain",
        "max_payload_bytes",
        "max_qos",
        "min_qos",
        "name",
        "on_overflow",
        "passes_batches",
        "payload_check",
        "tells_publisher",
        "ttl_s",
    )

    def __init__(
        self,
        name: str = "",
        topic_class: str = STANDARD,
        max_payload_bytes: int = 0,
        min_qos: int = 0,
        max_qos: int = 2,
        ttl_s: int = 0,
        payload_check: PayloadCheck | None = None,
        priority: str = NORMAL,
        on_overflow: str = "",
        tells_publisher: bool = False,
    ) -> None:
        self.name: Final = name
        """Its name in reason strings and logs."""
        self.is_ephemeral: Final = topic_class == EPHEMERAL
        self.max_payload_bytes: Final = max_payload_bytes
        self.min_qos: Final = min_qos
        """A PUBLISH with a lower QoS is refused."""
        self.max_qos: Final = 0 if self.is_ephemeral else max_qos
        """Receivers get messages at this QoS at most."""
        self.ttl_s: Final = ttl_s
        """Messages expire after this time, or earlier by their own expiry interval."""
        self.payload_check: Final = payload_check
        """Checks payloads, if they are checked."""
        self.is_low: Final = priority == LOW
        """Whether overload drops its messages first."""
        self.asks_room: Final = on_overflow in (BLOCK, REJECT)
        """Whether a message goes to no receiver while one of them has no room for it."""
        self.blocks: Final = on_overflow == BLOCK
        """Whether the publisher then waits for room."""
        self.on_overflow: Final = DROP_NEWEST if self.asks_room else on_overflow
        """What a receiver without room does with a message; empty: as in `Limits.on_overflow`."""
        self.tells_publisher: Final = tells_publisher
        """Whether receivers may see the publisher of a message. It does not restrict messages."""
        self.passes_batches: Final = not (payload_check is not None or self.asks_room)
        """Whether batches may stay batches: no message is checked on its own."""
        self.is_plain: Final = not (
            max_payload_bytes
            or min_qos
            or self.max_qos < 2
            or ttl_s
            or payload_check is not None
            or self.is_low
            or on_overflow
        )
        """Whether the policy restricts or changes no message."""

    def __repr__(self) -> str:
        return f"TopicPolicy({self.name!r})"

    def refusal(self, qos: int, retain: bool, payload_bytes: int) -> str:
        """A sentence that says why a message may not be published; empty if it may."""
        if qos < self.min_qos:
            return f"QoS {qos}: the policy of {self.name} asks for {self.min_qos} at least"
        if retain and self.is_ephemeral:
            return f"RETAIN: {self.name} is ephemeral, and nothing is kept of it"
        if 0 < self.max_payload_bytes < payload_bytes:
            return f"{payload_bytes} bytes of payload: the policy of {self.name} allows {self.max_payload_bytes}"
        return ""

    def limited(self, message: Message, now: float) -> Message:
        """The message, or a copy with a lower QoS or an earlier expiry."""
        if not self.ttl_s or 0.0 < message.expires_at <= now + self.ttl_s:
            limited = message if message.qos <= self.max_qos else message.copy(self.max_qos)
        else:
            limited = expiring(message, min(message.qos, self.max_qos), self.ttl_s, now)
            limited.trace = message.trace
        limited.on_overflow = self.on_overflow
        return limited

    def limited_batch(self, batch: PublishBatch, now: float) -> PublishBatch:
        """The same for a batch of a QoS that it allows."""
        limited, raw = batch, batch.raw
        if self.ttl_s and not 0 <= raw.expiry_s <= self.ttl_s:
            raw = RawProperties(encode_properties(with_expiry(raw.properties, self.ttl_s), PUBLISH), self.ttl_s)
            packets, head = reframed(batch.topic, batch.data, batch.size, batch.head, batch.qos, V5, raw)
            size = len(packets) // batch.count
            limited = PublishBatch(batch.topic, packets, size, head, batch.qos, V5, raw, raw.expires_at(now))
        limited.on_overflow = self.on_overflow
        return limited


NO_POLICY: Final = TopicPolicy()
"""For topics without a policy."""
