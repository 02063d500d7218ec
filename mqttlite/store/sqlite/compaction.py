"""Writes what is left of a part of a log into new chunks, so that the former ones can be deleted.

Rows that reach over an end of the part keep their chunk for what is outside. Invariant: a row whose messages cannot be
read stays as it is.
"""

import sqlite3
from bisect import bisect_left
from typing import Any, Final

from mqttlite.core.log_changes import Compact
from mqttlite.store.sqlite.records import PREFIX_BYTES, Damaged, opened, seed_of
from mqttlite.store.sqlite.runs import Runs, row_crc

_ROWS: Final = (
    "SELECT session, first, count, chunk, offset, size, shape, bytes, total, extra, crc FROM queue "
    "WHERE session = :session AND first >= ifnull((SELECT max(first) FROM queue WHERE session = :session "
    "AND first <= :first), :first) AND first < :end AND first + count > :first ORDER BY first"
)

Formers = list[tuple[int, int, int]]
"""Rows that are replaced: session, first offset and chunk."""


def compact(connection: sqlite3.Connection, session: int, change: Compact, runs: Runs) -> Formers:
    """Add the rows and records to `runs`. Return the rows that they replace."""
    formers: Formers = []
    values = {"session": session, "first": change.first, "end": change.end}
    for row in connection.execute(_ROWS, values).fetchall():
        if row_crc(row[:9], row[9]) != row[10]:
            continue
        first, count, chunk, offset, size = row[1:6]
        found = connection.execute("SELECT substr(data, ?, ?) FROM chunks WHERE id = ?", (offset + 1, size, chunk))
        data = (found.fetchone() or (b"",))[0]
        places = _places(data, count)
        if places is None:
            continue
        at = bisect_left(change.kept, max(first, change.first))
        to = bisect_left(change.kept, min(first + count, change.end))
        try:
            bodies = [
                (each, opened(data, places[each - first], seed_of(chunk, offset + places[each - first])))
                for each in change.kept[at:to]
            ]
        except Damaged:
            continue
        formers.append((session, first, chunk))
        pieces = _Pieces(row, places, runs)
        before, behind = max(0, change.first - first), min(count, change.end - first)
        if before:
            pieces.add(0, before, (chunk, offset, places[before]))
        for number, body in bodies:
            pieces.add(number - first, 1, runs.copy(body))
        if behind < count:
            pieces.add(behind, count - behind, (chunk, offset + places[behind], size - places[behind]))
        pieces.end()
    return formers


def _places(data: bytes, count: int) -> list[int] | None:
    """Where the records of a row begin, and where the last one ends; None if their lengths do not lead there."""
    places = [0]
    while len(places) <= count and places[-1] < len(data):
        at = places[-1]
        places.append(at + PREFIX_BYTES + int.from_bytes(data[at + 4 : at + 8], "little"))
    return places if len(places) == count + 1 and places[-1] == len(data) else None


class _Pieces:
    """The rows that take the place of one. Each has a part of its size as memory is counted, as if all its messages
    took as much memory for a byte."""

    def __init__(self, row: tuple[Any, ...], places: list[int], runs: Runs) -> None:
        self._row: Final = row
        self._places: Final = places
        self._runs: Final = runs
        self._first = self._count = 0
        self._at = (0, 0, 0)

    def add(self, number: int, count: int, at: tuple[int, int, int]) -> None:
        """`count` messages, from the one with this number in the former row on, are now in a place of a chunk."""
        chunk, offset, size = self._at
        if self._count and number == self._first + self._count and at[:2] == (chunk, offset + size):
            self._count += count
            self._at = (chunk, offset, size + at[2])
            return
        self.end()
        self._first, self._count, self._at = number, count, at

    def end(self) -> None:
        """All messages are added."""
        if not self._count:
            return
        session, first, _, _, _, size, shape, memory_bytes, total, extra, _ = self._row
        places, behind = self._places, self._first + self._count
        earlier, later = (memory_bytes * places[each] // size for each in (self._first, behind))
        numbers = (session, first + self._first, self._count, *self._at, shape)
        sums = (later - earlier, total - memory_bytes + later)
        self._runs.rows.append((*numbers, extra, *sums, row_crc((*numbers, *sums), extra)))
        self._count = 0
