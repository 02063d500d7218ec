"""Several workers over real sockets: for a client there is one broker, wherever its connection comes in."""

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from mqttlite.cli.serve import _serve
from mqttlite.client import ScramSha256
from mqttlite.cluster.processors import processors
from mqttlite.config import Config, LameDuckOptions, ListenerOptions
from mqttlite.core.connection import Connection
from mqttlite.core.limits import Limits
from mqttlite.net import turns
from mqttlite.net.listeners import PARTING_S
from mqttlite.net.proxy_protocol import Options as ProxyOptions
from mqttlite.security.keys import keys_of
from mqttlite.security.password_file import set_user
from mqttlite.security.tls import TlsOptions, client_context
from mqttlite.server import Broker
from mqttlite.telemetry.options import Options as TelemetryOptions
from mqttlite.telemetry.sys_topics import Options as SysOptions
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Will,
)
from mqttlite.wire.properties import Properties
from tests.rooms.test_serve_process import Served, fails, has_room_for_many_files, serving, start
from tests.support.crew import crew
from tests.support.device import Device, Gone, until
from tests.support.web import dial as dial_web

pytestmark = pytest.mark.slow

ADDRESS = "203.0.113.7:54321"
PROXY = b"PROXY TCP4 203.0.113.7 10.0.0.1 54321 1883\r\n"
TCP = (ListenerOptions(port=0),)
QUIET = SysOptions(interval_s=0)
KINDS = ["tcp", "tls", "ws", "wss", "unix", "proxy", "proxy-tls"]
RELAYED = ["tls", "ws", "wss", "proxy-tls"]


