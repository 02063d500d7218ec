"""The section `push` of the configuration: options for all pushed queues."""

import ipaddress
from typing import Final

import msgspec

from mqttlite.extensions.queues.push_addresses import NEVER, Network

MAX_ALLOWED: Final = 1_000
"""The most allowed names, or networks. Each connection checks all networks."""


class PushOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which endpoints are allowed in addition to HTTPS on the Internet, and how they are verified."""

    allowed_hosts: tuple[str, ...] = ()
    """Names and addresses of endpoints that may be private, and may use http:// and any port."""
    allowed_networks: tuple[str, ...] = ()
    """Private networks in which endpoints may be, for example `10.1.0.0/16`."""
    ca_file: str | None = None
    """The CA certificates that verify the endpoints, in PEM. Absent: the system's."""

    def __post_init__(self) -> None:
        for name in ("allowed_hosts", "allowed_networks"):
            if len(getattr(self, name)) > MAX_ALLOWED:
                raise ValueError(f"{name} has {len(getattr(self, name))} entries: {MAX_ALLOWED} at most")
        for host in self.allowed_hosts:
            if not host or host != host.strip().lower() or any(each in host for each in "/@[]*") or host.endswith("."):
                raise ValueError(f"allowed_hosts has {host!r}: a name in lower case or an address is meant, and no URL")
        for network in self.networks:
            if network.prefixlen == 0 or any(
                network.version == each.version and network.subnet_of(each)  # type: ignore[arg-type]
                for each in NEVER
            ):
                raise ValueError(f"allowed_networks has {str(network)!r}: no endpoint can be there, or anywhere")

    @property
    def networks(self) -> tuple[Network, ...]:
        """`allowed_networks`. Raises `ValueError`."""
        try:
            return tuple(ipaddress.ip_network(each) for each in self.allowed_networks)
        except ValueError as error:
            raise ValueError(f"allowed_networks: {error}") from None
