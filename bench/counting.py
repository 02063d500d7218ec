"""What the clients of `bench/queues.py` and `bench/logs.py` share: they cut bytes and count, and so take little of a
processor.

Invariant: all messages of a publisher, or for a reader, have one size, so that many are written, or counted, at once.
"""

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar, cast

from mqttlite.wire.constants import V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Connect, Publish, Subscribe, SubscriptionRequest

WINDOW: Final = 1_000
"""Messages that a publisher has unacknowledged, and that a consumer takes at a time."""


class NotMeasured(RuntimeError):
    """The broker did not do what is measured."""


class Client(asyncio.Protocol):
    """What all of them have: a connection that begins with some packets."""

    def __init__(self, first: bytes) -> None:
        self._first: Final = first
        self.read: bytes = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # it is none by its class, with uvloop
        self.transport.write(self._first)

    def close(self) -> None:
        self.transport.close()


C = TypeVar("C", bound=Client)


class Publisher(Client):
    """Publishes `count` messages of one size at QoS 1, `burst` to each topic in turn; `done` when all are acknowledged.
    All topics have the same length."""

    def __init__(self, name: str, topics: Sequence[bytes], count: int, size: int, burst: int) -> None:
        super().__init__(encode(Connect(name, V311, keep_alive=0), V311))
        self._left = count
        self._under_way = 0
        self._next_id = 0
        frames = [encode(Publish(each, bytes(size), qos=1, packet_id=1), V311) for each in topics]
        self._size: Final = len(frames[0])
        self._id_at: Final = frames[0].index(topics[0]) + len(topics[0])
        turn = b"".join(each * burst for each in frames)
        self._turn: Final = len(topics) * burst
        self._frames: Final = turn * (2 + WINDOW // self._turn)
        self._at = 0
        self._is_connected = False
        self.done: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        data = self.read + data
        if not self._is_connected:
            self._is_connected = True
            data = data[4:]  # CONNACK
        whole = len(data) // 4
        self.read = data[whole * 4 :]
        self._under_way -= whole
        self._send()
        if not self._left and not self._under_way and not self.done.done():
            self.done.set_result(None)

    def _send(self) -> None:
        count = min(self._left, WINDOW - self._under_way)
        if count < min(self._left, WINDOW // 4):
            return
        self._left -= count
        self._under_way += count
        size = self._size
        frames = bytearray(self._frames[self._at * size : (self._at + count) * size])
        self._at = (self._at + count) % self._turn
        ids = [1 + (self._next_id + at) % 65_535 for at in range(count)]
        self._next_id = ids[-1] if ids else self._next_id
        frames[self._id_at :: size] = bytes([each >> 8 for each in ids])
        frames[self._id_at + 1 :: size] = bytes([each & 255 for each in ids])
        self.transport.write(bytes(frames))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(NotMeasured("the publisher lost its connection"))


class Reader(Client):
    """Reads a stream or a queue over 3.1.1: messages of one size on topics of one length. It acknowledges each at
    QoS 1; `on_count` is told how many came."""

    def __init__(
        self, name: str, topic_filter: bytes, qos: int, topic: bytes, size: int, on_count: Callable[[int], None]
    ) -> None:
        super().__init__(
            encode(Connect(name, V311, keep_alive=0), V311)
            + encode(Subscribe(1, (SubscriptionRequest(topic_filter, qos),)), V311)
        )
        self._on_count: Final = on_count
        self._qos: Final = qos
        frame = encode(Publish(topic, bytes(size), qos=qos, packet_id=1 if qos else 0), V311)
        self._size: Final = len(frame)
        self._id_at: Final = frame.index(topic) + len(topic)
        self._skip = 4 + 5  # CONNACK, SUBACK

    def data_received(self, data: bytes) -> None:
        data = self.read + data
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            data = data[skipped:]
        count = len(data) // self._size
        self.read = data[count * self._size :]
        if not count:
            return
        if self._qos:
            acks = bytearray(b"\x40\x02\0\0" * count)
            end = count * self._size
            acks[2::4] = data[self._id_at : end : self._size]
            acks[3::4] = data[self._id_at + 1 : end : self._size]
            self.transport.write(bytes(acks))
        self._on_count(count)


class Countdown:
    """`done` when all that were expected are counted."""

    def __init__(self, left: int) -> None:
        self._left = left
        self.done: Final = asyncio.Event()

    def count(self, more: int) -> None:
        self._left -= more
        if self._left <= 0:
            self.done.set()


async def connect(port: int, client: C) -> C:
    """Connect a client to the broker at a port of this machine."""
    await asyncio.get_running_loop().create_connection(lambda: client, "127.0.0.1", port)
    return client


@contextmanager
def case_folder() -> Iterator[Path]:
    """For the files of a broker; removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        yield Path(name)
