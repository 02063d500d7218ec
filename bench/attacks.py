"""What a polite client notices of attacks: its latency while others connect, stay silent, guess and subscribe.

The attackers have addresses of their own and a process of their own, `python -m bench.attacks NAME PORT SECONDS`.
"""

import asyncio
import json
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from bench import brokers, build, native, report
from mqttlite.security.keys import keys_of
from mqttlite.security.password_file import format_entry, new_salt

PASSWORD: Final = "correct horse battery staple"
CONFIG: Final = """
data_dir = ""
password_file = "{home}/passwords"
[[listeners]]
port = {port}
[login_jail]
exempt = ["127.0.0.1/32"]
"""


def _text(text: str) -> bytes:
    return struct.pack("!H", len(text.encode())) + text.encode()


def _packet(first: int, body: bytes) -> bytes:
    size, length = len(body), b""
    while True:
        size, low = divmod(size, 128)
        length += bytes([low | (0x80 if size else 0)])
        if not size:
            return bytes([first]) + length + body


def _connect(name: str, password: str) -> bytes:
    return _packet(0x10, _text("MQTT") + b"\x04\xc2\x00\x3c" + _text(name) + _text("mallory") + _text(password))


async def _dial(port: int, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))


async def _slow_loris(port: int, number: int) -> None:
    """A CONNECT, a byte in a tenth of a second."""
    _reader, writer = await _dial(port, f"127.0.2.{number % 200 + 1}")
    try:
        for byte in _connect(f"slow{number}", PASSWORD):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.1)
    finally:
        writer.close()


async def _half_open(port: int, number: int) -> None:
    """A connection that says nothing."""
    reader, writer = await _dial(port, f"127.0.2.{number % 200 + 1}")
    try:
        await reader.read(1)
    finally:
        writer.close()


async def _connects(port: int, number: int) -> None:
    """A connection that comes and goes, with a CONNECT that is refused."""
    reader, writer = await _dial(port, f"127.0.2.{number % 200 + 1}")
    try:
        writer.write(_packet(0x10, _text("MQTT") + b"\x04\x02\x00\x3c" + _text(f"c{number}")))
        await reader.read(8)
    finally:
        writer.close()


async def _guess(port: int, number: int) -> None:
    """A wrong password from one of two hundred addresses, each of which is jailed after 20."""
    reader, writer = await _dial(port, f"127.0.2.{number % 200 + 1}")
    try:
        writer.write(_connect(f"g{number}", f"guess{time.monotonic_ns()}"))
        await reader.read(8)
    finally:
        writer.close()


async def _subscriptions(port: int, number: int) -> None:
    """A user with a right password who subscribes to fifty thousand filters with wildcards, again and again."""
    reader, writer = await _dial(port, f"127.0.2.{number + 1}")
    try:
        writer.write(_connect(f"bomb{number}", PASSWORD))
        await reader.readexactly(4)
        for first in range(0, 50_000, 500):
            filters = b"".join(_text(f"+/{number}/{each}/+/#") + b"\x00" for each in range(first, first + 500))
            writer.write(_packet(0x82, b"\x00\x01" + filters))
            await writer.drain()
            await reader.read(65_536)
    finally:
        writer.close()


async def _oversized(port: int, number: int) -> None:
    """A packet that says it has 256 MB, and as much of it as the broker takes."""
    _reader, writer = await _dial(port, f"127.0.2.{number % 200 + 1}")
    try:
        writer.write(b"\x10\xff\xff\xff\x7f")
        while True:
            writer.write(bytes(65_536))
            await writer.drain()
    finally:
        writer.close()


ATTACKS: Final[Mapping[str, tuple[Callable[[int, int], Awaitable[None]], int, str]]] = {
    "slow-loris": (_slow_loris, 1_000, "1000 connections, a byte of CONNECT in 0.1 s"),
    "half-open": (_half_open, 5_000, "5000 silent connections"),
    "connect flood": (_connects, 50, "50 at a time connect without a password, are refused and come again"),
    "brute force": (_guess, 200, "200 addresses guess, one password at a time each"),
    "subscription bomb": (_subscriptions, 3, "3 users subscribe to 50,000 filters with wildcards each, and leave"),
    "oversized packets": (_oversized, 20, "20 connections announce 256 MB and send it"),
}


