"""The target of a queue's push: its options, and the syntax check of its URL.

`guard` decides whether a URL is allowed. Invariant: requests are built from the parts of a `Target`; nothing parses the
URL again.
"""

import base64
import binascii
import re
import secrets
from typing import Final, NamedTuple

import msgspec

from mqttlite.extensions.queues.push_addresses import Address, parse_address

MAX_URL: Final = 2_048
"""The longest URL. Servers refuse longer ones."""

MAX_REQUESTS: Final = 1_000
"""The most open requests of one queue. Each is a socket."""

SECRET_PREFIX: Final = "whsec_"
MIN_SECRET_BYTES: Final = 24
MAX_SECRET_BYTES: Final = 64
"""The limit of Standard Webhooks."""

_NEW_SECRET_BYTES: Final = 32

_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[^:\[\]]*)(?::(\d{0,6}))?")
_REST: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*")
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"\d+|0x[0-9a-f]*")
_PORTS: Final = {"http": 80, "https": 443}


class Target(NamedTuple):
    """A parsed URL. `host` is a name in lower case or an address without brackets; `path` begins with a slash."""

    scheme: str
    host: str
    port: int
    path: str
    address: Address | None
    """The host as an address; None if it is a name."""

    @property
    def url(self) -> str:
        """The URL of requests."""
        return f"{self.origin}{self.path}"

    @property
    def origin(self) -> str:
        """Scheme, host and port, without what may be secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}"


def parse_url(url: str) -> Target:
    """Parse a URL. Raises `ValueError` with the reason.

    Stricter than browsers: refuses everything that two programs could parse differently.
    """
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("has a character that is no visible ASCII; write names in their xn-- form, and others as %XX")
    if len(url) > MAX_URL:
        raise ValueError(f"has {len(url)} characters: {MAX_URL} at most")
    scheme, separator, behind = url.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in _PORTS:
        raise ValueError("does not begin with https://")
    end = re.search(r"[/?#\\]", behind)
    authority, rest = (behind, "") if end is None else (behind[: end.start()], behind[end.start() :])
    if "@" in authority:
        raise ValueError("has a user before the host: the endpoint knows its requests by their signature")
    if "\\" in rest or "#" in rest or not _REST.fullmatch(rest):
        raise ValueError("has a character behind the host that a URL of a request has not; write it as %XX")
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        raise ValueError("has no host that can be read")
    port = int(found[2]) if found[2] else _PORTS[scheme]
    if not 1 <= port <= 65_535:
        raise ValueError(f"has the port {port}: it may be 1 to 65535")
    host, address = _host(found[1].lower())
    return Target(scheme, host, port, rest if rest.startswith("/") else f"/{rest}", address)


def _host(host: str) -> tuple[str, Address | None]:
    """The host without brackets, and its address if it is one. Raises `ValueError`."""
    if host.startswith("["):
        address = parse_address(host[1:-1])
        if address is None or address.version == 4:
            raise ValueError("has brackets around what is no IPv6 address")
        return str(address), address
    labels = host.split(".")
    if not host or host.endswith("."):
        raise ValueError("has no host" if not host else "has a host that ends with a dot: leave it out")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("has a host that is no name: it has letters, digits and hyphens between its dots")
    if _NUMBER.fullmatch(labels[-1]):  # some programs read this as an IPv4 address, others do not
        address = parse_address(host)
        if address is None or str(address) != host:
            raise ValueError("has an address in an unusual form: write four decimal numbers, as in 192.0.2.7")
        return host, address
    return host, None


class PushTarget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The endpoint to which the messages of one queue are pushed."""

    url: str
    """The URL that each message is POSTed to."""
    secret: str = ""
    """Signs the requests as in Standard Webhooks: `whsec_` and 24 to 64 bytes in base64."""
    previous_secret: str = ""
    """A second signing secret, for the time in which the receiver changes secrets."""
    max_requests: int = 100
    """The most open requests. The actual number adapts to the success of requests."""
    wrapper: bool = True
    """Whether a body is Google's JSON envelope. If not, it is only the payload."""

    def __post_init__(self) -> None:
        try:
            parse_url(self.url)
        except ValueError as error:
            raise ValueError(f"push.url is {shown_url(self.url)!r}: it {error}") from None
        for name in ("secret", "previous_secret"):
            text = getattr(self, name)
            if text and secret_bytes(text) is None:
                raise ValueError(
                    f"push.{name} is no secret: {SECRET_PREFIX} and {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes in "
                    "base64"
                )
        if self.previous_secret and not self.secret:
            raise ValueError("push.previous_secret is given without push.secret")
        if not 1 <= self.max_requests <= MAX_REQUESTS:
            raise ValueError(f"push.max_requests is {self.max_requests}: it may be 1 to {MAX_REQUESTS}")

    @property
    def target(self) -> Target:
        """The parsed URL."""
        return parse_url(self.url)

    def __repr__(self) -> str:
        return f"PushTarget({shown_url(self.url)!r})"


def shown_url(url: str) -> str:
    """A URL for logs and errors: shortened, and without the query, which may be secret."""
    return url.partition("?")[0][:200]


def secret_bytes(text: str) -> bytes | None:
    """The key in a secret; None for an invalid text."""
    if not text.startswith(SECRET_PREFIX):
        return None
    try:
        key = base64.b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES else None


def new_secret() -> str:
    """A new random secret."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_NEW_SECRET_BYTES)).decode()
