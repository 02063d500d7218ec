"""Asks an HTTP server whether a client may log in: one POST for each login, with a cache of accepted logins.

`http_client` keeps the connections. Invariant: only the status 200 accepts a client; every error refuses it.
"""

import asyncio
import hmac
import logging
import secrets
import ssl
from collections.abc import Callable
from typing import Annotated, Final

import msgspec

from mqttlite.core.authentication import Grants, Verdict
from mqttlite.security.authenticator import Credentials, TooBusy
from mqttlite.security.http_client import HttpClient, HttpFailed, Url
from mqttlite.security.one_line import one_line
from mqttlite.security.tls import client_context
from mqttlite.topics.names import check_filter
from mqttlite.wire.errors import TopicFilterInvalid
from mqttlite.wire.reason_codes import ReasonCode

MAX_REQUESTS: Final = 20
"""Requests at the same time: enough for a thousand logins a second with answers in 20 ms. Each takes a socket."""

MAX_WAITING: Final = 500
"""Clients that wait for a request. One more is refused with Server busy (0x89)."""

MAX_KEPT_ANSWERS: Final = 10_000
"""Cached answers, some 500 bytes each. The oldest is dropped first."""

MAX_KEPT_BYTES: Final = 4_194_304
"""The bodies of the cached answers together. A list of short topic filters takes ten times its body in memory."""

_REFUSED: Final = Verdict(ReasonCode.BAD_USER_NAME_OR_PASSWORD)
_UNAVAILABLE: Final = Verdict(ReasonCode.SERVER_UNAVAILABLE)
_TOO_MANY_REQUESTS: Final = 429

_log = logging.getLogger("mqttlite.security")


class HttpAuthOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which server is asked, and for how long its answers count."""

    url: str
    """The URL for login requests."""
    ca_file: str | None = None
    """The CA certificates that verify the server, in PEM. Absent: the system's."""
    timeout_s: float = 5.0
    """The time limit for an answer, with the time that its login waits for others."""
    cache_s: float = 30.0
    """How long an accepted login is cached. 0: it is not cached."""

    def __post_init__(self) -> None:
        try:
            url = Url.parse(self.url)
        except ValueError as error:
            raise ValueError(f"url is {self.url!r}: {error}") from None
        if self.ca_file is not None and not url.is_https:
            raise ValueError(f"ca_file is {self.ca_file!r}: it needs a url that begins with https://")
        if not 0.1 <= self.timeout_s <= 60:
            raise ValueError(f"timeout_s is {self.timeout_s:g}: it may be 0.1 to 60")
        if not 0 <= self.cache_s <= 3_600:
            raise ValueError(f"cache_s is {self.cache_s:g}: it may be 0 to 3600")

    @property
    def is_private(self) -> bool:
        """Whether the requests cannot be read on the network."""
        url = Url.parse(self.url)
        return url.is_https or url.host in ("localhost", "::1") or url.host.startswith("127.")

    def context(self) -> ssl.SSLContext | None:
        """The TLS context for the server; None without TLS. Raises `TlsConfigError`."""
        return client_context(self.ca_file) if Url.parse(self.url).is_https else None


class _Allowed(msgspec.Struct, frozen=True):
    """The optional content of an answer."""

    username: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    groups: frozenset[str] = frozenset()
    publish: tuple[str, ...] | None = None
    subscribe: tuple[str, ...] | None = None
    expires_in_s: Annotated[float, msgspec.Meta(ge=0)] | None = None


