"""Limits how often clients, users and addresses may connect to a listener, and how many connections they may have.

Addresses are checked when a connection opens. Clients and users are checked after authentication, so that a wrong
password cannot use up another client's quota. Invariant: each table has at most as many keys as there are open
connections, or `MAX_KEYS`.
"""

from typing import Final, final

from mqttlite.core.load.rate_limits import MAX_KEYS, TokenBucket
from mqttlite.wire.errors import ConnectionRateExceeded, QuotaExceeded

ALL_RATE: Final = "all_rate"
ADDRESS_RATE: Final = "address_rate"
ADDRESS_CONNECTIONS: Final = "address_connections"
ADDRESS_FLAPPING: Final = "address_flapping"
USER_RATE: Final = "user_rate"
USER_CONNECTIONS: Final = "user_connections"
USER_FLAPPING: Final = "user_flapping"
CLIENT_FLAPPING: Final = "client_flapping"


@final
class ConnectRate:
    """Each key may connect `per_s` times a second, and `burst` times at once."""

    __slots__ = ("_buckets", "_burst", "_max_keys", "_per_s")

    def __init__(self, per_s: float, burst: float, max_keys: int = MAX_KEYS) -> None:
        self._per_s: Final = per_s
        self._burst: Final = burst
        self._max_keys: Final = max_keys
        self._buckets: Final[dict[str, TokenBucket]] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def admits(self, key: str, now: float) -> bool:
        """Count one connect. False, and not counted, if it exceeds the rate."""
        bucket = self._buckets.pop(key, None)
        if bucket is None:
            bucket = TokenBucket(self._per_s, self._burst, now)
            if len(self._buckets) >= self._max_keys:
                del self._buckets[next(iter(self._buckets))]
        self._buckets[key] = bucket
        return bucket.try_take(1.0, now)


@final
class _Record:
    """How often a key connected lately, and until when it is jailed."""

    __slots__ = ("bucket", "free_at", "times")

    def __init__(self, bucket: TokenBucket) -> None:
        self.bucket: Final = bucket
        self.free_at: float = 0.0
        self.times: int = 0


@final
class Jail:
    """Jails a key that connects more than `connects` times in `window_s`. The first time lasts `jail_s`, and each
    further one twice as long, up to `max_jail_s`. A key that was free for that long starts again at `jail_s`."""

    __slots__ = ("_connects", "_jail_s", "_max_jail_s", "_max_keys", "_records", "_window_s")

    def __init__(
        self, connects: int, window_s: float, jail_s: float, max_jail_s: float, max_keys: int = MAX_KEYS
    ) -> None:
        self._connects: Final = connects
        self._window_s: Final = window_s
        self._jail_s: Final = jail_s
        self._max_jail_s: Final = max_jail_s
        self._max_keys: Final = max_keys
        self._records: Final[dict[str, _Record]] = {}

    def __len__(self) -> int:
        return len(self._records)

    def jailed_s(self, key: str, now: float) -> float:
        """Count one connect. Return for how many more seconds the key is jailed, 0.0 if it is not."""
        record = self._records.pop(key, None)
        if record is None:
            record = _Record(TokenBucket(self._connects / self._window_s, self._connects, now))
            if len(self._records) >= self._max_keys:
                del self._records[next(iter(self._records))]
        self._records[key] = record
        if now < record.free_at:
            return record.free_at - now
        if now >= record.free_at + self._max_jail_s:
            record.times = 0
        if record.bucket.try_take(1.0, now):
            return 0.0
        jail_s = self._jail_s
        for _ in range(record.times):
            if jail_s < self._max_jail_s:
                jail_s += jail_s
        record.times += 1
        jail_s = min(jail_s, self._max_jail_s)
        record.free_at = now + jail_s
        return jail_s


