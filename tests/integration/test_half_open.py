"""Silent connections, and the devices that come in all the same."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.net.listeners import HALF_OPEN_GRACE_S
from mqttlite.security.tls import TlsOptions, client_context
from mqttlite.server import Broker
from tests.integration.conftest import Rig
from tests.support import web
from tests.support.device import Device, Gone, until

asyncio_only = pytest.mark.asyncio(loop_factories=["asyncio"])


async def serve(rig: Rig, certs: Path, kind: str, **options: int) -> Broker:
    tls = TlsOptions(str(certs / "server.crt"), str(certs / "server.key")) if kind in ("tls", "wss") else None
    listener = ListenerOptions(port=0, name="door", tls=tls, websocket=kind in ("ws", "wss"), **options)
    return await rig.broker(Config(listeners=(listener,)))


async def visit(rig: Rig, broker: Broker, certs: Path, kind: str, client_id: str) -> Device:
    tls = client_context(str(certs / "ca.crt")) if kind in ("tls", "wss") else None
    if kind in ("tcp", "tls"):
        return await rig.device(broker.port, client_id, tls=tls)
    device = await web.dial(broker.port, tls=tls)
    await device.connect(client_id)
    return device


@pytest.mark.parametrize("kind", ["tcp", "tls", "ws", "wss"])
async def test_the_oldest_silent_connection_makes_room_for_a_new_one(
    rig: Rig, certs: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await serve(rig, certs, kind, max_half_open=2)
    (listener,) = broker.listeners
    devices = [await visit(rig, broker, certs, kind, "before")]
    silent = []
    for count in (2, 3):
        silent.append(await rig.dial(broker.port))
        await until(lambda count=count: listener.open == count)  # type: ignore[misc]
    devices.append(await visit(rig, broker, certs, kind, "after"))
    assert await silent[0].goodbye() is None
    await until(lambda: listener.open == 3)
    assert listener.half_open_closed == 1
    assert (
        "door: half-open connections made room for new ones (max_half_open is 2); closed so far: 1" in caplog.messages
    )
    devices.append(await visit(rig, broker, certs, kind, "third"))
    assert listener.half_open_closed == 1, "those that sent CONNECT are half-open no more"
    for device in devices:
        await device.ping()
        await device.close()


async def test_an_upgraded_websocket_and_a_finished_handshake_are_half_open_until_connect(
    rig: Rig, certs: Path
) -> None:
    broker = await serve(rig, certs, "wss", max_half_open=1)
    silent = await web.dial(broker.port, tls=client_context(str(certs / "ca.crt")))
    device = await visit(rig, broker, certs, "wss", "device")
    assert await silent.goodbye() is None
    assert broker.listeners[0].half_open_closed == 1
    await silent.close()
    await device.close()


async def test_those_that_leave_are_half_open_no_more(rig: Rig, certs: Path) -> None:
    for kind in ("tcp", "tls", "ws"):
        broker = await serve(rig, certs, kind, max_half_open=1)
        (listener,) = broker.listeners
        for _ in range(3):
            device = await rig.dial(broker.port)
            await until(lambda: listener.open == 1)  # noqa: B023
            await device.close()
            await until(lambda: listener.open == 0)  # noqa: B023
        assert listener.half_open_closed == 0


@asyncio_only
async def test_a_full_listener_gives_up_a_connection_that_is_silent_for_a_while(
    rig: Rig, certs: Path, jump: Callable[[float], None]
) -> None:
    broker = await serve(rig, certs, "tcp", max_connections=2, max_half_open=2)
    (listener,) = broker.listeners
    await rig.device(broker.port, "inside")
    silent = await rig.dial(broker.port)
    await until(lambda: listener.open == 2)
    with pytest.raises((Gone, ConnectionError)):
        await (await rig.dial(broker.port)).connect("too early")
    assert (listener.turned_away, listener.half_open_closed) == (1, 0)
    jump(HALF_OPEN_GRACE_S)
    await rig.device(broker.port, "in time")
    assert await silent.goodbye() is None
    assert (listener.turned_away, listener.half_open_closed) == (1, 1)
    await asyncio.sleep(0)
    assert listener.open == 2
