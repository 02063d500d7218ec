"""Turns a list of changes into one transaction. Runs on the store's thread.

It first applies the changes to the mirrors of their sessions, without SQL; then each table gets one statement for all
rows. Invariant: after a failure the writer is discarded, and new mirrors are loaded from the database.
"""

import contextlib
import sqlite3
from collections.abc import Iterable
from typing import Final, assert_never

import msgspec

from mqttlite.core.changes import (
    Change,
    EndSession,
    Enqueue,
    LatestNumber,
    RemoveDelayed,
    RemoveReceived,
    RemoveReleased,
    RemoveRetained,
    RemoveSubscription,
    RemoveWill,
    SaveDelayed,
    SaveReceived,
    SaveReleased,
    SaveRetained,
    SaveSession,
    SaveSubscription,
    SaveWill,
    Sent,
    Settled,
    Stored,
)
from mqttlite.core.log_changes import (
    Append,
    Compact,
    Finish,
    KeepFrom,
    MoveHead,
    RemoveRecord,
    SaveDeadline,
    SaveRecord,
    StoredLog,
    Take,
)
from mqttlite.store.sqlite.compaction import compact
from mqttlite.store.sqlite.mirror import Row, SessionMirror
from mqttlite.store.sqlite.records import (
    Damaged,
    encode_delayed,
    encode_record,
    encode_retained,
    encode_session,
    encode_subscription,
    encode_will,
    plausible_number,
    wall_offset,
)
from mqttlite.store.sqlite.rests import Rests
from mqttlite.store.sqlite.runs import Runs, last_row, number_of
from mqttlite.store.sqlite.schema import IS_ALIVE
from mqttlite.store.sqlite.statements import BLOB, NUMBER, Inserter, delete, delete_pairs

SWEEP_ROWS: Final = 200
"""Rows of ended sessions deleted in one pass: some milliseconds."""

SETTLED_ROWS: Final = 200
"""Rows of one session or log deleted in one commit: a head may move over millions of messages at once."""

SETTLED_SWEEP_ROWS: Final = 20
"""The same for one pass: each row has up to a megabyte, and reads wait for a pass."""

_SESSIONS: Final = Inserter("sessions", NUMBER + NUMBER + BLOB)
_SUBSCRIPTIONS: Final = Inserter("subscriptions", NUMBER + BLOB + BLOB)
_WILLS: Final = Inserter("wills", NUMBER + NUMBER + BLOB)
_STATE: Final = Inserter("state", NUMBER * 4)
_CHUNKS: Final = Inserter("chunks", NUMBER + BLOB)
_QUEUE: Final = Inserter("queue", NUMBER * 11)
_RETAINED: Final = Inserter("retained", BLOB + BLOB)
_DELAYED: Final = Inserter("delayed", NUMBER + NUMBER + BLOB)
_RECORDS: Final = Inserter("queues", NUMBER + NUMBER + BLOB)
_ENDED: Final = Inserter("ended", NUMBER)


