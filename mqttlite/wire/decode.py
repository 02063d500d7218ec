"""Bytes become packets, strictly. Each decoder is a list of reads; what breaks a rule raises a `PeerError`.

Whether a packet may come now is not asked here: the connection knows its state.
"""

from typing import Final

from mqttlite.wire.constants import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PACKET_NAMES,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    V31,
    V311,
)
from mqttlite.wire.errors import MalformedPacket, ProtocolError, UnsupportedProtocolVersion
from mqttlite.wire.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from mqttlite.wire.primitives import Cursor
from mqttlite.wire.properties import NONE, WILL, Properties, decode_properties

# The flags of the fixed header are given for all but PUBLISH, whose four bits mean something [MQTT-2.1.3-1].
_FLAGS_2: Final = frozenset({PUBREL, SUBSCRIBE, UNSUBSCRIBE})

_ACK_CODES: Final[dict[int, frozenset[int]]] = {
    PUBACK: frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}),
    PUBREC: frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}),
    PUBREL: frozenset({0x00, 0x92}),
    PUBCOMP: frozenset({0x00, 0x92}),
    AUTH: frozenset({0x00, 0x18, 0x19}),
    DISCONNECT: frozenset({0x00, 0x04, *range(0x80, 0x84), 0x87, 0x89, *range(0x8B, 0xA3)} - {0x8A, 0x8C, 0x91, 0x92}),
}
"""What 5.0 allows as reason code in each packet (tables 3-4 to 3-13); another is a protocol error."""


def decode(first: int, body: bytes, version: int) -> Packet:
    """The packet with that first byte and body (what follows the remaining length), in that protocol version.

    Raises `MalformedPacket`, `ProtocolError`, `TopicAliasInvalid` or `UnsupportedProtocolVersion`.
    """
    packet_type = first >> 4
    if packet_type == PUBLISH:
        return _publish(first, body, version)
    if first & 0x0F != (2 if packet_type in _FLAGS_2 else 0):
        raise MalformedPacket(f"{PACKET_NAMES[packet_type]} with header flags {first & 0x0F:#06b} [MQTT-2.1.3-1]")
    cursor = Cursor(body)
    packet: Packet
    if PUBACK <= packet_type <= PUBCOMP:
        packet = _ack(packet_type, cursor, version)
    elif packet_type == PINGREQ:
        packet = Pingreq()
    elif packet_type == PINGRESP:
        packet = Pingresp()
    elif packet_type == SUBSCRIBE:
        packet = _subscribe(cursor, version)
    elif packet_type == UNSUBSCRIBE:
        packet = _unsubscribe(cursor, version)
    elif packet_type == CONNECT:
        packet = _connect(cursor)
    elif packet_type == DISCONNECT:
        packet = Disconnect(*_outcome(DISCONNECT, cursor, version))
    elif packet_type == CONNACK:
        packet = _connack(cursor, version)
    elif packet_type == SUBACK:
        packet = Suback(cursor.packet_id(), properties=_properties(cursor, SUBACK, version), reason_codes=cursor.rest())
    elif packet_type == UNSUBACK:
        packet = _unsuback(cursor, version)
    elif packet_type == AUTH and version == V5:
        packet = Auth(*_outcome(AUTH, cursor, version))
    else:
        raise MalformedPacket(f"{PACKET_NAMES[packet_type]} does not exist in this version [MQTT-2.1.2-1]")
    cursor.finish()
    return packet


def connect_version(body: bytes) -> int:
    """The protocol version that a CONNECT body asks for: `V31`, `V311` or `V5`.

    Raises `UnsupportedProtocolVersion` for another name or level [MQTT-3.1.2-1] [MQTT-3.1.2-2], `MalformedPacket`
    for a body that ends before.
    """
    return _version(Cursor(body))


def _version(cursor: Cursor) -> int:
    name, level = cursor.binary(), cursor.u8()
    if (name == b"MQTT" and level in (V311, V5)) or (name == b"MQIsdp" and level == V31):
        return level
    raise UnsupportedProtocolVersion(
        f"protocol {name[:16].decode(errors='backslashreplace')!r} level {level}: "
        "MQTT levels 4 (3.1.1) and 5 (5.0) and MQIsdp level 3 (3.1) are served"
    )


def _properties(cursor: Cursor, packet: int, version: int) -> Properties:
    return decode_properties(cursor, packet) if version == V5 else NONE


def _publish(first: int, body: bytes, version: int) -> Publish:
    qos = first >> 1 & 3
    dup = first & 8 != 0
    if qos == 3:
        raise MalformedPacket("PUBLISH with both QoS bits set [MQTT-3.3.1-4]")
    if dup and qos == 0:
        raise MalformedPacket("PUBLISH at QoS 0 with DUP set [MQTT-3.3.1-2]")
    cursor = Cursor(body)
    topic = cursor.utf8_bytes()
    packet_id = cursor.packet_id() if qos else 0
    properties = _properties(cursor, PUBLISH, version)
    return Publish(topic, cursor.rest(), qos, first & 1 != 0, dup, packet_id, properties)


