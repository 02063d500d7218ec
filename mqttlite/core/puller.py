"""The port for what delivers to a session when it has room: the consumer of a queue."""

from typing import Protocol


class Puller(Protocol):
    """One for each subscription of a session to a queue."""

    def on_room(self) -> None:
        """The session may take another message, or several."""
        ...
