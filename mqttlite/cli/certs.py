"""`mqttlite certs`: make the certificates that TLS needs, keep them valid, and say how to use them.

`security` makes the certificates. Invariant: no key that exists is overwritten.
"""

import json
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from mqttlite.cli.ask_admin import print_table
from mqttlite.security import authority, certificates, issuing
from mqttlite.security.authority import Issued
from mqttlite.security.certificate_files import CertificateError, Pair
from mqttlite.security.certificates import Entry
from mqttlite.security.findings import Level
from mqttlite.security.local_examination import examine_directory
from mqttlite.security.remote_examination import Visit, examine_broker

EXIT_EXPIRED: Final = 3

_directory: Final = click.option(
    "--dir",
    "directory",
    metavar="DIR",
    default="certs",
    show_default=True,
    type=click.Path(path_type=Path),
    help="The directory of the authority.",
)
_days: Final = click.option(
    "--days",
    type=click.IntRange(1, 36500),
    default=None,
    help=f"How long they last.  [default: {issuing.SERVER_DAYS} for servers, {issuing.CLIENT_DAYS} for clients]",
)
_crl_url: Final = click.option(
    "--crl-url",
    metavar="URL",
    help="Where others get the list of revoked certificates, for the new certificates to name. You put the list there.",
)


@click.group(name="certs")
def command() -> None:
    """Make certificates for TLS, and keep them valid."""


@command.command(
    short_help="Make an authority, a server certificate and client certificates.",
    epilog="Exit codes: 0, the set is complete, whether made or kept; 1, refused or failed, and nothing was changed; "
    "2, wrong usage; 3, what was missing is made, and some of what was kept has expired.",
)
@_directory
@click.option("--client", "clients", metavar="NAME", multiple=True, help="Also a client certificate; repeatable.")
@click.option("--host", "hosts", metavar="NAME", multiple=True, help="Another host name or IP address; repeatable.")
@_days
@click.option(
    "--ca-days",
    type=click.IntRange(1, 36500),
    default=issuing.CA_DAYS,
    show_default=True,
    help="How long a new authority lasts.",
)
@_crl_url
def init(
    directory: Path,
    clients: tuple[str, ...],
    hosts: tuple[str, ...],
    days: int | None,
    ca_days: int,
    crl_url: str | None,
) -> None:
    """Make a private authority in DIR, a server certificate and client certificates.

    The server certificate is valid for localhost, 127.0.0.1, ::1, the name of this machine and every --host. Files that
    exist are kept; run it again with another --client to add only that one.
    """
    try:
        entries = certificates.init(
            directory, clients=clients, hosts=hosts, days=days, ca_days=ca_days, crl_url=crl_url
        )
    except CertificateError as error:
        raise click.ClickException(str(error)) from None
    now = datetime.now(UTC)
    for entry in entries:
        click.echo(_line(entry, now))
    expired = [entry for entry in entries if entry.expires_at <= now]
    if not expired:
        click.echo("\n" + _next_lines(directory, clients))
        return
    click.echo("\n" + _renewal(directory, expired), err=True)
    sys.exit(EXIT_EXPIRED)


@command.command(
    short_help="Make certificates for more clients.",
    epilog="Exit codes: 0, all were made; 1, refused or failed, and nothing was changed; 2, wrong usage.",
)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_directory
@_days
@_crl_url
def issue(names: tuple[str, ...], directory: Path, days: int | None, crl_url: str | None) -> None:
    """Make NAME.crt and NAME.key for each client; the common name of the certificate is NAME.

    A file that exists is never overwritten.
    """
    try:
        entries = certificates.issue(directory, names, days=days, crl_url=crl_url)
    except CertificateError as error:
        raise click.ClickException(str(error)) from None
    now = datetime.now(UTC)
    for entry in entries:
        click.echo(_line(entry, now))


