"""The options of the broker: each package's own, composed to one `Config`.

No package reads this module; `assembly` hands each its part. What contradicts itself across sections is found in
`checks`. Invariant: each option of a `Config` that was made has a value that it may have.
"""

import math
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from mqttlite.config.connects import ConnectOptions
from mqttlite.config.extensions import ExtensionOptions
from mqttlite.config.http import HttpOptions
from mqttlite.config.login_methods import LoginMethod
from mqttlite.config.metrics import MetricsOptions
from mqttlite.config.mount_points import check_mount_point
from mqttlite.config.quotas import QuotaOptions
from mqttlite.core.connect.capabilities import EVERYTHING, Capabilities
from mqttlite.core.limits import MAX_RETAINED_EXPIRIES, Limits, OverloadLimits
from mqttlite.extensions.built_in import refusal
from mqttlite.net.proxy_protocol import ProxyOptions
from mqttlite.net.upgrade import WebSocketOptions
from mqttlite.security.dynamic_security import DynamicSecurityOptions
from mqttlite.security.http_authenticator import HttpAuthOptions
from mqttlite.security.identity import IdentitySource
from mqttlite.security.jail import JailOptions
from mqttlite.security.one_line import one_line
from mqttlite.security.tls import TlsOptions
from mqttlite.security.token_options import TokenOptions
from mqttlite.security.topic_policies import TopicPolicyOptions
from mqttlite.security.verified import CACHE_S
from mqttlite.telemetry.delivery_log import DeliveryLogOptions
from mqttlite.telemetry.sys_topics import SysOptions
from mqttlite.topics.names import check_filter
from mqttlite.wire.constants import NEVER_EXPIRES
from mqttlite.wire.errors import TopicFilterInvalid

if TYPE_CHECKING or not refusal("bridge"):
    from mqttlite.extensions.bridge.options import MAX_BRIDGES, BridgeOptions
else:
    MAX_BRIDGES = 0

    class BridgeOptions(msgspec.Struct, frozen=True):
        """Stands for the options of an extension that is missing."""


if TYPE_CHECKING or not refusal("cluster"):
    from mqttlite.extensions.cluster.options import ClusterOptions as ClusterOptions
else:

    class ClusterOptions(msgspec.Struct, frozen=True):
        """Stands for the options of an extension that is missing."""


if TYPE_CHECKING or not refusal("dataset"):
    from mqttlite.extensions.dataset.options import TelemetryOptions as TelemetryOptions
else:

    class TelemetryOptions(msgspec.Struct, frozen=True):
        """Stands for the options of an extension that is missing."""


if TYPE_CHECKING or not refusal("nodes"):
    from mqttlite.extensions.nodes.options import NodesOptions as NodesOptions
else:

    class NodesOptions(msgspec.Struct, frozen=True):
        """Stands for the options of an extension that is missing."""


if TYPE_CHECKING or not refusal("push"):
    from mqttlite.extensions.push.options import PushOptions
else:

    class PushOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Stands for the options of an extension that is missing."""


if TYPE_CHECKING or not refusal("queues"):
    from mqttlite.extensions.queues.options import DeliveryOptions, QueueOptions
else:

    class QueueOptions(msgspec.Struct, frozen=True):
        """Stands for the options of an extension that is missing."""

    class DeliveryOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Stands for the options of an extension that is missing."""


if TYPE_CHECKING or not refusal("routes"):
    from mqttlite.extensions.routes.options import MAX_ROUTES, RouteOptions
else:
    MAX_ROUTES = 0

    class RouteOptions(msgspec.Struct, frozen=True):
        """Stands for the options of an extension that is missing."""


if TYPE_CHECKING or not refusal("streams"):
    from mqttlite.extensions.streams.archive_options import ArchiveOptions
    from mqttlite.extensions.streams.options import StreamOptions
else:

    class ArchiveOptions(msgspec.Struct, frozen=True):
        """Stands for the options of an extension that is missing."""

    class StreamOptions(msgspec.Struct, frozen=True):
        """Stands for the options of an extension that is missing."""


