"""A broker that follows a script: one coroutine for each connection, in the order in which they come.

It speaks through `mqttlite.wire` and has no opinion. Invariant: a script that fails makes its test fail.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from mqttlite.client import Client
from mqttlite.wire.constants import V5
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import encode
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import Ack, Connack, Connect, Packet, Pingreq, Publish, Suback, Subscribe
from mqttlite.wire.properties import NONE, Properties

PATIENCE_S = 60.0
P = TypeVar("P", bound=Packet)


class Gone(Exception):
    """The client closed the connection."""


class Peer:
    """The broker's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.version = V5
        self._framer = Framer(1_000_000)
        self._packets: list[Packet] = []

    async def next(self) -> Packet:
        """The next packet but for PINGREQ. Raises `Gone` when there is none."""
        while not self._packets:
            data = await asyncio.wait_for(self._reader.read(65536), PATIENCE_S)
            if not data:
                raise Gone
            for first, body in self._framer.split(data):
                packet = decode(first, body, self.version)
                if isinstance(packet, Connect):
                    self.version = packet.version
                if not isinstance(packet, Pingreq):
                    self._packets.append(packet)
        return self._packets.pop(0)

    async def expect(self, kind: type[P]) -> P:
        packet = await self.next()
        assert isinstance(packet, kind), f"expected {kind.__name__}, got {packet}"
        return packet

    async def ack(self, packet_type: int) -> Ack:
        packet = await self.expect(Ack)
        assert packet.packet_type == packet_type, packet
        return packet

    def send(self, *packets: Packet) -> None:
        self.writer.write(b"".join([encode(packet, self.version) for packet in packets]))

    async def welcome(self, session_present: bool = False, properties: Properties = NONE) -> Connect:
        connect = await self.expect(Connect)
        self.send(Connack(session_present, 0, properties))
        return connect

    async def grant(self) -> Subscribe:
        subscribe = await self.expect(Subscribe)
        self.send(Suback(subscribe.packet_id, bytes([request.qos for request in subscribe.requests])))
        return subscribe

    def drop(self) -> None:
        self.writer.transport.abort()

    async def goodbye(self) -> None:
        """Read until the client leaves."""
        try:
            while True:
                await self.next()
        except (Gone, ConnectionError):
            pass


Script = Callable[[Peer], Awaitable[None]]


@asynccontextmanager
async def broker(*scripts: Script) -> AsyncIterator[int]:
    """The port of a broker whose connections follow the scripts; at the end, all of them must have been played."""
    played: list[asyncio.Task[None]] = []

    async def play(script: Script, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(Peer(reader, writer))
        except BaseException:
            writer.transport.abort()
            raise
        finally:  # also the loop's part of closing: else it would be a warning in another test
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert len(played) < len(scripts), "more connections than scripts"
        played.append(asyncio.create_task(play(scripts[len(played)], reader, writer)))

    server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*played)
        assert len(played) == len(scripts), f"{len(played)} connections for {len(scripts)} scripts"
    finally:
        for task in played:
            task.cancel()
        await asyncio.gather(*played, return_exceptions=True)
        server.close()
        await server.wait_closed()


def client(port: int, **options: object) -> Client:
    """A client with short times."""
    times = {"timeout": PATIENCE_S, "min_reconnect_delay": 0.001, "max_reconnect_delay": 0.002}
    return Client("127.0.0.1", port, **{**times, **options})  # type: ignore[arg-type]


def message(topic: str, payload: bytes = b"", qos: int = 0, packet_id: int = 0, dup: bool = False) -> Publish:
    return Publish(topic.encode(), payload, qos, packet_id=packet_id, dup=dup)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until something is so. What takes longer than some iterations gets the processor."""
    async with asyncio.timeout(PATIENCE_S):
        iterations = 0
        while not condition():
            iterations += 1
            await asyncio.sleep(0 if iterations < 100 else 0.001)
