"""The small HTTP server over real sockets: slow, rude or too many callers cost little, and others get their answers."""

import asyncio
import logging
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from mqttlite.net import http
from mqttlite.net.endpoints import CannotListen, TcpEndpoint
from mqttlite.net.http import (
    HEAD_BYTES,
    HEAD_S,
    MAX_OPEN,
    HttpServer,
    Request,
    Response,
    sentence,
)
from tests.support.device import until

ON_JUMPING_LOOP = pytest.mark.asyncio(loop_factories=["asyncio"])
LARGE = bytes(20_000_000)


class Desk:
    """What answers, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.may_answer = asyncio.Event()
        self.cancelled = 0

    async def answer(self, request: Request) -> Response:
        self.asked.append(request)
        if request.path == "/fails":
            raise RuntimeError("no")
        if request.path == "/large":
            return Response(200, LARGE)
        if request.path == "/waits":
            try:
                await self.may_answer.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return sentence(200, f"this is {request.path}")


@asynccontextmanager
async def serving(desk: Desk | None = None) -> AsyncIterator[HttpServer]:
    server = HttpServer(TcpEndpoint("127.0.0.1", 0), (desk or Desk()).answer)
    await server.start("metrics")
    try:
        yield server
    finally:
        await server.stop()


class Caller:
    """A client that sends what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> bytes:
        """All that comes until the server closes; empty where it was cut off."""
        async with asyncio.timeout(60):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    def reset(self) -> None:
        """Hang up; a mere close could as well be that of one half."""
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass


@asynccontextmanager
async def caller(server: HttpServer) -> AsyncIterator[Caller]:
    caller = Caller(*await asyncio.open_connection("127.0.0.1", server.port))
    try:
        yield caller
    finally:
        await caller.close()


async def ask(server: HttpServer, request: bytes) -> tuple[int, bytes, bytes]:
    """The status, the head and the body of the answer; 0 where there is none."""
    async with caller(server) as each:
        each.send(request)
        head, _, body = (await each.answer()).partition(b"\r\n\r\n")
        return int(head.split()[1]) if head else 0, head, body


