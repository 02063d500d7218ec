"""The question "who is this, and may they come in?", and the shape of whatever answers it.

Passwords, tokens and directories are answers and live elsewhere. Invariant: a password never shows in a repr.
"""

from dataclasses import dataclass, field
from typing import Protocol

from mqttlite.core.authentication import Verdict


@dataclass(frozen=True, slots=True)
class Credentials:
    """All that a CONNECT and its line say about the one who sent it."""

    client_id: str
    username: str | None
    password: bytes | None = field(repr=False)
    identity: str | None  # the common name of a verified client certificate
    peer: str
    listener: str

    def about(self) -> dict[str, dict[str, object]]:
        """What a line of the log is about, as its `extra`."""
        return {
            "fields": {
                "peer": self.peer,
                "client_id": self.client_id or None,
                "username": self.username,
                "listener": self.listener,
            }
        }


class TooBusy(Exception):
    """Too many clients wait for an answer. The gate refuses with Server busy (0x89, in 3.1.1 return code 3)."""


class Authenticator(Protocol):
    """Answers for every CONNECT without an authentication method; an exception counts as a refusal."""

    async def authenticate(self, credentials: Credentials) -> bool:
        """Whether these credentials are good."""
        ...


class MethodAuthenticator(Protocol):
    """Answers for clients that choose an authentication method of MQTT 5.0 (§4.12)."""

    @property
    def methods(self) -> frozenset[str]:
        """The names that a CONNECT may give."""
        ...

    def begin(self, method: str, credentials: Credentials) -> "MethodExchange":
        """A client begins, at CONNECT or again later. An exception counts as a refusal."""
        ...


class MethodExchange(Protocol):
    """One client's exchange, from its first data to a verdict that is not to go on."""

    async def step(self, data: bytes | None) -> Verdict:
        """What to say to the client's data. An exception counts as a refusal."""
        ...
