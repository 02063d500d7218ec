"""Seek, and how far back a queue keeps ended messages.

A seek moves the first waiting message: forward, it skips messages, which count as acknowledged; backward, retained
messages wait again as if never delivered. Invariant: `published + returned` is the number of ended plus unfinished
messages.
"""

from collections.abc import Callable
from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.log_changes import MoveHead
from mqttlite.extensions.queues.contents import Contents
from mqttlite.extensions.queues.context import QueueContext
from mqttlite.extensions.queues.limits import WAY_PARTS
from mqttlite.extensions.queues.outcomes import PURGED
from mqttlite.log.ranges import Ranges

PASSED_OVER: Final = "a seek passed over it"

_LET_GO: Final = 1_024
"""How many messages may be kept longer than deferred ones need: releasing them costs a millisecond."""


@final
class Position:
    """The unfinished messages of a queue: all from `first` on, without those in `ended`, and without those with a
    number below `cutoff` before the sequence `cutoff_end`."""

    __slots__ = ("anew", "cutoff", "cutoff_end", "ended", "first")

    def __init__(
        self,
        first: int,
        cutoff: int,
        cutoff_end: int,
        ended: tuple[tuple[int, int], ...] = (),
        anew: bool = True,
    ) -> None:
        self.first: Final = first
        self.cutoff: Final = cutoff
        self.cutoff_end: Final = cutoff_end
        self.ended: Final = ended
        self.anew: Final = anew
        """Whether messages under way are delivered again even if no other message comes back."""


