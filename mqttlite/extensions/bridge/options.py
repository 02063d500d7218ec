"""The section `[[bridges]]` of the configuration: the connections to other brokers, and the topics that they carry."""

import math
import re
from typing import Final, Literal, NamedTuple

import msgspec

from mqttlite.filters import Filter, FilterError
from mqttlite.topics.names import check_filter, is_own
from mqttlite.topics.namespaces import split_share
from mqttlite.wire.constants import MAX_STRING_BYTES, V5, V311
from mqttlite.wire.errors import TopicFilterInvalid, TopicNameInvalid

MAX_NAME: Final = 128
"""The longest name of a bridge. Names appear in topics, metrics and client identifiers."""

MAX_BRIDGES: Final = 100
"""The most bridges of one broker. Each has a session, a connection and a task."""

MAX_TOPICS: Final = 1_000
"""The most topics of one bridge. Each new topic name is compared with all of them."""

MAX_ADDRESSES: Final = 16
"""The most addresses of one bridge. They are tried in turn."""

_PORTS: Final = {(False, False): 1883, (False, True): 8883, (True, False): 80, (True, True): 443}
"""The usual port, by whether it is a WebSocket, and TLS."""

_NAME: Final = re.compile(r"[A-Za-z0-9._~-]+")
_ADDRESS: Final = re.compile(
    r"((?P<scheme>wss?)://)?(?P<host>\[[0-9A-Fa-f:.%a-z]+\]|[^\s:/\[\]]+)(:(?P<port>\d{1,5}))?(?P<path>/[!-\"$-~]*)?"
)


class Endpoint(NamedTuple):
    """Where another broker listens."""

    host: str
    port: int
    is_tls: bool
    path: str
    """The path of its WebSocket; empty for TCP."""

    def __str__(self) -> str:
        """Without what follows `?`, which may be a secret."""
        scheme = "" if not self.path else "wss://" if self.is_tls else "ws://"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}{host}:{self.port}{without_query(self.path)}"


class BridgeTopic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Topics that a bridge carries. `local_prefix` and `pattern` here are `remote_prefix` and `pattern` there."""

    pattern: str = ""
    """A topic filter. Empty: the two prefixes are the topics."""
    direction: Literal["out", "in", "both"] = "out"
    """`out`: from here to the other broker; `in`: from the other broker; or `both`."""
    qos: Literal[0, 1, 2] = 1
    """The highest QoS. Messages of a lower QoS keep it."""
    local_prefix: str = ""
    """What the topics begin with here."""
    remote_prefix: str = ""
    """What they begin with at the other broker."""
    retained: bool = True
    """Whether retained messages are sent at the beginning, and stay retained. Otherwise they are ordinary messages."""
    filter: str = ""
    """A filter on the content of the messages, which are carried if they pass. Empty: all of them."""

    def __post_init__(self) -> None:
        if self.filter:
            try:
                Filter(self.filter)
            except FilterError as error:
                raise ValueError(f"filter: {error}") from None
        for name, topic_filter in (("local_prefix", self.local_filter), ("remote_prefix", self.remote_filter)):
            prefix = getattr(self, name)
            if not topic_filter:
                raise ValueError(f'pattern and {name} are empty: name the topics, for example pattern = "sensors/#"')
            if any(each in prefix for each in "+#\0"):
                raise ValueError(f"{name} is {prefix!r}: wildcards are for pattern")
            try:
                check_filter(topic_filter.encode())
                is_shared = bool(split_share(topic_filter.encode())[0])
            except (TopicFilterInvalid, TopicNameInvalid) as error:
                raise ValueError(f"pattern: {error}") from None
            if is_shared:
                raise ValueError(f"pattern: {topic_filter!r} is a shared subscription, which a bridge cannot carry")
        if self.local_filter.startswith("$") and (self.comes_in or not is_own(self.local_filter.encode())):
            raise ValueError(f"{self.local_filter!r} begins with a reserved name: only $SYS can go out")

    @property
    def local_filter(self) -> str:
        """The topic filter here."""
        return self.local_prefix + self.pattern

    @property
    def remote_filter(self) -> str:
        """The topic filter at the other broker."""
        return self.remote_prefix + self.pattern

    @property
    def goes_out(self) -> bool:
        return self.direction != "in"

    @property
    def comes_in(self) -> bool:
        return self.direction != "out"


class BridgeTls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TLS to the other broker."""

    ca_file: str | None = None
    """The CA certificates that verify the other broker, in PEM. Absent: the system's."""
    cert_file: str | None = None
    """The certificate of this broker as a client, in PEM."""
    key_file: str | None = None
    """Its unencrypted private key, in PEM. Absent: it is in `cert_file`."""
    server_name: str | None = None
    """The name that the other broker's certificate must have. Absent: the host in the address."""
    insecure: bool = False
    """Do not compare that name with the certificate. Without a `ca_file`, the certificate is not verified at all."""


class BridgeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One bridge: a connection to another broker."""

    name: str
    """Its name, in `$SYS/broker/connection/<name>/state`, metrics and log."""
    addresses: tuple[str, ...]
    """The other broker as `host:port`, or as the URL of its WebSocket, such as `wss://host/mqtt`. Of several, the first
    that answers is used, and the bridge returns to the first one when it answers again."""
    topics: tuple[BridgeTopic, ...]
    """The topics that it carries. The first entry whose pattern and filter match says the other name and
    `retained`. Of several that match, the highest `qos` applies to what goes out; for what comes in, the other broker
    decides."""
    version: Literal["5.0", "3.1.1"] = "5.0"
    """The version of MQTT to speak to the other broker."""
    client_id: str = ""
    """The client identifier at the other broker. Empty: made from a random number, which is kept in the data directory,
    and the name."""
    username: str | None = None
    """The user name at the other broker."""
    password: str | None = None
    """The password at the other broker."""
    tls: BridgeTls | bool = False
    """TLS options. `true`: TLS with the system's CA certificates, as for `wss://` without options."""
    start: Literal["automatic", "once", "lazy"] = "automatic"
    """`automatic`: connect, and again after each loss. `once`: connect, and after a loss wait for `mqttlite bridge
    resume`. `lazy`: connect when messages wait, and disconnect when none came for `idle_timeout_s`."""
    idle_timeout_s: float = 60.0
    """How long a lazy bridge stays connected without a message."""
    keep_alive_s: int = 60
    """The keep-alive of the connection."""
    session_expiry_s: int = 7 * 86_400
    """How long the other broker (5.0) keeps messages for this one while it is away."""
    window: int = 1_000
    """How many messages may be unacknowledged in each direction."""
    max_rate_per_s: float = 0.0
    """How many messages a second are sent to the other broker. 0: no limit. Others wait in the bridge's session."""
    max_delay_s: float = 30.0
    """The longest delay between two attempts to connect. It begins with half a second, and doubles."""
    max_hops: int = 8
    """How many bridges a message may have crossed (5.0). One more is dropped."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > MAX_NAME or self.name in (".", ".."):
            raise ValueError(
                f"name is {self.name[:MAX_NAME]!r}: the name of a bridge has 1 to {MAX_NAME} letters, digits and any "
                "of . _ ~ -, and is not . or .., which no URL can name"
            )
        if not 1 <= len(self.addresses) <= MAX_ADDRESSES:
            raise ValueError(f"addresses has {len(self.addresses)} entries: it may have 1 to {MAX_ADDRESSES}")
        for each in self.addresses:
            parse_address(each, is_tls=bool(self.tls))
            if self.tls and each.startswith("ws://"):
                raise ValueError(f"addresses has {each!r}, and tls is set: a WebSocket over TLS begins with wss://")
        for name in ("client_id", "username", "password"):
            if len((getattr(self, name) or "").encode()) > MAX_STRING_BYTES:
                raise ValueError(f"{name} is too long: it may have {MAX_STRING_BYTES} bytes")
        if not 1 <= len(self.topics) <= MAX_TOPICS:
            raise ValueError(f"topics has {len(self.topics)} entries: it may have 1 to {MAX_TOPICS}")
        _check_one_filter([(each.local_filter, each.filter) for each in self.topics if each.goes_out], "out")
        _check_one_filter([(each.remote_filter, each.filter) for each in self.topics if each.comes_in], "in")
        if self.start == "lazy" and not any(each.goes_out for each in self.topics):
            raise ValueError("start is lazy, and no topics go out: the bridge would never connect")
        if self.password is not None and self.username is None and self.version != "5.0":
            raise ValueError("password needs a username in MQTT 3.1.1")
        for name, low, high in (
            ("keep_alive_s", 1, 65_535),
            ("session_expiry_s", 1, 0xFFFF_FFFF),
            ("window", 1, 60_000),
            ("max_hops", 1, 64),
        ):
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} is {getattr(self, name)}: it may be {low} to {high}")
        for name, least in (("idle_timeout_s", 1.0), ("max_delay_s", 0.5), ("max_rate_per_s", 0.0)):
            if not least <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name):g}: {least:g} at least, and finite")

    @property
    def wire_version(self) -> int:
        """The protocol level of `version`."""
        return V5 if self.version == "5.0" else V311

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Each address."""
        return tuple(parse_address(each, bool(self.tls)) for each in self.addresses)


def without_query(address: str) -> str:
    """An address as it is shown: what follows `?` may be a secret."""
    before, mark, query = address.partition("?")
    return f"{before}?…" if query else f"{before}{mark}"


def _check_one_filter(topics: list[tuple[str, str]], direction: str) -> None:
    """A session has one subscription to a topic filter, so a second one would replace the first. Raises
    `ValueError`."""
    known: dict[str, str] = {}
    for topic_filter, where in topics:
        if known.setdefault(topic_filter, where) != where:
            raise ValueError(
                f"topics has {topic_filter!r} in direction {direction} twice with different filters: use one entry, "
                'with filter = "a OR b" for what passes one of the two, or without a filter for all messages'
            )


def parse_address(address: str, is_tls: bool) -> Endpoint:
    """`is_tls` is for `host:port`; a URL says it itself. Raises `ValueError`."""
    found = _ADDRESS.fullmatch(address)
    scheme = None if found is None else found["scheme"]
    if scheme is not None:
        is_tls = scheme == "wss"
    usual = _PORTS[scheme is not None, is_tls]
    port = usual if found is None or found["port"] is None else int(found["port"])
    if found is None or not 1 <= port <= 65_535 or (scheme is None and found["path"]):
        raise ValueError(
            f"addresses has {address!r}: host:port is meant, as in broker.example:1883 or [::1]:1883, or the URL of a "
            "WebSocket, as in wss://broker.example/mqtt"
        )
    host = found["host"].strip("[]")
    try:
        host.encode("idna")
    except UnicodeError as error:
        raise ValueError(f"addresses has {address!r}, which is no host name: {error}") from None
    return Endpoint(host, port, is_tls, "" if scheme is None else found["path"] or "/")
