"""The question "who is this, and may they come in?", and the shape of whatever answers it.

Passwords, tokens and directories are answers and live elsewhere. Invariant: a password never shows in a repr.
"""

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Credentials:
    """All that a CONNECT and its line say about the one who sent it."""

    client_id: str
    username: str | None
    password: bytes | None = field(repr=False)
    identity: str | None  # the common name of a verified client certificate
    peer: str
    listener: str


class Authenticator(Protocol):
    """Answers for every CONNECT; an exception counts as a refusal."""

    async def authenticate(self, credentials: Credentials) -> bool:
        """Whether these credentials are good."""
        ...
