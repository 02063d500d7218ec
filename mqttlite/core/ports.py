"""What the core asks of the packages above it, as protocols that they fulfil and `server` wires up."""

from collections.abc import Awaitable, Iterator
from typing import Protocol

from mqttlite.core.changes import Change


class Store(Protocol):
    """Keeps what must outlive the process."""

    def commit(self, changes: list[Change]) -> Awaitable[None] | None:
        """Make the changes durable, all or none, in order; None where that is already so when the call returns.

        A commit that fails raises from the awaitable and has changed nothing; it is tried again with the same changes.
        """
        ...

    def load(self) -> Iterator[list[Change]]:
        """What is kept, as the changes that would make it again, in order: a bounded number at a time.

        A session comes before what belongs to it; the messages that it was sent come before those that wait, and each
        of the former is an `Enqueue` with the packet identifier it was sent with. Nothing is committed meanwhile.
        """
        ...
