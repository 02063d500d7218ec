"""The part of an address that limits count: an IPv4 address, an IPv6 network, or a Unix socket.

Invariant: all addresses that a provider gives to one customer count as one.
"""

import ipaddress
from typing import Final

LOCAL: Final = "unix"
"""Stands for all peers on Unix sockets, which have no addresses."""

IPV6_PREFIX: Final = 64
"""The counted bits of an IPv6 address: a customer has at least a network of that size."""


def network_of(peer: str) -> str:
    """The address of `address:port` without the port; its network for IPv6; `LOCAL` for everything else."""
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
