"""The content of certificates of authorities, servers and clients, all ECDSA P-256.

`certificate_files` writes them to disk; `certificates` decides which to create.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mqttlite.security.certificate_files import (
    CertificateError,
    Pair,
    SigningKey,
    is_complete,
    load_certificate,
    load_key,
)

CA_DAYS = 3650
SERVER_DAYS = 397  # the longest that browsers accept from public CAs, and that TLS scanners expect
CLIENT_DAYS = 825  # renewed by hand: the longest that Apple's TLS accepts from a private CA
CLOCK_SKEW = timedelta(hours=1)  # devices' clocks may be a little behind

_DNS_NAME = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Issuer:
    certificate: x509.Certificate
    key: SigningKey

    @property
    def digest(self) -> hashes.SHA256 | None:
        """The hash for signatures; None if the key type determines it."""
        return None if isinstance(self.key, ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey) else hashes.SHA256()

    def sign(self, builder: x509.CertificateBuilder) -> x509.Certificate:
        return builder.sign(self.key, self.digest)


def local_hosts() -> list[x509.GeneralName]:
    """The names of this machine that are known without the network."""
    names = [parse_host(name) for name in ("localhost", "127.0.0.1", "::1")]
    try:
        return [*names, parse_host(socket.gethostname())]
    except CertificateError:  # a machine's name may be invalid in a certificate
        return names


def parse_host(text: str) -> x509.GeneralName:
    """An IP address or a DNS name, for a certificate."""
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    name = text.removesuffix(".").lower()
    if not _DNS_NAME.fullmatch(name) or ".." in name:
        raise CertificateError(
            f"{text!r} is no host name or IP address; write international names in their xn-- form, and no port."
        )
    return x509.DNSName(name)


def parse_crl_url(text: str) -> x509.CRLDistributionPoints:
    """The address of a revocation list, for a certificate."""
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and text.isascii() and " " not in text
    except ValueError:
        is_usable = False
    if not is_usable:
        raise CertificateError(f"{text!r} is no address of a list: it is like http://crl.example/ca.crl.")
    point = x509.DistributionPoint([x509.UniformResourceIdentifier(text)], None, None, None)
    return x509.CRLDistributionPoints([point])


def names_of(certificate: x509.Certificate) -> list[str]:
    """The hosts a server certificate is valid for, as text."""
    try:
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in alternative]


def make_authority(now: datetime, days: int) -> Issuer:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _common_name("mqttlite private CA")
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now - CLOCK_SKEW + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
    )
    return Issuer(builder.sign(key, hashes.SHA256()), key)


def server_certificate(hosts: Sequence[x509.GeneralName]) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name("localhost"))
        .add_extension(x509.SubjectAlternativeName(list(dict.fromkeys(hosts))), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )


def client_certificate(name: str) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name(name))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    )


def sign(
    says: x509.CertificateBuilder, key: CertificatePublicKeyTypes, issuer: Issuer, now: datetime, days: int
) -> x509.Certificate:
    """Sign a certificate for a public key."""
    starts_at = max(now - CLOCK_SKEW, issuer.certificate.not_valid_before_utc)
    # A certificate is useless after its CA has expired, so it does not last longer.
    expires_at = min(starts_at + timedelta(days=days), issuer.certificate.not_valid_after_utc)
    return issuer.sign(
        says.issuer_name(issuer.certificate.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(starts_at)
        .not_valid_after(expires_at)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(_authority_identifier(issuer), critical=False)
    )


def with_crl_url(says: x509.CertificateBuilder, crl_url: str | None) -> x509.CertificateBuilder:
    """Add the address of the revocation list."""
    return says if crl_url is None else says.add_extension(parse_crl_url(crl_url), critical=False)


def says_the_same(certificate: x509.Certificate, crl_url: str | None = None) -> x509.CertificateBuilder:
    """The subject and extensions of a certificate for its renewal, with a new `crl_url` if one is given."""
    builder = x509.CertificateBuilder().subject_name(certificate.subject)
    kinds: list[type[x509.ExtensionType]] = [x509.SubjectAlternativeName, x509.ExtendedKeyUsage]
    if crl_url is None:
        kinds.append(x509.CRLDistributionPoints)
    for kind in kinds:
        try:
            found = certificate.extensions.get_extension_for_class(kind)
        except x509.ExtensionNotFound:
            continue
        builder = builder.add_extension(found.value, critical=found.critical)
    return with_crl_url(builder, crl_url)


def sign_crl(issuer: Issuer, revoked: Iterable[x509.RevokedCertificate], number: int, now: datetime) -> bytes:
    """A revocation list in PEM. Raises `CertificateError` for an authority that may not sign one.

    It is valid as long as its authority: it is only renewed when a certificate is revoked, and an expired list would
    lock out every client.
    """
    if not _may_sign_crls(issuer.certificate):
        raise CertificateError(
            f"The authority {common_name(issuer.certificate)!r} may not sign lists of revoked certificates: "
            "its key usage does not say so."
        )
    starts_at = max(now - CLOCK_SKEW, issuer.certificate.not_valid_before_utc)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.certificate.subject)
        .last_update(starts_at)
        .next_update(issuer.certificate.not_valid_after_utc)
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(_authority_identifier(issuer), critical=False)
    )
    for each in revoked:
        builder = builder.add_revoked_certificate(each)
    return builder.sign(issuer.key, issuer.digest).public_bytes(serialization.Encoding.PEM)


def common_name(certificate: x509.Certificate) -> str:
    """The common name of its subject, or the whole subject if there is not exactly one."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else certificate.subject.rfc4514_string()


def _authority_identifier(issuer: Issuer) -> x509.AuthorityKeyIdentifier:
    """The issuer's own key identifier, which another tool may have computed differently."""
    try:
        own = issuer.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def load_issuer(pair: Pair, now: datetime) -> Issuer:
    is_complete(pair)
    certificate = load_certificate(pair.certificate)
    key = load_key(pair.key)
    if certificate.public_key() != key.public_key():
        raise CertificateError(
            f"{pair.key} is not the key of {pair.certificate}: they belong to different authorities. "
            "Put the two files of one authority there."
        )
    if not may_sign_certificates(certificate):
        raise CertificateError(f"{pair.certificate} is no certificate authority, so it cannot issue certificates.")
    if certificate.not_valid_after_utc <= now:
        raise CertificateError(
            f"{pair.certificate} expired on {certificate.not_valid_after_utc:%Y-%m-%d}. "
            "Make a new set in an empty directory, and give its ca.crt to every client."
        )
    return Issuer(certificate, key)


def may_sign_certificates(certificate: x509.Certificate) -> bool:
    """Whether a certificate is an authority's."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _may_sign_crls(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.KeyUsage).value.crl_sign
    except x509.ExtensionNotFound:
        return True
