"""Puts the messages of a commit into chunks, and builds the rows of `queue` that assign them to sessions.

There is one chunk for messages of several sessions, one for messages of single sessions that read (they are deleted
soon), and separate chunks for messages that wait for one session, so that an absent client does not keep messages of
others on disk. Logs of one family share chunks, because a thousand small ones cost much more. Invariant: the messages
of a row are consecutive in its session and in its chunk.
"""

import sqlite3
import struct
import zlib
from collections.abc import Iterable
from typing import Final, final

from mqttlite.core.log_changes import LOG_MARK
from mqttlite.core.memory import ENTRY_BYTES
from mqttlite.core.message import Delivery, Message
from mqttlite.store.sqlite.mirror import SessionMirror
from mqttlite.store.sqlite.records import encode_message, sealed, seed_of
from mqttlite.store.sqlite.rests import Rests

CHUNK_BYTES: Final = 1_048_576
"""A longer chunk is continued in a new one, because reading a message reads its chunk from there on."""

FAMILY_BYTES: Final = 16_384
"""No other log begins in a longer chunk of its family: reading messages of a chunk reads it up to them."""

_ROW: Final = struct.Struct("<9q")


def row_crc(numbers: tuple[object, ...], extra: object) -> int:
    """The checksum of a row of `queue`: session, first, count, chunk, offset, size, shape, bytes, total; extra. -1 for
    invalid values."""
    if not isinstance(extra, str):  # a damaged row may have any value
        return -1
    try:
        return zlib.crc32(extra.encode(), zlib.crc32(_ROW.pack(*numbers)))
    except struct.error:
        return -1


def number_of(connection: sqlite3.Connection, key: str) -> tuple[int] | None:
    """The number of a session, by its client identifier, or of a record, as a row; None if there is none."""
    if key.startswith(LOG_MARK):
        found = connection.execute("SELECT id FROM queues WHERE name = ?", (key[1:],)).fetchone()
    else:
        found = connection.execute("SELECT id FROM sessions WHERE client_id = ?", (key,)).fetchone()
    row: tuple[int] | None = found
    return row


def last_row(connection: sqlite3.Connection, session: int) -> tuple[int, int] | None:
    """The sequence after the last intact row of a session, and its `total`."""
    for row in connection.execute(
        "SELECT session, first, count, chunk, offset, size, shape, bytes, total, extra, crc FROM queue "
        "WHERE session = ? ORDER BY first DESC",
        (session,),
    ):
        if row_crc(row[:9], row[9]) == row[10]:
            return row[1] + row[2], row[8]
    return None


@final
class Chunk:
    """Consecutive records. Number 0 means that no chunk was begun."""

    __slots__ = ("number", "records", "size")

    def __init__(self, number: int) -> None:
        self.number: Final = number
        self.records: Final[list[bytes]] = []
        self.size: int = 0


_NO_CHUNK: Final = Chunk(0)


