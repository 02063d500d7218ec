"""TLS over real sockets: who gets in, as whom, and what the log says of those who do not."""

import asyncio
import gc
import logging
import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.net.link import LINGER_S, Link
from mqttlite.security.certificates import init
from mqttlite.security.tls import TlsOptions, client_context
from mqttlite.server import Broker
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Connack, Connect
from mqttlite.wire.properties import Properties
from tests.integration.conftest import Rig
from tests.support.device import Device, Gone, until
from tests.support.inside import core_of, loop_driver_of

asyncio_only = pytest.mark.asyncio(loop_factories=["asyncio"])


def tls(certs: Path, ca: bool = False, **options: object) -> TlsOptions:
    ca_file = str(certs / "ca.crt") if ca else None
    return TlsOptions(str(certs / "server.crt"), str(certs / "server.key"), ca_file, **options)  # type: ignore[arg-type]


async def serve(rig: Rig, options: TlsOptions, handshake_timeout_s: float = 10.0, **more: object) -> Broker:
    """The first listener is plain, the second speaks TLS."""
    secured = ListenerOptions(port=0, tls=options, handshake_timeout_s=handshake_timeout_s, **more)  # type: ignore[arg-type]
    return await rig.broker(Config(listeners=(ListenerOptions(port=0), secured), stop_timeout_s=60.0))


