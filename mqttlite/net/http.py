"""A small HTTP server for operators and their programs: one request per connection, only GET and HEAD.

It does not know the paths and answers. Invariant: a client that is slow, breaks the protocol or asks too often costs
bounded memory and delays no other answer: there are at most `MAX_OPEN` connections, and a new one replaces the oldest.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, cast
from urllib.parse import parse_qs, unquote, urlsplit

import h11
import msgspec

from mqttlite.net.endpoints import TcpEndpoint
from mqttlite.net.link import LINGER_S

MAX_OPEN: Final = 32
"""Connections at the same time: some dashboards and scrapers. One more closes the oldest that is not being answered."""

HEAD_BYTES: Final = 8_192
"""The longest request line and headers, as in other servers."""

HEAD_S: Final = 5.0
"""How long a request may take to arrive."""

ANSWER_S: Final = 30.0
"""How long the answer may take, and how long the client may take to read it. A scraper waits ten seconds."""

MAX_PARAMETERS: Final = 16
"""The most parameters in a query. Real ones have a few."""

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"

_log = logging.getLogger("mqttlite.net")


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where metrics, health and status are served."""

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = 9883
    """The port; 0: the system chooses."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ValueError(f"port is {self.port}: it may be 0 to 65535")


@dataclass(frozen=True, slots=True)
class Request:
    """A request: its path, and the first value of each parameter of its query."""

    path: str
    query: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Response:
    """The response to a request."""

    status: int
    body: bytes
    content_type: str = TEXT


def sentence(status: int, text: str) -> Response:
    """A response of one line."""
    return Response(status, f"{text}\n".encode())


class HttpServer:
    """`answer` is called for each complete request. An exception is logged and answered with 500. `hosts` says whether
    a header `Host` is one of the server's; None: every one is."""

    def __init__(
        self,
        endpoint: TcpEndpoint,
        answer: Callable[[Request], Awaitable[Response]],
        hosts: Callable[[str], bool] | None = None,
    ) -> None:
        self._endpoint: Final = endpoint
        self._answer: Final = answer
        self._hosts: Final = hosts
        self._open: Final[dict[_Exchange, None]] = {}

    @property
    def port(self) -> int:
        """The requested port; after `start`, the real one."""
        return self._endpoint.port

    @property
    def addresses(self) -> list[str]:
        """The addresses that it listens on, as `address:port`."""
        return self._endpoint.addresses

    @property
    def open(self) -> int:
        """The number of open connections."""
        return len(self._open)

    async def start(self, name: str) -> None:
        """Bind and accept. Raises `CannotListen`, which contains `name`."""
        await self._endpoint.listen(name, self._admit)

    async def stop(self) -> None:
        """Stop to accept, and close all connections at once."""
        self._endpoint.close()
        answers = [exchange.answering for exchange in self._open if exchange.answering is not None]
        for exchange in list(self._open):
            exchange.abort()
        for answer in answers:
            answer.cancel()
        if answers:
            await asyncio.wait(answers)

    def _admit(self) -> asyncio.BaseProtocol:
        if len(self._open) >= MAX_OPEN:
            oldest = next(iter(self._open))
            idle = next((exchange for exchange in self._open if exchange.answering is None), oldest)
            del self._open[idle]
            idle.abort()
        exchange = _Exchange(self._answer, self._hosts, self._on_lost)
        self._open[exchange] = None
        return exchange

    def _on_lost(self, exchange: "_Exchange") -> None:
        self._open.pop(exchange, None)


