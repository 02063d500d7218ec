"""Our end of a connection whose client is this program: frames wait in memory until the program asks for them.

For the core a local link is an ordinary 5.0 client: it sends CONNECT, SUBSCRIBE and acknowledgements, has a window and
an outbox, and blocks when the program is slow. Invariant: a frame is decoded only when the program asks for it, so that
a burst does not block the loop.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from mqttlite.core.authentication import NO_GRANTS, Grants
from mqttlite.core.broker import Broker
from mqttlite.core.connect.capabilities import EVERYTHING, Capabilities
from mqttlite.core.connect.connection import CONNECTED, Connection, Peer
from mqttlite.core.identity import Identity
from mqttlite.core.load.quotas import Quotas
from mqttlite.core.reasons import HoldReason
from mqttlite.net.address_key import address_key
from mqttlite.net.link import WRITE_BUFFER_BYTES, LinkDriver, LinkPort
from mqttlite.wire.constants import V5
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import encode
from mqttlite.wire.framer import packet_size
from mqttlite.wire.packets import Connect, Disconnect, Packet
from mqttlite.wire.properties import Properties

_NO_FRAMES: Final[deque[bytes]] = deque()
"""Never added to. Shared by links without frames, because a deque takes 600 bytes and there may be very many idle
links."""

LOCAL: Final = "local"
"""The transport of local links in telemetry, metrics and the log, and the name of their listener."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalClient:
    """A client on whose behalf the program connects, for example an HTTP caller. Rules, limits and quotas apply to it
    as to a client with a socket, unless it `is_trusted`."""

    client_id: str = ""
    """The client identifier. Empty: the broker assigns one."""
    username: str | None = None
    """The verified user name; None for an anonymous client."""
    grants: Grants = NO_GRANTS
    clean_start: bool = True
    session_expiry_s: int = 0
    """How long its session outlives the connection."""
    is_trusted: bool = False
    """Whether it is the program itself, which no rules restrict. No Local then leaves out what any part of the program
    publishes by `Broker.publish`, and no other client may take its session over."""
    hears_program: bool = False
    """Whether No Local lets through what other parts of the program publish."""
    is_relay: bool = False
    """Whether what it publishes was published at another broker: it then reaches no other relay, no shared subscription
    and nothing that keeps messages, for the other broker has seen to that."""
    quotas: Quotas | None = None
    mount_point: bytes = b""
    is_told: bool = False
    """Whether its messages carry their identity in user properties."""
    sees_publishers: bool = False
    """Whether they always name the publisher."""


_TOLD: Final = Capabilities(tell_message=True)


@final
class LocalLink(LinkPort):
    """`on_readable` is called when there is a packet to read, and at the end. It must not raise.

    `listener`, `transport` and `address` name it in logs, metrics and telemetry.
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
        """The offset of the next packet in the first frame."""
        self._unread_bytes = 0

    def connect(self, client: LocalClient, receive_maximum: int, maximum_packet_size: int | None = None) -> None:
        """Open the connection of a client. Raises `ConnectionRefusedError` if the broker does not accept it, and
        `ValueError` for a client identifier that is no MQTT string."""
        properties = Properties(
            receive_maximum=receive_maximum,
            session_expiry_interval=client.session_expiry_s,
            maximum_packet_size=maximum_packet_size,
        )
        frame = encode(Connect(client.client_id, V5, client.clean_start, properties=properties), V5)
        peer = Peer(
            Identity(
                *(client.username, client.mount_point, client.is_trusted, client.hears_program),
                is_relay=client.is_relay,
            ),
            capabilities=_TOLD if client.is_told else EVERYTHING,
            is_inside=True,
            quotas=client.quotas,
            sees_publishers=client.sees_publishers,
        )
        connection = self.connection = self._broker.open(peer, self._loop.time())
        connection.address = self.address
        if peer.quotas is not None and peer.quotas.wants_address:
            connection.quota_address = address_key(self.address)
        connection.hold_reasons = HoldReason.LOCAL
        self._loop_driver.links[connection.number] = self
        connection.grants = client.grants
        self._feed_at_once(frame)
        if connection.state != CONNECTED:
            raise ConnectionRefusedError(connection.close_detail)

    def unwritten(self, packet_type: int) -> Packet:
        """The answer of that type that the core has just given. It stays in the outbox, and comes again in its turn."""
        for frame in self.connection.outbox.chunks:
            if frame[0] >> 4 == packet_type:
                return packet_at(frame, 0, len(frame))
        raise LookupError(f"no answer of type {packet_type} in {len(self.connection.outbox.chunks)} pieces")

    def send_at_once(self, packet: Packet) -> None:
        """Make the core handle a packet now, even if this iteration has used up its budget."""
        self._feed_at_once(encode(packet, V5))

    def _feed_at_once(self, frame: bytes) -> None:
        effects = self._broker.effects
        work, pending_bytes = effects.work, effects.pending_bytes
        effects.work = effects.pending_bytes = 0
        self.feed(frame)
        effects.work += work
        effects.pending_bytes += pending_bytes

    def send(self, packet: Packet) -> None:
        """Pass a packet of the program to the core. Harmless after the end of the connection."""
        self.feed(encode(packet, V5))

    def take(self) -> bytes:
        """All packets that the program has not read, encoded."""
        frames = b"".join(self._frames)[self._at :]
        self._frames = _NO_FRAMES
        self._at = self._unread_bytes = 0
        if self._paused:
            self.resume_writing()
        return frames

    def feed(self, packets: bytes) -> None:
        """Pass encoded packets of the program to the core. Harmless after the end of the connection."""
        self._broker.feed(self.connection, packets, self._loop.time())
        self._loop_driver.wake()

    def receive(self) -> Packet | None:
        """The next packet for the program; None if there is none now. After the end it stays None."""
        if not self._frames:
            return None
        frames = self._frames[0]
        start = self._at
        end = start + packet_size(frames, start)
        packet = packet_at(frames, start, end)
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
        """The connection ended. The program may still read the remaining packets."""
        self.gone = True
        self._on_readable()

    def leave(self, session_expiry_s: int | None = None) -> None:
        """The program ends the connection. Unread packets are discarded, and come again if the session is kept: as long
        as at first, or for another time; with 0 it ends. So is a packet of which `feed` was given only the start."""
        self.gone = True
        self._frames = _NO_FRAMES
        self._unread_bytes = 0
        self.connection.framer.drop_unfinished()  # or DISCONNECT would be its end
        self.send_at_once(Disconnect(properties=Properties(session_expiry_interval=session_expiry_s)))

    def abort(self) -> None:
        self._broker.close(self.connection, self._loop.time(), "the program ended it")
        self._loop_driver.wake()

    @property
    def unsent_bytes(self) -> int:
        """How many bytes the program has not read."""
        return self._unread_bytes

    def _pause_reading(self) -> None:
        """Does nothing: the program passes packets itself."""

    def _resume_reading(self) -> None:
        """Does nothing, too."""


def packet_at(frames: bytes, start: int, end: int) -> Packet:
    """Decode the packet between two offsets."""
    body = start + 2
    while frames[body - 1] > 0x7F:
        body += 1
    return decode(frames[start], frames[body:end], V5)
