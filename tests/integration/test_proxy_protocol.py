"""A proxy in front of a real broker: before TCP, TLS, WebSocket and a Unix socket, and in front of nobody else."""

import asyncio
import json
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqttlite.config import Config, ConfigError, ListenerOptions, parse_config
from mqttlite.extensions.dataset.options import TelemetryOptions
from mqttlite.net.proxy_protocol import ProxyOptions
from mqttlite.security.tls import TlsOptions
from mqttlite.wire.constants import V5
from mqttlite.wire.packets import Disconnect
from tests.integration.conftest import Rig
from tests.support.device import Device, until
from tests.support.inside import core_of
from tests.support.packets import raw
from tests.support.web import refusal, request

asyncio_only = pytest.mark.asyncio(loop_factories=["asyncio"])

LOCALHOST = ProxyOptions(trusted=("127.0.0.1/32",))
LINE = b"PROXY TCP4 203.0.113.7 10.0.0.1 54321 1883\r\n"
HEADER = raw("0d0a0d0a000d0a515549540a 21 11 000c cb007107 0a000001 d431 075b")
CLIENT = "203.0.113.7:54321"


def behind(*, proxies: ProxyOptions = LOCALHOST, telemetry: Path | None = None, **options: Any) -> Config:
    return Config(
        listeners=(ListenerOptions(name="proxied", port=0, proxy_protocol=proxies, **options),),
        telemetry=None if telemetry is None else TelemetryOptions(directory=str(telemetry), format="jsonl"),
    )


async def dial(port: int, header: bytes, *, tls: ssl.SSLContext | None = None) -> Device:
    """A device whose connection a proxy passes on, with its header first."""
    sock = socket.socket()
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, ("127.0.0.1", port))
    await loop.sock_sendall(sock, header)
    streams = await asyncio.open_connection(sock=sock, ssl=tls, server_hostname="localhost" if tls else None)
    return Device(*streams, V5)


def only_row(directory: Path) -> dict[str, Any]:
    (file,) = directory.glob("table=sessions/**/*.jsonl")
    row: dict[str, Any] = json.loads(file.read_text())
    return row


@pytest.mark.parametrize("header", [LINE, HEADER], ids=["1", "2"])
@pytest.mark.parametrize("kind", ["tcp", "tls"])
async def test_the_client_is_known_by_its_own_address(
    rig: Rig, certs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, header: bytes, kind: str
) -> None:
    caplog.set_level("INFO")
    tls = TlsOptions(str(certs / "server.crt"), str(certs / "server.key")) if kind == "tls" else None
    broker = await rig.broker(behind(tls=tls, telemetry=tmp_path))
    context = ssl.create_default_context(cafile=certs / "ca.crt") if tls else None
    device = await dial(broker.port, header, tls=context)
    await device.connect("far")
    await device.subscribe("#")
    device.publish("a", b"x" * 100_000)
    assert await device.message() == ("a", b"x" * 100_000)
    device.send(Disconnect())
    await device.goodbye()
    await device.close()
    await broker.stop()
    row = only_row(tmp_path)
    assert (row["peer"], row["transport"]) == (CLIENT, kind)
    assert any(line.startswith(f"{CLIENT} client 'far' connected") for line in caplog.messages)


@pytest.mark.parametrize("header", [LINE, HEADER], ids=["1", "2"])
async def test_a_header_and_what_follows_may_come_in_one_piece(rig: Rig, header: bytes) -> None:
    broker = await rig.broker(behind())
    device = await dial(broker.port, header + raw("10 11 0004 'MQTT' 05 02 0000 00 0004 'fast'"))
    assert (await device.next()).reason_code == 0  # type: ignore[union-attr]
    await device.close()


