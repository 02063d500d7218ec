"""Serves an ASGI application in the broker's event loop, with uvicorn's protocols on our own sockets.

uvicorn's own server would handle signals and poll. Requests begin in turn (`request_turns`), and too many of strangers
are refused (`strangers`). Invariant: a client that is slow, silent or sends too much costs bounded memory for a bounded
time: there are at most `max_connections`, a request must arrive within `request_timeout_s`, its head has at most
`MAX_HEAD_BYTES`, at most `MAX_PIPELINED` wait behind it, and a client that does not read is cut off after `UNREAD_S`.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from email.utils import formatdate
from functools import partial
from typing import Any, Final, cast

import uvicorn.lifespan.off  # noqa: F401 - `Config.load` imports it by name, in the loop's thread
from starlette.responses import Response
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from uvicorn.server import ServerState

from mqttlite.config.http import HttpOptions
from mqttlite.gateway.bodies import App
from mqttlite.gateway.counters import NO_REQUEST, HttpCounters
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.request_turns import RequestTurns
from mqttlite.gateway.strangers import Strangers
from mqttlite.gateway.waker import Waker
from mqttlite.net.acceptor import Acceptor
from mqttlite.net.endpoints import TcpEndpoint, UnixEndpoint
from mqttlite.net.handshake_turns import HandshakeTurns, readable

MAX_HEAD_BYTES: Final = 16_384
"""Of a request's line and headers: twice what other servers allow, for tokens may have 8 KB."""

MAX_PIPELINED: Final = 16
"""Requests of a connection that wait for the answer to the one before, some 3 KB each. Browsers and libraries send
none; a chunk has room for thousands."""

UNREAD_S: Final = 60.0
"""How long a client may take nothing of what waits for it before it is cut off."""

LINGER_S: Final = 1.0
"""How long a refused client is still read, unless it closes before: TCP takes an answer back that is sent to a client
whose bytes nobody reads."""

AF_UNIX: Final[int | None] = getattr(socket, "AF_UNIX", None)

WRITE_BUFFER_BYTES: Final = 65_536
"""Bytes that may wait in a socket before its route waits too."""

MAX_SOCKET_MESSAGE_BYTES: Final = 1_048_576
"""Of a WebSocket message in JSON."""

PING_S: Final = 30.0
"""How often a WebSocket is asked whether it is still there; without an answer for as long it is dead."""

MAX_HANDSHAKES: Final = 1_000
"""TLS handshakes at once: some 50 MB; one more is closed at once."""

EMPTIED_POLL_S: Final = 0.02
"""How often a server that stops looks whether its last connection is gone."""

_log = logging.getLogger("mqttlite.gateway")
_protocol_log = logging.getLogger("mqttlite.gateway.protocol")
_protocol_log.setLevel(logging.ERROR)  # what strangers send wrong is no line in the log


class _State(ServerState):
    """State that the connections share. The date of answers is made when one is sent, at most once a second."""

    def __init__(
        self,
        options: HttpOptions,
        counters: HttpCounters,
        state_of: Callable[[ssl.SSLObject], dict[str, Any]],
        strangers: Strangers,
        head_bytes: int,
        for_operators: bool,
        answer_to: Callable[[Problem], Response],
    ) -> None:
        super().__init__()
        self.connections: Any = _Connections()
        self.head_bytes: Final = head_bytes
        self.for_operators: Final = for_operators
        self.answer_to: Final = answer_to
        self.turns: Final = RequestTurns()
        self.strangers: Final = strangers
        self.state_of: Final = state_of
        self.options: Final = options
        self.counters: Final = counters
        self.turned_away: int = 0
        self._dated_at = -1.0
        self._headers: list[tuple[bytes, bytes]] = []

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        now = asyncio.get_running_loop().time()
        if now - self._dated_at >= 1.0:
            self._dated_at = now
            self._headers = [(b"date", formatdate(usegmt=True).encode())]
        return self._headers

    @default_headers.setter
    def default_headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        pass  # uvicorn begins with an empty list


class _Connections(dict[Any, None]):
    """Connections, in the order in which they came; to uvicorn's protocols it is a set."""

    __slots__ = ()

    def add(self, connection: Any) -> None:
        self[connection] = None

    def discard(self, connection: Any) -> None:
        self.pop(connection, None)

    def remove(self, connection: Any) -> None:
        del self[connection]


