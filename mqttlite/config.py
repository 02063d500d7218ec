"""What an operator can set: one TOML file, composed of each room's own options, checked where it is read.

No room reads this module; `server` hands each its part. Invariant: a `Config` that was made is one that can be used,
but for what only the machine can say (files, ports).
"""

import dataclasses
import math
import tomllib
from pathlib import Path, PurePath
from typing import Any, Final, Literal

import msgspec

from mqttlite.core.capabilities import EVERYTHING, Capabilities
from mqttlite.core.limits import Limits
from mqttlite.net.http import Options as MetricsOptions
from mqttlite.net.proxy_protocol import Options as ProxyOptions
from mqttlite.net.upgrade import Options as WebSocketOptions
from mqttlite.security.tls import TlsOptions
from mqttlite.telemetry.delivery_log import Options as DeliveryLogOptions
from mqttlite.telemetry.options import Options as TelemetryOptions
from mqttlite.telemetry.sys_topics import Options as SysOptions


class ConfigError(ValueError):
    """A config that cannot be used; the text says which file, where in it, what is wrong and what would be right."""


MIN_HALF_OPEN: Final = 64
"""The least of the default bound: as many devices may connect at once to a small listener."""

MAX_HALF_OPEN: Final = 10_000
"""The default bound on half-open connections: each costs about 50 KB in a TLS handshake, and a processor completes no
more handshakes than this within `handshake_timeout_s`."""


class ListenerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to listen. Port 0 lets the system choose."""

    name: str = ""
    host: str = "127.0.0.1"
    port: int = 1883
    path: str | None = None
    """A Unix socket to listen on, in place of `host` and `port`."""
    mode: int = 0o660
    """Who may connect to it: the permissions of its file."""
    tls: TlsOptions | None = None
    websocket: WebSocketOptions | bool = False
    """MQTT over WebSocket; `true` is at `/mqtt`, for programs: pages need `origins`."""
    proxy_protocol: ProxyOptions | None = None
    """Only the proxies it names may connect, and say of each connection whose it is (PROXY protocol)."""
    max_connections: int = 50_000
    """One more is closed at once: bounds what clients that only connect can cost."""
    max_half_open: int | None = None
    """Connections whose clients have yet to send CONNECT; for one more, the oldest of them is closed. Absent: a quarter
    of `max_connections`, at least 64 and at most 10,000."""
    handshake_timeout_s: float = 10.0
    """How long each may take of what comes before MQTT, half-open connections end here: a proxy's header, a TLS
    handshake, a request for a WebSocket."""
    capabilities: Capabilities = EVERYTHING
    """What of MQTT this listener offers."""
    password_file: str | None = None
    """The users of this listener, where they are not those of all."""
    allow_anonymous: bool | None = None
    """Whether clients without user name and password may come in here, where it is not as with all."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ValueError(f"port is {self.port}: it may be 0 to 65535")
        if self.path == "":
            raise ValueError("path is empty: it names the file of a Unix socket")
        if not 0 <= self.mode <= 0o777:
            raise ValueError(f"mode is {self.mode:#o}: it may be 0o000 to 0o777, such as 0o660")
        if self.proxy_protocol is not None and not self.proxy_protocol.trusted and self.path is None:
            raise ValueError("proxy_protocol.trusted is empty: nobody could connect")
        if self.max_connections < 1:
            raise ValueError(f"max_connections is {self.max_connections}: 1 at least")
        if self.max_half_open is not None and self.max_half_open < 1:
            raise ValueError(f"max_half_open is {self.max_half_open}: 1 at least")
        if not 0.001 <= self.handshake_timeout_s < math.inf:
            raise ValueError(f"handshake_timeout_s is {self.handshake_timeout_s:g}: 0.001 at least, and finite")

    def half_open_limit(self) -> int:
        """`max_half_open`, or what stands for it where it is absent."""
        if self.max_half_open is not None:
            return self.max_half_open
        return min(max(self.max_connections // 4, MIN_HALF_OPEN), MAX_HALF_OPEN)

    def title(self) -> str:
        """Its name, or one like `tcp-1883`, `wss-8884` or `unix-mqttlite.sock` where it has none."""
        return self.name or f"{self.transport()}-{self.port if self.path is None else PurePath(self.path).name}"

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
    """The last of them leaves by then."""
    server_reference: str = ""
    """Where 5.0 clients should go instead, such as `other.example:1883` (§4.11)."""

    def __post_init__(self) -> None:
        if not 0 <= self.deadline_s < math.inf:
            raise ValueError(f"deadline_s is {self.deadline_s:g}: 0 at least, and finite")


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything. Without a file: MQTT on 127.0.0.1:1883."""

    listeners: tuple[ListenerOptions, ...] = (ListenerOptions(),)
    limits: Limits = Limits()
    share_policies: dict[str, Literal["round_robin", "least_inflight", "hash_topic", "hash_key"]] = {}
    """How a shared subscription's group chooses, by the group's name; `"*"` for those not named."""
    telemetry: TelemetryOptions | None = None
    """Absent: no telemetry is written."""
    delivery_log: DeliveryLogOptions | None = None
    """Of which messages it is known what became of them, for `mqttlite why`. Absent: of none."""
    sys: SysOptions = SysOptions()
    """What the broker says of itself below `$SYS`."""
    metrics: MetricsOptions | None = None
    """Where metrics, health and status are served over HTTP. Absent: nowhere."""
    password_file: str | None = None
    """Users and their passwords, as `mqttlite passwd` writes them. Absent: who comes in is not asked."""
    allow_anonymous: bool = False
    """Whether clients without user name and password may come in all the same."""
    lame_duck: LameDuckOptions = LameDuckOptions()
    stop_timeout_s: float = 5.0
    """How long a stop may take to send clients their last bytes."""

    def __post_init__(self) -> None:
        if not self.listeners:
            raise ValueError("listeners is empty: one at least; without the key it is MQTT on 127.0.0.1:1883")
        if not 0 <= self.stop_timeout_s < math.inf:
            raise ValueError(f"stop_timeout_s is {self.stop_timeout_s:g}: 0 at least, and finite")

    def passwords_of(self, listener: ListenerOptions) -> tuple[str | None, bool]:
        """The password file of a listener, and whether who is not in it may be nobody."""
        path = self.password_file if listener.password_file is None else listener.password_file
        return path, self.allow_anonymous if listener.allow_anonymous is None else listener.allow_anonymous

    def lets_anybody_in(self, listener: ListenerOptions) -> bool:
        """Whether a listener asks nobody for a password."""
        path, allow_anonymous = self.passwords_of(listener)
        return path is None or allow_anonymous


def changed_options(former: object, new: object, path: str = "") -> list[str]:
    """Which options of two configs differ, as paths such as `listeners[0].port`; a whole section where one has none."""
    if type(former) is type(new):
        if isinstance(former, msgspec.Struct) or dataclasses.is_dataclass(former):
            info = msgspec.inspect.type_info(type(former))
            assert isinstance(info, (msgspec.inspect.StructType, msgspec.inspect.DataclassType))
            names = [field.name for field in info.fields]
            return [
                option
                for name in names
                for option in changed_options(
                    getattr(former, name), getattr(new, name), f"{path}.{name}" if path else name
                )
            ]
        if isinstance(former, tuple) and isinstance(new, tuple) and len(former) == len(new):
            pairs = enumerate(zip(former, new, strict=True))
            return [option for number, pair in pairs for option in changed_options(*pair, f"{path}[{number}]")]
    return [] if former == new else [path]


_KNOWN: Final = ", ".join(Config.__struct_fields__)


def load_config(path: str | Path) -> Config:
    """The config in a TOML file. Raises `ConfigError`."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path}: cannot be read: {reason}") from None
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from None
    try:
        return parse_config(raw)
    except ConfigError as error:
        raise ConfigError(f"{path}{_line_of(text, str(error))}: {error}") from None


def parse_config(raw: dict[str, Any]) -> Config:
    """A config from what a TOML file holds. Raises `ConfigError` with the path of what is wrong."""
    try:
        config = msgspec.convert(_with_defaults(raw), Config)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        place = where.rstrip("`").lstrip(".") or f"the file (it may have {_KNOWN})"
        raise ConfigError(f"{place}: {message[:1].lower()}{message[1:]}") from None
    _refuse_unknown(raw, msgspec.inspect.type_info(Config), "")
    return config


def _with_defaults(raw: dict[str, Any]) -> dict[str, Any]:
    """The same with all options of the sections that are the core's: msgspec makes their objects without `__init__`,
    and where the core is compiled, what nobody has set is 0 and not the default."""

    def whole(section: object, defaults: Limits | Capabilities) -> object:
        return {**dataclasses.asdict(defaults), **section} if isinstance(section, dict) else section

    raw = dict(raw)
    if "limits" in raw:
        raw["limits"] = whole(raw["limits"], Limits())
    if isinstance(listeners := raw.get("listeners"), list):
        raw["listeners"] = [
            {**listener, "capabilities": whole(listener["capabilities"], EVERYTHING)}
            if isinstance(listener, dict) and "capabilities" in listener
            else listener
            for listener in listeners
        ]
    return raw


def _refuse_unknown(raw: object, kind: msgspec.inspect.Type, place: str) -> None:
    """Raises `ConfigError` for an option that no section has: msgspec passes over those of our dataclasses."""
    kinds = kind.types if isinstance(kind, msgspec.inspect.UnionType) else (kind,)
    for each in kinds:
        if isinstance(each, (msgspec.inspect.StructType, msgspec.inspect.DataclassType)) and isinstance(raw, dict):
            fields = {field.encode_name: field.type for field in each.fields}
            for name, value in raw.items():
                if name not in fields:
                    raise ConfigError(f"{place}: object contains unknown field `{name}`")
                _refuse_unknown(value, fields[name], f"{place}.{name}" if place else name)
        elif isinstance(each, msgspec.inspect.VarTupleType) and isinstance(raw, list):
            for number, value in enumerate(raw):
                _refuse_unknown(value, each.item_type, f"{place}[{number}]")


def _line_of(text: str, error: str) -> str:
    """`:12` where the file's line 12 is, as far as can be told, the one an error speaks of; else nothing.

    The parser keeps no positions, so the last key of the error's path, or the field it quotes, is looked for.
    """
    place, _, message = error.partition(": ")
    quoted = message.split("`")[1::2]
    table, _, key = place.rpartition(".")
    key = quoted[-1] if message.startswith("object contains unknown field") and quoted else key
    name = table.split("[")[0] or place.split("[")[0]
    inside = not table
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            inside = name in stripped
        if inside and stripped.partition("=")[0].strip() == key:
            return f":{number}"
    return ""
