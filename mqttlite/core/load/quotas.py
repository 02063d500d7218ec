"""The rate quotas of a listener's clients: each client's own buckets, the shared buckets, and how often each was empty.

Invariant: a client uses the same buckets on each of its connections, so that reconnecting gains nothing.
"""

from typing import Final, final

from mqttlite.core.load.rate_limits import ALL_AT_ONCE, Buckets, BucketTable
from mqttlite.core.route.topic_limits import TopicLimits
from mqttlite.core.session.usage import Usages

CLIENT: Final = "client"
USER: Final = "user"
ADDRESS: Final = "address"
LISTENER: Final = "listener"
BROKER: Final = "broker"

_NO_TOPICS: Final[dict[str, TopicLimits]] = {}


@final
class Rates:
    """The buckets of one direction, by scope; None: no limit. Listeners may share the tables, and share the broker's
    buckets."""

    __slots__ = ("addresses", "broker", "clients", "listener", "users")

    def __init__(
        self,
        clients: BucketTable | None = None,
        users: BucketTable | None = None,
        addresses: BucketTable | None = None,
        listener: Buckets | None = None,
        broker: Buckets | None = None,
    ) -> None:
        self.clients: Final = clients
        self.users: Final = users
        self.addresses: Final = addresses
        self.listener: Final = listener
        self.broker: Final = broker

    def of(self, client_id: str, username: str | None, address: str, now: float) -> list[tuple[str, Buckets]]:
        """The buckets of one client, each with its scope. `address` is empty for a client without one."""
        found: list[tuple[str, Buckets]] = []
        if self.clients is not None:
            found.append((CLIENT, self.clients.of(client_id, now)))
        if self.users is not None and username is not None:
            found.append((USER, self.users.of(username, now)))
        if self.addresses is not None and address:
            found.append((ADDRESS, self.addresses.of(address, now)))
        if self.listener is not None:
            found.append((LISTENER, self.listener))
        if self.broker is not None:
            found.append((BROKER, self.broker))
        return found


NO_RATES: Final = Rates()
NO_USAGES: Final = Usages()


@final
class Quotas:
    """The quotas of a listener's clients: message rates in both directions, totals of sessions, and limits of
    topics."""

    __slots__ = ("disconnects", "held", "incoming", "outgoing", "topics", "usages")

    def __init__(
        self,
        incoming: Rates = NO_RATES,
        outgoing: Rates = NO_RATES,
        usages: Usages = NO_USAGES,
        topics: dict[str, TopicLimits] = _NO_TOPICS,
        disconnects: bool = False,
    ) -> None:
        self.incoming: Final = incoming
        self.outgoing: Final = outgoing
        self.usages: Final = usages
        self.topics: Final = topics
        """The limits of topics and payloads, by user name."""
        self.disconnects: Final = disconnects
        """Whether a client above its own rate is disconnected. Above a shared rate its link is only held."""
        self.held: Final[dict[str, int]] = {}
        """How often a link was held, by the scope of the quota with the longest wait; `disconnect` counts disconnected
        clients. Scopes that begin with `to_` count held outboxes."""

    @property
    def wants_address(self) -> bool:
        """Whether a quota counts by address."""
        limited = (self.incoming.addresses, self.outgoing.addresses, self.usages.addresses)
        return any(each is not None for each in limited)

    def count_held(self, scope: str) -> None:
        self.held[scope] = self.held.get(scope, 0) + 1

    def throttle(
        self, client_id: str, username: str | None, bytes_received: int, now: float, address: str = ""
    ) -> "Throttle | None":
        """The buckets for messages from one client; None if it has no limit."""
        buckets = self.incoming.of(client_id, username, address, now)
        return Throttle(self, buckets, bytes_received) if buckets else None


@final
class Throttle:
    """The account of one connection in its quotas."""

    __slots__ = (
        "_buckets",
        "_bytes",
        "_messages",
        "held_for",
        "held_until",
        "is_held",
        "is_over_messages",
        "quotas",
        "scope",
        "times",
    )

    def __init__(self, quotas: Quotas, buckets: list[tuple[str, Buckets]], bytes_received: int) -> None:
        self.quotas: Final = quotas
        self._buckets: Final = buckets
        self._bytes = bytes_received
        self._messages = 0
        self.is_held: bool = False
        self.held_until: float = 0.0
        self.held_for: str = ""
        """The scope of the quota for which it was last held."""
        self.times: int = 0
        """How often it was held."""
        self.scope: str = ""
        """The scope of the bucket with the longest wait after the latest `take`; empty if there is no debt."""
        self.is_over_messages: bool = False
        """Whether the debt in this bucket is one of messages, and not of bytes alone."""

    def room(self, now: float) -> int:
        """How many messages may be handled before they are charged; at least one."""
        return max(1, min([each.room(now) for _, each in self._buckets], default=ALL_AT_ONCE))

    def take(self, messages: int, size: int, now: float) -> float:
        """Charge up to `messages` and `size`, the totals of the connection. Return for how many seconds to stop
        reading."""
        longest_s = 0.0
        self.scope = ""
        for scope, buckets in self._buckets:
            wait_s = buckets.take(messages - self._messages, size - self._bytes, now)
            if wait_s > longest_s:
                longest_s, self.scope, self.is_over_messages = wait_s, scope, buckets.is_over_messages
        self._messages, self._bytes = messages, size
        return longest_s
