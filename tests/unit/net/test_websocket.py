"""The frames between a socket and a link, without either: every cut of the stream, and what happens out of turn."""

import asyncio
from typing import Any, cast

from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong

from mqttlite.core.reasons import CloseReason
from mqttlite.net.link import Link
from mqttlite.net.upgrade import Options
from mqttlite.net.websocket import FrameTransport, WebSocket
from tests.support.web import request


class Socket(asyncio.Transport):
    """Keeps what is written, and who called."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.calls: list[str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return "close" in self.calls

    def can_write_eof(self) -> bool:
        return True

    def __getattribute__(self, name: str) -> Any:
        if name in ("close", "abort", "pause_reading", "resume_reading", "write_eof", "set_write_buffer_limits"):
            return lambda *args: self.calls.append(name)
        return super().__getattribute__(name)


class Mqtt:
    """Stands for the link, and keeps what it is told."""

    listener = "web"
    address = "client:1"

    def __init__(self) -> None:
        self.made = False
        self.received = b""
        self.calls: list[str] = []
        self.transport: FrameTransport
        self.connection = self
        self.close_reason = CloseReason.SERVER_SHUTDOWN

    def connection_made(self, transport: FrameTransport) -> None:
        self.made = True
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def pause_writing(self) -> None:
        self.calls.append("pause_writing")

    def resume_writing(self) -> None:
        self.calls.append("resume_writing")

    def connection_lost(self, error: Exception | None) -> None:
        self.calls.append(f"lost: {error}")


class Bench:
    """A WebSocket between the two, and the client's frames."""

    def __init__(self, *, asked: bool = True) -> None:
        self.socket = Socket()
        self.mqtt = Mqtt()
        self.ended: list[bool] = []
        self.web = WebSocket(
            cast(Link, self.mqtt), Options(), 60, lambda _: None, lambda _, is_link: self.ended.append(is_link)
        )
        self.client = Connection(ConnectionType.CLIENT)
        self.web.connection_made(self.socket)
        if asked:
            self.web.data_received(request())
            self.socket.written = b""

    def frames(self, *events: Any) -> bytes:
        return b"".join(self.client.send(event) for event in events)

    def events(self) -> list[Any]:
        """What the client got since it last asked."""
        self.client.receive_data(self.socket.written)
        self.socket.written = b""
        return list(self.client.events())


async def test_cutting_the_stream_anywhere_changes_nothing() -> None:
    client = Connection(ConnectionType.CLIENT)
    events = [
        BytesMessage(b"short"),
        BytesMessage(b"x" * 200, message_finished=False),
        Ping(b"?"),
        BytesMessage(b"", message_finished=False),
        BytesMessage(b"the end"),
        Pong(b"unasked"),
        CloseConnection(1000),
    ]
    stream = request() + b"".join(client.send(event) for event in events)
    for cut in range(1, len(stream)):
        bench = Bench(asked=False)
        bench.web.data_received(stream[:cut])
        bench.web.data_received(stream[cut:])
        assert bench.ended == [True]
        assert bench.mqtt.received == b"short" + b"x" * 200 + b"the end"
        assert bench.socket.written.endswith(b"\x88\x02\x03\xe8")
        assert bench.socket.calls == ["close"]
        bench.web.connection_lost(None)
        assert bench.mqtt.calls == ["lost: None"]


async def test_a_frame_of_any_length_is_handed_on_as_it_comes() -> None:
    bench = Bench()
    bench.web.data_received(bytes.fromhex("82 ff 0000010000000000 00000000"))  # a terabyte
    for number in range(1, 100):
        bench.web.data_received(b"x" * 1_000)
        assert len(bench.mqtt.received) == number * 1_000


async def test_while_the_socket_is_full_only_the_last_ping_is_kept() -> None:
    bench = Bench()
    bench.web.pause_writing()
    bench.web.data_received(bench.frames(Ping(b"1")))
    bench.web.data_received(bench.frames(Ping(b"2")))
    assert bench.socket.written == b""
    bench.web.resume_writing()
    assert bench.events() == [Pong(b"2")]
    assert bench.mqtt.calls == ["pause_writing", "resume_writing"]


async def test_a_full_socket_before_the_request_is_nobody_s_concern() -> None:
    bench = Bench(asked=False)
    bench.web.pause_writing()
    bench.web.resume_writing()
    assert bench.mqtt.calls == []
    bench.web.connection_lost(None)
    assert bench.ended == [False]
    assert bench.mqtt.calls == []


async def test_after_our_close_nothing_is_written_and_nothing_read() -> None:
    bench = Bench()
    bench.mqtt.transport.write(b"last")
    bench.mqtt.transport.close()
    bench.mqtt.transport.close()
    bench.mqtt.transport.write(b"too late")
    assert bench.mqtt.transport.is_closing()
    late = bench.frames(BytesMessage(b"late"), Ping(b"late"))
    assert bench.events() == [BytesMessage(b"last"), CloseConnection(1001, "server_shutdown")]
    bench.web.data_received(late)
    assert bench.mqtt.received == bench.socket.written == b""
    bench.web.data_received(bench.frames(CloseConnection(1001)))
    assert bench.socket.calls == ["close"]


async def test_a_ping_that_waits_is_not_answered_after_our_close() -> None:
    bench = Bench()
    bench.web.pause_writing()
    bench.web.data_received(bench.frames(Ping(b"1")))
    bench.mqtt.transport.close()
    bench.events()
    bench.web.resume_writing()
    assert bench.socket.written == b""


async def test_what_a_link_asks_of_its_transport_reaches_the_socket() -> None:
    bench = Bench()
    transport = bench.mqtt.transport
    assert not transport.is_closing()
    assert not transport.can_write_eof()
    transport.set_write_buffer_limits(2, 1)
    transport.pause_reading()
    transport.resume_reading()
    transport.abort()
    assert transport.get_extra_info("peername", "nobody") == "nobody"
    assert bench.socket.calls == ["set_write_buffer_limits", "pause_reading", "resume_reading", "abort"]
    transport.write(b"")
    assert bench.socket.written == b""
