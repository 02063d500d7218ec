"""What a thing costs beside a thousand others, and beside a million: `python -m bench scale`.

Each measurement is made at several sizes in one process, without sockets; the quickest of some rounds counts, which
others on the machine disturbed least. `exponent` says how the cost grows with the size.
"""

import gc
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec

from bench.micro.filters import ASKED, Tree, asking, mixed, topics
from bench.micro.world import World
from mqttlite.core.connect.connection import Connection
from mqttlite.core.message import Message
from mqttlite.core.route.subscription import Subscription
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Publish, Subscribe, SubscriptionRequest, Unsubscribe

ROUNDS: Final = 7
PAYLOAD: Final = b"0123456789abcdef"


class Growth(msgspec.Struct, frozen=True, tag="growth"):
    """One thing's cost at several sizes."""

    what: str
    by: str
    sizes: list[int]
    costs_us: list[float]

    @property
    def exponent(self) -> float:
        """The slope of a line through the points on logarithmic axes, by least squares."""
        return fitted(self.sizes, self.costs_us)


def fitted(sizes: Sequence[float], costs: Sequence[float]) -> float:
    xs, ys = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


def verdict(exponent: float) -> str:
    """The same in words."""
    if exponent < 0.12:
        return "flat"
    if exponent < 0.3:
        return "nearly flat"
    if exponent < 0.85:
        return "less than linear"
    return "linear" if exponent <= 1.15 else "more than linear"


def measure(*, most: int = 1_000_000) -> Iterator[Growth]:
    """All there are, with sizes up to `most`."""
    yield from _by_subscriptions([size for size in (1_000, 10_000, 100_000, 1_000_000) if size <= most])
    yield from _by_connections([size for size in (100, 1_000, 5_000, 20_000) if size <= most])
    yield from _by_known_topics([size for size in (100, 1_000, 10_000, 100_000) if size <= most])
    yield _by_receivers([size for size in (1, 10, 100, 1_000, 10_000) if size <= most])
    yield _by_depth([2, 4, 8, 16, 32, 64])
    yield _by_payload([16, 256, 4_096, 65_536, 1_000_000])


