"""Reads the long queues of connected clients back from the store, page by page.

A page is a `LoadPage` question whose answer is a list of deliveries, with None for each lost message. At most
`MAX_PAGES_AT_ONCE` pages are read at the same time; other sessions wait in turn. Invariant: a session waits here, or
has a page being read, at most once.
"""

from collections import deque
from typing import Final, Protocol, final

from mqttlite.core.limits import MAX_PAGES_AT_ONCE
from mqttlite.core.message import Delivery
from mqttlite.core.question import LoadPage, Question
from mqttlite.core.questions import Asker, Questions


class PageReader(Protocol):
    """The owner of a long queue."""

    def next_page(self) -> LoadPage | None:
        """The question for the next page; None when all of the queue is in memory."""
        ...

    def take_page(self, first: int, page: list[Delivery | None]) -> None:
        """Take the messages from sequence `first` on."""
        ...


class Origins(Protocol):
    """Finds the origin that a store knows only by name."""

    def with_origin(self, delivery: Delivery) -> Delivery:
        """The same delivery with its origin."""
        ...


@final
class QueuePages(Asker):
    __slots__ = ("_origins", "_questions", "_under_way", "_waiting")

    def __init__(self, questions: Questions, origins: Origins) -> None:
        self._questions: Final = questions
        self._origins: Final = origins
        self._waiting: Final[deque[PageReader]] = deque()
        self._under_way: Final[dict[int, PageReader]] = {}

    def want(self, reader: PageReader) -> None:
        """Read the next page of a session when its turn comes."""
        self._waiting.append(reader)
        self._ask()

    def on_answer(self, question: Question, answer: object) -> None:
        assert isinstance(question, LoadPage)
        assert isinstance(answer, list), "a page is a list"
        reader = self._under_way.pop(question.id)
        origins = self._origins
        page = [None if delivery is None else origins.with_origin(delivery) for delivery in answer]
        reader.take_page(question.first, page)
        self._ask()

    def _ask(self) -> None:
        while self._waiting and len(self._under_way) < MAX_PAGES_AT_ONCE:
            reader = self._waiting.popleft()
            question = reader.next_page()
            if question is not None:
                self._questions.ask(question, self, urgent=True)
                self._under_way[question.id] = reader
