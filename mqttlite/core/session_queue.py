"""The messages that wait for a session's client and were never sent to it, in the order in which they will be sent.

Each has a *sequence*: a number that counts up over the life of the session and names the message in the store.
Invariant: the sequences here are consecutive, and messages leave only from the front. So the queue holds the first
number, and for each message a reference of eight bytes; the message is shared by all its receivers. Of a long queue
only the first messages are here, the others *stored*: they are in the store alone, and come back page by page.
"""

from collections import deque
from typing import Final, final

from mqttlite.core.limits import KEPT_BYTES, KEPT_MESSAGES, PAGE_MESSAGES
from mqttlite.core.memory import ENTRY_BYTES, MemoryAccount
from mqttlite.core.message import Delivery
from mqttlite.core.usage import NO_USAGE, Usage

_EMPTY: Final[deque[Delivery]] = deque()
"""Never added to: a deque takes 600 bytes, and most sessions never queue anything."""


@final
class SessionQueue:
    __slots__ = ("_ahead", "_memory", "deliveries", "first", "size_bytes", "stored", "stored_bytes", "usages")

    def __init__(self, memory: MemoryAccount) -> None:
        self._memory: Final = memory
        self.deliveries: deque[Delivery] = _EMPTY
        """The messages that wait here, the first of all; look, change nothing."""
        self.first: int = 0
        """The sequence of the first message, or of the next to come when none waits."""
        self._ahead = 0
        self.size_bytes: int = 0
        """The memory of `deliveries`, as if no other session held them."""
        self.stored: int = 0
        """How many messages wait in the store alone, behind those here."""
        self.stored_bytes: int = 0
        """The memory that those would take here."""
        self.usages: list[Usage] = NO_USAGE
        """Of the groups for which the session counts: what waits here counts there."""

    def __len__(self) -> int:
        return len(self.deliveries) + self.stored

    @property
    def end(self) -> int:
        """The sequence of the next message to come."""
        return self.first + len(self.deliveries) + self.stored

    @property
    def is_long(self) -> bool:
        """Whether the next message is one for the store alone, if there is such a store."""
        return (
            self.stored > 0
            or len(self.deliveries) >= KEPT_MESSAGES
            or self.size_bytes >= KEPT_BYTES
            or self._memory.used > self._memory.half
        )

    @property
    def wants_page(self) -> bool:
        """Whether so few messages are left here that the next ones should be read."""
        return self.stored > 0 and len(self.deliveries) <= PAGE_MESSAGES // 2

    def append(self, delivery: Delivery) -> int:
        """Put a message last; its sequence. None is stored."""
        if self.deliveries is _EMPTY:
            self.deliveries = deque()
        self.deliveries.append(delivery)
        size = self._memory.hold(delivery.message, ENTRY_BYTES)
        self.size_bytes += size
        if self.usages:
            self._count(size)
        return self.first + len(self.deliveries) - 1

    def append_stored(self, size_bytes: int) -> int:
        """A message that is in the store is the last; its sequence."""
        self.stored += 1
        self.stored_bytes += size_bytes
        if self.usages:
            self._count(size_bytes)
        return self.end - 1

    def take_page(self, delivery: Delivery) -> None:
        """The first of the stored messages is here again."""
        self._leave_store()
        self.append(delivery)

    def pop(self) -> Delivery:
        """Take out the first message, whose sequence was `first`."""
        delivery = self.deliveries.popleft()
        size = self._memory.let_go(delivery.message, ENTRY_BYTES)
        self.size_bytes -= size
        if self.usages:
            self._count(-size)
        self.first += 1
        return delivery

    def skip(self) -> None:
        """The first message is not here but stored, and is given up."""
        self._leave_store()
        self.first += 1

    def jump(self, first: int, size_bytes: int) -> deque[Delivery]:
        """Move the beginning of the queue to that sequence, earlier or later than before. All messages from there on
        are in the store and would take `size_bytes` here. Return those that were here: the caller releases them, with
        `ENTRY_BYTES` each."""
        end = self.end
        here, self.deliveries = self.deliveries, _EMPTY
        self.first = first
        self.size_bytes = 0
        self.stored = end - first
        self.stored_bytes = size_bytes if self.stored else 0
        return here

    def forget_page(self) -> None:
        """The client is away: keep here what a long queue keeps; the rest is stored."""
        while len(self.deliveries) > KEPT_MESSAGES:
            size = self._memory.let_go(self.deliveries.pop().message, ENTRY_BYTES)
            self.size_bytes -= size
            self.stored += 1
            self.stored_bytes += size

    def full(self, size: int) -> Usage | None:
        """The first of its groups whose queues have no room for so many bytes more; None if all have."""
        for usage in self.usages:
            if usage.queued_bytes + size > usage.limits.max_queued_bytes:
                return usage
        return None

    def pass_by(self) -> int:
        """The sequence of a message that is sent at once, because none waits."""
        self.first += 1
        return self.first - 1

    def overtake(self) -> int:
        """The sequence of a message that is sent before those that wait, a retained one: these count down from -1."""
        self._ahead -= 1
        return self._ahead

    def restore(self, sequence: int, delivery: Delivery) -> None:
        """Put back a message from a store, behind those that were put back before it."""
        if not self.deliveries:
            self.first = sequence
        assert sequence == self.first + len(self.deliveries), "sequences in a queue are consecutive"
        self.append(delivery)

    def restore_stored(self, first: int, count: int, size_bytes: int) -> None:
        """Messages wait in the store, and none here."""
        self.first = max(self.first, first)
        self.stored = count
        self.stored_bytes = size_bytes

    def restore_sent(self, sequence: int) -> None:
        """A message of that sequence was sent by an earlier broker: the next has another."""
        if sequence < 0:
            self._ahead = min(self._ahead, sequence)
        else:
            self.first = self.first if self.deliveries else max(self.first, sequence + 1)

    def _leave_store(self) -> None:
        """One stored message less. What each counts is not known: they count alike."""
        size = self.stored_bytes // self.stored
        self.stored_bytes -= size
        self.stored -= 1
        if self.usages:
            self._count(-size)

    def _count(self, size: int) -> None:
        """So many more bytes wait here."""
        for usage in self.usages:
            usage.queued_bytes += size
