"""The port for a receiver that delivers to a session when the session has room: a consumer of a queue."""

from typing import Protocol


class Puller(Protocol):
    """One for each subscription of a session to a queue."""

    def on_room(self) -> None:
        """The session has room for at least one message."""
        ...

    def on_gone(self) -> None:
        """The connection of the session ended. What was lent to it goes back to its origin next."""
        ...
