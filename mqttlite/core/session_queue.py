"""The messages that wait for a session's client and were never sent to it, in the order in which they will be sent.

Each has a *sequence*: a number that counts up over the life of the session and names the message in the store.
Invariant: the sequences here are consecutive, and messages leave only from the front. So the queue holds the first
number, and for each message a reference of eight bytes; the message is shared by all its receivers.
"""

from collections import deque
from typing import Final, final

from mqttlite.core.memory import ENTRY_BYTES, MemoryAccount
from mqttlite.core.message import Delivery

_EMPTY: Final[deque[Delivery]] = deque()
"""Never added to: a deque takes 600 bytes, and most sessions never queue anything."""


@final
class SessionQueue:
    __slots__ = ("_ahead", "_memory", "deliveries", "first", "size_bytes")

    def __init__(self, memory: MemoryAccount) -> None:
        self._memory: Final = memory
        self.deliveries: deque[Delivery] = _EMPTY
        """What waits; look, change nothing."""
        self.first: int = 0
        """The sequence of the first message, or of the next to come when none waits."""
        self._ahead = 0
        self.size_bytes: int = 0
        """What that takes in memory, as if no other session held it."""

    def append(self, delivery: Delivery) -> int:
        """Put a message last; its sequence."""
        if self.deliveries is _EMPTY:
            self.deliveries = deque()
        self.deliveries.append(delivery)
        self.size_bytes += self._memory.hold(delivery.message, ENTRY_BYTES)
        return self.first + len(self.deliveries) - 1

    def pop(self) -> Delivery:
        """Take out the first message, whose sequence was `first`."""
        delivery = self.deliveries.popleft()
        self.size_bytes -= self._memory.let_go(delivery.message, ENTRY_BYTES)
        self.first += 1
        return delivery

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

    def restore_sent(self, sequence: int) -> None:
        """A message of that sequence was sent by an earlier broker: the next has another."""
        if sequence < 0:
            self._ahead = min(self._ahead, sequence)
        else:
            self.first = self.first if self.deliveries else max(self.first, sequence + 1)
