"""Ends connections: at the client's request, after an error, by the broker, or because the link is lost.

Every case goes through `Closing.end`. The end of a session and its will belong to `Sessions`. Invariant: a connection
ends once, and is in no table afterwards.
"""

from collections import deque
from typing import Final, final

from mqttlite.core.connect import connect
from mqttlite.core.connect.connection import CLOSED, CONNECTED, ITS_END, NOTHING, Connection
from mqttlite.core.deadlines import Deadlines
from mqttlite.core.effects import Effects
from mqttlite.core.jobs import Job, Jobs
from mqttlite.core.limits import CLOSE_WORK, ITERATION_WORK, Limits
from mqttlite.core.questions import Questions
from mqttlite.core.reasons import CloseReason, close_reason_of
from mqttlite.core.route.due_messages import DueMessages
from mqttlite.core.session.session import Session
from mqttlite.core.session.sessions import Sessions
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.errors import PeerError, ProtocolError
from mqttlite.wire.packets import Disconnect
from mqttlite.wire.properties import NONE, Properties
from mqttlite.wire.reason_codes import ReasonCode


@final
class Closing:
    """Ends connections. `connections` and `online` are the broker's tables, by number and by client identifier."""

    __slots__ = (
        "_connections",
        "_deadlines",
        "_due_messages",
        "_effects",
        "_jobs",
        "_limits",
        "_lost",
        "_online",
        "_questions",
        "_sessions",
        "server_reference",
    )

    def __init__(
        self,
        connections: dict[int, Connection],
        online: dict[str, Connection],
        sessions: Sessions,
        due_messages: DueMessages,
        questions: Questions,
        deadlines: Deadlines,
        jobs: Jobs,
        effects: Effects,
        limits: Limits,
    ) -> None:
        self._connections: Final = connections
        self._online: Final = online
        self._sessions: Final = sessions
        self._due_messages: Final = due_messages
        self._questions: Final = questions
        self._deadlines: Final = deadlines
        self._jobs: Final = jobs
        self._effects: Final = effects
        self._limits: Final = limits
        self._lost: Final[deque[tuple[Connection, str]]] = deque()
        self.server_reference: str = ""
        """The server that DISCONNECT 0x9C names."""

    def on_disconnect(self, connection: Connection, session: Session, packet: Disconnect) -> None:
        """Handle DISCONNECT. Raises `ProtocolError` for an expiry interval that the client may not set."""
        interval = packet.properties.session_expiry_interval
        if interval is not None:
            interval = min(interval, self._limits.max_session_expiry_s)
            if interval and not session.expiry_interval:
                raise ProtocolError("DISCONNECT gives a session an expiry that CONNECT did not (§3.14.2.2.2)")
            self._sessions.change_expiry(session, interval)
        if packet.reason_code == 0:
            self.end(connection, CloseReason.CLIENT_DISCONNECTED, 0, "")  # [MQTT-3.14.4-3]
        else:
            detail = packet.properties.reason_string or ""
            self.end(connection, CloseReason.CLIENT_DISCONNECTED_WITH_WILL, packet.reason_code, detail)

    def lose(self, connection: Connection, detail: str) -> None:
        """The link is gone: end the connection now if the budget has room, otherwise after those lost before it."""
        if connection.state == CLOSED:
            return
        if not self._lost and self._effects.work < ITERATION_WORK:
            self.end(connection, CloseReason.CONNECTION_LOST, 0, detail)
            return
        connection.waits_for = ITS_END
        self._questions.forget(connection.question_id)
        self._lost.append((connection, detail))
        if len(self._lost) == 1:
            self._jobs.queue(_EndLost(self))

    def end_lost(self) -> bool:
        """End lost connections while the budget lasts, at least one. Return whether all have ended."""
        while self._lost:
            connection, detail = self._lost.popleft()
            self.end(connection, CloseReason.CONNECTION_LOST, 0, detail)
            if self._lost and self._effects.work >= ITERATION_WORK:
                return False
        return True

    def end_overflowed(self) -> None:
        """End the connections that reached a limit whose policy is `disconnect`."""
        overflowed = self._effects.overflowed
        while overflowed:
            connection = self._connections.get(overflowed.pop())
            if connection is not None:
                detail = "the client does not read what it is sent"
                self.end(connection, CloseReason.BUFFER_FULL, ReasonCode.QUOTA_EXCEEDED, detail)

    def fail(self, connection: Connection, error: PeerError) -> None:
        """The peer broke a rule: send the reason if its protocol version allows, and close.

        [MQTT-4.13.1-1] [3.1.1 MQTT-4.8.0-2]. Before CONNECT is accepted, the reason goes into CONNACK [MQTT-3.1.4-1]
        [MQTT-3.2.2-7] [MQTT-3.14.0-1] [3.1.1 MQTT-3.2.2-5].
        """
        assert connection.state != CLOSED, "a closed connection handles no packet"
        if connection.state != CONNECTED:
            frame = connect.refusal(connection.version, error, connection.outbox.max_packet_bytes)
            if frame:
                connection.outbox.answer(frame)
        self.end(connection, close_reason_of(error), error.reason_code, str(error))

    def end(self, connection: Connection, reason: CloseReason, code: int, detail: str) -> None:
        """End a connection [MQTT-3.14.4-1] [MQTT-3.14.4-2]. Harmless if it has ended."""
        if connection.state == CLOSED:
            return
        was_connected = connection.state == CONNECTED
        now = self._effects.now
        connection.state = CLOSED
        connection.waits_for = NOTHING
        connection.deferred = False
        connection.ended_at = now
        connection.close_reason, connection.reason_code, connection.close_detail = reason, code, detail
        del self._connections[connection.number]
        if connection.deadline is not None:
            self._deadlines.cancel(connection.deadline)
            connection.deadline = None
        if connection.expiry is not None:
            self._deadlines.cancel(connection.expiry)
            connection.expiry = None
        if connection.exchange is not None:
            connection.exchange.end(self._deadlines)
        if connection.question_id:
            self._questions.forget(connection.question_id)
        outbox = connection.outbox
        if outbox.blocked:
            if connection.blocked_at:
                connection.backpressure_s += now - connection.blocked_at
            if reason == CloseReason.SERVER_SHUTDOWN:
                outbox.unblock()  # the waiting messages leave before DISCONNECT
            else:
                outbox.give_up()
            self._due_messages.on_unblocked(connection.number)
        by_client = reason == CloseReason.CLIENT_DISCONNECTED_WITH_WILL
        if was_connected and connection.version == V5 and code >= 0x80 and not by_client:  # [MQTT-4.13.2-1]
            outbox.answer(self._disconnect_frame(connection, code, detail))
        if connection.session is not None:
            self._leave(connection, connection.session)
        connection.release()
        self._effects.work += CLOSE_WORK
        self._effects.closed.append(connection.number)

    def _leave(self, connection: Connection, session: Session) -> None:
        """Detach the session. The connection keeps a copy of its counters."""
        del self._online[connection.client_id]
        if connection.peer.connect_limits is not None:
            connection.peer.connect_limits.leave(connection.username)
        connection.will_published = (
            session.will is not None and connection.close_reason != CloseReason.CLIENT_DISCONNECTED
        )
        connection.drops, session.drops = session.drops, {}
        for drop_reason, messages in connection.outbox.drops.items():
            connection.drops[drop_reason] = connection.drops.get(drop_reason, 0) + messages
        connection.queue_high_water = session.queue_high_water
        connection.inflight_high_water = session.window.high_water
        connection.subscriptions = len(session.subscriptions)
        connection.session = None
        self._sessions.leave(session, connection.will_published)

    def _disconnect_frame(self, connection: Connection, code: int, detail: str) -> bytes:
        """A DISCONNECT, with a reason string if the client wants one and accepts a packet of that size.

        It has no session expiry interval and no user properties [MQTT-3.14.2-2] [MQTT-3.14.2-4].
        """
        properties = Properties(
            reason_string=detail if connection.problem_information and detail else None,
            server_reference=self.server_reference if code == ReasonCode.USE_ANOTHER_SERVER else None,
        )
        frame = encode(Disconnect(code, properties if properties.present() else NONE), V5)
        if connection.outbox.is_too_large(len(frame)):  # [MQTT-3.14.2-3]
            return encode(Disconnect(code), V5)
        return frame


@final
class _EndLost(Job):
    """Ends the lost connections for which an iteration had no room."""

    __slots__ = ("_closing",)

    def __init__(self, closing: Closing) -> None:
        self._closing: Final = closing

    def step(self) -> bool:
        return self._closing.end_lost()
