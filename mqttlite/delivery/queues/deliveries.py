"""What of a queue is under way: messages that were taken from its backlog and have not come to their end.

Pure: time is a number, nothing is sent or stored here. Invariants: a message is in one state; of the messages with one
ordering key only the first is ready, leased or scheduled, the others are blocked; nothing comes due before its time.
"""

import heapq
from collections import deque
from collections.abc import Callable
from typing import Final, final

from mqttlite.core.message import Message
from mqttlite.delivery.queues.limits import ARRIVAL_S

READY: Final = 0
BLOCKED: Final = 1
LEASED: Final = 2
SCHEDULED: Final = 3
DONE: Final = 4
STATES: Final = ("ready", "blocked", "leased", "scheduled", "done")
"""A message can be delivered; waits for the one before it that has its ordering key; is with a consumer, until its
deadline; waits for its next attempt; is out of here."""

JITTER: Final = 0.1
"""The part of a back-off that chance may add, so that what failed together does not come again together."""


@final
class Entry:
    """A message that is under way. `sequence` is its number in the queue."""

    __slots__ = (
        "attempts",
        "consumer",
        "due_at",
        "due_is_stored",
        "first_at",
        "key",
        "last_at",
        "message",
        "priority",
        "refused",
        "sequence",
        "state",
    )

    def __init__(self, sequence: int, message: Message, key: str = "", priority: int = 0, attempts: int = 0) -> None:
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
        """Whether a broker that starts again waits for that time."""
        self.first_at: float = 0.0
        self.last_at: float = 0.0
        """When it was first delivered by this run of the broker, and last."""
        self.consumer: str = ""
        """Who has it, or had it last."""
        self.refused: int = 0
        """The attempts that were refused, a bit for each: a PUBACK that follows says nothing of the message."""


