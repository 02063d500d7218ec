"""Packets become bytes. The inverse of `decode`, with the two shortcuts the path of a message uses.

A value that does not fit the wire is the caller's fault: `ValueError`.
"""

from typing import Final, assert_never

from mqttlite.wire.constants import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PUBLISH,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    V31,
)
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
)
from mqttlite.wire.primitives import (
    BYTES,
    encode_binary,
    encode_packet_id,
    encode_u8,
    encode_u16,
    encode_utf8,
    encode_varint,
)
from mqttlite.wire.properties import NONE, WILL, Properties, encode_properties

PINGREQ_FRAME: Final = b"\xc0\x00"
PINGRESP_FRAME: Final = b"\xd0\x00"


def encode(packet: Packet, version: int) -> bytes:
    """The frame of a packet in that protocol version. Raises `ValueError` for what does not fit the wire."""
    if isinstance(packet, Publish):
        return encode_publish(packet, version)
    if isinstance(packet, Ack):
        return encode_ack(packet.packet_type, packet.packet_id, version, packet.reason_code, packet.properties)
    if isinstance(packet, Pingreq):
        return PINGREQ_FRAME
    if isinstance(packet, Pingresp):
        return PINGRESP_FRAME
    if isinstance(packet, Connect):
        return _frame(CONNECT << 4, _connect_body(packet))
    if isinstance(packet, Connack):
        session_present = packet.session_present and version != V31  # 3.1 has no such flag
        body = encode_u8(session_present) + encode_u8(packet.reason_code)
        return _frame(CONNACK << 4, body + _properties(packet.properties, CONNACK, version))
    if isinstance(packet, Subscribe):
        body = encode_packet_id(packet.packet_id) + _properties(packet.properties, SUBSCRIBE, version)
        return _frame(SUBSCRIBE << 4 | 2, body + b"".join([_request(request, version) for request in packet.requests]))
    if isinstance(packet, Suback):
        body = encode_packet_id(packet.packet_id) + _properties(packet.properties, SUBACK, version)
        return _frame(SUBACK << 4, body + packet.reason_codes)
    if isinstance(packet, Unsubscribe):
        body = encode_packet_id(packet.packet_id) + _properties(packet.properties, UNSUBSCRIBE, version)
        return _frame(UNSUBSCRIBE << 4 | 2, body + b"".join([encode_binary(name) for name in packet.topic_filters]))
    if isinstance(packet, Unsuback):
        body = encode_packet_id(packet.packet_id) + _properties(packet.properties, UNSUBACK, version)
        return _frame(UNSUBACK << 4, body + packet.reason_codes if version == V5 else body)
    if isinstance(packet, Disconnect):
        return _frame(DISCONNECT << 4, _outcome(packet.reason_code, packet.properties, DISCONNECT, version))
    if isinstance(packet, Auth):
        if version != V5:
            raise ValueError("AUTH does not exist before 5.0")
        return _frame(AUTH << 4, _outcome(packet.reason_code, packet.properties, AUTH, version))
    assert_never(packet)


def encode_publish(packet: Publish, version: int) -> bytes:
    """A whole PUBLISH frame."""
    head, tail = publish_parts(
        packet.topic, packet.payload, packet.qos, packet.retain, packet.properties, version, packet.dup
    )
    return head + encode_packet_id(packet.packet_id) + tail if packet.qos else head + tail


def publish_parts(
    topic: bytes,
    payload: bytes,
    qos: int,
    retain: bool,
    properties: Properties,
    version: int,
    dup: bool = False,
    block: bytes = b"",
) -> tuple[bytes, bytes]:
    """A PUBLISH as what stands before its packet identifier and what behind: built once, shared by all receivers.

    At QoS 0, which has no identifier, the two are the frame. `block` is what stands on the wire for
    the properties, which are not looked at then.
    """
    _check_qos(qos)
    if dup and qos == 0:
        raise ValueError("PUBLISH at QoS 0 with DUP set [MQTT-3.3.1-2]")
    tail = payload
    if version == V5:
        tail = (block or encode_properties(properties, PUBLISH)) + payload
    first = PUBLISH << 4 | dup << 3 | qos << 1 | retain
    length = 2 + len(topic) + (2 if qos else 0) + len(tail)
    return BYTES[first : first + 1] + encode_varint(length) + encode_binary(topic), tail


