"""Whose a client is. Its connection, its session and the record of it in the store share one `Identity`.

The client identifier is not part of it: the clients of a listener that have no user names are all the same.
"""

from typing import Final, final


@final
class Identity:
    """Never changed. `username` is the user that the client belongs to; None if there is none. `mount_point` is the
    prefix of all its topics, and a client below another one has another session. `is_trusted` marks the program itself,
    which no rules restrict; with `hears_program`, No Local keeps from it what it publishes itself, and nothing that
    other parts of the program publish. `is_relay` marks one whose messages were published at another broker, where
    everything but their delivery to sessions was done: they reach no other relay, and no sink but a shared subscription
    that they name."""

    __slots__ = ("hears_program", "is_relay", "is_trusted", "mount_point", "username")

    def __init__(
        self,
        username: str | None = None,
        mount_point: bytes = b"",
        is_trusted: bool = False,
        hears_program: bool = False,
        is_relay: bool = False,
    ) -> None:
        self.username: Final = username
        self.mount_point: Final = mount_point
        self.is_trusted: Final = is_trusted
        self.hears_program: Final = hears_program
        self.is_relay: Final = is_relay

    def of(self, username: str | None) -> "Identity":
        """The same with this user."""
        if username == self.username:
            return self
        return Identity(username, self.mount_point, self.is_trusted, self.hears_program, self.is_relay)


ANONYMOUS: Final = Identity()
"""Without a user or a mount point."""
