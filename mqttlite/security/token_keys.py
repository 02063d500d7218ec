"""The keys that verify tokens, read from a secret, a public key or a JSON Web Key Set (RFC 7517).

`tokens` checks the claims. Invariant: a key is used only with the algorithms of its own kind, so that a public key is
never used as a shared secret, whatever a token's header says.
"""

import base64
import binascii
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, cast, final

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cryptography.x509 import load_pem_x509_certificate
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.exceptions import InvalidKeyError

from mqttlite.security.token_options import TokenConfigError, TokenOptions

VerifyingKey = bytes | rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey

MAX_FILE_BYTES: Final = 1_048_576
"""The largest key file: a thousand keys of 4,096 bits."""

MAX_KEYS: Final = 100
"""The most keys in a set. An issuer usually publishes the current key and the next one; reading a key takes some 50
µs."""

MIN_RSA_BITS: Final = 2_048
"""The minimum of RFC 7518 (§3.3)."""

MAX_RSA_BITS: Final = 16_384
"""The most that OpenSSL verifies with. No signature of a longer key would ever be right."""

_SECRET_BYTES: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
"""The minimum bytes of a secret: as many as the hash has (RFC 7518, §3.2)."""

_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


@final
class TokenKey:
    """A key, its name if it has one, and the algorithms it may be used with."""

    __slots__ = ("algorithms", "key", "kid")

    def __init__(self, kid: str | None, algorithms: frozenset[str], key: VerifyingKey) -> None:
        self.kid: Final = kid
        self.algorithms: Final = algorithms
        self.key: Final = key


@final
class TokenKeys:
    """All keys of a file."""

    def __init__(self, keys: list[TokenKey]) -> None:
        self._keys: Final = keys
        self._has_names: Final = any(each.kid is not None for each in keys)

    def __len__(self) -> int:
        return len(self._keys)

    def missing(self, algorithms: Iterable[str]) -> list[str]:
        """The algorithms without a key."""
        served = frozenset[str]().union(*(each.algorithms for each in self._keys))
        return sorted(frozenset(algorithms) - served)

    def find(self, algorithm: str, kid: str | None) -> VerifyingKey | None:
        """The only key for a token; None if there is none, or more than one."""
        found = [each for each in self._keys if algorithm in each.algorithms]
        if kid is not None and self._has_names:
            found = [each for each in found if each.kid == kid]
        return found[0].key if len(found) == 1 else None


def load_keys(options: TokenOptions) -> TokenKeys:
    """The keys in the configured file. Each algorithm must have one. Raises `TokenConfigError`."""
    keys = read_keys(options)
    if missing := keys.missing(options.algorithms):
        raise _no_key(options, missing)
    return keys


def read_keys(options: TokenOptions) -> TokenKeys:
    """The keys in the configured file after a change. Some algorithms may have lost their key. Raises
    `TokenConfigError` if no algorithm has a key."""
    option, path = options.key_file
    content = _read(option, path)
    wanted = frozenset[str](options.algorithms)
    if option == "secret_file":
        found = [_secret(path, content, wanted)]
    elif option == "public_key_file":
        found = [_public_key(path, content, wanted)]
    else:
        found = _key_set(path, content, wanted)
    keys = TokenKeys(found)
    missing = keys.missing(wanted)
    if len(missing) == len(wanted):
        raise _no_key(options, missing)
    return keys


def _no_key(options: TokenOptions, missing: list[str]) -> TokenConfigError:
    return TokenConfigError(
        "algorithms",
        f"{', '.join(missing)}: {options.key_file[1]} has no key for it. Leave it out, or name the file of its key"
        f"{' in secret_file' if missing[0].startswith('HS') else ''}.",
    )


def _read(option: str, path: Path) -> bytes:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise TokenConfigError(option, f"{path} is not a file.")
        if found.st_size > MAX_FILE_BYTES:
            raise TokenConfigError(option, f"{path} has {found.st_size} bytes: {MAX_FILE_BYTES} at most.")
        return path.read_bytes()
    except OSError as error:
        raise TokenConfigError(option, f"{path} cannot be read: {error.strerror or error}.") from None


def _secret(path: Path, content: bytes, wanted: frozenset[str]) -> TokenKey:
    secret = content.removesuffix(b"\n").removesuffix(b"\r")
    if b"-----BEGIN " in secret or secret.startswith((b"ssh-", b"ecdsa-")):
        raise TokenConfigError(
            "secret_file", f"{path} holds a key in PEM or SSH form, which is not a shared secret; see public_key_file."
        )
    if strangers := sorted(wanted - _SECRET_BYTES.keys()):
        raise TokenConfigError("algorithms", f"{', '.join(strangers)} needs public_key_file or jwks_file.")
    needed = max(_SECRET_BYTES[each] for each in wanted)
    if len(secret) < needed:
        raise TokenConfigError(
            "secret_file",
            f"{path} holds a secret of {len(secret)} bytes: {max(wanted)} needs {needed} at least. "
            f"'openssl rand -base64 {needed}' makes one.",
        )
    return TokenKey(None, wanted, secret)


