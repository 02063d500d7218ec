"""Bytes become packets, strictly. Each decoder is a list of reads; what breaks a rule raises a `PeerError`.

Whether a packet may come now is not asked here: the connection knows its state.
"""

from typing import Final

from mqttlite.wire.constants import (
    AUTH,
    BRIDGE_BIT,
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
# PUBREL, SUBSCRIBE, UNSUBSCRIBE have 0010 [MQTT-3.6.1-1] [MQTT-3.8.1-1] [MQTT-3.10.1-1];
# all others 0, among them DISCONNECT and AUTH [MQTT-3.14.1-1] [MQTT-3.15.1-1].
_FLAGS_2: Final = frozenset({PUBREL, SUBSCRIBE, UNSUBSCRIBE})

_REASON_CODES: Final[dict[int, frozenset[int]]] = {
    # [MQTT-3.2.2-8]
    CONNACK: frozenset({0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, *range(0x99, 0x9E), 0x9F}),
    PUBACK: frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}),  # [MQTT-3.4.2-1]
    PUBREC: frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}),  # [MQTT-3.5.2-1]
    PUBREL: frozenset({0x00, 0x92}),  # [MQTT-3.6.2-1]
    PUBCOMP: frozenset({0x00, 0x92}),  # [MQTT-3.7.2-1]
    SUBACK: frozenset({0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2}),  # [MQTT-3.9.3-2]
    UNSUBACK: frozenset({0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91}),  # [MQTT-3.11.3-2]
    # [MQTT-3.14.2-1]
    DISCONNECT: frozenset({0x00, 0x04, *range(0x80, 0x84), 0x87, 0x89, *range(0x8B, 0xA3)} - {0x8C, 0x91, 0x92}),
    AUTH: frozenset({0x00, 0x18, 0x19}),  # [MQTT-3.15.2-1]
}
"""The reason codes that 5.0 allows in each packet (its table under the packet); another is a protocol error."""

_RETURN_CODES: Final[dict[int, frozenset[int]]] = {
    CONNACK: frozenset(range(6)),
    SUBACK: frozenset({0x00, 0x01, 0x02, 0x80}),
}
"""The return codes that 3.1.1 allows in the two packets that have one (3.1.1 §3.2.2.3, [3.1.1 MQTT-3.9.3-2])."""


def decode(first: int, body: bytes, version: int) -> Packet:
    """The packet with that first byte and body (what follows the remaining length), in that protocol version.

    Raises `MalformedPacket`, `ProtocolError`, `TopicAliasInvalid` or `UnsupportedProtocolVersion`.
    """
    packet_type = first >> 4
    if packet_type == PUBLISH:
        return _publish(first, body, version)
    check_flags(first, version)
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
        packet = _disconnect(cursor, version)
    elif packet_type == CONNACK:
        packet = _connack(cursor, version)
    elif packet_type == SUBACK:
        packet = _suback(cursor, version)
    elif packet_type == UNSUBACK:
        packet = _unsuback(cursor, version)
    elif packet_type == AUTH and version == V5:
        packet = _auth(cursor)
    else:
        raise MalformedPacket(f"{PACKET_NAMES[packet_type]} does not exist in this version (§2.1.2)")
    cursor.finish()
    return packet


def check_flags(first: int, version: int) -> None:
    """Raises `MalformedPacket` for header flags that a packet other than PUBLISH may not have.

    3.1 calls these bits "not used", or lets DUP mark a packet that is sent again (3.1 §2.1).
    """
    packet_type = first >> 4
    if version != V31 and first & 0x0F != (2 if packet_type in _FLAGS_2 else 0):
        raise MalformedPacket(f"{PACKET_NAMES[packet_type]} with header flags {first & 0x0F:#06b} [MQTT-2.1.3-1]")


_LEVELS: Final = (V311, V5, V311 | BRIDGE_BIT)
"""The levels of a CONNECT with the name MQTT."""


def connect_version(body: bytes) -> int:
    """The protocol version that a CONNECT body asks for: `V31`, `V311` or `V5`. The bit of a bridge is left out.

    Raises `ProtocolError` for another name [MQTT-3.1.2-1], `UnsupportedProtocolVersion` for another level
    [MQTT-3.1.2-2], `MalformedPacket` for a body that ends before.
    """
    return _level(Cursor(body)) & ~BRIDGE_BIT


