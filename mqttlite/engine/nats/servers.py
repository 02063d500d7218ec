"""Where the NATS servers are, and who we are there."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final
from urllib.parse import SplitResult, urlsplit

DEFAULT_MAX_FILE_BYTES: Final = 4 * 1024**3
"""The room for snapshots: the older one goes when the newer is whole."""


@final
@dataclass(frozen=True, slots=True)
class NatsLogin:
    """An account's user, by one of the ways that NATS knows. Empty: anonymous, or as the server's URL says."""

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    credentials: Path | None = None


@final
@dataclass(frozen=True, slots=True)
class NatsOptions:
    """`servers` are URLs (`nats://host:4222`, `tls://…`), one for each server. `cluster` is in every name we use there.

    The rest is for the check of `sync_interval`, which an ordinary account may not read: `system` is a user of the
    servers' system account; `monitoring` are the URLs of their monitoring ports; `is_sync_assured` says that the
    operator has looked.
    """

    servers: tuple[str, ...]
    cluster: str
    login: NatsLogin = NatsLogin()
    tls: ssl.SSLContext | None = None
    max_file_bytes: int = DEFAULT_MAX_FILE_BYTES
    system: NatsLogin | None = None
    monitoring: tuple[str, ...] = ()
    is_sync_assured: bool = False


def split(url: str) -> SplitResult:
    """The parts of a server's address; the scheme may be left out."""
    return urlsplit(url if "://" in url else f"nats://{url}")
