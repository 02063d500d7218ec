"""Addresses of the engine, and names of machines, as options have them.

Invariant: nothing of the engine's client is needed to import this.
"""

import re
from typing import Final
from urllib.parse import urlsplit

MAX_SERVERS: Final = 16
"""The most addresses of the engine."""

_SCHEME: Final = re.compile(r"[a-z]+://")


def default_node(host: str) -> str:
    """The name of the machine with this host name: letters, digits, '_' and '-', for it is part of a key."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", host)[:64] or "-"


def is_address(url: str, schemes: tuple[str, ...]) -> bool:
    """Whether it is an address of one of the schemes, with a host and a port."""
    try:
        parts = urlsplit(url)
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of brackets, or of the port
        return False


def shown(url: str) -> str:
    """An address without its password, for logs and errors; also one that is wrong."""
    found = _SCHEME.match(url)
    scheme = "" if found is None else found[0]
    return scheme + url.removeprefix(scheme).rpartition("@")[2]
