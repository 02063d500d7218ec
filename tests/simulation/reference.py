"""The reference model: a broker in dictionaries and sets, which says what the standard requires for each packet.

It has no queues, windows or bytes. The simulation passes each packet to it when the real broker has read the last byte,
and compares everything that the real broker writes with it. It does not decide which member of a shared subscription
gets a message, nor whether a queue had room for it.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from mqttlite.core.limits import WILL_GRACE_S, Limits
from mqttlite.wire.constants import NEVER_EXPIRES, PUBACK, PUBCOMP, PUBREC, PUBREL, V5
from mqttlite.wire.packets import (
    Ack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    Will,
)

PINGRESP: Final = 13
SUBACK: Final = 9
UNSUBACK: Final = 11
SHARED_TOPIC: Final = b"s/"
"""Topics below it may have shared subscriptions, for which order and number are not checked."""


def matches(topic_filter: bytes, topic: bytes) -> bool:
    """§4.7 in the order in which the standard says it."""
    if topic[:1] == b"$" and topic_filter[:1] in (b"+", b"#"):
        return False
    wanted, levels = topic_filter.split(b"/"), topic.split(b"/")
    while wanted and wanted[0] != b"#":
        if not levels or wanted[0] not in (b"+", levels[0]):
            return False
        del wanted[0], levels[0]
    return bool(wanted) or not levels


@dataclass
class PublishedMessage:
    """A message as it was published: the latest of its copies, if it was published more than once."""

    topic: bytes
    qos: int
    retain: bool
    expires_at: float
    publisher: str
    version: int
    number: int
    """Messages are numbered as the broker sees them."""
    epoch: int
    """How often the broker had been restarted when it was first published."""
    expired_at: float = 0.0
    """When the last of those copies that expire does."""
    times: int = 0
    codes: set[int] = field(default_factory=set)
    """The reason codes that its publisher received."""


@dataclass
class ReferenceConnection:
    """The state of one connection."""

    number: int
    version: int
    connect: Connect | None = None
    session: "ReferenceSession | None" = None
    ended: bool = False
    keep_alive: int = 0
    last_heard: float = 0.0
    accepted_at: float = 0.0
    window: int = 65_535
    held: list[Packet] | None = None
    """What came while the client's authentication was not decided."""
    expected: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Answers that are due: packet type and packet identifier."""
    subacks: dict[tuple[int, int], list[bytes]] = field(default_factory=dict)
    """The reason codes that are due."""
    acks_of: dict[tuple[int, int], list[bytes]] = field(default_factory=dict)
    """Which messages the PUBACKs and PUBRECs that are due are for."""
    aliases: dict[int, bytes] = field(default_factory=dict)
    unacked: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    """Written on this connection: packet identifier → payload and QoS."""
    written: Counter[bytes] = field(default_factory=Counter)
    order: dict[tuple[str, bytes, int], int] = field(default_factory=dict)
    due: list[bytes] = field(default_factory=list)
    """QoS 0 messages that must be written now."""
    closed_normally: bool = False


@dataclass
class ReferenceSession:
    client_id: str
    expiry: int
    generation: int
    conn: ReferenceConnection | None = None
    subscriptions: dict[bytes, tuple[SubscriptionRequest, int]] = field(default_factory=dict)
    received: set[int] = field(default_factory=set)
    released: set[int] = field(default_factory=set)
    sent_before: dict[int, bytes] = field(default_factory=dict)
    owed: dict[bytes, set[tuple[int, tuple[int, ...]]]] = field(default_factory=dict)
    """Payload → the QoS and subscription identifiers with which it may come."""
    settled: set[bytes] = field(default_factory=set)
    """Acknowledged by the client, read or not."""
    seen: set[bytes] = field(default_factory=set)
    """Written at QoS 1 or 2, read or not."""
    groups: set[bytes] = field(default_factory=set)
    will: Will | None = None
    will_at: tuple[float, int] | None = None
    expires_at: tuple[float, int] | None = None
    is_lost: bool = False
    """Its client was connected when the broker was killed, and has not come back."""
    found: dict[bytes, set[int]] = field(default_factory=dict)
    """Retained messages that its subscriptions found, and the QoS of each."""

    @property
    def durable(self) -> bool:
        return self.expiry > 0

    def copy(self) -> "ReferenceSession":
        return ReferenceSession(
            self.client_id,
            self.expiry,
            self.generation,
            None,
            dict(self.subscriptions),
            set(self.received),
            set(self.released),
            {},
            {payload: set(ways) for payload, ways in self.owed.items()},
            set(self.settled),
            set(self.seen),
            set(self.groups),
            self.will if self.will_at is not None else None,  # a delayed will is durable, like its session
            self.will_at,
            self.expires_at,
            False,
            {payload: set(ways) for payload, ways in self.found.items()},
        )


class ReferenceBroker:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.sessions: dict[str, ReferenceSession] = {}
        self.retained: dict[bytes, tuple[bytes, float]] = {}
        """Topic → payload, and when it expires."""
        self.published: dict[bytes, PublishedMessage] = {}
        self.lost: dict[str, ReferenceSession] = {}
        """Sessions that ended when the broker was killed, with a will to publish if the client does not come back."""
        self.groups: dict[bytes, set[str]] = {}
        """`$share/name/filter` → its members."""
        self.group_owed: dict[bytes, set[bytes]] = {}
        """Payload → the shared subscriptions of which one member is to get it."""
        self.delivered: Counter[bytes] = Counter()
        """How many clients read a message."""
        self.epoch = 0
        self.now = 0.0
        self._order = 0
        self._generation = 0

    # ------------------------------------------------------------------ time

    def _at(self, when: float) -> tuple[float, int]:
        self._order += 1
        return when, self._order

    def pass_time(self, now: float) -> None:
        """What is due by now happens in its order."""
        self.now = now
        while True:
            due = [
                (at, kind, session)
                for session in [*self.sessions.values(), *self.lost.values()]
                for kind, at in enumerate((session.will_at, session.expires_at))
                if at is not None and at[0] <= now
            ]
            if not due:
                return
            _at, kind, session = min(due, key=lambda each: each[0])
            if kind:
                self._end_session(session)
            else:
                session.will_at = None
                session.is_lost = False
                if self.lost.get(session.client_id) is session:
                    del self.lost[session.client_id]
                self._publish_will(session)

    # ------------------------------------------------------------------ packets

    def on_packet(self, conn: ReferenceConnection, packet: Packet) -> None:
        """One packet from a client; `conn.ended` afterwards if the packet ended the connection."""
        if conn.held is not None:
            conn.held.append(packet)
        elif conn.session is None:
            if isinstance(packet, Connect):
                conn.connect = packet
            else:
                self.close(conn)
        elif isinstance(packet, Publish):
            self._on_publish(conn, conn.session, packet)
        elif isinstance(packet, Ack):
            self._on_ack(conn, conn.session, packet)
        elif isinstance(packet, Subscribe):
            self._on_subscribe(conn, conn.session, packet)
        elif isinstance(packet, Unsubscribe):
            codes = bytearray()
            for topic_filter in packet.topic_filters:
                known = conn.session.subscriptions.pop(topic_filter, None)
                codes.append(0x11 if known is None else 0)
                if topic_filter in self.groups and known is not None:
                    self._leave_group(topic_filter, conn.session)
            conn.expected[UNSUBACK, packet.packet_id] += 1
            conn.subacks.setdefault((UNSUBACK, packet.packet_id), []).append(bytes(codes))
        elif isinstance(packet, Pingreq):
            conn.expected[PINGRESP, 0] += 1
        elif isinstance(packet, Disconnect):
            expiry = packet.properties.session_expiry_interval
            if expiry is not None:
                if expiry and not conn.session.durable:
                    self.close(conn)
                    return
                conn.session.expiry = min(expiry, self.limits.max_session_expiry_s)
            conn.closed_normally = packet.reason_code == 0
            self.close(conn)
        else:
            self.close(conn)

    def accept(self, conn: ReferenceConnection) -> bool:
        """Accept the client that sent CONNECT; return whether its session was present."""
        packet = conn.connect
        assert packet is not None
        earlier = self.sessions.get(packet.client_id)
        if earlier is not None and earlier.conn is not None:
            self.close(earlier.conn)
        session = self.sessions.get(packet.client_id)
        self.lost.pop(packet.client_id, None)
        if session is not None and session.is_lost:
            session.is_lost, session.will, session.will_at = False, None, None
        if session is not None and packet.clean_start:
            self._end_session(session)
            session = None
        present = session is not None
        if conn.version == V5:
            expiry = packet.properties.session_expiry_interval or 0
        else:
            expiry = 0 if packet.clean_start else NEVER_EXPIRES
        expiry = min(expiry, self.limits.max_session_expiry_s)
        if session is None:
            self._generation += 1
            session = self.sessions[packet.client_id] = ReferenceSession(packet.client_id, expiry, self._generation)
        session.expiry = expiry
        session.will_at = session.expires_at = None
        session.will = packet.will
        session.conn = conn
        conn.session = session
        conn.window = min(packet.properties.receive_maximum or 65_535, self.limits.max_inflight)
        conn.keep_alive = packet.keep_alive
        ours = self.limits.server_keep_alive_s
        if ours and not 0 < packet.keep_alive <= ours:
            conn.keep_alive = ours
        conn.accepted_at = self.now
        return present

    def close(self, conn: ReferenceConnection) -> None:
        """The connection has ended, by either side."""
        if conn.ended:
            return
        conn.ended = True
        session = conn.session
        if session is None:
            return
        session.conn = None
        for packet_id, (payload, _qos) in conn.unacked.items():
            session.sent_before[packet_id] = payload
        will = session.will
        if conn.closed_normally:
            session.will = None
        elif will is not None:
            delay = min(will.properties.will_delay_interval or 0, session.expiry)
            if delay:
                session.will_at = self._at(self.now + delay)
            else:
                self._publish_will(session)
        if not session.durable:
            self._end_session(session)
        elif session.expiry < NEVER_EXPIRES:
            session.expires_at = self._at(self.now + session.expiry)

    # ------------------------------------------------------------------ messages

    def publish(
        self, topic: bytes, payload: bytes, qos: int, retain: bool, expires_at: float, publisher: str, version: int
    ) -> None:
        if not payload:  # it removes the retained message; receivers cannot tell one such message from another
            self.retained.pop(topic, None)
            return
        message = self.published.get(payload)
        if message is None:
            message = self.published[payload] = PublishedMessage(
                topic, qos, retain, expires_at, publisher, version, len(self.published) + 1, self.epoch
            )
        message.times += 1
        message.expired_at = max(message.expired_at, expires_at)
        message.expires_at = max(message.expires_at, expires_at) if message.expires_at and expires_at else 0.0
        if retain:
            self.retained[topic] = payload, expires_at
        for session in self.sessions.values():
            hits = [
                (request, identifier)
                for topic_filter, (request, identifier) in session.subscriptions.items()
                if matches(topic_filter, topic) and not (request.no_local and session.client_id == publisher)
            ]
            if not hits:
                continue
            granted = min(qos, max(request.qos for request, _ in hits))
            identifiers = tuple(sorted(identifier for _, identifier in hits if identifier))
            session.owed.setdefault(payload, set()).add((granted, identifiers))
            if granted == 0 and session.conn is not None:
                session.conn.due.append(payload)
        for name in self.groups:
            if matches(name.split(b"/", 2)[2], topic):
                self.group_owed.setdefault(payload, set()).add(name)

    def _publish_will(self, session: ReferenceSession) -> None:
        will, session.will = session.will, None
        assert will is not None
        expiry = will.properties.message_expiry_interval
        expires_at = 0.0 if expiry is None else self.now + expiry
        self.publish(will.topic, will.payload, will.qos, will.retain, expires_at, session.client_id, 0)

    def _on_publish(self, conn: ReferenceConnection, session: ReferenceSession, packet: Publish) -> None:
        topic = packet.topic
        alias = packet.properties.topic_alias
        if alias is not None:
            if alias > self.limits.topic_alias_maximum or (not topic and alias not in conn.aliases):
                self.close(conn)
                return
            if topic:
                conn.aliases[alias] = topic
            topic = conn.aliases[alias]
        if packet.qos:
            kind = PUBACK if packet.qos == 1 else PUBREC
            if packet.qos == 2:
                if packet.packet_id in session.received:
                    conn.expected[PUBREC, packet.packet_id] += 1
                    conn.acks_of.setdefault((PUBREC, packet.packet_id), []).append(b"")
                    return
                if conn.version == V5 and len(session.received) >= self.limits.receive_maximum:
                    self.close(conn)
                    return
                session.received.add(packet.packet_id)
            conn.expected[kind, packet.packet_id] += 1
            conn.acks_of.setdefault((kind, packet.packet_id), []).append(packet.payload)
        expiry = packet.properties.message_expiry_interval
        expires_at = 0.0 if expiry is None else self.now + expiry
        self.publish(topic, packet.payload, packet.qos, packet.retain, expires_at, session.client_id, conn.version)

    def _on_ack(self, conn: ReferenceConnection, session: ReferenceSession, packet: Ack) -> None:
        packet_id = packet.packet_id
        payload, qos = conn.unacked.get(packet_id, (b"", 0))
        if packet.packet_type == PUBREL:
            session.received.discard(packet_id)
            conn.expected[PUBCOMP, packet_id] += 1
        elif packet.packet_type == PUBACK:
            if qos == 1:
                del conn.unacked[packet_id]
                session.settled.add(payload)
            elif qos == 2 or packet_id in session.released:
                self.close(conn)
        elif packet.packet_type == PUBREC:
            if qos == 2:
                del conn.unacked[packet_id]
                session.settled.add(payload)
                if packet.reason_code >= 0x80:
                    return
                session.released.add(packet_id)
            elif qos == 1:
                self.close(conn)
                return
            elif packet_id not in session.released and packet.reason_code >= 0x80:
                return
            conn.expected[PUBREL, packet_id] += 1
        elif packet_id in session.released:
            session.released.discard(packet_id)
        elif qos:
            self.close(conn)

    # ------------------------------------------------------------------ subscriptions

    def _on_subscribe(self, conn: ReferenceConnection, session: ReferenceSession, packet: Subscribe) -> None:
        identifiers = packet.properties.subscription_identifiers
        identifier = identifiers[0] if identifiers else 0
        codes = bytearray()
        for request in packet.requests:
            topic_filter = request.topic_filter
            known = topic_filter in session.subscriptions
            if not known and len(session.subscriptions) >= self.limits.max_subscriptions:
                codes.append(0x97 if conn.version == V5 else 0x80)
                continue
            groups = sum(each.startswith(b"$share/") for each in session.subscriptions)
            shared = topic_filter.startswith(b"$share/")
            if not known and shared and groups >= self.limits.max_shared_subscriptions:
                codes.append(0x97 if conn.version == V5 else 0x80)
                continue
            codes.append(request.qos)
            session.subscriptions[topic_filter] = request, identifier
            if topic_filter.startswith(b"$share/"):
                self.groups.setdefault(topic_filter, set()).add(session.client_id)
                session.groups.add(topic_filter)
            elif request.retain_handling == 0 or (request.retain_handling == 1 and not known):
                for topic, (payload, _expires_at) in self.retained.items():
                    if matches(topic_filter, topic):
                        session.found.setdefault(payload, set()).add(min(request.qos, self.published[payload].qos))
        conn.expected[SUBACK, packet.packet_id] += 1
        conn.subacks.setdefault((SUBACK, packet.packet_id), []).append(bytes(codes))

    def _leave_group(self, name: bytes, session: ReferenceSession) -> None:
        members = self.groups[name]
        members.discard(session.client_id)
        if not members:
            del self.groups[name]
            self.forget_group(name)

    def forget_group(self, name: bytes) -> None:
        """No member is owed its messages any more."""
        for groups in self.group_owed.values():
            groups.discard(name)

    def _end_session(self, session: ReferenceSession) -> None:
        del self.sessions[session.client_id]
        for topic_filter in session.subscriptions:
            if topic_filter in self.groups:
                self._leave_group(topic_filter, session)
        session.subscriptions = {}
        session.will_at = session.expires_at = None
        if session.will is not None:
            self._publish_will(session)

    # ------------------------------------------------------------------ a broker is killed

    def copy(self) -> "ReferenceBroker":
        """The state of a broker that starts with what is committed now."""
        other = ReferenceBroker(self.limits)
        other.sessions = {name: session.copy() for name, session in self.sessions.items() if session.durable}
        for session in [*self.sessions.values(), *self.lost.values()]:
            will = session.will
            if will is None or not (session.conn is not None or session.is_lost) or not (will.qos or session.durable):
                continue
            kept = other.sessions.get(session.client_id)
            if kept is None:
                kept = other.lost[session.client_id] = ReferenceSession(session.client_id, 0, session.generation)
            delay = min(will.properties.will_delay_interval or 0, session.expiry)
            kept.is_lost, kept.will = True, will
            kept.will_at = other._at(self.now + max(delay, WILL_GRACE_S))
        other.retained = dict(self.retained)
        other.published = self.published
        other.delivered = self.delivered
        other.epoch = self.epoch + 1
        other.now, other._order, other._generation = self.now, self._order, self._generation + 1_000
        for session in other.sessions.values():
            for name in session.subscriptions:
                if name.startswith(b"$share/"):
                    other.groups.setdefault(name, set()).add(session.client_id)
        other.group_owed = {
            payload: set() for payload in self.group_owed
        }  # the members may have had no durable session
        for session in other.sessions.values():
            if session.expires_at is None and session.expiry < NEVER_EXPIRES:
                session.expires_at = other._at(self.now + session.expiry)
        return other
