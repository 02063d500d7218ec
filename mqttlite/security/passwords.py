"""Authenticates clients with a password file: by user name and password in CONNECT, or by SCRAM-SHA-256.

`password_file` reads the file; `scramp` runs the exchange. Invariant: names and passwords are prepared and hashed in
threads, once for each CONNECT, and no answer reveals whether a user exists.
"""

import asyncio
import hmac
import logging
import threading
import time
import unicodedata
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from scramp import ScramException, ScramMechanism

from mqttlite.core.authentication import Verdict
from mqttlite.files.file_version import NO_FILE, Version, version_of
from mqttlite.security.addresses import network_of
from mqttlite.security.authenticator import Credentials
from mqttlite.security.fair_queue import FairQueue
from mqttlite.security.keys import MAX_CHARACTERS, SCRAM_SHA_256, Keys, TextError, derive, prepare
from mqttlite.security.password_file import (
    Entry,
    PasswordFileError,
    PasswordFileUnreadable,
    Users,
    format_entry,
    load,
)
from mqttlite.security.verified import CACHE_S, VerifiedPasswords
from mqttlite.wire.reason_codes import ReasonCode

HASHES_AT_ONCE: Final = 2
"""The number of threads that prepare and hash. Few, because the loop needs a processor, too."""

MAX_WAITING: Final = 500
"""Clients that wait for a thread. With 15,000 iterations the last one waits some three seconds, less than
`connect_timeout_s`. One more is refused with Server busy (0x89). An address may use at most as many places as it leaves
free."""

MAX_PASSWORD_BYTES: Final = 4 * MAX_CHARACTERS
"""The longest password or user name in CONNECT. A longer one exceeds `MAX_CHARACTERS` and is refused at once."""

MAX_MESSAGE_CHARACTERS: Final = 2 * MAX_CHARACTERS
"""The longest SCRAM message from a client, before and after Unicode normalisation: a user name and a nonce."""

PAUSE_PER_WORK: Final = 9
"""SASLprep holds Python's lock, four milliseconds for a thousand characters, and blocks the loop. So a thread pauses
nine times as long as it prepared, and unauthenticated clients get at most a tenth of the lock."""

RETRY_S: Final = 1.0
"""How long to wait before an unreadable file is tried again while clients keep connecting."""

_log = logging.getLogger("mqttlite.security")

T = TypeVar("T")

POLL_S: Final = 0.4
"""The interval between checks of the file: clients of a user who is missing twice are disconnected within a second."""


class PasswordAuthenticator:
    """An `Authenticator` and a `MethodAuthenticator`. The next client that connects after a change of the file triggers
    a reload, and clients that connect meanwhile wait. A broken file is logged, and the former users stay valid until it
    is repaired.
    """

    methods: Final = frozenset({SCRAM_SHA_256})

    def __init__(self, path: str | Path, *, cache_s: float = CACHE_S) -> None:
        """A right password is cached for `cache_s`; 0: not cached. Raises `PasswordFileError`."""
        self.path: Final = Path(path)
        self._seen = version_of(self.path)
        self._users = load(self.path)
        self._again_at = 0.0
        self._complaint = ""
        self._reading: Final = asyncio.Lock()
        self._queue: Final = FairQueue(HASHES_AT_ONCE, MAX_WAITING, "mqttlite-passwords")
        self._verified: Final = VerifiedPasswords(cache_s, time.monotonic)
        self._preparing: Final = threading.Lock()

    async def authenticate(self, credentials: Credentials) -> bool | None:
        """Whether user name and password match the file; None for an unknown or invalid user, and without credentials.

        An unknown user takes as long as a known one. Raises `TooBusy`.
        """
        if credentials.username is None and credentials.password is None:
            return None
        name = credentials.username or ""
        is_given = credentials.password is not None  # without one nobody logs in: a hash may be of the empty password
        password = credentials.password or b""
        if max(len(name), len(password)) > MAX_PASSWORD_BYTES:
            return None
        users = await self.users()
        entry = users.find(name)
        about = format_entry(entry)
        if is_given and self._verified.knows(name, about, password):
            return True
        fits = await self._queue.run(network_of(credentials.peer), lambda: self._fits(entry, password))
        if name not in users:  # names in the file are prepared, so an unprepared one is not in it
            return None
        fits = fits and is_given
        if fits:
            self._verified.add(name, about, password)
        return fits

    def begin(self, method: str, credentials: Credentials) -> "ScramExchange":
        """Begin the SCRAM exchange of a client."""
        return ScramExchange(self, credentials)

    async def users(self) -> Users:
        """The users that the file has now."""
        if version_of(self.path) != self._seen:
            async with self._reading:
                seen = version_of(self.path)
                if seen != self._seen and time.monotonic() >= self._again_at:
                    await self._read_again(seen)
        return self._users

    def knows(self, name: str) -> bool:
        """Whether the file had a user with this name when it was last read."""
        return name in self._users

    async def reload(self) -> None:
        """Read the file now, changed or not. Log the result."""
        async with self._reading:
            self._complaint = ""  # so that an error is logged again
            await self._read_again(version_of(self.path))

    async def watch(self, on_removed: Callable[[frozenset[str | None]], Awaitable[None]]) -> None:
        """Watch the file and report removed users, until the task is cancelled."""
        removed_users = RemovedUsers(self._users)
        while True:
            await asyncio.sleep(POLL_S)
            if await asyncio.to_thread(version_of, self.path) != self._seen:
                await self.users()
            removed = await asyncio.to_thread(removed_users.look, self._users)
            if removed:
                _log.info("%s has %d users less: their clients are disconnected", self.path, len(removed))
                await on_removed(removed)

    async def _read_again(self, seen: Version) -> None:
        try:
            self._users = await asyncio.to_thread(load, self.path)
            self._verified.clear()
            complaint = ""
            _log.info("%s was read again: %d users", self.path, len(self._users))
        except PasswordFileError as error:
            complaint = str(error)
            if complaint != self._complaint:
                _log.error("the users stay as they were: %s", complaint)
            if isinstance(error, PasswordFileUnreadable) and seen != NO_FILE:
                self._again_at = time.monotonic() + RETRY_S
                seen = self._seen
        self._complaint, self._seen = complaint, seen

    async def prepare(self, peer: str, work: Callable[[], T]) -> T:
        """Run `work`, which prepares a text from a peer, and return its result. Raises `TooBusy`, and what `work`
        raises."""
        return await self._queue.run(network_of(peer), lambda: self._paced(work))

    def _fits(self, entry: Entry, password: bytes) -> bool:
        if not isinstance(entry, Keys):
            return entry.matches(password)
        try:
            text = password.decode()
            prepared = prepare(text) if text.isascii() else self._paced(lambda: prepare(text))
        except ValueError:  # not UTF-8, or not a valid password
            return False
        return hmac.compare_digest(derive(prepared, entry.salt, entry.iterations).stored_key, entry.stored_key)

    def _paced(self, work: Callable[[], T]) -> T:
        with self._preparing:
            began = time.thread_time()
            try:
                return work()
            finally:
                time.sleep(PAUSE_PER_WORK * (time.thread_time() - began))