@final
class ConnectLimits:
    """The limits of one listener. None and 0 mean no limit."""

    __slots__ = (
        "_address_jail",
        "_address_rate",
        "_addresses",
        "_all",
        "_client_jail",
        "_max_per_address",
        "_max_per_user",
        "_user_jail",
        "_user_rate",
        "_users",
        "refused",
    )

    def __init__(
        self,
        all_rate: TokenBucket | None = None,
        address_rate: ConnectRate | None = None,
        user_rate: ConnectRate | None = None,
        max_per_address: int = 0,
        max_per_user: int = 0,
        client_jail: Jail | None = None,
        user_jail: Jail | None = None,
        address_jail: Jail | None = None,
    ) -> None:
        self._all: Final = all_rate
        self._address_rate: Final = address_rate
        self._user_rate: Final = user_rate
        self._max_per_address: Final = max_per_address
        self._max_per_user: Final = max_per_user
        self._client_jail: Final = client_jail
        self._user_jail: Final = user_jail
        self._address_jail: Final = address_jail
        self._addresses: Final[dict[str, int]] = {}
        self._users: Final[dict[str, int]] = {}
        self.refused: Final[dict[str, int]] = {}
        """How many connections each limit refused."""

    def open(self, address: str, now: float) -> str:
        """A connection from an address opens: which limit refuses it; empty if it may stay until `close`."""
        refusal = self._refuse_address(address, now)
        if refusal:
            self.refused[refusal] = self.refused.get(refusal, 0) + 1
        else:
            _count(self._addresses, address, 1)
        return refusal

    def close(self, address: str) -> None:
        """An opened connection is gone."""
        _count(self._addresses, address, -1)

    def enter(self, client_id: str, username: str | None, former: str | None, now: float) -> None:
        """Count a client that is about to be accepted, until `leave`. `former` is the user of the connection that it
        takes over.

        Raises `ConnectionRateExceeded` or `QuotaExceeded`.
        """
        refusal, sentence, is_rate = self._refuse_client(client_id, username, former, now)
        if refusal:
            self.refused[refusal] = self.refused.get(refusal, 0) + 1
            raise ConnectionRateExceeded(sentence) if is_rate else QuotaExceeded(sentence)
        if username is not None:
            _count(self._users, username, 1)

    def leave(self, username: str | None) -> None:
        """An accepted client is gone."""
        if username is not None:
            _count(self._users, username, -1)

    def _refuse_address(self, address: str, now: float) -> str:
        if address:
            if self._address_jail is not None and self._address_jail.jailed_s(address, now) > 0.0:
                return ADDRESS_FLAPPING
            if 0 < self._max_per_address <= self._addresses.get(address, 0):
                return ADDRESS_CONNECTIONS
            if self._address_rate is not None and not self._address_rate.admits(address, now):
                return ADDRESS_RATE
        return "" if self._all is None or self._all.try_take(1.0, now) else ALL_RATE

    def _refuse_client(
        self, client_id: str, username: str | None, former: str | None, now: float
    ) -> tuple[str, str, bool]:
        """The limit that refuses the client (empty: none), the reason, and whether it is a rate limit."""
        if self._client_jail is not None:
            # The key includes the user: otherwise a user could lock out another user's client by using its name.
            whose = client_id if username is None else f"{username}\n{client_id}"
            jailed_s = self._client_jail.jailed_s(whose, now)
            if jailed_s > 0.0:
                return CLIENT_FLAPPING, f"the client connects too often: come again in {jailed_s:.0f} s", True
        if username is None:
            return "", "", False
        if self._user_jail is not None:
            jailed_s = self._user_jail.jailed_s(username, now)
            if jailed_s > 0.0:
                return USER_FLAPPING, f"the user connects too often: come again in {jailed_s:.0f} s", True
        connections = self._users.get(username, 0) - (former == username)
        if 0 < self._max_per_user <= connections:
            return USER_CONNECTIONS, f"the user has {connections} connections, the limit is {self._max_per_user}", False
        if self._user_rate is not None and not self._user_rate.admits(username, now):
            return USER_RATE, "the user connects too often", True
        return "", "", False


def _count(table: dict[str, int], key: str, change: int) -> None:
    """Add to a key's count. A key with the count 0 is removed."""
    number = table.get(key, 0) + change
    if number > 0:
        table[key] = number
    else:
        table.pop(key, None)
