"""Takes a connection from its first packet to an attached session, and keeps its deadlines.

`connect.py` checks and answers a CONNECT; `Admission` authenticates the client. Invariant: an open connection has at
most one deadline for CONNECT or keep-alive, and at most one for the expiry of its credentials.
"""

from math import inf
from typing import Final, final

from mqttlite.core.authentication import Grants
from mqttlite.core.authorizer import PUBLISH
from mqttlite.core.connect import connect
from mqttlite.core.connect.closing import Closing
from mqttlite.core.connect.connection import CONNECTED, Connection
from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.effects import Effects
from mqttlite.core.identity import Identity
from mqttlite.core.limits import CONNECT_WORK, KEEP_ALIVE_FACTOR, Limits
from mqttlite.core.load.overload import Overload
from mqttlite.core.load.rate_limits import Buckets
from mqttlite.core.load.throttling import Throttling
from mqttlite.core.outbound.pace import Paced
from mqttlite.core.ports import BanOf
from mqttlite.core.reasons import CREDENTIALS_EXPIRED, CloseReason
from mqttlite.core.retained.publish_order import PublishOrder, asks_for_order
from mqttlite.core.route.routes import Routes
from mqttlite.core.route.topic_limits import TopicLimits, lower_of, narrowed, topic_limits
from mqttlite.core.session.session import Session
from mqttlite.core.session.sessions import Sessions
from mqttlite.core.session.usage import NO_USAGE
from mqttlite.core.source import Publisher
from mqttlite.wire.constants import DEFAULT_RECEIVE_MAXIMUM, V5
from mqttlite.wire.errors import Banned, ClientIdentifierNotValid, ServerBusy
from mqttlite.wire.packets import Connect, Will
from mqttlite.wire.reason_codes import ReasonCode


