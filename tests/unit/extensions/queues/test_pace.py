"""A queue with `max_rate` delivers at that rate, to consumers and pulls together."""

import pytest

from mqttlite.extensions.queues.pace import Pace
from tests.support.core_driver import publishes
from tests.support.queues import QueueWorld, options


@pytest.mark.parametrize("rate", [0.5, 20.0, pytest.param(3_000.0, marks=pytest.mark.slow)])
def test_a_backlog_is_delivered_at_the_rate(rate: float) -> None:
    world = QueueWorld([options(max_rate=rate)])
    consumer = world.connect("c")
    consumer.subscribe("$queue/q", qos=1)
    seconds = max(2.0, 10 / rate)
    for number in range(int(rate * seconds * 2) + 10):
        world.publish("a", str(number), 1)
    begun = world.now
    while world.now < begun + seconds:
        world.advance(0.005)
    delivered = len(publishes(consumer.received()))
    assert abs(delivered - rate * seconds) <= rate * 0.1 + 2


def test_pulls_count_and_another_rate_holds_at_once() -> None:
    world = QueueWorld([options(max_rate=10.0)])
    for number in range(100):
        world.publish("a", str(number), 1)
    assert len(world.queues.pull("q", 50)) == 1
    world.advance(5)
    assert len(world.queues.pull("q", 50)) == 1
    world.queues.change(options())
    assert len(world.queues.pull("q", 100)) == 98


def test_a_rate_that_is_not_allowed() -> None:
    for rate in (-1.0, 0.0001, 1e7, float("nan")):
        with pytest.raises(ValueError, match="max_rate is"):
            options(max_rate=rate)


def test_a_pace_says_when_to_look_again() -> None:
    pace = Pace(2.0, 5.0)
    assert pace.is_open(5.0)
    pace.spend()
    assert not pace.is_open(5.0)
    assert pace.next_at() == 5.5
    assert pace.is_open(5.5)
