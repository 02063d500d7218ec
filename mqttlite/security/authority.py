"""Lists, renews and revokes the certificates of an authority.

The folder `issued` has a copy of each certificate, and `crl.pem` lists the revoked ones; there is no other state.
Invariant: keys never change, and a reader of a file sees either the old or the new content.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from mqttlite.security.certificate_files import (
    CertificateError,
    Pair,
    create_all,
    load_certificate,
    locked,
    read,
    replace,
)
from mqttlite.security.certificates import CRL, ISSUED, copy_of
from mqttlite.security.issuing import (
    CLIENT_DAYS,
    SERVER_DAYS,
    Issuer,
    common_name,
    load_issuer,
    names_of,
    says_the_same,
    sign,
    sign_crl,
)

RENEW_WITHIN_DAYS = 30
"""Certificates that expire within this many days are renewed, and cause warnings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """One certificate. `path` is None if only the copy is left, because the original was moved or replaced."""

    name: str
    purpose: str
    hosts: list[str]
    serial: str
    expires_at: datetime
    revoked_at: datetime | None
    path: Path | None


def issued(directory: Path) -> list[Issued]:
    """All certificates of the authority, its own first. Raises `CertificateError`."""
    ca_path = directory / "ca.crt"
    ca = load_certificate(ca_path)
    revoked_at = {each.serial_number: each.revocation_date_utc for each in _crl(directory) or ()}
    found = [_described(ca, ca_path, None)]
    leaves = _certificates(directory, ca)
    for certificate, path in sorted(leaves, key=lambda each: (_name(*each), each[0].not_valid_after_utc)):
        found.append(_described(certificate, path, revoked_at.get(certificate.serial_number)))
    return found


def renew(
    directory: Path,
    names: Iterable[str] = (),
    *,
    within_days: int = RENEW_WITHIN_DAYS,
    days: int | None = None,
    crl_url: str | None = None,
    now: datetime | None = None,
) -> list[Issued]:
    """Replace the certificates of these names by newer ones for the same keys; without names, those in the directory
    that end within `within_days` and are not revoked. Former ones stay valid until they end. Without `days`, each lasts
    as long as its kind; a `crl_url` takes the place of the former one.

    Copies of certificates that have ended are removed.
    """
    now = (now or datetime.now(UTC)).replace(microsecond=0)
    issuer = load_issuer(Pair.named(directory, "ca"), now)
    revoked = {each.serial_number for each in _crl(directory) or ()}
    ends_by = now + timedelta(days=within_days)
    wanted: list[tuple[Path, x509.Certificate]] = []
    if names := list(dict.fromkeys(names)):
        for name in names:
            path = directory / f"{_checked(name)}.crt"
            certificate = load_certificate(path)
            if not is_issued_by(certificate, issuer.certificate):
                raise CertificateError(f"{path} was issued by another authority than {directory / 'ca.crt'}.")
            if certificate.serial_number in revoked:
                raise CertificateError(
                    f"{path} is revoked. For a new key, move it and its key away, and issue {name!r} again."
                )
            wanted.append((path, certificate))
    else:
        wanted = [
            (path, certificate)
            for certificate, path in _certificates(directory, issuer.certificate)
            if path is not None and certificate.not_valid_after_utc <= ends_by
            if certificate.serial_number not in revoked
        ]
    renewed = [(path, certificate, _newer(certificate, issuer, now, days, crl_url)) for path, certificate in wanted]
    create_all(
        directory,
        {
            copy_of(directory, each): each.public_bytes(serialization.Encoding.PEM)
            for _, former, newer in renewed
            for each in (former, newer)
            if not copy_of(directory, each).exists()
        },
    )
    for path, _, newer in renewed:
        replace(path, newer.public_bytes(serialization.Encoding.PEM))
    for copy in _copies(directory):
        if _ended(copy, now):
            copy.unlink(missing_ok=True)
    return [_described(newer, path, None) for path, _, newer in renewed]


