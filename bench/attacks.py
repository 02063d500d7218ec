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
[[listeners]]
port = {web_port}
websocket = true
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


def _frame(data: bytes) -> bytes:
    """A binary frame of WebSocket with an empty mask."""
    size = len(data)
    short = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack("!H", size)
    return b"\x82" + (short if size < 65_536 else b"\xff" + struct.pack("!Q", size)) + bytes(4) + data


async def _web(port: int, number: int, packets: bytes) -> None:
    """A user with a right password who sends these bytes over and over, over WebSocket, also after its end."""
    reader, writer = await _dial(port, f"127.0.2.{number + 1}")
    try:
        writer.write(UPGRADE)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(_frame(_connect(f"web{number}", PASSWORD)))
        await reader.read(64)
        while True:
            writer.write(packets)
            await writer.drain()
    finally:
        writer.close()


async def _short_frames(port: int, number: int) -> None:
    publish = _packet(0x30, _text(f"web/{number}") + bytes(40))
    await _web(port, number, _frame(publish) * 10_000)


async def _cut_frames(port: int, number: int) -> None:
    publish = _packet(0x30, _text(f"web/{number}") + bytes(1_000))
    await _web(port, number, b"".join(_frame(publish[at : at + 1]) for at in range(len(publish))) * 100)


async def _too_long_frames(port: int, number: int) -> None:
    await _web(port, number, _frame(_packet(0x30, _text(f"web/{number}") + bytes(1_048_576))))


async def _full_queues(port: int, number: int) -> None:
    """A client whose queue is full, which comes back, reads nothing and leaves."""
    reader, writer = await _dial(port, f"127.0.2.{number % 200 + 1}")
    try:
        kept = _connect(f"away{number}", PASSWORD).replace(b"\x04\xc2\x00\x3c", b"\x04\xc0\x00\x3c", 1)
        writer.write(kept + _packet(0x82, b"\x00\x01" + _text("queues/#") + b"\x01"))
        await reader.readexactly(9)
        if number == 0:
            batch = b"".join(_packet(0x32, _text("queues/x") + struct.pack("!H", each) + bytes(200)) for each in IDS)
            writer.write(batch)
            await writer.drain()
    finally:
        writer.close()


IDS: Final = range(1, 501)
UPGRADE: Final = (
    b"GET /mqtt HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)

ATTACKS: Final[Mapping[str, tuple[Callable[[int, int], Awaitable[None]], int, str]]] = {
    "slow-loris": (_slow_loris, 1_000, "1000 connections, a byte of CONNECT in 0.1 s"),
    "half-open": (_half_open, 5_000, "5000 silent connections"),
    "connect flood": (_connects, 50, "50 at a time connect without a password, are refused and come again"),
    "brute force": (_guess, 200, "200 addresses guess, one password at a time each"),
    "subscription bomb": (_subscriptions, 3, "3 users subscribe to 50,000 filters with wildcards each, and leave"),
    "oversized packets": (_oversized, 20, "20 connections announce 256 MB and send it"),
    "full queues": (_full_queues, 500, "500 clients with full queues come back, read nothing and leave"),
    "short frames": (_short_frames, 10, "10 WebSockets send a message of 40 bytes in each frame"),
    "cut frames": (_cut_frames, 10, "10 WebSockets send messages of 1,000 bytes, a byte in each frame"),
    "too long frames": (_too_long_frames, 10, "10 WebSockets send packets that are too long, and go on after the end"),
}

OVER_WEB: Final = ("short frames", "cut frames", "too long frames")
"""The attacks over WebSocket."""


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
        home, port, web_port = Path(folder), brokers.free_port(), brokers.free_port()
        entry = format_entry(keys_of(PASSWORD, new_salt(), 15_000))
        (home / "passwords").write_text(f"user0:{entry}\nmallory:{entry}\n", encoding="utf-8")
        (home / "mqttlite.toml").write_text(CONFIG.format(home=home, port=port, web_port=web_port), encoding="utf-8")
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
            figures, made = _measure(port, web_port, seconds)
        finally:
            broker.stop()
    return _tell(figures, made)


def _measure(port: int, web_port: int, seconds: float) -> tuple[dict[str, object], list[int]]:
    load = ("--mode", "fanin", "--pubs", "20", "--qos", "1", "--rate", "200", "--size", "64", "--secs", "600")
    where = ("--port", str(port), "--password", PASSWORD)
    polite = subprocess.Popen([str(build.loadgen()), *load, *where], stdout=subprocess.PIPE, text=True)
    made = []
    try:
        time.sleep(2 + seconds)
        polite.send_signal(signal.SIGUSR1)
        for name in ATTACKS:
            to = web_port if name in OVER_WEB else port
            attack = [sys.executable, "-m", "bench.attacks", name, str(to), str(seconds)]
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
