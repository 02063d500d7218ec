"""Reads the database: everything except waiting messages at the start of a broker, and pages of them later.

Invariant: a message is returned only if its row and its record match their checksums; a damaged one is reported to
`on_lost`.
"""

import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from mqttlite.core.changes import (
    Change,
    Enqueue,
    LatestNumber,
    SaveDelayed,
    SaveReceived,
    SaveReleased,
    SaveRetained,
    SaveSubscription,
    SaveWill,
    Stored,
)
from mqttlite.core.log_changes import Append, KeepFrom, LoadedOfLog, SaveDeadline, StoredLog
from mqttlite.core.message import Delivery, Message, StoredOrigin
from mqttlite.core.question import Entries
from mqttlite.core.retained.writer import Writer
from mqttlite.store.sqlite.files import is_damage
from mqttlite.store.sqlite.mirror import SessionMirror
from mqttlite.store.sqlite.records import (
    PREFIX_BYTES,
    Damaged,
    decode_delayed,
    decode_message,
    decode_record,
    decode_retained,
    decode_session,
    decode_subscription,
    decode_will,
    matching,
    opened,
    plausible_number,
    seed_of,
    wall_offset,
)
from mqttlite.store.sqlite.rests import Rests
from mqttlite.store.sqlite.runs import last_row, number_of, row_crc

LOAD_BATCH: Final = 1_000
"""The most changes in a batch of `load`."""

ROWS: Final = 1_000
"""The rows that a start fetches at a time."""

SENT_SPAN: Final = 4_000
"""The span of a session's messages that is read at a time to find the sent ones at a start."""

PAGE_BYTES: Final = 4 * 1_048_576
"""The most bytes in a page, as counted by the limits of queues, but at least one message: some milliseconds."""

ENTRY_ROWS: Final = 200
"""The most rows that are looked at for entries of a log: in a log with gaps, each may have one message."""

_AS_ONE_ROW: Final = (
    "SELECT json_group_array(json_array(0 + session, 0 + first, 0 + count, 0 + chunk, 0 + offset, 0 + size, "
    "0 + shape, 0 + bytes, 0 + total, CAST(extra AS TEXT), 0 + crc, length(CAST(data AS BLOB)))), "
    "CAST(group_concat(data, '') AS BLOB) FROM "
)
"""Returns a whole page as one row, because each fetched row takes Python's lock once. The sums convert blobs in damaged
rows to numbers, because JSON cannot hold blobs; the checksum then does not match. What is joined keeps its bytes, zeros
and all, in a database in UTF-8."""

_PAGE_SQL: Final = (
    f"{_AS_ONE_ROW}"
    "(SELECT queue.*, substr(chunks.data, offset + 1, size) AS data FROM queue LEFT JOIN chunks ON chunks.id = chunk "
    "WHERE session = :session AND first >= ifnull((SELECT max(first) FROM queue WHERE session = :session "
    "AND first <= :first), :first) AND first < :end AND total - bytes <= :bytes + ifnull((SELECT total - bytes "
    "FROM queue WHERE session = :session AND first + count > :first ORDER BY first LIMIT 1), 0) ORDER BY first)"
)

_ENTRIES_SQL: Final = (
    f"{_AS_ONE_ROW}(SELECT picked.*, substr(chunks.data, offset + 1, size) AS data FROM (SELECT *, "
    "sum(bytes) OVER (ORDER BY first) - bytes AS bytes_before, "
    "sum(messages) OVER (ORDER BY first) - messages AS messages_before FROM "
    "(SELECT *, first + count - max(first, :first) AS messages FROM queue WHERE session = :session AND first >= ifnull("
    "(SELECT max(first) FROM queue WHERE session = :session AND first <= :first), :first) AND first < :end "
    "AND first + count > :first ORDER BY first LIMIT :rows)) AS picked LEFT JOIN chunks ON chunks.id = chunk "
    "WHERE bytes_before <= :bytes AND messages_before < :count ORDER BY first)"
)
"""The rows of a log with gaps: as many as there may be messages, whatever their offsets."""

Page = list[Delivery | None]


