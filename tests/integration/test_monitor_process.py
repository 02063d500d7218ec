"""A broker in a process of its own, watched by the commands that find it through its configuration."""

import asyncio
import re
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.integration.test_serve_process import start
from tests.support.device import Device

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_factories=["uvloop"])]
ROOT = Path(__file__).resolve().parents[2]
CLIENTS = 12


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


async def run(*arguments: str) -> tuple[int, str]:
    """An exit code, and what was printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mqttlite", *arguments), stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def test_the_commands_find_it_through_its_configuration(tmp_path: Path) -> None:
    port = free_port()
    file = tmp_path / "broker.toml"
    file.write_text(f"[[listeners]]\nport = 0\n[metrics]\nport = {port}\n")
    process = await start("--config", str(file))
    devices: list[Device] = []
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            log = ""
            while "listening" not in log:
                line = await process.stderr.readline()
                assert line, log
                log += line.decode()
            found = re.search(r"listening for MQTT over TCP on 127\.0\.0\.1:(\d+)", log)
            assert found is not None
            for number in range(CLIENTS):
                devices.append(await Device.dial(int(found[1])))
                await devices[-1].connect(f"device-{number}")
            assert await run("health", "-c", str(file)) == (0, "The broker is ready.\n")
            code, text = await run("top", "--once", "-c", str(file))
            assert (code, f"clients    {CLIENTS} connected" in text) == (0, True), text
            process.send_signal(signal.SIGUSR1)
            for device in devices:
                assert await device.goodbye() == 0x8B
                await device.close()
            await process.stderr.read()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_metrics_port_in_use_ends_the_start_with_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = await start("--port", "0", "--metrics-port", str(port))
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert errors.decode().splitlines()[-1] == (
        f"mqttlite serve: cannot listen on 127.0.0.1:{port} (metrics): the port is in use; stop the program that uses "
        "it, or choose another port"
    )
