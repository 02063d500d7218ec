"""The device: its samples, its status however it ends, and what it says when it cannot go on."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqttlite.client import Client, DisconnectedByServer
from tests.interop.support import HOST, PATIENCE_S, Line, Paho, RunningBroker, Wire
from tools.devices.device import Device, command
from tools.devices.target import Target, target

ROOT = Path(__file__).resolve().parents[3]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


@pytest.mark.long
def test_one_sample_then_offline(line: Line, certificate_files: Path) -> None:
    way = ["--plain"] if line.certificates is None else [f"--cafile={certificate_files / 'ca.crt'}"]
    with Paho(line, "watcher") as watcher:
        watcher.subscribe("hosts/one/#", 1)
        done = run(*way, "--port", str(line.port), "--name=one", "--once", "--interval=0.1")
        assert (done.exit_code, done.stdout) == (0, "")
        assert "publishing to hosts/one/#" in done.stderr
        assert watcher.next().payload == b"online"
        samples = watcher.until(b"offline")
        assert f"Published {len(samples)} messages." in done.stderr
        assert "used_percent" in json.loads(samples[0])
    with Paho(line, "late") as late:
        late.subscribe("hosts/one/status")
        message = late.next()
        assert (message.payload, message.retain) == (b"offline", 1)


@pytest.mark.long
def test_a_connection_that_breaks_is_made_again_and_its_status_tells_of_it(broker: RunningBroker) -> None:
    async def live(device: Device) -> None:
        running = asyncio.create_task(device.run())
        statuses = []
        async with asyncio.timeout(PATIENCE_S), Client("127.0.0.1", broker.tcp.port) as watcher:
            await watcher.subscribe("hosts/cut/#", 1)
            async for message in watcher.messages:
                if not message.topic.endswith("/status"):
                    if len(statuses) == 1:
                        await asyncio.to_thread(wire.cut)
                    continue
                if message.payload.decode() not in statuses[-1:]:
                    statuses.append(message.payload.decode())
                if statuses == ["online", "offline", "online"]:
                    device.end()
                if len(statuses) == 4:
                    break
        await running
        assert statuses == ["online", "offline", "online", "offline"]

    with Wire(broker, broker.tcp) as wire:
        asyncio.run(live(Device(Target("127.0.0.1", wire.line.port, None), "cut", 0.1, None, 1)))


def test_a_second_device_of_the_same_name_ends_the_first(broker: RunningBroker) -> None:
    async def live(device: Device) -> None:
        running = asyncio.create_task(device.run())
        async with asyncio.timeout(PATIENCE_S), Client("127.0.0.1", broker.tcp.port) as watcher:
            await watcher.subscribe("hosts/twin/status")
            await anext(watcher.messages)
            async with Client("127.0.0.1", broker.tcp.port, client_id="device-twin"):
                with pytest.raises(DisconnectedByServer, match="taken over"):
                    await running

    asyncio.run(live(Device(Target("127.0.0.1", broker.tcp.port, None), "twin", 5, None, 1)))


def test_a_device_that_is_ended_before_it_is_connected_ends(broker: RunningBroker) -> None:
    device = Device(Target("127.0.0.1", broker.tcp.port, None), "early", 5, None, 1)
    device.end()
    asyncio.run(device.run())
    assert device.messages == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_a_goodbye(broker: RunningBroker, number: signal.Signals) -> None:
    arguments = ["--plain", "--host", HOST, "--port", str(broker.tcp.port), "--name", "process"]
    with Paho(broker.tcp, "watcher") as watcher:
        watcher.subscribe("hosts/process/status", 1)
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "tools.devices.device", *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
        ) as process:
            assert watcher.next().payload == b"online"
            process.send_signal(number)
            assert watcher.next().payload == b"offline"
            assert process.wait(PATIENCE_S) == 0


def test_without_a_broker_it_says_so_in_a_sentence() -> None:
    done = run("--plain", "--host=127.0.0.1", "--port=1", "--once")
    assert done.exit_code == 3
    assert done.stderr == "Nobody listens on 127.0.0.1:1 (connection refused); is a broker running there?\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--once", "--count=2"], "--once and --count are two ways to say the same; use one."),
        (["--plain", "--cafile=ca.crt"], "--plain is without TLS, so --cafile, --cert and --key have no use."),
        (["--cafile=nowhere.crt"], "nowhere.crt: no such file."),
        (["--interval=0"], "0 is not in the range"),
        (["--host="], "hostname is empty"),
    ],
)
def test_contradictory_arguments_are_wrong_usage(arguments: list[str], sentence: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert sentence in done.stderr


def test_the_development_certificates_are_used_where_they_are(certificate_files: Path, tmp_path: Path) -> None:
    ours = target(HOST, None, False, None, None, None, certificate_files)
    assert (ours.port, str(ours)) == (8883, "localhost:8883 over TLS")
    assert ours.tls is not None
    assert len(ours.tls.get_ca_certs()) == 1
    systems = target(HOST, None, False, None, None, None, tmp_path)
    assert systems.tls is not None
    plain = target(HOST, None, True, None, None, None, certificate_files)
    assert (plain.port, plain.tls) == (1883, None)


@pytest.mark.parametrize("name", ["device", "fleet"])
def test_the_command_is_a_script_that_runs_its_module(name: str) -> None:
    script = ROOT / "tools" / name
    assert os.access(script, os.X_OK)
    assert f"\nmodule=tools.devices.{name} " in script.read_text()
    subprocess.run(["bash", "-n", str(script)], check=True)
