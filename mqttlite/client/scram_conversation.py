"""One conversation of SCRAM-SHA-256; the messages are `scramp`'s.

Invariant: a server without the right keys is found out.
"""

import asyncio
from typing import Final, final

from scramp import ScramClient, ScramException

METHOD: Final = "SCRAM-SHA-256"


@final
class ScramConversation:
    """One conversation. Every method raises `ValueError` for a server that says what it may not."""

    def __init__(self, username: str, password: str) -> None:
        try:
            self._scram: Final = ScramClient([METHOD], username, password)
        except ScramException as error:
            raise ValueError(f"username or password: {error}") from None

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
