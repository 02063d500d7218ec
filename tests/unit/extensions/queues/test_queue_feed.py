"""A consumer inside the broker is called when there may be messages, takes them, and says what became of them."""

from mqttlite.core.limits import KEPT_MESSAGES
from mqttlite.extensions.queues.limits import PULLERS_STAY_S
from mqttlite.extensions.queues.outcomes import DEADLINE
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.packets import Publish
from mqttlite.wire.properties import Properties
from tests.support.queues import QueueWorld, options


class Hub:
    """Counts the calls of a feed's consumer."""

    def __init__(self, world: QueueWorld) -> None:
        self.calls = 0
        self.world = world
        self.feed = world.queues.feed("q", "webhook", lambda: None)
        self.feed.on_ready(self.note)

    def note(self) -> None:
        self.calls += 1

    def was_called(self) -> bool:
        called, self.calls = self.calls > 0, 0
        return called


def test_a_consumer_is_called_for_what_comes_and_for_what_comes_again() -> None:
    world = QueueWorld([options(max_attempts=3)])
    hub = Hub(world)
    feed = hub.feed
    world.publish("a/b", "x", 1)
    assert hub.was_called()
    (entry,) = feed.take(10, 12.0)
    assert (entry.message.payload, entry.attempts, feed.left_s(entry, 1)) == (b"x", 1, 12.0)
    assert feed.take(10, 12.0) == []
    hub.was_called()
    assert feed.fail(entry, 1, "HTTP 500", delay_s=2.0)
    assert feed.left_s(entry, 1) == 0.0
    world.settle()
    hub.was_called()
    world.advance(1.9)
    assert feed.take(10, 12.0) == []
    assert not hub.was_called()
    world.advance(0.2)
    assert hub.was_called()
    assert feed.take(10, 12.0) == [entry]
    assert not feed.fail(entry, 1, "late", DEADLINE)
    feed.acknowledge(entry)
    assert world.ends() == {"acknowledged": 1}
    world.end()
    assert feed.is_over


def test_the_leases_of_a_feed_end_with_the_broker() -> None:
    world = QueueWorld([options()])
    hub = Hub(world)
    world.publish("a/b", "x", 1)
    (entry,) = hub.feed.take(1, 600.0)
    world.settle()
    again = world.restart()
    (entry,) = Hub(again).feed.take(1, 600.0)
    assert (entry.message.payload, entry.attempts) == (b"x", 2)
    again.end()


def test_a_message_with_an_ordering_key_is_ready_when_the_one_before_it_is_done() -> None:
    world = QueueWorld([options(ordering=True)])
    hub = Hub(world)
    publisher = world.connect("p")
    keyed = Properties(user_properties=[("ordering-key", "k")])
    for payload in (b"1", b"2"):
        publisher.send(Publish(b"a/b", payload, 0, properties=keyed))
    (first,) = hub.feed.take(10, 10.0)
    hub.was_called()
    hub.feed.acknowledge(first)
    world.settle()
    assert hub.was_called()
    assert [each.message.payload for each in hub.feed.take(10, 10.0)] == [b"2"]
    world.end()


def test_the_broker_waits_for_a_puller_and_keeps_the_next_messages() -> None:
    world = QueueWorld([options()], MemoryStore(pages=True))
    for _ in range(2 * KEPT_MESSAGES + 10):
        world.publish("a/b", "x", 1)
    reads = []
    for _ in range(3):
        pulled = world.queues.pull("q", KEPT_MESSAGES)
        world.queues.ack("q", [each.ack_id for each in pulled])
        world.settle()
        reads.append(len(pulled))
    assert reads == [KEPT_MESSAGES, KEPT_MESSAGES, 10]
    for _ in range(2 * KEPT_MESSAGES):
        world.publish("a/b", "x", 1)
    world.queues.pull("q", 0)
    world.settle()
    assert len(world.queues.peek("q", 1_000)) == 2 * KEPT_MESSAGES
    world.advance(PULLERS_STAY_S + 1)
    assert len(world.queues.peek("q", 1_000)) == KEPT_MESSAGES
    world.end()
