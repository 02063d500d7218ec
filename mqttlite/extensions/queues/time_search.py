"""Finds the first message of a queue from a time on, by a search over message numbers, which are times.

Messages that are not in memory are read from the store, a few at a time. Invariant: late messages are ignored, so that
the numbers rise.
"""

from collections.abc import Callable
from typing import Final, final

from mqttlite.core.message import Delivery
from mqttlite.core.question import LoadPage
from mqttlite.core.session.queue_pages import QueuePages
from mqttlite.extensions.queues.contents import Contents
from mqttlite.log.bisection import Bisection
from mqttlite.log.ranges import Ranges

PROBED: Final = 20
"""Messages read at a time, because the first ones may be lost."""


@final
class TimeSearch:
    """A `PageReader`. `found` gets a sequence: all messages before it are older than `number`."""

    __slots__ = (
        "_bisection",
        "_contents",
        "_found",
        "_has_read",
        "_lost",
        "_pages",
        "_probe",
    )

    def __init__(self, contents: Contents, pages: QueuePages, number: int, found: Callable[[int], None]) -> None:
        self._contents: Final = contents
        self._pages: Final = pages
        self._found: Final = found
        latest = contents.retention.latest
        self._bisection: Final = Bisection(number, contents.oldest, contents.backlog.end, latest + 1)
        self._probe = 0
        self._has_read = False
        self._lost: Final = Ranges()
        """Sequences without a message."""

    def begin(self) -> None:
        """Search in memory, and request the next message from the store."""
        search = self._bisection
        if search.number > self._contents.retention.latest:
            search.low = search.high
        while True:
            search.low = max(search.low, self._contents.oldest)  # messages that ended meanwhile may be gone
            if search.is_over:
                break
            self._probe = self._to_look_at(search.next_offset())
            if self._probe >= search.high:
                search.found_none()
                continue
            number = self._number_here(self._probe)
            if number < 0:
                self._pages.want(self)
                return
            search.found(self._probe, number)
        self._found(search.low)

    def _to_look_at(self, sequence: int) -> int:
        """The next sequence whose number is usable."""
        retention = self._contents.retention
        while True:
            following = retention.late.after(retention.gone.after(self._lost.after(sequence)))
            if following == sequence:
                return sequence
            sequence = following

    def _number_here(self, sequence: int) -> int:
        """The number of a message that is in memory; else -1."""
        backlog = self._contents.backlog
        entry = self._contents.deliveries.entries.get(sequence)
        if entry is not None:
            return entry.message.number
        if 0 <= sequence - backlog.first < len(backlog.deliveries):
            number = backlog.deliveries[sequence - backlog.first].message.number
            if number:
                return number
        return -1

    def next_page(self) -> LoadPage:
        """Implements `PageReader`. All searched messages existed before the first page, so they are committed after
        it."""
        is_committed, self._has_read = self._has_read, True
        return LoadPage(self._contents.key, self._probe, PROBED, is_committed)

    def take_page(self, first: int, page: list[Delivery | None]) -> None:
        """Implements `PageReader`."""
        retention = self._contents.retention
        for sequence, delivery in enumerate(page, first):
            if delivery is None or not delivery.message.number:
                self._lost.add(sequence, sequence + 1)
            elif sequence not in retention.late and sequence not in retention.gone and sequence < self._bisection.high:
                self._bisection.found(sequence, delivery.message.number)
                break
        self.begin()
