"""Keyed hashes in the place of client ids, user names, addresses and topics.

Invariant: a name always has the same pseudonym for a key, and guessing names needs the key.
"""

import contextlib
import functools
import hmac
import os
import re
import secrets
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, TypeVar

from mqttlite.extensions.dataset.options import Kind, TelemetryError, TelemetryOptions

DIGITS: Final = 16
"""The hexadecimal digits of a pseudonym: the chance that two of a million names share one is 1 in 37 million."""

MIN_KEY_BYTES: Final = 32
"""A shorter key could be found by trying."""

MAX_CACHED: Final = 10_000
"""Cached pseudonyms of each kind: a hash costs a few microseconds, and topics repeat."""

OF_NODES: Final = "$node/"
"""At a node the identifiers of other nodes begin with it: `$node/<name>`. Their clients that use something here are
`$node/<name>/<client id>`. At a broker alone, each client may have such an identifier."""

_PORT: Final = re.compile(r":\d+$")
_QUOTED: Final = re.compile(r"""['"].*['"]""", re.DOTALL)

_Name = TypeVar("_Name", bound=str | None)


class Pseudonyms:
    """One method for each kind of name. Kinds that are not hidden are returned unchanged. `is_node` tells whether
    another node has a name."""

    def __init__(
        self, kinds: Collection[Kind] = (), key: bytes = b"", is_node: Callable[[str], bool] = lambda _: False
    ) -> None:
        def named(kind: Kind, prefix: str) -> Callable[[str], str]:
            if kind not in kinds:
                return str
            return functools.lru_cache(MAX_CACHED)(functools.partial(_pseudonym, key, prefix))

        self._is_node: Final = is_node
        self._hides: Final = bool(kinds)
        self._client_id: Final = named("client_ids", "c")
        self._username: Final = named("usernames", "u")
        self._host: Final = named("addresses", "a")
        self._hides_addresses: Final = "addresses" in kinds
        self._level: Final = named("topics", "t")
        self._topic: Final = functools.lru_cache(MAX_CACHED)(self._each_level) if "topics" in kinds else str

    def client_id(self, name: _Name) -> _Name:
        """Other nodes keep their names."""
        if name is None:
            return name
        if name.startswith(OF_NODES):
            node, slash, client_id = name.removeprefix(OF_NODES).partition("/")
            if self._is_node(node):
                return f"{OF_NODES}{node}/{self._client_id(client_id)}" if slash else name  # type: ignore[return-value]
        return self._client_id(name)  # type: ignore[return-value]

    def username(self, name: _Name) -> _Name:
        return name if name is None else self._username(name)  # type: ignore[return-value]

    def address(self, peer: str) -> str:
        """The pseudonym of `address:port`, without the port, which could identify the client in a proxy's log."""
        return self._host(_PORT.sub("", peer)) if self._hides_addresses else peer

    def topic(self, topic: str) -> str:
        """A topic's name, or a filter: level by level."""
        return self._topic(topic)

    def sentence(self, text: str) -> str:
        """A sentence of the broker; without its quotations if any kind is hidden, because they may contain names."""
        return _QUOTED.sub("…", text) if self._hides else text

    def quotation(self, text: str) -> str:
        """A sentence from a client, which may contain any name; removed if any kind is hidden."""
        return "" if self._hides else text

    def _each_level(self, topic: str) -> str:
        # `$SYS`, `$share` and their like are the standard's words; an empty level says nothing.
        return "/".join(
            level if level in ("", "+", "#") or (at == 0 and level.startswith("$")) else self._level(level)
            for at, level in enumerate(topic.split("/"))
        )


def pseudonyms_of(options: TelemetryOptions, is_node: Callable[[str], bool] = lambda _: False) -> Pseudonyms:
    """As the options say. Raises `TelemetryError` for a key file that cannot be used."""
    if not options.pseudonymise or options.pseudonym_key_file is None:
        return Pseudonyms()
    return Pseudonyms(options.pseudonymise, _key_in(Path(options.pseudonym_key_file)), is_node)


def check_key_file(options: TelemetryOptions) -> None:
    """Raises `TelemetryError` for a key file that cannot be used or made; changes nothing on the disk."""
    if not options.pseudonymise or options.pseudonym_key_file is None:
        return
    path = Path(options.pseudonym_key_file)
    if path.exists():
        _key_in(path)
    elif not path.parent.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise TelemetryError("pseudonym_key_file", f"{path}: cannot be made: make the folder {path.parent} writable")


def _pseudonym(key: bytes, prefix: str, name: str) -> str:
    text = f"{prefix}-{name}".encode(errors="surrogatepass")
    return f"{prefix}-{hmac.digest(key, text, 'sha256').hex()[:DIGITS]}"


def _key_in(path: Path) -> bytes:
    """The key in a file, which is made if it is not there."""
    try:
        if not path.exists():
            _make_key(path)
        key = path.read_bytes().strip()
    except OSError as error:
        raise TelemetryError("pseudonym_key_file", f"{path}: cannot be read or made: {error.strerror}") from None
    if len(key) < MIN_KEY_BYTES:
        raise TelemetryError(
            "pseudonym_key_file",
            f"{path}: a key of {len(key)} bytes is too short: {MIN_KEY_BYTES} at least; "
            "remove the file, and a good one is made, under which all names have other pseudonyms",
        )
    return key


def _make_key(path: Path) -> None:
    """Brokers that start together may all try: the file appears whole, and only one of theirs remains."""
    own = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    fd = os.open(own, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(secrets.token_hex(32).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(own, path)
    finally:
        own.unlink()
