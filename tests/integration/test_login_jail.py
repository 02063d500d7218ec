"""Guessers and floods against a real broker: who is refused, what is told of it, and what others notice."""

import asyncio
import json
import logging
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mqttlite.client import Client
from mqttlite.config import Config, ListenerOptions
from mqttlite.event_hub import Jailed, Listener
from mqttlite.extensions.dataset.options import TelemetryOptions
from mqttlite.net.proxy_protocol import ProxyOptions
from mqttlite.security.authenticator import Credentials
from mqttlite.security.jail import JailOptions
from mqttlite.security.keys import keys_of
from mqttlite.security.password_file import set_user
from mqttlite.server import Broker
from mqttlite.telemetry.sys_topics import SysOptions
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Connack
from tests.integration.conftest import Rig
from tests.support.device import until

SECRET = keys_of("secret", b"0123456789abcdef", 4_096)
NO_EXEMPTION = JailOptions(exempt=(), address_failures=6, client_failures=3, delay_s=0)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    set_user(path, "ann", SECRET, create=True)
    return path


async def login(
    rig: Rig, broker: Broker, username: str, client_id: str = "c", version: int = V5, head: bytes = b""
) -> int:
    """The reason code for a user; only ann's password is right."""
    device = await rig.dial(broker.port, version)
    device.writer.write(head)
    device.hello(client_id, username=username)
    code = (await device.expect(Connack)).reason_code
    await device.close()
    return code


class Told(Listener):
    def __init__(self) -> None:
        self.jailed: list[Jailed] = []

    def on_jailed(self, jailed: Jailed) -> None:
        self.jailed.append(jailed)


@pytest.mark.long
@pytest.mark.parametrize(("version", "wrong", "jailed"), [(V5, 0x86, 0x9F), (V311, 4, 5)])
async def test_a_guesser_is_refused_and_told_of(
    rig: Rig,
    users: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    version: int,
    wrong: int,
    jailed: int,
) -> None:
    broker = Broker(
        Config(
            listeners=(ListenerOptions(name="devices", port=0),),
            password_file=str(users),
            login_jail=NO_EXEMPTION,
            telemetry=TelemetryOptions(directory=str(tmp_path / "telemetry"), format="jsonl"),
            sys=SysOptions(interval_s=0.1),
        )
    )
    told = Told()
    broker.event_listeners.append(told)
    await rig.enter(broker)
    ann = await rig.device(broker.port, "ann", version, username="ann")
    codes = [await login(rig, broker, f"guess{n}", f"c{n}", version) for n in range(8)]
    assert codes == [wrong] * 6 + [jailed] * 2
    assert await login(rig, broker, "ann", "again", version) == jailed, "a good login waits, too"
    await ann.ping()
    assert [(each.what, each.network, each.failures) for each in told.jailed] == [("address", "127.0.0.1", 6)]
    assert (
        "127.0.0.1 is refused for 60 s: 6 logins failed, the last on devices (user 'guess5', client 'c5')"
        in caplog.text
    )
    refusals = [each for each in caplog.records if "on devices refused" in each.getMessage()]
    assert len(refusals) == 9, "each one is in the log"
    about = vars(refusals[7])["fields"]
    assert (about["username"], about["client_id"], about["listener"]) == ("guess7", "c7", "devices")
    assert about["peer"].startswith("127.0.0.1:")
    await broker.stop()
    rows = [
        json.loads(line)
        for file in (tmp_path / "telemetry").rglob("*.jsonl")
        if "table=events" in str(file)
        for line in file.read_text().splitlines()
    ]
    assert sum(row["event"] == "refused" for row in rows) == 9
    assert {row["username"] for row in rows if row["event"] == "refused"} == {*(f"guess{n}" for n in range(8)), "ann"}
    (row,) = [row for row in rows if row["event"] == "login_jailed"]
    assert (row["reason"], row["username"], row["listener"]) == ("address", "guess5", "devices")
    assert (row["duration_s"], row["numbers"]) == (60.0, {"failures": 6})


async def test_metrics_and_sys_count_the_jailed(rig: Rig, users: Path) -> None:
    config = Config(
        listeners=(ListenerOptions(port=0),),
        password_file=str(users),
        login_jail=NO_EXEMPTION,
        sys=SysOptions(interval_s=0.1),
    )
    broker = await rig.broker(config)
    for n in range(8):
        await login(rig, broker, f"guess{n}", f"c{n}")
    wanted = {"$SYS/broker/logins/jailed": b"1", "$SYS/broker/logins/refused in jail": b"2"}
    found: dict[str, bytes] = {}
    async with asyncio.timeout(60), broker.subscribe("$SYS/broker/logins/#") as messages:
        while found != wanted:
            message = await anext(messages)
            found[message.topic] = bytes(message.payload)


@pytest.mark.long
async def test_a_device_with_a_wrong_password_is_refused_alone(rig: Rig, users: Path) -> None:
    broker = await rig.broker(
        Config(listeners=(ListenerOptions(port=0),), password_file=str(users), login_jail=NO_EXEMPTION)
    )
    codes = [await login(rig, broker, "pump", "pump") for _ in range(20)]
    assert codes == [0x86] * 3 + [0x9F] * 17
    assert await login(rig, broker, "ann", "ann") == 0


