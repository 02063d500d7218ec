"""SCRAM-SHA-256 for the client (RFC 5802, RFC 7677), without channel binding; the messages are `scramp`'s.

Packets live in `authentication`. Invariant: the password leaves this file only as a proof, and a server without the
right keys is found out.
"""

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from mqttlite.client.scram_conversation import ScramConversation


@final
class ScramSha256:
    """User name and password for a server that need not see the password: `Client(..., authentication=ScramSha256(…))`.

    Raises `ValueError` for a text that cannot be one of them (RFC 4013).
    """

    method: Final = "SCRAM-SHA-256"

    def __init__(self, username: str, password: str) -> None:
        if not password:
            raise ValueError("the password is empty")
        self._username: Final = username
        self._password: Final = password
        self.begin()

    def __repr__(self) -> str:
        return f"ScramSha256({self._username!r})"

    def begin(self) -> "ScramConversation":
        """A new conversation."""
        from mqttlite.client.scram_conversation import ScramConversation  # here, for scramp takes a while

        return ScramConversation(self._username, self._password)
