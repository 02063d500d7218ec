"""How much clients may send, get and have: the options, and the buckets and groups that they make for the listeners of
one broker.

Invariant: listeners without options of their own share the buckets and groups of each client, user and address.
"""

import math
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from mqttlite.core.load.quotas import Quotas, Rates
from mqttlite.core.load.rate_limits import Buckets, BucketTable, Rate
from mqttlite.core.route.topic_limits import NO_TOPIC_LIMITS, TopicLimits
from mqttlite.core.session.session_record import SessionRecord
from mqttlite.core.session.usage import UsageLimits, Usages, UsageTable

LEAST_RATE: Final = 0.001
"""A lower rate would hold a client for longer than anybody waits."""

LEAST_QUEUED_BYTES: Final = 1_024
"""Less has no room for a message."""


class QuotaOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """0: no limit. Rates are messages and bytes a second; whole packets count as bytes, also those that are no
    messages."""

    messages_per_s: float = 0.0
    """Rate of messages from each client."""
    bytes_per_s: float = 0.0
    """The same in bytes."""
    user_messages_per_s: float = 0.0
    """Rate of messages from all clients of one user together."""
    user_bytes_per_s: float = 0.0
    """The same in bytes."""
    address_messages_per_s: float = 0.0
    """Rate of messages from all clients of one address, or IPv6 network of 64 bits, together."""
    address_bytes_per_s: float = 0.0
    """The same in bytes."""
    all_messages_per_s: float = 0.0
    """Rate of messages from all clients of the listener, or of the broker, together."""
    all_bytes_per_s: float = 0.0
    """The same in bytes."""
    to_client_messages_per_s: float = 0.0
    """Rate of messages to each client."""
    to_client_bytes_per_s: float = 0.0
    """The same in bytes."""
    to_user_messages_per_s: float = 0.0
    """Rate of messages to all clients of one user together."""
    to_user_bytes_per_s: float = 0.0
    """The same in bytes."""
    to_address_messages_per_s: float = 0.0
    """Rate of messages to all clients of one address, or IPv6 network of 64 bits, together."""
    to_address_bytes_per_s: float = 0.0
    """The same in bytes."""
    to_all_messages_per_s: float = 0.0
    """Rate of messages to all clients of the listener, or of the broker, together."""
    to_all_bytes_per_s: float = 0.0
    """The same in bytes."""
    burst_s: float = 1.0
    """How many seconds' worth may come at once, after a pause of that length."""
    on_rate: Literal["hold", "disconnect"] = "hold"
    """The action against a client above `messages_per_s` or `bytes_per_s`: `hold` stops reading it for a while,
    `disconnect` ends its connection."""
    user_subscriptions: int = 0
    """Subscriptions of all sessions of one user together."""
    address_subscriptions: int = 0
    """The same for all sessions of clients from one address, or IPv6 network of 64 bits, together."""
    all_subscriptions: int = 0
    """The same for all sessions of the listener, or of the broker, together."""
    user_queued_bytes: int = 0
    """Bytes that may wait in the queues of all sessions of one user together."""
    address_queued_bytes: int = 0
    """The same for all sessions of clients from one address, or IPv6 network of 64 bits, together."""
    all_queued_bytes: int = 0
    """The same for all sessions of the listener, or of the broker, together."""
    user_payload_bytes: dict[str, int] = {}
    """The largest payload, by user name, where lower than in `limits` and of the listener."""
    user_topic_levels: dict[str, int] = {}
    """The most topic levels, by user name, likewise."""
    user_topic_bytes: dict[str, int] = {}
    """The most topic bytes, by user name, likewise."""

    def __post_init__(self) -> None:
        for name in _RATES:
            rate = getattr(self, name)
            if rate != 0.0 and not LEAST_RATE <= rate < math.inf:
                raise ValueError(f"{name} is {rate:g}: {LEAST_RATE:g} at least, and finite, or 0 for no limit")
        for name, least in _USAGES.items():
            if getattr(self, name) != 0 and getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}: {least} at least, or 0 for no limit")
        for name in _OF_USERS:
            for user, most in getattr(self, name).items():
                if not user or most < 1:
                    raise ValueError(f"{name} has {most} for {user!r}: a name, and 1 at least")
        if not 0.001 <= self.burst_s < math.inf:
            raise ValueError(f"burst_s is {self.burst_s:g}: 0.001 at least, and finite")

    def rate(self, prefix: str) -> Rate:
        """That of the options whose names begin so."""
        messages, size = getattr(self, f"{prefix}messages_per_s"), getattr(self, f"{prefix}bytes_per_s")
        return Rate(messages, size, self.burst_s)

    def topics(self) -> dict[str, TopicLimits]:
        """How long the topics and payloads of users may be, by their names."""
        none = NO_TOPIC_LIMITS
        return {
            user: TopicLimits(
                self.user_topic_levels.get(user, none.max_levels),
                self.user_topic_bytes.get(user, none.max_bytes),
                self.user_payload_bytes.get(user, none.max_payload_bytes),
            )
            for name in _OF_USERS
            for user in getattr(self, name)
        }


