"""Brokers that are killed, and clients of theirs that go on whatever happens."""

import asyncio
import contextlib
import random
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from tests.support.device import Device, Gone

BROKEN: Final = (OSError, Gone, TimeoutError)
"""What a client meets while the broker is not there."""


def free_port() -> int:
    """A free port that the kernel gives to no client. A client that tries a port of the kernel's range again and again
    may connect to itself, and then holds the port."""
    while True:
        port = random.randrange(20_000, 32_768)
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port


@contextlib.asynccontextmanager
async def running(folder: Path, config: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A broker in `folder`, which is killed at the end."""
    path = folder / "broker.toml"
    path.write_text(config)
    arguments = ("serve", "--config", str(path), "--data-dir", str(folder / "data"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mqttlite", *arguments), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()


@contextlib.asynccontextmanager
async def connected(port: int, client_id: str) -> AsyncIterator[Device]:
    """A connection, which is closed at the end. Raises what is in `BROKEN` where the broker is not there."""
    device = await Device.dial(port)
    try:
        await device.connect(client_id)
        yield device
    finally:
        device.drop()
        await device.close()


async def publish(port: int, messages: int, acknowledged: set[str], pause_s: float = 0.0) -> None:
    """Publish each message until it is acknowledged, whatever happens to the broker, and pause after each."""
    number = 0
    while number < messages:
        with contextlib.suppress(*BROKEN):
            async with connected(port, "publisher") as device:
                while number < messages:
                    await device.published("work/a", b"%d" % number)
                    acknowledged.add(str(number))
                    number += 1
                    await asyncio.sleep(pause_s)
        await asyncio.sleep(0.05)