async def test_a_path_is_answered_and_the_connection_closed() -> None:
    async with serving() as server:
        status, head, body = await ask(server, b"GET /here HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (status, body) == (200, b"this is /here\n")
        assert b"Connection: close" in head
        assert b"Content-Length: 14" in head
        await until(lambda: server.open == 0)


async def test_the_query_comes_decoded_and_the_first_of_each_counts() -> None:
    desk = Desk()
    async with serving(desk) as server:
        await ask(server, b"GET /why%3F?target=plant%2F7%2Ftemp&client=a+b&client=c&empty= HTTP/1.1\r\nHost: x\r\n\r\n")
    assert desk.asked == [Request("/why?", {"target": "plant/7/temp", "client": "a b", "empty": ""})]


async def test_head_is_get_without_a_body() -> None:
    async with serving() as server:
        _, head, _ = await ask(server, b"GET /here HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await ask(server, b"HEAD /here HTTP/1.1\r\nHost: x\r\n\r\n") == (200, head, b"")


async def test_a_client_may_close_its_half_and_send_byte_by_byte() -> None:
    async with serving() as server, caller(server) as each:
        for byte in b"GET /here HTTP/1.0\r\n\r\n":
            each.send(bytes([byte]))
            await asyncio.sleep(0)
        each.writer.write_eof()
        assert (await each.answer()).endswith(b"this is /here\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"DELETE / HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET //[ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /?" + b"a=1&" * http.MAX_PARAMETERS + b"b=1 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"\x10\x0c\x00\x04MQTT\x05\x02\x00\x3c\x00\r\n\r\n", 400),
        (b"GET /" + b"a" * HEAD_BYTES + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 2_000, 431),
    ],
)
async def test_what_is_no_request_gets_a_sentence(request_: bytes, status: int) -> None:
    desk = Desk()
    async with serving(desk) as server:
        got, _, body = await ask(server, request_)
        assert got == status
        assert body.endswith(b".\n")
    assert desk.asked == []


async def test_text_that_is_not_utf_8_is_refused() -> None:
    async with serving() as server:
        assert (await ask(server, b"GET /%FF HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 400
        assert (await ask(server, b"GET /?a=%FF HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 400


async def test_an_answer_that_fails_is_500_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as server:
        status, _, body = await ask(server, b"GET /fails HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (status, body) == (500, b"The answer failed; the broker's log says why.\n")
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
        "/fails: the answer failed"
    ]


@ON_JUMPING_LOOP
async def test_who_asks_too_slowly_is_cut_off(jump: Callable[[float], None]) -> None:
    async with serving() as server, caller(server) as each:
        each.send(b"GET / HT")
        await until(lambda: server.open == 1)
        jump(HEAD_S / 2)
        await asyncio.sleep(0.01)
        assert server.open == 1
        jump(HEAD_S / 2 + 0.1)
        await until(lambda: server.open == 0)
        assert await each.answer() == b""


@ON_JUMPING_LOOP
@pytest.mark.parametrize("path", [b"/large", b"/waits"])
async def test_who_does_not_read_or_waits_too_long_is_cut_off(path: bytes, jump: Callable[[float], None]) -> None:
    desk = Desk()
    async with serving(desk) as server, caller(server) as each:
        each.writer.transport.pause_reading()  # type: ignore[attr-defined]
        each.send(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: bool(desk.asked))
        await asyncio.sleep(0.01)
        jump(http.ANSWER_S / 2)
        await asyncio.sleep(0.01)
        assert server.open == 1
        jump(http.ANSWER_S / 2 + 0.1)
        await until(lambda: server.open == 0)
    assert desk.cancelled == (path == b"/waits")


async def test_who_hangs_up_is_not_worked_for() -> None:
    desk = Desk()
    async with serving(desk) as server:
        async with caller(server) as each:
            each.send(b"GET /waits HTTP/1.1\r\nHost: x\r\n\r\n")
            await until(lambda: bool(desk.asked))
            each.reset()
        await until(lambda: desk.cancelled == 1 and server.open == 0)


async def test_many_who_say_nothing_keep_nobody_out() -> None:
    desk = Desk()
    async with serving(desk) as server, caller(server) as waiting:
        waiting.send(b"GET /waits HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: bool(desk.asked))
        silent = [Caller(*await asyncio.open_connection("127.0.0.1", server.port)) for _ in range(MAX_OPEN + 5)]
        await until(lambda: server.open == MAX_OPEN)
        assert (await ask(server, b"GET /here HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 200
        assert server.open <= MAX_OPEN
        desk.may_answer.set()
        assert (await waiting.answer()).endswith(b"this is /waits\n")
        for each in silent:
            await each.close()


async def test_many_who_wait_for_an_answer_are_no_more_than_the_limit() -> None:
    desk = Desk()
    async with serving(desk) as server:
        waiting = [Caller(*await asyncio.open_connection("127.0.0.1", server.port)) for _ in range(MAX_OPEN + 1)]
        for each in waiting:
            each.send(b"GET /waits HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: len(desk.asked) >= MAX_OPEN)
        assert server.open == MAX_OPEN
        for each in waiting:
            each.reset()
            await each.close()
        await until(lambda: server.open == 0)


async def test_a_stop_ends_what_is_under_way() -> None:
    desk = Desk()
    async with serving(desk) as server, caller(server) as each:
        each.send(b"GET /waits HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: bool(desk.asked))
        await server.stop()
        assert await each.answer() == b""
    assert desk.cancelled == 1


async def test_a_port_in_use_is_said_with_a_way_out() -> None:
    async with serving() as server:
        with pytest.raises(CannotListen, match=rf"127\.0\.0\.1:{server.port} \(metrics\): the port is in use"):
            await HttpServer(TcpEndpoint("127.0.0.1", server.port), Desk().answer).start("metrics")


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_comes_the_server_goes_on(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """Pieces of requests and noise, cut anywhere, closed in any way: no error in the log, and the next is answered."""
    rng = random.Random(seed)
    pieces = [
        b"GET ",
        b"HEAD ",
        b"POST ",
        b"Content-Length: 3\r\n",
        b"/",
        b"?a=1",
        b" HTTP/1.1",
        b"\r\n",
        b"Host: x",
        b": ",
        b"\r\n\r\n",
        b"\0",
        b"%zz",
    ]
    async with serving() as server:
        for _ in range(30):
            async with caller(server) as each:
                for _ in range(rng.randrange(8)):
                    each.send(rng.choice([b"".join(rng.choices(pieces, k=rng.randrange(12))), rng.randbytes(9)]))
                    await asyncio.sleep(0)
                if rng.random() < 0.3:
                    each.reset()
                elif rng.random() < 0.5:
                    each.writer.write_eof()
                    await each.answer()
        assert (await ask(server, b"GET /here HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 200
        await until(lambda: server.open == 0)
    assert not caplog.records
