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
from mqttlite.wire.primitives import encode_binary, encode_u16, encode_utf8, encode_varint
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
        body = bytes((packet.session_present, packet.reason_code))
        return _frame(CONNACK << 4, body + _properties(packet.properties, CONNACK, version))
    if isinstance(packet, Subscribe):
        body = encode_u16(packet.packet_id) + _properties(packet.properties, SUBSCRIBE, version)
        return _frame(SUBSCRIBE << 4 | 2, body + b"".join([_request(request) for request in packet.requests]))
    if isinstance(packet, Suback):
        body = encode_u16(packet.packet_id) + _properties(packet.properties, SUBACK, version)
        return _frame(SUBACK << 4, body + packet.reason_codes)
    if isinstance(packet, Unsubscribe):
        body = encode_u16(packet.packet_id) + _properties(packet.properties, UNSUBSCRIBE, version)
        return _frame(UNSUBSCRIBE << 4 | 2, body + b"".join([encode_binary(name) for name in packet.topic_filters]))
    if isinstance(packet, Unsuback):
        body = encode_u16(packet.packet_id) + _properties(packet.properties, UNSUBACK, version)
        return _frame(UNSUBACK << 4, body + packet.reason_codes if version == V5 else body)
    if isinstance(packet, Disconnect):
        return _frame(DISCONNECT << 4, _outcome(packet.reason_code, packet.properties, DISCONNECT, version))
    if isinstance(packet, Auth):
        return _frame(AUTH << 4, _outcome(packet.reason_code, packet.properties, AUTH, version))
    assert_never(packet)


def encode_publish(packet: Publish, version: int) -> bytes:
    """A whole PUBLISH frame."""
    head, tail = publish_parts(
        packet.topic, packet.payload, packet.qos, packet.retain, packet.properties, version, packet.dup
    )
    return head + encode_u16(packet.packet_id) + tail if packet.qos else head + tail


def publish_parts(
    topic: bytes, payload: bytes, qos: int, retain: bool, properties: Properties, version: int, dup: bool = False
) -> tuple[bytes, bytes]:
    """A PUBLISH as what stands before its packet identifier and what behind: built once, shared by all receivers.

    At QoS 0, which has no identifier, the two are the frame.
    """
    tail = encode_properties(properties, PUBLISH) + payload if version == V5 else payload
    first = PUBLISH << 4 | dup << 3 | qos << 1 | retain
    length = 2 + len(topic) + (2 if qos else 0) + len(tail)
    return first.to_bytes(1, "big") + encode_varint(length) + encode_binary(topic), tail


def encode_ack(
    packet_type: int, packet_id: int, version: int, reason_code: int = 0, properties: Properties = NONE
) -> bytes:
    """A PUBACK, PUBREC, PUBREL or PUBCOMP in its shortest form."""
    first = packet_type << 4 | (2 if packet_type == PUBREL else 0)
    if version != V5 or (reason_code == 0 and properties is NONE):
        return bytes((first, 2)) + encode_u16(packet_id)
    body = encode_u16(packet_id) + reason_code.to_bytes(1, "big")
    return _frame(first, body if properties is NONE else body + encode_properties(properties, packet_type))


def _frame(first: int, body: bytes) -> bytes:
    return first.to_bytes(1, "big") + encode_varint(len(body)) + body


def _properties(properties: Properties, packet: int, version: int) -> bytes:
    return encode_properties(properties, packet) if version == V5 else b""


def _outcome(reason_code: int, properties: Properties, packet: int, version: int) -> bytes:
    """The body of DISCONNECT and AUTH: nothing for plain success (§3.14.2.1, §3.15.2.1) and before 5.0."""
    if version != V5 or (reason_code == 0 and properties is NONE):
        return b""
    code = reason_code.to_bytes(1, "big")
    return code if properties is NONE else code + encode_properties(properties, packet)


def _request(request: SubscriptionRequest) -> bytes:
    options = request.qos | request.no_local << 2 | request.retain_as_published << 3 | request.retain_handling << 4
    return encode_binary(request.topic_filter) + options.to_bytes(1, "big")


def _connect_body(packet: Connect) -> bytes:
    will = packet.will
    flags = packet.clean_start << 1
    if will is not None:
        flags |= 0x04 | will.qos << 3 | will.retain << 5
    flags |= (packet.password is not None) << 6 | (packet.username is not None) << 7
    parts = [
        encode_utf8("MQIsdp" if packet.version == V31 else "MQTT"),
        bytes((packet.version, flags)),
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
