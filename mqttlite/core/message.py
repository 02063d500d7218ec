"""A message on its way: what was published (`Message`), and what a group of receivers gets of it (`Delivery`).

Invariant: both are shared by all their receivers; what differs per receiver is a packet identifier, kept elsewhere.
"""

from typing import Final, final

from mqttlite.wire.constants import V5
from mqttlite.wire.encode import publish_parts
from mqttlite.wire.properties import NONE, Properties


@final
class Message:
    """An application message. `expires_at` is in the broker's seconds; 0.0 is never (5.0 §3.3.2.3.3)."""

    __slots__ = ("expires_at", "payload", "properties", "qos", "retain", "superseded", "topic")

    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NONE,
        expires_at: float = 0.0,
    ) -> None:
        self.topic: Final = topic
        self.payload: Final = payload
        self.qos: Final = qos
        self.retain: Final = retain
        self.properties: Final = properties
        self.expires_at: Final = expires_at
        self.superseded = False
        """A retained message that another has replaced: who still waits for it need not get it."""

    def size(self) -> int:
        """What it is counted as where bytes are limited."""
        return len(self.topic) + len(self.payload)

    def expired(self, now: float) -> bool:
        return 0.0 < self.expires_at <= now


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
        if self.identifiers or remaining_s is not None:
            properties = Properties(
                payload_format_indicator=properties.payload_format_indicator,
                message_expiry_interval=remaining_s,
                content_type=properties.content_type,
                response_topic=properties.response_topic,
                correlation_data=properties.correlation_data,
                user_properties=properties.user_properties,
                subscription_identifiers=list(self.identifiers),
            )
        return publish_parts(message.topic, message.payload, self.qos, self.retain, properties, V5)
