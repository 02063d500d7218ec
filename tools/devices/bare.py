"""A device on a bare socket, which may hang up without a goodbye, say nothing any more, or read slowly.

No client would. It speaks as much MQTT 5.0 as that takes, one question at a time. Invariant: it counts each packet.
"""

import asyncio
import contextlib
import math
import socket
from typing import Final

from mqttlite.client import AnswerTimeout, ConnectError, ConnectionLost
from tools.devices.counting import Count, length_of_length
from tools.devices.target import Target

CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBCOMP: Final = 7
SUBACK: Final = 9
UNSUBACK: Final = 11

PATIENCE_S: Final = 10.0
"""For an answer that is not behind a backlog, and for the broker to close a connection."""

BUFFER_BYTES: Final = 65_536
"""Of a slow reader, in the kernel and here, so that what it does not read waits in the broker. With less the
kernel takes seconds to tell the other end that there is room again."""


class Bare:
    """One connection. `read_bytes_per_s` is how slowly it reads, until `hurry`."""

    def __init__(
        self, where: Target, client_id: str, count: Count, keep_alive_s: int, read_bytes_per_s: float = math.inf
    ) -> None:
        self.client_id: Final = client_id
        self.keep_alive_s: Final = keep_alive_s
        self._where: Final = where
        self._count: Final = count
        self._rate: Final = read_bytes_per_s
        self._hurry: Final = asyncio.Event()
        self._packet_id = 0
        self._awaited = 0
        self._answer: asyncio.Future[bytes] | None = None
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._reading: asyncio.Task[None]

    async def open(self) -> None:
        """Connect, with a clean start. Raises `ConnectError`."""
        where = self._where
        try:
            async with asyncio.timeout(PATIENCE_S):
                self._reader, self._writer = await asyncio.open_connection(
                    where.host,
                    where.port,
                    limit=BUFFER_BYTES,
                    ssl=where.tls,
                    server_hostname=None if where.tls is None else where.host,
                )
        except (OSError, TimeoutError) as error:
            raise ConnectError(f"{self.client_id} could not connect to {where}: {error}.") from error
        if self._rate < math.inf:
            self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self._reading = asyncio.create_task(self._read())
        connect = b"\0\4MQTT\5\2" + self.keep_alive_s.to_bytes(2, "big") + b"\0" + _text(self.client_id)
        try:
            answer = await self._ask(_packet(0x10, connect), CONNACK, PATIENCE_S)
        except (ConnectionLost, AnswerTimeout) as error:
            await self.hang_up()
            raise ConnectError(f"{self.client_id} got no answer to CONNECT from {where}.") from error
        if answer[1]:
            await self.hang_up()
            raise ConnectError(f"{where} refused {self.client_id} with {answer[1]:#04x}.")
        self._count.sessions += 1

    async def publish(self, topic: str, payload: bytes, qos: int, *, timeout: float) -> None:  # noqa: ASYNC109
        """Publish, and wait for the acknowledgement. Raises `ConnectionLost`, `AnswerTimeout`."""
        self._count.messages_sent += 1
        if qos == 0:
            self._write(_packet(0x30, _text(topic) + b"\0" + payload))
            with contextlib.suppress(OSError):  # the next read says it, too
                await self._writer.drain()
            return
        packet_id = self._next_id()
        message = _packet(0x30 | qos << 1, _text(topic) + packet_id + b"\0" + payload)
        await self._ask(message, PUBACK if qos == 1 else PUBREC, timeout)
        if qos == 2:
            await self._ask(_packet(0x62, packet_id), PUBCOMP, timeout)

    async def subscribe(self, topic_filter: str) -> None:
        """Subscribe at QoS 0. Raises `ConnectionLost`, `AnswerTimeout`."""
        await self._ask(_packet(0x82, self._next_id() + b"\0" + _text(topic_filter) + b"\0"), SUBACK, PATIENCE_S)

    async def unsubscribe(self, topic_filter: str, limit_s: float) -> None:
        """End the subscription; what was sent before has been read then. Raises `ConnectionLost`, `AnswerTimeout`."""
        await self._ask(_packet(0xA2, self._next_id() + b"\0" + _text(topic_filter)), UNSUBACK, limit_s)

    def ping(self) -> None:
        """Tell the broker that we are there."""
        self._write(b"\xc0\0")

    def hurry(self) -> None:
        """Read as fast as it goes."""
        self._hurry.set()

    async def say_goodbye(self) -> None:
        """End as one should."""
        self._write(b"\xe0\0")
        await self.be_closed()

    async def be_closed(self) -> None:
        """Wait until the broker ends the connection, and hang up."""
        await asyncio.wait([self._reading], timeout=PATIENCE_S)
        await self.hang_up()

    async def hang_up(self) -> None:
        """End the connection without a word of MQTT, and count what the broker wrote before it saw that.

        A device that came back before the broker had seen its end would be taken for another of its name. TLS cannot
        be ended in one direction: there the socket is closed.
        """
        if self._writer.can_write_eof() and not self._writer.is_closing():
            with contextlib.suppress(OSError):
                self._writer.write_eof()
            await asyncio.wait([self._reading], timeout=PATIENCE_S)
        self._writer.close()
        await asyncio.wait([self._reading], timeout=PATIENCE_S)
        self._reading.cancel()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def _next_id(self) -> bytes:
        self._packet_id = self._packet_id % 65_535 + 1
        return self._packet_id.to_bytes(2, "big")

    def _write(self, packet: bytes) -> None:
        self._count.bytes_sent += len(packet)
        self._writer.write(packet)

    async def _ask(self, packet: bytes, awaited: int, limit_s: float) -> bytes:
        """Write a packet; the body of its answer."""
        if self._reading.done():
            raise self._lost()
        self._awaited, self._answer = awaited, asyncio.get_running_loop().create_future()
        self._write(packet)
        try:
            async with asyncio.timeout(None if limit_s == math.inf else limit_s):
                return await self._answer
        except TimeoutError:
            raise AnswerTimeout(f"{self._where} left {self.client_id} without an answer for {limit_s:g} s.") from None

    async def _read(self) -> None:
        """Count what comes, and hand over answers, until the connection ends."""
        hurrying = asyncio.create_task(self._hurry.wait())
        try:
            while True:
                first = (await self._reader.readexactly(1))[0]
                size = shift = 0
                more = True
                while more:
                    digit = (await self._reader.readexactly(1))[0]
                    size |= (digit & 127) << shift
                    shift += 7
                    more = digit > 127
                body = await self._reader.readexactly(size)
                length = 1 + length_of_length(size) + size
                self._count.bytes_received += length
                self._count.messages_received += first >> 4 == PUBLISH
                if first >> 4 == self._awaited and self._answer is not None and not self._answer.done():
                    self._answer.set_result(body)
                if self._rate < math.inf and not self._hurry.is_set():
                    await asyncio.wait([hurrying], timeout=length / self._rate)
        except (asyncio.IncompleteReadError, OSError):
            pass  # the code that waits hears of it
        finally:
            hurrying.cancel()
            if self._answer is not None and not self._answer.done():
                self._answer.set_exception(self._lost())
                self._answer.exception()  # nobody may wait for it any more

    def _lost(self) -> ConnectionLost:
        return ConnectionLost(f"The connection of {self.client_id} to {self._where} was lost.")


def _text(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2, "big") + data


def _packet(first: int, body: bytes) -> bytes:
    size, length = len(body), bytearray()
    while True:
        size, digit = divmod(size, 128)
        length.append(digit | 128 if size else digit)
        if not size:
            return bytes([first]) + length + body
