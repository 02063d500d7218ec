"""The limit of memory in a running broker: where it comes from, what is dropped for it, and who is told."""

import logging
from pathlib import Path

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.core.limits import Limits
from mqttlite.core.reasons import BUFFER_FULL
from mqttlite.event_hub import Listener
from mqttlite.net.link import Link
from mqttlite.net.memory_limit import UNKNOWN, group_limits, physical_memory, process_limits, usable_memory
from mqttlite.server import Broker
from tests.integration.conftest import Rig
from tests.support.device import until
from tests.support.inside import core_of

MIB = 1_048_576


async def test_the_limit_is_half_of_what_the_process_may_use(rig: Rig) -> None:
    broker = await rig.broker()
    assert core_of(broker).effects.memory.limit == usable_memory() // 2


async def test_a_limit_that_is_set_counts(rig: Rig) -> None:
    broker = await rig.broker(limits=Limits(max_memory_bytes=5 * MIB))
    assert core_of(broker).effects.memory.limit == 5 * MIB


class Shed(Listener):
    """The clients that held most when memory was short."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int]] = []

    def on_shed(self, link: Link, waiting_bytes: int, messages: int) -> None:
        self.told.append((link.connection.client_id, waiting_bytes, messages))


@pytest.mark.slow
async def test_a_client_that_does_not_read_loses_qos_0_messages_and_the_log_says_why(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "mqttlite")
    shed = Shed()
    config = Config(listeners=(ListenerOptions(port=0),), limits=Limits(max_memory_bytes=4 * MIB))
    broker = Broker(config)
    broker.event_listeners.append(shed)
    await rig.enter(broker)
    core = core_of(broker)
    frozen = await rig.device(broker.port, "frozen", small_buffers=True)
    await frozen.subscribe("flood")
    frozen.freeze()
    publisher = await rig.device(broker.port, "publisher")
    outbox = next(each.outbox for each in core.connections.values() if each.client_id == "frozen")
    while outbox.waiting_bytes < MIB // 2:
        publisher.publish("flood", bytes(16_384))
        await publisher.ping()
    for number in range(40):
        away = await rig.device(broker.port, f"away{number}", expiry=1_000)
        await away.subscribe(f"queue/{number}", 1)
        await away.disconnect()
    for number in range(500):
        publisher.publish(f"queue/{number % 40}", bytes(16_384), 1)
        await publisher.ping()
        assert core.effects.memory.used < 4 * MIB
    assert outbox.drops[BUFFER_FULL] > 20
    assert core.sessions.get("away7").queued > 1  # type: ignore[union-attr]
    assert any("slow clients lose QoS 0 messages" in line for line in caplog.messages)
    assert any("client 'frozen' is the biggest hoarder of memory" in line for line in caplog.messages)
    assert shed.told
    assert {client_id for client_id, _, _ in shed.told} == {"frozen"}
    assert all(waiting > 16_384 * messages > 0 for _, waiting, messages in shed.told)
    assert core.effects.memory.sheds >= len(shed.told)
    for number in range(40):
        await rig.device(broker.port, f"away{number}")  # which ends its session
    publisher.publish("end", b"")
    await until(lambda: any("there is enough again" in line for line in caplog.messages))


def test_the_limits_of_all_control_groups_above_the_process_count(tmp_path: Path) -> None:
    groups = tmp_path / "cgroup"
    groups.write_text("12:cpu,memory:/a/b\n3:cpuset:/x\n0::/c/d\n")
    for path, text in (
        ("memory/a/b/memory.limit_in_bytes", "700\n"),
        ("memory/memory.limit_in_bytes", "9000\n"),
        ("c/d/memory.max", "max\n"),
        ("c/memory.max", "800\n"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert sorted(group_limits(groups, tmp_path)) == [700, 800, 9_000]
    assert group_limits(tmp_path / "no such file", tmp_path) == []


def test_a_process_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (123_456, resource.RLIM_INFINITY))
    assert process_limits() == [123_456, 123_456]
    assert usable_memory() == 123_456


def test_a_system_that_does_not_tell_its_memory_counts_as_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.sysconf")
    assert physical_memory() == UNKNOWN
