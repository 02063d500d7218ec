"""The gateway over sockets: slow, silent and greedy clients; TLS; a stop; a key that is revoked."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
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
from tests.support.gateway import GatewayUnderTest, running_gateway

Jump = Callable[[float], None]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with running_gateway(tmp_path) as under_test:
        yield under_test


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def exchange(port: int, request: bytes) -> bytes:
    """What the gateway answers before it closes the connection."""
    reader, writer = await connect(port)
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return answer


async def closed(reader: asyncio.StreamReader) -> bytes:
    """What comes until the end of a connection, however it ends."""
    try:
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionResetError:
        return b""


@pytest.mark.slow
async def test_a_head_has_a_limit(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        port = gateway.gateway.port
        start = b"GET /docs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        fits = start + b"X: " + b"x" * (MAX_HEAD_BYTES - len(start) - 64) + b"\r\n\r\n"
        assert (await exchange(port, fits)).startswith(b"HTTP/1.1 200 ")
        for above in (
            b"X: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n",
            b"X: " + b"x" * 4_000_000,  # the client still writes when it is refused
            b"X: y\r\n" * 5_000,
        ):
            answer = await exchange(port, start + above)
            assert answer.startswith(b"HTTP/1.1 431 ")
            assert b'"code":"headers_too_large"' in answer


HOST = b"Host: localhost\r\n"
UPGRADE = b"Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
KEY = b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
HOSTILE = [
    ("two lengths", b"PUT /topics/a HTTP/1.1", b"Content-Length: 1\r\nContent-Length: 2\r\n", b"x", 400),
    (
        "length and chunks",
        b"PUT /topics/a HTTP/1.1",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"0\r\n\r\n",
        400,
    ),
    ("unknown encoding", b"PUT /topics/a HTTP/1.1", b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n", 400),
    ("negative length", b"PUT /topics/a HTTP/1.1", b"Content-Length: -1\r\n", b"", 400),
    ("folded header", b"GET /topics/a HTTP/1.1", b"X: a\r\n b\r\n", b"", 400),
    ("two hosts", b"GET /topics/a HTTP/1.1", b"Host: evil\r\n", b"", 400),
    ("another host in the target", b"GET http://evil/topics/a HTTP/1.1", b"", b"", 400),
    ("the address of nothing as target", b"GET http://localhost/nothing HTTP/1.1", b"", b"", 404),
    ("no such version", b"GET /topics/a HTTP/1.2", b"", b"", 400),
    ("topic that is no UTF-8", b"PUT /topics/a/%ff HTTP/1.1", b"Content-Length: 1\r\n", b"x", 400),
    ("topic with a surrogate", b"PUT /topics/a/%ed%a0%80 HTTP/1.1", b"Content-Length: 1\r\n", b"x", 400),
    ("raw byte in a path", b"PUT /topics/a/\xff HTTP/1.1", b"Content-Length: 1\r\n", b"x", 400),
    ("topic with U+0000", b"PUT /topics/a/%00 HTTP/1.1", b"Content-Length: 1\r\n", b"x", 422),
    ("filter that is no UTF-8", b"GET /events?filter=%ff HTTP/1.1", b"", b"", 400),
    ("long number", b"GET /events?filter=a&client_id=a&session_expiry_s=%b HTTP/1.1" % (b"0" * 20), b"", b"", 422),
    ("many fields", b"PUT /topics/a?%b HTTP/1.1" % (b"a=1&" * 201), b"Content-Length: 1\r\n", b"x", 422),
    ("many fields of a stream", b"GET /events?%b HTTP/1.1" % (b"a=1&" * 201), b"", b"", 422),
    ("many fields of a WebSocket", b"GET /ws/subscribe?%b HTTP/1.1" % (b"a=1&" * 201), UPGRADE + KEY, b"", 422),
    ("WebSocket without a key", b"GET /ws/subscribe HTTP/1.1", UPGRADE, b"", 400),
    ("WebSocket by POST", b"POST /ws/subscribe HTTP/1.1", UPGRADE + KEY, b"", 400),
    (
        "origin that is no address",
        b"PUT /topics/a HTTP/1.1",
        b"Origin: http://[::1\r\nContent-Length: 1\r\n",
        b"x",
        403,
    ),
    ("another method", b"DELETE /events HTTP/1.1", b"", b"", 405),
    ("path with two slashes", b"GET //topics/a HTTP/1.1", b"", b"", 404),
    ("path that leads upwards", b"GET /static/%2e%2e/app.py HTTP/1.1", b"", b"", 404),
]


@pytest.mark.long
async def test_hostile_requests_get_a_problem(gateway: GatewayUnderTest) -> None:
    port = gateway.gateway.port
    for what, line, headers, body, status in HOSTILE:
        closing = b"" if UPGRADE in headers else b"Connection: close\r\n"
        answer = await exchange(port, b"%b\r\n%b%b%b\r\n%b" % (line, HOST, closing, headers, body))
        assert answer.startswith(b"HTTP/1.1 %d " % status), what
        assert answer.count(b"HTTP/1.1 ") == 1, what
        assert b"application/problem+json" in answer, what
    assert (await exchange(port, b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 400 ")


async def test_input_that_is_no_http_gets_a_problem(tmp_path: Path) -> None:
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


@pytest.mark.long
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


@pytest.mark.long
async def test_no_first_bytes_of_a_handshake_are_lost(tmp_path: Path) -> None:
    init(tmp_path / "certs")
    tls = TlsOptions(str(tmp_path / "certs" / "server.crt"), str(tmp_path / "certs" / "server.key"))
    context = ssl.create_default_context(cafile=str(tmp_path / "certs" / "ca.crt"))

    def visit(port: int) -> str | None:
        with (
            socket.create_connection(("127.0.0.1", port), 5) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            return secured.version()

    async with running_gateway(tmp_path / "data", http={"tls": tls}) as gateway:
        port = gateway.gateway.port
        visits = [asyncio.to_thread(visit, port) for _ in range(12)]  # their bytes are there when they are accepted
        assert set(await asyncio.gather(*visits)) == {"TLSv1.3"}


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
