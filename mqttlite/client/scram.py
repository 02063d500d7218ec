"""SCRAM-SHA-256 for the client (RFC 5802, RFC 7677), without channel binding; the messages are `scramp`'s.

Packets live in `authentication`. Invariant: the password leaves this file only as a proof, and a server without the
right keys is found out.
"""

import asyncio
from typing import Final, final

from scramp import ScramClient, ScramException


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
        try:
            return ScramConversation(self._username, self._password)
        except ScramException as error:
            raise ValueError(f"username or password: {error}") from None


@final
class ScramConversation:
    """One conversation. Every method raises `ValueError` for a server that says what it may not."""

    def __init__(self, username: str, password: str) -> None:
        self._scram: Final = ScramClient([ScramSha256.method], username, password)

    def first(self) -> bytes:
        """User name and nonce."""
        message: str = self._scram.get_client_first()
        return message.encode()

    async def reply(self, data: bytes) -> bytes:
        """Our proof. A thread computes it: the server says how many iterations it takes."""
        try:
            self._scram.set_server_first(data.decode())
            proof: str = await asyncio.to_thread(self._scram.get_client_final)
        except ScramException as error:
            raise ValueError(str(error)) from None
        return proof.encode()

    def finish(self, data: bytes) -> None:
        """Believe the server, if it knows the keys of our password."""
        try:
            self._scram.set_server_final(data.decode())
        except ScramException as error:
            raise ValueError(str(error)) from None
