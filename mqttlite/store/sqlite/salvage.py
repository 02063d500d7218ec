"""Builds a new database from the readable parts of a damaged one, which is only read.

Each table is read forward up to the damage, and backward from its end to the damage; rows in between are lost. Rows
that match their checksum are copied; rows of queues without their messages are left out, so that a reader finds a gap.
Invariant: the new database gets its final name when it is complete; until then the damaged one keeps its name.
"""

import sqlite3
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from mqttlite.store.sqlite import files
from mqttlite.store.sqlite.mirror import SessionMirror
from mqttlite.store.sqlite.records import (
    Damaged,
    decode_delayed,
    decode_message,
    decode_queue,
    decode_session,
    decode_subscription,
    decode_will,
    opened,
)
from mqttlite.store.sqlite.runs import row_crc

Row = tuple[Any, ...]

BATCH: Final = 500
"""Rows that are written at a time."""


def _session(row: Row) -> Row:
    return row[0], decode_session(row[2], row[0], 0.0).client_id, row[2]


def _delivery_queue(row: Row) -> Row:
    return row[0], decode_queue(row[2], row[0]).client_id[1:], row[2]


def _subscription(row: Row) -> Row:
    return row[0], decode_subscription(row[2]).topic_filter, row[2]


def _will(row: Row) -> Row:
    return row[0], decode_will(row[2], row[0])[1], row[2]


def _state(row: Row) -> Row:
    SessionMirror("", row[0]).load_state(row[1], row[2], row[3])
    return row


def _retained(row: Row) -> Row:
    return decode_message(opened(row[1]), 0.0).topic, row[1]


def _delayed(row: Row) -> Row:
    _, due_at, _ = decode_delayed(row[2], row[0], 0.0)
    return row[0], due_at, row[2]


def _chunk(row: Row) -> Row:
    if not isinstance(row[1], bytes):
        raise Damaged("a chunk is of another type")
    return row


def _queue(row: Row) -> Row:
    if row_crc((*row[:7], row[8], row[9]), row[7]) != row[10]:
        raise Damaged("a row does not match its checksum")
    return row


_TABLES: Final[tuple[tuple[str, tuple[str, ...], Callable[[Row], Row]], ...]] = (
    ("sessions", ("id", "client_id", "data"), _session),
    ("queues", ("id", "name", "data"), _delivery_queue),
    ("ended", ("session",), lambda row: row),
    ("subscriptions", ("session", "topic_filter", "data"), _subscription),
    ("wills", ("session", "due_at", "data"), _will),
    ("state", ("session", "head", "data", "crc"), _state),
    ("retained", ("topic", "data"), _retained),
    ("delayed", ("number", "due_at", "data"), _delayed),
    ("chunks", ("id", "data"), _chunk),
    (
        "queue",
        ("session", "first", "count", "chunk", "offset", "size", "shape", "extra", "bytes", "total", "crc"),
        _queue,
    ),
)
"""Tables with their columns, and the function that returns the row to keep or raises `Damaged`. Keys are taken from
data with a checksum."""

_KEYS: Final = {"queue": 2, "subscriptions": 2}
"""The number of key columns of a table, if not one."""


def salvage(path: Path) -> list[str]:
    """Replace a database with its readable parts. Return sentences that say what was kept and lost."""
    unfinished = path.with_name(path.name + ".new")
    files.remove(unfinished)
    new = sqlite3.connect(unfinished, isolation_level=None)
    try:
        files.make_tables(new)
        new.execute("BEGIN")
        kept: list[str] = []
        lost: list[str] = []
        for table, columns, whole in _TABLES:
            count, bad, has_hole = _copy(path, new, table, columns, whole)
            kept.append(f"{count} rows of {table}")
            if bad:
                lost.append(f"{bad} rows of {table} that do not match their checksums")
            if has_hole:
                lost.append(f"a part of {table} that cannot be read")
        messages = _remove_orphans(new)
        if messages:
            lost.append(f"{messages} queued messages")
        new.execute("UPDATE commits SET number = ?, message = ?", _commits(path))
        new.execute("COMMIT")
    finally:
        new.close()
    return [
        f"the damaged database is kept as {files.replace(path, unfinished)}",
        f"recovered: {', '.join(kept)}",
        f"lost: {', '.join(lost) or 'nothing that is known'}",
    ]


def _open(damaged: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{damaged.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    connection.text_factory = files.lenient
    connection.execute("PRAGMA writable_schema = ON")  # then a damaged definition hides only its own table
    return connection


def _copy(
    damaged: Path, new: sqlite3.Connection, table: str, columns: tuple[str, ...], whole: Callable[[Row], Row]
) -> tuple[int, int, bool]:
    """Copy the rows of a table. Return how many were copied, how many are damaged, and whether others are
    unreadable."""
    names = ", ".join(columns)
    keys = _KEYS.get(table, 1)
    insert = f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({', '.join('?' * len(columns))})"
    count = bad = 0
    last: Row | None = None
    for backwards in (False, True):
        order = ", ".join(f"{key}{' DESC' * backwards}" for key in columns[:keys])
        holes: list[str] = []
        for row in _read(damaged, f"SELECT {names} FROM {table} ORDER BY {order}", holes):
            if backwards and last is not None and _is_known(row[:keys], last):
                break
            try:
                kept = whole(row)
            except (Damaged, ValueError, TypeError, KeyError, IndexError, OverflowError, struct.error):
                bad += 1
            else:
                count += new.execute(insert, kept).rowcount
            last = last if backwards else row[:keys]
        if not holes and not backwards:
            return count, bad, False
    return count, bad, True


def _read(damaged: Path, sql: str, holes: list[str]) -> Iterator[Row]:
    """Yield the rows up to the damage, and note the damage in `holes`."""
    try:
        connection = _open(damaged)
        try:
            yield from connection.execute(sql)
        finally:
            connection.close()
    except (sqlite3.Error, ValueError) as error:
        holes.append(str(error))


def _is_known(key: Row, last: Row) -> bool:
    """Whether a row was read in the forward pass."""
    try:
        return bool(key <= last)
    except TypeError:
        return False


def _remove_orphans(new: sqlite3.Connection) -> int:
    """Remove rows of `queue` without a session or without their messages. Return how many messages are lost."""
    new.execute(
        "DELETE FROM queue WHERE session NOT IN (SELECT id FROM sessions UNION SELECT id FROM queues "
        "UNION SELECT session FROM ended)"
    )
    (gone,) = new.execute(
        "SELECT ifnull(sum(count), 0) FROM queue WHERE chunk NOT IN (SELECT id FROM chunks)"
    ).fetchone()
    new.execute("DELETE FROM queue WHERE chunk NOT IN (SELECT id FROM chunks)")
    new.execute("DELETE FROM chunks WHERE id NOT IN (SELECT chunk FROM queue)")
    (gaps,) = new.execute(
        "SELECT ifnull(sum(gap), 0) FROM (SELECT first - lag(first + count) OVER (PARTITION BY session ORDER BY first) "
        "AS gap FROM queue WHERE first >= 0) WHERE gap > 0"
    ).fetchone()
    return int(max(gone, gaps))


def _commits(damaged: Path) -> tuple[int, int]:
    """The numbers of the latest commit and message, if readable."""
    try:
        connection = _open(damaged)
        try:
            number, message = connection.execute("SELECT number, message FROM commits").fetchone()
            return int(number), int(message)
        finally:
            connection.close()
    except (sqlite3.Error, TypeError, ValueError):
        return 0, 0
