"""A broker without sockets, and clients that speak to it in packets; time is a number.

`World` does what the shell does after each input: commit the changes, write the dirty outboxes, close what is closed.
It checks on the way what the shell relies on.
"""

from collections.abc import Callable, Sequence

from mqttlite.core.authentication import Verdict
from mqttlite.core.broker import Broker
from mqttlite.core.changes import Change
from mqttlite.core.connect.capabilities import EVERYTHING, Capabilities
from mqttlite.core.connect.connect_limits import ConnectLimits
from mqttlite.core.connect.connection import Connection, Peer
from mqttlite.core.effects import Effects
from mqttlite.core.identity import Identity
from mqttlite.core.limits import Limits, OverloadLimits
from mqttlite.core.load.quotas import Quotas
from mqttlite.core.message_filter import FilterCompiler
from mqttlite.core.outbound.outbox import Outbox
from mqttlite.core.question import Authenticate, LoadEntries, LoadPage, Locate
from mqttlite.core.session.session import Session
from mqttlite.extensions.namespaces import NAMESPACES
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import MAX_REMAINING_LENGTH, PUBACK, PUBCOMP, PUBREC, PUBREL, V5
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import encode
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Will,
)
from mqttlite.wire.properties import NONE, Properties
from mqttlite.wire.reason_codes import ReasonCode
from tests.support.memory import assert_nothing_is_held, end_everything

START = 1_000_000.0