class ConfigError(ValueError):
    """A config that cannot be used: one line for each problem, with its place, the value, and what would be right."""

    def __init__(self, *problems: str) -> None:
        self.problems: Final = tuple("\n".join(map(one_line, each.split("\n"))) for each in problems)
        super().__init__("\n".join(self.problems))


MAX_SOCKET_PATH_BYTES: Final = 107
"""The longest path of a Unix socket that Linux takes."""


MIN_HALF_OPEN: Final = 64
"""The least of the default bound: as many devices may connect at once to a small listener."""

MAX_HALF_OPEN: Final = 10_000
"""The default bound on half-open connections: each costs about 50 KB in a TLS handshake, and a processor completes no
more handshakes than this within `handshake_timeout_s`."""


BESIDE_PATH: Final = "beside path: a listener has a Unix socket or a host and a port; make them two listeners"


class ListenerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to listen. Port 0 lets the system choose."""

    name: str = ""
    """Its name in log and telemetry. Empty: made from transport and port, for example `tcp-1883`."""
    host: str = "127.0.0.1"
    """The address to listen on, or a host name for all its addresses. `0.0.0.0` is every IPv4 address, `::` every IPv6
    address, `""` both."""
    port: int = 1883
    """The port. 0: the system chooses one, and the log shows it."""
    reuse_port: bool = False
    """Whether other nodes on this machine, which also say so, may listen on the same port (`SO_REUSEPORT`): the system
    gives each new connection to one of them. Requires `[nodes]`."""
    path: str | None = None
    """A Unix socket to listen on instead of `host` and `port`."""
    mode: int = 0o660
    """The permissions of the socket file, which decide who may connect."""
    tls: TlsOptions | None = None
    """TLS options. Absent: no TLS."""
    websocket: WebSocketOptions | bool = False
    """MQTT over WebSocket. `true` serves it at `/mqtt` for programs; web pages also need `origins`."""
    proxy_protocol: ProxyOptions | None = None
    """Requires the PROXY protocol: only the named proxies may connect, and send the client's address first."""
    max_connections: int = 50_000
    """The most connections. One more is closed at once. Bounds the cost of clients that only connect."""
    max_half_open: int | None = None
    """The most connections without a CONNECT yet; one more closes the oldest of them. Absent: a quarter of
    `max_connections`, at least 64 and at most 10,000."""
    handshake_timeout_s: float = 10.0
    """The time limit for each step before MQTT: a proxy's header, a TLS handshake, a WebSocket request."""
    capabilities: Capabilities = EVERYTHING
    """The MQTT features that this listener offers."""
    mount_point: str = ""
    """The prefix of all topics of its clients, ending with a slash. Clients do not see it."""
    connects: ConnectOptions | None = None
    """Limits on connecting to this listener. Absent: the global ones."""
    quotas: QuotaOptions | None = None
    """Quotas for the clients of this listener. Absent: the global ones."""
    password_file: str | None = None
    """The password file of this listener. Absent: the global one."""
    allow_anonymous: bool | None = None
    """Whether this listener also accepts clients without user name and password. Absent: the global setting."""
    authentication: tuple[LoginMethod, ...] | None = None
    """The login methods of this listener. The first method that recognises a client's credentials decides. Absent: all
    configured methods, in the order `jwt`, `password`, `http`."""
    identity_from: IdentitySource = "cn"
    """Which name in a client certificate is the client's identity."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ValueError(f"port is {self.port}: it may be 0 to 65535")
        if self.reuse_port and not self.port:
            raise ValueError("reuse_port is set and port is 0: name the port that the nodes share")
        if self.reuse_port and not hasattr(socket, "SO_REUSEPORT"):
            raise ValueError("reuse_port is set: this system gives a port to one program at a time")
        if self.path == "":
            raise ValueError("path is empty: it names the file of a Unix socket")
        if self.path is not None:
            self._check_socket(self.path)
        if not 0 <= self.mode <= 0o777:
            written = f"{self.mode} ({self.mode:#o})"
            raise ValueError(f"mode is {written}: it may be 0o000 to 0o777, and 0o660 is written with 0o")
        if self.proxy_protocol is not None and not self.proxy_protocol.trusted and self.path is None:
            raise ValueError("proxy_protocol.trusted is empty: nobody could connect")
        check_mount_point(self.mount_point)
        if self.max_connections < 1:
            raise ValueError(f"max_connections is {self.max_connections}: 1 at least")
        if self.max_half_open is not None and self.max_half_open < 1:
            raise ValueError(f"max_half_open is {self.max_half_open}: 1 at least")
        if not 0.001 <= self.handshake_timeout_s < math.inf:
            raise ValueError(f"handshake_timeout_s is {self.handshake_timeout_s:g}: 0.001 at least, and finite")

    def _check_socket(self, path: str) -> None:
        """Reject options of a port beside a path. Raises `ValueError`."""
        if len(path.encode()) > MAX_SOCKET_PATH_BYTES:
            raise ValueError(f"path is {path!r}: a Unix socket's path has {MAX_SOCKET_PATH_BYTES} bytes at most")
        default = ListenerOptions()
        for name in ("port", "host", "reuse_port"):
            value = getattr(self, name)
            if value != getattr(default, name):
                raise ValueError(f"{name} is {value!r} {BESIDE_PATH}")

    def half_open_limit(self) -> int:
        """`max_half_open`, or what stands for it where it is absent."""
        if self.max_half_open is not None:
            return self.max_half_open
        return min(max(self.max_connections // 4, MIN_HALF_OPEN), MAX_HALF_OPEN)

    def title(self) -> str:
        """Its name, or one like `tcp-1883`, `wss-8884` or `unix-mqttlite.sock` where it has none.

        Listeners on several hosts may share a title: `Config.listener_names` makes them distinct.
        """
        return self.name or f"{self.transport()}-{self.port if self.path is None else PurePath(self.path).name}"

    def place(self, number: int) -> str:
        """What it has in common with listeners of other nodes: its name, or without one its place among the listeners,
        from 1 on, and its kind."""
        return self.name or f"{number} ({self.transport()})"

    def transport(self) -> str:
        """`tcp`, `tls`, `ws`, `wss` or `unix`."""
        if self.websocket:
            return "wss" if self.tls else "ws"
        if self.path is not None:
            return "unix"
        return "tls" if self.tls else "tcp"

    def websocket_options(self) -> WebSocketOptions | None:
        """None where it speaks no WebSocket."""
        if isinstance(self.websocket, bool):
            return WebSocketOptions() if self.websocket else None
        return self.websocket


class LameDuckOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a broker that is to be replaced sends its clients away (SIGUSR1)."""

    deadline_s: float = 30.0
    """The time in which all clients are disconnected."""
    server_reference: str = ""
    """The server that 5.0 clients should use instead, for example `other.example:1883` (§4.11)."""

    def __post_init__(self) -> None:
        if not 0 <= self.deadline_s < math.inf:
            raise ValueError(f"deadline_s is {self.deadline_s:g}: 0 at least, and finite")


