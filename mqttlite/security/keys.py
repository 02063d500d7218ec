"""The keys that a server stores instead of a password for SCRAM-SHA-256 (RFC 5802, RFC 7677).

`password_file` has their text form; `passwords` checks clients against them. Invariant: names and passwords are
compared in the form of SASLprep (RFC 4013).
"""

import hashlib
import hmac
import stringprep
import unicodedata
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

SCRAM_SHA_256: Final = "SCRAM-SHA-256"

MIN_ITERATIONS: Final = 4_096
"""Fewer make guessing too cheap (RFC 7677 §4), and the library refuses them."""

MAX_ITERATIONS: Final = 10_000_000
"""Some seconds of work for each CONNECT. The library refuses more."""

MIN_SALT_BYTES: Final = 12
"""The library refuses shorter ones. `mqttlite passwd` and PostgreSQL make 16."""

MAX_CHARACTERS: Final = 1_024
"""The longest user name or password, before and after SASLprep, which takes some microseconds per character."""


class TextError(ValueError):
    """An invalid user name, password or line of a password file; the message says why."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The stored keys of a password: enough to check it, not enough to log in elsewhere (RFC 5802 §3)."""

    iterations: int
    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def prepare(text: str) -> str:
    """A user name or password in the form for comparison. Raises `TextError`.

    Takes milliseconds for a long non-ASCII text. Characters that are not in Unicode 3.2 stay unchanged, as RFC 4013
    allows for queries, so a password may contain an emoji; the library alone would refuse it.
    """
    _check_length(text)
    if text and text.isascii() and text.isprintable():
        return text  # SASLprep would not change it
    _check_length(unicodedata.ucd_3_2_0.normalize("NFKC", text))  # one character may become eighteen
    from scramp import ScramException  # here, for most texts are ASCII and it takes a while
    from scramp.utils import saslprep

    try:
        prepared = "".join(
            "".join(part) if unassigned else saslprep("".join(part))
            for unassigned, part in groupby(text, stringprep.in_table_a1)
        )
    except ScramException as error:
        raise TextError(error.args[0]) from None
    if not prepared:
        raise TextError("it is empty")
    return prepared


def _check_length(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise TextError(f"it has {len(text)} characters, and may have {MAX_CHARACTERS}")


def keys_of(password: str, salt: bytes, iterations: int) -> Keys:
    """The keys of a password. Takes milliseconds on purpose. Raises `TextError` for an invalid password."""
    return derive(prepare(password), salt, iterations)


def derive(prepared: str, salt: bytes, iterations: int) -> Keys:
    """The keys of a prepared password. Takes milliseconds, mostly without Python's lock."""
    salted = hashlib.pbkdf2_hmac("sha256", prepared.encode(), salt, iterations)
    stored_key = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    return Keys(iterations, salt, stored_key, hmac.digest(salted, b"Server Key", "sha256"))