@command.command(
    short_help="Make newer certificates for the same keys.",
    epilog="Exit codes: 0, what was to be renewed is; 1, refused or failed; 2, wrong usage.",
)
@click.argument("names", metavar="[NAME...]", nargs=-1)
@_directory
@click.option(
    "--within",
    "within_days",
    type=click.IntRange(0, 36500),
    default=authority.RENEW_WITHIN_DAYS,
    show_default=True,
    help="Without a NAME: renew certificates that end within this many days.",
)
@_days
@_crl_url
def renew(names: tuple[str, ...], directory: Path, within_days: int, days: int | None, crl_url: str | None) -> None:
    """Replace NAME.crt by a newer certificate for the same key and names; without a NAME, all that end soon.

    A broker uses the new files within a second. Keys and the authority stay, and former certificates are valid until
    they end.
    """
    try:
        renewed = authority.renew(directory, names, within_days=within_days, days=days, crl_url=crl_url)
    except CertificateError as error:
        raise click.ClickException(str(error)) from None
    for each in renewed:
        click.echo(f"renewed  {each.path}  ({_described(each)}; until {each.expires_at:%Y-%m-%d})")
    if not renewed:
        click.echo(f"Nothing ends within {within_days} days.")


@command.command(
    short_help="Revoke the certificates of a client.",
    epilog="Exit codes: 0, they are revoked; 1, refused or failed, and nothing was changed; 2, wrong usage.",
)
@click.argument("name", metavar="NAME")
@_directory
def revoke(name: str, directory: Path) -> None:
    """Put every valid certificate of NAME on the list DIR/crl.pem.

    A broker whose listener has this file as its crl_file disconnects the client within a second, and lets it in no
    more.
    """
    try:
        revoked = authority.revoke(directory, name)
    except CertificateError as error:
        raise click.ClickException(str(error)) from None
    for each in revoked:
        click.echo(f"revoked  {each.serial}  ({_described(each)}; until {each.expires_at:%Y-%m-%d})")
    click.echo(f"{directory / certificates.CRL} has them; name it in the listener's crl_file, or with --crl.")


@command.command(
    "list",
    short_help="List what was issued.",
    epilog="Exit codes: 0, listed; 1, there is no authority, or a file is damaged; 2, wrong usage.",
)
@_directory
@click.option("--json", "as_json", is_flag=True, help="One JSON object on each line.")
def list_(directory: Path, as_json: bool) -> None:
    """List the authority and its certificates: names, serial numbers, when they end, and which are revoked."""
    try:
        found = authority.issued(directory)
    except CertificateError as error:
        raise click.ClickException(str(error)) from None
    now = datetime.now(UTC)
    if as_json:
        for each in found:
            click.echo(json.dumps(_as_json(each, now)))
        return
    rows = [
        (each.name, each.purpose, _days_left(each, now), _state(each, now), each.serial, ", ".join(each.hosts))
        for each in found
    ]
    print_table(("NAME", "PURPOSE", "EXPIRES IN", "STATE", "SERIAL", "HOSTS"), rows)


@command.command(
    short_help="Say in words why a client would fail.",
    epilog="Exit codes: 0, nothing is wrong; 1, a client would fail; 2, wrong usage; 3, it works, but there are "
    "warnings, such as a certificate that expires soon.",
)
@_directory
@click.option(
    "--connect", metavar="HOST[:PORT]", help="Connect to this broker as a client would.  [default port: 8883]"
)
@click.option("--cafile", metavar="FILE", help="With --connect: the authority that the client trusts.")
@click.option("--cert", metavar="FILE", help="With --connect: the certificate that the client shows.")
@click.option("--key", metavar="FILE", help="With --connect: its key.")
@click.option(
    "--days",
    "warn_days",
    type=click.IntRange(0, 36500),
    default=authority.RENEW_WITHIN_DAYS,
    show_default=True,
    help="Warn of certificates that expire within this many days.",
)
def doctor(
    directory: Path, connect: str | None, cafile: str | None, cert: str | None, key: str | None, warn_days: int
) -> None:
    """Examine the certificates in DIR, or with --connect a broker that runs, and say what is wrong and what to do.

    With --connect nothing is read from DIR. Without --cafile the system's authorities are trusted.
    """
    now = datetime.now(UTC)
    if connect is None:
        if cafile or cert or key:
            raise click.UsageError("--cafile, --cert and --key belong to --connect, which is missing.")
        findings = examine_directory(directory, now, warn_days)
    else:
        host, port = _address(connect)
        if key is not None and cert is None:
            raise click.UsageError("--key belongs to --cert, which is missing.")
        findings = examine_broker(
            Visit(host=host, port=port, cafile=cafile, cert=cert, key=key, now=now, warn_days=warn_days)
        )
    levels = set()
    for finding in findings:
        levels.add(finding.level)
        click.echo(f"{finding.level:8} {finding.text}")
    sys.exit(1 if Level.PROBLEM in levels else 3 if Level.WARNING in levels else 0)


