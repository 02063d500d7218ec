"""How workers write down what they have for each other.

An envelope is its kind (1 byte), the length of its body (4 bytes) and the body, integers little-endian. Both ends are
the same program, so nothing is versioned, and nothing is checked. Messages are written as MQTT 5.0 writes them.
"""

import struct
from collections.abc import Callable
from typing import Final, Protocol

from mqttlite.core.forwards import (
    Arrival,
    Batch,
    Claim,
    Forward,
    Interest,
    Located,
    Outcome,
    Outgoing,
    Passage,
    Release,
    Stream,
    Traveller,
)
from mqttlite.core.message import Message
from mqttlite.wire.constants import V5
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import publish_parts
from mqttlite.wire.framer import packet_size
from mqttlite.wire.packets import Publish
from mqttlite.wire.properties import NONE

BATCH: Final = 1
FORWARD: Final = 2
OUTCOME: Final = 3
INTERESTS: Final = 4
TOLD: Final = 5
STATUS: Final = 6
READY: Final = 7
BYE: Final = 8
CLAIM: Final = 9
LOCATED: Final = 10
RELEASE: Final = 11
PASSAGE: Final = 12
ARRIVAL: Final = 13
STREAM: Final = 14

_HEAD: Final = struct.Struct("<BI")
_BATCH: Final = struct.Struct("<QBBIId")
_STREAM: Final = struct.Struct("<Bd")
_FORWARD: Final = struct.Struct("<QBddI")
_OUTCOME: Final = struct.Struct("<QBIIIII")
_INTEREST: Final = struct.Struct("<IIH")
_PASSAGE: Final = struct.Struct("<QB")
_ARRIVAL: Final = struct.Struct("<B?")
_TRAVELLER: Final = struct.Struct("<QB??H?IHHddQQQQQdIQHHHI")
_KNOWN: Final = (
    *("version", "clean_start", "session_present", "keep_alive_s", "problem_information", "max_packet_bytes"),
    *("topic_alias_maximum", "window", "opened_at", "connected_at", "bytes_received", "bytes_sent", "received_qos0"),
    *("received_qos1", "received_qos2", "backpressure_s", "backpressure_count", "high_water_bytes"),
)
"""What of a `Traveller` is a number, in the order of `_TRAVELLER`, behind that of its connection."""

_SERIAL: Final = struct.Struct("<Q")
_LENGTH: Final = struct.Struct("<H")

_NOBODY: Final = 0xFFFF_FFFF
"""The length of a user name that there is not."""

_PLAIN: Final = 1
_RETAIN: Final = 2
_HOP: Final = 4
"""Of the flags of a forward, with the number of its hops above them: 63 at most, for there are 64 workers."""


class Receiver(Protocol):
    """What is done with what comes from a worker."""

    def on_batch(self, batch: Batch) -> None: ...

    def on_stream(self, stream: Stream) -> None: ...

    def on_forward(self, forward: Forward) -> None: ...

    def on_outcome(self, outcome: Outcome) -> None: ...

    def on_claim(self, claim: Claim) -> None: ...

    def on_located(self, located: Located) -> None: ...

    def on_release(self, release: Release) -> None: ...

    def on_passage(self, passage: Passage) -> None: ...

    def on_arrival(self, arrival: Arrival) -> None: ...

    def on_interests(self, serial: int, interests: list[Interest]) -> None: ...

    def on_told(self, serial: int) -> None: ...

    def on_status(self, status: bytes) -> None: ...

    def on_ready(self) -> None: ...

    def on_bye(self) -> None: ...


def envelope(kind: int, body: bytes = b"") -> bytes:
    return _HEAD.pack(kind, len(body)) + body


def write(outgoing: Outgoing) -> list[bytes]:
    """In pieces, not to copy what is long."""
    if isinstance(outgoing, Batch):
        return write_batch(outgoing)
    if isinstance(outgoing, Stream):
        return write_stream(outgoing)
    if isinstance(outgoing, Forward):
        return [write_forward(outgoing)]
    if isinstance(outgoing, Outcome):
        return [write_outcome(outgoing)]
    if isinstance(outgoing, Located):
        return [envelope(LOCATED, bytes((outgoing.home,)) + outgoing.client_id)]
    if isinstance(outgoing, Passage):
        return [envelope(PASSAGE, _PASSAGE.pack(outgoing.number, outgoing.what))]
    if isinstance(outgoing, Arrival):
        return [envelope(ARRIVAL, _ARRIVAL.pack(outgoing.former, outgoing.is_known) + outgoing.client_id)]
    return [envelope(CLAIM if isinstance(outgoing, Claim) else RELEASE, outgoing.client_id)]


