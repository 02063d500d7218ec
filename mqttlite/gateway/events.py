"""Converts messages to JSON events, for SSE and WebSocket.

The payload is embedded unchanged if it is JSON, as a string if it is text, and else in base64; `encoding` says
which. The core tells in user properties which message it is, and from whom where the subscriber may know
(`core/told_properties`). Invariant: an event is one line.
"""

import base64
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from mqttlite.core.outbound.told_properties import MESSAGE_ID, PUBLISH_TIME, PUBLISHER_ID
from mqttlite.gateway.context import GatewayContext
from mqttlite.wire.packets import Publish
from mqttlite.wire.properties import NONE, Properties

PRESENCE: Final = (b"$SYS/broker/presence/", b"$SYS/broker/presence_events/")
"""The prefixes of presence messages, which become events of type `presence`."""

MAX_CACHED: Final = 64
"""Events that are kept for the next receiver of the same message: as many topics as are busy at a time."""

MAX_CACHED_BYTES: Final = 16_384
"""Of a payload whose event is kept: larger ones cost little more to make than to compare."""

_MAY_BEGIN_JSON: Final = frozenset(b'{["-0123456789tfn \t\r\n')

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


_UserProperties = Sequence[tuple[str, str]]


class Events:
    """Makes events. One for each gateway: many receivers get the same message."""

    def __init__(self, context: GatewayContext) -> None:
        self._context: Final = context
        self._cached: Final[dict[tuple[object, ...], bytes]] = {}

    def of(self, packet: Publish) -> bytes:
        """The members of an event behind its type, without the opening brace."""
        number, publisher, own = _told(packet.properties.user_properties)
        if not number or len(packet.payload) > MAX_CACHED_BYTES:
            return self._event(packet, number, publisher, own)
        key = (number, packet.qos, packet.retain, publisher, packet.properties.message_expiry_interval, *own)
        found = self._cached.get(key)
        if found is None:
            if len(self._cached) >= MAX_CACHED:
                del self._cached[next(iter(self._cached))]
            found = self._cached[key] = self._event(packet, number, publisher, own)
        return found

    def __len__(self) -> int:
        return len(self._cached)

    def _event(self, packet: Publish, number: int, publisher: str, own: _UserProperties) -> bytes:
        context = self._context
        at = datetime.fromtimestamp(number / 1e6, UTC) if number else context.wall(context.clock())
        topic = packet.topic.decode()
        made = context.topics.named(context.mount_point.prefix.decode() + topic)
        payload, encoding = payload_of(packet.payload)
        event = (
            b'"message_id":%s,"topic_id":%s,"publisher_id":%s,"topic":%s,"payload":%s,"encoding":"%s","qos":%d,'
            b'"retain":%s,"timestamp":"%s"'
        ) % (
            b'"%d"' % number if number else b"null",
            *(_encode(None if made is None else made.topic_id), _encode(publisher or None), _encode(topic)),
            *(payload, encoding, packet.qos),
            b"true" if packet.retain else b"false",
            at.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode(),
        )
        shown = {} if packet.properties is NONE else _shown(packet.properties, own)
        return event + b',"properties":%s}' % _encode(shown) if shown else event + b"}"


def _told(user_properties: _UserProperties) -> tuple[int, str, _UserProperties]:
    """The number of a message and its publisher, as the core tells them behind the user properties that it came with,
    and these; 0 and no publisher where it tells nothing."""
    end = len(user_properties)
    publisher = ""
    if end and user_properties[end - 1][0] == PUBLISHER_ID:
        end -= 1
        publisher = user_properties[end][1]
    end -= 2
    if end < 0 or (user_properties[end][0], user_properties[end + 1][0]) != (MESSAGE_ID, PUBLISH_TIME):
        return 0, "", user_properties
    return int(user_properties[end][1]), publisher, user_properties[:end]


def kind_of(topic: bytes) -> bytes:
    """The type of an event for a message of a topic."""
    return b"presence" if topic.startswith(PRESENCE) else b"message"


def payload_of(payload: bytes) -> tuple[bytes, bytes]:
    """A payload as JSON of one line, and its encoding."""
    if payload and payload[0] in _MAY_BEGIN_JSON:
        try:
            _decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        else:
            return payload.replace(b"\n", b" ").replace(b"\r", b" "), b"json"
    try:
        return _encode(payload.decode()), b"text"
    except UnicodeDecodeError:
        return b'"%s"' % base64.b64encode(payload), b"base64"


def gap(reason: str, dropped: int = 0) -> bytes:
    """The event that says that messages are missing."""
    return b'{"type":"gap","reason":%s,"dropped":%d}' % (_encode(reason), dropped)


def _shown(properties: Properties, user_properties: _UserProperties) -> Mapping[str, Any]:
    """The properties that a receiver may want to know."""
    found: dict[str, Any] = {}
    if properties.content_type is not None:
        found["content_type"] = properties.content_type
    if properties.response_topic is not None:
        found["response_topic"] = properties.response_topic
    if properties.correlation_data is not None:
        found["correlation_data"] = base64.b64encode(properties.correlation_data).decode()
    if properties.message_expiry_interval is not None:
        found["expiry_s"] = properties.message_expiry_interval
    if user_properties:
        found["user_properties"] = user_properties
    return found
