"""The quotas of a listener's clients: the buckets that each draws from, what they share, and how often one was empty.

Invariant: a client draws from the same buckets on each of its connections, so that it gains nothing by connecting anew.
"""

from typing import Final, final

from mqttlite.core.rate_limits import Buckets, BucketTable
from mqttlite.core.topic_limits import TopicLimits
from mqttlite.core.usage import Usages

CLIENT: Final = "client"
USER: Final = "user"
ADDRESS: Final = "address"
LISTENER: Final = "listener"
BROKER: Final = "broker"
SCOPES: Final = (CLIENT, USER, ADDRESS, LISTENER, BROKER)

_NO_TOPICS: Final[dict[str, TopicLimits]] = {}


@final
class Rates:
    """The buckets of one direction, by whose they are; None: no limit. Listeners may share the tables, and share the
    buckets of the whole broker."""

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
        """The buckets of one client, each with its scope; the address is empty for a client of none."""
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
    """The quotas of a group of clients: rates of messages both ways, totals of their sessions, and limits of topics."""

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
        """How long a user's topics and payloads may be, by its name."""
        self.disconnects: Final = disconnects
        """Whether a client over its own rate is disconnected; over the others it is only held."""
        self.held: Final[dict[str, int]] = {}
        """How often a link was held, by the scope of the quota that took longest; `disconnect` for the others. Scopes
        with `to_` before them: how often an outbox was."""

    @property
    def wants_address(self) -> bool:
        """Whether something is limited by address."""
        limited = (self.incoming.addresses, self.outgoing.addresses, self.usages.addresses)
        return any(each is not None for each in limited)

    def count_held(self, scope: str) -> None:
        self.held[scope] = self.held.get(scope, 0) + 1

    def throttle(
        self, client_id: str, username: str | None, bytes_received: int, now: float, address: str = ""
    ) -> "Throttle | None":
        """The buckets of what one client sends; None where nothing limits that."""
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
        """The scope for which it was held last."""
        self.times: int = 0
        """How often it was held."""
        self.scope: str = ""
        """Of the bucket that takes longest to fill, at the latest `take`; empty if there is no debt."""
        self.is_over_messages: bool = False
        """Whether that is the messages', and not only the bytes'."""

    def take(self, messages: int, size: int, now: float) -> float:
        """`messages` and `size` bytes came since the connection began; returns for how long nothing more may come."""
        longest_s = 0.0
        self.scope = ""
        for scope, buckets in self._buckets:
            wait_s = buckets.take(messages - self._messages, size - self._bytes, now)
            if wait_s > longest_s:
                longest_s, self.scope, self.is_over_messages = wait_s, scope, buckets.is_over_messages
        self._messages, self._bytes = messages, size
        return longest_s
