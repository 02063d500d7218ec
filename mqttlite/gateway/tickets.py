"""Tickets for event streams of named sessions: a POST makes the session and gives a ticket, a GET attaches with it.

A ticket is the client identifier with a MAC of it and of the caller's user name, so nothing is kept for each of them.
It counts after a restart, because the key is a file of the data directory. Invariant: a ticket is of no use to another
user than the one who got it.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import secrets
from pathlib import Path
from typing import Final

import msgspec

from mqttlite.files import atomic_file
from mqttlite.gateway.problems import Code, Problem

FILE_NAME: Final = "stream-tickets.json"
"""In the data directory."""

KEY_BYTES: Final = 32

_log = logging.getLogger("mqttlite.gateway")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: str
    """In hexadecimal."""


class Tickets:
    """One for each gateway. `path` is the file of the key; None: tickets live as long as the broker. Callers below
    another mount point have other tickets."""

    def __init__(self, path: Path | None, mount_point: bytes = b"") -> None:
        self._path: Final = path
        self._mount_point: Final = mount_point
        self._key: bytes | None = None if path is None else _read(path)
        self._making: Final = asyncio.Lock()

    async def issue(self, client_id: str, username: str | None) -> str:
        """A ticket for a user to attach to the session of a client identifier. Raises `Problem`."""
        key = await self._made_key()
        return f"{_text(client_id.encode())}.{_text(self._mac(key, client_id, username))}"

    def client_id_of(self, ticket: str, username: str | None) -> str:
        """The client identifier of a user's ticket. Raises `Problem`."""
        name, _, mac = ticket.partition(".")
        try:
            client_id = _bytes(name).decode()
            given = _bytes(mac)
        except ValueError:
            raise Problem(Code.NOT_AUTHORIZED, "the ticket is none of this broker: POST gives one") from None
        if self._key is None or not hmac.compare_digest(given, self._mac(self._key, client_id, username)):
            raise Problem(
                Code.NOT_AUTHORIZED, "the ticket is not one that this broker gave to the caller's user: POST gives one"
            )
        return client_id

    def _mac(self, key: bytes, client_id: str, username: str | None) -> bytes:
        content = msgspec.json.encode([client_id, username, self._mount_point])
        return hmac.digest(key, content, hashlib.sha256)

    async def _made_key(self) -> bytes:
        """The key, which is made when it is first needed. Raises `Problem`."""
        async with self._making:
            if self._key is None:
                key = secrets.token_bytes(KEY_BYTES)
                if self._path is not None:
                    try:
                        await asyncio.to_thread(atomic_file.save, self._path, msgspec.json.encode(_File(key.hex())))
                    except OSError as error:
                        raise Problem(Code.BUSY, f"{FILE_NAME} cannot be written: {error.strerror}") from None
                self._key = key
            return self._key


def _read(path: Path) -> bytes | None:
    """The key of a file; None where there is none that can be used."""
    try:
        key = bytes.fromhex(msgspec.json.decode(path.read_bytes(), type=_File).key)
        if len(key) == KEY_BYTES:
            return key
        reason = f"it has {len(key)} bytes"
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:  # msgspec raises ValueErrors
        reason = str(error)
    _log.warning("%s is no key (%s): event streams with a ticket have to get another", path, reason)
    return None


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    """Raises `ValueError`."""
    try:
        return base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
