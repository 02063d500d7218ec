"""The broker: connections, and what comes in on them. The inputs are `open feed close · publish · answer tick`, with
`block` and `unblock` for a link's back-pressure and `shut_down`; the output is `effects`.

Follow a message: `feed` → `_walk` → `PacketHandler.publish_in_place` → `Router.run`. A `PeerError` raised anywhere
below is
caught in `feed`, ends its connection and touches no other.
"""

from typing import Final, final

from mqttlite.core import connect
from mqttlite.core.admission import EXCHANGE, Admission
from mqttlite.core.authentication import Verdict
from mqttlite.core.authorizer import Authorizer, DefaultRules
from mqttlite.core.changes import Change
from mqttlite.core.connection import (
    AUTHENTICATING,
    AWAITING_CONNECT,
    CLOSED,
    CONNECTED,
    WELCOME,
    Connection,
    Peer,
)
from mqttlite.core.deadlines import Deadlines
from mqttlite.core.drops import Drops
from mqttlite.core.effects import Effects
from mqttlite.core.fan_out import FanOut
from mqttlite.core.jobs import Jobs
from mqttlite.core.limits import (
    BYTES_PER_WORK_UNIT,
    CHUNK_WORK,
    DEADLINES_PER_ITERATION,
    FILL_BYTES,
    ITERATION_BYTES,
    KEEP_ALIVE_FACTOR,
    LONG_PACKET_BYTES,
    MAX_PENDING_BYTES,
    PACKET_WORK,
    Limits,
)
from mqttlite.core.message import Message
from mqttlite.core.packet_handler import PacketHandler
from mqttlite.core.reasons import CloseReason, close_reason_of
from mqttlite.core.restore import restore
from mqttlite.core.retained_store import RetainedStore
from mqttlite.core.router import Router
from mqttlite.core.routes import Routes
from mqttlite.core.session import Session
from mqttlite.core.sessions import SESSION_EXPIRY, WILL_DELAY, Sessions
from mqttlite.core.sink import Sink
from mqttlite.core.source import THE_PROGRAM, Source
from mqttlite.core.tracer import NO_SAMPLES, Tracer
from mqttlite.core.traffic import Traffic
from mqttlite.topics.namespaces import check_is_served
from mqttlite.wire.constants import (
    CONNECT,
    DEFAULT_RECEIVE_MAXIMUM,
    PACKET_NAMES,
    SUBSCRIBE,
    V5,
)
from mqttlite.wire.decode import connect_version, decode
from mqttlite.wire.encode import encode
from mqttlite.wire.errors import (
    PeerError,
    ProtocolError,
    QuotaExceeded,
)
from mqttlite.wire.framer import packet_size
from mqttlite.wire.packets import (
    Auth,
    Connect,
    Disconnect,
)
from mqttlite.wire.properties import NONE, Properties
from mqttlite.wire.reason_codes import ReasonCode

_LINK: Final = 0
"""The kind of deadline that is a connection's: its CONNECT, then its keep-alive."""


