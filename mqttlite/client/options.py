"""How a client connects, checked once when it is made.

Defaults live here with their reasons. Invariant: an `Options` that exists can be sent to a server.
"""

import secrets
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from mqttlite.client.authentication import Authentication
from mqttlite.client.backoff import MAX_DELAY_S, MIN_DELAY_S
from mqttlite.client.errors import MqttError
from mqttlite.client.inbox import MAX_QUEUED_MESSAGES
from mqttlite.client.limits import LARGEST_PACKET_BYTES
from mqttlite.client.message import Will
from mqttlite.wire.constants import MAX_STRING_BYTES, V5, V31, V311
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Connect
from mqttlite.wire.properties import NONE, Properties

Version: TypeAlias = Literal["5.0", "3.1.1", "3.1"]
Transport: TypeAlias = Literal["tcp", "unix", "websocket"]
VERSIONS: Final[dict[str, int]] = {"5.0": V5, "3.1.1": V311, "3.1": V31}

KEEP_ALIVE_S: Final = 60
"""The usual keep-alive: short enough for most NATs, long enough for a battery."""

TIMEOUT_S: Final = 10.0
"""How long a connection, an acknowledgement or the answer to a ping may take."""

MAX_INFLIGHT: Final = 1000
"""A thousand messages per round trip keep a link of 50 ms at 20 000 messages a second."""

HIGHEST_MAX_INFLIGHT: Final = 60_000
"""Leaves packet identifiers for SUBSCRIBE and UNSUBSCRIBE."""


