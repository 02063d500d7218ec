"""Decides which addresses push requests may go to: public addresses of the Internet.

Pure. The lists are explicit, because those of `ipaddress` differ between Python releases. Invariant: an IPv6 address
outside `GLOBAL_V6` is not public.
"""

import ipaddress
from collections.abc import Iterable
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text) for text in texts)


METADATA: Final = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "100.100.100.200",  # Alibaba Cloud
        "168.63.129.16",  # Azure, an address of the Internet by its number
        "169.254.0.23",  # Tencent Cloud
        "169.254.42.42",  # Scaleway
        "169.254.169.123",  # the clock of AWS
        "169.254.169.253",  # the name server of AWS
        "169.254.169.254",  # AWS, Azure, Google, DigitalOcean, OpenStack and others
        "169.254.170.2",  # containers of AWS
        "169.254.170.23",
        "192.0.0.192",  # Oracle
        "192.80.8.124",  # Equinix Metal, an address of the Internet by its number
        "fd00:42::42",  # Scaleway
        "fd00:ec2::23",
        "fd00:ec2::253",
        "fd00:ec2::254",
        "fd20:ce::254",  # Google
        "fe80::a9fe:a9fe",  # OpenStack
    )
)
"""Metadata services of clouds, which give out credentials. No option allows them."""

NEVER: Final = _networks(
    "0.0.0.0/8",  # this host: the kernel connects to the loopback interface
    "224.0.0.0/4",  # multicast
    "240.0.0.0/4",  # reserved, and 255.255.255.255
    "::/96",  # unspecified, and IPv4-compatible addresses; ::1 is in PRIVATE
    "::ffff:0:0/96",  # IPv4-mapped
    "::ffff:0:0:0/96",  # IPv4-translated
    "64:ff9b::/96",  # NAT64: an IPv4 address behind a translator
    "64:ff9b:1::/48",
    "100::/64",  # discard
    "2001::/32",  # Teredo
    "2002::/16",  # 6to4
    "5f00::/16",  # segment routing
    "fec0::/10",  # site-local, deprecated
    "ff00::/8",  # multicast
)
"""Addresses that are no endpoints, or embed another address. No option allows them."""

PRIVATE: Final = _networks(
    "10.0.0.0/8",
    "100.64.0.0/10",  # carrier-grade NAT
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",  # IETF protocol assignments
    "192.0.2.0/24",  # documentation
    "192.88.99.0/24",  # 6to4 relays, deprecated
    "192.168.0.0/16",
    "198.18.0.0/15",  # benchmarking
    "198.51.100.0/24",  # documentation
    "203.0.113.0/24",  # documentation
    "::1/128",
    "2001::/23",  # IETF protocol assignments: ORCHID, benchmarking and others
    "2001:db8::/32",  # documentation
    "3ffe::/16",  # 6bone, returned
    "3fff::/20",  # documentation
    "fc00::/7",  # unique local
    "fe80::/10",  # link-local
)
"""Addresses that are only valid within one network. An operator may allow them."""

GLOBAL_V6: Final = ipaddress.IPv6Network("2000::/3")
"""All assigned public IPv6 addresses."""

_LOOPBACK_V6: Final = ipaddress.IPv6Address("::1")


def why_denied(address: Address, allowed: Iterable[Network] = (), is_named: bool = False) -> str:
    """Why no request may go to an address; empty if it may.

    `allowed` are the private networks that the operator allows; `is_named` says that the operator allows the endpoint
    by name.
    """
    shown = str(address)
    if ipaddress.ip_address(shown.partition("%")[0]) in METADATA:
        return f"{shown} is where clouds keep credentials"
    if address != _LOOPBACK_V6 and any(address in network for network in NEVER):
        return f"{shown} is no address of an endpoint"
    is_public = not any(address in network for network in PRIVATE) and (address.version == 4 or address in GLOBAL_V6)
    if is_public or is_named or any(address in network for network in allowed):
        return ""
    return f"{shown} is a private or reserved address"


def parse_address(text: str) -> Address | None:
    """Parse an address from `getaddrinfo`, keeping a zone (`%eth0`). None for another text."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