def write_batch(batch: Batch) -> list[bytes]:
    """In pieces, not to copy the packets."""
    numbers = _BATCH.pack(batch.tag, batch.qos, batch.version, batch.size, batch.head, batch.expires_at)
    return [_HEAD.pack(BATCH, len(numbers) + len(batch.packets)) + numbers, batch.packets]


def write_stream(stream: Stream) -> list[bytes]:
    """The same."""
    numbers = _STREAM.pack(stream.version, stream.came_at)
    return [_HEAD.pack(STREAM, len(numbers) + stream.size) + numbers, stream.packets()]


def write_forward(forward: Forward) -> bytes:
    message = forward.message
    flags = (_PLAIN if forward.plain else 0) | (_RETAIN if forward.retain else 0) | forward.hops * _HOP
    block = b"" if message.block is None else message.block.data
    properties = NONE if block else message.properties
    head, tail = publish_parts(message.topic, message.payload, message.qos, message.retain, properties, V5, block=block)
    body = [
        _FORWARD.pack(forward.tag, flags, forward.stamp, message.expires_at, len(forward.shares)),
        *_names(forward.shares),
        head,
        b"\0\1" if message.qos else b"",
        tail,
    ]
    return envelope(FORWARD, b"".join(body))


def write_outcome(outcome: Outcome) -> bytes:
    counts = outcome.dropped, outcome.queued, outcome.sent, len(outcome.untaken), len(outcome.refused)
    body = [
        _OUTCOME.pack(outcome.tag, outcome.code, *counts),
        *_names(outcome.untaken),
        struct.pack(f"<{len(outcome.refused)}I", *outcome.refused),
    ]
    return envelope(OUTCOME, b"".join(body))


def write_interests(serial: int, interests: list[Interest]) -> bytes:
    body = [_SERIAL.pack(serial)]
    for interest in interests:
        body.append(_INTEREST.pack(interest.members, interest.online, len(interest.topic_filter)))
        body.append(interest.topic_filter)
    return envelope(INTERESTS, b"".join(body))


def write_told(serial: int) -> bytes:
    return envelope(TOLD, _SERIAL.pack(serial))


def write_traveller(traveller: Traveller) -> bytes:
    """For a handoff."""
    broker_id, client_id = traveller.broker_id.encode(), traveller.client_id.encode()
    username = b"" if traveller.username is None else traveller.username.encode()
    numbers = _TRAVELLER.pack(
        traveller.number,
        *[getattr(traveller, name) for name in _KNOWN],
        len(traveller.received),
        len(broker_id),
        len(client_id),
        _NOBODY if traveller.username is None else len(username),
    )
    received = struct.pack(f"<{len(traveller.received)}H", *traveller.received)
    return numbers + received + broker_id + client_id + username


def read_traveller(data: bytes) -> Traveller:
    """The reverse of `write_traveller`."""
    numbers = _TRAVELLER.unpack_from(data)
    broker_at = _TRAVELLER.size + 2 * numbers[-4]
    client_at = broker_at + numbers[-3]
    name_at = client_at + numbers[-2]
    client_id = data[client_at:name_at].decode()
    username = None if numbers[-1] == _NOBODY else data[name_at:].decode()
    traveller = Traveller(numbers[0], client_id, username)
    for name, value in zip(_KNOWN, numbers[1:-4], strict=True):
        setattr(traveller, name, value)
    traveller.received = list(struct.unpack_from(f"<{numbers[-4]}H", data, _TRAVELLER.size))
    traveller.broker_id = data[broker_at:client_at].decode()
    return traveller


def read(worker: int, data: bytes, receiver: Receiver) -> int:
    """Hand on every whole envelope from a worker; where the first incomplete one begins."""
    at = 0
    end = len(data)
    while end - at >= _HEAD.size:
        kind, length = _HEAD.unpack_from(data, at)
        body = at + _HEAD.size
        if end - body < length:
            break
        at = body + length
        _READERS[kind](worker, data[body:at], receiver)
    return at


