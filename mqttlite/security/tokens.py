"""Authenticates clients whose password in CONNECT is a JSON Web Token (RFC 7519).

`token_keys` loads the trusted keys. Invariant: no claim is used before the signature is verified, and a token with
unknown critical parts is refused.
"""

import asyncio
import base64
import logging
import math
import re
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
from jwt import PyJWS
from jwt.algorithms import Algorithm as JwtAlgorithm

from mqttlite.core.authentication import Grants, Verdict
from mqttlite.files.file_version import Version, version_of
from mqttlite.security.authenticator import Credentials
from mqttlite.security.token_keys import TokenKeys, load_keys, read_keys
from mqttlite.security.token_options import TokenConfigError, TokenOptions
from mqttlite.topics.names import check_filter
from mqttlite.wire.errors import TopicFilterInvalid
from mqttlite.wire.reason_codes import ReasonCode

MAX_TOKEN_BYTES: Final = 8_192
"""The longest token. Large ones with many groups have some four thousand; a longer one is refused unread."""

LAST_TIME: Final = 253_402_300_799
"""The last second of the year 9999. A later time is a mistake, for example milliseconds: the token would never
expire."""

_THREE_PARTS: Final = re.compile(rb"(e[wy][A-Za-z0-9_-]*)\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*")
"""Three base64url parts, the first of which decodes to a text that begins with a brace."""

_BRACE_AND_QUOTE: Final = b"eyJ"
"""The beginning of nearly every token in base64url. No password begins like this by chance."""

_REFUSED: Final = Verdict(ReasonCode.BAD_USER_NAME_OR_PASSWORD)

_log = logging.getLogger("mqttlite.security")


class TokenRefused(Exception):
    """Why a token is refused, for the log. Contains nothing of the token's signature."""


class _Header(msgspec.Struct):
    """The supported fields of a token's header. `kid` is only used as a name to look up."""

    alg: str
    kid: str | None = None
    crit: Any = None
    b64: bool = True


