"""How much clients may send and get: the options, and the buckets that they make for the listeners of one broker.

Invariant: listeners without options of their own share the buckets of each client and user.
"""

import math
from typing import Final, Literal

import msgspec

from mqttlite.core.quotas import Quotas
from mqttlite.core.rate_limits import Buckets, BucketTable, Rate

LEAST_RATE: Final = 0.001
"""A lower rate would hold a client for longer than anybody waits."""


class QuotaOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages and bytes a second; 0: any number. Whole packets count as bytes, also those that are no messages."""

    messages_per_s: float = 0.0
    """What each client may send."""
    bytes_per_s: float = 0.0
    """The same in bytes."""
    user_messages_per_s: float = 0.0
    """What the clients of one user may send together."""
    user_bytes_per_s: float = 0.0
    """The same in bytes."""
    address_messages_per_s: float = 0.0
    """What the clients of one address, or IPv6 network of 64 bits, may send together."""
    address_bytes_per_s: float = 0.0
    """The same in bytes."""
    user_payload_bytes: dict[str, int] = {}
    """The largest payload of a user, by its name, where that is less than `limits` and the listener say."""
    all_messages_per_s: float = 0.0
    """What all clients may send together: those of the listener, or of the broker."""
    all_bytes_per_s: float = 0.0
    """The same in bytes."""
    to_client_messages_per_s: float = 0.0
    """What each client may be sent."""
    to_client_bytes_per_s: float = 0.0
    """The same in bytes."""
    burst_s: float = 1.0
    """How many seconds' worth may come at once, after a silence that was as long."""
    on_rate: Literal["hold", "disconnect"] = "hold"
    """What happens to a client that sends more than `messages_per_s` or `bytes_per_s`: it is not read, or it is
    disconnected."""

    def __post_init__(self) -> None:
        for name in _RATES:
            rate = getattr(self, name)
            if rate != 0.0 and not LEAST_RATE <= rate < math.inf:
                raise ValueError(f"{name} is {rate:g}: {LEAST_RATE:g} at least, and finite, or 0 for no limit")
        for user, size in self.user_payload_bytes.items():
            if not user or size < 1:
                raise ValueError(f"user_payload_bytes has {size} for {user!r}: a name, and 1 at least")
        if not 0.001 <= self.burst_s < math.inf:
            raise ValueError(f"burst_s is {self.burst_s:g}: 0.001 at least, and finite")

    def of_client(self) -> Rate:
        return Rate(self.messages_per_s, self.bytes_per_s, self.burst_s)

    def of_user(self) -> Rate:
        return Rate(self.user_messages_per_s, self.user_bytes_per_s, self.burst_s)

    def of_address(self) -> Rate:
        return Rate(self.address_messages_per_s, self.address_bytes_per_s, self.burst_s)

    def of_all(self) -> Rate:
        return Rate(self.all_messages_per_s, self.all_bytes_per_s, self.burst_s)

    def to_client(self) -> Rate:
        return Rate(self.to_client_messages_per_s, self.to_client_bytes_per_s, self.burst_s)


_RATES: Final = tuple(name for name in QuotaOptions.__struct_fields__ if name.endswith("_per_s"))


class BrokerQuotas:
    """Makes the quotas of each listener; `now` is the broker's second of the start."""

    def __init__(self, options: QuotaOptions, now: float) -> None:
        self._options: Final = options
        self._now: Final = now
        self._clients: Final = _table(options.of_client())
        self._users: Final = _table(options.of_user())
        self._to_clients: Final = _table(options.to_client())
        self._addresses: Final = _table(options.of_address())
        self._all: Final = self._buckets(options.of_all())

    def of_listener(self, options: QuotaOptions | None) -> Quotas | None:
        """None where nothing limits the listener's clients."""
        if options is None:
            limited = (self._all, self._clients, self._users, self._to_clients, self._addresses)
            if all(each is None for each in limited) and not self._options.user_payload_bytes:
                return None
            return Quotas(
                *(self._clients, self._users, None, self._all, self._to_clients),
                disconnects=self._options.on_rate == "disconnect",
                addresses=self._addresses,
                payloads=self._options.user_payload_bytes,
            )
        return Quotas(
            _table(options.of_client()),
            _table(options.of_user()),
            self._buckets(options.of_all()),
            self._all,
            _table(options.to_client()),
            options.on_rate == "disconnect",
            _table(options.of_address()),
            options.user_payload_bytes,
        )

    def _buckets(self, rate: Rate) -> Buckets | None:
        return Buckets(rate, self._now) if rate.is_set else None


def _table(rate: Rate) -> BucketTable | None:
    return BucketTable(rate) if rate.is_set else None
