"""The core, fed with bytes and emptied of bytes: no socket, no loop, no clock.

What is timed is a whole turn, `Broker.feed` and the taking of what is to be written: all of a message's way but the
kernel's part.
"""

import gc
import time
import tracemalloc
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.micro.allocations import allocations
from bench.micro.conftest import Note
from bench.micro.timing import MS, NS, US, in_rounds, quickest
from bench.micro.world import World
from mqttlite.core.connect.connection import Connection
from mqttlite.core.message import Message
from mqttlite.wire.constants import PUBREL, V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Publish, Subscribe, SubscriptionRequest, Unsubscribe
from mqttlite.wire.properties import Properties

MESSAGES: Final = 1_000
PAYLOAD: Final = b"0123456789abcdef"


def one_topic() -> list[Publish]:
    """A run: alike but for the payload, and forwarded as the bytes in which they came."""
    return [Publish(b"t/0", PAYLOAD)] * MESSAGES


def two_sizes() -> list[Publish]:
    """No two neighbours are of one size."""
    return [Publish(b"t/0", PAYLOAD[: 15 + number % 2]) for number in range(MESSAGES)]


def hundred_topics() -> list[Publish]:
    return [Publish(b"t/%d" % (number % 100), PAYLOAD) for number in range(MESSAGES)]


def new_topics() -> list[Publish]:
    """Each for a topic of its own, and the cache of routes is empty: each is matched."""
    return [Publish(b"t/%d" % number, PAYLOAD) for number in range(MESSAGES)]


def properties() -> list[Publish]:
    """Each with a property, which takes it off the short way."""
    return [Publish(b"t/0", PAYLOAD, properties=Properties(content_type="text/plain"))] * MESSAGES


TRAFFIC: Final = {
    "one-topic": one_topic,
    "two-sizes": two_sizes,
    "hundred-topics": hundred_topics,
    "new-topics": new_topics,
    "properties": properties,
    "v5-to-v311": one_topic,
}


