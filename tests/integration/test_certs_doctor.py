"""`mqttlite certs doctor` against brokers that run: each cause has its sentence, and its exit code."""

import asyncio
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from mqttlite.cli.main import main
from mqttlite.config import Config, ListenerOptions
from mqttlite.security.authority import revoke
from mqttlite.security.certificate_files import load_certificate, load_key
from mqttlite.security.certificates import init, issue
from mqttlite.security.tls import TlsOptions
from mqttlite.server import Broker
from tests.integration.conftest import Rig

asyncio_only = pytest.mark.asyncio(loop_factories=["asyncio"])
pytestmark = asyncio_only


async def served(rig: Rig, at: Path, **options: object) -> Broker:
    tls = TlsOptions(str(at / "server.crt"), str(at / "server.key"), **options)  # type: ignore[arg-type]
    return await rig.broker(Config(listeners=(ListenerOptions(port=0), ListenerOptions(port=0, tls=tls))))


async def doctor(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, ["certs", "doctor", *arguments])


async def examined(broker: Broker, at: Path, client: str = "", host: str = "localhost", *more: str) -> Result:
    files = ("--cert", str(at / f"{client}.crt"), "--key", str(at / f"{client}.key")) if client else ()
    port = broker.listeners[1].port
    return await doctor("--connect", f"{host}:{port}", "--cafile", str(at / "ca.crt"), *files, *more)


def problems(result: Result) -> list[str]:
    return [line.split(maxsplit=1)[1] for line in result.stdout.splitlines() if line.startswith("problem")]


@pytest.mark.long
async def test_nothing_is_wrong(rig: Rig, certs: Path) -> None:
    broker = await served(rig, certs, ca_file=str(certs / "ca.crt"), client_certificates="required")
    result = await examined(broker, certs, "thermometer")
    assert problems(result) == []
    assert result.exit_code == 0
    assert "The broker accepts a client" in result.stdout
    assert "speaks TLS 1.2 and TLS 1.3" in result.stdout


async def test_a_port_without_tls(rig: Rig, certs: Path) -> None:
    broker = await served(rig, certs)
    result = await doctor("--connect", f"localhost:{broker.port}")
    assert result.exit_code == 1
    assert "speaks MQTT without TLS" in problems(result)[0]


async def test_a_port_that_speaks_something_else() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, answering(server, greet):
        result = await doctor("--connect", f"127.0.0.1:{server.getsockname()[1]}")
    assert result.exit_code == 1
    assert "speaks neither TLS nor MQTT" in problems(result)[0]


def greet(connection: socket.socket) -> None:
    connection.sendall(b"220 mail.example ESMTP\r\n")


@contextmanager
def answering(server: socket.socket, answer_one: Callable[[socket.socket], None]) -> Iterator[None]:
    def answer() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                answer_one(connection)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    yield
    server.shutdown(socket.SHUT_RDWR)
    thread.join(5)


async def test_a_port_without_a_listener() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        result = await doctor("--connect", f"127.0.0.1:{bound.getsockname()[1]}")
    assert result.exit_code == 1
    assert "Nobody listens on" in problems(result)[0]


@pytest.mark.long
async def test_another_name(rig: Rig, certs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "other.example")
    monkeypatch.setattr("mqttlite.security.certificates.local_hosts", list)
    init(tmp_path, hosts=["broker.example"])
    broker = await served(rig, tmp_path)
    result = await examined(broker, tmp_path)
    (found,) = problems(result)
    assert found.startswith("The broker's certificate is not valid for localhost: it has broker.example.")
    assert "certs init --host localhost" in found


async def test_an_expired_certificate(rig: Rig, tmp_path: Path) -> None:
    init(tmp_path, days=5, now=datetime.now(UTC) - timedelta(days=10))
    found = problems(await examined(await served(rig, tmp_path), tmp_path))
    assert found[0].startswith("The broker's certificate expired on ")
    assert "clock" in found[0]


