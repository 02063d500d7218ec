"""The ports of the core: protocols that packages above it implement and `assembly` connects."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol, TypeAlias

from mqttlite.core.changes import Change
from mqttlite.core.message import Delivery
from mqttlite.core.question import Entries

BanOf: TypeAlias = Callable[[str, str | None, str], str]
"""Says why a client is banned, by client identifier, user and `address:port`; empty if it is not."""


class UnderWay(Protocol):
    """A commit that is not done yet: the part of an `asyncio.Future` that its caller uses."""

    def add_done_callback(self, on_done: Callable[[Any], object], /) -> None:
        """Call `on_done` with this object, in a later iteration of the loop, when the commit is done or failed."""
        ...

    def exception(self) -> BaseException | None:
        """Why the commit failed; None if it is done."""
        ...

    def cancelled(self) -> bool:
        """Whether it was given up."""
        ...

    def cancel(self) -> bool:
        """Give it up. Return whether there was something to give up."""
        ...


class Store(Protocol):
    """Keeps what must outlive the process."""

    @property
    def pages(self) -> bool:
        """Whether `load` yields only the number of waiting messages (`Stored`, `StoredLog`), and `page` reads them."""
        ...

    def commit(self, changes: list[Change]) -> UnderWay | None:
        """Make all changes durable, in order, or none. Return None if they are durable when the call returns.

        A failed commit has an exception and changes nothing. The caller retries with the same changes.
        """
        ...

    def load(self) -> Iterator[list[Change]]:
        """Yield the stored state as the changes that recreate it, in order, a bounded number at a time.

        A session comes before its parts, and its sent messages before its waiting ones. A sent message is an `Enqueue`
        with its packet identifier. For records and logs see `LoadedOfLog`. Delayed messages are ordered by number.
        Nothing is committed meanwhile.
        """
        ...

    def page(self, key: str, first: int, count: int) -> Awaitable[list[Delivery | None]]:
        """Up to `count` messages of a session (by its client identifier) or log from sequence `first` on, waiting or
        kept; at least one if there is one.

        None stands for a lost message. An error raises, and the caller retries. A store without `pages` is asked only
        for the kept messages of logs.
        """
        ...

    def entries(self, key: str, first: int, end: int, count: int) -> Awaitable[Entries]:
        """Up to `count` messages of a log with offsets from `first` to before `end`, which wait; at least one if there
        is one.

        Lost messages are left out, like those that `Compact` removed. An error raises, and the caller retries.
        """
        ...