def client(certs: Path, name: str | None = None, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    cert, key = (str(certs / f"{name}.crt"), str(certs / f"{name}.key")) if name else (None, None)
    context = client_context(str(certs / "ca.crt"), cert, key)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


def port(broker: Broker) -> int:
    return broker.listeners[1].port


def names(broker: Broker) -> dict[str, str | None]:
    return {each.client_id: each.username for each in core_of(broker).connections.values()}


@pytest.mark.parametrize(("version", "name"), [("TLSv1_2", "TLSv1.2"), ("TLSv1_3", "TLSv1.3")])
async def test_both_versions_carry_messages_of_any_size(rig: Rig, certs: Path, version: str, name: str) -> None:
    broker = await serve(rig, tls(certs))
    device = await rig.device(port(broker), "device", tls=client(certs, version=ssl.TLSVersion[version]))
    await device.subscribe("a", 1)
    for size in (0, 1, 16_384, 500_000):
        device.publish("a", bytes(size))
        assert await device.message() == ("a", bytes(size))
    (link,) = loop_driver_of(broker).links.values()
    assert link.tls_version == name
    assert link.tls_cipher


@pytest.mark.parametrize("required", [False, True])
async def test_a_certificate_names_its_client(rig: Rig, certs: Path, required: bool) -> None:
    broker = await serve(rig, tls(certs, ca=True, require_client_cert=required))
    await rig.device(port(broker), "device", tls=client(certs, "thermometer"), username="somebody-else")
    assert names(broker) == {"device": "thermometer"}


async def test_a_certificate_without_the_name_that_is_asked_for_names_nobody_and_the_log_says_so(
    rig: Rig, certs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mqttlite.net")
    broker = await serve(rig, tls(certs, ca=True), identity_from="san_email")
    device = await rig.device(port(broker), "device", tls=client(certs, "thermometer"))
    assert names(broker) == {"device": None}
    (line,) = [message for message in caplog.messages if "names nobody" in message]
    assert device.address in line
    assert "identity_from" in line


async def test_a_certificate_that_is_optional_may_be_missing(rig: Rig, certs: Path) -> None:
    broker = await serve(rig, tls(certs, ca=True))
    await rig.device(port(broker), "device", tls=client(certs))
    assert names(broker) == {"device": None}


async def refused(device: Device) -> None:
    """In TLS 1.3 the client learns of its refusal when it reads."""
    with pytest.raises((Gone, ssl.SSLError)):
        await device.connect("refused")


@pytest.mark.parametrize("whose", ["none", "another authority's"])
async def test_a_client_without_a_good_certificate_is_refused_and_logged(
    rig: Rig, certs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, whose: str
) -> None:
    broker = await serve(rig, tls(certs, ca=True, require_client_cert=True))
    neighbour = await rig.device(port(broker), "neighbour", tls=client(certs, "thermometer"))
    context = client(certs)
    if whose != "none":
        init(tmp_path, clients=["thermometer"])
        context.load_cert_chain(tmp_path / "thermometer.crt", tmp_path / "thermometer.key")
    device = await rig.dial(port(broker), tls=context)
    await refused(device)
    await until(lambda: "TLS handshake with" in caplog.text)
    (line,) = [message for message in caplog.messages if "TLS handshake" in message]
    assert device.address in line
    assert ("showed no certificate" if whose == "none" else "not issued by the listener's CA") in line
    await neighbour.ping()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("whose", "alert"),
    [
        ("none", "(?i)(handshake.failure|certificate.required)"),
        ("another authority's", "(?i)unknown.ca"),
        ("expired", "(?i)certificate.expired"),
    ],
)
async def test_an_alert_tells_the_client_why_its_certificate_is_refused(
    rig: Rig, certs: Path, tmp_path: Path, whose: str, alert: str, version: ssl.TLSVersion
) -> None:
    authority = certs
    context = client(certs, version=version)
    if whose != "none":
        init(
            tmp_path, clients=["device"], days=1, now=datetime.now(UTC) - timedelta(days=3 if whose == "expired" else 0)
        )
        context.load_cert_chain(tmp_path / "device.crt", tmp_path / "device.key")
    if whose == "expired":
        authority = tmp_path
    required = TlsOptions(
        str(certs / "server.crt"), str(certs / "server.key"), str(authority / "ca.crt"), require_client_cert=True
    )
    broker = await serve(rig, required)

    def visit() -> None:  # asyncio's clients keep the alert to themselves
        with (
            socket.create_connection(("127.0.0.1", port(broker))) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
        ):
            for _ in range(100):  # in TLS 1.3 the client is told when it has finished, and may have sent much
                secured.send(bytes(1_000))
            secured.recv(1)

    with pytest.raises(ssl.SSLError, match=alert):
        await asyncio.to_thread(visit)
    await until(lambda: broker.listeners[1].open == 0)


@asyncio_only
async def test_a_refused_client_that_stays_is_cut_off(rig: Rig, certs: Path, jump: Callable[[float], None]) -> None:
    broker = await serve(rig, tls(certs, min_version="1.3"))
    reader, writer = await asyncio.open_connection("127.0.0.1", port(broker))
    writer.write(client_hello(client(certs, version=ssl.TLSVersion.TLSv1_2)))
    assert (await reader.read())[:1] == b"\x15"  # an alert, and the end of what the broker sends
    assert broker.listeners[1].open == 1
    jump(LINGER_S + 0.1)
    await until(lambda: broker.listeners[1].open == 0)
    writer.close()


@pytest.mark.slow
async def test_a_failed_handshake_leaves_no_garbage(rig: Rig, certs: Path) -> None:
    """`mqttlite serve` has old garbage collected so rarely that it would be a leak."""
    broker = await serve(rig, tls(certs))
    gc.collect()
    gc.disable()
    try:
        plain = await rig.dial(port(broker))
        plain.hello("plain")
        assert await plain.goodbye() is None
        await plain.close()
        await until(lambda: broker.listeners[1].open == 0)
        await until(lambda: not [each for each in gc.get_objects() if type(each) is Link])
    finally:
        gc.enable()


async def test_a_plain_client_on_a_tls_port_is_told_of_in_the_log(
    rig: Rig, certs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await serve(rig, tls(certs))
    neighbour = await rig.device(port(broker), "neighbour", tls=client(certs))
    plain = await rig.dial(port(broker))
    plain.hello("plain")
    assert await plain.goodbye() is None
    await until(lambda: f"TLS handshake with {plain.address} failed: the client does not speak TLS" in caplog.text)
    await neighbour.ping()


async def test_a_tls_client_on_a_plain_port_is_told_of_in_the_log(
    rig: Rig, certs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await serve(rig, tls(certs))
    neighbour = await rig.device(broker.port, "neighbour")
    with pytest.raises(OSError):  # noqa: PT011 - whatever the TLS library calls it
        await rig.dial(broker.port, tls=client(certs))
    await until(lambda: "TLS bytes on a listener without TLS" in caplog.text)
    await neighbour.ping()


async def test_a_client_that_is_too_old_is_told_of_in_the_log(
    rig: Rig, certs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await serve(rig, tls(certs, min_version="1.3"))
    with pytest.raises(OSError):  # noqa: PT011
        await rig.dial(port(broker), tls=client(certs, version=ssl.TLSVersion.TLSv1_2))
    await until(lambda: "only TLS versions that are too old" in caplog.text)


async def test_a_client_that_does_not_trust_us_is_told_of_in_the_log(
    rig: Rig, certs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    init(tmp_path)
    broker = await serve(rig, tls(certs))

    def visit() -> None:  # asyncio's clients keep the alert to themselves
        with (
            socket.create_connection(("127.0.0.1", port(broker))) as plain,
            pytest.raises(ssl.SSLCertVerificationError),
        ):
            client(tmp_path).wrap_socket(plain, server_hostname="127.0.0.1")

    await asyncio.to_thread(visit)
    await until(lambda: "does not trust our certificate's CA" in caplog.text)


@asyncio_only
async def test_a_handshake_that_never_ends_is_ended(
    rig: Rig, certs: Path, jump: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    broker = await serve(rig, tls(certs), handshake_timeout_s=3.0, max_connections=3)
    silent, half = await rig.dial(port(broker)), await rig.dial(port(broker))
    half.send_bytes(client_hello()[:40])
    listener = broker.listeners[1]
    await until(lambda: len(listener._handshakes) == 2)
    neighbour = await rig.device(port(broker), "neighbour", tls=client(certs))
    turned_away = await rig.dial(port(broker))
    assert await turned_away.goodbye() is None
    jump(3.1)
    assert await silent.goodbye() is None
    assert await half.goodbye() is None
    await until(lambda: listener.open == 1)
    assert all(f"TLS handshake with {device.address} failed" in caplog.text for device in (silent, half))
    await neighbour.ping()


async def test_a_handshake_that_never_ends_is_ended_by_the_real_clock_too(rig: Rig, certs: Path) -> None:
    broker = await serve(rig, tls(certs), handshake_timeout_s=0.05)
    assert await (await rig.dial(port(broker))).goodbye() is None
    await until(lambda: broker.listeners[1].open == 0)


@pytest.mark.parametrize("how", ["closes", "resets"])
@pytest.mark.parametrize("sent", [0, 40, 10_000])
async def test_a_client_that_leaves_its_handshake_leaves_nothing_behind(
    rig: Rig, certs: Path, how: str, sent: int
) -> None:
    broker = await serve(rig, tls(certs))
    listener = broker.listeners[1]
    device = await rig.dial(port(broker))
    device.send_bytes(client_hello()[:sent])
    await device.writer.drain()
    await until(lambda: listener.open == 1)
    if how == "closes":
        await device.close()
    else:
        device.drop()
    await until(lambda: listener.open == 0)
    assert not listener._handshakes
    assert not listener._links


@pytest.mark.long
async def test_bytes_behind_the_end_of_the_handshake_are_not_lost(rig: Rig, certs: Path) -> None:
    """CONNECT in the same TCP segment as the client's Finished."""
    broker = await serve(rig, tls(certs))
    context = client(certs)
    for number in range(10):
        here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
        shake = context.wrap_bio(here, there, server_hostname="127.0.0.1")
        device = await rig.dial(port(broker))
        loop_reader = device._reader
        while True:
            try:
                shake.do_handshake()
                break
            except ssl.SSLWantReadError:
                device.send_bytes(there.read())
                here.write(await loop_reader.read(65_536))
        shake.write(encode(Connect(f"eager-{number}"), 5))
        device.send_bytes(there.read())
        frame = b""
        while not frame:
            here.write(await loop_reader.read(65_536))
            try:
                frame = shake.read(1_000)
            except ssl.SSLWantReadError:
                continue
        assert frame[0] == 0x20
    assert len(names(broker)) == 10


async def test_a_device_that_comes_back_resumes_its_tls_session(rig: Rig, certs: Path) -> None:
    broker = await serve(rig, tls(certs, ca=True, require_client_cert=True))
    context = client(certs, "thermometer", ssl.TLSVersion.TLSv1_2)

    def visit(session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool | None]:
        with (
            socket.create_connection(("127.0.0.1", port(broker))) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as secured,
        ):
            secured.sendall(encode(Connect("device"), 5))
            assert secured.recv(1) == b"\x20"
            return secured.session, secured.session_reused

    session, reused = await asyncio.to_thread(visit, None)
    assert not reused
    _, reused = await asyncio.to_thread(visit, session)
    assert reused


async def test_a_stop_during_handshakes_ends_them(rig: Rig, certs: Path) -> None:
    broker = await serve(rig, tls(certs))
    silent, half = await rig.dial(port(broker)), await rig.dial(port(broker))
    half.send_bytes(client_hello()[:40])
    device = await rig.device(port(broker), "device", tls=client(certs))
    listener = broker.listeners[1]
    await until(lambda: len(listener._handshakes) == 2)
    stop = asyncio.create_task(broker.stop())
    assert await device.goodbye() == 0x8B
    await device.close()
    async with asyncio.timeout(30):
        await stop
    assert await silent.goodbye() is None
    assert await half.goodbye() is None
    assert listener.open == 0


async def test_a_connack_refusal_is_read_before_the_close(rig: Rig, certs: Path) -> None:
    broker = await serve(rig, tls(certs))
    device = await rig.dial(port(broker), tls=client(certs))
    device.send(Connect("", clean_start=True, properties=Properties(authentication_method="magic")))
    assert (await device.expect(Connack)).reason_code == 0x8C
    assert await device.goodbye() is None


def client_hello(context: ssl.SSLContext | None = None) -> bytes:
    here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = context or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    shake = context.wrap_bio(here, there, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        shake.do_handshake()
    return there.read()


async def test_keys_are_logged_for_debugging_with_a_loud_warning(
    rig: Rig, certs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(Config(listeners=(ListenerOptions(port=0, tls=tls(certs)),)))
    broker.tls_keylog = str(tmp_path / "keys")
    async with broker:
        assert "THE KEYS OF ALL TLS CONNECTIONS ARE WRITTEN TO" in caplog.text
        await rig.device(broker.port, "device", tls=client(certs))
        assert "CLIENT_TRAFFIC_SECRET_0" in (tmp_path / "keys").read_text()
        assert (tmp_path / "keys").stat().st_mode & 0o077 == 0