class _Exchange(asyncio.Protocol):
    """One connection: a request, its answer, and the end."""

    def __init__(
        self,
        answer: Callable[[Request], Awaitable[Response]],
        hosts: Callable[[str], bool] | None,
        on_lost: "Callable[[_Exchange], None]",
    ) -> None:
        self._answer: Final = answer
        self._hosts: Final = hosts
        self._on_lost: Final = on_lost
        self._loop: Final = asyncio.get_running_loop()
        self._http: Final = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._heard_bytes = 0
        self._is_heard = False
        """Whether the request is complete. Later bytes are ignored."""
        self._is_answered = False
        self._is_half_closed = False
        """Whether the client closed its sending side."""
        self._wants_body = True
        self.answering: asyncio.Task[None] | None = None
        """The task that answers its request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._expire_in(HEAD_S)

    def data_received(self, data: bytes) -> None:
        if self._is_heard:
            return
        try:
            self._http.receive_data(data)
            self._heard_bytes += len(data)
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._on_head(event)
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint, f"This is not a request that is served here: {error}.")

    def _on_head(self, head: h11.Request) -> None:
        if self._heard_bytes - len(self._http.trailing_data[0]) > HEAD_BYTES:  # h11 does not limit one piece
            self._refuse(431, f"The request is longer than {HEAD_BYTES} bytes.")
        elif not self._is_for_us(head):
            self._refuse(421, "This is served here as localhost only.")
        elif head.method not in (b"GET", b"HEAD"):
            self._refuse(405, "Only GET and HEAD are served here.", (b"Allow", b"GET, HEAD"))
        else:
            self._begin(head)

    def _is_for_us(self, head: h11.Request) -> bool:
        hosts = [value.decode("latin-1") for name, value in head.headers if name == b"host"]
        return self._hosts is None or not hosts or self._hosts(hosts[0])

    def _refuse(self, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
        self._is_heard = True
        self._respond(sentence(status, text), *headers)

    def eof_received(self) -> bool:
        """A client may close its sending side after its request. Before that, close the connection."""
        self._is_half_closed = True
        return self._is_heard and not self._is_answered

    def connection_lost(self, error: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self.answering is not None:
            self.answering.cancel()
        self._on_lost(self)

    def abort(self) -> None:
        """Close at once. Harmless if it is closed or not yet open."""
        if self._transport is not None:
            self._transport.abort()

    def _expire_in(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.call_later(seconds, self.abort)

    def _begin(self, head: h11.Request) -> None:
        self._is_heard = True
        self._expire_in(ANSWER_S)
        self._wants_body = head.method != b"HEAD"
        try:
            asked = _parse(head.target.decode("ascii"))
        except ValueError:
            self._refuse(400, "The URL cannot be read.")
            return
        self.answering = self._loop.create_task(self._see_to(asked))

    async def _see_to(self, request: Request) -> None:
        try:
            response = await self._answer(request)
        except Exception:
            _log.exception("%s: the answer failed", request.path)
            response = sentence(500, "The answer failed; the broker's log says why.")
        self._respond(response)
        self.answering = None

    def _respond(self, response: Response, *headers: tuple[bytes, bytes]) -> None:
        transport = self._transport
        assert transport is not None
        if transport.is_closing():
            return
        self._is_answered = True
        head = h11.Response(
            status_code=response.status,
            reason=HTTPStatus(response.status).phrase.encode(),
            headers=[
                (b"Content-Type", response.content_type.encode()),
                (b"Content-Length", b"%d" % len(response.body)),
                (b"Cache-Control", b"no-store"),
                (b"Connection", b"close"),
                *headers,
            ],
        )
        transport.write((self._http.send(head) or b"") + (response.body if self._wants_body else b""))
        if self._is_half_closed:
            transport.close()
            return
        if transport.get_write_buffer_size() == 0:
            self._expire_in(LINGER_S)
        try:
            transport.write_eof()  # closing a socket with unread bytes would reset it and lose the answer
        except OSError:  # the client reset the connection, and the loop has not noticed yet
            transport.abort()


def _parse(target: str) -> Request:
    """Parse a request's target. Raises `ValueError`, also for invalid UTF-8."""
    parts = urlsplit(target)
    found = parse_qs(parts.query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS, errors="strict")
    return Request(unquote(parts.path, errors="strict"), {name: values[0] for name, values in found.items()})
