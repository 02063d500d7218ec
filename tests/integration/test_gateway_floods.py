"""Floods of requests over HTTP: they are refused in a few bytes, and known callers and clients of MQTT go on."""

import asyncio
from pathlib import Path

import pytest

from mqttlite.gateway import strangers
from mqttlite.gateway.caller import Role
from mqttlite.gateway.http_server import MAX_PIPELINED
from tests.support.device import Device
from tests.support.gateway import GatewayUnderTest, nobody_without_credentials, running_gateway

pytestmark = pytest.mark.slow


async def ask(gateway: GatewayUnderTest, *lines: str, path: str = "/none", count: int = 1) -> bytes:
    """What comes back for equal requests that are sent at once, until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.gateway.port)
    head = "".join(f"{line}\r\n" for line in lines)
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode()
    last = request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    writer.write(request * (count - 1) + last)
    try:
        return await asyncio.wait_for(reader.read(), 60)
    finally:
        writer.close()


async def test_requests_wait_behind_one_but_not_very_many(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        found = await ask(gateway, count=MAX_PIPELINED + 1)
        assert found.count(b"HTTP/1.1 404 ") == MAX_PIPELINED + 1
        found = await ask(gateway, count=5_000)
        assert found.count(b"HTTP/1.1 404 ") <= MAX_PIPELINED + 1
        assert found.count(b"HTTP/1.1 400 ") == 1
        assert b"more than 16 requests wait for the answer" in found


async def test_strangers_have_a_rate_and_known_callers_another(tmp_path: Path) -> None:
    options = nobody_without_credentials(tmp_path)
    async with running_gateway(tmp_path / "data", http={"requests_per_s": 5}, **options) as gateway:
        key = f"Authorization: Bearer {gateway.keys[Role.USER]}"
        assert b"HTTP/1.1 200 " in await ask(gateway, key, path="/api/v1/me")
        upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
        for path, lines in (
            ("/none", ()),
            ("/docs", ()),
            ("/api/v1/me", ()),
            ("/topics/a", ("Authorization: Basic eDp5",)),
            ("/ws/subscribe", (*upgrade, "Sec-WebSocket-Key: MTIzNDU2Nzg5MDEyMzQ1Ng==")),
        ):
            for _ in range(2):
                found = await asyncio.gather(*[ask(gateway, *lines, path=path) for _ in range(30)])
            refused = [each for each in found if each.startswith(b"HTTP/1.1 429 ") and b"without a login" in each]
            assert len(refused) >= 15, path
            assert b"retry-after: 1\r\n" in refused[0].lower()
        assert b"HTTP/1.1 404 " in await ask(gateway, key)
        assert b"HTTP/1.1 200 " in await ask(gateway, key, path="/api/v1/me")


async def test_strangers_are_refused_while_too_many_of_them_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strangers, "MAX_WAITING", 8)
    async with running_gateway(tmp_path, http={"requests_per_s": 0}) as gateway:
        device = await Device.dial(gateway.broker.port)
        await device.connect("honest")
        found = await asyncio.gather(*[ask(gateway) for _ in range(200)])
        statuses = {each.split(b" ")[1] for each in found}
        assert statuses == {b"404", b"503"}
        await device.published("a")
        assert b" 404 " in await ask(gateway)
        await device.close()
