"""Filters on subscriptions: what one evaluation takes, and a message to ten thousand subscribers with filters.

The filters are closures of ordinary Python in both builds; the fan-out around them is the core.
"""

from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.micro.conftest import Note
from bench.micro.timing import MS, NS, in_rounds, quickest
from bench.micro.world import START, World
from mqttlite.filters import Fields, Filter, Filters
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Publish, Subscribe, SubscriptionRequest
from mqttlite.wire.properties import Properties

EVALUATIONS: Final = 1_000
SUBSCRIBERS: Final = 10_000

EXPRESSIONS: Final = {
    "equal": 'attributes.region = "us"',
    "two": 'attributes.region = "us" AND attributes.country = "US"',
    "exists": "attributes:region",
    "prefix": 'hasPrefix(attributes.region, "u")',
    "number": "attributes.priority > 2",
    "payload": "payload.order.total > 1000",
    "payload-and-attribute": 'payload.order.total > 1000 AND attributes.country = "US"',
}

MESSAGE: Final = Fields(
    b"orders/new",
    b'{"order": {"total": 1200, "items": [{"sku": "a-1"}]}}',
    properties=Properties(user_properties=[("priority", "3"), ("region", "us"), ("country", "US")]),
)


@pytest.mark.benchmark(max_time=0.3)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_evaluate(benchmark: BenchmarkFixture, note: Note, expression: str) -> None:
    """The payload is decoded already, as it is for all filters but the first."""
    matches = Filter(EXPRESSIONS[expression]).matches

    def work() -> bool:
        for _ in range(EVALUATIONS - 1):
            matches(MESSAGE)
        return matches(MESSAGE)

    assert in_rounds(benchmark, work, rounds=200)
    ns = quickest(benchmark, NS, EVALUATIONS)
    note(ns_each=ns, million_per_s=None if ns is None else 1e3 / ns)


@pytest.mark.benchmark(max_time=0.3)
def test_compile(benchmark: BenchmarkFixture, note: Note) -> None:
    expression = EXPRESSIONS["payload-and-attribute"]
    Filter(expression)  # the parser is made
    in_rounds(benchmark, lambda: Filter(expression), rounds=200)
    note(us_each=quickest(benchmark, MS * 1e3))


@pytest.mark.parametrize("distinct", [0, 1, 100, 10_000])
def test_one_message_to_ten_thousand(benchmark: BenchmarkFixture, note: Note, distinct: int) -> None:
    """So many distinct filters, all of which let it pass; 0 are none. Until all have it in their outboxes."""
    world = World(filters=Filters())
    for number in range(SUBSCRIBERS):
        client = world.connect(f"c{number}")
        expression = f'attributes.region = "us" AND payload.n != {number % distinct}' if distinct else ""
        properties = Properties(user_properties=[("filter", expression)])
        world.feed(client, encode(Subscribe(1, (SubscriptionRequest(b"t"),), properties), V5))
        world.effects()
    writer = world.connect("writer")
    us = Properties(user_properties=[("region", "us")])
    packets = [encode(Publish(b"t", b'{"n": -%d}' % number, properties=us), V5) for number in range(1, 20)]

    def work() -> int:
        world.feed(writer, packets.pop())
        written = world.effects()
        while len(world.broker.jobs):
            world.broker.tick(START)
            written.update(world.effects())
        return len(written)

    assert in_rounds(benchmark, work, rounds=5) == SUBSCRIBERS
    note(ms_to_the_last=quickest(benchmark, MS))
