"""What the core does for queues: messages that their origin keeps, and stores of brokers that had queues."""

from mqttlite.core.broker import Broker
from mqttlite.core.changes import Settled
from mqttlite.core.log_changes import Append, SaveDeadline, SaveRecord, StoredLog
from mqttlite.core.message import Delivery, Message, StoredOrigin
from mqttlite.core.session.session import Session
from mqttlite.extensions.queues.namespace import QUEUES
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import PUBACK
from mqttlite.wire.packets import Ack, Unsuback, Unsubscribe
from tests.support.core_driver import World, publishes
from tests.support.queues import QueueWorld, options


class Lender:
    """An `Origin` that keeps its messages, and a `Puller`."""

    def __init__(self) -> None:
        self.settled_with: list[tuple[bytes, int]] = []
        self.came_back: list[bytes] = []
        self.rooms = 0

    name = b""
    keeps = True

    def settled(self, delivery: Delivery, reason_code: int) -> None:
        self.settled_with.append((delivery.message.payload, reason_code))

    def returned(self, delivery: Delivery) -> bool:
        self.came_back.append(delivery.message.payload)
        return True

    def on_room(self) -> None:
        self.rooms += 1

    def on_gone(self) -> None:
        self.came_back.append(b"gone")


def lend(session: Session, lender: Lender, payload: bytes) -> bool:
    return session.lend(Delivery(Message(b"a", payload, 1), 1, False, (), lender))


def test_a_lent_message_is_in_no_store_and_goes_back_when_the_connection_ends() -> None:
    world = World()
    client = world.connect("c", expiry=100, auto_ack=False)
    client.subscribe("own", qos=1)
    lender, session = Lender(), world.session("c")
    session.pull_with(lender)
    assert session.can_borrow
    assert all(lend(session, lender, payload) for payload in (b"x", b"y", b"z"))
    world.settle()
    world.publish("own", "mine", 1)
    before = len(world.changes)
    x, y, _z, _mine = publishes(client.received())
    client.send(Ack(PUBACK, x.packet_id), Ack(PUBACK, y.packet_id, 0x80))
    assert lender.settled_with == [(b"x", 0), (b"y", 0x80)]
    assert lender.rooms == 2
    assert session.drops == {}, "the lender delivers it again"
    assert not [each for each in world.changes[before:] if isinstance(each, Settled)]
    client.lose()
    assert lender.came_back == [b"gone", b"z"]
    assert not session.can_borrow
    again = world.open()
    again.connect("c", clean_start=False, expiry=100)
    assert [(each.payload, each.dup) for each in publishes(again.received())] == [(b"mine", True)]
    session.pull_no_more(lender)
    rooms = lender.rooms
    world.publish("own", "mine", 1)
    assert lender.rooms == rooms
    world.end()


def test_a_session_that_cannot_take_a_message_borrows_none() -> None:
    world = World()
    client = world.connect("c", receive_maximum=1, maximum_packet_size=60, auto_ack=False)
    lender, session = Lender(), world.session("c")
    assert not lend(session, lender, b"x" * 60)
    assert lend(session, lender, b"x")
    assert not session.can_borrow
    world.settle()
    client.block()
    client.unblock()
    session.pull_with(lender)
    client.send(Ack(PUBACK, publishes(client.received())[0].packet_id))
    assert lender.rooms == 1
    world.end()


def test_a_broker_without_queues_leaves_alone_what_the_store_has_of_them() -> None:
    store = MemoryStore()
    world = QueueWorld([options()], store)
    client = world.connect("c", expiry=100)
    assert client.subscribe("$queue/q", "b", qos=1) == b"\x01\x01"
    client.lose()
    world.publish("a", "x", 1)
    world.publish("b", "y", 1)
    broker = Broker(world.broker.limits)
    broker.restore(store.load(), world.now)
    plain = World(store=store, now=world.now)
    back = plain.open()
    back.connect("c", clean_start=False, expiry=100)
    assert back.payloads() == ["y"]
    back.send(Unsubscribe(2, (b"$queue/q",)))
    assert back.received() == [Unsuback(2, b"\0")]
    plain.end()


def test_only_shared_subscriptions_are_found_by_name_and_they_keep_nothing() -> None:
    assert not StoredOrigin(b"$share/g/a").keeps


def test_stored_state_of_queues_goes_to_the_queues() -> None:
    class Restored:
        syntax = QUEUES

        def __init__(self) -> None:
            self.heard: list[str] = []

        def admit(self, session: object, parsed: object) -> str:
            return ""

        def add(self, session: object, subscription: object) -> None: ...

        def remove(self, subscription: object) -> None: ...

        def restore(self, change: object) -> None:
            self.heard.append(type(change).__name__)

        def restored(self) -> None:
            self.heard.append("all")

    restored = Restored()
    broker = Broker(QueueWorld().broker.limits)
    broker.serve(restored)
    delivery = Delivery(Message(b"a", b"x", 1), 1, False)
    key = "\0$queue/q"
    changes = [SaveRecord(key, b""), Append(key, 0, delivery, 7), StoredLog(key, 1, 0, 0), SaveDeadline(key, 0, 5.0)]
    broker.restore([changes], 0.0)
    assert restored.heard == [*(type(each).__name__ for each in changes), "all"]