@final
class Connecting:
    """Accepts clients. `connections` and `online` are the broker's tables, by number and by client identifier."""

    __slots__ = (
        "_client_id_prefix",
        "_closing",
        "_connections",
        "_deadlines",
        "_effects",
        "_limits",
        "_online",
        "_order",
        "_overload",
        "_paced",
        "_publisher_limits",
        "_routes",
        "_sessions",
        "_throttling",
        "_topic_limits",
        "asks_always",
        "ban_of",
    )

    def __init__(
        self,
        connections: dict[int, Connection],
        online: dict[str, Connection],
        sessions: Sessions,
        routes: Routes,
        closing: Closing,
        deadlines: Deadlines,
        effects: Effects,
        limits: Limits,
        client_id_prefix: str,
        throttling: Throttling,
        paced: Paced,
        overload: Overload,
        order: PublishOrder,
    ) -> None:
        self._connections: Final = connections
        self._online: Final = online
        self._sessions: Final = sessions
        self._routes: Final = routes
        self._closing: Final = closing
        self._deadlines: Final = deadlines
        self._effects: Final = effects
        self._limits: Final = limits
        self._topic_limits: Final = topic_limits(limits)
        whole = TopicLimits(limits.max_topic_levels, limits.max_topic_bytes, limits.max_packet_bytes)
        self._publisher_limits: Final = lower_of(self._topic_limits, whole)  # no decoder limits their packets
        self._client_id_prefix: Final = client_id_prefix
        self._throttling: Final = throttling
        self._paced: Final = paced
        self._overload: Final = overload
        self._order: Final = order
        self.asks_always: bool = False
        """Whether a question is asked about each client with a socket, also where no login is needed."""
        self.ban_of: BanOf | None = None
        """None: no client is banned."""

    def await_connect(self, connection: Connection) -> None:
        """A connection opened. It has `connect_timeout_s` for its CONNECT."""
        deadline = connection.deadline = _ConnectionDeadline(self, connection.number)
        self._deadlines.arm(deadline, self._effects.now + self._limits.connect_timeout_s)

    def on_connect(self, connection: Connection, packet: Connect) -> bool:
        """Handle a CONNECT. Return whether it can be accepted without a question.

        Raises a `PeerError` for a CONNECT that the broker refuses.
        """
        connection.is_bridge = packet.is_bridge
        connection.client_id = packet.client_id  # the log also names refused clients
        is_name_good = connection.peer.must_authenticate or self._routes.permissions.trusts_names
        if is_name_good and connection.identity.username is None:
            connection.identity = connection.identity.of(packet.username)
        connection.outbox.limit_packets(packet.properties.maximum_packet_size or 0)
        if connection.identity.mount_point:
            connection.outbox.mount(connection.identity.mount_point)
        if connection.peer.capabilities.tell_message and packet.version == V5:
            connection.outbox.tell(connection.peer.sees_publishers)
        routes = self._routes
        connect.check(packet, connection.peer, routes.permissions.authorizer, routes.namespaces)
        interest = self._effects.interest
        if interest is not None and packet.client_id.startswith(interest.relays) and not connection.identity.is_trusted:
            raise ClientIdentifierNotValid(f"client identifiers that begin with {interest.relays} are the broker's own")
        if self._effects.refuses_connects and not connection.identity.is_trusted:
            self._overload.connects_refused += 1
            busy = ServerBusy("the broker is overloaded: come again later")
            raise busy if self._sessions.known(packet.client_id) else self._sessions.no_room(busy)
        if not connection.identity.is_trusted:
            self._limit_topics(connection)
        if packet.will is not None:
            connection.topic_limits.check_will(self._mounted_will(connection, packet.will))
        connection.problem_information = packet.properties.request_problem_information != 0
        if packet.properties.authentication_method is not None or connection.peer.must_authenticate:
            return False
        return connection.peer.is_inside or not self.asks_always

    def accept(self, connection: Connection, packet: Connect, data: bytes | None) -> None:
        """Accept the client: take over from a former connection, find its session, send CONNACK, resume.

        `data` is the method's last data for the client. Raises a `PeerError` when there are too many sessions, or when
        CONNACK exceeds the client's Maximum Packet Size.
        """
        now = self._effects.now
        self._effects.work += CONNECT_WORK
        limits = self._limits
        client_id = packet.client_id or self._new_client_id(connection)  # [MQTT-3.1.3-6] [3.1.1 MQTT-3.1.3-6]
        expiry = connect.expiry_interval(packet, limits)
        connection.client_id = client_id
        connection.session_expiry_s = expiry
        connection.keep_alive_s = connect.keep_alive(packet, limits)
        if packet.properties.maximum_packet_size is not None:
            connection.check_size(connect.acceptance(connection, packet, limits, data), "CONNACK")
        if self.ban_of is not None and not connection.identity.is_trusted:
            ban = self.ban_of(client_id, connection.username, connection.address)
            if ban:
                raise Banned(ban)
        quotas = connection.peer.quotas
        if quotas is not None and quotas.topics:
            self._limit_topics_of_user(connection, packet, quotas.topics)
        permissions = self._routes.permissions
        known = self._sessions.known(client_id)
        if known is not None and permissions.is_anothers(known.username, connection.username):
            raise ClientIdentifierNotValid("the client identifier is in use by another user's session")
        if known is not None and known.identity.is_trusted and not connection.identity.is_trusted:
            raise ClientIdentifierNotValid("the client identifier is in use by the program that runs the broker")
        former = self._online.get(client_id)
        if connection.peer.connect_limits is not None:
            former_user = (
                None
                if former is None or former.peer.connect_limits is not connection.peer.connect_limits
                else former.username
            )
            connection.peer.connect_limits.enter(client_id, connection.username, former_user, now)
        if former is not None:  # [MQTT-3.1.4-3]
            detail = "another connection uses this client identifier"
            self._closing.end(former, CloseReason.TAKEN_OVER, ReasonCode.SESSION_TAKEN_OVER, detail)
        before = len(self._effects.changes)
        session, present = self._sessions.open(
            client_id,
            packet.clean_start,
            expiry,
            connection.identity,
            connection.version,
        )
        will = None if packet.will is None else self._mounted_will(connection, packet.will)
        if will is not None:
            session.keep_will(will)  # [MQTT-3.1.2-7]
        connection.clean_start = packet.clean_start
        connection.session_present = present
        connection.connected_at = session.connected_at = now
        connection.last_heard = now  # the time the broker took does not count as silence
        connection.state = CONNECTED
        self._await_keep_alive(connection, now)
        self.await_expiry(connection)
        outbox = connection.outbox
        outbox.topic_alias_maximum = min(packet.properties.topic_alias_maximum or 0, limits.max_topic_aliases)
        outbox.awaits_commit = len(self._effects.changes) > before  # a session began or ended
        if quotas is not None:
            self._throttling.start(connection, quotas, self._paced)
            session.count_for(quotas.usages.of(connection.username, connection.quota_address))
        elif session.queue.usages:
            session.count_for(NO_USAGE)
        self._attach(connection, session, packet.properties.receive_maximum or DEFAULT_RECEIVE_MAXIMUM)
        if will is not None:
            if permissions.may_publish(session, will.topic):
                self._sessions.save_will(session)  # CONNACK does not wait for this
            else:
                session.take_will()  # the delayed will has its own copy now
                permissions.deny(session, PUBLISH, will.topic)
        session.dates_retained = self._order.is_on and asks_for_order(packet.properties)
        outbox.answer(
            connect.acceptance(connection, packet, limits, data, session.dates_retained)
        )  # [MQTT-3.2.0-1] [MQTT-3.2.0-2]
        self._effects.connected.append(connection.number)
        session.resume()

    def ask_role(self, connection: Connection) -> None:
        """A connected client has other grants: forget its role and the routes to it."""
        session = connection.session
        assert session is not None, "the client is connected"
        session.grants = connection.grants
        session.rules = 0
        self._routes.forget_session(session)

    def await_expiry(self, connection: Connection) -> None:
        """Set the deadline at which the client's credentials expire. It replaces an earlier one."""
        if connection.expiry is not None:
            self._deadlines.cancel(connection.expiry)
            connection.expiry = None
        if connection.grants.expires_at < inf:
            connection.expiry = _ExpiryDeadline(self, connection.number)
            self._deadlines.arm(connection.expiry, connection.grants.expires_at)

    def on_expiry(self, number: int) -> None:
        """Disconnect a client whose credentials have expired."""
        connection = self._connections[number]
        connection.expiry = None
        self._closing.end(connection, CloseReason.NOT_AUTHORIZED, ReasonCode.NOT_AUTHORIZED, CREDENTIALS_EXPIRED)

    def on_deadline(self, number: int) -> None:
        """A connection's deadline is due: close it if the client was silent for too long, else move the deadline."""
        connection = self._connections[number]
        now = self._effects.now
        deadline = connection.deadline
        assert deadline is not None
        if connection.state == CONNECTED:
            interval = KEEP_ALIVE_FACTOR * connection.keep_alive_s
            due = connection.last_heard + interval
            if connection.hold_reasons or connection.deferred:
                due = now + interval
            if due > now:
                self._deadlines.arm(deadline, due)
                return
            connection.deadline = None
            detail = f"silent for {now - connection.last_heard:.1f} s with a keep-alive of {connection.keep_alive_s} s"
            self._closing.end(connection, CloseReason.KEEP_ALIVE_TIMEOUT, ReasonCode.KEEP_ALIVE_TIMEOUT, detail)
        else:
            connection.deadline = None
            detail = f"no CONNECT accepted within {self._limits.connect_timeout_s:g} s"
            self._closing.end(connection, CloseReason.CONNECT_TIMEOUT, ReasonCode.UNSPECIFIED_ERROR, detail)

    def publisher(
        self,
        client_id: str,
        username: str | None,
        grants: Grants,
        own: TopicLimits | None,
        address: str,
        buckets: list[tuple[str, Buckets]],
    ) -> Publisher:
        """A publisher without a session. It has the rules and limits of a client with that name; `own` are the limits
        of its user, if it has any."""
        limits = self._publisher_limits if own is None else lower_of(self._publisher_limits, own)
        self._routes.limit_topics(limits)
        return Publisher(client_id, Identity(username), grants, limits, address, buckets)

    def _limit_topics(self, connection: Connection) -> None:
        """Set the limits of the client's topics and payloads."""
        peer = connection.peer
        limits = connection.topic_limits = narrowed(self._topic_limits, peer.capabilities)
        if peer.identity.mount_point:
            connection.in_place_bytes = 0
        elif limits.max_payload_bytes < connection.in_place_bytes:
            connection.in_place_bytes = limits.max_payload_bytes
        if limits is not self._topic_limits:  # the routes know the common limits
            self._routes.limit_topics(limits)

    def _limit_topics_of_user(self, connection: Connection, packet: Connect, topics: dict[str, TopicLimits]) -> None:
        """Apply the limits of the authenticated user, if it has any."""
        own = topics.get(connection.username or "")
        if own is None:
            return
        limits = connection.topic_limits = lower_of(connection.topic_limits, own)
        self._routes.limit_topics(limits)
        connection.in_place_bytes = min(connection.in_place_bytes, limits.max_payload_bytes)
        if packet.will is not None:
            limits.check_will(self._mounted_will(connection, packet.will))

    def _mounted_will(self, connection: Connection, will: Will) -> Will:
        """A client's will with the topic below the mount point."""
        mount_point = connection.identity.mount_point
        if not mount_point:
            return will
        topic = self._routes.namespaces.mounted_name(mount_point, will.topic)
        return Will(topic, will.payload, will.qos, will.retain, will.properties)

    def _attach(self, connection: Connection, session: Session, receive_maximum: int) -> None:
        client_id = connection.client_id
        connection.session = session
        self._online[client_id] = connection
        session.grants = connection.grants
        session.rules = 0
        session.topic_limits = connection.topic_limits
        connection.outbox.version = connection.version
        connection.outbox.client_id = client_id
        if self._effects.tracer is not None:
            self._routes.start_tracing(session)
        session.attach(connection.outbox, receive_maximum)
        self._routes.forget_session(session)

    def _await_keep_alive(self, connection: Connection, now: float) -> None:
        """Turn the deadline of CONNECT into the deadline of the keep-alive."""
        deadline = connection.deadline
        assert deadline is not None
        due = now + KEEP_ALIVE_FACTOR * connection.keep_alive_s
        if connection.keep_alive_s and due >= deadline.at:
            return  # it is due too early and moves then; most short connections end before
        self._deadlines.cancel(deadline)
        connection.deadline = None
        if connection.keep_alive_s:
            connection.deadline = _ConnectionDeadline(self, connection.number)
            self._deadlines.arm(connection.deadline, due)

    def _new_client_id(self, connection: Connection) -> str:
        """An identifier that no session uses [MQTT-3.2.2-16]. A client may have chosen one that looks like ours."""
        client_id = f"{self._client_id_prefix}{connection.number}"
        while self._sessions.get(client_id) is not None:
            client_id += "x"
        return client_id


@final
class _ConnectionDeadline(Deadline):
    """Refers to its connection by number, because a cancelled deadline may outlive the connection in the heap."""

    __slots__ = ("_connecting", "_number")

    def __init__(self, connecting: Connecting, number: int) -> None:
        super().__init__()
        self._connecting: Final = connecting
        self._number: Final = number

    def on_due(self) -> None:
        self._connecting.on_deadline(self._number)


@final
class _ExpiryDeadline(Deadline):
    """Due when a client's credentials expire."""

    __slots__ = ("_connecting", "_number")

    def __init__(self, connecting: Connecting, number: int) -> None:
        super().__init__()
        self._connecting: Final = connecting
        self._number: Final = number

    def on_due(self) -> None:
        self._connecting.on_expiry(self._number)
