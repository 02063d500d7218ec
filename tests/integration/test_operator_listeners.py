"""The admin socket and the metrics port over real sockets: slow, silent or rude programs keep no operator out."""

import asyncio
import random
import re
import socket
import struct
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.config.metrics import MetricsOptions
from mqttlite.gateway import late_server
from mqttlite.gateway.admin_socket import SOCKET_NAME
from mqttlite.gateway.operator_servers import LIMITS
from mqttlite.server import Broker
from tests.integration.conftest import Rig
from tests.support.device import until

ON_JUMPING_LOOP = pytest.mark.asyncio(loop_factories=["asyncio"])
LISTENERS = pytest.mark.parametrize("listener", ["socket", "port"])
READY = {"socket": "/api/v1/readyz", "port": "/readyz"}
STATUS = {"socket": "/api/v1/status", "port": "/status"}


class Caller:
    """A client that sends what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> bytes:
        """All that comes until the broker closes; empty if it cuts the connection."""
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


class Doors:
    """A broker with both listeners. `may_answer` lets those go on that ask for the status."""

    def __init__(self, broker: Broker, directory: str) -> None:
        self.broker = broker
        self.directory = directory
        self.may_answer = asyncio.Event()
        self.waiting = 0
        self.cancelled = 0
        assert broker.monitor is not None
        self.port = broker.monitor.port
        reports = broker.monitor.reports
        latest = reports.latest

        async def later() -> Any:
            self.waiting += 1
            try:
                await self.may_answer.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            return await latest()

        reports.latest = later  # type: ignore[method-assign]

    async def connect(self, listener: str) -> Caller:
        if listener == "port":
            return Caller(*await asyncio.open_connection("127.0.0.1", self.port))
        return Caller(*await asyncio.open_unix_connection(str(Path(self.directory) / SOCKET_NAME)))

    @asynccontextmanager
    async def caller(self, listener: str) -> AsyncIterator[Caller]:
        caller = await self.connect(listener)
        try:
            yield caller
        finally:
            await caller.close()

    async def ask(self, listener: str, request: bytes) -> tuple[int, bytes, bytes]:
        """The status, the head and the body of the answer; 0 where there is none."""
        async with self.caller(listener) as each:
            each.send(request)
            head, _, body = (await each.answer()).partition(b"\r\n\r\n")
            return int(head.split()[1]) if head else 0, head, body


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()


@pytest.fixture
async def doors(rig: Rig) -> AsyncIterator[Doors]:
    with tempfile.TemporaryDirectory(prefix="mqttlite-") as directory:
        listeners = (ListenerOptions(port=0),)
        broker = await rig.broker(Config(listeners=listeners, data_dir=directory, metrics=MetricsOptions(port=0)))
        yield Doors(broker, directory)
        await broker.stop()


@LISTENERS
async def test_a_request_whose_client_shuts_down_its_sending_side_is_answered(doors: Doors, listener: str) -> None:
    async with doors.caller(listener) as first:  # the libraries are not loaded yet
        first.send(get(READY[listener]))
        first.writer.write_eof()
        assert b"The broker is ready." in await first.answer()
    async with doors.caller(listener) as each:
        each.send(get(STATUS[listener]).replace(b"Connection: close\r\n", b""))
        each.writer.write_eof()
        await until(lambda: doors.waiting == 1)
        doors.may_answer.set()
        assert b'"sessions"' in await each.answer()
    async with doors.caller(listener) as early:
        early.send(get(READY[listener])[:20])
        early.writer.write_eof()
        assert await early.answer() == b"", "half a request has no answer"


@LISTENERS
async def test_many_silent_connections_keep_no_client_out(doors: Doors, listener: str) -> None:
    assert (await doors.ask(listener, get(READY[listener])))[0] == 200
    async with doors.caller(listener) as waiting:
        waiting.send(get(STATUS[listener]))
        await until(lambda: doors.waiting == 1)
        silent = [await doors.connect(listener) for _ in range(LIMITS.max_connections - 1)]
        assert (await doors.ask(listener, get(READY[listener])))[0] == 200
        assert await silent[0].answer() == b"", "the oldest one is closed"
        for _ in range(LIMITS.max_connections):
            silent.append(await doors.connect(listener))
        doors.may_answer.set()
        assert b'"sessions"' in await waiting.answer(), "a request under way goes on"
        for each in silent:
            await each.close()


@LISTENERS
async def test_a_connection_that_is_kept_is_replaced_and_the_latest_are_not(doors: Doors, listener: str) -> None:
    """A client that keeps its connection is idle after its answer; the metrics port keeps none."""
    async with doors.caller(listener) as kept:
        kept.send(get(READY[listener]).replace(b"Connection: close\r\n", b""))
        async with asyncio.timeout(60):
            head = await kept.reader.readuntil(b"\r\n\r\n")
        assert (b"connection: close" in head.lower()) == (listener == "port")
        silent = [await doors.connect(listener) for _ in range(LIMITS.max_connections)]
        assert b"HTTP" not in await kept.answer()
        for each in reversed(silent):
            each.send(get(READY[listener]))
            assert (await each.answer()).startswith(b"HTTP/1.1 200 ")
            await each.close()


@LISTENERS
async def test_many_that_wait_for_an_answer_are_no_more_than_the_limit(doors: Doors, listener: str) -> None:
    assert (await doors.ask(listener, get(READY[listener])))[0] == 200
    waiting = [await doors.connect(listener) for _ in range(LIMITS.max_connections + 1)]
    for each in waiting:
        each.send(get(STATUS[listener]))
    assert await waiting[0].answer() == b"", "the oldest"
    await until(lambda: doors.waiting >= LIMITS.max_connections)
    doors.may_answer.set()
    for each in waiting[1:]:
        assert (await each.answer()).startswith(b"HTTP/1.1 200 ")
    for each in waiting:
        await each.close()


async def test_connections_before_the_first_answer_are_limited_and_the_others_answered(doors: Doors) -> None:
    early = [await doors.connect("port") for _ in range(late_server.MAX_EARLY + 5)]
    for each in early:
        each.send(get("/readyz"))
    answers = await asyncio.gather(*(each.answer() for each in early))
    assert sum(each.startswith(b"HTTP/1.1 200 ") for each in answers) >= late_server.MAX_EARLY
    for each in early:
        await each.close()


@ON_JUMPING_LOOP
@LISTENERS
async def test_a_request_that_comes_too_slowly_is_refused(
    doors: Doors, jump: Callable[[float], None], listener: str
) -> None:
    assert (await doors.ask(listener, get(READY[listener])))[0] == 200
    async with doors.caller(listener) as each:
        each.send(b"GET / HT")
        await until(lambda: doors.broker is not None)
        await asyncio.sleep(0.01)
        jump(LIMITS.request_timeout_s + 0.1)
        assert (await each.answer()).startswith(b"HTTP/1.1 408 ")


@pytest.mark.long
async def test_a_scraper_that_does_not_read_holds_up_no_other(doors: Doors) -> None:
    broker = doors.broker
    assert broker.monitor is not None
    client_ids = [f"{number}-{'x' * 1_000}" for number in range(1_000)]
    details = {"entries": client_ids, "cursor": ""}

    async def many(*_: Any, **__: Any) -> Any:
        return details

    broker.admin.clients = many  # type: ignore[method-assign]
    stalled = [await doors.connect("port") for _ in range(LIMITS.max_connections)]
    for each in stalled:
        each.writer.transport.pause_reading()  # type: ignore[attr-defined]
        each.send(get("/clients"))
    for _ in range(3):
        assert (await doors.ask("port", get("/readyz")))[0] == 200
    async with asyncio.timeout(30):
        await broker.stop()
    for each in stalled:
        each.reset()


async def test_a_client_that_hangs_up_is_not_worked_for_and_a_stop_ends_the_others(doors: Doors) -> None:
    hung_up, stays = await doors.connect("port"), await doors.connect("socket")
    hung_up.send(get("/status"))
    stays.send(get("/api/v1/status"))
    await until(lambda: doors.waiting == 2)
    hung_up.reset()
    await doors.broker.stop()
    assert await stays.answer() == b""
    await stays.close()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"DELETE /clients HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"GET /clients HTTP/1.1\r\n\r\n", 400),
        (b"GET //[ HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET /clients?limit=" + b"9" * 5_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /client?id=%FF HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /%FF HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"\x10\x0c\x00\x04MQTT\x05\x02\x00\x3c\x00\r\n\r\n", 400),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000, 431),
    ],
)
async def test_errors_of_the_metrics_port_are_sentences(doors: Doors, request_: bytes, status: int) -> None:
    got, head, body = await doors.ask("port", request_)
    assert (got, body[-2:]) == (status, b".\n")
    assert b"content-type: text/plain; charset=utf-8" in head.lower()
    if status == 405:
        assert b"allow: GET, HEAD" in head


async def test_head_is_get_without_a_body(doors: Doors) -> None:
    dated = re.compile(rb"date: .*?\r\n")
    _, head, body = await doors.ask("port", get("/readyz"))
    _, other, nothing = await doors.ask("port", get("/readyz", "HEAD"))
    assert (dated.sub(b"", other), body, nothing) == (dated.sub(b"", head), b"The broker is ready.\n", b"")
    assert b"connection: close" in head.lower()
    assert b"cache-control: no-store" in head


@pytest.mark.parametrize("seed", range(6))
async def test_no_input_stops_the_port(seed: int, doors: Doors, caplog: pytest.LogCaptureFixture) -> None:
    """Pieces of requests and noise, cut anywhere, closed in any way: no error in the log, and the next is answered."""
    rng = random.Random(seed)
    pieces = [b"GET ", b"HEAD ", b"POST ", b"Content-Length: 3\r\n", b"/", b"?a=1", b" HTTP/1.1", b"\r\n", b"Host: x"]
    pieces += [b": ", b"\r\n\r\n", b"\0", b"%zz"]
    for _ in range(30):
        async with doors.caller("port") as each:
            for _ in range(rng.randrange(8)):
                each.send(rng.choice([b"".join(rng.choices(pieces, k=rng.randrange(12))), rng.randbytes(9)]))
                await asyncio.sleep(0)
            if rng.random() < 0.3:
                each.reset()
            elif rng.random() < 0.5:
                each.writer.write_eof()
                await each.answer()
    assert (await doors.ask("port", get("/readyz")))[0] == 200
    assert not [each for each in caplog.records if each.levelname in ("WARNING", "ERROR")]
