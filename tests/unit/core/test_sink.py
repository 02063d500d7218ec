"""A receiver that is no session: one class and one call of `bind`."""

import pytest

from mqttlite.core.message import Message, PublishBatch, RawProperties
from mqttlite.core.route.route import Route
from mqttlite.core.route.tally import QUEUED, Tally
from mqttlite.core.source import CLIENT, PROGRAM, THE_PROGRAM, Source
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.errors import TopicFilterInvalid
from mqttlite.wire.packets import Publish
from tests.support.core_driver import World


class Recorder:
    """A toy sink, such as a queue could be: it keeps every message."""

    def __init__(self) -> None:
        self.messages: list[tuple[bytes, bytes, int]] = []
        self.kinds: list[int] = []

        self.prepared: list[bool] = []
        """What `prepare` answers before it says that all is done."""

    def prepare(self, messages: int) -> bool:
        return self.prepared.pop() if self.prepared else True

    def has_room(self, message: Message, qos: int) -> bool:
        return True

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        self.messages.append((message.topic, message.payload, message.qos))
        self.kinds.append(source.kind)
        tally.count(QUEUED)

    def takes_batches(self, topic: bytes, raw: RawProperties) -> bool:
        return False

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        for at in range(batch.count):
            self.accept(batch.delivery(at, 0).message, source, tally)


def test_a_sink_gets_what_its_filter_matches_beside_the_subscribers() -> None:
    world = World()
    sink = Recorder()
    world.broker.bind(b"a/+", sink)
    reader = world.connect("reader")
    reader.subscribe("a/b", qos=1)
    writer = world.connect("writer")
    writer.publish("a/b", "0", 0)
    writer.publish("a/b", "1", 1)
    writer.publish("a/c", "2", 2)
    writer.publish("b", "3", 1)
    assert world.publish("a/d", "4") == 0
    assert sink.messages == [(b"a/b", b"0", 0), (b"a/b", b"1", 1), (b"a/c", b"2", 2), (b"a/d", b"4", 0)]
    assert sink.kinds == [CLIENT, CLIENT, CLIENT, PROGRAM]
    assert reader.payloads() == ["0", "1"]


@pytest.mark.parametrize("version", [V311, 5])
def test_qos_0_messages_that_came_together_reach_a_sink_each(version: int) -> None:
    world = World()
    sink = Recorder()
    world.broker.bind(b"a", sink)
    writer = world.connect("writer", version)
    writer.send(*[Publish(b"a", payload) for payload in (b"x", b"y", b"z")])
    assert [payload for _topic, payload, _qos in sink.messages] == [b"x", b"y", b"z"]


def test_a_sink_that_was_unbound_gets_nothing_more_although_the_topic_is_known() -> None:
    world = World()
    sink = Recorder()
    world.broker.bind(b"a", sink)
    world.publish("a", "1")
    world.broker.unbind(b"a", sink)
    assert world.publish("a", "2") == 0x10
    assert [payload for _topic, payload, _qos in sink.messages] == [b"1"]


def test_a_sink_has_each_filter_once_and_only_valid_ones() -> None:
    world = World()
    sink = Recorder()
    world.broker.bind(b"a", sink)
    with pytest.raises(ValueError, match="bound to this sink already"):
        world.broker.bind(b"a", sink)
    with pytest.raises(TopicFilterInvalid):
        world.broker.bind(b"a/#/b", sink)
    with pytest.raises(KeyError):
        world.broker.unbind(b"b", sink)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_message_waits_for_a_sink_that_prepares_itself(qos: int) -> None:
    world = World()
    sinks = [Recorder() for _ in range(3)]
    for sink in sinks:
        world.broker.bind(b"a", sink)
    sinks[1].prepared = [False, False]
    writer = world.connect("writer")
    packet = encode(Publish(b"a", b"x", qos, packet_id=qos), V5)
    world.broker.feed(writer.connection, packet, world.now)
    for _ in range(2):
        assert [len(sink.messages) for sink in sinks] == [1, 0, 0]
        world.broker.tick(world.now)
    assert [len(sink.messages) for sink in sinks] == [1, 1, 1]


def test_a_message_that_cannot_wait_does_not() -> None:
    world = World()
    sink = Recorder()
    sink.prepared = [False]
    route = Route([], [sink])
    world.broker.router.publish(Message(b"a", b"x", 0), route, THE_PROGRAM, at_once=True)
    assert len(sink.messages) == 1
