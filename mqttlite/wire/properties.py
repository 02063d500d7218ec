"""The properties of MQTT 5.0 (§2.2.2): one class with a field for each, one table that says where and how.

Invariant: a decoded `Properties` holds only what its packet may carry, each at most once (user properties
and subscription identifiers excepted), each within its range.
"""

from typing import Any, Final, final

from mqttlite.wire.constants import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
)
from mqttlite.wire.errors import MalformedPacket, ProtocolError, QuotaExceeded, TopicAliasInvalid
from mqttlite.wire.primitives import (
    Cursor,
    encode_binary,
    encode_u8,
    encode_u16,
    encode_u32,
    encode_utf8,
    encode_varint,
)

USER_PROPERTY_BYTES: Final = 180
"""About what one takes in memory beside its characters."""

WILL: Final = 16
"""Stands for the will's properties, which are inside CONNECT but have a list of their own."""


@final
class Properties:
    """The properties of a 5.0 packet; `None` (or an empty list) where one is absent."""

    __slots__ = (
        "assigned_client_identifier",
        "authentication_data",
        "authentication_method",
        "content_type",
        "correlation_data",
        "maximum_packet_size",
        "maximum_qos",
        "message_expiry_interval",
        "payload_format_indicator",
        "reason_string",
        "receive_maximum",
        "request_problem_information",
        "request_response_information",
        "response_information",
        "response_topic",
        "retain_available",
        "server_keep_alive",
        "server_reference",
        "session_expiry_interval",
        "shared_subscription_available",
        "subscription_identifier_available",
        "subscription_identifiers",
        "topic_alias",
        "topic_alias_maximum",
        "user_properties",
        "wildcard_subscription_available",
        "will_delay_interval",
    )

    def __init__(
        self,
        *,
        payload_format_indicator: int | None = None,
        message_expiry_interval: int | None = None,
        content_type: str | None = None,
        response_topic: str | None = None,
        correlation_data: bytes | None = None,
        subscription_identifiers: list[int] | None = None,
        session_expiry_interval: int | None = None,
        assigned_client_identifier: str | None = None,
        server_keep_alive: int | None = None,
        authentication_method: str | None = None,
        authentication_data: bytes | None = None,
        request_problem_information: int | None = None,
        will_delay_interval: int | None = None,
        request_response_information: int | None = None,
        response_information: str | None = None,
        server_reference: str | None = None,
        reason_string: str | None = None,
        receive_maximum: int | None = None,
        topic_alias_maximum: int | None = None,
        topic_alias: int | None = None,
        maximum_qos: int | None = None,
        retain_available: int | None = None,
        user_properties: list[tuple[str, str]] | None = None,
        maximum_packet_size: int | None = None,
        wildcard_subscription_available: int | None = None,
        subscription_identifier_available: int | None = None,
        shared_subscription_available: int | None = None,
    ) -> None:
        self.payload_format_indicator: int | None = payload_format_indicator
        self.message_expiry_interval: int | None = message_expiry_interval
        self.content_type: str | None = content_type
        self.response_topic: str | None = response_topic
        self.correlation_data: bytes | None = correlation_data
        self.subscription_identifiers: list[int] = subscription_identifiers or []
        self.session_expiry_interval: int | None = session_expiry_interval
        self.assigned_client_identifier: str | None = assigned_client_identifier
        self.server_keep_alive: int | None = server_keep_alive
        self.authentication_method: str | None = authentication_method
        self.authentication_data: bytes | None = authentication_data
        self.request_problem_information: int | None = request_problem_information
        self.will_delay_interval: int | None = will_delay_interval
        self.request_response_information: int | None = request_response_information
        self.response_information: str | None = response_information
        self.server_reference: str | None = server_reference
        self.reason_string: str | None = reason_string
        self.receive_maximum: int | None = receive_maximum
        self.topic_alias_maximum: int | None = topic_alias_maximum
        self.topic_alias: int | None = topic_alias
        self.maximum_qos: int | None = maximum_qos
        self.retain_available: int | None = retain_available
        self.user_properties: list[tuple[str, str]] = user_properties or []
        self.maximum_packet_size: int | None = maximum_packet_size
        self.wildcard_subscription_available: int | None = wildcard_subscription_available
        self.subscription_identifier_available: int | None = subscription_identifier_available
        self.shared_subscription_available: int | None = shared_subscription_available

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Properties) and self.present() == other.present()

    def __hash__(self) -> int:
        return hash(tuple([name for name, _value in self.present()]))

    def __repr__(self) -> str:
        return f"Properties({', '.join(f'{name}={value!r}' for name, value in self.present())})"

    def replace(self, **changes: Any) -> "Properties":
        """The same properties with some changed; `None` takes one away. Raises `TypeError` for an unknown name."""
        fields: dict[str, Any] = dict(self.present())
        fields.update(changes)
        return Properties(**fields)

    def size(self) -> int:
        """About how many bytes those take that are as long as their sender likes."""
        size = len(self.content_type or "") + len(self.response_topic or "") + len(self.correlation_data or b"")
        for name, value in self.user_properties:
            size += len(name) + len(value) + USER_PROPERTY_BYTES
        return size

    def present(self) -> list[tuple[str, object]]:
        """Names and values of those that are set, in the order of their identifiers."""
        pairs: list[tuple[str, object]] = []
        for _identifier, name, _kind, _where in _TABLE:
            value: object = getattr(self, name)
            if value is not None and value != []:
                pairs.append((name, value))
        return pairs


