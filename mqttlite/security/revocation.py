"""Reads certificate revocation lists (CRLs), for the check of clients that are already connected.

The TLS library itself refuses revoked certificates in handshakes. Invariant: a list is accepted only if the TLS library
would accept it: signed by a CA of the listener, and not expired.
"""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509

CertificateId = tuple[str, int]
"""The issuer and the serial number, which identify a certificate."""

_LISTS: Final = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)


class RevocationError(ValueError):
    """An unusable list. The text says which, why, and what to do."""


def certificate_id(der: bytes) -> CertificateId:
    """The identity of a certificate in DER."""
    certificate = x509.load_der_x509_certificate(der)
    return certificate.issuer.rfc4514_string(), certificate.serial_number


def load_revoked(crl_file: str, ca_file: str) -> frozenset[CertificateId]:
    """The certificates revoked by the lists of a file, after verifying each list. Raises `RevocationError`."""
    try:
        authorities = x509.load_pem_x509_certificates(Path(ca_file).read_bytes())
    except (ValueError, OSError) as error:
        raise RevocationError(f"The list cannot be verified, for {ca_file} cannot be read: {error}.") from None
    lists = _lists(crl_file)
    for each in lists:
        _verify(each, crl_file, ca_file, authorities)
    return frozenset((each.issuer.rfc4514_string(), entry.serial_number) for each in lists for entry in each)


def crl_ends_at(crl_file: str) -> datetime:
    """When the first list of a file expires; after that every client is refused. Raises `RevocationError`."""
    return min(_end(each) for each in _lists(crl_file))


def _lists(path: str) -> list[x509.CertificateRevocationList]:
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise RevocationError(f"{path}: no such file. 'mqttlite certs init' and 'certs revoke' make one.") from None
    except OSError as error:
        raise RevocationError(f"{path} cannot be read: {error.strerror}.") from None
    if b"CERTIFICATE-----" in content:
        raise RevocationError(f"{path} holds a certificate, which would be trusted; it may hold nothing but lists.")
    found = _LISTS.findall(content)
    if not found:
        raise RevocationError(
            f"{path} holds no list of revoked certificates in PEM, which begins with '-----BEGIN X509 CRL-----'."
        )
    try:
        return [x509.load_pem_x509_crl(each) for each in found]
    except ValueError:
        raise RevocationError(f"{path} is damaged and cannot be used as a list of revoked certificates.") from None


def _verify(
    crl: x509.CertificateRevocationList, crl_file: str, ca_file: str, authorities: list[x509.Certificate]
) -> None:
    issuers = [each for each in authorities if each.subject == crl.issuer]
    if not any(_is_signed_by(crl, each) for each in issuers):
        raise RevocationError(
            f"{crl_file} was not signed by an authority of {ca_file}: its issuer is {crl.issuer.rfc4514_string()!r}. "
            "Name the list and the authority that belong together."
        )
    if _end(crl) <= datetime.now(UTC):
        raise RevocationError(
            f"{crl_file} is out of date since {_end(crl):%Y-%m-%d}: every client would be refused. Make a new one."
        )


def _is_signed_by(crl: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    try:
        return crl.is_signature_valid(authority.public_key())  # type: ignore[arg-type]
    except TypeError:  # a key type that cannot sign
        return False


def _end(crl: x509.CertificateRevocationList) -> datetime:
    return crl.next_update_utc or datetime.max.replace(tzinfo=UTC)