class Reader:
    """`on_lost` gets a sentence for each record that cannot be read."""

    def __init__(self, connection: sqlite3.Connection, on_lost: Callable[[str], None]) -> None:
        self._connection: Final = connection
        self._on_lost: Final = on_lost
        self._rests: Final = Rests()

    def record(self, key: str) -> bytes | None:
        """The data of a feature's record; None if there is none, empty if it cannot be read."""
        found = self._connection.execute("SELECT id, data FROM queues WHERE name = ?", (key[1:],)).fetchone()
        try:
            return None if found is None else decode_record(found[1], found[0]).data
        except Damaged:
            return b""

    # ------------------------------------------------------------------ pages

    def page(self, key: str, first: int, count: int) -> Page:
        """Up to `count` messages of a session or log from a sequence on, fewer if they are long. None stands for a lost
        one."""
        found = number_of(self._connection, key)
        if found is None:
            return [None] * count
        return self._messages(found[0], first, count, wall_offset(), None)

    def _messages(
        self,
        session: int,
        first: int,
        count: int,
        offset: float,
        known: dict[tuple[int, int], Message] | None,
        wanted: dict[int, int] | None = None,
    ) -> Page:
        """Like `page`. With `wanted`, only messages with these sequences; None for the others. `known` has those that
        were read before, where many sessions have one, by their places."""
        end = first + count
        values = {"session": session, "first": first, "end": end, "bytes": PAGE_BYTES}
        rows_json, data = self._connection.execute(_PAGE_SQL, values).fetchone()
        page: Page = []
        data = data or b""
        at = 0
        last = first - 1
        for row in msgspec.json.decode(rows_json):
            last = row[1] if isinstance(row[1], int) else last
            length = row[11] or 0
            row_first, row_end = row[1], row[1] + row[2]
            if row_crc(tuple(row[:9]), row[9]) != row[10] or row_end <= first + len(page):
                at += length
                continue
            page += [None] * (row_first - first - len(page))  # a gap: lost rows
            self._read_run(page, row, first, end, data[at : at + length], offset, known, wanted)
            at += length
            if len(page) >= count:
                return page[:count]
        following = self._connection.execute(
            "SELECT min(first) FROM queue WHERE session = ? AND first > ? AND typeof(first) = 'integer'",
            (session, last),
        ).fetchone()[0]
        if following is None or following >= end:
            page += [None] * (count - len(page))
        elif not page:  # everything read is lost: return at least one entry, so that the next page advances
            page = [None] * max(1, following - first)
        return page

    def _read_run(
        self,
        page: Page,
        row: list[Any],
        first: int,
        end: int,
        data: bytes,
        offset: float,
        known: dict[tuple[int, int], Message] | None,
        wanted: dict[int, int] | None,
        starts: list[int] | None = None,
    ) -> None:
        """Add the wanted messages of a row. `starts` says where they begin if the row is damaged."""
        shape: int = row[6]
        numbers, _, name = str(row[9]).partition(" ")
        identifiers = tuple(map(int, numbers.split(","))) if numbers else ()
        origin = StoredOrigin(bytes.fromhex(name)) if name else None
        at, before = 0, len(page)
        for sequence in range(row[1], min(row[1] + row[2], end)):
            self._rests.after(1)
            start, at = at, at + PREFIX_BYTES + int.from_bytes(data[at + 4 : at + 8], "little")
            if sequence < first + len(page):
                continue
            if wanted is not None and sequence not in wanted:
                page.append(None)
                continue
            if starts is not None:
                if starts[sequence - row[1]] < 0:
                    page.append(None)
                    continue
                start = starts[sequence - row[1]]
            try:
                chunk, place = row[3], row[4] + start
                message = known.get((chunk, place)) if known is not None else None
                if message is None:
                    message = decode_message(opened(data, start, seed_of(chunk, place)), offset)
                    if known is not None:
                        known[chunk, place] = message
            except Damaged:
                if starts is None:
                    del page[before:]
                    self._read_run(page, row, first, end, data, offset, known, wanted, _starts(data, row))
                    return
                page.append(None)
                continue
            page.append(Delivery(message, shape & 3, shape & 4 != 0, identifiers, origin))

    def entries(self, key: str, first: int, end: int, count: int) -> Entries:
        """Implements `Store.entries`."""
        session = number_of(self._connection, key)
        if session is None:
            return Entries([], end)
        values = {
            "session": session[0],
            "first": first,
            "end": end,
            "count": count,
            "rows": min(count, ENTRY_ROWS),
            "bytes": PAGE_BYTES,
        }
        rows_json, data = self._connection.execute(_ENTRIES_SQL, values).fetchone()
        rows = msgspec.json.decode(rows_json)
        data, at = data or b"", 0
        found: list[tuple[int, Delivery]] = []
        following, offset = first, wall_offset()
        for row in rows:
            length = row[11] or 0
            if row_crc(tuple(row[:9]), row[9]) == row[10]:
                start = max(row[1], following)
                stop = min(row[1] + row[2], end, start + count - len(found))
                run: Page = []
                self._read_run(run, row, start, stop, data[at : at + length], offset, None, None)
                found += [(place, each) for place, each in enumerate(run, start) if each is not None]
                following = max(following, stop)
            elif isinstance(row[1], int):  # it is damaged: what it had is lost
                following = max(following, min(row[1] + 1, end))
            at += length
            if len(found) == count:
                break
        return Entries(found, max(following, first + 1) if rows else end)

    # ------------------------------------------------------------------ everything else

    def load(self) -> Iterator[list[Change]]:
        """Implements `Store.load`."""
        batch: list[Change] = []
        for changes in self._parts(wall_offset()):
            batch += changes
            while len(batch) >= LOAD_BATCH:
                yield batch[:LOAD_BATCH]
                del batch[:LOAD_BATCH]
        if batch:
            yield batch

    def _parts(self, offset: float) -> Iterator[list[Change]]:
        """Everything as lists, because a generator that yields single changes takes longer than decoding them."""
        connection = self._connection
        latest = plausible_number(connection.execute("SELECT message FROM commits").fetchone()[0])
        if latest:
            yield [LatestNumber(latest)]
        writers: dict[bytes, Writer] = {}
        retained = connection.execute("SELECT topic, data FROM retained ORDER BY topic")
        while rows := retained.fetchmany(ROWS):
            yield self._retained(rows, offset, writers)
        for number, data in connection.execute("SELECT number, data FROM delayed ORDER BY number"):
            try:
                message, due_at, client_id = decode_delayed(data, number, offset, writers)
                yield [SaveDelayed(number, message, due_at - offset, client_id)]
            except Damaged as error:
                self._on_lost(f"a delayed message: {error}")
        wills = _BySession(connection.execute("SELECT session, data FROM wills ORDER BY session"))
        subscriptions = _BySession(
            connection.execute(
                "SELECT session, data FROM subscriptions WHERE typeof(session) = 'integer' "
                "ORDER BY session, topic_filter"
            )
        )
        states = _BySession(connection.execute("SELECT session, head, data, crc FROM state ORDER BY session"))
        known: dict[tuple[int, int], Message] = {}
        # One statement for all sessions: most have no messages, and a statement for each takes half of the time.
        with_messages = {
            row[0]
            for row in connection.execute(
                "SELECT id FROM sessions WHERE EXISTS (SELECT 1 FROM queue WHERE session = id)"
            )
        }
        for number, client_id, data in connection.execute("SELECT id, client_id, data FROM sessions ORDER BY id"):
            try:
                saved = decode_session(data, number, offset)
                if saved.client_id != client_id:
                    raise Damaged("it has another client identifier")
            except Damaged as error:
                self._on_lost(f"the session of {client_id!r}, with all that is in it: {error}")
                continue
            changes: list[Change] = [saved]
            self._add_will(changes, client_id, number, wills.take(number), offset)
            self._add_subscriptions(changes, client_id, subscriptions.take(number))
            yield changes
            state = states.take(number)
            if state or number in with_messages:
                yield list(self._session(client_id, number, state, offset, known))
        yield from self._records(offset, known)

    def _retained(self, rows: list[tuple[Any, ...]], offset: float, writers: dict[bytes, Writer]) -> list[Change]:
        changes: list[Change] = []
        for topic, data in rows:
            try:
                message = decode_retained(data, offset, writers)
                if message.topic != topic:
                    raise Damaged("it has another topic")
                changes.append(SaveRetained(message))
            except Damaged as error:
                self._on_lost(f"a retained message of {topic!r}: {error}")
        return changes

    def _add_will(
        self, changes: list[Change], client_id: str, number: int, rows: list[tuple[Any, ...]], offset: float
    ) -> None:
        for row in rows:
            try:
                will, due_at = decode_will(row[1], number)
                changes.append(SaveWill(client_id, will, due_at - offset))
            except Damaged as error:
                self._on_lost(f"the will of {client_id!r}: {error}")

    def _add_subscriptions(self, changes: list[Change], client_id: str, rows: list[tuple[Any, ...]]) -> None:
        owner = client_id.encode()
        for row in rows:
            try:
                changes.append(SaveSubscription(client_id, decode_subscription(row[1], client_id, owner)))
            except Damaged as error:
                self._on_lost(f"a subscription of {client_id!r}: {error}")

    def _records(self, offset: float, known: dict[tuple[int, int], Message]) -> Iterator[list[Change]]:
        connection = self._connection
        states = _BySession(
            connection.execute(
                "SELECT session, head, data, crc FROM state WHERE session IN (SELECT id FROM queues) ORDER BY session"
            )
        )
        for number, name, data in connection.execute("SELECT id, name, data FROM queues ORDER BY id"):
            try:
                saved = decode_record(data, number)
                if saved.key[1:] != name:
                    raise Damaged("it has another name")
            except Damaged as error:
                self._on_lost(f"the record {name!r}, with all that is in it: {error}")
                continue
            yield [saved, *self._log(saved.key, number, states.take(number), offset, known)]

    def _session(
        self,
        client_id: str,
        number: int,
        states: list[tuple[Any, ...]],
        offset: float,
        known: dict[tuple[int, int], Message],
    ) -> Iterator[Change]:
        """The changes for a session's sent, waiting and released messages."""
        mirror = self._mirror(client_id, number, states)
        for sequence, delivery, packet_id in self._sent_of(mirror, offset, known):
            yield Enqueue(client_id, sequence, delivery, packet_id)
        first, count, size_bytes = self._waiting(mirror)
        if count or first > 0:
            yield Stored(client_id, first, count, size_bytes)
        for packet_id in mirror.released:
            yield SaveReleased(client_id, 0, packet_id)
        for packet_id in mirror.received:
            yield SaveReceived(client_id, packet_id)

    def _log(
        self,
        key: str,
        number: int,
        states: list[tuple[Any, ...]],
        offset: float,
        known: dict[tuple[int, int], Message],
    ) -> Iterator[LoadedOfLog]:
        """The changes for a log's taken and waiting messages, and what it keeps."""
        mirror = self._mirror(key, number, states)
        for sequence, delivery, mark in self._sent_of(mirror, offset, known):
            yield Append(key, sequence, delivery, mark)
        first, count, size_bytes = self._waiting(mirror)
        if mirror.floor >= 0:
            kept_bytes = max(0, mirror.total - size_bytes - self._size_before(mirror))
            yield KeepFrom(key, mirror.floor, kept_bytes)
        if count or first > 0:
            yield StoredLog(key, first, count, size_bytes)
        for sequence, due_at in mirror.due.items():
            yield SaveDeadline(key, sequence, due_at - offset)

    def _mirror(self, key: str, number: int, states: list[tuple[Any, ...]]) -> SessionMirror:
        mirror = SessionMirror(key, number)
        for state in states:
            try:
                mirror.load_state(*state[1:])
            except Damaged as error:
                self._on_lost(f"what {key!r} had acknowledged: {error}; it gets again what is there")
        last = last_row(self._connection, number)
        if last is not None:
            mirror.load_tail(*last)
        return mirror

    def _sent_of(
        self, mirror: SessionMirror, offset: float, known: dict[tuple[int, int], Message]
    ) -> Iterator[tuple[int, Delivery, int]]:
        """The readable sent or taken messages, with their sequences and packet identifiers or marks."""
        sent = self._sent(mirror.number, mirror.sent, offset, known)
        for sequence, packet_id in mirror.sent.items():
            delivery = sent.get(sequence)
            if delivery is None:
                self._on_lost(f"a message that was sent to {mirror.key!r} and not acknowledged")
            else:
                yield sequence, delivery, packet_id

    def _sent(
        self, number: int, wanted: dict[int, int], offset: float, known: dict[tuple[int, int], Message]
    ) -> dict[int, Delivery]:
        """The readable messages of a session with these sequences. Nearby ones are read together, because each read of
        a long row reads the whole row."""
        found: dict[int, Delivery] = {}
        sequences = deque(sorted(wanted))
        while sequences:
            first = sequences[0]
            page: Page = [None]
            try:
                page = self._messages(number, first, SENT_SPAN, offset, known, wanted)
            except sqlite3.DatabaseError as error:
                if not is_damage(error):
                    raise
            while sequences and sequences[0] < first + len(page):
                sequence = sequences.popleft()
                delivery = page[sequence - first]
                if delivery is not None:
                    found[sequence] = delivery
        return found

    def _waiting(self, mirror: SessionMirror) -> tuple[int, int, int]:
        """The sequence of the first waiting message, how many there are, and about their size in bytes."""
        first = mirror.head
        size = 0
        if mirror.tail > first:
            found = self._connection.execute(
                "SELECT first, count, bytes, total FROM queue WHERE session = ? AND first + count > ? "
                "AND typeof(first) = 'integer' ORDER BY first LIMIT 1",
                (mirror.number, first),
            ).fetchone()
            if found is not None:
                first = max(first, found[0])
                try:  # the first row may be partly sent: the rest counts proportionally
                    gone = found[2] * (first - found[0]) // found[1]
                    size = max(0, mirror.total - found[3] + found[2] - gone)
                except (TypeError, ZeroDivisionError):  # it is damaged
                    size = 0
        return first, max(0, mirror.tail - first), size

    def _size_before(self, mirror: SessionMirror) -> int:
        """The sum of sizes of all messages before the floor."""
        found = self._connection.execute(
            "SELECT total - bytes FROM queue WHERE session = ? AND first + count > ? AND typeof(first) = 'integer' "
            "ORDER BY first LIMIT 1",
            (mirror.number, mirror.floor),
        ).fetchone()
        return found[0] if found is not None and isinstance(found[0], int) else mirror.total