NONE: Final = Properties()
"""No properties; shared by every packet that has none, and never changed."""

_BOOL: Final = 0
_U16: Final = 2
_U32: Final = 3
_VARINT: Final = 4
_UTF8: Final = 5
_BINARY: Final = 6
_PAIR: Final = 7

_ACKS: Final = (PUBACK, PUBREC, PUBREL, PUBCOMP)
_ANY_BUT_PING: Final = (
    *(CONNECT, CONNACK, PUBLISH, *_ACKS, SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK),
    *(DISCONNECT, AUTH, WILL),
)

# identifier, name, kind, packets that may carry it: table 2-4 of the standard
_TABLE: Final[tuple[tuple[int, str, int, tuple[int, ...]], ...]] = (
    (0x01, "payload_format_indicator", _BOOL, (PUBLISH, WILL)),
    (0x02, "message_expiry_interval", _U32, (PUBLISH, WILL)),
    (0x03, "content_type", _UTF8, (PUBLISH, WILL)),
    (0x08, "response_topic", _UTF8, (PUBLISH, WILL)),
    (0x09, "correlation_data", _BINARY, (PUBLISH, WILL)),
    (0x0B, "subscription_identifiers", _VARINT, (PUBLISH, SUBSCRIBE)),
    (0x11, "session_expiry_interval", _U32, (CONNECT, CONNACK, DISCONNECT)),
    (0x12, "assigned_client_identifier", _UTF8, (CONNACK,)),
    (0x13, "server_keep_alive", _U16, (CONNACK,)),
    (0x15, "authentication_method", _UTF8, (CONNECT, CONNACK, AUTH)),
    (0x16, "authentication_data", _BINARY, (CONNECT, CONNACK, AUTH)),
    (0x17, "request_problem_information", _BOOL, (CONNECT,)),
    (0x18, "will_delay_interval", _U32, (WILL,)),
    (0x19, "request_response_information", _BOOL, (CONNECT,)),
    (0x1A, "response_information", _UTF8, (CONNACK,)),
    (0x1C, "server_reference", _UTF8, (CONNACK, DISCONNECT)),
    (0x1F, "reason_string", _UTF8, (CONNACK, *_ACKS, SUBACK, UNSUBACK, DISCONNECT, AUTH)),
    (0x21, "receive_maximum", _U16, (CONNECT, CONNACK)),
    (0x22, "topic_alias_maximum", _U16, (CONNECT, CONNACK)),
    (0x23, "topic_alias", _U16, (PUBLISH,)),
    (0x24, "maximum_qos", _BOOL, (CONNACK,)),
    (0x25, "retain_available", _BOOL, (CONNACK,)),
    (0x26, "user_properties", _PAIR, _ANY_BUT_PING),
    (0x27, "maximum_packet_size", _U32, (CONNECT, CONNACK)),
    (0x28, "wildcard_subscription_available", _BOOL, (CONNACK,)),
    (0x29, "subscription_identifier_available", _BOOL, (CONNACK,)),
    (0x2A, "shared_subscription_available", _BOOL, (CONNACK,)),
)

MAX_USER_PROPERTIES: Final = 1_024
"""User properties of one packet. A packet is decoded in one go, a CONNECT before its client is known: a megabyte of
them takes half a second."""