@pytest.mark.benchmark(max_time=0.3)
@pytest.mark.parametrize("traffic", TRAFFIC)
@pytest.mark.parametrize("receivers", [1, 100])
def test_qos_0(benchmark: BenchmarkFixture, note: Note, receivers: int, traffic: str) -> None:
    """A chunk of a thousand messages, to each receiver."""
    benchmark.group = f"{MESSAGES} QoS 0 messages to {receivers}"
    world = World()
    version = V311 if traffic == "v5-to-v311" else V5
    readers = [world.subscriber(f"reader-{number}", b"t/#", version=version) for number in range(receivers)]
    writer = world.connect("writer")
    chunk = b"".join([encode(message, V5) for message in TRAFFIC[traffic]()])
    other = world.connect("other")
    again = encode(Subscribe(1, (SubscriptionRequest(b"#"),)), V5) + encode(Unsubscribe(2, (b"#",)), V5)

    def effects() -> int:
        world.feed(writer, chunk)
        return len(world.effects())

    def forget() -> None:
        """A subscription to everything empties the cache of routes."""
        world.feed(other, again)
        world.effects()

    if traffic == "new-topics":
        written = in_rounds(benchmark, effects, before=forget, rounds=max(5, 100 // receivers))
    else:
        written = benchmark(effects)
    assert written == receivers
    assert readers[0].outbox.sent_qos0 % MESSAGES == 0
    note(ns_per_delivery=quickest(benchmark, NS, MESSAGES * receivers), **allocations(effects, MESSAGES))


@pytest.mark.benchmark(group="100 messages and all their acknowledgements", max_time=0.5)
@pytest.mark.parametrize("durable", [False, True], ids=["clean", "durable"])
@pytest.mark.parametrize("qos", [1, 2])
def test_round_trips(benchmark: BenchmarkFixture, note: Note, qos: int, durable: bool) -> None:
    """Publisher to broker to subscriber and back, to the last PUBACK or PUBCOMP of either side."""
    messages = 100
    world = World()
    keeping = Properties(session_expiry_interval=3600) if durable else Properties()
    reader = world.connect("reader", properties=keeping)
    world.feed(reader, encode(Subscribe(1, (SubscriptionRequest(b"t", qos),)), V5))
    writer = world.connect("writer", properties=keeping)
    world.effects()
    chunk = b"".join([encode(Publish(b"t", PAYLOAD, qos, packet_id=number), V5) for number in range(1, messages + 1)])
    releases = b"".join([encode(Ack(PUBREL, number), V5) for number in range(1, messages + 1)])
    size = len(chunk) // messages
    first = b"\x40\x02" if qos == 1 else b"\x50\x02"
    at = size - len(PAYLOAD) - 3  # the identifier stands before the properties' length, which is 0

    def exchange() -> bytes:
        world.feed(writer, chunk)
        written = world.effects()[reader.number]
        world.feed(reader, b"".join([first + written[n + at : n + at + 2] for n in range(0, size * messages, size)]))
        if qos == 1:
            return b"".join(world.effects().values())
        released = world.effects()[reader.number]
        world.feed(reader, b"".join([b"\x70\x02" + released[n + 2 : n + 4] for n in range(0, len(released), 4)]))
        world.feed(writer, releases)
        return world.effects()[writer.number]

    exchange()
    benchmark(exchange)
    assert reader.session is not None
    assert writer.session is not None
    assert not reader.session.inflight
    assert not reader.session.window.released
    assert not writer.session.received
    note(us_per_message=quickest(benchmark, US, messages), **allocations(exchange, messages))


@pytest.mark.benchmark(group="a retained message in the place of another")
@pytest.mark.parametrize("size", [1_000, 100_000], ids=["1k", "100k"])
def test_retain(benchmark: BenchmarkFixture, note: Note, size: int) -> None:
    """One more must not cost more for those that are kept."""
    world = World()
    for number in range(size):
        world.broker.router.retained.restore(Message(b"state/%d" % number, PAYLOAD, 0, True))
    writer = world.connect("writer")
    frame = encode(Publish(b"state/7", PAYLOAD, retain=True), V5)

    def replace() -> None:
        for _ in range(10):
            world.feed(writer, frame)
        world.effects()

    in_rounds(benchmark, replace, rounds=20)
    note(us_per_message=quickest(benchmark, US, 10), **allocations(replace, 10))


@pytest.mark.benchmark(group="one more subscription beside cached routes")
@pytest.mark.parametrize("shape", ["one-first-level", "many-first-levels"])
@pytest.mark.parametrize("size", [1_000, 100_000], ids=["1k", "100k"])
def test_subscribe(benchmark: BenchmarkFixture, note: Note, size: int, shape: str) -> None:
    """`+/x` matches none of the topics, but a filter that begins with a wildcard may concern any of them."""
    world = World()
    writer = world.connect("writer")
    name = b"t/%d" if shape == "one-first-level" else b"%d/t"
    topics = b"".join([encode(Publish(name % number, PAYLOAD), V5) for number in range(size)])
    other = world.connect("other")
    come = encode(Subscribe(1, (SubscriptionRequest(b"+/x"),)), V5)
    go = encode(Unsubscribe(2, (b"+/x",)), V5)

    def remember() -> None:
        world.feed(other, go)
        world.feed(writer, topics)
        world.effects()

    def subscribe() -> None:
        world.feed(other, come)
        world.effects()

    in_rounds(benchmark, subscribe, before=remember, rounds=3)
    note(ms=quickest(benchmark, MS))


@pytest.mark.benchmark(group="a client with many wildcard filters comes back, beside 1000 cached routes")
@pytest.mark.parametrize("filters", [10, 100, 1000])
def test_reconnect(benchmark: BenchmarkFixture, note: Note, filters: int) -> None:
    """None of its filters matches a cached topic."""
    world = World()
    writer = world.connect("writer")
    topics = b"".join([encode(Publish(b"t/%d" % number, PAYLOAD), V5) for number in range(1000)])
    keeping = Properties(session_expiry_interval=3600)
    requests = tuple(SubscriptionRequest(b"t/+/%d" % number) for number in range(filters))
    first = world.connect("reader", properties=keeping)
    world.feed(first, encode(Subscribe(1, requests), V5))
    world.feed(writer, topics)
    world.effects()

    def take_over() -> None:
        world.connect("reader", properties=keeping)

    in_rounds(benchmark, take_over, rounds=3)
    note(ms=quickest(benchmark, MS))


class Crowd:
    """Connected clients that are alive and say little."""

    def __init__(self, size: int) -> None:
        self.world: Final = World()
        gc.collect()
        gc.freeze()  # so that the collection below looks at what is made here, and at nothing else
        tracemalloc.start()
        self.connections: Final[list[Connection]] = []
        for number in range(size):
            self.connections.append(self.world.connect(f"device-{number}", keep_alive=60))
        self.bytes_each: Final = tracemalloc.get_traced_memory()[0] / size
        tracemalloc.stop()
        began = time.perf_counter()
        gc.collect()
        self.gc_ms: Final = (time.perf_counter() - began) * 1e3
        """A full collection, which looks at all of them: how long the process stands still for one."""
        gc.unfreeze()


@pytest.fixture(scope="module", params=[1_000, 100_000], ids=["1k", "100k"])
def crowd(request: pytest.FixtureRequest) -> Crowd:
    return Crowd(request.param)


@pytest.mark.benchmark(group="tick, nothing due", max_time=0.2)
def test_tick_with_nothing_due(benchmark: BenchmarkFixture, note: Note, crowd: Crowd) -> None:
    due = benchmark(crowd.world.broker.tick, crowd.world.now)
    assert due > crowd.world.now
    note(bytes_per_client=crowd.bytes_each, full_gc_ms=crowd.gc_ms)


@pytest.mark.benchmark(group="tick, keep-alives of all due at once")
def test_tick_with_all_due(benchmark: BenchmarkFixture, note: Note, crowd: Crowd) -> None:
    """All connected in the same moment, and have spoken since: each deadline is put off."""
    world = crowd.world

    def speak() -> None:
        for connection in crowd.connections:
            connection.last_heard = world.now + 45
        world.now += 90

    def tick() -> float | None:
        return world.broker.tick(world.now)

    assert in_rounds(benchmark, tick, before=speak, rounds=5) is not None
    assert len(world.broker.connections) == len(crowd.connections)
    clients = len(crowd.connections)

    def speak_and_tick() -> None:
        speak()
        tick()

    note(ns_per_client=quickest(benchmark, NS, clients), **allocations(speak_and_tick, clients))
