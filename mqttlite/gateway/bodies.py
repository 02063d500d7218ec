"""Reads complete request bodies, within the limit for one and for all together; and parses queries.

Invariant: the bodies of unanswered requests have at most `MAX_BODIES_BYTES` together.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import parse_qs

from mqttlite.gateway.problems import Code, Problem

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODIES_BYTES: Final = 67_108_864
"""Of all requests that are being read or answered: sixteen of the largest by default; one more has to come again."""

SMALL_BYTES: Final = 16_384
"""A body of a caller that is not known yet: more than the form for the login has."""

CLOSE: Final = {"Connection": "close"}
"""For answers that are given before the whole request has come."""


class ClientGone(Exception):
    """The connection ended before the request had come."""


class Bodies:
    """The budget for bodies of one gateway. Call `release` with the size of each body that was read."""

    def __init__(self, max_body_bytes: int, max_bytes: int = MAX_BODIES_BYTES) -> None:
        self._max_body_bytes: Final = max_body_bytes
        self._max_bytes: Final = max(max_bytes, max_body_bytes)
        self.held_bytes: int = 0

    async def read(self, scope: Scope, receive: Receive) -> bytes:
        """The body of a request. Raises `Problem`, and `ClientGone`."""
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and len(value) < 20:
                self._check(int(value))
        message = await receive()
        chunk: bytes = message.get("body", b"")
        if message["type"] == "http.request" and not message.get("more_body", False):
            self._check(len(chunk))
            self.held_bytes += len(chunk)
            return chunk
        chunks = [chunk]
        size = len(chunk)
        self.held_bytes += size
        try:
            while message["type"] == "http.request" and message.get("more_body", False):
                message = await receive()
                chunk = message.get("body", b"")
                self._check(size + len(chunk), len(chunk))
                size += len(chunk)
                self.held_bytes += len(chunk)
                chunks.append(chunk)
            if message["type"] != "http.request":
                raise ClientGone
        except BaseException:
            self.held_bytes -= size
            raise
        return b"".join(chunks)

    def release(self, body: bytes) -> None:
        """A request was answered."""
        self.held_bytes -= len(body)

    def _check(self, size: int, more: int | None = None) -> None:
        if size > self._max_body_bytes:
            raise Problem(
                Code.TOO_LARGE,
                f"a body of {size} bytes or more: {self._max_body_bytes} at most (http.max_body_bytes)",
                headers=CLOSE,
            )
        if self.held_bytes + (size if more is None else more) > self._max_bytes:
            headers = {**CLOSE, "Retry-After": "1"}
            raise Problem(Code.BUSY, "too many large requests at once; try again", headers=headers)


MAX_FIELDS: Final = 200
"""The size of a query with the greatest number of filters and all other parameters."""


def query_of(scope: Scope) -> dict[str, list[str]]:
    """The fields of a query. Raises `Problem`."""
    try:
        return parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise Problem(Code.INVALID_VALUE, f"the query has more than {MAX_FIELDS} fields") from None


def may_be_large(scope: Scope) -> bool:
    """Whether a request has a body of more than `SMALL_BYTES`, or does not say how large it is."""
    for name, value in scope["headers"]:
        if name == b"transfer-encoding":
            return True
        if name == b"content-length":
            return len(value) >= 20 or not value.isdigit() or int(value) > SMALL_BYTES
    return False


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body already read, and then the connection's messages."""
    is_given = False

    async def read_again() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return read_again
