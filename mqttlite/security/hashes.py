"""Password hashes in a password file other than SCRAM: Mosquitto's, scrypt and Argon2id.

`keys` handles SCRAM. Invariant: the cost in time and memory of a line is bounded when the line is read.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from typing import Final, Protocol

from mqttlite.security.keys import TextError

MAX_PBKDF2_ITERATIONS: Final = 10_000_000
"""Some seconds of work for each login, as for SCRAM. Mosquitto 2.0 writes 101."""

MAX_MEMORY_KIB: Final = 262_144
"""For scrypt and Argon2id: 256 MiB for one login, times `HASHES_AT_ONCE` logins."""

MAX_PASSES: Final = 100
"""The most passes of Argon2id over its memory, and the most parallelism of scrypt: some ten seconds at most."""

MAX_LANES: Final = 16
"""Threads that Argon2id may use."""

MIN_SALT_BYTES: Final = 8
"""The least of RFC 9106. Mosquitto makes 12."""

MIN_HASH_BYTES: Final = 16
MAX_HASH_BYTES: Final = 128
"""The most hash bytes of scrypt and Argon2id: more adds no strength."""

NEW_SALT_BYTES: Final = 16
NEW_HASH_BYTES: Final = 32

ARGON2ID_MEMORY_KIB: Final = 19_456
ARGON2ID_PASSES: Final = 2
"""OWASP's minimum for servers: 19 MiB, some 30 ms for each login."""

SCRYPT_COST: Final = 14
SCRYPT_BLOCK_SIZE: Final = 8
"""2¹⁴ blocks, for interactive logins: 16 MiB, some 60 ms for each login."""

_MOSQUITTO: Final = re.compile(r"\$(?:6|7\$(\d{1,10}))\$([^$]*)\$([^$]*)")
_ARGON2ID: Final = re.compile(r"\$argon2id\$v=19\$m=(\d{1,10}),t=(\d{1,10}),p=(\d{1,10})\$([^$]*)\$([^$]*)")
_SCRYPT: Final = re.compile(r"\$scrypt\$ln=(\d{1,10}),r=(\d{1,10}),p=(\d{1,10})\$([^$]*)\$([^$]*)")


class PasswordHash(Protocol):
    """A stored hash of a password that clients send in plain."""

    def matches(self, password: bytes) -> bool:
        """Whether the password matches. Takes milliseconds, without Python's lock."""
        ...

    def decoy(self, seed: bytes) -> "PasswordHash":
        """A hash of the same cost that no password matches; deterministic for a seed."""
        ...

    def format(self) -> str:
        """Its text in a password file, after the user name."""
        ...


@dataclass(frozen=True, slots=True)
class MosquittoHash:
    """`$7$` is PBKDF2-HMAC-SHA512; `$6$` is one round of SHA-512, with `iterations` 0."""

    iterations: int
    salt: bytes
    digest: bytes = field(repr=False)

    def matches(self, password: bytes) -> bool:
        if self.iterations:
            digest = hashlib.pbkdf2_hmac("sha512", password, self.salt, self.iterations)
        else:
            digest = hashlib.sha512(password + self.salt).digest()
        return hmac.compare_digest(digest, self.digest)

    def decoy(self, seed: bytes) -> "MosquittoHash":
        return MosquittoHash(self.iterations, *_made_up(seed, len(self.salt), len(self.digest)))

    def format(self) -> str:
        kind = f"7${self.iterations}" if self.iterations else "6"
        return f"${kind}${base64.b64encode(self.salt).decode()}${base64.b64encode(self.digest).decode()}"


@dataclass(frozen=True, slots=True)
class ScryptHash:
    """RFC 7914: 2 to the power of `cost` blocks."""

    cost: int
    block_size: int
    parallel: int
    salt: bytes
    digest: bytes = field(repr=False)

    def matches(self, password: bytes) -> bool:
        return hmac.compare_digest(self.derive(password, len(self.digest)), self.digest)

    def derive(self, password: bytes, size_bytes: int) -> bytes:
        return hashlib.scrypt(
            password,
            salt=self.salt,
            n=1 << self.cost,
            r=self.block_size,
            p=self.parallel,
            maxmem=2 * MAX_MEMORY_KIB * 1024,
            dklen=size_bytes,
        )

    def decoy(self, seed: bytes) -> "ScryptHash":
        made_up = _made_up(seed, len(self.salt), len(self.digest))
        return ScryptHash(self.cost, self.block_size, self.parallel, *made_up)

    def format(self) -> str:
        return f"$scrypt$ln={self.cost},r={self.block_size},p={self.parallel}${_b64(self.salt)}${_b64(self.digest)}"


@dataclass(frozen=True, slots=True)
class Argon2idHash:
    """RFC 9106."""

    memory_kib: int
    passes: int
    lanes: int
    salt: bytes
    digest: bytes = field(repr=False)

    def matches(self, password: bytes) -> bool:
        return hmac.compare_digest(self.derive(password, len(self.digest)), self.digest)

    def derive(self, password: bytes, size_bytes: int) -> bytes:
        """Raises `TextError` where the system's OpenSSL has no Argon2id."""
        from cryptography.exceptions import UnsupportedAlgorithm  # here, for most files have no Argon2id
        from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

        try:
            return Argon2id(
                salt=self.salt, length=size_bytes, iterations=self.passes, lanes=self.lanes, memory_cost=self.memory_kib
            ).derive(password)
        except UnsupportedAlgorithm:
            raise TextError("Argon2id needs OpenSSL 3.2 or newer, without FIPS; use scrypt or SCRAM-SHA-256") from None

    def decoy(self, seed: bytes) -> "Argon2idHash":
        made_up = _made_up(seed, len(self.salt), len(self.digest))
        return Argon2idHash(self.memory_kib, self.passes, self.lanes, *made_up)

    def format(self) -> str:
        cost = f"m={self.memory_kib},t={self.passes},p={self.lanes}"
        return f"$argon2id$v=19${cost}${_b64(self.salt)}${_b64(self.digest)}"


