"""The broker between reference clients that know only the standard: nothing is lost, duplicated or reordered.

Two publishers and two subscribers, one of each version, with sessions that are kept. What the broker writes lies on
the wire until its client reads it; connections are cut at any byte, clients take over from themselves, links block,
time passes, and the broker is killed: between two loop iterations, or in one, after the frames that need not wait for
the commit were written and before the commit. After all clients have reconnected and read everything, every QoS 2
message has arrived exactly once, every QoS 1 message at least once, and each publisher's in the order in which it sent
them.
"""

from typing import Final

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from mqttlite.core.changes import Change
from mqttlite.core.connect.connection import CLOSED
from mqttlite.core.limits import Limits
from mqttlite.core.memory import ENTRY_BYTES, INFLIGHT_BYTES
from mqttlite.core.message import Delivery as MessageDelivery
from mqttlite.wire.constants import NEVER_EXPIRES, PUBACK, PUBCOMP, PUBREC, PUBREL, V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Connack, Connect, Disconnect, Packet, Publish, Suback, Subscribe
from mqttlite.wire.properties import NONE, Properties
from tests.support.core_driver import Client, World, request
from tests.support.rounds import rounds

TOPIC: Final = b"t"
WINDOW: Final = 3


class ReferenceClient:
    """One client that follows the standard; `link` is None while it is not connected."""

    def __init__(self, name: str, version: int) -> None:
        self.name = name
        self.version = version
        self.link: Client | None = None
        self.known = False
        """Whether the broker has ever accepted it: then its session is present the next time."""

    def connect(self, world: World) -> None:
        self.link = link = world.open(self.version)
        link.auto_ack = False
        properties = NONE
        if self.version == V5:
            properties = Properties(session_expiry_interval=NEVER_EXPIRES, receive_maximum=WINDOW)
        link.send(Connect(self.name, self.version, clean_start=False, properties=properties))
        connack = link.packets.pop(0)
        assert isinstance(connack, Connack)
        assert connack.reason_code == 0
        assert connack.session_present or not self.known
        self.known = True
        self.on_connected(link)

    def send(self, *packets: Packet) -> None:
        if self.link is not None and not self.link.closed:
            self.link.send(*packets)

    def read(self, packets: int) -> None:
        """Look at that many of the packets on the wire."""
        link = self.link
        for _ in range(packets):
            if link is None or not link.packets:
                return
            self.on_packet(link.packets.pop(0))

    def drop_link(self) -> None:
        """What is on the wire is lost."""
        self.link = None

    def on_connected(self, link: Client) -> None: ...

    def on_packet(self, packet: Packet) -> None: ...


class PublishingClient(ReferenceClient):
    """Keeps each message until the broker has acknowledged it."""

    def __init__(self, name: str, version: int) -> None:
        super().__init__(name, version)
        self.sent: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        self.unfinished: dict[int, Publish | None] = {}
        """By packet identifier, in order; None: the broker has it, and PUBCOMP is still to come."""

    def next_message(self, qos: int) -> Publish:
        payload = f"{self.name}{sum(map(len, self.sent.values()))}".encode()
        self.sent[qos].append(payload)
        if qos == 0:
            return Publish(TOPIC, payload)
        packet_id = next(number for number in range(1, 65_536) if number not in self.unfinished)
        message = Publish(TOPIC, payload, qos, packet_id=packet_id)
        self.unfinished[packet_id] = message
        return message

    def on_connected(self, link: Client) -> None:
        again: list[Packet] = []
        for packet_id, message in self.unfinished.items():
            if message is None:
                again.append(Ack(PUBREL, packet_id))
            else:
                again.append(Publish(TOPIC, message.payload, message.qos, dup=True, packet_id=packet_id))
        link.send(*again)

    def on_packet(self, packet: Packet) -> None:
        if not isinstance(packet, Ack):
            assert isinstance(packet, Disconnect)
            return
        assert packet.reason_code < 0x80 or packet.packet_type == PUBCOMP
        message = self.unfinished.get(packet.packet_id)
        if packet.packet_type == PUBACK:
            assert message is not None
            assert message.qos == 1
            del self.unfinished[packet.packet_id]
        elif packet.packet_type == PUBREC:
            assert message is None or message.qos == 2
            self.unfinished[packet.packet_id] = None
            self.send(Ack(PUBREL, packet.packet_id))
        else:
            assert packet.packet_type == PUBCOMP
            assert message is None
            self.unfinished.pop(packet.packet_id, None)


