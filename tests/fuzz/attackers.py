"""Attackers beside neighbours, for as long as one likes: `python -m tests.fuzz.attackers --seconds 600`.

Three attackers drive everything that can be said over TCP, TLS, WebSocket and HTTP: one knows no credentials, one shows
a certificate that was revoked, one is a user who may do little. Neighbours publish secrets and watch every topic.
Nothing that a rule forbids may be read or written, nobody else may be disconnected, and memory may not grow.
"""

import argparse
import asyncio
import base64
import contextlib
import json
import multiprocessing
import os
import random
import re
import secrets
import socket
import ssl
import struct
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from mqttlite.security import certificates
from mqttlite.security.keys import keys_of
from mqttlite.security.password_file import format_entry, new_salt
from mqttlite.security.tls import client_context
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.errors import PeerError
from mqttlite.wire.framer import Framer
from tests.fuzz.hostile import MARK, Hostile
from tests.support.device import Device, Gone

CONFIG = """
data_dir = "{home}/data"
password_file = "{home}/passwords"
acl_file = "{home}/acl"

[[listeners]]
port = {tcp}

[[listeners]]
port = {tls}
[listeners.tls]
cert_file = "{home}/certs/server.crt"
key_file = "{home}/certs/server.key"
ca_file = "{home}/certs/ca.crt"
crl_file = "{home}/certs/crl.pem"
client_certificates = "optional"

[[listeners]]
port = {ws}
websocket = true

[http]
port = {http}

[login_jail]
exempt = ["127.0.0.4/32"]

[limits]
max_queued_messages = 100
max_outbox_bytes = 65_536
max_sessions = 2_000
max_retained_messages = 500
max_delayed_messages = 500
max_route_cache_bytes = 1_048_576
max_session_expiry_s = 2
connect_timeout_s = 1

[[queues]]
name = "orders"
filters = ["secret/orders"]
"""

ACL = """
user neighbour
topic readwrite secret/#
topic readwrite public/#

user watch
topic read #
topic read $SYS/#

user weak
topic read public/#
topic write drop/weak/#
topic deny $SYS/#
"""

LEAK = "topic readwrite secret/now\n"
"""What `--leak` lets the weak user do, to show that it is found."""

ADDRESSES = {"outsider": "127.0.0.2", "revoked": "127.0.0.3", "weak": "127.0.0.4"}
"""Of their own, so that none of them is in another's jail."""

AT_ONCE = 4
"""Connections of each attacker at a time."""

MAX_GROWTH_BYTES = 64 * 1_048_576
PASSWORD = "neighbour's own"


@dataclass
class Report:
    """What came of it."""

    connections: dict[str, int] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)
    """Connections on which the attacker was let in."""
    permitted: int = 0
    """Messages that the weak user got, and may get: the attack did reach the broker."""
    quiet_ms: list[float] = field(default_factory=list)
    attacked_ms: list[float] = field(default_factory=list)
    growth_bytes: int = 0
    violations: list[str] = field(default_factory=list)

    def add(self, other: "Report") -> None:
        """What an attacker found."""
        self.connections |= other.connections
        self.answers |= other.answers
        self.permitted += other.permitted
        self.violations += other.violations

    def violate(self, what: str) -> None:
        if len(self.violations) < 100:
            self.violations.append(what)


