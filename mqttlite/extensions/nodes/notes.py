"""The notes of a connection between two nodes, in their order.

Invariant: each note of the other node is read once, or the connection ends.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from mqttlite.extensions.nodes.blobs import (
    Adopt,
    Adopted,
    Ask,
    Begin,
    Bytes,
    Filters,
    Forget,
    Held,
    Leave,
    Moved,
    Note,
    Notes,
    Part,
    Reach,
    Reached,
    Settled,
    Spent,
    Still,
    Yours,
)

NOTE_BYTES: Final = 64
"""How large a note is at most, but for the bytes of a pipe or a request, and for what a client chooses."""

BLOB_BYTES: Final = 262_144
"""About how many bytes of notes are in one blob."""


class NoteBook:
    """`waiting_bytes` are not on their way yet."""

    def __init__(self) -> None:
        self.sent: int = 0
        """The number of the latest blob."""
        self._received = 0
        self.waiting_bytes: int = 0
        self._waiting: Final[deque[Note]] = deque()

    def begin(self) -> None:
        """A connection begins."""
        self.sent = self._received = 0
        self.waiting_bytes = 0
        self._waiting.clear()

    def put(self, note: Note) -> None:
        """Tell the other node something."""
        self._waiting.append(note)
        self.waiting_bytes += size_of(note)

    def take(self, node: str, connection: int) -> Iterable[Notes]:
        """All that waits."""
        while self._waiting:
            notes: list[Note] = []
            size = 0
            while self._waiting and size < BLOB_BYTES:
                note = self._waiting.popleft()
                size += size_of(note)
                notes.append(note)
            self.waiting_bytes -= size
            self.sent += 1
            yield Notes(node, connection, self.sent, notes)

    def is_next(self, number: int) -> bool:
        """Count a blob that came. False if one before it is missing."""
        self._received += 1
        return number == self._received

    def is_whole(self, number: int) -> bool:
        """Whether all blobs up to that number came."""
        return number == self._received


def size_of(note: Note) -> int:
    """How many bytes it takes at most."""
    if isinstance(note, Bytes | Part):
        return NOTE_BYTES + len(note.data)
    if isinstance(note, Moved):
        return NOTE_BYTES + 4 * len(note.client_id) + len(note.packet)
    if isinstance(note, Begin):
        return NOTE_BYTES + 4 * (len(note.client_id) + len(note.address) + len(note.verified_name or ""))
    if isinstance(note, Held):
        return NOTE_BYTES + 4 * (len(note.client_id) + len(note.username or ""))
    if isinstance(note, Still):
        return NOTE_BYTES + sum(NOTE_BYTES + 4 * len(each) for each in note.client_ids)
    if isinstance(note, Spent):
        return NOTE_BYTES + 4 * len(note.rate) + sum(NOTE_BYTES + 4 * len(name) for name, *_ in note.users)
    if isinstance(note, Reached):
        return NOTE_BYTES + 4 * len(note.refusal) + sum(NOTE_BYTES + len(each) for each in note.filters)
    if isinstance(note, Reach):
        return NOTE_BYTES + 4 * (len(note.client_id) + len(note.username or "")) + len(note.mount_point)
    if isinstance(note, Adopt):
        return NOTE_BYTES + 4 * (len(note.client_id) + len(note.username or "")) + len(note.mount_point)
    if isinstance(note, Filters):
        size = sum(NOTE_BYTES + len(each.topic_filter) + 4 * len(each.where) for each in note.filters)
        return NOTE_BYTES + 4 * len(note.client_id) + size
    if isinstance(note, Adopted):
        return NOTE_BYTES + 4 * (len(note.client_id) + len(note.refusal))
    return NOTE_BYTES + (4 * len(note.client_id) if isinstance(note, Ask | Forget | Leave | Settled | Yours) else 0)
