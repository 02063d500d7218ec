"""One network connection: bytes in and out, keep-alive, back-pressure both ways.

What packets mean lives in `session`; how a connection comes to be in `dial`. Invariants: frames leave in the order of
`write`, with one system call per loop pass; while the program's inbox is full, nothing is read.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, Protocol, cast, final

from mqttlite.client.errors import ConnectionLost, DisconnectedByServer, MqttError
from mqttlite.client.keep_alive import Due, KeepAlive
from mqttlite.wire.constants import PACKET_NAMES, PINGRESP, PUBLISH, V5
from mqttlite.wire.decode import decode
from mqttlite.wire.encode import PINGREQ_FRAME, encode
from mqttlite.wire.errors import PeerError, ProtocolError
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import Auth, Disconnect, Packet

FLUSH_BYTES: Final = 65_536
"""So much is written at once, and not at the end of the loop pass: a publisher that never waits must not hoard."""

MAX_UNREAD_ANSWERS_BYTES: Final = 1_048_576
"""A server that sends but does not read is not read either while this many bytes of our acknowledgements wait for it.

Publishers wait long before, at the transport's high-water mark, so that they cannot cause this.
"""


class Receiver(Protocol):
    """The receiver of the packets. While it is `full`, no PUBLISH is handed over."""

    @property
    def full(self) -> bool: ...
    def on_packet(self, packet: Packet, /) -> None: ...


@final
class Connection:
    """From the socket's birth to `closed`, whose result is the reason. It has the methods of an `asyncio.Protocol` but
    does not inherit from it, because a compiled class cannot inherit from an interpreted one.

    The first packet is the result of `connack`; what follows is held until `expect` or `start`.
    """

    def __init__(self, where: str, version: int, max_packet_size: int, trace: Callable[[str], None] | None) -> None:
        self.where: Final = where
        self._version: Final = version
        self._framer: Final = Framer(max_packet_size)
        self._trace: Final = trace
        self._loop: Final = asyncio.get_running_loop()
        self.connack: asyncio.Future[Packet] = self._loop.create_future()
        self._auth: asyncio.Future[Auth] | None = None
        self.closed: Final[asyncio.Future[MqttError]] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._on_writable: Callable[[], None] | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._flush_is_due = False
        self._held: list[tuple[int, bytes]] = []
        self._reading_paused = False
        self.writable: bool = True
        self._reason: MqttError | None = None
        self._keep_alive: KeepAlive | None = None
        self._timer: asyncio.TimerHandle | None = None

    def expect(self) -> asyncio.Future[Packet]:
        """The packet after the one that was the result of `connack`, which it is from now on."""
        self.connack = self._loop.create_future()
        if self.closed.done():
            self.connack.set_exception(self.closed.result())
        else:
            self.take_held()
        return self.connack

    async def ask(self, frame: bytes) -> Auth:
        """Send an AUTH and wait for the server's. Raises why the connection ended if it does."""
        if self.closed.done():
            raise self.closed.result()
        self._auth = self._loop.create_future()
        try:
            self.write(frame)
            return await self._auth
        finally:
            self._auth = None

    def start(
        self, receiver: Receiver, on_writable: Callable[[], None], keep_alive_s: float, response_timeout_s: float
    ) -> None:
        """Hand packets to `receiver` from now on, and ping the server when it is quiet."""
        self._receiver, self._on_writable = receiver, on_writable
        if keep_alive_s:
            now = self._loop.time()
            self._keep_alive = KeepAlive(keep_alive_s, response_timeout_s, now)
            self._timer = self._loop.call_at(now + keep_alive_s, self._look_at_the_clock)
        self.take_held()

    @property
    def holding(self) -> bool:
        """Whether packets wait here until the receiver has room."""
        return bool(self._held)

    def write(self, frame: bytes) -> bool:
        """Send a frame with the others of this loop pass; True when so much had gathered that it was sent now."""
        if self._trace is not None:
            self._trace(f"sending {_describe(frame)}")
        self._out.append(frame)
        self._out_bytes += len(frame)
        if self._out_bytes >= FLUSH_BYTES:
            self.flush()
            return True
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self.flush)
        return False

    def flush(self) -> None:
        """Hand what was written to the transport."""
        self._flush_is_due = False
        if not self._out:
            return
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out = []
        self._out_bytes = 0
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            if self._keep_alive is not None:
                self._keep_alive.sent_at = self._loop.time()

    def take_held(self) -> None:
        """The receiver may have room again: hand over what waited for it, then read on."""
        held, self._held = self._held, []
        self._take(iter(held))
        self._read_if_possible()

    def close(self, reason: MqttError, packet: Disconnect | None = None) -> None:
        """End the connection for that reason; a 5.0 server hears of it through `packet`."""
        if self._reason is None:
            self._reason = reason
        if self._transport is None or self._transport.is_closing():
            return
        if packet is not None:
            self.write(encode(packet, self._version))
        self.flush()
        self._transport.close()

    def abort(self, reason: MqttError) -> None:
        """End the connection without waiting for anybody."""
        if self._reason is None:
            self._reason = reason
        if self._transport is not None:
            self._transport.abort()

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not subclasses, but do the same

    def data_received(self, data: bytes) -> None:
        if self._reason is not None:
            return
        if self._keep_alive is not None:
            self._keep_alive.received_at = self._loop.time()
        self._take(self._framer.split(data))
        self.flush()
        if not self.writable and self._unsent_bytes() > MAX_UNREAD_ANSWERS_BYTES:
            self._pause_reading()

    def eof_received(self) -> None:
        """The transport closes then."""

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        if self._on_writable is not None:
            self._on_writable()
        self._read_if_possible()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._reason is None:
            how = f" ({exc})" if exc is not None else ": the other side closed it"
            self._reason = ConnectionLost(f"The connection to {self.where} was lost{how}.")
        self.writable = False
        self._transport = None
        self._held = []
        if not self.connack.done():
            self.connack.set_exception(exc if exc is not None else self._reason)
        if self._auth is not None and not self._auth.done():
            self._auth.set_exception(self._reason)
        self.closed.set_result(self._reason)

    # packets

    def _take(self, packets: Iterator[tuple[int, bytes]]) -> None:
        """Hand packets over until the receiver is full; hold the others."""
        try:
            for first, body in packets:
                if self._held or self._must_hold(first):
                    self._held.append((first, body))
                else:
                    self._on_packet(first, body)
        except PeerError as error:
            self._on_peer_error(error)
        if self._held:
            self._pause_reading()

    def _must_hold(self, first: int) -> bool:
        if self._receiver is None:
            return self.connack.done()
        return first >> 4 == PUBLISH and self._receiver.full

    def _on_packet(self, first: int, body: bytes) -> None:
        packet = decode(first, body, self._version)
        if self._trace is not None:
            self._trace(f"received {PACKET_NAMES[first >> 4]} ({len(body)} bytes)")
        if isinstance(packet, Disconnect) and self._version == V5:
            self.close(DisconnectedByServer(self.where, packet.reason_code, packet.properties))
        elif self._receiver is None:
            self.connack.set_result(packet)
        elif isinstance(packet, Auth):
            if self._auth is None or self._auth.done():
                raise ProtocolError("AUTH that answers nothing (§4.12)")
            self._auth.set_result(packet)
        elif first >> 4 != PINGRESP and self._reason is None:
            self._receiver.on_packet(packet)

    def _on_peer_error(self, error: PeerError) -> None:
        reason = ConnectionLost(f"{self.where} broke the rules of MQTT and was disconnected: {error}.")
        self.close(reason, Disconnect(error.reason_code) if self._version == V5 else None)

    # reading and time

    def _unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _pause_reading(self) -> None:
        if not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()

    def _read_if_possible(self) -> None:
        if self._reading_paused and not self._held and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()

    def _look_at_the_clock(self) -> None:
        assert self._keep_alive is not None, "the timer runs for the keep-alive"
        due, at = self._keep_alive.run(self._loop.time(), deaf=self._reading_paused)
        if due is Due.LOST:
            self.abort(ConnectionLost(f"The connection to {self.where} was lost: no answer to PINGREQ."))
            return
        if due is Due.PING:
            self.write(PINGREQ_FRAME)
        self._timer = self._loop.call_at(at, self._look_at_the_clock)


def _describe(frame: bytes) -> str:
    return f"{PACKET_NAMES[frame[0] >> 4]} ({len(frame)} bytes)"
