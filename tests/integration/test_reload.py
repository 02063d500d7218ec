"""Files that are read again while the broker runs: certificates for new handshakes; broken files change nothing."""

import asyncio
import os
import shutil
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.config.metrics import MetricsOptions
from mqttlite.operations.certificate_watch import WARN_EVERY_S
from mqttlite.security.authority import revoke
from mqttlite.security.certificate_files import ends_at
from mqttlite.security.certificates import init, issue
from mqttlite.security.tls import TlsOptions, client_context
from mqttlite.server import Broker
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Connect
from tests.integration.conftest import Rig
from tests.support.device import until
from tests.support.inside import core_of


def files_of(source: Path, target: Path) -> None:
    for name in ("ca.crt", "server.crt", "server.key", "crl.pem"):
        shutil.copy(source / name, target / name)


async def served(rig: Rig, at: Path) -> Broker:
    options = TlsOptions(str(at / "server.crt"), str(at / "server.key"), str(at / "ca.crt"), require_client_cert=True)
    return await rig.broker(Config(listeners=(ListenerOptions(port=0, tls=options),), metrics=MetricsOptions(port=0)))


def client(certs: Path) -> ssl.SSLContext:
    return client_context(str(certs / "ca.crt"), str(certs / "thermometer.crt"), str(certs / "thermometer.key"))


@pytest.mark.long
async def test_new_handshakes_see_new_certificates_and_authorities(rig: Rig, certs: Path, tmp_path: Path) -> None:
    newer, used = tmp_path / "newer", tmp_path / "used"
    init(newer, clients=["thermometer"])
    used.mkdir()
    files_of(certs, used)
    broker = await served(rig, used)
    former = await rig.device(broker.port, "former", tls=client(certs))
    files_of(newer, used)
    await broker.reload()
    await rig.device(broker.port, "later", tls=client(newer))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await rig.device(broker.port, "refused", tls=client(certs))
    await former.ping()
    assert broker.monitor is not None
    (listener,) = (await broker.monitor.reports.latest()).listeners
    assert listener.certificate_ends_at == ends_at(str(newer / "server.crt")).timestamp()


