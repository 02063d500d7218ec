"""A client of a real socket that does what a test tells it and nothing else: it can be silent, rude, or frozen.

It speaks through `mqttlite.wire` and has no opinion. Invariant: it counts every MQTT byte, both ways.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import TypeVar

from mqttlite.net.link import format_address
from mqttlite.wire.constants import V5
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import encode
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Will,
)
from mqttlite.wire.properties import NONE, Properties

PATIENCE_S = 60.0
P = TypeVar("P", bound=Packet)


class Gone(Exception):
    """The broker closed the connection."""


class Device:
    """One connection. `dial` opens it, `connect` says CONNECT and waits for CONNACK."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self._reader = reader
        self.writer = writer
        self.address = format_address(writer.get_extra_info("sockname"))
        """As the broker's log says it."""
        self.version = version
        self.client_id = ""
        self._framer = Framer(1 << 28)
        self._packets: list[Packet] = []
        self._packet_id = 0
        self.bytes_sent = 0
        self.bytes_received = 0

    @classmethod
    async def dial(
        cls,
        port: int,
        version: int = V5,
        *,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
        small_buffers: bool = False,
    ) -> "Device":
        """Open the connection; with `small_buffers` the kernel takes little before the broker feels it."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY only then
        if small_buffers:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (host, port))
        except OSError:
            sock.close()
            raise
        reader, writer = await asyncio.open_connection(
            sock=sock, ssl=tls, server_hostname=host if tls else None, limit=4_096 if small_buffers else 65_536
        )
        return cls(reader, writer, version)

    # ── sending ────────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, *packets: Packet) -> None:
        self.send_bytes(b"".join([encode(packet, self.version) for packet in packets]))

    def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)
        self.bytes_sent += len(data)

    def packet_id(self) -> int:
        self._packet_id += 1
        return self._packet_id

    def hello(
        self,
        client_id: str,
        *,
        clean_start: bool = True,
        keep_alive: int = 0,
        username: str | None = None,
        password: bytes = b"secret",
        will: Will | None = None,
        expiry: int | None = None,
        properties: Properties | None = None,
    ) -> None:
        """Send CONNECT. `expiry` is a 5.0 session's; an older one lives on without `clean_start`. Without a user name
        there is no password."""
        self.client_id = client_id
        if properties is None:
            properties = Properties(session_expiry_interval=expiry) if expiry is not None else NONE
        said = password if username is not None else None
        self.send(Connect(client_id, self.version, clean_start, keep_alive, username, said, will, properties))

    async def connect(self, client_id: str, **options: object) -> Connack:
        self.hello(client_id, **options)  # type: ignore[arg-type]
        connack = await self.expect(Connack)
        assert connack.reason_code == 0, connack
        return connack

    async def subscribe(self, topic_filter: str, qos: int = 0) -> bytes:
        self.send(Subscribe(self.packet_id(), (SubscriptionRequest(topic_filter.encode(), qos),)))
        return (await self.expect(Suback)).reason_codes

    def publish(self, topic: str, payload: bytes = b"", qos: int = 0, retain: bool = False) -> int:
        """Send PUBLISH and return its packet identifier."""
        packet_id = self.packet_id() if qos else 0
        self.send(Publish(topic.encode(), payload, qos, retain, packet_id=packet_id))
        return packet_id

    async def published(self, topic: str, payload: bytes = b"", qos: int = 1) -> int:
        """Publish at QoS 1 or 2, and return the reason code of the first answer."""
        packet_id = self.publish(topic, payload, qos)
        ack = await self.expect(Ack)
        assert ack.packet_id == packet_id
        return ack.reason_code

    # ── receiving ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def next(self) -> Packet:
        """The next packet. Raises `Gone` when there is none."""
        while not self._packets:
            async with asyncio.timeout(PATIENCE_S):
                try:
                    data = await self._reader.read(65_536)
                except ConnectionError:
                    raise Gone from None
            if not data:
                raise Gone
            self._take(data)
        return self._packets.pop(0)

    async def expect(self, kind: type[P]) -> P:
        packet = await self.next()
        assert isinstance(packet, kind), f"expected {kind.__name__}, got {packet}"
        return packet

    async def message(self) -> tuple[str, bytes]:
        """The next PUBLISH; acknowledged, if it wants to be."""
        publish = await self.expect(Publish)
        if publish.qos == 1:
            self.send(Ack(4, publish.packet_id))
        return publish.topic.decode(), publish.payload

    async def goodbye(self) -> int | None:
        """Read to the end: the reason code of a DISCONNECT, None where there is none."""
        code = None
        try:
            while True:
                packet = await self.next()
                if isinstance(packet, Disconnect):
                    code = packet.reason_code
        except Gone:
            return code

    async def ping(self) -> None:
        """Wait until the broker has answered everything sent so far, and what comes before that is kept."""
        self.send(Pingreq())
        seen: list[Packet] = []
        while not isinstance(packet := await self.next(), Pingresp):
            seen.append(packet)
        self._packets[:0] = seen

    def waiting(self) -> list[Packet]:
        """What came, as far as the loop knows, and was not yet asked for."""
        buffer = self._reader._buffer  # type: ignore[attr-defined]
        if buffer:
            self._take(bytes(buffer))
            buffer.clear()
            self._reader._maybe_resume_transport()  # type: ignore[attr-defined]
        return self._packets

    def _take(self, data: bytes) -> None:
        self.bytes_received += len(data)
        self._packets += [decode(first, body, self.version) for first, body in self._framer.split(data)]

    # ── leaving ────────────────────────────────────────────────────────────────────────────────────────────────────

    def freeze(self) -> None:
        """Stop reading the socket."""
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]

    def thaw(self) -> None:
        self.writer.transport.resume_reading()  # type: ignore[attr-defined]

    async def disconnect(self) -> None:
        self.send(Disconnect())
        await self.close()

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except (OSError, ssl.SSLError):
            pass

    def drop(self) -> None:
        """Be lost: the socket is reset."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.writer.transport.abort()


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until something is so. What takes longer than some iterations gets the processor."""
    async with asyncio.timeout(PATIENCE_S):
        iterations = 0
        while not condition():
            iterations += 1
            await asyncio.sleep(0 if iterations < 100 else 0.001)