async def test_an_expired_authority(rig: Rig, tmp_path: Path) -> None:
    init(tmp_path)
    broker = await served(rig, tmp_path)
    key, ca = load_key(tmp_path / "ca.key"), load_certificate(tmp_path / "ca.crt")
    former = x509.CertificateBuilder(
        ca.issuer, ca.subject, ca.public_key(), 1, datetime(2020, 1, 1), datetime(2021, 1, 1)
    )
    former = former.add_extension(x509.BasicConstraints(True, None), critical=True)
    (tmp_path / "ca.crt").write_bytes(former.sign(key, SHA256()).public_bytes(Encoding.PEM))
    (found,) = problems(await examined(broker, tmp_path))
    assert "is in date, and one of an authority above it is not" in found


async def test_a_certificate_that_is_not_valid_yet(rig: Rig, tmp_path: Path) -> None:
    init(tmp_path, now=datetime.now(UTC) + timedelta(days=10))
    found = problems(await examined(await served(rig, tmp_path), tmp_path))
    assert found[0].startswith("The broker's certificate is not yet valid")
    assert "Is the clock right?" in found[0]


@pytest.mark.long
async def test_a_certificate_that_ends_soon_is_a_warning_with_an_exit_code_of_its_own(rig: Rig, tmp_path: Path) -> None:
    init(tmp_path, days=20)
    result = await examined(await served(rig, tmp_path), tmp_path)
    assert result.exit_code == 3
    assert "warning  The broker's certificate expires in 19 days" in result.stdout
    assert (await examined(await served(rig, tmp_path), tmp_path, "", "localhost", "--days", "5")).exit_code == 0


async def test_another_authority(rig: Rig, certs: Path, tmp_path: Path) -> None:
    init(tmp_path)
    (found,) = problems(await examined(await served(rig, certs), tmp_path))
    assert "No client that trusts" in found
    assert "authority" in found
    assert "chain is incomplete" in found


async def test_a_certificate_that_signed_itself(rig: Rig, certs: Path, tmp_path: Path) -> None:
    init(tmp_path)
    shutil.copy(tmp_path / "ca.crt", tmp_path / "server.crt")
    shutil.copy(tmp_path / "ca.key", tmp_path / "server.key")
    found = problems(await examined(await served(rig, tmp_path), certs))
    assert any("is signed by itself" in each for each in found)


@pytest.mark.parametrize("version", ["1.2", "1.3"])
async def test_a_client_certificate_that_is_missing(rig: Rig, certs: Path, version: str) -> None:
    broker = await served(
        rig, certs, ca_file=str(certs / "ca.crt"), client_certificates="required", min_version=version
    )
    (found,) = problems(await examined(broker, certs))
    assert found.startswith("The listener requires a client certificate")


async def test_a_listener_of_tls_1_3_only_is_a_note(rig: Rig, certs: Path) -> None:
    result = await examined(await served(rig, certs, min_version="1.3"), certs)
    assert result.exit_code == 0
    assert "the broker speaks TLS 1.3 only" in result.stdout


@pytest.mark.long
async def test_a_client_certificate_that_is_revoked(rig: Rig, tmp_path: Path) -> None:
    init(tmp_path)
    issue(tmp_path, ["spy"])
    revoke(tmp_path, "spy")
    broker = await served(rig, tmp_path, ca_file=str(tmp_path / "ca.crt"), crl_file=str(tmp_path / "crl.pem"))
    (found,) = problems(await examined(broker, tmp_path, "spy"))
    assert found == "The broker refuses the client certificate: it is revoked."


@pytest.mark.long
async def test_a_client_certificate_of_another_authority(rig: Rig, certs: Path, tmp_path: Path) -> None:
    init(tmp_path, clients=["thermometer"])
    shutil.copy(certs / "ca.crt", tmp_path / "ca.crt")
    broker = await served(rig, certs, ca_file=str(certs / "ca.crt"))
    (found,) = problems(await examined(broker, tmp_path, "thermometer"))
    assert found.startswith("The broker refuses the client certificate: its authority is not in the ca_file")


