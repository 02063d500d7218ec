"""The stored records of queues, and their restoration after a restart.

Invariant: messages under way are restored in order of sequence, and before waiting ones.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from mqttlite.core.log_changes import LOG_MARK, Append, KeepFrom, LoadedOfLog, SaveDeadline, SaveRecord, StoredLog
from mqttlite.extensions.queues.dead_letters import DeadLetters
from mqttlite.extensions.queues.deferred import DEFERRED_MARK
from mqttlite.extensions.queues.errors import QueueRecordError
from mqttlite.extensions.queues.limits import COMMIT_S
from mqttlite.extensions.queues.options import QueueOptions
from mqttlite.extensions.queues.queue import DEDUP_MARK, Queue
from mqttlite.extensions.queues.retention import BLOCK_MARK, SEEK_MARK
from mqttlite.extensions.queues.snapshots import SNAPSHOT_MARK

_QUEUE: Final = f"{LOG_MARK}$queue/"
_DEAD_LETTERS: Final = f"{LOG_MARK}$dlq/"

_LATEST_US: Final = 1 << 60
"""The year 38505: times as large can be told to other nodes."""


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
    made_us: Annotated[int, Meta(ge=0, le=_LATEST_US)] = 0
    """When it was created, in microseconds of Unix time; 0: by an earlier version."""

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, change: SaveRecord) -> "Definition":
        """Raises `QueueRecordError`, because starting without the queue would lose its messages."""
        try:
            return msgspec.json.decode(change.data, type=cls)
        except msgspec.DecodeError as error:
            raise QueueRecordError(
                f"the options of {change.key.removeprefix(LOG_MARK)} cannot be used: {error}. Run the version "
                "of mqttlite that wrote them and delete the queue or change its options there, or restore a backup "
                "into another folder; nothing was changed"
            ) from None


class QueueRecord:
    """The stored changes of one queue."""

    def __init__(self, changes: Sequence[LoadedOfLog], sought: Sequence[SaveRecord]) -> None:
        first = changes[0]
        assert isinstance(first, SaveRecord), "a queue comes before its parts"
        self.definition: Final = Definition.decode(first)
        self._changes: Final = changes
        self._sought: Final = sought

    def fill(self, queue: Queue, latest: int) -> None:
        """Restore its messages and its retention. `latest` is the highest message number of the broker."""
        due = {change.offset: change.due_at for change in self._changes if isinstance(change, SaveDeadline)}
        sent = [change for change in self._changes if isinstance(change, Append) and change.mark]
        for change in sorted(sent, key=lambda change: change.offset):
            message = change.delivery.message
            at = due[change.offset] + COMMIT_S if change.offset in due else 0.0
            queue.restore_sent(change.offset, message, change.mark, at)
        for each in self._changes:
            if isinstance(each, StoredLog):
                queue.contents.backlog.restore_stored(each.first, each.count, each.size_bytes)
            elif isinstance(each, Append) and not each.mark:
                queue.contents.restore_waiting(each.offset, each.delivery)
        self._fill_retention(queue)
        queue.contents.retention.latest = latest

    def _fill_retention(self, queue: Queue) -> None:
        retention, backlog = queue.contents.retention, queue.contents.backlog
        deferred: dict[int, bytes] = {}
        for each in self._sought:
            block = each.key.rpartition("/")[2]
            if each.key.startswith(BLOCK_MARK):
                retention.restore_block(int(block), each.data)
            elif each.key.startswith(DEFERRED_MARK):
                deferred[int(block)] = each.data
            elif each.key.startswith(DEDUP_MARK):
                queue.window().restore(int(block), each.data)
            else:
                retention.restore(each.data)
        for change in self._changes:
            if isinstance(change, KeepFrom):
                retention.restore_floor(change.offset, change.size_bytes)
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
        self._by_key: Final[dict[str, list[LoadedOfLog]]] = {}

    def add(self, change: LoadedOfLog) -> None:
        assert isinstance(change, SaveRecord | Append | StoredLog | SaveDeadline | KeepFrom)
        self._by_key.setdefault(change.key, []).append(change)

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
                yield from (each.key for each in records)

    def snapshots(self) -> Iterator[SaveRecord]:
        for key, (change, *_) in self._by_key.items():
            if key.startswith(SNAPSHOT_MARK):
                assert isinstance(change, SaveRecord)
                yield change

    def fill_dead_letters(self, name: str, dead_letters: DeadLetters) -> None:
        """Restore the dead letters of a queue, if there are any."""
        changes = self._by_key.get(f"{_DEAD_LETTERS}{name}")
        if changes is None:
            return
        dead_letters.restore_saved()
        for change in changes:
            if isinstance(change, Append):
                dead_letters.restore(change.offset, change.delivery.message)

    def _sought(self) -> dict[str, list[SaveRecord]]:
        """The retention records, by queue."""
        found: dict[str, list[SaveRecord]] = {}
        for changes in self._by_key.values():
            saved = changes[0]
            assert isinstance(saved, SaveRecord), "a queue comes before its parts"
            if saved.key.startswith((SEEK_MARK, BLOCK_MARK, DEFERRED_MARK, DEDUP_MARK)):
                found.setdefault(saved.key.split("/")[1], []).append(saved)
        return found
