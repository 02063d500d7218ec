"""The port for a receiver that delivers to a session when the session has room: a consumer of a queue."""

from typing import Protocol


class Puller(Protocol):
    """One for each subscription of a session to a queue."""

    def on_room(self) -> None:
        """The session has room for at least one message."""
        ...
