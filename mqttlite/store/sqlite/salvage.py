"""Builds a new database from the readable parts of a damaged one, which is only read.

Each table is read forward up to the damage, and backward from its end to the damage; rows in between are read from the
pages, whichever table they belong to. Rows that match their checksum are copied; rows of queues without their messages
are left out, so that a reader finds a gap.
Invariant: the new database gets its final name when it is complete; until then the damaged one keeps its name.
"""

import mmap
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from mqttlite.store.sqlite import files
from mqttlite.store.sqlite.header import HEADER_BYTES, page_size
from mqttlite.store.sqlite.mirror import SessionMirror
from mqttlite.store.sqlite.pages import KINDS, Cell, Pages
from mqttlite.store.sqlite.records import (
    Damaged,
    decode_delayed,
    decode_record,
    decode_retained,
    decode_session,
    decode_topic_filter,
    decode_will,
    matching,
)
from mqttlite.store.sqlite.runs import row_crc
from mqttlite.store.sqlite.schema import IS_ALIVE

Row = tuple[Any, ...]

NAMED: Final = 20
"""So many sessions with lost messages are named; the messages of others are counted."""


def _session(row: Row) -> Row:
    return row[0], decode_session(row[2], row[0], 0.0).client_id, row[2]


def _record(row: Row) -> Row:
    return row[0], decode_record(row[2], row[0]).key[1:], row[2]


def _subscription(row: Row) -> Row:
    return row[0], decode_topic_filter(row[2]), row[2]


def _will(row: Row) -> Row:
    return row[0], decode_will(row[2], row[0])[1], row[2]


def _state(row: Row) -> Row:
    SessionMirror("", row[0]).load_state(row[1], row[2], row[3])
    return row


def _retained(row: Row) -> Row:
    return decode_retained(row[1], 0.0, {}).topic, row[1]


def _delayed(row: Row) -> Row:
    _, due_at, _ = decode_delayed(row[2], row[0], 0.0, {})
    return row[0], due_at, row[2]


def _chunk(row: Row) -> Row:
    if not isinstance(row[1], bytes):
        raise Damaged("a chunk is of another type")
    return row


def _queue(row: Row) -> Row:
    if row_crc((*row[:7], row[8], row[9]), row[7]) != row[10]:
        raise Damaged("a row does not match its checksum")
    return row


class _Table(NamedTuple):
    name: str
    columns: tuple[str, ...]
    whole: Callable[[Row], Row]
    """Returns the row to keep, with keys from data that has a checksum, or raises `Damaged`."""
    keys: int = 1
    """How many of the columns are the key."""
    is_sealed: bool = True
    """Whether `whole` finds a row of another table damaged."""

    has_rowid: bool = True

    @property
    def insert(self) -> str:
        values = ", ".join("?" * len(self.columns))
        return f"INSERT OR IGNORE INTO {self.name} ({', '.join(self.columns)}) VALUES ({values})"


_Found = tuple[_Table, Row]

_TABLES: Final = (
    _Table("sessions", ("id", "client_id", "data"), _session),
    _Table("queues", ("id", "name", "data"), _record),
    _Table("ended", ("session",), lambda row: row, is_sealed=False),
    _Table("subscriptions", ("session", "topic_filter", "data"), _subscription, keys=2, has_rowid=False),
    _Table("wills", ("session", "due_at", "data"), _will),
    _Table("state", ("session", "head", "data", "crc"), _state),
    _Table("retained", ("topic", "data"), _retained, has_rowid=False),
    _Table("delayed", ("number", "due_at", "data"), _delayed),
    _Table("chunks", ("id", "data"), _chunk),
    _Table(
        "queue",
        ("session", "first", "count", "chunk", "offset", "size", "shape", "extra", "bytes", "total", "crc"),
        _queue,
        keys=2,
        has_rowid=False,
    ),
)


class Source(NamedTuple):
    """A damaged database, with what its journal has in addition."""

    path: Path
    former: Mapping[int, list[bytes]] = {}
    """Earlier images of pages whose last image is damaged, the latest first."""
    tail: Mapping[int, bytes] = {}
    """Pages of a last commit of which others are lost."""
    has_lost_pages: bool = False
    """Whether the journal had images of pages that are not known any more."""

    @property
    def is_torn(self) -> bool:
        return bool(self.former or self.tail or self.has_lost_pages)


