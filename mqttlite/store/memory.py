"""The in-memory store, which lives as long as the process: for tests, and for restarts of a broker within one program.

It keeps only the latest state, and one copy of each message for all sessions. Invariant: `load` after `commit` yields
changes that recreate the same state.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from itertools import chain, islice
from typing import Final, assert_never

from mqttlite.core.changes import (
    Change,
    Due,
    EndSession,
    Enqueue,
    LatestNumber,
    RemoveDelayed,
    RemoveReceived,
    RemoveReleased,
    RemoveRetained,
    RemoveSubscription,
    RemoveWill,
    Retain,
    Rewind,
    SaveDelayed,
    SaveQueue,
    SaveReceived,
    SaveReleased,
    SaveRetained,
    SaveSession,
    SaveSubscription,
    SaveWill,
    Sent,
    Settled,
    Stored,
)
from mqttlite.core.memory import ENTRY_BYTES
from mqttlite.core.message import Delivery, Message, StoredOrigin
from mqttlite.core.retained.writer import Writer

LOAD_BATCH: Final = 1_000
"""The most changes in a batch of `load`."""


_NOTHING: Final = Delivery(Message(b"", b""), 0, False)


def _size_of(delivery: Delivery) -> int:
    return ENTRY_BYTES + delivery.message.memory_bytes


class _Session:
    """The state of a session or queue."""

    def __init__(self, saved: SaveSession | SaveQueue) -> None:
        self.saved = saved
        self.will: SaveWill | None = None
        self.subscriptions: dict[bytes, SaveSubscription] = {}
        self.sent: dict[int, Enqueue] = {}
        self.queue: deque[Delivery] = deque()
        self.first = 0
        """The sequence of the first message in the queue: they are consecutive."""
        self.released: dict[int, SaveReleased] = {}
        self.received: dict[int, SaveReceived] = {}
        self.due: dict[int, Due] = {}
        self.floor = -1
        """From this sequence on, settled messages are kept; -1: none are."""
        self.kept: dict[int, Delivery] = {}
        """The kept settled messages, by sequence."""

    def changes(self, pages: bool) -> Iterator[Change]:
        """The changes that recreate it."""
        yield self.saved
        if self.will is not None:
            yield self.will
        yield from self.subscriptions.values()
        yield from self.sent.values()
        if self.floor >= 0:
            yield Retain(self.saved.client_id, self.floor, sum(map(_size_of, self.kept.values())))
        if pages or (not self.queue and self.first > 0):
            size = sum(map(_size_of, self.queue))
            yield Stored(self.saved.client_id, self.first, len(self.queue), size)
        else:
            for sequence, delivery in enumerate(self.queue, self.first):
                yield Enqueue(self.saved.client_id, sequence, delivery)
        yield from self.released.values()
        yield from self.received.values()
        yield from self.due.values()

    def enqueue(self, change: Enqueue) -> None:
        if change.packet_id:
            self.sent[change.sequence] = change
        else:
            if not self.queue:
                self.first = change.sequence
            assert change.sequence == self.first + len(self.queue), "sequences in a queue are consecutive"
            self.queue.append(change.delivery)

    def send(self, change: Sent) -> None:
        self.due.pop(change.sequence, None)
        sent = self.sent.get(change.sequence)
        if sent is not None:
            self.sent[change.sequence] = Enqueue(change.client_id, change.sequence, sent.delivery, change.packet_id)
            return
        kept = self.kept.pop(change.sequence, None)
        assert kept is not None or change.sequence == self.first, "messages leave from the front of the queue"
        delivery = self._pop() if kept is None else kept
        self.sent[change.sequence] = Enqueue(change.client_id, change.sequence, delivery, change.packet_id)

    def settle(self, sequence: int) -> None:
        self.due.pop(sequence, None)
        sent = self.sent.pop(sequence, None)
        if sent is not None:
            self._keep(sequence, sent.delivery)
        elif self.queue and sequence == self.first:
            self._keep(sequence, self._pop())

    def _keep(self, sequence: int, delivery: Delivery) -> None:
        if 0 <= self.floor <= sequence:
            self.kept[sequence] = delivery

    def retain(self, first: int) -> None:
        self.floor = first
        for sequence in [sequence for sequence in self.kept if first < 0 or sequence < first]:
            del self.kept[sequence]

    def rewind(self, first: int) -> None:
        """Missing messages are replaced by a placeholder, because they will not be read."""
        end = self.first + len(self.queue)
        if first >= self.first:
            if self.floor >= 0:
                start = max(self.first, self.floor)
                passed = islice(self.queue, start - self.first, None)
                self.kept.update(zip(range(start, first), passed, strict=False))
            self.queue = deque(islice(self.queue, first - self.first, None))
            self.first = first
            return
        everything = dict(enumerate(self.queue, self.first))
        everything.update(self.kept)
        everything.update((sequence, sent.delivery) for sequence, sent in self.sent.items() if sequence >= first)
        for sequence in [sequence for sequence in self.sent if sequence >= first]:
            del self.sent[sequence]
            self.due.pop(sequence, None)
        self.queue = deque(everything.get(sequence, _NOTHING) for sequence in range(first, end))
        self.first = first
        self.kept = {sequence: delivery for sequence, delivery in self.kept.items() if sequence < first}

    def at(self, sequence: int) -> Delivery | None:
        """The kept or waiting message with a sequence."""
        if sequence < self.first:
            return self.kept.get(sequence)
        return self.queue[sequence - self.first] if sequence < self.first + len(self.queue) else None

    def _pop(self) -> Delivery:
        self.first += 1
        return self.queue.popleft()


class _Copies:
    """Copies of messages for another broker. Sessions that share a message share its copy."""

    def __init__(self) -> None:
        self._messages: dict[int, Message] = {}
        self._deliveries: dict[int, Delivery] = {}
        self._writers: dict[int, Writer] = {}

    def of(self, change: Change) -> Change:
        if isinstance(change, SaveRetained):
            return SaveRetained(self._message(change.message))
        if isinstance(change, SaveDelayed):
            return SaveDelayed(change.number, self._message(change.message), change.due_at, change.client_id)
        if not isinstance(change, Enqueue):
            return change
        return Enqueue(change.client_id, change.sequence, self.delivery(change.delivery), change.packet_id)

    def delivery(self, former: Delivery) -> Delivery:
        delivery = self._deliveries.get(id(former))
        if delivery is None:
            message = self._message(former.message)
            origin = None if former.origin is None else StoredOrigin(former.origin.name)
            delivery = Delivery(message, former.qos, former.retain, former.identifiers, origin)
            self._deliveries[id(former)] = delivery
        return delivery

    def _message(self, former: Message) -> Message:
        message = self._messages.get(id(former))
        if message is None:
            message = self._messages[id(former)] = former.untraced()
            if former.writer is not None:
                message.writer = self._writer(former.writer)
        return message

    def _writer(self, former: Writer) -> Writer:
        writer = self._writers.get(id(former))
        if writer is None:
            writer = self._writers[id(former)] = Writer(former.client_id, former.username)
        return writer


class MemoryStore:
    """A `Store` in three dictionaries. The broker's limits bound its size."""

    def __init__(self, *, pages: bool = False) -> None:
        self.pages: Final = pages
        """Whether it offers pages like a store on disk; for tests."""
        self._sessions: dict[str, _Session] = {}
        self._retained: dict[bytes, SaveRetained] = {}
        self._delayed: dict[int, SaveDelayed] = {}
        self._latest = 0
        """The highest number of a message."""

    def commit(self, changes: list[Change]) -> None:
        for change in changes:
            self._apply(change)

    def load(self) -> Iterator[list[Change]]:
        """Yields copies of the messages: the stored ones belong to the broker that published them."""
        copies = _Copies()
        sessions = chain.from_iterable(session.changes(self.pages) for session in self._sessions.values())
        latest = [LatestNumber(self._latest)] if self._latest else []
        everything = chain(latest, self._retained.values(), self._delayed.values(), sessions)
        while batch := list(islice(everything, LOAD_BATCH)):
            yield [copies.of(change) for change in batch]

    def page(self, client_id: str, first: int, count: int) -> "asyncio.Future[list[Delivery | None]]":
        """Implements `Store`. The future is already done."""
        future: asyncio.Future[list[Delivery | None]] = asyncio.get_running_loop().create_future()
        future.set_result(self.read(client_id, first, count))
        return future

    def read(self, client_id: str, first: int, count: int) -> list[Delivery | None]:
        """Like `page`, synchronously."""
        session = self._sessions.get(client_id)
        if session is None:
            return [None] * count
        start = first - session.first
        copies = _Copies()
        before = [session.at(sequence) for sequence in range(first, min(first + count, session.first))]
        found = [*before, *islice(session.queue, max(0, start), max(0, start + count))]
        return [None if each is None else copies.delivery(each) for each in found]

    def _apply(self, change: Change) -> None:
        if isinstance(change, SaveRetained):
            self._latest = max(self._latest, change.message.number)
            self._retained[change.message.topic] = change
        elif isinstance(change, RemoveRetained):
            self._retained.pop(change.topic, None)
        elif isinstance(change, SaveDelayed):
            self._latest = max(self._latest, change.message.number)
            self._delayed[change.number] = change
        elif isinstance(change, RemoveDelayed):
            self._delayed.pop(change.number, None)
        elif isinstance(change, SaveSession | SaveQueue):
            session = self._sessions.get(change.client_id)
            if session is None:
                self._sessions[change.client_id] = _Session(change)
            else:
                session.saved = change
        elif isinstance(change, EndSession):
            self._sessions.pop(change.client_id, None)
        elif isinstance(change, Stored | LatestNumber):
            raise TypeError(f"{type(change).__name__} says what a store has, and is nothing to commit")
        elif change.client_id in self._sessions:
            self._apply_to(self._sessions[change.client_id], change)

    def _apply_to(
        self,
        session: _Session,
        change: SaveSubscription
        | RemoveSubscription
        | SaveWill
        | RemoveWill
        | Enqueue
        | Sent
        | Settled
        | Due
        | Retain
        | Rewind
        | SaveReleased
        | RemoveReleased
        | SaveReceived
        | RemoveReceived,
    ) -> None:
        if isinstance(change, Enqueue):
            self._latest = max(self._latest, change.delivery.message.number)
            session.enqueue(change)
        elif isinstance(change, Sent):
            session.send(change)
        elif isinstance(change, Settled):
            session.settle(change.sequence)
        elif isinstance(change, Due):
            if change.sequence in session.sent:
                session.due[change.sequence] = change
        elif isinstance(change, Retain):
            session.retain(change.first)
        elif isinstance(change, Rewind):
            session.rewind(change.first)
        elif isinstance(change, SaveReleased):
            session.settle(change.sequence)
            session.released[change.packet_id] = change
        elif isinstance(change, RemoveReleased):
            session.released.pop(change.packet_id, None)
        elif isinstance(change, SaveReceived):
            session.received[change.packet_id] = change
        elif isinstance(change, RemoveReceived):
            session.received.pop(change.packet_id, None)
        elif isinstance(change, SaveSubscription):
            session.subscriptions[change.subscription.topic_filter] = change
        elif isinstance(change, RemoveSubscription):
            session.subscriptions.pop(change.topic_filter, None)
        elif isinstance(change, SaveWill):
            session.will = change
        elif isinstance(change, RemoveWill):
            session.will = None
        else:
            assert_never(change)
