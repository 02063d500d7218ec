"""Which subscriptions match a topic, among a thousand, a hundred thousand and a million of them.

A match must not cost more for what does not match. So trees of all sizes are asked the same kinds of topics, a
thousand in a round: spread over the tree, where the processor's caches make more memory slower, and `hot`, the same few
again and again, where nothing at all may grow. The million takes some ten seconds to build and half a gigabyte:
`-k "not 1M"` leaves it out.
"""

import gc
import itertools
import random
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Final

import pygtrie
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.micro.allocations import allocations
from bench.micro.conftest import Note
from bench.micro.filters import ASKED, BATCH, Tree, asking, mixed, topics
from bench.micro.timing import NS, US, in_rounds, quickest
from mqttlite.core.route.subscription import Subscription
from mqttlite.topics.tree import SubscriptionTree

SIZES: Final = {"1k": 1_000, "100k": 100_000, "1M": 1_000_000}


class Filled:
    """A tree of so many subscriptions, and what they weigh."""

    def __init__(self, size: int, topic_filter: Callable[[int], bytes]) -> None:
        self.size: Final = size
        self.tree: Final[Tree] = SubscriptionTree()
        gc.collect()
        gc.freeze()  # so that the collection below looks at what is made here, and at nothing else
        tracemalloc.start()
        for number in range(size):
            subscription = Subscription("client", topic_filter(number), 0)
            self.tree.add(subscription.topic_filter, subscription)
        self.bytes_each: Final = tracemalloc.get_traced_memory()[0] / size
        tracemalloc.stop()
        began = time.perf_counter()
        gc.collect()
        self.gc_ms: Final = (time.perf_counter() - began) * 1e3
        """A full collection, which looks at all of them: how long the process stands still for one."""
        gc.unfreeze()


@pytest.fixture(scope="module", params=list(SIZES))
def filled(request: pytest.FixtureRequest) -> Filled:
    return Filled(SIZES[request.param], mixed)


@pytest.mark.benchmark(max_time=0.3)
@pytest.mark.parametrize("asked", ASKED)
def test_match(benchmark: BenchmarkFixture, note: Note, filled: Filled, asked: str) -> None:
    benchmark.group = f"match {asked}, {BATCH} topics"
    kinds, topic, expected = ASKED[asked]
    batch = topics(filled.size, kinds, topic)
    if asked == "miss":  # "…/7/#" matches "…/7" too
        batch = [name for name in batch if int(name.rpartition(b"/")[2]) % 10 not in (6, 7)]
    if asked == "hot":
        batch = batch[:4] * (BATCH // 4)
    ask = asking(filled.tree, batch)
    assert benchmark(ask) == expected * len(batch)
    note(ns_per_match=quickest(benchmark, NS, len(batch)), **allocations(partial(filled.tree.match, batch[0])))


@pytest.mark.benchmark(group="add and remove a subscription")
def test_add_and_remove(benchmark: BenchmarkFixture, note: Note, filled: Filled) -> None:
    tree = filled.tree
    new = [Subscription("other", mixed(filled.size + number), 0) for number in range(BATCH)]

    def come_and_go() -> None:
        for subscription in new:
            tree.add(subscription.topic_filter, subscription)
        for subscription in new:
            tree.remove(subscription.topic_filter, subscription)

    in_rounds(benchmark, come_and_go, rounds=20)
    note(bytes_per_subscription=filled.bytes_each, full_gc_ms=filled.gc_ms)


@pytest.mark.benchmark(group="match nothing, at the last level of many filters", max_time=0.3)
@pytest.mark.parametrize("levels", [4, 8, 12])
def test_match_half_way(benchmark: BenchmarkFixture, note: Note, levels: int) -> None:
    """The worst there is: every mix of `a` and `+` down to the last level, where nothing fits."""
    tree: Tree = SubscriptionTree()
    for path in itertools.product((b"a", b"+"), repeat=levels):
        topic_filter = b"/".join((*path, b"+", b"end"))
        tree.add(topic_filter, Subscription("client", topic_filter, 0))
    topic = b"/".join([b"a"] * levels + [b"1", b"other"])
    assert benchmark(tree.match, topic) == []
    note(filters=2**levels, us_per_match=quickest(benchmark, US))


def under(number: int) -> bytes:
    return b"site/%d/device/%d/#" % divmod(number, 1000)


@pytest.mark.benchmark(max_time=0.3)
@pytest.mark.parametrize("size", ["1k", "100k"])
@pytest.mark.parametrize("structure", ["tree", "pygtrie"])
def test_prefix(benchmark: BenchmarkFixture, note: Note, structure: str, size: str) -> None:
    """The plain prefix question, all filters ending in `#`: the one that a common trie answers as well."""
    count = SIZES[size]
    benchmark.group = f"prefixes among {size}, {BATCH} topics"
    names = [b"site/%d/device/%d/temp" % divmod(random.Random(n).randrange(count), 1000) for n in range(BATCH)]
    if structure == "tree":
        filled = Filled(count, under)
        ask, bytes_each = asking(filled.tree, names), filled.bytes_each
    else:
        ask, bytes_each = prefixes_in_pygtrie(count, names)
    assert benchmark(ask) == BATCH
    note(ns_per_match=quickest(benchmark, NS, BATCH), bytes_per_subscription=bytes_each)


def prefixes_in_pygtrie(count: int, names: list[bytes]) -> tuple[Callable[[], int], float]:
    """The same question, and bytes for each subscription."""
    trie = pygtrie.Trie()
    gc.collect()
    tracemalloc.start()
    for number in range(count):
        subscription = Subscription("client", under(number), 0)
        trie[subscription.topic_filter.split(b"/")[:-1]] = subscription
    bytes_each = tracemalloc.get_traced_memory()[0] / count
    tracemalloc.stop()

    def ask() -> int:
        found = 0
        for name in names:
            found += len([step.value for step in trie.prefixes(name.split(b"/"))])
        return found

    return ask, bytes_each
