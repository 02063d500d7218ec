"""Whether a request was sent to this machine by one of its own names.

A page of another site can make its own name lead to 127.0.0.1 (DNS rebinding) and then reads what only this machine
should. The browser still sends that name in `Host`. Invariant: no name that somebody can register is local.
"""

import ipaddress


def is_local(host: str) -> bool:
    """Whether a header `Host` (with or without a port) is `localhost` or a loopback address."""
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False
