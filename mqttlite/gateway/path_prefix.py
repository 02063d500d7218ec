"""Serves the application below the path of a reverse proxy, such as `/mqtt`.

The prefix is `http.root_path`, or for a request of a trusted proxy what a header says. Routes see paths without it:
it is taken off here where the proxy has not done that. Invariant: a prefix is a plain path, so that no address made
of it leads to another site.
"""

from collections.abc import Mapping
from typing import Final

from mqttlite.config.http import OWN_PATHS, HttpOptions, is_prefix
from mqttlite.gateway.bodies import Message, Scope, Send
from mqttlite.gateway.problems import Code, Problem
from mqttlite.net.proxy_protocol import Proxies, ProxyOptions

INGRESS: Final = b"x-ingress-path"
"""Home Assistant's. It shows pages in a frame of its own page, which is of the same site."""

HEADERS: Final = (b"x-forwarded-prefix", INGRESS)
"""Proxies that send them have mostly taken the prefix off the path."""


class PathPrefix:
    """That of one gateway."""

    def __init__(self, options: HttpOptions) -> None:
        self._own: Final = options.root_path
        self._proxies: Final = Proxies(ProxyOptions(trusted=options.trusted_proxies))
        self._has_proxies: Final = bool(options.trusted_proxies)

    def enter(self, scope: Scope, send: Send) -> Send:
        """Set `root_path` of a request and take it off its path. `send` adds it to `Location`. Raises `Problem`."""
        header, prefix = self._told(scope) if self._has_proxies else (b"", "")
        prefix = prefix or self._own
        if not prefix:
            return send
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        if raw == prefix.encode():
            scope["path"], scope["raw_path"] = "/", b"/"
        elif raw.startswith(f"{prefix}/".encode()) and prefix.split("/")[1] not in OWN_PATHS:
            scope["path"], scope["raw_path"] = scope["path"][len(prefix) :], raw[len(prefix) :]
        scope["root_path"] = prefix
        return _relocated(send, prefix.encode(), is_framed=header == INGRESS)

    def _told(self, scope: Scope) -> tuple[bytes, str]:
        """The prefix that a trusted proxy says, and its header; empty if none does. Raises `Problem`."""
        for name, value in scope["headers"]:
            if name in HEADERS and self._proxies.trusts(scope["client"]):
                prefix: str = value.decode("latin-1").removesuffix("/")
                if not is_prefix(prefix):
                    raise Problem(Code.BAD_REQUEST, f"the header {name.decode()} is not a path such as /mqtt")
                if prefix:
                    return name, prefix
        return b"", ""


def root_of(scope: Mapping[str, object]) -> str:
    """The path before the gateway's addresses, for the sender of a request."""
    return str(scope.get("root_path", ""))


def _relocated(send: Send, prefix: bytes, *, is_framed: bool) -> Send:
    """Wrap `send` for answers whose `Location` is an address of the gateway. Pages of its site may frame its own if it
    `is_framed`."""

    def changed(name: bytes, value: bytes) -> bytes:
        if name == b"location":
            return prefix + value if value.startswith(b"/") else value
        if is_framed and name == b"x-frame-options":
            return b"SAMEORIGIN"
        if is_framed and name == b"content-security-policy":
            return value.replace(b"frame-ancestors 'none'", b"frame-ancestors 'self'")
        return value

    async def send_relocated(message: Message) -> None:
        if message["type"].endswith("response.start"):
            headers = [(name, changed(name.lower(), value)) for name, value in message.get("headers", ())]
            message = {**message, "headers": headers}
        await send(message)

    return send_relocated
