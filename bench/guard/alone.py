"""Messages that come alone, over sockets: the whole path from the event loop's wake-up to the last write and back.

Publisher and readers are the other ends of the sockets, in the same thread. What they do is not counted, but for the
timers that wake them, so the same wake-ups come in the same order every time.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import uvloop

from mqttlite.core.broker import Broker
from mqttlite.core.connect.connection import Connection, Peer
from mqttlite.core.limits import Limits
from mqttlite.net.link import Link
from mqttlite.net.loop_driver import LoopDriver
from mqttlite.store.memory import MemoryStore
from mqttlite.wire.constants import PUBACK, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import Ack, Connect, Packet, Publish, Subscribe, SubscriptionRequest

MESSAGES: Final = 20
TOPICS: Final = 5
PAUSE_S: Final = 0.002
"""Between two things that clients do: under valgrind the broker needs half of it."""
LIMIT: Final = 1_000
"""How often to look for what the broker should have sent."""


class Mark(Protocol):
    """The library of `mark.c`."""

    def counting_pauses(self) -> object: ...

    def counting_goes_on(self) -> object: ...


class Steps:
    """What the other ends of the sockets do, without being counted."""

    def __init__(self, mark: Mark, loop: asyncio.AbstractEventLoop) -> None:
        self._mark: Final = mark
        self._loop: Final = loop

    def later(self, step: Callable[[], None]) -> None:
        """Take a step after the pause."""
        self._loop.call_later(PAUSE_S, self._uncounted, step)

    def _uncounted(self, step: Callable[[], None]) -> None:
        self._mark.counting_pauses()
        try:
            step()
        finally:
            self._mark.counting_goes_on()


def driver_of(broker: Broker, store: MemoryStore) -> LoopDriver:
    """What drives a broker on the running loop."""
    return LoopDriver(
        broker,
        store,
        on_connected=lambda _: None,
        on_closed=lambda _: None,
        on_question=lambda *_: None,
        on_memory_short=lambda *_: None,
    )


class Alone:
    """One broker on one loop, a publisher and readers."""

    def __init__(self, mark: Mark, filters: Sequence[bytes], *, retain: bool = False) -> None:
        self._retain: Final = retain
        self._loop: Final = uvloop.new_event_loop()
        self._later: Final = Steps(mark, self._loop).later
        self._loop.run_until_complete(self._begin())
        self._readers: Final = [self._client(f"reader-{at}", each) for at, each in enumerate(filters)]
        self._publisher: Final = self._client("publisher")
        self._copies: Final = len({each for each in filters if each.startswith(b"$share/")}) + sum(
            not each.startswith(b"$share/") for each in filters
        )
        self._left = 0
        self._number = 0

    def work(self) -> None:
        """Publish `MESSAGES` messages; the next one comes when the last one is acknowledged by all."""
        self._left = MESSAGES
        self._later(self._publish)
        self._loop.run_forever()

    def close(self) -> None:
        """Close all sockets and the loop."""
        for client in (self._publisher, *self._readers):
            client.close()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        while self._driver.links:
            await asyncio.sleep(PAUSE_S)
        await self._driver.stop()

    async def _begin(self) -> None:
        self._broker = Broker(Limits())
        self._driver = driver_of(self._broker, MemoryStore())
        self._server = await asyncio.get_running_loop().create_server(self._link, "127.0.0.1", 0)
        self._address: tuple[str, int] = self._server.sockets[0].getsockname()

    def _link(self) -> Any:  # it has the methods of a protocol
        return Link("guard", "tcp", self._broker, self._driver, self._open, lambda _: None)

    def _open(self, _link: Link) -> Connection:
        return self._broker.open(Peer(), self._loop.time())

    def _client(self, client_id: str, topic_filter: bytes = b"") -> socket.socket:
        client = socket.create_connection(self._address)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setblocking(False)
        packets: list[Packet] = [Connect(client_id, V311, True, 0)]
        if topic_filter:
            packets.append(Subscribe(1, (SubscriptionRequest(topic_filter, 1),)))
        client.send(b"".join([encode(each, V311) for each in packets]))
        expected = 9 if topic_filter else 4
        answer = b""
        while len(answer) < expected:
            self._loop.run_until_complete(asyncio.sleep(PAUSE_S))
            answer += client.recv(expected)
        return client

    # ------------------------------------------------------------------ what is not counted

    def _publish(self) -> None:
        if self._left == 0:
            self._loop.stop()
            return
        self._left -= 1
        self._number += 1
        topic = b"site/7/device/%d/temp" % (self._number % TOPICS)
        message = Publish(topic, b"0123456789abcdef", 1, retain=self._retain, packet_id=self._number)
        self._publisher.send(encode(message, V311))
        self._looks = 0
        self._received: list[tuple[socket.socket, int]] = []
        self._is_acknowledged = False
        self._later(self._receive)

    def _receive(self) -> None:
        """Take what has arrived, until all copies and the PUBACK have."""
        for reader in self._readers:
            self._received += [(reader, each) for each in _identifiers(read_now(reader))]
        self._is_acknowledged |= read_now(self._publisher) == encode(Ack(PUBACK, self._number), V311)
        if len(self._received) == self._copies and self._is_acknowledged:
            self._later(self._acknowledge)
            return
        self._looks += 1
        assert self._looks < LIMIT, f"{len(self._received)} of {self._copies} copies came"
        self._later(self._receive)

    def _acknowledge(self) -> None:
        """Let the next reader acknowledge: each one's PUBACK wakes the broker up."""
        if self._received:
            reader, packet_id = self._received.pop()
            reader.send(encode(Ack(PUBACK, packet_id), V311))
            self._later(self._acknowledge)
        else:
            self._publish()


def read_now(client: socket.socket) -> bytes:
    """What a socket has, which may be nothing."""
    try:
        return client.recv(65_536)
    except BlockingIOError:
        return b""


def _identifiers(data: bytes) -> list[int]:
    """The packet identifiers of the PUBLISH packets in it."""
    found = []
    for _first, body in Framer(65_536).split(data):
        at = 2 + int.from_bytes(body[:2], "big")
        found.append(int.from_bytes(body[at : at + 2], "big"))
    return found