@final
class Broker:
    """All state of one broker. Not thread-safe: one loop owns it. Assigned client ids begin with `client_id_prefix`."""

    def __init__(
        self,
        limits: Limits,
        client_id_prefix: str = "auto-",
        share_policies: dict[str, str] | None = None,
    ) -> None:
        self.limits: Final = limits
        self.effects: Final = Effects()
        self.connections: Final[dict[int, Connection]] = {}
        sessions: dict[str, Session] = {}
        self._deadlines: Final = Deadlines()
        self._admission: Final = Admission(self.effects, self._deadlines, limits)
        cache_bytes = limits.max_route_cache_bytes
        self._authorizer: Authorizer = DefaultRules()
        self._jobs: Final = Jobs(self.effects)
        self._routes: Final = Routes(sessions, cache_bytes, share_policies or {}, self._authorizer, self.effects)
        self.router: Final = Router(
            self._routes,
            RetainedStore(self.effects, limits),
            Drops(self.effects),
            self._authorizer,
            self.effects,
            self._jobs,
        )
        self.sessions: Final = Sessions(sessions, self._routes, self.router, self._deadlines, self.effects, limits)
        self._packet_handler: Final = PacketHandler(self._routes, self.router, self.effects, limits, client_id_prefix)
        self._online: Final[dict[str, Connection]] = {}
        self._client_id_prefix: Final = client_id_prefix
        self.opened = 0
        """Connections that were ever opened."""
        self._server_reference = ""

    def restore(self, changes: list[Change], now: float) -> None:
        """Begin with what a store kept. Before the first input."""
        restore(changes, self.sessions, self.router, now)
        if self.effects.tracer is not None:
            self._routes.observe(self._routes.traffic)

    def authorize(self, authorizer: Authorizer) -> None:
        """Ask another authorizer from now on, also for clients that are connected.

        Costs a look at each connection, and the routes are made anew.
        """
        self._authorizer = authorizer
        self.router.authorize(authorizer)
        self._routes.authorize(authorizer)
        for connection in self._online.values():
            if connection.session is not None:
                connection.session.role = authorizer.role_of(connection.client_id, connection.username)

    def bind(self, topic_filter: bytes, sink: Sink) -> None:
        """Hand every message that a topic filter matches to a sink, until `unbind`.

        Raises `TopicFilterInvalid`, and `ValueError` for a sink that has this filter already.
        """
        self._routes.bind(topic_filter, sink)

    def unbind(self, topic_filter: bytes, sink: Sink) -> None:
        """The opposite of `bind`. Raises `KeyError` for a sink that does not have this filter."""
        self._routes.unbind(topic_filter, sink)

    def watch(self, tracer: Tracer | None) -> None:
        """Tell somebody from now on what happens here; None: nobody. Before the first input, or between two.

        Costs a look at each session, and the routes are made anew. It changes nothing of what clients are sent.
        """
        self.effects.tracer = tracer
        self.effects.until_sample = NO_SAMPLES if tracer is None else tracer.next_sample()
        self._routes.observe(self._routes.traffic)

    def count_traffic(self, max_topics: int) -> Traffic:
        """Count what is published, by topic, from now on; where. Before the first input, or between two.

        Raises `ValueError` for a number below 1.
        """
        traffic = Traffic(max_topics)
        self._routes.observe(traffic)
        return traffic

    # ------------------------------------------------------------------ inputs

    def open(self, peer: Peer, now: float) -> Connection:
        """A link is up. It has `connect_timeout_s` to send its CONNECT."""
        self.effects.now = now
        self.opened += 1
        connection = Connection(self.opened, peer, self.effects, self.limits, now)
        connection.deadline = self._deadlines.add(now + self.limits.connect_timeout_s, _LINK, connection.number)
        self.connections[connection.number] = connection
        return connection

    def feed(self, connection: Connection, chunk: bytes, now: float) -> None:
        """Bytes came in, cut anywhere; none for a connection that was in `Effects.deferred` and goes on."""
        if connection.state == CLOSED:
            return  # [MQTT-3.1.4-6]
        self.effects.now = now
        connection.bytes_received += len(chunk)
        if connection.deferred:
            if chunk:  # from whoever stands between a socket and us, and had it already
                connection.framer.put(chunk)
                return
            connection.deferred = False
        self.effects.work = 0
        try:
            data = connection.framer.join(chunk)
            at = self._walk(connection, data)
            if at < len(data):
                connection.framer.keep(data, at)
            if at or connection.framer.missing_bytes > LONG_PACKET_BYTES:
                connection.last_heard = now
            if not connection.deferred and connection.framer.kept_bytes > self.limits.max_packet_bytes + len(chunk):
                raise QuotaExceeded("too much was sent before CONNACK")
        except PeerError as error:
            self._fail(connection, error)
        if self.effects.overflowed:
            self._cut_overflowed()

    def close(self, connection: Connection, now: float, detail: str = "") -> None:
        """The link is gone; harmless for a connection that the broker closed."""
        self.effects.now = now
        self._end(connection, CloseReason.CONNECTION_LOST, 0, detail)
        if self.effects.overflowed:  # by its will
            self._cut_overflowed()

    def publish(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        now: float,
        properties: Properties = NONE,
        source: Source = THE_PROGRAM,
    ) -> FanOut:
        """Publish from inside. The code of the tally is that of PUBACK; it is final once the fan-out is done.

        Raises `TopicNameInvalid`.
        """
        self.effects.now = now
        expiry = properties.message_expiry_interval
        message = Message(topic, payload, qos, retain, properties, 0.0 if expiry is None else now + expiry)
        check_is_served(topic)
        fan_out = self.router.publish(message, self._routes.find(topic), source)
        if self.effects.overflowed:
            self._cut_overflowed()
        return fan_out

    def answer(self, number: int, verdict: Verdict, now: float) -> None:
        """The verdict on an `Authenticate` question; harmless when the connection is gone."""
        self.effects.now = now
        connection = self.connections.get(number)
        if connection is None:
            return
        try:
            admitted = self._admission.on_verdict(connection, verdict)
            if admitted is not None:
                self._accept(connection, admitted[0], admitted[1])
        except PeerError as error:
            self._fail(connection, error)
        if self.effects.overflowed:  # by the will of a connection taken over
            self._cut_overflowed()
        self.feed(connection, b"", now)

    def tick(self, now: float) -> float | None:
        """Do what is due; return when to come back, None for not before something happens."""
        effects = self.effects
        effects.now = now
        self._jobs.run()
        backlogged, effects.backlogged = effects.backlogged, []
        for at, number in enumerate(backlogged):
            if effects.pending_bytes >= ITERATION_BYTES:
                effects.backlogged = (
                    backlogged[at:] + effects.backlogged
                )  # those whose turn it would have been are first next time
                break
            connection = self.connections.get(number)
            if connection is not None and connection.session is not None:
                connection.outbox.backlogged = False
                if connection.outbox.draining:
                    self._drain(connection)
                else:
                    connection.session.fill()
        for _ in range(DEADLINES_PER_ITERATION):
            deadline = self._deadlines.pop(now)
            if deadline is None:
                break
            if deadline.kind == SESSION_EXPIRY:
                self.sessions.on_expiry(deadline.client_id)
            elif deadline.kind == WILL_DELAY:
                self.sessions.on_will_delay(deadline.client_id)
            elif deadline.kind == EXCHANGE:
                self._on_endless_exchange(self.connections[deadline.number])
            else:
                self._on_silence(self.connections[deadline.number])
        if effects.overflowed:
            self._cut_overflowed()
        return self.due_at()

    def due_at(self) -> float | None:
        """When `tick` wants to be called next."""
        return self.effects.now if self.effects.backlogged else self._deadlines.next_at()

    def block(self, connection: Connection, now: float) -> None:
        """The link takes no bytes from now on."""
        self.effects.now = now
        if connection.state == CLOSED:
            return
        begins = not connection.outbox.blocked
        connection.outbox.block()
        if begins:
            connection.blocked_at = now
            connection.backpressure_count += 1
            if self.effects.tracer is not None:
                self.effects.tracer.on_blocked(connection.number)

    def unblock(self, connection: Connection, now: float) -> None:
        """The link takes bytes again. A long backlog leaves in parts, and the back-pressure ends with the last one."""
        self.effects.now = now
        if connection.state != CLOSED and connection.outbox.blocked:
            self._drain(connection)

    def _drain(self, connection: Connection) -> None:
        """Move the next part of a backlog, as far as the iteration has room for it."""
        effects = self.effects
        outbox = connection.outbox
        waiting = outbox.waiting_bytes
        effects.pending_bytes += outbox.drain(FILL_BYTES if effects.pending_bytes < ITERATION_BYTES else 0)
        if outbox.draining:
            if not outbox.backlogged:
                outbox.backlogged = True
                effects.backlogged.append(outbox.number)
            return
        duration_s = effects.now - connection.blocked_at
        connection.backpressure_s += duration_s
        if effects.tracer is not None:
            effects.tracer.on_unblocked(connection.number, duration_s, waiting)
        if connection.session is not None:
            connection.session.fill()

    def send_away(self, connection: Connection, server_reference: str, now: float) -> None:
        """Close a connection with 0x9C and the server to use instead, or with 0x8B where none is named."""
        self.effects.now = now
        self._server_reference = server_reference
        code = ReasonCode.USE_ANOTHER_SERVER if server_reference else ReasonCode.SERVER_SHUTTING_DOWN
        self._end(connection, CloseReason.SERVER_SHUTDOWN, code, "the server is about to shut down")
        if self.effects.overflowed:
            self._cut_overflowed()

    def kick(self, client_id: str, now: float) -> bool:
        """Close the connection of a client with 0x98; false if it has none."""
        self.effects.now = now
        connection = self._online.get(client_id)
        if connection is None:
            return False
        detail = "an administrator closed the connection"
        self._end(connection, CloseReason.ADMINISTRATIVE, ReasonCode.ADMINISTRATIVE_ACTION, detail)
        if self.effects.overflowed:  # by its will
            self._cut_overflowed()
        return True

    def end_session(self, client_id: str, now: float) -> bool:
        """Close the connection of a client with 0x98 and end its session; false if it has neither."""
        kicked = self.kick(client_id, now)
        session = self.sessions.get(client_id)
        if session is None:
            return kicked
        self.sessions.end(session)
        if self.effects.overflowed:  # by a will that was delayed
            self._cut_overflowed()
        return True

    def shut_down(self, now: float) -> None:
        """Close every connection with 0x8B; sessions and what is retained stay as they are."""
        self.effects.now = now
        for connection in list(self.connections.values()):
            self._end(connection, CloseReason.SERVER_SHUTDOWN, ReasonCode.SERVER_SHUTTING_DOWN, "the server shuts down")
        self.effects.overflowed.clear()

    # ------------------------------------------------------------------ what there is

    @property
    def online(self) -> int:
        """Clients that are connected."""
        return len(self._online)

    @property
    def subscriptions(self) -> int:
        """Subscriptions of all sessions, but for shared ones."""
        return self._routes.subscriptions

    @property
    def shared_subscriptions(self) -> int:
        return self._routes.shared_subscriptions

    def has_subscribers(self, topic: bytes) -> bool:
        """Whether a message of the broker's own would reach anybody. Raises `TopicNameInvalid`."""
        return self._routes.reaches(topic)

    # ------------------------------------------------------------------ the bytes of one connection

    def _walk(self, connection: Connection, data: bytes) -> int:
        """Handle every whole packet in `data`; where the first incomplete one begins."""
        at = 0
        end = len(data)
        effects = self.effects
        largest = self.limits.max_packet_bytes
        while end - at >= 2:
            if connection.state == CLOSED:
                return end
            if connection.state == AUTHENTICATING and connection.exchange is None:
                return at  # without a method clients need not wait for CONNACK (§3.1.4): what they send is kept
            first = data[at]
            if connection.state == AWAITING_CONNECT and first != 0x10:
                raise ProtocolError(_not_connect(first))
            length = data[at + 1]
            body = at + 2
            if length > 127:
                if body < end and 0 < data[body] < 128:
                    length = length & 127 | data[body] << 7
                    body += 1
                else:
                    size = packet_size(data, at)
                    if size == 0:
                        return at
                    body = at + 4 if data[at + 3] < 128 else at + 5
                    length = at + size - body
            stop = body + length
            if stop > end or stop - at > largest:
                return at
            if at and (effects.work > CHUNK_WORK or effects.pending_bytes > MAX_PENDING_BYTES):  # the others come first
                connection.deferred = True
                effects.deferred.append(connection.number)
                return at
            if connection.state == CONNECTED:
                kind = first & 0xF9
                if kind == 0x30:  # PUBLISH without DUP and RETAIN
                    at = self._packet_handler.publish_in_place(connection, data, at, body, stop, end)
                    continue
                if length == 2 and data[body] | data[body + 1]:
                    after = self._packet_handler.acknowledge_in_place(connection, data, at)
                    if after:
                        at = after
                        continue
            self._on_packet(connection, first, data[body:stop])
            at = stop
        return at

    def _on_packet(self, connection: Connection, first: int, body: bytes) -> None:
        packet_type = first >> 4
        self.effects.work += PACKET_WORK + len(body) // BYTES_PER_WORK_UNIT
        if packet_type not in WELCOME[connection.state]:
            raise ProtocolError(f"{PACKET_NAMES[packet_type]} is not a client's to send now")
        if packet_type == CONNECT:
            connection.version = connect_version(body)
        if packet_type >= SUBSCRIBE or packet_type == CONNECT:
            connection.requests += 1
            connection.request_bytes += len(body) + 2
        packet = decode(first, body, connection.version)
        if isinstance(packet, Connect):
            self._on_connect(connection, packet)
        elif isinstance(packet, Auth):
            self._admission.on_auth(connection, packet)
        elif connection.session is None:
            self._end(connection, CloseReason.CLIENT_DISCONNECTED, 0, "the client left instead of authenticating")
        elif isinstance(packet, Disconnect):
            self._on_disconnect(connection, connection.session, packet)
        else:
            self._packet_handler.take(connection, connection.session, packet)

    # ------------------------------------------------------------------ CONNECT and the end

    def _on_connect(self, connection: Connection, packet: Connect) -> None:
        connection.client_id = packet.client_id  # as it says of itself: who is refused has a name, too
        connection.username = connection.peer.identity or packet.username
        connection.outbox.max_packet_bytes = packet.properties.maximum_packet_size or 0
        connect.check(packet, connection.peer)
        connection.problem_information = packet.properties.request_problem_information != 0
        if packet.properties.authentication_method is not None or connection.peer.must_authenticate:
            self._admission.ask(connection, packet)
            return
        self._accept(connection, packet, None)

    def _on_endless_exchange(self, connection: Connection) -> None:
        assert connection.exchange is not None
        connection.exchange.deadline = None
        detail = f"not authenticated again within {self.limits.connect_timeout_s:g} s"
        self._end(connection, CloseReason.NOT_AUTHORIZED, ReasonCode.NOT_AUTHORIZED, detail)

    def _accept(self, connection: Connection, packet: Connect, data: bytes | None) -> None:
        """Let the client in: take over from a former connection, find its session, say so, go on where it was."""
        now = self.effects.now
        limits = self.limits
        client_id = packet.client_id or self._new_client_id(connection)  # [MQTT-3.1.3-6] [3.1.1 MQTT-3.1.3-6]
        expiry = connect.expiry_interval(packet, limits)
        connection.client_id = client_id
        connection.session_expiry_s = expiry
        connection.keep_alive_s = connect.keep_alive(packet, limits)
        if packet.properties.maximum_packet_size is not None:
            connection.check_size(connect.acceptance(connection, packet, limits, data), "CONNACK")
        former = self._online.get(client_id)
        if former is not None:  # [MQTT-3.1.4-3]
            detail = "another connection uses this client identifier"
            self._end(former, CloseReason.TAKEN_OVER, ReasonCode.SESSION_TAKEN_OVER, detail)
        before = len(self.effects.changes)
        session, present = self.sessions.open(client_id, packet.clean_start, expiry)
        session.will = packet.will  # [MQTT-3.1.2-7]
        connection.clean_start = packet.clean_start
        connection.session_present = present
        connection.connected_at = now
        connection.last_heard = now  # until now it waited for us
        connection.state = CONNECTED
        self._await_keep_alive(connection, now)
        outbox = connection.outbox
        outbox.topic_alias_maximum = min(packet.properties.topic_alias_maximum or 0, limits.max_topic_aliases)
        outbox.awaits_commit = len(self.effects.changes) > before  # that a session begins, or that one is gone
        self._begin(connection, session, packet.properties.receive_maximum or DEFAULT_RECEIVE_MAXIMUM)
        outbox.answer(connect.acceptance(connection, packet, limits, data))  # [MQTT-3.2.0-1] [MQTT-3.2.0-2]
        self.effects.connected.append(connection.number)
        session.resume()

    def _begin(self, connection: Connection, session: Session, receive_maximum: int) -> None:
        """A session has a connection from now on."""
        client_id = connection.client_id
        connection.session = session
        self._online[client_id] = connection
        session.role = self._authorizer.role_of(client_id, connection.username)
        connection.outbox.version = connection.version
        connection.outbox.client_id = client_id
        if self.effects.tracer is not None:
            self._routes.start_tracing(session)
        session.attach(connection.outbox, receive_maximum)
        self._routes.forget_session(session)

    def _await_keep_alive(self, connection: Connection, now: float) -> None:
        """The deadline of its CONNECT becomes that of its keep-alive."""
        deadline = connection.deadline
        assert deadline is not None
        due = now + KEEP_ALIVE_FACTOR * connection.keep_alive_s
        if connection.keep_alive_s and due >= deadline.at:
            return  # it rings too early, and is asked again then: most clients that connect are gone before that
        self._deadlines.cancel(deadline)
        connection.deadline = None
        if connection.keep_alive_s:
            connection.deadline = self._deadlines.add(due, _LINK, connection.number)

    def _new_client_id(self, connection: Connection) -> str:
        """An identifier that no session has, not even one whose client chose it to look like ours [MQTT-3.2.2-16]."""
        client_id = f"{self._client_id_prefix}{connection.number}"
        while self.sessions.get(client_id) is not None:
            client_id += "x"
        return client_id

    def _on_disconnect(self, connection: Connection, session: Session, packet: Disconnect) -> None:
        interval = packet.properties.session_expiry_interval
        if interval is not None:
            interval = min(interval, self.limits.max_session_expiry_s)
            if interval and not session.expiry_interval:
                raise ProtocolError("DISCONNECT gives a session an expiry that CONNECT did not (§3.14.2.2.2)")
            self.sessions.change_expiry(session, interval)
        if packet.reason_code == 0:
            self._end(connection, CloseReason.CLIENT_DISCONNECTED, 0, "")  # [MQTT-3.14.4-3]
        else:
            detail = packet.properties.reason_string or ""
            self._end(connection, CloseReason.CLIENT_DISCONNECTED_WITH_WILL, packet.reason_code, detail)

    def _on_silence(self, connection: Connection) -> None:
        """A connection's deadline rang: it was silent for too long, or is to be asked again later."""
        now = self.effects.now
        deadline = connection.deadline
        assert deadline is not None
        if connection.state == CONNECTED:
            interval = KEEP_ALIVE_FACTOR * connection.keep_alive_s
            due = connection.last_heard + interval
            if connection.hold_reasons:
                due = now + interval
            if due > now:
                self._deadlines.again(deadline, due)
                return
            connection.deadline = None
            detail = f"silent for {now - connection.last_heard:.1f} s with a keep-alive of {connection.keep_alive_s} s"
            self._end(connection, CloseReason.KEEP_ALIVE_TIMEOUT, ReasonCode.KEEP_ALIVE_TIMEOUT, detail)
        else:
            connection.deadline = None
            detail = f"no CONNECT accepted within {self.limits.connect_timeout_s:g} s"
            self._end(connection, CloseReason.CONNECT_TIMEOUT, ReasonCode.UNSPECIFIED_ERROR, detail)

    def _cut_overflowed(self) -> None:
        overflowed = self.effects.overflowed
        while overflowed:  # the will of one may be too much for another
            connection = self.connections.get(overflowed.pop())
            if connection is not None:
                detail = "the client does not read what it is sent"
                self._end(connection, CloseReason.BUFFER_FULL, ReasonCode.QUOTA_EXCEEDED, detail)

    def _fail(self, connection: Connection, error: PeerError) -> None:
        """The peer broke a rule: say so as its version allows, and close [MQTT-4.13.1-1] [3.1.1 MQTT-4.8.0-2].

        Before CONNECT is accepted, with CONNACK [MQTT-3.1.4-1] [MQTT-3.2.2-7] [MQTT-3.14.0-1] [3.1.1 MQTT-3.2.2-5].
        """
        assert connection.state != CLOSED, "nothing more is looked at"
        if connection.state != CONNECTED:
            frame = connect.refusal(connection.version, error, connection.outbox.max_packet_bytes)
            if frame:
                connection.outbox.answer(frame)
        self._end(connection, close_reason_of(error), error.reason_code, str(error))

    def _end(self, connection: Connection, reason: CloseReason, code: int, detail: str) -> None:
        """The one way in which a connection ends [MQTT-3.14.4-1] [MQTT-3.14.4-2]. Ended already: nothing happens."""
        if connection.state == CLOSED:
            return
        was_connected = connection.state == CONNECTED
        now = self.effects.now
        connection.state = CLOSED
        connection.deferred = False
        connection.ended_at = now
        connection.close_reason, connection.reason_code, connection.close_detail = reason, code, detail
        del self.connections[connection.number]
        if connection.deadline is not None:
            self._deadlines.cancel(connection.deadline)
            connection.deadline = None
        if connection.exchange is not None:
            self._admission.forget(connection.exchange)
        outbox = connection.outbox
        if outbox.blocked:
            connection.backpressure_s += now - connection.blocked_at
            if reason == CloseReason.SERVER_SHUTDOWN:
                outbox.unblock()  # nothing more will come: what was kept may leave before the last word
            else:
                outbox.give_up()
        by_client = reason == CloseReason.CLIENT_DISCONNECTED_WITH_WILL
        if was_connected and connection.version == V5 and code >= 0x80 and not by_client:  # [MQTT-4.13.2-1]
            outbox.answer(self._disconnect_frame(connection, code, detail))
        session = connection.session
        if session is not None:
            del self._online[connection.client_id]
            connection.will_published = session.will is not None and reason != CloseReason.CLIENT_DISCONNECTED
            connection.drops, session.drops = session.drops, {}
            for drop_reason, messages in outbox.drops.items():
                connection.drops[drop_reason] = connection.drops.get(drop_reason, 0) + messages
            connection.queue_high_water = session.queue_high_water
            connection.inflight_high_water = session.inflight_high_water
            connection.subscriptions = len(session.subscriptions)
            connection.session = None
            self.sessions.leave(session, connection.will_published)
        self.effects.closed.append(connection.number)

    def _disconnect_frame(self, connection: Connection, code: int, detail: str) -> bytes:
        """A DISCONNECT, with a reason string where the client wants them and its packets may be that large.

        It has no session expiry interval and no user properties [MQTT-3.14.2-2] [MQTT-3.14.2-4].
        """
        properties = Properties(
            reason_string=detail if connection.problem_information and detail else None,
            server_reference=self._server_reference if code == ReasonCode.USE_ANOTHER_SERVER else None,
        )
        frame = encode(Disconnect(code, properties if properties.present() else NONE), V5)
        if 0 < connection.outbox.max_packet_bytes < len(frame):  # [MQTT-3.14.2-3]
            return encode(Disconnect(code), V5)
        return frame


def _not_connect(first: int) -> str:
    """What a first byte that begins no CONNECT probably is."""
    if first == 0x16:
        return "TLS bytes on a listener without TLS"
    if first in b"GPHDOC":  # GET, POST, PUT, HEAD, DELETE, OPTIONS
        return "the first packet is not CONNECT: an HTTP request?"
    if first >> 4 == CONNECT:
        return f"CONNECT with header flags {first & 0x0F:#06b} [MQTT-2.1.3-1]"
    return f"the first packet is {PACKET_NAMES[first >> 4]} and not CONNECT [MQTT-3.1.0-1]"
