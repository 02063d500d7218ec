"""Our end of a connection: a `Link` moves bytes between a socket and the core. It knows nothing about MQTT.

Invariant: a link passes its `connection` to the core with every input, and reports exactly once that the socket is
gone. This module and `loop_driver` are compiled together with the core (docs/design/008).
"""

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, cast, final

from mqttlite.core.broker import Broker
from mqttlite.core.connect.connection import AWAITING_CONNECT, Connection
from mqttlite.core.reasons import HoldReason

ITERATION_BYTES: Final = 1_048_576
"""When about this many bytes wait to be written, the link writes them at once instead of at the end of the iteration.
Bounds the bytes that accumulate in one iteration."""

MAX_DEFERRED_BYTES: Final = 1_048_576
"""How many bytes may arrive while packets wait, before the link is no longer read. Not 0: otherwise the last packets of
a leaving client could be lost, in the kernel if the client leaves without reading our answers, or in a paused TLS or
WebSocket layer."""

LONG_BYTES: Final = 131_072
"""Like `ITERATION_BYTES`, if this much waits for each receiver: waiting longer would save few writes, and the bytes
would leave the processor's cache before they are written."""

UNWRITTEN_BYTES: Final = 8 * 1_048_576
"""How many bytes may stay unwritten after a link's input was handled, if that input caused more than `ITERATION_BYTES`
of them. With more, the link is not read until the receivers have their bytes: some milliseconds of writes."""

WRITE_BUFFER_BYTES: Final = 262_144
"""How many bytes the transport may buffer before the link counts as blocked; at a quarter of them it is free again.
With small outboxes it is a quarter of `max_outbox_bytes`, because a client may fill both."""

LINGER_S: Final = 5.0
"""How long a closed link waits for the client to read its last bytes and close its side."""

DISCARD_S: Final = 0.02
"""How long a closed link is not read after each discarded chunk. Without it, a client that sends at full speed would
keep the loop busy until `LINGER_S` is over."""


class LinkDriver(ABC):
    """The part of the `LoopDriver` that a link uses."""

    def __init__(self) -> None:
        self.time: Final[Callable[[], float]] = asyncio.get_running_loop().time
        """The loop's clock, bound once because every chunk asks it."""
        self.links: Final[dict[int, LinkPort]] = {}
        """All links by connection number. Each link adds itself."""
        self.is_stalled: bool = False
        """Whether a commit takes so long that links with more changes must wait for it."""

    @abstractmethod
    def hold_for_commit(self, link: "LinkPort") -> None:
        """Hold a link until the slow commit is done, because its client's changes wait in memory."""

    @abstractmethod
    def hold_for_writes(self, link: "LinkPort") -> None:
        """Hold a link until most bytes for other links are written, because its client publishes too much."""

    @abstractmethod
    def note_read(self, link: "LinkPort", size: int) -> None:
        """`size` bytes were read from a link that sends much. It may have to wait before it is read again."""

    @abstractmethod
    def await_turn(self, link: "LinkPort") -> None:
        """A link that takes turns is no longer held for another reason."""

    @abstractmethod
    def wake(self) -> None:
        """There was input: run after this iteration of the loop has read all links."""

    @abstractmethod
    def run(self) -> None:
        """Carry out the effects now, within the limits of this iteration."""


@final
class ProxiedTls:
    """The TLS of a client with a proxy, as the proxy tells it."""

    __slots__ = ("certificate_name", "cipher", "is_verified", "version")

    def __init__(self, version: str, cipher: str | None, certificate_name: str | None, *, is_verified: bool) -> None:
        self.version: Final = version
        self.cipher: Final = cipher
        self.certificate_name: Final = certificate_name
        """The Common Name of the client's certificate."""
        self.is_verified: Final = is_verified
        """Whether the proxy verified that certificate."""