async def _attack(name: str, port: int, seconds: float) -> None:
    once, at_a_time, _what = ATTACKS[name]
    until = time.monotonic() + seconds
    made = 0

    async def keep_on(number: int) -> None:
        nonlocal made
        while time.monotonic() < until:
            with suppress(OSError, EOFError):
                await once(port, number)
            made += 1

    tasks = [asyncio.create_task(keep_on(number)) for number in range(at_a_time)]
    await asyncio.wait(tasks, timeout=seconds)
    print(made)


def run(*, seconds: float, compiled: bool) -> int:
    """Measure all attacks in turn and print a table; 1 if the polite lost anything."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        home, port = Path(folder), brokers.free_port()
        entry = format_entry(keys_of(PASSWORD, new_salt(), 15_000))
        (home / "passwords").write_text(f"user0:{entry}\nmallory:{entry}\n", encoding="utf-8")
        (home / "mqttlite.toml").write_text(CONFIG.format(home=home, port=port), encoding="utf-8")
        command = (sys.executable, "-P", "-m", "mqttlite", "serve", "-c", str(home / "mqttlite.toml"))
        source = native.tree() if compiled else native.ROOT
        spec = brokers.Spec(
            "mqttlite",
            brokers.LOOPBACK,
            port,
            (*command, "--log-level", "error"),
            folder=home,
            environment={"PYTHONPATH": str(source)},
        )
        broker = brokers.Broker(spec, home)
        broker.ready()
        try:
            figures, made = _measure(port, seconds)
        finally:
            broker.stop()
    return _tell(figures, made)


def _measure(port: int, seconds: float) -> tuple[dict[str, object], list[int]]:
    load = ("--mode", "fanin", "--pubs", "20", "--qos", "1", "--rate", "200", "--size", "64", "--secs", "600")
    where = ("--port", str(port), "--password", PASSWORD)
    polite = subprocess.Popen([str(build.loadgen()), *load, *where], stdout=subprocess.PIPE, text=True)
    made = []
    try:
        time.sleep(2 + seconds)
        polite.send_signal(signal.SIGUSR1)
        for name in ATTACKS:
            attack = [sys.executable, "-m", "bench.attacks", name, str(port), str(seconds)]
            done = subprocess.run(attack, cwd=native.ROOT, capture_output=True, text=True, check=True)
            polite.send_signal(signal.SIGUSR1)
            made.append(int(done.stdout))
            time.sleep(2)
            polite.send_signal(signal.SIGUSR1)
        polite.send_signal(signal.SIGUSR2)
        told, _ = polite.communicate(timeout=30)
    finally:
        polite.kill()
        polite.wait()
    return json.loads(told), made


def _tell(figures: dict[str, object], made: list[int]) -> int:
    if "error" in figures:
        raise brokers.BrokerError(f"the load generator: {figures['error']}")
    parts = figures["parts"]
    assert isinstance(parts, list)
    rows = [["none", "", "", *_latencies(parts[0])]]
    for (name, (_once, _number, what)), count, part in zip(ATTACKS.items(), made, parts[1::2], strict=False):
        rows.append([name, what, str(count), *_latencies(part)])
    print(report.markdown(["attack", "what it does", "attempts", "p50", "p99", "longest"], rows))
    print(f"\npolite clients: {figures['disconnects']} connections and {figures['lost']} messages lost")
    return 1 if figures["disconnects"] or figures["lost"] else 0


def _latencies(part: dict[str, float]) -> list[str]:
    return [f"{part[key] / 1e3:.2f} ms" for key in ("p50_us", "p99_us", "max_us")]


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    asyncio.run(_attack(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
