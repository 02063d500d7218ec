"""The stored records of queues, and their restoration after a restart.

Invariant: messages under way are restored in order of sequence, and before waiting ones.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from mqttlite.core.changes import QUEUE_MARK, Change, Due, Enqueue, Retain, SaveQueue, Stored
from mqttlite.extensions.queues.dead_letters import DeadLetters
from mqttlite.extensions.queues.deferred import DEFERRED_MARK
from mqttlite.extensions.queues.errors import QueueRecordError
from mqttlite.extensions.queues.limits import COMMIT_S
from mqttlite.extensions.queues.options import QueueOptions
from mqttlite.extensions.queues.queue import Queue
from mqttlite.extensions.queues.retention import BLOCK_MARK, SEEK_MARK
from mqttlite.extensions.queues.snapshots import SNAPSHOT_MARK

_QUEUE: Final = f"{QUEUE_MARK}$queue/"
_DEAD_LETTERS: Final = f"{QUEUE_MARK}$dlq/"


class Definition(msgspec.Struct, frozen=True):
    """The stored definition of a queue."""

    options: QueueOptions
    origin: str
    paused: bool = False
    mount_point: str = ""
    push_stopped: str = ""
    ack_key: bytes = b""
    """Of its `ack-id`s; empty in the record of an earlier version."""
    owner: str | None = None
    """The user of the subscriber that created it."""

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, change: SaveQueue) -> "Definition":
        """Raises `QueueRecordError`, because starting without the queue would lose its messages."""
        try:
            return msgspec.json.decode(change.data, type=cls)
        except msgspec.DecodeError as error:
            raise QueueRecordError(
                f"the options of {change.client_id.removeprefix(QUEUE_MARK)} cannot be used: {error}. Run the version "
                "of mqttlite that wrote them and delete the queue or change its options there, or restore a backup "
                "into another folder; nothing was changed"
            ) from None


class QueueRecord:
    """The stored changes of one queue."""

    def __init__(self, changes: Sequence[Change], sought: Sequence[SaveQueue]) -> None:
        first = changes[0]
        assert isinstance(first, SaveQueue), "a queue comes before its parts"
        self.definition: Final = Definition.decode(first)
        self._changes: Final = changes
        self._sought: Final = sought

    def fill(self, queue: Queue, latest: int) -> None:
        """Restore its messages and its retention. `latest` is the highest message number of the broker."""
        due = {change.sequence: change.due_at for change in self._changes if isinstance(change, Due)}
        sent = [change for change in self._changes if isinstance(change, Enqueue) and change.packet_id]
        for change in sorted(sent, key=lambda change: change.sequence):
            message = change.delivery.message
            at = due[change.sequence] + COMMIT_S if change.sequence in due else 0.0
            queue.restore_sent(change.sequence, message, change.packet_id, at)
        for each in self._changes:
            if isinstance(each, Stored):
                queue.contents.backlog.restore_stored(each.first, each.count, each.size_bytes)
            elif isinstance(each, Enqueue) and not each.packet_id:
                queue.contents.restore_waiting(each.sequence, each.delivery)
        self._fill_retention(queue)
        queue.contents.retention.latest = latest

    def _fill_retention(self, queue: Queue) -> None:
        retention, backlog = queue.contents.retention, queue.contents.backlog
        deferred: dict[int, bytes] = {}
        for each in self._sought:
            block = each.client_id.rpartition("/")[2]
            if each.client_id.startswith(BLOCK_MARK):
                retention.restore_block(int(block), each.data)
            elif each.client_id.startswith(DEFERRED_MARK):
                deferred[int(block)] = each.data
            else:
                retention.restore(each.data)
        for change in self._changes:
            if isinstance(change, Retain):
                retention.restore_floor(change.first, change.size_bytes)
        if retention.floor > backlog.end:  # after a purge only the floor tells the current sequence
            backlog.restore_stored(retention.floor, 0, 0)
        retention.look_ahead(backlog.first, backlog.end)
        for number, data in sorted(deferred.items()):
            queue.contents.deferred.restore(number, data)
        for key in queue.contents.deferred.keys:
            queue.contents.want_deferred(key)
        queue.seeking.recount()


class QueueRecords:
    """Collects the stored changes of all queues until they are complete."""

    def __init__(self) -> None:
        self._by_key: Final[dict[str, list[Change]]] = {}

    def add(self, change: Change) -> None:
        assert isinstance(change, SaveQueue | Enqueue | Stored | Due | Retain)
        self._by_key.setdefault(change.client_id, []).append(change)

    def queues(self) -> Iterator[QueueRecord]:
        """The record of each queue. Raises `QueueRecordError`."""
        sought = self._sought()
        for key, changes in self._by_key.items():
            if key.startswith(_QUEUE):
                yield QueueRecord(changes, sought.get(key.removeprefix(_QUEUE), ()))

    def orphans(self) -> Iterator[str]:
        """The keys of records whose queues were lost."""
        for name, records in self._sought().items():
            if f"{_QUEUE}{name}" not in self._by_key:
                yield from (each.client_id for each in records)

    def snapshots(self) -> Iterator[SaveQueue]:
        for key, (change, *_) in self._by_key.items():
            if key.startswith(SNAPSHOT_MARK):
                assert isinstance(change, SaveQueue)
                yield change

    def fill_dead_letters(self, name: str, dead_letters: DeadLetters) -> None:
        """Restore the dead letters of a queue, if there are any."""
        changes = self._by_key.get(f"{_DEAD_LETTERS}{name}")
        if changes is None:
            return
        dead_letters.restore_saved()
        for change in changes:
            if isinstance(change, Enqueue):
                dead_letters.restore(change.sequence, change.delivery.message)

    def _sought(self) -> dict[str, list[SaveQueue]]:
        """The retention records, by queue."""
        found: dict[str, list[SaveQueue]] = {}
        for changes in self._by_key.values():
            saved = changes[0]
            assert isinstance(saved, SaveQueue), "a queue comes before its parts"
            if saved.client_id.startswith((SEEK_MARK, BLOCK_MARK, DEFERRED_MARK)):
                found.setdefault(saved.client_id.split("/")[1], []).append(saved)
        return found