class Writer:
    """One for each opening of the database; `connection` is in autocommit mode."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection: Final = connection
        self._rests: Final = Rests()
        self._mirrors: dict[str, SessionMirror] = {}
        """By client identifier or key. Bounded by `limits.max_sessions`, and by the limits of the features that have
        records."""
        self.commits: int = 0
        """The number of the latest commit."""
        self._next_chunk, self._next_session, self.commits, latest = connection.execute(
            "SELECT ifnull((SELECT max(id) FROM chunks), 0) + 1, "
            "max(ifnull((SELECT max(id) FROM sessions), 0), ifnull((SELECT max(id) FROM queues), 0), "
            "ifnull((SELECT max(session) FROM ended), 0)) + 1, "
            "(SELECT number FROM commits), (SELECT message FROM commits)"
        ).fetchone()
        self._latest = plausible_number(latest)
        self._has_ended = connection.execute("SELECT 1 FROM ended LIMIT 1").fetchone() is not None
        """Whether messages of ended sessions are left."""
        self._unswept: dict[str, SessionMirror] = {}
        """Sessions with more settled rows than one commit deletes."""
        self.written_bytes: int = 0
        """About how much was written since the last checkpoint."""
        self._begin()

    def _begin(self) -> None:
        self._touched: list[SessionMirror] = []
        self._saved: dict[int, tuple[object, ...]] = {}
        self._records: dict[int, tuple[object, ...]] = {}
        self._gone: list[int] = []
        self._subscriptions: dict[tuple[int, bytes], tuple[object, ...] | None] = {}
        self._wills: dict[int, tuple[object, ...] | None] = {}
        self._delayed: dict[int, tuple[object, ...] | None] = {}
        self._retained: dict[bytes, tuple[bytes, bytes] | None] = {}
        self._compactions: list[tuple[SessionMirror, Compact]] = []
        self._offset = wall_offset()

    def commit(self, changes: Iterable[Change]) -> None:
        """Make the changes durable, all or none. Raises `sqlite3.Error`; the writer is unusable after that."""
        self._begin()
        mirrors = self._mirrors
        rests = self._rests
        for change in changes:
            rests.after(1)
            if isinstance(change, Enqueue):  # most are
                mirror = mirrors.get(change.client_id)
                if mirror is not None and mirror.touched:
                    mirror.enqueue(change.sequence, change.delivery, change.packet_id)
                    continue
            elif isinstance(change, Append):
                mirror = mirrors.get(change.key)
                if mirror is not None and mirror.touched:
                    mirror.family = change.family
                    mirror.enqueue(change.offset, change.delivery, change.mark)
                    continue
            self._apply(change)
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        self._write(connection)
        self.commits += 1
        connection.execute("UPDATE commits SET number = ?, message = ?", (self.commits, self._latest))
        connection.execute("COMMIT")

    @property
    def has_leftovers(self) -> bool:
        """Whether there are unneeded messages to delete."""
        return self._has_ended or bool(self._unswept)

    def sweep(self) -> None:
        """Delete a part of the unneeded messages."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        for mirror in list(self._unswept.values())[:1]:
            settled = self._settled_rows(mirror, SETTLED_SWEEP_ROWS)
            delete_pairs(connection, [(mirror.number, row.first) for row in settled])
            self._delete_chunks({row.chunk for row in settled})
        found = connection.execute(f"SELECT session, {IS_ALIVE} FROM ended LIMIT 1").fetchone()
        if found is not None:
            session, is_alive = found
            rows = connection.execute(
                "SELECT first, chunk FROM queue WHERE session = ? LIMIT ?", (session, 0 if is_alive else SWEEP_ROWS)
            ).fetchall()
            delete_pairs(connection, [(session, first) for first, _ in rows])
            self._delete_chunks({chunk for _, chunk in rows})
            if len(rows) < SWEEP_ROWS:
                connection.execute("DELETE FROM ended WHERE session = ?", (session,))
        self._has_ended = connection.execute("SELECT 1 FROM ended LIMIT 1").fetchone() is not None
        connection.execute("COMMIT")
        self.written_bytes += SWEEP_ROWS * 4_096

    # ------------------------------------------------------------------ changes

    def _apply(self, change: Change) -> None:
        if isinstance(change, Enqueue):
            mirror = self._mirror(change.client_id)
            if mirror is not None:
                mirror.enqueue(change.sequence, change.delivery, change.packet_id)
        elif isinstance(change, Settled):
            mirror = self._mirror(change.client_id)
            if mirror is not None:
                mirror.settle(change.sequence)
        elif isinstance(change, Sent):
            mirror = self._mirror(change.client_id)
            if mirror is not None:
                mirror.send(change.sequence, change.packet_id)
        elif isinstance(change, Append):
            mirror = self._mirror(change.key)
            if mirror is not None:
                mirror.family = change.family
                mirror.enqueue(change.offset, change.delivery, change.mark)
        elif isinstance(change, Finish):
            mirror = self._mirror(change.key)
            if mirror is not None:
                mirror.settle(change.offset)
        elif isinstance(change, Take):
            mirror = self._mirror(change.key)
            if mirror is not None:
                mirror.send(change.offset, change.mark)
        elif isinstance(change, (SaveDeadline, KeepFrom, MoveHead, Compact, SaveRecord, RemoveRecord, StoredLog)):
            self._apply_to_log(change)
        elif isinstance(change, SaveRetained):
            topic = change.message.topic
            self._retained[topic] = (topic, encode_retained(change.message, self._offset))
            self._latest = max(self._latest, change.message.number)
        elif isinstance(change, RemoveRetained):
            self._retained[change.topic] = None
        elif isinstance(change, SaveDelayed):
            due_at = change.due_at + self._offset
            data = encode_delayed(change.number, change.message, due_at, change.client_id, self._offset)
            self._delayed[change.number] = (change.number, due_at, data)
            self._latest = max(self._latest, change.message.number)
        elif isinstance(change, RemoveDelayed):
            self._delayed[change.number] = None
        elif isinstance(change, SaveSession):
            mirror = self._mirror(change.client_id) or self._new_mirror(change.client_id)
            self._saved[mirror.number] = (
                mirror.number,
                mirror.key,
                encode_session(change, mirror.number, self._offset),
            )
        elif isinstance(change, EndSession):
            self._end(change.client_id)
        elif isinstance(change, (Stored, LatestNumber)):
            raise TypeError(f"{type(change).__name__} says what a store has, and is nothing to commit")
        else:
            mirror = self._mirror(change.client_id)
            if mirror is not None:
                self._apply_to(mirror, change)

    def _apply_to(
        self,
        mirror: SessionMirror,
        change: SaveSubscription
        | RemoveSubscription
        | SaveWill
        | RemoveWill
        | SaveReleased
        | RemoveReleased
        | SaveReceived
        | RemoveReceived,
    ) -> None:
        number = mirror.number
        if isinstance(change, SaveReceived):
            mirror.received[change.packet_id] = None
            mirror.changed = True
        elif isinstance(change, RemoveReceived):
            mirror.received.pop(change.packet_id, None)
            mirror.changed = True
        elif isinstance(change, SaveReleased):
            mirror.settle(change.sequence)
            mirror.released[change.packet_id] = None
            mirror.changed = True
        elif isinstance(change, RemoveReleased):
            mirror.released.pop(change.packet_id, None)
            mirror.changed = True
        elif isinstance(change, SaveSubscription):
            topic_filter = change.subscription.topic_filter
            self._subscriptions[number, topic_filter] = (
                number,
                topic_filter,
                encode_subscription(change.subscription),
            )
        elif isinstance(change, RemoveSubscription):
            self._subscriptions[number, change.topic_filter] = None
        elif isinstance(change, SaveWill):
            due_at = change.due_at + self._offset
            self._wills[number] = (number, due_at, encode_will(change.will, number, due_at))
        elif isinstance(change, RemoveWill):
            self._wills[number] = None
        else:
            assert_never(change)

    def _apply_to_log(
        self, change: SaveDeadline | KeepFrom | MoveHead | Compact | SaveRecord | RemoveRecord | StoredLog
    ) -> None:
        if isinstance(change, SaveRecord):
            owner = self._mirror(change.key) or self._new_mirror(change.key)
            self._records[owner.number] = (owner.number, owner.key[1:], encode_record(change, owner.number))
            return
        if isinstance(change, RemoveRecord):
            self._end(change.key)
            return
        if isinstance(change, StoredLog):
            raise TypeError("StoredLog says what a store has, and is nothing to commit")
        mirror = self._mirror(change.key)
        if mirror is None:
            return
        if isinstance(change, SaveDeadline):
            if change.offset in mirror.sent:
                mirror.due[change.offset] = change.due_at + self._offset
                mirror.changed = True
        elif isinstance(change, KeepFrom):
            mirror.floor = change.offset
            mirror.changed = True
        elif isinstance(change, MoveHead):
            mirror.move_head(change.offset)
        elif isinstance(change, Compact):
            self._compactions.append((mirror, change))
        else:
            assert_never(change)

    def _new_mirror(self, key: str) -> SessionMirror:
        mirror = self._mirrors[key] = SessionMirror(key, self._next_session)
        self._next_session += 1
        mirror.touched = True
        self._touched.append(mirror)
        return mirror

    def _mirror(self, key: str) -> SessionMirror | None:
        """The mirror of a session or record; None if there is none."""
        mirror = self._mirrors.get(key) or self._load_mirror(key)
        if mirror is not None and not mirror.touched:
            mirror.touched = True
            self._touched.append(mirror)
        return mirror

    def _load_mirror(self, key: str) -> SessionMirror | None:
        connection = self._connection
        found = number_of(connection, key)
        if found is None or found[0] in self._gone:
            return None
        mirror = self._mirrors[key] = SessionMirror(key, found[0])
        state = connection.execute("SELECT head, data, crc FROM state WHERE session = ?", found).fetchone()
        if state is not None:
            with contextlib.suppress(Damaged):  # the reader has reported it
                mirror.load_state(*state)
        last = last_row(connection, mirror.number)
        if last is not None:
            mirror.load_tail(*last)
            first = connection.execute(
                "SELECT first FROM queue WHERE session = ? AND first + count > ? AND typeof(first) = 'integer' "
                "ORDER BY first LIMIT 1",
                (mirror.number, mirror.head),
            ).fetchone()
            if first is not None:
                mirror.head = max(mirror.head, first[0])
        return mirror

    def _end(self, key: str) -> None:
        mirror = self._mirror(key)
        if mirror is None:
            return
        del self._mirrors[key]
        number = mirror.number
        mirror.new.clear()
        mirror.passing.clear()
        mirror.changed = False
        self._unswept.pop(key, None)
        self._saved.pop(number, None)
        self._records.pop(number, None)
        self._gone.append(number)
        self._wills.pop(number, None)
        for subscription in [each for each in self._subscriptions if each[0] == number]:
            del self._subscriptions[subscription]

    # ------------------------------------------------------------------ rows

    def _write(self, connection: sqlite3.Connection) -> None:
        if self._gone:
            for table in ("wills", "state", "subscriptions"):
                delete(connection, table, "session", self._gone)
            for table in ("sessions", "queues"):
                delete(connection, table, "id", self._gone)
            _ENDED.run(connection, [(number,) for number in self._gone])
            self._has_ended = True
        if self._saved:
            _SESSIONS.run(connection, list(self._saved.values()))
        if self._records:
            _RECORDS.run(connection, list(self._records.values()))
        if self._subscriptions:
            self._write_subscriptions(connection)
        if self._wills:
            delete(connection, "wills", "session", [number for number, row in self._wills.items() if row is None])
            if wills := [row for row in self._wills.values() if row is not None]:
                _WILLS.run(connection, wills)
        if self._retained:
            self._write_retained(connection)
        if self._delayed:
            delete(connection, "delayed", "number", [number for number, row in self._delayed.items() if row is None])
            if delayed := [row for row in self._delayed.values() if row is not None]:
                _DELAYED.run(connection, delayed)
        if self._touched or self._compactions:
            self._write_messages(connection)
        self.written_bytes += 16_384

    def _write_subscriptions(self, connection: sqlite3.Connection) -> None:
        if removed := [key for key, row in self._subscriptions.items() if row is None]:
            connection.executemany("DELETE FROM subscriptions WHERE session = ? AND topic_filter = ?", removed)
        if saved := [row for row in self._subscriptions.values() if row is not None]:
            _SUBSCRIPTIONS.run(connection, saved)

    def _write_retained(self, connection: sqlite3.Connection) -> None:
        if removed := [(topic,) for topic, row in self._retained.items() if row is None]:
            connection.executemany("DELETE FROM retained WHERE topic = ?", removed)
        if saved := [row for row in self._retained.values() if row is not None]:
            _RETAINED.run(connection, saved)
            self.written_bytes += sum(len(data) for _, data in saved)

    def _write_messages(self, connection: sqlite3.Connection) -> None:
        runs = Runs(self._next_chunk, self._offset, self._rests)
        chunks = self._compact(connection, runs)
        runs.add(self._touched)
        self._next_chunk = runs.next_chunk
        self._latest = max(self._latest, runs.latest)
        if runs.chunks:
            _CHUNKS.run(connection, [(chunk.number, b"".join(chunk.records)) for chunk in runs.chunks])
        if runs.rows:
            _QUEUE.run(connection, runs.rows)
            self.written_bytes += sum(chunk.size for chunk in runs.chunks) + 100 * len(runs.rows)
        settled: list[tuple[int, int]] = []
        states = []
        for mirror in self._touched:
            if mirror.changed:
                for row in self._settled_rows(mirror, SETTLED_ROWS):
                    settled.append((mirror.number, row.first))
                    chunks.add(row.chunk)
                state = mirror.state()
                if state is not None:
                    states.append(state)
            self._rests.after(len(mirror.new))
            mirror.new.clear()
            mirror.passing.clear()
            mirror.touched = False
        if states:
            _STATE.run(connection, states)
        delete_pairs(connection, settled)
        self._delete_chunks(chunks)

    def _compact(self, connection: sqlite3.Connection, runs: Runs) -> set[int]:
        """Return the chunks that may not be needed any more."""
        chunks: set[int] = set()
        for mirror, change in self._compactions:
            formers = compact(connection, mirror.number, change, runs)
            mirror.forget_rows()
            delete_pairs(connection, [(session, first) for session, first, _ in formers])
            if runs.rows:
                _QUEUE.run(connection, runs.rows)
                runs.rows.clear()
            chunks.update(chunk for _, _, chunk in formers)
        return chunks

    def _settled_rows(self, mirror: SessionMirror, most: int) -> list[Row]:
        rows = mirror.take_settled(self._connection, most)
        if len(rows) == most:
            self._unswept[mirror.key] = mirror
        else:
            self._unswept.pop(mirror.key, None)
        return rows

    def _delete_chunks(self, chunks: set[int]) -> None:
        """Delete the chunks without rows."""
        if chunks:
            self._connection.execute(
                "DELETE FROM chunks WHERE id IN (SELECT value FROM json_each(?)) "
                "AND NOT EXISTS (SELECT 1 FROM queue WHERE queue.chunk = chunks.id)",
                (msgspec.json.encode(list(chunks)).decode(),),
            )
