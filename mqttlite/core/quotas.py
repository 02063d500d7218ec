"""The quotas of a listener's clients: the buckets that each draws from, and how often one was empty.

Invariant: a client draws from the same buckets on each of its connections, so that it gains nothing by connecting anew.
"""

from typing import Final, final

from mqttlite.core.rate_limits import Buckets, BucketTable

CLIENT: Final = "client"
USER: Final = "user"
ADDRESS: Final = "address"
LISTENER: Final = "listener"
BROKER: Final = "broker"
SCOPES: Final = (CLIENT, USER, ADDRESS, LISTENER, BROKER)

_NO_PAYLOADS: Final[dict[str, int]] = {}


@final
class Quotas:
    """None: no limit. Listeners may share the tables, and share the buckets of the whole broker."""

    __slots__ = ("addresses", "broker", "clients", "disconnects", "held", "listener", "payloads", "to_clients", "users")

    def __init__(
        self,
        clients: BucketTable | None = None,
        users: BucketTable | None = None,
        listener: Buckets | None = None,
        broker: Buckets | None = None,
        to_clients: BucketTable | None = None,
        disconnects: bool = False,
        addresses: BucketTable | None = None,
        payloads: dict[str, int] = _NO_PAYLOADS,
    ) -> None:
        self.clients: Final = clients
        self.users: Final = users
        self.listener: Final = listener
        self.broker: Final = broker
        self.to_clients: Final = to_clients
        self.disconnects: Final = disconnects
        """Whether a client over its own rate is disconnected; over the others it is only held."""
        self.addresses: Final = addresses
        self.payloads: Final = payloads
        """The largest payload of a user, in bytes, by its name."""
        self.held: Final[dict[str, int]] = {}
        """How often a link was held, by the scope of the quota that took longest; `disconnect` for the others."""

    def count_held(self, scope: str) -> None:
        self.held[scope] = self.held.get(scope, 0) + 1

    def throttle(
        self, client_id: str, username: str | None, bytes_received: int, now: float, address: str = ""
    ) -> "Throttle | None":
        """The buckets of one client; None where nothing limits what it sends. `address` is empty for one of none."""
        buckets: list[tuple[str, Buckets]] = []
        if self.clients is not None:
            buckets.append((CLIENT, self.clients.of(client_id, now)))
        if self.users is not None and username is not None:
            buckets.append((USER, self.users.of(username, now)))
        if self.addresses is not None and address:
            buckets.append((ADDRESS, self.addresses.of(address, now)))
        if self.listener is not None:
            buckets.append((LISTENER, self.listener))
        if self.broker is not None:
            buckets.append((BROKER, self.broker))
        return Throttle(self, buckets, bytes_received) if buckets else None


@final
class Throttle:
    """What one connection was charged."""

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