class _Pipeline(list[Any]):
    """Requests that wait for the answer to the one before. Nearly always empty, where a deque takes 600 bytes."""

    __slots__ = ()

    def appendleft(self, request: Any) -> None:
        self.insert(0, request)


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's, with limits on time and size."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        assert isinstance(server_state, _State)
        self.state: Final = server_state
        self.logger: logging.Logger = _protocol_log
        self.access_log = False
        self.pipeline: Any = _Pipeline()
        self._arrival: asyncio.TimerHandle | None = None
        """Ends a connection whose request does not come."""
        self._unread: asyncio.TimerHandle | None = None
        """Ends one that takes nothing."""
        self._lingering: asyncio.TimerHandle | None = None
        """Ends one that was refused."""
        self._in_head = True
        self._head_bytes = 0
        self._hosts = 0
        self._fault = "this is no HTTP request"
        """The version and the target, which the parser does not give."""
        self.answering: RequestResponseCycle | None = None
        """The request whose answer is being made; those behind it wait."""
        self._is_whole = False
        """Whether what was read last ended with the end of a request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self.app_state: dict[str, Any] = self.state.state_of(tls)
        transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)
        if len(self.connections) > self.state.options.max_connections and not self._replaces_another():
            self.state.turned_away += 1
            if self.state.turned_away & (self.state.turned_away - 1) == 0:  # the 1st, 2nd, 4th, 8th …
                _log.warning(
                    "%d HTTP connections are the limit (http.max_connections); turned away so far: %d",
                    *(self.state.options.max_connections, self.state.turned_away),
                )
            transport.abort()
            return
        kernel = transport.get_extra_info("socket")
        if kernel is not None and kernel.family != AF_UNIX and hasattr(socket, "TCP_USER_TIMEOUT"):
            kernel.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD_S * 1_000))
        self._await_request()

    def _replaces_another(self) -> bool:
        """Close another connection in favour of this one, where operators are served: the oldest that waits for no
        answer, or the oldest of all. Programs that say nothing then keep no operator out."""
        if self.state.for_operators:
            others = [each for each in self.state.connections if each is not self]
            next((each for each in others if each.is_idle), others[0]).transport.abort()
        return self.state.for_operators

    @property
    def is_idle(self) -> bool:
        """Whether no answer is being made."""
        return self.cycle is None or self.cycle.response_complete

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer a request before the connection is closed, where operators are served: their programs may shut down
        their sending side after it. Elsewhere a client that ends is no longer worked for."""
        is_answered = not self._is_whole or self.is_idle or not self.state.for_operators
        if not is_answered:
            self.cycle.keep_alive = False
        return not is_answered

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timers()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._let_go()

    def data_received(self, data: bytes) -> None:
        self._is_whole = False
        self.state.counters.received_bytes += len(data)
        if self._lingering is not None:
            return
        super().data_received(data)
        if self._is_whole or self._lingering is not None:
            return
        if self._arrival is None:
            self._await_request()
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self.state.head_bytes and not self.transport.is_closing():
                self._refuse(_too_long(self.state.head_bytes))

    def on_message_begin(self) -> None:
        self._in_head = True
        self._is_whole = False
        self._head_bytes = self._hosts = 0
        super().on_message_begin()
        self.scope["state"]["connection"] = self

    def on_url(self, url: bytes) -> None:
        self._charge_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._charge_head(len(name) + len(value))
        if len(name) == 4 and name.lower() == b"host":
            self._hosts += 1
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._is_whole = False
        self._head_bytes = 0
        if self._hosts != 1 and (self._hosts or self.parser.get_http_version() != "1.0"):
            self._fault = "a request has one header Host"
            raise ValueError(self._fault)
        if not self.url.startswith((b"/", b"*")) and not self._names_its_host():
            self._fault = "the request's target names another host than its header Host"
            raise ValueError(self._fault)
        if len(self.pipeline) >= MAX_PIPELINED:
            self._fault = f"more than {MAX_PIPELINED} requests wait for the answer to the one before"
            raise ValueError(self._fault)
        super().on_headers_complete()
        if self.cycle is not None and not self.cycle.message_event.is_set():
            self.cycle.message_event = cast(Any, Waker())  # its task has not begun

    def _names_its_host(self) -> bool:
        """Whether a target in the form of a whole address is of the host of the header, by which callers are judged."""
        host = self.url.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0]
        return dict(self.headers).get(b"host", b"").lower() == host.lower()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self.answering = cycle
        is_known = self.state.strangers.is_known(cast(Any, cycle.scope))
        if is_known or not self._refuses_stranger(cycle.scope):
            self.state.turns.start(partial(self._begin, cycle, app), is_known)

    def _refuses_stranger(self, scope: Any) -> bool:
        """Refuse the request of a stranger where there are too many; whether it was."""
        refusal = self.state.strangers.refusal(scope, self.state.turns.strangers)
        if refusal is not None:
            self._refuse(refusal)
        return refusal is not None

    def _begin(self, cycle: RequestResponseCycle, app: Any) -> None:
        """The turn of a request has come."""
        if not cycle.disconnected:
            super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        assert self.answering is not None, "that was answered"
        self.state.strangers.note(cast(Any, self.answering.scope))
        super().on_response_complete()

    def on_message_complete(self) -> None:
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None
        self._in_head = True
        self._is_whole = True
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        self._cancel_timers()
        found = dict(self.headers)
        if self.scope["method"] != "GET" or len(found.get(b"sec-websocket-key", b"")) != 24:
            self._refuse(Problem(Code.BAD_REQUEST, "a WebSocket begins with GET and a Sec-WebSocket-Key of 16 bytes"))
            return
        if not self.state.strangers.is_known(cast(Any, self.scope)):
            if self._refuses_stranger(self.scope):
                return
            self.state.strangers.note(cast(Any, self.scope))
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        if self._head_bytes > self.state.head_bytes:
            self._refuse(_too_long(self.state.head_bytes))
        else:
            self._refuse(Problem(Code.BAD_REQUEST, self._fault))

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(UNREAD_S, self._on_unread)

    def _on_unread(self) -> None:
        self._unread = None
        self.state.counters.slow_readers_cut += 1
        self.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def hand_over(self, protocol: asyncio.BaseProtocol) -> bool:
        """Let another protocol have the connection in the middle of an answer, which ends for the application here;
        whether writing is paused. Nothing is held any more of what the request was."""
        self._cancel_timers()
        self.connections.discard(self)
        assert self.answering is not None, "it answers"
        self.answering.disconnected = True
        self.flow.resume_reading()
        self.transport.set_protocol(protocol)
        self._let_go()
        return self.flow.write_paused

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def _await_request(self) -> None:
        self._arrival = self.loop.call_later(self.state.options.request_timeout_s, self._on_late)

    def _on_late(self) -> None:
        self._arrival = None
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()
        else:
            self._refuse(
                Problem(
                    Code.REQUEST_TIMEOUT,
                    f"the request did not arrive within {self.state.options.request_timeout_s:g} s "
                    "(http.request_timeout_s)",
                )
            )

    def _charge_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self.state.head_bytes:
            raise ValueError("the head is too long")  # the parser makes an error of it, and that a response

    def _let_go(self) -> None:
        """Forget what knows this object: no garbage collector looks for circles that are old."""
        self.pipeline.clear()
        for name in ("parser", "scope", "headers", "cycle", "answering", "transport"):
            setattr(self, name, None)

    def _refuse(self, problem: Problem) -> None:
        """Answer without the application, and close as soon as the client has, or after `LINGER_S`."""
        if self.transport.is_closing() or self._lingering is not None:
            return
        answer = self.state.answer_to(problem)
        self.state.counters.requests[NO_REQUEST, problem.status_code] += 1
        headers = b"".join(b"%s: %s\r\n" % header for header in self.server_state.default_headers)
        headers += b"".join(b"%s: %s\r\n" % header for header in answer.raw_headers)
        status = STATUS_LINE[problem.status_code]
        self.transport.write(b"%s%sconnection: close\r\n\r\n%s" % (status, headers, bytes(answer.body)))
        if self.transport.can_write_eof():
            try:
                self.transport.write_eof()
            except OSError:  # the client reset the connection, and the loop has not noticed yet
                self.transport.abort()
        for cycle in (self.cycle, self.answering):
            if cycle is not None:
                cycle.disconnected = True
                cycle.message_event.set()
        self._cancel_timers()
        self._lingering = self.loop.call_later(LINGER_S, self.transport.close)

    def _cancel_timers(self) -> None:
        for timer in (self._arrival, self._unread, self._lingering):
            if timer is not None:
                timer.cancel()
        self._arrival = self._unread = self._lingering = None


