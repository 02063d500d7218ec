"""The writer's in-memory image of one session or log: the range of waiting messages, and the sent or taken ones.

A mirror is loaded from the database when a session is first used, and discarded when a commit fails. Invariant: after a
commit it equals the database.
"""

import sqlite3
import zlib
from bisect import bisect_left
from typing import Final

import msgspec

from mqttlite.core.message import Delivery
from mqttlite.store.sqlite.records import Damaged

LOWEST: Final = -(1 << 62)
"""Below all sequences."""


class Row:
    """A row of `queue` with sent messages."""

    __slots__ = ("chunk", "end", "first")

    def __init__(self, first: int, end: int, chunk: int) -> None:
        self.first: Final = first
        self.end: Final = end
        self.chunk: Final = chunk


class SessionMirror:
    __slots__ = (
        "_state",
        "changed",
        "due",
        "family",
        "floor",
        "head",
        "key",
        "mirrored",
        "new",
        "number",
        "passing",
        "received",
        "released",
        "rows",
        "sent",
        "stored_end",
        "tail",
        "total",
        "touched",
    )

    def __init__(self, key: str, number: int) -> None:
        self.key: Final = key
        """The client identifier, or the key of the record."""
        self.family: str = ""
        """Of the log, as the latest `Append` says; empty for a session."""
        self.number: Final = number
        self.head: int = 0
        """The sequence of the first waiting message."""
        self.tail: int = 0
        """The sequence after the last waiting message."""
        self.total: int = 0
        """The sum of sizes of all messages ever queued for the session."""
        self.sent: dict[int, int] = {}
        """The packet identifiers of sent, unacknowledged messages, by sequence, in the order of sending; of a log the
        marks of taken ones."""
        self.due: dict[int, float] = {}
        """The deadlines of sent messages by sequence, in Unix time; only for logs."""
        self.floor: int = -1
        """From this sequence on, rows with settled messages are kept; -1: none are. Only for logs."""
        self.released: dict[int, None] = {}
        self.received: dict[int, None] = {}
        self.rows: list[Row] = []
        """The rows with sent messages, up to `mirrored`."""
        self.mirrored: int = LOWEST
        """The sequence up to which all rows are in `rows`."""
        self.stored_end: int = LOWEST
        """The sequence after the last row."""
        self.new: dict[int, Delivery] = {}
        """The messages that the current commit adds, by sequence."""
        self.passing: dict[int, None] = {}
        """Those of them that did not wait."""
        self.changed: bool = False
        """Whether the current commit changes the state."""
        self.touched: bool = False
        self._state = ""

    def enqueue(self, sequence: int, delivery: Delivery, packet_id: int) -> None:
        self.new[sequence] = delivery
        if packet_id:
            self.passing[sequence] = None
            self.sent[sequence] = packet_id
            self.changed = True
            if sequence >= 0:
                self.head = self.tail = sequence + 1
            return
        if self.head == self.tail:
            self.head = sequence
        self.tail = sequence + 1

    def send(self, sequence: int, packet_id: int) -> None:
        self.sent[sequence] = packet_id
        self.due.pop(sequence, None)
        if sequence >= self.head:  # lower: it is taken again
            self.head = sequence + 1
        self.changed = True

    def move_head(self, first: int) -> None:
        for sequence in [sequence for sequence in self.sent if sequence >= first]:
            del self.sent[sequence]
            self.due.pop(sequence, None)
        self.head = first
        self.tail = max(self.tail, first)
        self.changed = True

    def forget_rows(self) -> None:
        """The rows of its waiting messages become others."""
        self.rows = []
        self.mirrored = LOWEST
        self.changed = True

    def settle(self, sequence: int) -> None:
        self.due.pop(sequence, None)
        if self.sent.pop(sequence, None) is None:
            if sequence != self.head or self.head == self.tail:
                return
            self.head += 1
        if not 0 <= self.floor <= sequence:
            self.new.pop(sequence, None)
        self.changed = True

    def state(self) -> tuple[int, int, str, int] | None:
        """The row for `state`; None if it is unchanged."""
        self.changed = False
        runs: list[list[int]] = []
        for sequence, packet_id in self.sent.items():
            if runs:
                last = runs[-1]
                if sequence == last[0] + last[2] and packet_id == last[1] + last[2]:
                    last[2] += 1
                    continue
            runs.append([sequence, packet_id, 1])
        parts: list[object] = [runs, list(self.released), list(self.received)]
        if self.due or self.floor >= 0:
            parts.append(list(self.due.items()))
        if self.floor >= 0:
            parts.append(self.floor)
        data = msgspec.json.encode(parts).decode()
        key = f"{self.number} {self.head} {data}"
        if key == self._state:
            return None
        self._state = key
        return self.number, self.head, data, zlib.crc32(key.encode())

    def load_state(self, head: object, data: object, crc: object) -> None:
        """Load a row of `state`. Raises `Damaged`."""
        key = f"{self.number} {head} {data}"
        if not isinstance(head, int) or not isinstance(data, str) or zlib.crc32(key.encode()) != crc:
            raise Damaged("the state of a session does not match its checksum")
        self._state = key
        self.head = self.tail = head
        runs, released, received, *more = msgspec.json.decode(data)
        if more:
            self.due = dict(more[0])
        if len(more) > 1:
            self.floor = more[1]
        for sequence, packet_id, count in runs:
            for at in range(count):
                self.sent[sequence + at] = packet_id + at
        self.released = dict.fromkeys(released)
        self.received = dict.fromkeys(received)

    def load_tail(self, end: int, total: int) -> None:
        """Set the end and the total of the last row."""
        self.stored_end = end
        self.total = total
        self.tail = max(self.tail, end)

    def add_row(self, first: int, end: int, chunk: int) -> None:
        """Note a row that the current commit writes."""
        if first < 0:
            self.rows.append(Row(first, end, chunk))
            return
        if first < self._needless_end and self.mirrored >= self.stored_end:
            self.rows.append(Row(first, end, chunk))
            self.mirrored = end
        self.stored_end = end
        self.tail = max(self.tail, end)

    @property
    def _needless_end(self) -> int:
        """Rows that end here or before are only needed for their sent messages."""
        return min(self.head, self.floor) if self.floor >= 0 else self.head

    def take_settled(self, connection: sqlite3.Connection, most: int) -> list[Row]:
        """Remove and return up to `most` rows without needed messages."""
        end = self._needless_end
        if self.mirrored < end and self.mirrored < self.stored_end:
            self._mirror(connection, end)
        live = sorted(self.sent)
        settled: list[Row] = []
        kept: list[Row] = []
        for row in self.rows:
            is_live = row.end > end or len(settled) >= most
            if not is_live and live:
                at = bisect_left(live, row.first)
                is_live = at < len(live) and live[at] < row.end
            (kept if is_live else settled).append(row)
        self.rows = kept
        return settled

    def _mirror(self, connection: sqlite3.Connection, end: int) -> None:
        found = connection.execute(
            "SELECT json_group_array(json_array(first, count, chunk)) FROM "
            "(SELECT first, count, chunk FROM queue WHERE session = ? AND first >= ? AND first < ? ORDER BY first)",
            (self.number, self.mirrored, end),
        ).fetchone()
        self.mirrored = end
        for first, count, chunk in msgspec.json.decode(found[0]):
            self.rows.append(Row(first, first + count, chunk))
            self.mirrored = max(self.mirrored, first + count)
