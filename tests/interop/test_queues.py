"""mosquitto_sub and paho as consumers of a queue."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from mqttlite.delivery.queues.options import QueueOptions
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
def test_what_paho_has_not_acknowledged_goes_to_another_consumer(
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
