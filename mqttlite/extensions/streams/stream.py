"""A stream: keeps the messages of its topics in partitions, by age and size.

Invariant: a message is recorded before its publisher is acknowledged, once, however many readers there are.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, final

from mqttlite.core.memory import ENTRY_BYTES
from mqttlite.core.message import Message, PublishBatch, RawProperties
from mqttlite.core.reasons import NOT_AUTHORIZED, QUEUE_FULL
from mqttlite.core.route.outlook import PlannedReceiver, planned_sink
from mqttlite.core.route.tally import ALONE, DROPPED, POLICY_REFUSES, QUEUED, Tally
from mqttlite.core.source import THE_PROGRAM, Source
from mqttlite.extensions.dedup import DedupWindow
from mqttlite.extensions.streams.context import SaveSegments, StreamContext
from mqttlite.extensions.streams.keys import cached_partitions
from mqttlite.extensions.streams.limits import (
    FEWEST_SEGMENTS,
    MAX_CACHED_KEYS,
    RESERVES,
    SEGMENTS,
    TAIL_BYTES,
    TAIL_MESSAGES,
    USUAL_SEGMENT_BYTES,
)
from mqttlite.extensions.streams.once import DEDUP, asked_with, has_acks
from mqttlite.extensions.streams.options import StreamOptions
from mqttlite.extensions.streams.partition import Partition
from mqttlite.log.segments import Segments
from mqttlite.topics.names import matches, shown

ORDERING_KEY: Final = "ordering-key"
"""The user property with the key of a message. Without it the topic is the key."""

_ACCEPT_WORK: Final = 12
"""What it takes to append a message: microseconds."""

_FOLLOWERS_PER_WORK_UNIT: Final = 2

_IS_THERE: Final = "it was appended before: its dedup-id is known"
_IN_STORE: Final = "it is kept, and read from $stream"
"""What `explain` says of a message."""


class AppendOutcome(NamedTuple):
    """What became of a message of an archive."""

    refusal: str
    """Why it was not taken; else empty."""
    is_known: bool
    """Whether it was there already."""


@final
class Stream:
    """A `Sink`."""

    def __init__(
        self,
        options: StreamOptions,
        context: StreamContext,
        save_segments: SaveSegments,
    ) -> None:
        name, partitions = options.name, options.partitions
        keep_s, keep_bytes = options.keep_s, options.keep_bytes
        self.name: Final = name
        self.topic: Final = f"$stream/{name}".encode()
        self.shown: Final = f"$stream/{name}"
        """Its name in the delivery log, in place of a client."""
        self._filters: Final = tuple(each.encode() for each in options.filters)
        self.keep_s: int = keep_s
        self.keep_bytes: int = keep_bytes
        self.last_value: Final = options.last_value
        self._keep_tombstones_us: Final = options.keep_tombstones_s * 1_000_000
        self.context: Final = context
        self._save_segments: Final = save_segments
        share = keep_bytes // partitions
        most_bytes = max(share // SEGMENTS, min(USUAL_SEGMENT_BYTES, share // FEWEST_SEGMENTS))
        most_us = keep_s * 1_000_000 // SEGMENTS
        self.partitions: Final = [
            Partition(name, number, context.effects, Segments(most_bytes, most_us), options.last_value)
            for number in range(partitions)
        ]
        self._partition_of: Final[Callable[[bytes], int]] = cached_partitions(partitions, MAX_CACHED_KEYS)
        self._turn = 0
        """The partition of the next message without a key."""
        self._tail_messages: Final = max(1, TAIL_MESSAGES // partitions)
        self._tail_bytes: Final = TAIL_BYTES // partitions
        self.size_bytes: int = 0
        """The size of all its messages."""
        self.readers: int = 0
        """How many subscriptions there are."""
        self.appended: int = 0
        self.refused: int = 0
        self.window: Final = DedupWindow(f"{DEDUP}{name}/", context.effects)
        self.duplicates: int = 0
        """How many messages were there already."""
        self.removed: int = 0
        """How many messages retention or compaction removed."""

    @property
    def messages(self) -> int:
        """How many messages it keeps."""
        return sum(each.count for each in self.partitions)

    def recount(self) -> None:
        """The partitions were restored: sum up their sizes."""
        self.size_bytes = sum([each.size_bytes for each in self.partitions])

    # ------------------------------------------------------------------ messages come in

    def prepare(self, messages: int) -> bool:
        """Implements `Sink`."""
        return True

    def has_room(self, message: Message, qos: int) -> bool:
        return True  # the oldest messages make room

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        """Implements `Sink`."""
        if self._is_too_large(message):
            return [planned_sink(self.shown, DROPPED, QUEUE_FULL, self._why_too_large(message))]
        if self.last_value and self.key_of(message) is None:
            return [planned_sink(self.shown, DROPPED, NOT_AUTHORIZED, self._needs_key)]
        if self.window.has(asked_with(message)[0]):
            return [planned_sink(self.shown, QUEUED, "", _IS_THERE)]
        return [planned_sink(self.shown, QUEUED, "", _IN_STORE)]

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        """Implements `Sink`: append the message, unless it is there."""
        self._accept(message, source, tally, ALONE)

    def _accept(self, message: Message, source: Source, tally: Tally, at: int) -> None:
        context = self.context
        effects = context.effects
        effects.work += _ACCEPT_WORK
        digest, acks = asked_with(message)
        if digest and self.window.has(digest):
            self._accept_again(message, tally)
            return
        if self.last_value and self.key_of(message) is None:
            self._refuse(self._needs_key, tally)
            return
        if not self._make_room(message):
            self.refused += 1
            tally.drop(QUEUE_FULL)
            if self._is_too_large(message):
                tally.code = POLICY_REFUSES
            else:
                tally.refuse(at)
            if effects.tracer is not None:
                detail = self._why_too_large(message)
                effects.tracer.on_dropped(message.trace, self.shown, message.topic, QUEUE_FULL, 1, detail)
            return
        if acks and not self._take_acks(message, source, acks, tally):
            return
        if digest:
            self.window.add(digest)
        tally.queued += 1
        self.appended += 1
        partition = self.partitions[self._choose(message)]
        self.size_bytes += ENTRY_BYTES + message.memory_bytes
        keeps = self.readers > 0 or not context.has_pages
        if partition.append(context.delivery_of(message), keeps, context.now_us):
            self._save_segments(partition.number)
            if self.last_value:
                context.look(self.name, partition.number)
        if context.has_pages and (len(partition.tail) > self._tail_messages or partition.tail_bytes > self._tail_bytes):
            partition.forget(1 + len(partition.tail) // 8)
        if message.trace and effects.tracer is not None:
            effects.tracer.on_queued(message.trace, self.shown, _IN_STORE, self.messages, 0)
        if partition.followers:
            self._wake(partition)

    def _accept_again(self, message: Message, tally: Tally) -> None:
        """A message that is there: its publisher is told so when it is on disk."""
        self.duplicates += 1
        tally.queued += 1
        tally.is_durable = True
        tracer = self.context.effects.tracer
        if message.trace and tracer is not None:
            waiting = max(1, self.messages)  # ids are remembered longer than messages
            tracer.on_queued(message.trace, self.shown, _IS_THERE, waiting, 0)

    def _take_acks(self, message: Message, source: Source, acks: list[str], tally: Tally) -> bool:
        """Finish what the publisher of a message has finished. Return whether that was right."""
        if message.topic == self.topic:
            refusal = self.context.take_acks(source, acks)
        else:
            refusal = f"acks: only a message to {self.shown} itself is appended together with them"
        if refusal:
            self._refuse(refusal, tally)
        return not refusal

    def _refuse(self, refusal: str, tally: Tally) -> None:
        self.refused += 1
        tally.drop(NOT_AUTHORIZED)
        tally.code, tally.refusal = POLICY_REFUSES, refusal

    @property
    def _needs_key(self) -> str:
        return f"{self.shown} keeps the last value of each key: the message needs the user property {ORDERING_KEY}"

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        """Implements `Sink`."""
        for at in range(batch.count):
            self._accept(batch.delivery(at, 0).message, source, tally, at)

    def takes_batches(self, topic: bytes, raw: RawProperties) -> bool:
        """Implements `Sink`: if none can be refused with a sentence. `acks` of a message are right or wrong for that
        one, and one without a topic may lack a key."""
        return not has_acks(raw) and not (self.last_value and topic == self.topic)

    def count_refused(self, messages: int) -> None:
        """Messages did not come here because of their topic's policy."""
        self.refused += messages

    def takes(self, topic: bytes) -> bool:
        """Whether a topic is one of its topics."""
        return any(matches(each, topic) for each in self._filters)

    def partition_of(self, topic: bytes) -> Partition:
        """Where the messages of a topic are that have no key of their own."""
        return self.partitions[self._partition_of(topic)]

    def append(self, partition: int, message: Message) -> AppendOutcome:
        """Append a message of an archive, unless it is there. If it has no key, it goes to this partition, modulo their
        number. It has to be of a topic of the stream: readers below a mount point trust in that."""
        if message.topic != self.topic and not self.takes(message.topic):
            return AppendOutcome(f"{shown(message.topic)} is no topic of the stream", False)
        self._turn = (partition - 1) % len(self.partitions)
        tally = Tally()
        duplicates = self.duplicates
        self.accept(message, THE_PROGRAM, tally)
        if tally.code < POLICY_REFUSES:
            return AppendOutcome("", self.duplicates > duplicates)
        return AppendOutcome(tally.refusal or f"there is no room for it: {self._why_too_large(message)}", False)

    def _choose(self, message: Message) -> int:
        """The partition of a message."""
        key = self.key_of(message)
        if key is not None:
            return self._partition_of(key)
        self._turn = (self._turn + 1) % len(self.partitions)
        return self._turn

    def key_of(self, message: Message) -> bytes | None:
        """The key of a message; None if it has none."""
        raw = message.raw
        if raw is None or ORDERING_KEY.encode() in raw.data:
            for name, value in message.properties.user_properties:
                if name == ORDERING_KEY:
                    return value.encode()
        return message.topic if message.topic != self.topic else None

    def _wake(self, partition: Partition) -> None:
        followers = list(partition.followers)
        partition.followers.clear()
        self.context.effects.work += len(followers) // _FOLLOWERS_PER_WORK_UNIT
        for each in followers:
            each.on_more(partition.number)

    # ------------------------------------------------------------------ retention

    def _is_too_large(self, message: Message) -> bool:
        return ENTRY_BYTES + message.memory_bytes > self.keep_bytes

    def _why_too_large(self, message: Message) -> str:
        return f"{ENTRY_BYTES + message.memory_bytes}/{self.keep_bytes} bytes"

    def _make_room(self, message: Message) -> bool:
        """Whether there is room for a message; the oldest segments make it."""
        size = ENTRY_BYTES + message.memory_bytes
        if size > self.keep_bytes:
            return False
        keep_bytes = self.keep_bytes
        if self.is_tombstone(message):
            keep_bytes += keep_bytes // RESERVES
        memory = self.context.effects.memory
        has_pages = self.context.has_pages
        while self.size_bytes + size > keep_bytes or (not has_pages and size > memory.room_for(self.size_bytes)):
            if self.last_value:
                self.look()
                return False
            oldest = self._oldest()
            if oldest is None:
                return False
            self._remove_segment(oldest)
        return True

    def _remove_segment(self, partition: Partition) -> None:
        before = partition.size_bytes
        self.removed += partition.remove_segment()
        self.size_bytes += partition.size_bytes - before

    def _oldest(self) -> Partition | None:
        """The partition with the oldest segment."""
        found: Partition | None = None
        for each in self.partitions:
            if each.end > each.first and (found is None or each.segments.oldest < found.segments.oldest):
                found = each
        return found

    def unfinished(self, positions: Sequence[int]) -> tuple[int, float]:
        """Of a reader at these offsets: when its oldest unfinished message was published at the earliest, in
        microseconds of Unix time (0: it has finished all), and which part of the time or room that the stream gives a
        message is left to it. What is kept for any time has all of it left."""
        oldest = 0
        for partition, position in zip(self.partitions, positions, strict=True):
            if position < partition.end and partition.first < partition.end:
                number = partition.segments.number_of(max(position, partition.first))
                oldest = min(oldest or number, number)
        if not oldest or self.last_value:
            return oldest, 1.0
        left = 1.0 - sum([each.segments.size_since(oldest) for each in self.partitions]) / self.keep_bytes
        if self.keep_s:
            left = min(left, 1.0 - (self.context.now_us - oldest) / (self.keep_s * 1_000_000))
        return oldest, min(1.0, max(0.0, left))

    def trim(self) -> None:
        """Remove the oldest messages while there are more than it keeps, as after a start with other options."""
        while self.size_bytes > self.keep_bytes and not self.last_value:
            oldest = self._oldest()
            if oldest is None:
                return
            self._remove_segment(oldest)

    def remove_old(self) -> None:
        """Remove the segments whose messages are all older than `keep_s`, or compact them."""
        if self.last_value:
            self.look()
        elif self.keep_s:
            for each in self.partitions:
                while each.segments.ends_before(self._cutoff):
                    self._remove_segment(each)

    @property
    def _cutoff(self) -> int:
        """Messages with lower numbers are older than `keep_s`."""
        return self.context.now_us - self.keep_s * 1_000_000 + 1

    # ------------------------------------------------------------------ the last values

    def look(self) -> None:
        """Compact what is due."""
        for each in self.partitions:
            self.context.look(self.name, each.number)

    def compacts_to(self, partition: Partition) -> int:
        """The offset before which a partition is to be compacted now; 0: it is not to be.

        That are its old segments, and if the stream is half full, all but the open one. It is worth a pass over all
        messages if they are a quarter of what is left of former ones, if there is no other room, or if they are twice
        as old as history is kept.
        """
        segments, clean = partition.segments, partition.clean
        if not len(segments):
            return 0
        end = segments.old_to(self._cutoff, partition.end) if self.keep_s else 0
        if self.size_bytes > self.keep_bytes // 2:
            end = max(end, segments.latest)
        if end <= clean:
            return clean if self._forgets(partition) else 0
        dirty = segments.size_between(clean, end)
        is_worth = dirty >= min(partition.clean_bytes // 4, self.keep_bytes - self.size_bytes)
        is_old = self.keep_s > 0 and segments.last_of(clean) < self._cutoff - self.keep_s * 1_000_000
        return end if is_worth or is_old else 0

    def _forgets(self, partition: Partition) -> bool:
        """Whether tombstones of a partition are older than they are kept, by a part of that time."""
        wait_us = self._keep_tombstones_us + self._keep_tombstones_us // 8
        return 0 < partition.tombstone_us < self.context.now_us - wait_us

    def is_tombstone(self, message: Message) -> bool:
        """Whether a message removes its key. It is told for `keep_tombstones_s`, whatever its own expiry is."""
        return self.last_value and not message.payload

    def may_forget(self, tombstone: Message) -> bool:
        """Whether a tombstone is old enough to be removed."""
        return tombstone.number <= self.context.now_us - self._keep_tombstones_us

    def on_compacted(
        self,
        partition: Partition,
        first: int,
        end: int,
        count: int,
        sizes: Mapping[int, tuple[int, int]],
        tombstone_us: int,
    ) -> None:
        """The messages of a partition before `end` are compacted; see `Partition.compact`."""
        size_before, count_before = partition.size_bytes, partition.count
        partition.compact(first, end, count, sizes, not self.context.has_pages)
        partition.tombstone_us = tombstone_us
        self.size_bytes += partition.size_bytes - size_before
        self.removed += count_before - partition.count
        self._save_segments(partition.number)
