"""One end of a connection: a `Link` moves bytes between a socket and the core. It knows nothing about MQTT.

Invariant: a link hands its `connection` back to the core with every input, and tells the core exactly once that the
socket is gone. This module and `loop_driver` are compiled together with the core (docs/design/008).
"""

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, cast, final

from mqttlite.core.broker import Broker
from mqttlite.core.connection import AWAITING_CONNECT, Connection
from mqttlite.core.reasons import HoldReason

ITERATION_BYTES: Final = 1_048_576
"""When about that many bytes wait to be written the link writes them at once and not at the end of the iteration: this
bounds what piles up in one iteration."""

MAX_DEFERRED_BYTES: Final = 1_048_576
"""How many bytes may arrive while packets wait to be handled, before the link is not read any more. It is not 0: the
last packets of a client that leaves would be lost, in the kernel if the client leaves without reading our answers, or
in a paused layer below us when that ends."""

LONG_BYTES: Final = 131_072
"""The same as `ITERATION_BYTES` where that much waits for each receiver: waiting longer would save few writes, and the
bytes would not be in the processor's cache any more when they are written."""

UNWRITTEN_BYTES: Final = 8 * 1_048_576
"""How many bytes may stay unwritten after a link's bytes were handled, if those made up more than `ITERATION_BYTES` of
them. With more, the link is not read until the receivers have their bytes: some milliseconds of writes."""

WRITE_BUFFER_BYTES: Final = 262_144
"""How many bytes the transport may hold before the link counts as blocked; it counts as free again at a quarter of
them. With small outboxes it is a quarter of `max_outbox_bytes`, because the client has both."""

LINGER_S: Final = 5.0
"""How long a closed link may take to send its last bytes to a client that does not read them, and to see it leave."""

DISCARD_S: Final = 0.02
"""How long a closed link is not read after each chunk that it discards: a client that goes on sending at full speed
would keep the loop busy until `LINGER_S` is over."""


class LinkDriver(ABC):
    """The part of the `LoopDriver` that a link uses."""

    def __init__(self) -> None:
        self.links: Final[dict[int, LinkPort]] = {}
        """All links by the number of their connection. Each link enters itself."""
        self.is_stalled: bool = False
        """Whether a commit takes so long that a link which makes more changes must wait for it."""

    @abstractmethod
    def hold_for_commit(self, link: "LinkPort") -> None:
        """Hold a link until that commit is done: the client makes changes which wait in memory."""

    @abstractmethod
    def hold_for_writes(self, link: "LinkPort") -> None:
        """Hold a link until most of what waits for other links is written: its client publishes too much."""

    @abstractmethod
    def note_read(self, link: "LinkPort", size: int) -> None:
        """So many bytes were read from a link that sends much: it may have to wait until it is read again."""

    @abstractmethod
    def await_turn(self, link: "LinkPort") -> None:
        """A link that takes turns is held for no other reason any more."""

    @abstractmethod
    def wake(self) -> None:
        """Run when this iteration of the loop has read all links: something came in."""

    @abstractmethod
    def run(self) -> None:
        """Carry out the effects now, as far as this iteration allows."""


