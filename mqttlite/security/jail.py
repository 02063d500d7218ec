"""Refuses addresses with repeated failed logins for a while, without checking their passwords.

A *suspect* is an address, or a user name or client identifier at one address: a device with a wrong password behind a
router is jailed alone. Invariant: memory is bounded, whatever clients send; and no answer to a jailed client reveals
whether its password is right.
"""

import asyncio
import hashlib
import ipaddress
import math
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from mqttlite.core.authentication import Verdict
from mqttlite.event_hub import Jailed
from mqttlite.security.addresses import LOCAL, network_of
from mqttlite.security.authenticator import Credentials
from mqttlite.wire.reason_codes import ReasonCode

MAX_ADDRESSES: Final = 10_000
"""The most addresses with failed logins. The one that was quiet for longest is dropped first. About 3 MB."""

MAX_CLIENTS: Final = 20_000
"""The same for user names and client identifiers. They have their own table, because an address can make up many. About
5 MB."""

MAX_DELAY_S: Final = 5.0
"""The longest delay of a refusal: well below the default of `connect_timeout_s`, which would end the connection without
one."""

MAX_DELAYED: Final = 1_000
"""The most delayed refusals: few compared with `MAX_OPEN_QUESTIONS`. A further one leaves at once."""

_FAILURES: Final = (ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED)


class JailOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When failed logins jail an address, and for how long."""

    address_failures: int = 20
    """How many failed logins of an address in `window_s` jail it. 0: never."""
    client_failures: int = 5
    """How many failed logins with a user name or client identifier from one address jail it there. 0: never."""
    window_s: float = 60.0
    """The counting period. It begins with a failure; the first failure after its end begins the next."""
    jail_s: float = 60.0
    """How long the first jail lasts. Each further one is twice as long."""
    max_jail_s: float = 3_600.0
    """The longest jail. After this long without a failure, the next jail is a first one again."""
    delay_s: float = 1.0
    """The delay before a jailed client gets its refusal, because a client that retries at once would keep the broker
    busy."""
    exempt: tuple[str, ...] = ("127.0.0.0/8", "::1/128")
    """Addresses and networks that are never jailed, for example a proxy without the PROXY protocol."""

    def __post_init__(self) -> None:
        for name in ("address_failures", "client_failures"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: 0 at least")
        for name in ("window_s", "jail_s", "max_jail_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name):g}: above 0, and finite")
        if not 0 <= self.delay_s <= MAX_DELAY_S:
            raise ValueError(f"delay_s is {self.delay_s:g}: it may be 0 to {MAX_DELAY_S:g}")
        if self.max_jail_s < self.jail_s:
            raise ValueError(f"max_jail_s is {self.max_jail_s:g}: as much as jail_s at least, {self.jail_s:g}")
        for network in self.exempt:
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise ValueError(f"exempt has {network!r}: {error}") from None


class _Suspect:
    """The record of one suspect."""

    __slots__ = ("began", "failures", "jailed", "latest", "until")

    def __init__(self) -> None:
        self.began = 0.0
        """When the first of the counted failures happened."""
        self.failures = 0
        self.latest = 0.0
        self.jailed = 0
        """How often it was jailed, without forgotten times."""
        self.until = 0.0


class _Suspects:
    """Suspects of one kind, the one that was quiet for longest first."""

    def __init__(self, options: JailOptions, failures: int, limit: int) -> None:
        self._options: Final = options
        self._failures: Final = failures
        self._limit: Final = limit
        self._suspects: Final[OrderedDict[bytes, _Suspect]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._suspects)

    def holds(self, key: bytes, now: float) -> bool:
        suspect = self._suspects.get(key)
        return suspect is not None and now < suspect.until

    def clear(self, key: bytes) -> None:
        """After a successful login, forget earlier failures."""
        suspect = self._suspects.get(key)
        if suspect is not None:
            suspect.failures = 0

    def fail(self, key: bytes, now: float) -> tuple[int, float] | None:
        """Count a failure. If it jails the suspect, return the number of failures and the duration."""
        if not self._failures:
            return None
        options = self._options
        suspect = self._suspects.pop(key, None) or _Suspect()
        self._suspects[key] = suspect
        if len(self._suspects) > self._limit:
            self._suspects.popitem(last=False)
        if now - max(suspect.until, suspect.latest) >= options.max_jail_s:
            suspect.jailed = 0
        if now - suspect.began >= options.window_s or not suspect.failures:
            suspect.began, suspect.failures = now, 0
        suspect.failures += 1
        suspect.latest = now
        failures = suspect.failures
        if failures < self._failures or now < suspect.until:
            return None
        duration_s = min(options.jail_s * 2.0 ** min(suspect.jailed, 64), options.max_jail_s)
        suspect.jailed += 1
        suspect.until = now + duration_s
        suspect.failures = 0
        return failures, duration_s


class LoginJail:
    """`tell` is called for every new jail; `clock` returns seconds."""

    def __init__(self, options: JailOptions, tell: Callable[[Jailed], None], clock: Callable[[], float]) -> None:
        self._tell: Final = tell
        self._clock: Final = clock
        self._exempt: Final = [ipaddress.ip_network(network) for network in options.exempt]
        self._addresses: Final = _Suspects(options, options.address_failures, MAX_ADDRESSES)
        self._clients: Final = _Suspects(options, options.client_failures, MAX_CLIENTS)
        self._delay_s: Final = options.delay_s
        self._delayed = 0
        self._key: Final = secrets.token_bytes(16)

    def __len__(self) -> int:
        """The number of suspects, jailed or not."""
        return len(self._addresses) + len(self._clients)

    def refusal(self, credentials: Credentials) -> Verdict | None:
        """The refusal for a jailed client; None if its login must be checked."""
        if self._is_exempt(credentials.peer):
            return None
        held = self._holds(network_of(credentials.peer), credentials.username, credentials)
        return Verdict(ReasonCode.CONNECTION_RATE_EXCEEDED) if held else None

    async def delay(self) -> None:
        """Delay a refusal, unless very many are delayed already."""
        if not self._delay_s or self._delayed >= MAX_DELAYED:
            return
        self._delayed += 1
        try:
            await asyncio.sleep(self._delay_s)
        finally:
            self._delayed -= 1

    def judge(self, credentials: Credentials, verdict: Verdict) -> Verdict:
        """Count a checked login, and return the verdict for the client. Even a right password is refused if parallel
        guesses have jailed its sender meanwhile."""
        if self._is_exempt(credentials.peer):
            return verdict
        network, username = network_of(credentials.peer), verdict.username or credentials.username
        if verdict.reason_code == ReasonCode.SUCCESS:
            if self._holds(network, username, credentials):
                return Verdict(ReasonCode.CONNECTION_RATE_EXCEEDED, None, verdict.username)
            for _, key in self._client_keys(network, username, credentials.client_id):
                self._clients.clear(key)
        elif verdict.reason_code in _FAILURES and not self._holds(network, username, credentials):
            self._fail(network, username, credentials)
        return verdict

    def _fail(self, network: str, username: str | None, credentials: Credentials) -> None:
        now = self._clock()
        clients = self._client_keys(network, username, credentials.client_id)
        brought = [(what, self._clients.fail(key, now)) for what, key in clients]
        brought.append(("address", self._addresses.fail(self._hash(network), now)))
        for what, jailed in brought:
            if jailed is not None:
                who = credentials.peer, username, credentials.client_id, credentials.listener
                self._tell(Jailed(what, network, *who, *jailed))

    def _holds(self, network: str, username: str | None, credentials: Credentials) -> bool:
        now = self._clock()
        return self._addresses.holds(self._hash(network), now) or any(
            self._clients.holds(key, now) for _, key in self._client_keys(network, username, credentials.client_id)
        )

    def _client_keys(self, network: str, username: str | None, client_id: str) -> list[tuple[str, bytes]]:
        found = [("username", username), ("client_id", client_id)]
        return [(what, self._hash(network, what, text)) for what, text in found if text]

    def _hash(self, *parts: str) -> bytes:
        """A key of fixed size, however long the name is."""
        return hashlib.blake2b("\0".join(parts).encode(), digest_size=16, key=self._key).digest()

    def _is_exempt(self, peer: str) -> bool:
        if network_of(peer) == LOCAL:
            return True
        address = ipaddress.ip_address(peer.rpartition(":")[0].strip("[]"))
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._exempt)
