"""`mqttlite certs`: make the certificates that TLS needs and say how to use them.

What goes into a certificate lives in `security.certificates`. Invariant: nothing that exists is overwritten.
"""

import shlex
from datetime import UTC, datetime
from pathlib import Path

import click

from mqttlite.security import certificates
from mqttlite.security.certificates import CertificateError, Entry, Pair


@click.group(name="certs")
def command() -> None:
    """Make certificates for TLS."""


@command.command(
    short_help="Make an authority, a server certificate and client certificates.",
    epilog="Exit codes: 0, the set is complete, whether made or kept; 1, refused or failed, and nothing was changed; "
    "2, wrong usage.",
)
@click.argument("directory", metavar="[DIR]", default="certs", type=click.Path(path_type=Path))
@click.option("--client", "clients", metavar="NAME", multiple=True, help="Also a client certificate; repeatable.")
@click.option("--host", "hosts", metavar="NAME", multiple=True, help="Another host name or IP address; repeatable.")
@click.option(
    "--days",
    type=click.IntRange(1, 36500),
    default=certificates.LEAF_DAYS,
    show_default=True,
    help="How long server and client certificates last.",
)
@click.option(
    "--ca-days",
    type=click.IntRange(1, 36500),
    default=certificates.CA_DAYS,
    show_default=True,
    help="How long a new authority lasts.",
)
def init(directory: Path, clients: tuple[str, ...], hosts: tuple[str, ...], days: int, ca_days: int) -> None:
    """Make a private authority in DIR (certs), a server certificate and client certificates.

    The server certificate is valid for localhost, 127.0.0.1, ::1, the name of this machine and every --host. Files that
    exist are kept; run it again with another --client to add only that one.
    """
    try:
        entries = certificates.init(directory, clients=clients, hosts=hosts, days=days, ca_days=ca_days)
    except CertificateError as error:
        raise click.ClickException(str(error)) from None
    now = datetime.now(UTC)
    for entry in entries:
        click.echo(_line(entry, now))
    click.echo("\n" + _next_lines(directory, clients))


def _line(entry: Entry, now: datetime) -> str:
    verb = "made" if entry.made else "kept"
    end = f"until {entry.expires_at:%Y-%m-%d}"
    if entry.expires_at <= now:
        end = f"EXPIRED {entry.expires_at:%Y-%m-%d}: move it and its key away and run this again"
    key = entry.path.with_suffix(".key")  # an authority's key may be kept elsewhere
    files = f"{entry.path} and {key.name}" if entry.made or key.exists() else f"{entry.path}"
    return f"{verb}  {files}  ({entry.purpose}; {end})"


def _next_lines(directory: Path, clients: tuple[str, ...]) -> str:
    """The commands to paste next, with these files."""

    def files(name: str) -> str:
        pair = Pair.named(directory, name)
        return f"--cert {shlex.quote(str(pair.certificate))} --key {shlex.quote(str(pair.key))}"

    authority = f"--cafile {shlex.quote(str(directory / 'ca.crt'))}"
    line = f"-h localhost -p 8883 {authority}" + (f" {files(clients[0])}" if clients else "")
    return "\n".join(
        [
            "Next:",
            f"  mqttlite serve --tls-port 8883 {authority} {files('server')}",
            f"  mqttlite sub {line} -t 'hello/#' -v",
            f"  mqttlite pub {line} -t hello/world -m hello",
            "Clients need ca.crt and their own two files; every .key file stays secret.",
        ]
    )