class SubscribingClient(ReferenceClient):
    """Records what it gets, QoS 2 messages once for each identifier until that is released."""

    def __init__(self, name: str, version: int) -> None:
        super().__init__(name, version)
        self.got: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        self.unreleased: set[int] = set()
        self.open = 0
        """How many of its Receive Maximum the broker has used on this connection, as far as the client can see."""

    def on_connected(self, link: Client) -> None:
        self.open = 0

    def on_packet(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self.on_publish(packet)
        elif isinstance(packet, Ack):
            assert packet.packet_type == PUBREL
            self.unreleased.discard(packet.packet_id)
            self.open = max(0, self.open - 1)
            self.send(Ack(PUBCOMP, packet.packet_id))
        else:
            assert isinstance(packet, Suback | Disconnect)

    def on_publish(self, packet: Publish) -> None:
        if packet.qos:
            self.open += 1
            assert self.version != V5 or self.open <= WINDOW
        if packet.qos < 2:
            self.got[packet.qos].append(packet.payload)
        elif packet.packet_id not in self.unreleased:
            self.unreleased.add(packet.packet_id)
            self.got[2].append(packet.payload)
        if packet.qos == 1:
            self.open -= 1
            self.send(Ack(PUBACK, packet.packet_id))
        elif packet.qos == 2:
            self.send(Ack(PUBREC, packet.packet_id))


def shape(delivery: MessageDelivery) -> tuple[object, ...]:
    message = delivery.message
    return message.topic, message.payload, message.qos, delivery.qos, delivery.retain


publishers = st.integers(0, 1)
clients = st.integers(0, 3)
qos_levels = st.integers(0, 2)


class Delivery(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(Limits())
        self.publishers = [PublishingClient("p", V5), PublishingClient("q", V311)]
        self.subscribers = [SubscribingClient("s", V5), SubscribingClient("t", V311)]
        self.clients: list[ReferenceClient] = [*self.publishers, *self.subscribers]
        for client in self.clients:
            client.connect(self.world)
        for subscriber in self.subscribers:
            subscriber.send(Subscribe(1, (request("t", 2),)))
            subscriber.read(1)

    # ------------------------------------------------------------------ what happens

    @rule(who=publishers, qos=st.lists(qos_levels, min_size=1, max_size=4))
    def publish(self, who: int, qos: list[int]) -> None:
        publisher = self.publishers[who]
        publisher.send(*[publisher.next_message(each) for each in qos])

    @rule(who=clients, packets=st.integers(1, 6))
    def read(self, who: int, packets: int) -> None:
        self.clients[who].read(packets)

    @rule(who=clients)
    def connect(self, who: int) -> None:
        """Reconnect, or take over from an own connection: what the broker wrote to the old link is lost."""
        self.clients[who].connect(self.world)

    @rule(who=clients)
    def lose(self, who: int) -> None:
        client = self.clients[who]
        if client.link is not None:
            client.link.lose()
            client.drop_link()

    @rule(who=clients)
    def disconnect(self, who: int) -> None:
        client = self.clients[who]
        client.send(Disconnect())
        client.drop_link()

    @rule(who=publishers, qos=qos_levels, cut=st.integers(0, 12))
    def cut_inside_a_packet(self, who: int, qos: int, cut: int) -> None:
        publisher = self.publishers[who]
        message = publisher.next_message(qos)
        if publisher.link is not None and not publisher.link.closed:
            publisher.link.send_bytes(encode(message, publisher.version)[:cut])
            publisher.link.lose()
            publisher.drop_link()

    @rule(who=clients)
    def block(self, who: int) -> None:
        link = self.clients[who].link
        if link is not None:
            link.block()

    @rule(who=clients)
    def unblock(self, who: int) -> None:
        link = self.clients[who].link
        if link is not None:
            link.unblock()

    @rule()
    def pass_time(self) -> None:
        self.world.advance(1_000)

    @rule()
    def kill(self) -> None:
        for client in self.clients:
            client.drop_link()
        self.world = self.world.restart()

    @rule(who=publishers, qos=st.lists(qos_levels, min_size=1, max_size=3))
    def kill_while_it_publishes(self, who: int, qos: list[int]) -> None:
        publisher = self.publishers[who]
        messages = [publisher.next_message(each) for each in qos]
        self.kill_after(publisher, b"".join(encode(message, publisher.version) for message in messages))

    @rule(who=clients)
    def kill_while_it_answers(self, who: int) -> None:
        """The client reads a packet, and the broker is killed while it handles the answer."""
        client = self.clients[who]
        link = client.link
        if link is None or link.closed or not link.packets:
            return
        answers: list[bytes] = []
        client.send = lambda *packets: answers.extend(encode(packet, client.version) for packet in packets)  # type: ignore[method-assign]
        client.read(1)
        del client.send
        self.kill_after(client, b"".join(answers))

    def kill_after(self, client: ReferenceClient, chunk: bytes) -> None:
        """Feed bytes, write what does not wait for the commit, and kill the broker before it commits."""
        link = client.link
        broker = self.world.broker
        if link is not None and link.connection.state != CLOSED:
            broker.feed(link.connection, chunk, self.world.now)
            lost: list[Change] = broker.effects.changes
            for outbox in broker.effects.dirty:
                if not (outbox.awaits_commit and lost):
                    self.world.clients[outbox.number].take(outbox.take())
            for each in self.clients:
                if each.link is not None:
                    each.link.closed = True
                each.read(1_000)  # a client reads what reached it; its answer does not arrive
        self.kill()

    # ------------------------------------------------------------------ what is always true

    @invariant()
    def windows_hold(self) -> None:
        for subscriber, window in zip(self.subscribers, (WINDOW, 1_000), strict=True):
            session = self.world.broker.sessions.get(subscriber.name)
            if session is None or session.outbox is None:
                continue
            assert session.window.quota == window - len(session.inflight) - len(session.window.released)
            assert len(session.inflight) + len(session.window.released) <= window
            assert not session.inflight.by_id().keys() & {*session.window.resend, *session.window.released.all()}
            assert not session.window.resend.keys() & {*session.window.released.all()}
            again = sum(INFLIGHT_BYTES + each.message().memory_bytes for each in session.window.resend.values())
            waiting = sum(ENTRY_BYTES + each.message.memory_bytes for each in session.queue.deliveries)
            assert session.queued_bytes == again + waiting
            if not session.outbox.blocked and session.window.quota > 0:
                assert not session.queued, "nothing waits that could be sent"

    @invariant()
    def the_store_has_the_whole_state(self) -> None:
        """A new broker with this store has the state of this one."""
        other = self.world.restart()
        for client in self.clients:
            session = self.world.broker.sessions.get(client.name)
            restored = other.broker.sessions.get(client.name)
            assert session is not None
            assert restored is not None
            sent = [*session.inflight.by_id().items(), *session.window.resend.items()]
            again = restored.window.resend
            assert [(packet_id, each.sequence) for packet_id, each in sent] == [
                (packet_id, each.sequence) for packet_id, each in again.items()
            ]
            assert list(map(shape, session.queue.deliveries)) == list(map(shape, restored.queue.deliveries))
            assert not session.queue.deliveries or session.queue.first == restored.queue.first
            assert session.window.released.all() == restored.window.released.all()
            assert session.received.all() == restored.received.all()
            assert session.subscriptions.keys() == restored.subscriptions.keys()

    def teardown(self) -> None:
        """All clients reconnect and read until nothing is left to send."""
        for client in self.clients:
            client.connect(self.world)
        for _ in range(100):
            for client in self.clients:
                client.read(1_000)
            if not any(client.link is not None and client.link.packets for client in self.clients):
                break
        for publisher in self.publishers:
            assert publisher.unfinished == {}
        for subscriber in self.subscribers:
            session = self.world.session(subscriber.name)
            assert (len(session.inflight), len(session.window.released), session.queued) == (0, 0, 0)
            for publisher in self.publishers:
                mine = {
                    qos: [payload for payload in subscriber.got[qos] if payload.startswith(publisher.name.encode())]
                    for qos in (0, 1, 2)
                }
                assert mine[2] == publisher.sent[2]
                assert list(dict.fromkeys(mine[1])) == publisher.sent[1]
                assert len(set(mine[0])) == len(mine[0])
                assert set(mine[0]) <= set(publisher.sent[0])
        self.world.end()


QUICK = settings(max_examples=15, stateful_step_count=30, deadline=None)
THOROUGH = settings(
    max_examples=rounds(530), stateful_step_count=60, deadline=None, phases=[Phase.generate, Phase.shrink]
)


@pytest.mark.long
def test_nothing_is_lost_duplicated_or_reordered() -> None:
    run_state_machine_as_test(Delivery, settings=QUICK)  # type: ignore[no-untyped-call]


@pytest.mark.slow
def test_nothing_is_lost_duplicated_or_reordered_in_many_runs() -> None:
    run_state_machine_as_test(Delivery, settings=THOROUGH)  # type: ignore[no-untyped-call]
