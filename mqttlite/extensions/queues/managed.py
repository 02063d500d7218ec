"""A queue with its options, origin, dead letters and visible state."""

from dataclasses import dataclass
from typing import Final

from mqttlite.extensions.queues.dead_letters import DeadLetters
from mqttlite.extensions.queues.idle import IdleEnd
from mqttlite.extensions.queues.options import QueueOptions
from mqttlite.extensions.queues.queue import Queue
from mqttlite.extensions.queues.records import Definition

SUBSCRIBER: Final = "subscriber"
"""The origin of a queue that a subscriber created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """The visible state of a queue. Counters start with the broker."""

    name: str
    filters: tuple[str, ...]
    paused: bool
    leaving: bool
    """Whether its messages move to another node, where the queue is."""
    origin: str
    depth: int
    waiting: int
    leased: int
    scheduled: int
    size_bytes: int
    oldest_age_s: float
    consumers: int
    pushed: bool
    dead_letters: int
    retained: int
    snapshots: int
    published: int
    duplicates: int
    """Messages with a `dedup-id` that it knew, so that they were not taken again."""
    refused: int
    filtered: int
    returned: int
    attempts: int
    redeliveries: int
    nacked_late: int
    ends: dict[str, int]
    failures: dict[str, int]
    dead_letters_total: int
    dead_letter_causes: dict[str, int]


class ManagedQueue:
    """`mount_point` is the prefix for topics in its filter, and `owner` the user: those of the subscriber that created
    it."""

    def __init__(
        self,
        options: QueueOptions,
        origin: str,
        mount_point: str,
        owner: str | None,
        made_us: int,
        queue: Queue,
        dead_letters: DeadLetters,
    ) -> None:
        self.options = options
        self.origin: Final = origin
        """Who created it: `config`, `admin` or `subscriber`."""
        self.mount_point: Final = mount_point
        self.owner: Final = owner
        self.made_us: Final = made_us
        """When it was created, in microseconds of Unix time; 0: not known."""
        self.queue: Final = queue
        self.dead_letters: Final = dead_letters
        self.push_stopped = ""
        """Why its push is stopped; empty if it is not."""
        self.idle: IdleEnd | None = None

    @property
    def is_leaving(self) -> bool:
        """Whether its messages move to another node, and it ends when it has none."""
        return self.queue.is_leaving

    @property
    def is_pushed(self) -> bool:
        """Whether its push is active."""
        return self.options.push is not None and not self.push_stopped

    def definition(self) -> bytes:
        """Its record in the store, without messages."""
        queue = self.queue
        return Definition(
            self.options,
            self.origin,
            queue.paused,
            self.mount_point,
            self.push_stopped,
            queue.leases.ack_ids.key,
            self.owner,
            self.made_us,
        ).encode()

    def state(self, consumers: int, now: float) -> QueueState:
        """Its visible state, with `consumers` connected consumers."""
        queue, dead_letters = self.queue, self.dead_letters
        contents = queue.contents
        return QueueState(
            name=self.options.name,
            filters=self.options.filters,
            paused=queue.paused,
            leaving=self.is_leaving,
            origin=self.origin,
            depth=contents.depth,
            waiting=contents.depth - queue.leased - queue.scheduled,
            leased=queue.leased,
            scheduled=queue.scheduled,
            size_bytes=contents.size_bytes,
            oldest_age_s=contents.oldest_age_s(now),
            consumers=consumers,
            pushed=self.options.push is not None,
            dead_letters=len(dead_letters),
            retained=contents.retention.count,
            snapshots=len(queue.seeking.holds),
            published=queue.counts.published,
            duplicates=queue.counts.duplicates,
            refused=queue.counts.refused,
            filtered=queue.counts.filtered,
            returned=queue.counts.returned,
            attempts=queue.counts.attempts,
            redeliveries=queue.counts.redeliveries,
            nacked_late=queue.counts.nacked_late,
            ends=dict(queue.counts.ends),
            failures=dict(queue.counts.causes),
            dead_letters_total=dead_letters.total,
            dead_letter_causes=dict(dead_letters.causes),
        )
