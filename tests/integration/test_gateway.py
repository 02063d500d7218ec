"""The gateway over sockets: slow, silent and greedy clients; TLS; a stop; a key that is revoked."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.config.http import HttpOptions
from mqttlite.gateway.caller import Role
from mqttlite.gateway.http_server import MAX_HEAD_BYTES
from mqttlite.security.api_keys import FILE_NAME, load, revoke
from mqttlite.security.certificates import init
from mqttlite.security.tls import TlsOptions
from mqttlite.server import Broker
from tests.support.gateway import running_gateway

Jump = Callable[[float], None]


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def exchange(port: int, request: bytes) -> bytes:
    """What the gateway answers before it closes the connection."""
    reader, writer = await connect(port)
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    return answer


async def closed(reader: asyncio.StreamReader) -> bytes:
    """What comes until the end of a connection, however it ends."""
    try:
        return await asyncio.wait_for(reader.read(), 5)
    except ConnectionResetError:
        return b""


async def test_a_head_has_a_limit(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        port = gateway.gateway.port
        start = b"GET /docs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        fits = start + b"X: " + b"x" * (MAX_HEAD_BYTES - len(start) - 64) + b"\r\n\r\n"
        assert (await exchange(port, fits)).startswith(b"HTTP/1.1 200 ")
        for above in (
            b"X: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n",
            b"X: " + b"x" * 2 * MAX_HEAD_BYTES,
            b"X: y\r\n" * 5_000,
        ):
            answer = await exchange(port, start + above)
            assert answer.startswith(b"HTTP/1.1 431 ")
            assert b'"code":"headers_too_large"' in answer


async def test_what_is_no_http_gets_a_problem(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        answer = await exchange(gateway.gateway.port, b"\x10\x10\x00\x04MQTT")
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b'"code":"bad_request"' in answer


@pytest.mark.parametrize(
    "begins", [b"", b"GET /docs HT", b"POST /docs HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"]
)
async def test_a_request_arrives_in_time(tmp_path: Path, begins: bytes) -> None:
    async with running_gateway(tmp_path, http={"request_timeout_s": 0.2}) as gateway:
        reader, writer = await connect(gateway.gateway.port)
        writer.write(begins)
        assert b'"code":"request_timeout"' in await closed(reader)
        writer.close()
        assert gateway.gateway.app.bodies.held_bytes == 0


async def test_an_idle_connection_ends(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, http={"keep_alive_s": 0.1}) as gateway:
        reader, writer = await connect(gateway.gateway.port)
        writer.write(b"GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b'"viewer"' in await closed(reader)
        writer.close()


async def test_there_are_so_many_connections_at_most(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, http={"max_connections": 2}) as gateway:
        port = gateway.gateway.port
        request = b"GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\n\r\n"
        kept = [await connect(port) for _ in range(2)]
        for reader, writer in kept:
            writer.write(request)
            await reader.readuntil(b"\r\n\r\n")
        reader, writer = await connect(port)
        assert await closed(reader) == b""
        assert gateway.gateway.server.turned_away == 1
        for _, each in [*kept, (reader, writer)]:
            each.close()


async def test_a_revoked_key_is_refused_within_a_second(tmp_path: Path, jump: Jump) -> None:
    if type(asyncio.get_running_loop()).__name__ != "JumpingLoop":
        pytest.skip("the clock of this loop does not jump")
    async with running_gateway(tmp_path) as gateway:
        client = gateway.client(Role.ADMIN)
        assert (await client.get("/api/v1/me")).status_code == 200
        (key_id,) = [key.id for key in load(tmp_path / FILE_NAME) if key.role == "admin"]
        assert revoke(tmp_path / FILE_NAME, key_id)
        jump(1.0)
        assert (await client.get("/api/v1/me")).status_code == 401


async def test_it_speaks_tls_with_the_files_as_they_are_now(tmp_path: Path, jump: Jump) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        init(folder)
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def use(folder: Path) -> ssl.SSLContext:
        cert.write_bytes((folder / "server.crt").read_bytes())
        key.write_bytes((folder / "server.key").read_bytes())
        return ssl.create_default_context(cafile=str(folder / "ca.crt"))

    async def status(context: ssl.SSLContext) -> int:
        async with httpx.AsyncClient(verify=context) as client:
            return (await client.get(f"https://localhost:{port}/api/v1/me")).status_code

    context = use(first)
    tls = TlsOptions(str(cert), str(key))
    async with running_gateway(tmp_path / "data", http={"tls": tls}) as gateway:
        port = gateway.gateway.port
        assert await status(context) == 200
        reader, writer = await connect(port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await closed(reader)
        writer.close()
        if type(asyncio.get_running_loop()).__name__ == "JumpingLoop":
            context = use(second)
            jump(1.0)
            assert await status(context) == 200


async def test_a_stop_ends_idle_connections_and_silent_ones(tmp_path: Path) -> None:
    config = Config(listeners=(ListenerOptions(port=0),), http=HttpOptions(port=0), stop_timeout_s=1.0)
    async with Broker(config) as broker:
        assert broker.gateway is not None
        idle, silent = await connect(broker.gateway.port), await connect(broker.gateway.port)
        idle[1].write(b"GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await idle[0].readuntil(b"\r\n\r\n")
        loop = asyncio.get_running_loop()
        began = loop.time()
        await broker.stop()
        assert loop.time() - began < 1.0
    for reader, writer in (idle, silent):
        await closed(reader)
        writer.close()