class LinkPort(ABC):
    """One end of a connection, as the loop driver and the telemetry know it: a socket, or a program in this process."""

    __slots__ = (
        "_broker",
        "_loop",
        "_loop_driver",
        "_paused",
        "address",
        "connection",
        "gone",
        "listener",
        "tls_cipher",
        "tls_version",
        "transport",
    )

    def __init__(self, listener: str, transport: str, broker: Broker, loop_driver: LinkDriver) -> None:
        self.listener: Final = listener
        self.transport: Final = transport
        self._broker: Final = broker
        self._loop_driver: Final = loop_driver
        self._loop: Final = asyncio.get_running_loop()
        self.connection: Connection
        self.address: str = ""
        """The client's address. The listener sets it where the socket does not know it, behind a proxy."""
        self.tls_version: str | None = None
        self.tls_cipher: str | None = None
        self.gone: bool = False
        self._paused = False
        """Whether the receiving end takes no bytes."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Take frames for the client. Harmless when it is gone."""

    @abstractmethod
    def finish(self) -> None:
        """Close when the client has its last bytes."""

    @abstractmethod
    def abort(self) -> None:
        """Close at once; harmless when it is closed."""

    @property
    @abstractmethod
    def unsent_bytes(self) -> int:
        """How many bytes were written and have not left yet."""

    @abstractmethod
    def _pause_reading(self) -> None:
        """Read nothing until `_resume_reading`."""

    @abstractmethod
    def _resume_reading(self) -> None:
        """Read again; harmless when it is gone."""

    def rest(self, most: int = MAX_DEFERRED_BYTES) -> None:
        """Stop reading if more than that of what arrived is not handled yet."""
        if self.connection.framer.kept_bytes > most:
            self.hold(HoldReason.DEFERRED)

    def go_on(self) -> None:
        """Handle more of what arrived."""
        self._broker.feed(self.connection, b"", self._loop.time())
        self._loop_driver.wake()

    # ------------------------------------------------------------------ holding

    def hold(self, reason: int) -> None:
        """Do not read until `release` has taken back this reason and all others.

        With `HoldReason.COMMIT` the link is not written either, as if the socket took nothing.
        """
        connection = self.connection
        if not connection.hold_reasons:
            self._pause_reading()
        connection.hold_reasons |= reason
        if reason == HoldReason.COMMIT:
            self._broker.block(connection, self._loop.time(), self.unsent_bytes)

    def release(self, reason: int) -> None:
        """Take back one reason of `hold`; harmless when the link is gone, or not held for it."""
        connection = self.connection
        if not connection.hold_reasons & reason:
            return
        connection.hold_reasons &= ~reason
        now = self._loop.time()
        if connection.hold_reasons == HoldReason.TURN:
            self._loop_driver.await_turn(self)
        if connection.deferred and not (
            connection.hold_reasons & ~HoldReason.STOPS_READING or reason == HoldReason.TURN
        ):
            self._broker.effects.deferred.append(connection.number)
            self._loop_driver.wake()
        if not connection.hold_reasons:
            connection.last_heard = now  # the client may have spoken meanwhile
            self._resume_reading()
        if reason == HoldReason.COMMIT and not self.gone and not self._paused:
            self._broker.unblock(connection, now)

    def pause_writing(self) -> None:
        """The receiving end takes no bytes: the core keeps them."""
        self._paused = True
        self._broker.block(self.connection, self._loop.time(), self.unsent_bytes)

    def resume_writing(self) -> None:
        """The opposite of `pause_writing`."""
        self._paused = False
        if not self.connection.hold_reasons & HoldReason.COMMIT:
            self._broker.unblock(self.connection, self._loop.time())
            self._loop_driver.wake()


