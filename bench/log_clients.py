"""The clients of `python -m bench log`: they publish to streams and read them, and cut bytes and count.

Invariant: all messages of a publisher have one size, so that many are written, and counted, at once.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from bench.counting import Client, NotMeasured
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Connect, Publish, Subscribe, SubscriptionRequest
from mqttlite.wire.properties import Properties

PLACE: Final = b"stream-partition"
"""Is in each message that a 5.0 client gets of a stream, once."""

STAMP: Final = b"at="
"""Begins the payload of a message that is timed; sixteen digits of nanoseconds follow."""


class NewReader(Client):
    """Reads a stream over 5.0 at QoS 0, and counts the messages by their places."""

    def __init__(self, name: str, topic_filter: bytes, on_count: Callable[[int], None]) -> None:
        super().__init__(
            encode(Connect(name, V5, keep_alive=0), V5)
            + encode(Subscribe(1, (SubscriptionRequest(topic_filter, 0),)), V5)
        )
        self._on_count: Final = on_count

    def data_received(self, data: bytes) -> None:
        data = self.read + data
        count = data.count(PLACE)
        self.read = data[-len(PLACE) + 1 :]
        if count:
            self._on_count(count)


class Member(Client):
    """A member of a group over 5.0 that takes one message at a time: each acknowledgement moves a position."""

    def __init__(self, name: str, group: str, stream: str, on_count: Callable[[int], None]) -> None:
        one = Properties(receive_maximum=1)
        topic_filter = f"$share/{group}/$stream/{stream}@earliest".encode()
        super().__init__(
            encode(Connect(name, V5, keep_alive=0, properties=one), V5)
            + encode(Subscribe(1, (SubscriptionRequest(topic_filter, 1),)), V5)
        )
        self._on_count: Final = on_count

    def data_received(self, data: bytes) -> None:
        self.read += data
        while len(self.read) > 1:
            length = shift = 0
            at = 1
            while True:
                if at == len(self.read):
                    return
                digit = self.read[at]
                length |= (digit & 127) << shift
                shift += 7
                at += 1
                if digit < 128:
                    break
            if len(self.read) < at + length:
                return
            if self.read[0] >> 4 == 3:
                id_at = at + 2 + int.from_bytes(self.read[at : at + 2], "big")
                self.transport.write(b"\x40\x02" + self.read[id_at : id_at + 2])
                self._on_count(1)
            self.read = self.read[at + length :]


class Paced(Client):
    """Publishes `rate` messages a second at QoS 1, one after the other, and notes how long each PUBACK takes. With
    `stamps` a message says when it was sent."""

    def __init__(self, name: str, topics: Sequence[bytes], size: int, rate: float, *, stamps: bool = False) -> None:
        super().__init__(encode(Connect(name, V311, keep_alive=0), V311))
        self._topics: Final = topics
        self._size: Final = size
        self._rate: Final = rate
        self._stamps: Final = stamps
        self._sent: Final[dict[int, float]] = {}
        self._is_connected = False
        self.took: list[float] = []
        """Seconds until the PUBACK."""
        self.behind_s: float = 0.0
        """How late the latest message was sent."""
        self._task: asyncio.Task[None] | None = None

    async def _run(self) -> None:
        number, began = 0, time.monotonic()
        while True:
            due = began + number / self._rate
            now = time.monotonic()
            if due > now:
                await asyncio.sleep(due - now)
                continue
            self.behind_s = now - due
            if len(self._sent) >= 60_000:
                raise NotMeasured("the broker acknowledges nothing")
            packet_id = 1 + number % 65_535
            stamp = STAMP + b"%016d" % time.monotonic_ns() if self._stamps else b""
            payload = stamp.ljust(self._size, b".")
            topic = self._topics[number % len(self._topics)]
            self._sent[packet_id] = time.monotonic()
            self.transport.write(encode(Publish(topic, payload, qos=1, packet_id=packet_id), V311))
            number += 1
            if number % 16 == 0:
                await asyncio.sleep(0)

    def data_received(self, data: bytes) -> None:
        data = self.read + data
        if not self._is_connected:
            self._is_connected = True
            self._task = asyncio.get_running_loop().create_task(self._run())
            data = data[4:]
        whole = len(data) // 4 * 4
        self.read = data[whole:]
        now = time.monotonic()
        for at in range(0, whole, 4):
            self.took.append(now - self._sent.pop(int.from_bytes(data[at + 2 : at + 4], "big")))

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self.close()


class Timed(Client):
    """Reads messages with stamps, and notes how old each is."""

    def __init__(self, name: str, topic_filter: bytes) -> None:
        super().__init__(
            encode(Connect(name, V311, keep_alive=0), V311)
            + encode(Subscribe(1, (SubscriptionRequest(topic_filter, 0),)), V311)
        )
        self.took: list[float] = []

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        data = self.read + data
        end = at = 0
        while (at := data.find(STAMP, end)) >= 0 and len(data) >= at + len(STAMP) + 16:
            end = at + len(STAMP) + 16
            self.took.append((now - int(data[at + len(STAMP) : end])) / 1e9)
        self.read = data[end:][-(len(STAMP) + 16) :]


class First(Client):
    """Notes when the first message of a subscription came."""

    def __init__(self, name: str, topic_filter: bytes) -> None:
        super().__init__(encode(Connect(name, V311, keep_alive=0), V311))
        self._subscribe: Final = encode(Subscribe(1, (SubscriptionRequest(topic_filter, 1),)), V311)
        self._sent_at = 0.0
        self.took: Final[asyncio.Future[float]] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        if not self._sent_at:
            self._sent_at = time.perf_counter()
            self.transport.write(self._subscribe)
            return
        self.read += data
        if len(self.read) > 5 and not self.took.done():  # behind the SUBACK
            self.took.set_result(time.perf_counter() - self._sent_at)
