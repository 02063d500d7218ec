"""One end of a connection whose client is this program: frames wait in memory until the program asks for them.

To the core a local link is a 5.0 client like any other: it sends CONNECT, SUBSCRIBE and acknowledgements, it has a
window and an outbox, and it blocks when the program is slow. Invariant: a frame is decoded when the program asks for
it, so that a burst costs the loop nothing at once.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, final

from mqttlite.core.broker import Broker
from mqttlite.core.connection import CONNECTED, Connection, Peer
from mqttlite.core.reasons import HoldReason
from mqttlite.net.link import WRITE_BUFFER_BYTES, LinkDriver, LinkPort
from mqttlite.wire.constants import V5
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import encode
from mqttlite.wire.framer import packet_size
from mqttlite.wire.packets import Connect, Disconnect, Packet, Suback, Subscribe, SubscriptionRequest
from mqttlite.wire.properties import Properties

LOCAL: Final = "local"
"""The transport of local links in telemetry, metrics and the log, and the name of their listener."""


@final
class LocalLink(LinkPort):
    """`on_readable` is called when there is something to read, or nothing more will come. It must not raise."""

    __slots__ = ("_at", "_frames", "_on_readable", "_unread_bytes")

    # Inherited; declared again because type checkers differ in what they infer from the assignments below.
    connection: Connection
    gone: bool

    def __init__(self, broker: Broker, loop_driver: LinkDriver, on_readable: Callable[[], None]) -> None:
        super().__init__(LOCAL, LOCAL, broker, loop_driver)
        self.address = LOCAL
        self._on_readable: Final = on_readable
        self._frames: Final[deque[bytes]] = deque()
        self._at = 0
        """Where the next packet begins in the first of the frames."""
        self._unread_bytes = 0

    def connect(self, receive_maximum: int) -> None:
        """Open the connection. Raises `ConnectionRefusedError` if the broker does not accept the client."""
        connection = self.connection = self._broker.open(Peer(is_trusted=True), self._loop.time())
        connection.hold_reasons = HoldReason.LOCAL
        self._loop_driver.links[connection.number] = self
        self._send_at_once(Connect("", V5, properties=Properties(receive_maximum=receive_maximum)))
        if connection.state != CONNECTED:
            raise ConnectionRefusedError(connection.close_detail)

    def subscribe(self, topic_filter: bytes, qos: int) -> Suback:
        """Subscribe as the first request of the connection; its answer.

        The answer is taken from the outbox, where it waits for the loop driver: the session is not durable, so it
        waits for no commit.
        """
        self._send_at_once(Subscribe(1, (SubscriptionRequest(topic_filter, qos),)))
        self.write(self.connection.outbox.take())
        self.receive()  # CONNACK
        answer = self.receive()
        assert isinstance(answer, Suback), "the second packet that the broker sends"
        return answer

    def _send_at_once(self, packet: Packet) -> None:
        """Have a packet handled now, even if this iteration has used up its work budget."""
        effects = self._broker.effects
        work, pending_bytes = effects.work, effects.pending_bytes
        effects.work = effects.pending_bytes = 0
        self.send(packet)
        effects.work += work
        effects.pending_bytes += pending_bytes

    def send(self, packet: Packet) -> None:
        """Hand a packet of the program to the core. Harmless when the connection ended."""
        self._broker.feed(self.connection, encode(packet, V5), self._loop.time())
        self._loop_driver.wake()

    def receive(self) -> Packet | None:
        """The next packet for the program; None if there is none now, and after the end for good."""
        if not self._frames:
            return None
        frames = self._frames[0]
        start = self._at
        end = start + packet_size(frames, start)
        body = start + 2
        while frames[body - 1] > 0x7F:
            body += 1
        packet = decode(frames[start], frames[body:end], V5)
        if end < len(frames):
            self._at = end
        else:
            self._frames.popleft()
            self._at = 0
        self._unread_bytes -= end - start
        if self._paused and self._unread_bytes <= WRITE_BUFFER_BYTES // 4:
            self.resume_writing()
        return packet

    def write(self, data: bytes) -> None:
        if data and not self.gone:
            self._frames.append(data)
            self._unread_bytes += len(data)
            if self._unread_bytes > WRITE_BUFFER_BYTES and not self._paused:
                self.pause_writing()
            self._on_readable()

    def finish(self) -> None:
        """The connection ended. The program may still read what it was sent."""
        self.gone = True
        self._on_readable()

    def leave(self) -> None:
        """The program wants no more: end the connection, and forget what it did not read."""
        self.gone = True
        self._frames.clear()
        self._unread_bytes = 0
        self.send(Disconnect())

    def abort(self) -> None:
        self._broker.close(self.connection, self._loop.time(), "the program ended it")
        self._loop_driver.wake()

    @property
    def unsent_bytes(self) -> int:
        """What the program has not read."""
        return self._unread_bytes

    def _pause_reading(self) -> None:
        """There is nothing to read: the program hands packets over itself."""

    def _resume_reading(self) -> None:
        """The same."""
