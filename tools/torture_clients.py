"""Clients that a tortured broker has: MQTT by hand, so that they know nothing of the broker.

They keep their own state over connections as §4.4 of MQTT 3.1.1 demands, and note what was acknowledged and what came.
"""

import asyncio
import contextlib
import itertools
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from tools.torture_packets import packet, read_packet, text
from tools.torture_queues import delivered

WINDOW = 50
"""Messages that a publisher has under way."""

PING_S = 0.3
"""How often a client whose patience ends asks whether the broker is there."""


def _publish(topic: str, payload: bytes, qos: int, packet_id: int, dup: bool = False, retain: bool = False) -> bytes:
    number = struct.pack(">H", packet_id) if qos else b""
    return packet(0x30 | dup << 3 | qos << 1 | retain, text(topic) + number + payload)


class Link:
    """A connection of a client whose session stays."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience_s: float | None) -> None:
        self._reader = reader
        self.patience_s = patience_s
        self.writer = writer
        self.has_session = False
        """Whether the broker had the session already."""

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, port: int, client_id: str, version: int = 4, patience_s: float | None = None, will: bytes | None = None
    ) -> "AsyncIterator[Link]":
        """Connect, and close the connection in the end, also one that the broker cut. A broker that says nothing for
        `patience_s` is taken for lost: `TimeoutError`. `will` has the fields of CONNECT."""
        link = cls(*await asyncio.open_connection("127.0.0.1", port), patience_s)
        pinging = asyncio.create_task(link._ping()) if patience_s else None
        try:
            flags = 0 if will is None else 0x14  # a will of QoS 2
            start = bytes([version, flags, 0, 0]) + (b"\5\x11\0\1\x51\x80" if version == 5 else b"")
            link.writer.write(packet(0x10, text("MQTT") + start + text(client_id) + (will or b"")))
            first, body = await link.read()
            assert (first, body[1]) == (0x20, 0), f"CONNECT of {client_id} was refused: {body!r}"
            link.has_session = bool(body[0])
            yield link
        finally:
            if pinging is not None:
                pinging.cancel()
            link.writer.close()
            with contextlib.suppress(OSError):
                await link.writer.wait_closed()

    async def read(self) -> tuple[int, bytes]:
        """The first byte and the body of the next packet that is no PINGRESP."""
        while True:
            async with asyncio.timeout(self.patience_s):
                first, body = await read_packet(self._reader)
            if first != 0xD0:
                return first, body

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_S)
            self.writer.write(b"\xc0\0")


@dataclass
class Publisher:
    """Publishes numbers: acknowledged at PUBACK or PUBREC, sent again with DUP until then."""

    name: str
    qos: int
    retain: bool = False
    prefix: str = "passing"
    pause_s: float = 0.0
    """How long to do nothing after each answer."""
    version: ClassVar[int] = 4
    next_number: int = 0
    acknowledged: set[int] = field(default_factory=set)
    under_way: dict[int, tuple[int, bool]] = field(default_factory=dict)
    """By packet identifier the number, and whether PUBREC came."""
    _ids: Iterator[int] = field(default_factory=lambda: itertools.cycle(range(1, 65_536)))

    async def run(self, port: int, is_over: Callable[[], bool]) -> None:
        """Publish until it is over and everything is acknowledged."""
        async with Link.open(port, self.name) as link:
            await self.talk(link, is_over)

    async def talk(self, link: Link, is_over: Callable[[], bool]) -> None:
        """As `run`, over a connection."""
        for packet_id, (number, is_received) in self.under_way.items():
            again = packet(0x62, struct.pack(">H", packet_id))
            link.writer.write(again if is_received else self._frame(number, packet_id, True))
        while self.under_way or not is_over():
            while len(self.under_way) < WINDOW and not is_over():
                packet_id = next(each for each in self._ids if each not in self.under_way)
                self.under_way[packet_id] = self.next_number, False
                link.writer.write(self._frame(self.next_number, packet_id, False))
                self.next_number += 1
            first, body = await link.read()
            (packet_id,) = struct.unpack(">H", body[:2])
            number, _ = self.under_way[packet_id]
            if first != 0x70:
                self.acknowledged.add(number)
            if first == 0x50:
                self.under_way[packet_id] = number, True
                link.writer.write(packet(0x62, body[:2]))
            else:
                del self.under_way[packet_id]
            if self.pause_s:
                await asyncio.sleep(self.pause_s)

    def _frame(self, number: int, packet_id: int, dup: bool) -> bytes:
        return _publish(f"{self.prefix}/{self.name}", b"%d" % number, self.qos, packet_id, dup, self.retain)


@dataclass
class Subscriber:
    """Takes what is published, and keeps identifiers of QoS 2 until they are released."""

    name: str
    qos: int
    topic_filter: str = "passing/#"
    version: int = 4
    got: dict[str, list[int]] = field(default_factory=dict)
    """By publisher the numbers in the order in which they came."""
    received: set[int] = field(default_factory=set)

    async def run(self, port: int, is_over: Callable[[], bool]) -> None:
        """Subscribe, and take what comes until it is over."""
        async with Link.open(port, self.name) as link:
            await self.talk(link, is_over)

    async def talk(self, link: Link, is_over: Callable[[], bool]) -> None:
        """As `run`, over a connection."""
        properties = b"\0" if self.version == 5 else b""
        link.writer.write(packet(0x82, b"\0\1" + properties + text(self.topic_filter) + bytes([self.qos])))
        is_subscribed = False
        reading = asyncio.create_task(link.read())  # to cancel it within a packet would lose the rest of that
        try:
            while not is_subscribed or not is_over():
                if not (await asyncio.wait([reading], timeout=0.2))[0]:
                    continue
                first, body = reading.result()
                reading = asyncio.create_task(link.read())
                is_subscribed = is_subscribed or first == 0x90
                self._take(first, body, link.writer)
        finally:
            reading.cancel()

    def _take(self, first: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        if first >> 4 == 3:
            length = int.from_bytes(body[:2], "big")
            topic, at = body[2 : 2 + length].decode(), 2 + length
            qos = first >> 1 & 3
            packet_id = body[at : at + 2]
            number = int.from_bytes(packet_id, "big")
            payload = delivered(body)[1] if self.version == 5 else body[at + 2 :]
            if qos == 1 or number not in self.received:
                self.got.setdefault(topic.partition("/")[2], []).append(int(payload))
            if qos == 2:
                self.received.add(number)
            writer.write(packet(0x40 if qos == 1 else 0x50, packet_id))
        elif first == 0x62:
            self.received.discard(int.from_bytes(body[:2], "big"))
            writer.write(packet(0x70, body[:2]))