@pytest.mark.parametrize("name", ["server.crt", "server.key", "ca.crt"])
async def test_a_broken_file_is_refused_with_its_path_and_the_former_stays_in_use(
    rig: Rig, certs: Path, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    files_of(certs, tmp_path)
    broker = await served(rig, tmp_path)
    (tmp_path / name).write_text("nothing of use")
    await broker.reload()
    (error,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert error.startswith("tls-0: the former certificates stay in use: listeners[0].tls.")
    assert str(tmp_path / name) in error
    await rig.device(broker.port, "device", tls=client(certs))


# ── files that change, without a signal ──────────────────────────────────────────────────────────────────────────────


async def watched(rig: Rig, at: Path, **more: object) -> Broker:
    options = TlsOptions(
        *(str(at / "server.crt"), str(at / "server.key"), str(at / "ca.crt")),
        client_certificates="required",
        crl_file=str(at / "crl.pem"),
    )
    return await rig.broker(Config(listeners=(ListenerOptions(port=0, tls=options, **more),)))  # type: ignore[arg-type]


def served_serial(port: int, context: ssl.SSLContext) -> str:
    """The serial number of the certificate that the broker shows."""
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        found = secured.getpeercert()
        assert found is not None
        return str(found["serialNumber"])


@pytest.mark.slow
async def test_files_that_change_are_used_without_a_signal_and_no_client_is_dropped(rig: Rig, tmp_path: Path) -> None:
    """200 clients stay while the certificate, the key, the authority and the list are replaced."""
    used, newer = tmp_path / "used", tmp_path / "newer"
    init(used, clients=["thermometer"])
    init(newer, clients=["thermometer"])
    broker = await watched(rig, used)
    context = client(used)
    devices = [await rig.device(broker.port, f"device-{number}", tls=context) for number in range(200)]
    await devices[0].subscribe("a", 1)
    for name in ("server.key", "crl.pem", "ca.crt", "server.crt"):
        shutil.copy(newer / name, used / f"{name}.new")
        (used / f"{name}.new").replace(used / name)
    async with asyncio.timeout(60):
        while True:
            try:
                await rig.device(broker.port, "later", tls=client(newer))
                break
            except (ssl.SSLError, ConnectionError):
                await asyncio.sleep(0.01)
    for device in devices:
        await device.ping()
    assert len(core_of(broker).connections) == 201
    devices[1].publish("a", b"still here")
    assert await devices[0].message() == ("a", b"still here")


@pytest.mark.long
async def test_a_pair_that_is_half_written_is_used_when_it_is_whole(
    rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    used, newer = tmp_path / "used", tmp_path / "newer"
    init(used, clients=["thermometer"])
    init(newer, clients=["thermometer"])
    for name in ("ca.crt", "ca.key"):
        shutil.copy(used / name, newer / name)
    for name in ("server.crt", "server.key"):
        (newer / name).unlink()
    caplog.set_level("INFO")
    init(newer)  # another server certificate of the same authority
    broker = await watched(rig, used)
    context = client(used)
    former = await asyncio.to_thread(served_serial, broker.port, context)
    shutil.copy(newer / "server.crt", used / "server.crt")
    await until(lambda: "server.key is not the key of" in caplog.text)
    assert await asyncio.to_thread(served_serial, broker.port, context) == former
    shutil.copy(newer / "server.key", used / "server.key")
    await until(lambda: "reloaded for new connections" in caplog.text)
    assert await asyncio.to_thread(served_serial, broker.port, context) != former
    assert len([line for line in caplog.messages if "former certificates stay" in line]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["server.crt", "server.key", "ca.crt", "crl.pem"])
@pytest.mark.parametrize("how", ["is damaged", "is gone"])
async def test_a_file_that_breaks_is_complained_of_once_and_mended(
    rig: Rig, tmp_path: Path, name: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    init(tmp_path, clients=["thermometer"])
    broker = await watched(rig, tmp_path)
    context = client(tmp_path)
    content = (tmp_path / name).read_bytes()
    if how == "is gone":
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content[:-100])
    await until(lambda: "former certificates stay" in caplog.text)
    assert str(tmp_path / name) in caplog.text
    await rig.device(broker.port, "device", tls=context)
    (tmp_path / name).write_bytes(content)
    await until(lambda: "reloaded for new connections" in caplog.text)
    assert len([line for line in caplog.messages if "former certificates stay" in line]) == 1
    await rig.device(broker.port, "later", tls=context)


@pytest.mark.long
async def test_a_client_that_is_revoked_is_disconnected_within_a_second(
    rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    init(tmp_path, clients=["thermometer", "gauge"])
    issue(tmp_path, ["spy"])
    broker = await watched(rig, tmp_path)
    spy = client_context(str(tmp_path / "ca.crt"), str(tmp_path / "spy.crt"), str(tmp_path / "spy.key"))
    neighbour = await rig.device(broker.port, "neighbour", tls=client(tmp_path))
    revoked = await rig.device(broker.port, "spy", tls=spy)
    silent = await rig.dial(broker.port, tls=spy)  # a connection without CONNECT
    await until(lambda: broker.listeners[0].open == 3)
    loop = asyncio.get_running_loop()
    revoke(tmp_path, "spy")
    began = loop.time()
    assert await revoked.goodbye() == 0x87
    assert loop.time() - began < 1.0
    assert await silent.goodbye() is None
    await neighbour.ping()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await rig.device(broker.port, "again", tls=spy)
    await until(lambda: "the client's certificate is revoked" in caplog.text)
    assert "clients disconnected: 2" in caplog.text


@pytest.mark.long
async def test_a_ticket_of_before_does_not_let_a_revoked_client_in(rig: Rig, tmp_path: Path) -> None:
    init(tmp_path, clients=["thermometer"])
    broker = await watched(rig, tmp_path)
    context = client(tmp_path)
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # where the ticket is there at the end of the handshake

    def visit(session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool | None]:
        with (
            socket.create_connection(("127.0.0.1", broker.port)) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as secured,
        ):
            secured.sendall(encode(Connect("device"), 5))
            assert secured.recv(1) == b"\x20"
            return secured.session, secured.session_reused

    session, _ = await asyncio.to_thread(visit, None)
    _, reused = await asyncio.to_thread(visit, session)
    assert reused
    revoke(tmp_path, "thermometer")
    await broker.reload()
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate.revoked"):
        await asyncio.to_thread(visit, session)


async def test_soon_expiring_files_are_warned_of_at_the_start(
    rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    init(tmp_path, days=20, ca_days=25)
    await watched(rig, tmp_path)
    await until(lambda: "crl.pem is out of date in" in caplog.text)
    lines = [line for line in caplog.messages if "is out of date in" in line]
    assert [os.path.basename(line.split()[2]) for line in lines] == ["server.crt", "ca.crt", "crl.pem"]


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_the_warning_is_repeated_daily_and_not_more_often(
    rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture, jump: Callable[[float], None]
) -> None:
    init(tmp_path, days=20)

    def warnings() -> int:
        return len([line for line in caplog.messages if "is out of date in" in line])

    await watched(rig, tmp_path)
    await until(lambda: warnings() == 1)
    for _ in range(3):
        jump(WARN_EVERY_S / 4)
        await asyncio.sleep(0.01)
    assert warnings() == 1
    jump(WARN_EVERY_S / 4)
    await until(lambda: warnings() == 2)