def p99(figures: list[float]) -> float:
    return sorted(figures)[len(figures) * 99 // 100] if figures else 0.0


@dataclass(frozen=True)
class Place:
    """Where the broker is, and what nobody else may read."""

    certs: Path
    ports: dict[str, int]
    token: bytes

    def context(self) -> ssl.SSLContext:
        """A client that shows the intruder's certificate."""
        context = client_context(str(self.certs / "ca.crt"))
        context.load_cert_chain(self.certs / "intruder.crt", self.certs / "intruder.key")
        return context


class Stage:
    """A broker in a process of its own, and the files of all who take part."""

    def __init__(self, home: Path, *, leak: bool) -> None:
        self.home = home
        ports = dict(zip(("tcp", "tls", "ws", "http"), _free_ports(4), strict=True))
        self.place = Place(home / "certs", ports, f"CANARY-{secrets.token_hex(8)}".encode())
        self.broker: asyncio.subprocess.Process
        certificates.init(home / "certs", clients=("intruder",))
        entry = format_entry(keys_of(PASSWORD, new_salt(), 4_096))
        weak = format_entry(keys_of("weak", new_salt(), 4_096))
        lines = {"neighbour": entry, "watch": entry, "weak": weak, "intruder": entry}
        (home / "passwords").write_text("".join(f"{name}:{each}\n" for name, each in lines.items()))
        (home / "acl").write_text(ACL + (LEAK if leak else ""))
        (home / "mqttlite.toml").write_text(CONFIG.format(home=home, **ports))

    async def start(self) -> None:
        self.log = (self.home / "log").open("wb")
        self.broker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mqttlite", "serve", "-c", str(self.home / "mqttlite.toml")),
            *("--log-level", "warning", "--log-format", "json"),
            stdout=self.log,
            stderr=self.log,
        )
        for _ in range(300):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.place.ports["http"])
                writer.close()
                return
            await asyncio.sleep(0.1)
        raise RuntimeError((self.home / "log").read_text()[-2_000:])

    async def stop(self) -> list[str]:
        """End the broker; what it logged as errors."""
        if self.broker.returncode is None:
            self.broker.terminate()
        await self.broker.wait()
        self.log.close()
        lines = (self.home / "log").read_text().splitlines()
        return [line for line in lines if '"level":"error"' in line or "Traceback" in line]

    def rss_bytes(self) -> int:
        return int(Path(f"/proc/{self.broker.pid}/statm").read_text().split()[1]) * 4_096

    async def revoke(self) -> None:
        """Put the intruder's certificate on the list, and wait until the broker has read it."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mqttlite", "certs", "revoke", "intruder", "--dir", str(self.home / "certs"))
        )
        assert await process.wait() == 0
        await asyncio.sleep(1.2)


def _free_ports(number: int) -> Iterator[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    yield from [each.getsockname()[1] for each in held]
    for each in held:
        each.close()


class Neighbours:
    """Publish secrets, time them, and watch all topics for what nobody else may write."""

    def __init__(self, place: Place, report: Report) -> None:
        self._place = place
        self._report = report
        self.latencies = report.quiet_ms

    async def live(self) -> None:
        """Until cancelled; the end of a connection is a violation."""
        try:
            await asyncio.gather(self._exchange(), self._watch())
        except (Gone, OSError, AssertionError, TimeoutError) as error:
            self._report.violate(f"a neighbour was disturbed: {error!r}")

    async def _exchange(self) -> None:
        port, token = self._place.ports["tcp"], self._place.token
        speaker, listener = await Device.dial(port, V311), await Device.dial(port, V5)
        try:
            for device, name in ((speaker, "speaker"), (listener, "listener")):
                await device.connect(name, username="neighbour", password=PASSWORD.encode())
            await listener.subscribe("secret/now", 1)
            count = 0
            while True:
                count += 1
                payload = b"%s-%d" % (token, count)
                sent = time.perf_counter()
                assert await speaker.published("secret/now", payload) == 0
                assert await listener.message() == ("secret/now", payload), "another message than was published"
                self.latencies.append((time.perf_counter() - sent) * 1e3)
                if count % 50 == 1:
                    for topic in ("secret/kept", "secret/orders", "$delayed/1/secret/later"):
                        speaker.publish(topic, payload, qos=0, retain=topic == "secret/kept")
                    speaker.publish("public/kept", b"for all", qos=0, retain=True)
                speaker.publish("public/now", b"for all", qos=0)
                await asyncio.sleep(0.01)
        finally:
            await speaker.close()
            await listener.close()

    async def _watch(self) -> None:
        watch = await Device.dial(self._place.ports["tcp"], V5)
        try:
            await watch.connect("watch", username="watch", password=PASSWORD.encode())
            await watch.subscribe("#", 0)
            while True:
                topic, payload = await watch.message()
                ours = payload.startswith(self._place.token) or payload == b"for all"
                if not ours and not topic.startswith("drop/weak"):
                    self._report.violate(f"written to {topic}: {payload[:60]!r}")
        finally:
            await watch.close()


class Attacker:
    """One of the three; each connection is another attempt."""

    def __init__(self, who: str, place: Place, report: Report, rng: random.Random) -> None:
        self._who = who
        self._place = place
        self._report = report
        self._rng = rng
        self._hostile = Hostile(rng, *{"weak": ("weak", b"weak")}.get(who, (None, b"")))
        self._context = place.context()
        report.connections.setdefault(who, 0)
        report.answers.setdefault(who, 0)

    async def attack(self, until: float) -> None:
        ways: list[Callable[[], Awaitable[None]]] = [self._mqtt, self._mqtt, self._websocket, self._http]
        if self._who == "revoked":
            ways = [self._tls, self._tls, self._tls, self._mqtt]
        elif self._who == "weak":
            ways.append(self._tls)
        while time.monotonic() < until:
            self._report.connections[self._who] += 1
            try:
                async with asyncio.timeout(10):
                    await self._rng.choice(ways)()
            except TimeoutError:
                self._report.violate(f"{self._who}: a connection neither answered nor ended within 10 s")
            except OSError:
                pass  # it was closed
            await asyncio.sleep(0.002)

    async def _dial(
        self, port: str, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            "127.0.0.1",
            self._place.ports[port],
            local_addr=(ADDRESSES[self._who], 0),
            ssl=tls,
            server_hostname="localhost" if tls else None,
        )

    async def _mqtt(self) -> None:
        await self._speak(*await self._dial("tcp"))

    async def _tls(self) -> None:
        if self._who == "weak":
            plain = client_context(str(self._place.certs / "ca.crt"))
            await self._speak(*await self._dial("tls", plain))
        elif self._rng.random() < 0.2:  # no TLS at all
            await self._speak(*await self._dial("tls"))
        else:
            await self._speak(*await self._dial("tls", self._context))

    async def _speak(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        version = self._rng.choice((V311, V5))
        received = bytearray()
        try:
            for chunk in self._hostile.chunks(version):
                writer.write(chunk)
                if self._rng.random() < 0.3:
                    await self._read(reader, received, self._rng.choice((0.001, 0.02)))
            await self._read(reader, received, self._rng.choice((0.01, 0.05, 0.3, 1.2)))
        finally:
            self._judge(bytes(received), version)
            if self._rng.random() < 0.3:
                writer.transport.abort()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader, received: bytearray, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while data := await reader.read(65_536):
                    received += data

    def _judge(self, received: bytes, version: int) -> None:
        """Whether what came may come."""
        if self._place.token in received:
            self._report.violate(f"{self._who} read a secret: {received[:200]!r}")
        try:
            packets = list(Framer(1 << 28).split(received))
        except PeerError as error:
            self._report.violate(f"{self._who} got what is no MQTT ({error}): {received[:100]!r}")
            return
        if packets and packets[0][0] == 0x20 and bytes(packets[0][1])[1] == 0:
            self._report.answers[self._who] += 1
            if self._who != "weak":
                self._report.violate(f"{self._who} was let in: {received[:60]!r}")
        aliases: dict[bytes, bytes] = {}
        for first, body in packets:
            if first >> 4 != 3:
                continue
            length = struct.unpack("!H", body[:2])[0]
            topic = bytes(body[2 : 2 + length]) or b"(an alias)"
            if topic.startswith(b"public/") or topic == b"(an alias)" or aliases.get(topic):
                self._report.permitted += 1
            else:
                self._report.violate(f"{self._who} read {topic!r}")

    async def _websocket(self) -> None:
        reader, writer = await self._dial("ws")
        received = bytearray()
        try:
            writer.write(
                b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
            )
            for chunk in self._hostile.chunks(self._rng.choice((V311, V5))):
                writer.write(self._hostile.frame(chunk))
            await self._read(reader, received, self._rng.choice((0.02, 0.2)))
        finally:
            if self._place.token in received:
                self._report.violate(f"{self._who} read a secret over WebSocket: {bytes(received[:200])!r}")
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _http(self) -> None:
        reader, writer = await self._dial("http")
        received = bytearray()
        try:
            credentials = base64.b64encode(b"weak:weak") if self._who == "weak" else None
            writer.write(self._hostile.request(credentials))
            await self._read(reader, received, self._rng.choice((0.05, 0.3)))
        finally:
            if self._place.token in received:
                self._report.violate(f"{self._who} read a secret over HTTP: {bytes(received[:300])!r}")
            if re.match(rb"HTTP/1.1 5(?!03)", received):
                self._report.violate(f"{self._who} got an error of the gateway: {bytes(received[:300])!r}")
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def _run(who: str, place: Place, seconds: float, seed: float) -> Report:
    """One attacker in a process of its own, which leaves the processor to the others."""
    os.nice(10)

    async def run() -> Report:
        report, rng = Report(), random.Random(seed)
        until = time.monotonic() + seconds
        attackers = [Attacker(who, place, report, random.Random(rng.random())) for _ in range(AT_ONCE)]
        await asyncio.gather(*(each.attack(until) for each in attackers))
        return report

    return asyncio.run(run())


async def attack(seconds: float, seed: int, *, quiet_s: float = 10.0, leak: bool = False) -> Report:
    """All three attackers beside each other for that long."""
    report = Report()
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="attackers-") as name:
        stage = Stage(Path(name), leak=leak)
        await stage.start()
        try:
            await _revoked_while_connected(stage, report)
            neighbours = Neighbours(stage.place, report)
            living = asyncio.create_task(neighbours.live())
            await asyncio.sleep(quiet_s)
            neighbours.latencies = report.attacked_ms
            loop = asyncio.get_running_loop()
            with ProcessPoolExecutor(len(ADDRESSES), multiprocessing.get_context("spawn")) as processes:
                attacks = [
                    loop.run_in_executor(processes, _run, who, stage.place, seconds, rng.random()) for who in ADDRESSES
                ]
                await asyncio.sleep(seconds / 3)  # by then the limits of the configuration are reached
                before = stage.rss_bytes()
                for each in await asyncio.gather(*attacks):
                    report.add(each)
            report.growth_bytes = stage.rss_bytes() - before
            await _kept_is_kept(stage, report)
            living.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await living
        finally:
            errors = await stage.stop()
    for error in errors[:10]:
        report.violate(f"logged: {error[:600]}")
    if report.growth_bytes > MAX_GROWTH_BYTES:
        report.violate(f"grown by {report.growth_bytes / 1_048_576:.0f} MiB")
    return report


async def _revoked_while_connected(stage: Stage, report: Report) -> None:
    """A client is disconnected when its certificate is revoked, and the session of its TLS is of no use then."""
    port, context = stage.place.ports["tls"], stage.place.context()
    device = await Device.dial(port, V5, host="127.0.0.1", tls=context)
    await device.connect("intruder", username="intruder", password=PASSWORD.encode())
    tls: ssl.SSLObject = device.writer.get_extra_info("ssl_object")
    session = tls.session
    await stage.revoke()
    with contextlib.suppress(Gone, OSError):
        await device.ping()
        report.violate("a client with a revoked certificate is still connected after a second")
    await device.close()
    if await asyncio.to_thread(_resumes, port, context, session):
        report.violate("a TLS session from before the revocation was resumed")


def _resumes(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> bool:
    plain = socket.create_connection(("127.0.0.1", port), 5)
    with contextlib.suppress(OSError), context.wrap_socket(plain, server_hostname="localhost", session=session) as tls:
        tls.sendall(bytes.fromhex("100c00044d51545404020000") + b"\0\0")
        return bool(tls.recv(4))
    return False


async def _kept_is_kept(stage: Stage, report: Report) -> None:
    """The neighbour's retained message is there, and what it queued."""
    device = await Device.dial(stage.place.ports["tcp"], V5)
    await device.connect("checker", username="neighbour", password=PASSWORD.encode())
    await device.subscribe("secret/kept", 0)
    topic, payload = await device.message()
    if topic != "secret/kept" or not payload.startswith(stage.place.token):
        report.violate(f"the retained message was changed: {topic} {payload[:60]!r}")
    await device.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--leak", action="store_true", help="let the weak user read a secret: it must be found")
    options = parser.parse_args()
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    report = asyncio.run(attack(options.seconds, seed, leak=options.leak))
    print(json.dumps({"seed": seed, "connections": report.connections, "let in": report.answers}))
    print(f"messages that the weak user may read: {report.permitted}; marks: {MARK.decode()}")
    print(f"neighbours' p99: {p99(report.quiet_ms):.2f} ms quiet, {p99(report.attacked_ms):.2f} ms attacked")
    print(f"grown by {report.growth_bytes / 1_048_576:.1f} MiB; violations: {len(report.violations)}")
    for violation in report.violations[:20]:
        print(" ", violation)
    raise SystemExit(1 if report.violations else 0)


if __name__ == "__main__":
    main()