class ScramExchange:
    """One exchange of one client (RFC 5802, RFC 7677): two messages each way, without channel binding."""

    def __init__(self, passwords: PasswordAuthenticator, credentials: Credentials) -> None:
        self._passwords: Final = passwords
        self._credentials: Final = credentials
        self._server: Final = ScramMechanism(SCRAM_SHA_256).make_server(self._find)
        self._users: Users | None = None
        self._name: str | None = None

    async def step(self, data: bytes | None) -> Verdict:
        """Challenge the client, then check its proof. Raises `TooBusy`."""
        try:
            message, peer = _text_of(data), self._credentials.peer
            if self._users is None:
                self._users = await self._passwords.users()
                await self._passwords.prepare(peer, lambda: self._server.set_client_first(message))
                return Verdict(ReasonCode.CONTINUE_AUTHENTICATION, self._server.get_server_first().encode())
            self._server.set_client_final(message)
        except (ScramException, TextError) as error:
            _log.debug("SCRAM-SHA-256 of user %r: %s", self._name, error, extra=self._credentials.about())
            return Verdict(ReasonCode.NOT_AUTHORIZED, None, self._name)
        if self._name is None or not self._users.has_scram(self._name):
            return Verdict(ReasonCode.NOT_AUTHORIZED, None, self._name)
        return Verdict(ReasonCode.SUCCESS, self._server.get_server_final().encode(), self._name)

    def _find(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        """The keys of the user named in the first message, in the library's order."""
        assert self._users is not None, "the file is read before the first message"
        self._name = name
        keys = self._users.scram_keys(name)
        return keys.salt, keys.stored_key, keys.server_key, keys.iterations


def _text_of(message: bytes | None) -> str:
    try:
        text = (message or b"").decode()
    except UnicodeDecodeError:
        raise TextError("a message that is not UTF-8") from None
    if max(len(text), len(unicodedata.ucd_3_2_0.normalize("NFKC", text))) > MAX_MESSAGE_CHARACTERS:
        raise TextError(f"a message of more than {MAX_MESSAGE_CHARACTERS} characters")
    return text


class RemovedUsers:
    """Finds users that are missing from a file at two consecutive checks: an editor that writes in place leaves the
    file empty for a moment."""

    def __init__(self, users: Users) -> None:
        self._known = users
        self._missing: frozenset[str] = frozenset()

    def look(self, users: Users) -> frozenset[str | None]:
        """The users that were missing at the last check and still are."""
        removed = frozenset(name for name in self._missing if name not in users)
        self._missing = frozenset() if users is self._known else frozenset(self._known.names() - users.names())
        self._known = users
        return frozenset(removed)
