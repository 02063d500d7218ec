"""A small HTTP/1.1 client for one URL: POSTs a JSON document over kept-alive connections, and returns status and body.

`http_authenticator` builds the requests and interprets the answers. Redirects are not followed. Invariant: a connection
is kept only after its answer was read completely.
"""

import asyncio
import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import h11

from mqttlite.security.one_line import one_line

MAX_RESPONSE_BYTES: Final = 65_536
"""The longest answer. Real ones take some kilobytes; a longer one is a mistake or an attack."""

MAX_INTERIM: Final = 10
"""Answers that do not end a request (1xx). A server may send any number, and each takes time."""

MAX_PIECES: Final = 1_000
"""Pieces of an answer: its head and its chunks. A body of 64 KB in chunks of a byte each takes seconds to read."""

PIECES_AT_ONCE: Final = 20
"""Pieces that are read before others have their turn: about a millisecond. Of all connections, one has a turn in an
iteration of the event loop."""

_READ_BYTES: Final = 16_384


class HttpFailed(Exception):
    """There is no usable answer; the text says why."""


@dataclass(frozen=True, slots=True)
class Url:
    """The URL to POST to. `target` is the path with its query."""

    host: str
    port: int
    target: str
    is_https: bool

    @classmethod
    def parse(cls, text: str) -> "Url":
        """Parse a URL. Raises `ValueError` with the reason."""
        if not text.isascii() or not text.isprintable() or " " in text:
            raise ValueError("it has characters that a URL cannot have")
        parts = urlsplit(text)
        if parts.scheme not in ("http", "https"):
            raise ValueError("it has to begin with https:// or http://")
        if not parts.hostname:
            raise ValueError("it names no host")
        if parts.username is not None or parts.password is not None:
            raise ValueError("it may not have a user name or password")
        if parts.fragment:
            raise ValueError("it may not have a fragment (#…)")
        is_https = parts.scheme == "https"
        port = parts.port if parts.port is not None else 443 if is_https else 80
        return cls(parts.hostname, port, f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}", is_https)

    @property
    def authority(self) -> str:
        """The value of the header `Host`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class HttpClient:
    """Keeps at most `max_kept` connections open between requests. `context` is that of TLS."""

    def __init__(self, url: Url, context: ssl.SSLContext | None, max_kept: int) -> None:
        self._url: Final = url
        self._context: Final = context
        self._max_kept: Final = max_kept
        self._kept: Final[list[_Connection]] = []
        self._turn: Final = asyncio.Lock()

    async def post(self, body: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer. Raises `HttpFailed`.

        If a kept connection turns out to be closed, the request is sent again over a new one.
        """
        while self._kept:
            connection = self._kept.pop()
            try:
                return await self._exchange(connection, body)
            except HttpFailed:
                if connection.has_answered:
                    raise
        try:
            streams = await asyncio.open_connection(self._url.host, self._url.port, ssl=self._context)
        except (OSError, UnicodeError) as error:  # UnicodeError: an impossible host name
            raise HttpFailed(f"{self._url.authority} cannot be connected to: {error}") from None
        return await self._exchange(_Connection(self._url, *streams, self._turn), body)

    async def close(self) -> None:
        """Close the connections that wait for the next request."""
        while self._kept:
            connection = self._kept.pop()
            connection.close()
            await connection.closed()

    async def _exchange(self, connection: "_Connection", body: bytes) -> tuple[int, bytes]:
        keep = False
        try:
            answer = await connection.post(body)
            keep = connection.is_reusable() and len(self._kept) < self._max_kept
            return answer
        except (OSError, h11.RemoteProtocolError) as error:
            raise HttpFailed(f"{self._url.authority} gave no answer: {one_line(str(error))}") from None
        finally:  # also when the request is cancelled
            if keep:
                self._kept.append(connection)
            else:
                connection.close()


class _Connection:
    def __init__(
        self, url: Url, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, turn: asyncio.Lock
    ) -> None:
        self._url: Final = url
        self._reader: Final = reader
        self._writer: Final = writer
        self._turn: Final = turn
        self._http: Final = h11.Connection(h11.CLIENT)
        self.has_answered = False
        """Whether the answer to the last request has begun."""

    async def post(self, body: bytes) -> tuple[int, bytes]:
        """Raises `HttpFailed`, `OSError` and `h11.RemoteProtocolError`."""
        self.has_answered = False
        headers = [
            ("Host", self._url.authority),
            ("Content-Type", "application/json"),
            ("Accept", "application/json"),
            ("Content-Length", str(len(body))),
        ]
        for part in (
            h11.Request(method="POST", target=self._url.target, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self._writer.write(self._http.send(part) or b"")
        await self._writer.drain()
        status, content, interim = 0, bytearray(), 0
        for piece in range(1, MAX_PIECES + 1):
            event = await self._next()
            if piece % PIECES_AT_ONCE == 0:
                async with self._turn:
                    await asyncio.sleep(0)
            if isinstance(event, h11.InformationalResponse):
                interim += 1
                if interim > MAX_INTERIM:
                    raise HttpFailed(f"{self._url.authority} sent more than {MAX_INTERIM} interim answers (1xx)")
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                content += event.data
                if len(content) > MAX_RESPONSE_BYTES:
                    raise HttpFailed(f"{self._url.authority} sent more than {MAX_RESPONSE_BYTES} bytes")
            elif isinstance(event, h11.EndOfMessage):
                return status, bytes(content)
            elif isinstance(event, h11.ConnectionClosed):
                raise HttpFailed(f"{self._url.authority} closed the connection")
        raise HttpFailed(f"{self._url.authority} sent its answer in more than {MAX_PIECES} pieces")

    def is_reusable(self) -> bool:
        """Whether another request may follow. Prepares the connection for it."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE or self._reader.at_eof():
            return False
        if self._http.trailing_data[0]:  # nobody asked for it, and it would answer the next request
            return False
        self._http.start_next_cycle()
        return True

    def close(self) -> None:
        self._writer.close()

    async def closed(self) -> None:
        """Wait until it is."""
        try:
            await self._writer.wait_closed()
        except OSError:  # errors no longer matter
            pass

    async def _next(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            data = await self._reader.read(_READ_BYTES)
            self.has_answered = self.has_answered or bool(data)
            self._http.receive_data(data)
        return event