def _ack(packet_type: int, cursor: Cursor, version: int) -> Ack:
    packet_id = cursor.packet_id()
    if version != V5 or cursor.at_end:
        return Ack(packet_type, packet_id)
    return Ack(packet_type, packet_id, *_outcome(packet_type, cursor, version))


def _outcome(packet_type: int, cursor: Cursor, version: int) -> tuple[int, Properties]:
    """A reason code and properties, each of which may be left out at the end of a 5.0 packet."""
    if version != V5 or cursor.at_end:
        return 0, NONE
    reason_code = cursor.u8()
    if reason_code not in _ACK_CODES[packet_type]:
        raise ProtocolError(f"{PACKET_NAMES[packet_type]} with reason code 0x{reason_code:02X}")
    return reason_code, NONE if cursor.at_end else decode_properties(cursor, packet_type)


def _subscribe(cursor: Cursor, version: int) -> Subscribe:
    packet_id = cursor.packet_id()
    properties = _properties(cursor, SUBSCRIBE, version)
    requests: list[SubscriptionRequest] = []
    while not cursor.at_end:
        requests.append(_request(cursor.utf8_bytes(), cursor.u8(), version))
    if not requests:
        raise ProtocolError("SUBSCRIBE without a topic filter [MQTT-3.8.3-2]")
    return Subscribe(packet_id, tuple(requests), properties)


def _request(topic_filter: bytes, options: int, version: int) -> SubscriptionRequest:
    if options & (0xC0 if version == V5 else 0xFC):
        raise MalformedPacket("SUBSCRIBE with reserved option bits set [MQTT-3.8.3-5]")
    if options & 3 == 3:
        raise MalformedPacket("SUBSCRIBE with QoS 3 [3.1.1 MQTT-3.8.3-4]")
    retain_handling = options >> 4
    if retain_handling == 3:
        raise ProtocolError("SUBSCRIBE with retain handling 3 (§3.8.3.1)")
    return SubscriptionRequest(topic_filter, options & 3, options & 4 != 0, options & 8 != 0, retain_handling)


def _unsubscribe(cursor: Cursor, version: int) -> Unsubscribe:
    packet_id = cursor.packet_id()
    properties = _properties(cursor, UNSUBSCRIBE, version)
    topic_filters: list[bytes] = []
    while not cursor.at_end:
        topic_filters.append(cursor.utf8_bytes())
    if not topic_filters:
        raise ProtocolError("UNSUBSCRIBE without a topic filter [MQTT-3.10.3-2]")
    return Unsubscribe(packet_id, tuple(topic_filters), properties)


def _unsuback(cursor: Cursor, version: int) -> Unsuback:
    packet_id = cursor.packet_id()
    if version != V5:
        return Unsuback(packet_id)
    properties = decode_properties(cursor, UNSUBACK)
    return Unsuback(packet_id, cursor.rest(), properties)


def _connack(cursor: Cursor, version: int) -> Connack:
    flags = cursor.u8()
    if flags & 0xFE:
        raise MalformedPacket("CONNACK with reserved flags set [MQTT-3.2.2-1]")
    return Connack(flags == 1, cursor.u8(), _properties(cursor, CONNACK, version))


def _connect(cursor: Cursor) -> Connect:
    version = _version(cursor)
    flags = cursor.u8()
    if flags & 1:
        raise MalformedPacket("CONNECT with its reserved flag set [MQTT-3.1.2-3]")
    has_will, will_qos, has_password, has_username = (
        flags & 4 != 0,
        flags >> 3 & 3,
        flags & 0x40 != 0,
        flags & 0x80 != 0,
    )
    if not has_will and flags & 0x38:
        raise MalformedPacket("CONNECT with will QoS or will retain but no will [MQTT-3.1.2-11] [MQTT-3.1.2-13]")
    if will_qos == 3:
        raise MalformedPacket("CONNECT with will QoS 3 [MQTT-3.1.2-12]")
    if has_password and not has_username and version != V5:
        raise MalformedPacket("CONNECT with a password but no user name [3.1.1 MQTT-3.1.2-22]")
    keep_alive = cursor.u16()
    properties = _properties(cursor, CONNECT, version)
    client_id = cursor.utf8()
    will = _will(cursor, will_qos, flags & 0x20 != 0, version) if has_will else None
    username = cursor.utf8() if has_username else None
    password = cursor.binary() if has_password else None
    return Connect(client_id, version, flags & 2 != 0, keep_alive, username, password, will, properties)


def _will(cursor: Cursor, qos: int, retain: bool, version: int) -> Will:
    properties = decode_properties(cursor, WILL) if version == V5 else NONE
    return Will(cursor.utf8_bytes(), cursor.binary(), qos, retain, properties)
