"""From a real device through a real broker process to three clients of others, and into the telemetry."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiomqtt
import psutil
import pytest
from pyarrow.parquet import ParquetFile

from tests.interop.support import HOST, PATIENCE_S, READY, Line, MosquittoSub, Paho

ROOT = Path(__file__).resolve().parents[2]
PYTHONPATH = {**os.environ, "PYTHONPATH": str(ROOT)}
SAMPLES = 2


@contextlib.contextmanager
def serve(certificates: Path, telemetry: Path, log: Path) -> Iterator[tuple[subprocess.Popen[bytes], Line]]:
    """`mqttlite serve` with TLS alone, on a port that the system chose."""
    files = [f"--{option}={certificates / name}" for option, name in (("cert", "server.crt"), ("key", "server.key"))]
    command = [sys.executable, "-P", "-m", "mqttlite", "serve", "--tls-port=0", *files]
    command += [f"--cafile={certificates / 'ca.crt'}", f"--telemetry={telemetry}", "--no-persistence"]
    with log.open("wb") as output, subprocess.Popen(command, stderr=output, env=PYTHONPATH) as process:
        try:
            yield process, Line(listening_port(process, log), certificates)
        finally:
            process.kill()


def listening_port(process: subprocess.Popen[bytes], log: Path) -> int:
    for _ in range(int(PATIENCE_S / 0.05)):
        found = re.search(r"over TLS on [^ ]*:(\d+) ", log.read_text())
        if found:
            return int(found[1])
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
            break
    raise AssertionError(f"the broker does not listen: {log.read_text()}")


def run_device(line: Line, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert line.certificates is not None
    files = [f"--cafile={line.certificates / 'ca.crt'}"]
    files += [f"--cert={line.certificates / 'device.crt'}", f"--key={line.certificates / 'device.key'}"]
    command = [sys.executable, "-P", "-m", "tools.devices.device", "--host", HOST, "--port", str(line.port), *files]
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=PATIENCE_S * 2, env=PYTHONPATH, check=False
    )


async def listen(line: Line, device: list[asyncio.Task[Any]]) -> list[tuple[str, bytes]]:
    """What aiomqtt receives until the device is offline; the device begins when we have subscribed."""
    received: list[tuple[str, bytes]] = []
    async with (
        asyncio.timeout(PATIENCE_S * 3),
        aiomqtt.Client(HOST, line.port, identifier="by-aiomqtt", tls_context=line.context()) as client,
    ):
        await client.subscribe("hosts/#", qos=1)
        device.append(
            asyncio.create_task(
                asyncio.to_thread(run_device, line, "--name=my machine", f"--count={SAMPLES}", "--interval=0.5")
            )
        )
        async for message in client.messages:
            assert isinstance(message.payload, bytes)
            received.append((str(message.topic), message.payload))
            if message.payload == b"offline":
                break
    return received


@pytest.mark.slow
def test_measurements_reach_all_subscribers_and_the_telemetry_has_exactly_those_sessions(
    tmp_path: Path, certificate_files: Path
) -> None:
    telemetry = tmp_path / "telemetry"
    with serve(certificate_files, telemetry, tmp_path / "log") as (process, line):
        with Paho(line, "by-paho") as paho:
            paho.subscribe("hosts/#", 1)
            paho.publish(READY, b"1", 1, retain=True)
            with MosquittoSub(line, "hosts/#", "-i", "by-mosquitto", "-q", "1", format="%t %p") as sub:
                device: list[asyncio.Task[subprocess.CompletedProcess[str]]] = []

                async def both() -> tuple[list[tuple[str, bytes]], subprocess.CompletedProcess[str]]:
                    return await listen(line, device), await device[0]

                received, done = asyncio.run(both())
                assert done.returncode == 0, done.stderr
                by_mosquitto = [sub.next().split(" ", 1) for _ in received]
            by_paho = [(message.topic, message.payload) for message in (paho.next() for _ in received)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert by_paho == received
    assert [(topic, payload.encode()) for topic, payload in by_mosquitto] == received
    check_measurements(received)
    check_sessions(telemetry, len(received))


def check_measurements(received: list[tuple[str, bytes]]) -> None:
    top = "hosts/my-machine"
    assert received[0] == (f"{top}/status", b"online")
    assert received[-1] == (f"{top}/status", b"offline")
    counts = Counter(topic for topic, _payload in received)
    for name in ("memory", "uptime", "cpu/0", f"cpu/{psutil.cpu_count() - 1}"):
        assert counts[f"{top}/{name}"] == SAMPLES
    values = {topic: json.loads(payload) for topic, payload in received[1:-1]}
    assert values[f"{top}/memory"]["total_bytes"] == psutil.virtual_memory().total
    assert all(value["at"].endswith("Z") for value in values.values())


def check_sessions(telemetry: Path, messages: int) -> None:
    assert not list(telemetry.rglob("*.open")), "a file was not finished"
    files = list(telemetry.glob("table=sessions/**/*.parquet"))
    rows = [row for file in files for row in ParquetFile(file).read().to_pylist()]
    sessions = {row["client_id"]: row for row in rows}
    assert sorted(row["client_id"] for row in rows) == ["by-aiomqtt", "by-mosquitto", "by-paho", "device-my-machine"]
    for row in rows:
        assert (row["transport"], row["close_reason"], row["dropped"]) == ("tls", "client_disconnected", 0)
    device = sessions.pop("device-my-machine")
    assert (device["username"], device["received_qos1"], device["will_published"]) == ("device", messages, False)
    for client_id, row in sessions.items():
        own = 1 if client_id == "by-mosquitto" else 0  # the retained word that it was waiting for
        assert (row["username"], row["sent_qos0"] + row["sent_qos1"]) == (None, messages + own)
    assert sessions["by-paho"]["received_qos1"] == 1
