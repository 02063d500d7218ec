"""Lets clients in by a password file: with user name and password in CONNECT, or by SCRAM-SHA-256, which sends none.

How the file looks lives in `password_file`, the exchange in `scram`. Invariant: hashing never holds up the loop, and
no answer tells whether a user exists.
"""

import asyncio
import hmac
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from mqttlite.core.authentication import Verdict
from mqttlite.sasl import SCRAM_SHA_256, Keys, ScramError, keys_of, prepare
from mqttlite.security.authenticator import Credentials
from mqttlite.security.password_file import PasswordFileError, Users, load
from mqttlite.security.scram import ScramServer
from mqttlite.wire.reason_codes import ReasonCode

HASHES_AT_ONCE: Final = 2
"""Threads that check plain passwords, however many clients come back at once: the loop needs a processor, too."""

_log = logging.getLogger("mqttlite.security")

T = TypeVar("T")


class PasswordAuthenticator:
    """An `Authenticator` and a `MethodAuthenticator`. A file that changes is read again when the next client comes;
    one that is broken by then is reported, and the former users stay.
    """

    methods: Final = frozenset({SCRAM_SHA_256})

    def __init__(self, path: str | Path, *, allow_anonymous: bool = False) -> None:
        """Raises `PasswordFileError`."""
        self._path: Final = Path(path)
        self._allow_anonymous: Final = allow_anonymous
        self._seen = _version_of(self._path)
        self._users = load(self._path)
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
        seen = _version_of(self._path)
        if seen != self._seen:
            self._seen = seen
            try:
                self._users = await self._in_thread(lambda: load(self._path))
                _log.info("%s was read again: %d users", self._path, len(self._users))
            except PasswordFileError as error:
                _log.error("the users stay as they were: %s", error)
        return self._users

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


def _version_of(path: Path) -> tuple[int, int, int]:
    """Another one for another content, as far as the file system tells."""
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)
