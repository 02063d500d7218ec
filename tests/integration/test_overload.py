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
from mqttlite.server import Broker
from mqttlite.telemetry.options import Options as TelemetryOptions
from mqttlite.telemetry.sys_topics import Options as SysOptions
from mqttlite.wire.packets import Publish
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
        async with asyncio.timeout(10), broker.subscribe("$SYS/broker/overload/+") as messages:
            while not wanted.items() <= found.items():
                message = await anext(messages)
                found[message.topic.rpartition("/")[2]] = bytes(message.payload)
        async with asyncio.timeout(10), broker.subscribe("$SYS/broker/alarms/overload") as messages:
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
    core.effects.slowed.append(connection.number)
    core.effects.slowed.append(99)  # whose link is gone
    await device.ping()
    assert connection.hold_reasons == HoldReason.OVERLOAD
    device.publish("t", b"x")
    other = await rig.device(broker.port, "other")
    await other.ping()
    assert connection.received_qos0 == 0
    core.effects.unslowed += [99, connection.number]
    await other.ping()
    await until(lambda: connection.received_qos0 == 1)
    assert connection.hold_reasons == 0
