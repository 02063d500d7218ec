"""Rude people, a network that cuts, a clock that jumps, and a broker that is killed: all out of one seed.

Every step is checked against the `ReferenceBroker`. When the steps are over there is peace: everybody comes back, is
polite and
reads to the end; then the books are closed. A world that fails says its seed and its story.
"""

import random
from collections import Counter, deque

from mqttlite.core.authentication import Verdict
from mqttlite.core.broker import Broker
from mqttlite.core.changes import SaveRetained
from mqttlite.core.connection import CLOSED, CONNECTED, Connection, Peer
from mqttlite.core.deadlines import SLACK
from mqttlite.core.limits import DISCONNECT, DROP_OLDEST, OVERFLOW_POLICIES, Limits
from mqttlite.core.outbox import Outbox
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
from tests.simulation.client import POLITE, TOPICS, Habits, SimulatedClient
from tests.simulation.reference import (
    PINGRESP,
    SHARED_TOPIC,
    SUBACK,
    UNSUBACK,
    Line,
    ReferenceBroker,
    ReferenceSession,
    matches,
)
from tests.support.recorder import Recorder

START = 1_000_000.0
STORY = 40
"""How many of the last steps a failure tells."""

NO_ID = 0


class Call:
    """A person on the line: the bytes under way in both directions."""

    def __init__(self, client: SimulatedClient | None, connection: Connection, line: Line) -> None:
        self.client = client
        self.connection = connection
        self.line = line
        self.up: deque[tuple[bytes, Packet, bool]] = deque()
        """Packets that the broker has not wholly seen; the flag: it ends its chunk."""
        self.half = 0
        """How much of the first of them it has."""
        self.down: deque[Packet] = deque()
        self.up_cut = False
        self.down_cut = False
        self.last: Packet | None = None
        self.framer = Framer(MAX_REMAINING_LENGTH + 5)
        self.was_blocked = False
        self.taken_over = False

    def say(self, packets: list[Packet], alone: bool = False) -> None:
        if not self.up_cut:
            for packet in packets:
                ends = alone or (isinstance(packet, Publish) and packet.qos == 2) or isinstance(packet, Connect)
                if alone and self.up:
                    data, before, _ = self.up.pop()
                    self.up.append((data, before, True))
                self.up.append((encode(packet, self.line.version), packet, ends))


