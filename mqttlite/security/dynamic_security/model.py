"""Clients, groups, roles and their access rules, as Mosquitto's dynamic security plugin has them.

`document` has their file format, `commands` changes them, and `rules` evaluates them. Invariant: every role or group
that a client or group names exists, and each list is in order of evaluation.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Final

from mqttlite.security.hashes import PasswordHash

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
"""By name in lower case, because the plugin ignores case."""

SUBSCRIBE: Final = "subscribe"
UNSUBSCRIBE: Final = "unsubscribe"
DEFAULT_TYPES: Final = (PUBLISH_SEND, PUBLISH_RECEIVE, SUBSCRIBE, UNSUBSCRIBE)
DEFAULT_TYPE_OF: Final = {each.lower(): each for each in DEFAULT_TYPES}

NO_PRIORITY: Final = -1
"""Stands for an unset priority; it is not written to the file."""

MAX_CLIENTS: Final = 20_000
"""Each change writes the whole file: some six megabytes with this many clients."""

MAX_GROUPS: Final = 5_000
MAX_ROLES: Final = 5_000
"""Fewer than clients, because clients share roles."""

MAX_ACLS: Final = 1_000
"""The most rules of a role. The first verdict after a change of them makes a tree of all, in about 1.5 ms."""

MAX_NAMED: Final = 20
"""Unknown keys that are named."""

MAX_MEMBERSHIPS: Final = 100
"""The most roles of a client or group, and groups of a client. A verdict may have to check each."""


USERNAME: Final = "%u"
NAMES: Final = frozenset({USERNAME, "%c"})
"""The levels of a rule's topic that stand for names of the client. In literal rules they stand for themselves."""

Unknown = dict[str, Any]
"""The keys of an object in the file that this version does not know, as they are spelled. They are written back."""


@dataclass(slots=True)
class Acl:
    """One access rule of a role. It is never changed, so copies of a state share it."""

    topic: str
    priority: int
    allow: bool
    unknown: Unknown = field(default_factory=dict)
    has_names: bool = field(init=False, compare=False)
    """Whether a level of its topic stands for the user name or the client identifier."""

    def __post_init__(self) -> None:
        self.has_names = not NAMES.isdisjoint(self.topic.split("/"))


@dataclass(slots=True)
class Role:
    name: str
    text_name: str | None = None
    text_description: str | None = None
    allow_wildcard_subs: bool = True
    """If not, the role refuses every topic filter with a wildcard, before its rules."""
    acls: dict[str, list[Acl]] = field(default_factory=lambda: {each: [] for each in ACL_TYPES})
    """By type. Each list is sorted by priority, highest first, then by age."""
    unknown: Unknown = field(default_factory=dict)

    def add(self, acl_type: str, acl: Acl) -> None:
        """Add a rule after those of the same priority."""
        acls = self.acls[acl_type]
        acls.append(acl)
        acls.sort(key=lambda each: -each.priority)

    def count(self) -> int:
        """How many rules it has."""
        return sum(len(each) for each in self.acls.values())


@dataclass(slots=True)
class Group:
    name: str
    text_name: str | None = None
    text_description: str | None = None
    roles: dict[str, int] = field(default_factory=dict)
    """The priority of each role by its name, in order."""
    clients: dict[str, int] = field(default_factory=dict)
    """The priority of the group for each client, by user name; unordered, because there may be thousands."""
    unknown: Unknown = field(default_factory=dict)


@dataclass(slots=True)
class Client:
    username: str
    text_name: str | None = None
    text_description: str | None = None
    client_id: str | None = None
    """If set, the user may only connect with this client identifier."""
    disabled: bool = False
    password: PasswordHash | None = None
    roles: dict[str, int] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    """The priority of each group, by its name, in order."""
    unknown: Unknown = field(default_factory=dict)


@dataclass(slots=True)
class State:
    """All clients, groups and roles, and the default access."""

    clients: dict[str, Client] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    roles: dict[str, Role] = field(default_factory=dict)
    anonymous_group: str | None = None
    default_access: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(DEFAULT_TYPES, False))
    change_index: int = 0
    """How many commands have changed it."""
    unknown: Unknown = field(default_factory=dict)
    unknown_places: list[str] = field(default_factory=list, compare=False)
    """Where unknown keys are: up to `MAX_NAMED` of them."""

    def copy(self) -> "State":
        """The same clients, groups and roles, to be changed apart from these."""
        return replace(
            self,
            clients={
                name: replace(each, roles=dict(each.roles), groups=dict(each.groups))
                for name, each in self.clients.items()
            },
            groups={
                name: replace(each, roles=dict(each.roles), clients=dict(each.clients))
                for name, each in self.groups.items()
            },
            roles={
                name: replace(each, acls={kind: list(acls) for kind, acls in each.acls.items()})
                for name, each in self.roles.items()
            },
            default_access=dict(self.default_access),
        )

    def join(self, client: Client, group: Group, priority: int) -> None:
        """Add a client to a group."""
        put(client.groups, group.name, priority)
        group.clients[client.username] = priority

    def leave(self, client: Client, group: Group) -> None:
        """Remove a client from a group. Harmless if it is not a member."""
        client.groups.pop(group.name, None)
        group.clients.pop(client.username, None)

    def leave_all(self, client: Client) -> None:
        """Remove a client from all its groups."""
        for name in list(client.groups):
            self.leave(client, self.groups[name])

    def role_sets_of(self, username: str | None) -> tuple[str, ...] | None:
        """The names of a user's roles in order of evaluation: its own, then those of its groups.

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


def changed_users(before: State, after: State) -> frozenset[str | None]:
    """The users who are gone, or log in or are permitted in another way; None: clients without a user name."""
    roles = {name for name, each in before.roles.items() if each != after.roles.get(name)}
    found: set[str | None] = set()
    for name, was in before.clients.items():
        now = after.clients.get(name)
        if now is None or (now.password, now.disabled, now.client_id) != (was.password, was.disabled, was.client_id):
            found.add(name)
    for username in (None, *before.clients):
        had = before.role_sets_of(username)
        if had != after.role_sets_of(username) or not roles.isdisjoint(had or ()):
            found.add(username)
    return frozenset(found)


def put(priorities: dict[str, int], name: str, priority: int) -> None:
    """Give a name a priority and keep the order: highest priority first, then by name."""
    priorities[name] = priority
    in_order = sorted(priorities.items(), key=lambda each: (-each[1], each[0].encode()))
    priorities.clear()
    priorities.update(in_order)
