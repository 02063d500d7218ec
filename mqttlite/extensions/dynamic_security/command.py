"""One command of `$CONTROL/dynamic-security/v1`: its checked arguments, and the users whose connections it ends.

The texts of errors are those of Mosquitto's plugin.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from mqttlite.security.dynamic_security import model
from mqttlite.security.dynamic_security.document import Json, is_name, is_text
from mqttlite.security.dynamic_security.model import (
    ACL_TYPE_OF,
    NO_PRIORITY,
    Acl,
    Client,
    Group,
    Role,
    State,
    put,
)
from mqttlite.security.hashes import PasswordHash
from mqttlite.topics.names import check_filter
from mqttlite.wire.errors import TopicFilterInvalid

T = TypeVar("T")

_NAMES: Final = {
    "username": "Username",
    "password": "Password",
    "groupname": "Group name",
    "rolename": "Role name",
}
"""The names of arguments in error texts."""


class CommandError(Exception):
    """Why a command failed; the text goes to the client."""


class Change:
    """What a request changed."""

    def __init__(self, state: State) -> None:
        self.state: State = state
        """With the changes: before the first one, the state in use; then a copy of it."""
        self.changed = False
        """Whether the state must be saved."""
        self.kicked: Final[set[str | None]] = set()
        """The users whose connections end; None: clients without user name."""


class Command:
    """One command, with the state that it changes. Keys are in lower case. `password` is the hash of its password, if
    it has one."""

    def __init__(
        self,
        state: State,
        tree: Json,
        change: Change,
        password: PasswordHash | None,
        connections: Callable[[str, str | None], list[str]],
    ) -> None:
        self.state: Final = state
        self.connections: Final = connections
        """The addresses of a user's connections, or of that one of a client identifier."""
        self.tree: Final = tree
        self.change: Final = change
        self.password: Final = password

    # ------------------------------------------------------------------ what is in it

    def text(self, key: str, missing: str = "") -> str | None:
        """An optional text. Raises `CommandError` with the plugin's error text for another type."""
        value = self.tree.get(key)
        if value is not None and (not isinstance(value, str) or not is_text(value)):
            raise CommandError(missing or f"Invalid/missing {key}")
        return value

    def name(self, key: str) -> str:
        """A required name."""
        value = self.tree.get(key)
        if not isinstance(value, str):
            raise CommandError(f"Invalid/missing {key}")
        if not (is_text if key == "password" else is_name)(value):
            raise CommandError(f"{_NAMES[key]} not valid UTF-8")
        return value

    def client_id(self, missing: str = "") -> str | None:
        """The client identifier that a client must have; None: any."""
        value = self.text("clientid", missing)
        if value is not None and not is_name(value):
            raise CommandError("Client ID not valid UTF-8")
        return value or None

    def check_names(self, *keys: str) -> None:
        """Check that all of these names are present."""
        for key in keys:
            self.name(key)

    def new_name(self, key: str, known: dict[str, Any], most: int, kind: str) -> str:
        """The name of an object to create."""
        name = self.name(key)
        if not name:
            raise CommandError(f"Empty {key}")
        if name in known:
            raise CommandError(f"{kind} already exists")
        if len(known) >= most:
            raise CommandError(f"Too many {kind.lower()}s: {most} at most")
        return name

    def client(self) -> Client:
        client: Client = _find(self.state.clients, self.name("username"), "Client not found")
        return client

    def group(self) -> Group:
        group: Group = _find(self.state.groups, self.name("groupname"), "Group not found")
        return group

    def role(self, missing: str = "Role not found") -> Role:
        role: Role = _find(self.state.roles, self.name("rolename"), missing)
        return role

    def texts(self, described: Client | Group | Role) -> tuple[str | None, str | None]:
        """Its text name and description, as they are after this command."""
        name = self.text("textname") if "textname" in self.tree else described.text_name
        description = self.text("textdescription") if "textdescription" in self.tree else described.text_description
        return name, description

    def flag(self, key: str, *, default: bool) -> bool:
        """An optional truth value."""
        value = self.tree.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise CommandError(f"Invalid {key}")
        return value

    def number(self, key: str, default: int) -> int:
        return _number(self.tree, key, default)

    def roles(self) -> dict[str, int] | None:
        """The roles and their priorities; None where there is no list."""
        items = self.tree.get("roles")
        if items is None:
            return None
        wrong = "'roles' not an array or missing/invalid rolename"
        if not isinstance(items, list):
            raise CommandError(wrong)
        found: dict[str, int] = {}
        for item in items:
            name = item.get("rolename") if isinstance(item, dict) else None
            if not isinstance(name, str):
                raise CommandError(wrong)
            if name not in self.state.roles:
                raise CommandError("Role not found")
            if name not in found:
                check_count(len(found) + 1, "roles")
                put(found, name, _number(item, "priority", NO_PRIORITY))
        return found

    def members(self, key: str, name_key: str, known: dict[str, Any], missing: str) -> dict[str, int] | None:
        """The groups of a client, or the clients of a group; None where there is no list."""
        items = self.tree.get(key)
        if not isinstance(items, list):
            return None
        found: dict[str, int] = {}
        for item in items:
            name = item.get(name_key) if isinstance(item, dict) else None
            if isinstance(name, str):
                if name not in known:
                    raise CommandError(missing)
                found.setdefault(name, _number(item, "priority", NO_PRIORITY))
        return found

    def acls(self) -> dict[str, list[Acl]] | None:
        """The rules of a role; None where there is no list."""
        items = self.tree.get("acls")
        if not isinstance(items, list):
            return None
        if len(items) > model.MAX_ACLS:
            raise CommandError(f"Too many ACLs: {model.MAX_ACLS} at most")
        role = Role("")
        for item in items:
            if isinstance(item, dict) and isinstance(item.get("topic"), str):
                kind = ACL_TYPE_OF.get(str(item.get("acltype", "")).lower())
                if kind is not None:
                    topic = acl_topic(item["topic"])
                    role.add(kind, Acl(topic, _number(item, "priority", 0), item.get("allow") is True))
        return role.acls

    def acl_type(self) -> str:
        kind = self.tree.get("acltype")
        if not isinstance(kind, str):
            raise CommandError("Invalid/missing acltype")
        known = ACL_TYPE_OF.get(kind.lower())
        if known is None:
            raise CommandError("Unknown acltype")
        return known

    def page(self, kind: str, known: dict[str, T], tree: Callable[[T], Json]) -> Json:
        """The part of a list selected by `count` and `offset`: names, or complete objects with `verbose`."""
        count, offset = self.number("count", -1), max(self.number("offset", 0), 0)
        names = list(known)[offset:]
        names = names if count < 0 else names[: max(count, 1)]
        is_verbose = self.tree.get("verbose") is True
        return {"totalCount": len(known), kind: [tree(known[each]) if is_verbose else each for each in names]}

    # ------------------------------------------------------------------ what it changes

    def give_role(self, roles: dict[str, int], role: Role, already: str) -> None:
        """Add a role to a client or group. `already` is the error if it has the role."""
        if role.name in roles:
            raise CommandError(already)
        check_count(len(roles) + 1, "roles")
        put(roles, role.name, self.number("priority", NO_PRIORITY))

    def kick(self, client: Client) -> None:
        """End the connections of a client."""
        self.change.kicked.add(client.username)

    def kick_group(self, group: Group) -> None:
        """End the connections of all clients of a group."""
        self.change.kicked.update(group.clients)
        if group.name == self.state.anonymous_group:
            self.change.kicked.add(None)

    def kick_role(self, role: Role) -> None:
        """End the connections of all clients with a role."""
        self.change.kicked.update(name for name, each in self.state.clients.items() if role.name in each.roles)
        for group in self.state.groups.values():
            if role.name in group.roles:
                self.kick_group(group)


def sort_by_name(known: dict[str, Any]) -> None:
    """Sort by name, the order of lists and of the file."""
    ordered = sorted(known.items(), key=lambda each: each[0].encode())
    known.clear()
    known.update(ordered)


def check_count(count: int, what: str) -> None:
    if count > model.MAX_MEMBERSHIPS:
        raise CommandError(f"Too many {what}: {model.MAX_MEMBERSHIPS} at most")


def acl_topic(topic: str) -> str:
    """A topic that a rule may have. Raises `CommandError`."""
    if not is_name(topic):
        raise CommandError("Topic not valid UTF-8")
    try:
        check_filter(topic.encode())
    except TopicFilterInvalid:
        raise CommandError("Invalid ACL topic") from None
    return topic


def _find(known: dict[str, Any], name: str, missing: str) -> Any:
    if name not in known:
        raise CommandError(missing)
    return known[name]


def _number(tree: Json, key: str, default: int) -> int:
    value = tree.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else default
