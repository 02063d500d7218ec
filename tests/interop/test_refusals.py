"""Consumers whose library sends PUBACK by itself: their refusals hold, with a backlog and with explicit queues."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiomqtt
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from mqttlite.extensions.queues.managed import QueueState
from mqttlite.extensions.queues.options import QueueOptions, RetryOptions
from tests.interop.support import READY, V5, V311, MosquittoSub, RunningBroker, eventually, published

MESSAGES = 200
RETRY = RetryOptions(min_s=600, max_s=600)
QUEUES = (
    QueueOptions(name="jobs", filters=("work/#",), retry=RETRY),
    QueueOptions(name="pictures", filters=("pictures/#",), retry=RETRY, ack="explicit"),
)


@pytest.fixture
def broker(certificate_files: Path) -> Iterator[RunningBroker]:
    with RunningBroker(certificate_files, queues=QUEUES) as running:
        published(running.tcp, "-t", READY, "-m", "1", "-r")
        yield running


def state(broker: RunningBroker, queue: str) -> QueueState:
    async def look() -> QueueState:
        return broker.broker.queues.state(queue)

    return broker.do(look())


def publish_backlog(broker: RunningBroker, topic: str) -> None:
    async def publish() -> None:
        for number in range(MESSAGES):
            await broker.broker.publish(topic, str(number), qos=1)

    broker.do(publish())


@pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5.0"])
def test_refusals_in_the_callback_of_paho_are_not_acknowledged(
    broker: RunningBroker, version: MQTTProtocolVersion
) -> None:
    """As docs/howto/queues.md writes it."""
    publish_backlog(broker, "work/a")

    def on_message(client: paho.Client, _userdata: Any, message: paho.MQTTMessage) -> None:
        client.publish("$queue/jobs/$nack", f"{message.mid} 30", qos=0)

    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=version)
    client.on_message = on_message
    client.connect("127.0.0.1", broker.tcp.port)
    client.loop_start()
    try:
        client.subscribe("$queue/jobs", qos=1)
        eventually(lambda: state(broker, "jobs").failures["nacked"] == MESSAGES)
        found = state(broker, "jobs")
    finally:
        client.disconnect()
        client.loop_stop()
    assert (found.ends["acknowledged"], found.depth, found.nacked_late) == (0, MESSAGES, 0)


@pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5.0"])
def test_with_explicit_acknowledgement_paho_may_answer_later_and_at_qos_1(
    broker: RunningBroker, version: MQTTProtocolVersion
) -> None:
    """paho sends its PUBACK at once, and holds these publishes back."""
    publish_backlog(broker, "pictures/a")
    work: list[tuple[int, int]] = []
    has_work = threading.Condition()

    def on_message(_client: paho.Client, _userdata: Any, message: paho.MQTTMessage) -> None:
        with has_work:
            work.append((message.mid, int(message.payload)))
            has_work.notify()

    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=version)
    client.on_message = on_message
    client.connect("127.0.0.1", broker.tcp.port)
    client.loop_start()
    counts: Counter[str] = Counter()
    try:
        client.subscribe("$queue/pictures", qos=1)
        for _ in range(MESSAGES):
            with has_work:
                assert has_work.wait_for(lambda: bool(work), timeout=30)
                mid, number = work.pop(0)
            action = "$nack" if number % 2 else "$ack"
            counts[action] += 1
            client.publish(f"$queue/pictures/{action}", str(mid), qos=1)
        eventually(lambda: state(broker, "pictures").failures["nacked"] == counts["$nack"])
        eventually(lambda: state(broker, "pictures").ends["acknowledged"] == counts["$ack"])
        found = state(broker, "pictures")
    finally:
        client.disconnect()
        client.loop_stop()
    assert (found.depth, found.nacked_late, sum(counts.values())) == (MESSAGES // 2, 0, MESSAGES)


@pytest.mark.parametrize("version", [aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5], ids=["3.1.1", "5.0"])
async def test_with_explicit_acknowledgement_aiomqtt_refuses_after_its_puback(
    broker: RunningBroker, version: aiomqtt.ProtocolVersion
) -> None:
    await asyncio.to_thread(publish_backlog, broker, "pictures/a")
    async with aiomqtt.Client("127.0.0.1", broker.tcp.port, protocol=version) as client:
        await client.subscribe("$queue/pictures", qos=1)
        left = MESSAGES
        async for message in client.messages:
            await client.publish("$queue/pictures/$nack", str(message.mid), qos=0)
            left -= 1
            if not left:
                break
        await asyncio.to_thread(eventually, lambda: state(broker, "pictures").failures["nacked"] == MESSAGES)
        found = await asyncio.to_thread(state, broker, "pictures")
    assert (found.ends["acknowledged"], found.depth) == (0, MESSAGES)


@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_with_explicit_acknowledgement_mosquitto_sub_acknowledges_nothing_by_itself(
    broker: RunningBroker, version: str
) -> None:
    published(broker.tcp, "-t", "pictures/a", "-m", "x", "-q", "1")
    with MosquittoSub(broker.tcp, "$queue/pictures", "-q", "1", "-V", version, format="%p") as reader:
        assert reader.next() == "x"
        eventually(lambda: state(broker, "pictures").leased == 1)
        assert state(broker, "pictures").ends["acknowledged"] == 0
    eventually(lambda: state(broker, "pictures").failures["disconnected"] == 1)
