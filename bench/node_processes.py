"""Nodes and a server of NATS as processes of their own, for benchmarks.

Invariant: what was started here ends with the exit stack.
"""

import contextlib
import random
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Final

START_S: Final = 60.0

CONFIG: Final = """
data_dir = "{folder}/{name}"
[[listeners]]
port = {port}
[metrics]
port = {metrics}
[limits]
max_sessions = 100_000
max_subscriptions = 100_000
{more}
[nodes]
servers = ["nats://127.0.0.1:{nats}"]
node = "{name}"
"""


class NodeProcesses:
    """Nodes that are connected with each other. `ports` are where clients find them; `pids` are theirs, and that of
    NATS is the last one."""

    def __init__(self, stack: contextlib.ExitStack, folder: str, names: str, more: str = "") -> None:
        """The first node has started before the others do. `more` is added to each configuration."""
        count = len(names)
        ports = _free_ports(2 * count + 1)
        nats = ports.pop()
        self.ports, self._metrics = ports[:count], ports[count:]
        binary = shutil.which("nats-server") or str(Path(sys.executable).parent / "nats-server")
        server = run(stack, [binary, "-a", "127.0.0.1", "-p", str(nats), "-js", "-sd", f"{folder}/nats"])
        self.pids: list[int] = []
        for name, port, metrics in zip(names, self.ports, self._metrics, strict=True):
            config = Path(folder, f"{name}.toml")
            values = {"folder": folder, "name": name, "port": port, "metrics": metrics, "nats": nats, "more": more}
            config.write_text(CONFIG.format(**values))
            self.pids.append(run(stack, [sys.executable, "-m", "mqttlite", "serve", "-c", str(config)]).pid)
            self._figures_of(metrics)
        self.pids.append(server.pid)
        give_up_at = time.monotonic() + START_S
        while any(self._connected(metrics) != count - 1 for metrics in self._metrics):
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"the nodes are not connected after {START_S:g} s")
            time.sleep(0.1)

    def sent_bytes(self) -> list[float]:
        """From the first node to each other one."""
        return _values("mqttlite_nodes_sent_bytes_total", self._figures_of(self._metrics[0]))

    def _connected(self, metrics: int) -> float:
        return sum(_values("mqttlite_nodes_connected", self._figures_of(metrics)))

    def _figures_of(self, metrics: int) -> str:
        give_up_at = time.monotonic() + START_S
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=5) as answer:
                    return str(answer.read().decode())
            except OSError:
                if time.monotonic() > give_up_at:
                    raise
                time.sleep(0.1)


def run(stack: contextlib.ExitStack, command: list[str]) -> subprocess.Popen[str]:
    """Start a process, whose standard output can be read."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def _values(figure: str, figures: str) -> list[float]:
    return [float(each) for each in re.findall(rf"^{figure}\{{.*\}} (\S+)", figures, re.MULTILINE)]


def _free_ports(count: int) -> list[int]:
    """Below those that the system gives to clients."""
    found: list[int] = []
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            found.append(port)
    return found[:count]
