"""Listening sockets, TCP and TLS, and the connections they let in.

A TLS handshake happens before the core hears of a connection; what goes wrong in it is said with the client's address.
Invariant: a listener holds at most `max_connections`, handshakes included.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final, cast

from mqttlite.core.broker import Broker
from mqttlite.core.connection import Connection, Peer
from mqttlite.net.link import LINGER_S, Link, format_address
from mqttlite.net.turns import Turns

HANDSHAKE_S: Final = 10.0
"""How long a TLS handshake may take: half-open connections end here."""

BACKLOG: Final = 4_096
"""Connections the kernel may hold for us while the loop is busy; it cuts this to its own limit."""

_log = logging.getLogger("mqttlite.net")


class Listener:
    """One address and port. `identity_of` names the client whose certificate (as `getpeercert` gives it) is shown."""

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        *,
        context: ssl.SSLContext | None,
        max_connections: int,
        must_authenticate: bool,
        identity_of: Callable[[dict[str, object]], str | None],
        broker: Broker,
        turns: Turns,
    ) -> None:
        self.name: Final = name
        self.host: Final = host
        self.port = port
        """The port asked for; once `start` has run, the real one."""
        self.context: Final = context
        self._max_connections: Final = max_connections
        self._must_authenticate: Final = must_authenticate
        self._identity_of: Final = identity_of
        self._broker: Final = broker
        self._turns: Final = turns
        self._loop: Final = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None
        self._open = 0
        self._handshakes: Final[set[asyncio.Task[None]]] = set()
        self._turned_away = 0

    async def start(self) -> None:
        """Bind and accept. Raises `OSError`."""
        factory = self._plain if self.context is None else self._guarded
        # SO_REUSEADDR is asyncio's default; a second broker on the port is still refused.
        self._server = await self._loop.create_server(factory, self.host, self.port, backlog=BACKLOG)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._handshakes:
            task.cancel()

    def _plain(self) -> asyncio.BaseProtocol:
        return self._link() if self._admit() else _Closed()

    def _guarded(self) -> asyncio.BaseProtocol:
        return _Gate(self._begin_handshake) if self._admit() else _Closed()

    def _link(self) -> Link:
        return Link(self.name, self._broker, self._turns, self._on_made, self._on_lost)

    def _admit(self) -> bool:
        """Count a new connection in, unless there are too many."""
        if self._open >= self._max_connections:
            self._turned_away += 1
            if self._turned_away & (self._turned_away - 1) == 0:  # the 1st, 2nd, 4th, 8th …: not a line for each
                _log.warning(
                    "%s: %d connections are the limit (max_connections); turned away so far: %d",
                    *(self.name, self._max_connections, self._turned_away),
                )
            return False
        self._open += 1
        return True

    def _on_made(self, link: Link) -> Connection:
        certificate = link.peer_certificate()
        identity = None if certificate is None else self._identity_of(certificate)
        return self._broker.open(Peer(identity, self._must_authenticate), self._loop.time())

    def _on_lost(self, link: Link) -> None:
        self._open -= 1

    def _begin_handshake(self, gate: "_Gate", transport: asyncio.Transport) -> None:
        task = self._loop.create_task(self._handshake(gate, transport))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _handshake(self, gate: "_Gate", transport: asyncio.Transport) -> None:
        assert self.context is not None
        address = format_address(transport.get_extra_info("peername"))
        try:
            guarded = await self._loop.start_tls(
                transport,
                gate,
                self.context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=LINGER_S,
            )
            if guarded is None or gate.lost:
                raise ConnectionResetError("the client closed the connection")
        except (OSError, asyncio.CancelledError) as error:
            transport.abort()
            self._open -= 1
            if isinstance(error, asyncio.CancelledError):
                raise
            _log.warning("%s: TLS handshake with %s failed: %s", self.name, address, explain_handshake(error))
        else:
            link = self._link()
            guarded.set_protocol(link)
            link.connection_made(guarded)
            if gate.early:
                link.data_received(gate.early)


class _Gate(asyncio.Protocol):
    """Stands where the link will stand until the TLS handshake is over, and keeps what comes with its last flight."""

    def __init__(self, begin: "Callable[[_Gate, asyncio.Transport], None]") -> None:
        self._begin = begin
        self.early = b""
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain = cast(asyncio.Transport, transport)
        plain.pause_reading()
        self._begin(self, plain)

    def data_received(self, data: bytes) -> None:
        self.early += data  # at most what one read holds: the handshake's task runs next

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True


class _Closed(asyncio.Protocol):
    """Closes a connection that there is no room for."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()


_EXPLANATIONS: Final = {
    "WRONG_VERSION_NUMBER": "the client does not speak TLS; is it meant for a listener without TLS?",
    "HTTP_REQUEST": "the client sent an HTTP request",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client showed no certificate, and this listener requires one",
    "CERTIFICATE_VERIFY_FAILED": "the client's certificate was not issued by the listener's CA, or is out of date",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust our certificate's CA; does it have our ca file?",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not accept our certificate",
    "NO_SHARED_CIPHER": "client and server have no cipher in common",
    "UNSUPPORTED_PROTOCOL": "the client offers only TLS versions that are too old",
}


def explain_handshake(error: OSError) -> str:
    """Why a handshake failed, in words where the TLS library's own are not."""
    if isinstance(error, ssl.SSLError) and error.reason in _EXPLANATIONS:
        return f"{_EXPLANATIONS[error.reason]} ({error.reason})"
    return str(error) or type(error).__name__
