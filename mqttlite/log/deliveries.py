"""The entries of a log that are under way for a shared cursor: taken by it, and not ended. A queue has such a cursor,
and so has a shared group of a stream.

Pure: time is a number, nothing is sent or stored here. Invariants: a message is in one state; of the messages with the
same ordering key only the first is ready, leased or scheduled, the others are blocked; no message is due before its
time; no lease ends for its time before its consumer could get the message.
"""

import heapq
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar, final

M = TypeVar("M")
"""A message."""

READY: Final = 0
BLOCKED: Final = 1
LEASED: Final = 2
SCHEDULED: Final = 3
DONE: Final = 4
STATES: Final = ("ready", "blocked", "leased", "scheduled", "done")
"""The states of a message: deliverable; waiting for an earlier one with its ordering key; held by a consumer until its
deadline; waiting for its next attempt; ended."""

ARRIVAL_S: Final = 0.01
"""How much longer a lease is than its deadline: what is written takes a moment until the consumer has read it, and for
the consumer its deadline begins then."""

JITTER: Final = 0.1
"""The random part added to a back-off, so that messages that failed together are not retried together."""


class Holder(Protocol):
    """What must learn that an attempt is over."""

    def on_over(self) -> None: ...


@final
class Entry(Generic[M]):
    """A message under way. `sequence` is its number in the queue."""

    __slots__ = (
        "attempts",
        "commit_number",
        "consumer",
        "due_at",
        "due_is_stored",
        "first_at",
        "holder",
        "is_sent",
        "key",
        "last_at",
        "lease",
        "message",
        "priority",
        "refused",
        "sequence",
        "state",
        "taken_back",
    )

    def __init__(self, sequence: int, message: M, key: str = "", priority: int = 0, attempts: int = 0) -> None:
        self.sequence: Final = sequence
        self.message: Final = message
        self.key: Final = key
        """Its ordering key; empty: none."""
        self.priority: Final = priority
        self.attempts: int = attempts
        """How often it was delivered."""
        self.state: int = READY
        self.due_at: float = 0.0
        """When its lease ends, or its next attempt is due."""
        self.due_is_stored: bool = False
        """Whether a restarted broker knows `due_at`."""
        self.first_at: float = 0.0
        self.last_at: float = 0.0
        """When this run of the broker delivered it first and last."""
        self.consumer: str = ""
        """Its current or last consumer."""
        self.lease: int = 0
        """The number of its current or last lease; 0 if there is none, or it was taken back."""
        self.taken_back: int = 0
        """The number of its last lease if that was taken back, else 0."""
        self.commit_number: int = 0
        """The number of the commit that its last lease is in."""
        self.is_sent: bool = False
        """Whether the consumer of that lease gets the message: its lease is on disk."""
        self.refused: int = 0
        """The rejected attempts, one bit for each: a later PUBACK for one of them is ignored."""
        self.holder: Holder | None = None
        """While it is LEASED, told of the end of the attempt."""


