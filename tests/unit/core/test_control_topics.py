"""`$CONTROL` topics are for the sink bound to them, and for nobody else."""

import pytest

from mqttlite.core.drops import Drops
from mqttlite.core.message import Message, PublishBatch, RawProperties
from mqttlite.core.reasons import NO_SUBSCRIBERS
from mqttlite.core.route.tally import Tally
from mqttlite.core.source import Source
from mqttlite.wire.constants import PUBACK, V5, V311
from mqttlite.wire.errors import TopicNameInvalid
from mqttlite.wire.packets import Ack, Publish
from mqttlite.wire.properties import Properties
from tests.support.core_driver import World

REASON = "$CONTROL/…: nothing answers there; dynamic_security in the configuration turns its commands on"
TOPIC = "$CONTROL/it/v1"


class Recorder:
    """A sink that notes who sent what."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, bytes]] = []

    def prepare(self, messages: int) -> bool:
        return True

    def has_room(self, message: Message, qos: int) -> bool:
        return True

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        self.heard.append((source.client_id, message.payload))

    def takes_batches(self, topic: bytes, raw: RawProperties) -> bool:
        return False

    def accept_batch(self, batch: PublishBatch, source: Source, tally: Tally) -> None:
        self.heard += [(source.client_id, batch.payload(number)) for number in range(batch.count)]


def drops(world: World) -> Drops:
    return world.broker.router.drops


@pytest.mark.parametrize("topic", ["$CONTROL", "$CONTROL/", TOPIC])
def test_without_a_sink_it_is_refused_with_a_reason(topic: str) -> None:
    world = World()
    client = world.connect("c")
    packet_id = client.publish(topic, "x", 1, retain=True)
    assert client.received() == [Ack(PUBACK, packet_id, 0x90, Properties(reason_string=REASON))]
    assert drops(world).by_reason == {NO_SUBSCRIBERS: 1}
    with pytest.raises(TopicNameInvalid, match="nothing answers there"):
        world.broker.publish(topic.encode(), b"x", 0, False, world.now)


def test_the_sink_gets_messages_and_clients_that_subscribe_do_not() -> None:
    world = World()
    sink = Recorder()
    curious, admin = world.connect("curious"), world.connect("admin")
    curious.subscribe("#", "$CONTROL/#", TOPIC)
    world.broker.bind(TOPIC.encode(), sink)
    packet_id = admin.publish(TOPIC, "one", 1, retain=True)
    assert admin.received() == [Ack(PUBACK, packet_id)]
    admin.send(Publish(TOPIC.encode(), b"two"), Publish(TOPIC.encode(), b"six"))
    assert sink.heard == [("admin", b"one"), ("admin", b"two"), ("admin", b"six")]
    assert curious.received() == []
    assert len(world.broker.router.retained) == 0
    packet_id = admin.publish("$CONTROL/other", "x", 1)
    assert admin.received() == [Ack(PUBACK, packet_id, 0x90, Properties(reason_string=REASON))]
    world.broker.unbind(TOPIC.encode(), sink)
    admin.publish(TOPIC, "x")
    assert len(sink.heard) == 3


@pytest.mark.parametrize("version", [V311, V5])
def test_a_message_for_one_client_reaches_it_alone(version: int) -> None:
    world = World()
    one, other = world.connect("one", version), world.connect("other")
    one.subscribe("$CONTROL/+/v1/response")
    other.subscribe("$CONTROL/#")
    assert world.broker.send("one", b"$CONTROL/it/v1/response", b"yes", world.now)
    world.settle()
    assert [packet.payload for packet in one.received() if isinstance(packet, Publish)] == [b"yes"]
    assert other.received() == []
    assert not world.broker.send("one", b"$CONTROL/it/v1", b"no subscription", world.now)
    assert not world.broker.send("nobody", b"$CONTROL/it/v1/response", b"x", world.now)