def wanted(rest: bytes) -> int:
    """How many bytes the envelope takes that begins there, as far as it says."""
    return _HEAD.size + (_HEAD.unpack_from(rest)[1] if len(rest) >= _HEAD.size else 0)


def _read_batch(worker: int, body: bytes, receiver: Receiver) -> None:
    tag, qos, version, size, head, expires_at = _BATCH.unpack_from(body)
    receiver.on_batch(Batch([worker], tag, qos, version, head, size, body[_BATCH.size :], expires_at))


def _read_stream(worker: int, body: bytes, receiver: Receiver) -> None:
    version, came_at = _STREAM.unpack_from(body)
    receiver.on_stream(Stream(worker, version, came_at, body[_STREAM.size :]))


def _read_forward(worker: int, body: bytes, receiver: Receiver) -> None:
    tag, flags, stamp, expires_at, names = _FORWARD.unpack_from(body)
    shares, at = _read_names(body, _FORWARD.size, names)
    packet = decode(body[at], body[len(body) - _body_bytes(body, at) :], V5)
    assert isinstance(packet, Publish)
    message = Message(packet.topic, packet.payload, packet.qos, packet.retain, packet.properties, expires_at)
    plain, retain = bool(flags & _PLAIN), bool(flags & _RETAIN)
    receiver.on_forward(Forward(worker, tag, message, plain, retain, stamp, shares, flags // _HOP))


def _body_bytes(body: bytes, at: int) -> int:
    """How much of the packet at `at` is behind its fixed header."""
    size = packet_size(body, at)
    length_at = at + 1
    while body[length_at] > 127:
        length_at += 1
    return size - (length_at + 1 - at)


def _read_outcome(worker: int, body: bytes, receiver: Receiver) -> None:
    tag, code, dropped, queued, sent, names, refused = _OUTCOME.unpack_from(body)
    untaken, at = _read_names(body, _OUTCOME.size, names)
    outcome = Outcome(worker, tag, code, dropped, queued, sent, untaken)
    outcome.refused = list(struct.unpack_from(f"<{refused}I", body, at))
    receiver.on_outcome(outcome)


def _read_interests(_worker: int, body: bytes, receiver: Receiver) -> None:
    interests: list[Interest] = []
    at = _SERIAL.size
    while at < len(body):
        members, online, length = _INTEREST.unpack_from(body, at)
        at += _INTEREST.size + length
        interests.append(Interest(body[at - length : at], members, online))
    receiver.on_interests(_SERIAL.unpack_from(body)[0], interests)


def _names(names: list[bytes]) -> list[bytes]:
    return [_LENGTH.pack(len(name)) + name for name in names]


def _read_names(body: bytes, at: int, count: int) -> tuple[list[bytes], int]:
    names: list[bytes] = []
    for _ in range(count):
        length = _LENGTH.unpack_from(body, at)[0]
        at += _LENGTH.size + length
        names.append(body[at - length : at])
    return names, at


_READERS: Final[dict[int, Callable[[int, bytes, Receiver], None]]] = {
    BATCH: _read_batch,
    STREAM: _read_stream,
    FORWARD: _read_forward,
    OUTCOME: _read_outcome,
    CLAIM: lambda worker, body, receiver: receiver.on_claim(Claim(worker, body)),
    LOCATED: lambda worker, body, receiver: receiver.on_located(Located(worker, body[1:], body[0])),
    RELEASE: lambda worker, body, receiver: receiver.on_release(Release(worker, body)),
    PASSAGE: lambda worker, body, receiver: receiver.on_passage(Passage(worker, *_PASSAGE.unpack(body))),
    ARRIVAL: lambda worker, body, receiver: receiver.on_arrival(
        Arrival(worker, body[_ARRIVAL.size :], *_ARRIVAL.unpack_from(body))
    ),
    INTERESTS: _read_interests,
    TOLD: lambda _worker, body, receiver: receiver.on_told(_SERIAL.unpack(body)[0]),
    STATUS: lambda _worker, body, receiver: receiver.on_status(body),
    READY: lambda _worker, _body, receiver: receiver.on_ready(),
    BYE: lambda _worker, _body, receiver: receiver.on_bye(),
}