def salvage(source: Source, path: Path, lost: list[str], acknowledged: int) -> list[str]:
    """Replace the database `path` with the readable rows of `source`. Return sentences that say what was kept and lost.

    `lost` is what is known to be lost; `acknowledged` is the number of the latest acknowledged commit, or less.
    """
    unfinished = path.with_name(path.name + ".new")
    files.remove(unfinished)
    unfinished.touch(0o600)
    new = sqlite3.connect(unfinished, isolation_level=None)
    try:
        files.make_tables(new)
        new.execute("BEGIN")
        lost = list(lost)
        holed: set[str] = set()
        for table in _TABLES:
            bad, has_hole = _copy(source.path, new, table)
            if bad:
                lost.append(f"{bad} rows of {table.name} that do not match their checksums")
            if has_hole:
                lost.append(f"a part of {table.name} that cannot be read")
            if bad or has_hole:
                holed.add(table.name)
        _copy_from_pages(source, new, holed)
        lost += _remove_orphans(new)
        number, message = _commits(source.path)
        new.execute("UPDATE commits SET number = ?, message = ?", (max(number, acknowledged), message))
        kept = [f"{_count(new, table.name)} rows of {table.name}" for table in _TABLES]
        new.execute("COMMIT")
    finally:
        new.close()
    return [
        f"the damaged database is kept as {files.replace(path, unfinished)}",
        f"recovered: {', '.join(kept)}",
        f"lost: {', '.join(lost) or 'nothing that is known'}",
    ]


def _count(new: sqlite3.Connection, table: str) -> int:
    (count,) = new.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(count)


