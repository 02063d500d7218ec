"""Reads the backlog of a long queue from the store, page by page, while there are consumers.

Invariant: at most one page of a queue is being read, and the messages of the backlog stay in order.
"""

from collections.abc import Callable
from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.limits import KEPT_MESSAGES, PAGE_MESSAGES
from mqttlite.core.message import Delivery, Message
from mqttlite.core.question import LoadPage
from mqttlite.core.session.queue_pages import QueuePages
from mqttlite.extensions.queues.contents import Contents
from mqttlite.extensions.queues.context import QueueContext

_NOTHING: Final = Delivery(Message(b"", b""), 0, False)


@final
class BacklogPages:
    """A `PageReader`. `on_page` is called when more messages are in memory."""

    __slots__ = ("_contents", "_effects", "_is_loading", "_lost_at", "_on_page", "_pages", "is_over")

    def __init__(self, contents: Contents, context: QueueContext, on_page: Callable[[], None]) -> None:
        self._contents: Final = contents
        self._effects: Final[Effects] = context.effects
        self._pages: Final[QueuePages] = context.pages
        self._on_page: Final = on_page
        self._is_loading = False
        self._lost_at = -1
        """The sequence of a message that the store has lost. It is skipped when those before it are taken."""
        self.is_over: bool = False

    def want(self) -> None:
        """Read the next page if few messages are left in memory and more are stored."""
        backlog = self._contents.backlog
        if not backlog.stored:
            return
        if backlog.deliveries and backlog.first + len(backlog.deliveries) == self._lost_at:
            return
        if not self._is_loading and backlog.wants_page and not self.is_over:
            self._is_loading = True
            self._pages.want(self)

    def forget(self) -> None:
        """There are no consumers: keep only the first messages in memory."""
        if self._contents.has_pages:
            self._contents.backlog.forget_page()

    def next_page(self) -> LoadPage | None:
        """Implements `PageReader`."""
        backlog = self._contents.backlog
        if self.is_over or not backlog.wants_page:
            self._is_loading = False
            return None
        memory = self._effects.memory
        most = PAGE_MESSAGES if memory.used <= memory.half else KEPT_MESSAGES
        return LoadPage(self._contents.key, backlog.first + len(backlog.deliveries), min(backlog.stored, most))

    def take_page(self, first: int, page: list[Delivery | None]) -> None:
        """Implements `PageReader`."""
        self._is_loading = False
        backlog = self._contents.backlog
        for sequence, delivery in enumerate(page, first):
            if not backlog.stored or sequence != backlog.first + len(backlog.deliveries):
                continue
            if delivery is not None:
                backlog.take_page(delivery)
            elif self._contents.retention.is_hole(sequence):
                backlog.take_page(_NOTHING)  # it is skipped
            elif not backlog.deliveries:
                self._contents.skip_lost()
            else:
                self._lost_at = sequence  # the next page begins with the lost message
                break
        self._on_page()
