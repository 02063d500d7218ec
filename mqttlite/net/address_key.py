"""The key of an address, for limits that count by address."""

import ipaddress

IPV6_PREFIX = 64
"""A customer usually gets an IPv6 network with a prefix of this length, and may use any address in it."""


def address_key(address: str) -> str:
    """The host of `host:port`, for IPv6 its network. Empty for a peer without an address, for example on a Unix
    socket."""
    host = address.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, IPV6_PREFIX), strict=False))
