"""The client's side of a WebSocket, byte by byte: a `Device` that speaks through frames, and may send any other thing.

The frames are wsproto's. Invariant: what came besides payloads is kept, to be looked at.
"""

import asyncio
import ssl
from typing import Any

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong

from mqttlite.wire.constants import V5
from tests.support.device import PATIENCE_S, Device


def request(
    path: str = "/mqtt",
    *,
    method: str = "GET",
    protocols: str | None = "mqtt",
    origin: str | None = None,
    without: str = "",
    **more: str,
) -> bytes:
    """A request for a WebSocket; `without` leaves a header out, `more` changes or adds some (`_` is `-`)."""
    headers = {
        "Host": "localhost",
        "Upgrade": "websocket",
        "Connection": "keep-alive, Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": protocols,
        "Origin": origin,
    }
    headers |= {name.replace("_", "-"): value for name, value in more.items()}
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None and name != without]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()


class Web:
    """An open WebSocket; for a `Device` it is reader and writer at once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, subprotocol: str) -> None:
        self.reader = reader
        self.writer = writer
        self.subprotocol = subprotocol
        self.frames = Connection(ConnectionType.CLIENT)
        self.frame_sizes: list[int] = []
        self.pongs: list[bytes] = []
        self.closed: CloseConnection | None = None

    @property
    def transport(self) -> asyncio.WriteTransport:
        return self.writer.transport

    def get_extra_info(self, name: str) -> Any:
        return self.writer.get_extra_info(name)

    def write(self, data: bytes) -> None:
        self.send(BytesMessage(data))

    def send(self, *events: Event) -> None:
        self.writer.write(b"".join(self.frames.send(event) for event in events))

    async def read(self, at_most: int) -> bytes:
        """Payloads of frames; empty at the end."""
        while data := await self.reader.read(at_most):
            if payload := self.feed(data):
                return payload
        return b""

    def feed(self, data: bytes) -> bytes:
        """The payloads in what the socket gave; the rest is kept or, if it is a Close frame, answered."""
        self.frames.receive_data(data)
        payload = b""
        for event in self.frames.events():
            if isinstance(event, BytesMessage):
                payload += bytes(event.data)
                self.frame_sizes.append(len(event.data))
            elif isinstance(event, Pong):
                self.pongs.append(bytes(event.payload))
            elif isinstance(event, CloseConnection):
                self.closed = event
                if self.frames.state is ConnectionState.REMOTE_CLOSING:
                    self.send(event.response())
        return payload

    async def end(self) -> CloseConnection:
        """Read until the broker closes the socket; its Close frame."""
        async with asyncio.timeout(PATIENCE_S):
            while await self.read(65_536):
                pass
        assert self.closed is not None, "no Close frame"
        return self.closed

    async def pong(self, payload: bytes) -> None:
        """Ping, and wait for the answer."""
        self.send(Ping(payload))
        async with asyncio.timeout(PATIENCE_S):
            while payload not in self.pongs:
                assert not self.feed(await self.reader.read(65_536))

    def close(self) -> None:
        self.writer.close()

    async def wait_closed(self) -> None:
        await self.writer.wait_closed()


async def ask(
    port: int, data: bytes, *, tls: ssl.SSLContext | None = None
) -> tuple[int, bytes, asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request; the status and the head of the answer, and the connection."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=tls, server_hostname="localhost" if tls else None
    )
    writer.write(data)
    async with asyncio.timeout(PATIENCE_S):
        head = await reader.readuntil(b"\r\n\r\n")
    return int(head.split()[1]), head, reader, writer


async def refusal(port: int, data: bytes, *, tls: ssl.SSLContext | None = None) -> tuple[int, str, str]:
    """Send a request that is refused; status, headers, and the sentence. The broker closes."""
    status, head, reader, writer = await ask(port, data, tls=tls)
    async with asyncio.timeout(PATIENCE_S):
        body = await reader.read()
    writer.close()
    await writer.wait_closed()
    return status, head.decode(), body.decode()


async def dial(port: int, version: int = V5, *, tls: ssl.SSLContext | None = None, **options: Any) -> Device:
    """A device whose bytes go in frames; its `writer` is the `Web`."""
    status, head, reader, writer = await ask(port, request(**options), tls=tls)
    assert status == 101, head
    name, _, rest = head.decode().partition("Sec-WebSocket-Protocol: ")
    web = Web(reader, writer, rest.split("\r\n")[0] if name else "")
    return Device(web, web, version)  # type: ignore[arg-type]


def web_of(device: Device) -> Web:
    """The frames that a device speaks through."""
    assert isinstance(device.writer, Web)
    return device.writer
