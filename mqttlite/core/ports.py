"""The ports of the core: protocols that packages above it implement and `assembly` connects."""

from collections.abc import Awaitable, Iterator
from typing import Protocol

from mqttlite.core.changes import Change
from mqttlite.core.message import Delivery


class Store(Protocol):
    """Keeps what must outlive the process."""

    @property
    def pages(self) -> bool:
        """Whether `load` says of what waits only how much it is (`Stored`), and `page` reads it."""
        ...

    def commit(self, changes: list[Change]) -> Awaitable[None] | None:
        """Make the changes durable, all or none, in order; None where that is already so when the call returns.

        A commit that fails raises from the awaitable and has changed nothing; it is tried again with the same changes.
        """
        ...

    def load(self) -> Iterator[list[Change]]:
        """The stored state, as the changes that would make it again, in order: a bounded number at a time.

        A session comes before what belongs to it; the messages that it was sent come before those that wait, and each
        of the former is an `Enqueue` with the packet identifier it was sent with. Delayed messages come in the order of
        their numbers. Nothing is committed meanwhile.
        """
        ...

    def page(self, client_id: str, first: int, count: int) -> Awaitable[list[Delivery | None]]:
        """Up to `count` of the messages that wait for a session, or are retained, from that sequence on; at least one
        if there is one.

        None stands for a message that is lost. What fails raises, and is tried again. A store without `pages` is asked
        only for what a queue retained.
        """
        ...
