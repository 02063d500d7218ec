"""Authentication by a method of MQTT 5.0 (§4.12), as a client does it: what a method is, and the AUTH packets it needs.

SCRAM, the method there is, lives in `scram`. Invariant: a server that has the last word wrong is not believed.
"""

from typing import Final, Protocol, final

from mqttlite.client.connection import Connection
from mqttlite.client.errors import AuthenticationFailed
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Auth, Connack
from mqttlite.wire.properties import Properties
from mqttlite.wire.reason_codes import ReasonCode, describe


class Authentication(Protocol):
    """A method, and who we are by it."""

    @property
    def method(self) -> str:
        """The name that CONNECT gives."""
        ...

    def begin(self) -> "Conversation":
        """A new conversation, for each connection, and each time that we authenticate again."""
        ...


class Conversation(Protocol):
    """The client's side of an authentication. Raises `ValueError` for data from the server that the method forbids."""

    def first(self) -> bytes | None:
        """The client's first data, for CONNECT or AUTH."""
        ...

    async def reply(self, data: bytes) -> bytes:
        """The client's response to the server's data."""
        ...

    def finish(self, data: bytes) -> None:
        """The server has accepted us, with these last data."""
        ...


@final
class Exchange:
    """A conversation in packets."""

    def __init__(self, authentication: Authentication, where: str) -> None:
        self.method: Final = authentication.method
        self._conversation: Final = authentication.begin()
        self._where: Final = where

    def first(self) -> bytes | None:
        return self._conversation.first()

    async def reply(self, packet: Auth) -> bytes:
        """The frame that answers the server's AUTH 0x18. Raises `AuthenticationFailed`."""
        if packet.reason_code != ReasonCode.CONTINUE_AUTHENTICATION:
            raise self._failed(f"AUTH came with {describe(packet.reason_code)}")
        self._check_method(packet)
        try:
            data = await self._conversation.reply(packet.properties.authentication_data or b"")
        except ValueError as error:
            raise self._failed(str(error)) from None
        return self._frame(ReasonCode.CONTINUE_AUTHENTICATION, data)

    def finish(self, packet: Auth | Connack) -> None:
        """The server accepts us with this packet. Raises `AuthenticationFailed` if it is not to be believed."""
        self._check_method(packet)
        try:
            self._conversation.finish(packet.properties.authentication_data or b"")
        except ValueError as error:
            raise self._failed(str(error)) from None

    async def again(self, connection: Connection) -> None:
        """Authenticate again on a connection that is there (§4.12.1). Raises `AuthenticationFailed`."""
        answer = await connection.ask(self._frame(ReasonCode.RE_AUTHENTICATE, self.first()))
        while answer.reason_code != ReasonCode.SUCCESS:
            answer = await connection.ask(await self.reply(answer))
        self.finish(answer)

    def _frame(self, reason_code: int, data: bytes | None) -> bytes:
        properties = Properties(authentication_method=self.method, authentication_data=data)
        return encode(Auth(reason_code, properties), V5)

    def _check_method(self, packet: Auth | Connack) -> None:
        said = packet.properties.authentication_method
        if said != self.method:
            raise self._failed(f"its method is {said!r} [MQTT-4.12.0-5]")

    def _failed(self, why: str) -> AuthenticationFailed:
        return AuthenticationFailed(f"{self._where} did not authenticate itself by {self.method}: {why}.")