def _too_long(most: int) -> Problem:
    return Problem(Code.HEADERS_TOO_LARGE, f"the request's line and headers have {most} bytes at most")


class SocketProtocol(WSProtocol):
    """uvicorn's WebSocket, quiet."""

    is_idle: Final = False

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        assert isinstance(server_state, _State)
        self.counters: Final = server_state.counters
        self.logger: logging.Logger = _protocol_log

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        self.counters.received_bytes += len(data)
        super().data_received(data)


class HttpServer:
    """One for each listener. `context` is the present TLS context, asked for at each handshake, and `state_of` what the
    requests of a connection with TLS have in their state. With `for_operators`, a connection too many replaces another,
    and a request is answered whose client has shut down its sending side. `answer_to` makes the answer to a problem
    before the application is reached."""

    def __init__(
        self,
        app: App,
        options: HttpOptions,
        counters: HttpCounters,
        context: Callable[[], ssl.SSLContext] | None,
        state_of: Callable[[ssl.SSLObject], dict[str, Any]],
        strangers: Strangers,
        *,
        endpoint: TcpEndpoint | UnixEndpoint,
        head_bytes: int = MAX_HEAD_BYTES,
        for_operators: bool = False,
        answer_to: Callable[[Problem], Response] = Problem.response,
    ) -> None:
        self._options: Final = options
        self._context: Final = context
        self._endpoint: Final = endpoint
        self._state: Final = _State(
            *(options, counters, state_of, strangers, head_bytes, for_operators, answer_to),
        )
        self._config: Final = Config(
            cast(Any, app),
            http=HttpProtocol,
            ws=SocketProtocol,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=cast(int, options.keep_alive_s),
            ws_max_size=MAX_SOCKET_MESSAGE_BYTES,
            ws_ping_interval=PING_S,
            ws_ping_timeout=PING_S,
        )
        self._config.load()
        self._handshakes: Final[set[asyncio.Task[None]]] = set()
        self._turns: Final = HandshakeTurns()
        self._acceptor: Final = Acceptor(self._turns, self._begin_handshake)
        self._stopping = False

    @property
    def port(self) -> int:
        """The port asked for; once `start` has run, the real one."""
        return self._endpoint.port

    @property
    def addresses(self) -> list[str]:
        """Where it listens, as `address:port`."""
        return self._endpoint.addresses

    @property
    def open(self) -> int:
        """Connections, of which some may be idle."""
        return len(self._state.connections)

    @property
    def turned_away(self) -> int:
        """Connections for which there was no room."""
        return self._state.turned_away

    async def start(self) -> None:
        """Listen. Raises `CannotListen`."""
        if self._context is None:
            await self._endpoint.listen("http", self.protocol)
        else:
            self._acceptor.start("http", await self._endpoint.bind("http"))

    async def stop_accepting(self) -> None:
        """No new connections; idle ones end, and the others after their answer."""
        self._stopping = True
        self._acceptor.close()
        self._endpoint.close()
        handshakes = list(self._handshakes)
        for task in handshakes:
            task.cancel()
        if handshakes:
            await asyncio.wait(handshakes)
        for connection in list(self._state.connections):
            connection.shutdown()

    async def emptied(self) -> None:
        """After `stop_accepting`: wait until the last connection is gone."""
        while self._state.connections or self._state.tasks:
            await asyncio.sleep(EMPTIED_POLL_S)

    async def abort(self) -> None:
        """Close what is still open at once, and end what still answers."""
        for connection in list(self._state.connections):
            transport = connection.transport
            if transport is not None:
                transport.abort()
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _begin_handshake(self, accepted: socket.socket, _peername: object) -> None:
        """Speak TLS with a new connection, unless there are too many handshakes."""
        if self._stopping or len(self._handshakes) >= MAX_HANDSHAKES:
            accepted.close()
            return
        task = asyncio.get_running_loop().create_task(self._handshake(accepted))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _handshake(self, accepted: socket.socket) -> None:
        """The socket has no transport before its handshake: uvloop would read, and lose, the client's first bytes."""
        assert self._context is not None, "only with TLS"
        timeout_s = self._options.request_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await readable(accepted)
            await self._turns.turn()
            await asyncio.get_running_loop().connect_accepted_socket(
                self.protocol, accepted, ssl=self._context(), ssl_handshake_timeout=timeout_s
            )
        except (OSError, asyncio.CancelledError) as error:  # ssl.SSLError and TimeoutError are such errors
            error.__traceback__ = None  # in asyncio, a frame in there holds the error, and so the connection
            accepted.close()

    def protocol(self) -> HttpProtocol:
        """For a new connection."""
        return HttpProtocol(self._config, self._state, {})
