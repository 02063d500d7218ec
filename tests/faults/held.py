"""What each page of a whole database holds, so that a test can tell what damage to a page may cost.

Invariant: a page that holds the beginning of a row holds all of the row, because nothing else tells where its rest is.
Pages that only lead to others hold nothing. All rows that SQLite finds are found, or the walk fails.
"""

import contextlib
import sqlite3
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from mqttlite.store.sqlite.pages import KINDS, Pages
from mqttlite.store.sqlite.records import PREFIX_BYTES

PAGE: Final = 4_096
LINK_BYTES: Final = 4
"""A page of a long row begins with the number of the next one."""
MOST_LOCAL: Final = PAGE - 35
MOST_LOCAL_WITH_KEY: Final = (PAGE - 12) * 64 // 255 - 23
LEAST_LOCAL: Final = (PAGE - 12) * 32 // 255 - 23
"""How much of a long row is on its first page."""

NODES: Final = (2, 5)

Thing = tuple[object, ...]
"""A session, a subscription, a message or a retained message."""


class Held:
    """`by_page` has the things of each page. A session holds all that is in it."""

    def __init__(self, path: Path) -> None:
        self.by_page: dict[int, set[Thing]] = defaultdict(set)
        data = path.read_bytes()
        self._pages: Final = Pages(data, PAGE, {})
        with contextlib.closing(sqlite3.connect(path)) as connection:
            self._connection: Final = connection
            self._names: Final = dict(connection.execute("SELECT id, client_id FROM sessions"))
            self._add_queues()
            self._add_others()

    def _rows(self, table: str) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """The rows of a table with the pages on which they begin."""
        (root,) = self._connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        (expected,) = self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        found = 0
        for number in self._tree(root):
            page = self._pages.page(number)
            for cell in self._pages.cells_of(page) if page[0] in KINDS else ():
                assert cell is not None
                found += 1
                yield number, cell.values if cell.rowid is None else (cell.rowid, *cell.values[1:])
        assert found == expected, table

    def _tree(self, number: int) -> Iterator[int]:
        yield number
        page = self._pages.page(number)
        if page[0] in NODES:
            (cells,) = struct.unpack_from(">H", page, 3)
            for at in (8, *struct.unpack_from(f">{cells}H", page, 12)):
                yield from self._tree(int.from_bytes(page[at : at + 4], "big"))

    def _add_queues(self) -> None:
        """Messages are on the page of their row in `queue`, and on pages of their chunk; sent ones need a state."""
        chunks = {row[0]: (number, row[1]) for number, row in self._rows("chunks")}
        overflow = {chunk: self._overflow(data, 0, MOST_LOCAL) for chunk, (_, data) in chunks.items()}
        states = {row[0]: (number, row) for number, row in self._rows("state")}
        sent = {session: set(self._sent(row[2])) for session, (_, row) in states.items()}
        for number, (session, first, count, chunk, at, *_) in self._rows("queue"):
            leaf, data = chunks[chunk]
            for sequence in range(first, first + count):
                end = at + PREFIX_BYTES + int.from_bytes(data[at + 4 : at + 8], "little")
                message = ("message", self._names[session], sequence)
                pages = {page for page, start, stop in overflow[chunk] if start < end and at < stop}
                for page in {number, leaf, *pages} | ({states[session][0]} if sequence in sent[session] else set()):
                    self.by_page[page].add(message)
                at = end

    @staticmethod
    def _sent(data: str) -> Iterator[int]:
        for sequence, _, count in msgspec.json.decode(data)[0]:
            yield from range(sequence, sequence + count)

    def _overflow(self, data: bytes, before: int, most: int) -> list[tuple[int, int, int]]:
        """The further pages of a row that ends in this data, with the part of it that each has, after `before` bytes of
        other columns. The first one has its part word for word."""
        kind = len(data) * 2 + 12
        head = 1 + 1 + (1 if kind < 1 << 7 else 2 if kind < 1 << 14 else 3) + before
        length = head + len(data)
        if length <= most:
            return []
        local = LEAST_LOCAL + (length - LEAST_LOCAL) % (PAGE - LINK_BYTES)
        start = (local if local <= most else LEAST_LOCAL) - head
        part = data[start : start + PAGE - LINK_BYTES]
        (number,) = (each for each in range(1, self._pages.count + 1) if part in self._pages.page(each))
        found = []
        while start < len(data):
            page = self._pages.page(number)
            end = min(start + PAGE - LINK_BYTES, len(data))
            assert page[LINK_BYTES : LINK_BYTES + end - start] == data[start:end]
            found.append((number, start, end))
            number, start = int.from_bytes(page[:LINK_BYTES], "big"), end
        return found

    def _add_others(self) -> None:
        for number, (session, topic_filter, _) in self._rows("subscriptions"):
            self.by_page[number].add(("subscription", self._names[session], topic_filter))
        for number, (topic, data) in self._rows("retained"):
            overflow = self._overflow(data, len(topic), MOST_LOCAL_WITH_KEY)
            for page in {number, *(page for page, _, _ in overflow)}:
                self.by_page[page].add(("retained", topic))
        everything = set().union(*self.by_page.values())
        for number, (_, client_id, _) in self._rows("sessions"):
            self.by_page[number].add(("session", client_id))
            self.by_page[number] |= {thing for thing in everything if thing[1] == client_id}
