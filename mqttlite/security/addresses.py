"""Whose an address is, as far as limits go: an IPv4 address, an IPv6 network, or a Unix socket.

Invariant: addresses that one customer of a provider gets without asking are one.
"""

import ipaddress
from typing import Final

LOCAL: Final = "unix"
"""All that come through Unix sockets: they have no addresses of their own."""

IPV6_PREFIX: Final = 64
"""Bits of an IPv6 address that are counted: a customer has at least a network of that size, and may use all of it."""


def network_of(peer: str) -> str:
    """The address of `address:port` without its port, the network of an IPv6 address, and `LOCAL` for all else."""
    host = peer.rpartition(":")[0].strip("[]")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return LOCAL
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), IPV6_PREFIX), strict=False))
