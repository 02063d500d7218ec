"""Converts the bridges of a `mosquitto.conf`: `connection` and the lines that follow it.

Invariant: `take` returns why a line has no counterpart, or the line is in the table, or is so anyway. Of two lines for
one option, the last one is in the table.
"""

import re
from collections.abc import Callable
from typing import Final

import msgspec

from mqttlite.extensions.bridge.options import BridgeTopic, parse_address

Table = dict[str, object]

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._~-]")
_DIRECTIONS: Final = ("out", "in", "both")
_WORD: Final = re.compile(r'"[^"]*"|\S+')
"""A pattern or prefix: in quotes if it is empty, or has spaces."""

_TEXTS: Final = {
    "remote_clientid": "client_id",
    "clientid": "client_id",
    "remote_username": "username",
    "username": "username",
    "remote_password": "password",
    "password": "password",
}
_NUMBERS: Final = {
    "keepalive_interval": ("keep_alive_s", 65_535),
    "idle_timeout": ("idle_timeout_s", 999_999_999),
    "bridge_receive_maximum": ("window", 60_000),
    "bridge_session_expiry_interval": ("session_expiry_s", 0xFFFF_FFFF),
}
"""The options for numbers, and their highest values. The least is 1."""

_TLS: Final = {"bridge_cafile": "ca_file", "bridge_certfile": "cert_file", "bridge_keyfile": "key_file"}

_VERSIONS: Final = {"mqttv311": "3.1.1", "mqttv50": "5.0"}
_TRUTH: Final = {"true": True, "false": False}

_SO_ANYWAY: Final[dict[str, tuple[str, ...] | None]] = {
    "cleansession": ("false",),
    "clean_session": ("false",),
    "local_cleansession": ("false",),
    "round_robin": ("false",),
    "try_private": ("true",),
    "notifications": ("true",),
    "notifications_local_only": ("true",),
    "bridge_attempt_unsubscribe": None,
    "bridge_max_topic_alias": None,
    "bridge_require_ocsp": ("false",),
    "bridge_tls_version": ("tlsv1.2",),
}
"""What we do anyway, with which values; None: with all."""

_WHY: Final = {
    "cleansession": "both brokers keep the session of a bridge",
    "clean_session": "both brokers keep the session of a bridge",
    "local_cleansession": "both brokers keep the session of a bridge",
    "local_clientid": "the client identifier here is $bridge/ and the name of the bridge",
    "local_username": "no rules restrict a bridge here; its topics say what it carries",
    "local_password": "no rules restrict a bridge here; its topics say what it carries",
    "threshold": "a lazy bridge connects when the first message waits",
    "round_robin": "a bridge returns to its first address",
    "try_private": "a 3.1.1 bridge first says that it is one, and connects without that if it is refused",
    "notifications": "the state of a bridge is always published here",
    "notifications_local_only": "the state of a bridge is published here alone",
    "notification_topic": "the state of a bridge is published to $SYS/broker/connection/<name>/state",
    "bridge_capath": "name one file with all authorities in tls.ca_file",
    "bridge_ciphers": "the ciphers are those of the system's OpenSSL",
    "bridge_psk": "pre-shared keys are not supported: use certificates",
    "bridge_identity": "pre-shared keys are not supported: use certificates",
    "bridge_alpn": "no protocol is named for ALPN",
    "bridge_require_ocsp": "OCSP is not asked",
    "bridge_tls_version": "TLS 1.2 is the oldest version; newer ones are used where both know them",
    "bridge_receive_maximum": "window may be 1 to 60000",
    "bridge_session_expiry_interval": "both brokers keep the session of a bridge, for a second at least",
    "bridge_max_packet_size": "limits.max_packet_bytes holds for all",
    "bridge_bind_address": "the system chooses the address",
    "bridge_protocol_version": "MQTT 3.1.1 and 5.0 are spoken; it is 3.1.1",
    "bridge_tcp_keepalive": "MQTT's keep-alive finds dead connections",
    "bridge_tcp_user_timeout": "MQTT's keep-alive finds dead connections",
    "bridge_reload_type": "bridges are read when the broker starts",
}