OWNERS: Final[Mapping[str, str]] = {
    "delivery": "queues",
    "bridges": "bridge",
    "cluster": "cluster",
    "nodes": "nodes",
    "push": "push",
    "queues": "queues",
    "queues.push": "push",
    "routes": "routes",
    "sparkplug": "sparkplug",
    "telemetry": "dataset",
    "stream_archive": "streams",
    "streams": "streams",
    "topic_policies.schema": "schemas",
    "topic_policies.schema_violation": "schemas",
    "topic_policies.presence": "presence",
}
"""The extension to which an option belongs, by path. The others belong to the broker itself."""


def refusal_of(path: str) -> str:
    """What is said about an option of a missing extension, behind its path; empty for all others."""
    return refusal(OWNERS.get(re.sub(r"\[\d+\]", "", path), ""))


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything. Without a file: MQTT on 127.0.0.1:1883."""

    listeners: tuple[ListenerOptions, ...] = (ListenerOptions(),)
    """The listeners for MQTT clients, each with its own options."""
    limits: Limits = Limits()
    """Limits for single clients, and for the whole broker."""
    overload: OverloadLimits = OverloadLimits()
    """When the broker reacts to overload."""
    connects: ConnectOptions = ConnectOptions()
    """Limits on connecting, for each listener without its own."""
    quotas: QuotaOptions = QuotaOptions()
    """Quotas for messages and queues, for listeners without their own."""
    share_policies: dict[str, Literal["round_robin", "least_inflight", "hash_topic", "hash_key", "prefer_local"]] = {}
    """How the group of a shared subscription selects a member, by group name; `"*"` is for all other groups."""
    queues: tuple[QueueOptions, ...] = ()
    """Queues (`$queue/<name>`), which deliver each message until a consumer acknowledges it."""
    delivery: DeliveryOptions = DeliveryOptions()
    """Options for all queues together."""
    streams: tuple[StreamOptions, ...] = ()
    """Streams (`$stream/<name>`), which keep what is published to their topics, for any number of readers."""
    stream_archive: ArchiveOptions | None = None
    """Where streams are archived as Parquet. Absent: they are not."""
    routes: tuple[RouteOptions, ...] = ()
    """Routes, which send messages that pass a filter to another topic, too."""
    bridges: tuple[BridgeOptions, ...] = ()
    """Bridges to other brokers."""
    push: PushOptions = PushOptions()
    """Push endpoints that are allowed in addition to HTTPS endpoints on the Internet."""
    retained_expiry_s: dict[str, int] = {}
    """The longest time that retained messages are kept, by topic filter; the most specific filter applies. 0: no
    limit."""
    newest_retained: bool = False
    """Whether bridges to other mqttlites keep the retained message that was published last, on both sides. Both need
    it."""
    telemetry: TelemetryOptions | None = None
    """The telemetry dataset. Absent: none is written."""
    delivery_log: DeliveryLogOptions | None = None
    """The delivery log: which messages `mqttlite why` can explain. Absent: none."""
    sys: SysOptions = SysOptions()
    """The broker's metrics below `$SYS`."""
    metrics: MetricsOptions | None = None
    """The HTTP port for metrics, health and status. Absent: none."""
    http: HttpOptions | None = None
    """The HTTP gateway: API, pages, publish and subscribe. Absent: none."""
    password_file: str | None = None
    """The password file, as written by `mqttlite passwd`. Absent: no passwords are checked."""
    allow_anonymous: bool = False
    """Whether clients without user name and password are also accepted."""
    password_cache_s: float = CACHE_S
    """How long a verified password is cached, which saves hashing it again. 0: it is not cached."""
    jwt: TokenOptions | None = None
    """JSON Web Tokens, which clients send as their password. Absent: not accepted."""
    http_auth: HttpAuthOptions | None = None
    """An HTTP server that decides logins. Absent: none."""
    acl_file: str | None = None
    """The access rules for topics, in Mosquitto's syntax. Absent: everything is allowed that no topic policy
    forbids."""
    groups: dict[str, tuple[str, ...]] = {}
    """The users of each group, for the sections `group` of the ACL file and for topic policies."""
    topic_policies: tuple[TopicPolicyOptions, ...] = ()
    """Policies for topics: access, and rules for their messages."""
    login_jail: JailOptions = JailOptions()
    """After failed logins, further attempts are refused without a check for some time."""
    dynamic_security: DynamicSecurityOptions | None = None
    """Dynamic security: clients manage users, groups and roles with Mosquitto's commands. Absent: `$CONTROL` is
    refused."""
    extensions: tuple[ExtensionOptions, ...] = ()
    """The program's own hooks and sinks, which the broker runs."""
    sparkplug: bool = False
    """Whether the broker is Sparkplug aware: it keeps birth certificates, and sets the timestamps of deaths."""
    cluster: ClusterOptions | None = None
    """Makes this broker one machine of several, of which one serves. Absent: it is alone."""
    nodes: NodesOptions | None = None
    """Makes this broker one of several that serve at the same time. Absent: it is the only one."""
    data_dir: str | None = None
    """The folder for persistent data: sessions, queued and retained messages. Empty: nothing is persistent. Absent:
    `mqttlite serve` uses the user's data folder, and a `Broker` in a program keeps everything in memory."""
    lame_duck: LameDuckOptions = LameDuckOptions()
    """How a broker that is being replaced disconnects its clients."""
    stop_timeout_s: float = 5.0
    """How long a stop may take to send the last bytes to clients."""

    def __post_init__(self) -> None:
        for each in msgspec.structs.fields(self):
            if (refused := refusal_of(each.name)) and getattr(self, each.name) != each.default:
                raise ValueError(f"{each.name}{refused}")
        if not self.listeners:
            raise ValueError("listeners is empty: one at least; without the key it is MQTT on 127.0.0.1:1883")
        if not 0 <= self.stop_timeout_s < math.inf:
            raise ValueError(f"stop_timeout_s is {self.stop_timeout_s:g}: 0 at least, and finite")
        if not 0 <= self.password_cache_s < math.inf:
            raise ValueError(f"password_cache_s is {self.password_cache_s:g}: 0 at least, and finite")
        for section, kind in (("queues", "queue"), ("streams", "stream"), ("routes", "route"), ("bridges", "bridge")):
            names = [each.name for each in getattr(self, section)]
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{section} has {twice[0]!r} twice: a name is that of one {kind}")
        if len(self.routes) > MAX_ROUTES:
            raise ValueError(f"routes has {len(self.routes)} routes: {MAX_ROUTES} at most")
        if len(self.bridges) > MAX_BRIDGES:
            raise ValueError(f"bridges has {len(self.bridges)} bridges: {MAX_BRIDGES} at most")
        unsigned = [each.name for each in self.queues if each.push is not None and not each.push.secret]
        if unsigned:
            raise ValueError(f"queues: {unsigned[0]}.push.secret is missing: `mqttlite queue secret` prints a new one")
        wrong = [*_wrong_expiries(self.retained_expiry_s)]
        if wrong:
            raise ValueError(f"retained_expiry_s has {'; '.join(wrong)}")

    def listener_names(self) -> tuple[str, ...]:
        """The title of each listener; where the title of an unnamed one is taken, a number follows: `tcp-1883-2`."""
        taken = {each.name for each in self.listeners}
        names: list[str] = []
        for each in self.listeners:
            name = title = each.title()
            number = 1
            while name in taken and not each.name:
                number += 1
                name = f"{title}-{number}"
            taken.add(name)
            names.append(name)
        return tuple(names)

    @property
    def has_rules(self) -> bool:
        """Whether anything says who may read and write what."""
        return self.acl_file is not None or bool(self.topic_policies)

    def passwords_of(self, listener: ListenerOptions) -> tuple[str | None, bool]:
        """The password file of a listener, and whether anonymous clients are allowed."""
        path = self.password_file if listener.password_file is None else listener.password_file
        return path, self.allow_anonymous if listener.allow_anonymous is None else listener.allow_anonymous

    def login_methods(self, listener: ListenerOptions) -> tuple[LoginMethod, ...]:
        """How clients may log in at a listener, in the order in which the methods are asked."""
        if listener.authentication is not None:
            return listener.authentication
        configured: dict[LoginMethod, bool] = {
            "jwt": self.jwt is not None,
            "dynamic_security": self.dynamic_security is not None,
            "password": self.passwords_of(listener)[0] is not None,
            "http": self.http_auth is not None,
        }
        return tuple(method for method, is_there in configured.items() if is_there)

    def http_listener(self) -> ListenerOptions | None:
        """The gateway as a listener: its address, and who may come in."""
        http = self.http
        if http is None:
            return None
        return ListenerOptions(
            name="http",
            host=http.host,
            port=http.port,
            tls=http.tls,
            allow_anonymous=http.allow_anonymous,
            authentication=http.authentication,
            identity_from=http.identity_from,
        )

    def lets_anybody_in(self, listener: ListenerOptions) -> bool:
        """Whether clients may come in at a listener without credentials."""
        return not self.login_methods(listener) or self.passwords_of(listener)[1]


def _wrong_expiries(seconds: dict[str, int]) -> Iterator[str]:
    """The errors in `retained_expiry_s`."""
    if len(seconds) > MAX_RETAINED_EXPIRIES:
        yield f"{len(seconds)} filters: {MAX_RETAINED_EXPIRIES} at most"
    for topic_filter, expiry_s in seconds.items():
        try:
            check_filter(topic_filter.encode())
        except TopicFilterInvalid as error:
            yield str(error)
        if not 0 <= expiry_s < NEVER_EXPIRES:
            yield f"{topic_filter!r} = {expiry_s}: it may be 1 to {NEVER_EXPIRES - 1} seconds, or 0 for no limit"
