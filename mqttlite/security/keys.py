"""The keys of a password, as SCRAM-SHA-256 defines them (RFC 5802, RFC 7677): what a server keeps in its place.

How a file holds them lives in `password_file`, who checks a client against them in `passwords`. Invariant: names and
passwords are compared in one form, that of SASLprep (RFC 4013).
"""

import hashlib
import hmac
import stringprep
import unicodedata
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from scramp import ScramException
from scramp.utils import saslprep

SCRAM_SHA_256: Final = "SCRAM-SHA-256"

MIN_ITERATIONS: Final = 4_096
"""Less makes guessing a password too cheap (RFC 7677 §4), and the library refuses it."""

MAX_ITERATIONS: Final = 10_000_000
"""Some seconds of work for each CONNECT. The library refuses more."""

MIN_SALT_BYTES: Final = 12
"""The library refuses shorter ones. `mqttlite passwd` and PostgreSQL make 16."""

MAX_CHARACTERS: Final = 1_024
"""Of a user name or a password, before and after SASLprep, which takes some microseconds for each."""


class TextError(ValueError):
    """A text that cannot be a user name or a password, or a line that holds no keys; the message says why."""


@dataclass(frozen=True, slots=True)
class Keys:
    """What a server keeps of a password: enough to check it, not enough to log in elsewhere (RFC 5802 §3)."""

    iterations: int
    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def prepare(text: str) -> str:
    """A user name or password in the form in which it is compared. Raises `TextError`.

    Takes milliseconds for a long text that is not ASCII. Characters that Unicode 3.2 did not have stay as they are, as
    RFC 4013 lets a query hold them, so an emoji may be part of a password; the library refuses them.
    """
    _check_length(text)
    if text and text.isascii() and text.isprintable():
        return text  # SASLprep changes nothing in it
    _check_length(unicodedata.ucd_3_2_0.normalize("NFKC", text))  # one character may become eighteen
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
    """The keys of a password. Takes milliseconds on purpose. Raises `TextError` for a text that cannot be one."""
    return derive(prepare(password), salt, iterations)


def derive(prepared: str, salt: bytes, iterations: int) -> Keys:
    """The keys of a password that is prepared. Takes milliseconds, most of them without Python's lock."""
    salted = hashlib.pbkdf2_hmac("sha256", prepared.encode(), salt, iterations)
    stored_key = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    return Keys(iterations, salt, stored_key, hmac.digest(salted, b"Server Key", "sha256"))
