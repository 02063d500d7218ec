"""Lets clients in by a password file: with user name and password in CONNECT, or by SCRAM-SHA-256, which sends none.

How the file looks lives in `password_file`, the exchange in `scram`. Invariant: hashing never holds up the loop, and
no answer tells whether a user exists.
"""

import asyncio
import hmac
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from mqttlite.core.authentication import Verdict
from mqttlite.sasl import SCRAM_SHA_256, Keys, ScramError, keys_of, prepare
from mqttlite.security.authenticator import Credentials
from mqttlite.security.password_file import PasswordFileError, PasswordFileUnreadable, Users, load
from mqttlite.security.scram import ScramServer
from mqttlite.wire.reason_codes import ReasonCode

HASHES_AT_ONCE: Final = 2
"""Threads that check plain passwords, however many clients come back at once: the loop needs a processor, too."""

RETRY_S: Final = 1.0
"""How long to wait before a file that could not be read is tried again, for clients go on coming."""

_log = logging.getLogger("mqttlite.security")

T = TypeVar("T")
Version = tuple[int, int, int]

_NO_FILE: Final = (0, 0, 0)


class PasswordAuthenticator:
    """An `Authenticator` and a `MethodAuthenticator`. A file that changes is read again when the next client comes, and
    whoever comes meanwhile waits; one that is broken by then is reported, and the former users stay until it is not.
    """

    methods: Final = frozenset({SCRAM_SHA_256})

    def __init__(self, path: str | Path, *, allow_anonymous: bool = False) -> None:
        """Raises `PasswordFileError`."""
        self._path: Final = Path(path)
        self._allow_anonymous: Final = allow_anonymous
        self._seen = _version_of(self._path)
        self._users = load(self._path)
        self._again_at = 0.0
        self._complaint = ""
        self._reading: Final = asyncio.Lock()
        self._turnstile: Final = asyncio.Semaphore(HASHES_AT_ONCE)

    async def authenticate(self, credentials: Credentials) -> bool:
        """Whether user name and password are in the file; without either, whether anybody may come in."""
        if credentials.username is None and credentials.password is None:
            return self._allow_anonymous
        name = credentials.username or ""
        try:
            password = (credentials.password or b"").decode()
            prepare(password)
            if prepare(name) != name:  # in another form it could pass by a rule that is about this name
                return False
        except ValueError:
            return False
        users = await self.users()
        keys = users.find(name)
        fits = await self._in_thread(lambda: _fits(keys, password))
        return fits and name in users

    def begin(self, method: str, credentials: Credentials) -> "ScramExchange":
        """A client begins with SCRAM."""
        return ScramExchange(self, credentials)

    async def users(self) -> Users:
        """The users that the file has now."""
        if _version_of(self._path) != self._seen:
            async with self._reading:
                seen = _version_of(self._path)
                if seen != self._seen and time.monotonic() >= self._again_at:
                    await self._read_again(seen)
        return self._users

    async def reload(self) -> None:
        """Read the file now, changed or not; log what came of it."""
        async with self._reading:
            self._complaint = ""  # whoever asks hears it again
            await self._read_again(_version_of(self._path))

    async def _read_again(self, seen: Version) -> None:
        try:
            self._users = await asyncio.to_thread(load, self._path)
            complaint = ""
            _log.info("%s was read again: %d users", self._path, len(self._users))
        except PasswordFileError as error:
            complaint = str(error)
            if complaint != self._complaint:
                _log.error("the users stay as they were: %s", complaint)
            if isinstance(error, PasswordFileUnreadable) and seen != _NO_FILE:
                self._again_at = time.monotonic() + RETRY_S
                seen = self._seen
        self._complaint, self._seen = complaint, seen

    async def _in_thread(self, work: Callable[[], T]) -> T:
        async with self._turnstile:
            return await asyncio.to_thread(work)


class ScramExchange:
    """One exchange of one client."""

    def __init__(self, passwords: PasswordAuthenticator, credentials: Credentials) -> None:
        self._passwords: Final = passwords
        self._credentials: Final = credentials
        self._scram: ScramServer | None = None
        self._known = False

    async def step(self, data: bytes | None) -> Verdict:
        """Challenge the client, then believe its proof or not."""
        try:
            if self._scram is None:
                scram = ScramServer(data or b"")
                users = await self._passwords.users()
                self._scram, self._known = scram, scram.username in users
                challenge = scram.challenge(users.find(scram.username))
                return Verdict(ReasonCode.CONTINUE_AUTHENTICATION, challenge)
            proof = self._scram.finish(data or b"")
        except ScramError as error:
            name = None if self._scram is None else self._scram.username
            _log.debug("SCRAM-SHA-256 of user %r: %s", name, error, extra=self._credentials.about())
            return Verdict(ReasonCode.NOT_AUTHORIZED)
        if not self._known:
            return Verdict(ReasonCode.NOT_AUTHORIZED)
        return Verdict(ReasonCode.SUCCESS, proof, self._scram.username)


def _fits(keys: Keys, password: str) -> bool:
    return hmac.compare_digest(keys_of(password, keys.salt, keys.iterations).stored_key, keys.stored_key)


def _version_of(path: Path) -> Version:
    """Another one for another content, and for other rights, as far as the file system tells."""
    try:
        found = os.stat(path)
    except OSError:
        return _NO_FILE
    return (found.st_ctime_ns, found.st_size, found.st_ino)