class World:
    """One broker, its store, and the clients around it."""

    def __init__(
        self,
        limits: Limits | None = None,
        store: MemoryStore | None = None,
        now: float = START,
        share_policies: dict[str, str] | None = None,
        retained_expiry_s: dict[bytes, int] | None = None,
        filters: FilterCompiler | None = None,
        before_restore: Callable[[Broker], None] | None = None,
        overload_limits: OverloadLimits | None = None,
        newest_retained: bool = False,
    ) -> None:
        self.now = now
        self.store: MemoryStore = store or MemoryStore()
        self.broker = Broker(
            limits or Limits(),
            share_policies=share_policies,
            pages=self.store.pages,
            retained_expiry_s=retained_expiry_s,
            filters=filters,
            overload_limits=overload_limits,
            namespaces=NAMESPACES,
            newest_retained=newest_retained,
        )
        self._filters = filters
        self.late_pages: list[LoadPage | LoadEntries] | None = None
        """Where there is a list, pages wait in it instead of being read at once."""
        self.changes: list[Change] = []
        """All changes so far, for tests to look at."""
        self.questions: list[Authenticate] = []
        self.located: list[Locate] = []
        self.asked: dict[int, int] = {}
        """The latest question of each connection."""
        self.clients: dict[int, Client] = {}
        self.is_stalled = False
        """Whether the disk stands still: what is to be made durable waits."""
        self._uncommitted: list[Change] = []
        self._held: list[Outbox] = []
        """Outboxes that wait for these changes."""
        self._answers: list[tuple[Client, bytes]] = []
        self._pages: list[LoadPage | LoadEntries] = []
        if before_restore is not None:
            before_restore(self.broker)
        self.broker.restore(self.store.load(), now)

    def take_holds(self, reason: int, *, is_held: bool) -> list[int]:
        """The connections that the core wants held for a reason, or released from it, since the last call."""
        effects = self.broker.effects
        taken = [each for each in effects.holds if (each.reason, each.is_held) == (reason, is_held)]
        effects.holds = [each for each in effects.holds if each not in taken]
        return [each.number for each in taken]

    def open(
        self,
        version: int = V5,
        *,
        identity: str | None = None,
        must_authenticate: bool = False,
        capabilities: Capabilities = EVERYTHING,
        methods: frozenset[str] = frozenset(),
        is_trusted: bool = False,
        hears_program: bool = False,
        is_relay: bool = False,
        is_inside: bool = False,
        quotas: Quotas | None = None,
        connect_limits: ConnectLimits | None = None,
        mount_point: bytes = b"",
        sees_publishers: bool = False,
    ) -> "Client":
        """A link that is up and has sent nothing; `version` is how the client encodes and decodes."""
        peer = Peer(
            Identity(identity, mount_point, is_trusted, hears_program, is_relay),
            must_authenticate,
            capabilities,
            methods,
            is_inside=is_inside,
            quotas=quotas,
            connect_limits=connect_limits,
            sees_publishers=sees_publishers,
        )
        client = Client(self, self.broker.open(peer, self.now), version)
        self.clients[client.connection.number] = client
        self.settle()
        return client

    def connect(self, client_id: str = "", version: int = V5, **options: object) -> "Client":
        """A client whose CONNECT was accepted; for the options see `Client.connect`."""
        client = self.open(version)
        connack = client.connect(client_id, **options)  # type: ignore[arg-type]
        assert connack is not None, client.connection.close_detail
        assert connack.reason_code == 0, connack
        return client

    def publish(self, topic: str, payload: str = "", qos: int = 0, retain: bool = False, **fields: object) -> int:
        """Publish from inside the broker."""
        properties = Properties(**fields) if fields else NONE  # type: ignore[arg-type]
        code = self.broker.publish(topic.encode(), payload.encode(), qos, retain, self.now, properties).tally.code
        self.settle()
        return code

    def answer(self, client: "Client", accepted: bool) -> None:
        """The verdict on the client's user name and password."""
        self.decide(client, Verdict(0 if accepted else ReasonCode.BAD_USER_NAME_OR_PASSWORD))

    def decide(self, client: "Client", verdict: Verdict) -> None:
        """Answer the client's question."""
        self.broker.answer(self.asked.get(client.connection.number, 0), verdict, self.now)
        self.settle()

    def advance(self, seconds: float) -> None:
        """Let time pass, and everything happen at its time."""
        end = self.now + seconds
        due = self.broker.due_at()
        while due is not None and due <= end:
            self.now = max(self.now, due)
            self.broker.tick(self.now)
            self.settle()
            due = self.broker.due_at()
        self.now = end

    def settle(self) -> None:
        """Do all that is in the turn, as the shell does after each pass of its loop."""
        effects = self.broker.effects
        self._run()
        while effects.backlogged or len(self.broker.jobs) or effects.deferred or self._pages or self._answers:
            pages, self._pages = self._pages, []
            for page in pages:
                self.broker.answer(page.id, self.read(page), self.now)
            if effects.backlogged or len(self.broker.jobs):
                self.broker.tick(self.now)
                self._run()
            deferred, effects.deferred = effects.deferred, []
            for number in deferred:
                if number in self.clients:
                    self.broker.feed(self.clients[number].connection, b"", self.now)
            answers, self._answers = self._answers, []
            for client, chunk in answers:
                self.broker.feed(client.connection, chunk, self.now)
            self._run()

    def read(self, page: LoadPage | LoadEntries) -> object:
        """What the store answers."""
        if isinstance(page, LoadEntries):
            return self.store.read_entries(page.key, page.first, page.end, page.count)
        return self.store.read(page.client_id, page.first, page.count)

    def restart(self, limits: Limits | None = None) -> "World":
        """A new broker with what this one's store kept; its clients are gone, and what was not committed."""
        return World(
            limits or self.broker.limits,
            self.store,
            self.now,
            filters=self._filters,
            newest_retained=self.broker.router.retained.order.is_on,
        )

    def end(self) -> None:
        """Everything is over; check that the broker knows that it holds nothing any more."""
        end_everything(self.broker, self.now)
        self.settle()
        assert_nothing_is_held(self.broker.effects.memory)

    def session(self, client_id: str) -> Session:
        session = self.broker.sessions.get(client_id)
        assert session is not None
        return session

    def _run(self) -> None:
        effects = self.broker.effects
        assert not effects.overflowed, "a link that overflowed is cut off before its effects leave the core"
        self._collect()
        if not self.is_stalled:
            self._commit()
            self._collect()  # what those recorded that were told of the commit
            self._commit()
        dirty, effects.dirty = effects.dirty, []
        end_iteration(effects)
        assert len({outbox.number for outbox in dirty}) == len(dirty), "an outbox is dirty once"
        for outbox in dirty:
            if self.is_stalled and outbox.awaits_commit:
                self._held.append(outbox)
                continue
            outbox.awaits_commit = False
            self._hand_over(self.clients[outbox.number], outbox)
        effects.connected.clear()
        questions, effects.questions = effects.questions, []
        for question in questions:
            if isinstance(question, (LoadPage, LoadEntries)):
                (self._pages if self.late_pages is None else self.late_pages).append(question)
                continue
            if isinstance(question, Locate):
                self.located.append(question)
                continue
            assert isinstance(question, Authenticate)
            self.questions.append(question)
            self.asked[question.number] = question.id
        for number in effects.closed:
            client = self.clients.pop(number)
            assert not client.closed, "a connection is closed once"
            outbox = client.connection.outbox
            if outbox in self._held:  # the shell waits for the commit; here the link is gone before
                self._held.remove(outbox)
            elif outbox.chunks:
                self._hand_over(client, outbox)
            client.closed = True
        effects.closed.clear()
        for client in self.clients.values():
            outbox = client.connection.outbox
            assert outbox.blocked or not outbox.chunks or outbox in self._held, (
                "what waits for a link that takes bytes is in the turn"
            )

    def _collect(self) -> None:
        effects = self.broker.effects
        if effects.changes:
            self.changes += effects.changes
            self._uncommitted += effects.changes
            effects.changes.clear()
            effects.changed_bytes = 0

    def _commit(self) -> None:
        effects = self.broker.effects
        if self._uncommitted:
            changes, self._uncommitted = self._uncommitted, []
            self.store.commit(changes)
        for each in effects.take_awaiting():
            each.on_committed(self.now)

    def stall(self) -> None:
        """From now on no change is committed, and nothing is written that waits for one."""
        self.is_stalled = True

    def waiting_for_disk(self) -> tuple[int, int]:
        """How many changes wait for a commit, and how many want to be told of one."""
        effects = self.broker.effects
        return len(self._uncommitted) + len(effects.changes), len(effects.awaiting)

    def go_on(self) -> None:
        """The disk works again: what waited is committed, then written."""
        self.is_stalled = False
        self.broker.effects.dirty += self._held
        self._held = []
        self.settle()

    def read_late_pages(self) -> None:
        """Read the pages that wait."""
        self._pages += self.late_pages or []
        self.late_pages = None
        self.settle()

    def _hand_over(self, client: "Client", outbox: Outbox) -> None:
        answers = client.take(outbox.take())
        if answers:
            self._answers.append((client, answers))


