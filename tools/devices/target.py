"""Which broker, and how to reach it: the options that device and fleet share.

Invariant: a `Target` that was made can be dialled, as far as this machine's files can tell.
"""

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from mqttlite.security.tls import client_context

CERTIFICATES: Final = Path(__file__).resolve().parents[2] / "certs"
"""Where tools/run keeps the development certificates."""

PORT: Final = 1883
TLS_PORT: Final = 8883

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Target:
    """A broker's address, and TLS with its trust and our certificate if it is spoken."""

    host: str
    port: int
    tls: ssl.SSLContext | None

    def __str__(self) -> str:
        return f"{self.host}:{self.port} over {'TCP' if self.tls is None else 'TLS'}"


def target_options(command: CommandT) -> CommandT:
    """Add --host, --port, --plain, --cafile, --cert and --key."""
    for option in (
        click.option("--key", metavar="FILE", help="The private key of --cert."),
        click.option("--cert", metavar="FILE", help="Our certificate.  [default: certs/device.crt if it is there]"),
        click.option("--cafile", metavar="FILE", help="The CA to trust.  [default: certs/ca.crt, or the system's]"),
        click.option("--plain", is_flag=True, help="Plain TCP instead of TLS."),
        click.option("--port", type=click.IntRange(1, 65_535), help="[default: 8883, with --plain 1883]"),
        click.option("--host", default="localhost", show_default=True, help="The broker."),
    ):
        command = option(command)
    return command


def target(
    host: str,
    port: int | None,
    plain: bool,
    cafile: str | None,
    cert: str | None,
    key: str | None,
    certificates: Path = CERTIFICATES,
) -> Target:
    """The broker that the options name. Raises `click.UsageError`, and `TlsConfigError` for files of no use."""
    named = cafile or cert or key
    if plain:
        if named:
            raise click.UsageError("--plain is without TLS, so --cafile, --cert and --key have no use.")
        return Target(host, PORT if port is None else port, None)
    if not named:  # ours fit together; one of ours beside one of theirs would not
        cafile = _present(certificates / "ca.crt")
        cert, key = _present(certificates / "device.crt"), _present(certificates / "device.key")
        if cert is None or key is None:
            cert = key = None
    return Target(host, TLS_PORT if port is None else port, client_context(cafile, cert, key))


def topic_level(text: str) -> str:
    """Text as one level of a topic: what is no letter, digit, dot, dash or underscore becomes a dash."""
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in text).strip("-") or "unnamed"


def own_name() -> str:
    """This machine's name."""
    return socket.gethostname()


def _present(path: Path) -> str | None:
    return str(path) if path.exists() else None
