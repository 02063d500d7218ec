"""What the core asks of the rooms above it, as protocols that they fulfil and `server` wires up."""

from collections.abc import Awaitable
from typing import Protocol

from mqttlite.core.changes import Change


class Store(Protocol):
    """Keeps what must outlive the process."""

    def commit(self, changes: list[Change]) -> Awaitable[None] | None:
        """Make the changes durable, all or none, in order; None where that is already so when the call returns.

        A commit that fails raises from the awaitable and has changed nothing; it is tried again with the same changes.
        """
        ...

    def load(self) -> list[Change]:
        """What is kept, as the shortest list of changes that would make it again, in order."""
        ...
