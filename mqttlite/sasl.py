"""SCRAM-SHA-256 as both ends compute it: texts prepared, keys, proofs, the fields of messages (RFC 4013, 5802, 7677).

Who speaks when lives in `security.scram` and `client.scram`, and so do their nonces. Nothing here decides.
"""

import base64
import binascii
import hashlib
import hmac
import re
import stringprep
import unicodedata
from dataclasses import dataclass, field
from typing import Final

SCRAM_SHA_256: Final = "SCRAM-SHA-256"

MIN_ITERATIONS: Final = 4_096
"""Less makes guessing a password too cheap (RFC 7677 §4); a client does not prove its own to such a server."""

MAX_ITERATIONS: Final = 10_000_000
"""Some seconds of work. A server that asks a client for more wants its time, not its proof."""

MAX_CHARACTERS: Final = 1_024
"""Of a user name or a password: to prepare one takes a thousandth of a second for each few hundred, and who sends it
has yet to prove who he is."""

_PROHIBITED: Final = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)

_PRINTABLE: Final = re.compile(r"[!-+\--~]+")
"""What a nonce is made of: ASCII without the comma (RFC 5802 §7)."""


_BARE_EQUALS: Final = re.compile("=(?!2C|3D)")


class ScramError(ValueError):
    """A message or a text that is none; the text says why, for the end that received it."""


def prepare(text: str) -> str:
    """A user name or password in the form in which it is compared (SASLprep, RFC 4013). Raises `ScramError`.

    It has `MAX_CHARACTERS` at most, before and after. Characters that Unicode 3.2 did not have pass as they are, as in
    a query; so an emoji may be part of a password.
    """
    _check_length(text)
    if text and text.isascii() and text.isprintable():
        return text  # as nearly all are: nothing in it is for any table
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char for char in text if not stringprep.in_table_b1(char)
    )
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if not prepared:
        raise ScramError("it is empty")
    _check_length(prepared)  # one character may have become eighteen
    for char in prepared:
        if any(prohibits(char) for prohibits in _PROHIBITED):
            raise ScramError(f"it holds {char!r}, which no user name or password may")
    if any(map(stringprep.in_table_d1, prepared)):  # right to left: all of it, from end to end (RFC 3454 §6)
        ends = stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])
        if not ends or any(map(stringprep.in_table_d2, prepared)):
            raise ScramError("it mixes characters that are written from the left and from the right")
    return prepared


def _check_length(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise ScramError(f"it has {len(text)} characters, and may have {MAX_CHARACTERS}")


@dataclass(frozen=True, slots=True)
class Keys:
    """What a server keeps of a password: enough to know it again, not enough to log in elsewhere (RFC 5802 §3)."""

    iterations: int
    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def salted_password(password: str, salt: bytes, iterations: int) -> bytes:
    """The slow step, on purpose. Raises `ScramError` for a text that cannot be a password."""
    return hashlib.pbkdf2_hmac("sha256", prepare(password).encode(), salt, iterations)


def keys_of(password: str, salt: bytes, iterations: int) -> Keys:
    """The keys of a password. Slow; raises `ScramError` for a text that cannot be one."""
    salted = salted_password(password, salt, iterations)
    return Keys(iterations, salt, sha256(client_key_of(salted)), server_key_of(salted))


def client_key_of(salted: bytes) -> bytes:
    return sign(salted, b"Client Key")


def server_key_of(salted: bytes) -> bytes:
    return sign(salted, b"Server Key")


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def sign(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def xor(one: bytes, other: bytes) -> bytes:
    return bytes([left ^ right for left, right in zip(one, other, strict=True)])


def fields(message: str, *names: str) -> list[str]:
    """The values of a message's fields, which come in this order; extensions may follow, and are ignored.

    Raises `ScramError`.
    """
    parts = message.split(",")
    if parts[0].startswith("m="):
        raise ScramError("a mandatory extension, of which none is known")
    if len(parts) < len(names):
        raise ScramError(f"a message of {len(parts)} fields, where {len(names)} belong")
    for name, part in zip(names, parts, strict=False):
        if not part.startswith(f"{name}="):
            raise ScramError(f"the field {name!r} is not where it belongs")
    return [part[2:] for part in parts[: len(names)]]


def text_of(message: bytes) -> str:
    """A message as text. Raises `ScramError`."""
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise ScramError("a message that is not UTF-8") from None
    if "\0" in text:
        raise ScramError("a message with U+0000")
    return text


def check_nonce(nonce: str) -> str:
    """The nonce. Raises `ScramError` for what is none."""
    if not _PRINTABLE.fullmatch(nonce):
        raise ScramError("a nonce that is empty or not printable")
    return nonce


def escape(name: str) -> str:
    """A user name as it stands in a message."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape(name: str) -> str:
    """The user name in a message. Raises `ScramError`."""
    if _BARE_EQUALS.search(name):
        raise ScramError("a user name with '=' that is not escaped")
    return name.replace("=2C", ",").replace("=3D", "=")


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def from_b64(text: str) -> bytes:
    """Raises `ScramError` for what is no base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("a field that is not base64") from None