def _open(damaged: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{damaged.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    connection.text_factory = files.lenient
    connection.execute("PRAGMA writable_schema = ON")  # then a damaged definition hides only its own table
    return connection


def _copy(damaged: Path, new: sqlite3.Connection, table: _Table) -> tuple[int, bool]:
    """Copy the rows of a table. Return how many are damaged, and whether others are unreadable."""
    names = ", ".join(table.columns)
    bad = 0
    last: Row | None = None
    for backwards in (False, True):
        order = ", ".join(f"{key}{' DESC' * backwards}" for key in table.columns[: table.keys])
        holes: list[str] = []
        for row in _read(damaged, f"SELECT {names} FROM {table.name} ORDER BY {order}", holes):
            if backwards and last is not None and _is_known(row[: table.keys], last):
                break
            kept = _whole(table, row)
            if kept is None:
                bad += 1
            else:
                new.execute(table.insert, kept)
            last = last if backwards else row[: table.keys]
        if not holes and not backwards:
            return bad, False
    return bad, True


def _whole(table: _Table, row: Row) -> Row | None:
    """The row to keep; None if it is damaged."""
    try:
        return table.whole(row)
    except (Damaged, ValueError, TypeError, KeyError, IndexError, OverflowError, struct.error):
        return None


def _copy_from_pages(source: Source, new: sqlite3.Connection, holed: set[str]) -> None:
    """Add the rows that no reader of a table finds, and those of earlier images of damaged pages."""
    if not source.path.exists() or not source.path.stat().st_size:
        return
    with open(source.path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        pages = Pages(data, page_size(data[:HEADER_BYTES]), source.tail)
        for page in source.tail.values():
            _add_newer(new, pages.cells_of(page))
        # A page at the wrong place may hide the rest of a table without an error.
        _add(new, pages.cells(), None if source.has_lost_pages or pages.knows_unused() else holed)
        trees = pages.children() | _roots(source.path)
        for number in trees:
            _add(new, pages.loose_cells(pages.page(number)), None)
        for number in trees.intersection(source.former):
            _add_former(pages, new, pages.page(number), source.former[number])


def _add(new: sqlite3.Connection, cells: Iterable[Cell | None], tables: set[str] | None) -> None:
    """Add the rows that their tables do not have: of these tables, or of all."""
    for cell in cells:
        found = None if cell is None else _found(cell)
        if found is not None and (tables is None or found[0].name in tables):
            _put(new, *found)


def _add_newer(new: sqlite3.Connection, cells: Iterable[Cell | None]) -> None:
    """Add the rows of a later commit, in place of earlier ones with the same keys. A chunk is never changed."""
    for cell in cells:
        found = None if cell is None else _found(cell)
        if found is not None and found[0].name == "chunks":
            _put(new, *found)
        elif found is not None:
            new.execute(found[0].insert.replace("IGNORE", "REPLACE", 1), found[1])


def _put(new: sqlite3.Connection, table: _Table, row: Row) -> None:
    """Add a row, unless it is there. Of two copies of a chunk, the one with more readable messages counts: SQLite
    follows a damaged link to the page of another row. An older chunk may have the same number, but not the length."""
    if new.execute(table.insert, row).rowcount or table.name != "chunks":
        return
    number, data = row
    ((known,),) = new.execute("SELECT data FROM chunks WHERE id = ?", (number,))
    if len(data) == len(known) and data != known and _messages(data, number) > _messages(known, number):
        new.execute("UPDATE chunks SET data = ? WHERE id = ?", (data, number))


def _messages(data: bytes, chunk: int) -> int:
    """How many messages of a chunk can be read."""
    return sum(1 for _ in matching(data, chunk, 0))


def _add_former(pages: Pages, new: sqlite3.Connection, last: bytes, earlier: list[bytes]) -> None:
    """Add rows of earlier images of a page where rows of the last one cannot be read. Other rows were removed since."""
    places = [None if cell is None else _found(cell) for cell in pages.cells_of(last)]
    if not places and last[0] not in KINDS:
        places = [None]
    gaps = []
    for at, place in enumerate(places):
        if place is None:
            before = next(filter(None, reversed(places[:at])), None)
            gaps.append((before, next(filter(None, places[at:]), None)))
    for page in earlier:
        for cell in pages.cells_of(page):
            found = None if cell is None else _found(cell)
            if found is not None and any(_is_between(found, *gap) for gap in gaps):
                new.execute(found[0].insert, found[1])


def _is_between(found: _Found, before: _Found | None, behind: _Found | None) -> bool:
    table, row = found
    return (before is None or (before[0] == table and before[1][: table.keys] < row[: table.keys])) and (
        behind is None or (behind[0] == table and row[: table.keys] < behind[1][: table.keys])
    )


def _found(cell: Cell) -> _Found | None:
    """The table to which a row belongs, and the row to keep: the one whose checksum it matches."""
    row = cell.values if cell.rowid is None else (cell.rowid, *cell.values[1:])
    for table in _TABLES:
        if table.is_sealed and table.has_rowid == (cell.rowid is not None) and len(row) == len(table.columns):
            kept = _whole(table, row)
            if kept == row:
                return table, kept
    return None


def _roots(damaged: Path) -> set[int]:
    """The first pages of all tables, as far as they can be read."""
    found = _read(damaged, "SELECT rootpage FROM sqlite_master", [])
    return {page for (page,) in found if isinstance(page, int)}


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


def _remove_orphans(new: sqlite3.Connection) -> list[str]:
    """Remove rows of `queue` without a session or without their messages. Return whose messages are lost."""
    new.execute(f"DELETE FROM ended WHERE {IS_ALIVE}")
    new.execute(
        "DELETE FROM queue WHERE session NOT IN (SELECT id FROM sessions UNION SELECT id FROM queues "
        "UNION SELECT session FROM ended)"
    )
    gone = _by_session(
        new, "SELECT session, sum(count) AS number FROM queue WHERE chunk NOT IN (SELECT id FROM chunks)"
    )
    new.execute("DELETE FROM queue WHERE chunk NOT IN (SELECT id FROM chunks)")
    new.execute("DELETE FROM chunks WHERE id NOT IN (SELECT chunk FROM queue)")
    # What is in front of the first waiting message (`head`) was acknowledged, or the reader names it.
    gaps = _by_session(
        new,
        "SELECT session, sum(gap) AS number FROM (SELECT queue.session AS session, first - max(ifnull(head, 0), "
        "ifnull(lag(first + count) OVER (PARTITION BY queue.session ORDER BY first), 0)) AS gap "
        "FROM queue LEFT JOIN state ON state.session = queue.session WHERE first >= 0) WHERE gap > 0",
    )
    lost = {name: max(gone.get(name, 0), gaps.get(name, 0)) for name in {**gone, **gaps}}
    named = [f"{count} queued messages of {name!r}" for name, count in list(lost.items())[:NAMED]]
    more = sum(list(lost.values())[NAMED:])
    return [*named, f"{more} queued messages of others"] if more else named


def _by_session(new: sqlite3.Connection, sql: str) -> dict[str, int]:
    """The numbers that a query has for each session, by its name. Of ended sessions nothing is missed."""
    return dict(
        new.execute(
            "SELECT ifnull(sessions.client_id, queues.name), number FROM "
            f"({sql} GROUP BY session) "
            "LEFT JOIN sessions ON sessions.id = session LEFT JOIN queues ON queues.id = session "
            "WHERE ifnull(sessions.client_id, queues.name) IS NOT NULL ORDER BY 1"
        )
    )


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
