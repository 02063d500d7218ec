"""The position of a reader in the partitions of a stream.

Invariant: a position never passes a message that the reader has not acknowledged.
"""

from collections.abc import Iterable, Sequence
from typing import Final, final

from mqttlite.log.ranges import Ranges


@final
class Place:
    """The position in one partition. All before `position` is done; from `head` on nothing was sent, except what is
    done `ahead`."""

    __slots__ = ("ahead", "head", "position", "unacknowledged")

    def __init__(self, position: int) -> None:
        self.position: int = position
        self.head: int = position
        self.ahead: Ranges | None = None
        """What is done behind `position`; None: nothing."""
        self.unacknowledged: int = 0

    def take(self) -> int:
        """The next offset to send, if there is a message."""
        if self.ahead is not None:
            self.head = self.ahead.after(self.head)
        return self.head

    def send(self) -> None:
        """The message at the head is sent, and must be acknowledged."""
        self.head += 1
        self.unacknowledged += 1

    def skip(self) -> None:
        """The message at the head needs no acknowledgement."""
        self.head += 1
        self._finish(self.head - 1, self.head)

    def acknowledge(self, offset: int) -> None:
        """A sent message is done."""
        self.unacknowledged -= 1
        self._finish(offset, offset + 1)

    def finish_before(self, end: int) -> None:
        """All before `end`, which was sent, is done. Acknowledgements of it may follow."""
        self._finish(self.position, end)

    def jump(self, first: int) -> int:
        """All before `first`, which is behind the head, was removed. Return how many messages are skipped. What was
        sent may still be acknowledged."""
        skipped = first - self.head
        if self.ahead is not None:
            skipped -= self.ahead.count(self.head, first)
        self._finish(self.head, first)
        self.head = max(self.head, first)
        return skipped

    def go_back(self) -> None:
        """The connection ended: what is unacknowledged will be sent again."""
        self.head = self.position
        self.unacknowledged = 0

    def _finish(self, first: int, end: int) -> None:
        """All from `first` to before `end` is done."""
        if end <= self.position:
            return
        if first > self.position:
            if self.ahead is None:
                self.ahead = Ranges()
            self.ahead.add(first, end)
            return
        self.position = end
        if self.ahead is not None:
            self.position = self.ahead.after(self.position)
            self.head = max(self.head, self.position)
            self.ahead.cut(self.position)
            if not len(self.ahead):
                self.ahead = None


@final
class Cursor:
    """The places in all partitions."""

    __slots__ = ("places",)

    def __init__(self, positions: Iterable[int]) -> None:
        self.places: Final = [Place(each) for each in positions]

    @property
    def positions(self) -> Sequence[int]:
        """Where it goes on after a restart."""
        return [each.position for each in self.places]

    def lag(self, logs: Iterable[tuple[int, int]]) -> int:
        """How many entries are not finished. `logs` are the first offset and the end of each partition."""
        total = 0
        for place, (first, end) in zip(self.places, logs, strict=True):
            first = max(place.position, first)
            total += end - first
            if place.ahead is not None:
                total -= place.ahead.count(first, end)
        return total

    def go_back(self) -> None:
        """The connection ended."""
        for each in self.places:
            each.go_back()

    def renew(self, number: int, position: int = -1) -> None:
        """Begin with a new place in a partition, at the same position or another one: what was sent is sent again, and
        acknowledgements of it change only the former place."""
        former = self.places[number]
        place = self.places[number] = Place(former.position if position < 0 else position)
        if position < 0:
            place.ahead = former.ahead
            former.ahead = None
