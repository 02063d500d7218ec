"""Three NATS servers with JetStream on loopback, each with its own folder, for tests that need the real engine."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Final, final

import pytest

NUMBER: Final = 3
READY_S: Final = 30.0


def nats_server() -> str:
    """The path of the binary; a test without it is skipped."""
    found = shutil.which("nats-server") or shutil.which("nats-server", path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip("nats-server is not installed")
    return found


PORTS: Final = range(20_000, 32_000)
"""Below those that the system gives to connections, which could take one before a server listens on it."""


def free_ports(number: int) -> list[int]:
    """Ports that nobody uses now."""
    found: dict[int, None] = {}
    chance = random.SystemRandom()
    while len(found) < number:
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port := chance.choice(PORTS)))
            found[port] = None
    return list(found)


@final
class NatsServers:
    """Servers that a test starts, kills, stops and lets go on. `more` is added to each configuration."""

    def __init__(
        self, folder: Path, *, number: int = NUMBER, sync: str = "always", more: str = "", has_jetstream: bool = True
    ) -> None:
        self._binary = nats_server()
        self._folder = folder
        self._sync = sync
        self._more = more
        self._has_jetstream = has_jetstream
        ports = free_ports(3 * number)
        self.ports = ports[:number]
        self._routes = ports[number : 2 * number]
        self.monitoring = ports[2 * number :]
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * number
        for place in range(number):
            self.start(place)

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(f"nats://127.0.0.1:{port}" for port in self.ports)

    def start(self, place: int) -> None:
        """Start a server; its folder is kept."""
        routes = ", ".join(f"nats-route://127.0.0.1:{port}" for port in self._routes)
        cluster = f"cluster {{ name: c, listen: 127.0.0.1:{self._routes[place]}, routes: [{routes}] }}"
        jetstream = f'jetstream {{ store_dir: "{self._folder}/d{place}", max_file: 60GB, sync_interval: {self._sync} }}'
        configuration = self._folder / f"n{place}.conf"
        configuration.write_text(
            f"server_name: n{place}\nlisten: 127.0.0.1:{self.ports[place]}\nhttp: 127.0.0.1:{self.monitoring[place]}\n"
            f"{jetstream if self._has_jetstream else ''}\n"
            f"{cluster if len(self.ports) > 1 else ''}\n{self._more}\n"
        )
        with open(self._folder / f"n{place}.log", "ab") as log:
            self.processes[place] = subprocess.Popen(
                [self._binary, "-c", str(configuration)], stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self, place: int) -> None:
        """Kill a server as a power cut does."""
        process = self.processes[place]
        assert process is not None
        process.kill()
        process.wait()
        self.processes[place] = None

    def pause(self, place: int) -> None:
        process = self.processes[place]
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)

    def resume(self, place: int) -> None:
        process = self.processes[place]
        assert process is not None
        os.kill(process.pid, signal.SIGCONT)

    def wait_ready(self) -> None:
        """Wait until all accept connections, and JetStream has a leader and all copies of its own log."""
        give_up_at = time.monotonic() + READY_S
        for port in self.ports:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    assert time.monotonic() < give_up_at, "a nats-server did not start"
                    time.sleep(0.05)
        while self._has_jetstream and len(self.ports) > 1 and not any(map(self._leads_all, self.monitoring)):
            assert time.monotonic() < give_up_at, "the servers of NATS do not find each other"
            time.sleep(0.05)

    def _leads_all(self, port: int) -> bool:
        """Whether a server leads JetStream, and each other one is there and has what it has."""
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/jsz", timeout=1) as answer:
            copies = json.load(answer).get("meta_cluster", {}).get("replicas", [])
            present = [each for each in copies if each.get("current") and not each.get("offline")]
            return len(present) == len(self.ports) - 1
        return False

    def close(self) -> None:
        for place, process in enumerate(self.processes):
            if process is not None:
                self.kill(place)