_BY_IDENTIFIER: Final = {row[0]: row for row in _TABLE}
_NEVER_ZERO: Final = frozenset({0x0B, 0x21, 0x23, 0x27})


def decode_properties(cursor: Cursor, packet: int) -> Properties:
    """The properties at the cursor, of a packet of that type (or `WILL`).

    Raises `MalformedPacket` for short fields and for identifiers that are unknown or not for this packet (§2.2.2.2),
    `ProtocolError` for properties that come twice or are out of range (`TopicAliasInvalid` for alias zero),
    `QuotaExceeded` for more than `MAX_USER_PROPERTIES`.
    """
    length = cursor.varint()
    if length == 0:
        return NONE
    block = Cursor(cursor.take(length))
    properties = Properties()
    while not block.at_end:
        identifier = block.varint()
        row = _BY_IDENTIFIER.get(identifier)
        if row is None:
            raise MalformedPacket(f"property 0x{identifier:02X} does not exist")
        _identifier, name, kind, where = row
        if packet not in where:
            raise MalformedPacket(f"property {name} may not be in this packet")
        if kind == _PAIR:
            if len(properties.user_properties) == MAX_USER_PROPERTIES:
                raise QuotaExceeded(f"more than {MAX_USER_PROPERTIES} user properties")
            properties.user_properties.append((block.utf8(), block.utf8()))  # [MQTT-1.5.7-1]
        elif identifier == 0x0B:
            if packet == SUBSCRIBE and properties.subscription_identifiers:
                raise ProtocolError(f"property {name} comes twice")
            properties.subscription_identifiers.append(_within_range(name, identifier, kind, block.varint()))
        elif getattr(properties, name) is not None:
            raise ProtocolError(f"property {name} comes twice")
        elif kind == _UTF8:
            setattr(properties, name, block.utf8())  # among them [MQTT-3.3.2-13] [MQTT-3.3.2-19]
        elif kind == _BINARY:
            setattr(properties, name, block.binary())
        else:
            value = block.u8() if kind == _BOOL else block.u16() if kind == _U16 else block.u32()
            setattr(properties, name, _within_range(name, identifier, kind, value))
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise ProtocolError("authentication data without an authentication method")
    return properties


def _within_range(name: str, identifier: int, kind: int, value: int) -> int:
    if _is_allowed(identifier, kind, value):
        return value
    if identifier == 0x23:
        raise TopicAliasInvalid("topic alias is zero [MQTT-3.3.2-8]")
    raise ProtocolError(f"property {name} may not be {value}")


def _is_allowed(identifier: int, kind: int, value: int) -> bool:
    """Whether a number that fits its bytes is one that the standard gives a meaning."""
    if kind == _BOOL:
        return value <= 1
    return value != 0 or identifier not in _NEVER_ZERO


def encode_properties(properties: Properties, packet: int) -> bytes:
    """The property block of a packet of that type (or `WILL`), its length included.

    Raises `ValueError` for a property that this packet may not carry and for a value that does not fit or that no
    receiver would take.
    """
    if properties is NONE:
        return b"\0"  # [MQTT-2.2.2-1]
    parts: list[bytes] = []
    for identifier, name, kind, where in _TABLE:
        value = getattr(properties, name)
        if value is None or value == []:
            continue
        if packet not in where:
            raise ValueError(f"property {name} may not be in this packet")
        key = encode_u8(identifier)
        if kind == _PAIR:
            for left, right in properties.user_properties:
                parts += (key, encode_utf8(left), encode_utf8(right))
        elif kind == _VARINT:
            for number in properties.subscription_identifiers:
                parts += (key, _encode_number(name, identifier, kind, number))
        elif kind == _UTF8:
            parts += (key, encode_utf8(value))
        elif kind == _BINARY:
            parts += (key, encode_binary(value))
        else:
            parts += (key, _encode_number(name, identifier, kind, value))
    block = b"".join(parts)
    return encode_varint(len(block)) + block


def _encode_number(name: str, identifier: int, kind: int, value: int) -> bytes:
    if not _is_allowed(identifier, kind, value):
        raise ValueError(f"property {name} may not be {value}")
    if kind == _BOOL:
        return encode_u8(value)
    if kind == _U16:
        return encode_u16(value)
    return encode_u32(value) if kind == _U32 else encode_varint(value)
