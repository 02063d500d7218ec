"""What an operator can set: one TOML file, composed of each room's own options, checked where it is read.

No room reads this module; `server` hands each its part. Invariant: a `Config` that was made is one that can be used,
but for what only the machine can say (files, ports).
"""

import dataclasses
import math
import tomllib
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from mqttlite.core.capabilities import EVERYTHING, Capabilities
from mqttlite.core.limits import Limits
from mqttlite.net.upgrade import Options as WebSocketOptions
from mqttlite.security.tls import TlsOptions
from mqttlite.telemetry.dump import Options as TelemetryOptions


class ConfigError(ValueError):
    """A config that cannot be used; the text says which file, where in it, what is wrong and what would be right."""


class ListenerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to listen. Port 0 lets the system choose."""

    name: str = ""
    host: str = "127.0.0.1"
    port: int = 1883
    tls: TlsOptions | None = None
    websocket: WebSocketOptions | bool = False
    """MQTT over WebSocket; `true` is at `/mqtt`, for programs, not for pages: those need `origins`."""
    max_connections: int = 50_000
    """One more is closed at once: bounds what clients that only connect can cost."""
    handshake_timeout_s: float = 10.0
    """How long a TLS handshake may take, and then a request for a WebSocket: half-open connections end here."""
    capabilities: Capabilities = EVERYTHING
    """What of MQTT this listener offers."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ValueError(f"port is {self.port}: it may be 0 to 65535")
        if self.max_connections < 1:
            raise ValueError(f"max_connections is {self.max_connections}: 1 at least")
        if not 0.001 <= self.handshake_timeout_s < math.inf:
            raise ValueError(f"handshake_timeout_s is {self.handshake_timeout_s:g}: 0.001 at least, and finite")

    def title(self) -> str:
        """Its name, or one like `tcp-1883` or `wss-8884` where it has none."""
        return self.name or f"{self.transport()}-{self.port}"

    def transport(self) -> str:
        """`tcp`, `tls`, `ws` or `wss`."""
        if self.websocket:
            return "wss" if self.tls else "ws"
        return "tls" if self.tls else "tcp"

    def websocket_options(self) -> WebSocketOptions | None:
        """None where it speaks no WebSocket."""
        if isinstance(self.websocket, bool):
            return WebSocketOptions() if self.websocket else None
        return self.websocket


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything. Without a file: MQTT on 127.0.0.1:1883."""

    listeners: tuple[ListenerOptions, ...] = (ListenerOptions(),)
    limits: Limits = Limits()
    share_policies: dict[str, Literal["round_robin", "least_inflight", "hash_topic", "hash_key"]] = {}
    """How a shared subscription's group chooses, by the group's name; `"*"` for those not named."""
    telemetry: TelemetryOptions | None = None
    """Absent: no telemetry is written."""
    stop_timeout_s: float = 5.0
    """How long a stop may take to send clients their last bytes."""

    def __post_init__(self) -> None:
        if not self.listeners:
            raise ValueError("listeners is empty: one at least; without the key it is MQTT on 127.0.0.1:1883")
        if not 0 <= self.stop_timeout_s < math.inf:
            raise ValueError(f"stop_timeout_s is {self.stop_timeout_s:g}: 0 at least, and finite")


_KNOWN: Final = "listeners, limits, share_policies, telemetry, stop_timeout_s"


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
        return msgspec.convert(raw, Config)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        place = where.rstrip("`").lstrip(".") or f"the file (it may have {_KNOWN})"
        raise ConfigError(f"{place}: {message[:1].lower()}{message[1:]}") from None


def limits_with(limits: Limits, **changes: Any) -> Limits:
    """Limits with some of them changed. Raises `ValueError` where they contradict each other."""
    return dataclasses.replace(limits, **changes)


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