MAX_SERVERS: Final = 16
"""The most servers that a client tries in turn, up to `timeout` for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything about a client but its host; see `Client` for what each means."""

    hostname: str
    port: int = 1883
    further: tuple[str, ...] = ()
    """Further servers, as host or `host:port`: the first of all that takes us is used."""
    transport: Transport = "tcp"
    path: str = "/mqtt"
    client_id: str = ""
    clean_start: bool = True
    session_expiry_interval: int | None = None
    username: str | None = None
    password: str | bytes | None = None
    authentication: Authentication | None = None
    keep_alive: int = KEEP_ALIVE_S
    version: Version = "5.0"
    will: Will | None = None
    is_bridge: bool = False
    """Whether CONNECT says so, as only Mosquitto, mqttlite and few others understand it (before 5.0)."""
    tls: ssl.SSLContext | None = None
    server_hostname: str | None = None
    timeout: float = TIMEOUT_S
    receive_maximum: int | None = None
    max_inflight: int = MAX_INFLIGHT
    max_packet_size: int | None = None
    max_queued_messages: int = MAX_QUEUED_MESSAGES
    properties: Properties = NONE
    reconnect: bool = True
    min_reconnect_delay: float = MIN_DELAY_S
    max_reconnect_delay: float = MAX_DELAY_S
    on_connection_lost: Callable[[MqttError, float], None] | None = None
    on_reconnected: Callable[[bool], None] | None = None
    trace: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        if not self.hostname:
            raise ValueError("hostname is empty")
        if len(self.further) >= MAX_SERVERS:
            raise ValueError(f"there are {1 + len(self.further)} servers: {MAX_SERVERS} at most")
        if self.transport not in ("tcp", "unix", "websocket"):
            raise ValueError(f"transport is {self.transport!r}: it may be 'tcp', 'unix' or 'websocket'")
        if not _is_path(self.path):
            raise ValueError(f"path is {self.path!r}: it begins with /, and has no spaces, # or other than ASCII")
        if self.version not in VERSIONS:
            raise ValueError(f"version {self.version!r} is none of {', '.join(VERSIONS)}")
        for name, low, high in (
            ("port", 1, 65_535),
            ("keep_alive", 0, 65_535),
            ("receive_maximum", 1, 65_535),
            ("max_inflight", 1, HIGHEST_MAX_INFLIGHT),
            ("max_packet_size", 16, LARGEST_PACKET_BYTES),
            ("max_queued_messages", 1, None),
            ("session_expiry_interval", 0, 0xFFFF_FFFF),
        ):
            value = getattr(self, name)
            if value is not None and (value < low or (high is not None and value > high)):
                raise ValueError(f"{name} is {value}: it may be from {low} to {high or 'as many as memory holds'}")
        if self.timeout <= 0:
            raise ValueError(f"timeout is {self.timeout}: it must be above zero")
        if self.wire_version != V5:
            self._check_before_5()
        encode(self.connect_packet(self.client_id, self.clean_start), self.wire_version)

    def _check_before_5(self) -> None:
        for name in ("authentication", "session_expiry_interval", "receive_maximum", "max_packet_size"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} exists in MQTT 5.0 only, and version is {self.version}")
        if self.properties is not NONE or (self.will is not None and self.will.properties is not NONE):
            raise ValueError(f"properties exist in MQTT 5.0 only, and version is {self.version}")
        if not self.client_id and not self.clean_start:
            raise ValueError(f"a session that is kept needs a client_id in MQTT {self.version} [3.1.1 MQTT-3.1.3-8]")
        if self.password is not None and self.username is None:
            raise ValueError(f"a password needs a username in MQTT {self.version} [3.1.1 MQTT-3.1.2-22]")

    @property
    def wire_version(self) -> int:
        return VERSIONS[self.version]

    def servers(self) -> "Iterator[Options]":
        """The options for each server, in order."""
        yield self
        for server in self.further:
            host, port = split_server(server, self.port)
            yield replace(self, hostname=host, port=port, further=())

    @property
    def where(self) -> str:
        """The server as a person writes it. What follows `?` in the path may be a secret."""
        if self.transport == "unix":
            return self.hostname
        if self.transport == "websocket":
            path, _, query = self.path.partition("?")
            return f"{'ws' if self.tls is None else 'wss'}://{self.address}{path}{'?…' if query else ''}"
        return self.address

    @property
    def address(self) -> str:
        """Host and port."""
        return f"[{self.hostname}]:{self.port}" if ":" in self.hostname else f"{self.hostname}:{self.port}"

    def first_client_id(self) -> str:
        """The identifier to begin with; only 3.1 cannot leave the choice to the server."""
        if self.client_id or self.wire_version != V31:
            return self.client_id
        return f"mqttlite-{secrets.token_hex(6)}"

    def connect_packet(self, client_id: str, clean_start: bool, authentication_data: bytes | None = None) -> Connect:
        password = self.password.encode() if isinstance(self.password, str) else self.password
        if password is not None and len(password) > MAX_STRING_BYTES:
            raise ValueError(f"the password has {len(password)} bytes: MQTT allows {MAX_STRING_BYTES}")
        return Connect(
            client_id,
            self.wire_version,
            clean_start,
            self.keep_alive,
            self.username,
            password,
            None if self.will is None else self.will.packet(),
            self._connect_properties(authentication_data) if self.wire_version == V5 else NONE,
            self.is_bridge,
        )

    def _connect_properties(self, authentication_data: bytes | None) -> Properties:
        """The caller's properties, with the parameters that have a name of their own."""
        given: dict[str, object] = dict(self.properties.present())
        for name, value in (
            ("session_expiry_interval", self.session_expiry_interval),
            ("receive_maximum", self.receive_maximum),
            ("maximum_packet_size", self.max_packet_size),
            ("authentication_method", None if self.authentication is None else self.authentication.method),
            ("authentication_data", authentication_data),
        ):
            if value is not None:
                given[name] = value
        if given.pop("topic_alias_maximum", None):
            raise ValueError("topic_alias_maximum: this client does not take topic aliases")
        if not given:
            return NONE
        properties = Properties()
        for name, number_or_text in given.items():
            setattr(properties, name, number_or_text)
        return properties


def _is_path(text: str) -> bool:
    """Whether it is the path of a URL, with or without a query."""
    return text.startswith("/") and text.isascii() and text.isprintable() and " " not in text and "#" not in text


def split_server(server: str, port: int) -> tuple[str, int]:
    """The host and port of `host`, `host:port` or `[address]:port`. Raises `ValueError`."""
    host, _, number = server.rpartition(":")
    if not host or server.endswith("]") or (":" in host and not host.endswith("]")):
        return server.strip("[]"), port
    if not number.isdecimal():
        raise ValueError(f"the server {server!r} has the port {number!r}: write it like 'broker.example:1883'")
    return host.strip("[]"), int(number)
