"""One socket of the broker: bytes in to the core, bytes out from it. A link grows no `if` about MQTT.

Invariant: `connection` is handed back to the core with every input, and the core hears exactly once that it is gone.
This module and `loop_driver` are compiled with the ground floor (docs/design/008).
"""

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, cast, final

from mqttlite.core.broker import Broker
from mqttlite.core.connection import AWAITING_CONNECT, Connection

ITERATION_BYTES: Final = 1_048_576
"""When about so much waits to be written it is written at once, not after the pass: bounds what one pass piles up."""

MAX_DEFERRED_BYTES: Final = 1_048_576
"""What may come in while packets wait to be looked at, before nothing more is read. Not nothing: what a client that
leaves has sent would be lost, in the kernel when it leaves without reading our answers, in a layer that is paused when
that ends."""

LONG_BYTES: Final = 131_072
"""The same when so much waits for each of those it is for: more would save few writes, and be in no processor's cache
any more when it is written."""

WRITE_BUFFER_BYTES: Final = 262_144
"""What the transport may hold before the link counts as blocked; a quarter of it before it counts as free again."""

LINGER_S: Final = 5.0
"""How long a closed link may take to send its last bytes to a client that does not read them, and to see it leave."""


class LinkDriver(ABC):
    """What a link needs of the `LoopDriver` that empties its outbox."""

    def __init__(self) -> None:
        self.links: Final[dict[int, Link]] = {}
        """Where a link enters itself under its connection's number."""
        self.is_stalled = False
        """Whether a commit takes so long that whoever makes more changes is to wait for it."""

    @abstractmethod
    def hold_up(self, link: "Link") -> None:
        """Let a link wait for that commit: it sends what nobody acknowledges, and must be kept."""

    @abstractmethod
    def wake(self) -> None:
        """Something came in: run once when this pass of the loop is over."""

    @abstractmethod
    def run(self) -> None:
        """Do everything in the turn now."""


