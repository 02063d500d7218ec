"""Reads rows straight from the pages of a damaged database, also from those to which no other page leads any more.

Unused pages keep old rows, so the pages of the free list are left out if it can be read. What the rows are worth, the
caller finds out by their checksums. Invariant: only the file is read, and whatever is in it ends in rows or in nothing.
"""

import functools
import mmap
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

Data = bytes | mmap.mmap

_TABLE_LEAF: Final = 13
_INDEX_LEAF: Final = 10
_INDEX_NODE: Final = 2
_TABLE_NODE: Final = 5
_NODES: Final = (_INDEX_NODE, _TABLE_NODE)
KINDS: Final = (_TABLE_LEAF, _INDEX_LEAF, _INDEX_NODE)
"""The kinds of pages with rows."""


_LARGEST_ROOT: Final = 52
"""Where the header has the number of the last root page; 0 in a database that cannot be shrunk."""

_MAP_ENTRY: Final = struct.Struct(">BI")
"""The kind of a page, and the page that leads to it."""

_OVERFLOW: Final = 4
"""A page with a part of a row, to which another one leads."""


class Cell(NamedTuple):
    """A row: its number in a table with row numbers, else None, and its columns."""

    rowid: int | None
    values: tuple[Any, ...]


class Pages:
    """The pages of a database; `size` is that of each, and `newer` takes the place of some."""

    def __init__(self, data: Data, size: int, newer: Mapping[int, bytes]) -> None:
        self._data: Final = data
        self._size: Final = size
        self._newer: Final = newer
        self.count: Final = max(len(data) // size, *newer, 0)

    def page(self, number: int) -> bytes:
        """A page by its number, from 1 on; empty if there is none."""
        if number in self._newer:
            return self._newer[number]
        return self._data[(number - 1) * self._size : number * self._size] if 0 < number <= self.count else b""

    def unused(self) -> set[int]:
        """The pages of the free list, as far as it can be followed."""
        found: set[int] = set()
        trunk = int.from_bytes(self.page(1)[32:36], "big")
        while 0 < trunk <= self.count and trunk not in found:
            found.add(trunk)
            words = struct.unpack(f">{self._size // 4}I", self.page(trunk))
            found.update(page for page in words[2 : 2 + words[1]] if page <= self.count)
            trunk = words[0]
        return found

    def knows_unused(self) -> bool:
        """Whether the free list is as long as the header says."""
        return len(self.unused()) == int.from_bytes(self.page(1)[36:40], "big")

    def cells(self) -> Iterator[Cell]:
        """The rows of all pages in use."""
        unused = self.unused()
        for number in range(1, self.count + 1):
            if number not in unused:
                yield from filter(None, self.cells_of(self.page(number)))

    def cells_of(self, page: bytes) -> Iterator[Cell | None]:
        """The rows of a page in their order; None for an unreadable one. It may be an earlier image of a page."""
        kind = page[0] if len(page) == self._size else 0
        if kind not in KINDS:
            return
        for at in self._pointers(page):
            try:
                yield self._cell(page, kind, at + 4 if kind == _INDEX_NODE else at)
            except (IndexError, ValueError, struct.error):
                yield None

    def loose_cells(self, page: bytes) -> Iterator[Cell]:
        """The rows of a page whose head is damaged, wherever they begin; none if the head is a valid one."""
        if len(page) < self._size or page[0] in KINDS or page[0] in _NODES:
            return
        for kind in (_TABLE_LEAF, _INDEX_LEAF):
            for at in range(self._size):
                try:
                    if _is_row(page, at, kind):
                        yield self._cell(page, kind, at)
                except (IndexError, ValueError, struct.error):
                    continue

    def children(self) -> set[int]:
        """The pages to which another page of a tree leads."""
        found: set[int] = set()
        for number in range(1, self.count + 1):
            page = self.page(number)
            if len(page) == self._size and page[0] in _NODES:
                found.update(int.from_bytes(page[at : at + 4], "big") for at in (8, *self._pointers(page)))
        return found

    @functools.cached_property
    def _following(self) -> dict[int, int]:
        """The overflow page behind each one, from the map that a database has if it can be shrunk: it says where the
        rest of a row is if the link to it is damaged."""
        found: dict[int, int] = {}
        if not any(self.page(1)[_LARGEST_ROOT : _LARGEST_ROOT + 4]):
            return found
        each = self._size // _MAP_ENTRY.size
        for first in range(3, self.count + 1, each + 1):
            entries = self.page(first - 1)[: each * _MAP_ENTRY.size]
            for number, (kind, parent) in enumerate(_MAP_ENTRY.iter_unpack(entries), first):
                if kind == _OVERFLOW and 0 < parent <= self.count:
                    found[parent] = number
        return found

    def _pointers(self, page: bytes) -> tuple[int, ...]:
        """Where the cells of a page begin."""
        (count,) = struct.unpack_from(">H", page, 3)
        first = 12 if page[0] in _NODES else 8
        return struct.unpack_from(f">{min(count, (self._size - first) // 2)}H", page, first)

    def _cell(self, page: bytes, kind: int, at: int) -> Cell:
        length, at = _varint(page, at)
        rowid = None
        if kind == _TABLE_LEAF:
            rowid, at = _varint(page, at)
        if length > self.count * self._size:
            raise ValueError("a row is longer than the file")
        return Cell(rowid, _columns(self._payload(page, at, length, kind)))

    def _payload(self, page: bytes, at: int, length: int, kind: int) -> bytes:
        """The bytes of a row, with those on its overflow pages. What is missing is taken to be zeros: the records have
        checksums."""
        most = self._size - 35 if kind == _TABLE_LEAF else (self._size - 12) * 64 // 255 - 23
        if length <= most:
            return page[at : at + length]
        least = (self._size - 12) * 32 // 255 - 23
        local = least + (length - least) % (self._size - 4)
        local = local if local <= most else least
        parts = [page[at : at + local]]
        rest = length - local
        number, following = 0, int.from_bytes(page[at + local : at + local + 4], "big")
        while rest > 0:
            number = self._following.get(number) or (following if 0 < following <= self.count else number + 1)
            overflow = self.page(number)
            parts.append(overflow[4 : 4 + rest])
            rest -= self._size - 4
            following = int.from_bytes(overflow[:4], "big")
        return b"".join(parts).ljust(length, b"\0")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of SQLite's variable length, and where it ends."""
    value = 0
    for _ in range(8):
        byte = data[at]
        at += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at
    value = value << 8 | data[at]
    return value - (1 << 64) if value >> 63 else value, at + 1


_INTEGER_BYTES: Final = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_BYTES: Final = {0: 0, **_INTEGER_BYTES, 7: 8, 8: 0, 9: 0}
"""How many bytes a column has, by its type; texts and blobs have types that say so."""

MOST_HEAD: Final = 128
"""The length of a row's list of types is less, so that it takes one byte: the widest table has 11 columns. Without a
limit, each place of a page of random bytes would be read to the end of the page."""


def _is_row(page: bytes, at: int, kind: int) -> bool:
    """Whether the columns of what may be a row are as long as the row."""
    length, at = _varint(page, at)
    if kind == _TABLE_LEAF:
        _, at = _varint(page, at)
    head, place = page[at], at + 1
    if not 1 < head < min(length, MOST_HEAD):
        return False
    end, total = at + head, head
    while place < end:
        column, place = _varint(page, place)
        total += (column - 12) // 2 if column >= 12 else _BYTES.get(column, -1)
    return total == length and place == end


def _columns(payload: bytes) -> tuple[Any, ...]:
    head, at = _varint(payload, 0)
    values: list[Any] = []
    start = head
    while at < head:
        kind, at = _varint(payload, at)
        if kind == 0:
            values.append(None)
        elif kind in _INTEGER_BYTES:
            end = start + _INTEGER_BYTES[kind]
            values.append(int.from_bytes(payload[start:end], "big", signed=True))
            start = end
        elif kind == 7:
            values.append(struct.unpack_from(">d", payload, start)[0])
            start += 8
        elif kind in (8, 9):
            values.append(kind - 8)
        elif kind >= 12:
            end = start + (kind - 12) // 2
            part = payload[start:end]
            values.append(part.decode(errors="replace") if kind % 2 else part)
            start = end
        else:
            raise ValueError("a column has no known type")
    return tuple(values)
