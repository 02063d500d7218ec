"""API keys: a file of hashed random keys, each with a role. `mqttlite token` writes it, and the gateway reads it.

A key has 256 random bits, which cannot be guessed, so a plain SHA-256 is safe, and a request costs microseconds.
Invariant: a key is in the file as its hash only, and the file is replaced whole, so that no reader sees half of it.
"""

import asyncio
import hashlib
import logging
import os
import secrets
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec

from mqttlite.files.atomic_file import save
from mqttlite.files.file_version import version_of
from mqttlite.files.shared_document import SharedDocument
from mqttlite.security import json_file

FILE_NAME: Final = "api-keys.json"
"""In the data directory."""

PREFIX: Final = "mqk_"
"""Marks a key for people, and for tools that search sources for secrets."""

MAX_KEYS: Final = 10_000
"""Keys of one file: some 2 MB, read in some 20 ms."""

MAX_FILE_BYTES: Final = 8_388_608
"""A larger file is not read. 10,000 keys take a quarter of it."""

LOOK_S: Final = 0.5
"""The interval between checks of the file's version while requests arrive: a revoked key is refused within a second."""

KeyRole = Literal["user", "viewer", "operator", "admin"]

_log = logging.getLogger("mqttlite.security")


class ApiKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One key. `id` names it for people and is not secret."""

    id: str
    sha256: str
    role: KeyRole
    user: str | None = None
    """The user whose permissions it has; None: those of an anonymous client."""
    note: str = ""
    created_at: int
    expires_at: int | None = None
    """Both in seconds since 1970."""


class _File(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    version: Literal[1] = 1
    keys: list[ApiKey] = []


class ApiKeyFileError(ValueError):
    """Which file cannot be used, why, and what to do."""


def load(path: Path) -> list[ApiKey]:
    """The keys of a file; none where there is no file. Raises `ApiKeyFileError`."""
    found = json_file.load(
        path,
        _File,
        ApiKeyFileError,
        max_bytes=MAX_FILE_BYTES,
        content="API keys",
        advice="move it away: 'mqttlite token new' makes one",
    )
    keys = [] if found is None else found.keys
    if len(keys) > MAX_KEYS:
        raise ApiKeyFileError(f"{path} has {len(keys)} keys: {MAX_KEYS} at most")
    return keys


def add(path: Path, role: KeyRole, user: str | None, expires_at: int | None, note: str = "") -> tuple[str, ApiKey]:
    """Create a key and add it to a file, which is created if missing. Return the key, which is not stored, and its
    entry. Raises `ApiKeyFileError`."""
    secret, entry, content = with_new(path, role, user, expires_at, note)
    write(path, content)
    return secret, entry


def with_new(
    path: Path, role: KeyRole, user: str | None, expires_at: int | None, note: str
) -> tuple[str, ApiKey, bytes]:
    """A new key, its entry, and the content that the file has with it. Raises `ApiKeyFileError`."""
    keys = load(path)
    if len(keys) >= MAX_KEYS:
        raise ApiKeyFileError(f"{path} has {MAX_KEYS} keys, which is the limit; revoke some")
    secret = PREFIX + secrets.token_urlsafe(32)
    entry = ApiKey(
        id=secrets.token_hex(4),
        sha256=_hash(secret),
        role=role,
        user=user,
        note=note,
        created_at=int(time.time()),
        expires_at=expires_at,
    )
    return secret, entry, _content_of([*keys, entry])


def revoke(path: Path, key_id: str) -> bool:
    """Remove a key; False if there is none of that id. Raises `ApiKeyFileError`."""
    content = without(path, key_id)
    if content is None:
        return False
    write(path, content)
    return True


def without(path: Path, key_id: str) -> bytes | None:
    """The content that the file has without a key; None if there is none of that id. Raises `ApiKeyFileError`."""
    keys = load(path)
    left = [each for each in keys if each.id != key_id]
    return None if len(left) == len(keys) else _content_of(left)


def check(content: bytes) -> None:
    """Raises ValueError for what is no file of API keys."""
    try:
        found = msgspec.json.decode(content, type=_File)
    except msgspec.DecodeError as error:
        raise ValueError(f"it is no file of API keys: {error}") from None
    if len(found.keys) > MAX_KEYS:
        raise ValueError(f"it has {len(found.keys)} API keys: {MAX_KEYS} at most")


def _content_of(keys: list[ApiKey]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(_File(keys=keys)))


def write(path: Path, content: bytes) -> None:
    """Replace the file, which is created if missing. Raises `ApiKeyFileError`."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # readable by its owner only
        try:
            with os.fdopen(number, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise ApiKeyFileError(f"{path} cannot be written: {error.strerror}") from None


class ApiKeys:
    """The current keys of a file. If a changed file is unusable, that is logged, and the former keys stay.

    `clock` is the time of the loop, `wall` the time for the expiry of keys. Without a `path` there are no keys.
    """

    def __init__(self, path: Path | None, *, clock: Callable[[], float], wall: Callable[[], float] = time.time) -> None:
        """Raises `ApiKeyFileError`."""
        self.path: Final = path
        self.document: Final = SharedDocument("api-keys", check, self._replace, path=path, lock=asyncio.Lock())
        """Its lock is held during a change of the file in this process: a change reads and rewrites the whole file."""
        self._clock: Final = clock
        self._wall: Final = wall
        self._seen = version_of(path)
        self._looked_at = clock()
        self._keys: dict[str, ApiKey] = {} if path is None else _by_hash(load(path))
        self._ids = {each.id for each in self._keys.values()}

    def __len__(self) -> int:
        return len(self._keys)

    def entries(self) -> list[ApiKey]:
        """All keys, in order of creation."""
        self._notice_change()
        return sorted(self._keys.values(), key=lambda each: (each.created_at, each.id))

    def find(self, secret: str) -> ApiKey | None:
        """The entry of a key; None if it is unknown, revoked or expired."""
        self._notice_change()
        key = self._keys.get(_hash(secret))
        if key is None or (key.expires_at is not None and key.expires_at <= self._wall()):
            return None
        return key

    def holds(self, key_id: str) -> bool:
        """Whether there is a key with this id, expired or not."""
        self._notice_change()
        return key_id in self._ids

    def look_again(self) -> None:
        """Check the file at the next call, without waiting for the interval."""
        self._looked_at = -LOOK_S

    async def _replace(self, content: bytes) -> None:
        assert self.path is not None, "without a file they are not shared"
        await asyncio.to_thread(save, self.path, content)
        self.look_again()

    def _notice_change(self) -> None:
        now = self._clock()
        if self.path is None or now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        seen = version_of(self.path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._keys = _by_hash(load(self.path))
            self._ids = {each.id for each in self._keys.values()}
            _log.info("%s was read again: %d API keys", self.path, len(self._keys))
        except ApiKeyFileError as error:
            _log.error("the API keys stay as they were: %s", error)


def _by_hash(keys: list[ApiKey]) -> dict[str, ApiKey]:
    return {each.sha256: each for each in keys}


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()
