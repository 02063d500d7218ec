"""Quotas over real sockets: a link that is over its rate is not read, its neighbours are, and nothing is lost."""

import asyncio
import time
from pathlib import Path

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.config.quotas import QuotaOptions
from mqttlite.core.reasons import HoldReason
from mqttlite.server import Broker
from mqttlite.wire.constants import PUBACK
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Ack, Pingreq, Pingresp, Publish
from mqttlite.wire.properties import Properties
from mqttlite.wire.reason_codes import ReasonCode
from tests.integration.conftest import Rig
from tests.support.device import Device, until
from tests.support.inside import core_of


async def serve(rig: Rig, **options: object) -> Broker:
    quotas = QuotaOptions(**options)  # type: ignore[arg-type]
    return await rig.broker(Config(listeners=(ListenerOptions(port=0, name="door"),), quotas=quotas))


@pytest.mark.long
async def test_a_flooding_client_is_slowed_down_and_loses_nothing(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    broker = await serve(rig, messages_per_s=1_000, burst_s=0.1)
    receiver = await rig.device(broker.port, "receiver")
    await receiver.subscribe("flood")
    flooder = await rig.device(broker.port, "flooder")
    neighbour = await rig.device(broker.port, "neighbour")
    started = time.monotonic()
    flooder.send(*[Publish(b"flood", b"%04d" % number) for number in range(500)])
    connections = core_of(broker).connections.values()
    await until(lambda: any(each.hold_reasons & HoldReason.RATE for each in connections))
    assert [each.client_id for each in connections if each.hold_reasons & HoldReason.RATE] == ["flooder"]
    assert broker.listeners[0].throttled == {"client": 1}
    await neighbour.ping()
    flooder.send(Pingreq())
    await flooder.expect(Pingresp)
    assert time.monotonic() - started >= 0.35, "500 messages, less the burst of 100, take 0.4 s"
    assert [(await receiver.expect(Publish)).payload for _ in range(500)] == [b"%04d" % at for at in range(500)]
    assert [text for text in caplog.messages if "sends more than the quota of its client allows" in text]


async def test_where_it_is_so_set_the_flooding_client_is_disconnected(rig: Rig) -> None:
    broker = await serve(rig, messages_per_s=100, on_rate="disconnect")
    flooder = await rig.device(broker.port, "flooder")
    flooder.send_bytes(encode(Publish(b"flood", b"x"), 5) * 500)
    assert await flooder.goodbye() == ReasonCode.MESSAGE_RATE_TOO_HIGH


@pytest.mark.long
async def test_a_client_is_sent_no_more_than_its_rate(rig: Rig) -> None:
    broker = await serve(rig, to_client_messages_per_s=200, burst_s=0.1)
    receiver = await rig.device(broker.port, "receiver")
    await receiver.subscribe("much", qos=1)
    publisher = await rig.device(broker.port, "publisher")
    started = time.monotonic()
    for number in range(100):
        assert await publisher.published("much", b"%02d" % number) == 0
    for number in range(100):
        message = await receiver.expect(Publish)
        assert message.payload == b"%02d" % number
        receiver.send(Ack(PUBACK, message.packet_id))
    assert time.monotonic() - started >= 0.3, "100 messages, less the burst of 20, take 0.4 s"


async def test_a_listener_with_quotas_of_its_own_has_not_those_of_all(rig: Rig) -> None:
    listeners = (
        ListenerOptions(port=0, name="free", quotas=QuotaOptions()),
        ListenerOptions(port=0, name="strict"),
    )
    broker = await rig.broker(Config(listeners=listeners, quotas=QuotaOptions(messages_per_s=10, burst_s=0.1)))
    free, strict = broker.listeners
    for listener in (free, strict):
        device = await rig.device(listener.port, listener.name)
        device.send(*[Publish(b"t", b"x")] * 5)
    await until(lambda: strict.throttled == {"client": 1})
    assert free.throttled == {}


@pytest.mark.long
async def test_a_held_client_that_hangs_up_leaves_nothing_behind(rig: Rig) -> None:
    broker = await serve(rig, messages_per_s=20, burst_s=0.1)
    flooder = await rig.device(broker.port, "flooder")
    flooder.send_bytes(encode(Publish(b"flood", b"x"), 5) * 20)
    await until(lambda: broker.listeners[0].throttled.get("client", 0) > 0)
    await flooder.close()
    await asyncio.sleep(0)
    await until(lambda: broker.listeners[0].open == 0)


@pytest.mark.long
async def test_the_total_of_all_sessions_is_limited_also_after_a_restart(rig: Rig, tmp_path: Path) -> None:
    config = Config(
        listeners=(ListenerOptions(port=0),),
        data_dir=str(tmp_path),
        quotas=QuotaOptions(user_subscriptions=3, user_queued_bytes=2_000),
    )
    async with Broker(config) as broker:
        device = await Device.dial(broker.port)
        properties = Properties(session_expiry_interval=1_000)
        await device.connect("one", username="ann", properties=properties)
        assert [await device.subscribe(topic, qos=1) for topic in ("a", "b", "c")] == [b"\x01"] * 3
        await device.close()
        publisher = await Device.dial(broker.port)
        await publisher.connect("p")
        codes = [await publisher.published("a", b"x" * 100) for _ in range(6)]
        assert codes == [0] * 4 + [ReasonCode.QUOTA_EXCEEDED] * 2
        await publisher.close()
    broker = await rig.broker(config)
    core = core_of(broker)
    other = await rig.device(broker.port, "other", username="ann")
    assert await other.subscribe("d") == bytes([ReasonCode.QUOTA_EXCEEDED])
    publisher = await rig.device(broker.port, "p")
    assert await publisher.published("a", b"x" * 100) == ReasonCode.QUOTA_EXCEEDED
    assert core.throttling.refused == {"user_queued_bytes": 1, "user_subscriptions": 1}
    device = await rig.device(broker.port, "one", username="ann", clean_start=False, properties=properties)
    for _ in range(4):
        device.send(Ack(PUBACK, (await device.expect(Publish)).packet_id))
    assert await publisher.published("b", b"x" * 1_000) == 0
