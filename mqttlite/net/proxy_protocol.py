"""The PROXY protocol, versions 1 and 2: a proxy sends the address of the client whose connection it forwards.

The header comes before everything else, including TLS. Of the optional fields of version 2 only those about TLS are
read, and they are shown only: clients must identify themselves to the broker, in TLS or MQTT. Invariant: no byte after
the header is read from the socket.
"""

import asyncio
import ipaddress
import socket
import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from mqttlite.net.link import ProxiedTls, format_address

LINE_BYTES: Final = 107
"""The longest header of version 1, by its specification."""

BODY_BYTES: Final = 4_096
"""The longest header of version 2 that is read. Two addresses take 36 or 216 bytes, optional fields a few hundred."""

_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_LOCAL: Final = 0x20
_PROXY: Final = 0x21
_UNSPECIFIED: Final = 0x00
_TCP4: Final = 0x11
_TCP6: Final = 0x21
_UNIX: Final = 0x31
_ADDRESS_BYTES: Final = {_TCP4: 12, _TCP6: 36, _UNIX: 216}

_TLS: Final = 0x20
"""The optional field with the facts of TLS, and the fields inside it."""
_TLS_VERSION: Final = 0x21
_TLS_CERTIFICATE_NAME: Final = 0x22
_TLS_CIPHER: Final = 0x23
_HAS_TLS: Final = 0x01
_HAS_CERTIFICATE: Final = 0x02 | 0x04
"""The client gave a certificate in this connection, or in an earlier one of its TLS session."""

MAX_FACT: Final = 256
"""The most characters of a name in a header that are kept."""


class Origin(NamedTuple):
    """What a header tells of a connection."""

    address: str | None
    """The client's; None if the proxy connects for itself."""
    tls: ProxiedTls | None = None
    """Its TLS with the proxy."""


class ProxyOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The proxies that must send a header. No other peer may connect to the listener."""

    trusted: tuple[str, ...] = ()
    """Addresses and networks of the proxies, for example `10.0.0.5` or `10.0.0.0/8`. On a Unix socket every program
    that may open it is a proxy."""

    def __post_init__(self) -> None:
        check_networks("trusted", self.trusted)


def check_networks(name: str, networks: Iterable[str]) -> None:
    """Raises `ValueError`, which names the option, if one of them is no address or network."""
    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise ValueError(f"{name} has {network!r}: {error}{_network_of(network)}") from None


def _network_of(text: str) -> str:
    """A hint with the network, if an address inside it was given."""
    try:
        return f"; write {ipaddress.ip_network(text, strict=False)}"
    except ValueError:
        return ""


class BadHeader(ConnectionError):
    """A trusted proxy sent no header, or an invalid one."""


class Proxies:
    """The proxies of one listener."""

    def __init__(self, options: ProxyOptions) -> None:
        self._networks: Final = tuple(ipaddress.ip_network(network) for network in options.trusted)

    def trusts(self, peername: object) -> bool:
        """Whether the peer with this transport peer name is a trusted proxy."""
        if not isinstance(peername, tuple):
            return True  # a Unix socket: its file mode has already admitted the peer
        address = ipaddress.ip_address(str(peername[0]).partition("%")[0])
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return any((mapped or address) in network for network in self._networks)


async def read_header(accepted: socket.socket) -> Origin:
    """Read a header from a non-blocking socket.

    Raises `BadHeader`, and `OSError` from the socket.
    """
    start = await _exactly(accepted, len(_SIGNATURE))
    if start == _SIGNATURE:
        command, family, length = struct.unpack("!BBH", await _exactly(accepted, 4))
        if length > BODY_BYTES:
            raise BadHeader(f"a PROXY header of {length} bytes, at most {BODY_BYTES} are read")
        body = await _exactly(accepted, length)
        return Origin(parse_body(command, family, body), parse_tls(command, family, body))
    if not start.startswith(b"PROXY "):
        raise BadHeader("no PROXY header; is it turned on in the proxy?")
    line = start
    while not line.endswith(b"\r\n"):
        if len(line) >= LINE_BYTES:
            raise BadHeader(f"a PROXY line of more than {LINE_BYTES} bytes")
        line += await _exactly(accepted, 1 if line.endswith(b"\r") else 2)  # these belong to it in any case
    return Origin(parse_line(line))


async def _exactly(accepted: socket.socket, length: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < length:
        more = await loop.sock_recv(accepted, length - len(data))
        if not more:
            raise BadHeader("closed before the end of a PROXY header")
        data += more
    return data


def parse_line(line: bytes) -> str | None:
    """The client's address in a complete header of version 1. Raises `BadHeader`."""
    words = line[:-2].split(b" ")
    if words[1] == b"UNKNOWN":
        return None
    versions = {b"TCP4": 4, b"TCP6": 6}
    if len(words) != 6 or words[1] not in versions:
        raise BadHeader(f"a PROXY line that is none: {line!r}")
    try:
        if b"%" in line:
            raise ValueError("a zone, which is anything, means nothing here")
        source, target = (ipaddress.ip_address(word.decode("ascii")) for word in words[2:4])
    except ValueError:
        raise BadHeader(f"a PROXY line with an address that is none: {line!r}") from None
    if not source.version == target.version == versions[words[1]]:
        raise BadHeader(f"a PROXY line with an address of another family: {line!r}")
    if not all(word.isdigit() and len(word) <= 5 and int(word) <= 65_535 for word in words[4:]):
        raise BadHeader(f"a PROXY line with a port that is none: {line!r}")
    return format_address((source, int(words[4])))


