"""The messages that wait for a session's client and were never sent to it, in the order in which they will be sent.

Each message has a *sequence*: a number that counts up over the life of the session and identifies the message in the
store. Invariant: the sequences here are consecutive, and messages leave only from the front. So the queue holds only
the first number, and a reference of eight bytes for each message, which its receivers share. Only the first messages of
a long queue are in memory; the others are *stored*: they are only in the store, and are read page by page.
"""

from collections import deque
from typing import Final, final

from mqttlite.core.limits import KEPT_BYTES, KEPT_MESSAGES, PAGE_MESSAGES
from mqttlite.core.memory import ENTRY_BYTES, MemoryAccount
from mqttlite.core.message import Delivery
from mqttlite.core.session.usage import NO_USAGE, Usage

_EMPTY: Final[deque[Delivery]] = deque()
"""Never added to. A deque takes 600 bytes, and most sessions never queue a message."""


@final
class SessionQueue:
    __slots__ = ("_ahead", "_memory", "deliveries", "first", "size_bytes", "stored", "stored_bytes", "usages")

    def __init__(self, memory: MemoryAccount) -> None:
        self._memory: Final = memory
        self.deliveries: deque[Delivery] = _EMPTY
        """The waiting messages in memory, from the first on. Read only."""
        self.first: int = 0
        """The sequence of the first message; if none waits, of the next one."""
        self._ahead = 0
        self.size_bytes: int = 0
        """The memory of `deliveries`, as if no other session held them."""
        self.stored: int = 0
        """How many messages are only in the store, behind those in memory."""
        self.stored_bytes: int = 0
        """The memory that the stored messages would take."""
        self.usages: list[Usage] = NO_USAGE
        """The groups whose totals include this queue."""

    def __len__(self) -> int:
        return len(self.deliveries) + self.stored

    @property
    def end(self) -> int:
        """The sequence of the next message to come."""
        return self.first + len(self.deliveries) + self.stored

    @property
    def is_long(self) -> bool:
        """Whether the next message should go only to the store, if the store allows it."""
        return (
            self.stored > 0
            or len(self.deliveries) >= KEPT_MESSAGES
            or self.size_bytes >= KEPT_BYTES
            or self._memory.used > self._memory.half
        )

    @property
    def wants_page(self) -> bool:
        """Whether so few messages are left in memory that the next page should be read."""
        return self.stored > 0 and len(self.deliveries) <= PAGE_MESSAGES // 2

    def append(self, delivery: Delivery) -> int:
        """Append a message; return its sequence. Not allowed while messages are stored."""
        if self.deliveries is _EMPTY:
            self.deliveries = deque()
        self.deliveries.append(delivery)
        size = self._memory.hold(delivery.message, ENTRY_BYTES)
        self.size_bytes += size
        if self.usages:
            self._count(size)
        return self.first + len(self.deliveries) - 1

    def append_stored(self, size_bytes: int) -> int:
        """Append a message that is only in the store; return its sequence."""
        self.stored += 1
        self.stored_bytes += size_bytes
        if self.usages:
            self._count(size_bytes)
        return self.end - 1

    def take_page(self, delivery: Delivery) -> None:
        """The first stored message was read into memory."""
        self._leave_store()
        self.append(delivery)

    def pop(self) -> Delivery:
        """Remove and return the first message, whose sequence was `first`."""
        delivery = self.deliveries.popleft()
        size = self._memory.let_go(delivery.message, ENTRY_BYTES)
        self.size_bytes -= size
        if self.usages:
            self._count(-size)
        self.first += 1
        return delivery

    def skip(self) -> None:
        """Give up the first message, which is only in the store."""
        self._leave_store()
        self.first += 1

    def jump(self, first: int, size_bytes: int) -> deque[Delivery]:
        """Move the start of the queue to sequence `first`, back or forward. All messages from there on are in the store
        and would take `size_bytes` in memory. Return the messages that were in memory; the caller releases them, with
        `ENTRY_BYTES` each."""
        end = self.end
        here, self.deliveries = self.deliveries, _EMPTY
        self.first = first
        self.size_bytes = 0
        self.stored = end - first
        self.stored_bytes = size_bytes if self.stored else 0
        return here

    def forget_page(self) -> int:
        """The client is away: keep the first messages in memory; the rest is only in the store. Return how many."""
        forgotten = max(0, len(self.deliveries) - KEPT_MESSAGES)
        for _ in range(forgotten):
            size = self._memory.let_go(self.deliveries.pop().message, ENTRY_BYTES)
            self.size_bytes -= size
            self.stored += 1
            self.stored_bytes += size
        return forgotten

    def full(self, size: int) -> Usage | None:
        """The first of its groups whose queues have no room for `size` more bytes; None if all have."""
        for usage in self.usages:
            if usage.queued_bytes + size > usage.limits.max_queued_bytes:
                return usage
        return None

    def pass_by(self) -> int:
        """A sequence for a message that is sent at once because none waits."""
        self.first += 1
        return self.first - 1

    def overtake(self) -> int:
        """A sequence for a retained message that is sent before the waiting ones: it counts down from -1."""
        self._ahead -= 1
        return self._ahead

    def restore(self, sequence: int, delivery: Delivery) -> None:
        """Restore a message from a store, after those restored before."""
        if not self.deliveries:
            self.first = sequence
        assert sequence == self.first + len(self.deliveries), "sequences in a queue are consecutive"
        self.append(delivery)

    def restore_stored(self, first: int, count: int, size_bytes: int) -> None:
        """Restore the counts of messages that are only in the store."""
        self.first = max(self.first, first)
        self.stored = count
        self.stored_bytes = size_bytes

    def restore_sent(self, sequence: int) -> None:
        """Note the sequence of a message that an earlier broker sent, so that it is not used again."""
        if sequence < 0:
            self._ahead = min(self._ahead, sequence)
        else:
            self.first = self.first if self.deliveries else max(self.first, sequence + 1)

    def _leave_store(self) -> None:
        """Count one stored message less. Single sizes are not known, so each counts the mean."""
        size = self.stored_bytes // self.stored
        self.stored_bytes -= size
        self.stored -= 1
        if self.usages:
            self._count(-size)

    def _count(self, size: int) -> None:
        """Add `size` to the bytes that wait."""
        for usage in self.usages:
            usage.queued_bytes += size
