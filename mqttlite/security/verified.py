"""Remembers which passwords were right, so that clients that come back do not cost a hash each.

Invariant: no password is kept, only a MAC of it under a key that lives and ends with this object; and what is found is
right for the entry that the password file has now.
"""

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

MAX_VERIFIED: Final = 50_000
"""Users, as many as a listener takes connections by default; the longest unused is forgotten first. About 15 MB."""

CACHE_S: Final = 300.0
"""How long a right password is cached without another hash, because after a network failure all clients come back at
once. Limited, because an attacker who can read the broker's memory could guess a cached password faster."""

_UNKNOWN: Final = bytes(32), 0.0


class VerifiedPasswords:
    """A password is known for `life_s` after it was hashed; 0: never. `clock` shows seconds."""

    def __init__(self, life_s: float, clock: Callable[[], float]) -> None:
        self._life_s: Final = life_s
        self._clock: Final = clock
        self._key: Final = secrets.token_bytes(32)
        self._macs: Final[OrderedDict[str, tuple[bytes, float]]] = OrderedDict()
        """By user name, and until when it holds."""

    def __len__(self) -> int:
        return len(self._macs)

    def knows(self, name: str, entry: str, password: bytes) -> bool:
        """Whether this password was right for this entry lately. An unknown user takes as long as a known one."""
        mac, until = self._macs.get(name, _UNKNOWN)
        if not hmac.compare_digest(mac, self._mac(name, entry, password)) or self._clock() >= until:
            return False
        self._macs.move_to_end(name)
        return True

    def add(self, name: str, entry: str, password: bytes) -> None:
        """A password was hashed and is right."""
        if self._life_s <= 0:
            return
        self._macs[name] = self._mac(name, entry, password), self._clock() + self._life_s
        self._macs.move_to_end(name)
        if len(self._macs) > MAX_VERIFIED:
            self._macs.popitem(last=False)

    def clear(self) -> None:
        """The password file was read again."""
        self._macs.clear()

    def _mac(self, name: str, entry: str, password: bytes) -> bytes:
        parts = name.encode(), entry.encode(), password
        return hmac.digest(self._key, b"".join(len(part).to_bytes(4) + part for part in parts), "sha256")