@final
class Link:
    """Made by a listener for each connection that it accepts. An `asyncio.Protocol` by its methods: a class that is
    compiled cannot inherit from one that is not."""

    __slots__ = (
        "_broker",
        "_full",
        "_held",
        "_linger",
        "_loop",
        "_loop_driver",
        "_lost_by",
        "_on_lost",
        "_on_made",
        "_transport",
        "address",
        "connection",
        "gone",
        "listener",
        "made",
        "tls_cipher",
        "tls_version",
        "transport",
    )

    def __init__(
        self,
        listener: str,
        transport: str,
        broker: Broker,
        loop_driver: LinkDriver,
        on_made: "Callable[[Link], Connection]",
        on_lost: "Callable[[Link], None]",
    ) -> None:
        self.listener: Final = listener
        self.transport: Final = transport
        self._broker: Final = broker
        self._loop_driver: Final = loop_driver
        self._on_made: Final = on_made
        self._on_lost: Final = on_lost
        self._loop: Final = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self.connection: Connection
        self.address = ""
        """The client's; said beforehand where the socket does not know it, for there is a proxy in front of us."""
        self.tls_version: str | None = None
        self.tls_cipher: str | None = None
        self.made = False
        self.gone = False
        self._full = False
        self._held = False
        self._linger: asyncio.TimerHandle | None = None
        self._lost_by = ""

    def peer_certificate(self) -> dict[str, object] | None:
        """The client's verified certificate as `getpeercert` gives it, if it showed one."""
        if self.tls_version is None:
            return None
        found: dict[str, object] | None = self._transport.get_extra_info("peercert")
        return found or None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made = True
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_BUFFER_BYTES, WRITE_BUFFER_BYTES // 4)
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
        loop_driver = self._loop_driver
        effects = self._broker.effects
        changes = len(effects.changes)
        self._broker.feed(self.connection, data, self._loop.time())
        if loop_driver.is_stalled and len(effects.changes) > changes:
            loop_driver.hold_up(self)
        if self.connection.deferred:
            self.rest()
        waiting = effects.pending_bytes
        is_long = 0 < LONG_BYTES * len(effects.dirty) < waiting
        if is_long or waiting > ITERATION_BYTES:
            loop_driver.run()
        else:
            loop_driver.wake()

    def pause_writing(self) -> None:
        self._full = True
        self._broker.block(self.connection, self._loop.time())

    def resume_writing(self) -> None:
        self._full = False
        if not self._held:
            self._broker.unblock(self.connection, self._loop.time())
            self._loop_driver.wake()

    def rest(self) -> None:
        """Read no more if much of what came is yet to be looked at."""
        if self.connection.framer.kept_bytes > MAX_DEFERRED_BYTES:
            self.pause_reading()

    def go_on(self) -> None:
        """Look at more of what came. Once that is all, a connection that was lost meanwhile is over."""
        self.data_received(b"")
        if self.gone and not self.connection.deferred:
            self._end()

    def eof_received(self) -> None:
        """The client sends no more: the transport closes, as for every protocol that does not ask it to stay."""

    def connection_lost(self, error: Exception | None) -> None:
        self.gone = True
        if self._linger is not None:
            self._linger.cancel()
        self._lost_by = str(error) if error is not None else ""
        if not self.connection.deferred:  # else it sent more than was looked at, and maybe goodbye
            self._end()

    def _end(self) -> None:
        self._broker.close(self.connection, self._loop.time(), self._lost_by)
        self._loop_driver.wake()
        self._on_lost(self)

    def write(self, data: bytes) -> None:
        """Hand bytes to the socket; what it does not take comes back as `pause_writing`. Harmless when it is gone."""
        if not self.gone:
            self._transport.write(data)

    def hold(self) -> None:
        """Neither read nor written to until `release`, as if the socket took nothing."""
        self._held = True
        self.pause_reading()
        self._broker.block(self.connection, self._loop.time())

    def release(self) -> None:
        """The opposite of `hold`; harmless when the link is gone."""
        self._held = False
        self.resume_reading()  # what it sent meanwhile is yet to be read
        if not self.gone and not self._full:
            self._broker.unblock(self.connection, self._loop.time())

    def pause_reading(self) -> None:
        """Read nothing until `resume_reading`; what it is to be sent is written."""
        self.connection.unread = True
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """The opposite of `pause_reading`; harmless when the link is gone."""
        if self.connection.deferred:  # there is something to be looked at before
            self._broker.effects.deferred.append(self.connection.number)
            self._loop_driver.wake()
            return
        self.connection.unread = False
        self.connection.last_heard = self._loop.time()
        if not self.gone and not self._transport.is_closing():
            self._transport.resume_reading()

    def finish(self) -> None:
        """Close once the last bytes are sent and the client closes its end, or after `LINGER_S`.

        To close a socket with bytes unread is to reset it, and the client could lose our last word, which says why.
        """
        if self.gone:
            return
        transport = self._transport
        if self.connection.said_goodbye and transport.can_write_eof() and transport.get_write_buffer_size() == 0:
            transport.close()  # it sends no more, and waits for no more
            return
        self._linger = self._loop.call_later(LINGER_S, transport.abort)
        if transport.is_closing():
            return
        if transport.can_write_eof():
            try:
                transport.write_eof()
            except OSError:  # the client reset the connection, and the loop has yet to hear of it
                transport.abort()
        else:  # TLS: to close is to exchange farewells
            transport.close()

    @property
    def awaits_connect(self) -> bool:
        """Whether its client is yet to send a whole CONNECT."""
        return self.connection.state == AWAITING_CONNECT

    @property
    def unsent_bytes(self) -> int:
        """What was written and the kernel has not taken yet."""
        return self._transport.get_write_buffer_size() if self.made else 0

    @property
    def is_drained(self) -> bool:
        """Whether the kernel has all that was written."""
        return self.unsent_bytes == 0

    def abort(self) -> None:
        """Close at once; harmless when it is closed."""
        self._transport.abort()


def about(link: Link) -> dict[str, dict[str, object]]:
    """What a line of the log is about, as its `extra`."""
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