def _by_subscriptions(sizes: Sequence[int]) -> Iterator[Growth]:
    matched: dict[str, list[float]] = {asked: [] for asked in ("hot", "exact", "plus-first", "miss-early")}
    added: list[float] = []
    for size in sizes:
        tree = Tree()
        for number in range(size):
            subscription = Subscription("client", mixed(number), 0)
            tree.add(subscription.topic_filter, subscription)
        for asked, costs in matched.items():
            kinds, topic, _expected = ASKED[asked]
            batch = topics(size, kinds, topic)
            batch = batch[:4] * (len(batch) // 4) if asked == "hot" else batch
            costs.append(_quickest(asking(tree, batch), parts=len(batch)))
        new = [Subscription("other", mixed(size + number), 0) for number in range(1_000)]
        added.append(_quickest(_come_and_go(tree, new), parts=len(new)))
    told = {
        "hot": "match, the same four topics again and again",
        "exact": "match, topics from all over the tree",
        "plus-first": "match, found below a leading `+`",
        "miss-early": "match, nothing found",
    }
    for asked, costs in matched.items():
        yield Growth(told[asked], "subscriptions", list(sizes), costs)
    yield Growth("add and remove a subscription", "subscriptions", list(sizes), added)


def _come_and_go(tree: Tree, new: Sequence[Subscription]) -> Callable[[], None]:
    def come_and_go() -> None:
        for subscription in new:
            tree.add(subscription.topic_filter, subscription)
        for subscription in new:
            tree.remove(subscription.topic_filter, subscription)

    return come_and_go


def _by_connections(sizes: Sequence[int]) -> Iterator[Growth]:
    passed: list[float] = []
    ticked: list[float] = []
    came: list[float] = []
    for size in sizes:
        world = World()
        for number in range(size):
            world.connect(f"device-{number}", keep_alive=60)
        passed.append(_quickest(_passing(world, PAYLOAD, messages=200), parts=200))
        ticked.append(_quickest(partial(world.broker.tick, world.now), times=100))
        came.append(_quickest(partial(world.connect, "again"), times=50))
    yield Growth("a QoS 0 message to one subscriber", "connections", list(sizes), passed)
    yield Growth("a look at the deadlines, none due", "connections", list(sizes), ticked)
    yield Growth("a client connects, in its own place", "connections", list(sizes), came)


def _by_known_topics(sizes: Sequence[int]) -> Iterator[Growth]:
    retained: list[float] = []
    subscribed: list[float] = []
    for size in sizes:
        world = World()
        for number in range(size):
            world.broker.router.retained.restore(Message(b"state/%d" % number, PAYLOAD, 0, True))
        writer, other = world.connect("writer"), world.connect("other")
        frame = encode(Publish(b"state/7", PAYLOAD, retain=True), V5)
        retained.append(_quickest(partial(_effects, world, writer, frame), times=20))
        world.feed(writer, b"".join([encode(Publish(b"t/%d" % number, PAYLOAD), V5) for number in range(size)]))
        world.effects()
        come = encode(Subscribe(1, (SubscriptionRequest(b"t/+/x"),)), V5) + encode(Unsubscribe(2, (b"t/+/x",)), V5)
        subscribed.append(_quickest(partial(_effects, world, other, come)))
    yield Growth("a retained message in the place of another", "retained messages", list(sizes), retained)
    yield Growth("a filter with `+` comes and goes, matching none", "topics in use", list(sizes), subscribed)


def _by_receivers(sizes: Sequence[int]) -> Growth:
    costs = []
    for size in sizes:
        world = World()
        for number in range(size):
            world.subscriber(f"reader-{number}", b"t")
        costs.append(_quickest(_passing(world, PAYLOAD, messages=1, topic=b"t")))
    return Growth("a QoS 0 message to all of them", "subscribers", list(sizes), costs)


def _by_depth(sizes: Sequence[int]) -> Growth:
    """One filter, with a `+` in the place of the last level."""
    costs = []
    for size in sizes:
        tree = Tree()
        topic_filter = b"/".join([b"level"] * (size - 1) + [b"+"])
        tree.add(topic_filter, Subscription("client", topic_filter, 0))
        topic = b"/".join([b"level"] * size)
        costs.append(_quickest(partial(tree.match, topic), times=200))
    return Growth("match, found at the last level", "levels of the topic", list(sizes), costs)


def _by_payload(sizes: Sequence[int]) -> Growth:
    costs = []
    for size in sizes:
        world = World()
        count = max(1, 4_096 // size)
        costs.append(_quickest(_passing(world, b"x" * size, messages=count), parts=count))
    return Growth("a QoS 0 message to one subscriber", "bytes of payload", list(sizes), costs)


def _passing(world: World, payload: bytes, *, messages: int, topic: bytes = b"pair/0") -> Callable[[], None]:
    """Messages that differ in length, so that each is looked at and none travels in a run."""
    world.subscriber("the-reader", topic)
    writer = world.connect("the-writer")
    chunk = b"".join([encode(Publish(topic, payload + b"." * (number % 2)), V5) for number in range(messages)])
    return partial(_effects, world, writer, chunk)


def _effects(world: World, connection: Connection, chunk: bytes) -> None:
    world.feed(connection, chunk)
    world.effects()


def _quickest(work: Callable[[], object], *, parts: int = 1, times: int = 1) -> float:
    """Microseconds for one of the parts that the work has, in the quickest round of so many times."""
    work()
    gc.disable()
    best = math.inf
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(times):
            work()
        best = min(best, time.perf_counter() - began)
    gc.enable()
    return best / parts / times * 1e6


def main() -> None:
    """Print the records as JSON Lines, for the process that started this with the build to measure."""
    most = int(sys.argv[1])
    for growth in measure(most=most):
        sys.stdout.buffer.write(msgspec.json.encode(growth) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