@final
class Deliveries:
    """`jitter` gives numbers from 0 to 1. Without `prioritised` all messages have one priority."""

    __slots__ = ("_jitter", "_lanes", "_leases", "_order", "_ready", "_timed", "entries", "leased", "scheduled")

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._jitter: Final = jitter
        self.entries: Final[dict[int, Entry]] = {}
        """All of them, by sequence."""
        self._ready: list[tuple[int, int, int, Entry]] = []
        """A heap: high priority before low, and then the lower sequence. What is not READY any more is passed over."""
        self._lanes: Final[dict[str, deque[Entry]]] = {}
        """By ordering key, in the order of the sequences."""
        self._leases: Final[dict[int, Entry]] = {}
        """Those with the queue's own deadline, which so end in the order in which they began."""
        self._timed: list[tuple[float, int, Entry]] = []
        """A heap of the others that come due. What has another time by now is passed over."""
        self._order = 0
        self.leased: int = 0
        self.scheduled: int = 0
        """How many there are in these states."""

    def __len__(self) -> int:
        return len(self.entries)

    # ------------------------------------------------------------------ in

    def add(self, entry: Entry, now: float, due_at: float = 0.0) -> bool:
        """A message is under way; whether it can be delivered at once. It is not yet among those that `pop` gives.

        With `due_at` it can be delivered from then on. Messages with one key are added in their order.
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

    def push(self, entry: Entry) -> None:
        """A message that is READY is among those that `pop` gives."""
        self._order += 1  # what came back by a seek may have an older entry here with its sequence
        heapq.heappush(self._ready, (-entry.priority, entry.sequence, self._order, entry))

    # ------------------------------------------------------------------ out

    def pop(self) -> Entry | None:
        """The next message that is READY; None where there is none here."""
        while self._ready:
            entry = heapq.heappop(self._ready)[3]
            if entry.state == READY:
                return entry
        return None

    def first_ready(self) -> Entry | None:
        """What `pop` would give; it stays."""
        while self._ready:
            entry = self._ready[0][3]
            if entry.state == READY:
                return entry
            heapq.heappop(self._ready)
        return None

    def lease(self, entry: Entry, now: float, deadline_s: float, consumer: str, is_usual: bool = True) -> None:
        """A consumer has a READY message until a deadline; it is `usual` where all leases last as long as this."""
        entry.attempts += 1
        entry.last_at = now
        if entry.attempts == 1 or not entry.first_at:
            entry.first_at = now
        entry.consumer = consumer
        entry.state = LEASED
        entry.due_at = now + deadline_s
        self.leased += 1
        if is_usual:
            self._leases[entry.sequence] = entry
        else:
            self._push_timed(entry)

    def start(self, entry: Entry, attempt: int, now: float) -> None:
        """The consumer gets an attempt only now: if its lease has not ended, its time begins when it has it. Leases are
        started in the order in which they were made."""
        if entry.state != LEASED or entry.attempts != attempt:
            return
        entry.due_at += now - entry.last_at + ARRIVAL_S
        if entry.sequence not in self._leases:
            self._push_timed(entry)

    def extend(self, entry: Entry, now: float, seconds: float) -> None:
        """The lease of a LEASED message ends `seconds` from now."""
        self._leases.pop(entry.sequence, None)
        entry.due_at = now + seconds
        self._push_timed(entry)

    def retry(self, entry: Entry, now: float, delay_s: float) -> None:
        """The attempt of a LEASED message failed: it can be delivered again after `delay_s`."""
        self._leave(entry)
        if delay_s > 0:
            self._schedule(entry, now + delay_s)
        else:
            entry.state = READY
            self.push(entry)

    def settle(self, entry: Entry) -> None:
        """A message has come to its end: the next one with its key can be delivered."""
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
        """How many messages have an ordering key: one of them is not BLOCKED."""
        lane = self._lanes.get(key)
        return 0 if lane is None else len(lane)

    def clear(self) -> None:
        """All of them are gone."""
        for entry in self.entries.values():
            entry.state = DONE
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

    def take_due(self, now: float) -> Entry | None:
        """A message whose lease has ended (it is LEASED), or whose next attempt is due (it is READY); None: no other.

        Of the former the caller says what follows.
        """
        for entry in self._leases.values():
            if entry.due_at <= now:
                del self._leases[entry.sequence]
                return entry
            break
        while self._timed and self._timed[0][0] <= now:
            due_at, _, entry = heapq.heappop(self._timed)
            if entry.due_at != due_at or entry.state not in (LEASED, SCHEDULED):
                continue
            if entry.state == SCHEDULED:
                self.scheduled -= 1
                entry.state = READY
                self.push(entry)
            return entry
        return None

    def next_at(self) -> float | None:
        """When something comes due; it may be early."""
        earliest: float | None = None
        for entry in self._leases.values():
            earliest = entry.due_at
            break
        if self._timed and (earliest is None or self._timed[0][0] < earliest):
            return self._timed[0][0]
        return earliest

    # ------------------------------------------------------------------ inside

    def _schedule(self, entry: Entry, due_at: float) -> None:
        entry.state = SCHEDULED
        entry.due_at = due_at
        self.scheduled += 1
        self._push_timed(entry)

    def _push_timed(self, entry: Entry) -> None:
        self._order += 1
        heapq.heappush(self._timed, (entry.due_at, self._order, entry))
        if len(self._timed) > 2 * len(self.entries) + _SLACK:  # mostly of messages that were acknowledged since
            self._timed = [each for each in self._timed if each[2].due_at == each[0] and each[2].state in _TIMED]
            heapq.heapify(self._timed)

    def _leave(self, entry: Entry) -> None:
        """It is not LEASED or SCHEDULED any more."""
        if entry.state == LEASED:
            self.leased -= 1
            self._leases.pop(entry.sequence, None)
        elif entry.state == SCHEDULED:
            self.scheduled -= 1


_TIMED: Final = (LEASED, SCHEDULED)
_SLACK: Final = 1_024
"""Times that have passed may stay in the heap up to this number beside two for each message."""