class BridgeLines:
    """The lines of one `connection`."""

    def __init__(self, name: str) -> None:
        self.name: Final = _NOT_IN_NAMES.sub("-", name)
        """Its name here."""
        self._table: Final[Table] = {}
        self._topics: Final[list[Table]] = []
        self._tls: Final[Table] = {}
        self._trusts_system = False
        self._keeps_retained = True

    @staticmethod
    def has(key: str) -> bool:
        """Whether a line belongs to a bridge, and not to the listener or broker."""
        return key in _TAKES or key in _SO_ANYWAY or key in _WHY or key.startswith("bridge_")

    def take(self, key: str, value: str) -> str:
        """Why a line has no counterpart; empty if it is converted, or is so anyway."""
        try:
            if key in _TAKES and _TAKES[key](self, key, value):
                return ""
        except ValueError as error:  # an option of ours refuses it, msgspec.ValidationError too
            return str(error).partition(" - at `$")[0]
        values = _SO_ANYWAY.get(key, ())
        if values is None or value in values:
            return ""
        return _WHY.get(key, "its value is not understood" if key in _TAKES else "no such option is known")

    def table(self) -> Table | None:
        """The section; None if it has no address or no topics, without which no bridge can be."""
        if "addresses" not in self._table or not self._topics:
            return None
        topics = self._topics
        if not self._keeps_retained:
            topics = [each for topic in topics for each in _out_without_retained(topic)]
        has_tls = self._trusts_system or any(name in self._tls for name in _TLS.values())
        tls: Table = {"tls": self._tls or True} if has_tls else {}
        return {"name": self.name, "version": "3.1.1", **self._table, **tls, "topics": topics}

    # ------------------------------------------------------------------ lines

    def _addresses(self, key: str, value: str) -> bool:
        addresses = value.split()
        for each in addresses:
            parse_address(each, is_tls=False)
        self._table["addresses"] = addresses
        return bool(value)

    def _text(self, key: str, value: str) -> bool:
        self._table[_TEXTS[key]] = value
        return True

    def _number(self, key: str, value: str) -> bool:
        name, highest = _NUMBERS[key]
        if not _is_number(value) or not 1 <= int(value) <= highest:
            return False
        self._table[name] = int(value)
        return True

    def _start(self, key: str, value: str) -> bool:
        if value not in ("automatic", "lazy", "once"):
            return False
        self._table["start"] = value
        return True

    def _version(self, key: str, value: str) -> bool:
        if value not in _VERSIONS:
            return False
        self._table["version"] = _VERSIONS[value]
        return True

    def _delay(self, key: str, value: str) -> bool:
        """`base cap`, or one number."""
        numbers = value.split()
        if not 1 <= len(numbers) <= 2 or not all(map(_is_number, numbers)):
            return False
        self._table["max_delay_s"] = max(1, *map(int, numbers))
        return True

    def _retain(self, key: str, value: str) -> bool:
        self._keeps_retained = _TRUTH.get(value, self._keeps_retained)
        return value in _TRUTH

    def _in_tls(self, key: str, value: str) -> bool:
        self._tls[_TLS[key]] = value
        return True

    def _insecure(self, key: str, value: str) -> bool:
        if value == "true":
            self._tls["insecure"] = True
        elif value == "false":
            self._tls.pop("insecure", None)
        return value in _TRUTH

    def _system_certificates(self, key: str, value: str) -> bool:
        self._trusts_system = _TRUTH.get(value, self._trusts_system)
        return value in _TRUTH

    def _topic(self, key: str, value: str) -> bool:
        """`pattern [[[out | in | both] qos] local-prefix remote-prefix]`."""
        pattern, *rest = [each.strip('"') for each in _WORD.findall(value)] or [""]
        direction, qos, local, remote = [*rest, *("out", "0", "", "")[len(rest) :]][:4]
        is_reserved = (local + pattern).startswith("$")
        is_empty = not (local + pattern and remote + pattern)
        is_carried = not is_reserved or (direction == "out" and (local + pattern).startswith("$SYS"))
        if direction not in _DIRECTIONS or qos not in ("0", "1", "2") or len(rest) > 4 or is_empty or not is_carried:
            return False
        topic: Table = {"pattern": pattern, "direction": direction, "qos": int(qos)}
        topic |= {name: each for name, each in (("local_prefix", local), ("remote_prefix", remote)) if each}
        msgspec.convert(topic, BridgeTopic)
        self._topics.append(topic)
        return True


def _out_without_retained(topic: Table) -> list[Table]:
    """The entries for a topic whose messages are sent without RETAIN, and keep it in the other direction."""
    direction = topic["direction"]
    if direction == "in":
        return [topic]
    out: Table = {**topic, "direction": "out", "retained": False}
    return [out] if direction == "out" else [out, {**topic, "direction": "in"}]


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= 10


_TAKES: Final[dict[str, Callable[[BridgeLines, str, str], bool]]] = {
    "address": BridgeLines._addresses,
    "addresses": BridgeLines._addresses,
    "topic": BridgeLines._topic,
    "start_type": BridgeLines._start,
    "restart_timeout": BridgeLines._delay,
    "bridge_protocol_version": BridgeLines._version,
    "bridge_outgoing_retain": BridgeLines._retain,
    "bridge_insecure": BridgeLines._insecure,
    "bridge_tls_use_os_certs": BridgeLines._system_certificates,
    **dict.fromkeys(_TEXTS, BridgeLines._text),
    **dict.fromkeys(_NUMBERS, BridgeLines._number),
    **dict.fromkeys(_TLS, BridgeLines._in_tls),
}
