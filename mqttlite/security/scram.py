"""The server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677): two messages in, two out, without channel binding.

Where keys are kept lives in `passwords`. Invariant: `finish` returns only to a client that proved to know the password.
"""

import hmac
import secrets
from typing import Final, final

from mqttlite.sasl import (
    Keys,
    ScramError,
    b64,
    check_nonce,
    fields,
    from_b64,
    prepare,
    sha256,
    sign,
    text_of,
    unescape,
    xor,
)

NONCE_BYTES: Final = 18
"""Random bytes of our half of a nonce; 24 characters of base64."""


@final
class ScramServer:
    """One exchange: `begin` with the client's first message, then `challenge`, then `finish` with its last."""

    def __init__(self, message: bytes, nonce: str | None = None) -> None:
        """Raises `ScramError` for a first message that is none; `nonce` is our half, by default a random one."""
        text = text_of(message)
        binding, _, rest = text.partition(",")
        if binding not in ("n", "y"):  # "y": the client could bind and sees that we do not offer it, which is true
            raise ScramError("channel binding is not offered")
        authorization, comma, bare = rest.partition(",")
        if not comma:
            raise ScramError("the first message ends in its header")
        name, theirs = fields(bare, "n", "r")
        self.username: Final = prepare(unescape(name))
        if authorization and authorization != f"a={name}":
            raise ScramError("to act for another user is not offered")
        self._header: Final = f"{binding},{authorization},"
        self._first: Final = bare
        self._nonce: Final = check_nonce(theirs) + (b64(secrets.token_bytes(NONCE_BYTES)) if nonce is None else nonce)
        self._challenge = ""
        self._keys: Keys

    def challenge(self, keys: Keys) -> bytes:
        """Our first message, for the user with these keys."""
        self._keys = keys
        self._challenge = f"r={self._nonce},s={b64(keys.salt)},i={keys.iterations}"
        return self._challenge.encode()

    def finish(self, message: bytes) -> bytes:
        """Our last message, which proves that we know the keys. Raises `ScramError` for a proof that is none."""
        without_proof, found, proof = text_of(message).rpartition(",p=")
        if not found:
            raise ScramError("the last message has no proof")
        binding, nonce = fields(without_proof, "c", "r")
        if from_b64(binding) != self._header.encode():
            raise ScramError("the two messages of the client differ in their header")
        if not hmac.compare_digest(nonce.encode(), self._nonce.encode()):
            raise ScramError("the nonce is not the one of this exchange")
        said = f"{self._first},{self._challenge},{without_proof}".encode()
        signature = sign(self._keys.stored_key, said)
        theirs = from_b64(proof)
        if len(theirs) != len(signature):
            raise ScramError("a proof of another length")
        if not hmac.compare_digest(sha256(xor(theirs, signature)), self._keys.stored_key):
            raise ScramError("the password is not the right one")
        return f"v={b64(sign(self._keys.server_key, said))}".encode()
