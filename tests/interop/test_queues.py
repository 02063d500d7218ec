"""Every client as a consumer of a queue, by topic and QoS alone: paho, aiomqtt, gmqtt, MQTT.js, mosquitto_sub."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from mqttlite.extensions.queues.options import QueueOptions
from tests.interop.peers import KINDS, Agent, Kind, Message, MqttJsPeer, PahoPeer
from tests.interop.support import READY, V5, V311, Line, MosquittoSub, Paho, RunningBroker, eventually, published

VERSIONS = pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])


@pytest.fixture
def broker(certificate_files: Path) -> Iterator[RunningBroker]:
    with RunningBroker(certificate_files, queues=(QueueOptions(name="jobs", filters=("work/#",)),)) as running:
        yield running


@pytest.fixture(autouse=True)
def _ready(broker: RunningBroker) -> None:
    published(broker.tcp, "-t", READY, "-m", "1", "-r")


def ends(broker: RunningBroker) -> dict[str, int]:
    async def look() -> dict[str, int]:
        return broker.broker.queues.state("jobs").ends

    return broker.do(look())


@VERSIONS
def test_mosquitto_sub_gets_each_message_and_acknowledges_it(broker: RunningBroker, line: Line, version: str) -> None:
    for number in range(5):
        published(line, "-t", "work/a", "-m", str(number), "-q", str(number % 3), "-V", version)
    with MosquittoSub(line, "$queue/jobs", "-q", "1", "-V", version, format="%t %p") as reader:
        assert reader.take(5) == [f"work/a {number}" for number in range(5)]
    eventually(lambda: ends(broker)["acknowledged"] == 5)


def test_two_consumers_share_a_queue(broker: RunningBroker, line: Line) -> None:
    with MosquittoSub(line, "$queue/jobs", "-q", "1") as first, Paho(line, "second", V5) as second:
        second.subscribe("$queue/jobs", 1)
        for number in range(10):
            published(line, "-t", "work/a", "-m", str(number), "-q", "1")
        taken = first.take(5) + [second.next().payload.decode() for _ in range(5)]
    assert sorted(taken) == [str(number) for number in range(10)]


@pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5.0"])
def test_messages_that_paho_has_not_acknowledged_go_to_another_consumer(
    broker: RunningBroker, line: Line, version: MQTTProtocolVersion
) -> None:
    with Paho(line, "first", version) as first:
        first.client.manual_ack_set(True)
        first.subscribe("$queue/jobs", 1)
        published(line, "-t", "work/a", "-m", "x", "-q", "1")
        message = first.next()
        assert (message.topic, message.payload) == ("work/a", b"x")
    with MosquittoSub(line, "$queue/jobs", "-q", "1", "-V", "mqttv5", format="%p %P") as second:
        assert "delivery-attempt:2" in second.next()
    eventually(lambda: ends(broker)["acknowledged"] == 1)


@pytest.fixture
def _node(agent: Agent) -> None:
    MqttJsPeer.agent = agent


@pytest.mark.usefixtures("_node")
@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_any_client_consumes_and_acknowledges_by_topic_and_qos_alone(broker: RunningBroker, kind: Kind) -> None:
    async with PahoPeer(broker.tcp, "far") as far, kind.make(broker.tcp, "near") as near:
        await far.publish(Message(topic="work/before", payload=b"0", qos=1))
        await near.subscribe("$queue/jobs", qos=1)
        for number in range(1, 10):
            await far.publish(Message(topic="work/a", payload=b"%d" % number, qos=number % 3))
        messages = [await near.next() for _ in range(10)]
    assert [each.payload for each in messages] == [b"%d" % number for number in range(10)]
    assert [each.topic for each in messages] == ["work/before", *["work/a"] * 9]
    assert all(each.qos == 1 for each in messages)
    if kind.version == "5.0" and kind.library != "mosquitto":
        said = dict(messages[-1].user_properties)
        assert (said["delivery-attempt"], sorted(said)) == (
            "1",
            ["ack-id", "delivery-attempt", "message-id", "publish-time"],
        )
    eventually(lambda: ends(broker)["acknowledged"] == 10)


@pytest.mark.usefixtures("_node")
async def test_clients_of_all_kinds_share_a_queue(broker: RunningBroker) -> None:
    count = 200
    peers = [kind.make(broker.tcp, f"{kind}") for kind in KINDS]
    async with AsyncExitStack() as stack:
        far = await stack.enter_async_context(PahoPeer(broker.tcp, "far"))
        for peer in peers:
            await stack.enter_async_context(peer)
            await peer.subscribe("$queue/jobs", qos=1)
        for number in range(count):
            await far.publish(Message(topic="work/a", payload=b"%d" % number, qos=1))
        eventually(lambda: ends(broker)["acknowledged"] == count)
    got = [peer.rest() for peer in peers]
    assert sorted(int(each) for of_one in got for each in of_one) == list(range(count)), "each message comes once"
    assert all(got), "each client has its share"
