"""Checks user names and passwords (an `Authenticator`), and hashes new passwords.

Invariant: passwords are hashed in threads, once for each CONNECT, and no answer tells whether a user exists.
"""

import asyncio
import hashlib
import hmac
import secrets
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final

from mqttlite.security.authenticator import Credentials, TooBusy
from mqttlite.security.dynamic_security.document import HASH_BYTES
from mqttlite.security.dynamic_security.model import Client
from mqttlite.security.dynamic_security.rules import DynamicRules
from mqttlite.security.hashes import MosquittoHash, PasswordHash

ITERATIONS: Final = 15_000
"""For new passwords: some ten milliseconds for each guess, and for each CONNECT. Existing hashes keep Mosquitto's
101."""

SALT_BYTES: Final = 12
"""The only length that Mosquitto's plugin accepts before 2.1."""

HASHES_AT_ONCE: Final = 2
"""The number of hashing threads. Few, because the loop needs a processor, too."""

MAX_WAITING: Final = 500
"""Clients that wait for a thread. One more is refused with Server busy (0x89)."""

MAX_PASSWORD_BYTES: Final = 65_535
"""The longest password in CONNECT."""


class DynamicAuthenticator:
    """Knows the users of `rules.state`."""

    def __init__(self, rules: DynamicRules, passwords: "Passwords") -> None:
        self._rules: Final = rules
        self._passwords: Final = passwords

    def knows(self, name: str) -> bool:
        """Whether there is an enabled user with this name."""
        return self._rules.state.role_sets_of(name) is not None

    async def authenticate(self, credentials: Credentials) -> bool | None:
        """Whether user, password and client identifier match; None for a user without a password here.

        Raises `TooBusy`.
        """
        username = credentials.username
        if username is None or credentials.password is None:
            return None
        clients = self._rules.state.clients
        client = clients.get(username)
        password = None if client is None else client.password
        decoy = _decoy(clients, username)  # for a known user, too: the search takes time
        fits = await self._passwords.fits(password or decoy, credentials.password)
        if client is None or (password is None and not client.disabled):
            return None
        client = self._rules.state.clients.get(username)  # it may have been changed meanwhile
        return (
            fits
            and client is not None
            and client.password == password
            and not client.disabled
            and client.client_id in (None, credentials.client_id)
        )


class Passwords:
    """Hashes passwords in its own threads."""

    def __init__(self) -> None:
        self._threads: Final = ThreadPoolExecutor(HASHES_AT_ONCE, thread_name_prefix="mqttlite-dynamic-security")
        self._waiting = 0

    async def fits(self, password: PasswordHash, given: bytes) -> bool:
        """Whether a client gave this password. Raises `TooBusy`."""
        if self._waiting >= HASHES_AT_ONCE + MAX_WAITING:
            raise TooBusy(f"{MAX_WAITING} clients wait for their passwords to be checked")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, password.matches, given)
        finally:
            self._waiting -= 1

    async def make(self, given: str) -> PasswordHash:
        """A new password."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, new_password, given)

    def close(self) -> None:
        """End the threads once they are idle."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _decoy(clients: dict[str, Client], username: str) -> PasswordHash:
    """A password that never matches, always the same for a user name and with the cost of another user's.

    The secret of the choice is a hash in the file, so that it survives restarts.
    """
    first = next((each.password for each in clients.values() if each.password is not None), _NO_PASSWORD)
    seed = hmac.digest(first.format().encode(), username.encode(), "sha256")
    start = int.from_bytes(seed[:8]) % max(1, len(clients))
    like = next((each.password for each in islice(clients.values(), start, None) if each.password is not None), first)
    return like.decoy(seed)


def new_password(given: str) -> MosquittoHash:
    """The hash of a new password, in the form that all versions of Mosquitto's plugin read. Takes milliseconds."""
    salt = secrets.token_bytes(SALT_BYTES)
    return MosquittoHash(ITERATIONS, salt, hashlib.pbkdf2_hmac("sha512", given.encode(), salt, ITERATIONS, HASH_BYTES))


_NO_PASSWORD: Final = MosquittoHash(ITERATIONS, bytes(SALT_BYTES), bytes(HASH_BYTES))
"""Gives decoys their cost where no user has a password."""
