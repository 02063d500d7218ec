"""Names that stand in a path as one segment although they have slashes in them: client identifiers and users.

A server decodes `%2F` before routes are looked for, and `/clients/a%2Fqueue` would be the queue of a client `a`. So
below `PREFIXES` routes get these segments undecoded, as far as slashes go. Invariant: `segment` of what a route gets is
the name that was encoded, whatever is in it.
"""

from typing import Final
from urllib.parse import unquote_to_bytes

from mqttlite.gateway.bodies import Scope

PREFIXES: Final = (b"/api/v1/clients/", b"/api/v1/topics/", b"/api/v1/users/")


def keep_slashes(scope: Scope) -> Scope:
    """The scope for the routes: the same, but for a path in which encoded slashes and percent signs stay encoded."""
    raw: bytes = scope.get("raw_path") or b""
    if not raw.startswith(PREFIXES) or b"%" not in raw:
        return scope
    path = raw.replace(b"%25", b"%2525").replace(b"%2F", b"%252F").replace(b"%2f", b"%252F")
    return {**scope, "path": unquote_to_bytes(path).decode(errors="replace")}
