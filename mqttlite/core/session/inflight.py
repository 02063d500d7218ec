"""Messages sent to a client and not yet acknowledged (QoS 1) or received (QoS 2), in the order of sending.

Messages with consecutive identifiers form a chain; a batch that was sent as one is one link of it. Acknowledgements in
order take messages from its head. An acknowledgement out of order breaks the chain up into single messages, found by
identifier. Invariant: the identifiers in the chain are consecutive, and messages outside it were sent earlier.
"""

from typing import Final, final

from mqttlite.core.memory import INFLIGHT_BYTES, Holdable, MemoryAccount
from mqttlite.core.message import Delivery, Message, PublishBatch
from mqttlite.wire.blocks import leading


@final
class Unacknowledged:
    """A message in flight, or part of a batch in flight: `count` messages from position `at` on.

    `sequence` names the message in the store; batches are not stored.
    """

    __slots__ = ("at", "count", "delivery", "next", "qos", "run", "sequence")

    def __init__(
        self, delivery: Delivery | None, run: PublishBatch | None, count: int, qos: int, sequence: int
    ) -> None:
        self.delivery: Final = delivery
        self.run: Final = run
        self.at: int = 0
        self.count: int = count
        self.qos: Final = qos
        self.sequence: Final = sequence
        self.next: Unacknowledged | None = None

    def message(self) -> Message:
        """The message; not for a batch."""
        assert self.delivery is not None
        return self.delivery.message


NOT_STORED: Final = -(1 << 62)
"""The sequence of a message that its origin keeps and the store does not know."""


def is_lent(sent: Unacknowledged) -> bool:
    """Whether its origin keeps the message."""
    delivery = sent.delivery
    return delivery is not None and delivery.is_lent


def is_watched(delivery: Delivery) -> bool:
    """Whether the tracer or the origin must learn that it was acknowledged."""
    return delivery.message.trace != 0 or delivery.is_lent


@final
class Inflight:
    __slots__ = ("_count", "_first", "_first_id", "_last", "_memory", "_messages", "size_bytes", "watched")

    def __init__(self, memory: MemoryAccount) -> None:
        self._memory: Final = memory
        self._messages: dict[int, Unacknowledged] = {}
        self._first: Unacknowledged | None = None
        self._last: Unacknowledged | None = None
        self._first_id = 0
        self._count = 0
        self.size_bytes: int = 0
        """The memory of the messages, as if no other session held them."""
        self.watched: int = 0
        """How many of them are watched. The caller that adds or removes one updates it, so that unwatched messages cost
        nothing."""

    def __len__(self) -> int:
        return self._count + len(self._messages)

    def by_id(self) -> dict[int, Unacknowledged]:
        """All messages one by one, by identifier. Read only."""
        if self._count:
            self._scatter()
        return self._messages

    def add(self, packet_id: int, delivery: Delivery, sequence: int) -> None:
        self.size_bytes += self._memory.hold(delivery.message, INFLIGHT_BYTES)
        self._append(packet_id, Unacknowledged(delivery, None, 1, delivery.qos, sequence))

    def put(self, packet_id: int, message: Unacknowledged) -> None:
        """Put back a message that was in flight before."""
        self.size_bytes += self._memory.hold(message.message(), INFLIGHT_BYTES)
        self._append(packet_id, message)

    def add_batch(self, first_id: int, run: PublishBatch, count: int, qos: int) -> None:
        """The first `count` messages of a batch were sent at `qos`, with identifiers from `first_id` on."""
        self.size_bytes += self._memory.hold(run, INFLIGHT_BYTES)
        self._append(first_id, Unacknowledged(None, run, count, qos, 0))

    def find(self, packet_id: int) -> Unacknowledged | None:
        message = self._messages.get(packet_id)
        return self.by_id().get(packet_id) if message is None and self._count else message

    def remove(self, packet_id: int) -> None:
        """Remove a message that is in flight."""
        self._let_go(self.by_id().pop(packet_id))

    def remove_leading(self, data: bytes, at: int, acks: bytes, qos: int) -> int:
        """Remove the messages at the head of the chain that are acknowledged in `data` from `at` on. Return how many.

        `acks` is the table of expected acknowledgements, `qos` the QoS that they are for.
        """
        acknowledged = left = leading(data, at, acks, self._first_id, self._count)
        while left:
            sent = self._first
            assert sent is not None
            if sent.qos != qos:
                break
            if left < sent.count:
                sent.at += left
                sent.count -= left
                left = 0
                break
            left -= sent.count
            self._first = sent.next
            delivery = sent.delivery
            if delivery is not None:
                self.size_bytes -= self._memory.let_go(delivery.message, INFLIGHT_BYTES)
            else:
                self._let_go(sent)
        if self._first is None:
            self._last = None
        acknowledged -= left
        self._first_id += acknowledged
        self._count -= acknowledged
        return acknowledged

    def leading_messages(self, data: bytes, at: int, acks: bytes, qos: int) -> list[Unacknowledged]:
        """The messages that `remove_leading` would remove, without batches."""
        left = leading(data, at, acks, self._first_id, self._count)
        messages: list[Unacknowledged] = []
        message = self._first
        while left > 0 and message is not None and message.qos == qos:
            if message.delivery is not None:
                messages.append(message)
            left -= message.count
            message = message.next
        return messages

    def take_all(self) -> dict[int, Unacknowledged]:
        """Remove and return all messages one by one. The caller takes over their memory charges."""
        messages = self.by_id()
        self.size_bytes = 0
        self._messages = {}
        return messages

    def _let_go(self, sent: Unacknowledged) -> None:
        held: Holdable | None = sent.run if sent.delivery is None else sent.delivery.message
        assert held is not None
        self.size_bytes -= self._memory.let_go(held, INFLIGHT_BYTES)

    def _append(self, first_id: int, sent: Unacknowledged) -> None:
        if self._count and first_id != self._first_id + self._count:
            self._scatter()
        if self._last is None:
            self._first = sent
            self._first_id = first_id
        else:
            self._last.next = sent
        self._last = sent
        self._count += sent.count

    def _scatter(self) -> None:
        """Break the chain up into single messages."""
        self._last = None
        packet_id = self._first_id
        sent = self._first
        while sent is not None:
            self._first = sent.next  # link by link: freeing a long chain at once would recurse deeply
            sent.next = None
            if sent.delivery is not None:
                self._messages[packet_id] = sent
                packet_id += 1
            else:
                run = sent.run
                assert run is not None
                for at in range(sent.at, sent.at + sent.count):
                    delivery = run.delivery(at, sent.qos)
                    self.size_bytes += self._memory.hold(delivery.message, INFLIGHT_BYTES)
                    self._messages[packet_id] = Unacknowledged(delivery, None, 1, sent.qos, 0)
                    packet_id += 1
                self._let_go(sent)
            sent = self._first
        self._count = 0
