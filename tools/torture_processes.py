"""Processes on loopback, to be killed and stopped.

Invariant: what runs was started here, and is ended by `close`.
"""

import asyncio
import contextlib
import random
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

PATIENCE_S = 90.0
"""How long a process may take to end, and all of them to be whole again."""


def free_ports(number: int) -> list[int]:
    """Ports that the kernel gives to no client: one that tries a port again and again may connect to itself."""
    found: list[int] = []
    while len(found) < number:
        port = random.SystemRandom().randrange(20_000, 32_768)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in found:
                found.append(port)
    return found


async def get(port: int, path: str) -> tuple[int, bytes]:
    """Status and body of what a server answers; 0 if it does not."""
    try:
        async with asyncio.timeout(0.5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\nHost: localhost:{port}\r\n\r\n".encode())
                head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
                return int(head.split()[1]), body
            finally:
                writer.close()
    except (OSError, IndexError, ValueError):  # something else may have the port
        return 0, b""


def nats_server() -> str:
    """The path of the program."""
    return shutil.which("nats-server") or str(Path(sys.executable).parent / "nats-server")


class Processes:
    """Each has a name, and a log of that name in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, name: str, command: list[str]) -> None:
        """Start a process, which has this name from then on."""
        with open(self.folder / f"{name}.log", "ab") as log:
            self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log)

    async def end(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal, and wait for the end."""
        process = self._processes.pop(name)
        process.send_signal(how)
        await asyncio.to_thread(process.wait, PATIENCE_S)

    def send(self, name: str, what: signal.Signals) -> None:
        """Send a signal to a process that goes on."""
        self._processes[name].send_signal(what)

    def close(self) -> None:
        """End all that still runs."""
        for process in self._processes.values():
            process.kill()
            process.wait()
