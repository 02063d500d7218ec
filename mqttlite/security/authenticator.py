"""The ports for authentication of clients that connect.

`passwords` and others implement them. Invariant: a password never appears in a repr.
"""

from dataclasses import dataclass, field
from typing import Protocol

from mqttlite.core.authentication import Verdict


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a client from its CONNECT and its connection."""

    client_id: str
    username: str | None
    password: bytes | None = field(repr=False)
    identity: str | None
    """The name in a verified client certificate: its common name, or the one selected by `identity_from`."""
    peer: str
    """`address:port`; of a Unix socket, `unix` or its path."""
    listener: str
    """The name of the listener."""

    def about(self) -> dict[str, dict[str, object]]:
        """The fields for a log record, as its `extra`."""
        return {
            "fields": {
                "peer": self.peer,
                "client_id": self.client_id or None,
                "username": self.username,
                "listener": self.listener,
            }
        }


class TooBusy(Exception):
    """Too many clients wait for an answer: the broker refuses this one with 0x89 (Server busy; 3.1.1: return code
    3)."""


class Authenticator(Protocol):
    """Decides on a CONNECT without an authentication method. Called in the broker's event loop."""

    async def authenticate(self, credentials: Credentials) -> bool | Verdict | None:
        """Whether the client may connect. False refuses it with 0x86 (Bad User Name or Password; 3.1.1: return code 4).

        None means that it does not recognise the credentials: the broker asks the listener's next authenticator, and
        refuses the client after the last one. A `Verdict` may name the user and its grants; its code must not be 0x18.
        `TooBusy` refuses it with 0x89, and any other exception with 0x88 (Server unavailable); both are return code 3
        in 3.1.1. The broker cancels the call when the connection ends, at the latest after `connect_timeout_s`.
        """
        ...


class MethodAuthenticator(Protocol):
    """Decides on clients that use an authentication method of MQTT 5.0 (§4.12)."""

    @property
    def methods(self) -> frozenset[str]:
        """The names of the methods that a CONNECT may use."""
        ...

    def begin(self, method: str, credentials: Credentials) -> "MethodExchange":
        """Begin the exchange of one client, at CONNECT or when it re-authenticates. An exception refuses it (0x88)."""
        ...


class MethodExchange(Protocol):
    """The exchange of one client, up to a verdict other than 0x18 (Continue authentication)."""

    async def step(self, data: bytes | None) -> Verdict:
        """The verdict on the client's Authentication Data. An exception refuses the client (0x88)."""
        ...
