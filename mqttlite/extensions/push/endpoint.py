"""The HTTP connections to one endpoint, by aiohttp.

Each target has its own client, so that a slow one blocks no connection of another. Invariants: redirects are not
followed, proxies of the environment are not used, and only the status and `Retry-After` of a response are kept.
"""

import asyncio
import io
import os
import socket
import ssl
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from mqttlite.extensions.push.guard import AddressDenied, Guard
from mqttlite.extensions.push.limited_answers import LimitedAnswers
from mqttlite.extensions.push.results import DENIED, NOT_REACHED, TIMED_OUT, Result, response
from mqttlite.extensions.queues.push_target import Target

MAX_BODY_BYTES: Final = 65_536
BODY_S: Final = 1.0
"""How much of a response's body is read, and for how long. If more follows, the connection is closed."""

KEEP_ALIVE_S: Final = 4.0
"""How long an idle connection is kept. Most servers close idle ones after five seconds or more, and a request that
meets the close would fail."""

ADDRESSES_S: Final = 10
"""How long the addresses of a name are cached."""

CONNECT_S: Final = 10.0
"""The time limit for a connect to one address."""

_HEADERS: Final = {"User-Agent": "mqttlite", "Accept": "*/*", "Accept-Encoding": "identity"}

_LARGE_BYTES: Final = 1_048_576
"""Bodies from this size on are written in parts."""


class Endpoint:
    """`tls` is the context for https; None for http."""

    def __init__(self, target: Target, guard: Guard, tls: ssl.SSLContext | None) -> None:
        self._target: Final = target
        self._url: Final = URL(target.url, encoded=True)
        connector = aiohttp.TCPConnector(
            resolver=_Resolver(guard, target),
            socket_factory=lambda info: guard.open_socket(target, info),
            ssl=tls if tls is not None else True,
            limit=0,  # the window limits connections
            keepalive_timeout=KEEP_ALIVE_S,
            ttl_dns_cache=ADDRESSES_S,
        )
        protocol = partial(LimitedAnswers, loop=asyncio.get_running_loop())
        cast(Any, connector)._factory = protocol  # aiohttp has no other seam
        self._session: Final = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=_HEADERS,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            trust_env=False,
            auto_decompress=False,
        )

    async def post(self, body: bytes, headers: Mapping[str, str], within_s: float) -> Result:
        """Send a request. Return its result."""
        data = body if len(body) < _LARGE_BYTES else io.BytesIO(body)
        try:
            async with asyncio.timeout(within_s):
                answer = await self._session.post(self._url, data=data, headers=headers, allow_redirects=False)
        except TimeoutError:
            return Result(TIMED_OUT, 0, f"no response within {within_s:.3g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            denied = _denied(error)
            return Result(NOT_REACHED, 0, _words(error)) if denied is None else Result(DENIED, 0, str(denied))
        try:
            await _drain(answer)
        finally:
            answer.close()  # does nothing if all of it was read
        return response(answer.status, answer.headers.get("Retry-After"))

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()


class _Resolver(AbstractResolver):
    """Resolves only the name of this client's target."""

    def __init__(self, guard: Guard, target: Target) -> None:
        self._guard: Final = guard
        self._target: Final = target

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[Any]:
        if host != self._target.host:
            raise AddressDenied(f"{host} is not {self._target.host}")
        return await self._guard.addresses(self._target, port, family)

    async def close(self) -> None:
        """Nothing to close."""


async def _drain(answer: aiohttp.ClientResponse) -> None:
    """Read a short body, so that the connection can be used again."""
    content = answer.content
    left = MAX_BODY_BYTES
    try:
        async with asyncio.timeout(BODY_S):
            while left > 0 and not content.at_eof():
                left -= len(await content.readany())
    except (TimeoutError, aiohttp.ClientError, OSError):
        pass


def _denied(error: BaseException) -> AddressDenied | None:
    """The denial that caused an error, if any."""
    seen = 0
    found: BaseException | None = error
    while found is not None and seen < 5:
        if isinstance(found, AddressDenied):
            return found
        found = found.__cause__ or getattr(found, "os_error", None)
        seen += 1
    return None


def _words(error: BaseException) -> str:
    """An error in a few words. aiohttp's texts are not used because they may quote the response."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"the certificate is not accepted: {str(error.certificate_error)[:120]}"
    if isinstance(error, aiohttp.ClientSSLError):
        return "the TLS handshake failed"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name has no address"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return f"no connection: {os.strerror(number) if number else error.os_error}"[:120]
    if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionResetError):
        return "the connection ended without a response"
    return f"no response of HTTP: {type(error).__name__}"
