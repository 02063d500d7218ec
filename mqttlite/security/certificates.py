"""Issues a small certificate authority with server and client certificates, all ECDSA P-256, into one directory.

Here is what a certificate says and how its files reach the disk; TLS contexts that use them live in `tls`.
Invariant: no file that exists is ever changed, and a run that fails takes back every file it made.
"""

import ipaddress
import os
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_DAYS = 3650
LEAF_DAYS = 825  # the longest that Apple's TLS accepts for a private CA
CLOCK_SKEW = timedelta(hours=1)  # devices wake up with clocks a little behind ours

_CLIENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")  # a file name and a common name (64 at most) everywhere
_DNS_NAME = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?")

SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey


class CertificateError(Exception):
    """A sentence for the person at the terminal: which file or name, what is wrong with it, what to do."""


def ends_at(path: str | Path) -> datetime:
    """When the first certificate of a chain in PEM is out of date. Raises `ValueError` for a file that holds none."""
    return min(each.not_valid_after_utc for each in x509.load_pem_x509_certificates(Path(path).read_bytes()))


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, as two files."""

    certificate: Path
    key: Path

    @classmethod
    def named(cls, directory: Path, name: str) -> "Pair":
        return cls(directory / f"{name}.crt", directory / f"{name}.key")

    @property
    def files(self) -> tuple[Path, Path]:
        return (self.key, self.certificate)

    @property
    def present(self) -> list[Path]:
        """The files of this pair that are there; a dangling symbolic link is there too."""
        return [path for path in self.files if os.path.lexists(path)]


@dataclass(frozen=True, slots=True)
class Entry:
    """One certificate of the set, for the report to the user."""

    path: Path
    purpose: str
    made: bool
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class _Issuer:
    certificate: x509.Certificate
    key: SigningKey

    def sign(self, builder: x509.CertificateBuilder) -> x509.Certificate:
        digest = None if isinstance(self.key, ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey) else hashes.SHA256()
        return builder.sign(self.key, digest)


def init(
    directory: Path,
    *,
    clients: Iterable[str] = (),
    hosts: Iterable[str] = (),
    days: int = LEAF_DAYS,
    ca_days: int = CA_DAYS,
    now: datetime | None = None,
) -> list[Entry]:
    """Complete the set in `directory`: a CA, a server certificate, one certificate per client. Keep what is there."""
    now = (now or datetime.now(UTC)).replace(microsecond=0)
    extra = [parse_host(host) for host in hosts]
    ca, server = Pair.named(directory, "ca"), Pair.named(directory, "server")
    leaves = {"server": server} | {name: Pair.named(directory, name) for name in _distinct_clients(clients)}
    missing = {name: pair for name, pair in leaves.items() if not _is_complete(pair)}

    files: dict[Path, bytes] = {}  # decided, not yet on disk, in the order they will be written
    if not ca.present:
        _refuse_orphans(leaves.values())
        issuer = _make_authority(now, ca_days)
        files |= _as_pem(ca, issuer.certificate, issuer.key)
    elif missing:
        issuer = _load_issuer(ca, now)
    for name, pair in missing.items():
        key = ec.generate_private_key(ec.SECP256R1())
        says = _server_certificate([*local_hosts(), *extra]) if pair is server else _client_certificate(name)
        files |= _as_pem(pair, _issue(says, key, issuer, now, days), key)
    if "server" not in missing:
        _check_names(server, extra)

    entries = [_entry(ca, "certificate authority", files)]
    entries += [_entry(pair, "server" if pair is server else f"client {name}", files) for name, pair in leaves.items()]
    _write_all(directory, files)
    return entries


def local_hosts() -> list[x509.GeneralName]:
    """The names this machine answers to without asking the network."""
    names = [parse_host(name) for name in ("localhost", "127.0.0.1", "::1")]
    try:
        return [*names, parse_host(socket.gethostname())]
    except CertificateError:  # a machine may carry a name that no certificate can hold
        return names


def parse_host(text: str) -> x509.GeneralName:
    """An IP address or a DNS name, as a certificate spells it."""
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


def names_of(certificate: x509.Certificate) -> list[str]:
    """The hosts a server certificate is valid for, as text."""
    try:
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in alternative]


# --- what each certificate says ---------------------------------------------------------------------------------------


def _make_authority(now: datetime, days: int) -> _Issuer:
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
    return _Issuer(builder.sign(key, hashes.SHA256()), key)


def _server_certificate(hosts: Sequence[x509.GeneralName]) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name("localhost"))
        .add_extension(x509.SubjectAlternativeName(list(dict.fromkeys(hosts))), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )


def _client_certificate(name: str) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name(name))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    )


def _issue(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, issuer: _Issuer, now: datetime, days: int
) -> x509.Certificate:
    starts_at = max(now - CLOCK_SKEW, issuer.certificate.not_valid_before_utc)
    # A certificate is worth nothing once its CA has ended, so it does not pretend to last longer.
    expires_at = min(starts_at + timedelta(days=days), issuer.certificate.not_valid_after_utc)
    return issuer.sign(
        builder.issuer_name(issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(starts_at)
        .not_valid_after(expires_at)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_authority_identifier(issuer), critical=False)
    )


def _authority_identifier(issuer: _Issuer) -> x509.AuthorityKeyIdentifier:
    """Repeat the issuer's own identifier, which another tool may have computed in its own way."""
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