@final
class Runs:
    """The chunks and rows of one commit; `offset` is that of the wall clock."""

    __slots__ = ("_families", "_offset", "_passing", "_rests", "_shared", "chunks", "latest", "next_chunk", "rows")

    def __init__(self, next_chunk: int, offset: float, rests: Rests) -> None:
        self._offset: Final = offset
        self._rests: Final = rests
        self._passing = _NO_CHUNK
        self._shared = _NO_CHUNK
        self._families: Final[dict[str, Chunk]] = {}
        """The latest chunk of each family of logs."""
        self.next_chunk: int = next_chunk
        self.latest: int = 0
        """The highest number of a message."""
        self.chunks: Final[list[Chunk]] = []
        self.rows: Final[list[tuple[object, ...]]] = []

    def add(self, mirrors: Iterable[SessionMirror]) -> None:
        """Add the new messages of these sessions."""
        with_new = [mirror for mirror in mirrors if mirror.new]
        shared: set[Message] = set()
        if len(with_new) > 1:
            seen: set[Message] = set()
            for mirror in with_new:
                self._rests.after(len(mirror.new))
                for delivery in mirror.new.values():
                    (shared if delivery.message in seen else seen).add(delivery.message)
        places: dict[Message, tuple[Chunk, int, int]] = {}
        for mirror in with_new:
            self._add_session(mirror, shared, places)

    def _add_session(
        self, mirror: SessionMirror, shared: set[Message], places: dict[Message, tuple[Chunk, int, int]]
    ) -> None:
        own = self._families.get(mirror.family, _NO_CHUNK)
        if own.size >= FAMILY_BYTES:
            own = _NO_CHUNK
        in_chunk = _NO_CHUNK
        first = following = start = end = size = 0
        like: Delivery | None = None
        rests = self._rests
        for sequence, delivery in mirror.new.items():
            rests.after(1)
            message = delivery.message
            if shared and message in shared:
                place = places.get(message)
                if place is None:
                    chunk = self._shared = self._with_room(self._shared)
                    place = places[message] = self._put(chunk, message)
                chunk, at, record_bytes = place
            else:
                if sequence in mirror.passing:
                    chunk = self._passing = self._with_room(self._passing)
                else:
                    chunk = own = self._with_room(own)
                chunk, at, record_bytes = self._put(chunk, message)
            if (
                like is None
                or chunk is not in_chunk
                or at != end
                or sequence != following
                or not _alike(delivery, like)
            ):
                if like is not None:
                    self._add_row(mirror, first, following, in_chunk, start, end, like, size)
                in_chunk, first, start, like, size = chunk, sequence, at, delivery, 0
            following = sequence + 1
            end = at + record_bytes
            size += ENTRY_BYTES + message.memory_bytes
        if like is not None:
            self._add_row(mirror, first, following, in_chunk, start, end, like, size)
        if mirror.family:
            self._families[mirror.family] = own

    def _add_row(
        self,
        mirror: SessionMirror,
        first: int,
        following: int,
        chunk: Chunk,
        start: int,
        end: int,
        like: Delivery,
        size: int,
    ) -> None:
        mirror.total += size
        extra = ",".join([str(identifier) for identifier in like.identifiers])
        if like.origin is not None:
            extra += f" {like.origin.name.hex()}"
        shape = like.qos | 4 if like.retain else like.qos
        numbers = (mirror.number, first, following - first, chunk.number, start, end - start, shape)
        crc = row_crc((*numbers, size, mirror.total), extra)
        self.rows.append((*numbers, extra, size, mirror.total, crc))
        mirror.add_row(first, following, chunk.number)

    def _with_room(self, chunk: Chunk) -> Chunk:
        if chunk.number and chunk.size < CHUNK_BYTES:
            return chunk
        chunk = Chunk(self.next_chunk)
        self.next_chunk += 1
        self.chunks.append(chunk)
        return chunk

    def copy(self, body: bytes) -> tuple[int, int, int]:
        """Add the body of a record that the store has already. Return its new place: chunk, offset and size."""
        chunk = self._shared = self._with_room(self._shared)
        at = chunk.size
        record = sealed(body, seed_of(chunk.number, at))
        chunk.records.append(record)
        chunk.size = at + len(record)
        return chunk.number, at, len(record)

    def _put(self, chunk: Chunk, message: Message) -> tuple[Chunk, int, int]:
        at = chunk.size
        if message.number > self.latest:
            self.latest = message.number
        record = encode_message(message, self._offset, seed_of(chunk.number, at))
        chunk.records.append(record)
        chunk.size = at + len(record)
        return chunk, at, len(record)


def _alike(delivery: Delivery, other: Delivery) -> bool:
    return (
        delivery.qos == other.qos
        and delivery.retain == other.retain
        and delivery.identifiers == other.identifiers
        and delivery.origin is other.origin
    )
