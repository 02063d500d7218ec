"""Reads deferred messages back from the store when the lane of their ordering key has room.

Invariant: at most one page of a queue is being read, and the messages of a key come back in order.
"""

from collections.abc import Callable
from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.message import Delivery
from mqttlite.core.question import LoadPage
from mqttlite.core.session.queue_pages import QueuePages
from mqttlite.extensions.queues.contents import Contents
from mqttlite.extensions.queues.context import QueueContext


@final
class DeferredPages:
    """A `PageReader`. `on_page` is called when messages are back in memory."""

    __slots__ = ("_contents", "_effects", "_is_loading", "_key", "_on_page", "_pages", "_sequences", "is_over")

    def __init__(self, contents: Contents, context: QueueContext, on_page: Callable[[], None]) -> None:
        self._contents: Final = contents
        self._effects: Final[Effects] = context.effects
        self._pages: Final[QueuePages] = context.pages
        self._on_page: Final = on_page
        self._is_loading = False
        self._key = ""
        self._sequences: list[int] = []
        """The sequences being read."""
        self.is_over: bool = False

    def want(self) -> None:
        """Start to read wanted messages, unless a page is being read."""
        if not self._is_loading and not self.is_over:
            self._is_loading = True
            self._pages.want(self)

    def next_page(self) -> LoadPage | None:
        """Implements `PageReader`."""
        contents = self._contents
        while contents.wanted and not self.is_over:
            self._key = next(iter(contents.wanted))
            del contents.wanted[self._key]
            self._sequences = contents.deferred.next_of(self._key, contents.room_for(self._key))
            if self._sequences:
                first = self._sequences[0]
                return LoadPage(contents.key, first, self._sequences[-1] - first + 1)
        self._is_loading = False
        return None

    def take_page(self, first: int, page: list[Delivery | None]) -> None:
        """Implements `PageReader`."""
        self._is_loading = False
        if self.is_over:
            return
        contents = self._contents
        for sequence in self._sequences:
            if sequence - first >= len(page):  # long messages: the rest is in the next page
                break
            delivery = page[sequence - first]
            if not contents.bring_back(self._key, sequence, None if delivery is None else delivery.message):
                break  # a seek or purge happened meanwhile
        contents.want_deferred(self._key)
        self._on_page()
