"""Clients, groups, roles and their access rules, as Mosquitto's dynamic security plugin has them.

How they look in the file lives in `document`, how they are changed in `commands`, and what they allow in `rules`.
Invariant: a role or group that a client or group names exists, and each list is in the order in which it is asked.
"""

from dataclasses import dataclass, field
from typing import Final

PUBLISH_SEND: Final = "publishClientSend"
PUBLISH_RECEIVE: Final = "publishClientReceive"
SUBSCRIBE_LITERAL: Final = "subscribeLiteral"
SUBSCRIBE_PATTERN: Final = "subscribePattern"
UNSUBSCRIBE_LITERAL: Final = "unsubscribeLiteral"
UNSUBSCRIBE_PATTERN: Final = "unsubscribePattern"

ACL_TYPES: Final = (
    PUBLISH_SEND,
    PUBLISH_RECEIVE,
    SUBSCRIBE_LITERAL,
    SUBSCRIBE_PATTERN,
    UNSUBSCRIBE_LITERAL,
    UNSUBSCRIBE_PATTERN,
)
ACL_TYPE_OF: Final = {each.lower(): each for each in ACL_TYPES}
"""By its name in small letters: the plugin does not distinguish case."""

SUBSCRIBE: Final = "subscribe"
UNSUBSCRIBE: Final = "unsubscribe"
DEFAULT_TYPES: Final = (PUBLISH_SEND, PUBLISH_RECEIVE, SUBSCRIBE, UNSUBSCRIBE)
DEFAULT_TYPE_OF: Final = {each.lower(): each for each in DEFAULT_TYPES}

NO_PRIORITY: Final = -1
"""The priority of a role or group for which none is given; it is not written."""

MAX_CLIENTS: Final = 20_000
"""Each change writes the whole file: some six megabytes for that many clients."""

MAX_GROUPS: Final = 5_000
MAX_ROLES: Final = 5_000
"""Fewer than clients, for they are what clients have in common."""

MAX_ACLS: Final = 1_000
"""Of one role: a verdict may have to look at each."""

MAX_MEMBERSHIPS: Final = 100
"""Roles of one client or group, and groups of one client: a verdict may have to look at each."""


@dataclass(slots=True)
class Acl:
    """One access rule of a role."""

    topic: str
    priority: int
    allow: bool


@dataclass(slots=True)
class Role:
    name: str
    text_name: str | None = None
    text_description: str | None = None
    acls: dict[str, list[Acl]] = field(default_factory=lambda: {each: [] for each in ACL_TYPES})
    """By type, each list with the highest priority first; of equal priority, the older first."""

    def add(self, acl_type: str, acl: Acl) -> None:
        """Add a rule behind those of its priority."""
        acls = self.acls[acl_type]
        acls.append(acl)
        acls.sort(key=lambda each: -each.priority)

    def count(self) -> int:
        """How many rules it has."""
        return sum(len(each) for each in self.acls.values())


@dataclass(slots=True)
class Password:
    """PBKDF2 with HMAC-SHA-512."""

    hash: bytes = field(repr=False)
    salt: bytes = field(repr=False)
    iterations: int


@dataclass(slots=True)
class Group:
    name: str
    text_name: str | None = None
    text_description: str | None = None
    roles: dict[str, int] = field(default_factory=dict)
    """The priority of each role by its name, in order."""
    clients: dict[str, int] = field(default_factory=dict)
    """The priority that the group has for each client, by user name, in no order: there may be thousands."""


@dataclass(slots=True)
class Client:
    username: str
    text_name: str | None = None
    text_description: str | None = None
    client_id: str | None = None
    """With one, the user may connect with that client identifier alone."""
    disabled: bool = False
    password: Password | None = None
    roles: dict[str, int] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    """The priority of each group, by its name, in order."""


@dataclass(slots=True)
class State:
    """All of it."""

    clients: dict[str, Client] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    roles: dict[str, Role] = field(default_factory=dict)
    anonymous_group: str | None = None
    default_access: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(DEFAULT_TYPES, False))

    def join(self, client: Client, group: Group, priority: int) -> None:
        """Add a client to a group."""
        put(client.groups, group.name, priority)
        group.clients[client.username] = priority

    def leave(self, client: Client, group: Group) -> None:
        """The opposite of `join`; harmless for a client that is not in the group."""
        client.groups.pop(group.name, None)
        group.clients.pop(client.username, None)

    def leave_all(self, client: Client) -> None:
        """Remove a client from all its groups."""
        for name in list(client.groups):
            self.leave(client, self.groups[name])

    def role_sets_of(self, username: str | None) -> tuple[str, ...] | None:
        """The names of a user's roles in the order in which they are asked: its own, then those of its groups.

        None for a user that does not exist or is disabled. Without a user name: the roles of the anonymous group.
        """
        if username is None:
            return () if self.anonymous_group is None else tuple(self.groups[self.anonymous_group].roles)
        client = self.clients.get(username)
        if client is None or client.disabled:
            return None
        names = dict.fromkeys(client.roles)
        for group in client.groups:
            names.update(dict.fromkeys(self.groups[group].roles))
        return tuple(names)


def put(priorities: dict[str, int], name: str, priority: int) -> None:
    """Give a name a priority and keep the order: highest priority first, then by name."""
    priorities[name] = priority
    in_order = sorted(priorities.items(), key=lambda each: (-each[1], each[0].encode()))
    priorities.clear()
    priorities.update(in_order)