class TokenAuthenticator:
    """An `Authenticator` for clients whose password looks like a token.

    After a change of the key file, the next client with a token triggers a reload. A broken file is logged, and the
    former keys stay in force. `clock` is the Unix time for tokens, `loop_time` the broker's seconds.
    """

    def __init__(
        self,
        options: TokenOptions,
        *,
        clock: Callable[[], float] = time.time,
        loop_time: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises `TokenConfigError`."""
        self._options: Final = options
        self._clock: Final = clock
        self._loop_time: Final = loop_time
        self._path: Final = options.key_file[1]
        self._seen = version_of(self._path)
        self._keys: TokenKeys = load_keys(options)
        self._reading: Final = asyncio.Lock()
        signatures = PyJWS()
        self._algorithms: Final[dict[str, JwtAlgorithm]] = {
            each: signatures.get_algorithm_by_name(each) for each in options.algorithms
        }

    async def authenticate(self, credentials: Credentials) -> Verdict | None:
        """The verdict on a token; None for a password that does not look like one."""
        token = credentials.password
        if token is None or not looks_like_token(token):
            return None
        if len(token) > MAX_TOKEN_BYTES:
            return _refuse(credentials, f"it has {len(token)} bytes, {MAX_TOKEN_BYTES} at most")
        await self._notice_change()
        try:
            return self.verify(token, credentials.username)
        except TokenRefused as error:
            return _refuse(credentials, str(error))

    def verify(self, token: bytes, username: str | None = None) -> Verdict:
        """The user and grants of a token's client. `username` is from CONNECT. Raises `TokenRefused`."""
        claims = self._claims(token)
        options = self._options
        expires_at = self._expiry(claims)
        if options.issuer is not None and claims.get("iss") != options.issuer:
            raise TokenRefused("it is of another issuer (iss)")
        audience = claims.get("aud", [])
        audiences = audience if isinstance(audience, list) else [audience]
        if options.audience is None:
            if audiences:  # RFC 7519, §4.1.3
                raise TokenRefused("it has an audience (aud), and no audience is configured")
        elif options.audience not in audiences:
            raise TokenRefused("it is for another audience (aud)")
        user = _claim(claims, options.user_claim)
        if not isinstance(user, str) or not user.strip() or not user.isprintable():
            raise TokenRefused(f"its claim {options.user_claim} is no user name")
        if options.user_name_must_match and username != user:
            raise TokenRefused("the user name of CONNECT is not that of the token")
        return Verdict(
            ReasonCode.SUCCESS,
            None,
            user,
            Grants(
                frozenset(_texts(claims, options.groups_claim) or ()),
                _filters(claims, options.publish_claim),
                _filters(claims, options.subscribe_claim),
                expires_at,
            ),
        )

    async def reload(self) -> None:
        """Read the keys now, changed or not; log the result."""
        async with self._reading:
            await self._read_again(version_of(self._path))

    async def _notice_change(self) -> None:
        if version_of(self._path) != self._seen:
            async with self._reading:
                seen = version_of(self._path)
                if seen != self._seen:
                    await self._read_again(seen)

    async def _read_again(self, seen: Version) -> None:
        try:
            self._keys = await asyncio.to_thread(read_keys, self._options)
            _log.info("%s was read again: %d keys for tokens", self._path, len(self._keys))
            if missing := self._keys.missing(self._options.algorithms):
                _log.warning("%s has no key for %s: tokens with it are refused", self._path, ", ".join(missing))
        except TokenConfigError as error:
            _log.error("the keys for tokens stay as they were: %s", error)
        self._seen = seen

    def _claims(self, token: bytes) -> dict[str, Any]:
        """Verify the signature of a token, and return its claims."""
        signed, _, signature = token.rpartition(b".")
        head, _, payload = signed.partition(b".")
        header = _header_of(head)
        algorithm = self._algorithms.get(header.alg)
        if algorithm is None:
            raise TokenRefused(f"its algorithm (alg) is {header.alg[:20]!r}, which is not allowed")
        if header.crit is not None or not header.b64:
            raise TokenRefused("its header demands extensions (crit), and there are none")
        key = self._keys.find(header.alg, header.kid)
        if key is None:
            raise TokenRefused(f"there is no key for it (alg {header.alg}, kid {_shown(header.kid)})")
        try:
            if not algorithm.verify(signed, key, _from_base64url(signature)):
                raise TokenRefused("its signature is wrong")
            claims = msgspec.json.decode(_from_base64url(payload))
        except (ValueError, RecursionError) as error:
            raise TokenRefused(f"its claims cannot be read: {error}") from None
        if not isinstance(claims, dict):
            raise TokenRefused("its claims are no JSON object")
        return claims

    def _expiry(self, claims: dict[str, Any]) -> float:
        """When the token expires, in the broker's seconds. Raises `TokenRefused` if it is not valid now."""
        now = self._clock()
        leeway = self._options.leeway_s
        not_before = max(_time(claims, "nbf", -math.inf), _time(claims, "iat", -math.inf))
        if now + leeway < not_before:
            raise TokenRefused(f"it is not valid yet, but in {not_before - now:.0f} s (nbf, iat)")
        expires = _time(claims, "exp", math.inf)
        if expires == math.inf and self._options.require_exp:
            raise TokenRefused("it never expires (it has no exp)")
        left = expires + leeway - now
        if left <= 0:
            raise TokenRefused(f"it has expired {leeway - left:.0f} s ago (exp)")
        return self._loop_time() + left


def looks_like_token(password: bytes) -> bool:
    """Whether a password is meant as a token, valid or not."""
    parts = _THREE_PARTS.fullmatch(password)
    if parts is None or password.startswith(_BRACE_AND_QUOTE) or len(password) > MAX_TOKEN_BYTES:
        return parts is not None
    try:
        _header_of(parts[1])
    except TokenRefused:  # for example "eye.for.eye"
        return False
    return True


def _header_of(encoded: bytes) -> _Header:
    """Raises `TokenRefused`."""
    try:
        return msgspec.json.decode(_from_base64url(encoded), type=_Header)
    except (ValueError, RecursionError):
        raise TokenRefused("its header cannot be read") from None


def _from_base64url(encoded: bytes) -> bytes:
    """Raises `ValueError`."""
    return base64.b64decode(encoded + b"=" * (-len(encoded) % 4), altchars=b"-_", validate=True)


def _time(claims: dict[str, Any], name: str, default: float) -> float:
    """A claim with a time. Raises `TokenRefused` unless it is a number of seconds up to `LAST_TIME`."""
    if name not in claims:
        return default
    value = claims[name]
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TokenRefused(f"its claim {name} is no time")
    if not -LAST_TIME <= value <= LAST_TIME:
        raise TokenRefused(f"its claim {name} is no time before the year 10000; it counts seconds, not milliseconds")
    return float(value)


def _claim(claims: dict[str, Any], name: str) -> object:
    """A claim by name. A name with dots that no claim has refers to a nested claim: `realm_access.roles`."""
    if name in claims:
        return claims[name]
    value: object = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _texts(claims: dict[str, Any], name: str | None) -> list[str] | None:
    """A claim with one text or a list of texts. None if none is configured; empty if the claim is missing."""
    if name is None:
        return None
    value = _claim(claims, name)
    values: list[object] = [] if value is None else value if isinstance(value, list) else [value]
    texts = [each for each in values if isinstance(each, str)]
    if len(texts) < len(values):
        raise TokenRefused(f"its claim {name} is no list of texts")
    return texts


def _filters(claims: dict[str, Any], name: str | None) -> tuple[bytes, ...] | None:
    """A claim with a list of topic filters. A token without it allows no topics."""
    texts = _texts(claims, name)
    if texts is None:
        return None
    filters = tuple(dict.fromkeys(each.encode() for each in texts))
    for each in filters:
        try:
            check_filter(each)
        except TopicFilterInvalid as error:
            raise TokenRefused(f"its claim {name} has a wrong topic filter: {error}") from None
    return filters


def _refuse(credentials: Credentials, why: str) -> Verdict:
    _log.warning(
        "%s client %r: the token is refused: %s",
        *(credentials.peer, credentials.client_id, why),
        extra=credentials.about(),
    )
    return _REFUSED


def _shown(kid: str | None) -> str:
    return "absent" if kid is None else repr(kid[:40])