async def test_it_works_in_front_of_websocket(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    broker = await rig.broker(behind(websocket=True))
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(HEADER + request())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    writer.close()
    await writer.wait_closed()
    status, _, _ = await refusal(broker.port, LINE + request("/"))
    assert status == 404
    assert any(f"WebSocket for {CLIENT} refused" in line for line in caplog.messages)


async def test_it_works_in_front_of_a_unix_socket_whoever_may_open_it(rig: Rig, tmp_path: Path) -> None:
    path = str(tmp_path / "x.sock")
    config = Config(listeners=(ListenerOptions(path=path, proxy_protocol=ProxyOptions()),))
    broker = await rig.broker(config)
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(LINE)
    device = Device(reader, writer, V5)
    await device.connect("far")
    assert [link.address for link in broker.listeners[0]._links] == [CLIENT]
    await device.close()


@pytest.mark.parametrize(
    "header", [b"PROXY UNKNOWN\r\n", raw("0d0a0d0a000d0a515549540a 20 00 0000")], ids=["unknown", "local"]
)
async def test_a_proxy_that_speaks_for_itself_is_known_by_its_own_address(rig: Rig, header: bytes) -> None:
    broker = await rig.broker(behind())
    device = await dial(broker.port, header)
    await device.connect("check")
    assert [link.address for link in broker.listeners[0]._links] == [device.address]
    await device.close()


async def test_an_untrusted_peer_is_refused_with_and_without_a_header(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await rig.broker(behind(proxies=ProxyOptions(trusted=("192.0.2.0/24",))))
    for header in (HEADER, b""):
        device = await rig.dial(broker.port)
        device.send_bytes(header)
        device.hello("liar")
        assert await device.goodbye() is None
        assert any(device.address in line and "no trusted proxy" in line for line in caplog.messages)
    assert not core_of(broker).connections
    assert broker.listeners[0].open == 0


async def test_a_trusted_address_without_a_header_is_refused(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    broker = await rig.broker(behind())
    device = await rig.dial(broker.port)
    device.hello("direct")
    assert await device.goodbye() is None
    assert any(device.address in line and "no PROXY header" in line for line in caplog.messages)
    await until(lambda: broker.listeners[0].open == 0)
    assert not core_of(broker).connections


async def test_a_proxy_that_leaves_within_its_header_leaves_nothing_behind(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await rig.broker(behind())
    polite, rude = await rig.dial(broker.port), await rig.dial(broker.port)
    polite.send_bytes(HEADER[:20])
    polite.writer.close()
    rude.send_bytes(HEADER[:20])
    await until(lambda: broker.listeners[0].open == 1 and "closed before the end" in caplog.text)
    rude.drop()
    await until(lambda: broker.listeners[0].open == 0)
    assert any(f"proxy at {rude.address} refused" in line for line in caplog.messages)


@asyncio_only
async def test_a_header_that_does_not_come_is_waited_for_so_long(
    rig: Rig, jump: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    broker = await rig.broker(behind(handshake_timeout_s=7.0))
    device = await rig.dial(broker.port)
    await until(lambda: broker.listeners[0].open == 1)
    jump(7.1)
    assert await device.goodbye() is None
    assert any("no whole PROXY header within 7 s" in line for line in caplog.messages)


async def test_a_stopping_broker_waits_for_no_header(rig: Rig) -> None:
    broker = await rig.broker(behind())
    device = await rig.dial(broker.port)
    await until(lambda: broker.listeners[0].open == 1)
    began = asyncio.get_running_loop().time()
    await broker.stop()
    assert asyncio.get_running_loop().time() - began < broker.config.stop_timeout_s
    assert await device.goodbye() is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"proxy_protocol": {}}, "trusted is empty"),
        ({"proxy_protocol": {"trusted": ["10.0.0.1/8"]}}, "has host bits set"),
        ({"proxy_protocol": {"trust": []}}, "proxy_protocol.trust is unknown; did you mean trusted"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_config({"listeners": [options]})


@pytest.mark.parametrize("kind", ["tcp", "ws", "tls"])
async def test_the_tls_of_a_client_with_the_proxy_is_shown(rig: Rig, certs: Path, kind: str) -> None:
    """Where the listener has TLS itself, that is what is shown."""
    body = raw("cb007107 0a000001 d431 075b 20 0021 03 00000000 21 0007 'TLSv1.2' 22 0006 'pump-7' 23 0006 'AES256'")
    header = raw("0d0a0d0a000d0a515549540a 21 11") + len(body).to_bytes(2, "big") + body
    tls = TlsOptions(str(certs / "server.crt"), str(certs / "server.key")) if kind == "tls" else None
    broker = await rig.broker(behind(tls=tls, websocket=kind == "ws"))
    if kind == "ws":
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write(header + request())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        writer.write(raw("82 95 00000000 10 13 0004 'MQTT' 05 02 0000 00 0006 'pump-7'"))
    else:
        device = await dial(
            broker.port, header, tls=ssl.create_default_context(cafile=certs / "ca.crt") if tls else None
        )
        await device.connect("pump-7")
        writer = device.writer
    await until(lambda: broker.admin.client("pump-7") is not None)
    client = broker.admin.client("pump-7")
    assert client is not None
    facts = (client.tls_ends_at_proxy, client.proxied_certificate_name, client.proxied_certificate_verified)
    assert facts == ((False, None, False) if tls else (True, "pump-7", True))
    assert client.tls_version == ("TLSv1.3" if tls else "TLSv1.2")
    assert tls is not None or client.tls_cipher == "AES256"
    writer.close()
    await writer.wait_closed()