class LinkPort(ABC):
    """Our end of a connection, for the loop driver and telemetry: a socket, or a program in this process."""

    __slots__ = (
        "_broker",
        "_loop",
        "_loop_driver",
        "_paused",
        "address",
        "connection",
        "gone",
        "listener",
        "proxied_tls",
        "tls_cipher",
        "tls_version",
        "transport",
        "verified_name",
    )

    def __init__(self, listener: str, transport: str, broker: Broker, loop_driver: LinkDriver) -> None:
        self.listener: Final = listener
        self.transport: Final = transport
        self._broker: Final = broker
        self._loop_driver: Final = loop_driver
        self._loop: Final = asyncio.get_running_loop()
        self.connection: Connection
        self.address: str = ""
        """The client's address. Behind a proxy, the listener sets it."""
        self.tls_version: str | None = None
        self.tls_cipher: str | None = None
        self.proxied_tls: ProxiedTls | None = None
        """The TLS between the client and a proxy, which tells it."""
        self.verified_name: str | None = None
        """The name in the client's certificate, where another broker has verified it."""
        self.gone: bool = False
        self._paused = False
        """Whether the remote end takes no bytes."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Take frames for the client. Harmless if it is gone."""

    @abstractmethod
    def finish(self) -> None:
        """Close after the client has its last bytes."""

    @abstractmethod
    def abort(self) -> None:
        """Close at once; harmless when it is closed."""

    @property
    @abstractmethod
    def unsent_bytes(self) -> int:
        """How many written bytes have not been sent yet."""

    @abstractmethod
    def _pause_reading(self) -> None:
        """Stop reading until `_resume_reading`."""

    @abstractmethod
    def _resume_reading(self) -> None:
        """Read again. Harmless if the client is gone."""

    def rest(self, most: int = MAX_DEFERRED_BYTES) -> None:
        """Stop reading if more than `most` bytes are unhandled."""
        if self.connection.framer.kept_bytes > most:
            self.hold(HoldReason.DEFERRED)

    def go_on(self) -> None:
        """Handle more of the bytes that arrived."""
        self._broker.feed(self.connection, b"", self._loop_driver.time())
        self._loop_driver.wake()

    # ------------------------------------------------------------------ holding

    def hold(self, reason: int) -> None:
        """Stop reading until `release` has removed this reason and all others.

        With `HoldReason.COMMIT` the link is not written either, as if the socket took no bytes.
        """
        connection = self.connection
        if not connection.hold_reasons:
            self._pause_reading()
        connection.hold_reasons |= reason
        if reason == HoldReason.COMMIT:
            self._broker.block(connection, self._loop_driver.time(), self.unsent_bytes)

    def release(self, reason: int) -> None:
        """Remove one reason of `hold`. Harmless if the link is gone, or not held for it."""
        connection = self.connection
        if not connection.hold_reasons & reason:
            return
        connection.hold_reasons &= ~reason
        now = self._loop_driver.time()
        if connection.hold_reasons == HoldReason.TURN:
            self._loop_driver.await_turn(self)
        if connection.deferred and not (
            connection.hold_reasons & ~HoldReason.STOPS_READING or reason == HoldReason.TURN
        ):
            self._broker.effects.deferred.append(connection.number)
            self._loop_driver.wake()
        if not connection.hold_reasons:
            connection.last_heard = now  # the client may have sent packets meanwhile
            self._resume_reading()
        if reason == HoldReason.COMMIT and not self.gone and not self._paused:
            self._broker.unblock(connection, now)

    def pause_writing(self) -> None:
        """The remote end takes no bytes: the core must keep them."""
        self._paused = True
        self._broker.block(self.connection, self._loop_driver.time(), self.unsent_bytes)

    def resume_writing(self) -> None:
        """The remote end takes bytes again."""
        self._paused = False
        if not self.connection.hold_reasons & HoldReason.COMMIT:
            self._broker.unblock(self.connection, self._loop_driver.time())
            self._loop_driver.wake()