@final
class Link(LinkPort):
    """A listener makes one for each connection that it accepts. It has the methods of an `asyncio.Protocol` and does
    not inherit from it: a compiled class cannot inherit from one that is not."""

    __slots__ = ("_has_ended", "_linger", "_lost_by", "_on_lost", "_on_made", "_transport", "made")

    # Inherited; declared again because type checkers differ in what they infer from the assignments below.
    address: str
    connection: Connection
    tls_cipher: str | None
    tls_version: str | None

    def __init__(
        self,
        listener: str,
        transport: str,
        broker: Broker,
        loop_driver: LinkDriver,
        on_made: "Callable[[Link], Connection]",
        on_lost: "Callable[[Link], None]",
    ) -> None:
        super().__init__(listener, transport, broker, loop_driver)
        self._on_made: Final = on_made
        self._on_lost: Final = on_lost
        self._transport: asyncio.Transport
        self.made: bool = False
        self._linger: asyncio.TimerHandle | None = None
        self._lost_by = ""
        self._has_ended = False

    def peer_certificate(self) -> dict[str, object] | None:
        """The client's verified certificate as `getpeercert` gives it, if it showed one."""
        if self.tls_version is None:
            return None
        found: dict[str, object] | None = self._transport.get_extra_info("peercert")
        return found or None

    def peer_certificate_der(self) -> bytes:
        """The same in DER, for a client that showed one."""
        tls: ssl.SSLObject = self._transport.get_extra_info("ssl_object")
        found = tls.getpeercert(True)
        assert found is not None, "the client showed a certificate"
        return found

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made = True
        self._transport = cast(asyncio.Transport, transport)
        most = min(WRITE_BUFFER_BYTES, self._broker.limits.max_outbox_bytes // 4)
        self._transport.set_write_buffer_limits(most, most // 4)
        self.address = self.address or format_address(transport.get_extra_info("peername"))
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if tls is not None:
            self.tls_version = tls.version()
            cipher = tls.cipher()
            self.tls_cipher = cipher[0] if cipher is not None else None
        self.connection = self._on_made(self)
        self._loop_driver.links[self.connection.number] = self
        self._loop_driver.wake()

    def data_received(self, data: bytes) -> None:
        if self._linger is not None and data:
            self._discard()
            return
        loop_driver = self._loop_driver
        effects = self._broker.effects
        changes = len(effects.changes)
        pending = effects.pending_bytes
        self._broker.feed(self.connection, data, self._loop.time())
        if loop_driver.is_stalled and len(effects.changes) > changes:
            loop_driver.hold_for_commit(self)
        if self.connection.deferred:
            self.rest()
        if len(data) > self.connection.much_bytes:
            loop_driver.note_read(self, len(data))
        waiting = effects.pending_bytes
        is_long = 0 < LONG_BYTES * len(effects.dirty) < waiting
        if is_long or waiting > ITERATION_BYTES:
            loop_driver.run()
            added = waiting - pending
            left = effects.pending_bytes
            if left > UNWRITTEN_BYTES and added > ITERATION_BYTES:
                loop_driver.hold_for_writes(self)
        elif not effects.is_empty or self.connection.deferred:  # its fan-out may not have begun
            loop_driver.wake()

    def go_on(self) -> None:
        """Handle more of what arrived. After the last of it, a connection whose socket is gone ends."""
        self.data_received(b"")
        if self.gone and not self.connection.deferred:
            self._end()

    def eof_received(self) -> None:
        """The client sends no more. The transport closes, because this returns nothing true."""

    def connection_lost(self, error: Exception | None) -> None:
        self.gone = True
        if self._linger is not None:
            self._linger.cancel()
        self._lost_by = str(error) if error is not None else ""
        if not self.connection.deferred:  # else some of its packets wait, and a DISCONNECT may be among them
            self._end()

    def _end(self) -> None:
        """The socket is gone and nothing that came from it is left. Harmless the second time."""
        if self._has_ended:
            return
        self._has_ended = True
        self._broker.close(self.connection, self._loop.time(), self._lost_by)
        self._loop_driver.wake()
        self._on_lost(self)

    def write(self, data: bytes) -> None:
        """Hand bytes to the socket. When it takes no more the transport calls `pause_writing`."""
        if not self.gone:
            self._transport.write(data)

    def _pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if not self.gone and not self._transport.is_closing():
            self._transport.resume_reading()

    def finish(self) -> None:
        """Close once the last bytes are sent and the client closes its end, or after `LINGER_S`.

        Closing a socket with unread bytes resets it, and the client could lose the DISCONNECT that tells it why.
        """
        if self.gone:
            self._end()  # a link that is held does not go on with what came before
            return
        transport = self._transport
        if self.connection.said_goodbye and transport.can_write_eof() and transport.get_write_buffer_size() == 0:
            transport.close()  # the client sends nothing more and expects nothing more
            return
        self._linger = self._loop.call_later(LINGER_S, transport.abort)
        if self.connection.hold_reasons:
            self._resume_reading()  # else it would not see the client leave
        if transport.is_closing():
            return
        if transport.can_write_eof():
            try:
                transport.write_eof()
            except OSError:  # the client reset the connection, and the loop does not know it yet
                transport.abort()
        else:  # TLS closes with an exchange of its own
            transport.close()

    def _discard(self) -> None:
        """Nobody wants what came behind the end; read on later."""
        if not self._transport.is_closing():
            self._transport.pause_reading()
            self._loop.call_later(DISCARD_S, self._resume_reading)

    @property
    def awaits_connect(self) -> bool:
        """Whether its client is yet to send a whole CONNECT."""
        return self.connection.state == AWAITING_CONNECT

    @property
    def unsent_bytes(self) -> int:
        """How many bytes were written that the kernel has not taken yet."""
        return self._transport.get_write_buffer_size() if self.made else 0

    @property
    def is_drained(self) -> bool:
        """Whether the kernel has all that was written."""
        return self.unsent_bytes == 0

    def abort(self) -> None:
        """Close at once; harmless when it is closed."""
        self._transport.abort()


def about(link: LinkPort) -> dict[str, dict[str, object]]:
    """The link's fields for a line of the log, as its `extra`."""
    connection = link.connection
    return {
        "fields": {
            "peer": link.address,
            "client_id": connection.client_id or None,
            "connection_id": connection.number,
            "listener": link.listener,
        }
    }


def format_address(peername: object) -> str:
    """`address:port` of what a transport calls its peer name; the path of a Unix socket, if it has one."""
    if isinstance(peername, tuple) and len(peername) >= 2:
        host, port = peername[0], peername[1]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return "?" if peername is None else str(peername or "unix")
