"""Encodes messages, wills, subscriptions and sessions to bytes, each with its own checksum.

SQLite has no checksums, so a flipped bit in a payload would go unnoticed. Each record begins with the CRC-32 of its
body; a record that does not match is lost, never delivered. Times are in Unix time. Invariant: `decode_…` returns what
`encode_…` was given, or raises `Damaged`.
"""

import struct
import time
import zlib
from collections.abc import Iterator
from typing import Final

from mqttlite.core.changes import SaveSession
from mqttlite.core.identity import Identity
from mqttlite.core.log_changes import LOG_MARK, SaveRecord
from mqttlite.core.message import Message, RawProperties
from mqttlite.core.message_filter import StoredFilter
from mqttlite.core.retained.writer import Writer
from mqttlite.core.route.subscription import FilteredSubscription, Subscription
from mqttlite.wire.constants import PUBLISH
from mqttlite.wire.packets import Will
from mqttlite.wire.plain import NO_EXPIRY
from mqttlite.wire.primitives import Cursor
from mqttlite.wire.properties import NONE, WILL, decode_properties, encode_properties

_PREFIX: Final = struct.Struct("<II")  # the checksum, and the length of what follows
_MESSAGE: Final = struct.Struct("<BHIq")  # flags, the lengths of topic and properties, the number
_EXPIRY: Final = struct.Struct("<dI")  # when it expires, and the interval that it came with
_WILL: Final = struct.Struct("<BHIqd")  # …, the number of its session, and when it is due
_DELAYED: Final = struct.Struct("<qdH")  # its number, when it is due, the length of its publisher's name
_WRITER: Final = struct.Struct("<H?")  # the length of its client identifier, and whether it has a user
_SUBSCRIPTION: Final = struct.Struct("<BI")
_SINCE: Final = struct.Struct("<q")
_SESSION: Final = struct.Struct("<IdB")

_QOS: Final = 3
_RETAIN: Final = 4
_NO_LOCAL: Final = 8
_AS_PUBLISHED: Final = 16
_EXPIRES: Final = 32
_ANONYMOUS: Final = 64
_TRUSTED: Final = 32
_SUBSCRIBED_AT: Final = 128

PREFIX_BYTES: Final = _PREFIX.size

_AHEAD_S: Final = 366 * 86_400.0
"""How far a later corrected clock may have been ahead."""


class Damaged(Exception):
    """The bytes on disk are not those that were written."""


def wall_offset() -> float:
    """How many seconds the wall clock is ahead of the broker's seconds."""
    return time.time() - time.monotonic()


def plausible_number(number: object) -> int:
    """The highest message number in the database, which has no checksum; 0 for an impossible one."""
    if isinstance(number, int) and 0 <= number <= (time.time() + _AHEAD_S) * 1e6:
        return number
    return 0


def sealed(body: bytes, seed: int = 0) -> bytes:
    """A body with its checksum and length in front."""
    return _PREFIX.pack(zlib.crc32(body, seed), len(body)) + body


def opened(data: object, at: int = 0, seed: int = 0) -> bytes:
    """The body of the record at an offset. Raises `Damaged`."""
    if not isinstance(data, bytes):
        raise Damaged("a record is of another type")
    start = at + PREFIX_BYTES
    if start > len(data):
        raise Damaged("a record is cut off")
    checksum: int
    length: int
    checksum, length = _PREFIX.unpack_from(data, at)
    body = data[start : start + length]
    if not body or len(body) != length or zlib.crc32(body, seed) != checksum:  # an empty body has the checksum 0
        raise Damaged("a record does not match its checksum")
    return body


def matching(data: bytes, chunk: int, offset: int) -> Iterator[tuple[int, int]]:
    """Where the matching records of a part of a chunk begin and end. The first byte of the part is at this offset.

    Behind a record that does not match, its length may be wrong, too: each place is tried.
    """
    at = 0
    while at + PREFIX_BYTES < len(data):
        checksum, length = _PREFIX.unpack_from(data, at)
        end = at + PREFIX_BYTES + length
        if (
            length
            and end <= len(data)
            and zlib.crc32(data[at + PREFIX_BYTES : end], seed_of(chunk, offset + at)) == checksum
        ):
            yield at, end
            at = end
        else:
            at += 1


def seed_of(chunk: int, offset: int) -> int:
    """The seed for the checksum of a record in a chunk, so that it does not match at another place."""
    return (chunk * 0x9E37_79B1 + offset) & 0xFFFF_FFFF


