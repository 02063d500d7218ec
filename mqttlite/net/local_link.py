"""One end of a connection whose client is this program: frames wait in memory until the program asks for them.

To the core a local link is a 5.0 client like any other: it sends CONNECT, SUBSCRIBE and acknowledgements, it has a
window and an outbox, and it blocks when the program is slow. Invariant: a frame is decoded when the program asks for
it, so that a burst costs the loop nothing at once.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from mqttlite.core.authentication import NO_GRANTS, Grants
from mqttlite.core.broker import Broker
from mqttlite.core.capabilities import EVERYTHING, Capabilities
from mqttlite.core.connection import CONNECTED, Connection, Peer
from mqttlite.core.quotas import Quotas
from mqttlite.core.reasons import HoldReason
from mqttlite.core.requested_filters import PROPERTY as FILTER_PROPERTY
from mqttlite.net.address_key import address_key
from mqttlite.net.link import WRITE_BUFFER_BYTES, LinkDriver, LinkPort
from mqttlite.wire.constants import V5
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import encode
from mqttlite.wire.framer import packet_size
from mqttlite.wire.packets import Connect, Disconnect, Packet, Suback, Subscribe, SubscriptionRequest
from mqttlite.wire.properties import NONE, Properties

_NO_FRAMES: Final[deque[bytes]] = deque()
"""Nothing is ever added to it. It stands for the frames of a link that has none: a deque takes 600 bytes, and there may
be very many links that wait."""

LOCAL: Final = "local"
"""The transport of local links in telemetry, metrics and the log, and the name of their listener."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalClient:
    """Somebody for whom the program connects, such as a caller over HTTP: the rules, limits and quotas hold for it as
    for a client that comes in by a socket."""

    client_id: str = ""
    """Empty: the broker assigns one."""
    username: str | None = None
    """The verified name of the user; None where there is none."""
    grants: Grants = NO_GRANTS
    clean_start: bool = True
    session_expiry_s: int = 0
    """How long its session outlives the connection."""
    quotas: Quotas | None = None
    mount_point: bytes = b""
    is_told: bool = False
    """Whether its messages say which they are."""
    sees_publishers: bool = False
    """Whether they always say from whom."""


_TOLD: Final = Capabilities(tell_message=True)


@final
class LocalLink(LinkPort):
    """`on_readable` is called when there is something to read, or nothing more will come. It must not raise.

    `listener`, `transport` and `address` are what logs, metrics and telemetry call it.
    """

    __slots__ = ("_at", "_frames", "_on_readable", "_unread_bytes")

    # Inherited; declared again because type checkers differ in what they infer from the assignments below.
    connection: Connection
    gone: bool

    def __init__(
        self,
        broker: Broker,
        loop_driver: LinkDriver,
        on_readable: Callable[[], None],
        listener: str = LOCAL,
        transport: str = LOCAL,
        address: str = LOCAL,
    ) -> None:
        super().__init__(listener, transport, broker, loop_driver)
        self.address = address
        self._on_readable: Final = on_readable
        self._frames = _NO_FRAMES
        self._at = 0
        """Where the next packet begins in the first of the frames."""
        self._unread_bytes = 0

    def connect(self, receive_maximum: int, client: LocalClient | None = None) -> None:
        """Open the connection: of a client, or of the program itself, which no rules restrict.

        Raises `ConnectionRefusedError` if the broker does not accept it.
        """
        if client is None:
            peer = Peer(is_trusted=True)
        else:
            peer = Peer(
                client.username,
                capabilities=_TOLD if client.is_told else EVERYTHING,
                quotas=client.quotas,
                mount_point=client.mount_point,
                sees_publishers=client.sees_publishers,
            )
        connection = self.connection = self._broker.open(peer, self._loop.time())
        if peer.quotas is not None and peer.quotas.wants_address:
            connection.address = address_key(self.address)
        connection.hold_reasons = HoldReason.LOCAL
        self._loop_driver.links[connection.number] = self
        properties = Properties(receive_maximum=receive_maximum)
        if client is None:
            packet = Connect("", V5, properties=properties)
        else:
            connection.grants = client.grants
            properties.session_expiry_interval = client.session_expiry_s
            packet = Connect(client.client_id, V5, client.clean_start, properties=properties)
        self._send_at_once(packet)
        if connection.state != CONNECTED:
            raise ConnectionRefusedError(connection.close_detail)

    def subscribe(self, topic_filter: bytes, qos: int, where: str | None = None) -> Suback:
        """Subscribe as the first request of the connection, to messages that pass a filter; its answer.

        The answer is taken from the outbox, where it waits for the loop driver: the session is not durable, so it
        waits for no commit.
        """
        properties = NONE if where is None else Properties(user_properties=[(FILTER_PROPERTY, where)])
        self._send_at_once(Subscribe(1, (SubscriptionRequest(topic_filter, qos),), properties))
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
            if not self._frames:
                self._frames = _NO_FRAMES
        self._unread_bytes -= end - start
        if self._paused and self._unread_bytes <= WRITE_BUFFER_BYTES // 4:
            self.resume_writing()
        return packet

    def write(self, data: bytes) -> None:
        if data and not self.gone:
            if self._frames is _NO_FRAMES:
                self._frames = deque()
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
        self._frames = _NO_FRAMES
        self._unread_bytes = 0
        self.send(Disconnect())

    def abort(self) -> None:
        self._broker.close(self.connection, self._loop.time(), "the program ended it")
        self._loop_driver.wake()

    @property
    def unsent_bytes(self) -> int:
        """How many bytes the program has not read."""
        return self._unread_bytes

    def _pause_reading(self) -> None:
        """There is nothing to read: the program hands packets over itself."""

    def _resume_reading(self) -> None:
        """The same."""
