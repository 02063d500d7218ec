"""Makes the broker *Sparkplug aware* (Eclipse Sparkplug 3.0.0, chapter 10).

It keeps each NBIRTH and DBIRTH as a retained message below `$sparkplug/certificates/`, so that an application that
comes later learns what a node has without asking it [tck-id-conformance-mqtt-aware-store], and sets the timestamp of an
NDEATH to the time at which it is published [tck-id-conformance-mqtt-aware-ndeath-timestamp].
"""

import time
from collections.abc import Callable
from typing import Final

from mqttlite.core.rights import Right
from mqttlite.extensions.hooks import Hooks
from mqttlite.extensions.host import Host
from mqttlite.extensions.incoming import Incoming

CERTIFICATES: Final = "$sparkplug/certificates/"
"""The topic of a certificate is this and the topic of its NBIRTH or DBIRTH."""

BIRTHS: Final = ("spBv1.0/+/NBIRTH/+", "spBv1.0/+/DBIRTH/+/+")
DEATHS: Final = "spBv1.0/+/NDEATH/+"

_KEPT_HERE: Final = Right(b"", denial="clients may not publish below $sparkplug: the broker keeps certificates there")

_TIMESTAMP: Final = b"\x08"
"""The key of field 1 of a Sparkplug B payload, a varint: milliseconds of Unix time (Sparkplug 3.0.0, 6.4.1)."""

_VARINT: Final = 0
_FIXED: Final = {1: 8, 5: 4}
_LENGTH: Final = 2
"""Wire types of Protocol Buffers; `_FIXED` has the bytes of those with a fixed size."""


class Sparkplug:
    """An `Extension`. `unix_s` is the wall clock."""

    def __init__(self, unix_s: Callable[[], float] = time.time) -> None:
        self._unix_s: Final = unix_s
        self._host: Host
        self._hooks: Final = Hooks()
        for topic_filter in BIRTHS:
            self._hooks.on_publish(topic_filter, on_error="accept")(self._keep)
        self._hooks.on_publish(DEATHS, on_error="accept")(self._set_time)

    async def start(self, host: Host) -> None:
        """Implements `Extension`."""
        self._host = host
        await self._hooks.start(host)

    async def _keep(self, message: Incoming) -> None:
        """Keep a birth. Its publisher is acknowledged after that."""
        topic = CERTIFICATES + message.topic
        kept = await self._host.inbound.publish(
            topic, message.payload, qos=message.qos, retain=True, properties=message.properties
        )
        if kept.reason_code >= 0x80:
            self._host.log.warning("no certificate in %r: %s", topic, kept.reason or f"0x{kept.reason_code:02X}")

    def _set_time(self, message: Incoming) -> Incoming | None:
        payload = with_timestamp(message.payload, int(self._unix_s() * 1_000))
        return None if payload is None else message.replace(payload=payload)


def right_of(topic: bytes) -> Right | None:
    """What it takes to publish below `$sparkplug`; None for other topics."""
    return _KEPT_HERE if topic.partition(b"/")[0] == b"$sparkplug" else None


def subject_of(topic: bytes) -> bytes:
    """The topic or filter whose certificate a topic or filter is; empty for others."""
    beginning = CERTIFICATES.encode()
    return topic[len(beginning) :] if topic.startswith(beginning) else b""


def with_timestamp(payload: bytes, unix_ms: int) -> bytes | None:
    """A Sparkplug B payload with another timestamp; None for bytes that are no such payload."""
    kept = [_TIMESTAMP, _varint(unix_ms)]
    at = 0
    while at < len(payload):
        key = _read_varint(payload, at)
        if key is None:
            return None
        end = _end_of(payload, key[1], key[0] & 7)
        if end is None or end > len(payload):
            return None
        if key[0] >> 3 != 1:
            kept.append(payload[at:end])
        at = end
    return b"".join(kept)


def _end_of(payload: bytes, at: int, wire_type: int) -> int | None:
    """Where the value of a field ends that begins at `at`."""
    if wire_type in _FIXED:
        return at + _FIXED[wire_type]
    found = _read_varint(payload, at) if wire_type in (_VARINT, _LENGTH) else None
    if found is None:
        return None
    return found[1] + found[0] if wire_type == _LENGTH else found[1]


def _read_varint(payload: bytes, at: int) -> tuple[int, int] | None:
    """A varint and where it ends."""
    value = 0
    for number, byte in enumerate(payload[at : at + 10]):
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            return value, at + number + 1
    return None


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