_RATES: Final = tuple(name for name in QuotaOptions.__struct_fields__ if name.endswith("_per_s"))
_USAGES: Final = {
    name: least
    for end, least in (("_subscriptions", 1), ("_queued_bytes", LEAST_QUEUED_BYTES))
    for name in QuotaOptions.__struct_fields__
    if name.endswith(end)
}
_OF_USERS: Final = ("user_payload_bytes", "user_topic_levels", "user_topic_bytes")
"""Options that have a value for each user."""


class BrokerQuotas:
    """Makes the quotas of each listener; `now` is the broker's second of the start. `refused` counts, by quota, what
    the sessions may not have because it is used up."""

    def __init__(self, options: QuotaOptions, now: float, refused: dict[str, int]) -> None:
        self._now: Final = now
        self._refused: Final = refused
        self._all: Final = self._buckets(options, "all_")
        self._to_all: Final = self._buckets(options, "to_all_")
        self._all_usage: Final = self._usages(options, "all")
        self._options: Final = options
        self.of_users: Final[dict[str, BucketTable]] = {}
        """The rates of users, by names that other nodes know them by."""
        self._common: Final = self._quotas(options, is_broker=True)

    def of_listener(self, options: QuotaOptions | None, place: str = "") -> Quotas | None:
        """None where nothing limits the listener's clients. `place` is as in the options of the listener."""
        if options is not None:
            return self._quotas(options, is_broker=False, place=place)
        if self._options == QuotaOptions(burst_s=self._options.burst_s, on_rate=self._options.on_rate):
            return None
        common = self._common
        return Quotas(common.incoming, common.outgoing, common.usages, common.topics, common.disconnects)

    def adopt(self, sessions: Iterable[SessionRecord]) -> None:
        """Let sessions of before the start count for their users and the broker, until their clients connect."""
        for session in sessions:
            session.count_for(self._common.usages.of(session.username, ""))

    def _quotas(self, options: QuotaOptions, *, is_broker: bool, place: str = "") -> Quotas:
        """Of the broker, or of one listener: each counts for the broker, too."""
        return Quotas(
            Rates(
                self._table(options, ""),
                self._table_of_users(options, "user_", place),
                self._table(options, "address_"),
                listener=None if is_broker else self._buckets(options, "all_"),
                broker=self._all,
            ),
            Rates(
                self._table(options, "to_client_"),
                self._table_of_users(options, "to_user_", place),
                self._table(options, "to_address_"),
                listener=None if is_broker else self._buckets(options, "to_all_"),
                broker=self._to_all,
            ),
            Usages(
                self._usages(options, "user"),
                self._usages(options, "address"),
                listener=None if is_broker else self._usages(options, "all"),
                broker=self._all_usage,
            ),
            options.topics(),
            options.on_rate == "disconnect",
        )

    def _buckets(self, options: QuotaOptions, prefix: str) -> Buckets | None:
        rate = options.rate(prefix)
        return Buckets(rate, self._now) if rate.is_set else None

    def _table(self, options: QuotaOptions, prefix: str) -> BucketTable | None:
        rate = options.rate(prefix)
        return BucketTable(rate) if rate.is_set else None

    def _table_of_users(self, options: QuotaOptions, prefix: str, place: str) -> BucketTable | None:
        table = self._table(options, prefix)
        if table is not None:
            self.of_users[f"{prefix} {place}"] = table
        return table

    def _usages(self, options: QuotaOptions, prefix: str) -> UsageTable | None:
        subscriptions, size = getattr(options, f"{prefix}_subscriptions"), getattr(options, f"{prefix}_queued_bytes")
        limits = UsageLimits(prefix, subscriptions, size, self._refused)
        return UsageTable(limits) if limits.is_set else None
