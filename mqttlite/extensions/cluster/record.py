"""The records of the log: each is a part of a commit, or says who writes from here on.

Invariants: behind a `Begin` there are records of its writer alone, up to the next. The parts of a commit follow each
other, unless their writer lost the log meanwhile. Then the commit was not acknowledged, and is dropped.
"""

import struct
import zlib
from typing import Final, NamedTuple, final

from mqttlite.extensions.cluster.codec import CodecError

VERSION: Final = 1
"""Of the header. It rises with each change that an older version would read wrongly."""

PART_BYTES: Final = 512 * 1024
"""The most bytes of a commit in one record: half of what an engine takes by default, and few enough that the leader of
a log copies them in some milliseconds."""

_HEADER: Final = struct.Struct("<BBIQQI")  # version, kind, part, incarnation, number, checksum of the body

_BEGIN: Final = 0
_PART: Final = 1
_LAST_PART: Final = 2
_SEED: Final = 3


class Place(NamedTuple):
    """Identifies a record: no other has the same."""

    incarnation: int
    """The sequence of the `Begin` of its writer; 0 for a `Begin`, which has none yet."""
    number: int
    """Of the commit, from 1 on with each incarnation; of a `Begin`, a random number."""
    part: int
    """From 0 on."""


@final
class Begin:
    """From this record on, nobody but its writer appends."""

    __slots__ = ("is_seed", "node", "place")

    def __init__(self, place: Place, node: str, is_seed: bool) -> None:
        self.place: Final = place
        self.node: Final = node
        """The name of the machine."""
        self.is_seed: Final = is_seed
        """Whether the database of its writer had something that the log never had: others need a snapshot of it."""


@final
class Commit:
    """A whole commit."""

    __slots__ = ("data", "place")

    def __init__(self, place: Place, data: bytes) -> None:
        self.place: Final = place
        """Of its last part."""
        self.data: Final = data


def encode_begin(number: int, node: str, is_seed: bool) -> bytes:
    """`number` is random, so that two never look the same."""
    body = node.encode()
    return _HEADER.pack(VERSION, _SEED if is_seed else _BEGIN, 0, 0, number, zlib.crc32(body)) + body


def encode_commit(incarnation: int, number: int, data: bytes) -> list[bytes]:
    """The records of a commit, in order."""
    bodies = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)] or [b""]
    last = len(bodies) - 1
    return [
        _HEADER.pack(VERSION, _LAST_PART if part == last else _PART, part, incarnation, number, zlib.crc32(body)) + body
        for part, body in enumerate(bodies)
    ]


def place_of(record: bytes) -> Place:
    """Raises `CodecError`."""
    return _opened(record)[1]


def _opened(record: bytes) -> tuple[int, Place, bytes]:
    """The kind, place and body of a record. Raises `CodecError`."""
    if len(record) < _HEADER.size:
        raise CodecError(f"a record of the log has {len(record)} bytes, fewer than its header")
    version, kind, part, incarnation, number, checksum = _HEADER.unpack_from(record)
    if version != VERSION:
        text = f"a record of the log has version {version}, and this broker reads {VERSION}"
        raise CodecError(f"{text}: upgrade it, then start it again")
    body = record[_HEADER.size :]
    if kind > _SEED or zlib.crc32(body) != checksum:
        raise CodecError("a record of the log does not match its checksum")
    return kind, Place(incarnation, number, part), body


@final
class Assembler:
    """Puts commits together from records, which come in the order of the log."""

    def __init__(self) -> None:
        self._incarnation = 0
        """The sequence of the latest `Begin`; 0 before the first that it sees."""
        self._bodies: list[bytes] = []
        self._number = 0
        """Of the commit whose first parts are there."""

    def add(self, sequence: int, record: bytes) -> Begin | Commit | None:
        """What a record completes. Raises `CodecError` for a damaged one, and for one that does not follow."""
        kind, place, body = _opened(record)
        if kind in (_BEGIN, _SEED):
            self._bodies = []  # the commit of a writer that lost the log
            self._incarnation = sequence
            return Begin(place, body.decode(errors="replace"), kind == _SEED)
        if self._incarnation not in (0, place.incarnation):
            text = (
                f"record {sequence} of the log is of turn {place.incarnation}, behind the begin of {self._incarnation}"
            )
            raise CodecError(f"{text}: the engine did not keep its promise")
        if place.part == 0:
            self._bodies = []
            self._number = place.number
        elif place.number != self._number or place.part != len(self._bodies):
            raise CodecError(f"a record of the log is part {place.part} of a commit without the part before it")
        self._bodies.append(body)
        if kind == _PART:
            return None
        data = self._bodies[0] if len(self._bodies) == 1 else b"".join(self._bodies)
        self._bodies = []
        return Commit(place, data)