def _address(text: str) -> tuple[str, int]:
    """A host and a port, of `host`, `host:port`, `[::1]:port` and `mqtts://host:port`."""
    parts = urlsplit(text if "://" in text else f"mqtts://{text}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.path not in ("", "/"):
        raise click.BadParameter(f"{text!r} is not HOST:PORT, such as broker.example:8883.", param_hint="--connect")
    return host, 8883 if port is None else port


def _as_json(each: Issued, now: datetime) -> dict[str, object]:
    return {
        "name": each.name,
        "purpose": each.purpose,
        "hosts": each.hosts,
        "serial": each.serial,
        "expires_at": each.expires_at.isoformat(),
        "expires_in_s": int((each.expires_at - now).total_seconds()),
        "revoked_at": None if each.revoked_at is None else each.revoked_at.isoformat(),
        "file": None if each.path is None else str(each.path),
    }


def _days_left(each: Issued, now: datetime) -> str:
    days = (each.expires_at - now).days
    return "-" if days < 0 else f"{days} days"


def _state(each: Issued, now: datetime) -> str:
    if each.revoked_at is not None:
        return f"revoked {each.revoked_at:%Y-%m-%d}"
    if each.expires_at <= now:
        return f"expired {each.expires_at:%Y-%m-%d}"
    return "valid" if each.path is not None else "valid, not here"


def _described(each: Issued) -> str:
    return each.purpose if each.purpose == each.name else f"{each.purpose} {each.name}"


def _line(entry: Entry, now: datetime) -> str:
    verb = "made" if entry.made else "kept"
    end = f"until {entry.expires_at:%Y-%m-%d}"
    if entry.expires_at <= now:
        end = f"EXPIRED {entry.expires_at:%Y-%m-%d}"
    key = entry.path.with_suffix(".key")  # an authority's key may be kept elsewhere
    files = f"{entry.path} and {key.name}" if entry.made or key.exists() else f"{entry.path}"
    return f"{verb}  {files}  ({entry.purpose}; {end})"


def _renewal(directory: Path, expired: Sequence[Entry]) -> str:
    """Advice for certificates that have expired: their keys and names can stay, unless it is the authority."""
    names = [entry.path.stem for entry in expired]
    if "ca" in names:
        return "The authority has expired: make a new set in an empty directory, and give its ca.crt to every client."
    return f"Renew what has expired:\n  mqttlite certs renew {' '.join(names)} --dir {shlex.quote(str(directory))}"


def _next_lines(directory: Path, clients: tuple[str, ...]) -> str:
    """The commands to paste next, with these files."""

    def files(name: str) -> str:
        pair = Pair.named(directory, name)
        return f"--cert {shlex.quote(str(pair.certificate))} --key {shlex.quote(str(pair.key))}"

    authority = f"--cafile {shlex.quote(str(directory / 'ca.crt'))}"
    path = directory / certificates.CRL
    crl = f" --crl {shlex.quote(str(path))}" if path.exists() else ""
    line = f"-h localhost -p 8883 {authority}" + (f" {files(clients[0])}" if clients else "")
    return "\n".join(
        [
            "Next:",
            f"  mqttlite serve --tls-port 8883 {authority}{crl} {files('server')}",
            f"  mqttlite sub {line} -t 'hello/#' -v",
            f"  mqttlite pub {line} -t hello/world -m hello",
            "Clients need ca.crt and their own two files; every .key file stays secret.",
        ]
    )
