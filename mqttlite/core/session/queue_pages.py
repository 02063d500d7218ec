"""Reads the long queues of connected clients, and logs, back from the store, page by page.

A page is a `LoadPage` question whose answer is a list of deliveries, with None for each lost message. A log in which
messages may be missing is read with `LoadEntries`. At most `MAX_PAGES_AT_ONCE` of both are read at the same time; other
readers wait in turn, and both kinds take turns. Invariant: a reader waits here, or has a page being read, at most once.
"""

from collections import deque
from typing import Final, Protocol, final

from mqttlite.core.limits import MAX_PAGES_AT_ONCE
from mqttlite.core.message import Delivery
from mqttlite.core.question import Entries, LoadEntries, LoadPage, Question
from mqttlite.core.questions import Asker, Questions


class PageReader(Protocol):
    """The owner of a long queue."""

    def next_page(self) -> LoadPage | None:
        """The question for the next page; None when all of the queue is in memory."""
        ...

    def take_page(self, first: int, page: list[Delivery | None]) -> None:
        """Take the messages from sequence `first` on."""
        ...


class EntryReader(Protocol):
    """A reader of a log."""

    def next_entries(self) -> LoadEntries | None:
        """The question for the next messages; None if it needs none."""
        ...

    def take_entries(self, entries: Entries) -> None:
        """Take the answer."""
        ...


class Origins(Protocol):
    """Finds the origin that a store knows only by name."""

    def with_origin(self, delivery: Delivery) -> Delivery:
        """The same delivery with its origin."""
        ...


@final
class QueuePages(Asker):
    __slots__ = (
        "_entries_under_way",
        "_entries_waiting",
        "_is_turn_of_entries",
        "_origins",
        "_questions",
        "_under_way",
        "_waiting",
    )

    def __init__(self, questions: Questions, origins: Origins) -> None:
        self._questions: Final = questions
        self._origins: Final = origins
        self._waiting: Final[deque[PageReader]] = deque()
        self._under_way: Final[dict[int, PageReader]] = {}
        self._entries_waiting: Final[deque[EntryReader]] = deque()
        self._entries_under_way: Final[dict[int, EntryReader]] = {}
        self._is_turn_of_entries = False

    def want(self, reader: PageReader) -> None:
        """Read the next page of a session when its turn comes."""
        self._waiting.append(reader)
        self._ask()

    def want_entries(self, reader: EntryReader) -> None:
        """Read the next messages of a log when the turn of its reader comes."""
        self._entries_waiting.append(reader)
        self._ask()

    @property
    def has_waiting(self) -> bool:
        """Whether more readers wait for their turns: then pages are to be short, because new messages wait for them."""
        return bool(self._waiting) or bool(self._entries_waiting)

    def on_answer(self, question: Question, answer: object) -> None:
        if isinstance(question, LoadEntries):
            assert isinstance(answer, Entries)
            self._entries_under_way.pop(question.id).take_entries(answer)
        else:
            self._take_page(question, answer)
        self._ask()

    def _take_page(self, question: Question, answer: object) -> None:
        assert isinstance(question, LoadPage)
        assert isinstance(answer, list), "a page is a list"
        reader = self._under_way.pop(question.id)
        origins = self._origins
        page = [None if delivery is None else origins.with_origin(delivery) for delivery in answer]
        reader.take_page(question.first, page)

    def _ask(self) -> None:
        waiting, entries = self._waiting, self._entries_waiting
        while (waiting or entries) and len(self._under_way) + len(self._entries_under_way) < MAX_PAGES_AT_ONCE:
            self._is_turn_of_entries = bool(entries) and not (waiting and self._is_turn_of_entries)
            if self._is_turn_of_entries:
                self._ask_for_entries(entries.popleft())
            else:
                self._ask_for_page(waiting.popleft())

    def _ask_for_page(self, reader: PageReader) -> None:
        question = reader.next_page()
        if question is not None:
            self._questions.ask(question, self, urgent=True)
            self._under_way[question.id] = reader

    def _ask_for_entries(self, reader: EntryReader) -> None:
        question = reader.next_entries()
        if question is not None:
            self._questions.ask(question, self, urgent=True)
            self._entries_under_way[question.id] = reader
