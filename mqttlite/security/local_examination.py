"""Examines the certificates in a directory of `mqttlite certs`."""

import os
import stat
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from mqttlite.security.authority import is_issued_by
from mqttlite.security.certificate_files import CertificateError, load_certificate
from mqttlite.security.certificates import CRL
from mqttlite.security.findings import Finding, dates, fits, listed, note, ok, problem, warning
from mqttlite.security.issuing import may_sign_certificates, names_of
from mqttlite.security.revocation import RevocationError, certificate_id, load_revoked


def examine_directory(directory: Path, now: datetime, warn_days: int) -> Iterator[Finding]:
    """Examine the authority, each certificate with its key, and the revocation list."""
    try:
        ca = load_certificate(directory / "ca.crt")
    except CertificateError as error:
        yield problem(f"{error} 'mqttlite certs init' makes a set.")
        return
    yield from _authority(directory, ca, now, warn_days)
    revoked = frozenset[tuple[str, int]]()
    if (directory / CRL).exists():
        try:
            revoked = load_revoked(str(directory / CRL), str(directory / "ca.crt"))
            count = f"{len(revoked)} certificate{'' if len(revoked) == 1 else 's'}"
            yield ok(f"{directory / CRL} is signed by the authority and revokes {count}.")
        except RevocationError as error:
            yield problem(str(error))
    for path in sorted(directory.glob("*.crt")):
        if path.name != "ca.crt":
            yield from _leaf(path, ca, revoked, now, warn_days)
    yield from _open_keys(directory)


def _authority(directory: Path, ca: x509.Certificate, now: datetime, warn_days: int) -> Iterator[Finding]:
    path = directory / "ca.crt"
    if not may_sign_certificates(ca):
        yield problem(f"{path} is no certificate authority: nothing that it signed is accepted.")
    yield dates(f"The authority {path}", ca, now, warn_days)
    if (directory / "ca.key").exists():
        yield from fits(path, directory / "ca.key")
    else:
        yield note(f"{directory / 'ca.key'} is not here: nothing can be issued, renewed or revoked here.")


def _leaf(
    path: Path, ca: x509.Certificate, revoked: frozenset[tuple[str, int]], now: datetime, warn_days: int
) -> Iterator[Finding]:
    try:
        certificate = load_certificate(path)
    except CertificateError as error:
        yield problem(str(error))
        return
    if not is_issued_by(certificate, ca):
        yield problem(f"{path} was not signed by the authority ca.crt beside it: who trusts that one refuses it.")
    yield dates(str(path), certificate, now, warn_days)
    if certificate_id(certificate.public_bytes(Encoding.DER)) in revoked:
        yield note(f"{path} is revoked: a broker with this list refuses it.")
    if names := names_of(certificate):
        yield note(f"{path} is valid for {listed(names)}: clients that dial another name fail.")
    if path.with_suffix(".key").exists():
        yield from fits(path, path.with_suffix(".key"))


def _open_keys(directory: Path) -> Iterator[Finding]:
    if os.name == "nt":  # Windows has no permission bits
        return
    for path in sorted(directory.glob("*.key")):
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
            yield warning(f"{path} can be read by others than its owner: chmod 600 {path}")
