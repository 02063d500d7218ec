"""Enhanced authentication (5.0 §4.12): which AUTH packets are allowed when, and what may answer an `Authenticate`.

The core does not interpret a method's data; the adapter that answers does. Invariant: a connection has at most one open
question.
"""

from math import inf
from typing import Final, final

from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.limits import MAX_AUTHENTICATION_STEPS
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.errors import (
    BadUserNameOrPassword,
    NotAuthorized,
    PeerError,
    ProtocolError,
    QuotaExceeded,
    ServerBusy,
    ServerUnavailable,
    TooManyFailedLogins,
)
from mqttlite.wire.packets import Auth
from mqttlite.wire.properties import Properties
from mqttlite.wire.reason_codes import ReasonCode

_REFUSALS: Final[dict[int, type[PeerError]]] = {
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: BadUserNameOrPassword,
    ReasonCode.NOT_AUTHORIZED: NotAuthorized,
    ReasonCode.SERVER_UNAVAILABLE: ServerUnavailable,
    ReasonCode.SERVER_BUSY: ServerBusy,
    ReasonCode.CONNECTION_RATE_EXCEEDED: TooManyFailedLogins,
}


@final
class Grants:
    """The rights and limits in a client's credentials beyond the user name, for example in a token.

    `publish` and `subscribe` are the topic filters that the credentials allow, in addition to the rules; None if they
    name none. At `expires_at`, in the broker's seconds, the broker disconnects the client; `inf` is never.
    """

    __slots__ = ("expires_at", "groups", "publish", "subscribe")

    def __init__(
        self,
        groups: frozenset[str] = frozenset(),
        publish: tuple[bytes, ...] | None = None,
        subscribe: tuple[bytes, ...] | None = None,
        expires_at: float = inf,
    ) -> None:
        self.groups: Final = groups
        self.publish: Final = publish
        self.subscribe: Final = subscribe
        self.expires_at: Final = expires_at

    def __repr__(self) -> str:
        return f"Grants({sorted(self.groups)}, {self.publish}, {self.subscribe}, {self.expires_at})"


NO_GRANTS: Final = Grants()
"""For credentials that grant nothing."""


@final
class Verdict:
    """The answer to an `Authenticate` question.

    `reason_code` is 0 (accept the client), 0x18 (send it `data` and wait for its AUTH; only with a method), or 0x86,
    0x87, 0x88, 0x89 or 0x9F (refuse it). When the client is accepted, `username` is the authenticated user; when it is
    refused, `username` is the name that the client claimed, for the log. `grants` are the grants of an accepted client.
    `reason` is the sentence for a refused one, if there is a better one than the code's. Raises `ValueError` for
    another code.
    """

    __slots__ = ("data", "grants", "reason", "reason_code", "username")

    def __init__(
        self,
        reason_code: int,
        data: bytes | None = None,
        username: str | None = None,
        grants: Grants = NO_GRANTS,
        reason: str = "",
    ) -> None:
        if reason_code not in (0, ReasonCode.CONTINUE_AUTHENTICATION) and reason_code not in _REFUSALS:
            raise ValueError(f"reason_code is {reason_code:#04x}: it may be 0x00, 0x18, 0x86, 0x87, 0x88, 0x89 or 0x9F")
        self.reason_code: Final = int(reason_code)
        self.data: Final = data
        self.username: Final = username
        self.grants: Final = grants
        self.reason: Final = reason

    def __repr__(self) -> str:
        return f"Verdict(0x{self.reason_code:02X}, username={self.username!r})"


@final
class Exchange:
    """The method that a client chose at CONNECT, and the progress of its exchange. `steps` is 0 when no exchange is
    under way; `asked` is true while a question is open."""

    __slots__ = ("asked", "deadline", "method", "steps")

    def __init__(self, method: str) -> None:
        self.method: Final = method
        self.steps: int = 1
        self.asked: bool = True
        self.deadline: Deadline | None = None
        """The deadline of a re-authentication."""

    def on_auth(self, packet: Auth) -> None:
        """Count an AUTH from the client. Raises a `PeerError` for one that is not allowed in this state."""
        if packet.properties.authentication_method != self.method:
            raise ProtocolError(f"AUTH with another method than {self.method!r} [MQTT-4.12.0-5] [MQTT-4.12.1-1]")
        if self.asked:
            raise ProtocolError("AUTH before the last one was answered (§4.12)")
        if self.steps == 0:
            if packet.reason_code != ReasonCode.RE_AUTHENTICATE:
                raise ProtocolError("an exchange begins with AUTH 0x19 [MQTT-4.12.1-1]")
        elif packet.reason_code != ReasonCode.CONTINUE_AUTHENTICATION:
            raise ProtocolError("an exchange goes on with AUTH 0x18 [MQTT-4.12.0-3]")
        if self.steps >= MAX_AUTHENTICATION_STEPS:
            raise QuotaExceeded(f"authentication is not done after {MAX_AUTHENTICATION_STEPS} packets")
        self.steps += 1
        self.asked = True

    def end(self, deadlines: Deadlines) -> None:
        """The exchange has ended, or its connection has."""
        if self.deadline is not None:
            deadlines.cancel(self.deadline)
            self.deadline = None

    def frame(self, reason_code: int, data: bytes | None) -> bytes:
        """The server's AUTH, without reason string and user properties [MQTT-3.15.2-2] [MQTT-3.15.2-3]."""
        return encode(Auth(reason_code, Properties(authentication_method=self.method, authentication_data=data)), V5)


def refusal_of(verdict: Verdict, method: str) -> PeerError:
    """The error that ends the connection of a refused client."""
    if verdict.reason:
        sentence = verdict.reason
    elif verdict.reason_code == ReasonCode.SERVER_BUSY:
        sentence = "too many clients wait for authentication"
    elif verdict.reason_code == ReasonCode.CONNECTION_RATE_EXCEEDED:
        sentence = "too many failed logins from this address; try again later"
    elif method:
        sentence = f"authentication by {method} failed"
    elif verdict.reason_code == ReasonCode.SERVER_UNAVAILABLE:
        sentence = "authentication is not possible now"
    elif verdict.reason_code == ReasonCode.NOT_AUTHORIZED:
        sentence = "not authorized"
    else:
        sentence = "user name or password is not accepted"
    return _REFUSALS[verdict.reason_code](sentence)
