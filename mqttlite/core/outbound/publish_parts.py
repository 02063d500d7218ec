"""Builds the bytes of a PUBLISH that differ between receivers: topic alias, packet identifier, DUP."""

from typing import Final

from mqttlite.core.message import Delivery
from mqttlite.core.outbound.outbox import Outbox
from mqttlite.wire.encode import put_topic_alias
from mqttlite.wire.primitives import encode_u16

_ALIAS_BYTES: Final = 8
"""The most that an alias adds to a packet: three bytes, growth of two lengths, and the packet identifier."""


def with_alias(outbox: Outbox, delivery: Delivery, head: bytes, tail: bytes) -> tuple[bytes, bytes]:
    """The parts of a message with the topic's alias on this connection, if it has one and the packet stays small
    enough."""
    if outbox.is_too_large(len(head) + len(tail) + _ALIAS_BYTES):
        return head, tail
    topic = delivery.message.topic
    alias = outbox.topic_alias(topic)
    return put_topic_alias(head, tail, topic, abs(alias), alias < 0) if alias else (head, tail)


def with_packet_id(head: bytes, tail: bytes, packet_id: int, sent_before: bool) -> bytes:
    """The whole packet. DUP is 1 if it was sent before [MQTT-3.3.1-1], else 0 [MQTT-3.3.1-3] [MQTT-4.3.2-2]
    [MQTT-4.3.3-2]."""
    if sent_before:
        head = (head[0] | 8).to_bytes(1, "big") + head[1:]
    return head + encode_u16(packet_id) + tail
