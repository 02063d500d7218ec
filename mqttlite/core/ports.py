"""What the core asks of the rooms above it, as protocols that they fulfil and `server` wires up."""

from collections.abc import Awaitable
from typing import Protocol

from mqttlite.core.changes import Change
from mqttlite.core.forwards import Interest, Outgoing


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


class Fabric(Protocol):
    """Carries what workers of one broker have for each other: in order, each thing once."""

    def tell(self, interests: list[Interest]) -> Awaitable[None]:
        """Tell every other worker. Done when all have noted it; it does not fail."""
        ...

    def send(self, outgoing: list[Outgoing]) -> None:
        """Send each to those whom it is for, in order."""
        ...

    @property
    def is_jammed(self) -> bool:
        """Whether others are so slow that whoever sends to them is to wait."""
        ...