@pytest.fixture(autouse=True)
def nothing_is_wrong(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No test may end with an error in the log."""
    yield
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


class House:
    """Two workers, all kinds of doors, and the devices that came in."""

    def __init__(self, workers: list[Broker], certs: Path | None = None) -> None:
        self.workers = workers
        self._certs = certs
        self._devices: list[Device] = []
        self._names = 0

    def name(self, home: int) -> str:
        """An identifier that is known to be at home with a worker, as if its client had been there a moment ago."""
        self._names += 1
        name = f"device{self._names}"
        views = [worker._core._workers for worker in self.workers]
        keeper, there = views[zlib.crc32(name.encode()) % len(views)], views[home]
        assert keeper is not None
        assert there is not None
        keeper._homes[name.encode()] = home
        there._here[name.encode()] = 0
        return name

    async def dial(self, kind: str = "tcp", version: int = V5, **options: Any) -> Device:
        """A device that has a connection of a kind and has said nothing."""
        dialled = await self._dial(kind, version, options)
        self._devices.append(dialled)
        return dialled

    async def _dial(self, kind: str, version: int, options: dict[str, Any]) -> Device:
        doors = {listener.name: listener for listener in self.workers[0].listeners}
        tls = self._context() if kind in ("tls", "wss", "proxy-tls") else None
        if kind in ("ws", "wss"):
            return await dial_web(doors[kind].port, version, tls=tls)
        if kind == "unix":
            return Device(*await asyncio.open_unix_connection(doors["unix"].addresses[0]), version)
        if kind.startswith("proxy"):
            reader, writer = await asyncio.open_connection("127.0.0.1", doors[kind].port)
            writer.write(PROXY)
            if tls is not None:
                await writer.start_tls(tls, server_hostname="localhost")
            return Device(reader, writer, version)
        return await Device.dial(self.workers[0].listeners[kind == "tls"].port, version, tls=tls, **options)

    def _context(self) -> ssl.SSLContext:
        assert self._certs is not None
        names = (self._certs / f"thermometer.{suffix}" for suffix in ("crt", "key"))
        return client_context(str(self._certs / "ca.crt"), *[str(name) for name in names])

    async def stray(self, kind: str = "tcp", version: int = V5, **options: Any) -> tuple[Device, int, str]:
        """A device, the worker where its connection came in, and a client identifier that is at home elsewhere."""
        known = {link for worker in self.workers for link in worker._turns.links.values()}
        device = await self.dial(kind, version, **options)

        def where() -> list[int]:
            return [
                at
                for at, worker in enumerate(self.workers)
                if any(link not in known for link in worker._turns.links.values())
            ]

        await until(lambda: bool(where()))
        (at,) = where()
        return device, at, self.name(1 - at)

    async def moved(
        self, kind: str = "tcp", version: int = V5, *, small_buffers: bool = False, **options: Any
    ) -> Device:
        """A device that is connected, and whose connection moved."""
        device, at, name = await self.stray(kind, version, **({"small_buffers": True} if small_buffers else {}))
        await device.connect(name, **options)
        assert self.connection(name) in self.workers[1 - at]._core.connections.values()
        return device

    async def to(self, home: int, kind: str = "tcp", version: int = V5, **options: Any) -> Device:
        """A device that is at home with a worker, wherever it came in."""
        device = await self.dial(kind, version)
        await device.connect(options.pop("name", None) or self.name(home), **options)
        return device

    def connection(self, client_id: str) -> Connection:
        (found,) = [
            each for worker in self.workers for each in worker._core.connections.values() if each.client_id == client_id
        ]
        return found

    async def settled(self) -> None:
        """Until each has heard what the others had to say."""
        for _ in range(3):
            for worker in self.workers:
                await worker._turns.settled()
            await asyncio.sleep(0.01)

    @property
    def open(self) -> int:
        """Connections that any listener counts."""
        return sum(listener._open for worker in self.workers for listener in worker.listeners)

    def is_alone(self) -> bool:
        """Whether there is one client, and nothing left of another."""
        connections = sum(len(worker._core.connections) for worker in self.workers)
        return self.open == connections == sum(len(worker._turns.links) for worker in self.workers) == 1

    async def stop(self) -> None:
        await asyncio.gather(*[worker.stop() for worker in self.workers])

    async def leave(self) -> None:
        for device in self._devices:
            await device.close()


class Town:
    """`async with town(config) as house`"""

    def __init__(self, config: Config, certs: Path | None = None, **options: object) -> None:
        self._crew = crew(config, **options)
        self._certs = certs

    async def __aenter__(self) -> House:
        self._house = House(await self._crew.__aenter__(), self._certs)
        return self._house

    async def __aexit__(self, *error: Any) -> None:
        await self._house.leave()
        await self._crew.__aexit__(*error)


def all_doors(certs: Path, folder: Path, **options: Any) -> Config:
    tls = TlsOptions(str(certs / "server.crt"), str(certs / "server.key"), str(certs / "ca.crt"))
    proxies = ProxyOptions(trusted=("127.0.0.1/32",))
    return Config(
        listeners=(
            ListenerOptions(port=0, name="tcp"),
            ListenerOptions(port=0, name="tls", tls=tls),
            ListenerOptions(port=0, name="ws", websocket=True),
            ListenerOptions(port=0, name="wss", websocket=True, tls=tls),
            ListenerOptions(path=str(folder / "x.sock"), name="unix"),
            ListenerOptions(port=0, name="proxy", proxy_protocol=proxies),
            ListenerOptions(port=0, name="proxy-tls", proxy_protocol=proxies, tls=tls),
        ),
        telemetry=TelemetryOptions(directory=str(folder / "telemetry"), format="jsonl"),
        **{"sys": QUIET, **options},
    )


def rows(folder: Path) -> list[dict[str, Any]]:
    """Of the sessions, in whichever format."""
    found: list[dict[str, Any]] = []
    for path in sorted(folder.glob("**/table=sessions/**/part-*")):
        if path.suffix == ".parquet":
            found += pyarrow.parquet.ParquetFile(path).read().to_pylist()
        else:
            found += [json.loads(line) for line in path.read_text().splitlines()]
    return found


# ---------------------------------------------------------------------- every door


@pytest.mark.parametrize("kind", KINDS)
async def test_a_client_is_served_by_its_home_whatever_door_it_came_in_by(
    certs: Path, tmp_path: Path, kind: str
) -> None:
    async with Town(all_doors(certs, tmp_path), certs) as house:
        device, at, name = await house.stray(kind)
        await device.connect(name, username="somebody")
        neighbour = await house.to(at)
        await device.subscribe("to/device", 1)
        await neighbour.subscribe("to/neighbour", 2)
        assert await neighbour.published("to/device", b"x" * 100_000) == 0
        assert await device.message() == ("to/device", b"x" * 100_000)
        assert await device.published("to/neighbour", b"\0\xff") == 0
        assert await neighbour.message() == ("to/neighbour", b"\0\xff")
        (link,) = [link for link in house.workers[1 - at]._turns.links.values() if link.connection.client_id == name]
        own = device.address
        device.send(Disconnect())
        await device.goodbye()
        await house.leave()
        await until(lambda: house.open == 0)
        await house.stop()
    (row,) = [row for row in rows(tmp_path) if row["client_id"] == name]
    secure = kind in ("tls", "wss", "proxy-tls")
    assert row["listener"] == kind
    assert row["transport"] == {"proxy": "tcp", "proxy-tls": "tls"}.get(kind, kind)
    assert row["peer"] == (ADDRESS if kind.startswith("proxy") else own if kind != "unix" else "unix")
    assert row["username"] == ("thermometer" if secure else "somebody")
    assert (row["tls_version"], row["tls_cipher"]) == (link.tls_version, link.tls_cipher)
    assert (row["tls_version"] == "TLSv1.3") == secure
    assert row["close_reason"] == "client_disconnected"
    assert row["bytes_received"] == device.bytes_sent
    assert row["bytes_sent"] == device.bytes_received


@pytest.mark.parametrize("kind", KINDS)
async def test_nothing_is_lost_that_comes_in_one_piece_with_connect(certs: Path, tmp_path: Path, kind: str) -> None:
    async with Town(all_doors(certs, tmp_path), certs) as house:
        for _ in range(3):
            device, _at, name = await house.stray(kind)
            device.send(
                Connect(name, V5),
                Subscribe(1, (SubscriptionRequest(name.encode(), 1),)),
                Publish(name.encode(), b"first", 1, packet_id=2),
            )
            device.send(Publish(name.encode(), b"second", 1, packet_id=3))
            kinds = [type(await device.next()) for _ in range(6)]
            assert kinds == [Connack, Suback, Publish, Ack, Publish, Ack]


async def test_a_hundred_at_once_all_arrive() -> None:
    async with Town(Config(listeners=TCP, sys=QUIET)) as house:

        async def visit(number: int) -> None:
            device = await Device.dial(house.workers[0].port)
            device.send(
                Connect(f"visitor{number}", V5),
                Subscribe(1, (SubscriptionRequest(b"own/%d" % number, 1),)),
                Publish(b"own/%d" % number, b"x" * number, 1, packet_id=2),
            )
            assert [type(await device.next()) for _ in range(4)] == [Connack, Suback, Publish, Ack]
            await device.disconnect()

        await asyncio.gather(*[visit(number) for number in range(100)])
        await until(lambda: house.open == 0)
        assert sum(worker._core.opened for worker in house.workers) == 100


@pytest.mark.parametrize("kind", ["tcp", *RELAYED])
async def test_connect_may_come_byte_by_byte(certs: Path, tmp_path: Path, kind: str) -> None:
    async with Town(all_doors(certs, tmp_path), certs) as house:
        device, _at, name = await house.stray(kind)
        for byte in encode(Connect(name, V5), V5) + encode(Pingreq(), V5):
            device.send_bytes(bytes((byte,)))
            await asyncio.sleep(0)
        await device.expect(Connack)
        await device.next()


# ---------------------------------------------------------------------- sessions


async def test_a_second_connection_takes_over_wherever_it_came_in() -> None:
    async with Town(Config(listeners=TCP, sys=QUIET)) as house:
        arrivals = set()
        first, _at, name = await house.stray()
        await first.connect(name, expiry=60)
        await first.subscribe("t", 1)
        for _ in range(50):
            second, at, _name = await house.stray()
            arrivals.add(at)
            connack = await second.connect(name, clean_start=False, expiry=60)
            assert connack.session_present
            assert await first.goodbye() == 0x8E
            first = second
            if len(arrivals) == 2:
                break
        assert arrivals == {0, 1}
        for home in (0, 1):
            await (await house.to(home)).published("t", b"x")
            assert await first.message() == ("t", b"x")


async def test_a_session_waits_at_home() -> None:
    async with Town(Config(listeners=TCP, sys=QUIET)) as house:
        for home in (0, 1):
            name = house.name(home)
            device = await house.to(home, name=name, expiry=60)
            await device.subscribe("t", 1)
            await device.disconnect()
            publisher = await house.to(1 - home)
            assert await publisher.published("t", b"meanwhile") == 0
            device = await house.dial()
            assert (await device.connect(name, clean_start=False)).session_present
            assert await device.message() == ("t", b"meanwhile")


async def test_what_one_retains_another_gets() -> None:
    async with Town(Config(listeners=TCP, sys=QUIET)) as house:
        for home in (0, 1):
            publisher, other = await house.to(home), await house.to(1 - home)
            publisher.publish("t", b"kept", 1, retain=True)
            await publisher.expect(Ack)
            await other.subscribe("t")
            publish = await other.expect(Publish)
            assert (publish.payload, publish.retain) == (b"kept", True)
            publisher.publish("t", b"", 1, retain=True)
            await publisher.expect(Ack)
            late = await house.to(1 - home)
            await late.subscribe("t")
            await late.ping()
            assert late.waiting() == []


async def test_members_of_a_share_at_both_workers_divide_its_messages() -> None:
    async with Town(Config(listeners=TCP, sys=QUIET)) as house:
        members = [await house.to(home) for home in (0, 0, 1, 1)]
        for member in members:
            await member.subscribe("$share/g/t", 1)
        for home in (0, 1):
            publisher = await house.to(home)
            for number in range(20):
                assert await publisher.published("t", b"%d" % number) == 0
        for member in members:
            got = [await member.message() for _ in range(10)]
            await member.ping()
            assert len(got) == 10
            assert not [packet for packet in member.waiting() if isinstance(packet, Publish)]


async def test_a_subscription_that_is_acknowledged_is_known_everywhere() -> None:
    async with Town(Config(listeners=TCP, sys=QUIET)) as house:
        publishers = [await house.to(home) for home in (0, 1)]
        for number in range(50):
            subscriber = await house.to(number % 2)
            await subscriber.subscribe(f"t/{number}")
            publishers[1 - number % 2].publish(f"t/{number}", b"x")
            assert await subscriber.message() == (f"t/{number}", b"x")


async def test_a_will_reaches_the_other_worker() -> None:
    async with Town(Config(listeners=TCP, sys=QUIET)) as house:
        for home in (0, 1):
            watcher = await house.to(home)
            await watcher.subscribe("will", 1)
            device = await house.to(1 - home, will=Will(b"will", b"gone", 1))
            device.drop()
            assert await watcher.message() == ("will", b"gone")


# ---------------------------------------------------------------------- slow, big, rude


def big(number: int) -> bytes:
    return number.to_bytes(4, "big") + bytes([number % 251]) * 200_000


@pytest.mark.parametrize("kind", ["tcp", *RELAYED])
async def test_big_messages_pass_both_ways_at_once(certs: Path, tmp_path: Path, kind: str) -> None:
    async with Town(all_doors(certs, tmp_path), certs) as house:
        device = await house.moved(kind)
        await device.subscribe("big", 1)
        for number in range(30):
            device.publish("big", big(number), 1)
        acknowledged = 0
        got = []
        while acknowledged < 30 or len(got) < 30:
            packet = await device.next()
            if isinstance(packet, Ack):
                acknowledged += 1
            else:
                assert isinstance(packet, Publish)
                got.append(packet.payload)
                device.send(Ack(4, packet.packet_id))
        assert got == [big(number) for number in range(30)]


@pytest.mark.parametrize("kind", ["tcp", "tls"])
async def test_a_client_that_does_not_read_is_felt_at_its_home(certs: Path, tmp_path: Path, kind: str) -> None:
    limits = Limits(max_outbox_bytes=50 * 1_048_576)
    async with Town(all_doors(certs, tmp_path, limits=limits), certs) as house:
        frozen = await house.moved(kind, small_buffers=True)
        await frozen.subscribe("flood")
        frozen.freeze()
        state = house.connection(frozen.client_id)
        publisher = await house.to(0)
        sent = 0
        while not state.outbox.blocked:
            publisher.publish("flood", big(sent))
            await publisher.ping()
            sent += 1
            assert sent < 300, "it should have been held back by now"
        frozen.thaw()
        for number in range(sent):
            assert await frozen.message() == ("flood", big(number))
        await until(lambda: not state.outbox.blocked)


async def test_who_sends_to_a_worker_that_is_slow_is_read_no_more_and_nobody_else() -> None:
    async with Town(Config(listeners=TCP, sys=QUIET)) as house:
        subscriber = await house.to(1)
        await subscriber.subscribe("there/#")
        publisher, neighbour = await house.to(0), await house.to(0)
        await neighbour.subscribe("here")
        state = house.connection(publisher.client_id)
        assert house.workers[1]._crew is not None
        other = house.workers[1]._crew.fabric._peers[0]._transport
        other.pause_reading()
        sent = 0
        while not state.unread:
            for _ in range(10):
                publisher.publish(f"there/{sent}", big(sent)[:20_000])
                sent += 1
            neighbour.publish("here", b"on and on")
            assert await neighbour.message() == ("here", b"on and on")
            assert sent < 5_000, "it should have been held up by now"
        assert not house.connection(neighbour.client_id).unread
        other.resume_reading()
        for number in range(sent):
            assert await subscriber.message() == (f"there/{number}", big(number)[:20_000])
        await publisher.ping()  # it is read again, wherever it is: it may have followed its messages


@pytest.mark.parametrize("qos", [1, 2])
async def test_who_waits_for_very_many_acknowledgements_is_read_no_more(
    qos: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "MAX_POSTPONED", 50)
    async with Town(Config(listeners=TCP, sys=QUIET)) as house:
        subscriber = await house.to(1)
        await subscriber.subscribe("there")
        publisher = await house.to(0)
        state = house.connection(publisher.client_id)
        assert house.workers[1]._crew is not None
        other = house.workers[1]._crew.fabric._peers[0]._transport
        other.pause_reading()  # it has something else to do
        sent = [publisher.publish("there", b"x", qos)]
        while not state.unread:
            sent.append(publisher.publish(f"nobody/{len(sent)}", b"x", qos))
            await asyncio.sleep(0)
            assert len(sent) < 1_000
        assert 50 < len(state.postponed) < 200
        sent += [publisher.publish(f"nobody/{number}", b"x", qos) for number in range(500)]
        other.resume_reading()
        assert [(await publisher.expect(Ack)).packet_id for _ in sent] == sent
        assert not state.unread


@pytest.mark.parametrize("kind", ["tcp", *RELAYED])
@pytest.mark.parametrize("how", ["close", "drop"])
@pytest.mark.parametrize("state", ["silent", "half", "connect", "connected", "sending"])
async def test_who_leaves_leaves_nothing_behind(certs: Path, tmp_path: Path, kind: str, how: str, state: str) -> None:
    async with Town(all_doors(certs, tmp_path), certs) as house:
        watcher = await house.to(0)
        await watcher.subscribe("will", 1)
        device, _at, name = await house.stray(kind)
        connect = encode(Connect(name, V5, will=Will(b"will", b"gone", 1)), V5)
        device.send_bytes(b"" if state == "silent" else connect[:9] if state == "half" else connect)
        if state in ("connected", "sending"):
            await device.expect(Connack)
        if state == "sending":
            device.send_bytes(encode(Publish(b"big", bytes(500_000), 1, packet_id=1), V5)[:300_000])
        if how == "drop" and kind not in ("ws", "wss"):
            device.drop()
        else:
            await device.close()
        await until(house.is_alone)
        await house.settled()
        await until(house.is_alone)
        if state in ("connected", "sending"):
            assert await watcher.message() == ("will", b"gone")


@pytest.mark.parametrize("kind", RELAYED)
async def test_a_last_word_passes_the_relay(certs: Path, tmp_path: Path, kind: str) -> None:
    async with Town(all_doors(certs, tmp_path), certs) as house:
        device = await house.moved(kind)
        device.send_bytes(b"\xf0\x00\x00")
        assert await device.goodbye() == 0x82
        await device.close()
        await until(lambda: house.open == 0)


async def test_a_refused_connect_is_answered_from_home() -> None:
    limits = Limits(max_sessions=1)
    async with Town(Config(listeners=TCP, sys=QUIET, limits=limits)) as house:
        for home in (0, 1):
            await house.to(home)
        device, _at, name = await house.stray()
        device.hello(name)
        assert (await device.expect(Connack)).reason_code == 0x97
        assert await device.goodbye() is None


async def test_max_connections_holds_for_those_that_move(certs: Path) -> None:
    tls = TlsOptions(str(certs / "server.crt"), str(certs / "server.key"))
    for options in (ListenerOptions(port=0, max_connections=3), ListenerOptions(port=0, max_connections=3, tls=tls)):
        kind = "tls" if options.tls else "tcp"
        async with Town(Config(listeners=(ListenerOptions(port=0, name="plain"), options), sys=QUIET), certs) as house:
            port = house.workers[0].listeners[1].port
            context = client_context(str(certs / "ca.crt")) if kind == "tls" else None
            served = 0
            devices = []
            for _ in range(12):
                device = await Device.dial(port, tls=context) if kind == "tcp" else None
                if device is None:
                    try:
                        device = await Device.dial(port, tls=context)
                    except (OSError, ssl.SSLError):
                        continue
                devices.append(device)
                device.hello(house.name(0))
                try:
                    await device.expect(Connack)
                    served += 1
                except (Gone, OSError):
                    pass
            assert served <= 3, "they are all at home with one"
            assert all(worker.listeners[1]._open <= 3 for worker in house.workers)
            for device in devices:
                await device.close()
            await until(lambda: house.open == 0)


# ---------------------------------------------------------------------- who may come in


@pytest.mark.parametrize("kind", ["tcp", "tls"])
async def test_passwords_are_asked_for_at_home(certs: Path, tmp_path: Path, kind: str) -> None:
    users = tmp_path / "users"
    set_user(users, "ann", keys_of("secret", b"0123456789abcdef", 4_096), create=True)
    async with Town(all_doors(certs, tmp_path, password_file=str(users)), certs) as house:
        device = await house.moved(kind, username="ann")
        assert house.connection(device.client_id).username == ("ann" if kind == "tcp" else "thermometer")
        device, _at, name = await house.stray(kind)
        device.hello(name, username="eve")
        assert (await device.expect(Connack)).reason_code == 0x86


@pytest.mark.parametrize("kind", ["tcp", "tls"])
async def test_scram_goes_on_where_the_connection_does(certs: Path, tmp_path: Path, kind: str) -> None:
    users = tmp_path / "users"
    set_user(users, "ann", keys_of("secret", b"0123456789abcdef", 4_096), create=True)
    async with Town(all_doors(certs, tmp_path, password_file=str(users)), certs) as house:
        device, _at, name = await house.stray(kind)
        talk = ScramSha256("ann", "secret").begin()

        def said(data: bytes) -> Properties:
            return Properties(authentication_method="SCRAM-SHA-256", authentication_data=data)

        device.hello(name, properties=said(talk.first()))
        challenge = await device.expect(Auth)
        device.send(Auth(0x18, said(await talk.reply(challenge.properties.authentication_data or b""))))
        connack = await device.expect(Connack)
        assert connack.reason_code == 0
        talk.finish(connack.properties.authentication_data or b"")


# ---------------------------------------------------------------------- what is told of it


async def test_sys_topics_count_all_workers() -> None:
    async with Town(Config(listeners=TCP, sys=SysOptions(interval_s=0.1))) as house:
        devices = [await house.to(home) for home in (0, 0, 1, 1, 1)]
        for at, device in enumerate(devices):
            await device.subscribe(f"t/{at}")
            await device.subscribe("$share/g/t")
            device.publish("t/1", b"x")
            await device.ping()
        for home in (0, 1):
            watcher = await house.to(home)
            wanted = {
                "clients/connected": b"%d" % (6 + home),
                "connections/socket/count": b"%d" % (6 + home),
                "subscriptions/count": b"%d" % (6 + home),
                "shared_subscriptions/count": b"5",
                "publish/messages/received": b"5",
            }
            await watcher.subscribe("$SYS/broker/#")
            said: dict[str, bytes] = {}
            loop = asyncio.get_running_loop()
            deadline = loop.time() + 60
            while any(said.get(name) != value for name, value in wanted.items()):
                topic, payload = await watcher.message()
                said[topic.removeprefix("$SYS/broker/")] = payload
                assert loop.time() < deadline, {name: said.get(name) for name in wanted}


async def test_clients_that_come_and_go_are_told_of_at_the_other_worker() -> None:
    async with Town(Config(listeners=TCP, sys=SysOptions(interval_s=0, presence=True))) as house:
        for home in (0, 1):
            watcher = await house.to(home)
            await watcher.subscribe("$SYS/broker/clients/+/+")
            device, _at, _name = await house.stray()
            name = house.name(1 - home)
            address = device.address
            await device.connect(name)
            await device.disconnect()
            for event in ("connected", "disconnected"):
                while True:
                    topic, payload = await watcher.message()
                    if name in topic:
                        break
                assert topic == f"$SYS/broker/clients/{name}/{event}"
                assert json.loads(payload)["peer"] == address
            await watcher.disconnect()
            await house.settled()


# ---------------------------------------------------------------------- the end


@pytest.mark.parametrize("kind", ["tcp", "tls", "unix"])
async def test_a_stop_says_goodbye_to_everybody(certs: Path, tmp_path: Path, kind: str) -> None:
    async with Town(all_doors(certs, tmp_path), certs) as house:
        devices = [await house.to(home, kind) for home in (0, 1, 0, 1)]
        stop = asyncio.create_task(house.stop())
        assert [await device.goodbye() for device in devices] == [0x8B] * 4
        await house.leave()
        await stop


async def test_a_broker_that_is_to_be_replaced_sends_the_clients_of_all_workers_away(
    certs: Path, tmp_path: Path
) -> None:
    options = LameDuckOptions(deadline_s=0.3, server_reference="other.example:1883")
    async with Town(all_doors(certs, tmp_path, lame_duck=options), certs) as house:
        devices = [await house.moved(kind) for kind in ("tcp", "tcp", "tls", "tls", "tls")]
        drains = [asyncio.create_task(worker.drain()) for worker in house.workers]
        assert [await device.goodbye() for device in devices] == [0x9C] * 5
        await house.leave()
        await asyncio.gather(*drains)


async def test_of_a_relayed_client_nobody_drains_away(certs: Path, tmp_path: Path) -> None:
    options = LameDuckOptions(deadline_s=4, server_reference="other.example:1883")
    async with Town(all_doors(certs, tmp_path, lame_duck=options), certs) as house:
        device, at, name = await house.stray("tls")
        await device.connect(name)
        drains = [asyncio.create_task(house.workers[at].drain())]  # it has no client of its own
        _done, waits = await asyncio.wait(drains, timeout=2 * PARTING_S)
        assert waits, "it has the socket of one"
        drains.append(asyncio.create_task(house.workers[1 - at].drain()))
        assert await device.goodbye() == 0x9C
        await house.leave()
        await asyncio.gather(*drains)


# ---------------------------------------------------------------------- real processes


def process(test: Any) -> Any:
    """Of a test that starts processes."""
    return pytest.mark.slow(pytest.mark.asyncio(loop_factories=["uvloop"])(test))


TWO = ("--port", "0", "--workers", "2")


@asynccontextmanager
async def several(*arguments: str) -> AsyncIterator[Served]:
    """A broker of several processes, none of which is left at the end."""
    async with serving(*arguments) as served:
        yield served
        if served.process.returncode is None:
            served.process.send_signal(signal.SIGTERM)
            assert await served.ends(8) == 0


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def running(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def name(number: int) -> str:
    """A client identifier; with which of the processes its client is at home is the kernel's choice."""
    return f"device{number}"


def assert_calm(log: list[str]) -> None:
    assert not [line for line in log if any(word in line for word in ("Traceback", "Warning", "ERROR", "Error"))], log


@process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_all_processes_with_a_goodbye_and_exit_code_0(number: signal.Signals) -> None:
    async with several(*TWO) as served:
        devices = [await Device.dial(served.port) for _ in range(8)]
        for at, device in enumerate(devices):
            await device.connect(name(at))
            await device.subscribe("t")
        pids = children(served.process.pid)
        assert len(pids) == 2
        served.process.send_signal(number)
        for device in devices:
            assert await device.goodbye() == 0x8B
            await device.close()
        assert await served.ends(5) == 0
        assert not running(pids)
        assert_calm(served.log)
        assert [line.split(None, 3)[-1] for line in served.log].count("stopping") == 1, "one speaks for all"


@process
async def test_control_c_reaches_parent_and_children_at_once() -> None:
    async with several(*TWO) as served:
        for pid in (*children(served.process.pid), served.process.pid):
            os.kill(pid, signal.SIGINT)
        assert await served.ends(5) == 0
        assert_calm(served.log)


@process
@pytest.mark.parametrize("victim", [0, 1])
async def test_when_one_is_killed_the_others_stop_and_say_why(victim: int) -> None:
    async with several(*TWO) as served:
        devices = [await Device.dial(served.port) for _ in range(16)]  # of so many both have some
        for at, device in enumerate(devices):
            await device.connect(name(at))
        os.kill(children(served.process.pid)[victim], signal.SIGKILL)
        assert {await device.goodbye() for device in devices} == {0x8B, None}
        for device in devices:
            await device.close()
        assert await served.ends(8) == 1
        assert any("is gone: the broker stops" in line for line in served.log)
        assert not [line for line in served.log if "Traceback" in line]


@process
async def test_without_the_process_that_started_them_they_stop() -> None:
    async with several(*TWO) as served:
        pids = children(served.process.pid)
        devices = [await Device.dial(served.port) for _ in range(2)]
        for at, device in enumerate(devices):
            await device.connect(name(at))
        served.process.kill()
        await served.process.wait()
        for device in devices:
            assert await device.goodbye() == 0x8B
            await device.close()
        await served.ends(5)  # the last of them closes what they write their log to
        assert any("that started the workers is gone" in line for line in served.log)
        async with asyncio.timeout(5):
            while running(pids):  # init has yet to hear of them
                await asyncio.sleep(0.05)


@process
async def test_processes_are_one_broker(certs: Path, tmp_path: Path) -> None:
    files = ("--cert", str(certs / "server.crt"), "--key", str(certs / "server.key"))
    async with several(*TWO, "--tls-port", "0", *files, "--telemetry", str(tmp_path)) as served:
        assert served.process.stderr is not None
        line = (await served.process.stderr.readline()).decode()
        tls_port = int(line.rsplit(":", 1)[1].split()[0])
        context = client_context(str(certs / "ca.crt"))
        seen = []
        for number in range(24):
            tls = context if number % 2 else None
            publisher = await Device.dial(served.port)
            await publisher.connect(name(number))
            device = await Device.dial(tls_port if tls else served.port, tls=tls)
            client_id = name(number + 100)
            device.send(
                Connect(client_id, V5),
                Subscribe(1, (SubscriptionRequest(b"t/%d" % number, 1),)),
                Publish(b"t/%d" % number, b"own", 1, packet_id=2),
            )
            assert [type(await device.next()) for _ in range(2)] == [Connack, Suback]
            assert {type(await device.next()) for _ in range(2)} == {Publish, Ack}
            assert await publisher.published(f"t/{number}", b"x" * 50_000) == 0
            assert await device.message() == (f"t/{number}", b"x" * 50_000)
            again = await Device.dial(tls_port if tls else served.port, tls=tls)
            await again.connect(client_id)
            assert await device.goodbye() == 0x8E
            seen += [publisher.client_id, client_id, client_id]
            for each in (publisher, again):
                await each.disconnect()
            await device.close()
        served.process.send_signal(signal.SIGTERM)
        assert await served.ends(5) == 0
        assert_calm(served.log)
    assert sorted(row["client_id"] for row in rows(tmp_path)) == sorted(seen), "each connection has one row"


def resumes(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> tuple[bool, ssl.SSLSession | None]:
    """Whether a client that shows that session is spared half of the handshake, and the session it has afterwards."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=5) as sock,
        context.wrap_socket(sock, server_hostname="127.0.0.1", session=session) as tls,
    ):
        tls.sendall(encode(Connect("", V5), V5))
        assert tls.recv(1_024)[0] >> 4 == 2  # CONNACK; what TLS 1.3 says of tickets comes before it
        return bool(tls.session_reused), tls.session


@process
async def test_each_process_has_room_for_many_files() -> None:
    async with several(*TWO) as served:
        assert [has_room_for_many_files(pid) for pid in children(served.process.pid)] == [True, True]


@process
async def test_a_tls_session_is_resumed_at_any_of_them(certs: Path) -> None:
    files = ("--cert", str(certs / "server.crt"), "--key", str(certs / "server.key"))
    async with several(*TWO, "--tls-port", "0", *files) as served:
        assert served.process.stderr is not None
        line = (await served.process.stderr.readline()).decode()
        tls_port = int(line.rsplit(":", 1)[1].split()[0])
        context = client_context(str(certs / "ca.crt"))
        is_resumed, session = resumes(tls_port, context, None)
        assert not is_resumed
        for _ in range(16):
            is_resumed, session = resumes(tls_port, context, session)
            assert is_resumed


@pytest.mark.parametrize("is_told", [True, False])
async def test_who_is_told_to_end_soon_after_the_others_misses_nobody(is_told: bool) -> None:
    broker = Broker(Config(listeners=(ListenerOptions(port=0),)))

    async def lose_one() -> None:
        await until(lambda: bool(broker.listeners))
        broker.lost_worker.set()
        if is_told:
            os.kill(os.getpid(), signal.SIGTERM)

    losing = asyncio.create_task(lose_one())
    try:
        with nullcontext() if is_told else pytest.raises(SystemExit):
            await _serve(broker)
    finally:
        gc.unfreeze()
        gc.set_threshold(700, 10, 10)
    await losing


@process
async def test_a_hundred_that_come_at_once_to_processes_lose_nothing() -> None:
    async with several(*TWO) as served:

        async def visit(number: int) -> None:
            device = await Device.dial(served.port)
            topic = b"own/%d" % number
            device.send(
                Connect(f"visitor{number}", V5),
                Subscribe(1, (SubscriptionRequest(topic, 1),)),
                Publish(topic, b"x" * number, 1, packet_id=2),
            )
            kinds = [type(await device.next()) for _ in range(4)]
            assert kinds[:2] == [Connack, Suback]
            assert set(kinds[2:]) == {Publish, Ack}
            await device.disconnect()

        for _ in range(3):
            await asyncio.gather(*[visit(number) for number in range(100)])


@process
@pytest.mark.parametrize("clients", [4, 1, 0])
async def test_sigusr1_sends_the_clients_of_all_processes_away(tmp_path: Path, clients: int) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(
        'workers = 2\n[lame_duck]\ndeadline_s = 2\nserver_reference = "other.example"\n[[listeners]]\nport = 0\n'
    )
    async with several("-c", str(file)) as served:
        devices = [await Device.dial(served.port) for _ in range(clients)]
        for at, device in enumerate(devices):
            await device.connect(name(at))
        served.process.send_signal(signal.SIGUSR1)
        for device in devices:
            assert await device.goodbye() == 0x9C
            await device.close()
        assert await served.ends(6) == 0
        assert_calm(served.log)


@process
async def test_a_port_in_use_is_exit_code_1_and_a_sentence_with_workers_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert await fails("--port", str(port), "--workers", "2") == (
            1,
            f"mqttlite serve: cannot listen on 127.0.0.1:{port} (tcp-{port}): the port is in use; stop the program "
            "that uses it, or choose another port",
        )


@process
async def test_two_brokers_with_workers_do_not_share_a_port_without_knowing() -> None:
    async with several(*TWO) as served:
        code, sentence = await fails("--port", str(served.port), "--workers", "2")
        assert (code, "the port is in use" in sentence) == (1, True)
        code, sentence = await fails("--port", str(served.port))
        assert (code, "the port is in use" in sentence) == (1, True)


@process
async def test_a_host_that_is_none_is_a_sentence() -> None:
    code, sentence = await fails("--host", "192.0.2.1", "--port", "0", "--workers", "2")
    assert code == 1
    assert sentence.startswith("mqttlite serve: cannot listen on 192.0.2.1:0")
    assert "no such address" in sentence


@process
async def test_a_socket_that_somebody_listens_on_ends_all_processes(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as taken:
        taken.bind(str(path))
        taken.listen()
        broker = await start("--socket", str(path), "--port", "0", "--workers", "2")
        async with asyncio.timeout(20):
            _, errors = await broker.communicate()
        assert broker.returncode == 1
        assert "another program listens on it" in errors.decode()
        assert "Traceback" not in errors.decode()


@process
@pytest.mark.parametrize("workers", ["0", "x", "-1", "65", "1.5", ""])
async def test_a_number_of_workers_that_is_none_is_exit_code_2(workers: str) -> None:
    code, sentence = await fails("--port", "0", "--workers", workers)
    assert (code, "--workers" in sentence) == (2, True)


@process
async def test_a_password_file_that_is_missing_is_exit_code_2(tmp_path: Path) -> None:
    code, sentence = await fails(*TWO, "--password-file", str(tmp_path / "none"))
    assert code == 2
    assert "none: cannot be read" in sentence


@process
async def test_auto_is_a_worker_for_each_processor() -> None:
    async with several("--port", "0", "--workers", "auto") as served:
        count = processors()
        assert len(children(served.process.pid)) == (count if count > 1 else 0)
        device = await Device.dial(served.port)
        await device.connect("device")
        await device.disconnect()