class World:
    def __init__(self, seed: int, tracer: Recorder | None = None) -> None:
        self.tracer = tracer
        self.written: dict[tuple[int, int], bytearray] = {}
        """What was written on each line of each broker."""
        self.brokers = 0
        self.rng = rng = random.Random(seed)
        self.now = START + rng.random()
        roomy = rng.random() < 0.5
        self.limits = Limits(
            max_packet_bytes=rng.choice([256, 4_096]),
            receive_maximum=rng.choice([2, 5, 100]),
            topic_alias_maximum=rng.choice([0, 2, 10]),
            max_topic_aliases=rng.choice([0, 1, 2, 32]),
            max_inflight=rng.choice([1, 3, 1_000]),
            max_queued_messages=1_000 if roomy else rng.choice([0, 1, 5, 20]),
            max_queued_bytes=1_000_000 if roomy else rng.choice([0, 100, 1_000, 10_000]),
            max_outbox_bytes=rng.choice([1_024, 2_000, 1_000_000]),
            max_outbox_messages=rng.choice([1, 3, 1_000]),
            on_overflow=rng.choice(OVERFLOW_POLICIES),
            max_subscriptions=rng.choice([3, 1_000]),
            max_shared_subscriptions=rng.choice([0, 1, 100, 100]),
            max_route_cache_bytes=rng.choice([0, 2_000, 1_000_000]),
            server_keep_alive_s=rng.choice([0, 0, 30]),
            max_session_expiry_s=rng.choice([0xFFFF_FFFF, 0xFFFF_FFFF, 0xFFFF_FFFF, 100]),
        )
        self.scenario: list[str] = [f"limits {self.limits}"]
        self.policies = {"*": rng.choice(["round_robin", "least_inflight", "hash_topic"])}
        self.store = MemoryStore()
        self.broker = self._new_broker()
        self.reference = ReferenceBroker(self.limits)
        self.reference.now = self.now
        self.calls: dict[int, Call] = {}
        self.question_ids: dict[int, int] = {}
        self.clients = [
            SimulatedClient(name, rng, Habits.random(rng), rng.choice([None, None, None, 80, 120]))
            for name in ("ann", "bob", "cid", "dot", "eve")[: rng.randint(2, 5)]
        ]
        self.drops: Counter[tuple[str, str]] = Counter()
        """Of each client on the connections that ended, by reason."""
        """Of those whose sessions or brokers are gone."""
        self.own = 0
        self.acked: list[tuple[bytes, Line]] = []
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
        call = self._call_of(client)
        dice = rng.random()
        if call is None or dice < 0.03:
            self._connect(client, polite=False)
        elif dice < 0.10:
            self._say(call, [client.subscribe5() if call.line.version == V5 else client.subscribe()])
        elif dice < 0.40:
            messages = [client.message(call.line.version) for _ in range(rng.choice([1, 1, 2, 5]))]
            self._say(call, [message for message in messages if message is not None])
        elif dice < 0.43 and client.deferred:
            deferred, client.deferred = client.deferred, []
            self._say(call, list(deferred))
        elif dice < 0.43 + client.habits.guesses and call.line.session is not None:
            self._say(call, [client.guess()], alone=True)
        elif dice < 0.55:
            self._feed(call)
        elif dice < 0.75:
            self._read(call, rng.choice([1, 3, 10, 100]))
        elif dice < 0.79:
            self._raw_properties(call)
        elif dice < 0.85:
            self._unblock(rng.choice(list(self.calls.values())))
        elif dice < 0.88:
            self._lose(call)
        elif dice < 0.895:
            self._say(call, [client.goodbye(call.line.version)], alone=True)
        elif dice < 0.905:
            call.up_cut = True
            self.tell(f"{client.name}: what it says is lost from now on")
        elif dice < 0.915:
            call.down_cut = True
            self.tell(f"{client.name}: what it is told is lost from now on")
        elif dice < 0.96:
            self._wait(rng.choice([0.0, 0.1, 1.0, 5.0, 40.0]), late=rng.random() < 0.2)
        elif dice < 0.965:
            self._wait(rng.choice([400.0, 5_000.0, 1e6]), late=rng.random() < 0.3)
        elif dice < 0.975:
            self._publish_inside()
        elif dice < 0.982:
            self._inspect()
        elif dice < 0.985:
            self._go_round(client)
        elif dice < 0.99:
            self._kill(call)
        else:
            for each in self.clients:
                self._connect(each, polite=False)
        self._check()

    def tell(self, sentence: str) -> None:
        self.scenario.append(sentence)

    # ------------------------------------------------------------------ connecting

    def _call_of(self, client: SimulatedClient) -> Call | None:
        """The person's latest connection."""
        mine = [call for call in self.calls.values() if call.client is client]
        return mine[-1] if mine else None

    def _open(self, client: SimulatedClient | None, version: int, must_authenticate: bool) -> Call:
        connection = self.broker.open(Peer(must_authenticate=must_authenticate), self.now)
        call = Call(client, connection, Line(connection.number, version, last_heard=self.now))
        self.calls[connection.number] = call
        return call

    def _connect(self, client: SimulatedClient, polite: bool) -> Call:
        """A new connection, whatever becomes of the old one: that may be taken over."""
        version, hello = client.hello(polite)
        asked = not polite and self.rng.random() < 0.15
        call = self._open(client, version, asked)
        number = call.connection.number
        self.tell(f"{client.name} calls on line {number}: {hello}" + (" and must authenticate" if asked else ""))
        call.say([hello])
        if polite or self.rng.random() < 0.9:
            while call.up and not call.line.over:
                self._feed(call, everything=True)
        return call

    def _decide(self, call: Call) -> None:
        """The question that CONNECT raised has its answer."""
        line = call.line
        accepted = self.rng.random() < 0.9
        self.tell(f"line {line.number}: the client is {'let in' if accepted else 'refused'}")
        held, line.held = line.held or [], None
        before = self._queue_full()
        if accepted:
            self._accept(call)
            line.last_heard = self.now
            self._answer_question(call, Verdict(0))
            for packet in held:
                if not line.over:
                    self.reference.on_packet(line, packet)
            real = self.broker.sessions.get(call.connection.client_id)
            if line.over and line.session is not None and real is not None:
                line.session.received &= set(real.received.all())  # of these some may have been refused before it left
            for packet in held:
                if isinstance(packet, Publish) and packet.qos == 2 and not line.over and line.version == V5:
                    assert line.session is not None
                    self._notice_refusal(line.session, packet, before)
        else:
            self._answer_question(call, Verdict(0x86))
            self.reference.close(line)
        self._settle()

    def _answer_question(self, call: Call, verdict: Verdict) -> None:
        """Answer, and let the connection go on with what it sent meanwhile."""
        number = call.line.number
        self.broker.answer(self.question_ids.pop(number), verdict, self.now)
        self._continue_deferred()

    def _continue_deferred(self) -> None:
        effects = self.broker.effects
        deferred, effects.deferred = effects.deferred, []
        for number in deferred:
            if number in self.broker.connections:
                self.broker.feed(self.broker.connections[number], b"", self.now)

    def _accept(self, call: Call) -> None:
        connect = call.line.connect
        assert connect is not None
        former = self.reference.sessions.get(connect.client_id)
        if former is not None and former.line is not None:
            self.calls[former.line.number].taken_over = True
        call.line.expected[1, NO_ID] += self.reference.accept(call.line)

    # ------------------------------------------------------------------ bytes to the broker

    def _say(self, call: Call, packets: list[Packet], alone: bool = False) -> None:
        call.say(packets, alone)
        if self.rng.random() < 0.8:
            self._feed(call)

    def _feed(self, call: Call, everything: bool = False) -> None:
        self._feed_some(call, everything)
        self._settle()

    def _feed_some(self, call: Call, everything: bool = False) -> None:
        """A chunk: some packets, perhaps a half one at its end."""
        rng = self.rng
        line = call.line
        if line.over or not call.up:
            return
        if line.held is not None and rng.random() < 0.5:
            self._decide(call)
            if line.over:
                return
        chunk = bytearray()
        whole: list[Packet] = []
        while call.up:
            data, packet, ends = call.up[0]
            if not everything and rng.random() < 0.1:  # cut here
                more = rng.randint(1, 3)
                if call.half + more < len(data):
                    chunk += data[call.half : call.half + more]
                    call.half += more
                    break
            chunk += data[call.half :]
            call.half = 0
            call.up.popleft()
            whole.append(packet)
            if ends:
                break
        self.tell(f"line {line.number} brings {[*whole]}" + (" and a half packet" if call.half else ""))
        before = self._queue_full()
        self.broker.feed(call.connection, bytes(chunk), self.now)
        if whole and line.held is None:
            line.last_heard = self.now
        for packet in whole:
            if line.over:
                break
            was_connecting = line.session is None and line.connect is None
            self.reference.on_packet(line, packet)
            if was_connecting and line.connect is not None:
                if call.connection.peer.must_authenticate:
                    line.held = []
                else:
                    self._accept(call)
            if (
                isinstance(packet, Publish)
                and packet.qos == 2
                and line.session
                and line.version == V5
                and not line.over
            ):
                self._notice_refusal(line.session, packet, before)
        self._notice_closed()
        if line.over:
            assert call.connection.state == CLOSED, f"line {line.number} should be over: {whole[-1:]}"

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
            dropped += self.calls[number].connection.drops.get(QUEUE_FULL, 0)
        return dropped + self.broker.router.drops.by_reason.get(QUEUE_FULL, 0)

    # ------------------------------------------------------------------ what the shell does

    def _notice_closed(self) -> None:
        """The book hears at once of connections that the broker ended for reasons of its own."""
        for number in self.broker.effects.closed:
            call = self.calls[number]
            if not call.line.over:
                self._judge(call)
                self.reference.close(call.line)

    def _judge(self, call: Call) -> None:
        """Was that a reason to end a connection?"""
        reason = call.connection.close_reason
        line = call.line
        if reason == CloseReason.KEEP_ALIVE_TIMEOUT:
            assert line.keep_alive, "no keep-alive was agreed"
            silent = self.now - max(line.last_heard, line.accepted_at)
            assert silent >= 1.5 * line.keep_alive, f"silent for {silent} s of {line.keep_alive}"
        elif reason == CloseReason.BUFFER_FULL:
            assert self.limits.on_overflow == DISCONNECT or call.connection.outbox.blocked or call.was_blocked
        elif reason == CloseReason.CONNECT_TIMEOUT:
            assert self.now - call.connection.opened_at >= self.limits.connect_timeout_s
            assert line.session is None
        elif reason == CloseReason.PACKET_TOO_LARGE:
            assert call.client is not None
            assert call.client.max_packet is not None
        elif reason == CloseReason.PROTOCOL_ERROR:
            # What was queued when the broker was killed counts as sent: a guess may have hit it.
            assert call.client is not None
            assert call.client.guessed, call.connection.close_detail
            assert self.reference.epoch, call.connection.close_detail
        elif reason == CloseReason.QUOTA_EXCEEDED:
            assert line.held is not None, "it was sent no more than it may"
        else:
            raise AssertionError(f"line {line.number} was closed: {reason} {call.connection.close_detail}")

    def _settle(self) -> None:
        """Commit, write, close; as often as there is something to do."""
        self._notice_closed()
        self._effects()
        while self.broker.effects.backlogged or self.broker.effects.deferred or len(self.broker.jobs):
            self.broker.tick(self.now)
            self._continue_deferred()
            self._notice_closed()
            self._effects()
        for call in list(self.calls.values()):
            self._check_answers(call)
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
            self._finish(number)

    def _finish(self, number: int) -> None:
        """The link is closed after its last write."""
        call = self.calls[number]
        if call.connection.outbox.chunks:
            self._write(call.connection.outbox)
        del self.calls[number]
        for reason, messages in call.connection.drops.items():
            self.drops[call.connection.client_id, reason] += messages
        if call.taken_over and call.line.version == V5:
            assert isinstance(call.last, Disconnect), f"line {number} was taken over and ended with {call.last}"
            assert call.last.reason_code == 0x8E

    def _write(self, outbox: Outbox) -> None:
        call = self.calls[outbox.number]
        data = outbox.take()
        self.written.setdefault((self.brokers, outbox.number), bytearray()).extend(data)
        written = list(call.framer.split(data))
        assert call.framer.kept_bytes == 0, "half a packet was written"
        for first, body in written:
            packet = decode(first, body, call.line.version)
            self._on_written(call, packet, len(body) + (2 if len(body) < 128 else 3))
            call.last = packet
            if not call.down_cut:
                call.down.append(packet)

    # ------------------------------------------------------------------ what the broker writes

    def _on_written(self, call: Call, packet: Packet, size: int) -> None:
        line = call.line
        largest = line.connect.properties.maximum_packet_size if line.connect is not None else None
        assert largest is None or size <= largest, f"line {line.number}: {size} bytes, at most {largest}: {packet}"
        if isinstance(packet, Publish):
            self._on_message(line, packet, largest)
        elif isinstance(packet, Ack):
            self._on_answer(line, packet)
        elif isinstance(packet, Connack):
            if packet.reason_code == 0:
                assert packet.session_present == bool(line.expected[1, NO_ID]), f"line {line.number}: {packet}"
                line.expected[1, NO_ID] = 0
                self._expect_releases(line)
            else:
                assert line.over, packet
        elif isinstance(packet, Suback | Unsuback):
            kind = SUBACK if isinstance(packet, Suback) else UNSUBACK
            assert line.expected[kind, packet.packet_id], f"line {line.number}: {packet}"
            line.expected[kind, packet.packet_id] -= 1
            codes = line.subacks[kind, packet.packet_id].pop(0)
            assert packet.reason_codes == codes or not packet.reason_codes, f"{packet}, not {codes!r}"
        elif isinstance(packet, Pingresp):
            line.expected[PINGRESP, 0] -= 1
        else:
            assert isinstance(packet, Disconnect), packet
            assert line.version == V5
            assert line.over, f"{packet} on a connection that should live"

    def _expect_releases(self, line: Line) -> None:
        """After CONNACK each released identifier is released again."""
        assert line.session is not None
        for packet_id in line.session.released:
            line.expected[PUBREL, packet_id] += 1

    def _on_answer(self, line: Line, packet: Ack) -> None:
        key = packet.packet_type, packet.packet_id
        assert line.expected[key] > 0, f"line {line.number}: nobody asked for {packet}"
        line.expected[key] -= 1
        if packet.packet_type in (PUBACK, PUBREC):
            payload = line.acks_of[key].pop(0)
            if payload:
                self.acked.append((payload, line))
                self.reference.told[payload].codes.add(packet.reason_code)

    def _on_message(self, line: Line, packet: Publish, largest: int | None) -> None:
        session = line.session
        where = f"line {line.number} got {packet}"
        assert session is not None, where
        topic = self._topic(line, packet)
        payload = packet.payload
        if packet.qos:
            self._check_window(line, session, packet, largest)
        if not payload:
            return
        told = self.reference.told[payload]
        assert topic == told.topic or told.times > 1, where  # an alias of before stood for another the first time
        line.written[payload] += 1
        shared = topic.startswith(SHARED_TOPIC)
        identifiers = tuple(sorted(packet.properties.subscription_identifiers))
        if told.retain:
            ways = session.owed.get(payload, set())
            found = session.found.get(payload, set())
            assert packet.qos in {qos for qos, _ in ways} | found, f"{where}, owed {ways} or {found}"
        elif not (shared and (session.groups or packet.qos < 2)):
            assert line.written[payload] <= told.times, f"{where}, once too often"
            ways = session.owed.get(payload, set())
            assert any(packet.qos == qos for qos, _ in ways), f"{where}, owed {ways}"
            assert line.version != V5 or (packet.qos, identifiers) in ways, f"{where}, owed {ways}"
            self._check_order(line, packet, topic)
        if packet.qos:
            session.seen.add(payload)
            if told.expires_at and not packet.dup:
                assert told.expires_at > self.now, f"{where}, which expired {self.now - told.expires_at} s ago"
        if line.version == V5:
            left = packet.properties.message_expiry_interval
            assert (left is None) == (told.expires_at == 0.0) or told.times > 1, where
            if left is not None and packet.qos and told.times == 1:
                assert abs(max(1, told.expires_at - self.now) - left) <= 1, (
                    f"{where}, {told.expires_at - self.now} s left"
                )

    def _topic(self, line: Line, packet: Publish) -> bytes:
        """The topic's name, looked up if only its alias came."""
        alias = packet.properties.topic_alias
        if alias is None:
            assert packet.topic
            return packet.topic
        assert line.connect is not None
        maximum = line.connect.properties.topic_alias_maximum or 0
        assert 0 < alias <= min(maximum, self.limits.max_topic_aliases), f"line {line.number}: alias {alias}"
        if packet.topic:
            line.aliases[-alias] = packet.topic
        assert -alias in line.aliases, f"line {line.number}: alias {alias} was never introduced"
        return line.aliases[-alias]

    def _check_window(self, line: Line, session: ReferenceSession, packet: Publish, largest: int | None) -> None:
        packet_id = packet.packet_id
        where = f"line {line.number} got {packet}"
        assert packet_id not in line.unacked, f"{where}, whose identifier is in use"
        assert packet_id not in session.released, f"{where}, whose identifier is not released yet"
        before = session.sent_before.pop(packet_id, None)
        if before is not None and before != packet.payload:
            assert largest is not None, f"{where}, whose identifier is that of {before!r}"
            before = None
        told = self.reference.told.get(packet.payload)
        if before is not None:
            assert packet.dup, f"{where} again, without DUP"
        elif told is not None and told.epoch == self.reference.epoch and largest is None:
            assert not packet.dup, f"{where} for the first time, with DUP"
        line.unacked[packet_id] = packet.payload, packet.qos
        if line.over:  # its last words
            session.sent_before[packet_id] = packet.payload
        under_way = len(line.unacked) + len(session.released)
        assert under_way <= line.window, f"{where}, the {under_way}th of {line.window}"

    def _check_order(self, line: Line, packet: Publish, topic: bytes) -> None:
        """On one connection each publisher's messages of a topic and QoS come in its order."""
        told = self.reference.told[packet.payload]
        if told.times > 1 or topic.startswith(SHARED_TOPIC):
            return
        key = told.publisher, topic, told.qos * 3 + packet.qos
        assert line.order.get(key, 0) < told.number, f"line {line.number} got {packet} too late"
        line.order[key] = told.number

    def _check_answers(self, call: Call) -> None:
        """What can be answered at once was."""
        line = call.line
        due, line.due = line.due, []
        if line.over or call.connection.state != CONNECTED:
            return
        if call.connection.outbox.blocked or call.was_blocked:
            call.was_blocked = call.connection.outbox.blocked
            return
        assert not any(line.expected.values()), f"line {line.number} waits for {+line.expected}"
        largest = line.connect.properties.maximum_packet_size if line.connect is not None else None
        for payload in due if largest is None else []:
            assert line.written[payload], f"line {line.number} did not get {payload!r} of QoS 0"

    # ------------------------------------------------------------------ what people do

    def _read(self, call: Call, packets: int) -> None:
        client = call.client
        assert client is not None
        if call.down:
            self.tell(f"{client.name} reads {min(packets, len(call.down))} packets on line {call.line.number}")
        for _ in range(packets):
            if not call.down:
                break
            packet = call.down.popleft()
            session = call.line.session
            said = client.on_packet(packet, call.line.version, session.born if session is not None else 0)
            if isinstance(packet, Publish):
                self.reference.delivered[packet.payload] += 1
            call.say(said)
        if self._call_of(client) is not call:
            client.deferred.clear()  # they are for this line, and it is the former
        if call.up and self.rng.random() < 0.7:
            self._feed(call)

    def _raw_properties(self, call: Call) -> None:
        self.tell(f"line {call.line.number} is blocked")
        call.was_blocked = True
        self.broker.block(call.connection, self.now)

    def _unblock(self, call: Call) -> None:
        if call.connection.outbox.blocked:
            self.tell(f"line {call.line.number} takes bytes again")
            self.broker.unblock(call.connection, self.now)
            self._settle()

    def _lose(self, call: Call) -> None:
        self.tell(f"line {call.line.number} breaks")
        if call.client is not None and self.rng.random() < 0.5:
            self._read(call, 100)
        self.broker.close(call.connection, self.now)
        self.reference.close(call.line)
        self._settle()

    def _wait(self, seconds: float, late: bool = False) -> None:
        """Time passes; the broker's timer rings at its times, or only when it is all over."""
        self.tell(f"{seconds} s pass" + (", and the timer is late" if late else ""))
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
        for call in self.calls.values():
            line = call.line
            if call.connection.state == CONNECTED and line.keep_alive:
                silent = now - max(line.last_heard, line.accepted_at)
                assert silent < 1.5 * line.keep_alive, f"line {line.number}: silent for {silent} s and not closed"

    def _publish_inside(self) -> None:
        """The broker's own program publishes."""
        rng = self.rng
        self.own += 1
        payload, topic, qos = f"inside:{self.own}:".encode(), rng.choice(TOPICS), rng.randint(0, 2)
        self.tell(f"{payload!r} is published inside, QoS {qos} to {topic!r}")
        self.reference.publish(topic, payload, qos, False, 0.0, "inside", 0)
        before = self._queue_full()
        code = self.broker.publish(topic, payload, qos, False, self.now).tally.code
        if code == 0x97:
            assert self._queue_full() > before
        else:
            assert self._queue_full() == before or self.limits.on_overflow == DROP_OLDEST
        self._notice_closed()
        self._settle()

    def _go_round(self, client: SimulatedClient) -> None:
        """After 65 535 messages the identifiers begin anew: those in use are passed over."""
        session = self.broker.sessions.get(client.name)
        if session is not None:
            session._next_packet_id = self.rng.choice([1, 1, 65_534])
            session._unused_ids = 0
            self.tell(f"the identifiers for {client.name} go on at {session._next_packet_id}")

    def _inspect(self) -> None:
        """Somebody new subscribes and finds all that is retained, and only that."""
        call = self._open(None, V5, False)
        asked = (SubscriptionRequest(b"r/#", 2),)
        hello = Connect(f"inspector{call.line.number}", V5, True)
        call.say([hello])
        self._feed(call, everything=True)
        call.say([Subscribe(1, asked)])
        self._feed(call, everything=True)
        expected = {
            payload
            for topic, (payload, expires_at) in self.reference.retained.items()
            if matches(b"r/#", topic) and not 0.0 < expires_at <= self.now
        }
        found = {packet.payload for packet in call.down if isinstance(packet, Publish)}
        self.tell(f"an inspector finds {sorted(found)} retained")
        if self.limits.max_inflight > 2:
            assert found == expected, f"retained: {found}, and it should be {expected}"
        self._lose(call)

    # ------------------------------------------------------------------ a kill

    def _kill(self, call: Call) -> None:
        """The broker is killed: between two turns, or before the commit of what is under way."""
        rng = self.rng
        before = self.reference.copy()
        if rng.random() < 0.7:
            self.acked.clear()
            dropped = self._queue_full()
            others = list(self.calls.values())
            for each in [call, *rng.sample(others, min(len(others), 2))]:
                self._feed_doomed(each)
            if self._queue_full() == dropped:
                self._check_nothing_was_promised(before)
        self.tell("the broker is killed")
        for each in list(self.calls.values()):
            if each.client is not None and rng.random() < 0.5:
                for packet in each.down:
                    session = each.line.session
                    each.client.on_packet(packet, each.line.version, session.born if session is not None else 0)
                    if isinstance(packet, Publish):
                        self.reference.delivered[packet.payload] += 1
        for name in list(self.reference.sessions):
            real = self.broker.sessions.get(name)
            if real is not None:
                for reason, messages in real.drops.items():
                    self.drops[name, reason] += messages
        for each in self.calls.values():
            for reason, messages in each.connection.drops.items():
                self.drops[each.connection.client_id, reason] += messages
            for reason, messages in each.connection.outbox.drops.items():
                self.drops[each.connection.client_id, reason] += messages
        self.calls = {}
        self.reference = before
        self.broker = self._new_broker()
        kept = self.store.load()
        for change in kept:
            if isinstance(change, SaveRetained):  # the object that the dead broker had, and may have marked
                change.message.superseded = False
        self.broker.restore(kept, self.now)
        self._check()

    def _feed_doomed(self, call: Call) -> None:
        """A chunk whose changes will not be committed; what need not wait for that is written."""
        if not call.up or call.line.over or call.line.held is not None:
            return
        self._feed_some(call)
        effects = self.broker.effects
        dirty, effects.dirty = effects.dirty, []
        for outbox in dirty:
            if not (outbox.awaits_commit and effects.changes):
                self._write(outbox)
            else:
                effects.dirty.append(outbox)
        for number in effects.closed:
            if not self.calls[number].connection.outbox.dirty:
                self.tell(f"line {number} is closed")

    def _check_nothing_was_promised(self, before: ReferenceBroker) -> None:
        """What was acknowledged in a turn that was not committed would be lost."""
        for payload, _line in self.acked:
            for name, session in self.reference.sessions.items():
                kept = before.sessions.get(name)
                if session.durable and kept is not None and kept.born == session.born:
                    owed = {qos for qos, _ in session.owed.get(payload, ())} - {0}
                    assert (
                        not owed or payload in kept.owed or (session.line is not None and payload in session.settled)
                    ), f"{payload!r} was acknowledged before it was committed for {name}"
            told = self.reference.told[payload]
            if told.retain and self.reference.retained.get(told.topic, (b"", 0.0))[0] == payload:
                assert before.retained.get(told.topic, (b"", 0.0))[0] == payload, (
                    f"{payload!r} was acknowledged before it was retained"
                )

    # ------------------------------------------------------------------ always

    def _check(self) -> None:
        broker, limits = self.broker, self.limits
        names = set(self.reference.sessions)
        real = set(broker.sessions._by_client_id)
        assert real == names, f"sessions: {real}, and there should be {names}"
        assert broker.connections.keys() == self.calls.keys()
        for name, session in self.reference.sessions.items():
            own = broker.sessions.get(name)
            assert own is not None
            assert set(own.received.all()) == session.received, f"{name}: {own.received.all()}, {session.received}"
            assert set(own.released.all()) == session.released
            assert own.subscriptions.keys() == session.subscriptions.keys()
            assert (own.outbox is None) == (session.line is None)
            assert len(own._pending) <= limits.max_queued_messages + limits.max_inflight
            assert own._queued_bytes == sum(delivery.message.size() for delivery in own._queued.values())
            assert own.durable == session.durable
        for call in self.calls.values():
            outbox = call.connection.outbox
            assert outbox._backlog_messages <= limits.max_outbox_messages
            if outbox.blocked:
                waiting = sum(map(len, outbox.chunks)) + sum(len(piece) for piece, _, _, _ in outbox._backlog)
                assert waiting == outbox._waiting_bytes
                assert waiting <= limits.max_outbox_bytes
            else:
                assert not outbox.chunks

    # ------------------------------------------------------------------ peace

    def make_peace(self) -> None:
        """Everybody is polite, comes back, and reads until there is nothing left to say."""
        self.tell("peace")
        for call in list(self.calls.values()):
            if call.connection.number in self.broker.connections:
                self._lose(call)
        for client in self.clients:
            client.habits = POLITE
        for again in range(20):  # the second time nothing is left of what they had in mind before
            for client in self.clients:
                if again > 1:  # its own messages were too much for it
                    client.unfinished = {}
                if again < 2 or self._call_of(client) is None:
                    self._connect(client, polite=True)
            self._drain()
        self._check()
        self._inspect()
        self._audit()
        self._leave()

    def _drain(self) -> None:
        for _ in range(1_000):
            busy = False
            for call in list(self.calls.values()):
                while call.up and not call.line.over:
                    busy = True
                    self._feed(call, everything=True)
                if call.down:
                    busy = True
                    self._read(call, 1_000)
            if not busy:
                return
        raise AssertionError("they talk without end")

    def _audit(self) -> None:
        """Whatever was owed at QoS 1 or 2 was read, or there is a good reason."""
        for client in self.clients:
            session = self.reference.sessions.get(client.name)
            own = self.broker.sessions.get(client.name)
            if session is None or own is None:
                continue
            assert (len(own.inflight), len(own.released), own.queued) == (0, 0, 0), f"{client.name} was not drained"
            assert client.unfinished == {}, f"{client.name} waits for {client.unfinished}"
            # Who said PUBCOMP beforehand may never have read the PUBREL that it was for.
            assert client.unreleased == {} or client.guessed, f"{client.name} still holds {client.unreleased}"
            self._audit_session(client, session, dict(own.drops))

    def _audit_session(self, client: SimulatedClient, session: ReferenceSession, drops: dict[str, int]) -> None:
        read = client.read.get(session.born, Counter())
        full = drops.get(QUEUE_FULL, 0) + self.drops[client.name, QUEUE_FULL]
        missing: list[bytes] = []
        for payload, ways in session.owed.items():
            told = self.reference.told[payload]
            best = max(qos for qos, _ in ways)
            if not told.retain and not told.topic.startswith(SHARED_TOPIC) and best == 2:
                assert read[payload] <= told.times, f"{client.name} read {payload!r} {read[payload]} times"
            if best == 0 or read[payload] or payload in session.settled or told.retain:
                continue
            if min(qos for qos, _ in ways) == 0:
                continue
            if client.max_packet is not None and len(payload) + 40 > client.max_packet:
                continue
            if 0.0 < told.expired_at <= self.now and payload not in session.seen:
                continue
            if told.epoch < self.reference.epoch and client.guessed:
                continue  # what was queued when the broker was killed counts as sent: a guess may have hit it
            if told.epoch < self.reference.epoch and 0x97 in told.codes:
                continue  # who counted that may have been killed just when his session ended
            missing.append(payload)
            assert payload not in session.seen, f"{client.name} never read {payload!r}, which was in flight"
        assert len(missing) <= full, f"{client.name} lacks {missing}; {full} were dropped"
        if self.limits.on_overflow == DROP_OLDEST:
            return
        for payload in missing:
            told = self.reference.told[payload]
            if told.version == V5 and told.codes and told.times == 1 and told.epoch == self.reference.epoch:
                assert 0x97 in told.codes, f"{client.name} lacks {payload!r}, and its publisher was told {told.codes}"

    def _leave(self) -> None:
        """Everybody leaves for good: nothing is left behind."""
        for call in list(self.calls.values()):
            self._lose(call)
        for client in self.clients:
            call = self._open(client, V5, False)
            call.say([Connect(client.name, V5, True)])
            self._feed(call, everything=True)
            call.say([Disconnect()])
            self._feed(call, everything=True)
        self._wait(10_000.0)
        for topic in list(self.reference.retained):
            self.broker.publish(topic, b"", 1, True, self.now)
        self._settle()
        self._check_is_empty(self.broker)
        assert self.store.load() == []

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
        assert len(broker._deadlines) <= SLACK
        assert not any(not deadline.cancelled for _, _, deadline in broker._deadlines._heap)
        assert broker.router.retained.size_bytes == 0


def live(seed: int, steps: int = 200, tracer: Recorder | None = None) -> dict[tuple[int, int], bytearray]:
    """A whole life of the world with that seed: what was written, by broker and line.

    Raises `AssertionError` with the seed and the story.
    """
    world = World(seed, tracer)
    try:
        for number in range(steps):
            world.tell(f"— {number} at {world.now - START:.1f}")
            world.step()
        world.make_peace()
    except Exception as error:
        scenario = "\n".join(world.scenario[:1] + world.scenario[-STORY:])
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}\n{scenario}") from error
    return world.written
