"""The password file: a line for each user, with keys in the form of PostgreSQL, or a hash in that of Mosquitto or PHC.

    ann:SCRAM-SHA-256$15000:<salt>$<StoredKey>:<ServerKey>
    bob:$7$101$<salt>$<hash>
    eve:$argon2id$v=19$m=19456,t=2,p=1$<salt>$<hash>

Empty lines, and lines that begin with "#", are preserved. `passwords` decides on logins. Invariant: the file on disk is
complete at every moment, and its readers stay the same.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, final

from mqttlite.files.atomic_file import changing
from mqttlite.security.hashes import PasswordHash, parse_hash
from mqttlite.security.keys import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    MIN_SALT_BYTES,
    SCRAM_SHA_256,
    Keys,
    TextError,
    prepare,
)
from mqttlite.security.one_line import one_line

ITERATIONS: Final = 15_000
"""Some milliseconds for each guess, and for each CONNECT with a plain password, of which there may be thousands."""

SALT_BYTES: Final = 16

_BLANKS: Final = " \t"
_SECRET: Final = re.compile(rf"{SCRAM_SHA_256}\$(\d{{1,10}}):([^$:]+)\$([^$:]+):([^$:]+)")


class PasswordFileError(ValueError):
    """An unusable password file. The text says which file, where in it, and what is wrong."""


class PasswordFileUnreadable(PasswordFileError):
    """The file cannot be read, so its content is unknown. Another attempt may succeed."""


Entry = Keys | PasswordHash
"""The stored form of a password."""


@final
class Users:
    """The users of a password file."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries: Final = dict(entries)
        self._every: Final = list(entries.values())
        self._scram: Final = [each for each in self._every if isinstance(each, Keys)]
        digest = hashlib.sha256(b"mqttlite: users that do not exist")
        for each in self._every:
            digest.update(format_entry(each).encode())
        self._secret: Final = digest.digest()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def names(self) -> set[str]:
        """The names of all users."""
        return set(self._entries)

    def find(self, name: str) -> Entry:
        """The entry of a user. An unknown user gets a decoy, always the same, that no password matches.

        The decoy resembles another user's entry, and is derived from all entries of the file, so that an attacker
        cannot tell which users exist, not even across restarts.
        """
        known = self._entries.get(name)
        if known is not None:
            return known
        seed = self._seed(name)
        like = self._every[int.from_bytes(seed[:8]) % len(self._every)] if self._every else None
        return _decoy(seed, like) if like is None or isinstance(like, Keys) else like.decoy(seed)

    def scram_keys(self, name: str) -> Keys:
        """The keys for SCRAM; a decoy as in `find` for a user without keys."""
        known = self._entries.get(name)
        if isinstance(known, Keys):
            return known
        seed = self._seed(name)
        return _decoy(seed, self._scram[int.from_bytes(seed[:8]) % len(self._scram)] if self._scram else None)

    def has_scram(self, name: str) -> bool:
        """Whether a user can log in by SCRAM."""
        return isinstance(self._entries.get(name), Keys)

    def _seed(self, name: str) -> bytes:
        return hmac.digest(self._secret, name.encode(), "sha256")


def _decoy(seed: bytes, like: Keys | None) -> Keys:
    """Keys that no password matches."""
    iterations, salt_bytes = (ITERATIONS, SALT_BYTES) if like is None else (like.iterations, len(like.salt))
    salt = hashlib.shake_256(seed).digest(salt_bytes)
    stored_key, server_key = (hmac.digest(seed, which, "sha256") for which in (b"StoredKey", b"ServerKey"))
    return Keys(iterations, salt, stored_key, server_key)


def load(path: str | Path) -> Users:
    """The users in a file. Raises `PasswordFileError`."""
    return _users(Path(path), _lines(Path(path)))


def _users(path: Path, lines: Iterable[str]) -> Users:
    entries: dict[str, Entry] = {}
    for number, line in enumerate(lines, 1):
        name = _name_of(line)
        if name is None:
            continue
        try:
            if name in entries:
                raise TextError(f"user {name!r} has a line already")
            entries[name] = entry = _parse(line.partition(":")[2].strip(_BLANKS))
            if isinstance(entry, Keys) and check_name(name) != name:
                raise TextError(f"user name {name!r}: it is compared as {check_name(name)!r}, write it so")
            if not name:
                raise TextError("the user name is empty")
        except TextError as error:
            raise PasswordFileError(f"{path}:{number}: {one_line(str(error))}") from None
    return Users(entries)


def check_name(name: str) -> str:
    """A user name in the form of the file. Raises `TextError`."""
    try:
        prepared = prepare(name)
    except TextError as error:
        raise TextError(f"user name {name!r}: {error}") from None
    if ":" in prepared or prepared.startswith("#"):
        raise TextError(f"user name {name!r}: it may not hold ':' nor begin with '#'")
    return prepared


