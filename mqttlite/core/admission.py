"""Who is let in: whoever knows is asked, and answers with a `Verdict`. At CONNECT, and when a client authenticates
itself again (5.0 §4.12)."""

from typing import Final, final

from mqttlite.core.authentication import Exchange, Verdict, refusal_of
from mqttlite.core.connection import AUTHENTICATING, Connection
from mqttlite.core.deadlines import Deadlines
from mqttlite.core.effects import Authenticate, Effects
from mqttlite.core.limits import Limits
from mqttlite.wire.errors import NotAuthorized, ProtocolError
from mqttlite.wire.packets import Auth, Connect
from mqttlite.wire.reason_codes import ReasonCode

EXCHANGE: Final = 3
"""The kind of deadline that is a connected client's authenticating itself again."""


@final
class Admission:
    """One for each broker. The questions go into its `Effects`."""

    def __init__(self, effects: Effects, deadlines: Deadlines, limits: Limits) -> None:
        self._effects: Final = effects
        self._deadlines: Final = deadlines
        self._limits: Final = limits

    def ask(self, connection: Connection, packet: Connect) -> None:
        """A client wants in that is not to be let in unasked."""
        connection.state = AUTHENTICATING
        connection.connect = packet
        question = Authenticate(connection.number, packet.client_id, packet.username, packet.password)
        method = packet.properties.authentication_method
        if method is not None:
            connection.exchange = Exchange(method)
            question.method = method
            question.data = packet.properties.authentication_data
        self._effects.questions.append(question)

    def on_auth(self, connection: Connection, packet: Auth) -> None:
        """A client with a method says more. Raises a `PeerError` for what may not come now."""
        exchange = connection.exchange
        if exchange is None:
            raise ProtocolError("AUTH without an authentication method at CONNECT [MQTT-4.12.0-7]")
        exchange.on_auth(packet)
        question = Authenticate(connection.number, connection.client_id, connection.username, None)
        question.method = exchange.method
        question.data = packet.properties.authentication_data
        question.begins = packet.reason_code == ReasonCode.RE_AUTHENTICATE
        if question.begins:
            due = self._effects.now + self._limits.connect_timeout_s
            exchange.deadline = self._deadlines.add(due, EXCHANGE, connection.number)
        self._effects.questions.append(question)

    def on_verdict(self, connection: Connection, verdict: Verdict) -> tuple[Connect, bytes | None] | None:
        """The CONNECT to accept now, and what the method has to say with it; None if there is none.

        Raises the `PeerError` with which a client is refused. A verdict that nobody waits for does nothing.
        """
        exchange = connection.exchange
        if exchange is not None:
            return self._on_step_done(connection, exchange, verdict) if exchange.asked else None
        packet, connection.connect = connection.connect, None
        if packet is None:
            return None
        connection.username = connection.peer.identity or packet.username
        if verdict.reason_code:
            raise refusal_of(verdict, "")
        return packet, None

    def _on_step_done(
        self, connection: Connection, exchange: Exchange, verdict: Verdict
    ) -> tuple[Connect, bytes | None] | None:
        """The same of a client with a method, which may also be asked for more [MQTT-4.12.0-2]."""
        exchange.asked = False
        if verdict.reason_code == ReasonCode.CONTINUE_AUTHENTICATION:
            _answer(connection, exchange, verdict)
            return None
        exchange.steps = 0
        packet, connection.connect = connection.connect, None
        username = connection.peer.identity or verdict.username
        if packet is not None:
            connection.username = username
            if verdict.reason_code:
                raise refusal_of(verdict, exchange.method)  # [MQTT-4.12.0-4]
            return packet, verdict.data
        if verdict.reason_code == ReasonCode.SERVER_BUSY:
            raise refusal_of(verdict, exchange.method)
        if verdict.reason_code:
            raise NotAuthorized(f"authentication by {exchange.method} failed [MQTT-4.12.1-2]")
        if username != connection.username:
            raise NotAuthorized("authenticated again as another user")
        self.forget(exchange)
        _answer(connection, exchange, verdict)
        return None

    def forget(self, exchange: Exchange) -> None:
        """An exchange is over, or its connection is."""
        if exchange.deadline is not None:
            self._deadlines.cancel(exchange.deadline)
            exchange.deadline = None


def _answer(connection: Connection, exchange: Exchange, verdict: Verdict) -> None:
    frame = exchange.frame(verdict.reason_code, verdict.data)
    connection.check_size(frame, "AUTH")
    connection.outbox.answer(frame)
