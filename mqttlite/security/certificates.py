"""Issues a small certificate authority with server and client certificates, all ECDSA P-256, into one directory.

`issuing` decides on the content of certificates, `certificate_files` writes files, `authority` renews and revokes. The
folder `issued` keeps a copy of each certificate, named by serial number, because the original may be moved to its
device or renewed. Invariant: no existing file is ever changed, and a failed run removes every file that it created.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mqttlite.security.certificate_files import (
    CertificateError,
    Pair,
    as_pem,
    create_all,
    is_complete,
    load_certificate,
)
from mqttlite.security.issuing import (
    CA_DAYS,
    CLIENT_DAYS,
    SERVER_DAYS,
    Issuer,
    client_certificate,
    load_issuer,
    local_hosts,
    make_authority,
    names_of,
    parse_host,
    server_certificate,
    sign,
    sign_crl,
    with_crl_url,
)

ISSUED: Final = "issued"
"""The folder of the copies."""
CRL: Final = "crl.pem"
"""The list of revoked certificates, signed by the authority."""

_CLIENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")  # a file name and a common name (64 at most) everywhere


@dataclass(frozen=True, slots=True)
class Entry:
    """One certificate of the set, for the report to the user."""

    path: Path
    purpose: str
    made: bool
    expires_at: datetime


def init(
    directory: Path,
    *,
    clients: Iterable[str] = (),
    hosts: Iterable[str] = (),
    days: int | None = None,
    ca_days: int = CA_DAYS,
    crl_url: str | None = None,
    now: datetime | None = None,
) -> list[Entry]:
    """Complete the set in `directory`: a CA with an empty revocation list, a server certificate, and one certificate
    per client. Existing files stay. Without `days`, each lasts for the default of its kind. `crl_url` is the public
    address of the revocation list."""
    now = (now or datetime.now(UTC)).replace(microsecond=0)
    extra = [parse_host(host) for host in hosts]
    ca, server = Pair.named(directory, "ca"), Pair.named(directory, "server")
    leaves = {"server": server} | {name: Pair.named(directory, name) for name in _distinct_clients(clients)}
    missing = {name: pair for name, pair in leaves.items() if not is_complete(pair)}

    files: dict[Path, bytes] = {}  # decided, not yet on disk, in the order they will be written
    if not ca.present:
        _refuse_orphans(leaves.values())
        issuer = make_authority(now, ca_days)
        files |= as_pem(ca, issuer.certificate, issuer.key)
        if not os.path.lexists(directory / CRL):
            files[directory / CRL] = sign_crl(issuer, [], 1, now)
    elif missing:
        issuer = load_issuer(ca, now)
    for name, pair in missing.items():
        says = server_certificate([*local_hosts(), *extra]) if pair is server else client_certificate(name)
        lasts = days or (SERVER_DAYS if pair is server else CLIENT_DAYS)
        files |= _new(pair, with_crl_url(says, crl_url), issuer, now, lasts)
    if "server" not in missing:
        _check_names(server, extra)

    entries = [_entry(ca, "certificate authority", files)]
    entries += [_entry(pair, "server" if pair is server else f"client {name}", files) for name, pair in leaves.items()]
    create_all(directory, files)
    return entries


def issue(
    directory: Path,
    clients: Iterable[str],
    *,
    days: int | None = None,
    crl_url: str | None = None,
    now: datetime | None = None,
) -> list[Entry]:
    """Issue a certificate for each of these clients, which must not have one here."""
    now = (now or datetime.now(UTC)).replace(microsecond=0)
    pairs = {name: Pair.named(directory, name) for name in _distinct_clients(clients)}
    for pair in pairs.values():
        if pair.present:
            raise CertificateError(
                f"{pair.present[0]} exists, and nothing is overwritten. 'mqttlite certs renew' makes a newer "
                "certificate for its key; for a new key, move both files away first."
            )
    ca = Pair.named(directory, "ca")
    if not ca.present:
        raise CertificateError(f"{directory} has no authority, ca.crt and ca.key; 'mqttlite certs init' makes one.")
    issuer = load_issuer(ca, now)
    files: dict[Path, bytes] = {}
    for name, pair in pairs.items():
        says = with_crl_url(client_certificate(name), crl_url)
        files |= _new(pair, says, issuer, now, days or CLIENT_DAYS)
    create_all(directory, files)
    return [_entry(pair, f"client {name}", files) for name, pair in pairs.items()]


def copy_of(directory: Path, certificate: x509.Certificate) -> Path:
    """Where the copy of a certificate is."""
    return directory / ISSUED / f"{certificate.serial_number:x}.crt"


def _new(pair: Pair, says: x509.CertificateBuilder, issuer: Issuer, now: datetime, days: int) -> dict[Path, bytes]:
    """A new key, its certificate and the copy of that."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = sign(says, key.public_key(), issuer, now, days)
    copy = certificate.public_bytes(serialization.Encoding.PEM)
    return as_pem(pair, certificate, key) | {copy_of(pair.certificate.parent, certificate): copy}


def _distinct_clients(names: Iterable[str]) -> list[str]:
    """The client names, validated and without duplicates. Names that differ only in case are refused."""
    seen = {"ca": "ca", "server": "server"}
    distinct = []
    for name in names:
        if not _CLIENT_NAME.fullmatch(name):
            raise CertificateError(
                f"{name!r} is no client name: use 1 to 64 letters, digits, '.', '_', '-' or '@', "
                "beginning with a letter or digit."
            )
        known = seen.setdefault(name.lower(), name)
        if name in distinct:
            continue
        if known != name or name in ("ca", "server"):
            raise CertificateError(f"{name!r} cannot be a client name here: {known}.crt is another certificate's file.")
        distinct.append(name)
    return distinct


def _refuse_orphans(pairs: Iterable[Pair]) -> None:
    for pair in pairs:
        if pair.present:
            raise CertificateError(
                f"{pair.certificate} exists, but its authority ca.crt does not. Bring ca.crt and ca.key back, "
                "or choose an empty directory for a new set."
            )


def _check_names(server: Pair, wanted: Iterable[x509.GeneralName]) -> None:
    """Refuse host names that an existing server certificate does not have."""
    present = names_of(load_certificate(server.certificate))
    for name in wanted:
        if str(name.value) not in present:
            raise CertificateError(
                f"{server.certificate} exists and is not valid for {name.value}. "
                "Move server.crt and server.key away and run this again to make new ones."
            )


def _entry(pair: Pair, purpose: str, files: Mapping[Path, bytes]) -> Entry:
    content = files.get(pair.certificate)
    certificate = x509.load_pem_x509_certificate(content) if content else load_certificate(pair.certificate)
    if purpose == "server":
        purpose = f"server, for {', '.join(names_of(certificate)) or 'no host'}"
    return Entry(pair.certificate, purpose, content is not None, certificate.not_valid_after_utc)
