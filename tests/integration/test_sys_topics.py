"""`$SYS` over real sockets: what subscribers see, what publishers may not, and the same names as mosquitto's."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mqttlite.config import Config, ConfigError, ListenerOptions, parse_config
from mqttlite.server import Broker
from mqttlite.telemetry.sys_topics import SysOptions
from mqttlite.wire.constants import V311
from mqttlite.wire.packets import Disconnect, Publish
from tests.integration.conftest import Rig
from tests.support.device import Device, until
from tests.support.inside import loop_driver_of

ON_JUMPING_LOOP = pytest.mark.asyncio(loop_factories=["asyncio"])

SAID_LATER = {"$SYS/broker/clients/maximum"}
"""What mosquitto says only once it has something to say."""


async def broker_with(rig: Rig, **options: object) -> Broker:
    config = Config(listeners=(ListenerOptions(port=0, name="front"),), sys=SysOptions(**options))  # type: ignore[arg-type]
    return await rig.broker(config)


async def messages(device: Device, last: str) -> dict[str, bytes]:
    """Topics and payloads up to that topic."""
    found: dict[str, bytes] = {}
    while last not in found:
        topic, payload = await device.message()
        found[topic] = payload
    return found


async def test_a_subscriber_gets_retained_values_at_once(rig: Rig) -> None:
    broker = await broker_with(rig)
    device = await rig.device(broker.port, "watcher")
    await device.subscribe("$SYS/broker/uptime")
    publish = await device.expect(Publish)
    assert publish.retain
    assert publish.payload == b"0 seconds"


async def test_it_says_what_changes(rig: Rig) -> None:
    broker = await broker_with(rig, interval_s=0.1)
    device = await rig.device(broker.port, "watcher", V311)
    await device.subscribe("$SYS/broker/clients/connected")
    while (await device.message())[1] != b"1":
        pass
    other = await rig.device(broker.port, "other")
    assert await device.message() == ("$SYS/broker/clients/connected", b"2")
    await other.disconnect()
    assert await device.message() == ("$SYS/broker/clients/connected", b"1")


async def test_bytes_are_all_bytes_of_all_connections_also_of_those_that_ended(rig: Rig) -> None:
    broker = await broker_with(rig, interval_s=0.1)
    device = await rig.device(broker.port, "passes")
    await device.disconnect()
    nobody = await rig.dial(broker.port)
    nobody.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
    await nobody.goodbye()
    expected = device.bytes_sent + nobody.bytes_sent
    await until(lambda: not loop_driver_of(broker).links)
    watcher = await rig.device(broker.port, "watcher")
    await watcher.subscribe("$SYS/broker/bytes/received")
    while int((await watcher.message())[1]) != expected + watcher.bytes_sent:
        pass


async def test_events_name_clients_that_come_and_go_and_the_reason(rig: Rig) -> None:
    broker = await broker_with(rig, interval_s=0)
    watcher = await rig.device(broker.port, "watcher", V311)
    await watcher.subscribe("$SYS/#")
    first = await rig.device(broker.port, "a/b", V311, keep_alive=9)
    topic, payload = await watcher.message()
    event = json.loads(payload)
    assert topic == "$SYS/broker/clients/a%2Fb/connected"
    assert event.pop("connected_at").endswith("Z")
    assert event == {
        "client_id": "a/b",
        "connection_id": 2,
        "username": None,
        "peer": first.address,
        "listener": "front",
        "protocol_version": "3.1.1",
        "keep_alive_s": 9,
        "clean_start": True,
        "session_present": False,
    }
    second = await rig.device(broker.port, "a/b")
    told = [json.loads((await watcher.message())[1]) for _ in range(2)]
    assert [(each["connection_id"], each.get("reason")) for each in told] == [(3, None), (2, "taken_over")]
    second.send(Disconnect(4))
    topic, payload = await watcher.message()
    assert topic == "$SYS/broker/clients/a%2Fb/disconnected"
    assert (json.loads(payload)["reason"], json.loads(payload)["reason_code"]) == ("client_disconnected_with_will", 4)


async def test_alarms_are_retained_from_the_start_on(rig: Rig) -> None:
    broker = await broker_with(rig)
    watcher = await rig.device(broker.port, "watcher")
    await watcher.subscribe("$SYS/broker/alarms/memory")
    publish = await watcher.expect(Publish)
    assert publish.retain
    assert json.loads(publish.payload)["active"] is False


@pytest.mark.parametrize(
    ("options", "silent"),
    [({"presence": False}, "passes/connected"), ({"interval_s": 0}, "uptime"), ({"interval_s": 0}, "alarms/store")],
)
async def test_each_half_can_be_left_out(rig: Rig, options: dict[str, object], silent: str) -> None:
    broker = await broker_with(rig, **options)
    watcher = await rig.device(broker.port, "watcher")
    await watcher.subscribe("$SYS/#")
    await rig.device(broker.port, "passes")
    await broker.publish("$SYS/broker/end")
    assert not [topic for topic in await messages(watcher, "$SYS/broker/end") if topic.endswith(silent)]


@ON_JUMPING_LOOP
async def test_it_counts_the_hours(rig: Rig, jump: Callable[[float], None]) -> None:
    broker = await broker_with(rig)
    watcher = await rig.device(broker.port, "watcher")
    await watcher.subscribe("$SYS/broker/uptime")
    assert await watcher.message() == ("$SYS/broker/uptime", b"0 seconds")
    jump(7_200)
    assert (await watcher.message())[1].split()[0] in (b"7200", b"7201")


async def test_a_restarted_broker_begins_anew(rig: Rig) -> None:
    broker = Broker(port=0)
    for _ in range(2):
        async with broker:
            device = await rig.device(broker.port, "watcher")
            await device.subscribe("$SYS/broker/connections/socket/count")
            assert (await device.message())[1] == b"0"
            await device.disconnect()


def test_the_options_in_a_file() -> None:
    config = parse_config({"sys": {"interval_s": 60, "presence": False}})
    assert (config.sys.interval_s, config.sys.presence) == (60.0, False)
    assert (Config().sys.interval_s, Config().sys.presence) == (10.0, True)
    with pytest.raises(ConfigError, match=r"sys\.interval_s is 0\.01: 0\.1 at least, and finite, or 0 for never"):
        parse_config({"sys": {"interval_s": 0.01}})


# ── beside the others ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
async def test_mqttlite_sub_shows_it(rig: Rig) -> None:
    broker = await broker_with(rig, interval_s=0.1)
    command = [sys.executable, "-m", "mqttlite", "sub", "-p", str(broker.port), "-t", "$SYS/#", "-v", "-C", "60"]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    output, _errors = await process.communicate()
    assert process.returncode == 0
    lines = output.decode().splitlines()
    assert "$SYS/broker/clients/expired 0" in lines
    assert "$SYS/broker/retained messages/count" in {line.rpartition(" ")[0] for line in lines}
    assert [line for line in lines if line.startswith("$SYS/broker/version mqttlite version ")]


async def names_said(port: int, client_id: str) -> set[str]:
    """The topics retained below `$SYS`, and what is said until the first change of the uptime."""
    device = await Device.dial(port, V311)
    await device.connect(client_id)
    await device.subscribe("$SYS/#")
    found: set[str] = set()
    uptimes = 0
    while uptimes < 2:
        topic, _payload = await device.message()
        found.add(topic)
        uptimes += topic == "$SYS/broker/uptime"
    await device.disconnect()
    return {name for name in found if f"/{client_id}/" not in name}


@pytest.mark.slow
async def test_mosquitto_says_nothing_that_we_do_not(rig: Rig, tmp_path: Path) -> None:
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])  # where Debian has it
    program = shutil.which("mosquitto", path=path)
    if program is None:
        pytest.skip("mosquitto is not installed (Debian: mosquitto)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = tmp_path / "mosquitto.conf"
    config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nsys_interval 1\n")
    process = await asyncio.create_subprocess_exec(program, "-c", str(config), stderr=subprocess.PIPE)
    assert process.stderr is not None
    try:
        async for line in process.stderr:
            if b" running" in line:
                break
        theirs = await names_said(port, "watcher")
    finally:
        process.terminate()
        await process.communicate()
    broker = await broker_with(rig, interval_s=0.1)
    ours = await names_said(broker.port, "watcher")
    assert theirs - ours == set()
    more = ("connections/socket/count", "memory/limit", "memory/used", "memory/shed", "messages/inflight")
    more += (
        "messages/delayed",
        "alarms/store",
        "alarms/memory",
        "alarms/push",
        "alarms/bridges",
        "alarms/cluster",
        "alarms/documents",
        "alarms/nodes",
        "alarms/standstill",
        "logins/jailed",
        "logins/refused in jail",
    )
    more += ("overload/stage", "overload/load", "overload/clients/slowed", "overload/slowed", "alarms/overload")
    more += ("overload/connects/refused", "quotas/clients/held", "quotas/held", "quotas/refused")
    assert ours - theirs - SAID_LATER == {f"$SYS/broker/{name}" for name in more}
