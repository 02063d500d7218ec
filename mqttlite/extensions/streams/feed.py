"""Where a cursor gets its next messages: from memory at the end of a partition, else in pages from the store.

Partitions with messages that the cursor has not passed take turns. Invariant: the entries of one partition come in the
order of their offsets, and those that are missing are told to the owner before the next one.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol, final

from mqttlite.core.memory import ENTRY_BYTES
from mqttlite.core.question import Entries, LoadEntries
from mqttlite.extensions.streams.entry import Entry
from mqttlite.extensions.streams.limits import BURST, READ_AHEAD, SEARCHED, SHORT_READ_AHEAD
from mqttlite.extensions.streams.partition import Partition
from mqttlite.extensions.streams.stream import Stream
from mqttlite.log.bisection import Bisection
from mqttlite.log.cursor import Cursor
from mqttlite.log.segments import UNKNOWN


class FeedOwner(Protocol):
    """Takes the messages."""

    def wake(self) -> None:
        """There may be messages: take them in this iteration or the next."""
        ...

    def may_take(self) -> bool:
        """Whether messages from the store could be taken when they come."""
        ...

    def lowest(self) -> int:
        """The lowest number of a message that it takes."""
        ...

    def on_passed(self, partition: Partition, messages: int, is_missing: bool) -> None:
        """The cursor passed offsets without messages: retention or compaction removed them, or with `is_missing` the
        store does not have them."""
        ...


@final
class Feed:
    """An `EntryReader` and a `Follower`. The owner takes what `next` returns before it asks again."""

    __slots__ = (
        "_burst",
        "_cursor",
        "_is_loading",
        "_lagging",
        "_loads",
        "_loads_from",
        "_owner",
        "_page",
        "_page_end",
        "_page_first",
        "_probe",
        "_search",
        "_searched",
        "_stream",
        "is_new",
    )

    def __init__(self, stream: Stream, cursor: Cursor, owner: FeedOwner) -> None:
        self._stream: Final = stream
        self._cursor: Final = cursor
        self._owner: Final = owner
        self._lagging: Final[deque[int]] = deque()
        """The partitions with messages that may come."""
        self._burst = 0
        self._page: Final[deque[Entry]] = deque()
        """Messages from the store, of the first partition in `_lagging`."""
        self._page_first = 0
        self._page_end = 0
        """The offsets from and before which they are all that the partition has."""
        self._is_loading = False
        self._loads = 0
        """The partition of the page that is being read."""
        self._loads_from = 0
        """The offset from which it is read. The cursor may step back meanwhile."""
        self._search: Bisection | None = None
        """For the lowest message that the owner takes, in the partition of `_loads`."""
        self._probe: Bisection | None = None
        """That of the question which is under way; it may be over."""
        self._searched: Final[set[int]] = set()
        """The partitions in which it was found, or is near."""
        self.is_new: bool = False
        """Whether the latest message came from memory, so that it may not be on disk yet."""

    def add(self, partitions: Iterable[int]) -> None:
        """Read these partitions, too, which it does not read."""
        self._lagging.extend(partitions)

    def drop(self, partition: int) -> None:
        """Read it no longer."""
        self._stream.partitions[partition].followers.pop(self, None)
        self._search = None
        self._searched.discard(partition)
        if partition in self._lagging:
            if self._lagging[0] == partition:
                self.forget_page()
            self._lagging.remove(partition)

    def clear(self) -> None:
        """Read no partition."""
        self.forget_page()
        self._lagging.clear()
        self._search = None
        self._searched.clear()
        for each in self._stream.partitions:
            each.followers.pop(self, None)

    def on_more(self, partition: int) -> None:
        """Implements `Follower`."""
        self._lagging.append(partition)
        self._owner.wake()

    def next(self) -> Entry | None:
        """The message at the head of a partition, which the owner then takes; None if there is none, or it has to be
        read from the store first."""
        lagging = self._lagging
        while lagging:
            if self._burst >= BURST and not self._page:
                self._burst = 0
                self.forget_page()
                lagging.rotate(-1)
            partition = self._stream.partitions[lagging[0]]
            place = self._cursor.places[partition.number]
            if place.head < partition.first:
                self._owner.on_passed(partition, place.jump(partition.first), is_missing=False)
            offset = place.take()
            if offset >= partition.end:
                lagging.popleft()
                self.forget_page()
                self._burst = 0
                partition.followers[self] = None
                continue
            entry = partition.in_memory(offset)
            self.is_new = entry is not None
            if entry is None:
                entry = self._read_ahead(offset)
            if entry is not None:
                self._burst += 1
                return entry
            following = self._page[0].offset if self._page else self._page_end
            if not self._page_first <= offset < following:
                self.forget_page()
                self._want_page()
                return None
            self._owner.on_passed(partition, place.jump(following), is_missing=True)
        return None

    def _read_ahead(self, offset: int) -> Entry | None:
        """Take the message at an offset, if it was read from the store."""
        page, memory = self._page, self._stream.context.effects.memory
        while page and page[0].offset <= offset:
            entry = page.popleft()
            memory.let_go(entry.message, ENTRY_BYTES)
            if entry.offset == offset:
                return entry
        return None

    # ------------------------------------------------------------------ pages

    def _want_page(self) -> None:
        if not self._is_loading:
            self._is_loading = True
            self._stream.context.pages.want_entries(self)

    def next_entries(self) -> LoadEntries | None:
        """Implements `EntryReader`."""
        if not self._lagging or not self._owner.may_take():
            self._is_loading = False
            return None
        partition = self._stream.partitions[self._lagging[0]]
        first = max(partition.first, self._cursor.places[partition.number].take())
        if first >= partition.end:
            self._is_loading = False
            self._owner.wake()
            return None
        search = self._search = self._probe = self._next_search(partition, first)
        self._loads, self._loads_from = partition.number, first
        if search is not None:
            return LoadEntries(partition.key, search.next_offset(), search.high, 1)
        most = SHORT_READ_AHEAD if self._stream.context.pages.has_waiting else READ_AHEAD
        return LoadEntries(partition.key, first, partition.end, most)

    def take_entries(self, entries: Entries) -> None:
        """Implements `EntryReader`."""
        self._is_loading = False
        number = self._loads
        probe, self._probe = self._probe, None
        self._owner.wake()
        if not self._lagging or self._lagging[0] != number or not self._owner.may_take():
            return
        if probe is not None:
            if probe is self._search:
                self._take_probe(probe, self._stream.partitions[number], entries)
            return
        self.forget_page()
        memory = self._stream.context.effects.memory
        for offset, delivery in entries.found:
            memory.hold(delivery.message, ENTRY_BYTES)
            self._page.append(Entry(number, offset, delivery.message))
        self._page_first, self._page_end = self._loads_from, entries.following

    def _next_search(self, partition: Partition, first: int) -> Bisection | None:
        """The search that is under way in a partition, or a new one if the messages from `first` on are many that the
        owner does not take."""
        number, lowest = partition.number, self._owner.lowest()
        if number in self._searched or not lowest:
            return None
        if self._search is not None and self._loads == number:
            return self._search
        around = partition.segments.around(lowest, partition.end)
        if around.late_us == UNKNOWN or not around.low <= first < around.high - SEARCHED:
            self._searched.add(number)
            return None
        return around._replace(low=first).search(lowest)

    def _take_probe(self, search: Bisection, partition: Partition, entries: Entries) -> None:
        """Take the answer to a question of a search."""
        if entries.found:
            offset, delivery = entries.found[0]
            search.found(offset, delivery.message.number)
        else:
            search.found_none()
        if search.high - search.low <= SEARCHED:
            self._search = None
            self._searched.add(partition.number)
            place = self._cursor.places[partition.number]
            if search.low > place.head:
                place.jump(search.low)

    def forget_page(self) -> None:
        """Drop what was read ahead."""
        self._page_first = self._page_end = 0
        while self._page:
            self._stream.context.effects.memory.let_go(self._page.popleft().message, ENTRY_BYTES)