class HttpAuthenticator:
    """An `Authenticator` for all clients with a user name, a password or a certificate. `loop_time` gives the broker's
    seconds."""

    def __init__(self, options: HttpAuthOptions, *, loop_time: Callable[[], float]) -> None:
        """Raises `TlsConfigError`."""
        self._options: Final = options
        self._url: Final = Url.parse(options.url)
        self._loop_time: Final = loop_time
        self._client = HttpClient(self._url, options.context(), MAX_REQUESTS)
        self._free: Final = asyncio.Semaphore(MAX_REQUESTS)
        self._waiting = 0
        self._mac_key: Final = secrets.token_bytes(32)
        self._kept: Final[dict[bytes, tuple[float, Verdict, int]]] = {}
        """The cached accepting answers with their expiry and the bytes of their bodies, oldest first."""
        self._kept_bytes = 0
        self._is_failing = False

    async def authenticate(self, credentials: Credentials) -> Verdict | None:
        """The server's verdict; None for a client without credentials. Raises `TooBusy`."""
        if credentials.username is None and credentials.password is None and credentials.identity is None:
            return None
        try:
            password = None if credentials.password is None else credentials.password.decode()
        except UnicodeDecodeError:  # JSON cannot contain it
            return None
        key = self._key(credentials)
        kept = self._kept.get(key)
        if kept is not None and self._loop_time() < kept[0]:
            return kept[1]
        verdict, size_bytes = await self._ask(credentials, password)
        if verdict.reason_code == ReasonCode.SUCCESS and self._options.cache_s:
            self._keep(key, verdict, size_bytes)
        return verdict

    def forget(self) -> None:
        """Clear the cache, so that the server is asked again."""
        self._kept.clear()
        self._kept_bytes = 0

    async def close(self) -> None:
        """Close the connections to the server; the next question opens one again."""
        await self._client.close()

    async def _ask(self, credentials: Credentials, password: str | None) -> tuple[Verdict, int]:
        """The verdict, and the bytes of the answer's body. Raises `TooBusy`."""
        if self._waiting >= MAX_REQUESTS + MAX_WAITING:
            raise TooBusy(f"{MAX_WAITING} clients wait for {self._url.authority}")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._options.timeout_s), self._free:
                status, content = await self._client.post(
                    msgspec.json.encode(
                        {
                            "client_id": credentials.client_id,
                            "username": credentials.username,
                            "password": password,
                            "identity": credentials.identity,
                            "peer": credentials.peer,
                            "listener": credentials.listener,
                        }
                    )
                )
            verdict = self._verdict(status, content)
        except TimeoutError:
            return self._on_failure(f"{self._url.authority} gave no answer within {self._options.timeout_s:g} s"), 0
        except HttpFailed as error:
            return self._on_failure(str(error)), 0
        finally:
            self._waiting -= 1
        if self._is_failing:
            self._is_failing = False
            _log.info("%s answers again: clients can log in", self._url.authority)
        return verdict, len(content)

    def _verdict(self, status: int, content: bytes) -> Verdict:
        """Turn an answer into a verdict. Raises `HttpFailed` for an invalid one, and `TooBusy`."""
        if status == _TOO_MANY_REQUESTS:
            raise TooBusy(f"{self._url.authority} has too many requests")
        if 400 <= status < 500:
            return _REFUSED
        if status != 200:
            raise HttpFailed(f"{self._url.authority} answered with the status {status}")
        try:
            allowed = msgspec.json.decode(content or b"{}", type=_Allowed)
            filters = [_filters(each) for each in (allowed.publish, allowed.subscribe)]
        except (ValueError, RecursionError, TopicFilterInvalid) as error:
            raise HttpFailed(
                f"{self._url.authority} answered with a body that cannot be used: {one_line(str(error))}"
            ) from None
        if allowed.username is not None and not allowed.username.isprintable():
            raise HttpFailed(f"{self._url.authority} answered with a user name that cannot be printed")
        lasts_s = float("inf") if allowed.expires_in_s is None else allowed.expires_in_s
        grants = Grants(allowed.groups, filters[0], filters[1], self._loop_time() + lasts_s)
        return Verdict(ReasonCode.SUCCESS, None, allowed.username, grants)

    def _on_failure(self, why: str) -> Verdict:
        """Log the first of consecutive failures as an error."""
        if not self._is_failing:
            self._is_failing = True
            _log.error("clients cannot log in: %s", why)
        else:
            _log.debug("clients still cannot log in: %s", why)
        return _UNAVAILABLE

    def _key(self, credentials: Credentials) -> bytes:
        """A keyed hash of the credentials, without the client's port."""
        host = credentials.peer.rpartition(":")[0] or credentials.peer
        facts = (credentials.client_id, credentials.username, credentials.identity, host, credentials.listener)
        return hmac.digest(self._mac_key, msgspec.msgpack.encode((*facts, credentials.password)), "sha256")

    def _keep(self, key: bytes, verdict: Verdict, size_bytes: int) -> None:
        self._drop(key)
        while self._kept and (len(self._kept) >= MAX_KEPT_ANSWERS or self._kept_bytes + size_bytes > MAX_KEPT_BYTES):
            self._drop(next(iter(self._kept)))
        until = min(self._loop_time() + self._options.cache_s, verdict.grants.expires_at)
        self._kept[key] = (until, verdict, size_bytes)
        self._kept_bytes += size_bytes

    def _drop(self, key: bytes) -> None:
        kept = self._kept.pop(key, None)
        self._kept_bytes -= 0 if kept is None else kept[2]


def _filters(texts: tuple[str, ...] | None) -> tuple[bytes, ...] | None:
    """Raises `TopicFilterInvalid`."""
    if texts is None:
        return None
    filters = tuple(each.encode() for each in texts)
    for each in filters:
        check_filter(each)
    return filters