def encode_message(message: Message, offset: float, seed: int = 0) -> bytes:
    """Encode a message. `offset` is that of the wall clock."""
    raw = message.raw
    properties = raw.data if raw is not None else encode_properties(message.properties, PUBLISH)
    topic = message.topic
    flags = message.qos | _RETAIN if message.retain else message.qos
    expiry = b""
    if message.expires_at:
        flags |= _EXPIRES
        expiry = _EXPIRY.pack(message.expires_at + offset, message.expiry_s())
    head = _MESSAGE.pack(flags, len(topic), len(properties), message.number)
    body = b"".join((head, expiry, topic, properties, message.payload))
    return _PREFIX.pack(zlib.crc32(body, seed), len(body)) + body


def decode_message(body: bytes, offset: float) -> Message:
    """The message of an opened record."""
    flags, topic_bytes, properties_bytes, number = _MESSAGE.unpack_from(body)
    at = _MESSAGE.size
    expires_at, expiry_s = 0.0, NO_EXPIRY
    if flags & _EXPIRES:
        expires_at, expiry_s = _EXPIRY.unpack_from(body, at)
        expires_at -= offset
        at += _EXPIRY.size
    topic = body[at : at + topic_bytes]
    at += topic_bytes
    properties = body[at : at + properties_bytes]
    raw = None if properties == b"\0" else RawProperties(properties, expiry_s)
    payload = body[at + properties_bytes :]
    message = Message(topic, payload, flags & _QOS, flags & _RETAIN != 0, NONE, expires_at, raw)
    message.number = number
    return message


def encode_retained(message: Message, offset: float) -> bytes:
    """Encode a message, and its writer if it has one."""
    return encode_message(message, offset) + _encode_writer(message.writer)


def decode_retained(data: object, offset: float, writers: dict[bytes, Writer]) -> Message:
    """The message, whose writer is one of `writers` by its record, where one that is new is added. Raises `Damaged`."""
    body = opened(data)
    message = decode_message(body, offset)
    message.writer = _decode_writer(data, PREFIX_BYTES + len(body), writers)
    return message


def _encode_writer(writer: Writer | None) -> bytes:
    """A record that stands behind that of a message: older versions of the broker read the message without it."""
    if writer is None:
        return b""
    client_id = writer.client_id.encode()
    username = b"" if writer.username is None else writer.username.encode()
    return sealed(_WRITER.pack(len(client_id), writer.username is not None) + client_id + username)


def _decode_writer(data: object, at: int, writers: dict[bytes, Writer]) -> Writer | None:
    if not isinstance(data, bytes) or at == len(data):
        return None
    body = opened(data, at)
    writer = writers.get(body)
    if writer is None:
        client_bytes, has_user = _WRITER.unpack_from(body)
        end = _WRITER.size + client_bytes
        writer = Writer(body[_WRITER.size : end].decode(), body[end:].decode() if has_user else None)
        writers[body] = writer
    return writer


def encode_will(will: Will, number: int, due_at: float) -> bytes:
    """Encode the will of the session with this number. `due_at` is Unix time."""
    topic, properties = will.topic, encode_properties(will.properties, WILL)
    flags = will.qos | (_RETAIN if will.retain else 0)
    head = _WILL.pack(flags, len(topic), len(properties), number, due_at)
    return sealed(head + topic + properties + will.payload)


def decode_will(data: object, number: int) -> tuple[Will, float]:
    """The will of a session, and when it is due. Raises `Damaged`, also for the will of another."""
    body = opened(data)
    flags, topic_bytes, properties_bytes, own, due_at = _WILL.unpack_from(body)
    if own != number:
        raise Damaged("it is the will of another")
    at = _WILL.size + topic_bytes
    properties = decode_properties(Cursor(body[at : at + properties_bytes]), WILL)
    payload = body[at + properties_bytes :]
    return Will(body[_WILL.size : at], payload, flags & _QOS, flags & _RETAIN != 0, properties), due_at


def encode_delayed(number: int, message: Message, due_at: float, client_id: str, offset: float) -> bytes:
    """Encode a delayed message with its number, its due time in Unix time, and its publisher."""
    name = client_id.encode()
    return sealed(_DELAYED.pack(number, due_at, len(name)) + name + encode_retained(message, offset))


def decode_delayed(
    data: object, number: int, offset: float, writers: dict[bytes, Writer]
) -> tuple[Message, float, str]:
    """A message with its writer (`decode_retained`), its due time in Unix time, and its publisher. Raises `Damaged`,
    also if the number differs."""
    body = opened(data)
    own, due_at, name_bytes = _DELAYED.unpack_from(body)
    if own != number:
        raise Damaged("a delayed message has the number of another")
    end = _DELAYED.size + name_bytes
    return decode_retained(body[end:], offset, writers), due_at, body[_DELAYED.size : end].decode()


