"""Messages as events in JSON, for SSE and WebSocket.

The payload is embedded as it is where it is JSON, as a string where it is text, and else in base64; `encoding` says
which. Invariant: an event is one line.
"""

import base64
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from mqttlite.wire.packets import Publish
from mqttlite.wire.properties import NONE, Properties

PRESENCE: Final = b"$SYS/broker/presence/"
"""Below it the broker says who is there; its messages are events of type `presence`."""

MAX_CACHED: Final = 64
"""Events that are kept for the next receiver of the same message: as many topics as are busy at a time."""

MAX_CACHED_BYTES: Final = 16_384
"""Of a payload whose event is kept: larger ones cost little more to make than to compare."""

SHARED_FOR: Final = timedelta(milliseconds=10)
"""How long receivers of a message share an event, and its time: a fan-out takes some milliseconds for each thousand."""

_MAY_BEGIN_JSON: Final = frozenset(b'{["-0123456789tfn \t\r\n')

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


class Events:
    """Makes events. One for each gateway: many receivers get the same message."""

    def __init__(self) -> None:
        self._cached: Final[dict[tuple[bytes, bytes, int, bool], bytes]] = {}
        self._cached_at: datetime = datetime.min.replace(tzinfo=UTC)

    def of(self, packet: Publish, number: int, now: datetime) -> bytes:
        """The members of an event behind its type, without the opening brace; `number` is that of the message, 0 if it
        has none here."""
        if packet.properties is not NONE or number or len(packet.payload) > MAX_CACHED_BYTES:
            return _event(packet, number, now)
        if now - self._cached_at > SHARED_FOR or now < self._cached_at:  # what looks the same is another message
            self._cached.clear()
            self._cached_at = now
        key = (packet.topic, packet.payload, packet.qos, packet.retain)
        found = self._cached.get(key)
        if found is None:
            if len(self._cached) >= MAX_CACHED:
                del self._cached[next(iter(self._cached))]
            found = self._cached[key] = _event(packet, number, now)
        return found

    def __len__(self) -> int:
        return len(self._cached)


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


def _event(packet: Publish, number: int, now: datetime) -> bytes:
    payload, encoding = payload_of(packet.payload)
    at = datetime.fromtimestamp(number / 1e6, UTC) if number else now
    event = b'"message_id":%s,"topic":%s,"payload":%s,"encoding":"%s","qos":%d,"retain":%s,"timestamp":"%s"' % (
        b'"%d"' % number if number else b"null",
        _encode(packet.topic.decode()),
        *(payload, encoding, packet.qos),
        b"true" if packet.retain else b"false",
        at.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode(),
    )
    shown = _shown(packet.properties)
    return event + b',"properties":%s}' % _encode(shown) if shown else event + b"}"


def _shown(properties: Properties) -> Mapping[str, Any]:
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
    if properties.user_properties:
        found["user_properties"] = properties.user_properties
    return found
