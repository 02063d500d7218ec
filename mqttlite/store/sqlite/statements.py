"""Runs one statement for many rows, so that SQLite releases Python's lock once instead of once for each row.

The values of a block of rows are its parameters. A smaller rest, of any number of rows, is one JSON text with its
numbers and texts, and one blob with its blobs, of which the JSON has offsets and lengths: that takes three times as
long for a row, and needs no statement of its own for each number.
"""

import sqlite3
from collections.abc import Sequence
from typing import Final

import msgspec

NUMBER: Final = "n"
BLOB: Final = "b"

BLOCK_ROWS: Final = 200
"""2,200 parameters for the widest table; SQLite takes 32,766."""


class Inserter:
    """Inserts rows into one table, replacing rows with equal keys."""

    def __init__(self, table: str, columns: str) -> None:
        values = []
        at = 0
        for column in columns:
            if column == BLOB:
                values.append(f"substr(?1, json_extract(value, '$[{at}]'), json_extract(value, '$[{at + 1}]'))")
                at += 2
            else:
                values.append(f"json_extract(value, '$[{at}]')")
                at += 1
        self._columns: Final = columns
        row = f"({', '.join('?' * len(columns))})"
        self._one: Final = f"INSERT OR REPLACE INTO {table} VALUES {row}"
        self._block: Final = f"INSERT OR REPLACE INTO {table} VALUES {', '.join([row] * BLOCK_ROWS)}"
        self._sql: Final = f"INSERT OR REPLACE INTO {table} SELECT {', '.join(values)} FROM json_each(?2)"

    def run(self, connection: sqlite3.Connection, rows: Sequence[tuple[object, ...]]) -> None:
        """Insert the rows. Blobs are bytes, the other columns numbers or texts."""
        in_blocks = len(rows) - len(rows) % BLOCK_ROWS
        for at in range(0, in_blocks, BLOCK_ROWS):
            block = rows[at : at + BLOCK_ROWS]
            connection.execute(self._block, [value for row in block for value in row])
        self._insert_rest(connection, rows[in_blocks:])

    def _insert_rest(self, connection: sqlite3.Connection, rows: Sequence[tuple[object, ...]]) -> None:
        if not rows:
            return
        if len(rows) == 1:
            connection.execute(self._one, rows[0])
            return
        blobs: list[bytes] = []
        at = 1
        entries: Sequence[Sequence[object]] = rows
        if BLOB in self._columns:
            entries = []
            for row in rows:
                entry: list[object] = []
                for value in row:
                    if isinstance(value, bytes):
                        entry += (at, len(value))
                        blobs.append(value)
                        at += len(value)
                    else:
                        entry.append(value)
                entries.append(entry)
        connection.execute(self._sql, (b"".join(blobs), msgspec.json.encode(entries).decode()))


def delete(connection: sqlite3.Connection, table: str, key: str, values: Sequence[int]) -> None:
    """Delete the rows of a table whose key is one of these numbers."""
    if values:
        sql = f"DELETE FROM {table} WHERE {key} IN (SELECT value FROM json_each(?))"
        connection.execute(sql, (msgspec.json.encode(values).decode(),))


def delete_pairs(connection: sqlite3.Connection, rows: Sequence[tuple[int, int]]) -> None:
    """Delete the rows of `queue` with these sessions and first sequences."""
    if rows:
        connection.execute(
            "DELETE FROM queue WHERE (session, first) IN "
            "(SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))",
            (msgspec.json.encode(rows).decode(),),
        )