def parse_body(command: int, family: int, body: bytes) -> str | None:
    """The client's address in a header of version 2, of which `body` follows the length. Raises `BadHeader`."""
    if command == _LOCAL:  # a health check by the proxy itself
        return None
    if command != _PROXY:
        raise BadHeader(f"a PROXY header with version and command 0x{command:02x}")
    if family == _UNSPECIFIED:
        return None
    length = _ADDRESS_BYTES.get(family)
    if length is None:
        raise BadHeader(f"a PROXY header for a connection of kind 0x{family:02x}")
    if len(body) < length:
        raise BadHeader(f"a PROXY header with {len(body)} bytes for addresses of {length}")
    if family == _TCP4:
        return format_address((ipaddress.IPv4Address(body[:4]), *struct.unpack("!H", body[8:10])))
    if family == _TCP6:
        return format_address((ipaddress.IPv6Address(body[:16]), *struct.unpack("!H", body[32:34])))
    return format_address("")  # a Unix socket of the proxy


def parse_tls(command: int, family: int, body: bytes) -> ProxiedTls | None:
    """The facts of TLS in the optional fields behind the addresses. None without them, and where they make no sense."""
    if command != _PROXY:
        return None
    found = dict(_fields(body[_ADDRESS_BYTES.get(family, 0) :])).get(_TLS, b"")
    if len(found) < 5 or not found[0] & _HAS_TLS:
        return None
    facts = {kind: _text(value) for kind, value in _fields(found[5:])}
    return ProxiedTls(
        facts.get(_TLS_VERSION) or "TLS",
        facts.get(_TLS_CIPHER),
        facts.get(_TLS_CERTIFICATE_NAME),
        is_verified=bool(found[0] & _HAS_CERTIFICATE) and found[1:5] == bytes(4),
    )


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and value of each optional field, up to one that does not fit."""
    at = 0
    while at + 3 <= len(data):
        kind, length = struct.unpack_from("!BH", data, at)
        at += 3
        if at + length > len(data):
            return
        yield kind, data[at : at + length]
        at += length


def _text(value: bytes) -> str:
    """A text that is safe to show."""
    found = value.decode(errors="replace")[:MAX_FACT]
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in found)
