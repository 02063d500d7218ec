"""The client's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), without channel binding.

Packets live in `authentication`. Invariant: the password leaves this file only as a proof, and a server without the
right keys is found out.
"""

import asyncio
import hmac
import secrets
from typing import Final, final

from mqttlite.sasl import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_SHA_256,
    ScramError,
    b64,
    check_nonce,
    client_key_of,
    escape,
    fields,
    from_b64,
    prepare,
    salted_password,
    server_key_of,
    sha256,
    sign,
    text_of,
    xor,
)

NONCE_BYTES: Final = 18
"""Random bytes of our half of a nonce; 24 characters of base64."""

_HEADER: Final = "n,,"
"""No channel binding, and nobody to act for."""


@final
class ScramSha256:
    """User name and password for a server that need not see the password: `Client(..., authentication=ScramSha256(…))`.

    Raises `ValueError` for a text that cannot be one of them.
    """

    method: Final = SCRAM_SHA_256

    def __init__(self, username: str, password: str) -> None:
        self._username: Final = _prepared("username", username)
        self._password: Final = _prepared("password", password)
        self._salted: tuple[bytes, int, bytes] = (b"", 0, b"")

    def __repr__(self) -> str:
        return f"ScramSha256({self._username!r})"

    def begin(self) -> "ScramClient":
        """A new conversation."""
        return ScramClient(self, b64(secrets.token_bytes(NONCE_BYTES)))

    @property
    def username(self) -> str:
        return self._username

    async def salted(self, salt: bytes, iterations: int) -> bytes:
        """The salted password. Made once for each salt: it is slow, and a device reconnects often."""
        known_salt, known_iterations, salted = self._salted
        if (salt, iterations) != (known_salt, known_iterations):
            salted = await asyncio.to_thread(salted_password, self._password, salt, iterations)
            self._salted = (salt, iterations, salted)
        return salted


@final
class ScramClient:
    """One conversation, with our half of its nonce."""

    def __init__(self, who: ScramSha256, nonce: str) -> None:
        self._who: Final = who
        self._nonce: Final = nonce
        self._first: Final = f"n={escape(who.username)},r={nonce}"
        self._signature = b""

    def first(self) -> bytes:
        return f"{_HEADER}{self._first}".encode()

    async def reply(self, data: bytes) -> bytes:
        """Our proof. Raises `ScramError` for a challenge that is none."""
        if self._signature:
            raise ScramError("a second challenge")
        challenge = text_of(data)
        nonce, salt, count = fields(challenge, "r", "s", "i")
        if not nonce.startswith(self._nonce) or len(check_nonce(nonce)) == len(self._nonce):
            raise ScramError("its nonce does not continue ours")
        if not count.isascii() or not count.isdigit() or not MIN_ITERATIONS <= int(count[:9]) <= MAX_ITERATIONS:
            raise ScramError(f"it asks for {count[:20]} iterations: {MIN_ITERATIONS} to {MAX_ITERATIONS} are done")
        salted = await self._who.salted(from_b64(salt), int(count))
        without_proof = f"c={b64(_HEADER.encode())},r={nonce}"
        said = f"{self._first},{challenge},{without_proof}".encode()
        key = client_key_of(salted)
        self._signature = sign(server_key_of(salted), said)
        return f"{without_proof},p={b64(xor(key, sign(sha256(key), said)))}".encode()

    def finish(self, data: bytes) -> None:
        """Raises `ScramError` for a server that does not know the keys of our password."""
        (signature,) = fields(text_of(data), "v")
        if not self._signature or not hmac.compare_digest(from_b64(signature), self._signature):
            raise ScramError("its signature is wrong")


def _prepared(what: str, text: str) -> str:
    try:
        return prepare(text)
    except ScramError as error:
        raise ValueError(f"{what}: {error}") from None
