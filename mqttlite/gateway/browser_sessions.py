"""Login sessions of browsers: a random cookie stands for the entered credentials.

The credentials are checked for each request as if the browser sent them, so a revoked key or changed password ends the
session. They are only kept in memory. Invariant: there are at most `MAX_SESSIONS`; a new one replaces the oldest.
"""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import Response

from mqttlite.gateway.path_prefix import root_of
from mqttlite.gateway.problems import Code, Problem

COOKIE: Final = "mqttlite_session"

MAX_SESSIONS: Final = 1_000
"""Browsers that are logged in: more than a broker has operators. Each takes some 1 KB."""

IDLE_S: Final = 3_600.0
"""A browser session ends after this time without a request; an open page sends some."""

LIFE_S: Final = 43_200.0
"""After how long in any case: a working day."""

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(slots=True)
class _Session:
    authorization: str
    idle_until: float
    ends_at: float


class BrowserSessions:
    """The sessions of one gateway. `is_secure` says whether it speaks TLS, so that the cookie takes no other way."""

    def __init__(self, clock: Callable[[], float], *, is_secure: bool, max_sessions: int = MAX_SESSIONS) -> None:
        self._clock: Final = clock
        self._is_secure: Final = is_secure
        self._max_sessions: Final = max_sessions
        self._by_hash: Final[dict[bytes, _Session]] = {}

    def __len__(self) -> int:
        return len(self._by_hash)

    def begin(self, request: HTTPConnection, response: Response, authorization: str) -> None:
        """Log a browser in that showed these credentials, in the form of the header `Authorization`."""
        now = self._clock()
        for each in [key for key, session in self._by_hash.items() if _is_over(session, now)]:
            del self._by_hash[each]
        if len(self._by_hash) >= self._max_sessions:
            del self._by_hash[next(iter(self._by_hash))]
        cookie = secrets.token_urlsafe(32)
        self._by_hash[_hash(cookie)] = _Session(authorization, now + IDLE_S, now + LIFE_S)
        response.set_cookie(
            *(COOKIE, cookie, int(LIFE_S)),
            path=root_of(request.scope) or "/",
            secure=self._is_secure,
            httponly=True,
            samesite="strict",
        )

    def has(self, request: HTTPConnection) -> bool:
        """Whether a request comes from a browser that is logged in, and shows no other credentials."""
        return "authorization" not in request.headers and self._find(request) is not None

    def authorization_of(self, request: HTTPConnection) -> str:
        """The credentials for which the cookie of a request stands; empty where there is none.

        Raises `Problem` for a change that no page of this gateway asked for.
        """
        found = self._find(request)
        if found is None:
            return ""
        if request.scope.get("method") not in _SAFE:
            origin = urlsplit(request.headers.get("origin", "")).netloc
            if origin != request.headers.get("host"):
                raise Problem(Code.CROSS_ORIGIN, "only pages of this gateway use the session of a browser")
        found.idle_until = self._clock() + IDLE_S
        return found.authorization

    def end(self, request: HTTPConnection, response: Response | None = None) -> None:
        """Log the browser of a request out; harmless if it is not logged in."""
        self._by_hash.pop(_hash(request.cookies.get(COOKIE, "")), None)
        if response is not None:
            path = root_of(request.scope) or "/"
            response.delete_cookie(COOKIE, path=path, secure=self._is_secure, httponly=True, samesite="strict")

    def _find(self, request: HTTPConnection) -> _Session | None:
        cookie = request.cookies.get(COOKIE)
        found = None if cookie is None else self._by_hash.get(_hash(cookie))
        return None if found is None or _is_over(found, self._clock()) else found


def _is_over(session: _Session, now: float) -> bool:
    return now >= session.idle_until or now >= session.ends_at


def _hash(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode(errors="replace")).digest()
