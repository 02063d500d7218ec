"""Limits totals for the sessions of a user, an address, a listener or the broker: subscriptions, and bytes that wait in
queues.

Each session counts in some groups, and asks them before it takes more. Invariant: a group without sessions is in no
table, so there are no more groups than sessions of each kind.
"""

from typing import Final, final

NO_LIMIT: Final = 1 << 62


@final
class UsageLimits:
    """The limits of a group; 0: no limit. `prefix` begins the names of its limits, which are the keys of `refused`."""

    __slots__ = ("max_queued_bytes", "max_subscriptions", "queued_bytes_name", "refused", "subscriptions_name")

    def __init__(self, prefix: str, max_subscriptions: int, max_queued_bytes: int, refused: dict[str, int]) -> None:
        self.max_subscriptions: Final = max_subscriptions or NO_LIMIT
        self.max_queued_bytes: Final = max_queued_bytes or NO_LIMIT
        self.subscriptions_name: Final = f"{prefix}_subscriptions"
        self.queued_bytes_name: Final = f"{prefix}_queued_bytes"
        self.refused: Final = refused

    @property
    def is_set(self) -> bool:
        return self.max_subscriptions < NO_LIMIT or self.max_queued_bytes < NO_LIMIT

    def count_refused(self, name: str) -> None:
        self.refused[name] = self.refused.get(name, 0) + 1


@final
class Usage:
    """The totals of one group of sessions. The table drops it when its last session leaves."""

    __slots__ = ("_groups", "_key", "limits", "queued_bytes", "sessions", "subscriptions")

    def __init__(self, limits: UsageLimits, groups: "dict[str, Usage]", key: str) -> None:
        self.limits: Final = limits
        self._groups: Final = groups
        self._key: Final = key
        self.sessions: int = 0
        self.subscriptions: int = 0
        self.queued_bytes: int = 0

    def join(self, subscriptions: int, queued_bytes: int) -> None:
        """Count a session."""
        self.sessions += 1
        self.subscriptions += subscriptions
        self.queued_bytes += queued_bytes

    def leave(self, subscriptions: int, queued_bytes: int) -> None:
        """Stop counting a session."""
        self.sessions -= 1
        self.subscriptions -= subscriptions
        self.queued_bytes -= queued_bytes
        if not self.sessions:
            del self._groups[self._key]

    def refusal(self) -> str:
        """A sentence that says why it may have no further subscription; empty if it may."""
        limits = self.limits
        if self.subscriptions < limits.max_subscriptions:
            return ""
        return f"{self.subscriptions} subscriptions, at most {limits.max_subscriptions} ({limits.subscriptions_name})"

    def detail(self) -> str:
        """The detail for a drop reason: which queues are full."""
        return f"{self.limits.queued_bytes_name}: {self.queued_bytes}/{self.limits.max_queued_bytes}"


@final
class UsageTable:
    """The groups of one kind, by user or address. A listener or the broker has one group, with an empty key."""

    __slots__ = ("_groups", "_limits")

    def __init__(self, limits: UsageLimits) -> None:
        self._limits: Final = limits
        self._groups: Final[dict[str, Usage]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def of(self, key: str) -> Usage:
        """The group of a key. The caller must join it."""
        usage = self._groups.get(key)
        if usage is None:
            usage = self._groups[key] = Usage(self._limits, self._groups, key)
        return usage


@final
class Usages:
    """The tables for the sessions of one listener; None: no limit. Listeners may share them."""

    __slots__ = ("addresses", "broker", "listener", "users")

    def __init__(
        self,
        users: UsageTable | None = None,
        addresses: UsageTable | None = None,
        listener: UsageTable | None = None,
        broker: UsageTable | None = None,
    ) -> None:
        self.users: Final = users
        self.addresses: Final = addresses
        self.listener: Final = listener
        self.broker: Final = broker

    def of(self, username: str | None, address: str) -> list[Usage]:
        """The groups in which a session counts. `address` is empty if it is not known."""
        found: list[Usage] = []
        if self.users is not None and username is not None:
            found.append(self.users.of(username))
        if self.addresses is not None and address:
            found.append(self.addresses.of(address))
        if self.listener is not None:
            found.append(self.listener.of(""))
        if self.broker is not None:
            found.append(self.broker.of(""))
        return found


NO_USAGE: Final[list[Usage]] = []
"""Never added to. Shared by sessions without groups."""