@final
class Seeking:
    """`on_lost` gets the name of a snapshot whose messages were dropped."""

    __slots__ = ("_contents", "_context", "_effects", "_on_lost", "holds")

    def __init__(self, contents: Contents, context: QueueContext, on_lost: Callable[[str], None]) -> None:
        self._contents: Final = contents
        self._context: Final = context
        self._effects: Final[Effects] = context.effects
        self._on_lost: Final = on_lost
        self.holds: Final[dict[str, int]] = {}
        """The first sequence needed by each snapshot."""

    # ------------------------------------------------------------------ what is kept

    def make_way(self, size: int) -> None:
        """Drop the oldest retained messages if there is no room for a message of this size."""
        contents = self._contents
        policy, retention = contents.policy, contents.retention
        while retention.count and (
            contents.depth + retention.count >= policy.max_messages
            or contents.size_bytes + retention.size_bytes + size > policy.max_bytes
            or retention.has_too_many_gone
        ):
            floor = retention.floor + max(1, (contents.backlog.first - retention.floor) // WAY_PARTS)
            if contents.deferred.count:
                floor = min(floor, contents.deferred.first)
                if floor <= retention.floor:
                    return
            self._set_floor(floor)

    def on_put(self, number: int) -> None:
        """A message with this number arrived: from time to time, drop messages that were retained for long enough."""
        contents = self._contents
        if contents.policy.retain_acked and contents.retention.mark(contents.backlog.end - 1, number, self._time_us):
            self.refresh()

    def refresh(self) -> None:
        """Keep exactly the messages that the policy and the snapshots need."""
        contents = self._contents
        retention = contents.retention
        keeps_acked = contents.policy.retain_acked
        deferred = contents.deferred
        if not keeps_acked and not self.holds and not deferred.count:
            if retention.floor >= 0:
                self._set_floor(-1)
            return
        if retention.floor < 0:
            self._keep_from(contents.first_open)
        wanted = contents.backlog.first
        if keeps_acked:
            wanted = min(wanted, retention.older_than(self._now_us - self._time_us))
        wanted = min([wanted, *self.holds.values()])
        if deferred.count:
            wanted = min(wanted, deferred.first)
        if wanted > retention.floor:
            self._set_floor(wanted)

    def keep_open(self) -> None:
        """Make the store keep all messages from the first unfinished one on."""
        if self._contents.retention.floor < 0:
            self._keep_from(self._contents.first_open)

    def let_go(self) -> None:
        """Fewer messages are deferred: from time to time, keep fewer for them."""
        deferred = self._contents.deferred
        if not deferred.count or deferred.first - self._contents.retention.floor >= _LET_GO:
            self.refresh()

    def hold(self, name: str, first: int) -> None:
        """Keep messages from sequence `first` on for a snapshot."""
        self.holds[name] = first
        self._keep_from(first)

    def release(self, name: str) -> None:
        """It does so no longer."""
        if self.holds.pop(name, None) is not None:
            self.refresh()

    @property
    def _time_us(self) -> int:
        return self._contents.policy.expiry_s * 1_000_000

    @property
    def _now_us(self) -> int:
        return self._context.wall_ahead_us + int(self._effects.now * 1e6)

    def _keep_from(self, first: int) -> None:
        """Keep messages from sequence `first` on when they end. Messages that ended before may be missing."""
        contents = self._contents
        retention = contents.retention
        floor = retention.floor if retention.floor >= 0 else contents.backlog.first
        if retention.floor >= 0 and first >= floor:
            return
        self._set_floor(first)
        at = first
        for sequence in self._open(first, floor):
            retention.add_gone(at, sequence)
            at = sequence + 1
        retention.add_gone(at, floor)
        self.recount()

    def _set_floor(self, floor: int) -> None:
        contents = self._contents
        contents.retention.set_floor(floor, contents.backlog.first, self._outstanding_from(floor))
        for name in [name for name, first in self.holds.items() if first < floor]:
            del self.holds[name]
            self._on_lost(name)

    def recount(self) -> None:
        """Recount the retained messages."""
        contents = self._contents
        contents.retention.recount(contents.backlog.first, self._outstanding_from(contents.retention.floor))

    def _outstanding_from(self, first: int) -> int:
        contents = self._contents
        outstanding = sum(sequence >= first for sequence in contents.deliveries.entries)
        return outstanding + contents.deferred.count_from(first) if contents.deferred.count else outstanding

    def _open(self, first: int, end: int) -> list[int]:
        """Which of these are under way or deferred, in order."""
        contents = self._contents
        found = [sequence for sequence in contents.deliveries.entries if first <= sequence < end]
        if contents.deferred.count:
            found += [sequence for sequence in contents.deferred.sequences() if first <= sequence < end]
        found.sort()
        return found

    def after_purge(self) -> None:
        """All messages were purged, including kept ones."""
        for name in list(self.holds):
            del self.holds[name]
            self._on_lost(name)
        self.refresh()

    # ------------------------------------------------------------------ seek

    def position(self) -> Position:
        """The current position of the queue."""
        contents = self._contents
        retention, head = contents.retention, contents.backlog.first
        first = at = contents.first_open
        ended = Ranges()
        for sequence in self._open(first, head):
            ended.add(at, sequence)
            at = sequence + 1
        ended.add(at, head)
        for holes in (retention.gone, retention.skipped):
            for low, high in holes.within(head, holes.end):
                ended.add(low, high)
        return Position(first, retention.cutoff, retention.cutoff_end, tuple(ended.within(first, ended.end)))

    def seek(self, to: Position) -> None:
        """Move the queue to a position, as far as it keeps the messages."""
        contents = self._contents
        retention, backlog = contents.retention, contents.backlog
        head, tail = backlog.first, backlog.end
        size_bytes = contents.size_bytes + retention.size_bytes
        before, passed = contents.depth, 0
        ended = Ranges(to.ended)
        for entry in list(contents.deliveries.entries.values()):
            is_older = entry.message.number < to.cutoff and entry.sequence < to.cutoff_end
            if is_older or entry.sequence < to.first or entry.sequence in ended:
                contents.end(entry, PURGED, PASSED_OVER, is_retained=True)
                passed += 1
        deferred = contents.deferred
        if deferred.count:
            over = [each for each in deferred.sequences() if each < to.first or each in ended]
            deferred.drop(over)
            contents.counts.ends[PURGED] += len(over)
            passed += len(over)
        is_retaining = contents.policy.retain_acked or bool(self.holds)  # else kept for other reasons
        first = max(to.first, retention.floor if is_retaining else head)
        if first < head and not to.anew and not self._has_retained(first, head):
            first = head
        if first != head or to.anew or retention.skipped:
            for entry in [entry for entry in contents.deliveries.entries.values() if entry.sequence >= first]:
                contents.give_back(entry)
            if deferred.count:
                deferred.drop([each for each in deferred.sequences() if each >= first])
            skipped = self._passed(head, first, ended, tail)
            contents.counts.ends[PURGED] += skipped
            passed += skipped
            if first < head:
                retention.epoch += 1
            retention.skip(ended.within(first, tail))
            self._effects.record(MoveHead(contents.key, first))
            contents.drop(backlog.jump(first, 0))
        low = min(first, deferred.first) if deferred.count else first
        is_late = bool(retention.late.within(low, tail))
        retention.cutoff, retention.cutoff_end = (to.cutoff, to.cutoff_end) if is_late else (0, 0)
        retention.look_ahead(first, tail)
        self.recount()
        kept = contents.depth + retention.count
        if first != head and kept:
            retention.size_bytes = size_bytes * retention.count // kept
            backlog.stored_bytes = size_bytes - retention.size_bytes
        contents.counts.returned += contents.depth + passed - before
        retention.save()
        self._after_seek()

    def _after_seek(self) -> None:
        """Store the deferred messages, and read those that have room."""
        deferred = self._contents.deferred
        deferred.flush()
        for key in deferred.keys:
            self._contents.want_deferred(key)
        self.refresh()

    def _has_retained(self, first: int, head: int) -> bool:
        ended = head - first - self._outstanding_from(first)
        return ended > self._contents.retention.gone.count(first, head)

    def _passed(self, head: int, first: int, ended: Ranges, tail: int) -> int:
        """How many waiting messages the seek skips."""
        retention = self._contents.retention
        passed = max(0, first - head) - retention.holes(head, max(head, first))
        for low, high in ended.within(max(head, first), tail):
            passed += high - low - retention.holes(low, high)
        return passed