async def test_the_jail_ends(rig: Rig, users: Path, request: pytest.FixtureRequest) -> None:
    if "uvloop" in request.node.name:
        pytest.skip("its clock does not jump")
    jump: Callable[[float], None] = request.getfixturevalue("jump")
    broker = await rig.broker(
        Config(listeners=(ListenerOptions(port=0),), password_file=str(users), login_jail=NO_EXEMPTION)
    )
    for _ in range(3):
        await login(rig, broker, "eve", "eve")
    assert await login(rig, broker, "ann", "eve") == 0x9F
    jump(60.1)
    assert await login(rig, broker, "ann", "eve") == 0


@pytest.mark.long
async def test_by_default_this_machine_is_never_jailed(rig: Rig, users: Path) -> None:
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0),), password_file=str(users)))
    assert {await login(rig, broker, "eve") for _ in range(30)} == {0x86}
    assert await login(rig, broker, "ann") == 0


@pytest.mark.long
async def test_behind_a_proxy_the_clients_own_address_is_jailed(rig: Rig, users: Path) -> None:
    listener = ListenerOptions(port=0, proxy_protocol=ProxyOptions(trusted=("127.0.0.1",)))
    broker = await rig.broker(Config(listeners=(listener,), password_file=str(users)))

    def head(address: str) -> bytes:
        return f"PROXY TCP4 {address} 127.0.0.1 40000 1883\r\n".encode()

    codes = [await login(rig, broker, f"u{n}", f"c{n}", head=head("192.0.2.1")) for n in range(21)]
    assert codes == [0x86] * 20 + [0x9F]
    assert await login(rig, broker, "ann", head=head("192.0.2.2")) == 0


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_a_refusal_in_jail_waits_and_others_do_not(rig: Rig, users: Path, jump: Callable[[float], None]) -> None:
    jail = JailOptions(exempt=(), client_failures=2, delay_s=5)
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0),), password_file=str(users), login_jail=jail))
    for _ in range(2):
        await login(rig, broker, "eve", "eve")
    refused = asyncio.create_task(login(rig, broker, "eve", "eve"))
    assert await login(rig, broker, "ann", "ann") == 0
    assert not refused.done()
    jump(5)
    assert await refused == 0x9F


async def test_a_programs_own_authenticator_is_not_asked_about_the_jailed(rig: Rig) -> None:
    asked: list[str | None] = []

    class Nobody:
        async def authenticate(self, credentials: Credentials) -> bool:
            asked.append(credentials.username)
            return False

    config = Config(listeners=(ListenerOptions(port=0),), login_jail=NO_EXEMPTION)
    broker = await rig.broker(config, authenticator=Nobody())
    for n in range(10):
        await login(rig, broker, f"u{n}", f"c{n}")
    assert len(asked) == 6


# ── floods ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Flood:
    """Connects with wrong passwords as fast as it can, from one address, until it is stopped."""

    def __init__(self, port: int, source: str, at_once: int) -> None:
        self._port = port
        self._source = source
        self._tasks = [asyncio.create_task(self._guess(n)) for n in range(at_once)]
        self.answers: dict[int, int] = {}

    async def _guess(self, worker: int) -> None:
        connect = b"\x10\x19\0\x04MQTT\x04\xc2\0\x3c\0\x02%02d\0\x03ann\0\x02no" % (worker % 100)
        connect = connect[:1] + bytes([len(connect) - 2]) + connect[2:]
        loop = asyncio.get_running_loop()
        while True:
            with socket.socket() as opened:
                opened.setblocking(False)
                opened.bind((self._source, 0))
                try:
                    await loop.sock_connect(opened, ("127.0.0.1", self._port))
                    await loop.sock_sendall(opened, connect)
                    answer = await loop.sock_recv(opened, 4)
                except OSError:
                    continue
                code = answer[3] if len(answer) == 4 else -1
                self.answers[code] = self.answers.get(code, 0) + 1

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)


@pytest.mark.slow
@pytest.mark.parametrize(
    "jail", [JailOptions(address_failures=0, client_failures=0), NO_EXEMPTION], ids=["no jail", "jail"]
)
async def test_others_log_in_and_talk_during_a_flood_of_guesses(
    rig: Rig, users: Path, caplog: pytest.LogCaptureFixture, jail: JailOptions
) -> None:
    caplog.set_level(logging.ERROR)
    config = Config(listeners=(ListenerOptions(port=0),), password_file=str(users), login_jail=jail, password_cache_s=0)
    broker = await rig.broker(config)
    flood = Flood(broker.port, "127.0.0.2", 50)
    try:
        await until(lambda: sum(flood.answers.values()) >= 50)
        polite = await rig.device(broker.port, "polite", username="ann")
        worst_login_s = worst_ping_s = 0.0
        for n in range(20):
            began = time.perf_counter()
            await polite.ping()
            worst_ping_s = max(worst_ping_s, time.perf_counter() - began)
            began = time.perf_counter()
            async with Client("127.0.0.1", broker.port, username="ann", password="secret", client_id=f"good{n}"):
                worst_login_s = max(worst_login_s, time.perf_counter() - began)
    finally:
        await flood.stop()
    print(f"login at most {1000 * worst_login_s:.0f} ms, ping {1000 * worst_ping_s:.0f} ms, flood {flood.answers}")
    assert sum(flood.answers.values()) > 100
    assert (5 in flood.answers) == (jail is NO_EXEMPTION)
    assert worst_login_s < 3
    assert worst_ping_s < 3
