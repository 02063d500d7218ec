"""Limits on connects over real sockets: who is closed at once, and who may come again."""

from pathlib import Path

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.config.connects import ConnectOptions
from mqttlite.security.tls import TlsOptions, client_context
from mqttlite.server import Broker
from mqttlite.wire.packets import Connack
from mqttlite.wire.reason_codes import ReasonCode
from tests.integration.conftest import Rig
from tests.support import web
from tests.support.device import Device, Gone, until


async def serve(rig: Rig, certs: Path, kind: str, **options: object) -> Broker:
    tls = TlsOptions(str(certs / "server.crt"), str(certs / "server.key")) if kind in ("tls", "wss") else None
    websocket = kind in ("ws", "wss")
    connects = ConnectOptions(**options)  # type: ignore[arg-type]
    listener = ListenerOptions(port=0, name="door", tls=tls, websocket=websocket)
    return await rig.broker(Config(listeners=(listener,), connects=connects))


async def visit(rig: Rig, broker: Broker, certs: Path, kind: str, client_id: str) -> Device:
    tls = client_context(str(certs / "ca.crt")) if kind in ("tls", "wss") else None
    if kind in ("tcp", "tls"):
        return await rig.device(broker.port, client_id, tls=tls)
    device = await web.dial(broker.port, tls=tls)
    try:
        await device.connect(client_id)
    except Gone:
        await device.close()
        raise
    return device


@pytest.mark.parametrize("kind", ["tcp", "tls", "ws", "wss"])
async def test_one_address_has_so_many_connections_and_another_when_one_is_gone(
    rig: Rig, certs: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await serve(rig, certs, kind, max_per_address=2)
    (listener,) = broker.listeners
    first = await visit(rig, broker, certs, kind, "first")
    second = await visit(rig, broker, certs, kind, "second")
    with pytest.raises((Gone, OSError, EOFError)):
        await visit(rig, broker, certs, kind, "third")
    assert listener.limited == {"address_connections": 1}
    assert [text for text in caplog.messages if "closed (limit: address_connections); closed so far: 1" in text]
    await first.close()
    await until(lambda: listener.open == 1)
    third = await visit(rig, broker, certs, kind, "third")
    await third.ping()
    for device in (second, third):
        await device.close()


async def test_an_address_that_connects_too_often_is_closed_at_once(rig: Rig, certs: Path) -> None:
    broker = await serve(rig, certs, "tcp", address_per_s=0.1, connect_burst_s=20.0)
    for number in range(2):
        await rig.device(broker.port, str(number))
    with pytest.raises((Gone, OSError)):
        await rig.device(broker.port, "third")
    assert broker.listeners[0].limited == {"address_rate": 1}


async def test_a_failed_handshake_gives_its_place_back(rig: Rig, certs: Path) -> None:
    broker = await serve(rig, certs, "tls", max_per_address=1)
    (listener,) = broker.listeners
    rude = await rig.dial(broker.port)
    rude.send_bytes(b"no TLS at all\r\n")
    await until(lambda: listener.failed_handshakes == 1)
    await rude.close()
    await until(lambda: listener.open == 0)
    await visit(rig, broker, certs, "tls", "polite")
    assert listener.limited == {}


async def test_a_flapping_client_is_refused(rig: Rig, certs: Path) -> None:
    broker = await serve(rig, certs, "tcp", flapping_client=2)
    for _ in range(2):
        device = await rig.device(broker.port, "flapper")
        await device.close()
    refused = await rig.dial(broker.port)
    refused.hello("flapper")
    assert (await refused.expect(Connack)).reason_code == ReasonCode.CONNECTION_RATE_EXCEEDED
    await rig.device(broker.port, "other")
    assert broker.listeners[0].limited == {"client_flapping": 1}