def _starts(data: bytes, row: list[Any]) -> list[int]:
    """Where each message of a damaged row begins; -1 for one that is not found.

    If the lengths do not lead to the end of the row, one of them is damaged. Then the messages are known that match
    their checksums without a gap from the beginning or to the end.
    """
    count: int = row[2]
    starts: list[int] = []
    at = 0
    while len(starts) < count and at < len(data):
        starts.append(at)
        at += PREFIX_BYTES + int.from_bytes(data[at + 4 : at + 8], "little")
    if at == len(data) and len(starts) == count:
        return starts
    starts = [-1] * count
    found = list(matching(data, row[3], row[4]))
    end = 0
    for number, (start, stop) in enumerate(found[:count]):
        if start != end:
            break
        starts[number], end = start, stop
    end = len(data)
    for number, (start, stop) in enumerate(reversed(found[-count:]), 1):
        if stop != end:
            break
        starts[-number] = end = start
    return starts


class _BySession:
    """Rows sorted by session, from which each session takes its own."""

    def __init__(self, rows: sqlite3.Cursor) -> None:
        self._cursor: Final = rows
        self._rows: list[tuple[Any, ...]] = rows.fetchmany(ROWS)
        self._at = 0

    def take(self, session: int) -> list[tuple[Any, ...]]:
        """The rows of a session. Rows of earlier sessions are orphans and are skipped."""
        if not self._rows or self._rows[self._at][0] > session:
            return []
        taken = []
        while self._rows:
            row = self._rows[self._at]
            if row[0] > session:
                break
            if row[0] == session:
                taken.append(row)
            self._at += 1
            if self._at == len(self._rows):
                self._rows = self._cursor.fetchmany(ROWS)
                self._at = 0
        return taken
