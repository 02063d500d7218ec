"""Who published a message: a client, the broker itself, or the program that embeds it.

Invariant: each session has one `Source` for its lifetime, so that No Local compares identities.
"""

from typing import Final, final

CLIENT: Final = 0
BROKER: Final = 1
PROGRAM: Final = 2


@final
class Source:
    """A publisher. `role` is what the `Authorizer` calls a client's identity; the broker and the program need none."""

    __slots__ = ("client_id", "kind", "role", "traced")

    def __init__(self, kind: int, client_id: str | None = None) -> None:
        self.kind: Final = kind
        self.client_id: Final = client_id
        self.role = 0
        self.traced = False
        """Whether every message from this client is traced."""


THE_BROKER: Final = Source(BROKER)
"""Publishes `$SYS` topics."""

THE_PROGRAM: Final = Source(PROGRAM)
"""Publishes what a program hands to `Broker.publish`."""