def set_user(path: Path, name: str, entry: Entry, *, create: bool) -> bool:
    """Set the entry of a user. Return whether the user is new. Raises `PasswordFileError`."""
    added = True

    def change(lines: list[str]) -> list[str]:
        nonlocal added
        changed = _with_user(lines, name, entry)
        added = len(changed) > len(lines)
        return changed

    _rewrite(path, change, create=create)
    return added


def delete_user(path: Path, name: str) -> None:
    """Remove a user. Raises `PasswordFileError`, also for an unknown user."""
    _rewrite(path, lambda lines: _without_user(path, lines, name), create=False)


def content_with_user(path: Path, name: str, entry: Entry) -> bytes:
    """The content that `set_user` gives the file. Raises `PasswordFileError`."""
    return _content_of(path, _with_user(_lines(path), name, entry))


def content_without_user(path: Path, name: str) -> bytes:
    """The content that `delete_user` gives the file. Raises `PasswordFileError`."""
    return _content_of(path, _without_user(path, _lines(path), name))


def check(path: Path, content: bytes) -> None:
    """Raises `PasswordFileError` for content that the file may not have."""
    _users(path, _lines_of(path, content))


def _with_user(lines: list[str], name: str, entry: Entry) -> list[str]:
    new = f"{name}:{format_entry(entry)}"
    if all(_name_of(line) != name for line in lines):
        return [*lines, new]
    return [new if _name_of(line) == name else line for line in lines]


def _without_user(path: Path, lines: list[str], name: str) -> list[str]:
    kept = [line for line in lines if _name_of(line) != name]
    if len(kept) == len(lines):
        raise PasswordFileError(f"{path} has no user {name!r}")
    return kept


def _content_of(path: Path, lines: list[str]) -> bytes:
    """Raises `PasswordFileError` for lines that brokers would refuse."""
    _users(path, lines)
    return "".join(f"{line}\n" for line in lines).encode()


def format_entry(entry: Entry) -> str:
    """The text of an entry after the user name."""
    return format_keys(entry) if isinstance(entry, Keys) else entry.format()


def format_keys(keys: Keys) -> str:
    """The text of the keys after the user name."""
    salt, stored_key, server_key = (
        base64.b64encode(each).decode() for each in (keys.salt, keys.stored_key, keys.server_key)
    )
    return f"{SCRAM_SHA_256}${keys.iterations}:{salt}${stored_key}:{server_key}"


def _parse(secret: str) -> Entry:
    if secret.startswith("$"):
        return parse_hash(secret)
    match = _SECRET.fullmatch(secret)
    if match is None:
        raise TextError(
            f"this is not user:{SCRAM_SHA_256}$<iterations>:<salt>$<StoredKey>:<ServerKey>; "
            "'mqttlite passwd' writes such lines, 'mosquitto_passwd -U' makes hashes of a file of plain passwords"
        )
    iterations = int(match[1])
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise TextError(f"{iterations} iterations: they may be {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    try:
        salt, stored_key, server_key = (base64.b64decode(each, validate=True) for each in match.groups()[1:])
    except (binascii.Error, ValueError):
        raise TextError("a field that is not base64") from None
    if len(salt) < MIN_SALT_BYTES:
        raise TextError(f"a salt of {len(salt)} bytes: it has {MIN_SALT_BYTES} at least")
    if len(stored_key) != 32 or len(server_key) != 32:
        raise TextError("StoredKey and ServerKey have 32 bytes each")
    return Keys(iterations, salt, stored_key, server_key)


def _name_of(line: str) -> str | None:
    """The user of a line; None for an empty line or a comment. As in Mosquitto, blanks around a name are ignored."""
    return None if not line.strip() or line.startswith("#") else line.partition(":")[0].strip(_BLANKS)


def _lines(path: Path) -> list[str]:
    try:
        content = path.read_bytes()
    except OSError as error:
        hint = "; 'mqttlite passwd --create' makes it" if isinstance(error, FileNotFoundError) else ""
        raise PasswordFileUnreadable(f"{path}: cannot be read: {error.strerror}{hint}") from None
    return _lines_of(path, content)


def _lines_of(path: Path, content: bytes) -> list[str]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise PasswordFileError(f"{path}:{number}: it is not UTF-8") from None
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]


def _rewrite(path: Path, change: Callable[[list[str]], Iterable[str]], *, create: bool) -> None:
    """Replace the file with a changed copy, while neither a broker nor another command does."""
    try:
        with changing(path) as replace:
            if create and path.exists():
                raise PasswordFileError(f"{path} exists already; without --create the user is added to it")
            if not create and not path.exists():
                raise PasswordFileError(f"{path}: no such file; --create makes it")
            lines = list(change([] if create else _lines(path)))
            replace(_content_of(path, lines))
    except OSError as error:
        raise PasswordFileError(f"{path} cannot be written: {error.strerror}") from None


def new_salt() -> bytes:
    return secrets.token_bytes(SALT_BYTES)
