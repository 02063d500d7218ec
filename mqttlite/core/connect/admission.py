"""Admission: asks whether to accept a client, at CONNECT and at re-authentication (5.0 §4.12); and before that, where
there are several brokers, whether its session is here.

The questions are `Locate`, answered with True, and `Authenticate`, answered with a `Verdict`. Invariant: the broker
accepts a client only after a verdict that allows it, and a connection that ends drops its question.
"""

from typing import Final, final

from mqttlite.core.authentication import Exchange, Verdict, refusal_of
from mqttlite.core.connect.closing import Closing
from mqttlite.core.connect.connecting import Connecting
from mqttlite.core.connect.connection import AN_ANSWER, AUTHENTICATING, NOTHING, Connection
from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.effects import Effects
from mqttlite.core.limits import Limits
from mqttlite.core.memory import connect_bytes
from mqttlite.core.question import Authenticate, Locate, Question
from mqttlite.core.questions import Questions
from mqttlite.core.reasons import CloseReason
from mqttlite.wire.errors import NotAuthorized, PeerError, ProtocolError
from mqttlite.wire.packets import Auth, Connect
from mqttlite.wire.reason_codes import ReasonCode


@final
class Admission:
    """One for each broker; the asker of `Locate` and `Authenticate` questions."""

    __slots__ = (
        "_closing",
        "_connecting",
        "_connections",
        "_deadlines",
        "_effects",
        "_limits",
        "_questions",
        "locates",
        "locates_unnamed",
    )

    def __init__(
        self,
        connections: dict[int, Connection],
        connecting: Connecting,
        closing: Closing,
        questions: Questions,
        deadlines: Deadlines,
        effects: Effects,
        limits: Limits,
    ) -> None:
        self._connections: Final = connections
        self._connecting: Final = connecting
        self._closing: Final = closing
        self._questions: Final = questions
        self._deadlines: Final = deadlines
        self._effects: Final = effects
        self._limits: Final = limits
        self.locates: bool = False
        """Whether it is asked where the session of each client is. Not for those that another broker passes on."""
        self.locates_unnamed: bool = False
        """Whether it is also asked for clients without a client identifier, because no session is to begin here."""

    def on_connect(self, connection: Connection, packet: Connect) -> None:
        """Handle a CONNECT: ask what is to be asked, and accept the client if that is nothing.

        Raises a `PeerError` for a CONNECT that the broker refuses, `ServerBusy` when too many questions are open.
        """
        is_free = self._connecting.on_connect(connection, packet)
        is_asked = self.locates and (packet.client_id or self.locates_unnamed)
        if is_asked and not (connection.is_located or connection.peer.is_inside):
            self._wait(connection, packet, Locate(connection.number, packet.client_id, must_authenticate=not is_free))
            connection.waits_for = AN_ANSWER
            connection.deferred = True  # so that what a client sent that leaves meanwhile is handled
        elif is_free:
            self._connecting.accept(connection, packet, None)
        else:
            self._authenticate(connection, packet)

    def _authenticate(self, connection: Connection, packet: Connect) -> None:
        """Ask for a verdict on a CONNECT."""
        question = Authenticate(connection.number, packet.client_id, packet.username, packet.password)
        method = packet.properties.authentication_method
        if method is not None:
            question.method = method
            question.data = packet.properties.authentication_data
        self._wait(connection, packet, question)
        if method is not None:
            connection.exchange = Exchange(method)
        else:
            connection.waits_for = AN_ANSWER

    def on_auth(self, connection: Connection, packet: Auth) -> None:
        """Continue an exchange. Raises a `PeerError` for an AUTH that is not allowed in this state."""
        exchange = connection.exchange
        if exchange is None:
            raise ProtocolError("AUTH without an authentication method at CONNECT [MQTT-4.12.0-7]")
        exchange.on_auth(packet)
        question = Authenticate(connection.number, connection.client_id, connection.username, None)
        question.method = exchange.method
        question.data = packet.properties.authentication_data
        question.begins = packet.reason_code == ReasonCode.RE_AUTHENTICATE
        self._ask(connection, question)
        if question.begins:
            exchange.deadline = _ExchangeDeadline(self, connection.number)
            self._deadlines.arm(exchange.deadline, self._effects.now + self._limits.connect_timeout_s)

    def on_answer(self, question: Question, answer: object) -> None:
        """Act on the answer, if the client is still connected."""
        assert isinstance(question, (Locate, Authenticate))
        connection = self._connections[question.number]
        connection.question_id = 0
        try:
            if isinstance(question, Locate):
                self._on_located(connection, question)
                return
            assert isinstance(answer, Verdict)
            if connection.exchange is not None:
                self._on_step_done(connection, connection.exchange, answer)
            else:
                packet = _take_connect(connection)
                assert packet is not None
                connection.identity = connection.identity.of(answer.username or connection.username)
                if answer.reason_code:
                    raise refusal_of(answer, "")
                connection.waits_for = NOTHING
                connection.grants = answer.grants
                self._connecting.accept(connection, packet, None)
                self._resume(connection)
        except PeerError as error:
            self._closing.fail(connection, error)

    def on_exchange_deadline(self, number: int) -> None:
        """A connected client did not finish its re-authentication in time."""
        connection = self._connections[number]
        assert connection.exchange is not None
        connection.exchange.deadline = None
        detail = f"not authenticated again within {self._limits.connect_timeout_s:g} s"
        self._closing.end(connection, CloseReason.NOT_AUTHORIZED, ReasonCode.NOT_AUTHORIZED, detail)

    def _on_located(self, connection: Connection, question: Locate) -> None:
        """The session is here, or nowhere."""
        packet = _take_connect(connection)
        assert packet is not None
        connection.waits_for = NOTHING
        if question.must_authenticate:
            self._authenticate(connection, packet)
        else:
            self._connecting.accept(connection, packet, None)
        if connection.waits_for == NOTHING:
            self._resume(connection)

    def _wait(self, connection: Connection, packet: Connect, question: Locate | Authenticate) -> None:
        """Keep a CONNECT until a question is answered."""
        self._ask(connection, question)
        connection.state = AUTHENTICATING
        connection.connect = packet
        connection.charge(connect_bytes(packet))

    def _ask(self, connection: Connection, question: Locate | Authenticate) -> None:
        self._questions.ask(question, self)
        connection.question_id = question.id

    def _resume(self, connection: Connection) -> None:
        """Handle the packets that arrived while the connection waited."""
        if connection.framer.kept_bytes or connection.deferred:
            connection.deferred = True
            self._effects.deferred.append(connection.number)

    def _on_step_done(self, connection: Connection, exchange: Exchange, verdict: Verdict) -> None:
        """Act on the verdict for one step of an exchange. The verdict may ask for another step [MQTT-4.12.0-2].

        Raises the `PeerError` that rejects the client.
        """
        exchange.asked = False
        if verdict.reason_code == ReasonCode.CONTINUE_AUTHENTICATION:
            _answer(connection, exchange, verdict)
            return
        exchange.steps = 0
        packet = _take_connect(connection)
        username = connection.peer.identity.username or verdict.username
        if packet is not None:
            connection.identity = connection.identity.of(username)
            if verdict.reason_code:
                raise refusal_of(verdict, exchange.method)  # [MQTT-4.12.0-4]
            connection.grants = verdict.grants
            self._connecting.accept(connection, packet, verdict.data)
            return
        if verdict.reason_code == ReasonCode.SERVER_BUSY:
            raise refusal_of(verdict, exchange.method)
        if verdict.reason_code:
            raise NotAuthorized(f"authentication by {exchange.method} failed [MQTT-4.12.1-2]")
        if username != connection.username:
            raise NotAuthorized("authenticated again as another user")
        connection.grants = verdict.grants
        self._connecting.ask_role(connection)
        self._connecting.await_expiry(connection)
        exchange.end(self._deadlines)
        _answer(connection, exchange, verdict)


def _take_connect(connection: Connection) -> Connect | None:
    """The CONNECT that waits for a verdict; None if it was accepted."""
    packet, connection.connect = connection.connect, None
    if packet is not None:
        connection.charge(-connect_bytes(packet))
    return packet


@final
class _ExchangeDeadline(Deadline):
    """Limits how long a connected client may take for a re-authentication."""

    __slots__ = ("_admission", "_number")

    def __init__(self, admission: Admission, number: int) -> None:
        super().__init__()
        self._admission: Final = admission
        self._number: Final = number

    def on_due(self) -> None:
        self._admission.on_exchange_deadline(self._number)


def _answer(connection: Connection, exchange: Exchange, verdict: Verdict) -> None:
    frame = exchange.frame(verdict.reason_code, verdict.data)
    connection.check_size(frame, "AUTH")
    connection.outbox.answer(frame)
