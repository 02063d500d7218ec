"""One message to very many subscribers over TCP, which three nodes share: when the last of them has its last byte.

Each node is a process of its own, and so are its subscribers; NATS runs beside them. `python -m bench nodes
--subscribers 50000` prints a table.
"""

import contextlib
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from typing import Final

from bench.hot_packets import TOPIC, packet, text
from bench.node_processes import NodeProcesses, run
from mqttlite import build

NAMES: Final = "abc"
PAYLOAD: Final = b"x" * 100
ROUNDS: Final = 10
PAUSE_S: Final = 1.0
"""Between two messages: nothing of the former one is under way."""


def measure(subscribers: int) -> int:
    """Print a table. Return the exit code."""
    message = packet(0x30, text(TOPIC) + PAYLOAD)
    with tempfile.TemporaryDirectory(prefix="mqttlite-bench-") as folder, contextlib.ExitStack() as stack:
        nodes = NodeProcesses(stack, folder, NAMES)
        shares = [subscribers // len(NAMES) + (at < subscribers % len(NAMES)) for at in range(len(NAMES))]
        readers = [
            run(stack, [sys.executable, "-m", "bench.hot_readers", str(port), str(share), str(len(message))])
            for port, share in zip(nodes.ports, shares, strict=True)
        ]
        for each in readers:
            assert _line(each) == "subscribed"
        time.sleep(3 * PAUSE_S)
        sent = nodes.sent_bytes()
        took = [_publish(nodes.ports[0], message, readers) for _ in range(ROUNDS)]
        time.sleep(PAUSE_S)
        crossed = [(after - before) / ROUNDS for before, after in zip(sent, nodes.sent_bytes(), strict=True)]
    kind = "compiled" if build.is_compiled() else "pure Python"
    print(f"One message of {len(PAYLOAD)} B to {subscribers:,} subscribers over TCP at three nodes ({kind}), ", end="")
    print(f"{ROUNDS} times.\n\n| | |\n|---|--:|")
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


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()