def put_topic_alias(head: bytes, tail: bytes, topic: bytes, alias: int, introduce: bool) -> tuple[bytes, bytes]:
    """The parts of a 5.0 PUBLISH with a topic alias: beside the topic where it is introduced, else in its place."""
    length, at = 0, 0
    while True:
        length |= (tail[at] & 0x7F) << (7 * at)
        at += 1
        if tail[at - 1] < 0x80:
            break
    tail = encode_varint(length + 3) + b"\x23" + alias.to_bytes(2, "big") + tail[at:]
    name = topic if introduce else b""
    packet_id_size = 2 if head[0] & 6 else 0
    return head[:1] + encode_varint(2 + len(name) + packet_id_size + len(tail)) + encode_binary(name), tail


def encode_ack(
    packet_type: int, packet_id: int, version: int, reason_code: int = 0, properties: Properties = NONE
) -> bytes:
    """A PUBACK, PUBREC, PUBREL or PUBCOMP in its shortest form."""
    first = packet_type << 4 | (2 if packet_type == PUBREL else 0)
    if version != V5 or (reason_code == 0 and properties is NONE):
        return encode_u16(first << 8 | 2) + encode_packet_id(packet_id)
    return _frame(first, encode_packet_id(packet_id) + _outcome(reason_code, properties, packet_type, version))


def _frame(first: int, body: bytes) -> bytes:
    return first.to_bytes(1, "big") + encode_varint(len(body)) + body


def _properties(properties: Properties, packet: int, version: int) -> bytes:
    return encode_properties(properties, packet) if version == V5 else b""


def _outcome(reason_code: int, properties: Properties, packet: int, version: int) -> bytes:
    """A reason code and properties; both may be left out for plain success (§3.4.2.1, §3.14.2.1, §3.15.2.1)."""
    if version != V5:
        return b""
    block = encode_properties(properties, packet)
    if block != b"\0":
        return encode_u8(reason_code) + block
    return encode_u8(reason_code) if reason_code else b""


def _check_qos(qos: int) -> None:
    if not 0 <= qos <= 2:
        raise ValueError(f"QoS {qos} does not exist")


def _request(request: SubscriptionRequest, version: int) -> bytes:
    """A topic filter and its options, of which only the QoS exists before 5.0."""
    _check_qos(request.qos)
    options = request.qos
    if version == V5:
        if not 0 <= request.retain_handling <= 2:
            raise ValueError(f"retain handling {request.retain_handling} does not exist")
        options |= request.no_local << 2 | request.retain_as_published << 3 | request.retain_handling << 4
    return encode_binary(request.topic_filter) + encode_u8(options)


def _connect_body(packet: Connect) -> bytes:
    will = packet.will
    if packet.password is not None and packet.username is None and packet.version != V5:
        raise ValueError("CONNECT with a password but no user name [3.1.1 MQTT-3.1.2-22]")
    if packet.is_bridge and packet.version == V5:
        raise ValueError("CONNECT of a bridge in 5.0: its subscriptions ask for No Local and Retain As Published")
    flags = packet.clean_start << 1
    if will is not None:
        _check_qos(will.qos)
        flags |= 0x04 | will.qos << 3 | will.retain << 5
    flags |= (packet.password is not None) << 6 | (packet.username is not None) << 7
    parts = [
        encode_utf8("MQIsdp" if packet.version == V31 else "MQTT"),
        encode_u8(packet.version | packet.is_bridge << 7) + encode_u8(flags),
        encode_u16(packet.keep_alive),
        _properties(packet.properties, CONNECT, packet.version),
        encode_utf8(packet.client_id),
    ]
    if will is not None:
        parts += (_properties(will.properties, WILL, packet.version), encode_binary(will.topic))
        parts.append(encode_binary(will.payload))
    if packet.username is not None:
        parts.append(encode_utf8(packet.username))
    if packet.password is not None:
        parts.append(encode_binary(packet.password))
    return b"".join(parts)
