"""Finds the first message of a queue from a time on, by a search over message numbers, which are times.

Messages that are not in memory are read from the store, a few at a time. Late messages are ignored, so that the numbers
rise. Invariant: of the examined messages, those before `low` are older, and those from `high` on are not.
"""

from collections.abc import Callable
from typing import Final, final

from mqttlite.core.message import Delivery
from mqttlite.core.question import LoadPage
from mqttlite.core.session.queue_pages import QueuePages
from mqttlite.extensions.queues.contents import Contents
from mqttlite.log.ranges import Ranges

PROBED: Final = 20
"""Messages read at a time, because the first ones may be lost."""


@final
class TimeSearch:
    """A `PageReader`. `found` gets a sequence: all messages before it are older than `number`."""

    __slots__ = (
        "_contents",
        "_found",
        "_has_read",
        "_high",
        "_high_number",
        "_is_halved",
        "_lost",
        "_low",
        "_low_number",
        "_middle",
        "_number",
        "_pages",
        "_probe",
    )

    def __init__(self, contents: Contents, pages: QueuePages, number: int, found: Callable[[int], None]) -> None:
        self._contents: Final = contents
        self._pages: Final = pages
        self._number: Final = number
        self._found: Final = found
        self._low = contents.oldest
        self._high = contents.backlog.end
        self._low_number = -1
        self._high_number = contents.retention.latest + 1
        """Numbers of an examined message before `low`, if any, and of one at `high` or after it."""
        self._is_halved = True
        self._middle = 0
        self._probe = 0
        self._has_read = False
        self._lost: Final = Ranges()
        """Sequences without a message."""

    def begin(self) -> None:
        """Search in memory, and request the next message from the store."""
        if self._number > self._contents.retention.latest:
            self._low = self._high
        while True:
            self._low = max(self._low, self._contents.oldest)  # messages that ended meanwhile may be gone
            if self._low >= self._high:
                break
            self._middle = self._guess()
            self._probe = self._to_look_at(self._middle)
            if self._probe >= self._high:
                self._high = self._middle
                continue
            number = self._number_here(self._probe)
            if number < 0:
                self._pages.want(self)
                return
            self._compare(number)
        self._found(self._low)

    def _guess(self) -> int:
        """The next sequence to examine: alternately the middle, and an interpolation that assumes a constant rate."""
        self._is_halved = not self._is_halved
        low, high = self._low, self._high
        if self._is_halved or self._low_number < 0 or self._high_number <= self._low_number:
            return (low + high) // 2
        part = (self._number - self._low_number) / (self._high_number - self._low_number)
        return min(max(low, low + int((high - low) * part)), high - 1)

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

    def _compare(self, number: int) -> None:
        if number >= self._number:
            self._high = self._middle  # no messages between here and the examined one
            self._high_number = number
        else:
            self._low = self._probe + 1
            self._low_number = number

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
            elif sequence not in retention.late and sequence not in retention.gone and sequence < self._high:
                self._probe = sequence
                self._compare(delivery.message.number)
                break
        self.begin()
