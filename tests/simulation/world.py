"""Misbehaving clients, a lossy network, a clock that jumps, and a broker that is killed: all from one seed.

Every step is checked against the `ReferenceBroker`. After the last step all clients reconnect, behave well and read
everything; then the totals are compared. A failure prints its seed and the trace of its last steps.
"""

import random
from collections import Counter, deque

from mqttlite.core.authentication import Verdict
from mqttlite.core.broker import Broker
from mqttlite.core.connect.connection import CLOSED, CONNECTED, Connection, Peer
from mqttlite.core.deadlines import SLACK
from mqttlite.core.limits import DISCONNECT, DROP_OLDEST, ITERATION_WORK, OVERFLOW_POLICIES, Limits
from mqttlite.core.memory import CHUNK_BYTES, ENTRY_BYTES, FRAME_BYTES, INFLIGHT_BYTES, MESSAGE_BYTES
from mqttlite.core.outbound.outbox import Outbox
from mqttlite.core.question import Authenticate
from mqttlite.core.reasons import QUEUE_FULL, CloseReason
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import MAX_REMAINING_LENGTH, PUBACK, PUBREC, PUBREL, V5
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import encode
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
)
from tests.simulation.client import TOPICS, WELL_BEHAVED, Behaviour, SimulatedClient
from tests.simulation.reference import (
    PINGRESP,
    SHARED_TOPIC,
    SUBACK,
    UNSUBACK,
    ReferenceBroker,
    ReferenceConnection,
    ReferenceSession,
    matches,
)
from tests.support.memory import assert_nothing_is_held, end_everything
from tests.support.recorder import Recorder
from tests.support.stores import loaded

START = 1_000_000.0
TRACE_STEPS = 40
"""How many of the last steps a failure prints."""

NO_ID = 0


class SimulatedLink:
    """A client's connection: the packets under way in both directions."""

    def __init__(self, client: SimulatedClient | None, connection: Connection, conn: ReferenceConnection) -> None:
        self.client = client
        self.connection = connection
        self.conn = conn
        self.up: deque[tuple[bytes, Packet, bool]] = deque()
        """Packets that the broker has not wholly read; the flag: it ends its chunk."""
        self.half = 0
        """How much of the first of them it has."""
        self.down: deque[Packet] = deque()
        self.up_cut = False
        self.down_cut = False
        self.last: Packet | None = None
        self.framer = Framer(MAX_REMAINING_LENGTH + 5)
        self.was_blocked = False
        self.taken_over = False

    def send(self, packets: list[Packet], alone: bool = False) -> None:
        if not self.up_cut:
            for packet in packets:
                ends = alone or (isinstance(packet, Publish) and packet.qos == 2) or isinstance(packet, Connect)
                if alone and self.up:
                    data, before, _ = self.up.pop()
                    self.up.append((data, before, True))
                self.up.append((encode(packet, self.conn.version), packet, ends))