def _public_key(path: Path, content: bytes, wanted: frozenset[str]) -> TokenKey:
    if b"PRIVATE KEY-----" in content:
        raise TokenConfigError(
            "public_key_file",
            f"{path} holds a private key, which is the issuer's own. "
            f"'openssl pkey -in {path} -pubout -out public.pem' writes the public one.",
        )
    try:
        if b"-----BEGIN CERTIFICATE-----" in content:
            key: object = load_pem_x509_certificate(content).public_key()
        else:
            key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        raise TokenConfigError(
            "public_key_file", f"{path} holds no public key in PEM, which begins with '-----BEGIN PUBLIC KEY-----'."
        ) from None
    try:
        return TokenKey(None, _algorithms_of(key) & wanted, cast(VerifyingKey, key))
    except ValueError as error:
        raise TokenConfigError("public_key_file", f"{path} holds {error}.") from None


class _Jwk(msgspec.Struct):
    """The fields of a key set entry that decide about its use."""

    kty: str
    kid: str | None = None
    use: str | None = None
    alg: str | None = None
    key_ops: list[str] | None = None
    k: str | None = None


def _key_set(path: Path, content: bytes, wanted: frozenset[str]) -> list[TokenKey]:
    try:
        entries = msgspec.json.decode(content, type=dict[str, Any]).get("keys")
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise TokenConfigError("jwks_file", f"{path} is not a JSON Web Key Set: {error}.") from None
    if not isinstance(entries, list) or not entries:
        raise TokenConfigError("jwks_file", f'{path} is not a JSON Web Key Set: it has no list "keys" with keys.')
    if len(entries) > MAX_KEYS:
        raise TokenConfigError("jwks_file", f"{path} has {len(entries)} keys: {MAX_KEYS} at most.")
    keys: list[TokenKey] = []
    for number, entry in enumerate(entries):
        try:
            key = _jwk(entry, wanted)
        except (ValueError, KeyError, TypeError, InvalidKeyError, UnsupportedAlgorithm) as error:
            raise TokenConfigError("jwks_file", f"{path}: keys[{number}] cannot be used: {error}.") from None
        if key is not None:
            if key.kid is not None and any(each.kid == key.kid and each.algorithms & key.algorithms for each in keys):
                raise TokenConfigError("jwks_file", f"{path}: keys[{number}] has the kid of another key: {key.kid!r}.")
            keys.append(key)
    return keys


def _jwk(entry: object, wanted: frozenset[str]) -> TokenKey | None:
    """A key of a set; None if it is not for one of the wanted algorithms. Raises `ValueError` and others."""
    says = msgspec.convert(entry, _Jwk)
    fields = cast(dict[str, Any], entry)
    if "d" in fields:
        raise ValueError("it is a private key, which is the issuer's own: keep only its public part")
    if says.use not in (None, "sig") or (says.key_ops is not None and "verify" not in says.key_ops):
        return None
    key: VerifyingKey
    if says.kty == "oct":
        key = _base64url(says.k or "")
        fitting = frozenset(name for name, size in _SECRET_BYTES.items() if len(key) >= size)
    elif says.kty in ("RSA", "EC", "OKP"):
        if says.kty == "OKP" and fields.get("crv") != "Ed25519":
            return None
        readers: dict[str, Callable[[dict[str, Any]], object]] = {
            "RSA": RSAAlgorithm.from_jwk,
            "EC": ECAlgorithm.from_jwk,
            "OKP": OKPAlgorithm.from_jwk,
        }
        key = cast(VerifyingKey, readers[says.kty](fields))
        fitting = _algorithms_of(key)
    else:
        return None
    if says.alg is not None:
        fitting &= {"EdDSA" if says.alg == "Ed25519" else says.alg}
    algorithms = fitting & wanted
    return TokenKey(says.kid, algorithms, key) if algorithms else None


def _algorithms_of(key: object) -> frozenset[str]:
    """The algorithms for a public key. Raises `ValueError` for an unsupported key."""
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < MIN_RSA_BITS:
            raise ValueError(f"an RSA key of {key.key_size} bits, and {MIN_RSA_BITS} are needed")
        if key.key_size > MAX_RSA_BITS:
            raise ValueError(f"an RSA key of {key.key_size} bits, and at most {MAX_RSA_BITS} can be used")
        return _RSA
    if isinstance(key, ec.EllipticCurvePublicKey):
        if key.curve.name not in _CURVES:
            raise ValueError(f"a key on the curve {key.curve.name}, which no algorithm of tokens uses")
        return frozenset({_CURVES[key.curve.name]})
    if isinstance(key, ed25519.Ed25519PublicKey):
        return frozenset({"EdDSA"})
    raise ValueError("a key that is neither RSA, nor of an elliptic curve, nor Ed25519")


def _base64url(text: str) -> bytes:
    """Raises `ValueError`."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise ValueError("its k is not base64url") from None
