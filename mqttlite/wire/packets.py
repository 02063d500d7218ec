"""The packets of MQTT as values. Topic names and filters are their UTF-8 bytes, already validated as UTF-8.

`Publish` and `Ack` stand on the path of every message, `Connect` and `Disconnect` on that of every connection: they are
plain slotted classes, for a frozen dataclass takes ten times as long to make. The others are frozen dataclasses.
"""

from dataclasses import dataclass
from typing import Final, final

from mqttlite.wire.constants import PACKET_NAMES, V5
from mqttlite.wire.properties import NONE, Properties


@final
class Publish:
    """A PUBLISH (§3.3). `packet_id` is 0 at QoS 0 and only there."""

    __slots__ = ("dup", "packet_id", "payload", "properties", "qos", "retain", "topic")

    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 0,
        properties: Properties = NONE,
    ) -> None:
        self.topic: Final = topic
        self.payload: Final = payload
        self.qos: Final = qos
        self.retain: Final = retain
        self.dup: Final = dup
        self.packet_id: Final = packet_id
        self.properties: Final = properties

    def _key(self) -> tuple[object, ...]:
        return (self.topic, self.payload, self.qos, self.retain, self.dup, self.packet_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Publish) and self._key() == other._key() and self.properties == other.properties

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return (
            f"Publish(topic={self.topic!r}, payload={self.payload[:64]!r}, qos={self.qos}, retain={self.retain}, "
            f"dup={self.dup}, packet_id={self.packet_id}, properties={self.properties!r})"
        )


@final
class Ack:
    """A PUBACK, PUBREC, PUBREL or PUBCOMP (§3.4–3.7): alike but for their type."""

    __slots__ = ("packet_id", "packet_type", "properties", "reason_code")

    def __init__(self, packet_type: int, packet_id: int, reason_code: int = 0, properties: Properties = NONE) -> None:
        self.packet_type: Final = packet_type
        self.packet_id: Final = packet_id
        self.reason_code: Final = reason_code
        self.properties: Final = properties

    def _key(self) -> tuple[int, int, int]:
        return (self.packet_type, self.packet_id, self.reason_code)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ack) and self._key() == other._key() and self.properties == other.properties

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return (
            f"Ack({PACKET_NAMES[self.packet_type]}, packet_id={self.packet_id}, "
            f"reason_code=0x{self.reason_code:02X}, properties={self.properties!r})"
        )


@dataclass(frozen=True)
class Will:
    """The message to publish when its client is lost (§3.1.2.5)."""

    topic: bytes
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NONE


@final
class Connect:
    """`is_bridge` says that the client is a bridge of another broker, before 5.0 (`constants.BRIDGE_BIT`)."""

    __slots__ = (
        "clean_start",
        "client_id",
        "is_bridge",
        "keep_alive",
        "password",
        "properties",
        "username",
        "version",
        "will",
    )

    def __init__(
        self,
        client_id: str,
        version: int = V5,
        clean_start: bool = True,
        keep_alive: int = 0,
        username: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
        properties: Properties = NONE,
        is_bridge: bool = False,
    ) -> None:
        self.client_id: Final = client_id
        self.version: Final = version
        self.clean_start: Final = clean_start
        self.keep_alive: Final = keep_alive
        self.username: Final = username
        self.password: Final = password
        self.will: Final = will
        self.properties: Final = properties
        self.is_bridge: Final = is_bridge

    def _key(self) -> tuple[object, ...]:
        asked = (self.version, self.clean_start, self.keep_alive, self.will, self.is_bridge)
        return (self.client_id, self.username, self.password, asked)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Connect) and self._key() == other._key() and self.properties == other.properties

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return (
            f"Connect(client_id={self.client_id!r}, version={self.version}, clean_start={self.clean_start}, "
            f"keep_alive={self.keep_alive}, username={self.username!r}, will={self.will!r}, "
            f"properties={self.properties!r}, is_bridge={self.is_bridge})"
        )


@dataclass(frozen=True)
class Connack:
    """`reason_code` is a 5.0 reason code, or a 3.1.1 return code where that version is encoded or was decoded."""

    session_present: bool
    reason_code: int = 0
    properties: Properties = NONE


@dataclass(frozen=True)
class SubscriptionRequest:
    """One topic filter of a SUBSCRIBE with its options (§3.8.3.1)."""

    topic_filter: bytes
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(frozen=True)
class Subscribe:
    packet_id: int
    requests: tuple[SubscriptionRequest, ...]
    properties: Properties = NONE


@dataclass(frozen=True)
class Suback:
    packet_id: int
    reason_codes: bytes
    properties: Properties = NONE


@dataclass(frozen=True)
class Unsubscribe:
    packet_id: int
    topic_filters: tuple[bytes, ...]
    properties: Properties = NONE


@dataclass(frozen=True)
class Unsuback:
    """`reason_codes` is empty in 3.1.1, which has none."""

    packet_id: int
    reason_codes: bytes = b""
    properties: Properties = NONE


@dataclass(frozen=True)
class Pingreq:
    pass


@dataclass(frozen=True)
class Pingresp:
    pass


@final
class Disconnect:
    __slots__ = ("properties", "reason_code")

    def __init__(self, reason_code: int = 0, properties: Properties = NONE) -> None:
        self.reason_code: Final = reason_code
        self.properties: Final = properties

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Disconnect)
            and self.reason_code == other.reason_code
            and self.properties == other.properties
        )

    def __hash__(self) -> int:
        return hash(self.reason_code)

    def __repr__(self) -> str:
        return f"Disconnect(reason_code=0x{self.reason_code:02X}, properties={self.properties!r})"


@dataclass(frozen=True)
class Auth:
    reason_code: int = 0
    properties: Properties = NONE


Packet = (
    Publish
    | Ack
    | Connect
    | Connack
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
