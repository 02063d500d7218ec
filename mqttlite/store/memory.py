"""The in-memory store, which lives as long as the process: for tests, and for restarts of a broker within one program.

It keeps only the latest state, and one copy of each message for all sessions. Invariant: `load` after `commit` yields
changes that recreate the same state.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from itertools import chain, islice
from typing import Final, assert_never

from mqttlite.core.changes import (
    Change,
    EndSession,
    Enqueue,
    LatestNumber,
    RemoveDelayed,
    RemoveReceived,
    RemoveReleased,
    RemoveRetained,
    RemoveSubscription,
    RemoveWill,
    SaveDelayed,
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
from mqttlite.core.log_changes import (
    Append,
    Compact,
    Finish,
    KeepFrom,
    LoadedOfLog,
    LogChange,
    MoveHead,
    RemoveRecord,
    SaveDeadline,
    SaveRecord,
    StoredLog,
    Take,
)
from mqttlite.core.memory import ENTRY_BYTES
from mqttlite.core.message import Delivery, Message, StoredOrigin
from mqttlite.core.question import Entries
from mqttlite.core.retained.writer import Writer

LOAD_BATCH: Final = 1_000
"""The most changes in a batch of `load`."""


_NOTHING: Final = Delivery(Message(b"", b""), 0, False)


def _size_of(delivery: Delivery) -> int:
    return ENTRY_BYTES + delivery.message.memory_bytes


class _Messages:
    """Those of a session or log. A sent or taken message has a packet identifier or mark."""

    def __init__(self) -> None:
        self.sent: dict[int, tuple[Delivery, int]] = {}
        self.waiting: deque[Delivery] = deque()
        self.first = 0
        """The sequence of the first waiting message: they are consecutive."""
        self.due: dict[int, float] = {}
        self.floor = -1
        """From this sequence on, settled messages are kept; -1: none are."""
        self.kept: dict[int, Delivery] = {}
        """The kept settled messages, by sequence."""
        self.sparse: dict[int, Delivery] = {}
        """What is left of a compacted log, by offset: it waits before the waiting messages."""
        self.offsets: list[int] = []
        """Those of `sparse`, in order."""

    def append(self, sequence: int, delivery: Delivery, packet_id: int) -> None:
        if packet_id:
            self.sent[sequence] = delivery, packet_id
        else:
            if not self.waiting:
                self.first = sequence
            assert sequence == self.first + len(self.waiting), "sequences of waiting messages are consecutive"
            self.waiting.append(delivery)

    def send(self, sequence: int, packet_id: int) -> None:
        self.due.pop(sequence, None)
        sent = self.sent.get(sequence)
        if sent is not None:
            self.sent[sequence] = sent[0], packet_id
            return
        kept = self.kept.pop(sequence, None)
        assert kept is not None or sequence == self.first, "messages leave from the front"
        self.sent[sequence] = self._pop() if kept is None else kept, packet_id

    def settle(self, sequence: int) -> None:
        self.due.pop(sequence, None)
        sent = self.sent.pop(sequence, None)
        if sent is not None:
            self._keep(sequence, sent[0])
        elif self.waiting and sequence == self.first:
            self._keep(sequence, self._pop())

    def _keep(self, sequence: int, delivery: Delivery) -> None:
        if 0 <= self.floor <= sequence:
            self.kept[sequence] = delivery

    def keep_from(self, first: int) -> None:
        self.floor = first
        for sequence in [sequence for sequence in self.kept if first < 0 or sequence < first]:
            del self.kept[sequence]

    def move_head(self, first: int) -> None:
        """Missing messages are replaced by a placeholder, because they will not be read."""
        if self.offsets:
            self._remove_sparse(0, bisect_left(self.offsets, first), frozenset())
            if first <= self.first:
                return
        end = self.first + len(self.waiting)
        if first >= self.first:
            if self.floor >= 0:
                start = max(self.first, self.floor)
                passed = islice(self.waiting, start - self.first, None)
                self.kept.update(zip(range(start, first), passed, strict=False))
            self.waiting = deque(islice(self.waiting, first - self.first, None))
            self.first = first
            return
        everything = dict(enumerate(self.waiting, self.first))
        everything.update(self.kept)
        everything.update((sequence, sent[0]) for sequence, sent in self.sent.items() if sequence >= first)
        for sequence in [sequence for sequence in self.sent if sequence >= first]:
            del self.sent[sequence]
            self.due.pop(sequence, None)
        self.waiting = deque(everything.get(sequence, _NOTHING) for sequence in range(first, end))
        self.first = first
        self.kept = {sequence: delivery for sequence, delivery in self.kept.items() if sequence < first}

    def compact(self, first: int, end: int, kept: frozenset[int]) -> None:
        self._remove_sparse(bisect_left(self.offsets, first), bisect_left(self.offsets, end), kept)
        while self.waiting and self.first < end:
            offset = self.first
            delivery = self._pop()
            if offset < first or offset in kept:
                self.sparse[offset] = delivery
                self.offsets.append(offset)

    def _remove_sparse(self, at: int, to: int, kept: frozenset[int]) -> None:
        """Of these places in `offsets`, only the offsets in `kept` stay."""
        between = self.offsets[at:to]
        for offset in between:
            if offset not in kept:
                del self.sparse[offset]
        self.offsets[at:to] = [each for each in between if each in kept]

    def entries(self, first: int, end: int, count: int) -> list[tuple[int, Delivery]]:
        """Up to `count` waiting messages with offsets from `first` to before `end`."""
        at = bisect_left(self.offsets, first)
        found = [(each, self.sparse[each]) for each in self.offsets[at : at + count] if each < end]
        start = max(first, self.first)
        most = max(0, min(count - len(found), end - start))
        waiting = islice(self.waiting, start - self.first, start - self.first + most)
        return [*found, *enumerate(waiting, start)]

    @property
    def first_left(self) -> int:
        """The sequence of the first message that waits."""
        return self.offsets[0] if self.offsets else self.first

    def at(self, sequence: int) -> Delivery | None:
        """The kept or waiting message with a sequence."""
        if sequence < self.first:
            return self.kept.get(sequence) or self.sparse.get(sequence)
        return self.waiting[sequence - self.first] if sequence < self.first + len(self.waiting) else None

    def is_counted(self, pages: bool) -> bool:
        """Whether `load` yields only how many wait."""
        return pages or (not self.waiting and not self.offsets and self.first > 0)

    def size_bytes(self) -> int:
        """Of those that wait."""
        return sum(map(_size_of, chain(self.sparse.values(), self.waiting)))

    def _pop(self) -> Delivery:
        self.first += 1
        return self.waiting.popleft()


class _Session:
    def __init__(self, saved: SaveSession) -> None:
        self.saved = saved
        self.messages = _Messages()
        self.will: SaveWill | None = None
        self.subscriptions: dict[bytes, SaveSubscription] = {}
        self.released: dict[int, SaveReleased] = {}
        self.received: dict[int, SaveReceived] = {}

    def changes(self, pages: bool) -> Iterator[Change]:
        """The changes that recreate it."""
        client_id, messages = self.saved.client_id, self.messages
        yield self.saved
        if self.will is not None:
            yield self.will
        yield from self.subscriptions.values()
        for sequence, (delivery, packet_id) in messages.sent.items():
            yield Enqueue(client_id, sequence, delivery, packet_id)
        if messages.is_counted(pages):
            yield Stored(client_id, messages.first, len(messages.waiting), messages.size_bytes())
        else:
            for sequence, delivery in enumerate(messages.waiting, messages.first):
                yield Enqueue(client_id, sequence, delivery)
        yield from self.released.values()
        yield from self.received.values()


class _Record:
    def __init__(self, saved: SaveRecord) -> None:
        self.saved = saved
        self.messages = _Messages()

    def changes(self, pages: bool) -> Iterator[LoadedOfLog]:
        """The changes that recreate it."""
        key, messages = self.saved.key, self.messages
        yield self.saved
        for offset, (delivery, mark) in messages.sent.items():
            yield Append(key, offset, delivery, mark)
        if messages.floor >= 0:
            yield KeepFrom(key, messages.floor, sum(map(_size_of, messages.kept.values())))
        if messages.is_counted(pages):
            first = messages.first_left
            yield StoredLog(key, first, messages.first + len(messages.waiting) - first, messages.size_bytes())
        else:
            for offset, delivery in chain(messages.sparse.items(), enumerate(messages.waiting, messages.first)):
                yield Append(key, offset, delivery)
        for offset, due_at in messages.due.items():
            yield SaveDeadline(key, offset, due_at)


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
        if isinstance(change, Append):
            return Append(change.key, change.offset, self.delivery(change.delivery), change.mark)
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
    """A `Store` in dictionaries. The broker's limits bound its size."""

    def __init__(self, *, pages: bool = False) -> None:
        self.pages: Final = pages
        """Whether it offers pages like a store on disk; for tests."""
        self._sessions: dict[str, _Session] = {}
        self._records: dict[str, _Record] = {}
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
        records = chain.from_iterable(record.changes(self.pages) for record in self._records.values())
        latest = [LatestNumber(self._latest)] if self._latest else []
        everything = chain(latest, self._retained.values(), self._delayed.values(), sessions, records)
        while batch := list(islice(everything, LOAD_BATCH)):
            yield [copies.of(change) for change in batch]

    def page(self, key: str, first: int, count: int) -> "asyncio.Future[list[Delivery | None]]":
        """Implements `Store`. The future is already done."""
        future: asyncio.Future[list[Delivery | None]] = asyncio.get_running_loop().create_future()
        future.set_result(self.read(key, first, count))
        return future

    def read(self, key: str, first: int, count: int) -> list[Delivery | None]:
        """Like `page`, synchronously."""
        owner = self._sessions.get(key) or self._records.get(key)
        if owner is None:
            return [None] * count
        messages = owner.messages
        start = first - messages.first
        copies = _Copies()
        before = [messages.at(sequence) for sequence in range(first, min(first + count, messages.first))]
        found = [*before, *islice(messages.waiting, max(0, start), max(0, start + count))]
        return [None if each is None else copies.delivery(each) for each in found]

    def entries(self, key: str, first: int, end: int, count: int) -> "asyncio.Future[Entries]":
        """Implements `Store`. The future is already done."""
        future: asyncio.Future[Entries] = asyncio.get_running_loop().create_future()
        future.set_result(self.read_entries(key, first, end, count))
        return future

    def read_entries(self, key: str, first: int, end: int, count: int) -> Entries:
        """Like `entries`, synchronously."""
        owner = self._records.get(key)
        found = [] if owner is None else owner.messages.entries(first, end, count)
        copies = _Copies()
        following = found[-1][0] + 1 if len(found) == count else end
        return Entries([(offset, copies.delivery(each)) for offset, each in found], following)

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
        elif isinstance(change, SaveSession):
            session = self._sessions.get(change.client_id)
            if session is None:
                self._sessions[change.client_id] = _Session(change)
            else:
                session.saved = change
        elif isinstance(change, EndSession):
            self._sessions.pop(change.client_id, None)
        elif isinstance(change, Stored | LatestNumber):
            raise TypeError(f"{type(change).__name__} says what a store has, and is nothing to commit")
        elif isinstance(change, LogChange):
            self._apply_to_log(change)
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
        | SaveReleased
        | RemoveReleased
        | SaveReceived
        | RemoveReceived,
    ) -> None:
        if isinstance(change, Enqueue):
            self._latest = max(self._latest, change.delivery.message.number)
            session.messages.append(change.sequence, change.delivery, change.packet_id)
        elif isinstance(change, Sent):
            session.messages.send(change.sequence, change.packet_id)
        elif isinstance(change, Settled):
            session.messages.settle(change.sequence)
        elif isinstance(change, SaveReleased):
            session.messages.settle(change.sequence)
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

    def _apply_to_log(self, change: LogChange) -> None:
        record = self._records.get(change.key)
        if isinstance(change, StoredLog):
            raise TypeError("StoredLog says what a store has, and is nothing to commit")
        if isinstance(change, SaveRecord):
            if record is None:
                self._records[change.key] = _Record(change)
            else:
                record.saved = change
        elif isinstance(change, RemoveRecord):
            self._records.pop(change.key, None)
        elif record is None:
            return
        elif isinstance(change, Append):
            self._latest = max(self._latest, change.delivery.message.number)
            record.messages.append(change.offset, change.delivery, change.mark)
        elif isinstance(change, Take):
            record.messages.send(change.offset, change.mark)
        elif isinstance(change, Finish):
            record.messages.settle(change.offset)
        elif isinstance(change, SaveDeadline):
            if change.offset in record.messages.sent:
                record.messages.due[change.offset] = change.due_at
        elif isinstance(change, KeepFrom):
            record.messages.keep_from(change.offset)
        elif isinstance(change, MoveHead):
            record.messages.move_head(change.offset)
        elif isinstance(change, Compact):
            record.messages.compact(change.first, change.end, frozenset(change.kept))
        else:
            assert_never(change)
