"""Converts a `mosquitto.conf` to our TOML, with a reason for each line without a counterpart (mosquitto.conf(5)).

Invariant: each line of the file is in the result, or is our default, or is in `left`. A broker starts with the result,
but for what the files that it names hold, or `refused` says why it does not.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from mqttlite.config.checks import open_listeners
from mqttlite.config.file import read_toml
from mqttlite.extensions.mosquitto_import.bridge_lines import BridgeLines
from mqttlite.security.one_line import one_line

MAX_FILES: Final = 100
"""The most files that `include_dir` may add."""


class MosquittoConfError(ValueError):
    """A file that cannot be read."""


class Line(NamedTuple):
    file: Path
    number: int
    key: str
    value: str

    def __str__(self) -> str:
        return f"{self.file}:{self.number}: {f'{self.key} {self.value}'.strip()}"


@dataclass
class Converted:
    """The text of our file, and sentences about it."""

    toml: str
    left: list[str] = field(default_factory=list)
    """The lines that were left out."""
    refused: list[str] = field(default_factory=list)
    """Why no broker would start with the text: lines that contradict each other."""


Table = dict[str, object]

_SECONDS: Final = {"h": 3_600, "d": 86_400, "w": 604_800, "m": 2_592_000, "y": 31_536_000}

_LIMITS: Final = {
    "max_inflight_messages": "max_inflight",
    "max_inflight_bytes": "max_inflight_bytes",
    "message_size_limit": "max_payload_bytes",
    "max_queued_messages": "max_queued_messages",
    "max_queued_bytes": "max_queued_bytes",
    "max_packet_size": "max_packet_bytes",
    "max_keepalive": "server_keep_alive_s",
    "memory_limit": "max_memory_bytes",
    "max_topic_alias": "topic_alias_maximum",
    "max_topic_alias_broker": "max_topic_aliases",
}
_UNLIMITED: Final = ("max_inflight_messages", "max_inflight_bytes", "max_queued_messages", "max_queued_bytes")
"""Options in which 0 means no limit, which we do not have."""

_SO_ANYWAY: Final = frozenset(
    (
        "use_identity_as_username",
        "set_tcp_nodelay",
        "allow_duplicate_messages",
        "autosave_interval",
        "autosave_on_changes",
        "persistence_file",
    )
)

_WHY: Final = {
    "include_dir": "there is no such directory, or no .conf file in it",
    "pid_file": "a service manager knows the process",
    "user": "start the broker as that user",
    "log_dest": "the log goes to standard error; a service manager keeps it",
    "log_type": "set --log-level",
    "log_timestamp": "each line of the log has its time",
    "log_timestamp_format": "each line of the log has its time",
    "log_facility": "the log goes to standard error; a service manager keeps it",
    "connection_messages": "connections are always logged",
    "websockets_log_level": "set --log-level",
    "queue_qos0_messages": "messages of QoS 0 do not wait for clients that are away",
    "upgrade_outgoing_qos": "the lower QoS of message and subscription counts, as the standard says",
    "capath": "name one file with all authorities in tls.ca_file",
    "ciphers": "TLS 1.2 and 1.3 with authenticated encryption are used",
    "ciphers_tls1.3": "TLS 1.2 and 1.3 with authenticated encryption are used",
    "dhparamfile": "only elliptic curves are used",
    "tls_engine": "the keys are read from files",
    "tls_keyform": "the keys are read from files",
    "psk_file": "pre-shared keys are not supported: use certificates",
    "psk_hint": "pre-shared keys are not supported: use certificates",
    "use_subject_as_username": "the common name of the certificate is the identity of the client",
    "http_dir": "files are not served",
    "mount_point": "it has to end with a slash, may not begin with $, and has no wildcards",
    "bind_interface": "name an address in host",
    "auto_id_prefix": "assigned client identifiers begin with mqttlite-",
    "check_retain_source": "a retained message is sent only while its writer may write it",
    "retain_expiry_interval": "set retained_expiry_s",
}
_PROTOCOL_VERSIONS: Final = {"3": "3.1", "4": "3.1.1", "5": "5.0"}
_LOCAL_PROXIES: Final = ["127.0.0.1", "::1"]
_PLUGIN: Final = ("plugin", "global_plugin", "auth_plugin")
_PLUGIN_PASSWORD: Final = ("plugin_opt_password_init_file", "auth_opt_password_init_file")
_PLUGIN_FILE: Final = ("plugin_opt_config_file", "auth_opt_config_file")
"""The option of the dynamic security plugin that names its file of users."""


def advice(path: str, text: str) -> str:
    """What to do with a file whose first option is one of a mosquitto.conf; empty for others."""
    lines = (each.strip() for each in text.splitlines())
    key, _, value = next((each for each in lines if each and not each.startswith("#")), "").partition(" ")
    if key not in _KEYS or value.lstrip().startswith("="):
        return ""
    return f"this is a mosquitto.conf; 'mqttlite import {path} > broker.toml' converts it"


def convert(path: Path) -> Converted:
    """Raises `MosquittoConfError` for a file that cannot be read."""
    conversion = _Conversion()
    for line in _lines(path, [0]):
        conversion.take(line)
    return conversion.result(path)


def _lines(path: Path, files: list[int]) -> Iterator[Line]:
    files[0] += 1
    if files[0] > MAX_FILES:
        raise MosquittoConfError(f"{path}: include_dir adds more than {MAX_FILES} files")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise MosquittoConfError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise MosquittoConfError(f"{path}: it is not UTF-8: {error.reason}") from None
    for number, each in enumerate(text.splitlines(), 1):
        key, _, value = each.strip().partition(" ")
        if not key or key.startswith("#"):
            continue
        if key == "include_dir":
            included = sorted(Path(value.strip()).glob("*.conf"))
            if not included:
                yield Line(path, number, key, value.strip())
            for each_file in included:
                yield from _lines(each_file, files)
        else:
            yield Line(path, number, key, value.strip())


class _Conversion:
    def __init__(self) -> None:
        self._top: Table = {}
        self._limits: Table = {}
        self._sys: Table = {}
        self._listeners: list[Table] = []
        self._first: Table = {}
        """The listener options before the first `listener`: they are those of port 1883."""
        self._dynamic_security: Final[Table] = {}
        self._rules_of_listeners: Final[list[tuple[Line, str, object]]] = []
        """ACL files and dynamic security of single listeners: the line, our name and our value."""
        self._left: list[str] = []
        self._is_per_listener = False
        self._bridge: BridgeLines | None = None
        """The bridge to which the next lines belong."""
        self._bridges: Final[list[tuple[Line, BridgeLines]]] = []
        self._is_other_plugin = False
        """Whether what follows is for a plugin that is not dynamic security."""
        self._is_kept: bool | None = None
        self._data_dir = ""

    def take(self, line: Line) -> None:
        key, value = line.key, line.value
        if key == "connection":
            self._bridge = BridgeLines(value)
            self._bridges.append((line, self._bridge))
            if self._bridge.name != value:
                self._leave(line, f"its name is {self._bridge.name}: names have letters, digits and any of . _ ~ -")
        elif key in ("listener", "port"):
            self._bridge = None
            self._listener(line)
        elif self._bridge is not None and self._bridge.has(key):
            why = self._bridge.take(key, value)
            if why:
                self._leave(line, why)
        elif key == "per_listener_settings":
            self._is_per_listener = value == "true"
        else:
            self._option(line)

    def _option(self, line: Line) -> None:
        key, value = line.key, line.value
        if key in _LIMITS:
            self._number(line, self._limits, _LIMITS[key])
        elif key == "acl_file" and self._is_per_listener:
            self._rules_of_listeners.append((line, "acl_file", value))
        elif key in ("allow_anonymous", "password_file", "acl_file"):
            where = self._current() if self._is_per_listener else self._top
            where[key] = value == "true" if key == "allow_anonymous" else value
        elif key == "persistence":
            self._is_kept = value == "true"
        elif key == "persistence_location":
            self._data_dir = value
        elif key == "persistent_client_expiration":
            self._expiry(line)
        elif key == "sys_interval":
            self._number(line, self._sys, "interval_s")
        elif key == "enable_proxy_protocol":
            self._current()["proxy_protocol"] = {"trusted": _LOCAL_PROXIES}
            self._leave(line, "only proxies on this machine may connect; name the others in proxy_protocol.trusted")
        elif key in _OF_LISTENER:
            if not _OF_LISTENER[key](self._current(), value):
                self._leave(line, _WHY.get(key, "its value is not understood"))
        elif key == "tls_version":
            self._current_tls()["min_version"] = "1.3" if value == "tlsv1.3" else "1.2"
            if value not in ("tlsv1.3", "tlsv1.2"):
                self._leave(line, "TLS 1.2 is the oldest version; it is set")
        elif key in _PLUGIN:
            self._is_other_plugin = "dynamic_security" not in value
            if self._is_other_plugin:
                self._leave(line, "plugins are not supported")
        elif key in _PLUGIN_FILE and self._is_other_plugin:
            self._leave(line, "plugins are not supported")
        elif key in _PLUGIN_FILE and self._is_per_listener:
            self._rules_of_listeners.append((line, "dynamic_security", {"file": value}))
        elif key in _PLUGIN_FILE:
            self._dynamic_security["file"] = value
        elif key in _PLUGIN_PASSWORD and not self._is_other_plugin and not self._is_per_listener:
            self._dynamic_security["password_init_file"] = value
        elif key not in _SO_ANYWAY and (key, value) != ("check_retain_source", "true"):
            self._leave(line, _WHY.get(key, "no such option is known"))

    def result(self, path: Path) -> Converted:
        """The text, in the order of our reference."""
        if not self._listeners and "port" not in self._first:  # "local only" of Mosquitto 2
            self._first = {"host": "127.0.0.1", "port": 1883, **self._first}
        if self._first:
            self._listeners.insert(0, self._first)
        for listener in self._listeners:
            if "path" not in listener:
                listener.setdefault("host", "")
                listener.setdefault("port", 1883)
            for emptied in ("tls", "capabilities"):
                if listener.get(emptied) == {}:  # a later line has taken its only option back
                    del listener[emptied]
            origins = listener.pop("origins", None)
            if origins and listener.get("websocket"):
                listener["websocket"] = {"origins": origins}
        if self._dynamic_security:
            self._top["dynamic_security"] = self._dynamic_security
        self._use_rules_of_listeners()
        for anyone in self._listeners if self._is_per_listener else [self._top]:
            ways = {"password_file", "dynamic_security"} & {*self._top, *anyone}
            if anyone.get("allow_anonymous") is False and not ways:
                where = f"{_name(anyone)}: " if self._is_per_listener else ""
                self._left.append(
                    f"{path}: {where}allow_anonymous false: on this machine everybody may come in until there is a way "
                    "to log in"
                )
        if self._is_kept is False:
            self._top["data_dir"] = ""
        elif self._data_dir:
            self._top["data_dir"] = self._data_dir.rstrip("/") or "/"
        parts = [f"# Converted from {one_line(str(path))} by 'mqttlite import'.\n", *_pairs(self._top)]
        for listener in self._listeners:
            parts += ["\n[[listeners]]\n", *_pairs(listener)]
        converted: list[Line] = []
        for line, bridge in self._bridges:
            section = bridge.table()
            if section is None:
                self._leave(line, "a bridge needs an address and topics")
            else:
                converted.append(line)
                parts += ["\n[[bridges]]\n", *_pairs(section)]
        for name, table in (("limits", self._limits), ("sys", self._sys)):
            if table:
                parts += [f"\n[{name}]\n", *_pairs(table)]
        toml = "".join(parts)
        return Converted(toml, self._left, [one_line(each) for each in _refused(path, toml, converted)])

    # ------------------------------------------------------------------ inside

    def _listener(self, line: Line) -> None:
        words = line.value.split()
        port = _natural(words[0]) if words else None
        if port is None:
            self._leave(line, "its port is not a number")
        elif line.key == "port":
            self._first["port"] = port
        elif words[0] == "0":
            self._listeners.append({"path": " ".join(words[1:])})
        else:
            self._listeners.append({"host": words[1] if len(words) > 1 else "", "port": port})

    def _use_rules_of_listeners(self) -> None:
        """Rules of the only listener are those of all; of one among others they would bind these, too, and are left."""
        for line, name, value in self._rules_of_listeners:
            if len(self._listeners) == 1:
                self._top[name] = value
            elif name == "acl_file":
                self._leave(line, "one ACL file is for all listeners; set acl_file at the top of the file")
            else:
                self._leave(
                    line,
                    "here dynamic security is for all listeners: its rules would bind the clients of the others, too; "
                    "if they may, set dynamic_security at the top of the file",
                )

    def _current(self) -> Table:
        return self._listeners[-1] if self._listeners else self._first

    def _current_tls(self) -> Table:
        return _tls(self._current())

    def _number(self, line: Line, table: Table, name: str) -> None:
        number = _natural(line.value)
        if number is None:
            self._leave(line, "its value is not a number")
        elif line.key in _UNLIMITED and number == 0:
            self._leave(line, f"everything has a limit here; set limits.{name}")
        else:
            table[name] = number

    def _expiry(self, line: Line) -> None:
        found = re.fullmatch(r"(\d+)([hdwmy])", line.value)
        number = None if found is None else _natural(found[1])
        if found is None or number is None:
            self._leave(line, "its value is not a number of h, d, w, m or y")
        else:
            self._limits["max_session_expiry_s"] = number * _SECONDS[found[2]]

    def _leave(self, line: Line, why: str) -> None:
        self._left.append(one_line(f"{line}: {why}"))


def _refused(path: Path, toml: str, bridges: list[Line]) -> Iterator[str]:
    """What the check at the start refuses in our file, with the line of the bridge. The files that it names are not
    read: they may be on another machine."""
    reading = read_toml(path, toml)
    for problem in (*reading.problems, *(open_listeners(reading.config) if reading.config else ())):
        bridge = re.match(r"bridges\[(\d+)\]", problem.path)
        yield f"{bridges[int(bridge[1])] if bridge else path}: {problem}"


def _name(listener: Table) -> str:
    return str(listener.get("path") or f"the listener on port {listener['port']}")


def _tls(listener: Table) -> Table:
    tls = listener.setdefault("tls", {})
    assert isinstance(tls, dict)
    return tls


def _text(name: str) -> Callable[[Table, str], bool]:
    def put(listener: Table, value: str) -> bool:
        listener[name] = value
        return True

    return put


def _whole(name: str) -> Callable[[Table, str], bool]:
    def put(listener: Table, value: str) -> bool:
        number = _natural(value)
        if number:
            listener[name] = number
        elif number == 0 or value == "-1":
            listener.pop(name, None)
        return number is not None or value == "-1"

    return put


def _natural(text: str) -> int | None:
    """The number; None for other text, and for one with more digits than a number of 64 bits."""
    return int(text) if text.isdecimal() and len(text) < 20 else None


def _max_qos(listener: Table, value: str) -> bool:
    if value in ("0", "1"):
        _capabilities(listener)["maximum_qos"] = int(value)
    elif value == "2":
        _capabilities(listener).pop("maximum_qos", None)
    return value in ("0", "1", "2")


def _in_tls(name: str) -> Callable[[Table, str], bool]:
    def put(listener: Table, value: str) -> bool:
        _tls(listener)[name] = value
        return True

    return put


def _require_certificate(listener: Table, value: str) -> bool:
    if value == "true":
        _tls(listener)["require_client_cert"] = True
    elif value == "false" and "tls" in listener:
        _tls(listener).pop("require_client_cert", None)
    return value in ("true", "false")


def _mount_point(listener: Table, value: str) -> bool:
    """Mosquitto takes any text; here it is whole levels."""
    is_whole = value.endswith("/") and not value.startswith("$") and "+" not in value and "#" not in value
    if is_whole:
        listener["mount_point"] = value
    return is_whole


def _protocol(listener: Table, value: str) -> bool:
    if value == "websockets":
        listener["websocket"] = True
    elif value == "mqtt":
        listener.pop("websocket", None)
    return value in ("mqtt", "websockets")


def _versions(listener: Table, value: str) -> bool:
    versions = [each.strip() for each in value.split(",")]
    if not all(each in _PROTOCOL_VERSIONS for each in versions):
        return False
    if set(versions) != set(_PROTOCOL_VERSIONS):
        _capabilities(listener)["protocol_versions"] = [_PROTOCOL_VERSIONS[each] for each in versions]
    else:
        _capabilities(listener).pop("protocol_versions", None)
    return True


def _origin(listener: Table, value: str) -> bool:
    """Sites are an option of WebSocket here, so `result` puts them there. Mosquitto, too, ignores them elsewhere."""
    origins = listener.setdefault("origins", [])
    assert isinstance(origins, list)
    origins.append(value)
    return bool(value)


def _domain(listener: Table, value: str) -> bool:
    if not listener.get("host"):
        listener["host"] = {"ipv4": "0.0.0.0", "ipv6": "::"}.get(value, "")
    return value in ("ipv4", "ipv6")


def _capabilities(listener: Table) -> Table:
    capabilities = listener.setdefault("capabilities", {})
    assert isinstance(capabilities, dict)
    return capabilities


def _capability(name: str) -> Callable[[Table, str], bool]:
    """Of one that is offered unless the file says `false`."""

    def put(listener: Table, value: str) -> bool:
        if value == "true":
            _capabilities(listener).pop(name, None)
        else:
            _capabilities(listener)[name] = False
        return True

    return put


_OF_LISTENER: Final[dict[str, Callable[[Table, str], bool]]] = {
    "bind_address": _text("host"),
    "certfile": _in_tls("cert_file"),
    "keyfile": _in_tls("key_file"),
    "cafile": _in_tls("ca_file"),
    "crlfile": _in_tls("crl_file"),
    "require_certificate": _require_certificate,
    "max_connections": _whole("max_connections"),
    "protocol": _protocol,
    "accept_protocol_versions": _versions,
    "websockets_origin": _origin,
    "mount_point": _mount_point,
    "socket_domain": _domain,
    "allow_zero_length_clientid": _capability("allow_empty_client_id"),
    "max_qos": _max_qos,
    "retain_available": _capability("retain_available"),
}


_KEYS: Final = frozenset(
    (
        *("listener", "port", "per_listener_settings", "allow_anonymous", "password_file", "acl_file", "persistence"),
        *("persistence_location", "persistent_client_expiration", "sys_interval", "tls_version", "connection"),
        *(*_LIMITS, *_SO_ANYWAY, *_WHY, *_PLUGIN, *_OF_LISTENER),
    )
) - {"user"}
"""Options with which a mosquitto.conf may begin, without that of ACL files."""


def _pairs(table: Table) -> Iterator[str]:
    for name, value in table.items():
        yield f"{name} = {_toml(value)}\n"


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    # A JSON string is a TOML string, but for DEL. Numbers and truth look alike.
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