# --- what is there already --------------------------------------------------------------------------------------------


def _distinct_clients(names: Iterable[str]) -> list[str]:
    """Valid client names, each once; names that some disks would put in one file are refused."""
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


def _is_complete(pair: Pair) -> bool:
    """Whether both files are there; one without the other is an error."""
    present = pair.present
    if len(present) == 1:
        [alone] = present
        [other] = set(pair.files) - set(present)
        raise CertificateError(
            f"{alone} exists without {other.name}. Bring {other.name} back, or move {alone.name} away "
            "and run this again to make both."
        )
    return bool(present)


def _refuse_orphans(pairs: Iterable[Pair]) -> None:
    for pair in pairs:
        if pair.present:
            raise CertificateError(
                f"{pair.certificate} exists, but its authority ca.crt does not. Bring ca.crt and ca.key back, "
                "or choose an empty directory for a new set."
            )


def _load_issuer(pair: Pair, now: datetime) -> _Issuer:
    _is_complete(pair)
    certificate = _load_certificate(pair.certificate)
    key = _load_key(pair.key)
    if certificate.public_key() != key.public_key():
        raise CertificateError(
            f"{pair.key} is not the key of {pair.certificate}: they belong to different authorities. "
            "Put the two files of one authority there."
        )
    if not _may_sign_certificates(certificate):
        raise CertificateError(f"{pair.certificate} is no certificate authority, so it cannot issue certificates.")
    if certificate.not_valid_after_utc <= now:
        raise CertificateError(
            f"{pair.certificate} expired on {certificate.not_valid_after_utc:%Y-%m-%d}. "
            "Make a new set in an empty directory, and give its ca.crt to every client."
        )
    return _Issuer(certificate, key)


def _load_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError:
        raise CertificateError(f"{path} is not a PEM certificate.") from None


def _load_key(path: Path) -> SigningKey:
    try:
        key = serialization.load_pem_private_key(_read(path), password=None)
    except TypeError:
        raise CertificateError(
            f"{path} is encrypted. Decrypt it first, for example with 'openssl pkey -in {path.name} -out plain.key'."
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise CertificateError(f"{path} is not a PEM private key.") from None
    if not isinstance(key, SigningKey):
        raise CertificateError(f"{path} is of a kind that TLS no longer uses; ECDSA, RSA and Ed25519 are fine.")
    return key


def _may_sign_certificates(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _check_names(server: Pair, wanted: Iterable[x509.GeneralName]) -> None:
    """Asking for a name that the kept certificate lacks must not look like a success."""
    present = names_of(_load_certificate(server.certificate))
    for name in wanted:
        if str(name.value) not in present:
            raise CertificateError(
                f"{server.certificate} exists and is not valid for {name.value}. "
                "Move server.crt and server.key away and run this again to make new ones."
            )


def _entry(pair: Pair, purpose: str, files: Mapping[Path, bytes]) -> Entry:
    content = files.get(pair.certificate)
    certificate = x509.load_pem_x509_certificate(content) if content else _load_certificate(pair.certificate)
    if purpose == "server":
        purpose = f"server, for {', '.join(names_of(certificate)) or 'no host'}"
    return Entry(pair.certificate, purpose, content is not None, certificate.not_valid_after_utc)


# --- the disk ---------------------------------------------------------------------------------------------------------


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(f"{path} cannot be read: {error.strerror}.") from None


def _as_pem(pair: Pair, certificate: x509.Certificate, key: SigningKey) -> dict[Path, bytes]:
    return {
        pair.key: key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
        pair.certificate: certificate.public_bytes(serialization.Encoding.PEM),
    }


def _write_all(directory: Path, files: Mapping[Path, bytes]) -> None:
    """Create every file or none. The first one, the CA key of a new set, also decides between two runs at once."""
    if directory.exists() and not directory.is_dir():
        raise CertificateError(f"{directory} is a file, not a directory.")
    made: list[Path] = []
    made_directory = not directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            _create(path, content, made)
    except BaseException as error:
        for path in made:
            path.unlink(missing_ok=True)
        if made_directory and directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()
        if isinstance(error, FileExistsError):
            raise CertificateError(
                f"{error.filename} appeared meanwhile. Nothing was changed; run this again."
            ) from None
        if isinstance(error, OSError):
            raise CertificateError(f"{error.filename or directory} cannot be written: {error.strerror}.") from None
        raise


def _create(path: Path, content: bytes, made: list[Path]) -> None:
    """Write a new file; a key is readable by its owner alone from its first moment."""
    mode = 0o600 if path.suffix == ".key" else 0o644
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
    made.append(path)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
