"""Options of the HTTP gateway: its address, its logins and roles, and limits of requests.

The gateway itself needs the extra `gateway`; this module does not. Invariant: an origin is written as a browser
writes it, so that it can be compared as text.
"""

import math
import re
from typing import Final, Literal

import msgspec

from mqttlite.config.login_methods import LoginMethod
from mqttlite.config.mount_points import check_mount_point
from mqttlite.net.proxy_protocol import check_networks
from mqttlite.security.identity import IdentitySource
from mqttlite.security.tls import TlsOptions

RoleName = Literal["user", "viewer", "operator", "admin"]
"""The roles in ascending order: use topics as the rules allow, view, act, change."""

MAX_ORIGINS: Final = 100
"""The most web sites whose pages may use the gateway; checked for each request of a page."""

MAX_BODY_BYTES: Final = 268_435_455
"""The largest body that can be allowed: the largest payload of MQTT."""

OWN_PATHS: Final = frozenset({"api", "docs", "events", "openapi.json", "registry", "topics", "ui", "v1", "ws"})
"""The first levels of the gateway's own paths, which a `root_path` may not begin with: of a request it would not be
known whether the proxy has taken the prefix off."""

MAX_PREFIX: Final = 200
"""Characters of a path prefix. Those of Home Assistant have some 70."""

_PREFIX: Final = re.compile(r"(/(?!\.\.?(/|$))[A-Za-z0-9._~-]+)*")
"""A path that needs no escape in any address, header or page."""

_ORIGIN: Final = re.compile(r"https?://[a-z0-9.\-\[\]:_]+")


class HttpOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where topics, clients and the rest are served over HTTP. Needs the extra `gateway`."""

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = 8080
    """The port. 0: the system chooses."""
    tls: TlsOptions | None = None
    """TLS options. Absent: no TLS."""
    allow_anonymous: bool | None = None
    """Whether requests without credentials are accepted. Absent: as for MQTT."""
    anonymous_role: RoleName | None = None
    """The role of requests without credentials. Absent: `viewer` if the gateway listens only on this machine and there
    is no mount point, else `user`."""
    authentication: tuple[LoginMethod, ...] | None = None
    """Login methods in addition to API keys, like `authentication` of a listener. Absent: all configured methods except
    `"certificate"`."""
    identity_from: IdentitySource = "cn"
    """Which name in a client certificate is the user."""
    roles: dict[Literal["viewer", "operator", "admin"], tuple[str, ...]] = {}
    """The users of each role. All other authenticated callers have the role `user`."""
    mount_point: str | None = None
    """The prefix of all topics of callers, like `mount_point` of a listener. Required if a listener has one; `""` means
    none."""
    topic_creation: RoleName = "user"
    """The least role that may create topics. The creator owns a topic, and may restrict others."""
    api_key_file: str | None = None
    """The API keys, as written by `mqttlite token`. Absent: `api-keys.json` in the data directory."""
    allowed_origins: tuple[str, ...] = ()
    """Web sites whose pages may use the gateway, for example `https://app.example` (CORS). Its own pages always may."""
    root_path: str = ""
    """The path of a reverse proxy below which it serves the gateway, for example `/mqtt`: links, redirects and cookies
    begin with it. The proxy may take it off the paths of requests, or leave it."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies that say such a path in the header `X-Forwarded-Prefix`, or Home Assistant's
    `X-Ingress-Path`. Of others these headers are ignored."""
    max_connections: int = 20_000
    """The most connections. One more is closed at once. A page that subscribes holds one."""
    request_timeout_s: float = 10.0
    """The time limit for a request to arrive, and for a TLS handshake."""
    keep_alive_s: float = 75.0
    """How long a connection may be idle between two requests."""
    max_body_bytes: int = 4_194_304
    """The largest request body. A larger one is refused with 413."""
    requests_per_s: float = 200.0
    """The most requests a second of each caller, and as many at once. Published messages count in `quotas` instead. 0:
    no limit."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ValueError(f"port is {self.port}: it may be 0 to 65535")
        check_mount_point(self.mount_point or "")
        if self.max_connections < 1:
            raise ValueError(f"max_connections is {self.max_connections}: 1 at least")
        for name in ("request_timeout_s", "keep_alive_s"):
            if not 0.001 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name):g}: 0.001 at least, and finite")
        if not 1 <= self.max_body_bytes <= MAX_BODY_BYTES:
            raise ValueError(f"max_body_bytes is {self.max_body_bytes}: it may be 1 to {MAX_BODY_BYTES}")
        if not 0 <= self.requests_per_s < math.inf:
            raise ValueError(f"requests_per_s is {self.requests_per_s:g}: 0 at least, and finite")
        if len(self.allowed_origins) > MAX_ORIGINS:
            raise ValueError(f"allowed_origins has {len(self.allowed_origins)} sites: {MAX_ORIGINS} at most")
        for origin in self.allowed_origins:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"allowed_origins has {origin!r}: write a scheme and a host in lower case, and no path, such as "
                    "https://app.example"
                )
        if not is_prefix(self.root_path):
            raise ValueError(f"root_path is {self.root_path!r}: write a path such as /mqtt, with no slash at its end")
        if self.root_path.partition("/")[2].partition("/")[0] in OWN_PATHS:
            raise ValueError(f"root_path is {self.root_path!r}: the gateway has paths of its own that begin so")
        check_networks("trusted_proxies", self.trusted_proxies)
        seen: dict[str, str] = {}
        for role, users in self.roles.items():
            for user in users:
                if seen.setdefault(user, role) != role:
                    raise ValueError(f"roles has {user!r} as {seen[user]} and as {role}: one of both")

    def role_of(self, username: str | None) -> RoleName:
        """The role of a user who logged in."""
        for role, users in self.roles.items():
            if username in users:
                return role
        return "user"


def is_prefix(path: str) -> bool:
    """Whether a path may stand before all addresses of the gateway; an empty one does."""
    return len(path) <= MAX_PREFIX and _PREFIX.fullmatch(path) is not None
