"""One message to very many subscribers over TCP, which three nodes share: when the last of them has its last byte.

Each node is a process of its own, and so are its subscribers; NATS runs beside them. `python -m bench nodes
--subscribers 50000` prints a table.
"""

import contextlib
import random
import re
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Final

from bench.hot_packets import TOPIC, packet, text

NAMES: Final = "abc"
PAYLOAD: Final = b"x" * 100
ROUNDS: Final = 10
PAUSE_S: Final = 1.0
"""Between two messages: nothing of the former one is under way."""

START_S: Final = 60.0

CONFIG: Final = """
[[listeners]]
port = {port}
[metrics]
port = {metrics}
[limits]
max_sessions = 100_000
max_subscriptions = 100_000
[nodes]
servers = ["nats://127.0.0.1:{nats}"]
node = "{name}"
"""


def measure(subscribers: int) -> int:
    """Print a table. Return the exit code."""
    ports = _free_ports(2 * len(NAMES) + 1)
    nats = ports.pop()
    message = packet(0x30, text(TOPIC) + PAYLOAD)
    with tempfile.TemporaryDirectory(prefix="mqttlite-bench-") as folder, contextlib.ExitStack() as stack:
        binary = shutil.which("nats-server") or str(Path(sys.executable).parent / "nats-server")
        _run(stack, [binary, "-a", "127.0.0.1", "-p", str(nats), "-js", "-sd", f"{folder}/nats"])
        nodes = list(zip(ports[: len(NAMES)], ports[len(NAMES) :], strict=True))
        for name, (port, metrics) in zip(NAMES, nodes, strict=True):
            config = Path(folder, f"{name}.toml")
            config.write_text(CONFIG.format(port=port, metrics=metrics, nats=nats, name=name))
            _run(stack, [sys.executable, "-m", "mqttlite", "serve", "-c", str(config)])
        for _, metrics in nodes:
            _wait_until_connected(metrics)
        shares = [subscribers // len(NAMES) + (at < subscribers % len(NAMES)) for at in range(len(NAMES))]
        readers = [
            _run(stack, [sys.executable, "-m", "bench.hot_readers", str(port), str(share), str(len(message))])
            for (port, _), share in zip(nodes, shares, strict=True)
        ]
        for each in readers:
            assert _line(each) == "subscribed"
        time.sleep(3 * PAUSE_S)
        sent = _sent_bytes(nodes[0][1])
        took = [_publish(nodes[0][0], message, readers) for _ in range(ROUNDS)]
        time.sleep(PAUSE_S)
        crossed = [(after - before) / ROUNDS for before, after in zip(sent, _sent_bytes(nodes[0][1]), strict=True)]
    print(f"One message of {len(PAYLOAD)} B to {subscribers:,} subscribers over TCP at three nodes, {ROUNDS} times.\n")
    print("| | |\n|---|--:|")
    print(f"| until the last subscriber has the last byte: median | {statistics.median(took):.2f} s |")
    print(f"| the worst | {max(took):.2f} s |")
    told = ", ".join(f"{size:.0f} B" for size in crossed)
    print(f"| from the publisher's node to each other one, for a message | {told} |")
    return 0


def _publish(port: int, message: bytes, readers: list[subprocess.Popen[str]]) -> float:
    """Seconds until all have it."""
    time.sleep(PAUSE_S)
    with socket.create_connection(("127.0.0.1", port)) as writer:
        writer.sendall(packet(0x10, text("MQTT") + b"\4\2" + struct.pack(">H", 0) + text("")))
        assert len(writer.recv(4)) == 4
        begun = time.monotonic_ns()
        writer.sendall(message)
        return (max(int(_line(each)) for each in readers) - begun) / 1e9


def _run(stack: contextlib.ExitStack, command: list[str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _figures(metrics: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=5) as answer:
        return str(answer.read().decode())


def _wait_until_connected(metrics: int) -> None:
    give_up_at = time.monotonic() + START_S
    while time.monotonic() < give_up_at:
        with contextlib.suppress(OSError):
            found = re.findall(r"^mqttlite_nodes_connected\{.*\} (\S+)", _figures(metrics), re.MULTILINE)
            if [float(each) for each in found] == [1.0] * (len(NAMES) - 1):
                return
        time.sleep(0.1)
    raise TimeoutError(f"the nodes are not connected after {START_S:g} s")


def _sent_bytes(metrics: int) -> list[float]:
    """To each other node."""
    found = re.findall(r"^mqttlite_nodes_sent_bytes_total\{.*\} (\S+)", _figures(metrics), re.MULTILINE)
    return [float(each) for each in found]


def _free_ports(count: int) -> list[int]:
    """Below those that the system gives to the subscribers."""
    found: list[int] = []
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            found.append(port)
    return found[:count]
