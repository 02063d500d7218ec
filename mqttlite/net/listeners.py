"""Listening sockets: accepts connections, limits their number, and runs their handshakes [MQTT-4.2.0-1].

A PROXY header and a TLS handshake come before the core sees a connection; their errors are logged with the client's
address. A connection is half-open until its client has sent CONNECT. When there is no room, the oldest half-open one is
closed for a new one, so that silent connections cannot lock out clients. Invariant: a listener holds at most
`max_connections`, including handshakes, and `max_half_open` half-open ones, not counting those it is closing.
"""

import asyncio
import gc
import logging
import math
import socket
import ssl
from collections.abc import Callable, Coroutine, Hashable
from typing import TYPE_CHECKING, Any, Final, cast

from mqttlite.core.broker import Broker
from mqttlite.core.connect.capabilities import Capabilities
from mqttlite.core.connect.connect_limits import ConnectLimits
from mqttlite.core.connect.connection import Connection, Peer
from mqttlite.core.identity import Identity
from mqttlite.core.load.quotas import Quotas
from mqttlite.core.memory import TLS_BYTES
from mqttlite.net.acceptor import Acceptor
from mqttlite.net.address_key import address_key
from mqttlite.net.endpoints import TcpEndpoint, UnixEndpoint
from mqttlite.net.file_limit import FileLimit
from mqttlite.net.frame_queue import FrameQueue
from mqttlite.net.half_open import HalfOpen
from mqttlite.net.handshake_turns import HandshakeTurns, readable
from mqttlite.net.link import LINGER_S, Link, LinkPort, ProxiedTls, format_address
from mqttlite.net.loop_driver import LoopDriver
from mqttlite.net.proxy_protocol import BadHeader, Proxies, read_header
from mqttlite.net.tls import Handshake
from mqttlite.net.upgrade import WebSocketOptions

if TYPE_CHECKING:
    from mqttlite.net.websocket import WebSocket

PARTING_S: Final = 0.5
"""How long clients of a stopping broker may take to close, after they have their last bytes."""

HALF_OPEN_GRACE_S: Final = 1.0
"""How long a half-open connection cannot be closed to make room within `max_connections`, so that a quick device gets
in during a flood of connections."""

COLLECT_EACH: Final = 16
"""After this many new connections, run Python's garbage collector on the youngest objects. By itself it runs after some
thousand net allocations; with as many handshakes ending as beginning that took ten thousand connections, and then 50
ms."""

_log = logging.getLogger("mqttlite.net")