def _level(cursor: Cursor) -> int:
    """The protocol level, with the bit of a bridge."""
    name, level = cursor.binary(), cursor.u8()
    if name not in (b"MQTT", b"MQIsdp"):  # it may be another protocol's, so no CONNACK answers it
        raise ProtocolError(f"protocol {name[:16].decode(errors='backslashreplace')!r} is not MQTT [MQTT-3.1.2-1]")
    if (name == b"MQTT" and level in _LEVELS) or (name == b"MQIsdp" and level & ~BRIDGE_BIT == V31):
        return level
    raise UnsupportedProtocolVersion(
        f"protocol {name.decode()!r} level {level}: "
        "MQTT levels 4 (3.1.1) and 5 (5.0) and MQIsdp level 3 (3.1) are served"
    )


def read_properties(cursor: Cursor, packet: int, version: int) -> Properties:
    """The properties of a packet, which only 5.0 has."""
    return decode_properties(cursor, packet) if version == V5 else NONE


def _publish(first: int, body: bytes, version: int) -> Publish:
    qos = first >> 1 & 3
    dup = first & 8 != 0
    if qos == 3:
        raise MalformedPacket("PUBLISH with both QoS bits set [MQTT-3.3.1-4]")
    if dup and qos == 0:
        raise MalformedPacket("PUBLISH at QoS 0 with DUP set [MQTT-3.3.1-2]")
    cursor = Cursor(body)
    topic = cursor.utf8_bytes()  # [MQTT-3.3.2-1]
    packet_id = cursor.packet_id() if qos else 0  # [MQTT-2.2.1-2]
    properties = read_properties(cursor, PUBLISH, version)
    return Publish(topic, cursor.rest(), qos, first & 1 != 0, dup, packet_id, properties)


def _ack(packet_type: int, cursor: Cursor, version: int) -> Ack:
    packet_id = cursor.packet_id()
    if version != V5 or cursor.at_end:
        return Ack(packet_type, packet_id)
    reason_code, properties = _outcome(packet_type, cursor)
    return Ack(packet_type, packet_id, reason_code, properties)


def _disconnect(cursor: Cursor, version: int) -> Disconnect:
    if version != V5 or cursor.at_end:
        return Disconnect()
    reason_code, properties = _outcome(DISCONNECT, cursor)
    return Disconnect(reason_code, properties)


def _auth(cursor: Cursor) -> Auth:
    if cursor.at_end:
        return Auth()
    reason_code, properties = _outcome(AUTH, cursor)
    if properties.authentication_method is None:
        raise ProtocolError("AUTH without an authentication method (§3.15.2.2.2)")
    return Auth(reason_code, properties)


def _outcome(packet_type: int, cursor: Cursor) -> tuple[int, Properties]:
    """A reason code and properties, which may be left out at the end of a packet."""
    reason_code = cursor.u8()
    _check_code(packet_type, reason_code, V5)
    return reason_code, NONE if cursor.at_end else decode_properties(cursor, packet_type)


def _check_code(packet_type: int, code: int, version: int) -> None:
    allowed = _REASON_CODES if version == V5 else _RETURN_CODES
    if code not in allowed[packet_type]:
        raise ProtocolError(f"{PACKET_NAMES[packet_type]} with reason code 0x{code:02X}")


def _subscribe(cursor: Cursor, version: int) -> Subscribe:
    packet_id = cursor.packet_id()
    properties = read_properties(cursor, SUBSCRIBE, version)
    requests: list[SubscriptionRequest] = []
    while not cursor.at_end:
        requests.append(read_request(cursor, version))
    if not requests:
        raise ProtocolError("SUBSCRIBE without a topic filter [MQTT-3.8.3-2]")
    return Subscribe(packet_id, tuple(requests), properties)


def read_request(cursor: Cursor, version: int) -> SubscriptionRequest:
    """The next filter of a SUBSCRIBE with its options."""
    topic_filter, options = cursor.utf8_bytes(), cursor.u8()  # [MQTT-3.8.3-1]
    if options & (0xC0 if version == V5 else 0xFC):
        raise MalformedPacket("SUBSCRIBE with reserved option bits set [MQTT-3.8.3-5]")
    if options & 3 == 3:
        if version == V5:
            raise ProtocolError("SUBSCRIBE with QoS 3 (§3.8.3.1)")
        raise MalformedPacket("SUBSCRIBE with QoS 3 [3.1.1 MQTT-3.8.3-4]")
    retain_handling = options >> 4
    if retain_handling == 3:
        raise ProtocolError("SUBSCRIBE with retain handling 3 (§3.8.3.1)")
    return SubscriptionRequest(topic_filter, options & 3, options & 4 != 0, options & 8 != 0, retain_handling)


