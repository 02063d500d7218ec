"""A queue takes no messages of ephemeral topics: nothing is kept of these."""

import pytest

from mqttlite.core.route.tally import DROPPED
from mqttlite.core.topic_policy import EPHEMERAL, NO_POLICY, TopicPolicy
from mqttlite.core.tracer import NO_SAMPLES
from mqttlite.security.built_in_rules import built_in_rules
from mqttlite.wire.constants import V311
from mqttlite.wire.packets import Ack, Publish
from tests.support.core_driver import Client, publishes
from tests.support.queues import QueueWorld, deliveries, options
from tests.support.recorder import Recorder
from tests.support.rules import OpenRules

WHY = "the topic policy of a/live is ephemeral, and $queue/q would keep it"


class LiveTopics(OpenRules):
    """Topics below `a/live` are ephemeral."""

    def policy_of(self, topic: bytes) -> TopicPolicy:
        return TopicPolicy("a/live", EPHEMERAL) if topic.startswith(b"a/live/") else NO_POLICY


def world_with_live_topics() -> QueueWorld:
    world = QueueWorld([options()])
    world.broker.authorize(built_in_rules(authorizer=LiveTopics()))
    return world


def answers(client: Client) -> list[tuple[int, str | None]]:
    return [(each.reason_code, each.properties.reason_string) for each in client.received() if isinstance(each, Ack)]


def test_a_queue_refuses_a_message_of_an_ephemeral_topic_and_says_why() -> None:
    world = world_with_live_topics()
    reader, consumer, publisher = world.connect("r"), world.connect("c"), world.connect("p")
    reader.subscribe("a/#", qos=1)
    consumer.subscribe("$queue/q", qos=1)
    changes = len(world.changes)
    publisher.publish("a/live/1", "x", 1)
    assert answers(publisher) == [(0x83, WHY)]
    assert [(each.payload, each.qos) for each in publishes(reader.received())] == [(b"x", 0)]
    assert (consumer.received(), world.queues.state("q").depth, world.queues.state("q").refused) == ([], 0, 1)
    assert world.changes[changes:] == []
    publisher.publish("a/kept", "y", 1)
    assert answers(publisher) == [(0, None)]
    assert deliveries(consumer.received()) == [("y", 1)]
    world.end()


def test_a_3_1_1_publisher_gets_an_acknowledgement() -> None:
    world = world_with_live_topics()
    publisher = world.connect("p", V311)
    publisher.publish("a/live/1", "x", 1)
    assert answers(publisher) == [(0, None)]
    assert (world.queues.state("q").depth, world.queues.state("q").refused) == (0, 1)
    world.end()


@pytest.mark.parametrize("one_in", [NO_SAMPLES, 2])
def test_qos_0_messages_that_come_together_are_each_counted(one_in: int) -> None:
    world = world_with_live_topics()
    recorder = Recorder(one_in=one_in)
    world.broker.watch(recorder)
    world.connect("p").send(*[Publish(b"a/live/1", b"x", 0)] * 5)
    assert (world.queues.state("q").depth, world.queues.state("q").refused) == (0, 5)
    assert recorder.drops == {("$queue/q", "not_authorized"): 5}
    assert set(recorder.details) == {("a/live/1", WHY)}
    world.end()


def test_the_refusal_is_foretold() -> None:
    world = world_with_live_topics()
    plan = world.broker.planner.publish("p", None, b"a/live/1", b"x", 1, False)
    (planned,) = plan.receivers
    assert (planned.sink, planned.outcome, planned.reason) == ("$queue/q", DROPPED, "not_authorized")
    assert planned.detail == WHY
    assert world.queues.state("q").refused == 0
    world.end()


def test_messages_queued_before_their_topic_was_made_ephemeral_stay() -> None:
    world = QueueWorld([options()])
    world.publish("a/live/1", "x", 1)
    world.broker.authorize(built_in_rules(authorizer=LiveTopics()))
    world.publish("a/live/1", "y", 1)
    consumer = world.connect("c")
    consumer.subscribe("$queue/q", qos=1)
    assert deliveries(consumer.received()) == [("x", 1)]
    world.end()
