"""What metrics and `$SYS` say of queues."""

from dataclasses import fields
from typing import Any

from mqttlite.extensions.queues.figures import MAX_PUBLISHED, QueueFigures, sys_values
from mqttlite.extensions.queues.managed import QueueState
from mqttlite.extensions.queues.manifest import MANIFEST
from tests.support.core_driver import publishes
from tests.support.queues import QueueWorld, ack, consumer, options


def state(**given: Any) -> QueueState:
    empty: dict[str, Any] = {each.name: 0 for each in fields(QueueState)}
    return QueueState(**{**empty, "name": "jobs", "ends": {}, "failures": {}, "dead_letter_causes": {}, **given})


def test_sys_topics_tell_of_each_queue() -> None:
    jobs = state(depth=7, leased=3, redeliveries=4, dead_letters=1, dead_letter_causes={"nacked": 2})
    told = dict(sys_values(jobs, -0.5))
    assert told["queues/jobs/lag"] == "4"
    assert told["queues/jobs/growth"] == "-0.50"
    assert told["queues/jobs/redeliveries"] == "4"
    assert (told["queues/jobs/dead_letters"], told["queues/jobs/dead_letters/nacked"]) == ("1", "2")


def test_metrics_and_sys_topics_tell_of_the_first_queues_by_name() -> None:
    world = QueueWorld([options(f"q{number:03d}") for number in range(MAX_PUBLISHED + 5)])
    figures = QueueFigures(world.queues, lambda: world.now)
    assert len({name.split("/")[1] for name, _ in figures.sys_values()}) == MAX_PUBLISHED
    values = figures.values()
    assert values.keys() == {each.name for each in MANIFEST.figures}
    assert len(values["queue_depth"]) == MAX_PUBLISHED + 5  # type: ignore[arg-type]


def test_metrics_tell_what_is_in_a_queue_and_what_became_of_its_messages() -> None:
    world = QueueWorld([options()])
    figures = QueueFigures(world.queues, lambda: world.now)
    client = consumer(world)
    world.publish("a/b", "one", qos=1)
    (packet,) = publishes(client.received())
    ack(client, packet)
    values = figures.values()
    assert values["queue_published"] == [({"queue": "q"}, 1)]
    assert values["queue_depth"] == [({"queue": "q"}, 0)]
    assert ({"queue": "q", "end": "acknowledged"}, 1) in values["queue_ended"]  # type: ignore[operator]