@final
class Link(LinkPort):
    """A listener creates one for each connection that it accepts. It has the methods of an `asyncio.Protocol` but does
    not inherit from it, because a compiled class cannot inherit from an interpreted one."""

    __slots__ = ("_has_ended", "_linger", "_lost_by", "_on_lost", "_on_made", "_transport", "is_passed_on", "made")

    # Inherited; declared again because type checkers differ in what they infer from the assignments below.
    address: str
    connection: Connection
    proxied_tls: ProxiedTls | None
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
        self.is_passed_on: bool = False
        """Whether another protocol has its socket."""

    def pass_on(self, protocol: asyncio.BaseProtocol) -> asyncio.Transport:
        """Give the socket to another protocol, because the core has let go of the connection. The listener counts it
        until that calls `connection_lost` of this link too."""
        if self.connection.hold_reasons:
            self.connection.hold_reasons = 0
            self._resume_reading()
        self.is_passed_on = True
        self._transport.set_protocol(protocol)
        return self._transport

    def take_back(self) -> None:
        """Close the socket that another protocol had, after the client has its last bytes."""
        self.is_passed_on = False
        self._transport.set_protocol(cast(asyncio.BaseProtocol, self))
        self.finish()

    def peer_certificate(self) -> dict[str, object] | None:
        """The client's verified certificate as `getpeercert` gives it; None if there is none."""
        if self.tls_version is None or self.proxied_tls is not None:
            return None
        found: dict[str, object] | None = self._transport.get_extra_info("peercert")
        return found or None

    def peer_certificate_der(self) -> bytes:
        """The same in DER, for a client with a certificate."""
        tls: ssl.SSLObject = self._transport.get_extra_info("ssl_object")
        found = tls.getpeercert(True)
        assert found is not None, "the client has a certificate"
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
            self.proxied_tls = None
        elif self.proxied_tls is not None:
            self.tls_version, self.tls_cipher = self.proxied_tls.version, self.proxied_tls.cipher
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
        self._broker.feed(self.connection, data, self._loop_driver.time())
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
        """Handle more of the bytes that arrived. If none remain and the socket is gone, end the connection."""
        self.data_received(b"")
        if self.gone and not self.connection.deferred:
            self._end()

    def eof_received(self) -> None:
        """The client closed its sending side. The transport closes, because this returns no true value."""

    def connection_lost(self, error: Exception | None) -> None:
        self.gone = True
        if self._linger is not None:
            self._linger.cancel()
        self._lost_by = str(error) if error is not None else ""
        if not self.connection.deferred:  # deferred: packets still wait, possibly a DISCONNECT
            self._end()

    def _end(self) -> None:
        """End the connection: the socket is gone and all its bytes are handled. Harmless the second time."""
        if self._has_ended:
            return
        self._has_ended = True
        self._broker.close(self.connection, self._loop_driver.time(), self._lost_by)
        self._loop_driver.wake()
        self._on_lost(self)

    def write(self, data: bytes) -> None:
        """Write bytes to the socket. When it takes no more, the transport calls `pause_writing`."""
        if not self.gone:
            self._transport.write(data)

    def _pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if not self.gone and not self._transport.is_closing():
            self._transport.resume_reading()

    def finish(self) -> None:
        """Close after the last bytes are sent and the client has closed its side, or after `LINGER_S`.

        Closing a socket with unread bytes would reset it, and the client could lose the DISCONNECT with the reason.
        """
        if self.is_passed_on:
            return
        if self.gone:
            self._end()  # a held link does not handle its waiting bytes any more
            return
        transport = self._transport
        if self.connection.said_goodbye and transport.can_write_eof() and transport.get_write_buffer_size() == 0:
            transport.close()  # the client neither sends nor expects more
            return
        self._linger = self._loop.call_later(LINGER_S, transport.abort)
        if self.connection.hold_reasons:
            self._resume_reading()  # to notice that the client leaves
        if transport.is_closing():
            return
        if transport.can_write_eof():
            try:
                transport.write_eof()
            except OSError:  # the client reset the connection, and the loop has not noticed yet
                transport.abort()
        else:  # TLS has its own closing handshake
            transport.close()

    def _discard(self) -> None:
        """Discard bytes after the end of the connection, and continue to read later."""
        if not self._transport.is_closing():
            self._transport.pause_reading()
            self._loop.call_later(DISCARD_S, self._resume_reading)

    @property
    def awaits_connect(self) -> bool:
        """Whether its client has not sent a complete CONNECT yet."""
        return self.connection.state == AWAITING_CONNECT

    @property
    def unsent_bytes(self) -> int:
        """How many written bytes the kernel has not taken yet."""
        return self._transport.get_write_buffer_size() if self.made else 0

    @property
    def is_drained(self) -> bool:
        """Whether the kernel has taken all written bytes."""
        return self.unsent_bytes == 0

    def abort(self) -> None:
        """Close at once; harmless when it is closed."""
        self._transport.abort()


def about(link: LinkPort) -> dict[str, dict[str, object]]:
    """The link's fields for a log record, as its `extra`."""
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
    """`address:port` for a transport's peer name; the path of a Unix socket, if it has one."""
    if isinstance(peername, tuple) and len(peername) >= 2:
        host, port = peername[0], peername[1]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return "?" if peername is None else str(peername or "unix")
