"""The section `[nodes]` of the configuration: brokers that pass live messages to each other."""

import re
from typing import Final

import msgspec

from mqttlite.engine.addresses import MAX_SERVERS, is_address, shown

MAX_ADDRESS: Final = 300
"""Of characters: a host name has 253 at most."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_name(name: str) -> bool:
    """Whether it may be the name of a node."""
    return _NAME.fullmatch(name) is not None


class NodesOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Makes this broker one of several, of which each serves its own clients."""

    servers: tuple[str, ...]
    """The addresses of NATS, which carries the messages: `nats://host:4222`, or `tls://host:4222`."""
    name: str = "mqttlite"
    """The name of all nodes together. Other nodes on the same NATS have another."""
    node: str = ""
    """The name of this node, which no other one has. Empty: the host name, with '-' for other characters than letters,
    digits, '_', '-'."""
    address: str = ""
    """Where clients find this node, as `host:port`: what 5.0 clients of a node that drains are told (Server Reference).
    Empty: they are told of no other one, as behind a balancer."""
    keep_s: int = 86_400
    """How long messages of QoS 1 and 2 wait for a node that is away, in seconds. After that they are dropped, with what
    it subscribed to."""
    user: str = ""
    """The name of this node at NATS. Empty: it logs in with `credentials_file`, or without a name."""
    password: str = ""
    """Its password."""
    credentials_file: str | None = None
    """Its credentials (a `.creds` file of NATS) in place of a name."""
    ca_file: str | None = None
    """For addresses that begin with `tls://`: who signed the certificates of NATS. Absent: whom the system trusts."""
    cert_file: str | None = None
    """The certificate of this node, with its chain, where NATS asks for one."""
    key_file: str | None = None
    """Its private key. Absent: it is in `cert_file`."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.servers) <= MAX_SERVERS:
            raise ValueError(f"servers has {len(self.servers)} addresses: name 1 to {MAX_SERVERS}, best all of them")
        for address in self.servers:
            if not is_address(address, ("nats", "tls")):
                raise ValueError(
                    f'servers has {shown(address)!r}: write it like "nats://10.0.0.1:4222", with a port from 1 to '
                    "65535, and an IPv6 address in brackets"
                )
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name is {self.name!r}: use 1 to 64 letters, digits, '_' and '-'")
        if self.node and not _NAME.fullmatch(self.node):
            raise ValueError(f"node is {self.node!r}: use 1 to 64 letters, digits, '_' and '-'")
        if len(self.address) > MAX_ADDRESS:
            raise ValueError(f"address has {len(self.address)} characters, at most {MAX_ADDRESS}")
        if not 1 <= self.keep_s <= 0xFFFFFFFE:
            raise ValueError(f"keep_s is {self.keep_s}: from 1 to {0xFFFFFFFE} seconds")
        if self.password and not self.user:
            raise ValueError("password is set without the name that it belongs to")
