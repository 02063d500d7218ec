"""A queue with what belongs to it: its options, who made it, its dead letters, and what can be seen of it."""

from dataclasses import dataclass
from typing import Final

from mqttlite.delivery.queues.dead_letters import DeadLetters
from mqttlite.delivery.queues.idle import IdleEnd
from mqttlite.delivery.queues.options import QueueOptions
from mqttlite.delivery.queues.queue import Queue
from mqttlite.delivery.queues.records import Definition


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """What can be seen of a queue now; the counts are since the broker started."""

    name: str
    filters: tuple[str, ...]
    paused: bool
    origin: str
    depth: int
    waiting: int
    leased: int
    scheduled: int
    size_bytes: int
    oldest_age_s: float
    consumers: int
    dead_letters: int
    retained: int
    snapshots: int
    published: int
    refused: int
    filtered: int
    returned: int
    attempts: int
    redeliveries: int
    ends: dict[str, int]
    failures: dict[str, int]
    dead_letters_total: int
    dead_letter_causes: dict[str, int]


class ManagedQueue:
    """`mount_point` is where the topics in its filter begin: that of the subscriber who made it."""

    def __init__(
        self, options: QueueOptions, origin: str, mount_point: str, queue: Queue, dead_letters: DeadLetters
    ) -> None:
        self.options = options
        self.origin: Final = origin
        """Who made it: `config`, `admin` or `subscriber`."""
        self.mount_point: Final = mount_point
        self.queue: Final = queue
        self.dead_letters: Final = dead_letters
        self.push_stopped = ""
        """Why its messages are not pushed any more; empty while they are."""
        self.idle: IdleEnd | None = None

    @property
    def is_pushed(self) -> bool:
        """Whether its messages are pushed now."""
        return self.options.push is not None and not self.push_stopped

    def definition(self) -> bytes:
        """What the store keeps of it beside its messages."""
        definition = Definition(self.options, self.origin, self.queue.paused, self.mount_point, self.push_stopped)
        return definition.encode()

    def state(self, consumers: int, now: float) -> QueueState:
        """What can be seen of it; `consumers` are connected."""
        queue, dead_letters = self.queue, self.dead_letters
        contents = queue.contents
        return QueueState(
            name=self.options.name,
            filters=self.options.filters,
            paused=queue.paused,
            origin=self.origin,
            depth=contents.depth,
            waiting=contents.depth - queue.leased - queue.scheduled,
            leased=queue.leased,
            scheduled=queue.scheduled,
            size_bytes=contents.size_bytes,
            oldest_age_s=contents.oldest_age_s(now),
            consumers=consumers,
            dead_letters=len(dead_letters),
            retained=contents.retention.count,
            snapshots=len(queue.seeking.holds),
            published=queue.counts.published,
            refused=queue.counts.refused,
            filtered=queue.counts.filtered,
            returned=queue.counts.returned,
            attempts=queue.counts.attempts,
            redeliveries=queue.counts.redeliveries,
            ends=dict(queue.counts.ends),
            failures=dict(queue.counts.causes),
            dead_letters_total=dead_letters.total,
            dead_letter_causes=dict(dead_letters.causes),
        )
