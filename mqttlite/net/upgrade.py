"""Reads the HTTP request for a WebSocket and builds the answer: 101, or a refusal with advice.

Pure: bytes in, bytes out. `websocket` handles the frames that follow. Invariant: only a client that offers one of
`SUBPROTOCOLS`, and has no origin, our own origin, or one in the options, gets a 101.
"""

import binascii
import ipaddress
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import h11
import msgspec

HEAD_BYTES: Final = 8_192
"""The longest request with headers, as in other servers: enough for a site's cookies."""

SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")
"""The accepted subprotocols, in order of preference. A client must offer one of them [MQTT-6.0.0-3]."""

_KEY_BYTES: Final = 16

_SHOWN: Final = 200
"""The most characters of a client's text in a log line."""


class WebSocketOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The WebSocket endpoint of a listener, and the web sites that may use it."""

    path: str = "/mqtt"
    """The path of its URL. A query after it is ignored."""
    origins: tuple[str, ...] = ()
    """Web sites whose pages may connect, for example `https://app.example`, or `*` for all. Browsers send the site of a
    page; most other programs send none and are always allowed. By default only pages from the broker's own address may
    connect: otherwise any page in an employee's browser could reach a broker in the internal network."""

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or not self.path.isascii() or any(sign in self.path for sign in "?# "):
            raise ValueError(f"path is {self.path!r}: it begins with / and has no ?, # or space, such as /mqtt")
        for origin in self.origins:
            if origin not in ("*", "null") and not _is_origin(origin):
                raise ValueError(
                    f"origins has {origin!r}: an origin is like https://app.example or http://localhost:8080"
                )


def _is_origin(text: str) -> bool:
    parts = urlsplit(text)
    return bool(parts.scheme and parts.netloc) and text == f"{parts.scheme}://{parts.netloc}" and text.isascii()


class Refused(Exception):
    """The request is refused. `response` is the answer with the reason."""

    def __init__(self, status: int, sentence: str, *headers: tuple[str, str]) -> None:
        super().__init__(sentence)
        self.status: Final = status
        body = f"{sentence}\n".encode()
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            *(f"{name}: {value}" for name, value in headers),
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        self.response: Final = "\r\n".join([*lines, "", ""]).encode() + body


def upgrade(head: bytes, options: WebSocketOptions, *, secure: bool) -> bytes:
    """The response that opens the WebSocket. `secure` says that the request came over TLS. Raises `Refused`."""
    request = _parse(head)
    headers = _Headers(request.headers)
    if request.method != b"GET":
        raise Refused(405, "A WebSocket begins with GET.", ("Allow", "GET"))
    if request.target.decode("ascii").partition("?")[0] != options.path:
        raise Refused(404, f"MQTT over WebSocket is at {options.path} here.")
    if "websocket" not in headers.words("upgrade") or "upgrade" not in headers.words("connection"):
        raise Refused(426, "This is an MQTT broker; it speaks MQTT over WebSocket here.", ("Upgrade", "websocket"))
    if headers.one("sec-websocket-version") != "13":
        raise Refused(426, "The version of WebSocket spoken here is 13.", ("Sec-WebSocket-Version", "13"))
    key = headers.one("sec-websocket-key")
    if not _is_key(key):
        raise Refused(400, "Sec-WebSocket-Key is not 16 bytes in base64.")
    origin = headers.one("origin")
    if origin and not (_is_listed(origin, options) or _is_own(origin, headers.one("host"), secure)):
        shown = ascii(origin[:_SHOWN])[1:-1]
        raise Refused(403, f"Pages of {shown} may not connect; the listener's origins do not list it.")
    offered = headers.words("sec-websocket-protocol")
    for subprotocol in SUBPROTOCOLS:
        if subprotocol in offered:
            return _accept(key, subprotocol)
    raise Refused(400, "Sec-WebSocket-Protocol does not offer mqtt.")


def _parse(head: bytes) -> h11.Request:
    parser = h11.Connection(h11.SERVER)
    parser.receive_data(head)
    try:
        request = parser.next_event()
    except h11.RemoteProtocolError as error:
        error.__traceback__ = None  # break the cycle with h11's frames, which would be collected late
        raise Refused(400, f"This is not HTTP: {error}.") from None
    assert isinstance(request, h11.Request), "the head is complete"
    return request


def _accept(key: str, subprotocol: str) -> bytes:
    from wsproto.utilities import generate_accept_token  # here, for wsproto takes a while

    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {generate_accept_token(key.encode()).decode()}",
        f"Sec-WebSocket-Protocol: {subprotocol}",  # [MQTT-6.0.0-4]
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def _is_listed(origin: str, options: WebSocketOptions) -> bool:
    return "*" in options.origins or origin.lower() in map(str.lower, options.origins)


def _is_own(origin: str, host: str, secure: bool) -> bool:
    """Whether a page comes from the address that it connects to.

    A host name proves this only under TLS: without it, the owner of a name could point it to our address after the page
    has loaded.
    """
    if origin.partition("://")[2].lower() != host.lower():
        return False
    if secure or host.partition(":")[0].lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
    return True


def _is_key(key: str) -> bool:
    try:
        return len(binascii.a2b_base64(key, strict_mode=True)) == _KEY_BYTES
    except ValueError:
        return False


class _Headers:
    """Headers by name: `one` for a header that may occur once, `words` for a list header."""

    def __init__(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        self._values: Final[dict[str, list[str]]] = {}
        for name, value in pairs:
            self._values.setdefault(name.decode("ascii"), []).append(value.decode("latin-1"))

    def one(self, name: str) -> str:
        """The value; empty if absent. A repeated header is refused, because it is ambiguous."""
        values = self._values.get(name, [""])
        if len(values) > 1:
            raise Refused(400, f"The header {name} came twice.")
        return values[0]

    def words(self, name: str) -> list[str]:
        """The items of a list header, in lower case."""
        return [word.strip().lower() for value in self._values.get(name, ()) for word in value.split(",")]