def new_scrypt(password: str) -> ScryptHash:
    """Of a new password. Takes milliseconds."""
    empty = ScryptHash(SCRYPT_COST, SCRYPT_BLOCK_SIZE, 1, secrets.token_bytes(NEW_SALT_BYTES), b"")
    digest = empty.derive(password.encode(), NEW_HASH_BYTES)
    return ScryptHash(empty.cost, empty.block_size, empty.parallel, empty.salt, digest)


def new_argon2id(password: str) -> Argon2idHash:
    """Of a new password. Takes milliseconds. Raises `TextError` where the system's OpenSSL has no Argon2id."""
    empty = Argon2idHash(ARGON2ID_MEMORY_KIB, ARGON2ID_PASSES, 1, secrets.token_bytes(NEW_SALT_BYTES), b"")
    digest = empty.derive(password.encode(), NEW_HASH_BYTES)
    return Argon2idHash(empty.memory_kib, empty.passes, empty.lanes, empty.salt, digest)


def parse_hash(text: str) -> PasswordHash:
    """Parse the hash of a line, which begins with `$`. Raises `TextError`."""
    if match := _MOSQUITTO.fullmatch(text):
        return _mosquitto(match)
    if match := _ARGON2ID.fullmatch(text):
        return _argon2id(match)
    if match := _SCRYPT.fullmatch(text):
        return _scrypt(match)
    raise TextError(
        "a hash may be $7$<iterations>$<salt>$<hash> or $6$<salt>$<hash> of Mosquitto, "
        "$argon2id$v=19$m=<KiB>,t=<passes>,p=<lanes>$<salt>$<hash> or "
        "$scrypt$ln=<cost>,r=<block>,p=<parallel>$<salt>$<hash>; "
        "'mqttlite passwd' sets a new password"
    )


def _mosquitto(match: re.Match[str]) -> MosquittoHash:
    iterations = 0 if match[1] is None else _within("iterations", match[1], 1, MAX_PBKDF2_ITERATIONS)
    salt, digest = (_decoded(each) for each in match.group(2, 3))
    if len(salt) < MIN_SALT_BYTES:
        raise TextError(f"a salt of {len(salt)} bytes: it has {MIN_SALT_BYTES} at least")
    if len(digest) != 64:
        raise TextError(f"a hash of {len(digest)} bytes: SHA-512 has 64")
    return MosquittoHash(iterations, salt, digest)


def _argon2id(match: re.Match[str]) -> Argon2idHash:
    lanes = _within("p", match[3], 1, MAX_LANES)
    memory_kib = _within("m", match[1], 8 * lanes, MAX_MEMORY_KIB)
    passes = _within("t", match[2], 1, MAX_PASSES)
    found = Argon2idHash(memory_kib, passes, lanes, *_phc(match[4], match[5]))
    Argon2idHash(8, 1, 1, found.salt, b"").derive(b"", MIN_HASH_BYTES)  # a broker must not find out at a login
    return found


def _scrypt(match: re.Match[str]) -> ScryptHash:
    cost = _within("ln", match[1], 1, MAX_MEMORY_KIB.bit_length() + 9)
    block_size = _within("r", match[2], 1, 1 << 20)
    parallel = _within("p", match[3], 1, MAX_PASSES)
    if 128 * block_size * ((1 << cost) + parallel) > MAX_MEMORY_KIB * 1024:
        raise TextError(f"ln={cost} with r={block_size} takes more than {MAX_MEMORY_KIB // 1024} MiB for each login")
    if cost >= 16 * block_size:
        raise TextError(f"ln={cost} with r={block_size}: ln is below 16 times r (RFC 7914)")
    return ScryptHash(cost, block_size, parallel, *_phc(match[4], match[5]))


def _phc(salt: str, digest: str) -> tuple[bytes, bytes]:
    """Salt and hash of the PHC string format: base64 without padding."""
    if "=" in salt + digest:
        raise TextError("salt and hash are base64 without '='")
    decoded = tuple(_decoded(each + "=" * (-len(each) % 4)) for each in (salt, digest))
    if not MIN_SALT_BYTES <= len(decoded[0]) <= MAX_HASH_BYTES:
        raise TextError(f"a salt of {len(decoded[0])} bytes: it may have {MIN_SALT_BYTES} to {MAX_HASH_BYTES}")
    if not MIN_HASH_BYTES <= len(decoded[1]) <= MAX_HASH_BYTES:
        raise TextError(f"a hash of {len(decoded[1])} bytes: it may have {MIN_HASH_BYTES} to {MAX_HASH_BYTES}")
    return decoded[0], decoded[1]


def _within(name: str, text: str, least: int, most: int) -> int:
    number = int(text)
    if not least <= number <= most:
        raise TextError(f"{name}={number}: it may be {least} to {most}")
    return number


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise TextError("a field that is not base64") from None


def _b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode().rstrip("=")


def _made_up(seed: bytes, salt_bytes: int, digest_bytes: int) -> tuple[bytes, bytes]:
    raw = hashlib.shake_256(seed).digest(salt_bytes + digest_bytes)
    return raw[:salt_bytes], raw[salt_bytes:]
