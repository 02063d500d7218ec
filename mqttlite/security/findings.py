"""Findings of a certificate examination, and checks of single files and certificates.

`remote_examination` examines a broker, `local_examination` a directory.
"""

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from mqttlite.security.certificate_files import CertificateError, load_certificate, load_key
from mqttlite.security.issuing import names_of


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    """It works, but not for long, or is probably unintended."""
    PROBLEM = "problem"
    """A client fails."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence."""

    level: Level
    text: str


def ok(text: str) -> Finding:
    return Finding(Level.OK, text)


def note(text: str) -> Finding:
    return Finding(Level.NOTE, text)


def warning(text: str) -> Finding:
    return Finding(Level.WARNING, text)


def problem(text: str) -> Finding:
    return Finding(Level.PROBLEM, text)


def dates(what: str, certificate: x509.Certificate, now: datetime, warn_days: int) -> Finding:
    """Whether a certificate is valid now, and for how long."""
    starts, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < starts:
        return problem(
            f"{what} is not yet valid: it begins on {starts:%Y-%m-%d %H:%M} UTC, and the clock of this machine says "
            f"{now:%Y-%m-%d %H:%M}. Is the clock right?"
        )
    if now >= ends:
        return problem(
            f"{what} expired on {ends:%Y-%m-%d %H:%M} UTC, and the clock of this machine says "
            f"{now:%Y-%m-%d %H:%M}. Renew it ('mqttlite certs renew'), or set the clock."
        )
    days = (ends - now).days
    if ends - now <= timedelta(days=warn_days):
        return warning(f"{what} expires in {days} days, on {ends:%Y-%m-%d}. Renew it ('mqttlite certs renew').")
    return ok(f"{what} is in date, for {days} more days.")


def has_name(certificate: x509.Certificate, host: str) -> bool:
    """Whether a server certificate is valid for a host name or IP address."""
    names = names_of(certificate)
    try:
        return str(ipaddress.ip_address(host)) in names
    except ValueError:
        pass
    host = host.removesuffix(".").lower()
    _, _, parent = host.partition(".")
    return any(name.lower() == host or (bool(parent) and name.lower() == f"*.{parent}") for name in names)


def serves(certificate: x509.Certificate, purpose: x509.ObjectIdentifier) -> bool:
    """Whether a certificate may be used by a server, or by a client."""
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return purpose in usage or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in usage


def fits(certificate_path: Path, key_path: Path) -> Iterator[Finding]:
    """The errors in a certificate file and its key file."""
    try:
        certificate, key = load_certificate(certificate_path), load_key(key_path)
    except CertificateError as error:
        yield problem(str(error))
        return
    if certificate.public_key() != key.public_key():
        yield problem(f"{key_path} is not the key of {certificate_path}. Use two files that were made together.")


def listed(names: Sequence[str]) -> str:
    """Names in a sentence."""
    return ", ".join(names) or "no name at all"