class World:
    def __init__(self, seed: int, tracer: Recorder | None = None) -> None:
        self.tracer = tracer
        self.written: dict[tuple[int, int], bytearray] = {}
        """What was written on each connection of each broker."""
        self.brokers = 0
        self.rng = rng = random.Random(seed)
        self.now = START + rng.random()
        large_queues = rng.random() < 0.5
        self.limits = Limits(
            max_packet_bytes=rng.choice([256, 4_096]),
            receive_maximum=rng.choice([2, 5, 100]),
            topic_alias_maximum=rng.choice([0, 2, 10]),
            max_topic_aliases=rng.choice([0, 1, 2, 32]),
            max_inflight=rng.choice([1, 3, 1_000]),
            max_queued_messages=1_000 if large_queues else rng.choice([0, 1, 5, 20]),
            max_queued_bytes=1_000_000 if large_queues else rng.choice([0, 1, 4, 30]) * (MESSAGE_BYTES + 100),
            max_outbox_bytes=rng.choice([1_024, 1_024 + 8 * FRAME_BYTES, 1_000_000]),
            max_outbox_messages=rng.choice([1, 3, 1_000]),
            on_overflow=rng.choice(OVERFLOW_POLICIES),
            min_drain_rate=0,  # the reference knows no publisher that waits
            max_subscriptions=rng.choice([3, 1_000]),
            max_shared_subscriptions=rng.choice([0, 1, 100, 100]),
            max_route_cache_bytes=rng.choice([0, 2_000, 1_000_000]),
            server_keep_alive_s=rng.choice([0, 0, 30]),
            max_session_expiry_s=rng.choice([0xFFFF_FFFF, 0xFFFF_FFFF, 0xFFFF_FFFF, 100]),
            max_inflight_bytes=[1_000_000, 0, 1_000_000, 3 * (MESSAGE_BYTES + INFLIGHT_BYTES)][seed % 4],
        )
        self.trace: list[str] = [f"limits {self.limits}"]
        self.policies = {"*": rng.choice(["round_robin", "least_inflight", "hash_topic"])}
        self.store = MemoryStore()
        self.broker = self._new_broker()
        self.reference = ReferenceBroker(self.limits)
        self.reference.now = self.now
        self.links: dict[int, SimulatedLink] = {}
        self.question_ids: dict[int, int] = {}
        self.clients = [
            SimulatedClient(name, rng, Behaviour.random(rng), rng.choice([None, None, None, 80, 120]))
            for name in ("ann", "bob", "cid", "dot", "eve")[: rng.randint(2, 5)]
        ]
        self.drops: Counter[tuple[str, str]] = Counter()
        """Of each client on the connections that ended, by reason."""
        """Of those whose sessions or brokers are gone."""
        self.own = 0
        self.acked: list[tuple[bytes, ReferenceConnection]] = []
        """Messages acknowledged to their publisher since the last step began."""

    def _new_broker(self) -> Broker:
        self.brokers += 1
        broker = Broker(self.limits, share_policies=self.policies)
        if self.tracer is not None:
            broker.watch(self.tracer)
            broker.count_traffic(5)
        return broker

    # ------------------------------------------------------------------ one step

    def step(self) -> None:
        rng = self.rng
        client = rng.choice(self.clients)
        link = self._link_of(client)
        dice = rng.random()
        if link is None or dice < 0.03:
            self._connect(client, well_behaved=False)
        elif dice < 0.10:
            self._send(link, [client.subscribe5() if link.conn.version == V5 else client.subscribe()])
        elif dice < 0.40:
            messages = [client.message(link.conn.version) for _ in range(rng.choice([1, 1, 2, 5]))]
            self._send(link, [message for message in messages if message is not None])
        elif dice < 0.43 and client.deferred:
            deferred, client.deferred = client.deferred, []
            self._send(link, list(deferred))
        elif dice < 0.43 + client.behaviour.guesses and link.conn.session is not None:
            self._send(link, [client.guess()], alone=True)
        elif dice < 0.55:
            self._feed(link)
        elif dice < 0.75:
            self._read(link, rng.choice([1, 3, 10, 100]))
        elif dice < 0.79:
            self._block(link)
        elif dice < 0.85:
            self._unblock(rng.choice(list(self.links.values())))
        elif dice < 0.88:
            self._lose(link)
        elif dice < 0.895:
            self._send(link, [client.disconnect_packet(link.conn.version)], alone=True)
        elif dice < 0.905:
            link.up_cut = True
            self.log(f"{client.name}: what it sends is lost from now on")
        elif dice < 0.915:
            link.down_cut = True
            self.log(f"{client.name}: what it is sent is lost from now on")
        elif dice < 0.96:
            self._wait(rng.choice([0.0, 0.1, 1.0, 5.0, 40.0]), late=rng.random() < 0.2)
        elif dice < 0.965:
            self._wait(rng.choice([400.0, 5_000.0, 1e6]), late=rng.random() < 0.3)
        elif dice < 0.975:
            self._publish_from_program()
        elif dice < 0.982:
            self._check_retained()
        elif dice < 0.985:
            self._wrap_identifiers(client)
        elif dice < 0.99:
            self._kill(link)
        else:
            for each in self.clients:
                self._connect(each, well_behaved=False)
        self._check()

    def log(self, sentence: str) -> None:
        self.trace.append(sentence)

    # ------------------------------------------------------------------ connecting

    def _link_of(self, client: SimulatedClient) -> SimulatedLink | None:
        """The client's latest connection."""
        mine = [link for link in self.links.values() if link.client is client]
        return mine[-1] if mine else None

    def _open(self, client: SimulatedClient | None, version: int, must_authenticate: bool) -> SimulatedLink:
        connection = self.broker.open(Peer(must_authenticate=must_authenticate), self.now)
        link = SimulatedLink(client, connection, ReferenceConnection(connection.number, version, last_heard=self.now))
        self.links[connection.number] = link
        return link

    def _connect(self, client: SimulatedClient, well_behaved: bool) -> SimulatedLink:
        """A new connection; an old one may be taken over."""
        version, connect_packet = client.connect_packet(well_behaved)
        asked = not well_behaved and self.rng.random() < 0.15
        link = self._open(client, version, asked)
        number = link.connection.number
        self.log(
            f"{client.name} opens connection {number}: {connect_packet}" + (" and must authenticate" if asked else "")
        )
        link.send([connect_packet])
        if well_behaved or self.rng.random() < 0.9:
            while link.up and not link.conn.ended:
                self._feed(link, everything=True)
        return link

    def _decide(self, link: SimulatedLink) -> None:
        """Answer the question that CONNECT raised."""
        conn = link.conn
        accepted = self.rng.random() < 0.9
        self.log(f"connection {conn.number}: the client is {'accepted' if accepted else 'refused'}")
        held, conn.held = conn.held or [], None
        before = self._queue_full()
        if accepted:
            self._accept(link)
            conn.last_heard = self.now
            self._answer_question(link, Verdict(0))
            for packet in held:
                if not conn.ended:
                    self.reference.on_packet(conn, packet)
            real = self.broker.sessions.get(link.connection.client_id)
            if conn.ended and conn.session is not None and real is not None:
                conn.session.received &= set(real.received.all())  # of these some may have been refused before it left
            for packet in held:
                if isinstance(packet, Publish) and packet.qos == 2 and not conn.ended and conn.version == V5:
                    assert conn.session is not None
                    self._notice_refusal(conn.session, packet, before)
        else:
            self._answer_question(link, Verdict(0x86))
            self.reference.close(conn)
        self._settle()

    def _answer_question(self, link: SimulatedLink, verdict: Verdict) -> None:
        """Answer, and let the connection go on with what it sent meanwhile."""
        number = link.conn.number
        self.broker.answer(self.question_ids.pop(number), verdict, self.now)
        self._continue_deferred()

    def _continue_deferred(self) -> None:
        effects = self.broker.effects
        deferred, effects.deferred = effects.deferred, []
        for number in deferred:
            if number in self.broker.connections:
                self.broker.feed(self.broker.connections[number], b"", self.now)

    def _accept(self, link: SimulatedLink) -> None:
        connect = link.conn.connect
        assert connect is not None
        earlier = self.reference.sessions.get(connect.client_id)
        if earlier is not None and earlier.conn is not None:
            self.links[earlier.conn.number].taken_over = True
        link.conn.expected[1, NO_ID] += self.reference.accept(link.conn)

    # ------------------------------------------------------------------ bytes to the broker

    def _send(self, link: SimulatedLink, packets: list[Packet], alone: bool = False) -> None:
        link.send(packets, alone)
        if self.rng.random() < 0.8:
            self._feed(link)

    def _feed(self, link: SimulatedLink, everything: bool = False) -> None:
        self._feed_some(link, everything)
        self._settle()

    def _feed_some(self, link: SimulatedLink, everything: bool = False) -> None:
        """A chunk: some packets, perhaps a half one at its end."""
        rng = self.rng
        conn = link.conn
        if conn.ended or not link.up:
            return
        if conn.held is not None and rng.random() < 0.5:
            self._decide(link)
            if conn.ended:
                return
        chunk = bytearray()
        whole: list[Packet] = []
        while link.up:
            data, packet, ends = link.up[0]
            if not everything and rng.random() < 0.1:  # cut here
                more = rng.randint(1, 3)
                if link.half + more < len(data):
                    chunk += data[link.half : link.half + more]
                    link.half += more
                    break
            chunk += data[link.half :]
            link.half = 0
            link.up.popleft()
            whole.append(packet)
            if ends:
                break
        self.log(f"connection {conn.number} brings {[*whole]}" + (" and a half packet" if link.half else ""))
        before = self._queue_full()
        self.broker.feed(link.connection, bytes(chunk), self.now)
        if whole and conn.held is None:
            conn.last_heard = self.now
        for packet in whole:
            if conn.ended:
                break
            was_connecting = conn.session is None and conn.connect is None
            self.reference.on_packet(conn, packet)
            if was_connecting and conn.connect is not None:
                if link.connection.peer.must_authenticate:
                    conn.held = []
                else:
                    self._accept(link)
            if (
                isinstance(packet, Publish)
                and packet.qos == 2
                and conn.session
                and conn.version == V5
                and not conn.ended
            ):
                self._notice_refusal(conn.session, packet, before)
        self._notice_closed()
        if conn.ended:
            assert link.connection.state == CLOSED, f"connection {conn.number} should be over: {whole[-1:]}"

    def _notice_refusal(self, session: ReferenceSession, packet: Publish, before: int) -> None:
        """A QoS 2 message that found a full queue is acknowledged with 0x97, and its identifier is free."""
        real = self.broker.sessions.get(session.client_id)
        if real is None or real.received.has(packet.packet_id):
            return
        assert self._queue_full() > before, "a QoS 2 identifier was not taken and nothing was dropped"
        session.received.discard(packet.packet_id)

    def _queue_full(self) -> int:
        """Messages ever dropped because a queue was full."""
        dropped = sum(messages for (_, reason), messages in self.drops.items() if reason == QUEUE_FULL)
        for name in self.reference.sessions:
            session = self.broker.sessions.get(name)
            if session is not None:
                dropped += session.drops.get(QUEUE_FULL, 0)
        for number in self.broker.effects.closed:
            dropped += self.links[number].connection.drops.get(QUEUE_FULL, 0)
        return dropped + self.broker.router.drops.by_reason.get(QUEUE_FULL, 0)

    # ------------------------------------------------------------------ what the loop driver does

    def _notice_closed(self) -> None:
        """Tell the reference model at once which connections the broker ended for its own reasons."""
        for number in self.broker.effects.closed:
            link = self.links[number]
            if not link.conn.ended:
                self._check_close_reason(link)
                self.reference.close(link.conn)

    def _check_close_reason(self, link: SimulatedLink) -> None:
        """Check that the broker had a reason to end a connection."""
        reason = link.connection.close_reason
        conn = link.conn
        if reason == CloseReason.KEEP_ALIVE_TIMEOUT:
            assert conn.keep_alive, "no keep-alive was agreed"
            silent = self.now - max(conn.last_heard, conn.accepted_at)
            assert silent >= 1.5 * conn.keep_alive, f"silent for {silent} s of {conn.keep_alive}"
        elif reason == CloseReason.BUFFER_FULL:
            assert self.limits.on_overflow == DISCONNECT or link.connection.outbox.blocked or link.was_blocked
        elif reason == CloseReason.CONNECT_TIMEOUT:
            assert self.now - link.connection.opened_at >= self.limits.connect_timeout_s
            assert conn.session is None
        elif reason == CloseReason.PACKET_TOO_LARGE:
            assert link.client is not None
            assert link.client.max_packet is not None
        elif reason == CloseReason.PROTOCOL_ERROR:
            # What was queued when the broker was killed counts as sent: a guess may have hit it.
            assert link.client is not None
            assert link.client.guessed, link.connection.close_detail
            assert self.reference.epoch, link.connection.close_detail
        elif reason == CloseReason.QUOTA_EXCEEDED:
            assert conn.held is not None, "it was sent no more than it may"
        else:
            raise AssertionError(f"connection {conn.number} was closed: {reason} {link.connection.close_detail}")

    def _settle(self) -> None:
        """Commit, write and close until nothing is left to do."""
        self._notice_closed()
        self._effects()
        while self.broker.effects.backlogged or self.broker.effects.deferred or len(self.broker.jobs):
            self.broker.tick(self.now)
            self._continue_deferred()
            self._notice_closed()
            self._effects()
        for link in list(self.links.values()):
            self._check_answers(link)
        self.acked.clear()

    def _effects(self) -> None:
        effects = self.broker.effects
        assert not effects.overflowed
        if effects.changes:
            self.store.commit(list(effects.changes))
            effects.changes.clear()
        dirty, effects.dirty = effects.dirty, []
        effects.pending_bytes = 0
        effects.work = 0
        for outbox in dirty:
            outbox.awaits_commit = False
            self._write(outbox)
        effects.connected.clear()
        for question in effects.questions:
            assert isinstance(question, Authenticate)
            self.question_ids[question.number] = question.id
        effects.questions.clear()
        closed, effects.closed[:] = list(effects.closed), []
        for number in closed:
            self._finish_link(number)

    def _finish_link(self, number: int) -> None:
        """The link is closed after its last write."""
        link = self.links[number]
        if link.connection.outbox.chunks:
            self._write(link.connection.outbox)
        del self.links[number]
        for reason, messages in link.connection.drops.items():
            self.drops[link.connection.client_id, reason] += messages
        if link.taken_over and link.conn.version == V5:
            assert isinstance(link.last, Disconnect), f"connection {number} was taken over and ended with {link.last}"
            assert link.last.reason_code == 0x8E

    def _write(self, outbox: Outbox) -> None:
        link = self.links[outbox.number]
        data = outbox.take()
        self.written.setdefault((self.brokers, outbox.number), bytearray()).extend(data)
        written = list(link.framer.split(data))
        assert link.framer.kept_bytes == 0, "half a packet was written"
        for first, body in written:
            packet = decode(first, body, link.conn.version)
            self._on_written(link, packet, len(body) + (2 if len(body) < 128 else 3))
            link.last = packet
            if not link.down_cut:
                link.down.append(packet)

    # ------------------------------------------------------------------ what the broker writes

    def _on_written(self, link: SimulatedLink, packet: Packet, size: int) -> None:
        conn = link.conn
        largest = conn.connect.properties.maximum_packet_size if conn.connect is not None else None
        assert largest is None or size <= largest, (
            f"connection {conn.number}: {size} bytes, at most {largest}: {packet}"
        )
        if isinstance(packet, Publish):
            self._on_message(conn, packet, largest)
        elif isinstance(packet, Ack):
            self._on_answer(conn, packet)
        elif isinstance(packet, Connack):
            if packet.reason_code == 0:
                assert packet.session_present == bool(conn.expected[1, NO_ID]), f"connection {conn.number}: {packet}"
                conn.expected[1, NO_ID] = 0
                self._expect_releases(conn)
            else:
                assert conn.ended, packet
        elif isinstance(packet, Suback | Unsuback):
            kind = SUBACK if isinstance(packet, Suback) else UNSUBACK
            assert conn.expected[kind, packet.packet_id], f"connection {conn.number}: {packet}"
            conn.expected[kind, packet.packet_id] -= 1
            codes = conn.subacks[kind, packet.packet_id].pop(0)
            assert packet.reason_codes == codes or not packet.reason_codes, f"{packet}, not {codes!r}"
        elif isinstance(packet, Pingresp):
            conn.expected[PINGRESP, 0] -= 1
        else:
            assert isinstance(packet, Disconnect), packet
            assert conn.version == V5
            assert conn.ended, f"{packet} on a connection that should live"

    def _expect_releases(self, conn: ReferenceConnection) -> None:
        """After CONNACK each released identifier is released again."""
        assert conn.session is not None
        for packet_id in conn.session.released:
            conn.expected[PUBREL, packet_id] += 1

    def _on_answer(self, conn: ReferenceConnection, packet: Ack) -> None:
        key = packet.packet_type, packet.packet_id
        assert conn.expected[key] > 0, f"connection {conn.number}: unexpected {packet}"
        conn.expected[key] -= 1
        if packet.packet_type in (PUBACK, PUBREC):
            payload = conn.acks_of[key].pop(0)
            if payload:
                self.acked.append((payload, conn))
                self.reference.published[payload].codes.add(packet.reason_code)

    def _on_message(self, conn: ReferenceConnection, packet: Publish, largest: int | None) -> None:
        session = conn.session
        where = f"connection {conn.number} got {packet}"
        assert session is not None, where
        topic = self._topic(conn, packet)
        payload = packet.payload
        if packet.qos:
            self._check_window(conn, session, packet, largest)
        if not payload:
            return
        message = self.reference.published[payload]
        assert topic == message.topic or message.times > 1, where  # an alias of before stood for another the first time
        conn.written[payload] += 1
        shared = topic.startswith(SHARED_TOPIC)
        identifiers = tuple(sorted(packet.properties.subscription_identifiers))
        if message.retain:
            ways = session.owed.get(payload, set())
            found = session.found.get(payload, set())
            assert packet.qos in {qos for qos, _ in ways} | found, f"{where}, owed {ways} or {found}"
        elif not (shared and (session.groups or packet.qos < 2)):
            assert conn.written[payload] <= message.times, f"{where}, once too often"
            ways = session.owed.get(payload, set())
            assert any(packet.qos == qos for qos, _ in ways), f"{where}, owed {ways}"
            assert conn.version != V5 or (packet.qos, identifiers) in ways, f"{where}, owed {ways}"
            self._check_order(conn, packet, topic)
        if packet.qos:
            session.seen.add(payload)
            if message.expires_at and not packet.dup:
                assert message.expires_at > self.now, f"{where}, which expired {self.now - message.expires_at} s ago"
        if conn.version == V5:
            left = packet.properties.message_expiry_interval
            assert (left is None) == (message.expires_at == 0.0) or message.times > 1, where
            if left is not None and packet.qos and message.times == 1:
                assert abs(max(1, message.expires_at - self.now) - left) <= 1, (
                    f"{where}, {message.expires_at - self.now} s left"
                )

    def _topic(self, conn: ReferenceConnection, packet: Publish) -> bytes:
        """The topic's name, looked up if only its alias came."""
        alias = packet.properties.topic_alias
        if alias is None:
            assert packet.topic
            return packet.topic
        assert conn.connect is not None
        maximum = conn.connect.properties.topic_alias_maximum or 0
        assert 0 < alias <= min(maximum, self.limits.max_topic_aliases), f"connection {conn.number}: alias {alias}"
        if packet.topic:
            conn.aliases[-alias] = packet.topic
        assert -alias in conn.aliases, f"connection {conn.number}: alias {alias} was never introduced"
        return conn.aliases[-alias]

    def _check_window(
        self, conn: ReferenceConnection, session: ReferenceSession, packet: Publish, largest: int | None
    ) -> None:
        packet_id = packet.packet_id
        where = f"connection {conn.number} got {packet}"
        assert packet_id not in conn.unacked, f"{where}, whose identifier is in use"
        assert packet_id not in session.released, f"{where}, whose identifier is not released yet"
        before = session.sent_before.pop(packet_id, None)
        if before is not None and before != packet.payload:
            assert largest is not None, f"{where}, whose identifier is that of {before!r}"
            before = None
        message = self.reference.published.get(packet.payload)
        if before is not None:
            assert packet.dup, f"{where} again, without DUP"
        elif message is not None and message.epoch == self.reference.epoch and largest is None:
            assert not packet.dup, f"{where} for the first time, with DUP"
        conn.unacked[packet_id] = packet.payload, packet.qos
        if conn.ended:  # written when it ended
            session.sent_before[packet_id] = packet.payload
        under_way = len(conn.unacked) + len(session.released)
        assert under_way <= conn.window, f"{where}, the {under_way}th of {conn.window}"

    def _check_order(self, conn: ReferenceConnection, packet: Publish, topic: bytes) -> None:
        """On one connection each publisher's messages of a topic and QoS come in its order."""
        message = self.reference.published[packet.payload]
        if message.times > 1 or topic.startswith(SHARED_TOPIC):
            return
        key = message.publisher, topic, message.qos * 3 + packet.qos
        assert conn.order.get(key, 0) < message.number, f"connection {conn.number} got {packet} too late"
        conn.order[key] = message.number

    def _check_answers(self, link: SimulatedLink) -> None:
        """What can be answered at once was."""
        conn = link.conn
        due, conn.due = conn.due, []
        if conn.ended or link.connection.state != CONNECTED:
            return
        if link.connection.outbox.blocked or link.was_blocked:
            link.was_blocked = link.connection.outbox.blocked
            return
        assert not any(conn.expected.values()), f"connection {conn.number} waits for {+conn.expected}"
        largest = conn.connect.properties.maximum_packet_size if conn.connect is not None else None
        for payload in due if largest is None else []:
            assert conn.written[payload], f"connection {conn.number} did not get {payload!r} of QoS 0"

    # ------------------------------------------------------------------ what clients do

    def _read(self, link: SimulatedLink, packets: int) -> None:
        client = link.client
        assert client is not None
        if link.down:
            self.log(f"{client.name} reads {min(packets, len(link.down))} packets on connection {link.conn.number}")
        for _ in range(packets):
            if not link.down:
                break
            packet = link.down.popleft()
            session = link.conn.session
            answers = client.on_packet(packet, link.conn.version, session.generation if session is not None else 0)
            if isinstance(packet, Publish):
                self.reference.delivered[packet.payload] += 1
            link.send(answers)
        if self._link_of(client) is not link:
            client.deferred.clear()  # they are for this connection, which is an earlier one
        if link.up and self.rng.random() < 0.7:
            self._feed(link)

    def _block(self, link: SimulatedLink) -> None:
        self.log(f"connection {link.conn.number} is blocked")
        link.was_blocked = True
        self.broker.block(link.connection, self.now, 10 * len(link.down))

    def _unblock(self, link: SimulatedLink) -> None:
        if link.connection.outbox.blocked:
            self.log(f"connection {link.conn.number} takes bytes again")
            self.broker.unblock(link.connection, self.now)
            self._settle()

    def _lose(self, link: SimulatedLink) -> None:
        self.log(f"connection {link.conn.number} breaks")
        if link.client is not None and self.rng.random() < 0.5:
            self._read(link, 100)
        self.broker.close(link.connection, self.now)
        self.reference.close(link.conn)
        self._settle()

    def _wait(self, seconds: float, late: bool = False) -> None:
        """Time passes; the broker's timer fires at its times, or only at the end."""
        self.log(f"{seconds} s pass" + (", and the timer is late" if late else ""))
        end = self.now + seconds
        while not late:
            due = self.broker.due_at()
            if due is None or due > end:
                break
            self._tick(max(self.now, due))
        self._tick(end)

    def _tick(self, now: float) -> None:
        self.now = now
        self.reference.pass_time(now)
        due = self.broker.tick(now)
        assert due is None or due > now or self.broker.effects.backlogged or len(self.broker.jobs), (
            f"due at {due}, and it is {now}"
        )
        self._settle()
        for link in self.links.values():
            conn = link.conn
            if link.connection.state == CONNECTED and conn.keep_alive:
                silent = now - max(conn.last_heard, conn.accepted_at)
                assert silent < 1.5 * conn.keep_alive, f"connection {conn.number}: silent for {silent} s and not closed"

    def _publish_from_program(self) -> None:
        """The program that embeds the broker publishes."""
        rng = self.rng
        self.own += 1
        payload, topic, qos = f"inside:{self.own}:".encode(), rng.choice(TOPICS), rng.randint(0, 2)
        self.log(f"{payload!r} is published by the program, QoS {qos} to {topic!r}")
        self.reference.publish(topic, payload, qos, False, 0.0, "inside", 0)
        before = self._queue_full()
        code = self.broker.publish(topic, payload, qos, False, self.now).tally.code
        if code == 0x97:
            assert self._queue_full() > before
        else:
            assert self._queue_full() == before or self.limits.on_overflow == DROP_OLDEST
        self._notice_closed()
        self._settle()

    def _wrap_identifiers(self, client: SimulatedClient) -> None:
        """Packet identifiers wrap around after 65 535 messages: those in use are skipped."""
        session = self.broker.sessions.get(client.name)
        if session is not None:
            next_id = self.rng.choice([1, 1, 65_534])
            session.window.continue_at(next_id)
            self.log(f"the identifiers for {client.name} go on at {next_id}")

    def _check_retained(self) -> None:
        """A new client subscribes and gets all retained messages, and nothing else."""
        link = self._open(None, V5, False)
        asked = (SubscriptionRequest(b"r/#", 2),)
        connect_packet = Connect(f"inspector{link.conn.number}", V5, True)
        link.send([connect_packet])
        self._feed(link, everything=True)
        link.send([Subscribe(1, asked)])
        self._feed(link, everything=True)
        expected = {
            payload
            for topic, (payload, expires_at) in self.reference.retained.items()
            if matches(b"r/#", topic) and not 0.0 < expires_at <= self.now
        }
        found = {packet.payload for packet in link.down if isinstance(packet, Publish)}
        self.log(f"a new subscriber finds {sorted(found)} retained")
        if self.limits.max_inflight > 2 and self.limits.max_inflight_bytes >= 1_000_000:
            assert found == expected, f"retained: {found}, and it should be {expected}"
        self._lose(link)

    # ------------------------------------------------------------------ a kill

    def _kill(self, link: SimulatedLink) -> None:
        """The broker is killed: between two loop iterations, or before or after the commit of one."""
        rng = self.rng
        if rng.random() < 0.5:
            self._commit_last(rng.choice(list(self.links.values())))
        before = self.reference.copy()
        if rng.random() < 0.7:
            self.acked.clear()
            dropped = self._queue_full()
            others = list(self.links.values())
            for each in [link, *rng.sample(others, min(len(others), 2))]:
                self._feed_uncommitted(each)
            if self._queue_full() == dropped:
                self._check_acknowledged_is_committed(before)
        self.log("the broker is killed")
        for each in list(self.links.values()):
            if each.client is not None and rng.random() < 0.5:
                for packet in each.down:
                    session = each.conn.session
                    each.client.on_packet(packet, each.conn.version, session.generation if session is not None else 0)
                    if isinstance(packet, Publish):
                        self.reference.delivered[packet.payload] += 1
        for name in list(self.reference.sessions):
            real = self.broker.sessions.get(name)
            if real is not None:
                for reason, messages in real.drops.items():
                    self.drops[name, reason] += messages
        for each in self.links.values():
            for reason, messages in each.connection.drops.items():
                self.drops[each.connection.client_id, reason] += messages
            for reason, messages in each.connection.outbox.drops.items():
                self.drops[each.connection.client_id, reason] += messages
        self.links = {}
        self.reference = before
        self.broker = self._new_broker()
        self.broker.restore(self.store.load(), self.now)
        self._check()

    def _commit_last(self, link: SimulatedLink) -> None:
        """A QoS 2 message is committed at the end of an iteration that has no budget left. Nothing is written."""
        session = link.conn.session
        if session is None or not session.durable or link.conn.ended or link.half or link.client is None:
            return
        if not link.up:
            message = link.client.message(link.conn.version)
            link.send([message] if message is not None else [])
        if link.up and isinstance(link.up[0][1], Publish) and link.up[0][1].qos == 2:
            self.broker.effects.work = ITERATION_WORK - 1
            self._feed_some(link)
            self.store.commit(list(self.broker.effects.changes))
            self.broker.effects.changes.clear()
            self.broker.effects.work = 0

    def _feed_uncommitted(self, link: SimulatedLink) -> None:
        """A chunk whose changes will not be committed; what need not wait for that is written."""
        if not link.up or link.conn.ended or link.conn.held is not None:
            return
        self._feed_some(link)
        effects = self.broker.effects
        dirty, effects.dirty = effects.dirty, []
        for outbox in dirty:
            if not (outbox.awaits_commit and effects.changes):
                self._write(outbox)
            else:
                effects.dirty.append(outbox)
        for number in effects.closed:
            if not self.links[number].connection.outbox.dirty:
                self.log(f"connection {number} is closed")

    def _check_acknowledged_is_committed(self, before: ReferenceBroker) -> None:
        """A message that is acknowledged without a commit would be lost."""
        for payload, _line in self.acked:
            for name, session in self.reference.sessions.items():
                kept = before.sessions.get(name)
                if session.durable and kept is not None and kept.generation == session.generation:
                    owed = {qos for qos, _ in session.owed.get(payload, ())} - {0}
                    assert (
                        not owed or payload in kept.owed or (session.conn is not None and payload in session.settled)
                    ), f"{payload!r} was acknowledged before it was committed for {name}"
            message = self.reference.published[payload]
            if message.retain and self.reference.retained.get(message.topic, (b"", 0.0))[0] == payload:
                assert before.retained.get(message.topic, (b"", 0.0))[0] == payload, (
                    f"{payload!r} was acknowledged before it was retained"
                )

    # ------------------------------------------------------------------ always

    def _check(self) -> None:
        broker, limits = self.broker, self.limits
        names = set(self.reference.sessions)
        real = set(broker.sessions._by_client_id)
        assert real == names, f"sessions: {real}, and there should be {names}"
        assert broker.connections.keys() == self.links.keys()
        for name, session in self.reference.sessions.items():
            own = broker.sessions.get(name)
            assert own is not None
            assert set(own.received.all()) == session.received, f"{name}: {own.received.all()}, {session.received}"
            assert set(own.window.released.all()) == session.released
            assert own.subscriptions.keys() == session.subscriptions.keys()
            assert (own.outbox is None) == (session.conn is None)
            assert (
                len(own.queue.deliveries) + len(own.window.resend) <= limits.max_queued_messages + limits.max_inflight
            )
            again = sum(INFLIGHT_BYTES + each.message().memory_bytes for each in own.window.resend.values())
            waiting = sum(ENTRY_BYTES + delivery.message.memory_bytes for delivery in own.queue.deliveries)
            assert own.queued_bytes == again + waiting
            assert own.durable == session.durable
        for link in self.links.values():
            outbox = link.connection.outbox
            assert outbox._backlog_messages <= limits.max_outbox_messages
            if outbox.blocked:
                answers = sum(len(chunk) + CHUNK_BYTES for chunk in outbox.chunks)
                assert outbox.waiting_bytes == outbox.backlog_bytes + answers
                assert outbox.waiting_bytes <= limits.max_outbox_bytes
            else:
                assert not outbox.chunks

    # ------------------------------------------------------------------ the end

    def finish(self) -> None:
        """All clients reconnect, behave well, and read until nothing is left to send."""
        self.log("all clients reconnect and behave well")
        for link in list(self.links.values()):
            if link.connection.number in self.broker.connections:
                self._lose(link)
        for client in self.clients:
            client.behaviour = WELL_BEHAVED
        for again in range(20):  # the second time nothing is left of what they had begun
            for client in self.clients:
                if again > 1:  # its own messages were too large for it
                    client.unfinished = {}
                if again < 2 or self._link_of(client) is None:
                    self._connect(client, well_behaved=True)
            self._drain()
        self._check()
        self._check_retained()
        self._check_all_read()
        self._end_all()

    def _drain(self) -> None:
        for _ in range(1_000):
            busy = False
            for link in list(self.links.values()):
                while link.up and not link.conn.ended:
                    busy = True
                    self._feed(link, everything=True)
                if link.down:
                    busy = True
                    self._read(link, 1_000)
            if not busy:
                return
        raise AssertionError("the clients and the broker exchange packets without end")

    def _check_all_read(self) -> None:
        """Every message owed at QoS 1 or 2 was read, or there is a reason why not."""
        for client in self.clients:
            session = self.reference.sessions.get(client.name)
            own = self.broker.sessions.get(client.name)
            if session is None or own is None:
                continue
            assert (len(own.inflight), len(own.window.released), own.queued) == (0, 0, 0), (
                f"{client.name} was not drained"
            )
            assert client.unfinished == {}, f"{client.name} waits for {client.unfinished}"
            # A client that sent PUBCOMP too early may never have read the PUBREL that it was for.
            assert client.unreleased == {} or client.guessed, f"{client.name} still holds {client.unreleased}"
            self._check_session_read(client, session, dict(own.drops))

    def _check_session_read(self, client: SimulatedClient, session: ReferenceSession, drops: dict[str, int]) -> None:
        read = client.read.get(session.generation, Counter())
        full = drops.get(QUEUE_FULL, 0) + self.drops[client.name, QUEUE_FULL]
        missing: list[bytes] = []
        for payload, ways in session.owed.items():
            message = self.reference.published[payload]
            best = max(qos for qos, _ in ways)
            if not message.retain and not message.topic.startswith(SHARED_TOPIC) and best == 2:
                assert read[payload] <= message.times, f"{client.name} read {payload!r} {read[payload]} times"
            if best == 0 or read[payload] or payload in session.settled or message.retain:
                continue
            if min(qos for qos, _ in ways) == 0:
                continue
            if client.max_packet is not None and len(payload) + 40 > client.max_packet:
                continue
            if 0.0 < message.expired_at <= self.now and payload not in session.seen:
                continue
            if message.epoch < self.reference.epoch and client.guessed:
                continue  # what was queued when the broker was killed counts as sent: a guess may have hit it
            if message.epoch < self.reference.epoch and 0x97 in message.codes:
                continue  # the broker that counted the drop may have been killed when the session ended
            missing.append(payload)
            assert payload not in session.seen, f"{client.name} never read {payload!r}, which was in flight"
        assert len(missing) <= full, f"{client.name} lacks {missing}; {full} were dropped"
        if self.limits.on_overflow == DROP_OLDEST:
            return
        for payload in missing:
            message = self.reference.published[payload]
            if message.version == V5 and message.codes and message.times == 1 and message.epoch == self.reference.epoch:
                assert 0x97 in message.codes, f"{client.name} lacks {payload!r}, and its publisher got {message.codes}"

    def _end_all(self) -> None:
        """All clients end their sessions: no state is left."""
        for link in list(self.links.values()):
            self._lose(link)
        for client in self.clients:
            link = self._open(client, V5, False)
            link.send([Connect(client.name, V5, True)])
            self._feed(link, everything=True)
            link.send([Disconnect()])
            self._feed(link, everything=True)
        self._wait(10_000.0)
        for topic in list(self.reference.retained):
            self.broker.publish(topic, b"", 1, True, self.now)
        self._settle()
        assert loaded(self.store) == []
        end_everything(self.broker, self.now)
        self._settle()
        assert_nothing_is_held(self.broker.effects.memory)
        self._check_is_empty(self.broker)

    def _check_is_empty(self, broker: Broker) -> None:
        assert not broker.connections
        assert not broker._online
        assert len(broker.sessions) == 0
        tree = broker._routes._tree
        assert (tree._exact, tree._several, tree._wild) == ({}, {}, 0)
        root = tree._root
        assert (root.child, root.children, root.plus, root.here, root.below) == (None,) * 5
        assert not broker._routes._shares
        assert not broker._routes._groups
        assert len(broker.deadlines) <= SLACK
        assert not any(not deadline.cancelled for _, _, deadline in broker.deadlines._heap)
        assert broker.router.retained.size_bytes == 0


def run_world(seed: int, steps: int = 200, tracer: Recorder | None = None) -> dict[tuple[int, int], bytearray]:
    """Run the world of that seed to its end: what was written, by broker and connection.

    Raises `AssertionError` with the seed and the trace.
    """
    world = World(seed, tracer)
    try:
        for number in range(steps):
            world.log(f"— {number} at {world.now - START:.1f}")
            world.step()
        world.finish()
    except Exception as error:
        trace = "\n".join(world.trace[:1] + world.trace[-TRACE_STEPS:])
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}\n{trace}") from error
    return world.written
