"""`News`: what a connected node is still to be told of subscriptions here. First comes what was subscribed when the two
connected, then each change.

Invariant: of the beginning each filter is told with the QoS that it has when it is its turn, so the changes behind it
bring the other node to what holds now, however much changed meanwhile.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

NEWS_BYTES: Final = 65_536
"""About how many bytes of topic filters are in one blob."""

NEWS_AT_ONCE: Final = 200
"""How many topic filters and shared subscriptions are in one blob: some milliseconds of work for the other node, and of
new shared subscriptions about twenty."""

NEWS_WAITING_BYTES: Final = 192 * 1_048_576
"""How many bytes of changes may wait for a node. With more the connection ends, and the next one begins with what is
subscribed then. It is more than may be subscribed (`telling.MAX_FILTERS_BYTES`, `MAX_SHARES_TOLD_BYTES`): so no client
can end it by leaving."""

NewsItem = tuple[bytes, int]
"""A topic filter with its QoS, or what else is told in its place (`blobs.Data.news`)."""


class Beginning(NamedTuple):
    """What is told first: filters, each with `qos_of` it, and then others. A million filters need no million pairs."""

    filters: list[bytes]
    qos_of: Callable[[bytes], int]
    others: list[NewsItem]


_NOTHING: Final = Beginning([], lambda topic_filter: 0, [])


class News:
    """`told` and `taken` are counted by who sends and by what the other node answers."""

    def __init__(self) -> None:
        self.told: int = 0
        """How many filters it was told since the connection began, with those that wait."""
        self.taken: int = 0
        """How many of them it has taken."""
        self.whole_after: int = 0
        """After how many it knows all that was subscribed when the connection began."""
        self._beginning: Beginning = _NOTHING
        self._sent_of_it = 0
        self._changes: Final[OrderedDict[bytes, int]] = OrderedDict()
        """Of several changes of a filter the last one holds, in the place of the first. The first one of a plain `dict`
        is found behind all that were taken before."""
        self._change_bytes = 0

    def begin(self, beginning: Beginning) -> None:
        """A connection has begun."""
        self.end()
        self._beginning = beginning
        self.told = self.whole_after = len(beginning.filters) + len(beginning.others)
        self.taken = 0

    def end(self) -> None:
        """Nothing waits any more."""
        self._beginning = _NOTHING
        self._sent_of_it = 0
        self._changes.clear()
        self._change_bytes = 0

    def put(self, changes: Iterable[NewsItem]) -> bool:
        """Have changes wait. False if there are too many."""
        for name, value in changes:
            if name not in self._changes:
                self._change_bytes += len(name)
                self.told += 1
            self._changes[name] = value
        return self._change_bytes <= NEWS_WAITING_BYTES

    @property
    def sent(self) -> int:
        """How many it was sent since the connection began."""
        return self.told - self._of_beginning - len(self._changes)

    @property
    def waits(self) -> bool:
        """Whether there is something to tell."""
        return self._of_beginning > 0 or len(self._changes) > 0

    def take(self) -> list[NewsItem]:
        """The next ones for one blob."""
        taken: list[NewsItem] = []
        size = 0
        while size < NEWS_BYTES and len(taken) < NEWS_AT_ONCE and self.waits:
            item = self._next()
            size += len(item[0])
            taken.append(item)
        return taken

    @property
    def _of_beginning(self) -> int:
        """How many of the beginning wait."""
        return len(self._beginning.filters) + len(self._beginning.others) - self._sent_of_it

    def _next(self) -> NewsItem:
        beginning, at = self._beginning, self._sent_of_it
        if not self._of_beginning:
            change = self._changes.popitem(last=False)
            self._change_bytes -= len(change[0])
            return change
        self._sent_of_it += 1
        if at < len(beginning.filters):
            topic_filter = beginning.filters[at]
            item = topic_filter, beginning.qos_of(topic_filter)
        else:
            item = beginning.others[at - len(beginning.filters)]
        if not self._of_beginning:
            self._beginning, self._sent_of_it = _NOTHING, 0
        return item
