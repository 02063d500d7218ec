"""Reads, creates and replaces key and certificate files.

`issuing` decides on the content of certificates. Invariant: `create_all` changes no existing file, and creates all
files or none; `replace` is atomic for readers.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey


class CertificateError(Exception):
    """A sentence for the operator: which file or name, what is wrong, what to do."""


def ends_at(path: str | Path) -> datetime:
    """When the first certificate of a PEM chain expires. Raises `ValueError` for a file without one."""
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
        """The existing files of the pair; a dangling symbolic link counts as existing."""
        return [path for path in self.files if os.path.lexists(path)]


def is_complete(pair: Pair) -> bool:
    """Whether both files exist. One without the other is an error."""
    present = pair.present
    if len(present) == 1:
        [alone] = present
        [other] = set(pair.files) - set(present)
        raise CertificateError(
            f"{alone} exists without {other.name}. Bring {other.name} back, or move {alone.name} away "
            "and run this again to make both."
        )
    return bool(present)


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(f"{path} cannot be read: {error.strerror}.") from None


def load_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(read(path))
    except ValueError:
        raise CertificateError(f"{path} is not a PEM certificate.") from None


def load_key(path: Path) -> SigningKey:
    try:
        key = serialization.load_pem_private_key(read(path), password=None)
    except TypeError:
        raise CertificateError(
            f"{path} is encrypted. Decrypt it first, for example with 'openssl pkey -in {path.name} -out plain.key'."
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise CertificateError(f"{path} is not a PEM private key.") from None
    if not isinstance(key, SigningKey):
        raise CertificateError(f"{path} is of a kind that TLS no longer uses; ECDSA, RSA and Ed25519 are fine.")
    return key


def as_pem(pair: Pair, certificate: x509.Certificate, key: SigningKey) -> dict[Path, bytes]:
    return {
        pair.key: key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
        pair.certificate: certificate.public_bytes(serialization.Encoding.PEM),
    }


def create_all(directory: Path, files: Mapping[Path, bytes]) -> None:
    """Create all files or none, in `directory` and its folders. The first file, the CA key of a new set, also decides
    between two concurrent runs."""
    if directory.exists() and not directory.is_dir():
        raise CertificateError(f"{directory} is a file, not a directory.")
    made: list[Path] = []
    folders = [each for each in dict.fromkeys([directory, *(path.parent for path in files)]) if not each.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            path.parent.mkdir(exist_ok=True)
            _create(path, content, made)
    except BaseException as error:
        for path in made:
            path.unlink(missing_ok=True)
        for folder in reversed(folders):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        if isinstance(error, FileExistsError):
            raise CertificateError(
                f"{error.filename} appeared meanwhile. Nothing was changed; run this again."
            ) from None
        if isinstance(error, OSError):
            raise CertificateError(f"{error.filename or directory} cannot be written: {error.strerror}.") from None
        raise


def _create(path: Path, content: bytes, made: list[Path]) -> None:
    """Write a new file. A key is readable only by its owner from the start."""
    mode = 0o600 if path.suffix == ".key" else 0o644
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
    made.append(path)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def replace(path: Path, content: bytes) -> None:
    """Atomically replace the content of a world-readable file, or create it."""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(descriptor)
                os.chmod(temporary, 0o644)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CertificateError(f"{path} cannot be written: {error.strerror}.") from None


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock the directory's revocation list against other processes, if the system has locks."""
    try:
        import fcntl
    except ImportError:  # Windows has none
        yield
        return
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError as error:
        raise CertificateError(f"{directory} cannot be read: {error.strerror}.") from None
    try:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
