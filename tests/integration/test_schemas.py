"""Topics with schemas over real sockets: what a publisher is told, what arrives, and what outlives the process."""

from pathlib import Path

import pytest

from mqttlite.config import Config, ConfigError, ListenerOptions
from mqttlite.extensions.queues.options import QueueOptions
from mqttlite.extensions.schemas.registry import Schema
from mqttlite.extensions.schemas.service import FILE_NAME
from mqttlite.security.topic_policies import TopicPolicyOptions
from mqttlite.server import Broker
from mqttlite.wire.constants import PUBACK, V5, V311
from mqttlite.wire.packets import Ack, Publish, Will
from mqttlite.wire.properties import Properties
from tests.integration.conftest import Rig
from tests.support.inside import core_of

ORDER = Schema("JSON", '{"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}')
REASON = '$.total: "x" is not of type "number" (type), by the schema orders:1'


def config(**options: object) -> Config:
    policies = (
        TopicPolicyOptions(prefix="orders", schema="orders"),
        TopicPolicyOptions(prefix="drafts", schema="orders", schema_violation="count"),
    )
    return Config(listeners=(ListenerOptions(port=0),), topic_policies=policies, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [V311, V5])
async def test_only_messages_that_the_schema_allows_arrive(rig: Rig, version: int) -> None:
    broker = await rig.broker(config())
    await broker.schemas.register("orders", ORDER)
    reader = await rig.device(broker.port, "r")
    await reader.subscribe("#", 1)
    device = await rig.device(broker.port, "d", version)
    assert await device.published("orders/1", b'{"total": "x"}') == (0x99 if version == V5 else 0)
    device.publish("orders/1", b"no JSON")
    assert await device.published("drafts/1", b'{"total": "x"}') == 0
    assert await device.published("orders/1", b'{"total": 1}') == 0
    assert [await reader.message() for _ in range(2)] == [
        ("drafts/1", b'{"total": "x"}'),
        ("orders/1", b'{"total": 1}'),
    ]
    assert await broker.publish("orders/1", b"{}", qos=1) == 0x99


async def test_a_publisher_is_told_the_place_and_the_rule(rig: Rig) -> None:
    broker = await rig.broker(config())
    device = await rig.device(broker.port, "d")
    device.publish("orders/1", b"1", 1)
    unregistered = await device.expect(Ack)
    expected = "the topic has the schema orders, which is not registered"
    assert (unregistered.reason_code, unregistered.properties.reason_string) == (0x83, expected)
    await broker.schemas.register("orders", ORDER)
    user_properties = [("schema-id", "orders:1")]
    for qos in (1, 2):
        properties = Properties(user_properties=user_properties, payload_format_indicator=1)
        device.send(Publish(b"orders/1", b'{"total": "x"}', qos, packet_id=qos, properties=properties))
        refused = await device.expect(Ack)
        assert (refused.reason_code, refused.properties.reason_string) == (0x99, REASON)


async def test_schemas_are_in_the_data_directory(rig: Rig, tmp_path: Path) -> None:
    broker = await rig.broker(config(data_dir=str(tmp_path)))
    await broker.schemas.register("orders", ORDER)
    await broker.stop()
    again = await rig.broker(config(data_dir=str(tmp_path)))
    device = await rig.device(again.port, "d")
    assert await device.published("orders/1", b"{}") == 0x99
    assert await device.published("orders/1", b'{"total": 1}') == 0x10


async def test_a_schema_that_is_missing_is_warned_of(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    await rig.broker(config())
    said = "topic_policies: the topic has the schema orders, which is not registered"
    assert caplog.messages.count(said) == 2


async def test_a_spoilt_file_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("{")
    with pytest.raises(ConfigError, match=r"schemas\.json: it is no file of a schema registry"):
        await Broker(config(data_dir=str(tmp_path))).start()


async def test_without_the_extra_a_policy_with_a_schema_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttlite.extensions.schemas.schemas.is_installed", lambda: False)
    with pytest.raises(ConfigError, match=r"topic_policies\[0\]\.schema: schemas need the extra"):
        await Broker(config()).start()


async def test_a_delayed_message_and_a_will_are_checked(rig: Rig) -> None:
    broker = await rig.broker(config())
    await broker.schemas.register("orders", ORDER)
    reader = await rig.device(broker.port, "r")
    await reader.subscribe("orders/#")
    device = await rig.device(broker.port, "d")
    assert await device.published("$delayed/60/orders/1", b"{}") == 0x99
    assert await device.published("$delayed/60/orders/1", b'{"total": 1}') == 0
    for payload in (b"{}", b'{"total": 2}'):
        dying = await rig.device(broker.port, "w", will=Will(b"orders/2", payload))
        dying.drop()
    assert await reader.message() == ("orders/2", b'{"total": 2}')


async def test_an_invalid_message_is_a_dead_letter_of_the_queues_of_its_topic(rig: Rig) -> None:
    """Whichever way it comes; where no queue takes the topic it is refused."""
    policies = (TopicPolicyOptions(filter="#", schema="orders", schema_violation="dead_letter"),)
    queues = (
        QueueOptions(name="jobs", filters=("orders/#",)),
        QueueOptions(name="rich", filters=("orders/#",), filter="payload.total > 1"),
        QueueOptions(name="none", filters=("orders/#",), dead_letter=False),
    )
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0),), topic_policies=policies, queues=queues))
    wrong = b'{"total": "x"}'
    device = await rig.device(broker.port, "d")
    assert await device.published("orders/1", wrong) == 0x83  # no schema is registered: that is no fault of the payload
    await broker.schemas.register("orders", ORDER)
    reader = await rig.device(broker.port, "r")
    for topic_filter in ("orders/#", "$dlq/#"):
        await reader.subscribe(topic_filter, 1)
    assert await device.published("elsewhere", wrong) == 0x99
    device.publish("orders/0", wrong)
    device.send(Publish(b"orders/1", wrong, 1, True, packet_id=7, properties=Properties(user_properties=[("k", "v")])))
    answer = await device.expect(Ack)
    assert (answer.reason_code, answer.properties.reason_string) == (0, REASON)
    assert await device.published("orders/2", wrong, 2) == 0
    assert await device.published("$delayed/60/orders/3", wrong) == 0
    dying = await rig.device(broker.port, "w", will=Will(b"orders/4", wrong))
    dying.drop()
    found: list[tuple[str, str | None, str | None, str | None]] = []
    while len(found) < 5:
        packet = await reader.expect(Publish)
        told = dict(packet.properties.user_properties)
        assert (packet.topic, packet.payload) == (b"$dlq/jobs", wrong)
        found.append((told["original-topic"], told.get("k"), told["dead-letter-cause"], told["dead-letter-detail"]))
        reader.send(Ack(PUBACK, packet.packet_id))
    assert sorted(found) == [
        (f"orders/{number}", "v" if number == 1 else None, "schema_invalid", REASON) for number in range(5)
    ]
    assert [kept.message.payload for kept in core_of(broker).router.retained.search(b"#").take(1)] == []
