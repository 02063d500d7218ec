"""Overload in a running broker: what is measured reaches the core, and what the core does reaches everybody."""

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.core.limits import Limits
from mqttlite.core.reasons import HoldReason
from mqttlite.extensions.dataset.options import TelemetryOptions
from mqttlite.server import Broker
from mqttlite.telemetry.sys_topics import SysOptions
from mqttlite.wire.constants import PUBACK
from mqttlite.wire.packets import Ack, Connack, Publish, Will
from mqttlite.wire.properties import Properties
from mqttlite.wire.reason_codes import ReasonCode
from tests.integration.conftest import Rig
from tests.support.device import until
from tests.support.inside import core_of

MIB = 1_048_576


@contextmanager
def memory_used(broker: Broker, share: float) -> Iterator[None]:
    """As if so much of the memory were used."""
    memory = core_of(broker).effects.memory
    more = int(memory.limit * share) - memory.used
    memory.used += more
    yield
    memory.used -= more


@pytest.mark.long
async def test_an_overload_is_seen_everywhere(rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "mqttlite")
    config = Config(
        listeners=(ListenerOptions(port=0),),
        limits=Limits(max_memory_bytes=64 * MIB),
        sys=SysOptions(interval_s=0.1),
        telemetry=TelemetryOptions(directory=str(tmp_path / "telemetry"), format="jsonl"),
    )
    broker = await rig.broker(config)
    core = core_of(broker)
    reader = await rig.device(broker.port, "reader")
    await reader.subscribe("t", 1)
    publisher = await rig.device(broker.port, "publisher")
    with memory_used(broker, 0.92):
        await until(lambda: core.overload.stage == 3)
        publisher.publish("t", b"lost")
        assert await publisher.published("t", b"kept") == 0
        assert (await reader.expect(Publish)).payload == b"kept"
        wanted = {"stage": b"3", "load": b"94"}
        found: dict[str, bytes] = {}
        async with asyncio.timeout(60), broker.subscribe("$SYS/broker/overload/+") as messages:
            while not wanted.items() <= found.items():
                message = await anext(messages)
                found[message.topic.rpartition("/")[2]] = bytes(message.payload)
        async with asyncio.timeout(60), broker.subscribe("$SYS/broker/alarms/overload") as messages:
            assert json.loads((await anext(messages)).payload)["active"]
    await until(lambda: core.overload.stage == 0)
    assert core.router.drops.by_reason == {"overload_qos0": 1}
    assert sum("overload, load" in line for line in caplog.messages) == 6
    await broker.stop()
    rows = [
        json.loads(line)
        for file in (tmp_path / "telemetry").rglob("*.jsonl")
        if "table=events" in str(file)
        for line in file.read_text().splitlines()
    ]
    events = [(row["event"], row["numbers"]["stage"]) for row in rows if row["event"].startswith("overload")]
    assert events == [(f"overload_{what}", stage) for what, stages in (("began", (1, 2, 3)), ("ended", (3, 2, 1)))
                      for stage in stages]  # fmt: skip


async def test_a_slowed_link_is_not_read_until_its_time_is_over(rig: Rig) -> None:
    broker = await rig.broker()
    core = core_of(broker)
    device = await rig.device(broker.port, "device")
    connection = next(iter(core.connections.values()))
    core.effects.hold(connection.number, HoldReason.OVERLOAD)
    core.effects.hold(99, HoldReason.OVERLOAD)  # whose link is gone
    await device.ping()
    assert connection.hold_reasons == HoldReason.OVERLOAD
    device.publish("t", b"x")
    other = await rig.device(broker.port, "other")
    await other.ping()
    assert connection.received_qos0 == 0
    core.effects.release(99, HoldReason.OVERLOAD)
    core.effects.release(connection.number, HoldReason.OVERLOAD)
    await other.ping()
    await until(lambda: connection.received_qos0 == 1)
    assert connection.hold_reasons == 0


@pytest.mark.slow
async def test_a_flood_begins_all_stages_in_order_and_loses_nothing_acknowledged(rig: Rig) -> None:
    """Clients that read nothing hold QoS 1 messages until memory is full, and more connect; then they leave."""
    limits = Limits(max_memory_bytes=16 * MIB, max_queued_messages=100_000)
    broker = await rig.broker(limits=limits)
    core = core_of(broker)
    reader = await rig.device(broker.port, "reader")
    await reader.subscribe("kept", 1)
    publisher, polite = await rig.device(broker.port, "publisher"), await rig.device(broker.port, "polite")
    frozen = [await rig.device(broker.port, f"frozen{number}", small_buffers=True) for number in range(40)]
    for number, device in enumerate(frozen):
        await device.subscribe(f"flood/{number}", 1)
    begun: list[int] = []
    answers: set[int] = set()
    published = newcomers = 0
    low = Properties(user_properties=[("priority", "low")])
    async with asyncio.timeout(60):
        while not begun or begun[-1] < 4:
            for number in range(len(frozen)):
                publisher.send(Publish(b"flood/%d" % number, bytes(4_000), 1, packet_id=1))
            if core.effects.memory.used < core.effects.memory.shared:  # else all is used, and 0x97 says so
                answers.add(await polite.published("kept", b"%d" % published))
                message = await reader.expect(Publish)
                assert message.payload == b"%d" % published
                reader.send(Ack(PUBACK, message.packet_id))
                published += 1
            if core.overload.stage > max(begun, default=0):
                begun.append(core.overload.stage)
            if core.overload.stage == 3:
                polite.send(Publish(b"kept", b"low", 1, packet_id=1, properties=low), Publish(b"kept", b"QoS 0"))
                assert (await polite.expect(Ack)).reason_code == ReasonCode.QUOTA_EXCEEDED
                newcomers += 1
                newcomer = await rig.dial(broker.port)
                newcomer.hello(f"newcomer{newcomers}", will=Will(b"w", bytes(20_000)))
                await newcomer.expect(Connack)
        assert begun == [1, 2, 3, 4]
        refused = await rig.dial(broker.port)
        refused.hello("late")
        assert (await refused.expect(Connack)).reason_code == ReasonCode.SERVER_BUSY
        dropped = core.router.drops.by_reason
        assert dropped["overload_low_priority"] > 0
        assert dropped["overload_qos0"] > 0
        assert answers == {0}, "a client that does no harm is served in each of these stages"
        for device in frozen:
            await device.close()
        ended_at = asyncio.get_running_loop().time()
        await until(lambda: core.overload.stage == 0)
        assert asyncio.get_running_loop().time() - ended_at < 2.0
    assert (await rig.device(broker.port, "late")).client_id == "late"