class Listener:
    """One endpoint and its protocol. `identity_of` gives the client's name from its certificate (as `getpeercert` gives
    it); `certificate_id_of` gives the id of a DER certificate, if certificates can be `revoked`."""

    def __init__(
        self,
        name: str,
        endpoint: TcpEndpoint | UnixEndpoint,
        *,
        transport: str,
        websocket: WebSocketOptions | None,
        context: ssl.SSLContext | None,
        proxies: Proxies | None,
        max_connections: int,
        max_half_open: int,
        handshake_timeout_s: float,
        must_authenticate: bool,
        methods: frozenset[str],
        capabilities: Capabilities,
        mount_point: bytes,
        quotas: Quotas | None,
        connect_limits: ConnectLimits | None,
        identity_of: Callable[[dict[str, object]], str | None],
        certificate_id_of: Callable[[bytes], Hashable] | None,
        revoked: frozenset[Hashable],
        broker: Broker,
        loop_driver: LoopDriver,
        frame_queue: FrameQueue,
        turns: HandshakeTurns,
    ) -> None:
        self.name: Final = name
        self._endpoint: Final = endpoint
        self.transport: Final = transport
        """Its name in telemetry: `tcp`, `tls`, `ws`, `wss` or `unix`."""
        self._websocket: Final = websocket
        self._proxies: Final = proxies
        self._tls: Final[dict[str, Any]] = (
            {}
            if context is None
            else {"ssl": context, "ssl_handshake_timeout": handshake_timeout_s, "ssl_shutdown_timeout": LINGER_S}
        )
        self._max_connections: Final = max_connections
        self._half_open: Final = HalfOpen(max_half_open)
        self._handshake_timeout_s: Final = handshake_timeout_s
        self._anonymous: Final = Peer(
            Identity(None, mount_point),
            must_authenticate,
            capabilities,
            methods,
            0 if context is None else TLS_BYTES,
            quotas=quotas,
            connect_limits=connect_limits,
        )
        """The `Peer` of clients without certificate."""
        self._identity_of: Final = identity_of
        self._certificate_id_of: Final = certificate_id_of
        self._revoked = revoked
        self._certificates: Final[dict[Link, Hashable]] = {}
        """The certificate ids of links; empty if certificates cannot be revoked."""
        self._broker: Final = broker
        self._loop_driver: Final = loop_driver
        self._frame_queue: Final = frame_queue
        self._loop: Final = asyncio.get_running_loop()
        self._turns: Final = turns
        self._acceptor: Final = Acceptor(turns, self._begin_handshake)
        self._connect_limits: Final = connect_limits
        self._keys: Final[dict[Link, str]] = {}
        """The address key of each connection that the limits count."""
        self._limited = 0
        self._made = 0
        self._open = 0
        self._links: Final[set[Link]] = set()
        self._upgrades: Final[set[WebSocket]] = set()
        self._handshakes: Final[set[asyncio.Task[None]]] = set()
        self.turned_away: int = 0
        """Connections closed because there was no room, or no free file."""
        self.half_open_closed: int = 0
        """Half-open connections closed to make room."""
        self.failed_handshakes: int = 0
        """Connections whose TLS handshake or PROXY header failed."""
        self._files: Final = FileLimit(name)
        self._stopping = False
        self._emptied: Final = asyncio.Event()

    @property
    def port(self) -> int:
        """The requested port; after `start`, the real one. 0 for a Unix socket."""
        return self._endpoint.port

    @property
    def addresses(self) -> list[str]:
        """The addresses that it listens on: `address:port` for each address of the host, or a path."""
        return self._endpoint.addresses

    async def start(self) -> None:
        """Bind and accept. Raises `CannotListen`."""
        self._files.open()
        if self._tls or self._proxies:
            self._acceptor.start(self.name, await self._endpoint.bind(self.name))
        else:
            await self._endpoint.listen(self.name, self._plain)

    def use_context(self, context: ssl.SSLContext, revoked: frozenset[Hashable]) -> None:
        """Use other certificates for new handshakes. Only for a TLS listener."""
        self._tls["ssl"] = context
        self._revoked = revoked

    def revoked_links(self) -> list[Link]:
        """The links whose clients' certificates are now revoked."""
        return [link for link, certificate in self._certificates.items() if certificate in self._revoked]

    async def stop_accepting(self) -> None:
        """Stop accepting, and cancel handshakes under way. The links stay."""
        self._stopping = True
        self._acceptor.close()
        self._endpoint.close()
        self._files.close()
        await asyncio.sleep(0)  # a task that has not started would not close its socket
        handshakes = list(self._handshakes)
        for task in handshakes:
            task.cancel()
        for upgrade in self._upgrades:
            upgrade.abort()
        if handshakes:
            await asyncio.wait(handshakes)
        self._note_emptied()

    async def emptied(self) -> None:
        """After `stop_accepting` and the last DISCONNECT: wait until the last connection is gone.

        A client that has its last bytes and stays is cut off after `PARTING_S`. A client that does not read them has
        longer.
        """
        try:
            async with asyncio.timeout(PARTING_S):
                await self._emptied.wait()
        except TimeoutError:
            for link in list(self._links):
                if link.is_drained:
                    link.abort()
            await self._emptied.wait()

    @property
    def open(self) -> int:
        """The number of connections, including handshakes."""
        return self._open

    @property
    def throttled(self) -> dict[str, int]:
        """How often a client exceeded a quota, by scope."""
        quotas = self._anonymous.quotas
        return {} if quotas is None else quotas.held

    @property
    def limited(self) -> dict[str, int]:
        """How many connections each limit refused."""
        return {} if self._connect_limits is None else self._connect_limits.refused

    def holds(self, link: LinkPort) -> bool:
        """Whether the link belongs to this listener and is open."""
        return link in self._links

    def abort(self) -> None:
        """Close all connections at once."""
        for link in self._links:
            link.abort()

    def _plain(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self._spoken_to(self._link())) if self._admit() else _Closed()

    def _link(self) -> Link:
        """Create a link for one more connection."""
        return Link(self.name, self.transport, self._broker, self._loop_driver, self._on_made, self._on_lost)

    def _spoken_to(self, link: Link) -> "Link | WebSocket":
        """The asyncio protocol for a new socket: a link, or a WebSocket in front of one."""
        if self._websocket is None:
            return link
        from mqttlite.net.websocket import WebSocket  # here, for wsproto takes a while

        return WebSocket(
            link, self._websocket, self._handshake_timeout_s, self._frame_queue, self._on_upgrade, self._on_upgraded
        )

    def _admit(self) -> bool:
        """Count a new connection. False if there are too many, or the broker stops."""
        if self._stopping:
            return False
        if self._half_open.is_full:
            self._close_oldest(math.inf)
        elif self._open >= self._max_connections and not self._close_oldest(self._loop.time() - HALF_OPEN_GRACE_S):
            self.turned_away += 1
            if self.turned_away & (self.turned_away - 1) == 0:  # the 1st, 2nd, 4th, 8th …: not a line for each
                _log.warning(
                    "%s: %d connections are the limit (max_connections); turned away so far: %d",
                    self.name,
                    self._max_connections,
                    self.turned_away,
                )
            return False
        if not self._files.has_room():
            self.turned_away += 1
            self._files.turn_away()
            return False
        self._open += 1
        return True

    def _close_oldest(self, opened_by: float) -> bool:
        """Close the oldest half-open connection for a new one, if it was opened at `opened_by` or before."""
        if not self._half_open.close_oldest(opened_by):
            return False
        self.half_open_closed += 1
        if self.half_open_closed & (self.half_open_closed - 1) == 0:  # the 1st, 2nd, 4th, 8th …: not a line for each
            _log.warning(
                "%s: half-open connections made room for new ones (max_half_open is %d); closed so far: %d",
                self.name,
                self._half_open.limit,
                self.half_open_closed,
            )
        return True

    def note_connect(self, link: LinkPort) -> None:
        """The client of a link has sent CONNECT: its connection is no longer half-open."""
        self._half_open.discard(link)

    def take_in(
        self,
        transport: asyncio.Transport,
        address: str,
        verified_name: str | None,
        tls_version: str | None,
        tls_cipher: str | None,
    ) -> Link | None:
        """Take a client that another broker passes on, because its session is here. None if there is no room."""
        if not self._admit():
            return None
        link = self._link()
        link.address, link.verified_name = address, verified_name
        if tls_version is not None:
            link.proxied_tls = ProxiedTls(tls_version, tls_cipher, verified_name, is_verified=verified_name is not None)
        transport.set_protocol(cast(asyncio.BaseProtocol, link))
        link.connection_made(transport)
        link.connection.is_located = True
        return link

    def _leave(self) -> None:
        self._open -= 1
        self._note_emptied()

    def _note_emptied(self) -> None:
        if self._stopping and self._open == 0:
            self._emptied.set()

    def _is_limited(self, link: Link) -> bool:
        """Whether the address of a link has too many connections, or connects too often."""
        limits = self._connect_limits
        if limits is None or link in self._keys:
            return False
        key = address_key(link.address)
        refusal = limits.open(key, self._loop.time())
        if not refusal:
            self._keys[link] = key
            return False
        self._limited += 1
        if self._limited & (self._limited - 1) == 0:  # the 1st, 2nd, 4th, 8th …: not a line for each
            _log.warning(
                "%s: connection from %s closed (limit: %s); closed so far: %d",
                self.name,
                link.address,
                refusal,
                self._limited,
                extra=self._about(link.address),
            )
        return True

    def _forget(self, link: Link) -> None:
        """The connection is gone: uncount it for its address."""
        key = self._keys.pop(link, None)
        if key is not None and self._connect_limits is not None:
            self._connect_limits.close(key)

    def _on_made(self, link: Link) -> Connection:
        self._links.add(link)
        self._made += 1
        if self._made % COLLECT_EACH == 0 and gc.isenabled():
            gc.collect(1)
        if self._stopping:  # accepted at the last moment
            self._loop.call_soon(link.abort)
        certificate = link.peer_certificate()
        peer = self._anonymous
        identity = link.verified_name if certificate is None else self._identity_of(certificate)
        if certificate and identity is None:
            _log.info(
                "%s: the certificate of %s names nobody: it has not exactly one name of the kind identity_from",
                self.name,
                link.address,
                extra=self._about(link.address),
            )
        if identity is not None:
            peer = Peer(
                peer.identity.of(identity),
                peer.must_authenticate,
                peer.capabilities,
                peer.methods,
                peer.tls_bytes,
                quotas=peer.quotas,
                connect_limits=peer.connect_limits,
            )
        if certificate is not None and self._certificate_id_of is not None:
            self._certificates[link] = certificate_id = self._certificate_id_of(link.peer_certificate_der())
            if certificate_id in self._revoked:  # revoked since its handshake began
                self._loop.call_soon(link.abort)
        self._half_open.add(link, link.abort, self._loop.time())
        connection = self._broker.open(peer, self._loop.time())
        connection.address = link.address
        if peer.quotas is not None and peer.quotas.wants_address:
            connection.quota_address = address_key(link.address)
        if self._is_limited(link):
            self._broker.close(connection, self._loop.time(), "too many connections, or too often")
            self._loop.call_soon(link.abort)
        return connection

    def _on_upgrade(self, upgrade: "WebSocket") -> None:
        self._upgrades.add(upgrade)
        self._half_open.add(upgrade.link, upgrade.abort, self._loop.time())
        if self._stopping:  # accepted at the last moment
            self._loop.call_soon(upgrade.abort)

    def _on_upgraded(self, upgrade: "WebSocket", is_link: bool) -> None:
        self._upgrades.discard(upgrade)
        if not is_link:
            self._forget(upgrade.link)
            self._half_open.discard(upgrade.link)
            self._leave()

    def _on_lost(self, link: Link) -> None:
        self._forget(link)
        self._links.discard(link)
        self._certificates.pop(link, None)
        self._half_open.discard(link)
        self._leave()

    def _begin_handshake(self, accepted: socket.socket, peername: object) -> None:
        if not self._admit():
            accepted.close()
            return
        address = format_address(peername)
        if self._proxies is not None and not self._proxies.trusts(peername):
            _log.warning(
                "%s: connection from %s closed: it is no trusted proxy (proxy_protocol.trusted)",
                self.name,
                address,
                extra=self._about(address),
            )
            accepted.close()
            self._leave()
            return
        link = self._link()
        link.address = address
        if self._proxies is None and self._is_limited(link):
            accepted.close()
            self._leave()
            return
        protocol = self._spoken_to(link)
        task = self._await(link, protocol, accepted, self._handshake(link, protocol, accepted))

        def close() -> None:
            if protocol.made:
                protocol.abort()
            else:
                task.cancel()

        self._half_open.add(link, close, self._loop.time())
        task.add_done_callback(lambda _task: None if protocol.made else self._half_open.discard(link))

    def _await(
        self, link: Link, protocol: "Link | WebSocket", accepted: socket.socket, handshake: Coroutine[None, None, None]
    ) -> "asyncio.Task[None]":
        """Run the handshake of a connection, and clean up if it fails."""
        task = self._loop.create_task(handshake)
        self._handshakes.add(task)

        def end(task: "asyncio.Task[None]") -> None:
            self._handshakes.discard(task)
            if not protocol.made:
                accepted.close()
                self._forget(link)
                self._leave()
            elif task.cancelled():  # cancelled just as the handshake ended
                protocol.abort()
                self._loop.call_soon(note_loss)

        def note_loss() -> None:
            """uvloop closes the transport of a connection with an unfinished handshake without a notification."""
            if not protocol.gone:
                protocol.connection_lost(None)

        task.add_done_callback(end)
        return task

    async def _handshake(self, link: Link, protocol: "Link | WebSocket", accepted: socket.socket) -> None:
        tls = Handshake(accepted)
        try:
            if self._proxies is not None:
                await self._ask_proxy(link, accepted)
            if self._tls:
                await self._await_turn(accepted)
            await self._loop.connect_accepted_socket(
                lambda: cast(asyncio.BaseProtocol, protocol), accepted, **self._tls
            )
            if not protocol.made:
                raise ConnectionResetError("the client closed the connection")
        except BadHeader as error:
            self.failed_handshakes += 1
            _log.warning("%s: proxy at %s refused: %s", self.name, link.address, error, extra=self._about(link.address))
        except OSError as error:
            self.failed_handshakes += 1
            _log.warning(
                "%s: TLS handshake with %s failed: %s",
                self.name,
                link.address,
                explain_handshake(error),
                extra=self._about(link.address),
            )
            error.__traceback__ = None  # in asyncio it refers to the error, and keeps the link alive
            await tls.part(LINGER_S)

    def _about(self, address: str) -> dict[str, dict[str, object]]:
        """The fields for a log record, as its `extra`, before there is a connection."""
        return {"fields": {"peer": address, "listener": self.name}}

    async def _await_turn(self, accepted: socket.socket) -> None:
        """Wait for the client's first bytes, then for a turn of the loop. Raises `TimeoutError` if no bytes arrive."""
        try:
            async with asyncio.timeout(self._handshake_timeout_s):
                await readable(accepted)
        except TimeoutError:
            raise TimeoutError(f"the client said nothing for {self._handshake_timeout_s:g} s") from None
        await self._turns.turn()

    async def _ask_proxy(self, link: Link, accepted: socket.socket) -> None:
        """Read the client's address and TLS from a trusted proxy's header. Raises `BadHeader`."""
        try:
            async with asyncio.timeout(self._handshake_timeout_s):
                origin = await read_header(accepted)
        except TimeoutError:
            raise BadHeader(f"no whole PROXY header within {self._handshake_timeout_s:g} s") from None
        except ConnectionError as error:
            raise error if isinstance(error, BadHeader) else BadHeader(str(error)) from None
        link.address, link.proxied_tls = origin.address or link.address, origin.tls