@pytest.mark.long
async def test_a_client_certificate_that_has_expired(rig: Rig, tmp_path: Path) -> None:
    init(tmp_path, clients=["gauge"], days=1, now=datetime.now(UTC) - timedelta(days=3))
    (tmp_path / "server.crt").unlink()
    (tmp_path / "server.key").unlink()
    init(tmp_path)
    broker = await served(rig, tmp_path, ca_file=str(tmp_path / "ca.crt"))
    result = await examined(broker, tmp_path, "gauge")
    assert "gauge.crt expired on" in result.stdout
    (found,) = problems(result)
    assert found.startswith("The broker refuses the client certificate: it has expired")


async def test_a_client_key_of_another_certificate_is_said_before_connecting(certs: Path, tmp_path: Path) -> None:
    init(tmp_path)
    result = await doctor(
        *("--connect", "localhost:1", "--cert", str(certs / "server.crt"), "--key", str(tmp_path / "server.key"))
    )
    (found,) = problems(result)
    assert "is not the key of" in found


@pytest.mark.long
async def test_a_server_certificate_is_not_for_clients(rig: Rig, certs: Path) -> None:
    broker = await served(rig, certs, ca_file=str(certs / "ca.crt"))
    result = await examined(broker, certs, "server")
    assert result.exit_code == 1
    assert "is not meant for clients" in result.stdout


async def test_a_client_that_is_refused_by_password_has_no_problem_of_tls(rig: Rig, certs: Path) -> None:
    tls = TlsOptions(str(certs / "server.crt"), str(certs / "server.key"))
    options = ListenerOptions(port=0, tls=tls)

    async def nobody(_credentials: object) -> bool:
        return False

    class Nobody:
        authenticate = staticmethod(nobody)

    async with Broker(Config(listeners=(ListenerOptions(port=0), options)), authenticator=Nobody()) as broker:
        result = await examined(broker, certs)
    assert result.exit_code == 0
    assert "for another reason (CONNACK 0x8" in result.stdout


async def test_a_listener_for_websocket_is_named(rig: Rig, certs: Path) -> None:
    tls = TlsOptions(str(certs / "server.crt"), str(certs / "server.key"))
    options = ListenerOptions(port=0, tls=tls, websocket=True)
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0), options)))
    result = await examined(broker, certs)
    assert result.exit_code == 0
    assert "is it a listener for WebSocket" in result.stdout


async def test_an_old_broker_is_warned_of(certs: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs / "server.crt", certs / "server.key")
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = ssl.TLSVersion.TLSv1_1
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    async def close(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        result = await doctor("--connect", f"127.0.0.1:{port}", "--cafile", str(certs / "ca.crt"))
    assert "still speaks TLS 1.1" in result.stdout
    assert "speaks TLS 1.2 only" in result.stdout


async def test_a_listener_of_tls_1_2_that_wants_a_certificate_fails_before_anything_is_shown(certs: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs / "server.crt", certs / "server.key")
    context.load_verify_locations(certs / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    def refuse(connection: socket.socket) -> None:
        with pytest.raises(OSError):  # noqa: PT011 - whatever the TLS library calls it
            context.wrap_socket(connection, server_side=True)

    with socket.create_server(("127.0.0.1", 0)) as server, answering(server, refuse):
        result = await doctor("--connect", f"127.0.0.1:{server.getsockname()[1]}", "--cafile", str(certs / "ca.crt"))
    assert result.exit_code == 1
    assert "requires a client certificate" in problems(result)[0]


@pytest.mark.parametrize(
    "arguments",
    [["--cafile", "ca.crt"], ["--connect", "host", "--key", "k"], ["--connect", "h:port"], ["--connect", ":8883"]],
)
async def test_wrong_usage(arguments: list[str]) -> None:
    assert (await doctor(*arguments)).exit_code == 2