def _unsubscribe(cursor: Cursor, version: int) -> Unsubscribe:
    packet_id = cursor.packet_id()
    properties = read_properties(cursor, UNSUBSCRIBE, version)
    topic_filters: list[bytes] = []
    while not cursor.at_end:
        topic_filters.append(cursor.utf8_bytes())  # [MQTT-3.10.3-1]
    if not topic_filters:
        raise ProtocolError("UNSUBSCRIBE without a topic filter [MQTT-3.10.3-2]")
    return Unsubscribe(packet_id, tuple(topic_filters), properties)


def _suback(cursor: Cursor, version: int) -> Suback:
    packet_id = cursor.packet_id()
    properties = read_properties(cursor, SUBACK, version)
    reason_codes = cursor.rest()
    for code in reason_codes:
        _check_code(SUBACK, code, version)
    return Suback(packet_id, reason_codes, properties)


def _unsuback(cursor: Cursor, version: int) -> Unsuback:
    packet_id = cursor.packet_id()
    if version != V5:
        return Unsuback(packet_id)
    properties = decode_properties(cursor, UNSUBACK)
    reason_codes = cursor.rest()
    for code in reason_codes:
        _check_code(UNSUBACK, code, V5)
    return Unsuback(packet_id, reason_codes, properties)


def _connack(cursor: Cursor, version: int) -> Connack:
    flags, code = cursor.u8(), cursor.u8()
    if version == V31:
        flags = 0  # "reserved, not used" (3.1 §3.2)
    if flags & 0xFE:
        raise MalformedPacket("CONNACK with reserved flags set [MQTT-3.2.2-1]")
    _check_code(CONNACK, code, version)
    return Connack(flags == 1, code, read_properties(cursor, CONNACK, version))


def _connect(cursor: Cursor) -> Connect:
    level = _level(cursor)
    version, is_bridge = level & ~BRIDGE_BIT, level & BRIDGE_BIT != 0
    flags = cursor.u8()
    if flags & 1 and version != V31:
        raise MalformedPacket("CONNECT with its reserved flag set [MQTT-3.1.2-3]")
    has_will, will_qos, has_password, has_username = (
        flags & 4 != 0,
        flags >> 3 & 3,
        flags & 0x40 != 0,
        flags & 0x80 != 0,
    )
    if not has_will and flags & 0x38 and version != V31:
        raise MalformedPacket("CONNECT with will QoS or will retain but no will [MQTT-3.1.2-11] [MQTT-3.1.2-13]")
    if will_qos == 3:
        raise MalformedPacket("CONNECT with will QoS 3 [MQTT-3.1.2-12]")
    if has_password and not has_username and version != V5:
        raise MalformedPacket("CONNECT with a password but no user name [3.1.1 MQTT-3.1.2-22]")
    keep_alive = cursor.u16()
    properties = read_properties(cursor, CONNECT, version)
    # What the flags promise is here, in this order, and nothing else [MQTT-3.1.3-1] [3.1.1 MQTT-3.1.2-11].
    client_id = cursor.utf8()  # [MQTT-3.1.3-3] [MQTT-3.1.3-4]
    will = _will(cursor, will_qos, flags & 0x20 != 0, version) if has_will else None  # [MQTT-3.1.2-9]
    # [MQTT-3.1.2-16] [MQTT-3.1.2-17] [MQTT-3.1.3-12], and the password: [MQTT-3.1.2-18] [MQTT-3.1.2-19]
    username = cursor.utf8() if has_username and not _left_out(cursor, version) else None
    password = cursor.binary() if has_password and not _left_out(cursor, version) else None
    return Connect(client_id, version, flags & 2 != 0, keep_alive, username, password, will, properties, is_bridge)


def _left_out(cursor: Cursor, version: int) -> bool:
    """3.1 wants a CONNECT accepted whose flags promise a user name or password that is not there (3.1 §3.1)."""
    return version == V31 and cursor.at_end


def _will(cursor: Cursor, qos: int, retain: bool, version: int) -> Will:
    properties = decode_properties(cursor, WILL) if version == V5 else NONE
    return Will(cursor.utf8_bytes(), cursor.binary(), qos, retain, properties)  # [MQTT-3.1.3-11]