class _Closed(asyncio.Protocol):
    """Closes a connection for which there is no room."""

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
    "EXCESSIVE_MESSAGE_SIZE": "the client's certificates have more than 100 KiB, which OpenSSL refuses",
    "SSLV3_ALERT_ILLEGAL_PARAMETER": "the client refused what we sent; has cert_file more than 100 KiB?",
    "UNSUPPORTED_PROTOCOL": "the client offers only TLS versions that are too old",
}

_REJECTIONS: Final = {
    9: "the client's certificate is not valid yet; is this machine's clock right?",
    10: "the client's certificate has expired; renew it",
    12: "the list of revoked certificates is out of date; make a new one (crl_file)",
    3: "no list of revoked certificates of the client's authority is there (crl_file)",
    23: "the client's certificate is revoked (crl_file)",
}
"""OpenSSL's error codes for a client's certificate."""


def explain_handshake(error: OSError) -> str:
    """Why a handshake failed, in plain words if the TLS library's are unclear."""
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _REJECTIONS:
        return f"{_REJECTIONS[error.verify_code]} ({error.verify_message})"
    if isinstance(error, ssl.SSLError) and error.reason in _EXPLANATIONS:
        return f"{_EXPLANATIONS[error.reason]} ({error.reason})"
    if isinstance(error, ConnectionResetError) and not error.args:  # asyncio raises this when a client just leaves
        return "the client hung up; does it trust our certificate's CA, and did it dial a name in the certificate?"
    return str(error) or type(error).__name__
