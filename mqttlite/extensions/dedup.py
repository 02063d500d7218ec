"""The ids that a queue or stream remembers of messages with a `dedup-id`, so that each is appended once.

Invariant: an id is recorded in the commit of its message, so after a crash the log has both or neither.
"""

import hashlib
from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.log_changes import RemoveRecord, SaveRecord
from mqttlite.core.message import NO_PROPERTIES, Message

DEDUP_ID: Final = "dedup-id"
"""The user property that names a message: with the same one it is appended once."""

DEDUP_BLOCKS: Final = 256
DEDUP_IDS_OF_BLOCK: Final = 128
"""How many ids a log remembers: 32,640 at least. For one more, the store gets up to 2 kB."""

ID_MEMORY_BYTES: Final = 160
"""The memory of an id that is remembered: its digest, its places in a dict and a list."""

DIGEST_BYTES: Final = 16
_NUMBER_BYTES: Final = 8
_DEDUP_ID: Final = DEDUP_ID.encode()


def digest_of(dedup_id: str) -> bytes:
    """What is remembered of an id, whatever its length."""
    return hashlib.blake2b(dedup_id.encode(), digest_size=DIGEST_BYTES).digest()


def digest_in(message: Message) -> bytes:
    """The digest of the first `dedup-id` of a message; empty for none."""
    raw = message.raw
    if raw is NO_PROPERTIES or (raw is not None and _DEDUP_ID not in raw.data):
        return b""
    for name, value in message.properties.user_properties:
        if name == DEDUP_ID:
            return digest_of(value)
    return b""


@final
class DedupWindow:
    """The latest ids of one log, at least all but one block of `DEDUP_BLOCKS`. They are kept in blocks, in a ring: for
    each new id the store gets its block again. `prefix` begins the names of its records; numbers follow."""

    __slots__ = ("_at", "_blocks", "_effects", "_latest", "_latest_block", "_next", "_prefix", "_seen")

    def __init__(self, prefix: str, effects: Effects) -> None:
        self._prefix: Final = prefix
        self._effects: Final = effects
        self._seen: Final[dict[bytes, None]] = {}
        self._blocks: Final[dict[int, bytearray]] = {}
        """As they are in the store: how many ids there were before the first one, and digests."""
        self._next: int = 0
        """How many ids there were before the next one."""
        self._latest: SaveRecord | None = None
        self._latest_block: int = -1
        self._at: int = 0
        """The latest record, its block, and its place in the changes of the commit to come, while it is there."""

    def __len__(self) -> int:
        return len(self._seen)

    def has(self, digest: bytes) -> bool:
        return digest in self._seen

    def add(self, digest: bytes) -> None:
        """Remember an id that it does not have, and record that."""
        number = self._next // DEDUP_IDS_OF_BLOCK % DEDUP_BLOCKS
        if self._next % DEDUP_IDS_OF_BLOCK == 0:
            self._forget(number)
            self._blocks[number] = bytearray(self._next.to_bytes(_NUMBER_BYTES, "big"))
        block = self._blocks[number]
        block += digest
        self._remember(digest)
        self._record(number, SaveRecord(f"{self._prefix}{number}", bytes(block)))
        self._next += 1

    def restore(self, number: int, data: bytes) -> None:
        """A block of the store. One that cannot be read is as if its ids were too old."""
        first = int.from_bytes(data[:_NUMBER_BYTES], "big")
        count, rest = divmod(len(data) - _NUMBER_BYTES, DIGEST_BYTES)
        if rest or not 0 < count <= DEDUP_IDS_OF_BLOCK or first % DEDUP_IDS_OF_BLOCK:
            return
        self._blocks[number] = bytearray(data)
        for digest in _digests(data):
            self._remember(digest)
        self._next = max(self._next, first + count)

    def delete(self) -> None:
        """The log is deleted."""
        for number in list(self._blocks):
            self._forget(number)
            self._effects.record(RemoveRecord(f"{self._prefix}{number}"))

    def _record(self, number: int, saved: SaveRecord) -> None:
        """Record a block, in the place of what the same commit has of it: it costs the store more than the id."""
        changes, at = self._effects.changes, self._at
        is_pending = number == self._latest_block and at < len(changes) and changes[at] is self._latest
        if is_pending:
            changes[at] = self._latest = saved
            return
        self._at = len(changes)
        self._latest, self._latest_block = saved, number
        self._effects.record(saved)

    def _remember(self, digest: bytes) -> None:
        self._seen[digest] = None
        self._effects.memory.used += ID_MEMORY_BYTES

    def _forget(self, number: int) -> None:
        for digest in _digests(bytes(self._blocks.pop(number, b""))):
            self._seen.pop(digest, None)
            self._effects.memory.used -= ID_MEMORY_BYTES


def _digests(block: bytes) -> list[bytes]:
    return [block[at : at + DIGEST_BYTES] for at in range(_NUMBER_BYTES, len(block), DIGEST_BYTES)]