@final
class Deliveries(Generic[M]):
    """`jitter` returns random numbers from 0 to 1."""

    __slots__ = (
        "_jitter",
        "_lanes",
        "_last_due_at",
        "_leases",
        "_order",
        "_ready",
        "_timed",
        "entries",
        "leased",
        "scheduled",
    )

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._jitter: Final = jitter
        self.entries: Final[dict[int, Entry[M]]] = {}
        """All messages, by sequence."""
        self._ready: list[tuple[int, int, int, Entry[M]]] = []
        """A heap by priority, then by sequence. Entries that are no longer READY are skipped."""
        self._lanes: Final[dict[str, deque[Entry[M]]]] = {}
        """By ordering key, in order of sequence."""
        self._leases: Final[dict[int, Entry[M]]] = {}
        """Leases with the queue's own deadline, which end in the order in which they began. One that ends before an
        older one, as after a change of the deadline, is in `_timed`."""
        self._last_due_at = 0.0
        """When the last lease in `_leases` was to end, when it was made."""
        self._timed: list[tuple[float, int, Entry[M]]] = []
        """A heap of all other due times. Outdated entries are skipped."""
        self._order = 0
        self.leased: int = 0
        self.scheduled: int = 0
        """How many messages are in these states."""

    def __len__(self) -> int:
        return len(self.entries)

    # ------------------------------------------------------------------ in

    def add(self, entry: Entry[M], now: float, due_at: float = 0.0) -> bool:
        """Add a message. Return whether it can be delivered at once; the caller must then `push` it.

        With `due_at` it can be delivered from then on. Messages with the same key must be added in order.
        """
        self.entries[entry.sequence] = entry
        if entry.key:
            lane = self._lanes.get(entry.key)
            if lane is not None:
                lane.append(entry)
                entry.state = BLOCKED
                return False
            self._lanes[entry.key] = deque((entry,))
        if due_at > now:
            self._schedule(entry, due_at)
            return False
        entry.state = READY
        return True

    def push(self, entry: Entry[M]) -> None:
        """Make a READY message available to `pop`."""
        self._order += 1  # a seek may leave an older entry with the same sequence here
        heapq.heappush(self._ready, (-entry.priority, entry.sequence, self._order, entry))

    # ------------------------------------------------------------------ out

    def pop(self) -> Entry[M] | None:
        """Take the next READY message; None if there is none."""
        while self._ready:
            entry = heapq.heappop(self._ready)[3]
            if entry.state == READY:
                return entry
        return None

    def first_ready(self) -> Entry[M] | None:
        """The message that `pop` would take."""
        while self._ready:
            entry = self._ready[0][3]
            if entry.state == READY:
                return entry
            heapq.heappop(self._ready)
        return None

    def lease(
        self, entry: Entry[M], now: float, deadline_s: float, consumer: str, commit_number: int, is_usual: bool = True
    ) -> bool:
        """Lease a READY message to a consumer until a deadline. `is_usual` says that the deadline is the queue's own,
        `commit_number` is the number of the commit that the lease will be in.

        The consumer gets it later: see `start` and `take_back`. False if an earlier lease in the same commit was taken
        back: this one is as that one was, so it has its number, and nothing is to be recorded. So however often
        consumers come and go during one commit, a message is recorded once.
        """
        is_new = not entry.taken_back or entry.commit_number != commit_number
        if is_new:
            self._order += 1
            entry.lease = self._order
        else:
            entry.lease = entry.taken_back
        entry.taken_back = 0
        entry.commit_number = commit_number
        entry.is_sent = False
        entry.attempts += 1
        entry.last_at = now
        if entry.attempts == 1 or not entry.first_at:
            entry.first_at = now
        entry.consumer = consumer
        entry.state = LEASED
        entry.due_at = now + deadline_s
        self.leased += 1
        if is_usual and (not self._leases or entry.due_at >= self._last_due_at):
            self._leases[entry.sequence] = entry
            self._last_due_at = entry.due_at
        else:
            self._add_timed(entry)
        return is_new

    def start(self, entry: Entry[M], lease: int, now: float) -> bool:
        """The consumer gets the message of a lease only now: if it has not ended, its time begins. Leases are started
        in the order in which they were made. False if it was taken back."""
        if entry.lease != lease:
            return False
        if entry.state == LEASED:
            entry.is_sent = True
            entry.due_at += now - entry.last_at + ARRIVAL_S
            if entry.sequence not in self._leases:
                self._add_timed(entry)
        return True

    def take_back(self, entry: Entry[M]) -> None:
        """The consumer of a LEASED message was gone before it could get it: that was no attempt."""
        assert not entry.is_sent, "else it was one"
        entry.attempts -= 1
        entry.taken_back = entry.lease
        entry.lease = 0
        self._leave(entry)
        entry.state = READY
        self.push(entry)

    def was_taken_back(self, entry: Entry[M], lease: int) -> bool:
        """Whether a lease whose commit is done was taken back, and the message waits for its next one: the commit says
        that it was sent, so the next one must say that it was not. True once."""
        if entry.taken_back != lease or entry.state == DONE:
            return False
        entry.taken_back = 0
        return True

    def extend(self, entry: Entry[M], now: float, seconds: float) -> None:
        """The lease of a LEASED message ends `seconds` from now."""
        self._leases.pop(entry.sequence, None)
        entry.due_at = now + seconds
        self._add_timed(entry)

    def retry(self, entry: Entry[M], now: float, delay_s: float) -> None:
        """The attempt of a LEASED message failed: make it deliverable again after `delay_s`."""
        self._leave(entry)
        if delay_s > 0:
            self._schedule(entry, now + delay_s)
        else:
            entry.state = READY
            self.push(entry)

    def settle(self, entry: Entry[M]) -> None:
        """End a message. The next one with its key becomes deliverable."""
        self._leave(entry)
        was_blocked = entry.state == BLOCKED
        entry.state = DONE
        del self.entries[entry.sequence]
        if not entry.key:
            return
        lane = self._lanes[entry.key]
        if was_blocked:
            lane.remove(entry)
            return
        lane.popleft()
        if not lane:
            del self._lanes[entry.key]
            return
        following = lane[0]
        following.state = READY
        self.push(following)

    def in_lane(self, key: str) -> int:
        """How many messages under way have this ordering key. One of them is not BLOCKED."""
        lane = self._lanes.get(key)
        return 0 if lane is None else len(lane)

    def clear(self) -> None:
        """Remove all messages."""
        for entry in self.entries.values():
            entry.state = DONE
            _release(entry)
        self.entries.clear()
        self._ready.clear()
        self._lanes.clear()
        self._leases.clear()
        self._timed.clear()
        self.leased = self.scheduled = 0

    # ------------------------------------------------------------------ time

    def backoff(self, attempts: int, least_s: float, most_s: float) -> float:
        """The wait after `attempts` failures: `least_s`, doubled each time up to `most_s`, plus a random part."""
        delay = least_s * 2.0 ** min(attempts - 1, 60)
        delay = min(delay, most_s)
        return delay + delay * JITTER * self._jitter()

    def take_due(self, now: float) -> Entry[M] | None:
        """The next due message: its lease has ended (LEASED), or its next attempt is due (READY). None if there is
        none.

        For an ended lease the caller decides what follows.
        """
        while self._leases:
            entry = next(iter(self._leases.values()))
            if entry.due_at > now:
                break
            del self._leases[entry.sequence]
            if entry.is_sent:
                return entry
            self._prolong(entry, now)
        while self._timed and self._timed[0][0] <= now:
            due_at, _, entry = heapq.heappop(self._timed)
            if entry.due_at != due_at or entry.state not in _TIMED:
                continue
            if entry.state == LEASED and not entry.is_sent:
                self._prolong(entry, now)
                continue
            if entry.state == SCHEDULED:
                self.scheduled -= 1
                entry.state = READY
                self.push(entry)
            return entry
        return None

    def next_at(self) -> float | None:
        """When the next message is due; may be too early."""
        earliest: float | None = None
        for entry in self._leases.values():
            earliest = entry.due_at
            break
        if self._timed and (earliest is None or self._timed[0][0] < earliest):
            return self._timed[0][0]
        return earliest

    # ------------------------------------------------------------------ inside

    def _prolong(self, entry: Entry[M], now: float) -> None:
        """The time of a lease is over whose consumer still waits for the message: it begins again."""
        entry.due_at += now - entry.last_at
        entry.last_at = now
        self._add_timed(entry)

    def _schedule(self, entry: Entry[M], due_at: float) -> None:
        entry.state = SCHEDULED
        entry.due_at = due_at
        self.scheduled += 1
        self._add_timed(entry)

    def _add_timed(self, entry: Entry[M]) -> None:
        self._order += 1
        heapq.heappush(self._timed, (entry.due_at, self._order, entry))
        if len(self._timed) > 2 * len(self.entries) + _SLACK:  # most are outdated
            self._timed = [each for each in self._timed if each[2].due_at == each[0] and each[2].state in _TIMED]
            heapq.heapify(self._timed)

    def _leave(self, entry: Entry[M]) -> None:
        """The message is no longer LEASED or SCHEDULED."""
        if entry.state == LEASED:
            self.leased -= 1
            self._leases.pop(entry.sequence, None)
            _release(entry)
        elif entry.state == SCHEDULED:
            self.scheduled -= 1


def _release(entry: Entry[M]) -> None:
    holder, entry.holder = entry.holder, None
    if holder is not None:
        holder.on_over()


_TIMED: Final = (LEASED, SCHEDULED)
_SLACK: Final = 1_024
"""How many outdated entries may stay in the heap, in addition to two for each message."""