class Client:
    """The other end of one connection. `auto_ack`: it answers QoS 1 and 2 messages and PUBRECs by itself."""

    def __init__(self, world: World, connection: Connection, version: int) -> None:
        self.world = world
        self.connection = connection
        self.version = version
        self.auto_ack = True
        self.closed = False
        """The link is over; either side may have closed it."""
        self.packets: list[Packet] = []
        """What came since `received` was last called."""
        self._framer = Framer(MAX_REMAINING_LENGTH + 5)
        self._next_packet_id = 0

    def connect(
        self,
        client_id: str = "",
        *,
        clean_start: bool = True,
        keep_alive: int = 0,
        expiry: int | None = None,
        receive_maximum: int | None = None,
        maximum_packet_size: int | None = None,
        will: Will | None = None,
        username: str | None = None,
        password: bytes | None = None,
        auto_ack: bool = True,
        is_bridge: bool = False,
        user_properties: list[tuple[str, str]] | None = None,
    ) -> Connack | None:
        """Send CONNECT; the CONNACK, taken out of what was received, if one came."""
        self.auto_ack = auto_ack
        properties = NONE
        if self.version == V5:
            properties = Properties(
                session_expiry_interval=expiry,
                receive_maximum=receive_maximum,
                maximum_packet_size=maximum_packet_size,
                user_properties=user_properties,
            )
        packet = Connect(
            client_id, self.version, clean_start, keep_alive, username, password, will, properties, is_bridge
        )
        self.send(packet)
        if self.packets and isinstance(self.packets[0], Connack):
            connack = self.packets.pop(0)
            assert isinstance(connack, Connack)
            return connack
        return None

    def send(self, *packets: Packet) -> None:
        """Send packets in one chunk."""
        self.send_bytes(b"".join([encode(packet, self.version) for packet in packets]))

    def send_bytes(self, chunk: bytes) -> None:
        self.world.broker.feed(self.connection, chunk, self.world.now)
        self.world.settle()

    def publish(
        self, topic: str, payload: str = "", qos: int = 0, retain: bool = False, dup: bool = False, packet_id: int = 0
    ) -> int:
        """Send a PUBLISH; its packet identifier."""
        if qos and not packet_id:
            packet_id = self.packet_id()
        self.send(Publish(topic.encode(), payload.encode(), qos, retain, dup, packet_id))
        return packet_id

    def subscribe(
        self, *requests: str | SubscriptionRequest, qos: int = 0, identifier: int = 0, where: str | None = None
    ) -> bytes:
        """Send a SUBSCRIBE; the SUBACK's reason codes, taken out of what was received."""
        return self.suback(*requests, qos=qos, identifier=identifier, where=where).reason_codes

    def suback(
        self, *requests: str | SubscriptionRequest, qos: int = 0, identifier: int = 0, where: str | None = None
    ) -> Suback:
        """The same, and all of the SUBACK. `where` is a filter, in the user property for it."""
        properties = NONE
        if identifier or where is not None:
            properties = Properties(
                subscription_identifiers=[identifier] if identifier else [],
                user_properties=[] if where is None else [("filter", where)],
            )
        wanted = tuple(SubscriptionRequest(each.encode(), qos) if isinstance(each, str) else each for each in requests)
        packet_id = self.packet_id()
        self.send(Subscribe(packet_id, wanted, properties))
        for at, packet in enumerate(self.packets):
            if isinstance(packet, Suback) and packet.packet_id == packet_id:
                self.packets.pop(at)
                return packet
        raise AssertionError(f"no SUBACK among {self.packets}")

    def packet_id(self) -> int:
        self._next_packet_id += 1
        return self._next_packet_id

    def received(self) -> list[Packet]:
        """What came since the last call."""
        packets, self.packets = self.packets, []
        return packets

    def messages(self) -> list[tuple[str, str]]:
        """Topic and payload of what came since the last call; everything but PUBLISH is thrown away."""
        return [(packet.topic.decode(), packet.payload.decode()) for packet in publishes(self.received())]

    def payloads(self) -> list[str]:
        return [payload for _topic, payload in self.messages()]

    def disconnect(self, reason_code: int = 0, properties: Properties = NONE) -> None:
        """Say goodbye, then close the link."""
        self.send(Disconnect(reason_code, properties))
        self.lose()

    def lose(self) -> None:
        """The link breaks."""
        self.world.broker.close(self.connection, self.world.now)
        self.world.settle()

    def block(self) -> None:
        """Stop reading: the link takes no more bytes."""
        self.world.broker.block(self.connection, self.world.now)
        self.world.settle()

    def unblock(self) -> None:
        self.world.broker.unblock(self.connection, self.world.now)
        self.world.settle()

    def take(self, data: bytes) -> bytes:
        """Bytes from the broker; what the client says to them at once."""
        arrived = [decode(first, body, self.version) for first, body in self._framer.split(data)]
        self.packets += arrived
        if not self.auto_ack:
            return b""
        answers = [answer for packet in arrived if (answer := answer_to(packet)) is not None]
        return b"".join([encode(answer, self.version) for answer in answers])


def request(
    topic_filter: str, qos: int = 0, no_local: bool = False, retain_as_published: bool = False, retain_handling: int = 0
) -> SubscriptionRequest:
    """A topic filter with options, for `Client.subscribe`."""
    return SubscriptionRequest(topic_filter.encode(), qos, no_local, retain_as_published, retain_handling)


def end_iteration(effects: Effects) -> None:
    """What the loop driver does to the budgets when an iteration of the loop is over."""
    effects.pending_bytes = 0
    effects.work = 0


def publishes(packets: Sequence[Packet]) -> list[Publish]:
    return [packet for packet in packets if isinstance(packet, Publish)]


def answer_to(packet: Packet) -> Ack | None:
    """What a well-behaved client says to a packet."""
    if isinstance(packet, Publish) and packet.qos:
        return Ack(PUBACK if packet.qos == 1 else PUBREC, packet.packet_id)
    if isinstance(packet, Ack) and packet.packet_type == PUBREC and packet.reason_code < 0x80:
        return Ack(PUBREL, packet.packet_id)
    if isinstance(packet, Ack) and packet.packet_type == PUBREL:
        return Ack(PUBCOMP, packet.packet_id)
    return None
