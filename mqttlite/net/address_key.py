"""Whom an address stands for, where connections are counted by address."""

import ipaddress

IPV6_PREFIX = 64
"""One customer has an IPv6 network of that many bits, and may use any address in it."""


def address_key(address: str) -> str:
    """The host of `host:port`, and its network for IPv6; empty for what is no address, such as a Unix socket."""
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
