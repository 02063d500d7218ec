"""Snapshots of queues: the unfinished messages of a queue at a time, to seek back to.

A snapshot has its own name. It ends with its queue, when it expires, or when its queue needs the room. Invariant: a
snapshot and the messages that it needs are in the store.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from mqttlite.core.deadlines import Deadlines
from mqttlite.core.effects import Effects
from mqttlite.core.log_changes import LOG_MARK, RemoveRecord, SaveRecord
from mqttlite.extensions.queues.expiry import Expiry
from mqttlite.extensions.queues.limits import LEAST_SNAPSHOT_S, MAX_SNAPSHOTS, SNAPSHOT_S
from mqttlite.extensions.queues.options import check_queue_name
from mqttlite.extensions.queues.queue import Queue
from mqttlite.extensions.queues.seeking import Position

SNAPSHOT_MARK: Final = f"{LOG_MARK}$snapshot/"

_log = logging.getLogger("mqttlite.queues")


class NoSuchSnapshot(LookupError):
    """There is no snapshot of that name."""


class SnapshotExists(ValueError):
    """There is a snapshot of that name."""


class SnapshotRefused(ValueError):
    """A snapshot cannot be created or used now."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Times are Unix times in seconds. `messages` is the number of unfinished messages."""

    name: str
    queue: str
    created_at: float
    expires_at: float
    messages: int
    first: int
    cutoff: int
    cutoff_end: int
    ended: tuple[tuple[int, int], ...]

    def position(self) -> Position:
        return Position(self.first, self.cutoff, self.cutoff_end, self.ended)


class Snapshots:
    """`find` returns a queue by name, or raises."""

    def __init__(
        self, effects: Effects, deadlines: Deadlines, wall_ahead_us: int, find: Callable[[str], Queue]
    ) -> None:
        self._effects: Final = effects
        self._deadlines: Final = deadlines
        self._wall_ahead_s: Final = wall_ahead_us / 1e6
        self._find: Final = find
        self._by_name: Final[dict[str, Snapshot]] = {}
        self._expiries: Final[dict[str, Expiry]] = {}
        self.on_gone: Callable[[str], None] = lambda name: None
        """Called when a snapshot was deleted, for whatever reason."""

    @property
    def _now(self) -> float:
        return self._wall_ahead_s + self._effects.now

    def of(self, queue: str = "") -> list[Snapshot]:
        """The snapshots of a queue, or all, sorted by name."""
        return [each for name, each in sorted(self._by_name.items()) if each.queue == queue or not queue]

    def get(self, name: str) -> Snapshot:
        """Raises `NoSuchSnapshot`."""
        snapshot = self._by_name.get(name)
        if snapshot is None:
            raise NoSuchSnapshot(f"there is no snapshot {name[:128]!r}")
        return snapshot

    def create(self, name: str, queue_name: str) -> Snapshot:
        """Snapshot the unfinished messages of a queue; later ones are kept too. Raises `NoSuchQueue`, `SnapshotExists`,
        `SnapshotRefused` and `ValueError`."""
        check_queue_name(name)
        queue = self._find(queue_name)
        if name in self._by_name:
            raise SnapshotExists(f"there is a snapshot {name} already")
        if len(self._by_name) >= MAX_SNAPSHOTS:
            raise SnapshotRefused(f"there are {MAX_SNAPSHOTS} snapshots, which is the limit: delete one")
        left = SNAPSHOT_S - queue.contents.oldest_age_s(self._effects.now)
        if left < LEAST_SNAPSHOT_S:
            raise SnapshotRefused(
                f"the oldest message of {queue_name} is so old that the snapshot would expire within an hour"
            )
        position = queue.seeking.position()
        snapshot = Snapshot(
            name=name,
            queue=queue_name,
            created_at=self._now,
            expires_at=self._now + left,
            messages=queue.contents.depth,
            first=position.first,
            cutoff=position.cutoff,
            cutoff_end=position.cutoff_end,
            ended=position.ended,
        )
        queue.seeking.hold(name, position.first)
        self._keep(snapshot)
        self._save(snapshot)
        return snapshot

    def expire_at(self, name: str, expires_at: float) -> Snapshot:
        """Change the expiry of a snapshot, at most `SNAPSHOT_S`. Raises `NoSuchSnapshot` and `SnapshotRefused`."""
        snapshot = self.get(name)
        if not self._now < expires_at <= snapshot.created_at + SNAPSHOT_S:
            raise SnapshotRefused(
                f"a snapshot is kept until a time that is to come, and for {SNAPSHOT_S / 86_400:g} days at most"
            )
        snapshot = msgspec.structs.replace(snapshot, expires_at=expires_at)
        self._deadlines.cancel(self._expiries.pop(name))
        self._keep(snapshot)
        self._save(snapshot)
        return snapshot

    def delete(self, name: str) -> None:
        """Raises `NoSuchSnapshot`."""
        queue_name = self.get(name).queue
        self._forget(name)
        self._find(queue_name).seeking.release(name)

    def on_lost(self, name: str) -> None:
        """Drop a snapshot whose queue no longer keeps the messages that it needs."""
        _log.warning("snapshot %s is dropped: its queue does not keep all of its messages any more", name)
        self._forget(name)

    def forget_queue(self, queue: str) -> None:
        """Drop the snapshots of a deleted queue."""
        for each in self.of(queue):
            self._forget(each.name)

    def _forget(self, name: str) -> None:
        if self._by_name.pop(name, None) is not None:
            self._deadlines.cancel(self._expiries.pop(name))
            self._effects.record(RemoveRecord(f"{SNAPSHOT_MARK}{name}"))
            self.on_gone(name)

    def restore(self, data: bytes) -> None:
        """Restore a snapshot, after its queue."""
        snapshot = msgspec.json.decode(data, type=Snapshot)
        self._find(snapshot.queue).seeking.holds[snapshot.name] = snapshot.first
        self._keep(snapshot)

    def _keep(self, snapshot: Snapshot) -> None:
        self._by_name[snapshot.name] = snapshot
        expiry = self._expiries[snapshot.name] = Expiry(partial(self.delete, snapshot.name))
        self._deadlines.arm(expiry, snapshot.expires_at - self._wall_ahead_s)

    def _save(self, snapshot: Snapshot) -> None:
        self._effects.record(SaveRecord(f"{SNAPSHOT_MARK}{snapshot.name}", msgspec.json.encode(snapshot)))