def revoke(directory: Path, name: str, *, now: datetime | None = None) -> list[Issued]:
    """Revoke all valid certificates of a name. Raises `CertificateError` if there are none."""
    now = (now or datetime.now(UTC)).replace(microsecond=0)
    issuer = load_issuer(Pair.named(directory, "ca"), now)
    _checked(name)
    with locked(directory):
        crl = _crl(directory)
        if crl is not None and not crl.is_signature_valid(issuer.certificate.public_key()):  # type: ignore[arg-type]
            raise CertificateError(f"{directory / CRL} was signed by another authority; move it away.")
        former = list(crl or ())
        known = {each.serial_number for each in former}
        everything = _certificates(directory, issuer.certificate)
        matching = [each for each in everything if _name(*each) == name]
        if not matching:
            raise CertificateError(f"No certificate was issued here for {name!r}; 'mqttlite certs list' has them all.")
        chosen = [each for each in matching if each[0].serial_number not in known and each[0].not_valid_after_utc > now]
        if not chosen:
            raise CertificateError(f"Every certificate of {name!r} is revoked or has ended.")
        ended = {each.serial_number for each, _ in everything if each.not_valid_after_utc <= now}
        entries = [each for each in former if each.serial_number not in ended]
        for certificate, _ in chosen:
            builder = x509.RevokedCertificateBuilder().serial_number(certificate.serial_number)
            entries.append(builder.revocation_date(now).build())
        replace(directory / CRL, sign_crl(issuer, entries, _number(crl) + 1, now))
    return [_described(certificate, path, now) for certificate, path in chosen]


def _newer(
    certificate: x509.Certificate, issuer: Issuer, now: datetime, days: int | None, crl_url: str | None
) -> x509.Certificate:
    lasts = days or (SERVER_DAYS if _purpose(certificate) == "server" else CLIENT_DAYS)
    return sign(says_the_same(certificate, crl_url), certificate.public_key(), issuer, now, lasts)


def _certificates(directory: Path, ca: x509.Certificate) -> list[tuple[x509.Certificate, Path | None]]:
    """All certificates issued here, each once, with its file if that is in the directory."""
    found: dict[int, tuple[x509.Certificate, Path | None]] = {}
    for path in sorted(directory.glob("*.crt")):
        try:
            certificate = load_certificate(path)
        except CertificateError:  # the file is not one of ours
            continue
        if path.name != "ca.crt" and is_issued_by(certificate, ca):
            found[certificate.serial_number] = certificate, path
    for path in _copies(directory):
        certificate = load_certificate(path)
        if certificate.serial_number not in found and is_issued_by(certificate, ca):
            found[certificate.serial_number] = certificate, None
    return list(found.values())


def _copies(directory: Path) -> Iterator[Path]:
    yield from sorted((directory / ISSUED).glob("*.crt"))


def _ended(path: Path, now: datetime) -> bool:
    return load_certificate(path).not_valid_after_utc <= now


def is_issued_by(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    """Whether an authority has signed a certificate."""
    try:
        certificate.verify_directly_issued_by(ca)
    except Exception:  # ValueError, TypeError and InvalidSignature: no, in each case
        return False
    return True


def _checked(name: str) -> str:
    if name == "ca":
        raise CertificateError(
            "The authority itself is neither renewed nor revoked: make a new set in an empty directory, and give its "
            "ca.crt to every client."
        )
    if "/" in name or "\\" in name or name in ("", ".", ".."):
        raise CertificateError(f"{name!r} is no name of a certificate; 'mqttlite certs list' has them all.")
    return name


def _crl(directory: Path) -> x509.CertificateRevocationList | None:
    path = directory / CRL
    if not path.exists():
        return None
    try:
        return x509.load_pem_x509_crl(read(path))
    except ValueError:
        raise CertificateError(f"{path} is not a list of revoked certificates in PEM; move it away.") from None


def _number(crl: x509.CertificateRevocationList | None) -> int:
    if crl is None:
        return 0
    try:
        return crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except x509.ExtensionNotFound:
        return 0


def _name(certificate: x509.Certificate, path: Path | None) -> str:
    """Its name in commands: the common name of a client, the file name of a server."""
    if _purpose(certificate) == "server":
        return "server" if path is None else path.stem
    return common_name(certificate)


def _purpose(certificate: x509.Certificate) -> str:
    try:
        if certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return "authority"
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return "any"
    return "server" if ExtendedKeyUsageOID.SERVER_AUTH in usage else "client"


def _described(certificate: x509.Certificate, path: Path | None, revoked_at: datetime | None) -> Issued:
    purpose = _purpose(certificate)
    return Issued(
        name="ca" if purpose == "authority" else _name(certificate, path),
        purpose=purpose,
        hosts=names_of(certificate),
        serial=f"{certificate.serial_number:x}",
        expires_at=certificate.not_valid_after_utc,
        revoked_at=revoked_at,
        path=path,
    )