def encode_subscription(subscription: Subscription) -> bytes:
    """Encode a subscription with its client, and the expression of its filter if it has one."""
    flags = subscription.qos
    if subscription.no_local:
        flags |= _NO_LOCAL
    if subscription.retain_as_published:
        flags |= _AS_PUBLISHED
    since = b""
    if subscription.subscribed_at:
        flags |= _SUBSCRIBED_AT
        since = _SINCE.pack(subscription.subscribed_at)
    names = subscription.topic_filter + b"\0" + subscription.client_id.encode()
    if subscription.message_filter is not None:
        names += b"\0" + subscription.message_filter.expression.encode()
    return sealed(_SUBSCRIPTION.pack(flags, subscription.identifier) + since + names)


def decode_subscription(data: object, client_id: str, owner: bytes) -> Subscription:
    """The subscription of a client, whose identifier in UTF-8 is `owner`. Raises `Damaged`, also for another client."""
    body = opened(data)
    flags: int
    identifier: int
    flags, identifier = _SUBSCRIPTION.unpack_from(body)
    subscribed_at: int = _SINCE.unpack_from(body, _SUBSCRIPTION.size)[0] if flags & _SUBSCRIBED_AT else 0
    names = body[_names_at(flags) :].split(b"\0", 2)
    if len(names) == 1 or names[1] != owner:
        raise Damaged("it has another client identifier")
    qos, no_local, as_published = flags & _QOS, flags & _NO_LOCAL != 0, flags & _AS_PUBLISHED != 0
    if len(names) > 2:
        message_filter = StoredFilter(names[2].decode())
        return FilteredSubscription(
            client_id, names[0], qos, no_local, as_published, identifier, message_filter, subscribed_at
        )
    return Subscription(client_id, names[0], qos, no_local, as_published, identifier, subscribed_at)


def decode_topic_filter(data: object) -> bytes:
    """The topic filter of a subscription. Raises `Damaged`."""
    body = opened(data)
    return body[_names_at(body[0]) :].partition(b"\0")[0]


def _names_at(flags: int) -> int:
    """Where the topic filter of a subscription begins. Older records do not have the time before it."""
    return _SUBSCRIPTION.size + _SINCE.size if flags & _SUBSCRIBED_AT else _SUBSCRIPTION.size


def encode_record(saved: SaveRecord, number: int) -> bytes:
    """Encode a feature's record with its number in the store."""
    return sealed(f"{number}{saved.key}\0".encode() + saved.data)


def decode_record(data: object, number: int) -> SaveRecord:
    """Raises `Damaged`, also for another record."""
    own, name, content = opened(data).split(b"\0", 2)
    if int(own) != number:
        raise Damaged("a record has the number of another")
    return SaveRecord(LOG_MARK + name.decode(), content)


def encode_session(saved: SaveSession, number: int, offset: float) -> bytes:
    """Encode a session with its number in the store. Its expiry is in Unix time, 0.0 for none."""
    expires_at = saved.expires_at + offset if saved.expires_at else 0.0
    identity = saved.identity
    flags = saved.version | (_ANONYMOUS if identity.username is None else 0) | (_TRUSTED if identity.is_trusted else 0)
    names = f"{number}\0{saved.client_id}\0{identity.username or ''}".encode()
    if identity.mount_point:
        names += b"\0" + identity.mount_point
    return sealed(_SESSION.pack(saved.expiry_interval, expires_at, flags) + names)


def decode_session(data: object, number: int, offset: float) -> SaveSession:
    """Raises `Damaged`, also for a record of another session."""
    body = opened(data)
    expiry_interval, expires_at, flags = _SESSION.unpack_from(body)
    own, client_id, username, *mount_point = body[_SESSION.size :].decode().split("\0")
    if int(own) != number:
        raise Damaged("a session has the number of another")
    version = flags & ~(_ANONYMOUS | _TRUSTED)
    name = None if flags & _ANONYMOUS else username
    # A past expiry becomes a negative time. It must not become 0.0, which means none.
    due = min(-1e-9, expires_at - offset) if expires_at and expires_at <= offset else expires_at - offset
    identity = Identity(name, "".join(mount_point).encode(), bool(flags & _TRUSTED))
    return SaveSession(client_id, expiry_interval, due if expires_at else 0.0, identity, version)
